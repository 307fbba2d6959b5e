/* shared.h: what only a gate that processes share does.
 *
 * It is the outbox: a win stays in it until the ledger has it and says so. It answers for a policy
 * only while it is armed, which it forgets whenever it may have forgotten anything else; then the
 * steward resets it, restores the users from the ledger, lends it a fresh lease and arms it. It is
 * armed for a short time only, by its own clock, and stays so while that is renewed: only in the
 * term that is the ledger's newest, and only in the process that was armed. What a steward writes
 * in an earlier term is refused with CONFLICT.
 *
 * There is one such gate, in Redis: these are its functions, without a table in between.
 *
 * Threads: every function may be called from any thread, unless it says otherwise.
 */
#pragma once

#include "gate/gate.h"

/* The same gate as seen by those who know that it is shared. */
struct shared_gate;

/* NULL: the gate is in this process's memory, and nobody else's. */
struct shared_gate *gate_shared(struct gate *gate);

/* What a shared gate keeps of a policy until the ledger has it, and how the policy stands. */
#define GATE_PENDING_MAX 500
struct gate_pending {
    size_t claim_count;
    size_t binding_count;
    size_t stray_count; /* claims passed over, because their users do not hold them */
    int64_t stray_seq;  /* the first of them */
    bool is_known;      /* the gate has the policy */
    bool is_armed;      /* and answers for it */
    bool is_suspended;
    bool is_continuous; /* armed, or nothing but time keeps it from being so */
    int64_t now_ms;     /* the gate's clock */
    int64_t remaining;
    int64_t unleased; /* as the gate has been told */
    int64_t pending_count;
    int64_t version;
    int64_t term;                          /* the latest that it was told of */
    int64_t selling_lease_id;              /* that the next win is from; 0: none */
    struct claim claims[GATE_PENDING_MAX]; /* in seq order */
    struct key_binding bindings[GATE_PENDING_MAX];
};

/* The time of the server that has a policy, and which process it is. */
#define GATE_PROCESS_SIZE 33
struct gate_moment {
    int64_t now_ms;
    char process[GATE_PROCESS_SIZE];
};

/* For how long a policy is armed: counted from a moment before the ledger confirmed that the term
 * is its newest. */
struct gate_arming {
    int64_t term;
    struct gate_moment since;
    int64_t length_ms;
};

/* The newest term of a policy. */
struct gate_term {
    int64_t policy_id;
    int64_t term;
};

/* What is put right in a shared gate, of one claim. */
enum gate_fix_kind {
    GATE_FIX_PENDING, /* it is held, and goes to the ledger once more */
    GATE_FIX_HELD,    /* it is pending, and is held again */
    GATE_FIX_REMOVE,  /* no lease ever gave it */
};
struct gate_fix {
    enum gate_fix_kind kind;
    struct claim claim;
};

/* What may be lost of wins that were told. */
enum gate_loss {
    GATE_LOSES_NOTHING,
    GATE_LOSES_ACCEPTED,    /* those told as accepted when ack_timeout was over, no others */
    GATE_LOSES_AT_FAILOVER, /* the last ones, when a replica takes over that lacks them */
    GATE_LOSES_SECONDS,     /* those of the last two seconds, when it crashes */
    GATE_LOSES_PENDING,     /* all that the ledger has not yet, when it crashes */
};

/* What to know of a gate before a policy opens. */
struct gate_survey {
    int64_t ahead_ms; /* how far the clock that judges the window is before ours */
    enum gate_loss loss;
};

/* So many units are about to leave the ledger for the gate: until they are lent it tells nobody
 * that nothing is left, whatever the policy's row says. 0: none are on their way. After *wait_ms
 * they may be lent. GATE_LEASES_AGREE: none are on their way, and the gate's leases are the
 * ledger's, so that nothing is on its way back either. */
#define GATE_LEASES_AGREE (-1)
enum status gate_announce(struct shared_gate *gate, int64_t policy_id, int64_t count,
                          int64_t *wait_ms, struct error *error) MUST_CHECK;

/* From here on gate_count() tells of all that happened before this call. May block. NOT_FOUND: the
 * gate has no such policy. UNAVAILABLE: it is away, and gate_count() tells what was. */
enum status gate_refresh(struct shared_gate *gate, int64_t policy_id,
                         struct error *error) MUST_CHECK;

/* Which of the gate's servers has the policy, as far as known: a number below GATE_PLACES_MAX. What
 * is slow or away at one place says nothing about the others. It may change at any time. Never
 * blocks.
 */
#define GATE_PLACES_MAX 64
size_t gate_place(struct shared_gate *gate, int64_t policy_id);

/* Up to GATE_PENDING_MAX claims and bound keys after that seq. NOT_FOUND is no status of this:
 * is_known tells. */
enum status gate_pending(struct shared_gate *gate, int64_t policy_id, int64_t after_seq,
                         struct gate_pending *pending, struct error *error) MUST_CHECK;

/* The ledger has these bound keys, all of one policy. */
enum status gate_acknowledge_keys(struct shared_gate *gate, const struct key_binding *bindings,
                                  size_t count, struct error *error) MUST_CHECK;

/* Whether another server may take the place of the one that has a policy: then something may be
 * armed there for as long as it was once armed. */
bool gate_can_move(const struct shared_gate *gate);

/* The policy is in that term from now on; `previous` is the newest one before. When it was armed in
 * that one and has lost nothing since, it goes on as it is; else it is disarmed. NOT_FOUND: the
 * gate does not have it. */
enum status gate_take_over(struct shared_gate *gate, int64_t policy_id, int64_t term,
                           int64_t previous, bool *is_continuous, struct error *error) MUST_CHECK;

/* Disarms the policy and forgets its stock and users; leases up to `last_seq`, the last that was
 * ever lent, stay refused. CONFLICT: something is pending in it, or it was lent more than that, so
 * that whoever asks is late. */
enum status gate_reset(struct shared_gate *gate, int64_t policy_id, int64_t last_seq, int64_t term,
                       struct error *error) MUST_CHECK;

/* What time it is where the policy is. */
enum status gate_moment(struct shared_gate *gate, int64_t policy_id, struct gate_moment *moment,
                        struct error *error) MUST_CHECK;

/* From now on the gate answers for the policy, until the arming's time is over; `active_count` is
 * how many active coupons the ledger has, all of them restored before. UNAVAILABLE: what was built
 * since the reset is not there any more, or the time is over already. */
enum status gate_arm(struct shared_gate *gate, int64_t policy_id, int64_t active_count,
                     const struct gate_arming *arming, struct error *error) MUST_CHECK;

/* Renewing what is armed, from one thread: asks every server what time it is, then the caller asks
 * the ledger for the newest terms, then what is armed in them stays so for that long from the time
 * that was told. False: wherever there is one, somebody has renewed less than `pause_ms` ago, and
 * nothing need be done. Terms that the ledger did not confirm after the beginning may be given
 * where nothing can move. */
bool gate_renewal_begin(struct shared_gate *gate, int64_t pause_ms);
void gate_renew(struct shared_gate *gate, const struct gate_term *terms, size_t count,
                int64_t length_ms, bool is_confirmed);

/* Coupons of one policy that the ledger gave while the gate was away: their users hold them here
 * too from now on, and their keys answer; of those that are not active only the keys. Takes no
 * stock; what is here already is passed over. UNAVAILABLE: the gate does not answer for the policy
 * just now, which it tells also of no coupons at all; NOT_FOUND: it does not have it. */
enum status gate_enter(struct shared_gate *gate, int64_t policy_id, const struct claim *claims,
                       const enum coupon_state *states, size_t count,
                       struct error *error) MUST_CHECK;

/* The leases that the gate remembers, the caller's to free(), also when this fails; and the
 * highest id of all it has ever had: one up to that which is not told is sold. */
enum status gate_leases(struct shared_gate *gate, int64_t policy_id, struct gate_lease **leases,
                        size_t *count, int64_t *highest_id, struct error *error) MUST_CHECK;

/* Lets go of a policy that is closed and has nothing pending, after so many seconds. BUSY: it is
 * not, or has. */
enum status gate_retire(struct shared_gate *gate, int64_t policy_id, int64_t seconds,
                        struct error *error) MUST_CHECK;

/* The caller whose token was given last publishes what is pending: *mark is the seq up to which all
 * of it was published. */
enum status gate_publish(struct shared_gate *gate, int64_t policy_id, const char *token,
                         int64_t *mark, struct error *error) MUST_CHECK;

/* Moves that mark, which never goes back. CONFLICT: another token was given since. */
enum status gate_published(struct shared_gate *gate, int64_t policy_id, const char *token,
                           int64_t seq, struct error *error) MUST_CHECK;

/* --- auditing --- */

/* What is pending though its user does not hold it: user, nth and seq of at most
 * `max` claims. */
enum status gate_strays(struct shared_gate *gate, int64_t policy_id, struct claim *strays,
                        size_t max, size_t *count, struct error *error) MUST_CHECK;

/* Puts claims right; what is right already is passed over. */
enum status gate_fix(struct shared_gate *gate, int64_t policy_id, const struct gate_fix *fixes,
                     size_t count, int64_t *changed_count, struct error *error) MUST_CHECK;

/* Disarms the policy: its steward builds it anew. */
enum status gate_disarm(struct shared_gate *gate, int64_t policy_id,
                        struct error *error) MUST_CHECK;

/* --- what the ledger has lost --- */

/* The ids of all policies that the gate itself has, in rising order, whoever put them there. *ids
 * is the caller's to free(), also when this fails: then it has those of the servers that could be
 * read. The names of all keys are read for it. */
enum status gate_enumerate(struct shared_gate *gate, int64_t **ids, size_t *count,
                           struct error *error) MUST_CHECK;

/* The ledger lacks this policy, or has an older copy of it. From here on nobody
 * is answered, nothing is drained, lent or built, and what the gate holds stays. */
enum status gate_suspend(struct shared_gate *gate, int64_t policy_id,
                         struct error *error) MUST_CHECK;

/* Forgets all of a suspended policy, which the ledger has now, or somebody has
 * let go; and what this process remembers of it. One that is not there is fine. */
enum status gate_forget(struct shared_gate *gate, int64_t policy_id,
                        struct error *error) MUST_CHECK;

/* Whether the gate can be asked just now, and if not why; "ok" otherwise. Never blocks. */
bool gate_is_ready(struct shared_gate *gate, struct error *reason);

/* How full a server of the gate is, as last measured. */
#define GATE_SERVER_SIZE 300
struct gate_room {
    char server[GATE_SERVER_SIZE]; /* host:port */
    int64_t used_bytes;
    int64_t limit_bytes; /* 0: none */
    int64_t key_count;   /* of everyone who uses its database */
};

/* Those that answered within the last seconds, at most `max`. Never blocks. */
size_t gate_rooms(struct shared_gate *gate, struct gate_room *rooms, size_t max);

/* Asks the gate's server of this policy now; blocks. UNAVAILABLE: it is away. */
enum status gate_survey(struct shared_gate *gate, int64_t policy_id, struct gate_survey *survey,
                        struct error *error) MUST_CHECK;
