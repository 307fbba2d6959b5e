/* router.c: how a path finds its row. */
#include "http/api/router.h"

#include "base/digits.h"
#include "base/model.h"
#include "http/api/handlers.h"

#define SEGMENTS_MAX 6

/* The table's words, for short. */
enum {
    QUERY = ROUTE_QUERY,
    LARGE = ROUTE_LARGE,
    WATCH = ROUTE_WATCH,
    BULK = ROUTE_BULK,
    BODY = HTTP_BODY_MAX,
};
#define ROUTE_ROW(METHOD, PATTERN, ACCESS, FLAGS, BODY_MAX, HANDLER) \
    {HTTP_METHOD_##METHOD, PATTERN, ROUTE_##ACCESS, FLAGS, BODY_MAX, HANDLER},
const struct route routes[] = {ROUTES(ROUTE_ROW)};
const size_t route_count = sizeof(routes) / sizeof(routes[0]);

enum access_role route_role(const struct route *route)
{
    switch (route->access) {
    case ROUTE_VIEWER:
        return ACCESS_VIEWER;
    case ROUTE_OPERATOR:
        return ACCESS_OPERATOR;
    case ROUTE_ADMIN:
        return ACCESS_ADMIN;
    default:
        return ACCESS_NOTHING;
    }
}

bool percent_decode(struct span text, char *bytes, size_t size, size_t *length)
{
    size_t written = 0;
    for (size_t at = 0; at < text.length; at++) {
        char byte = text.bytes[at];
        if (byte == '%') {
            int high = at + 2 < text.length ? hex_digit(text.bytes[at + 1]) : -1;
            int low = at + 2 < text.length ? hex_digit(text.bytes[at + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            byte = (char)(high * 16 + low);
            at += 2;
        }
        if (written < size)
            bytes[written++] = byte;
    }
    *length = written;
    return true;
}

bool route_policy_id(struct span text, int64_t *policy_id)
{
    if (text.length == 0 || text.length > 16 || text.bytes[0] == '0')
        return false;
    int64_t number = 0;
    for (size_t at = 0; at < text.length; at++) {
        unsigned digit = (unsigned char)text.bytes[at] - (unsigned)'0';
        if (digit > 9)
            return false;
        number = number * 10 + (int64_t)digit;
    }
    *policy_id = number;
    return number <= POLICY_ID_MAX;
}

bool router_match_claims(struct span path, int64_t *policy_id)
{
    static const char before[] = "/v1/policies/";
    static const char after[] = "/claims";
    const size_t before_length = sizeof(before) - 1;
    const size_t after_length = sizeof(after) - 1;
    if (path.length <= before_length + after_length ||
        memcmp(path.bytes, before, before_length) != 0 ||
        memcmp(path.bytes + path.length - after_length, after, after_length) != 0)
        return false;
    struct span id = {path.bytes + before_length, path.length - before_length - after_length};
    return route_policy_id(id, policy_id);
}

/* Cuts "/a/b" into "a" and "b"; 0 when it has more segments than any route. */
static size_t split_path(struct span path, struct span segments[SEGMENTS_MAX])
{
    size_t count = 0;
    size_t start = 1;
    for (size_t at = 1; at <= path.length; at++) {
        if (at < path.length && path.bytes[at] != '/')
            continue;
        if (count == SEGMENTS_MAX)
            return 0;
        segments[count++] = (struct span){path.bytes + start, at - start};
        start = at + 1;
    }
    return count;
}

/* False when an escape is broken. */
static bool escapes_are_whole(const struct span *segments, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        size_t length;
        if (!percent_decode(segments[index], NULL, 0, &length))
            return false;
    }
    return true;
}

/* Walks pattern and segments side by side; params gets the indexes of the named ones. */
static bool pattern_matches(const char *pattern, const struct span *segments, size_t count,
                            size_t params[ROUTE_PARAMS_MAX], size_t *param_count)
{
    size_t index = 0;
    *param_count = 0;
    for (const char *at = pattern; *at == '/'; index++) {
        const char *end = strchrnul(at + 1, '/');
        struct span word = {at + 1, (size_t)(end - at - 1)};
        /* Only the root's one segment is empty. */
        if (index == count || (segments[index].length == 0 && word.length > 0))
            return false;
        if (word.bytes[0] == '{')
            params[(*param_count)++] = index;
        else if (!span_equal(word, segments[index]))
            return false;
        at = end;
    }
    return index == count && count > 0;
}

void router_match(struct span path, struct route_match *match)
{
    struct span segments[SEGMENTS_MAX];
    match->first = NULL;
    match->param_count = 0;
    size_t count = split_path(path, segments);
    match->is_malformed = !escapes_are_whole(segments, count);
    for (size_t row = 0; row < route_count && !match->is_malformed; row++) {
        size_t params[ROUTE_PARAMS_MAX] = {0};
        if (!pattern_matches(routes[row].pattern, segments, count, params, &match->param_count))
            continue;
        match->first = &routes[row];
        for (size_t index = 0; index < match->param_count; index++) {
            size_t length = 0;
            /* What is cut is longer than every id and code, so that it matches none. */
            (void)percent_decode(segments[params[index]], match->storage[index], ROUTE_PARAM_SIZE,
                                 &length);
            match->params[index] = (struct span){match->storage[index], length};
        }
        return;
    }
    match->param_count = 0;
}

const struct route *route_for(const struct route *first, enum http_method method)
{
    if (method == HTTP_METHOD_HEAD)
        method = HTTP_METHOD_GET;
    for (const struct route *row = first; row < routes + route_count; row++) {
        if (row->method == method)
            return row;
        if (row + 1 < routes + route_count && strcmp(row[1].pattern, row->pattern) != 0)
            break;
    }
    return NULL;
}

const char *route_method_name(enum http_method method)
{
    static const char *const names[] = {
        [HTTP_METHOD_GET] = "GET",         [HTTP_METHOD_HEAD] = "HEAD",
        [HTTP_METHOD_POST] = "POST",       [HTTP_METHOD_PUT] = "PUT",
        [HTTP_METHOD_PATCH] = "PATCH",     [HTTP_METHOD_DELETE] = "DELETE",
        [HTTP_METHOD_OPTIONS] = "OPTIONS", [HTTP_METHOD_OTHER] = "OTHER",
    };
    return names[method];
}

struct span route_allow(const struct route *first, char text[ROUTE_ALLOW_SIZE])
{
    char *end = text;
    for (enum http_method method = HTTP_METHOD_GET; method <= HTTP_METHOD_DELETE; method++) {
        if (route_for(first, method) != NULL) {
            end = stpcpy(end, route_method_name(method));
            end = stpcpy(end, ", ");
        }
    }
    end = stpcpy(end, "OPTIONS");
    return (struct span){text, (size_t)(end - text)};
}
