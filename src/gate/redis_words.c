/* redis_words.c: wishes in the words of the library. */
#include "gate/redis_words.h"

#include <stdio.h>
#include <string.h>

/* What a wish's digit says, as dibs_claim() takes it. */
enum { FLAG_KEYED = 1, FLAG_BLOCKED = 2, FLAG_REPEATED = 4 };

void redis_words_init(struct redis_words *words)
{
    words->users_key = hash_key_random();
}

static void redis_words_add(struct redis_words *words, const char *bytes, size_t length)
{
    words->argv[words->count] = bytes;
    words->lengths[words->count++] = length;
}

static void redis_words_begin(struct redis_words *words, const char *command, const char *function,
                              const struct redis_keys *keys)
{
    words->count = 0;
    redis_words_add(words, command, strlen(command));
    redis_words_add(words, function, strlen(function));
    redis_words_add(words, "7", 1);
    for (size_t i = 0; i < REDIS_KEYS; i++)
        redis_words_add(words, keys->names[i], strlen(keys->names[i]));
}

/* Marks all wishes of each user that has more than one in this call: the library looks only at
 * those for what the same call has given them. */
static void redis_words_mark_repeats(struct redis_words *words, struct wish *const *wishes,
                                     size_t count)
{
    size_t mask = 15;

    if (count < 2)
        return;
    while (mask < 2 * count)
        mask = mask * 2 + 1;
    memset(words->users, 0, (mask + 1) * sizeof(words->users[0]));
    for (size_t i = 0; i < count; i++) {
        const struct user_id *user = &wishes[i]->user;
        size_t at = hash_table(words->users_key, user->bytes, user->length) & mask;
        while (words->users[at] != 0 && !user_id_equal(&wishes[words->users[at] - 1]->user, user))
            at = (at + 1) & mask;
        if (words->users[at] == 0) {
            words->users[at] = (uint16_t)(i + 1);
        } else {
            words->flags[i] |= FLAG_REPEATED;
            words->flags[words->users[at] - 1] |= FLAG_REPEATED;
        }
    }
}

/* Most requests have no trace, and then nothing is added. */
static void redis_words_add_traces(struct redis_words *words, struct wish *const *wishes,
                                   size_t count, struct traces *traces)
{
    size_t found_count = 0;

    for (size_t i = 0; i < count; i++) {
        char traceparent[TRACEPARENT_SIZE];
        char number[8];
        if (!traces_find(traces, &wishes[i]->request_id, traceparent))
            continue;
        snprintf(number, sizeof(number), "%04zu", i + 1);
        memcpy(words->traces[found_count], number, 4);
        memcpy(words->traces[found_count++] + 4, traceparent, TRACEPARENT_LENGTH);
    }
    if (found_count > 0)
        redis_words_add(words, words->traces[0], found_count * REDIS_TRACE_SIZE);
}

void redis_words_write_claim(struct redis_words *words, const struct redis_keys *keys,
                             const char *name, struct wish *const *wishes, size_t count,
                             struct gate_redis *gate)
{
    const size_t id_length = sizeof(struct request_id);

    ensure(count <= CALL_WISHES_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct wish *wish = wishes[i];
        memcpy(words->requests + id_length * i, &wish->request_id, id_length);
        words->flags[i] = (char)('0' | (request_id_is_keyed(&wish->request_id) ? FLAG_KEYED : 0) |
                                 (blocklist_has(&gate->blocklist, &wish->user) ? FLAG_BLOCKED : 0));
    }
    redis_words_mark_repeats(words, wishes, count);
    redis_words_begin(words, "FCALL", "dibs_claim", keys);
    redis_words_add(words, name, strlen(name));
    redis_words_add(words, words->requests, id_length * count);
    redis_words_add(words, words->flags, count);
    for (size_t i = 0; i < count; i++)
        redis_words_add(words, wishes[i]->user.bytes, wishes[i]->user.length);
    redis_words_add_traces(words, wishes, count, gate->options.traces);
}

void redis_words_write_settled(struct redis_words *words, const struct redis_keys *keys,
                               struct wish *const *wishes, size_t count)
{
    ensure(count <= CALL_WISHES_MAX);
    redis_words_begin(words, "FCALL_RO", "dibs_settled", keys);
    for (size_t i = 0; i < count; i++) {
        const struct wish *wish = wishes[i];
        int length = snprintf(words->seqs[i], sizeof(words->seqs[i]), "%lld",
                              wish->verdict == VERDICT_SOLD_OUT ? 0LL : (long long)wish->seq);
        redis_words_add(words, words->seqs[i], (size_t)length);
        redis_words_add(words, wish->user.bytes, wish->user.length);
    }
}
