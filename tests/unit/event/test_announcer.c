/* test_announcer.c: events leave the outbox once they are delivered, in order, whoever fails. */
#include "database.h"

#include <pthread.h>
#include <stdatomic.h>

#include "event/announcer.h"

#define NOW      INT64_C(1763200000000)
#define SEEN_MAX 4096
#define NEVER_MS 20000

/* A sink that takes batches as a broker would, and reports them on a thread of its own. */
struct post {
    struct event_sink sink;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool is_closing;
    bool is_away;           /* takes nothing */
    bool holds_reports;     /* takes, and does not report */
    int failures;           /* so many batches are not delivered */
    int64_t refused_policy; /* whose first message is not delivered, nor those behind; 0: none */
    size_t refused_count;   /* times that nothing was taken */
    struct event_batch *taken;
    char taken_ids[SEEN_MAX][48];
    size_t taken_count;
    char ids[SEEN_MAX][48]; /* delivered, in order */
    size_t count;
};

struct bench {
    struct database database;
    struct ledger *ledger;
    struct lease lease;
    struct post post;
    struct post second; /* where there are two */
    struct announcer *announcer;
    struct announcer *other; /* of the second */
    pthread_mutex_t lock;
    pthread_cond_t durable;
    bool tells_two;
    struct error error;
};

/* --- the post --- */

static void *post_main(void *context)
{
    struct post *post = context;

    pthread_mutex_lock(&post->lock);
    for (;;) {
        while (!post->is_closing && (post->taken == NULL || post->holds_reports))
            pthread_cond_wait(&post->changed, &post->lock);
        if (post->taken == NULL)
            break;
        struct event_batch *batch = post->taken;
        struct error error = {"lost"};
        bool fails = post->failures > 0 || post->holds_reports;
        if (post->failures > 0)
            post->failures--;
        bool refuses = false;
        for (size_t i = 0; i < post->taken_count && !fails; i++) {
            bool is_its = atoll(post->taken_ids[i]) == post->refused_policy;
            refuses = refuses || (is_its && strstr(post->taken_ids[i], "-1-issued") != NULL);
            if (is_its && refuses)
                continue;
            memcpy(post->ids[post->count++], post->taken_ids[i], sizeof(post->ids[0]));
            batch->delivered[i] = true;
        }
        post->taken = NULL;
        post->taken_count = 0;
        pthread_mutex_unlock(&post->lock);
        batch->done(batch,
                    fails     ? STATUS_UNAVAILABLE
                    : refuses ? STATUS_CONFLICT
                              : STATUS_OK,
                    &error);
        pthread_mutex_lock(&post->lock);
        pthread_cond_broadcast(&post->changed);
    }
    pthread_mutex_unlock(&post->lock);
    return NULL;
}

static enum status post_send(struct event_sink *sink, struct event_batch *batch, size_t count,
                             struct error *error)
{
    struct post *post = (struct post *)sink;
    enum status status = STATUS_OK;

    pthread_mutex_lock(&post->lock);
    assert_null(post->taken);
    if (post->is_away) {
        post->refused_count++;
        status = error_set(error, STATUS_BUSY, "nobody is there");
    } else {
        for (size_t i = 0; i < count; i++) {
            const struct event_message *message = batch->next(batch, i);
            for (size_t j = 0; j < message->header_count; j++) {
                const struct event_header *header = &message->headers[j];
                if (strcmp(header->name, "ce_id") == 0)
                    snprintf(post->taken_ids[i], sizeof(post->taken_ids[i]), "%.*s",
                             (int)header->value.length, header->value.bytes);
            }
        }
        post->taken_count = count;
        post->taken = batch;
    }
    pthread_cond_broadcast(&post->changed);
    pthread_mutex_unlock(&post->lock);
    return status;
}

static void post_set(struct post *post, bool is_away, bool holds_reports, int failures)
{
    pthread_mutex_lock(&post->lock);
    post->is_away = is_away;
    post->holds_reports = holds_reports;
    post->failures = failures;
    pthread_cond_broadcast(&post->changed);
    pthread_mutex_unlock(&post->lock);
}

static void post_metrics(struct event_sink *sink, struct buffer *out)
{
    (void)sink;
    buffer_append_literal(out, "post 1\n");
}

static void post_close(struct event_sink *sink)
{
    struct post *post = (struct post *)sink;

    pthread_mutex_lock(&post->lock);
    post->is_closing = true;
    pthread_cond_broadcast(&post->changed);
    pthread_mutex_unlock(&post->lock);
    pthread_join(post->thread, NULL);
}

static void post_open(struct post *post, enum ledger_sink outbox)
{
    static const struct event_sink_ops ops[LEDGER_SINKS] = {
        {.name = "post",
         .duty = "announcer",
         .send = post_send,
         .metrics = post_metrics,
         .close = post_close},
        {.name = "second",
         .outbox = 1,
         .duty = "announcer.second",
         .patience_ms = 86400000,
         .send = post_send,
         .metrics = post_metrics,
         .close = post_close},
    };

    post->sink.ops = &ops[outbox];
    pthread_mutex_init(&post->lock, NULL);
    pthread_cond_init(&post->changed, NULL);
    pthread_create(&post->thread, NULL, post_main, post);
}

/* --- the bench --- */

static void check(struct bench *bench, enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", bench->error.text);
}

static void on_durable(void *context)
{
    struct bench *bench = context;

    pthread_mutex_lock(&bench->lock);
    pthread_cond_broadcast(&bench->durable);
    pthread_mutex_unlock(&bench->lock);
}

static struct announcer *open_announcer_to(struct bench *bench, struct post *post)
{
    const struct announcer_options options = {
        .ledger = bench->ledger, .sink = &post->sink, .term_ms = 300, .poll_ms = 20};
    struct announcer *announcer;

    check(bench, announcer_open(&announcer, &options, &bench->error));
    return announcer;
}

static void open_announcer(struct bench *bench)
{
    bench->announcer = open_announcer_to(bench, &bench->post);
}

static int set_up_with(void **state, bool tells_two)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    struct policy policy = {.id = 42,
                            .name = "p",
                            .discount_value = 1,
                            .total = 5000,
                            .per_user_limit = 5,
                            .created_at_ms = NOW};

    assert_non_null(bench);
    database_make_folder(&bench->database);
    pthread_mutex_init(&bench->lock, NULL);
    pthread_cond_init(&bench->durable, NULL);
    post_open(&bench->post, LEDGER_SINK_KAFKA);
    post_open(&bench->second, LEDGER_SINK_WEBHOOK);
    bench->tells_two = tells_two;
    bench->ledger =
        database_ledger(&bench->database, (struct ledger_options){.integrity = LEDGER_CHECK_OFF,
                                                                  .readers = 2,
                                                                  .on_durable = on_durable,
                                                                  .tells = {true, tells_two},
                                                                  .context = bench});
    check(bench, ledger_policy_create(bench->ledger, &policy, &bench->lease, &bench->error));
    *state = bench;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, false);
}

static int set_up_two(void **state)
{
    return set_up_with(state, true);
}

static int tear_down(void **state)
{
    struct bench *bench = *state;

    announcer_stop(bench->announcer, 0);
    announcer_stop(bench->other, 0);
    ledger_close(bench->ledger);
    post_close(&bench->post.sink);
    post_close(&bench->second.sink);
    announcer_close(bench->announcer);
    announcer_close(bench->other);
    database_remove_folder(&bench->database);
    free(bench);
    return 0;
}

static void issue_of(struct bench *bench, int64_t policy_id, int64_t first_seq, size_t count)
{
    struct claim *claims = calloc(count, sizeof(*claims));

    assert_non_null(claims);
    for (size_t i = 0; i < count; i++) {
        char user[16];
        int64_t seq = first_seq + (int64_t)i;
        snprintf(user, sizeof(user), "u%d", (int)seq);
        claims[i] = (struct claim){.policy_id = policy_id,
                                   .seq = seq,
                                   .lease_id = bench->lease.id,
                                   .requested_at_ms = NOW,
                                   .nth = 1,
                                   .user = id_of(span_of(user))};
    }
    uint64_t ticket = ledger_issue(bench->ledger, claims, count, NULL, 0);
    pthread_mutex_lock(&bench->lock);
    while (ledger_durable(bench->ledger) < ticket)
        pthread_cond_wait(&bench->durable, &bench->lock);
    pthread_mutex_unlock(&bench->lock);
    free(claims);
}

static void issue(struct bench *bench, int64_t first_seq, size_t count)
{
    issue_of(bench, 42, first_seq, count);
}

static void await_waiting(struct bench *bench, int64_t count)
{
    for (int waited_ms = 0;
         database_number(&bench->database, "SELECT COUNT(*) FROM outbox") != count;
         waited_ms += 2) {
        if (waited_ms > NEVER_MS)
            fail_msg("the outbox does not come to %d", (int)count);
        usleep(2000);
    }
}

static void await_state(struct bench *bench, enum announcer_state state)
{
    struct announcer_numbers numbers;

    for (int waited_ms = 0; announcer_count(bench->announcer, &numbers), numbers.state != state;
         waited_ms += 2) {
        if (waited_ms > NEVER_MS)
            fail_msg("%s", numbers.text);
        usleep(2000);
    }
}

static struct announcer_numbers await_numbers(struct bench *bench, uint64_t announced,
                                              int64_t waiting)
{
    struct announcer_numbers numbers;

    for (int waited_ms = 0; announcer_count(bench->announcer, &numbers),
             numbers.announced != announced || numbers.waiting != waiting;
         waited_ms += 2) {
        if (waited_ms > NEVER_MS)
            fail_msg("%d are told, %d wait", (int)numbers.announced, (int)numbers.waiting);
        usleep(2000);
    }
    return numbers;
}

/* The first of each id, which have to be those of seqs 1 to `count`, in order. */
static void assert_told_to(const struct post *post, size_t count)
{
    size_t seen_count = 0;

    for (size_t i = 0; i < post->count; i++) {
        char next[48];
        snprintf(next, sizeof(next), "42-%zu-issued", seen_count + 1);
        if (strcmp(post->ids[i], next) == 0)
            seen_count++;
        else
            assert_true(atoi(post->ids[i] + strlen("42-")) <= (int)seen_count);
    }
    assert_int_equal(seen_count, count);
}

static void assert_told(const struct bench *bench, size_t count)
{
    assert_told_to(&bench->post, count);
}

/* --- tests --- */

static void test_announcer__tells_everything_in_order_and_forgets_it(void **state)
{
    struct bench *bench = *state;

    issue(bench, 1, 2300); /* more than two batches */
    open_announcer(bench);
    await_waiting(bench, 0);
    issue(bench, 2301, 1);
    await_waiting(bench, 0);
    assert_told(bench, 2301);
    assert_int_equal(bench->post.count, 2301);
    struct announcer_numbers numbers = await_numbers(bench, 2301, 0);
    assert_int_equal(numbers.failed, 0);
    assert_string_equal(numbers.text, "ok");
}

/* The poll is slow here: only a wake can bring it in time. */
static void test_announcer__a_wake_is_enough(void **state)
{
    struct bench *bench = *state;
    const struct announcer_options options = {
        .ledger = bench->ledger, .sink = &bench->post.sink, .term_ms = 3600000, .poll_ms = 3600000};

    check(bench, announcer_open(&bench->announcer, &options, &bench->error));
    for (int i = 1; i <= 20; i++) {
        issue(bench, i, 1);
        announcer_wake(bench->announcer);
        await_waiting(bench, 0);
    }
    assert_told(bench, 20);
}

static void test_announcer__what_is_not_taken_waits(void **state)
{
    struct bench *bench = *state;

    post_set(&bench->post, true, false, 0);
    issue(bench, 1, 700);
    open_announcer(bench);
    await_state(bench, ANNOUNCER_HELD_UP);
    struct announcer_numbers numbers = await_numbers(bench, 0, 700);
    assert_string_equal(numbers.text, "nobody is there");
    assert_true(numbers.oldest_at_ms > 0);
    issue(bench, 701, 10); /* Nothing else waits for it. */
    assert_int_equal(database_number(&bench->database, "SELECT COUNT(*) FROM outbox"), 710);
    post_set(&bench->post, false, false, 0);
    await_waiting(bench, 0);
    await_state(bench, ANNOUNCER_FLOWS);
    assert_told(bench, 710);
}

static void test_announcer__what_is_not_delivered_is_sent_again(void **state)
{
    struct bench *bench = *state;

    post_set(&bench->post, false, false, 3);
    issue(bench, 1, 2200);
    open_announcer(bench);
    await_waiting(bench, 0);
    assert_told(bench, 2200);
    assert_int_equal(await_numbers(bench, 2200, 0).failed, 3);
}

/* One that takes nothing holds up its own events only. */
static void test_announcer__each_sink_has_an_outbox_of_its_own(void **state)
{
    struct bench *bench = *state;
    char text[4096];
    struct buffer out = {.bytes = text, .capacity = sizeof(text), .length_max = sizeof(text) - 1};

    post_set(&bench->second, true, false, 0);
    issue(bench, 1, 10);
    assert_int_equal(database_number(&bench->database, "SELECT COUNT(*) FROM outbox"), 20);
    open_announcer(bench);
    bench->other = open_announcer_to(bench, &bench->second);
    await_waiting(bench, 10);
    assert_told(bench, 10);
    assert_int_equal(
        database_number(&bench->database, "SELECT COUNT(*) FROM outbox WHERE sink = 1"), 10);
    post_set(&bench->second, false, false, 2);
    await_waiting(bench, 0);
    assert_told_to(&bench->second, 10);
    assert_int_equal(bench->post.count, 10);
    assert_int_equal(bench->second.count, 10);
    await_numbers(bench, 10, 0);
    struct announcer *announcers[] = {bench->announcer, bench->other};
    announcer_metrics(announcers, 2, &out);
    text[out.length] = '\0';
    assert_non_null(strstr(text, "\ndibs_events_total{sink=\"post\"} 10\n"));
    assert_non_null(strstr(text, "\ndibs_events_failed_total{sink=\"second\"} 2\n"));
    assert_non_null(strstr(text, "post 1\npost 1\n"));
}

static void issue_for(struct bench *bench, int64_t policy_id, size_t count)
{
    struct policy policy = {.id = policy_id,
                            .name = "p",
                            .discount_value = 1,
                            .total = 5000,
                            .per_user_limit = 5,
                            .created_at_ms = NOW};
    struct lease kept = bench->lease;

    check(bench, ledger_policy_create(bench->ledger, &policy, &bench->lease, &bench->error));
    issue_of(bench, policy_id, 1, count);
    bench->lease = kept;
}

/* What a sink takes of none of a policy's events waits, and the others do not. */
static void test_announcer__a_policy_that_is_refused_holds_up_no_other(void **state)
{
    struct bench *bench = *state;
    size_t late = 0;

    bench->post.refused_policy = 41;
    issue_for(bench, 41, 2100); /* more than two batches, in front of all others */
    issue(bench, 1, 5);
    open_announcer(bench);
    await_waiting(bench, 2100);
    assert_told(bench, 5);
    await_state(bench, ANNOUNCER_HELD_UP);
    issue(bench, 6, 3);
    await_waiting(bench, 2100);
    pthread_mutex_lock(&bench->post.lock);
    bench->post.refused_policy = 0;
    bench->post.count = 0;
    pthread_mutex_unlock(&bench->post.lock);
    await_waiting(bench, 0);
    await_state(bench, ANNOUNCER_FLOWS);
    for (size_t i = 0; i < bench->post.count; i++)
        if (atoi(bench->post.ids[i]) == 41)
            assert_int_equal(atoi(bench->post.ids[i] + strlen("41-")), ++late);
    assert_int_equal(late, 2100);
}

/* Since when it fails outlives the process, and with it how long a sink is waited for. */
static void test_announcer__a_sink_that_fails_for_long_is_tried_now_and_then(void **state)
{
    struct bench *bench = *state;
    struct announcer_numbers numbers;
    struct ledger_sink_state was = {.failing_since_ms = 1000, .text = "for long"};

    check(bench, ledger_sink_state_put(bench->ledger, LEDGER_SINK_WEBHOOK, &was, &bench->error));
    post_set(&bench->second, true, false, 0);
    issue(bench, 1, 10);
    bench->other = open_announcer_to(bench, &bench->second);
    for (int waited_ms = 0;
         announcer_count(bench->other, &numbers), numbers.state != ANNOUNCER_HELD_UP;
         waited_ms += 2) {
        assert_true(waited_ms < NEVER_MS);
        usleep(2000);
    }
    assert_true(numbers.is_given_up);
    assert_int_equal(numbers.failing_since_ms, 1000);
    size_t tries = bench->second.refused_count;
    post_set(&bench->second, false, false, 0);
    /* Another process asks for it. */
    check(bench, ledger_sink_ask(bench->ledger, LEDGER_SINK_WEBHOOK, &bench->error));
    for (int waited_ms = 0;
         database_number(&bench->database, "SELECT COUNT(*) FROM outbox WHERE sink = 1") != 0;
         waited_ms += 2) {
        assert_true(waited_ms < NEVER_MS);
        usleep(2000);
    }
    assert_int_equal(bench->second.refused_count, tries);
    assert_told_to(&bench->second, 10);
    for (int waited_ms = 0; was.failing_since_ms != 0; waited_ms += 2) {
        check(bench,
              ledger_sink_state_get(bench->ledger, LEDGER_SINK_WEBHOOK, &was, &bench->error));
        assert_true(waited_ms < NEVER_MS);
    }
}

/* Not before the report: a crash in between would lose them. */
static void test_announcer__forgets_only_what_is_reported(void **state)
{
    struct bench *bench = *state;

    post_set(&bench->post, false, true, 0);
    issue(bench, 1, 5);
    open_announcer(bench);
    pthread_mutex_lock(&bench->post.lock);
    while (bench->post.taken == NULL)
        pthread_cond_wait(&bench->post.changed, &bench->post.lock);
    pthread_mutex_unlock(&bench->post.lock);
    announcer_stop(bench->announcer, 50); /* Gives up on the report. */
    assert_int_equal(database_number(&bench->database, "SELECT COUNT(*) FROM outbox"), 5);
    assert_int_equal(database_number(&bench->database, "SELECT until FROM duty"), 0);
    post_set(&bench->post, false, false, 0);
    pthread_mutex_lock(&bench->post.lock);
    while (bench->post.taken != NULL)
        pthread_cond_wait(&bench->post.changed, &bench->post.lock);
    pthread_mutex_unlock(&bench->post.lock);
    announcer_close(bench->announcer);
    open_announcer(bench); /* The next one tells them again. */
    await_waiting(bench, 0);
    assert_told(bench, 5);
    assert_int_equal(bench->post.count, 10);
}

/* One has the duty; when it is gone the other goes on. */
static void test_announcer__one_at_a_time(void **state)
{
    struct bench *bench = *state;
    bool held = false;

    check(bench,
          ledger_duty_hold(bench->ledger, "announcer", "another", 3600000, &held, &bench->error));
    assert_true(held);
    issue(bench, 1, 5);
    open_announcer(bench);
    announcer_wake(bench->announcer);
    /* Each time that it asks for the duty is a commit. */
    uint64_t commits = atomic_load(&ledger_stats(bench->ledger)->commits);
    while (atomic_load(&ledger_stats(bench->ledger)->commits) < commits + 3)
        usleep(2000);
    assert_int_equal(bench->post.count, 0);
    await_state(bench, ANNOUNCER_STANDS_BY);
    check(bench, ledger_duty_release(bench->ledger, "announcer", "another", &bench->error));
    await_waiting(bench, 0);
    assert_told(bench, 5);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_announcer__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(tells_everything_in_order_and_forgets_it),
        TEST(a_wake_is_enough),
        TEST(what_is_not_taken_waits),
        TEST(what_is_not_delivered_is_sent_again),
        cmocka_unit_test_setup_teardown(test_announcer__each_sink_has_an_outbox_of_its_own,
                                        set_up_two, tear_down),
        TEST(a_policy_that_is_refused_holds_up_no_other),
        cmocka_unit_test_setup_teardown(
            test_announcer__a_sink_that_fails_for_long_is_tried_now_and_then, set_up_two,
            tear_down),
        TEST(forgets_only_what_is_reported),
        TEST(one_at_a_time),
    };
    return cmocka_run_group_tests_name("announcer", tests, NULL, NULL);
}
