/* test_kafka_producer.c: batches are delivered or reported, through errors of the brokers. */
#include "mock_kafka.h"

#include <stdatomic.h>
#include <stdlib.h>

#define BATCH_SIZE 100

struct sent_batch {
    struct event_batch batch;
    struct event_message message;
    char value[24];
    int number;
    _Atomic bool is_done;
    enum status status;
};

struct stage {
    struct mock_kafka mock;
    struct kafka_target target;
    struct kafka_producer *producer;
};

static struct error error;

static void on_done(struct event_batch *batch, enum status status, const struct error *words)
{
    struct sent_batch *sent = (struct sent_batch *)batch;

    (void)words;
    sent->status = status;
    atomic_store(&sent->is_done, true);
}

static const struct event_message *next_message(struct event_batch *batch, size_t index)
{
    struct sent_batch *sent = (struct sent_batch *)batch;

    snprintf(sent->value, sizeof(sent->value), "%d", sent->number * BATCH_SIZE + (int)index);
    sent->message = (struct event_message){.key = SPAN("42"), .value = span_of(sent->value)};
    return &sent->message;
}

static bool is_ready(const struct stage *stage)
{
    struct kafka_producer_numbers numbers;

    kafka_producer_count(stage->producer, &numbers);
    return numbers.is_ready;
}

static int set_up(void **state)
{
    static struct stage stage;

    mock_kafka_init(&stage.mock);
    assert_int_equal(kafka_target_init(&stage.target, stage.mock.url, NULL, &error), STATUS_OK);
    assert_int_equal(kafka_producer_open(&stage.producer, &stage.target, &error), STATUS_OK);
    mock_await(is_ready(&stage));
    *state = &stage;
    return 0;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;

    kafka_producer_close(stage->producer, 1000);
    kafka_target_release(&stage->target);
    mock_kafka_release(&stage->mock);
    return 0;
}

static enum status send_batch(struct stage *stage, struct sent_batch *sent, int number)
{
    *sent = (struct sent_batch){.batch = {.done = on_done, .next = next_message}, .number = number};
    return kafka_producer_send(stage->producer, KAFKA_COUPON_PENDED, &sent->batch, BATCH_SIZE,
                               &error);
}

/* Reads what is in the topic, in order; returns how many. */
static size_t read_values(struct stage *stage, int *values, size_t max, size_t wanted)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    size_t count = 0;
    int64_t until_ms = clock_monotonic_ms() + MOCK_WAIT_MS;

    rd_kafka_conf_set(conf, "bootstrap.servers", stage->target.brokers, NULL, 0);
    rd_kafka_conf_set(conf, "group.id", "reader", NULL, 0);
    rd_kafka_conf_set(conf, "auto.offset.reset", "earliest", NULL, 0);
    rd_kafka_t *reader = rd_kafka_new(RD_KAFKA_CONSUMER, conf, NULL, 0);
    assert_non_null(reader);
    rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(3);
    for (int32_t i = 0; i < 3; i++)
        rd_kafka_topic_partition_list_add(all, "coupon-pended", i)->offset =
            RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_assign(reader, all);
    while (count < wanted && clock_monotonic_ms() < until_ms) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader, 100);
        if (message != NULL && message->err == RD_KAFKA_RESP_ERR_NO_ERROR && count < max)
            values[count++] = (int)strtol(message->payload, NULL, 10);
        if (message != NULL)
            rd_kafka_message_destroy(message);
    }
    rd_kafka_topic_partition_list_destroy(all);
    rd_kafka_destroy(reader);
    return count;
}

static void test_kafka_producer__delivers_in_order(void **state)
{
    struct stage *stage = *state;
    struct sent_batch sent[5];
    int values[5 * BATCH_SIZE];

    for (int i = 0; i < 5; i++)
        assert_int_equal(send_batch(stage, &sent[i], i), STATUS_OK);
    for (int i = 0; i < 5; i++) {
        mock_await(atomic_load(&sent[i].is_done));
        assert_int_equal(sent[i].status, STATUS_OK);
    }
    assert_int_equal(read_values(stage, values, 5 * BATCH_SIZE, 5 * BATCH_SIZE), 5 * BATCH_SIZE);
    for (int i = 0; i < 5 * BATCH_SIZE; i++)
        assert_int_equal(values[i], i);
}

static void test_kafka_producer__gets_over_errors_that_pass(void **state)
{
    struct stage *stage = *state;
    struct sent_batch sent[3];
    int values[4 * BATCH_SIZE];

    rd_kafka_mock_push_request_errors(stage->mock.cluster, MOCK_PRODUCE, 3,
                                      RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
                                      RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
                                      RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND);
    for (int i = 0; i < 3; i++)
        assert_int_equal(send_batch(stage, &sent[i], i), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        mock_await(atomic_load(&sent[i].is_done));
        assert_int_equal(sent[i].status, STATUS_OK);
    }
    assert_int_equal(read_values(stage, values, 4 * BATCH_SIZE, 3 * BATCH_SIZE), 3 * BATCH_SIZE);
    for (int i = 0; i < 3 * BATCH_SIZE; i++)
        assert_int_equal(values[i], i);
}

static void test_kafka_producer__is_made_anew_after_a_failure(void **state)
{
    struct stage *stage = *state;
    struct sent_batch sent[2];
    struct kafka_producer_numbers numbers;
    int values[4 * BATCH_SIZE];

    rd_kafka_mock_push_request_errors(stage->mock.cluster, MOCK_PRODUCE, 1,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    assert_int_equal(send_batch(stage, &sent[0], 0), STATUS_OK);
    mock_await(atomic_load(&sent[0].is_done));
    assert_int_equal(sent[0].status, STATUS_UNAVAILABLE);
    mock_await(is_ready(stage));
    kafka_producer_count(stage->producer, &numbers);
    assert_int_equal(numbers.recreated, 1);
    assert_int_equal(numbers.in_flight, 0);
    /* Whoever sent it sends it again. */
    assert_int_equal(send_batch(stage, &sent[0], 0), STATUS_OK);
    assert_int_equal(send_batch(stage, &sent[1], 1), STATUS_OK);
    mock_await(atomic_load(&sent[0].is_done) && atomic_load(&sent[1].is_done));
    assert_int_equal(sent[0].status, STATUS_OK);
    assert_int_equal(sent[1].status, STATUS_OK);
    assert_int_equal(read_values(stage, values, 4 * BATCH_SIZE, 2 * BATCH_SIZE), 2 * BATCH_SIZE);
    for (int i = 0; i < 2 * BATCH_SIZE; i++)
        assert_int_equal(values[i], i);
}

static void test_kafka_producer__takes_no_more_than_fits(void **state)
{
    enum { BATCHES = KAFKA_QUEUE_MAX / BATCH_SIZE };
    struct stage *stage = *state;
    static struct sent_batch sent[BATCHES];
    struct sent_batch one_more;

    assert_int_equal(rd_kafka_mock_broker_set_down(stage->mock.cluster, 1), 0);
    for (int i = 0; i < BATCHES; i++)
        assert_int_equal(send_batch(stage, &sent[i], i), STATUS_OK);
    assert_int_equal(send_batch(stage, &one_more, BATCHES), STATUS_BUSY);
    /* What is still on its way at the end is reported too. */
    kafka_producer_close(stage->producer, 0);
    for (int i = 0; i < BATCHES; i++) {
        assert_true(atomic_load(&sent[i].is_done));
        assert_int_equal(sent[i].status, STATUS_UNAVAILABLE);
    }
    stage->producer = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kafka_producer__delivers_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_kafka_producer__gets_over_errors_that_pass, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_kafka_producer__is_made_anew_after_a_failure, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_kafka_producer__takes_no_more_than_fits, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
