/* test_clock.c: RFC 3339 and HTTP dates against the C library's calendar, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"

#define DAY_MS INT64_C(86400000)

static void check_format(int64_t wall_ms)
{
    time_t second = (time_t)(wall_ms / 1000);
    struct tm calendar;
    assert_non_null(gmtime_r(&second, &calendar));
    char day[64];
    char expected[96];
    char text[CLOCK_TEXT_SIZE];
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &calendar);
    snprintf(expected, sizeof(expected), "%s.%03dZ", day, (int)(wall_ms % 1000));
    clock_format_rfc3339(wall_ms, text);
    assert_string_equal(text, expected);

    char date[CLOCK_HTTP_DATE_SIZE];
    strftime(expected, sizeof(expected), "%a, %d %b %Y %H:%M:%S GMT", &calendar);
    clock_format_http_date(wall_ms, date);
    assert_string_equal(date, expected);

    int64_t back_ms = -1;
    assert_true(clock_parse_rfc3339(span_of(text), &back_ms));
    assert_int_equal(back_ms, wall_ms);
}

static void test_clock__formats_agree_with_the_library_on_every_day(void **state)
{
    /* The calendar repeats every 400 years; after one round every eleventh day will do. */
    for (int64_t day = 0; day * DAY_MS <= CLOCK_WALL_MAX_MS; day += day < 146097 ? 1 : 11) {
        /* Another time of day each day, so that all digits change. */
        check_format(day * DAY_MS + day * 7919 % DAY_MS);
    }
    check_format(0);
    check_format(CLOCK_WALL_MAX_MS);
}

static void test_clock__formats_stay_within_their_text(void **state)
{
    char text[CLOCK_TEXT_SIZE];
    clock_format_rfc3339(CLOCK_WALL_MAX_MS, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
    clock_format_rfc3339(CLOCK_WALL_MAX_MS + 1, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
    clock_format_rfc3339(INT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
    clock_format_rfc3339(-1, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    char date[CLOCK_HTTP_DATE_SIZE];
    clock_format_http_date(INT64_MAX, date);
    assert_string_equal(date, "Fri, 31 Dec 9999 23:59:59 GMT");
    clock_format_http_date(INT64_MIN, date);
    assert_string_equal(date, "Thu, 01 Jan 1970 00:00:00 GMT");
}

static void test_clock__parse_reads_what_rfc3339_allows(void **state)
{
    static const struct {
        const char *text;
        int64_t wall_ms;
    } cases[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-11-15T12:00:00Z", INT64_C(1794744000000)},
        {"2026-11-15t12:00:00z", INT64_C(1794744000000)},
        {"2026-11-15T12:00:00.000Z", INT64_C(1794744000000)},
        {"2026-11-15T12:00:00.5Z", INT64_C(1794744000500)},
        {"2026-11-15T12:00:00.007Z", INT64_C(1794744000007)},
        {"2026-11-15T12:00:00.999999999Z", INT64_C(1794744000999)},
        {"2026-11-15T21:00:00+09:00", INT64_C(1794744000000)},
        {"2026-11-15T17:45:00+05:45", INT64_C(1794744000000)},
        {"2026-11-15T04:00:00-08:00", INT64_C(1794744000000)},
        {"2026-11-15T12:00:00-00:00", INT64_C(1794744000000)},
        {"2026-11-16T11:59:00+23:59", INT64_C(1794744000000)},
        {"1970-01-01T00:30:00+00:30", 0},
        {"1969-12-31T23:30:00-00:30", 0},
        {"2024-02-29T00:00:00Z", INT64_C(1709164800000)},
        {"2000-02-29T23:59:59Z", INT64_C(951868799000)},
        {"2016-12-31T23:59:60Z", INT64_C(1483228800000)},
        {"2016-12-31T23:59:60.25Z", INT64_C(1483228800250)},
        {"2017-01-01T08:59:60+09:00", INT64_C(1483228800000)},
        {"2012-06-30T23:59:60Z", INT64_C(1341100800000)},
        {"9999-12-31T23:59:59.999Z", CLOCK_WALL_MAX_MS},
        {"9999-12-31T22:59:59.999-01:00", CLOCK_WALL_MAX_MS},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t wall_ms = -1;
        if (!clock_parse_rfc3339(span_of(cases[i].text), &wall_ms) || wall_ms != cases[i].wall_ms)
            fail_msg("%s became %lld", cases[i].text, (long long)wall_ms);
    }
}

static void test_clock__parse_refuses_everything_else(void **state)
{
    static const char *const texts[] = {
        "",
        "2026",
        "2026-11-15",
        "2026-11-15T12:00:00",
        "2026-11-15T12:00Z",
        "2026-11-15 12:00:00Z",
        "2026-11-15T12:00:00.Z",
        "2026-11-15T12:00:00,5Z",
        "2026-11-15T12:00:00.1234567890Z",
        "2026-11-15T12:00:00Z ",
        " 2026-11-15T12:00:00Z",
        "2026-11-15T12:00:00ZZ",
        "2026-11-15T12:00:00+09",
        "2026-11-15T12:00:00+0900",
        "2026-11-15T12:00:00+09:0",
        "2026-11-15T12:00:00+24:00",
        "2026-11-15T12:00:00+09:60",
        "2026-11-15T12:00:00 +09:00",
        "2026-11-15T12:00:00EST",
        "2026-1-15T12:00:00Z",
        "2026-11-5T12:00:00Z",
        "26-11-15T12:00:00Z",
        "+2026-11-15T12:00:00Z",
        "12026-11-15T12:00:00Z",
        "2026-00-15T12:00:00Z",
        "2026-13-15T12:00:00Z",
        "2026-11-00T12:00:00Z",
        "2026-11-31T12:00:00Z",
        "2026-04-31T12:00:00Z",
        "2026-12-32T12:00:00Z",
        "2026-02-29T12:00:00Z",
        "2100-02-29T12:00:00Z",
        "2024-02-30T12:00:00Z",
        "2026-11-15T24:00:00Z",
        "2026-11-15T12:60:00Z",
        "2026-11-15T12:00:61Z",
        "2026-11-15T12:00:60Z",
        "2026-11-15T23:59:60Z",
        "2017-01-01T00:00:60Z",
        "2016-12-31T23:59:60+09:00",
        "9999-12-31T23:59:60Z",
        "9999-12-31T23:59:59-00:01",
        "1969-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00+00:01",
        "0000-01-01T00:00:00Z",
        "2026-11-15T1\xd9\xa1:00:00Z",
        "Sun, 15 Nov 2026 12:00:00 GMT",
        "1794744000000",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int64_t wall_ms = 4711;
        if (clock_parse_rfc3339(span_of(texts[i]), &wall_ms) || wall_ms != 4711)
            fail_msg("\"%s\" became %lld", texts[i], (long long)wall_ms);
    }
}

static void test_clock__parse_reads_no_byte_past_the_span(void **state)
{
    /* Every beginning of a valid text, in memory of just its size: the sanitizer watches. */
    static const char text[] = "2026-11-15T12:00:00.123+09:00";
    for (size_t length = 0; length < sizeof(text) - 1; length++) {
        char *copy = malloc(length > 0 ? length : 1);
        assert_non_null(copy);
        memcpy(copy, text, length);
        int64_t wall_ms;
        assert_false(clock_parse_rfc3339((struct span){.bytes = copy, .length = length}, &wall_ms));
        free(copy);
    }
}

static void test_clock__wall_time_is_the_systems(void **state)
{
    int64_t before_ms = (int64_t)time(NULL) * 1000;
    int64_t now_ms = clock_wall_ms();
    int64_t after_ms = ((int64_t)time(NULL) + 1) * 1000;
    /* time() may lag behind by a timer tick. */
    assert_in_range(now_ms, before_ms, after_ms + 100);
}

static void test_clock__monotonic_time_rises_in_both_units(void **state)
{
    int64_t first_ns = clock_monotonic_ns();
    int64_t ms = clock_monotonic_ms();
    int64_t second_ns = clock_monotonic_ns();
    assert_true(first_ns <= second_ns);
    assert_in_range(ms, first_ns / 1000000, second_ns / 1000000);
}

static void test_clock__a_deadline_is_waited_for_by_the_monotonic_clock(void **state)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    struct timespec late = clock_deadline_at_ms(INT64_C(1234567));

    (void)state;
    assert_int_equal(late.tv_sec, 1234);
    assert_int_equal(late.tv_nsec, 567000000);
    clock_condition_init(&condition);
    int64_t began_ns = clock_monotonic_ns();
    struct timespec until = clock_deadline_in_ms(20);
    pthread_mutex_lock(&lock);
    int ended = 0;
    while (ended == 0)
        ended = pthread_cond_timedwait(&condition, &lock, &until);
    pthread_mutex_unlock(&lock);
    assert_int_equal(ended, ETIMEDOUT);
    assert_true(clock_monotonic_ns() - began_ns >= 20000000);
    assert_true(until.tv_nsec >= 0 && until.tv_nsec < 1000000000);
    pthread_cond_destroy(&condition);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock__formats_agree_with_the_library_on_every_day),
        cmocka_unit_test(test_clock__formats_stay_within_their_text),
        cmocka_unit_test(test_clock__parse_reads_what_rfc3339_allows),
        cmocka_unit_test(test_clock__parse_refuses_everything_else),
        cmocka_unit_test(test_clock__parse_reads_no_byte_past_the_span),
        cmocka_unit_test(test_clock__wall_time_is_the_systems),
        cmocka_unit_test(test_clock__monotonic_time_rises_in_both_units),
        cmocka_unit_test(test_clock__a_deadline_is_waited_for_by_the_monotonic_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
