/* redis_verdicts.c: a strict reader: what is not understood is never taken for a verdict. */
#include "gate/redis_verdicts.h"

#include <stdlib.h>
#include <string.h>

enum coupon_state redis_state_of(char letter)
{
    return letter == 'R'   ? COUPON_REDEEMED
           : letter == 'C' ? COUPON_CANCELLED
           : letter == 'E' ? COUPON_EXPIRED
           : letter == 'V' ? COUPON_VOID
                           : COUPON_ISSUED;
}

/* "17:1" and what follows; NULL: it is not readable. */
static const char *redis_read_place(const char *text, struct wish *wish)
{
    char *end;
    long long seq = strtoll(text, &end, 10);

    if (seq < 1 || *end != ':')
        return NULL;
    long nth = strtol(end + 1, &end, 10);
    if (nth < 1 || nth > PER_USER_LIMIT_MAX)
        return NULL;
    wish->seq = seq;
    wish->nth = (int32_t)nth;
    return end;
}

/* ":P" and its like, of a claim that is held. */
static const char *redis_read_state(const char *text, struct wish *wish)
{
    if (text[0] != ':' || text[1] == '\0' || strchr("PIRCE", text[1]) == NULL)
        return NULL;
    wish->is_accepted = text[1] == 'P';
    wish->coupon_state = redis_state_of(text[1]);
    return text + 2;
}

/* Reads one verdict; the rest of the text, or NULL when it is not readable. */
static const char *redis_read_verdict(const char *text, struct wish *wish)
{
    static const enum verdict verdicts[128] = {
        ['F'] = VERDICT_KEYS_FULL, ['B'] = VERDICT_BLOCKED,      ['C'] = VERDICT_CLOSED,
        ['P'] = VERDICT_PAUSED,    ['N'] = VERDICT_NOT_OPEN,     ['L'] = VERDICT_LIMIT_REACHED,
        ['S'] = VERDICT_SOLD_OUT,  ['G'] = VERDICT_LEASE_WANTED, ['W'] = VERDICT_WON,
        ['H'] = VERDICT_HELD,
    };
    unsigned char letter = (unsigned char)*text++;

    wish->verdict = letter < 128 ? verdicts[letter] : VERDICT_UNDECIDED;
    wish->ticket = 0;
    wish->is_accepted = wish->verdict == VERDICT_WON;
    wish->is_away = false;
    wish->coupon_state = COUPON_ISSUED;
    if (wish->verdict == VERDICT_UNDECIDED)
        return NULL;
    if (wish->verdict == VERDICT_NOT_OPEN) {
        char *end;
        wish->opens_at_ms = strtoll(text, &end, 10);
        text = end;
    } else if (wish->verdict == VERDICT_WON || wish->verdict == VERDICT_HELD) {
        text = redis_read_place(text, wish);
    }
    if (text != NULL && wish->verdict == VERDICT_HELD)
        text = redis_read_state(text, wish);
    return text;
}

/* "+3": the next three wishes, of `left`, got the same, and a win the seqs that follow. What is
 * behind it, or NULL. */
static const char *redis_read_run(const char *text, struct wish *const *wishes, size_t left,
                                  size_t *count)
{
    const struct wish *first = wishes[0];

    *count = 1;
    if (*text != '+')
        return text;
    char *end;
    long long more = strtoll(text + 1, &end, 10);
    if (text[1] < '1' || text[1] > '9' || more >= (long long)left || first->verdict == VERDICT_HELD)
        return NULL;
    for (size_t i = 1; i <= (size_t)more; i++) {
        struct wish *wish = wishes[i];
        wish->verdict = first->verdict;
        wish->ticket = 0;
        wish->is_accepted = first->is_accepted;
        wish->is_away = false;
        wish->coupon_state = first->coupon_state;
        wish->opens_at_ms = first->opens_at_ms;
        if (first->verdict == VERDICT_WON) {
            wish->seq = first->seq + (int64_t)i;
            wish->nth = first->nth;
        }
    }
    *count += (size_t)more;
    return end;
}

bool redis_verdicts_read(const redisReply *reply, const char *name, struct wish *const *wishes,
                         size_t count)
{
    size_t run;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[0]->str == NULL || strcmp(reply->element[0]->str, name) != 0 ||
        reply->element[2]->str == NULL)
        return false;
    const char *text = reply->element[2]->str;
    for (size_t i = 0; i < count; i += run) {
        if (i > 0 && *text++ != ' ')
            return false;
        text = redis_read_verdict(text, wishes[i]);
        if (text != NULL)
            text = redis_read_run(text, wishes + i, count - i, &run);
        if (text == NULL)
            return false;
    }
    return *text == '\0';
}
