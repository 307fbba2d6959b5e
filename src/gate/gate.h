/* gate.h: the gate decides, atomically, who wins.
 *
 * A gate gives out only seqs of leases it holds, never one seq twice, each user at most
 * `per_user_limit` active claims. Losers leave no trace. It decides a whole batch for one policy in
 * one step, in the order of the batch; decisions for a policy are linearizable.
 *
 * Claims reach it through a line, of which every loop has its own: a gate in another process
 * answers on the loop when its reply is there, one in memory answers at once.
 *
 * What a verdict rests on may not be durable yet. Then `wish.ticket` is not 0: the answer has to
 * wait until the ledger has made that ticket durable (guarantee 8).
 *
 * Threads: every function may be called from any thread, unless it says otherwise.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"

/* One press of the button, and what became of it. */
struct wish {
    /* asked */
    int64_t policy_id;
    struct id user;
    struct request_id request_id;
    /* decided */
    enum verdict verdict;
    enum coupon_state coupon_state; /* of WON and HELD */
    int32_t nth;
    int64_t seq;
    int64_t opens_at_ms;
    uint64_t ticket;     /* what the verdict rests on; 0: durable already */
    uint32_t void_count; /* of the policy at the time; for gate_stands() */
    bool is_accepted;    /* WON: the gate has it for sure, the ledger not yet */
    bool is_away;        /* UNAVAILABLE: the gate could not be asked, or did not answer */
    bool is_gone;        /* UNAVAILABLE, NO_POLICY: a shared gate has no such policy, or not now */
};

/* The wishes of one tick for one policy, in their order; the caller's until they are decided. */
struct gate_batch {
    int64_t policy_id;
    struct wish **wishes;
    size_t count;
};

/* What a gate knows of a policy at one moment; remaining + pending + issued = total. */
struct gate_numbers {
    int64_t policy_id;
    int64_t total;
    int64_t remaining;      /* in the gate and unleased */
    int64_t pending;        /* won, not yet in the ledger */
    int64_t stuck_since_ms; /* monotonic: some are pending, and none was written; 0: not so */
    int64_t issued;         /* active coupons in the ledger */
    int64_t sold_out_at_ms; /* 0: not sold out */
    int64_t opens_at_ms;    /* 0: open from the start */
    int64_t closes_at_ms;   /* 0: never by itself */
    int64_t version;
    bool paused;
    bool closed_by_hand; /* for good, not by closes_at */
    bool is_suspended;   /* see gate_suspend() */
    enum policy_state state;
};

/* One claim of a user, as the gate holds it. */
struct gate_claim {
    int64_t seq;
    int32_t nth;
    bool pending;
    int64_t ahead; /* claims before it that the ledger has not written yet */
    int64_t requested_at_ms;
    enum coupon_state coupon_state;
};

#define GATE_VISIT_ALL 0

/* A recall touches at most this many leases. */
#define GATE_RECALL_LEASES_MAX 64
#define GATE_RECALL_ALL        INT64_MAX

/* Where a gate that decides in memory hands its winners, in the order of their seqs. Returns the
 * ticket under which the ledger will make them durable; never fails (the pending cap is checked
 * before the gate is asked). Called with the policy's lock held: it must not call the gate. */
struct gate_outlet {
    uint64_t (*push)(void *context, const struct claim *claims, size_t claim_count,
                     const struct key_binding *bindings, size_t binding_count);
    void *context;
};

struct gate;
struct traces;

/* A lease as a shared gate has it: the seqs up to `next_seq` are given out, those from `end_seq` on
 * were recalled. */
struct gate_lease {
    int64_t id;
    int64_t first_seq;
    int64_t next_seq;
    int64_t end_seq;
};

/* How a policy stands in the gate, in one step. Of more leases than there are places only the
 * oldest are told one by one. */
#define GATE_STATE_LEASES_MAX 256
struct gate_state {
    bool is_known; /* the gate has the policy */
    bool is_armed; /* and answers for it */
    bool is_suspended;
    int64_t remaining;
    int64_t pending_count;
    int64_t issued;
    int64_t unleased; /* as the gate has been told */
    int64_t version;
    int64_t changes; /* another number whenever something but stock and claims has changed */
    int64_t seq_top; /* the highest seq that was ever lent */
    int64_t lease_top;
    int64_t mark; /* up to here all that was pending is published; 0: nothing is */
    int64_t left; /* units that all of its leases have left */
    struct gate_lease leases[GATE_STATE_LEASES_MAX];
    size_t lease_count;
};

/* A user whose claims of a policy have another name in the ledger now: these, whatever became of
 * them, with the keys that are bound to them besides their own. */
struct gate_renaming {
    int64_t policy_id;
    const struct id *from;
    const struct id *to; /* nobody's until now */
    const struct claim *claims;
    size_t claim_count;
    const struct key_binding *bindings;
    size_t binding_count;
};

enum gate_ack { GATE_ACK_GATE, GATE_ACK_LEDGER };

struct gate_options {
    const char *url;      /* "local", "redis://…" */
    const char *password; /* NULL: as the URL says */
    struct gate_outlet outlet;
    enum gate_ack ack;      /* of a shared gate: when a win may be told */
    int64_t ack_timeout_ms; /* of GATE_ACK_LEDGER: then it is told as accepted */
    int64_t timeout_ms;     /* for an answer of another process; then UNAVAILABLE */
    int64_t pending_max;    /* over so many pending claims nobody is asked */
    int page_size;          /* of a shared gate: pending claims that are read at once; 0: most */
    int replicas;           /* of a shared gate: that must have a win before it is told */
    /* Shared gate only, called on its own thread: stock or terms of a policy have changed. */
    void (*stock_changed)(void *context);
    void *context;
    /* A shared gate keeps with a win the trace that its request is found with here, and puts it
     * here when what is pending is read. NULL: nobody asks for traces. */
    struct traces *traces;
};

struct uv_loop_s;

struct gate_line_options {
    struct uv_loop_s *loop; /* of the thread that will use it */
    /* On that thread: every wish of the batch has its verdict. Not for batches that gate_claim()
     * decided at once. */
    void (*decided)(void *context, struct gate_batch *batch);
    void *context;
};

/* A thread's own way to the gate. Every backend's struct starts with this. */
struct gate_line {
    struct gate *gate;
};

/* A backend: what every gate does. What only a gate that processes share does is in
 * gate/shared.h. Every slot is required. */
struct gate_ops {
    const char *name;

    void (*close)(struct gate *gate);

    /* Makes a policy known, or brings its limit, window, pause, close and unleased count up to
     * date. An older version than the one held is ignored. Never touches the stock in the gate.
     * Local gate only: one that was damaged answers nobody until the process starts again. */
    enum status (*policy_set)(struct gate *gate, const struct policy *policy, struct error *error);

    /* Adds a lease's units, of which the first `given_count` were given out already (0 for a new
     * one; more only when restoring). A lease whose id is not above every lease seen, or whose next
     * seq is not above every seq seen, is refused with CONFLICT: a stalled steward's second push;
     * so is one of a term before the policy's. UNKNOWN: a gate in another process may have taken
     * it; lending it again tells, by OK or CONFLICT. */
    enum status (*lend)(struct gate *gate, const struct lease *lease, int64_t given_count,
                        int64_t term, struct error *error);

    /* Takes `count` units back from the end of the leases, all or none: CONFLICT when the gate has
     * fewer. GATE_RECALL_ALL takes whatever there is, in as many calls as it needs: the last one
     * shrinks no lease. `shrunk` has GATE_RECALL_LEASES_MAX places. UNKNOWN: a gate in another
     * process may have given them up; they come back when the policy is built anew. Such a gate
     * takes `count` units for unleased until the total is lower or as many are lent. */
    enum status (*recall)(struct gate *gate, int64_t policy_id, int64_t count,
                          struct lease_shrunk *shrunk, size_t *shrunk_count, struct error *error);

    /* Rebuilding from the ledger: a claim that is durable, in rising seq order per policy, before
     * anything is claimed. */
    enum status (*restore)(struct gate *gate, const struct claim *claim, enum coupon_state state,
                           struct error *error);

    /* A key bound to a restored claim besides its own. NOT_FOUND: there is no such claim. */
    enum status (*restore_key)(struct gate *gate, const struct key_binding *binding,
                               struct error *error);

    /* A line belongs to the thread of its loop, which opens, uses and closes it. */
    enum status (*line_open)(struct gate *gate, const struct gate_line_options *options,
                             struct gate_line **line, struct error *error);

    /* Batches that are not decided when it closes never will be. */
    void (*line_close)(struct gate_line *line);

    /* Decides all wishes of one tick for one policy, in their order. True: they are decided. False:
     * options.decided() will be called for this batch, exactly once. */
    bool (*claim)(struct gate_line *line, struct gate_batch *batch, int64_t now_ms);

    /* The ledger has these claims now, each in this state; VOID and MERGED free the user's slot. */
    void (*acknowledge)(struct gate *gate, const struct claim *claims,
                        const enum coupon_state *states, size_t count);

    /* A coupon's state changed in the ledger (redeemed, cancelled); CANCELLED and VOID free the
     * slot. A claim or policy that a shared gate does not have any more is no error. UNAVAILABLE:
     * also while it is being built anew. */
    enum status (*settle)(struct gate *gate, int64_t policy_id, const struct id *user, int64_t seq,
                          enum coupon_state state, struct error *error);

    /* What the user held is held under the other name. A second call changes nothing. CONFLICT: the
     * user holds a claim that the ledger has not told of, or that is pending. UNAVAILABLE as
     * settle(); a policy that the gate does not have is no error. */
    enum status (*rename)(struct gate *gate, const struct gate_renaming *renaming,
                          struct error *error);

    /* From here on the user may, or may not, win anything. */
    enum status (*block)(struct gate *gate, const struct id *user, bool blocked,
                         struct error *error);

    /* The user's active claims, newest first; *count may exceed claims_max. NOT_FOUND: no policy.
     */
    enum status (*find)(struct gate *gate, int64_t policy_id, const struct id *user,
                        struct gate_claim *claims, size_t claims_max, size_t *count,
                        struct error *error);

    /* NOT_FOUND: no such policy. UNAVAILABLE: it is damaged. Never blocks, and cheap enough for a
     * few calls a second per watcher: of a shared gate they are the numbers of a moment ago, and a
     * policy that another process has just created may not be among them. */
    enum status (*count)(struct gate *gate, int64_t policy_id, int64_t now_ms,
                         struct gate_numbers *numbers);

    /* Policy ids above `after_id` in rising order, as far as this process knows them. */
    size_t (*list)(struct gate *gate, int64_t after_id, int64_t *ids, size_t ids_max);

    /* How the policy stands, for an audit; `state` is zeroed. Not knowing the policy is no failure:
     * is_known tells. */
    enum status (*inspect)(struct gate *gate, int64_t policy_id, struct gate_state *state,
                           struct error *error);

    /* Tells all that the gate holds of one policy: its row, its leases, its claims, the keys bound
     * to them; with GATE_VISIT_ALL of every policy in rising order of ids, and then the blocked
     * users. Claims go on meanwhile, and the visitor may take its time: it is called without a
     * lock. What was there when the walk began is told once; of what comes or changes meanwhile a
     * part may be. A claim that is not told was decided during the walk, under a lease that is
     * told. NOT_FOUND: no such policy. */
    enum status (*visit)(struct gate *gate, int64_t policy_id, const struct claim_visitor *visitor,
                         struct error *error);
};

/* Every backend's struct starts with this. */
struct gate {
    const struct gate_ops *ops;
};

/* Opens the gate that the URL names; "local" is the one in process memory. The options' texts are
 * copied where they are needed longer. */
enum status gate_open(struct gate **gate, const struct gate_options *options,
                      struct error *error) MUST_CHECK;

/* The backends. Redis is connected to, its version and settings are checked, and the function
 * library is loaded; FAILED: it is a Redis that must not be used, and why. What it keeps where, and
 * how it decides, is in redis.lua. */
enum status gate_local_open(struct gate **gate, const struct gate_options *options,
                            struct error *error) MUST_CHECK;
enum status gate_redis_open(struct gate **gate, const struct gate_options *options,
                            struct error *error) MUST_CHECK;
extern const struct gate_ops gate_redis_ops;

/* --- the slots of struct gate_ops, which say what each does --- */

static inline void gate_close(struct gate *gate)
{
    if (gate != NULL)
        gate->ops->close(gate);
}

static inline MUST_CHECK enum status gate_policy_set(struct gate *gate, const struct policy *policy,
                                                     struct error *error)
{
    ensure(policy->id >= 1 && policy->id <= POLICY_ID_MAX);
    ensure(policy->per_user_limit >= 1 && policy->per_user_limit <= PER_USER_LIMIT_MAX);
    return gate->ops->policy_set(gate, policy, error);
}

static inline MUST_CHECK enum status gate_lend(struct gate *gate, const struct lease *lease,
                                               int64_t given_count, int64_t term,
                                               struct error *error)
{
    ensure(lease->count >= 0 && given_count >= 0 && given_count <= lease->count);
    return gate->ops->lend(gate, lease, given_count, term, error);
}

static inline MUST_CHECK enum status gate_recall(struct gate *gate, int64_t policy_id,
                                                 int64_t count, struct lease_shrunk *shrunk,
                                                 size_t *shrunk_count, struct error *error)
{
    ensure(count >= 0);
    return gate->ops->recall(gate, policy_id, count, shrunk, shrunk_count, error);
}

static inline MUST_CHECK enum status gate_restore(struct gate *gate, const struct claim *claim,
                                                  enum coupon_state state, struct error *error)
{
    return gate->ops->restore(gate, claim, state, error);
}

static inline MUST_CHECK enum status gate_restore_key(struct gate *gate,
                                                      const struct key_binding *binding,
                                                      struct error *error)
{
    return gate->ops->restore_key(gate, binding, error);
}

static inline MUST_CHECK enum status gate_line_open(struct gate *gate,
                                                    const struct gate_line_options *options,
                                                    struct gate_line **line, struct error *error)
{
    return gate->ops->line_open(gate, options, line, error);
}

static inline void gate_line_close(struct gate_line *line)
{
    if (line != NULL)
        line->gate->ops->line_close(line);
}

static inline MUST_CHECK bool gate_claim(struct gate_line *line, struct gate_batch *batch,
                                         int64_t now_ms)
{
    return line->gate->ops->claim(line, batch, now_ms);
}

static inline void gate_acknowledge(struct gate *gate, const struct claim *claims,
                                    const enum coupon_state *states, size_t count)
{
    gate->ops->acknowledge(gate, claims, states, count);
}

static inline MUST_CHECK enum status gate_settle(struct gate *gate, int64_t policy_id,
                                                 const struct id *user, int64_t seq,
                                                 enum coupon_state state, struct error *error)
{
    return gate->ops->settle(gate, policy_id, user, seq, state, error);
}

static inline MUST_CHECK enum status gate_rename(struct gate *gate,
                                                 const struct gate_renaming *renaming,
                                                 struct error *error)
{
    return gate->ops->rename(gate, renaming, error);
}

static inline MUST_CHECK enum status gate_block(struct gate *gate, const struct id *user,
                                                bool blocked, struct error *error)
{
    return gate->ops->block(gate, user, blocked, error);
}

static inline MUST_CHECK enum status gate_find(struct gate *gate, int64_t policy_id,
                                               const struct id *user, struct gate_claim *claims,
                                               size_t claims_max, size_t *count,
                                               struct error *error)
{
    return gate->ops->find(gate, policy_id, user, claims, claims_max, count, error);
}

static inline MUST_CHECK enum status gate_count(struct gate *gate, int64_t policy_id,
                                                int64_t now_ms, struct gate_numbers *numbers)
{
    return gate->ops->count(gate, policy_id, now_ms, numbers);
}

static inline size_t gate_list(struct gate *gate, int64_t after_id, int64_t *ids, size_t ids_max)
{
    return gate->ops->list(gate, after_id, ids, ids_max);
}

static inline MUST_CHECK enum status gate_visit(struct gate *gate, int64_t policy_id,
                                                const struct claim_visitor *visitor,
                                                struct error *error)
{
    return gate->ops->visit(gate, policy_id, visitor, error);
}

static inline MUST_CHECK enum status gate_inspect(struct gate *gate, int64_t policy_id,
                                                  struct gate_state *state, struct error *error)
{
    *state = (struct gate_state){0};
    return gate->ops->inspect(gate, policy_id, state, error);
}

/* --- and besides --- */

/* Decides one wish, and waits for it: for those who have no line. Blocks. OK, whatever the verdict;
 * UNAVAILABLE: no memory to ask. */
enum status gate_ask(struct gate *gate, struct wish *wish, int64_t now_ms,
                     struct error *error) MUST_CHECK;

/* Whether a verdict that waited for its ticket, as only one of the gate in memory does, may be told
 * now that the ticket is durable. False when it may rest on a claim that ended VOID or MERGED: then
 * it has to be decided again. A win whose own claim was issued always stands, or one wish would
 * take two units. */
bool gate_stands(struct gate *gate, const struct wish *wish);

/* --- a gate in memory that is built from the ledger while it is asked --- */

/* Until it is full a policy that the gate does not know may be one that is still to come:
 * UNAVAILABLE, neither NO_POLICY nor NOT_FOUND. */
enum gate_filling { GATE_IS_FILLED, GATE_IS_FULL };
void gate_fill(struct gate *gate, enum gate_filling filling);
bool gate_is_filling(struct gate *gate);
bool gate_knows(struct gate *gate, int64_t policy_id);

/* Moves all policies of another gate in memory, which nobody else asks, into this one, at once. One
 * that is here already has come in another way: it stays, and the other goes. UNAVAILABLE: there is
 * no memory, and nothing was moved. */
enum status gate_adopt(struct gate *gate, struct gate *other, struct error *error) MUST_CHECK;

/* How many of its claims have seqs of that lease, and the highest of these; 0: none. */
int64_t gate_given(struct gate *gate, const struct lease *lease, int64_t *last_seq);
