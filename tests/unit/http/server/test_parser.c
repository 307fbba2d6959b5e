/* test_parser.c: good requests come out whole however they are cut, bad ones never come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http/server/parser.h"
#include "malformed.h"

#define BODY_MAX 16384

static size_t body_max(void *context, enum http_method method, struct span path)
{
    (void)method;
    size_t *smaller = context;
    return path.length == 6 && memcmp(path.bytes, "/small", 6) == 0 ? *smaller : BODY_MAX;
}

static size_t small_max = 4;

/* What came out of the parser, in words that can be compared. */
struct transcript {
    char text[8192];
    size_t length;
    int requests;
    bool refused;
    enum http_refusal refusal;
};

static void transcript_add(struct transcript *transcript, const char *name, struct span value)
{
    int length = snprintf(transcript->text + transcript->length,
                          sizeof(transcript->text) - transcript->length, "%s=%.*s|", name,
                          (int)value.length, value.bytes != NULL ? value.bytes : "");
    transcript->length += (size_t)length;
    assert_true(transcript->length < sizeof(transcript->text));
}

static void transcript_request(struct transcript *transcript, const struct http_parser *parser,
                               const struct http_request *request)
{
    static const char *const methods[] = {"OTHER", "GET",   "HEAD",   "POST",
                                          "PUT",   "PATCH", "DELETE", "OPTIONS"};
    transcript->requests++;
    transcript_add(transcript, "method", span_of(methods[request->method]));
    transcript_add(transcript, "path", request->path);
    transcript_add(transcript, "query", request->query);
    transcript_add(transcript, "host", request->host);
    if (request->authorization.bytes != NULL)
        transcript_add(transcript, "authorization", request->authorization);
    if (request->content_type.bytes != NULL)
        transcript_add(transcript, "type", request->content_type);
    if (request->idempotency_key.bytes != NULL)
        transcript_add(transcript, "key", request->idempotency_key);
    if (request->request_id.bytes != NULL)
        transcript_add(transcript, "id", request->request_id);
    if (request->accept.bytes != NULL)
        transcript_add(transcript, "accept", request->accept);
    transcript_add(transcript, "body", request->body);
    transcript_add(transcript, parser->keep_alive ? "stay" : "close", SPAN(""));
}

/* Takes everything that can be taken now; true when it goes on. */
static bool drain(struct http_parser *parser, struct transcript *transcript)
{
    struct http_request request;
    enum http_parsed parsed;
    while ((parsed = http_parser_next(parser, &request)) == HTTP_PARSED_REQUEST)
        transcript_request(transcript, parser, &request);
    if (parsed == HTTP_PARSED_REFUSED) {
        transcript->refused = true;
        transcript->refusal = parser->refusal;
        assert_non_null(parser->detail);
        return false;
    }
    assert_true(http_parser_park(parser));
    return !parser->ended;
}

/* Feeds `length` bytes in pieces of at most `piece`, the first one `first` long; the shared room is
 * wiped after each, as the next connection's read would. */
static void parse(const char *bytes, size_t length, size_t first, size_t piece,
                  struct transcript *transcript)
{
    struct http_parser parser;
    char *shared = malloc(HTTP_PARSER_BYTES_MAX);
    assert_non_null(shared);
    memset(transcript, 0, sizeof(*transcript));
    http_parser_init(&parser, body_max, &small_max);
    size_t wanted = first;
    while (length > 0) {
        uv_buf_t room = http_parser_room(&parser, uv_buf_init(shared, HTTP_PARSER_BYTES_MAX));
        size_t count = wanted < length ? wanted : length;
        count = count < room.len ? count : room.len;
        assert_true(count > 0);
        memcpy(room.base, bytes, count);
        http_parser_feed(&parser, room, count);
        bytes += count;
        length -= count;
        wanted = piece;
        if (!drain(&parser, transcript))
            break;
        memset(shared, '#', HTTP_PARSER_BYTES_MAX);
    }
    http_parser_release(&parser);
    free(shared);
}

static void parse_whole(const char *bytes, size_t length, struct transcript *transcript)
{
    parse(bytes, length, length, length, transcript);
}

static const char pipeline[] =
    "GET /a?b=c HTTP/1.1\r\nHost: one\r\n\r\n"
    "\r\nPOST /v1/policies/42/claims HTTP/1.1\r\nhost:two:80\r\nContent-Type: application/json "
    "\t\r\n"
    "Idempotency-Key:\tk-1\r\nX-Request-Id:\r\nContent-Length: 13\r\nAccept: a\r\nAccept: b\r\n\r\n"
    "{\"user\":\"u1\"}"
    "HEAD /? HTTP/1.1\r\nHost: [::1]:8080\r\nAUTHORIZATION: Bearer x y\r\n\r\n"
    "PUT /p HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"
    "DELETE /d HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    "PATCH /q HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    "GET /never HTTP/1.1\r\nHost: a\r\n\r\n";

static const char pipeline_transcript[] =
    "method=GET|path=/a|query=b=c|host=one|body=|stay=|"
    "method=POST|path=/v1/policies/42/claims|query=|host=two:80|type=application/json|key=k-1|id=|"
    "accept=a|body={\"user\":\"u1\"}|stay=|"
    "method=HEAD|path=/|query=|host=[::1]:8080|authorization=Bearer x y|body=|stay=|"
    "method=PUT|path=/p|query=|host=|body=|stay=|"
    "method=DELETE|path=/d|query=|host=a|body=|stay=|"
    "method=PATCH|path=/q|query=|host=a|body={}|close=|";

static void test_parser__takes_pipelined_requests_apart(void **state)
{
    (void)state;
    struct transcript transcript;
    parse_whole(pipeline, sizeof(pipeline) - 1, &transcript);
    assert_string_equal(transcript.text, pipeline_transcript);
    assert_false(transcript.refused);
    assert_int_equal(transcript.requests, 6);
}

static void test_parser__does_not_care_where_the_bytes_are_cut(void **state)
{
    (void)state;
    struct transcript transcript;
    for (size_t piece = 1; piece < 40; piece++) {
        parse(pipeline, sizeof(pipeline) - 1, piece, piece, &transcript);
        assert_string_equal(transcript.text, pipeline_transcript);
    }
    for (size_t cut = 1; cut < sizeof(pipeline) - 1; cut++) {
        parse(pipeline, sizeof(pipeline) - 1, cut, sizeof(pipeline), &transcript);
        assert_string_equal(transcript.text, pipeline_transcript);
    }
}

static void test_parser__refuses_every_malformed_request(void **state)
{
    (void)state;
    struct transcript transcript;
    for (size_t i = 0; i < MALFORMED_COUNT; i++) {
        const struct malformed *bad = &malformed[i];
        parse_whole(bad->bytes, bad->length, &transcript);
        if (!transcript.refused || transcript.requests > 0 || transcript.refusal != bad->refusal) {
            fail_msg("%s: %s, refusal %d instead of %d", bad->name,
                     transcript.refused ? "refused" : "taken", (int)transcript.refusal,
                     (int)bad->refusal);
        }
    }
}

/* The kind of refusal may differ when it is decided before the rest has come; a good answer may
 * not. */
static void test_parser__refuses_them_however_they_are_cut(void **state)
{
    (void)state;
    struct transcript transcript;
    for (size_t i = 0; i < MALFORMED_COUNT; i++) {
        const struct malformed *bad = &malformed[i];
        for (size_t cut = 1; cut <= bad->length; cut++) {
            parse(bad->bytes, bad->length, cut, bad->length, &transcript);
            if (!transcript.refused || transcript.requests > 0)
                fail_msg("%s: taken when cut after %zu bytes", bad->name, cut);
        }
        parse(bad->bytes, bad->length, 1, 1, &transcript);
        if (!transcript.refused || transcript.requests > 0)
            fail_msg("%s: taken byte by byte", bad->name);
    }
}

static void test_parser__looks_at_nothing_after_a_refusal(void **state)
{
    (void)state;
    static const char bytes[] = "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\n\r\n"
                                "GET /c HTTP/1.1\r\nHost: a\r\n\r\n";
    struct transcript transcript;
    for (size_t piece = 1; piece < sizeof(bytes); piece++) {
        parse(bytes, sizeof(bytes) - 1, piece, piece, &transcript);
        assert_true(transcript.refused);
        assert_int_equal(transcript.requests, 1);
    }
}

/* --- limits: the last size that is taken and the first that is not --- */

/* A request whose line has `line_length` characters and whose headers, with the empty line, have
 * `headers_length`. */
static char *sized_request(size_t line_length, size_t headers_length, size_t *length)
{
    static const char host[] = "Host: a\r\nB: ";
    char *bytes = malloc(line_length + headers_length + 3);
    assert_non_null(bytes);
    memcpy(bytes, "GET /", 5);
    memset(bytes + 5, 'x', line_length - 5 - 9);
    memcpy(bytes + line_length - 9, " HTTP/1.1\r\n", 11);
    char *headers = bytes + line_length + 2;
    memset(headers, 'y', headers_length);
    memcpy(headers, host, sizeof(host) - 1);
    memcpy(headers + headers_length - 4, "\r\n\r\n", 4);
    *length = line_length + 2 + headers_length;
    return bytes;
}

static void assert_sized(size_t line_length, size_t headers_length, int refusal)
{
    size_t length;
    char *bytes = sized_request(line_length, headers_length, &length);
    static const size_t pieces[] = {1, 7, 100, 1000, 4096, 100000};
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct transcript *transcript = malloc(sizeof(*transcript));
        assert_non_null(transcript);
        parse(bytes, length, pieces[i], pieces[i], transcript);
        assert_int_equal(transcript->refused ? (int)transcript->refusal : -1, refusal);
        assert_int_equal(transcript->requests, refusal < 0 ? 1 : 0);
        free(transcript);
    }
    free(bytes);
}

static void test_parser__limits_the_request_line(void **state)
{
    (void)state;
    assert_sized(HTTP_REQUEST_LINE_MAX, 100, -1);
    assert_sized(HTTP_REQUEST_LINE_MAX + 1, 100, HTTP_REFUSE_URI_TOO_LONG);
    assert_sized(20000, 100, HTTP_REFUSE_URI_TOO_LONG);
}

static void test_parser__limits_the_request_line_before_it_ends(void **state)
{
    (void)state;
    size_t length;
    char *bytes = sized_request(20000, 100, &length);
    struct transcript transcript;
    parse(bytes, HTTP_REQUEST_LINE_MAX + 3, 100, 100, &transcript);
    assert_true(transcript.refused);
    assert_int_equal(transcript.refusal, HTTP_REFUSE_URI_TOO_LONG);
    free(bytes);
}

static void test_parser__limits_the_headers(void **state)
{
    (void)state;
    assert_sized(100, HTTP_HEADERS_BYTES_MAX, -1);
    assert_sized(HTTP_REQUEST_LINE_MAX, HTTP_HEADERS_BYTES_MAX, -1);
    assert_sized(100, HTTP_HEADERS_BYTES_MAX + 1, HTTP_REFUSE_HEADERS_TOO_LARGE);
    assert_sized(100, 25000, HTTP_REFUSE_HEADERS_TOO_LARGE);
}

static void test_parser__limits_the_headers_before_they_end(void **state)
{
    (void)state;
    size_t length;
    char *bytes = sized_request(100, 25000, &length);
    struct transcript transcript;
    parse(bytes, 102 + HTTP_HEADERS_BYTES_MAX + 1, 50, 50, &transcript);
    assert_true(transcript.refused);
    assert_int_equal(transcript.refusal, HTTP_REFUSE_HEADERS_TOO_LARGE);
    free(bytes);
}

static void assert_header_count(size_t count, bool refused)
{
    char bytes[4096];
    size_t length = (size_t)snprintf(bytes, sizeof(bytes), "GET / HTTP/1.1\r\nHost: a\r\n");
    for (size_t i = 1; i < count; i++)
        length += (size_t)snprintf(bytes + length, sizeof(bytes) - length, "h%zu: v\r\n", i);
    length += (size_t)snprintf(bytes + length, sizeof(bytes) - length, "\r\n");
    struct transcript transcript;
    for (size_t piece = 1; piece < length; piece += 50) {
        parse(bytes, length, piece, piece, &transcript);
        assert_int_equal(transcript.refused, refused);
        if (refused)
            assert_int_equal(transcript.refusal, HTTP_REFUSE_HEADERS_TOO_LARGE);
    }
}

static void test_parser__limits_the_number_of_headers(void **state)
{
    (void)state;
    assert_header_count(HTTP_HEADERS_COUNT_MAX, false);
    assert_header_count(HTTP_HEADERS_COUNT_MAX + 1, true);
}

static void test_parser__takes_the_largest_request_there_is(void **state)
{
    (void)state;
    size_t length;
    char *head = sized_request(HTTP_REQUEST_LINE_MAX, HTTP_HEADERS_BYTES_MAX, &length);
    /* "B: " and what follows makes room for the length. */
    char *place = strstr(head, "B: ");
    memcpy(place, "Content-Length: 16384\r\nB: ", 26);
    char *bytes = malloc(2 * (length + HTTP_BODY_MAX));
    assert_non_null(bytes);
    memcpy(bytes, head, length);
    memset(bytes + length, 'z', HTTP_BODY_MAX);
    memcpy(bytes + length + HTTP_BODY_MAX, bytes, length + HTTP_BODY_MAX);
    size_t total = 2 * (length + HTTP_BODY_MAX);

    char *shared = malloc(HTTP_PARSER_BYTES_MAX);
    static const size_t pieces[] = {1, 1000, 12000, 100000};
    for (size_t i = 0; i < 4; i++) {
        struct http_parser parser;
        struct http_request request;
        int requests = 0;
        http_parser_init(&parser, body_max, &small_max);
        for (size_t at = 0; at < total;) {
            uv_buf_t room = http_parser_room(&parser, uv_buf_init(shared, HTTP_PARSER_BYTES_MAX));
            size_t count = pieces[i] < room.len ? pieces[i] : room.len;
            count = count < total - at ? count : total - at;
            memcpy(room.base, bytes + at, count);
            http_parser_feed(&parser, room, count);
            at += count;
            enum http_parsed parsed;
            while ((parsed = http_parser_next(&parser, &request)) == HTTP_PARSED_REQUEST) {
                assert_int_equal(request.body.length, HTTP_BODY_MAX);
                assert_int_equal(request.body.bytes[0], 'z');
                assert_int_equal(request.body.bytes[HTTP_BODY_MAX - 1], 'z');
                requests++;
            }
            assert_int_equal(parsed, HTTP_PARSED_MORE);
            assert_true(http_parser_park(&parser));
            assert_true(parser.own_capacity <= HTTP_PARSER_BYTES_MAX);
        }
        assert_int_equal(requests, 2);
        assert_null(parser.own);
        http_parser_release(&parser);
    }
    free(shared);
    free(bytes);
    free(head);
}

static void test_parser__limits_the_body_from_its_length_alone(void **state)
{
    (void)state;
    struct transcript transcript;
    static const char fits[] = "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd";
    parse_whole(fits, sizeof(fits) - 1, &transcript);
    assert_false(transcript.refused);
    assert_int_equal(transcript.requests, 1);
    static const char over[] = "POST /small?q HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    parse_whole(over, sizeof(over) - 1, &transcript);
    assert_true(transcript.refused);
    assert_int_equal(transcript.refusal, HTTP_REFUSE_TOO_LARGE);
}

/* --- memory and phases --- */

static void feed_text(struct http_parser *parser, char *shared, const char *text)
{
    uv_buf_t room = http_parser_room(parser, uv_buf_init(shared, HTTP_PARSER_BYTES_MAX));
    memcpy(room.base, text, strlen(text));
    http_parser_feed(parser, room, strlen(text));
}

static void test_parser__copies_nothing_that_came_whole(void **state)
{
    (void)state;
    struct http_parser parser;
    struct http_request request;
    static char shared[HTTP_PARSER_BYTES_MAX];
    http_parser_init(&parser, body_max, &small_max);
    feed_text(&parser, shared,
              "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: b\r\n\r\n");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_REQUEST);
        assert_true(request.path.bytes > shared && request.path.bytes < shared + 100);
    }
    assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_MORE);
    assert_true(http_parser_park(&parser));
    assert_null(parser.own);
    assert_int_equal(http_parser_phase(&parser), HTTP_PHASE_BETWEEN);
}

static void test_parser__keeps_little_while_it_waits(void **state)
{
    (void)state;
    struct http_parser parser;
    struct http_request request;
    static char shared[HTTP_PARSER_BYTES_MAX];
    http_parser_init(&parser, body_max, &small_max);
    feed_text(&parser, shared, "POST /a HTTP/1.1\r\nHo");
    assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_MORE);
    assert_true(http_parser_park(&parser));
    assert_int_equal(http_parser_phase(&parser), HTTP_PHASE_HEAD);
    assert_true(parser.own_capacity <= 1024);
    feed_text(&parser, shared, "st: a\r\nExpect: 100-continue\r\nContent-Length: 16000\r\n\r\n");
    assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_MORE);
    assert_true(http_parser_park(&parser));
    assert_int_equal(http_parser_phase(&parser), HTTP_PHASE_BODY);
    assert_true(parser.continue_expected);
    assert_true(parser.own_capacity <= 1024);
    http_parser_release(&parser);
}

static void test_parser__goes_on_after_being_parked_between_requests(void **state)
{
    (void)state;
    struct http_parser parser;
    struct http_request request;
    static char shared[HTTP_PARSER_BYTES_MAX];
    http_parser_init(&parser, body_max, &small_max);
    feed_text(&parser, shared,
              "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: b\r\n\r\nGET /c HT");
    assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_REQUEST);
    assert_true(http_parser_park(&parser));
    memset(shared, '#', sizeof(shared));
    assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_REQUEST);
    assert_true(span_equal(request.path, SPAN("/b")));
    assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_MORE);
    assert_true(http_parser_park(&parser));
    feed_text(&parser, shared, "TP/1.1\r\nHost: c\r\n\r\n");
    assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_REQUEST);
    assert_true(span_equal(request.path, SPAN("/c")));
    assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_MORE);
    assert_true(http_parser_park(&parser));
    assert_null(parser.own);
}

static void test_parser__tells_every_header_apart(void **state)
{
    (void)state;
    static const char bytes[] =
        "OPTIONS / HTTP/1.1\r\nHost: 1\r\nAuthorization: 2\r\nContent-Type: 3\r\n"
        "Idempotency-Key: 4\r\nX-Request-Id: 5\r\nOrigin: 6\r\nAccept: 7\r\nCookie: 8\r\n"
        "If-None-Match: 9\r\nLast-Event-ID: 10\r\nAccess-Control-Request-Method: 11\r\n"
        "Access-Control-Request-Headers: 12\r\nTraceparent: 13\r\nX-Unknown: 14\r\n\r\n";
    struct http_parser parser;
    struct http_request request;
    char shared[sizeof(bytes)];
    http_parser_init(&parser, body_max, &small_max);
    feed_text(&parser, shared, bytes);
    assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_REQUEST);
    const struct span *spans[] = {&request.host,
                                  &request.authorization,
                                  &request.content_type,
                                  &request.idempotency_key,
                                  &request.request_id,
                                  &request.origin,
                                  &request.accept,
                                  &request.cookie,
                                  &request.if_none_match,
                                  &request.last_event_id,
                                  &request.access_control_request_method,
                                  &request.access_control_request_headers,
                                  &request.traceparent};
    for (int i = 0; i < 13; i++) {
        char number[4];
        snprintf(number, sizeof(number), "%d", i + 1);
        assert_true(span_equal(*spans[i], span_of(number)));
    }
}

static void test_parser__knows_what_a_proxy_forwarded(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_forwarded;
    } requests[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded: 1\r\nX-Forwarde-For: 1\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nVie: 1\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nHost: a\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nHost: a\r\nConnection: close\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: a\r\nforwarded: for=b\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: a\r\nX-FORWARDED-FOR: b\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto:\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: a\r\nX-Real-Ip: b\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 b\r\nVia: 1.1 c\r\n\r\n", true},
    };
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        struct http_parser parser;
        struct http_request request;
        char shared[512];
        http_parser_init(&parser, body_max, &small_max);
        feed_text(&parser, shared, requests[i].text);
        assert_int_equal(http_parser_next(&parser, &request), HTTP_PARSED_REQUEST);
        assert_int_equal(request.is_forwarded, requests[i].is_forwarded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parser__takes_pipelined_requests_apart),
        cmocka_unit_test(test_parser__does_not_care_where_the_bytes_are_cut),
        cmocka_unit_test(test_parser__refuses_every_malformed_request),
        cmocka_unit_test(test_parser__refuses_them_however_they_are_cut),
        cmocka_unit_test(test_parser__looks_at_nothing_after_a_refusal),
        cmocka_unit_test(test_parser__limits_the_request_line),
        cmocka_unit_test(test_parser__limits_the_request_line_before_it_ends),
        cmocka_unit_test(test_parser__limits_the_headers),
        cmocka_unit_test(test_parser__limits_the_headers_before_they_end),
        cmocka_unit_test(test_parser__limits_the_number_of_headers),
        cmocka_unit_test(test_parser__takes_the_largest_request_there_is),
        cmocka_unit_test(test_parser__limits_the_body_from_its_length_alone),
        cmocka_unit_test(test_parser__copies_nothing_that_came_whole),
        cmocka_unit_test(test_parser__keeps_little_while_it_waits),
        cmocka_unit_test(test_parser__goes_on_after_being_parked_between_requests),
        cmocka_unit_test(test_parser__tells_every_header_apart),
        cmocka_unit_test(test_parser__knows_what_a_proxy_forwarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
