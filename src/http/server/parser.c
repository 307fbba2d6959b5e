/* parser.c: windows over a connection's bytes, llhttp's callbacks, and the limits on a head. */
#include "http/server/parser.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OWN_CAPACITY_MIN 1024

/* --- refusing --- */

static int parser_refuse(struct http_parser *parser, enum http_refusal refusal, const char *detail)
{
    if (!parser->failed) {
        parser->failed = true;
        parser->refusal = refusal;
        parser->detail = detail;
    }
    return HPE_USER;
}

static struct span parser_span(const struct http_parser *parser, size_t offset, size_t end)
{
    return (struct span){.bytes = parser->window + offset, .length = end - offset};
}

static struct http_piece parser_piece(const struct http_parser *parser, struct span span)
{
    return (struct http_piece){(uint16_t)(span.bytes - parser->window), (uint16_t)span.length};
}

/* --- what llhttp tells --- */

static inline struct http_parser *parser_of(llhttp_t *llhttp)
{
    return (struct http_parser *)((char *)llhttp - offsetof(struct http_parser, llhttp));
}

static int parser_on_url(llhttp_t *llhttp, const char *at, size_t length)
{
    struct http_parser *parser = parser_of(llhttp);
    if (parser->target.length == 0)
        parser->target.offset = (uint16_t)(at - parser->window);
    parser->target.length = (uint16_t)(parser->target.length + length);
    return 0;
}

static int parser_on_header_name(llhttp_t *llhttp, const char *at, size_t length)
{
    struct http_parser *parser = parser_of(llhttp);
    size_t offset = (size_t)(at - parser->window);
    if (parser->in_name) {
        if (offset != parser->name.offset + (size_t)parser->name.length)
            return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "a header without a value");
        parser->name.length = (uint16_t)(parser->name.length + length);
        return 0;
    }
    /* The line before this one has to end with CRLF and nothing else. */
    if (at[-1] != '\n' || at[-2] != '\r')
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "a line does not end with CRLF");
    if (parser->header_count == 0)
        parser->line_length = (uint32_t)(offset - 2);
    if (++parser->header_count > HTTP_HEADERS_COUNT_MAX)
        return parser_refuse(parser, HTTP_REFUSE_HEADERS_TOO_LARGE, "too many headers");
    parser->name = (struct http_piece){(uint16_t)offset, (uint16_t)length};
    parser->in_name = true;
    return 0;
}

/* A bit for each header that may come only once. */
enum { OFTEN, ONCE };
#define HEADER_SINGLE(LENGTH, WORD, FIELD, NAME, TIMES) | TIMES << HTTP_HEADER_##WORD
#define HEADERS_SINGLE                                  (0U HTTP_HEADERS(HEADER_SINGLE, 0))

/* The name of a header is complete: decides where its value goes. */
static int parser_begin_value(struct http_parser *parser)
{
    const char *name = parser->window + parser->name.offset;
    if (name[parser->name.length] != ':')
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "no colon after a header's name");
    parser->in_name = false;
    enum http_header header = http_header_of(name, parser->name.length);
    parser->value = &parser->unknown;
    if (header == HTTP_HEADER_UNKNOWN)
        return 0;
    if (header == HTTP_HEADER_TRANSFER_ENCODING)
        return parser_refuse(parser, HTTP_REFUSE_NOT_IMPLEMENTED, "Transfer-Encoding");
    if ((parser->seen & (1U << header)) == 0) {
        parser->seen |= 1U << header;
        parser->value = &parser->values[header];
    } else if ((HEADERS_SINGLE & 1U << header) != 0) {
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "a header came twice");
    }
    return 0;
}

static int parser_on_header_value(llhttp_t *llhttp, const char *at, size_t length)
{
    struct http_parser *parser = parser_of(llhttp);
    size_t offset = (size_t)(at - parser->window);
    if (parser->in_name) {
        int refused = parser_begin_value(parser);
        if (refused != 0)
            return refused;
        *parser->value = (struct http_piece){(uint16_t)offset, (uint16_t)length};
    } else if (offset != parser->value_end) {
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "a folded header");
    } else {
        parser->value->length = (uint16_t)(parser->value->length + length);
    }
    parser->value_end = (uint16_t)(offset + length);
    return 0;
}

static enum http_method method_of(uint8_t method)
{
    static const enum http_method methods[] = {
        [HTTP_GET] = HTTP_METHOD_GET,         [HTTP_HEAD] = HTTP_METHOD_HEAD,
        [HTTP_POST] = HTTP_METHOD_POST,       [HTTP_PUT] = HTTP_METHOD_PUT,
        [HTTP_PATCH] = HTTP_METHOD_PATCH,     [HTTP_DELETE] = HTTP_METHOD_DELETE,
        [HTTP_OPTIONS] = HTTP_METHOD_OPTIONS,
    };
    return method < sizeof(methods) / sizeof(methods[0]) ? methods[method] : HTTP_METHOD_OTHER;
}

/* The value without the blanks around it; llhttp leaves those behind it. */
static struct span parser_value(const struct http_parser *parser, enum http_header header)
{
    struct http_piece piece = parser->values[header];
    const char *bytes = parser->window + piece.offset;
    size_t length = piece.length;
    while (length > 0 && (bytes[length - 1] == ' ' || bytes[length - 1] == '\t'))
        length--;
    return (struct span){.bytes = bytes, .length = length};
}

static bool parser_saw(const struct http_parser *parser, enum http_header header)
{
    return (parser->seen & (1U << header)) != 0;
}

/* Finds where the head ends, and that it ends with CRLF CRLF. llhttp reports an empty value
 * behind its line's end. */
static int parser_measure_head(struct http_parser *parser)
{
    size_t end;
    if (parser->in_name)
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "a header without a value");
    if (parser->header_count == 0) {
        const char *newline = memchr(parser->window, '\n', parser->window_length);
        end = newline != NULL ? (size_t)(newline - parser->window) + 1 : 0;
        parser->line_length = end >= 2 ? (uint32_t)(end - 2) : 0;
    } else if (parser->value->length == 0) {
        end = parser->value_end;
    } else {
        end = parser->value_end + 2U;
    }
    if (end < 2 || end + 2 > parser->window_length ||
        memcmp(parser->window + end - 2, "\r\n\r\n", 4) != 0)
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "a line does not end with CRLF");
    parser->head_length = (uint32_t)(end + 2);
    return 0;
}

/* Sizes, then the three parts of the request line. */
static int parser_check_line(struct http_parser *parser)
{
    if (parser->line_length > HTTP_REQUEST_LINE_MAX)
        return parser_refuse(parser, HTTP_REFUSE_URI_TOO_LONG, "the request line is too long");
    if (parser->head_length - parser->line_length - 2 > HTTP_HEADERS_BYTES_MAX)
        return parser_refuse(parser, HTTP_REFUSE_HEADERS_TOO_LARGE, "the headers are too large");
    size_t target_end = parser->target.offset + (size_t)parser->target.length;
    if (target_end > parser->line_length)
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "malformed request line");
    enum http_version version =
        http_version_of(parser_span(parser, target_end, parser->line_length));
    if (version == HTTP_VERSION_OTHER)
        return parser_refuse(parser, HTTP_REFUSE_VERSION, "only HTTP/1.1 and HTTP/1.0");
    if (version == HTTP_VERSION_MALFORMED)
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "malformed request line");
    parser->http_1_0 = version == HTTP_VERSION_1_0;
    parser->method = method_of(parser->llhttp.method);
    /* TRACE is known and taken by nobody, which is for the router to say. */
    if (parser->method == HTTP_METHOD_OTHER && parser->llhttp.method != HTTP_TRACE)
        return parser_refuse(parser, HTTP_REFUSE_NOT_IMPLEMENTED, "unknown method");
    /* One space after the method: the byte before it is the method's last letter. */
    struct span target = parser_span(parser, parser->target.offset, target_end);
    struct span authority;
    struct span path;
    if (target.bytes[-1] != ' ' || target.bytes[-2] == ' ' ||
        !http_target_split(target, &authority, &path))
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "malformed request target");
    parser->target = parser_piece(parser, path);
    if (authority.bytes != NULL)
        parser->authority = parser_piece(parser, authority);
    const char *mark = memchr(path.bytes, '?', path.length);
    parser->path_length = (uint16_t)(mark != NULL ? (size_t)(mark - path.bytes) : path.length);
    return 0;
}

static int parser_check_headers(struct http_parser *parser)
{
    if (parser_saw(parser, HTTP_HEADER_HOST)) {
        if (!http_host_is_valid(parser_value(parser, HTTP_HEADER_HOST)))
            return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "invalid Host");
    } else if (!parser->http_1_0) {
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "no Host");
    }
    if (parser_saw(parser, HTTP_HEADER_EXPECT)) {
        struct span expect = parser_value(parser, HTTP_HEADER_EXPECT);
        if (expect.length != 12 || strncasecmp(expect.bytes, "100-continue", 12) != 0)
            return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "unknown Expect");
        parser->continue_expected = !parser->http_1_0;
    }
    return 0;
}

static struct span parser_path(const struct http_parser *parser)
{
    return parser_span(parser, parser->target.offset,
                       parser->target.offset + (size_t)parser->path_length);
}

static int parser_check_body(struct http_parser *parser)
{
    uint64_t length = parser->llhttp.content_length;
    bool announced = parser_saw(parser, HTTP_HEADER_CONTENT_LENGTH);
    if (announced != ((parser->llhttp.flags & F_CONTENT_LENGTH) != 0))
        return parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "malformed Content-Length");
    if (!announced || length == 0) {
        parser->continue_expected = false;
        return 0;
    }
    if (length > HTTP_BODY_MAX ||
        length > parser->body_max(parser->context, parser->method, parser_path(parser)))
        return parser_refuse(parser, HTTP_REFUSE_TOO_LARGE, "the body is too large");
    parser->body_length = (uint32_t)length;
    return 0;
}

static int parser_on_head(llhttp_t *llhttp)
{
    struct http_parser *parser = parser_of(llhttp);
    /* Nobody here upgrades: what follows is the next request, not another protocol. */
    llhttp->upgrade = 0;
    if (parser_measure_head(parser) != 0 || parser_check_line(parser) != 0 ||
        parser_check_headers(parser) != 0 || parser_check_body(parser) != 0)
        return -1;
    bool closes = (llhttp->flags & F_CONNECTION_CLOSE) != 0;
    bool stays = (llhttp->flags & F_CONNECTION_KEEP_ALIVE) != 0;
    parser->keep_alive = !closes && (stays || !parser->http_1_0);
    return 0;
}

static int parser_on_message(llhttp_t *llhttp)
{
    /* So that the request is handled outside of llhttp. */
    return HPE_PAUSED;
}

static const llhttp_settings_t parser_settings = {
    .on_url = parser_on_url,
    .on_header_field = parser_on_header_name,
    .on_header_value = parser_on_header_value,
    .on_headers_complete = parser_on_head,
    .on_message_complete = parser_on_message,
};

/* --- life --- */

void http_parser_init(struct http_parser *parser, http_body_max *body_max, void *context)
{
    *parser = (struct http_parser){.body_max = body_max, .context = context};
    llhttp_init(&parser->llhttp, HTTP_REQUEST, &parser_settings);
}

void http_parser_release(struct http_parser *parser)
{
    free(parser->own);
    parser->own = NULL;
    parser->own_capacity = 0;
    parser->window = NULL;
    parser->window_length = 0;
    parser->parsed_length = 0;
}

/* --- bytes --- */

/* The request that was handed out is done with: the window starts at the next one. */
static void parser_finish_request(struct http_parser *parser)
{
    if (parser->request_length == 0)
        return;
    llhttp_resume(&parser->llhttp);
    parser->window += parser->request_length;
    parser->window_length -= parser->request_length;
    parser->parsed_length = 0;
    parser->request_length = 0;
    parser->head_length = 0;
    parser->line_length = 0;
    parser->body_length = 0;
    parser->header_count = 0;
    parser->seen = 0;
    parser->target.length = 0;
    parser->authority.length = 0;
    parser->in_name = false;
    parser->blank_line_seen = false;
    parser->http_1_0 = false;
    parser->continue_expected = false;
    parser->method = HTTP_METHOD_OTHER;
}

/* Doubles what is parked until `length_min` bytes fit. */
static bool parser_grow_own(struct http_parser *parser, size_t length_min)
{
    size_t capacity = parser->own_capacity > 0 ? parser->own_capacity : OWN_CAPACITY_MIN;
    while (capacity < length_min)
        capacity *= 2;
    if (capacity == parser->own_capacity)
        return true;
    char *own = realloc(parser->own, capacity);
    if (own == NULL)
        return false;
    parser->own = own;
    parser->own_capacity = (uint32_t)capacity;
    return true;
}

uv_buf_t http_parser_room(struct http_parser *parser, uv_buf_t shared)
{
    if (parser->own == NULL) {
        if (shared.len > HTTP_PARSER_BYTES_MAX)
            shared.len = HTTP_PARSER_BYTES_MAX;
        return shared;
    }
    ensure(parser->window == parser->own);
    /* Half as much again as is there: a large request grows in few steps, a small one stays small.
     */
    size_t wanted = parser->window_length + parser->window_length / 2 + OWN_CAPACITY_MIN / 4;
    if (wanted > HTTP_PARSER_BYTES_MAX)
        wanted = HTTP_PARSER_BYTES_MAX;
    if (!parser_grow_own(parser, wanted))
        return uv_buf_init(NULL, 0);
    parser->window = parser->own;
    return uv_buf_init(parser->own + parser->window_length,
                       parser->own_capacity - parser->window_length);
}

void http_parser_feed(struct http_parser *parser, uv_buf_t room, size_t count)
{
    if (parser->own != NULL) {
        ensure(room.base == parser->own + parser->window_length);
        parser->window_length += (uint32_t)count;
        return;
    }
    parser->window = room.base;
    parser->window_length = (uint32_t)count;
    parser->parsed_length = 0;
}

bool http_parser_park(struct http_parser *parser)
{
    parser_finish_request(parser);
    if (parser->window_length == 0 || parser->ended) {
        if (parser->own != NULL)
            http_parser_release(parser);
        parser->window_length = 0;
        return true;
    }
    if (parser->window == parser->own)
        return true;
    if (parser->own == NULL && !parser_grow_own(parser, parser->window_length))
        return false;
    ensure(parser->own != NULL && parser->window_length <= parser->own_capacity);
    memmove(parser->own, parser->window, parser->window_length);
    parser->window = parser->own;
    return true;
}

enum http_phase http_parser_phase(const struct http_parser *parser)
{
    if (parser->head_length > 0)
        return HTTP_PHASE_BODY;
    return parser->window_length > 0 || parser->blank_line_seen ? HTTP_PHASE_HEAD
                                                                : HTTP_PHASE_BETWEEN;
}

/* --- requests --- */

/* One empty line in front of a request is forgiven (RFC 9112 2.2). True when a request's first
 * byte is there. */
static bool parser_skip_blank_line(struct http_parser *parser)
{
    while (parser->window_length > 0) {
        char first = parser->window[0];
        if (first != '\r' && first != '\n')
            return true;
        if (first == '\r' && parser->window_length == 1 && !parser->blank_line_seen)
            return false;
        if (first == '\n' || parser->blank_line_seen || parser->window[1] != '\n') {
            (void)parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, "a stray CR or LF");
            return false;
        }
        parser->blank_line_seen = true;
        parser->window += 2;
        parser->window_length -= 2;
    }
    return false;
}

/* The bytes ended within a request: is it still within the limits? */
static void parser_check_unfinished(struct http_parser *parser)
{
    if (parser->head_length > 0)
        return;
    if (parser->llhttp.method == HTTP_PRI && parser->target.length > 0) {
        (void)parser_refuse(parser, HTTP_REFUSE_VERSION, "HTTP/2 is not spoken here");
    } else if (parser->line_length == 0) {
        if (parser->window_length > HTTP_REQUEST_LINE_MAX + 2)
            (void)parser_refuse(parser, HTTP_REFUSE_URI_TOO_LONG, "the request line is too long");
    } else if (parser->window_length - parser->line_length - 2 > HTTP_HEADERS_BYTES_MAX) {
        (void)parser_refuse(parser, HTTP_REFUSE_HEADERS_TOO_LARGE, "the headers are too large");
    }
}

/* Finds the refusal for an error of llhttp's. */
static void parser_explain(struct http_parser *parser, llhttp_errno_t error)
{
    const char *reason = llhttp_get_error_reason(&parser->llhttp);
    size_t target_end = parser->target.offset + (size_t)parser->target.length;
    switch (error) {
    case HPE_INVALID_METHOD:
        if (http_method_is_token(parser_span(parser, 0, parser->window_length)))
            (void)parser_refuse(parser, HTTP_REFUSE_NOT_IMPLEMENTED, "unknown method");
        break;
    case HPE_PAUSED_H2_UPGRADE:
        (void)parser_refuse(parser, HTTP_REFUSE_VERSION, "HTTP/2 is not spoken here");
        break;
    case HPE_INVALID_VERSION:
        if (target_end + 9 <= parser->window_length &&
            http_version_of(parser_span(parser, target_end, target_end + 9)) == HTTP_VERSION_OTHER)
            (void)parser_refuse(parser, HTTP_REFUSE_VERSION, "only HTTP/1.1 and HTTP/1.0");
        break;
    case HPE_INVALID_TRANSFER_ENCODING:
        (void)parser_refuse(parser, HTTP_REFUSE_NOT_IMPLEMENTED, "Transfer-Encoding");
        break;
    default:
        break;
    }
    /* Keeps what was said first, also by the callbacks. */
    (void)parser_refuse(parser, HTTP_REFUSE_BAD_REQUEST, reason != NULL ? reason : "malformed");
}

/* Proxies say so in a header, but for nginx, which by itself adds none and speaks HTTP/1.0 with
 * "Connection: close". */
static bool parser_is_forwarded(const struct http_parser *parser)
{
    return parser->seen >> HTTP_HEADER_OF_PROXY != 0 ||
           (parser->http_1_0 && (parser->llhttp.flags & F_CONNECTION_CLOSE) != 0);
}

#define HEADER_OFFSET(LENGTH, WORD, FIELD, NAME, TIMES) offsetof(struct http_request, FIELD),

static void parser_fill(struct http_parser *parser, struct http_request *request)
{
    static const uint16_t offsets[] = {HTTP_REQUEST_HEADERS(HEADER_OFFSET, 0)};
    memset(request, 0, sizeof(*request));
    request->method = parser->method;
    size_t path_end = parser->target.offset + (size_t)parser->path_length;
    size_t target_end = parser->target.offset + (size_t)parser->target.length;
    request->path = parser_path(parser);
    /* Behind the '?', if there is one. */
    request->query = parser_span(parser, path_end + (path_end < target_end), target_end);
    request->body = parser_span(parser, parser->head_length, parser->request_length);
    request->headers = parser_span(parser, parser->line_length + 2, parser->head_length - 2);
    request->is_forwarded = parser_is_forwarded(parser);
    uint32_t left = parser->seen & ((1U << HTTP_HEADER_REQUEST_COUNT) - 1);
    for (; left != 0; left &= left - 1) {
        enum http_header header = (enum http_header)__builtin_ctz(left);
        *(struct span *)((char *)request + offsets[header]) = parser_value(parser, header);
    }
    if (parser->authority.length > 0) {
        /* RFC 9112 3.2.2: then Host is not looked at. */
        size_t start = parser->authority.offset;
        request->host = parser_span(parser, start, start + parser->authority.length);
    }
}

enum http_parsed http_parser_next(struct http_parser *parser, struct http_request *request)
{
    parser_finish_request(parser);
    if (parser->ended)
        return parser->failed ? HTTP_PARSED_REFUSED : HTTP_PARSED_MORE;
    if (parser->parsed_length == 0 && !parser_skip_blank_line(parser)) {
        parser->ended = parser->failed;
        return parser->failed ? HTTP_PARSED_REFUSED : HTTP_PARSED_MORE;
    }
    if (parser->parsed_length == parser->window_length)
        return HTTP_PARSED_MORE;
    llhttp_errno_t error = llhttp_execute(&parser->llhttp, parser->window + parser->parsed_length,
                                          parser->window_length - parser->parsed_length);
    parser->parsed_length = parser->window_length;
    /* Where we and llhttp do not agree on where a request ends, something could be smuggled in. */
    if (error == HPE_PAUSED && llhttp_get_error_pos(&parser->llhttp) ==
                                   parser->window + parser->head_length + parser->body_length) {
        parser->request_length = parser->head_length + parser->body_length;
        parser->ended = !parser->keep_alive;
        parser_fill(parser, request);
        return HTTP_PARSED_REQUEST;
    }
    if (error == HPE_OK)
        parser_check_unfinished(parser);
    else
        parser_explain(parser, error);
    if (parser->failed) {
        parser->method = method_of(parser->llhttp.method);
        parser->ended = true;
        return HTTP_PARSED_REFUSED;
    }
    return HTTP_PARSED_MORE;
}
