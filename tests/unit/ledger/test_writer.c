/* test_writer.c: group commits, retries and the stop, on a database that does as it is told. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/log.h"
#include "base/policy.h"
#include "ledger/writer.h"

#define ROWS_MAX 4096

/* A database of nothing but seqs. */
struct script {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool hold_commits;         /* commits wait until this is false */
    bool committing;           /* one is waiting */
    enum status commit_status; /* what the next commits return */
    enum status insert_status; /* what the next insert_failures inserts return */
    int insert_failures;
    int64_t bad_seq;        /* a batch with this seq comes to bad_status */
    enum status bad_status; /* CONFLICT: the user's slot is taken; INVALID */
    size_t savepoints[64];  /* how much was written at each */
    size_t savepoint_count;
    int64_t written[ROWS_MAX];   /* in the open transaction */
    int64_t committed[ROWS_MAX]; /* for good */
    size_t written_count, committed_count;
    int writes, savepoints_undone, bindings, returned_units;
    int begins, commits;
    struct writer writer;
    struct ledger_options options;
    struct ledger_stats stats;
    /* What the callbacks saw. */
    size_t issued_count;
    uint64_t durable_when_issued;
    int durable_calls;
};

static struct script *script_of(struct ledger_session *session)
{
    return (struct script *)session;
}

static enum status script_begin(struct ledger_session *session, struct error *error)
{
    struct script *script = script_of(session);
    (void)error;
    script->begins++;
    script->written_count = 0;
    script->savepoint_count = 0;
    return STATUS_OK;
}

static enum status script_commit(struct ledger_session *session, struct error *error)
{
    struct script *script = script_of(session);

    pthread_mutex_lock(&script->lock);
    script->committing = true;
    pthread_cond_broadcast(&script->changed);
    while (script->hold_commits)
        pthread_cond_wait(&script->changed, &script->lock);
    script->committing = false;
    enum status status = script->commit_status;
    if (status == STATUS_OK) {
        memcpy(script->committed + script->committed_count, script->written,
               script->written_count * sizeof(script->written[0]));
        script->committed_count += script->written_count;
        script->commits++;
    }
    pthread_mutex_unlock(&script->lock);
    return status == STATUS_OK ? status : error_set(error, status, "told so");
}

static void script_rollback(struct ledger_session *session)
{
    script_of(session)->written_count = 0;
}

static enum status script_savepoint(struct ledger_session *session, struct error *error)
{
    struct script *script = script_of(session);
    (void)error;
    ensure(script->savepoint_count < 64);
    script->savepoints[script->savepoint_count++] = script->written_count;
    return STATUS_OK;
}

static enum status script_savepoint_end(struct ledger_session *session, bool keep,
                                        struct error *error)
{
    struct script *script = script_of(session);
    (void)error;
    ensure(script->savepoint_count > 0);
    script->savepoint_count--;
    if (!keep)
        script->written_count = script->savepoints[script->savepoint_count];
    script->savepoints_undone += !keep;
    return STATUS_OK;
}

/* One lease covers everything; nobody is blocked; whoever holds a slot holds it with seq 1. */
static enum status script_run(struct ledger_session *session, const struct sql_call *call,
                              struct error *error)
{
    if (call->changed != NULL)
        *call->changed = 1;
    if (call->statement == STATEMENT_refused_insert) {
        struct script *script = script_of(session);
        script->written[script->written_count++] = call->values[1].number;
    }
    if (call->statement == STATEMENT_key_insert)
        script_of(session)->bindings++;
    if (call->statement == STATEMENT_policy_return_unit)
        script_of(session)->returned_units++;
    if (call->statement == STATEMENT_policy_by_id)
        return call->row(call->context,
                         (const struct sql_value[SQL_COLUMNS_MAX]){
                             sql_i64(1), sql_text(SPAN("p")), sql_text(SPAN("fixed")), sql_i64(1),
                             sql_i64(1000000), sql_i64(1), [POLICY_COLUMN_next_seq] = sql_i64(1)},
                         error);
    if (call->statement == STATEMENT_coupon_list_of_claimant)
        return call->row(call->context,
                         (const struct sql_value[SQL_COLUMNS_MAX]){sql_i64(1), sql_i64(1),
                                                                   call->values[1], sql_i64(1),
                                                                   sql_text(SPAN("ISSUED"))},
                         error);
    if (call->statement != STATEMENT_lease_for_issue)
        return STATUS_OK;
    const struct sql_value columns[SQL_COLUMNS_MAX] = {sql_i64(1), sql_i64(1), sql_i64(1000000),
                                                       sql_i64(1)};
    return call->row(call->context, columns, error);
}

/* The rows in front of a bad one are written: whoever keeps them after the refusal is found out. */
static enum status script_insert(struct ledger_session *session, struct coupon_row *rows,
                                 size_t count, struct error *error)
{
    struct script *script = script_of(session);

    pthread_mutex_lock(&script->lock);
    bool fails = script->insert_failures > 0;
    enum status told = script->insert_status;
    if (fails)
        script->insert_failures--;
    pthread_mutex_unlock(&script->lock);
    if (fails)
        return error_set(error, told, "told so");
    for (size_t i = 0; i < count; i++) {
        rows[i].conflicts = false;
        if (rows[i].claim->seq == script->bad_seq && rows[i].state == COUPON_ISSUED)
            return error_set(error, script->bad_status, "a bad row");
        script->written[script->written_count++] = rows[i].claim->seq;
    }
    return STATUS_OK;
}

static const struct ledger_driver script_driver = {
    .name = "script",
    .begin = script_begin,
    .commit = script_commit,
    .rollback = script_rollback,
    .savepoint = script_savepoint,
    .savepoint_end = script_savepoint_end,
    .run = script_run,
    .insert_coupons = script_insert,
};

static uint64_t durable(struct script *script)
{
    return atomic_load(&script->writer.durable);
}

static void on_issued(void *context, const struct claim *claims, const enum coupon_state *states,
                      size_t count)
{
    struct script *script = context;
    for (size_t i = 0; i < count; i++) {
        enum coupon_state expected = COUPON_ISSUED;
        if (claims[i].seq == script->bad_seq)
            expected = script->bad_status == STATUS_CONFLICT ? COUPON_MERGED : COUPON_VOID;
        ensure(claims[i].seq == (int64_t)(script->issued_count + i) + 1 && states[i] == expected);
    }
    pthread_mutex_lock(&script->lock);
    /* All but the bad one, at most, have a row. */
    ensure(script->committed_count + (script->bad_seq != 0) >= script->issued_count + count);
    script->issued_count += count;
    script->durable_when_issued = durable(script);
    pthread_mutex_unlock(&script->lock);
}

static void on_durable(void *context)
{
    struct script *script = context;
    pthread_mutex_lock(&script->lock);
    script->durable_calls++;
    pthread_cond_broadcast(&script->changed);
    pthread_mutex_unlock(&script->lock);
}

static int set_up(void **state)
{
    struct script *script = calloc(1, sizeof(*script));
    struct error error;

    log_configure(LOG_ERROR + 1, LOG_LOGFMT, STDERR_FILENO);
    pthread_mutex_init(&script->lock, NULL);
    pthread_cond_init(&script->changed, NULL);
    script->options = (struct ledger_options){
        .on_issued = on_issued, .on_durable = on_durable, .context = script};
    struct sql sql = {.driver = &script_driver, .session = (struct ledger_session *)script};
    assert_int_equal(writer_start(&script->writer, sql, &script->options, &script->stats, &error),
                     STATUS_OK);
    *state = script;
    return 0;
}

static void release(struct script *script)
{
    pthread_cond_destroy(&script->changed);
    pthread_mutex_destroy(&script->lock);
    free(script);
}

static int tear_down(void **state)
{
    struct script *script = *state;
    writer_stop(&script->writer);
    release(script);
    return 0;
}

static void set_commits(struct script *script, bool hold, enum status status)
{
    pthread_mutex_lock(&script->lock);
    script->hold_commits = hold;
    script->commit_status = status;
    pthread_cond_broadcast(&script->changed);
    pthread_mutex_unlock(&script->lock);
}

/* Whatever is awaited comes at once or never; half a minute is never. */
static void wait_a_moment(int *moments)
{
    if (++*moments > 30000)
        fail_msg("waited in vain");
    usleep(1000);
}

static void await_committing(struct script *script)
{
    for (int moments = 0;; wait_a_moment(&moments)) {
        pthread_mutex_lock(&script->lock);
        bool committing = script->committing;
        pthread_mutex_unlock(&script->lock);
        if (committing)
            return;
    }
}

static void await_durable(struct script *script, uint64_t ticket)
{
    for (int moments = 0; durable(script) < ticket;)
        wait_a_moment(&moments);
}

static void await_health(struct script *script, bool healthy)
{
    for (int moments = 0; atomic_load(&script->writer.healthy) != healthy;)
        wait_a_moment(&moments);
}

static uint64_t issue(struct script *script, int64_t first_seq, size_t count)
{
    struct claim claims[64] = {0};
    for (size_t i = 0; i < count; i++)
        claims[i] =
            (struct claim){.policy_id = 1, .seq = first_seq + (int64_t)i, .lease_id = 1, .nth = 1};
    return writer_issue(&script->writer, claims, count, NULL, 0);
}

/* A caller's write; `argument` is the status it comes to. */
static enum status apply(struct sql *sql, void *argument, struct error *error)
{
    enum status status = *(enum status *)argument;
    script_of(sql->session)->writes++;
    return status == STATUS_OK ? status : error_set(error, status, "its own words");
}

/* --- commits --- */

static void test_writer__gate_hears_before_the_ticket_is_durable(void **state)
{
    struct script *script = *state;
    uint64_t ticket = issue(script, 1, 3);
    await_durable(script, ticket);
    pthread_mutex_lock(&script->lock);
    assert_int_equal(script->issued_count, 3);
    assert_int_equal(script->durable_when_issued, 0);
    pthread_mutex_unlock(&script->lock);
    assert_int_equal(atomic_load(&script->writer.pending), 0);
}

static void test_writer__the_next_batch_gathers(void **state)
{
    struct script *script = *state;
    uint64_t ticket = 0;

    set_commits(script, true, STATUS_OK);
    uint64_t first = issue(script, 1, 1);
    await_committing(script);
    for (int i = 0; i < 50; i++)
        ticket = issue(script, 2 + 2 * i, 2);
    assert_int_equal(durable(script), 0);
    assert_int_equal(atomic_load(&script->writer.pending), 101);
    set_commits(script, false, STATUS_OK);
    await_durable(script, ticket);
    assert_true(ticket > first);
    assert_int_equal(script->commits, 2);
    assert_int_equal(script->committed_count, 101);
}

static void test_writer__a_key_alone_has_its_ticket(void **state)
{
    struct script *script = *state;
    struct key_binding binding = {.policy_id = 1, .seq = 1};
    await_durable(script, writer_issue(&script->writer, NULL, 0, &binding, 1));
    assert_int_equal(script->bindings, 1);
}

/* --- callers --- */

static void test_writer__refused_write_is_undone_alone(void **state)
{
    struct script *script = *state;
    enum status fine = STATUS_OK;
    enum status refused = STATUS_CONFLICT;
    struct error error = {""};

    assert_int_equal(writer_run(&script->writer, apply, &refused, &error), STATUS_CONFLICT);
    assert_string_equal(error.text, "its own words");
    assert_int_equal(script->savepoints_undone, 1);
    assert_int_equal(writer_run(&script->writer, apply, &fine, &error), STATUS_OK);
    assert_int_equal(script->savepoints_undone, 1);
    assert_int_equal(script->commits, 2);
}

static void test_writer__failed_commit_is_told_to_the_caller(void **state)
{
    struct script *script = *state;
    enum status fine = STATUS_OK;
    struct error error = {""};

    set_commits(script, false, STATUS_UNAVAILABLE);
    assert_int_equal(writer_run(&script->writer, apply, &fine, &error), STATUS_UNAVAILABLE);
    assert_string_equal(error.text, "told so");
    assert_int_equal(script->writes, 1); /* not tried again behind the caller's back */
    set_commits(script, false, STATUS_OK);
    assert_int_equal(writer_run(&script->writer, apply, &fine, &error), STATUS_OK);
}

struct caller {
    struct script *script;
    enum status status;
};

static void *call(void *context)
{
    struct caller *caller = context;
    enum status fine = STATUS_OK;
    struct error error;
    caller->status = writer_run(&caller->script->writer, apply, &fine, &error);
    return NULL;
}

static void await_queued(struct script *script)
{
    int moments = 0;
    for (bool queued = false; !queued; wait_a_moment(&moments)) {
        pthread_mutex_lock(&script->writer.lock);
        queued = script->writer.gathering.writes != NULL;
        pthread_mutex_unlock(&script->writer.lock);
    }
}

/* Trouble begins while one caller waits in the next batch; another comes later. */
static void test_writer__nobody_waits_behind_refused_claims(void **state)
{
    struct script *script = *state;
    struct caller caller = {.script = script};
    enum status fine = STATUS_OK;
    struct error error = {""};
    pthread_t thread;

    set_commits(script, true, STATUS_UNAVAILABLE);
    uint64_t ticket = issue(script, 1, 1);
    await_committing(script);
    assert_int_equal(pthread_create(&thread, NULL, call, &caller), 0);
    await_queued(script);
    set_commits(script, false, STATUS_UNAVAILABLE);
    pthread_join(thread, NULL);
    assert_int_equal(caller.status, STATUS_UNAVAILABLE);
    await_health(script, false);
    assert_int_equal(writer_run(&script->writer, apply, &fine, &error), STATUS_UNAVAILABLE);
    assert_string_equal(error.text, "told so");
    assert_int_equal(script->writes, 0);
    set_commits(script, false, STATUS_OK);
    await_durable(script, ticket);
    assert_int_equal(writer_run(&script->writer, apply, &fine, &error), STATUS_OK);
}

/* --- the order of writes --- */

/* A write that notes its name. */
struct noting {
    struct script *script;
    enum write_turn turn;
    char name;
    char *names;
};

static enum status note_name(struct sql *sql, void *argument, struct error *error)
{
    const struct noting *noting = argument;
    (void)sql;
    (void)error;
    noting->names[strlen(noting->names)] = noting->name;
    return STATUS_OK;
}

static void *act_noting(void *context)
{
    struct noting *noting = context;
    struct error error;
    enum status status =
        writer_run_in(&noting->script->writer, noting->turn, note_name, noting, &error);
    return status == STATUS_OK ? noting : NULL;
}

static size_t queued_count(struct script *script)
{
    size_t count = 0;
    pthread_mutex_lock(&script->writer.lock);
    for (struct waiting_write *write = script->writer.gathering.writes; write != NULL;
         write = write->next)
        count++;
    pthread_mutex_unlock(&script->writer.lock);
    return count;
}

/* Whatever came first, what is to come last does; in both turns in the order they came. */
static void test_writer__some_writes_come_last(void **state)
{
    static const enum write_turn turns[] = {WRITE_LAST, WRITE_IN_TURN, WRITE_LAST, WRITE_IN_TURN};
    struct script *script = *state;
    struct noting notings[4];
    pthread_t threads[4];
    char names[8] = "";
    int moments = 0;

    set_commits(script, true, STATUS_OK);
    issue(script, 1, 1);
    await_committing(script);
    for (size_t i = 0; i < 4; i++) {
        notings[i] = (struct noting){script, turns[i], (char)('a' + i), names};
        assert_int_equal(pthread_create(&threads[i], NULL, act_noting, &notings[i]), 0);
        while (queued_count(script) <= i)
            wait_a_moment(&moments);
    }
    set_commits(script, false, STATUS_OK);
    for (size_t i = 0; i < 4; i++) {
        void *done = NULL;
        pthread_join(threads[i], &done);
        assert_non_null(done);
    }
    assert_string_equal(names, "bdac");
}

/* --- retries --- */

static void test_writer__refused_claims_are_tried_until_they_are_in(void **state)
{
    struct script *script = *state;

    set_commits(script, false, STATUS_UNAVAILABLE);
    uint64_t first = issue(script, 1, 5);
    await_health(script, false);
    uint64_t second = issue(script, 6, 5);
    assert_int_equal(durable(script), 0);
    assert_int_equal(script->durable_calls, 0);
    set_commits(script, false, STATUS_OK);
    await_durable(script, second);
    assert_true(first < second);
    assert_true(atomic_load(&script->writer.healthy));
    assert_int_equal(script->committed_count, 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(script->committed[i], i + 1);
    assert_true(atomic_load(&script->stats.commit_failures) > 0);
    assert_int_equal(atomic_load(&script->stats.claims_issued), 10);
}

/* --- others in the way, and bad rows --- */

static void set_inserts(struct script *script, enum status status, int failures)
{
    pthread_mutex_lock(&script->lock);
    script->insert_status = status;
    script->insert_failures = failures;
    pthread_mutex_unlock(&script->lock);
}

/* A caller whose write meets someone else's in the database does not notice. */
static enum status apply_with_insert(struct sql *sql, void *argument, struct error *error)
{
    struct claim claim = {.seq = 1};
    struct coupon_row row = {.claim = &claim};
    script_of(sql->session)->writes++;
    (void)argument;
    return sql->driver->insert_coupons(sql->session, &row, 1, error);
}

static void test_writer__busy_is_done_again(void **state)
{
    struct script *script = *state;
    struct error error = {""};

    set_inserts(script, STATUS_BUSY, 4);
    assert_int_equal(writer_run(&script->writer, apply_with_insert, NULL, &error), STATUS_OK);
    assert_int_equal(script->writes, 5);
    assert_int_equal(script->commits, 1);
    assert_int_equal(script->committed_count, 1);
    set_inserts(script, STATUS_BUSY, 4);
    await_durable(script, issue(script, 1, 3));
    assert_int_equal(script->commits, 2);
    assert_int_equal(script->committed_count, 4);
    assert_true(atomic_load(&script->writer.healthy));
    assert_int_equal(atomic_load(&script->stats.commit_failures), 0);
}

static void test_writer__busy_for_long_is_unavailable(void **state)
{
    struct script *script = *state;
    struct error error = {""};

    set_inserts(script, STATUS_BUSY, 1000000);
    assert_int_equal(writer_run(&script->writer, apply_with_insert, NULL, &error),
                     STATUS_UNAVAILABLE);
    assert_string_equal(error.text, "told so");
    assert_true(script->writes > 1);
    uint64_t ticket = issue(script, 1, 3);
    await_health(script, false);
    assert_int_equal(durable(script), 0);
    set_inserts(script, STATUS_OK, 0);
    await_durable(script, ticket);
    assert_int_equal(script->committed_count, 3);
}

/* Trap 22, wherever in the batch the row is. A merged row, or one among the refused, takes its
 * place. */
static void one_bad_row(struct script *script, enum status bad_status)
{
    static const int64_t places[] = {1, 32, 33, 64};

    for (size_t i = 0; i < 4; i++) {
        int64_t sum = 0;
        int begins = script->begins;
        script->committed_count = 0;
        script->issued_count = 0;
        script->bad_seq = places[i];
        script->bad_status = bad_status;
        await_durable(script, issue(script, 1, 64));
        assert_int_equal(script->begins, begins + 2); /* as a whole, then with care */
        assert_int_equal(script->issued_count, 64);
        assert_true(atomic_load(&script->writer.healthy));
        for (size_t at = 0; at < script->committed_count; at++)
            sum += script->committed[at];
        assert_int_equal(script->committed_count, 64);
        assert_int_equal(sum, 64 * 65 / 2);
    }
    assert_int_equal(script->returned_units, 4);
    assert_int_equal(atomic_load(&script->stats.claims_void), 4);
}

static void test_writer__a_refused_row_is_refused_alone(void **state)
{
    one_bad_row(*state, STATUS_INVALID);
}

static void test_writer__a_row_in_conflict_is_merged_alone(void **state)
{
    one_bad_row(*state, STATUS_CONFLICT);
}

/* What refuses a whole transaction is no rule that its callers broke. */
static void test_writer__a_refused_transaction_is_unavailable(void **state)
{
    struct script *script = *state;
    enum status fine = STATUS_OK;
    struct error error = {""};

    set_commits(script, false, STATUS_CONFLICT);
    assert_int_equal(writer_run(&script->writer, apply, &fine, &error), STATUS_UNAVAILABLE);
    set_commits(script, false, STATUS_INVALID);
    assert_int_equal(writer_run(&script->writer, apply, &fine, &error), STATUS_UNAVAILABLE);
}

/* --- the stop --- */

static void test_writer__stop_commits_what_is_queued(void **state)
{
    struct script *script = *state;

    set_commits(script, true, STATUS_OK);
    issue(script, 1, 1);
    await_committing(script);
    uint64_t ticket = issue(script, 2, 7);
    set_commits(script, false, STATUS_OK);
    writer_stop(&script->writer);
    assert_int_equal(durable(script), ticket);
    assert_int_equal(script->committed_count, 8);
    release(script);
}

static void *stop(void *context)
{
    struct script *script = context;
    writer_stop(&script->writer);
    return NULL;
}

/* Claims are given up while the database refuses; when it recovers at that very moment, what was
 * queued behind them must not make their tickets look durable. */
static void test_writer__stop_gives_up_all_or_nothing(void **state)
{
    struct script *script = *state;
    pthread_t thread;

    set_commits(script, false, STATUS_UNAVAILABLE);
    issue(script, 1, 1);
    await_health(script, false);
    set_commits(script, true, STATUS_UNAVAILABLE);
    await_committing(script);
    issue(script, 2, 1);
    assert_int_equal(pthread_create(&thread, NULL, stop, script), 0);
    int moments = 0;
    for (bool stopping = false; !stopping; wait_a_moment(&moments)) {
        pthread_mutex_lock(&script->writer.lock);
        stopping = script->writer.stopping;
        pthread_mutex_unlock(&script->writer.lock);
    }
    int begins = script->begins;
    set_commits(script, false, STATUS_UNAVAILABLE);
    pthread_join(thread, NULL);
    assert_int_equal(durable(script), 0);
    assert_int_equal(script->begins, begins); /* the second batch is not even tried */
    assert_int_equal(script->committed_count, 0);
    release(script);
}

int main(void)
{
#define WRITER_TEST(name) cmocka_unit_test_setup_teardown(test_writer__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WRITER_TEST(gate_hears_before_the_ticket_is_durable),
        WRITER_TEST(the_next_batch_gathers),
        WRITER_TEST(a_key_alone_has_its_ticket),
        WRITER_TEST(refused_write_is_undone_alone),
        WRITER_TEST(failed_commit_is_told_to_the_caller),
        WRITER_TEST(nobody_waits_behind_refused_claims),
        WRITER_TEST(some_writes_come_last),
        WRITER_TEST(refused_claims_are_tried_until_they_are_in),
        WRITER_TEST(busy_is_done_again),
        WRITER_TEST(busy_for_long_is_unavailable),
        WRITER_TEST(a_refused_row_is_refused_alone),
        WRITER_TEST(a_row_in_conflict_is_merged_alone),
        WRITER_TEST(a_refused_transaction_is_unavailable),
        cmocka_unit_test_setup(test_writer__stop_commits_what_is_queued, set_up),
        cmocka_unit_test_setup(test_writer__stop_gives_up_all_or_nothing, set_up),
    };
    return cmocka_run_group_tests_name("writer", tests, NULL, NULL);
}
