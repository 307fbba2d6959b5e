/* head.c: header names, Host, target and version of a request's head. */
#include "http/head.h"

#include <stddef.h>
#include <stdint.h>
#include <strings.h>

/* Classes of characters. */
enum { CLASS_TOKEN = 1, CLASS_REG_NAME = 2, CLASS_ADDRESS = 4, CLASS_TARGET = 8 };

/* Letters and digits may be anywhere; the rest is RFC 9110 5.6.2 (token) and RFC 3986 3.2.2
 * (reg-name: unreserved, sub-delims and '%'). A target takes every visible character but '#'. */
static const uint8_t classes[256] = {
    ['0' ... '9'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_ADDRESS | CLASS_TARGET,
    ['A' ... 'F'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_ADDRESS | CLASS_TARGET,
    ['a' ... 'f'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_ADDRESS | CLASS_TARGET,
    ['G' ... 'Z'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    ['g' ... 'z'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    ['!'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    ['"'] = CLASS_TARGET,
    ['#'] = CLASS_TOKEN,
    ['$'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    ['%'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    ['&'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    ['\''] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    ['('] = CLASS_REG_NAME | CLASS_TARGET,
    [')'] = CLASS_REG_NAME | CLASS_TARGET,
    ['*'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    ['+'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    [','] = CLASS_REG_NAME | CLASS_TARGET,
    ['-'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    ['.'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_ADDRESS | CLASS_TARGET,
    ['/'] = CLASS_TARGET,
    [':'] = CLASS_ADDRESS | CLASS_TARGET,
    [';'] = CLASS_REG_NAME | CLASS_TARGET,
    ['<'] = CLASS_TARGET,
    ['='] = CLASS_REG_NAME | CLASS_TARGET,
    ['>' ... '@'] = CLASS_TARGET,
    ['['] = CLASS_TARGET,
    ['\\'] = CLASS_TARGET,
    [']'] = CLASS_TARGET,
    ['^'] = CLASS_TOKEN | CLASS_TARGET,
    ['_'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
    ['`'] = CLASS_TOKEN | CLASS_TARGET,
    ['{'] = CLASS_TARGET,
    ['|'] = CLASS_TOKEN | CLASS_TARGET,
    ['}'] = CLASS_TARGET,
    ['~'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_TARGET,
};

/* Length of the run of characters of `wanted` from `at` on. */
static size_t run_length(struct span text, size_t at, uint8_t wanted)
{
    size_t end = at;
    while (end < text.length && (classes[(uint8_t)text.bytes[end]] & wanted) != 0) {
        end++;
    }
    return end - at;
}

static inline uint64_t load_u64(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

static inline uint32_t load_u32(const char *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

/* Compares without regard to case, a word at a time; the last word may overlap the one before.
 * Setting this bit makes no two token characters equal but the cases of a letter, as far as the
 * names below are concerned. `length` is at least 4. */
static inline bool name_is(const char *name, const char *lower, size_t length)
{
    const uint64_t small = UINT64_C(0x2020202020202020);
    if (length < 8) {
        return (load_u32(name) | (uint32_t)small) == load_u32(lower) &&
               (load_u32(name + length - 4) | (uint32_t)small) == load_u32(lower + length - 4);
    }
    for (size_t i = 0; i + 8 < length; i += 8) {
        if ((load_u64(name + i) | small) != load_u64(lower + i)) {
            return false;
        }
    }
    return (load_u64(name + length - 8) | small) == load_u64(lower + length - 8);
}

#define NAME_IS(lower) name_is(name, lower, sizeof(lower) - 1)

/* Those of the family of X-Forwarded-For. */
static inline bool is_x_forwarded(const char *name, size_t length)
{
    return length > 12 && NAME_IS("x-forwarded-");
}

static enum http_header header_of(const char *name, size_t length)
{
    switch (length) {
    case 3:
        return (name[0] | 0x20) == 'v' && (name[1] | 0x20) == 'i' && (name[2] | 0x20) == 'a'
                   ? HTTP_HEADER_OF_PROXY
                   : HTTP_HEADER_UNKNOWN;
    case 4:
        return NAME_IS("host") ? HTTP_HEADER_HOST : HTTP_HEADER_UNKNOWN;
    case 6:
        return NAME_IS("accept")   ? HTTP_HEADER_ACCEPT
               : NAME_IS("origin") ? HTTP_HEADER_ORIGIN
               : NAME_IS("cookie") ? HTTP_HEADER_COOKIE
               : NAME_IS("expect") ? HTTP_HEADER_EXPECT
                                   : HTTP_HEADER_UNKNOWN;
    case 9:
        return NAME_IS("forwarded") || NAME_IS("x-real-ip") ? HTTP_HEADER_OF_PROXY
                                                            : HTTP_HEADER_UNKNOWN;
    case 11:
        return NAME_IS("traceparent") ? HTTP_HEADER_TRACEPARENT : HTTP_HEADER_UNKNOWN;
    case 12:
        return NAME_IS("content-type")   ? HTTP_HEADER_CONTENT_TYPE
               : NAME_IS("x-request-id") ? HTTP_HEADER_REQUEST_ID
                                         : HTTP_HEADER_UNKNOWN;
    case 13:
        return NAME_IS("authorization")   ? HTTP_HEADER_AUTHORIZATION
               : NAME_IS("if-none-match") ? HTTP_HEADER_IF_NONE_MATCH
               : NAME_IS("last-event-id") ? HTTP_HEADER_LAST_EVENT_ID
                                          : HTTP_HEADER_UNKNOWN;
    case 14:
        return NAME_IS("content-length")   ? HTTP_HEADER_CONTENT_LENGTH
               : NAME_IS("sec-fetch-site") ? HTTP_HEADER_SEC_FETCH_SITE
                                           : HTTP_HEADER_UNKNOWN;
    case 15:
        return NAME_IS("idempotency-key")   ? HTTP_HEADER_IDEMPOTENCY_KEY
               : NAME_IS("accept-encoding") ? HTTP_HEADER_ACCEPT_ENCODING
                                            : HTTP_HEADER_UNKNOWN;
    case 17:
        return NAME_IS("transfer-encoding") ? HTTP_HEADER_TRANSFER_ENCODING : HTTP_HEADER_UNKNOWN;
    case 29:
        return NAME_IS("access-control-request-method") ? HTTP_HEADER_ACCESS_CONTROL_REQUEST_METHOD
                                                        : HTTP_HEADER_UNKNOWN;
    case 30:
        return NAME_IS("access-control-request-headers")
                   ? HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS
                   : HTTP_HEADER_UNKNOWN;
    default:
        return HTTP_HEADER_UNKNOWN;
    }
}

enum http_header http_header_of(const char *name, size_t length)
{
    enum http_header header = header_of(name, length);
    return header == HTTP_HEADER_UNKNOWN && is_x_forwarded(name, length) ? HTTP_HEADER_OF_PROXY
                                                                         : header;
}

bool http_header_is_single(enum http_header header)
{
    switch (header) {
    case HTTP_HEADER_HOST:
    case HTTP_HEADER_AUTHORIZATION:
    case HTTP_HEADER_CONTENT_TYPE:
    case HTTP_HEADER_CONTENT_LENGTH:
    case HTTP_HEADER_IDEMPOTENCY_KEY:
    case HTTP_HEADER_REQUEST_ID:
    case HTTP_HEADER_ORIGIN:
    case HTTP_HEADER_LAST_EVENT_ID:
    case HTTP_HEADER_SEC_FETCH_SITE:
    case HTTP_HEADER_EXPECT:
        return true;
    default:
        return false;
    }
}

struct span *http_header_span(struct http_request *request, enum http_header header)
{
    static const uint16_t offsets[HTTP_HEADER_REQUEST_SPAN_COUNT] = {
        [HTTP_HEADER_HOST] = offsetof(struct http_request, host),
        [HTTP_HEADER_AUTHORIZATION] = offsetof(struct http_request, authorization),
        [HTTP_HEADER_CONTENT_TYPE] = offsetof(struct http_request, content_type),
        [HTTP_HEADER_IDEMPOTENCY_KEY] = offsetof(struct http_request, idempotency_key),
        [HTTP_HEADER_REQUEST_ID] = offsetof(struct http_request, request_id),
        [HTTP_HEADER_ORIGIN] = offsetof(struct http_request, origin),
        [HTTP_HEADER_ACCEPT] = offsetof(struct http_request, accept),
        [HTTP_HEADER_ACCEPT_ENCODING] = offsetof(struct http_request, accept_encoding),
        [HTTP_HEADER_COOKIE] = offsetof(struct http_request, cookie),
        [HTTP_HEADER_IF_NONE_MATCH] = offsetof(struct http_request, if_none_match),
        [HTTP_HEADER_LAST_EVENT_ID] = offsetof(struct http_request, last_event_id),
        [HTTP_HEADER_ACCESS_CONTROL_REQUEST_METHOD] =
            offsetof(struct http_request, access_control_request_method),
        [HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS] =
            offsetof(struct http_request, access_control_request_headers),
        [HTTP_HEADER_TRACEPARENT] = offsetof(struct http_request, traceparent),
        [HTTP_HEADER_SEC_FETCH_SITE] = offsetof(struct http_request, sec_fetch_site),
    };
    return (struct span *)((char *)request + offsets[header]);
}

bool http_host_is_valid(struct span host)
{
    size_t end;
    if (host.length > 0 && host.bytes[0] == '[') {
        size_t inside = run_length(host, 1, CLASS_ADDRESS);
        if (inside < 2 || 1 + inside >= host.length || host.bytes[1 + inside] != ']') {
            return false;
        }
        end = inside + 2;
    } else {
        end = run_length(host, 0, CLASS_REG_NAME);
        if (end == 0) {
            return false;
        }
    }
    if (end == host.length) {
        return true;
    }
    if (host.bytes[end] != ':' || host.length - end - 1 > 5) {
        return false;
    }
    for (size_t i = end + 1; i < host.length; i++) {
        if (host.bytes[i] < '0' || host.bytes[i] > '9') {
            return false;
        }
    }
    return true;
}

/* True when all eight bytes are surely visible ASCII and none of them is '#'. */
static inline bool word_is_plain(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = ones * 0x80;
    uint64_t number_sign = word ^ (ones * '#');
    /* Each of these sets a byte's top bit when the byte is what it must not be; a borrow from a
     * neighbour can only set it needlessly, and then the slow way decides. */
    uint64_t not_visible = (word - ones * 0x21) | (word + ones);
    uint64_t is_number_sign = (number_sign - ones) & ~number_sign;
    return ((word | not_visible | is_number_sign) & tops) == 0;
}

static bool path_is_valid(struct span target)
{
    size_t at = 0;
    while (at + 8 <= target.length && word_is_plain(load_u64(target.bytes + at))) {
        at += 8;
    }
    if (at > 0 && at + 8 > target.length &&
        word_is_plain(load_u64(target.bytes + target.length - 8))) {
        return true; /* The last word overlaps the one before. */
    }
    return at + run_length(target, at, CLASS_TARGET) == target.length;
}

/* The length of "http://" or "https://" at the start, else 0. */
static size_t scheme_length(struct span target)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t index = 0; index < sizeof(schemes) / sizeof(schemes[0]); index++) {
        size_t length = strlen(schemes[index]);
        if (target.length > length && strncasecmp(target.bytes, schemes[index], length) == 0) {
            return length;
        }
    }
    return 0;
}

bool http_target_split(struct span target, struct span *authority, struct span *path)
{
    *authority = (struct span){NULL, 0};
    *path = target;
    if (target.length > 0 && target.bytes[0] == '/') {
        return path_is_valid(target);
    }
    size_t start = scheme_length(target);
    if (start == 0) {
        return false;
    }
    const char *slash = memchr(target.bytes + start, '/', target.length - start);
    size_t end = slash != NULL ? (size_t)(slash - target.bytes) : target.length;
    *authority = (struct span){target.bytes + start, end - start};
    /* Nothing is the root, for which the scheme's last character stands. */
    *path = slash != NULL ? (struct span){slash, target.length - end}
                          : (struct span){target.bytes + start - 1, 1};
    return http_host_is_valid(*authority) && path_is_valid(*path);
}

enum http_version http_version_of(struct span rest)
{
    static const char prefix[] = " HTTP/";
    const size_t prefix_length = sizeof(prefix) - 1;
    if (rest.length != prefix_length + 3 || memcmp(rest.bytes, prefix, prefix_length) != 0) {
        return HTTP_VERSION_MALFORMED;
    }
    const char *digits = rest.bytes + prefix_length;
    if (digits[0] < '0' || digits[0] > '9' || digits[1] != '.' || digits[2] < '0' ||
        digits[2] > '9') {
        return HTTP_VERSION_MALFORMED;
    }
    if (digits[0] != '1' || digits[2] > '1') {
        return HTTP_VERSION_OTHER;
    }
    return digits[2] == '1' ? HTTP_VERSION_1_1 : HTTP_VERSION_1_0;
}

bool http_method_is_token(struct span line)
{
    size_t length = run_length(line, 0, CLASS_TOKEN);
    return length > 0 && (length == line.length || line.bytes[length] == ' ');
}
