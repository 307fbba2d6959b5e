/* parser.h: turns the bytes of one connection into complete, strictly checked requests.
 *
 * llhttp does the parsing; the limits of the contract and what llhttp is too friendly about are
 * checked here. No sockets: whoever has bytes asks for room, puts them there, feeds them and takes
 * requests until there are no more.
 *
 *   uv_buf_t room = http_parser_room(parser, shared);
 *   ... read at most room.len bytes into room.base ...
 *   http_parser_feed(parser, room, count);
 *   while ((parsed = http_parser_next(parser, &request)) == HTTP_PARSED_REQUEST) { ... }
 *   http_parser_park(parser);
 *
 * A request that lies complete in the shared room is never copied: its spans point there. What is
 * left at the end is parked in memory of the parser's own, at most HTTP_PARSER_BYTES_MAX, which
 * is allocated when needed and freed as soon as it is empty. No byte is parsed twice.
 *
 * After HTTP_PARSED_REFUSED, or a request that asked for the connection's end, the parser looks at
 * nothing more.
 *
 * Threads: one owner at a time.
 */
#pragma once

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/server/header.h"
#include "http/server/server.h"

/* A whole request within the limits fits, and every offset fits 16 bits. */
#define HTTP_PARSER_BYTES_MAX 32768

/* Asked about a request whose head is complete: the largest body it may have. */
typedef size_t http_body_max(void *context, enum http_method method, struct span path);

enum http_parsed {
    HTTP_PARSED_MORE,    /* all bytes are used up; more have to come */
    HTTP_PARSED_REQUEST, /* one complete request */
    HTTP_PARSED_REFUSED, /* see `refusal` and `detail` */
};

/* What the bytes so far amount to. */
enum http_phase {
    HTTP_PHASE_BETWEEN, /* no byte of a request has come */
    HTTP_PHASE_HEAD,
    HTTP_PHASE_BODY,
};

/* Where a piece of the request is: offsets from its first byte, because the bytes may move.
 * Offset 0 is in the request line's method, so it also means "absent". */
struct http_piece {
    uint16_t offset;
    uint16_t length;
};

struct http_parser {
    llhttp_t llhttp;
    http_body_max *body_max;
    void *context;

    /* Bytes from the first one of the current request on; either in the shared room or in own. */
    char *window;
    uint32_t window_length;
    uint32_t parsed_length; /* how far into the window llhttp has come */
    uint32_t own_capacity;
    char *own; /* NULL while nothing is parked */

    /* The current request. */
    uint32_t request_length; /* of a request that was handed out, else 0 */
    uint32_t head_length;    /* once the head is complete, else 0 */
    uint32_t line_length;    /* of the request line without CRLF, once known, else 0 */
    uint32_t body_length;
    uint16_t value_end;
    uint16_t header_count;
    uint32_t seen;               /* one bit per enum http_header */
    struct http_piece target;    /* once the head is complete, from its path on */
    struct http_piece authority; /* of a target in absolute form; stands for Host */
    uint16_t path_length;        /* of the target up to its '?' */
    struct http_piece name;
    struct http_piece *value; /* of the header being read */
    struct http_piece unknown;
    struct http_piece values[HTTP_HEADER_UNKNOWN];
    bool in_name;
    bool blank_line_seen;
    bool failed;
    bool ended; /* nothing more is looked at: refused, or the last request has come */

    /* For the one who answers the current request; also set, as far as known, for a refusal. */
    bool keep_alive;
    bool http_1_0;
    bool continue_expected; /* the head wants "100 Continue" before its body */
    enum http_method method;

    enum http_refusal refusal;
    const char *detail;
};

void http_parser_init(struct http_parser *parser, http_body_max *body_max, void *context);
void http_parser_release(struct http_parser *parser);

/* Where the next bytes have to be put: the caller's shared room, or behind what is parked. Empty
 * when there is no memory. Only when everything before was parsed and parked. */
uv_buf_t http_parser_room(struct http_parser *parser, uv_buf_t shared);

/* `count` bytes were put at the start of `room`. They stay the parser's until it is parked. */
void http_parser_feed(struct http_parser *parser, uv_buf_t room, size_t count);

/* The next request. What it points to is valid until the next call on this parser. */
enum http_parsed http_parser_next(struct http_parser *parser, struct http_request *request);

/* Whether something came behind the request that was handed out last. */
static inline bool http_parser_has_more(const struct http_parser *parser)
{
    return parser->window_length > parser->request_length;
}

/* Moves what is not used up out of the shared room; http_parser_next() may go on afterwards.
 * False when there is no memory for it. */
bool http_parser_park(struct http_parser *parser) MUST_CHECK;

/* Between requests or within one; asked when everything was parsed and parked. */
enum http_phase http_parser_phase(const struct http_parser *parser);
