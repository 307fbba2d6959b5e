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
#ifndef GATE_GATE_H
#define GATE_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"

/* One press of the button, and what became of it. */
struct wish {
    /* asked */
    int64_t policy_id;
    struct user_id user;
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

/* What a gate tells of itself. A status other than OK ends the walk and is returned by it. */
struct gate_visitor {
    /* The row as last set; `next_seq` is above every seq the gate has seen. */
    enum status (*policy)(void *context, const struct policy *policy, struct error *error);
    /* A lease with units left, of which the first `given_count` were given out. When the highest
     * lease seen has none left, it comes last: closed and empty. */
    enum status (*lease)(void *context, const struct lease *lease, int64_t given_count,
                         struct error *error);
    /* In rising seq order, also those whose slot was freed as far as the gate keeps them. The lease
     * is not kept: its id is 0. */
    enum status (*claim)(void *context, const struct held_claim *held, struct error *error);
    enum status (*key)(void *context, const struct key_binding *binding, struct error *error);
    enum status (*blocked)(void *context, const struct user_id *user, struct error *error);
    void *context;
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

/* What a shared gate keeps of a policy until the ledger has it, and how the policy stands. */
#define GATE_PENDING_MAX 500
struct gate_pending {
    struct claim claims[GATE_PENDING_MAX]; /* in seq order */
    size_t claim_count;
    struct key_binding bindings[GATE_PENDING_MAX];
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
    int64_t term;             /* the latest that it was told of */
    int64_t selling_lease_id; /* that the next win is from; 0: none */
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

/* What is put right in a shared gate, of one claim. */
enum gate_mending {
    GATE_MEND_PENDING, /* it is held, and goes to the ledger once more */
    GATE_MEND_HELD,    /* it is pending, and is held again */
    GATE_MEND_REMOVE,  /* no lease ever gave it */
};
struct gate_mend {
    enum gate_mending mending;
    struct claim claim;
};

enum gate_ack { GATE_ACK_GATE, GATE_ACK_LEDGER };

/* What may be lost of wins that were told. */
enum gate_loss {
    GATE_LOSES_NOTHING,
    GATE_LOSES_AT_FAILOVER, /* the last ones, when a replica takes over that lacks them */
    GATE_LOSES_SECONDS,     /* those of the last two seconds, when it crashes */
    GATE_LOSES_PENDING,     /* all that the ledger has not yet, when it crashes */
};

/* What to know of a gate before a policy opens. */
struct gate_survey {
    int64_t ahead_ms; /* how far the clock that judges the window is before ours */
    enum gate_loss loss;
};

struct gate_options {
    const char *url;      /* "local", "redis://…" */
    const char *password; /* NULL: as the URL says */
    struct gate_outlet outlet;
    enum gate_ack ack;      /* of a shared gate: when a win may be told */
    int64_t ack_timeout_ms; /* of GATE_ACK_LEDGER: then it is told as accepted */
    int64_t timeout_ms;     /* for an answer of another process; then UNAVAILABLE */
    int64_t pending_max;    /* over so many pending claims nobody is asked */
    int replicas;           /* of a shared gate: that must have a win before it is told */
    /* Of a shared gate, from a thread of its own: stock or terms of a policy have changed. */
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

/* A backend. Every slot is required. */
struct gate_ops {
    const char *name;
    bool decides_at_once; /* gate_claim() is never false: wishes may lie anywhere meanwhile */
    bool is_shared;       /* by processes: it keeps what is pending until the ledger has it */
    void (*close)(struct gate *gate);
    enum status (*policy_set)(struct gate *gate, const struct policy *policy, struct error *error);
    enum status (*announce)(struct gate *gate, int64_t policy_id, int64_t count, int64_t *wait_ms,
                            struct error *error);
    enum status (*lend)(struct gate *gate, const struct lease *lease, int64_t given_count,
                        int64_t term, struct error *error);
    enum status (*recall)(struct gate *gate, int64_t policy_id, int64_t count,
                          struct lease_shrunk *shrunk, size_t *shrunk_count, struct error *error);
    enum status (*restore)(struct gate *gate, const struct claim *claim, enum coupon_state state,
                           struct error *error);
    enum status (*restore_key)(struct gate *gate, const struct key_binding *binding,
                               struct error *error);
    enum status (*line_open)(struct gate *gate, const struct gate_line_options *options,
                             struct gate_line **line, struct error *error);
    void (*line_close)(struct gate_line *line);
    bool (*claim)(struct gate_line *line, struct gate_batch *batch, int64_t now_ms);
    void (*acknowledge)(struct gate *gate, const struct claim *claims,
                        const enum coupon_state *states, size_t count);
    enum status (*settle)(struct gate *gate, int64_t policy_id, const struct user_id *user,
                          int64_t seq, enum coupon_state state, struct error *error);
    enum status (*block)(struct gate *gate, const struct user_id *user, bool blocked,
                         struct error *error);
    enum status (*find)(struct gate *gate, int64_t policy_id, const struct user_id *user,
                        struct gate_claim *claims, size_t claims_max, size_t *count,
                        struct error *error);
    enum status (*count)(struct gate *gate, int64_t policy_id, int64_t now_ms,
                         struct gate_numbers *numbers);
    enum status (*look)(struct gate *gate, int64_t policy_id, struct error *error);
    size_t (*list)(struct gate *gate, int64_t after_id, int64_t *ids, size_t ids_max);
    size_t (*place)(struct gate *gate, int64_t policy_id);
    bool (*stands)(struct gate *gate, const struct wish *wish);
    enum status (*pending)(struct gate *gate, int64_t policy_id, int64_t after_seq,
                           struct gate_pending *pending, struct error *error);
    enum status (*acknowledge_keys)(struct gate *gate, const struct key_binding *bindings,
                                    size_t count, struct error *error);
    bool (*can_move)(const struct gate *gate);
    enum status (*take_over)(struct gate *gate, int64_t policy_id, int64_t term, int64_t previous,
                             bool *is_continuous, struct error *error);
    enum status (*reset)(struct gate *gate, int64_t policy_id, int64_t last_seq, int64_t term,
                         struct error *error);
    enum status (*moment)(struct gate *gate, int64_t policy_id, struct gate_moment *moment,
                          struct error *error);
    enum status (*arm)(struct gate *gate, int64_t policy_id, int64_t active_count,
                       const struct gate_arming *arming, struct error *error);
    bool (*renewal_begin)(struct gate *gate, int64_t pause_ms);
    void (*renew)(struct gate *gate, const struct gate_term *terms, size_t count, int64_t length_ms,
                  bool is_confirmed);
    enum status (*enter)(struct gate *gate, int64_t policy_id, const struct claim *claims,
                         const enum coupon_state *states, size_t count, struct error *error);
    enum status (*leases)(struct gate *gate, int64_t policy_id, struct gate_lease **leases,
                          size_t *count, int64_t *highest_id, struct error *error);
    enum status (*retire)(struct gate *gate, int64_t policy_id, int64_t seconds,
                          struct error *error);
    enum status (*publish)(struct gate *gate, int64_t policy_id, const char *token, int64_t *mark,
                           struct error *error);
    enum status (*published)(struct gate *gate, int64_t policy_id, const char *token, int64_t seq,
                             struct error *error);
    enum status (*inspect)(struct gate *gate, int64_t policy_id, struct gate_state *state,
                           struct error *error);
    enum status (*strays)(struct gate *gate, int64_t policy_id, struct claim *strays, size_t max,
                          size_t *count, struct error *error);
    enum status (*mend)(struct gate *gate, int64_t policy_id, const struct gate_mend *mends,
                        size_t count, int64_t *changed_count, struct error *error);
    enum status (*lay_down)(struct gate *gate, int64_t policy_id, struct error *error);
    enum status (*enumerate)(struct gate *gate, int64_t **ids, size_t *count, struct error *error);
    enum status (*suspend)(struct gate *gate, int64_t policy_id, struct error *error);
    enum status (*forget)(struct gate *gate, int64_t policy_id, struct error *error);
    bool (*is_ready)(struct gate *gate, struct error *words);
    enum status (*survey)(struct gate *gate, int64_t policy_id, struct gate_survey *survey,
                          struct error *error);
    enum status (*visit)(struct gate *gate, int64_t policy_id, const struct gate_visitor *visitor,
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
void gate_close(struct gate *gate);

/* Makes a policy known, or brings its limit, window, pause, close and unleased count up to date.
 * An older version than the one held is ignored. Never touches the stock in the gate. */
enum status gate_policy_set(struct gate *gate, const struct policy *policy,
                            struct error *error) MUST_CHECK;

/* So many units are about to leave the ledger for the gate: until they are lent it tells nobody
 * that nothing is left, whatever the policy's row says. 0: none are on their way. After *wait_ms
 * they may be lent. */
enum status gate_announce(struct gate *gate, int64_t policy_id, int64_t count, int64_t *wait_ms,
                          struct error *error) MUST_CHECK;

/* Adds a lease's units, of which the first `given_count` were given out already (0 for a new
 * one; more only when restoring). A lease whose id is not above every lease seen, or whose next
 * seq is not above every seq seen, is refused with CONFLICT: a stalled steward's second push; so is
 * one of a term before the policy's. UNKNOWN: a gate in another process may have taken it; lending
 * it again tells, by OK or CONFLICT. */
enum status gate_lend(struct gate *gate, const struct lease *lease, int64_t given_count,
                      int64_t term, struct error *error) MUST_CHECK;

/* Takes `count` units back from the end of the leases, all or none: CONFLICT when the gate has
 * fewer. GATE_RECALL_ALL takes whatever there is, in as many calls as it needs: the last one
 * shrinks no lease. `shrunk` has GATE_RECALL_LEASES_MAX places. UNKNOWN: a gate in another process
 * may have given them up; they come back when the policy is built anew. */
enum status gate_recall(struct gate *gate, int64_t policy_id, int64_t count,
                        struct lease_shrunk *shrunk, size_t *shrunk_count,
                        struct error *error) MUST_CHECK;

/* Rebuilding from the ledger: a claim that is durable, in rising seq order per policy, before
 * anything is claimed; and the keys bound to it besides its own. NOT_FOUND: a key of a claim that
 * there is none of. */
enum status gate_restore(struct gate *gate, const struct claim *claim, enum coupon_state state,
                         struct error *error) MUST_CHECK;
enum status gate_restore_key(struct gate *gate, const struct key_binding *binding,
                             struct error *error) MUST_CHECK;

/* A line belongs to the thread of its loop, which opens, uses and closes it. Batches that are not
 * decided when it closes never will be. */
enum status gate_line_open(struct gate *gate, const struct gate_line_options *options,
                           struct gate_line **line, struct error *error) MUST_CHECK;
void gate_line_close(struct gate_line *line);

/* Decides all wishes of one tick for one policy, in their order. True: they are decided. False:
 * options.decided() will be called for this batch, exactly once. */
bool gate_claim(struct gate_line *line, struct gate_batch *batch, int64_t now_ms) MUST_CHECK;

/* Decides one wish, and waits for it: for those who have no line. Blocks. OK, whatever the verdict;
 * UNAVAILABLE: no memory to ask. */
enum status gate_ask(struct gate *gate, struct wish *wish, int64_t now_ms,
                     struct error *error) MUST_CHECK;

/* The ledger has these claims now, each in this state; VOID and MERGED free the user's slot. */
void gate_acknowledge(struct gate *gate, const struct claim *claims,
                      const enum coupon_state *states, size_t count);

/* A coupon's state changed in the ledger (redeemed, cancelled); CANCELLED and VOID free the slot. A
 * claim or policy that a shared gate does not have any more is no error. UNAVAILABLE: also while it
 * is being built anew. */
enum status gate_settle(struct gate *gate, int64_t policy_id, const struct user_id *user,
                        int64_t seq, enum coupon_state state, struct error *error) MUST_CHECK;

enum status gate_block(struct gate *gate, const struct user_id *user, bool blocked,
                       struct error *error) MUST_CHECK;

/* The user's active claims, newest first; *count may exceed claims_max. NOT_FOUND: no policy. */
enum status gate_find(struct gate *gate, int64_t policy_id, const struct user_id *user,
                      struct gate_claim *claims, size_t claims_max, size_t *count,
                      struct error *error) MUST_CHECK;

/* NOT_FOUND: no such policy. Never blocks, and cheap enough for a few calls a second per watcher:
 * of a shared gate they are the numbers of a moment ago, and a policy that another process has just
 * created may not be among them. */
enum status gate_count(struct gate *gate, int64_t policy_id, int64_t now_ms,
                       struct gate_numbers *numbers) MUST_CHECK;

/* From here on gate_count() tells of all that happened before this call. May block. NOT_FOUND: a
 * shared gate has no such policy. UNAVAILABLE: it is away, and gate_count() tells what was. */
enum status gate_look(struct gate *gate, int64_t policy_id, struct error *error) MUST_CHECK;

/* Policy ids above `after_id` in rising order. */
size_t gate_list(struct gate *gate, int64_t after_id, int64_t *ids, size_t ids_max);

/* Which of a gate's servers has the policy, as far as known: a number below GATE_PLACES_MAX. What
 * is slow or away at one place says nothing about the others. It may change at any time. Never
 * blocks.
 */
#define GATE_PLACES_MAX 64
size_t gate_place(struct gate *gate, int64_t policy_id);

/* Whether a verdict that waited for its ticket may be told now that the ticket is durable. False
 * when it may rest on a claim that ended VOID or MERGED: then it has to be decided again. A win
 * whose own claim was issued always stands, or one wish would take two units. */
bool gate_stands(struct gate *gate, const struct wish *wish);

/* --- a gate that processes share ---
 *
 * It is the outbox: a win stays in it until the ledger has it and says so. It answers for a policy
 * only while it is armed, which it forgets whenever it may have forgotten anything else; then the
 * steward resets it, restores the users from the ledger, lends it a fresh lease and arms it. It is
 * armed for a short time only, by its own clock, and stays so while that is renewed: only in the
 * term that is the ledger's newest, and only in the process that was armed. What a steward writes
 * in an earlier term is refused with CONFLICT. A gate in memory has nothing pending here, knows no
 * terms and is always armed. */

/* Up to GATE_PENDING_MAX claims and bound keys after that seq. NOT_FOUND is no status of this:
 * is_known tells. */
enum status gate_pending(struct gate *gate, int64_t policy_id, int64_t after_seq,
                         struct gate_pending *pending, struct error *error) MUST_CHECK;

/* The ledger has these bound keys, all of one policy. */
enum status gate_acknowledge_keys(struct gate *gate, const struct key_binding *bindings,
                                  size_t count, struct error *error) MUST_CHECK;

/* Whether another server may take the place of the one that has a policy: then something may be
 * armed there for as long as it was once armed. */
bool gate_can_move(const struct gate *gate);

/* The policy is in that term from now on; `previous` is the newest one before. When it was armed in
 * that one and has lost nothing since, it goes on as it is; else it is disarmed. NOT_FOUND: the
 * gate does not have it. */
enum status gate_take_over(struct gate *gate, int64_t policy_id, int64_t term, int64_t previous,
                           bool *is_continuous, struct error *error) MUST_CHECK;

/* Disarms the policy and forgets its stock and users; leases up to `last_seq`, the last that was
 * ever lent, stay refused. CONFLICT: something is pending in it, or it was lent more than that, so
 * that whoever asks is late. */
enum status gate_reset(struct gate *gate, int64_t policy_id, int64_t last_seq, int64_t term,
                       struct error *error) MUST_CHECK;

/* What time it is where the policy is. */
enum status gate_moment(struct gate *gate, int64_t policy_id, struct gate_moment *moment,
                        struct error *error) MUST_CHECK;

/* From now on the gate answers for the policy, until the arming's time is over; `active_count` is
 * how many active coupons the ledger has, all of them restored before. UNAVAILABLE: what was built
 * since the reset is not there any more, or the time is over already. */
enum status gate_arm(struct gate *gate, int64_t policy_id, int64_t active_count,
                     const struct gate_arming *arming, struct error *error) MUST_CHECK;

/* Renewing what is armed, from one thread: asks every server what time it is, then the caller asks
 * the ledger for the newest terms, then what is armed in them stays so for that long from the time
 * that was told. False: wherever there is one, somebody has renewed less than `pause_ms` ago, and
 * nothing need be done. Terms that the ledger did not confirm after the beginning may be given
 * where nothing can move. */
bool gate_renewal_begin(struct gate *gate, int64_t pause_ms);
void gate_renew(struct gate *gate, const struct gate_term *terms, size_t count, int64_t length_ms,
                bool is_confirmed);

/* Coupons of one policy that the ledger gave while the gate was away: their users hold them here
 * too from now on, and their keys answer; of those that are not active only the keys. Takes no
 * stock; what is here already is passed over. UNAVAILABLE: the gate does not answer for the policy
 * just now, which it tells also of no coupons at all; NOT_FOUND: it does not have it. */
enum status gate_enter(struct gate *gate, int64_t policy_id, const struct claim *claims,
                       const enum coupon_state *states, size_t count,
                       struct error *error) MUST_CHECK;

/* The leases that a shared gate remembers, the caller's to free(), also when this fails; and the
 * highest id of all it has ever had: one up to that which is not told is sold. */
enum status gate_leases(struct gate *gate, int64_t policy_id, struct gate_lease **leases,
                        size_t *count, int64_t *highest_id, struct error *error) MUST_CHECK;

/* Lets go of a policy that is closed and has nothing pending, after so many seconds. BUSY: it is
 * not, or has. */
enum status gate_retire(struct gate *gate, int64_t policy_id, int64_t seconds,
                        struct error *error) MUST_CHECK;

/* Whoever gave the last token publishes what is pending: *mark is the seq up to which all of it was
 * published. */
enum status gate_publish(struct gate *gate, int64_t policy_id, const char *token, int64_t *mark,
                         struct error *error) MUST_CHECK;

/* Moves that mark, which never goes back. CONFLICT: another token was given since. */
enum status gate_published(struct gate *gate, int64_t policy_id, const char *token, int64_t seq,
                           struct error *error) MUST_CHECK;

/* --- auditing --- */

/* Not knowing the policy is no failure: is_known tells. */
enum status gate_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                         struct error *error) MUST_CHECK;

/* What is pending in a shared gate though its user does not hold it: user, nth and seq of at most
 * `max` claims. */
enum status gate_strays(struct gate *gate, int64_t policy_id, struct claim *strays, size_t max,
                        size_t *count, struct error *error) MUST_CHECK;

/* Puts claims of a shared gate right; what is right already is passed over. */
enum status gate_mend(struct gate *gate, int64_t policy_id, const struct gate_mend *mends,
                      size_t count, int64_t *changed_count, struct error *error) MUST_CHECK;

/* Disarms the policy of a shared gate: its steward builds it anew. */
enum status gate_lay_down(struct gate *gate, int64_t policy_id, struct error *error) MUST_CHECK;

/* --- what the ledger has lost --- */

/* The ids of all policies that the gate itself has, in rising order, whoever put them there. *ids
 * is the caller's to free(), also when this fails: then it has those of the servers that could be
 * read. A shared gate reads the names of all its keys for it. */
enum status gate_enumerate(struct gate *gate, int64_t **ids, size_t *count,
                           struct error *error) MUST_CHECK;

/* Shared gate only: the ledger lacks this policy, or has an older copy of it. From here on nobody
 * is answered, nothing is drained, lent or built, and what the gate holds stays. */
enum status gate_suspend(struct gate *gate, int64_t policy_id, struct error *error) MUST_CHECK;

/* Shared gate only: forgets all of a suspended policy, which the ledger has now, or somebody has
 * let go; and what this process remembers of it. One that is not there is fine. */
enum status gate_forget(struct gate *gate, int64_t policy_id, struct error *error) MUST_CHECK;

/* Whether the gate can be asked just now, and if not why; "ok" otherwise. Never blocks. */
bool gate_is_ready(struct gate *gate, struct error *words);

/* Asks the gate's server of this policy now; blocks. UNAVAILABLE: it is away. */
enum status gate_survey(struct gate *gate, int64_t policy_id, struct gate_survey *survey,
                        struct error *error) MUST_CHECK;

/* Tells all that the gate holds of one policy: its row, its leases, its claims, the keys bound to
 * them; with GATE_VISIT_ALL of every policy in rising order of ids, and then the blocked users.
 * Claims go on meanwhile, and the visitor may take its time: it is called without a lock. What was
 * there when the walk began is told once; of what comes or changes meanwhile a part may be. A claim
 * that is not told was decided during the walk, under a lease that is told. NOT_FOUND: no such
 * policy. */
enum status gate_visit(struct gate *gate, int64_t policy_id, const struct gate_visitor *visitor,
                       struct error *error) MUST_CHECK;

#endif
