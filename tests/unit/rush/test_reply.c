/* test_reply.c: replies whole, in parts and broken, and what a claim was told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rush/reply.h"

static enum rush_reading read_text(const char *text, struct rush_reply *reply)
{
    return rush_reply_read(span_of(text), reply);
}

static struct rush_claim claim_of(int status, const char *body)
{
    struct rush_claim claim;
    rush_claim_read(&(struct rush_reply){.status = status, .body = span_of(body)}, &claim);
    return claim;
}

static void test_reply__is_whole_only_with_its_last_byte(void **state)
{
    static const char text[] = "HTTP/1.1 201 Created\r\nDate: x\r\nContent-Length: 5\r\n"
                               "Connection: keep-alive\r\n\r\nhello";
    struct rush_reply reply;

    (void)state;
    for (size_t length = 0; length < strlen(text); length++)
        assert_int_equal(rush_reply_read((struct span){text, length}, &reply), RUSH_READ_MORE);
    assert_int_equal(read_text(text, &reply), RUSH_READ_WHOLE);
    assert_int_equal(reply.status, 201);
    assert_int_equal(reply.length, strlen(text));
    assert_int_equal(reply.body.length, 5);
    assert_memory_equal(reply.body.bytes, "hello", 5);
    assert_false(reply.closes);
    assert_int_equal(reply.retry_after_s, -1);
}

static void test_reply__headers_count_in_any_case(void **state)
{
    struct rush_reply reply;

    (void)state;
    assert_int_equal(read_text("HTTP/1.1 503 No\r\ncontent-length:0\r\nRETRY-AFTER: 3\r\n"
                               "connection: close\r\n\r\n",
                               &reply),
                     RUSH_READ_WHOLE);
    assert_int_equal(reply.retry_after_s, 3);
    assert_true(reply.closes);
    assert_int_equal(reply.body.length, 0);
}

static void test_reply__garbage_is_called_so(void **state)
{
    static const char *const texts[] = {
        "FTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1 20\r\n\r\n",
        "\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    };
    struct rush_reply reply;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(read_text(texts[i], &reply), RUSH_READ_GARBAGE);
}

static void test_reply__a_claim_is_understood(void **state)
{
    (void)state;
    struct rush_claim claim = claim_of(
        201, "{\"result\":\"ISSUED\",\"policy_id\":42,\"user\":\"u1\",\"seq\":17,\"nth\":2}");
    assert_int_equal(claim.outcome, RUSH_WON);
    assert_true(claim.is_issued);
    assert_int_equal(claim.seq, 17);
    assert_int_equal(claim.nth, 2);
    claim = claim_of(202, "{ \"seq\" : 18 , \"nth\" : 1 }");
    assert_int_equal(claim.outcome, RUSH_WON);
    assert_false(claim.is_issued);
    assert_int_equal(claim.seq, 18);
    assert_int_equal(claim_of(200, "{\"seq\":3}").outcome, RUSH_HELD);
    assert_int_equal(claim_of(201, "{}").seq, 0);
    assert_int_equal(claim_of(201, "").seq, 0);
}

static void test_reply__a_refusal_is_understood(void **state)
{
    (void)state;
    assert_int_equal(claim_of(409, "{\"code\":\"SOLD_OUT\"}").outcome, RUSH_SOLD_OUT);
    assert_int_equal(claim_of(409, "{\"code\":\"LIMIT_REACHED\"}").outcome, RUSH_LIMIT);
    assert_int_equal(claim_of(403, "{\"code\":\"NOT_OPEN\"}").outcome, RUSH_REFUSED);
    assert_string_equal(claim_of(403, "{\"code\":\"NOT_OPEN\"}").code, "NOT_OPEN");
    assert_int_equal(claim_of(429, "{\"code\":\"RATE_LIMITED\"}").outcome, RUSH_BUSY);
    assert_int_equal(claim_of(503, "").outcome, RUSH_BUSY);
    assert_int_equal(claim_of(500, "SOLD_OUT").outcome, RUSH_NONE);
    assert_int_equal(claim_of(302, "").outcome, RUSH_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reply__is_whole_only_with_its_last_byte),
        cmocka_unit_test(test_reply__headers_count_in_any_case),
        cmocka_unit_test(test_reply__garbage_is_called_so),
        cmocka_unit_test(test_reply__a_claim_is_understood),
        cmocka_unit_test(test_reply__a_refusal_is_understood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
