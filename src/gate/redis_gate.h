/* redis_gate.h: the parts of the Redis gate; for its own files only.
 *
 * Threads: the parts have their own rules; the rest is set while opening and constant after.
 */
#ifndef GATE_REDIS_GATE_H
#define GATE_REDIS_GATE_H

#include "gate/blocklist.h"
#include "gate/redis_terms.h"
#include "gate/redis_verdicts.h"
#include "gate/redis_watch.h"

/* A coupon of the ledger, in the words of the library. */
struct redis_coupon {
    char seq[24];
    char nth[12];
    char requested_at[24];
    struct request_id request_id;
    char state[2];
    struct user_id user;
};

/* Coupons of one policy on their way back into Redis, sent together. */
#define RESTORE_MAX 300

struct redis_restore {
    struct redis_restore *next;
    int64_t policy_id;
    char name[33]; /* that the reset was given; "": there was none */
    int64_t term;  /* in which it is built */
    size_t coupon_count;
    size_t key_count;
    struct redis_coupon coupons[RESTORE_MAX];
    struct redis_restored_key {
        struct request_id request_id;
        char claim[112]; /* "seq:nth:user" */
    } keys[RESTORE_MAX];
};

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

extern const struct gate_ops gate_redis_ops;

static inline struct gate_redis *gate_redis_of(struct gate *gate)
{
    return (struct gate_redis *)gate;
}

/* 32 hex digits and a NUL, for names that are ours alone. */
void redis_write_request_id(const struct request_id *id, char text[33]);

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

/* A member of PENDING, "user" or "user\nnth"; false: nobody can have such a name. */
bool redis_read_member(const redisReply *member, struct claim *claim);

/* Its score, the seq; 0: somebody has made it something else, which is nobody's seq and holds
 * nobody up. False: it is no score at all. */
bool redis_read_score(const redisReply *reply, int64_t *seq);

/* Calls a function that may be called again. OK: `reply` is the caller's. */
enum status redis_ask(struct gate_redis *redis, int64_t policy_id, const char *function,
                      const struct redis_argument *arguments, size_t count, redisReply **reply,
                      struct error *error) MUST_CHECK;

/* The same for one that answers a number from 0 on. */
enum status redis_ask_number(struct gate_redis *redis, int64_t policy_id, const char *function,
                             const struct redis_argument *arguments, size_t count, int64_t *number,
                             struct error *error) MUST_CHECK;

/* The same for one whose reply tells nothing. */
enum status redis_do(struct gate_redis *redis, int64_t policy_id, const char *function,
                     const struct redis_argument *arguments, size_t count,
                     struct error *error) MUST_CHECK;

/* The same, but where another server may have taken the place of the first it is not called there:
 * what was begun on one server is not ended on another. `number` gets what it answers, unless it is
 * NULL. */
enum status redis_do_here(struct gate_redis *redis, int64_t policy_id, const char *function,
                          const struct redis_argument *arguments, size_t count, int64_t *number,
                          struct error *error) MUST_CHECK;

struct redis_argument redis_number_text(char text[24], int64_t number);

/* A name for a call that must not count twice, or for what is ours alone. */
void redis_random_name(char text[33]);

/* Slots of struct gate_ops, in redis_line.c. */
enum status gate_redis_line_open(struct gate *gate, const struct gate_line_options *options,
                                 struct gate_line **line, struct error *error);
void gate_redis_line_close(struct gate_line *line);
bool gate_redis_claim(struct gate_line *line, struct gate_batch *batch, int64_t now_ms);

/* A slot of struct gate_ops, in redis_pending.c. */
enum status gate_redis_pending(struct gate *gate, int64_t policy_id, int64_t after_seq,
                               struct gate_pending *pending, struct error *error);

/* Slots of struct gate_ops, in redis_steward.c. */
enum status gate_redis_restore(struct gate *gate, const struct claim *claim,
                               enum coupon_state state, struct error *error);
enum status gate_redis_restore_key(struct gate *gate, const struct key_binding *binding,
                                   struct error *error);
enum status gate_redis_reset(struct gate *gate, int64_t policy_id, int64_t last_seq, int64_t term,
                             struct error *error);
enum status gate_redis_arm(struct gate *gate, int64_t policy_id, int64_t active_count,
                           const struct gate_arming *arming, struct error *error);
enum status gate_redis_enter(struct gate *gate, int64_t policy_id, const struct claim *claims,
                             const enum coupon_state *states, size_t count, struct error *error);
enum status gate_redis_leases(struct gate *gate, int64_t policy_id, struct gate_lease **leases,
                              size_t *count, int64_t *highest_id, struct error *error);
enum status gate_redis_retire(struct gate *gate, int64_t policy_id, int64_t seconds,
                              struct error *error);
enum status gate_redis_publish(struct gate *gate, int64_t policy_id, const char *token,
                               int64_t *mark, struct error *error);
enum status gate_redis_published(struct gate *gate, int64_t policy_id, const char *token,
                                 int64_t seq, struct error *error);
enum status gate_redis_acknowledge_keys(struct gate *gate, const struct key_binding *bindings,
                                        size_t count, struct error *error);
void gate_redis_acknowledge(struct gate *gate, const struct claim *claims,
                            const enum coupon_state *states, size_t count);
enum status gate_redis_visit(struct gate *gate, int64_t policy_id,
                             const struct gate_visitor *visitor, struct error *error);
enum status gate_redis_enumerate(struct gate *gate, int64_t **ids, size_t *count,
                                 struct error *error);

/* Slots of struct gate_ops, in redis_audit.c. */
enum status gate_redis_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                               struct error *error);
enum status gate_redis_strays(struct gate *gate, int64_t policy_id, struct claim *strays,
                              size_t max, size_t *count, struct error *error);
enum status gate_redis_mend(struct gate *gate, int64_t policy_id, const struct gate_mend *mends,
                            size_t count, int64_t *changed_count, struct error *error);
enum status gate_redis_lay_down(struct gate *gate, int64_t policy_id, struct error *error);
enum status gate_redis_suspend(struct gate *gate, int64_t policy_id, struct error *error);
enum status gate_redis_forget(struct gate *gate, int64_t policy_id, struct error *error);

#endif
