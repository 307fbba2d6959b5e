/* test_mark.c: the writer's mark, alone and under a writer whose database comes, goes, forgets and
 * is taken over. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/log.h"
#include "remote.h"

#define NEVER_MS 30000

static void on_issued(void *context, const struct claim *claims, const enum coupon_state *states,
                      size_t count)
{
    struct remote *remote = context;
    for (size_t i = 0; i < count; i++)
        ensure(claims[i].seq == (int64_t)(remote->issued_count + i) + 1 &&
               states[i] == COUPON_ISSUED);
    ensure((size_t)remote->row_count >= remote->issued_count + count);
    remote->issued_count += count;
}

static void on_durable(void *context)
{
    (void)context;
}

static struct sql sql_of(struct remote *remote)
{
    return (struct sql){.driver = &remote_driver, .session = (struct ledger_session *)remote};
}

static void start(struct remote *remote)
{
    struct error error;
    assert_int_equal(
        writer_start(&remote->writer, sql_of(remote), &remote->options, &remote->stats, &error),
        STATUS_OK);
}

static int set_up(void **state)
{
    struct remote *remote = calloc(1, sizeof(*remote));

    log_configure(LOG_ERROR + 1, LOG_LOGFMT, STDERR_FILENO);
    pthread_mutex_init(&remote->lock, NULL);
    remote->options = (struct ledger_options){
        .use = LEDGER_OWN, .on_issued = on_issued, .on_durable = on_durable, .context = remote};
    *state = remote;
    return 0;
}

static int tear_down(void **state)
{
    struct remote *remote = *state;
    pthread_mutex_destroy(&remote->lock);
    free(remote);
    return 0;
}

static int set_up_writer(void **state)
{
    set_up(state);
    start(*state);
    return 0;
}

static int tear_down_writer(void **state)
{
    writer_stop(&((struct remote *)*state)->writer);
    return tear_down(state);
}

/* --- the mark alone --- */

static void assert_mark(struct remote *remote, struct mark *mark, int64_t there,
                        enum status expected, const char *words)
{
    struct sql sql = sql_of(remote);
    struct error error = {""};
    int64_t left_at = mark->value;

    remote->mark = there;
    assert_int_equal(mark_move(mark, &sql, &error), expected);
    if (words != NULL)
        assert_non_null(strstr(error.text, words));
    error.text[0] = '\0';
    assert_int_equal(mark_check(mark, &sql, &error), expected);
    if (words != NULL)
        assert_non_null(strstr(error.text, words));
    assert_int_equal(mark->value, left_at); /* it moves with the commit, not before */
}

static void test_mark__tells_what_happened_to_the_ledger(void **state)
{
    struct remote *remote = *state;
    struct sql sql = sql_of(remote);
    struct mark mark;
    struct error error = {""};

    assert_int_equal(mark_enter(&mark, &sql, LEDGER_OWN, &error), STATUS_OK);
    remote->mark = mark.value = 17;
    assert_mark(remote, &mark, 17, STATUS_OK, NULL);
    assert_mark(remote, &mark, 16, STATUS_FAILED, "older");
    assert_mark(remote, &mark, 18, STATUS_CONFLICT, "another process");
    remote->has_row = false;
    assert_mark(remote, &mark, 17, STATUS_FAILED, "older");
    remote->is_away = true;
    assert_mark(remote, &mark, 17, STATUS_UNAVAILABLE, "nobody answers");
}

static void test_mark__looks_up_a_commit(void **state)
{
    struct remote *remote = *state;
    struct sql sql = sql_of(remote);
    struct mark mark;
    struct error error = {""};

    assert_int_equal(mark_enter(&mark, &sql, LEDGER_OWN, &error), STATUS_OK);
    mark.value = 17;
    remote->mark = 18;
    assert_int_equal(mark_verify(&mark, &sql, &error), STATUS_OK);
    remote->mark = 17;
    assert_int_equal(mark_verify(&mark, &sql, &error), STATUS_UNAVAILABLE);
    remote->mark = 16;
    assert_int_equal(mark_verify(&mark, &sql, &error), STATUS_FAILED);
    remote->mark = 19;
    assert_int_equal(mark_verify(&mark, &sql, &error), STATUS_CONFLICT);
    remote->is_away = true;
    assert_int_equal(mark_verify(&mark, &sql, &error), STATUS_UNKNOWN);
    remote->is_away = false;
    remote->is_another_owner = true; /* Perhaps our own lost connection; the mark will tell. */
    assert_int_equal(mark_verify(&mark, &sql, &error), STATUS_UNKNOWN);
    assert_non_null(strstr(error.text, "77"));
}

static void test_mark__one_owner_or_a_row_for_each(void **state)
{
    struct remote *remote = *state;
    struct sql sql = sql_of(remote);
    struct mark first;
    struct mark second;
    struct error error = {""};

    assert_int_equal(mark_enter(&first, &sql, LEDGER_OWN, &error), STATUS_OK);
    assert_int_equal(mark_enter(&second, &sql, LEDGER_OWN, &error), STATUS_OK);
    assert_string_equal(first.name, second.name);
    assert_int_equal(second.value, first.value + 1); /* the first one notices */
    mark_leave(&second, &sql, LEDGER_OWN);
    assert_true(remote->has_row); /* the next owner goes on from it */
    assert_int_equal(mark_enter(&first, &sql, LEDGER_SHARE, &error), STATUS_OK);
    assert_int_equal(mark_enter(&second, &sql, LEDGER_SHARE, &error), STATUS_OK);
    assert_string_not_equal(first.name, second.name);
    mark_leave(&second, &sql, LEDGER_SHARE);
    assert_false(remote->has_row);
}

/* --- under a writer --- */

static void set(struct remote *remote, bool is_away, int64_t mark)
{
    LOCKED(remote, remote->is_away = is_away; remote->mark = mark);
}

static void set_fate(struct remote *remote, enum fate fate, bool is_away_after)
{
    LOCKED(remote, remote->fate = fate; remote->is_away_after = is_away_after);
}

static int64_t mark_of(struct remote *remote)
{
    int64_t mark;
    LOCKED(remote, mark = remote->mark);
    return mark;
}

static uint64_t issue(struct remote *remote, int64_t first_seq, size_t count)
{
    struct claim claims[8] = {0};
    for (size_t i = 0; i < count; i++)
        claims[i] =
            (struct claim){.policy_id = 1, .seq = first_seq + (int64_t)i, .lease_id = 1, .nth = 1};
    return writer_issue(&remote->writer, claims, count, NULL, 0);
}

static void wait_a_moment(int *moments)
{
    if (++*moments > NEVER_MS)
        fail_msg("waited in vain");
    usleep(1000);
}

static void await_durable(struct remote *remote, uint64_t ticket)
{
    for (int moments = 0; atomic_load(&remote->writer.durable) < ticket;)
        wait_a_moment(&moments);
}

static void await_health(struct remote *remote, bool healthy)
{
    for (int moments = 0; atomic_load(&remote->writer.healthy) != healthy;)
        wait_a_moment(&moments);
}

static void await_words(struct remote *remote, const char *words)
{
    int moments = 0;
    for (bool said = false; !said; wait_a_moment(&moments)) {
        pthread_mutex_lock(&remote->writer.lock);
        said = !atomic_load(&remote->writer.healthy) &&
               strstr(remote->writer.trouble.text, words) != NULL;
        pthread_mutex_unlock(&remote->writer.lock);
    }
}

static enum status apply(struct sql *sql, void *argument, struct error *error)
{
    (void)argument;
    (void)error;
    remote_of(sql->session)->writes++;
    remote_of(sql->session)->written++;
    return STATUS_OK;
}

static enum status write_one(struct remote *remote)
{
    struct error error;
    return writer_run(&remote->writer, apply, NULL, &error);
}

static void test_mark__a_lost_answer_is_a_commit(void **state)
{
    struct remote *remote = *state;

    set_fate(remote, FATE_ANSWER_LOST, false);
    await_durable(remote, issue(remote, 1, 5));
    assert_int_equal(remote->row_count, 5);
    assert_int_equal(remote->issued_count, 5);
    assert_int_equal(remote->commits, 2); /* entering, and the claims once */
    set_fate(remote, FATE_ANSWER_LOST, false);
    assert_int_equal(write_one(remote), STATUS_OK);
    assert_int_equal(remote->writes, 1);
    await_durable(remote, issue(remote, 6, 1)); /* and the mark is known again */
    assert_int_equal(remote->row_count, 7);
    assert_true(atomic_load(&remote->writer.healthy));
}

static void test_mark__a_lost_request_is_done_again(void **state)
{
    struct remote *remote = *state;

    set_fate(remote, FATE_REQUEST_LOST, false);
    await_durable(remote, issue(remote, 1, 5));
    assert_int_equal(remote->row_count, 5);
    assert_int_equal(remote->issued_count, 5);
    set_fate(remote, FATE_REQUEST_LOST, false);
    assert_int_equal(write_one(remote), STATUS_OK);
    assert_int_equal(remote->writes, 2);
    assert_int_equal(remote->row_count, 6);
}

/* The database is gone when it should be asked: nobody is told anything until it can be. */
static void doubt_while_away(struct remote *remote, enum fate fate)
{
    int64_t left_at = mark_of(remote);

    set_fate(remote, fate, true);
    uint64_t ticket = issue(remote, 1, 5);
    await_health(remote, false);
    assert_int_equal(atomic_load(&remote->writer.durable), 0);
    assert_int_equal(remote->issued_count, 0);
    set(remote, false, left_at + (fate == FATE_ANSWER_LOST));
    await_durable(remote, ticket);
    assert_int_equal(remote->row_count, 5);
    assert_int_equal(remote->issued_count, 5);
    assert_true(atomic_load(&remote->writer.healthy));
}

static void test_mark__doubt_ends_in_a_commit(void **state)
{
    doubt_while_away(*state, FATE_ANSWER_LOST);
}

static void test_mark__doubt_ends_in_doing_it_again(void **state)
{
    doubt_while_away(*state, FATE_REQUEST_LOST);
}

static void test_mark__a_caller_in_doubt_is_told_so(void **state)
{
    struct remote *remote = *state;

    set_fate(remote, FATE_ANSWER_LOST, true);
    assert_int_equal(write_one(remote), STATUS_UNKNOWN);
    await_health(remote, false);
    assert_int_equal(write_one(remote), STATUS_UNAVAILABLE); /* this one was not even tried */
    set(remote, false, mark_of(remote));
    await_health(remote, true);
    assert_int_equal(remote->row_count, 1); /* not written a second time */
    assert_int_equal(write_one(remote), STATUS_OK);
    assert_int_equal(remote->row_count, 2);
}

/* While in doubt an older ledger comes; the newer one, which has the commit, is brought back. */
static void test_mark__doubt_outlasts_an_older_ledger(void **state)
{
    struct remote *remote = *state;
    int64_t left_at = mark_of(remote);

    set_fate(remote, FATE_ANSWER_LOST, true);
    uint64_t ticket = issue(remote, 1, 5);
    await_health(remote, false);
    set(remote, false, left_at - 1);
    await_words(remote, "older");
    set(remote, false, left_at + 1);
    await_durable(remote, ticket);
    assert_int_equal(remote->row_count, 5);
}

/* It goes away, comes back older, and is put right: each is said, and nothing is written to it. */
static void test_mark__an_older_ledger_is_refused_and_claims_are_kept(void **state)
{
    struct remote *remote = *state;

    await_durable(remote, issue(remote, 1, 2));
    int64_t left_at = mark_of(remote);
    set(remote, true, left_at);
    uint64_t ticket = issue(remote, 3, 4);
    await_words(remote, "nobody answers");
    set(remote, false, left_at - 1);
    await_words(remote, "older");
    await_words(remote, "audit --repair");
    assert_int_equal(write_one(remote), STATUS_UNAVAILABLE);
    assert_int_equal(remote->row_count, 2);
    assert_int_equal(mark_of(remote), left_at - 1);
    assert_int_equal(atomic_load(&remote->writer.pending), 4);
    set(remote, false, left_at);
    await_durable(remote, ticket);
    assert_int_equal(remote->row_count, 6);
    assert_true(atomic_load(&remote->writer.healthy));
}

/* Perhaps it is our own lost connection that the database still keeps: no reason to end. */
static void test_mark__another_owner_is_waited_for(void **state)
{
    struct remote *remote = *state;

    LOCKED(remote, remote->is_another_owner = true);
    uint64_t ticket = issue(remote, 1, 3);
    await_words(remote, "process 77");
    LOCKED(remote, remote->is_another_owner = false);
    await_durable(remote, ticket);
    assert_int_equal(remote->row_count, 3);
}

static void test_mark__absence_and_return_are_noticed_without_a_claim(void **state)
{
    struct remote *remote = *state;
    int64_t left_at = mark_of(remote);

    set(remote, true, left_at);
    await_words(remote, "nobody answers");
    set(remote, false, left_at - 1);
    await_words(remote, "older");
    set(remote, false, left_at);
    await_health(remote, true);
    assert_int_equal(remote->row_count, 0);
    assert_int_equal(mark_of(remote), left_at);
}

/* --- taken over --- */

enum moment { WHEN_WRITING, WHEN_LOOKING, WHEN_IDLE };

/* The child whose ledger another process has taken over: how it ends. */
static int end_of_child(struct remote *remote, enum moment moment)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        start(remote);
        if (moment == WHEN_LOOKING)
            set_fate(remote, FATE_ANSWER_LOST, true);
        else
            set(remote, false, mark_of(remote) + 2);
        if (moment != WHEN_IDLE)
            issue(remote, 1, 1);
        if (moment == WHEN_LOOKING) {
            await_health(remote, false);
            set(remote, false, mark_of(remote) + 1);
        }
        for (int waited_ms = 0; waited_ms < NEVER_MS; waited_ms++)
            usleep(1000);
        _exit(99);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

static void test_mark__taken_over_ends_the_process(void **state)
{
    assert_int_equal(end_of_child(*state, WHEN_WRITING), 1);
    assert_int_equal(end_of_child(*state, WHEN_LOOKING), 1);
    assert_int_equal(end_of_child(*state, WHEN_IDLE), 1);
}

int main(void)
{
#define MARK_TEST(name) cmocka_unit_test_setup_teardown(test_mark__##name, set_up, tear_down)
#define WRITER_TEST(name) \
    cmocka_unit_test_setup_teardown(test_mark__##name, set_up_writer, tear_down_writer)
    const struct CMUnitTest tests[] = {
        MARK_TEST(tells_what_happened_to_the_ledger),
        MARK_TEST(looks_up_a_commit),
        MARK_TEST(one_owner_or_a_row_for_each),
        WRITER_TEST(a_lost_answer_is_a_commit),
        WRITER_TEST(a_lost_request_is_done_again),
        WRITER_TEST(doubt_ends_in_a_commit),
        WRITER_TEST(doubt_ends_in_doing_it_again),
        WRITER_TEST(a_caller_in_doubt_is_told_so),
        WRITER_TEST(doubt_outlasts_an_older_ledger),
        WRITER_TEST(an_older_ledger_is_refused_and_claims_are_kept),
        WRITER_TEST(another_owner_is_waited_for),
        WRITER_TEST(absence_and_return_are_noticed_without_a_claim),
        MARK_TEST(taken_over_ends_the_process),
    };
    return cmocka_run_group_tests_name("mark", tests, NULL, NULL);
}
