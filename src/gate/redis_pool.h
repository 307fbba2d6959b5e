/* redis_pool.h: blocking calls of our functions, on the server that has the policy, or whatever
 * else the keys stand for.
 *
 * Loads the function library where it is missing or older, follows a slot that moved, and waits out
 * what passes by itself, all within the target's timeout. A connection on which anything went wrong
 * is dropped, so that a late reply can never answer the next call.
 *
 * Threads: every function may be called from any thread.
 */
#ifndef GATE_REDIS_POOL_H
#define GATE_REDIS_POOL_H

#include "gate/redis_map.h"

#define REDIS_LIBRARY_VERSION 15
#define REDIS_POOL_IDLE_MAX   16
#define REDIS_KEYS            7
#define REDIS_KEY_HEAD        "COUPON:POLICY:{"

/* One of the function libraries that the binary carries. */
struct redis_library {
    const char *file;    /* its name among the embedded ones */
    const char *version; /* the function that tells its version */
    int version_number;
};
extern const struct redis_library redis_gate_library;

struct redis_idle {
    redisContext *link;
    struct redis_address address;
};

struct redis_pool {
    const struct redis_target *target;
    struct redis_map *map;
    const struct redis_library *library;
    pthread_mutex_t lock;
    struct redis_idle idle[REDIS_POOL_IDLE_MAX];
    size_t idle_count;
};

void redis_pool_init(struct redis_pool *pool, const struct redis_target *target,
                     struct redis_map *map, const struct redis_library *library);
void redis_pool_release(struct redis_pool *pool);

/* The names of a policy's keys, in the order every function takes them. */
struct redis_keys {
    char names[REDIS_KEYS][48];
};
void redis_keys_of(struct redis_keys *keys, int64_t policy_id);

/* An argument of a call. */
struct redis_argument {
    const char *bytes;
    size_t length;
};

/* Calls a function of the library for a policy. OK: `reply` is the caller's, and no error. The
 * library's own refusals: NOT_FOUND (no such policy), CONFLICT (a stale lease, a recall of too
 * much, something pending), BUSY (stock that was announced a
 * moment ago), UNAVAILABLE (unarmed, or Redis is not there or not well). UNKNOWN: it
 * may have been done; the functions are such that it may be done again. FAILED: what should not
 * happen. */
enum status redis_pool_call(struct redis_pool *pool, int64_t policy_id, const char *function,
                            const struct redis_argument *arguments, size_t argument_count,
                            redisReply **reply, struct error *error) MUST_CHECK;

/* The same, and once more when the first outcome is not known: a connection that was idle while
 * Redis restarted tells nothing about Redis. UNKNOWN: the second one tells no more. */
enum status redis_pool_call_surely(struct redis_pool *pool, int64_t policy_id, const char *function,
                                   const struct redis_argument *arguments, size_t argument_count,
                                   redisReply **reply, struct error *error) MUST_CHECK;

/* Calls a function of the library whose keys are all in that slot; "FCALL" or "FCALL_RO" is the
 * first word, `lengths` has the length of each. Statuses and the reply as above. */
enum status redis_pool_send(struct redis_pool *pool, unsigned slot, const char **words,
                            const size_t *lengths, size_t count, redisReply **reply,
                            struct error *error) MUST_CHECK;

/* Whether that server answers, with the library, which is loaded where it is missing. */
enum status redis_pool_check(struct redis_pool *pool, const struct redis_address *address,
                             struct error *error) MUST_CHECK;

/* A connection to that server with the library loaded, for a command of the caller's own; to be
 * given back, or freed with redisFree() when anything went wrong on it. */
enum status redis_pool_take(struct redis_pool *pool, const struct redis_address *address,
                            redisContext **link, struct error *error) MUST_CHECK;
void redis_pool_give(struct redis_pool *pool, const struct redis_address *address,
                     redisContext *link);

#endif
