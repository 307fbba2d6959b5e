/* reply.c: a reply's status, length and verdict, without copying any of it. */
#include "rush/reply.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/verdict.h"

#define STATUS_LINE_MIN 12 /* "HTTP/1.1 200" */

static const char *const rush_outcome_names[RUSH_OUTCOMES] = {
    [RUSH_NONE] = "unknown",      [RUSH_WON] = "won",     [RUSH_HELD] = "held",
    [RUSH_SOLD_OUT] = "sold_out", [RUSH_LIMIT] = "limit", [RUSH_REFUSED] = "refused",
    [RUSH_BUSY] = "unavailable",
};

const char *rush_outcome_name(enum rush_outcome outcome)
{
    ensure(outcome < RUSH_OUTCOMES);
    return rush_outcome_names[outcome];
}

/* Digits up to the line's end; -1: something else. */
static int64_t rush_number(const char *at, const char *end)
{
    int64_t number = 0;
    int digits = 0;

    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        if (++digits > 15)
            return -1;
        number = number * 10 + (*at - '0');
    }
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return digits > 0 && at == end ? number : -1;
}

static bool rush_is_header(const char *at, const char *end, const char *name, size_t length)
{
    return (size_t)(end - at) > length && at[length] == ':' && strncasecmp(at, name, length) == 0;
}

#define RUSH_IS_HEADER(at, end, name) rush_is_header(at, end, name, sizeof(name) - 1)

/* One header line. False: it makes the length unknowable. */
static bool rush_reply_header(struct rush_reply *reply, const char *at, const char *end,
                              int64_t *body_length)
{
    /* Three letters are enough to pass over most lines. */
    char first = (char)(*at | 0x20);

    if (first == 'c' && RUSH_IS_HEADER(at, end, "content-length")) {
        int64_t length = rush_number(at + sizeof("content-length"), end);
        if (length < 0 || (*body_length >= 0 && *body_length != length))
            return false;
        *body_length = length;
    } else if (first == 'c' && RUSH_IS_HEADER(at, end, "connection")) {
        reply->closes = memmem(at, (size_t)(end - at), "close", 5) != NULL;
    } else if (first == 'r' && RUSH_IS_HEADER(at, end, "retry-after")) {
        int64_t seconds = rush_number(at + sizeof("retry-after"), end);
        reply->retry_after_s = seconds >= 0 && seconds < 86400 ? (int)seconds : -1;
    } else if (first == 't' && RUSH_IS_HEADER(at, end, "transfer-encoding")) {
        return false;
    }
    return true;
}

static bool rush_reply_status(struct rush_reply *reply, const char *at, const char *end)
{
    if (end - at < STATUS_LINE_MIN || memcmp(at, "HTTP/1.", 7) != 0 || at[8] != ' ')
        return false;
    reply->status = 0;
    for (int i = 9; i < 12; i++) {
        if (at[i] < '0' || at[i] > '9')
            return false;
        reply->status = reply->status * 10 + (at[i] - '0');
    }
    return true;
}

enum rush_reading rush_reply_read(struct span bytes, struct rush_reply *reply)
{
    const char *at = bytes.bytes;
    const char *end = at + bytes.length;
    int64_t body_length = -1;

    *reply = (struct rush_reply){.retry_after_s = -1};
    for (bool is_first = true;; is_first = false) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL)
            return bytes.length < RUSH_REPLY_MAX ? RUSH_READ_MORE : RUSH_READ_GARBAGE;
        const char *line_end = newline > at && newline[-1] == '\r' ? newline - 1 : newline;
        if (is_first ? !rush_reply_status(reply, at, line_end)
                     : line_end > at && !rush_reply_header(reply, at, line_end, &body_length))
            return RUSH_READ_GARBAGE;
        bool is_over = line_end == at;
        at = newline + 1;
        if (is_over && !is_first)
            break;
    }
    if (body_length < 0)
        body_length = 0;
    if (body_length > RUSH_REPLY_MAX)
        return RUSH_READ_GARBAGE;
    if (end - at < body_length)
        return RUSH_READ_MORE;
    reply->body = (struct span){at, (size_t)body_length};
    reply->length = (size_t)(at - bytes.bytes) + (size_t)body_length;
    return RUSH_READ_WHOLE;
}

/* --- the verdict --- */

/* What stands behind "name": in a flat object; NULL when it is not there. */
static const char *rush_member(struct span body, const char *quoted, size_t length)
{
    const char *end = body.bytes + body.length;
    const char *at = body.length == 0 ? NULL : memmem(body.bytes, body.length, quoted, length);

    if (at == NULL)
        return NULL;
    at += length;
    while (at < end && (*at == ' ' || *at == ':' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at < end ? at : NULL;
}

#define RUSH_MEMBER(body, name) rush_member(body, "\"" name "\"", sizeof(name) + 1)

static int64_t rush_member_number(struct span body, const char *at)
{
    const char *end = body.bytes + body.length;
    int64_t number = 0;
    int digits = 0;

    for (; at != NULL && at < end && *at >= '0' && *at <= '9' && digits < 16; at++, digits++)
        number = number * 10 + (*at - '0');
    return digits > 0 && digits < 16 ? number : 0;
}

static void rush_member_text(struct span body, const char *at, char *text, size_t size)
{
    const char *end = body.bytes + body.length;
    size_t length = 0;

    if (at != NULL && at < end && *at++ == '"')
        while (at < end && *at != '"' && *at > ' ' && length + 1 < size)
            text[length++] = *at++;
    text[length] = '\0';
}

#define RUSH_REFUSAL(CODE, STATUS, LABEL, LIVE, RUSH, ...) {#CODE, RUSH_##RUSH},
static const struct {
    const char *code;
    enum rush_outcome outcome;
} rush_refusals[] = {CLAIM_REFUSALS(RUSH_REFUSAL)};

static enum rush_outcome rush_outcome_of(int status, const char *code)
{
    if (status == 201 || status == 202)
        return RUSH_WON;
    if (status == 200)
        return RUSH_HELD;
    if (status == 429 || status == 503)
        return RUSH_BUSY;
    for (size_t i = 0; i < sizeof(rush_refusals) / sizeof(rush_refusals[0]); i++)
        if (strcmp(code, rush_refusals[i].code) == 0)
            return rush_refusals[i].outcome;
    return status >= 400 && status < 500 ? RUSH_REFUSED : RUSH_NONE;
}

void rush_claim_read(const struct rush_reply *reply, struct rush_claim *claim)
{
    *claim = (struct rush_claim){.is_issued = reply->status == 201};
    if (reply->status >= 400)
        rush_member_text(reply->body, RUSH_MEMBER(reply->body, "code"), claim->code,
                         sizeof(claim->code));
    claim->outcome = rush_outcome_of(reply->status, claim->code);
    if (claim->outcome == RUSH_WON || claim->outcome == RUSH_HELD) {
        claim->seq = rush_member_number(reply->body, RUSH_MEMBER(reply->body, "seq"));
        claim->nth = (int32_t)rush_member_number(reply->body, RUSH_MEMBER(reply->body, "nth"));
    }
}
