/* duty.h: what a worker does for one policy of a shared gate; for the worker's own files only.
 *
 * Threads: the worker's draining thread.
 */
#ifndef CLAIM_DUTY_H
#define CLAIM_DUTY_H

#include "gate/gate.h"
#include "relay/relay.h"

struct worker;

/* One policy a worker looks after. */
struct duty {
    int64_t policy_id;
    int64_t version;          /* of the policy, as last pushed to the gate */
    int64_t ends_at_ms;       /* wall: when it was closed, or closes by itself; 0: never */
    bool is_closed;           /* by the gate's clock, when it was last looked at */
    bool is_retired;          /* closed and drained: the gate has been told to let go */
    struct relay_way way;     /* of its claims to the ledger */
    bool has_way;             /* of this term: false when the stewardship is new */
    struct key_binding *keys; /* that the ledger was given; NULL: none */
    size_t key_count;
    uint64_t keys_ticket;      /* under which they become durable */
    bool is_entering;          /* the ledger gave coupons that the gate has not heard of */
    bool is_built;             /* anew, and not armed yet */
    int64_t built_count;       /* active coupons that were restored */
    int64_t next_look_ms;      /* monotonic, as all of these */
    int64_t arm_at_ms;         /* when servers have forgotten what was before */
    int64_t busy_at_ms;        /* when there was last something to drain */
    int64_t pause_ms;          /* between looks while there is nothing to do */
    int64_t term;              /* in which this worker is the policy's steward; 0: it is not */
    int64_t previous;          /* the newest term before: a gate that is in it may go on */
    int64_t gate_term;         /* the latest that the gate has heard of, as last seen */
    bool is_told;              /* the gate has heard of this one */
    bool is_used;              /* a gate may be armed in this term, here or elsewhere */
    bool lends_again;          /* leases may have been taken and not lent */
    int64_t taken_at_ms;       /* when the term began */
    int64_t take_at_ms;        /* when it may next be tried to become the steward */
    int64_t over_at_ms;        /* when nothing of an earlier term is armed any more, anywhere */
    int64_t checked_at_ms;     /* when it was last asked whether what the gate sells is lent */
    int64_t checked_remaining; /* what the gate had left then */
    int64_t pushed_at_ms;      /* when the policy was last pushed */
    int64_t synced_at_ms;      /* when its leases were last compared with the ledger's; 0: never */
    int64_t drift_units;       /* that a lease has fewer in the gate than in the ledger */
    int64_t drift_since_ms;    /* since when it is so many */
    int64_t counted_version;   /* of the policy when gate and ledger had as many active coupons */
    int64_t counted_at_ms;     /* when they were last counted */
    int64_t surplus;           /* active coupons that the gate has and the ledger has not */
    int64_t surplus_since_ms;  /* since when it is so many */
    int64_t lend_at_ms;        /* when announced stock may be lent to an empty gate; 0: none is */
    const char *said;          /* the event that was logged last, and when */
    int64_t said_at_ms;
    int64_t pending_count; /* as last seen, without what no user holds */
    int64_t stray_count;   /* what is pending and no user holds */
    int64_t oldest_requested_ms;
};

/* Looks at the policy and does what is to be done. */
void duty_attend(struct worker *worker, struct duty *duty, int64_t now_ms);

/* Compares the leases of an armed policy in the gate with the ledger's, when it is time: in
 * duty_leases.c. */
void duty_sync_leases(struct worker *worker, struct duty *duty, int64_t now_ms);

/* Compares how many coupons are active in the gate and in the ledger, when it is time: in
 * duty_users.c. */
void duty_sync_users(struct worker *worker, struct duty *duty, int64_t now_ms);

/* Gives what is pending and no user holds back to its users, as far as a lease or the ledger says
 * that they won it, and takes the rest out of a gate that is not armed: in duty_strays.c. */
enum status duty_recover_strays(struct worker *worker, struct duty *duty,
                                struct error *error) MUST_CHECK;

/* The lease whose range that seq is in, or NULL; in duty_strays.c. */
const struct lease *duty_lease_of(const struct lease *leases, size_t count, int64_t seq);

/* Hands everything that survived in a gate that is not armed to the ledger: in duty.c. */
enum status duty_drain_all(struct worker *worker, struct duty *duty,
                           struct error *error) MUST_CHECK;

/* Hands the ledger what it lacks of the claims that a gate which is not armed calls issued: in
 * duty_lacking.c. */
enum status duty_save_lacking(struct worker *worker, struct duty *duty,
                              struct error *error) MUST_CHECK;

/* Whether this worker is the policy's steward, and goes on being it; it tries to become so. The
 * next ones are in duty_term.c, too. */
bool duty_is_held(struct worker *worker, struct duty *duty, int64_t now_ms);

/* Takes the next term. False: another one is the steward. */
bool duty_take(struct worker *worker, struct duty *duty);

/* Tells the gate of the term: what was armed in the one before goes on, anything else is disarmed.
 */
enum status duty_tell(struct worker *worker, struct duty *duty, struct error *error) MUST_CHECK;

/* False: the gate of an armed policy has not heard of this worker's term, and has to be looked at
 * again. */
bool duty_is_current(struct worker *worker, struct duty *duty, int64_t now_ms);

/* False: the gate sold a lease that the ledger has closed, and is disarmed. Looks when it is time.
 */
bool duty_sells_what_is_lent(struct worker *worker, struct duty *duty, int64_t now_ms);

/* Logs trouble with the policy; the same again only after a while. */
void duty_say(struct duty *duty, const char *event, const struct error *error);

#endif
