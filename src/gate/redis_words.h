/* redis_words.h: the words of the calls that a line sends; for the Redis gate's own files only.
 *
 * Room for one call, used again and again. The words point into the wishes and the keys they were
 * written from, and hold until the next call is written.
 */
#ifndef GATE_REDIS_WORDS_H
#define GATE_REDIS_WORDS_H

#include "base/hash.h"
#include "base/traces.h"
#include "gate/redis_gate.h"

#define CALL_WISHES_MAX  1000
#define CALL_WORDS_MAX   (3 + REDIS_KEYS + 3 + 2 * CALL_WISHES_MAX)
#define REDIS_TRACE_SIZE (4 + TRACEPARENT_LENGTH) /* the wish's number, the trace */
#define CALL_USERS_SLOTS 2048 /* a power of two, twice CALL_WISHES_MAX and more */

struct redis_words {
    const char *argv[CALL_WORDS_MAX];
    size_t lengths[CALL_WORDS_MAX];
    size_t count;
    char requests[CALL_WISHES_MAX * sizeof(struct request_id)];
    char flags[CALL_WISHES_MAX];
    char seqs[CALL_WISHES_MAX][24];
    char traces[CALL_WISHES_MAX][REDIS_TRACE_SIZE]; /* of the wishes that have one */
    uint16_t users[CALL_USERS_SLOTS]; /* 1 and the number of the first wish of a user; 0: none */
    struct hash_key users_key;
};

void redis_words_init(struct redis_words *words);

/* A claim of up to CALL_WISHES_MAX wishes, by that name. */
void redis_words_write_claim(struct redis_words *words, const struct redis_keys *keys,
                             const char *name, struct wish *const *wishes, size_t count,
                             struct gate_redis *gate);

/* The question what became of the wishes' claims, or of all claims where there is nothing left. */
void redis_words_write_settled(struct redis_words *words, const struct redis_keys *keys,
                               struct wish *const *wishes, size_t count);

#endif
