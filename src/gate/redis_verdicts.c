/* redis_verdicts.c: a strict reader: what is not understood is never taken for a verdict. */
#include "gate/redis_verdicts.h"

#include <string.h>

enum coupon_state redis_state_of(char letter)
{
    return letter == 'R'   ? COUPON_REDEEMED
           : letter == 'C' ? COUPON_CANCELLED
           : letter == 'E' ? COUPON_EXPIRED
           : letter == 'V' ? COUPON_VOID
                           : COUPON_ISSUED;
}

bool redis_wish_is_unsettled(const struct wish *wish)
{
    return wish->is_accepted || wish->verdict == VERDICT_SOLD_OUT;
}

/* "17:1". */
static bool redis_read_place(struct span *text, struct wish *wish)
{
    int64_t place[2];

    if (!redis_text_take_numbers(text, 2, place) || place[0] < 1 || place[1] < 1 ||
        place[1] > PER_USER_LIMIT_MAX)
        return false;
    wish->seq = place[0];
    wish->nth = (int32_t)place[1];
    return true;
}

/* ":P" and its like, of a claim that is held. */
static bool redis_read_state(struct span *text, struct wish *wish)
{
    if (!redis_text_take(text, ':') || text->length == 0 ||
        memchr("PIRCE", text->bytes[0], 5) == NULL)
        return false;
    wish->is_accepted = text->bytes[0] == 'P';
    wish->coupon_state = redis_state_of(text->bytes[0]);
    return redis_text_take(text, text->bytes[0]);
}

/* Reads one verdict, and goes behind it. */
static bool redis_read_verdict(struct span *text, struct wish *wish)
{
    static const enum verdict verdicts[128] = {
        ['F'] = VERDICT_KEYS_FULL, ['B'] = VERDICT_BLOCKED,      ['C'] = VERDICT_CLOSED,
        ['P'] = VERDICT_PAUSED,    ['N'] = VERDICT_NOT_OPEN,     ['L'] = VERDICT_LIMIT_REACHED,
        ['S'] = VERDICT_SOLD_OUT,  ['G'] = VERDICT_LEASE_WANTED, ['W'] = VERDICT_WON,
        ['H'] = VERDICT_HELD,
    };
    unsigned char letter = text->length == 0 ? 0 : (unsigned char)text->bytes[0];

    wish->verdict = letter < 128 ? verdicts[letter] : VERDICT_UNDECIDED;
    wish->ticket = 0;
    wish->is_accepted = wish->verdict == VERDICT_WON;
    wish->is_away = false;
    wish->coupon_state = COUPON_ISSUED;
    if (wish->verdict == VERDICT_UNDECIDED || !redis_text_take(text, (char)letter))
        return false;
    switch (wish->verdict) {
    case VERDICT_NOT_OPEN:
        return redis_text_take_numbers(text, 1, &wish->opens_at_ms);
    case VERDICT_WON:
        return redis_read_place(text, wish);
    case VERDICT_HELD:
        return redis_read_place(text, wish) && redis_read_state(text, wish);
    default:
        return true;
    }
}

/* "+3": the next three wishes, of `left`, got the same, and a win the seqs that follow. */
static bool redis_read_run(struct span *text, struct wish *const *wishes, size_t left,
                           size_t *count)
{
    const struct wish *first = wishes[0];
    int64_t more;

    *count = 1;
    if (!redis_text_take(text, '+'))
        return true;
    if (!redis_text_take_numbers(text, 1, &more) || more < 1 || more >= (int64_t)left ||
        first->verdict == VERDICT_HELD)
        return false;
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
    return true;
}

bool redis_verdicts_read(const redisReply *reply, const char *name, struct wish *const *wishes,
                         size_t count)
{
    size_t run;
    struct span told_name;
    struct span text;

    if (redis_reply_count(reply) != 3 || !redis_reply_text(redis_reply_at(reply, 0), &told_name) ||
        !span_equal(told_name, span_of(name)) || !redis_reply_text(redis_reply_at(reply, 2), &text))
        return false;
    for (size_t i = 0; i < count; i += run) {
        if ((i > 0 && !redis_text_take(&text, ' ')) || !redis_read_verdict(&text, wishes[i]) ||
            !redis_read_run(&text, wishes + i, count - i, &run))
            return false;
    }
    return text.length == 0;
}

bool redis_settled_read(const redisReply *reply, struct wish *const *wishes, size_t count,
                        bool *is_over)
{
    struct span letters;

    if (!redis_reply_text(reply, &letters) || letters.length != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (memchr("PIRV", letters.bytes[i], 4) == NULL)
            return false;
    }
    *is_over = true;
    for (size_t i = 0; i < count; i++) {
        struct wish *wish = wishes[i];
        if (!redis_wish_is_unsettled(wish))
            continue;
        if (letters.bytes[i] == 'P') {
            *is_over = false;
        } else if (!wish->is_accepted) {
            continue;
        } else if (letters.bytes[i] == 'V') {
            /* It came to nothing: whoever asks again is decided again. */
            wish->verdict = VERDICT_UNAVAILABLE;
            wish->is_accepted = false;
        } else {
            wish->coupon_state = redis_state_of(letters.bytes[i]);
            wish->is_accepted = false;
        }
    }
    return true;
}
