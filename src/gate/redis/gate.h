/* gate.h: the parts of the Redis gate; for its own files only.
 *
 * Threads: the parts have their own rules; the rest is set while opening and constant after.
 */
#pragma once

#include "base/hash.h"
#include "base/periodic.h"
#include "base/policy.h"
#include "base/traces.h"
#include "gate/blocklist.h"
#include "gate/redis/pool.h"
#include "gate/redis/room.h"
#include "gate/shared.h"

/* --- the watch ---
 *
 * What this process remembers of the policies in Redis, looked at four times a second on a thread
 * of its own: their numbers, for those who only watch, and who has won in those that are sold out.
 *
 * A policy that is sold out answers from here whoever is certainly not among its winners. That is
 * safe because stock comes back to a sold-out policy in two steps: first it is announced, which
 * every server sees at its next look; and only half a second later may it be lent. What was looked
 * at longer ago than that is not used.
 *
 * Every function may be called from any thread. */

/* Hashes of users; one more entry than it needs to be open for search. */
struct redis_winners {
    uint64_t *hashes; /* 0: free */
    size_t mask;
};

struct redis_watched {
    struct gate_numbers numbers; /* `state` is made when it is asked for */
    bool is_known;               /* Redis has it */
    bool is_armed;
    int64_t stock;         /* in Redis and, as it was told, unleased; may be more than there is */
    int64_t changes;       /* Redis's count of changes of its stock and terms */
    int64_t polled_at_ms;  /* when it was asked for, monotonic; 0: never */
    int64_t asked_ns;      /* the same, to tell two looks apart */
    int64_t redis_ms;      /* Redis's clock then or a little later */
    int64_t won_count;     /* wins that Redis has told this process of */
    int64_t pending_count; /* its part of the watch's pending_count */
    struct redis_winners winners;
    int64_t winners_changes; /* `changes` when they were read; -1: not read */
};

struct redis_watch {
    struct redis_pool *pool;
    void (*stock_changed)(void *context);
    void *context;
    struct hash_key key;
    struct periodic periodic;
    pthread_mutex_t lock;
    struct redis_watched *policies; /* in rising order of ids */
    size_t policy_count;
    size_t policy_capacity;
    int64_t pending_count; /* of all policies: as looked at, and what was won since */
    int64_t asking_count;  /* wishes that Redis has not answered yet */
    struct error trouble;  /* why Redis cannot be asked; "" */
    struct redis_rooms rooms;
};

enum status redis_watch_start(struct redis_watch *watch, struct redis_pool *pool,
                              void (*stock_changed)(void *context), void *context,
                              struct error *error) MUST_CHECK;
void redis_watch_stop(struct redis_watch *watch);

/* Looks at a policy now, and from now on. */
enum status redis_watch_refresh(struct redis_watch *watch, int64_t policy_id,
                                struct error *error) MUST_CHECK;

/* Reads who has won in a policy that was seen sold out, once per sell-out. */
void redis_watch_note_winners(struct redis_watch *watch, int64_t policy_id);

size_t redis_watch_list(struct redis_watch *watch, int64_t after_id, int64_t *ids, size_t ids_max);

/* Decides what can be decided without Redis: SOLD_OUT or BLOCKED for those certainly not among the
 * winners, and UNAVAILABLE for the others while options->pending_max claims are pending, of all
 * policies, those counted in that are being asked for. When verdicts wait for the ledger nobody is
 * told SOLD_OUT while any is pending. Returns how many are left undecided: these are counted until
 * redis_watch_answered(). */
size_t redis_watch_decide(struct redis_watch *watch, const struct gate_batch *batch,
                          struct blocklist *blocklist, const struct gate_options *options);

/* Redis has answered so many wishes that were left to it, or they were given up; so many have won.
 */
void redis_watch_answered(struct redis_watch *watch, int64_t policy_id, size_t count,
                          size_t won_count);

/* Redis has answered for this policy: it is looked at from now on. */
void redis_watch_meet(struct redis_watch *watch, int64_t policy_id);

/* There is no such policy any more: it is forgotten. */
void redis_watch_drop(struct redis_watch *watch, int64_t policy_id);

/* Whether the ledger is known to have such a policy though Redis may not. */
bool redis_watch_has(struct redis_watch *watch, int64_t policy_id);

/* Whether Redis has answered a look at the policy that was begun after that, by the monotonic
 * clock. */
bool redis_watch_saw(struct redis_watch *watch, int64_t policy_id, int64_t since_ms);

/* --- renewing the time for which policies are armed; belongs to one thread --- */

/* What time it was on a server when the renewal began. */
struct redis_clock {
    int64_t away_until_ms; /* monotonic: it did not answer, and is left alone for a while */
    struct gate_moment moment;
    struct redis_address address;
    bool is_due; /* it answered, and nobody has renewed there a moment ago */
};

/* It has connections and a short timeout of its own: a server that is slow or stands still must not
 * keep it from the others for long. */
struct redis_renewal {
    struct redis_target target; /* as the gate's, but for the timeout; what it has is borrowed */
    struct redis_pool pool;
    struct redis_clock servers[REDIS_NODES_MAX];
    size_t server_count;
};

void redis_renewal_init(struct redis_renewal *renewal, const struct redis_target *target,
                        struct redis_map *map);

/* --- the gate --- */

struct gate_redis {
    struct gate gate;
    struct gate_options options;
    struct redis_target target;
    struct redis_map map;
    struct redis_pool pool;
    struct redis_watch watch;
    struct redis_renewal renewal;
    struct blocklist blocklist;
    pthread_mutex_t restore_lock;
    struct redis_restore *restores; /* of the policies that are being built anew */
};

static inline struct gate_redis *gate_redis_of(struct gate *gate)
{
    return (struct gate_redis *)gate;
}

static inline struct gate_redis *gate_redis_shared(struct shared_gate *gate)
{
    return (struct gate_redis *)gate;
}

void redis_restores_release(struct gate_redis *redis);

/* --- what is said to the library --- */

/* A name for a call that must not count twice, or for what is ours alone: 32 hex digits. */
void redis_random_name(char text[33]);

/* The words of the calls that a line sends: room for one call, used again and again. They point
 * into the wishes they were written from, and hold until the next call is written. */
#define CALL_WISHES_MAX  1000
#define CALL_ARGS_MAX    (4 + 2 * CALL_WISHES_MAX)
#define CALL_USERS_SLOTS 2048 /* a power of two, twice CALL_WISHES_MAX and more */
#define REDIS_TRACE_SIZE (4 + TRACEPARENT_LENGTH) /* the wish's number, the trace */

struct redis_args {
    struct buffer text; /* as it is sent */
    struct redis_argument words[CALL_ARGS_MAX];
    char requests[CALL_WISHES_MAX * sizeof(struct request_id)];
    char flags[CALL_WISHES_MAX];
    char traces[CALL_WISHES_MAX][REDIS_TRACE_SIZE]; /* of the wishes that have one */
    uint16_t users[CALL_USERS_SLOTS]; /* 1 and the number of the first wish of a user; 0: none */
    struct hash_key users_key;
};

void redis_args_init(struct redis_args *args);

/* A claim of up to CALL_WISHES_MAX wishes, by that name. */
void redis_args_write_claim(struct redis_args *args, int64_t policy_id, const char *name,
                            struct wish *const *wishes, size_t count, struct gate_redis *gate);

/* The question what became of the wishes' claims, or of all claims where there is nothing left. */
void redis_args_write_settled(struct redis_args *args, int64_t policy_id,
                              struct wish *const *wishes, size_t count);

/* --- what it answers --- */

/* Gives each wish its verdict. False: this is not the answer to the batch of that name, or it is
 * not readable to its last letter; then no verdict of it counts. */
bool redis_verdicts_read(const redisReply *reply, const char *name, struct wish *const *wishes,
                         size_t count);

/* Whether the wish rests on what the ledger may not have: a claim that is pending or, of those who
 * are told that nothing is left, all that are. */
bool redis_wish_is_unsettled(const struct wish *wish);

/* Tells the wishes that are unsettled what became of them; *is_over: none of them is any longer.
 * False: it is not readable, and nothing has changed. */
bool redis_settled_read(const redisReply *reply, struct wish *const *wishes, size_t count,
                        bool *is_over);

/* The state of a coupon that a letter of the library stands for. */
enum coupon_state redis_state_of(char letter);

/* Takes a request id, which is in Redis as it is, off the beginning of a text. False: the text is
 * shorter than one. */
bool redis_take_request_id(struct span *text, struct request_id *id);

/* One claim of what ISSUED has for a user, without the policy and the user. */
struct redis_held {
    struct claim claim;
    char state; /* P, I or R */
};

/* Takes one claim off the beginning of a text. False: it is not readable. */
bool redis_read_held(struct span *text, struct redis_held *held);

/* A member of PENDING, "user" or "user\nnth"; false: nobody can have such a name. */
bool redis_read_member(const redisReply *member, struct claim *claim);

/* Its score, the seq; 0: somebody has made it something else, which is nobody's seq and holds
 * nobody up. False: it is no score at all. */
bool redis_read_score(const redisReply *reply, int64_t *seq);

/* A policy's row is its columns behind the name, in the order of ROW in redis.lua; the name comes
 * last. */
#define REDIS_ROW_FIRST   POLICY_COLUMN_discount_type
#define REDIS_ROW_NUMBERS (POLICY_COLUMN_COUNT - REDIS_ROW_FIRST)

/* What dibs_describe answers; the parts live as long as the reply. */
struct redis_described {
    const redisReply *row;
    const redisReply *leases; /* an array */
    int64_t lease_top;
    int64_t seq_top;
};
enum status redis_read_described(const redisReply *reply, struct redis_described *described,
                                 struct error *error) MUST_CHECK;

/* The lease at that place, "id:first:next:end". FAILED: it is not readable. */
enum status redis_read_lease(const redisReply *leases, size_t at, int64_t policy_id,
                             struct gate_lease *lease, struct error *error) MUST_CHECK;

/* --- slots of struct gate_ops --- */

enum status gate_redis_line_open(struct gate *gate, const struct gate_line_options *options,
                                 struct gate_line **line, struct error *error);
void gate_redis_line_close(struct gate_line *line);
bool gate_redis_claim(struct gate_line *line, struct gate_batch *batch, int64_t now_ms);
enum status gate_redis_count(struct gate *gate, int64_t policy_id, int64_t now_ms,
                             struct gate_numbers *numbers);
enum status gate_redis_restore(struct gate *gate, const struct claim *claim,
                               enum coupon_state state, struct error *error);
enum status gate_redis_restore_key(struct gate *gate, const struct key_binding *binding,
                                   struct error *error);
void gate_redis_acknowledge(struct gate *gate, const struct claim *claims,
                            const enum coupon_state *states, size_t count);
enum status gate_redis_visit(struct gate *gate, int64_t policy_id,
                             const struct claim_visitor *visitor, struct error *error);
enum status gate_redis_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                               struct error *error);
