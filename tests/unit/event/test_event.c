/* test_event.c: messages that come back as they went, and what is said about those that do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "event/event.h"

#define TRACE "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#define NOON  INT64_C(1794744000000) /* 2026-11-15T12:00:00Z */

static struct json_reader *reader;
static struct span trace;
static struct event event;
static struct error error;

static int setup(void **state)
{
    reader = json_reader_new(EVENT_VALUE_MAX);
    return reader == NULL;
}

static int teardown(void **state)
{
    json_reader_free(reader);
    return 0;
}

static struct claim some_claim(void)
{
    struct claim claim = {.policy_id = 42,
                          .seq = 17,
                          .lease_id = 3,
                          .requested_at_ms = NOON + 7,
                          .nth = 2,
                          .user = id_of(SPAN("u1@shop"))};
    for (size_t i = 0; i < sizeof(claim.request_id.bytes); i++)
        claim.request_id.bytes[i] = (uint8_t)(0xf0 + i);
    return claim;
}

static const char *text_of(struct span span)
{
    static char text[EVENT_VALUE_MAX + 1];
    memcpy(text, span.bytes, span.length);
    text[span.length] = '\0';
    return text;
}

static void assert_header(size_t at, const char *name, const char *value)
{
    assert_true(at < event.message.header_count);
    assert_string_equal(event.message.headers[at].name, name);
    assert_string_equal(text_of(event.message.headers[at].value), value);
}

static void test_event__a_claim_is_written_as_the_contract_has_it(void **state)
{
    struct claim claim = some_claim();
    event_write_claim(&event, &claim, SPAN(TRACE));
    assert_string_equal(text_of(event.message.key), "42");
    assert_string_equal(text_of(event.message.value),
                        "{\"policy_id\":42,\"user\":\"u1@shop\",\"seq\":17,\"nth\":2,\"lease\":3,"
                        "\"request_id\":\"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff\","
                        "\"requested_at\":\"2026-11-15T12:00:00.007Z\"}\n");
    assert_int_equal(event.message.header_count, 7);
    assert_header(0, "ce_specversion", "1.0");
    assert_header(1, "ce_id", "42-17");
    assert_header(2, "ce_source", "/dibs/policies/42");
    assert_header(3, "ce_type", "dibs.coupon.pended");
    assert_header(4, "ce_time", "2026-11-15T12:00:00.007Z");
    assert_header(5, "content-type", "application/json");
    assert_header(6, "traceparent", TRACE);

    event_write_claim(&event, &claim, (struct span){0});
    assert_int_equal(event.message.header_count, 6);
}

static void test_event__a_claim_comes_back_as_it_went(void **state)
{
    struct claim small = some_claim();
    struct claim large = some_claim();
    large.policy_id = POLICY_ID_MAX;
    large.seq = POLICY_ID_MAX;
    large.lease_id = POLICY_ID_MAX;
    large.nth = PER_USER_LIMIT_MAX;
    large.requested_at_ms = CLOCK_WALL_MAX_MS;
    large.user.length = ID_LENGTH_MAX;
    memset(large.user.bytes, 'x', ID_LENGTH_MAX);
    const struct claim *claims[] = {&small, &large};
    for (size_t i = 0; i < 2; i++) {
        event_write_claim(&event, claims[i], SPAN(TRACE));
        struct claim back;
        assert_int_equal(event_read_claim(reader, &event.message, &back, &trace, &error),
                         STATUS_OK);
        assert_int_equal(back.policy_id, claims[i]->policy_id);
        assert_int_equal(back.seq, claims[i]->seq);
        assert_int_equal(back.lease_id, claims[i]->lease_id);
        assert_int_equal(back.requested_at_ms, claims[i]->requested_at_ms);
        assert_int_equal(back.nth, claims[i]->nth);
        assert_int_equal(back.attempt, 0);
        assert_true(id_equal(&back.user, &claims[i]->user));
        assert_memory_equal(&back.request_id, &claims[i]->request_id, sizeof(back.request_id));
        assert_string_equal(text_of(trace), TRACE);
    }
}

static void test_event__an_own_claim_is_read_from_its_value(void **state)
{
    struct claim large = some_claim();
    struct claim back;
    char value[EVENT_VALUE_SIZE];
    bool has_trace = true;
    large.policy_id = POLICY_ID_MAX;
    large.nth = PER_USER_LIMIT_MAX;
    large.requested_at_ms = CLOCK_WALL_MAX_MS;
    event_write_claim(&event, &large, (struct span){0});
    struct span key = event.message.key;
    struct span own = event.message.value;
    assert_true(event_read_own_claim(key, own, &back, &has_trace));
    assert_false(has_trace);
    assert_int_equal(back.policy_id, large.policy_id);
    assert_int_equal(back.seq, large.seq);
    assert_int_equal(back.lease_id, large.lease_id);
    assert_int_equal(back.requested_at_ms, large.requested_at_ms);
    assert_int_equal(back.nth, large.nth);
    assert_true(id_equal(&back.user, &large.user));
    assert_memory_equal(&back.request_id, &large.request_id, sizeof(back.request_id));
    assert_false(event_read_own_claim(SPAN("1"), own, &back, &has_trace));
    assert_false(
        event_read_own_claim(key, (struct span){own.bytes, own.length - 1}, &back, &has_trace));
    /* With any byte changed into what it cannot be, it is somebody else's to judge. */
    for (size_t i = 0; i < own.length; i++) {
        memcpy(value, own.bytes, own.length);
        value[i] = '\\';
        assert_false(
            event_read_own_claim(key, (struct span){value, own.length}, &back, &has_trace));
    }
    /* Nor is a name with something escaped; a reader of JSON has it. */
    static const char *const names[] = {"say \"hi\"", "back\\slash", "\"", "\\\\"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct span traceparent;
        large.user = id_of(span_of(names[i]));
        event_write_claim(&event, &large, (struct span){0});
        assert_false(event_read_own_claim(key, event.message.value, &back, &has_trace));
        assert_int_equal(event_read_claim(reader, &event.message, &back, &traceparent, &error),
                         STATUS_OK);
        assert_true(id_equal(&back.user, &large.user));
    }
    large.user = id_of(SPAN("ann"));
    /* That it has a trace shows in its value, too. */
    event_write_claim(&event, &large, SPAN(TRACE));
    assert_true(event_read_own_claim(key, event.message.value, &back, &has_trace));
    assert_true(has_trace);
    assert_int_equal(back.seq, large.seq);
}

/* Reads the claim's message with another value in place of its own. */
static void assert_value_refused(const char *value, const char *words)
{
    struct claim claim = some_claim();
    event_write_claim(&event, &claim, (struct span){0});
    event.message.value = span_of(value);
    error.text[0] = '\0';
    assert_int_equal(event_read_claim(reader, &event.message, &claim, &trace, &error),
                     STATUS_INVALID);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

#define REQUEST "\"request_id\":\"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff\""
#define TIMED   "\"requested_at\":\"2026-11-15T12:00:00Z\""

static void test_event__a_claims_value_is_read_strictly(void **state)
{
    assert_value_refused("", "value: body: must be a JSON object and is empty");
    assert_value_refused("poison", "value: body: must be valid JSON");
    assert_value_refused("[]", "value: body: must be a JSON object");
    assert_value_refused("{}", "value: policy_id: is missing");
    assert_value_refused("{\"policy_id\":0}", "value: policy_id: must be an integer from 1 to");
    assert_value_refused("{\"policy_id\":42,\"colour\":1}", "value: colour: is not a known field");
    assert_value_refused("{\"policy_id\":42,\"user\":\"a \"}", "value: user: must be 1 to 128");
    assert_value_refused("{\"policy_id\":42,\"policy_id\":42}", "must be there only once");
    assert_value_refused("{\"policy_id\":42,\"user\":\"u\",\"seq\":17,\"nth\":1," REQUEST "," TIMED
                         "}",
                         "value: lease: is missing");
    assert_value_refused("{\"policy_id\":42,\"user\":\"u\",\"seq\":17,\"nth\":1001}",
                         "value: nth: must be an integer from 1 to 1000");
    assert_value_refused("{\"policy_id\":42,\"user\":\"u\",\"seq\":17,\"nth\":1,\"lease\":3," TIMED
                         ",\"request_id\":\"F0f1f2f3f4f5f6f7f8f9fafbfcfdfeff\"}",
                         "value: request_id: must be 32 hexadecimal digits in lower case");
    assert_value_refused("{\"policy_id\":42,\"user\":\"u\",\"seq\":17,\"nth\":1,\"lease\":3,"
                         "\"requested_at\":null}",
                         "value: requested_at: must be an RFC 3339 time");

    char large[EVENT_VALUE_MAX + 2];
    memset(large, ' ', sizeof(large));
    large[sizeof(large) - 1] = '\0';
    assert_value_refused(large, "value: body: must have at most 16384 bytes");
}

/* Key and id name the same claim as the value: else a message lies in the wrong partition, and the
 * order of its policy is nobody's. */
static void test_event__key_and_id_belong_to_the_value(void **state)
{
    const char *other =
        "{\"policy_id\":43,\"user\":\"u\",\"seq\":17,\"nth\":1,\"lease\":3," REQUEST "," TIMED "}";
    assert_value_refused(other, "header ce_id: must be \"43-17\" and is \"42-17\"");

    struct claim claim = some_claim();
    event_write_claim(&event, &claim, (struct span){0});
    event.message.key = SPAN("4");
    assert_int_equal(event_read_claim(reader, &event.message, &claim, &trace, &error),
                     STATUS_INVALID);
    assert_string_equal(error.text, "key: must be the policy's id \"42\" and is \"4\"");
    event.message.key = (struct span){0};
    assert_int_equal(event_read_claim(reader, &event.message, &claim, &trace, &error),
                     STATUS_INVALID);
    assert_string_equal(error.text, "key: must be the policy's id \"42\" and is \"\"");
}

/* Reads the claim's message with one header changed, added (`at` behind the last) or left out. */
static void assert_headers_refused(size_t at, const char *name, const char *value,
                                   const char *words)
{
    struct claim claim = some_claim();
    event_write_claim(&event, &claim, (struct span){0});
    event.headers[at] = (struct event_header){.name = name, .value = span_of(value)};
    if (at == event.message.header_count)
        event.message.header_count++;
    assert_int_equal(event_read_claim(reader, &event.message, &claim, &trace, &error),
                     STATUS_INVALID);
    assert_string_equal(error.text, words);
}

static void test_event__headers_are_checked(void **state)
{
    assert_headers_refused(0, "x", "y", "header ce_specversion: must be \"1.0\" and is missing");
    assert_headers_refused(0, "ce_specversion", "0.3",
                           "header ce_specversion: must be \"1.0\" and is \"0.3\"");
    assert_headers_refused(1, "ce_id", "42-18\x1b[31m",
                           "header ce_id: must be \"42-17\" and is \"42-18?[31m\"");
    assert_headers_refused(2, "ce_source", "", "header ce_source: is missing or empty");
    assert_headers_refused(2, "x", "y", "header ce_source: is missing or empty");
    assert_headers_refused(3, "ce_type", "dibs.coupon.issued",
                           "header ce_type: must be \"dibs.coupon.pended\" and is "
                           "\"dibs.coupon.issued\"");
    assert_headers_refused(5, "content-type", "application/cloudevents+json",
                           "header content-type: must be \"application/json\" and is "
                           "\"application/cloudevents+json\"");
    assert_headers_refused(6, "ce_type", "dibs.coupon.pended",
                           "header ce_type: must be there only once");

    struct claim claim = some_claim();
    event_write_claim(&event, &claim, (struct span){0});
    event.headers[5].value = SPAN("application/json; charset=utf-8");
    event.headers[6] = (struct event_header){.name = "x-shop", .value = SPAN("1")};
    event.message.header_count = 7;
    assert_int_equal(event_read_claim(reader, &event.message, &claim, &trace, &error), STATUS_OK);

    static const struct event_header one = {.name = "x", .value = SPAN("y")};
    static struct event_header many[EVENT_HEADERS_SEEN + 1];
    for (size_t i = 0; i < EVENT_HEADERS_SEEN + 1; i++)
        many[i] = one;
    event.message.headers = many;
    event.message.header_count = EVENT_HEADERS_SEEN + 1;
    assert_int_equal(event_read_claim(reader, &event.message, &claim, &trace, &error),
                     STATUS_INVALID);
    assert_string_equal(error.text, "headers: must be at most 32 and are 33");
}

/* Tracing is no part of the claim: what is wrong with it stops nothing and is not passed on. */
static void test_event__a_bad_traceparent_is_left_out(void **state)
{
    static const char *const bad[] = {
        "",
        "00",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
        "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
    };
    struct claim claim = some_claim();
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(traceparent_valid(span_of(bad[i])));
        event_write_claim(&event, &claim, span_of(bad[i]));
        assert_int_equal(event.message.header_count, 6);
        event.headers[6] = (struct event_header){.name = "traceparent", .value = span_of(bad[i])};
        event.message.header_count = 7;
        trace = SPAN("x");
        struct claim back;
        assert_int_equal(event_read_claim(reader, &event.message, &back, &trace, &error),
                         STATUS_OK);
        assert_int_equal(trace.length, 0);
    }
    assert_true(traceparent_valid(SPAN(TRACE)));
}

static struct coupon some_coupon(void)
{
    struct coupon coupon = {.claim = some_claim(),
                            .state = COUPON_CANCELLED,
                            .issued_at_ms = NOON,
                            .expires_at_ms = NOON + 1000,
                            .redeemed_at_ms = NOON + 2000,
                            .cancelled_at_ms = NOON + 3000,
                            .merged_into_seq = 4,
                            .order_id = id_of(SPAN("o-1"))};
    strcpy(coupon.reason, "user is blocked");
    return coupon;
}

#define COUPON_START                                                                       \
    "{\"policy_id\":42,\"user\":\"u1@shop\",\"seq\":17,\"nth\":2,\"coupon_id\":\"42-17\"," \
    "\"state\":\""
#define COUPON_MIDDLE                                         \
    "\",\"request_id\":\"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff\"," \
    "\"requested_at\":\"2026-11-15T12:00:00.007Z\","

/* The row may already be further: an event tells of its own moment only. */
static void test_event__a_coupon_is_told_as_of_its_event(void **state)
{
    static const struct {
        enum coupon_state state;
        const char *type;
        const char *id;
        const char *value;
    } cases[] = {
        {COUPON_ISSUED, "dibs.coupon.issued", "42-17-issued",
         COUPON_START "ISSUED" COUPON_MIDDLE "\"issued_at\":\"2026-11-15T12:00:05.000Z\","
                      "\"expires_at\":\"2026-11-15T12:00:01.000Z\"}"},
        {COUPON_REDEEMED, "dibs.coupon.redeemed", "42-17-redeemed",
         COUPON_START "REDEEMED" COUPON_MIDDLE "\"redeemed_at\":\"2026-11-15T12:00:05.000Z\","
                      "\"order_id\":\"o-1\"}"},
        {COUPON_CANCELLED, "dibs.coupon.cancelled", "42-17-cancelled",
         COUPON_START "CANCELLED" COUPON_MIDDLE "\"cancelled_at\":\"2026-11-15T12:00:05.000Z\"}"},
        {COUPON_VOID, "dibs.coupon.voided", "42-17-voided",
         COUPON_START "VOID" COUPON_MIDDLE "\"voided_at\":\"2026-11-15T12:00:05.000Z\","
                      "\"reason\":\"user is blocked\"}"},
        {COUPON_MERGED, "dibs.coupon.merged", "42-17-merged",
         COUPON_START "MERGED" COUPON_MIDDLE "\"merged_at\":\"2026-11-15T12:00:05.000Z\","
                      "\"merged_into_seq\":4}"},
    };
    struct coupon coupon = some_coupon();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coupon.state = cases[i].state;
        event_write_coupon(&event, &coupon, NOON + 5000, SPAN(TRACE));
        assert_string_equal(text_of(event.message.key), "42");
        assert_header(1, "ce_id", cases[i].id);
        assert_header(2, "ce_source", "/dibs/policies/42");
        assert_header(3, "ce_type", cases[i].type);
        assert_header(4, "ce_time", "2026-11-15T12:00:05.000Z");
        assert_header(6, "traceparent", TRACE);
        assert_string_equal(text_of(event.message.value), cases[i].value);
    }
}

static void test_event__a_coupon_without_order_or_end_has_null(void **state)
{
    struct coupon coupon = {.claim = some_claim()};
    coupon.state = COUPON_ISSUED;
    event_write_coupon(&event, &coupon, NOON, (struct span){0});
    assert_non_null(strstr(text_of(event.message.value), "\"expires_at\":null}"));
    coupon.state = COUPON_REDEEMED;
    event_write_coupon(&event, &coupon, NOON, (struct span){0});
    assert_non_null(strstr(text_of(event.message.value), "\"order_id\":null}"));
}

/* Everything as long as it can be, and every character of the reason escaped. */
static void test_event__the_longest_coupon_fits(void **state)
{
    struct coupon coupon = some_coupon();
    coupon.claim.policy_id = POLICY_ID_MAX;
    coupon.claim.seq = POLICY_ID_MAX;
    coupon.claim.user.length = ID_LENGTH_MAX;
    memset(coupon.claim.user.bytes, 'x', ID_LENGTH_MAX);
    coupon.order_id = coupon.claim.user;
    coupon.merged_into_seq = POLICY_ID_MAX;
    memset(coupon.reason, '\x01', REASON_SIZE - 1);
    coupon.reason[REASON_SIZE - 1] = '\0';
    for (coupon.state = COUPON_ISSUED; coupon.state <= COUPON_MERGED; coupon.state++) {
        if (coupon.state == COUPON_EXPIRED)
            continue; /* is never told */
        event_write_coupon(&event, &coupon, CLOCK_WALL_MAX_MS, SPAN(TRACE));
        assert_int_equal(event.message.header_count, EVENT_HEADERS_MAX);
        assert_int_equal(event.message.value.bytes[event.message.value.length - 1], '}');
    }
}

static struct order order;
static struct order_item items[ORDER_ITEMS_MAX];

static enum status read_order(const char *value, const struct event_header *headers, size_t count)
{
    struct event_message message = {
        .value = span_of(value), .headers = headers, .header_count = count};
    return event_read_order(reader, &message, &order, items, &error);
}

static void test_event__orders_need_no_headers(void **state)
{
    assert_int_equal(read_order("{\"order_id\":\"o-1\",\"paid_at\":\"2026-11-15T12:00:00Z\","
                                "\"items\":[{\"product_id\":\"p1\",\"quantity\":2},"
                                "{\"product_id\":7,\"quantity\":1000000}]}",
                                NULL, 0),
                     STATUS_OK);
    assert_string_equal(text_of(id_span(&order.order_id)), "o-1");
    assert_int_equal(order.paid_at_ms, NOON);
    assert_int_equal(order.item_count, 2);
    assert_string_equal(text_of(id_span(&order.items[0].product_id)), "p1");
    assert_int_equal(order.items[0].quantity, 2);
    assert_string_equal(text_of(id_span(&order.items[1].product_id)), "7");
    assert_int_equal(order.items[1].quantity, 1000000);

    static const struct event_header good[] = {
        {"ce_specversion", SPAN("1.0")},
        {"ce_type", SPAN("dibs.order.completed")},
        {"content-type", SPAN("application/json")},
    };
    const char *value = "{\"order_id\":1,\"items\":[{\"product_id\":\"p1\",\"quantity\":1}]}";
    assert_int_equal(read_order(value, good, 3), STATUS_OK);
    assert_int_equal(order.paid_at_ms, 0);
    assert_int_equal(order.item_count, 1);
}

static void assert_order_refused(const char *value, const char *words)
{
    assert_int_equal(read_order(value, NULL, 0), STATUS_INVALID);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void test_event__orders_are_read_strictly(void **state)
{
    assert_order_refused("", "value: body: must be a JSON object and is empty");
    assert_order_refused("{\"items\":[]}", "value: items: must be a list of 1 to 500 objects");
    assert_order_refused("{\"order_id\":1}", "value: items: is missing");
    assert_order_refused("{\"items\":[{\"product_id\":\"p\",\"quantity\":1}]}",
                         "value: order_id: is missing");
    assert_order_refused("{\"items\":[{\"product_id\":\"p\",\"quantity\":0}]}",
                         "value: items.1.quantity: must be an integer from 1 to 1000000");
    assert_order_refused("{\"order_id\":\"o \"}", "value: order_id: must be 1 to 128 bytes");
    assert_order_refused("{\"order_id\":1,\"paid_at\":5}", "value: paid_at: must be an RFC 3339");
    assert_order_refused("{\"order_id\":1,\"total\":5}", "value: total: is not a known field");

    static const struct event_header other[] = {{"ce_type", SPAN("shop.order")}};
    assert_int_equal(read_order("{}", other, 1), STATUS_INVALID);
    assert_string_equal(error.text, "header ce_type: must be \"dibs.order.completed\" and is "
                                    "\"shop.order\"");
    static const struct event_header structured[] = {
        {"content-type", SPAN("application/cloudevents+json; charset=utf-8")}};
    assert_int_equal(read_order("{}", structured, 1), STATUS_INVALID);
    assert_non_null(strstr(error.text, "header content-type: must be \"application/json\""));
}

int main(void)
{
#define READER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        READER_TEST(test_event__an_own_claim_is_read_from_its_value),
        cmocka_unit_test(test_event__a_claim_is_written_as_the_contract_has_it),
        READER_TEST(test_event__a_claim_comes_back_as_it_went),
        READER_TEST(test_event__a_claims_value_is_read_strictly),
        READER_TEST(test_event__key_and_id_belong_to_the_value),
        READER_TEST(test_event__headers_are_checked),
        READER_TEST(test_event__a_bad_traceparent_is_left_out),
        READER_TEST(test_event__a_coupon_is_told_as_of_its_event),
        READER_TEST(test_event__a_coupon_without_order_or_end_has_null),
        READER_TEST(test_event__the_longest_coupon_fits),
        READER_TEST(test_event__orders_need_no_headers),
        READER_TEST(test_event__orders_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
