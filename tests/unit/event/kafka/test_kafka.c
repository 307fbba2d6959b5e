/* test_kafka.c: what is seen of brokers that answer, that do not, and that do not in time. */
#include "mock_kafka.h"

#define MOCK_LIST_OFFSETS 2 /* the number of that request in Kafka's protocol */
#define FOR_EVER_MS       600000
#define CLOSE_MAX_MS      30000

static struct error error;

static struct kafka_view view_of(struct kafka_watch *watch)
{
    struct kafka_view view;

    kafka_watch_read(watch, &view);
    return view;
}

static void close_soon(struct kafka_watch *watch, struct kafka_target *target)
{
    int64_t start_ms = clock_monotonic_ms();

    kafka_watch_close(watch);
    assert_in_range(clock_monotonic_ms() - start_ms, 0, CLOSE_MAX_MS);
    kafka_target_release(target);
}

static void test_kafka_watch__brokers_that_are_not_there(void **state)
{
    struct kafka_target target;
    struct kafka_watch *watch = NULL;

    (void)state;
    assert_int_equal(kafka_target_init(&target, "kafka://127.0.0.1:1", NULL, &error), STATUS_OK);
    assert_int_equal(kafka_watch_open(&watch, &target, &error), STATUS_OK);
    mock_await(view_of(watch).is_known);
    assert_false(view_of(watch).is_up);
    close_soon(watch, &target);
}

static void test_kafka_watch__brokers_that_answer_too_late(void **state)
{
    struct mock_kafka mock;
    struct kafka_target target;
    struct kafka_watch *watch = NULL;

    (void)state;
    mock_kafka_init(&mock);
    assert_int_equal(kafka_target_init(&target, mock.url, NULL, &error), STATUS_OK);
    assert_int_equal(kafka_watch_open(&watch, &target, &error), STATUS_OK);
    mock_await(view_of(watch).is_known);
    assert_true(view_of(watch).is_up);
    assert_int_equal(view_of(watch).partition_count, 3);
    for (int i = 0; i < 50; i++)
        assert_int_equal(rd_kafka_mock_broker_push_request_error_rtts(
                             mock.cluster, 1, MOCK_LIST_OFFSETS, 1, 0, FOR_EVER_MS),
                         0);
    mock_await(!view_of(watch).is_up);
    close_soon(watch, &target);
    mock_kafka_release(&mock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kafka_watch__brokers_that_are_not_there),
        cmocka_unit_test(test_kafka_watch__brokers_that_answer_too_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
