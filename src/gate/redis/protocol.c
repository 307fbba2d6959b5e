/* protocol.c: what is said to the function library, and a strict reader of what it answers: what is
 * not understood is never taken for a verdict. */
#include <stdio.h>
#include <string.h>

#include "base/digits.h"
#include "base/json.h"
#include "base/random.h"
#include "base/traces.h"
#include "embedded_functions.h"
#include "gate/redis/gate.h"

/* What the library and C have to agree on. */
_Static_assert(REDIS_LUA_BOUND_MAX == CLAIM_KEYS_MAX, "keys of a claim");
_Static_assert(REDIS_LUA_RECALL_LEASES_MAX == GATE_RECALL_LEASES_MAX, "leases of a recall");
_Static_assert(REDIS_LUA_TRACE_SIZE == TRACEPARENT_LENGTH, "the length of a trace");
_Static_assert(REDIS_LUA_BATCH_MAX >= CALL_WISHES_MAX, "wishes of a call");
_Static_assert(REDIS_LUA_BATCH_MAX >= GATE_PENDING_MAX, "claims of a page");

/* Of every verdict that has a letter redis.lua has the same; it never says the others. */
enum { REDIS_LUA_UNDECIDED, REDIS_LUA_NO_POLICY = 0, REDIS_LUA_UNAVAILABLE = 0 };
#define REDIS_LETTER_AGREES(VERDICT, LETTER, RESULT, WHY) \
    _Static_assert((LETTER) < 'A' || (LETTER) == REDIS_LUA_##VERDICT, "the letter of " #VERDICT);
VERDICTS(REDIS_LETTER_AGREES)

/* What a wish's digit says, as dibs_claim() takes it. */
enum { FLAG_KEYED = 1, FLAG_BLOCKED = 2, FLAG_REPEATED = 4 };

void redis_args_init(struct redis_args *args)
{
    buffer_init(&args->text, REDIS_CALL_LENGTH_MAX);
    args->users_key = hash_key_random();
}

/* Marks all wishes of each user that has more than one in this call: the library looks only at
 * those for what the same call has given them. */
static void redis_args_mark_repeats(struct redis_args *args, struct wish *const *wishes,
                                    size_t count)
{
    size_t mask = 15;

    if (count < 2)
        return;
    while (mask < 2 * count)
        mask = mask * 2 + 1;
    memset(args->users, 0, (mask + 1) * sizeof(args->users[0]));
    for (size_t i = 0; i < count; i++) {
        const struct id *user = &wishes[i]->user;
        size_t at = hash_table(args->users_key, user->bytes, user->length) & mask;
        while (args->users[at] != 0 && !id_equal(&wishes[args->users[at] - 1]->user, user))
            at = (at + 1) & mask;
        if (args->users[at] == 0) {
            args->users[at] = (uint16_t)(i + 1);
        } else {
            args->flags[i] |= FLAG_REPEATED;
            args->flags[args->users[at] - 1] |= FLAG_REPEATED;
        }
    }
}

/* Puts the traces of the wishes together. Most requests have none. Returns their length. */
static size_t redis_args_write_traces(struct redis_args *args, struct wish *const *wishes,
                                      size_t count, struct traces *traces)
{
    size_t found_count = 0;

    for (size_t i = 0; i < count; i++) {
        char traceparent[TRACEPARENT_SIZE];
        char number[8];
        if (!traces_find(traces, &wishes[i]->request_id, traceparent))
            continue;
        snprintf(number, sizeof(number), "%04zu", i + 1);
        memcpy(args->traces[found_count], number, 4);
        memcpy(args->traces[found_count++] + 4, traceparent, TRACEPARENT_LENGTH);
    }
    return found_count * REDIS_TRACE_SIZE;
}

void redis_args_write_claim(struct redis_args *args, int64_t policy_id, const char *name,
                            struct wish *const *wishes, size_t count, struct gate_redis *gate)
{
    const size_t id_length = sizeof(struct request_id);
    size_t word_count = 3;

    ensure(count <= CALL_WISHES_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct wish *wish = wishes[i];
        memcpy(args->requests + id_length * i, &wish->request_id, id_length);
        args->flags[i] = (char)('0' | (request_id_is_keyed(&wish->request_id) ? FLAG_KEYED : 0) |
                                (blocklist_has(&gate->blocklist, &wish->user) ? FLAG_BLOCKED : 0));
        args->words[word_count++] = redis_user(&wish->user);
    }
    redis_args_mark_repeats(args, wishes, count);
    args->words[0] = redis_text(name);
    args->words[1] = redis_bytes(args->requests, id_length * count);
    args->words[2] = redis_bytes(args->flags, count);
    size_t traces_length = redis_args_write_traces(args, wishes, count, gate->options.traces);
    if (traces_length > 0)
        args->words[word_count++] = redis_bytes(args->traces, traces_length);
    buffer_clear(&args->text);
    redis_write_call(&args->text, "FCALL", "dibs_claim", policy_id, args->words, word_count);
}

void redis_args_write_settled(struct redis_args *args, int64_t policy_id,
                              struct wish *const *wishes, size_t count)
{
    ensure(count <= CALL_WISHES_MAX);
    for (size_t i = 0; i < count; i++) {
        args->words[2 * i] =
            redis_number(wishes[i]->verdict == VERDICT_SOLD_OUT ? 0 : wishes[i]->seq);
        args->words[2 * i + 1] = redis_user(&wishes[i]->user);
    }
    buffer_clear(&args->text);
    redis_write_call(&args->text, "FCALL_RO", "dibs_settled", policy_id, args->words, 2 * count);
}

/* --- verdicts --- */

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

#define REDIS_LETTER(VERDICT, LETTER, RESULT, WHY) [LETTER] = VERDICT_##VERDICT,

/* Reads one verdict, and goes behind it. */
static bool redis_read_verdict(struct span *text, struct wish *wish)
{
    static const enum verdict verdicts[128] = {VERDICTS(REDIS_LETTER)};
    unsigned char letter = text->length == 0 ? 0 : (unsigned char)text->bytes[0];

    wish->verdict = letter >= 'A' && letter < 128 ? verdicts[letter] : VERDICT_UNDECIDED;
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
    for (size_t i = 0; i < count; i += run)
        if ((i > 0 && !redis_text_take(&text, ' ')) || !redis_read_verdict(&text, wishes[i]) ||
            !redis_read_run(&text, wishes + i, count - i, &run))
            return false;
    return text.length == 0;
}

bool redis_settled_read(const redisReply *reply, struct wish *const *wishes, size_t count,
                        bool *is_over)
{
    struct span letters;

    if (!redis_reply_text(reply, &letters) || letters.length != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (memchr("PIRV", letters.bytes[i], 4) == NULL)
            return false;
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

/* --- claims, leases, rows --- */

bool redis_take_request_id(struct span *text, struct request_id *id)
{
    if (text->length < sizeof(*id))
        return false;
    memcpy(id, text->bytes, sizeof(*id));
    text->bytes += sizeof(*id);
    text->length -= sizeof(*id);
    return true;
}

/* The request id and "nth:lease:requested_at:seq"; then, but for the last one perhaps, the state, a
 * count, and a comma. */
bool redis_read_held(struct span *text, struct redis_held *held)
{
    struct claim *claim = &held->claim;
    int64_t numbers[4];
    int64_t bound_count;

    *held = (struct redis_held){.state = 'P'};
    if (!redis_take_request_id(text, &claim->request_id) ||
        !redis_text_take_numbers(text, 4, numbers) || numbers[0] < 1 ||
        numbers[0] > PER_USER_LIMIT_MAX || numbers[3] < 1)
        return false;
    claim->nth = (int32_t)numbers[0];
    claim->lease_id = numbers[1];
    claim->requested_at_ms = numbers[2];
    claim->seq = numbers[3];
    if (text->length == 0)
        return true;
    held->state = text->bytes[0];
    return memchr("PIR", held->state, 3) != NULL && redis_text_take(text, held->state) &&
           redis_text_take_numbers(text, 1, &bound_count) && redis_text_take(text, ',');
}

void redis_random_name(char text[33])
{
    uint8_t name[16];

    random_bytes(name, sizeof(name));
    hex_write(text, name, sizeof(name));
    text[32] = '\0';
}

bool redis_read_member(const redisReply *member, struct claim *claim)
{
    struct span text;
    int64_t nth = 1;

    if (!redis_reply_text(member, &text))
        return false;
    const char *feed = memchr(text.bytes, '\n', text.length);
    size_t length = feed == NULL ? text.length : (size_t)(feed - text.bytes);
    struct span digits = {text.bytes + length + 1, text.length - length - 1};
    if (!json_id_valid((struct span){text.bytes, length}) ||
        (feed != NULL && !(redis_text_take_numbers(&digits, 1, &nth) && digits.length == 0)) ||
        nth < 1 || nth > PER_USER_LIMIT_MAX)
        return false;
    claim->user = id_of((struct span){text.bytes, length});
    claim->nth = (int32_t)nth;
    return true;
}

bool redis_read_score(const redisReply *reply, int64_t *seq)
{
    struct span score;

    if (!redis_reply_text(reply, &score))
        return false;
    if (!redis_text_take_numbers(&score, 1, seq) || score.length > 0)
        *seq = 0;
    return true;
}

enum status redis_read_lease(const redisReply *leases, size_t at, int64_t policy_id,
                             struct gate_lease *lease, struct error *error)
{
    struct redis_keys keys;
    struct span text;
    int64_t read[4];

    if (redis_reply_text(redis_reply_at(leases, at), &text) &&
        redis_text_take_numbers(&text, 4, read) && text.length == 0 && read[1] <= read[2] &&
        read[2] <= read[3]) {
        *lease = (struct gate_lease){
            .id = read[0], .first_seq = read[1], .next_seq = read[2], .end_seq = read[3]};
        return STATUS_OK;
    }
    redis_keys_of(&keys, policy_id);
    return error_set(error, STATUS_FAILED, "%s: a lease is not readable",
                     keys.names[REDIS_KEY_LEASE]);
}

enum status redis_read_described(const redisReply *reply, struct redis_described *described,
                                 struct error *error)
{
    int64_t tops[2];

    if (!redis_reply_number(redis_reply_at(reply, 1), 0, REDIS_NUMBER_MAX, &tops[0]) ||
        !redis_reply_number(redis_reply_at(reply, 2), 0, REDIS_NUMBER_MAX, &tops[1]) ||
        !redis_reply_is_array(redis_reply_at(reply, 3)))
        return redis_reply_is_strange("dibs_describe", error);
    *described = (struct redis_described){.row = redis_reply_at(reply, 0),
                                          .lease_top = tops[0],
                                          .seq_top = tops[1],
                                          .leases = redis_reply_at(reply, 3)};
    return STATUS_OK;
}
