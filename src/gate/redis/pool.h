/* pool.h: blocking calls of our functions, on the server that has the policy, or whatever
 * else the keys stand for.
 *
 * Loads the function library where it is missing or older, follows a slot that moved, and waits out
 * what passes by itself, all within the target's timeout. A connection on which anything went wrong
 * is dropped, so that a late reply can never answer the next call.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include "base/model.h"
#include "gate/redis/link.h"

#define REDIS_POOL_IDLE_MAX   16
#define REDIS_CALL_LENGTH_MAX (16 << 20)
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

/* The keys of a policy, in the order every function takes them. */
enum redis_key {
    REDIS_KEY_REMAINING,
    REDIS_KEY_PENDING,
    REDIS_KEY_ISSUED,
    REDIS_KEY_LEASE,
    REDIS_KEY_META,
    REDIS_KEY_KEYS,
    REDIS_KEY_BOUND,
    REDIS_KEYS,
};
struct redis_keys {
    char names[REDIS_KEYS][48];
};
void redis_keys_of(struct redis_keys *keys, int64_t policy_id);

/* An argument of a call: bytes, which live until it is written, or a number. */
struct redis_argument {
    const char *bytes; /* NULL: it is the number */
    size_t length;
    int64_t number;
};

static inline struct redis_argument redis_number(int64_t number)
{
    return (struct redis_argument){.number = number};
}

static inline struct redis_argument redis_bytes(const void *bytes, size_t length)
{
    return (struct redis_argument){.bytes = bytes, .length = length};
}

static inline struct redis_argument redis_text(const char *text)
{
    return redis_bytes(text, strlen(text));
}

static inline struct redis_argument redis_user(const struct id *user)
{
    return redis_bytes(user->bytes, user->length);
}

static inline struct redis_argument redis_id(const struct request_id *id)
{
    return redis_bytes(id, sizeof(*id));
}

/* Writes a call as it is sent; `command` is "FCALL" or "FCALL_RO". Without keys where the policy is
 * 0. */
void redis_write_call(struct buffer *out, const char *command, const char *function,
                      int64_t policy_id, const struct redis_argument *arguments, size_t count);

/* Calls a function of the library for a policy. OK: `reply` is the caller's, and no error. The
 * library's own refusals: NOT_FOUND (no such policy), CONFLICT (a stale lease, a recall of too
 * much, something pending), BUSY (stock that was announced a
 * moment ago), UNAVAILABLE (unarmed, or Redis is not there or not well). UNKNOWN: it
 * may have been done; the functions are such that it may be done again. FAILED: what should not
 * happen. */
enum status redis_pool_call(struct redis_pool *pool, int64_t policy_id, const char *function,
                            const struct redis_argument *arguments, size_t count,
                            redisReply **reply, struct error *error) MUST_CHECK;

/* The same, and once more when the first outcome is not known: a connection that was idle while
 * Redis restarted tells nothing about Redis. UNKNOWN: the second one tells no more. */
enum status redis_pool_call_surely(struct redis_pool *pool, int64_t policy_id, const char *function,
                                   const struct redis_argument *arguments, size_t count,
                                   redisReply **reply, struct error *error) MUST_CHECK;

/* The same for a function that may be called again at any time: UNAVAILABLE instead of UNKNOWN. */
enum status redis_ask(struct redis_pool *pool, int64_t policy_id, const char *function,
                      const struct redis_argument *arguments, size_t count, redisReply **reply,
                      struct error *error) MUST_CHECK;

/* The same for one that answers a number from 0 on, or, where `number` is NULL, nothing to read. */
enum status redis_do(struct redis_pool *pool, int64_t policy_id, const char *function,
                     const struct redis_argument *arguments, size_t count, int64_t *number,
                     struct error *error) MUST_CHECK;

/* Calls a function of the library whose keys are all in that slot; the arguments begin with "FCALL"
 * or "FCALL_RO" and the function's name. Statuses and the reply as above. */
enum status redis_pool_send(struct redis_pool *pool, unsigned slot,
                            const struct redis_argument *arguments, size_t count,
                            redisReply **reply, struct error *error) MUST_CHECK;

/* Calls a function without keys on that server. NULL: it is away, or refuses, and the words say so.
 */
redisReply *redis_server_call(struct redis_pool *pool, const struct redis_address *address,
                              const char *command, const char *function,
                              const struct redis_argument *arguments, size_t count,
                              struct error *error);

/* Whether that server answers, with the library, which is loaded where it is missing. */
enum status redis_pool_check(struct redis_pool *pool, const struct redis_address *address,
                             struct error *error) MUST_CHECK;

/* A connection to that server with the library loaded, for a command of the caller's own; to be
 * given back, or freed with redisFree() when anything went wrong on it. */
enum status redis_pool_take(struct redis_pool *pool, const struct redis_address *address,
                            redisContext **link, struct error *error) MUST_CHECK;
void redis_pool_give(struct redis_pool *pool, const struct redis_address *address,
                     redisContext *link);

enum redis_scanned {
    SCAN_POLICIES, /* names of keys */
    SCAN_USERS,    /* users, and what they hold */
    SCAN_CLAIMS,   /* the same, with the states that hold now */
    SCAN_KEYS,     /* request ids, and whose claims they are */
};

/* Reads what that server tells page by page, from a cursor to the next one; 0 for all policies.
 * `take` gets each field with its value, or each name twice, some of them more than once; false: it
 * is not readable. UNAVAILABLE; FAILED: what is there cannot be read, and stays so. */
enum status redis_scan(struct redis_pool *pool, const struct redis_address *address,
                       int64_t policy_id, enum redis_scanned what,
                       bool (*take)(void *context, struct span name, struct span value),
                       void *context, struct error *error) MUST_CHECK;
