/* fuzz_http.c: arbitrary bytes through the HTTP parser, cut at arbitrary places.
 *
 * The first byte chooses how the rest is cut into reads. The bytes are parsed twice, cut and whole:
 * both must hand out the same requests, and what is handed out must lie within what was fed and
 * obey the limits of the contract.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/server/parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static size_t body_max(void *context, enum http_method method, struct span path)
{
    (void)context;
    ensure(method != HTTP_METHOD_OTHER);
    ensure(path.length > 0 && path.bytes[0] == '/');
    return path.length % 2 == 0 ? HTTP_BODY_MAX : 64;
}

/* What came out: enough to tell two runs apart. */
struct outcome {
    uint64_t digest;
    size_t request_count;
};

static void outcome_add(struct outcome *outcome, struct span span)
{
    /* FNV-1a, with the length so that neighbours cannot trade bytes. */
    uint64_t digest = outcome->digest ^ span.length;
    for (size_t i = 0; i < span.length; i++)
        digest = (digest ^ (uint8_t)span.bytes[i]) * 1099511628211U;
    outcome->digest = digest * 1099511628211U;
}

static void check_text(struct span span)
{
    for (size_t i = 0; i < span.length; i++) {
        uint8_t byte = (uint8_t)span.bytes[i];
        ensure((byte >= ' ' || byte == '\t') && byte != 0x7f);
    }
    if (span.length > 0) {
        ensure(span.bytes[0] != ' ' && span.bytes[span.length - 1] != ' ');
        ensure(span.bytes[0] != '\t' && span.bytes[span.length - 1] != '\t');
    }
}

static void check_request(const struct http_request *request, const struct http_parser *parser,
                          struct outcome *outcome)
{
    const struct span *values[] = {&request->host,
                                   &request->authorization,
                                   &request->content_type,
                                   &request->idempotency_key,
                                   &request->request_id,
                                   &request->origin,
                                   &request->accept,
                                   &request->cookie,
                                   &request->if_none_match,
                                   &request->last_event_id,
                                   &request->access_control_request_method,
                                   &request->access_control_request_headers,
                                   &request->traceparent};
    ensure(request->method != HTTP_METHOD_OTHER);
    ensure(request->path.bytes[0] == '/');
    ensure(request->path.length + request->query.length <= HTTP_REQUEST_LINE_MAX);
    ensure(request->body.length <= HTTP_BODY_MAX);
    ensure(parser->http_1_0 || request->host.length > 0);
    /* The head ends where the body starts. */
    ensure(memcmp(request->body.bytes - 4, "\r\n\r\n", 4) == 0);
    outcome_add(outcome, request->path);
    outcome_add(outcome, request->query);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        check_text(*values[i]);
        outcome_add(outcome, *values[i]);
    }
    outcome_add(outcome, request->body);
    outcome->request_count++;
}

/* False when nothing more is looked at. */
static bool drain(struct http_parser *parser, struct outcome *outcome)
{
    struct http_request request;
    enum http_parsed parsed;
    while ((parsed = http_parser_next(parser, &request)) == HTTP_PARSED_REQUEST)
        check_request(&request, parser, outcome);
    if (parsed == HTTP_PARSED_REFUSED) {
        ensure(parser->detail != NULL);
        return false;
    }
    ensure(http_parser_park(parser));
    ensure(parser->own_capacity <= HTTP_PARSER_BYTES_MAX);
    return !parser->ended;
}

static struct outcome parse(const uint8_t *bytes, size_t length, size_t piece_max)
{
    struct outcome outcome = {.digest = 14695981039346656037U};
    struct http_parser parser;
    http_parser_init(&parser, body_max, NULL);
    while (length > 0) {
        /* A room of its own for every read, so that a look beyond it is seen. */
        char *shared = malloc(piece_max);
        ensure(shared != NULL);
        uv_buf_t room = http_parser_room(&parser, uv_buf_init(shared, (unsigned)piece_max));
        size_t count = piece_max < length ? piece_max : length;
        count = count < room.len ? count : room.len;
        ensure(count > 0);
        memcpy(room.base, bytes, count);
        http_parser_feed(&parser, room, count);
        bytes += count;
        length -= count;
        bool more = drain(&parser, &outcome);
        free(shared);
        if (!more)
            break;
    }
    http_parser_release(&parser);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length < 2)
        return 0;
    size_t piece_max = 1 + bytes[0] % 64U;
    struct outcome cut = parse(bytes + 1, length - 1, piece_max);
    struct outcome whole = parse(bytes + 1, length - 1, HTTP_PARSER_BYTES_MAX);
    ensure(cut.request_count == whole.request_count);
    ensure(cut.digest == whole.digest);
    return 0;
}
