/* test_traces.c: the trace of a request is found by the request's id, and by no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/traces.h"

/* As the server makes them: bytes of its own, then a counter. */
static struct request_id request_id_of(uint64_t count)
{
    struct request_id id = {{1, 2, 3, 4, 5, 6, 7, 8}};

    for (unsigned i = 0; i < 8; i++)
        id.bytes[15 - i] = (uint8_t)(count >> (8 * i));
    return id;
}

static void trace_of(uint64_t count, char text[TRACEPARENT_SIZE])
{
    snprintf(text, TRACEPARENT_SIZE, "00-%032llx-%016llx-01", (unsigned long long)count + 1,
             (unsigned long long)count + 1);
}

static void test_traces__are_found_by_their_request(void **state)
{
    enum { COUNT = 4000 }; /* more than a busy process has under way */
    struct traces *traces = traces_new();

    (void)state;
    assert_non_null(traces);
    for (uint64_t i = 0; i < 2 * COUNT; i++) {
        struct request_id id = request_id_of(i % COUNT); /* Again is no more. */
        char text[TRACEPARENT_SIZE];
        trace_of(i % COUNT, text);
        traces_put(traces, &id, span_of(text));
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        struct request_id id = request_id_of(i);
        char text[TRACEPARENT_SIZE];
        char found[TRACEPARENT_SIZE];
        trace_of(i, text);
        assert_true(traces_find(traces, &id, found));
        assert_string_equal(found, text);
    }
    struct request_id stranger = request_id_of(COUNT);
    char found[TRACEPARENT_SIZE];
    assert_false(traces_find(traces, &stranger, found));
    traces_free(traces);
}

static void test_traces__only_valid_ones_are_kept(void **state)
{
    static const char *const wrong[] = {"", "00",
                                        "00-00000000000000000000000000000000-0000000000000001-01",
                                        "00-0000000000000000000000000000000g-0000000000000001-01",
                                        "ff-00000000000000000000000000000001-0000000000000001-01"};
    struct traces *traces = traces_new();
    struct request_id id = request_id_of(1);
    char found[TRACEPARENT_SIZE];

    (void)state;
    assert_non_null(traces);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        traces_put(traces, &id, span_of(wrong[i]));
        assert_false(traces_find(traces, &id, found));
    }
    traces_free(traces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traces__are_found_by_their_request),
        cmocka_unit_test(test_traces__only_valid_ones_are_kept),
    };
    return cmocka_run_group_tests_name("traces", tests, NULL, NULL);
}
