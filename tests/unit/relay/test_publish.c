/* test_publish.c: the mark of what is published never goes past a gap, in whichever order reports
 * come. The producer, the gate and the ledger are played by the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include <stdlib.h>

#include "played.h"

#define POLICY      42
#define BATCH_SIZE  10
#define BATCHES_MAX 16

static struct error error;
static struct event_batch *sent[BATCHES_MAX]; /* those that were taken, until they are reported */
static size_t sent_count;
static int64_t mark;

/* --- the producer: takes everything, and reports when the test says so --- */

struct kafka_producer {
    int nothing;
};

enum status kafka_producer_open(struct kafka_producer **producer, const struct kafka_target *target,
                                struct error *words)
{
    static struct kafka_producer only;

    (void)target;
    (void)words;
    *producer = &only;
    return STATUS_OK;
}

void kafka_producer_close(struct kafka_producer *producer, int64_t timeout_ms)
{
    (void)producer;
    (void)timeout_ms;
}

enum status kafka_producer_send(struct kafka_producer *producer, enum kafka_topic topic,
                                struct event_batch *batch, size_t count, struct error *words)
{
    (void)producer;
    (void)words;
    assert_int_equal(topic, KAFKA_COUPON_PENDED);
    assert_int_equal(count, BATCH_SIZE);
    assert_true(sent_count < BATCHES_MAX);
    sent[sent_count++] = batch;
    return STATUS_OK;
}

void kafka_producer_count(struct kafka_producer *producer, struct kafka_producer_numbers *numbers)
{
    (void)producer;
    *numbers = (struct kafka_producer_numbers){.is_ready = true};
}

static void report(size_t number, enum status status)
{
    struct event_batch *batch = sent[number];

    sent[number] = NULL;
    batch->done(batch, status, &error);
}

/* --- the gate and the ledger --- */

static void play_issue(void *context, const struct claim *claims, size_t count)
{
    (void)context;
    (void)claims;
    (void)count;
}

static enum status play_publish(void *context, int64_t policy_id, const char *token, int64_t *seq,
                                struct error *words)
{
    (void)context;
    (void)policy_id;
    (void)token;
    (void)words;
    *seq = mark;
    return STATUS_OK;
}

static enum status play_published(void *context, int64_t policy_id, const char *token, int64_t seq,
                                  struct error *words)
{
    (void)context;
    (void)policy_id;
    (void)token;
    (void)words;
    assert_true(seq > mark);
    mark = seq;
    return STATUS_OK;
}

static enum status play_letter(void *context, int64_t policy_id, int64_t seq,
                               struct dead_letter *letter, struct error *words)
{
    (void)context;
    (void)policy_id;
    (void)seq;
    (void)letter;
    return error_set(words, STATUS_NOT_FOUND, "no letter");
}

static enum status play_keep(void *context, const struct dead_letter *letter, struct error *words)
{
    (void)context;
    (void)letter;
    (void)words;
    return STATUS_OK;
}

static const struct relay_outlet outlet = {
    .issue = play_issue,
    .filter = play_filter,
    .outstanding = play_outstanding,
    .publish = play_publish,
    .published = play_published,
    .letter = play_letter,
    .keep = play_keep,
};

/* --- set-up --- */

struct stage {
    struct kafka *kafka;
    struct relay_kafka *opened;
    struct relay *relay;
    struct relay_stream stream;
    uint64_t confirmed; /* before the test */
    uint64_t failed;
};

/* Nobody listens there: nothing comes out, and no broker is needed. */
static int open_relay(void **state)
{
    static struct stage stage;

    assert_int_equal(kafka_open(&stage.kafka, "kafka://127.0.0.1:1", NULL,
                                &(struct kafka_names){.partitions = 0}, KAFKA_PUBLISHES, &error),
                     STATUS_OK);
    assert_int_equal(relay_kafka_open(&stage.opened, stage.kafka, &outlet, NULL, &error),
                     STATUS_OK);
    stage.relay = relay_kafka_publisher(stage.opened);
    *state = &stage;
    return 0;
}

static int close_relay(void **state)
{
    struct stage *stage = *state;

    kafka_stop(stage->kafka);
    relay_kafka_close(stage->opened);
    kafka_close(stage->kafka);
    return 0;
}

static uint64_t counted(const struct stage *stage, const char *name)
{
    return relay_counted(stage->kafka, stage->opened, name);
}

static int set_up(void **state)
{
    struct stage *stage = *state;

    sent_count = 0;
    mark = 0;
    stage->stream = (struct relay_stream){.policy_id = POLICY};
    assert_int_equal(stage->relay->ops->begin(stage->relay, &stage->stream, &error), STATUS_OK);
    stage->confirmed = counted(stage, "confirmed_total");
    stage->failed = counted(stage, "failed_total");
    return 0;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;

    stage->relay->ops->leave(stage->relay, &stage->stream);
    return 0;
}

/* Carries what follows the cursor; the number of its batch. */
static size_t carry(struct stage *stage)
{
    struct claim claims[BATCH_SIZE];
    int64_t first_seq = stage->stream.cursor + 1;

    for (size_t i = 0; i < BATCH_SIZE; i++)
        claims[i] = (struct claim){.policy_id = POLICY,
                                   .seq = first_seq + (int64_t)i,
                                   .lease_id = 7,
                                   .requested_at_ms = 1800000000000,
                                   .nth = 1,
                                   .user = id_of(SPAN("u1"))};
    assert_int_equal(
        stage->relay->ops->carry(stage->relay, &stage->stream, claims, BATCH_SIZE, &error),
        STATUS_OK);
    assert_int_equal(stage->stream.cursor, first_seq + BATCH_SIZE - 1);
    return sent_count - 1;
}

static bool rest(struct stage *stage)
{
    return stage->relay->ops->rest(stage->relay, &stage->stream, 0);
}

/* What the test has added to them. */
static uint64_t confirmed(const struct stage *stage)
{
    return counted(stage, "confirmed_total") - stage->confirmed;
}

static uint64_t failed(const struct stage *stage)
{
    return counted(stage, "failed_total") - stage->failed;
}

/* --- tests --- */

static void test_publish__what_is_confirmed_waits_for_those_before_it(void **state)
{
    struct stage *stage = *state;
    size_t first = carry(stage);
    size_t second = carry(stage);
    size_t third = carry(stage);

    report(second, STATUS_OK);
    assert_false(rest(stage));
    assert_int_equal(mark, 0);
    report(first, STATUS_OK);
    assert_false(rest(stage));
    assert_int_equal(mark, 20);
    report(third, STATUS_OK);
    assert_false(rest(stage));
    assert_int_equal(mark, 30);
    assert_int_equal(confirmed(stage), 30);
    assert_int_equal(stage->stream.cursor, 30);
}

static void test_publish__behind_one_that_failed_nothing_counts(void **state)
{
    struct stage *stage = *state;
    size_t first = carry(stage);
    size_t second = carry(stage);
    size_t third = carry(stage);

    report(first, STATUS_OK);
    report(second, STATUS_UNAVAILABLE);
    assert_false(rest(stage)); /* It begins again when everything is reported. */
    assert_int_equal(mark, 10);
    report(third, STATUS_OK);
    assert_true(rest(stage));
    assert_int_equal(mark, 10);
    assert_int_equal(stage->stream.cursor, 10);
    assert_int_equal(confirmed(stage), 10);
    assert_int_equal(failed(stage), 20);
    /* Both are sent again, and then it goes on. */
    report(carry(stage), STATUS_OK);
    report(carry(stage), STATUS_OK);
    assert_false(rest(stage));
    assert_int_equal(mark, 30);
}

static void test_publish__a_failure_is_not_passed_by_what_was_confirmed_before_it(void **state)
{
    struct stage *stage = *state;
    size_t first = carry(stage);
    size_t second = carry(stage);
    size_t third = carry(stage);

    report(third, STATUS_OK);
    report(second, STATUS_OK);
    assert_false(rest(stage));
    report(first, STATUS_UNAVAILABLE);
    assert_true(rest(stage));
    assert_int_equal(mark, 0);
    assert_int_equal(stage->stream.cursor, 0);
    assert_int_equal(failed(stage), 30);
    report(carry(stage), STATUS_OK);
    assert_false(rest(stage));
    assert_int_equal(mark, 10);
}

static void test_publish__one_that_is_left_frees_itself(void **state)
{
    struct stage *stage = *state;
    size_t first = carry(stage);
    size_t second = carry(stage);

    report(second, STATUS_OK);
    stage->relay->ops->leave(stage->relay, &stage->stream);
    report(first, STATUS_OK);
    assert_int_equal(mark, 0); /* Whoever is the steward now publishes them again. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_publish__what_is_confirmed_waits_for_those_before_it,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_publish__behind_one_that_failed_nothing_counts, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            test_publish__a_failure_is_not_passed_by_what_was_confirmed_before_it, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(test_publish__one_that_is_left_frees_itself, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, open_relay, close_relay);
}
