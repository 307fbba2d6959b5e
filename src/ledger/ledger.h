/* ledger.h: the database, the truth. Policies, leases, coupons, blocked users.
 *
 * Two ways in. Issuing claims never waits: ledger_issue() appends to the queue and returns a
 * ticket; a writer thread commits everything that has gathered in one transaction, in order, and
 * then says which ticket is durable. Everything else is an ordinary blocking call: writes ride in
 * the same group commits, reads use read-only sessions of their own. A write that answers UNKNOWN
 * may have been done; the ledger is not healthy again before that is known, and then a read tells.
 *
 * In one snapshot: total = unleased + Σ open leases (count − rows in their range) + active.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/metrics.h"
#include "base/model.h"
#include "base/traces.h"

struct ledger;
struct zone;

enum ledger_integrity { LEDGER_CHECK_QUICK, LEDGER_CHECK_FULL, LEDGER_CHECK_OFF };

/* A gate in this process's memory owns its ledger alone; servers and workers of a shared gate share
 * one. SQLite is never shared between processes. */
enum ledger_use { LEDGER_OWN, LEDGER_SHARE };

/* Where events of coupons go; each has an outbox of its own. */
enum ledger_sink { LEDGER_SINK_KAFKA, LEDGER_SINK_WEBHOOK, LEDGER_SINKS };

#define SINK_TEXT_SIZE 200

/* Writes the traceparent that a request came with; false: it came with none. */
typedef bool (*ledger_trace_fn)(void *context, const struct request_id *request_id,
                                char traceparent[TRACEPARENT_SIZE]);

struct ledger_options {
    const char *url; /* "sqlite:dibs.db", "postgres://host/database", "mysql://host/database" */
    const char *password; /* NULL: as the URL or the environment says */
    enum ledger_use use;
    enum ledger_integrity integrity;
    int64_t timeout_ms;       /* for a connection, a statement, a lock; 0: 10 s */
    unsigned readers;         /* read-only sessions */
    const struct zone *zone;  /* of the days that sales are counted in; NULL: UTC. Outlives it */
    int issue_attempts;       /* of a claim whose row is refused, where it is shared; 0: 6 */
    int64_t orders_keep_days; /* 0: for ever */
    bool keeps_moments;       /* of sales, for a ranking by score; see ledger/sales/sales.h */
    /* On the writer thread, after a commit and before its ticket counts as durable: what became
     * of each claim, in order. PENDING, of a shared gate's: the database refuses it for now, and it
     * is to be issued again, with one more attempt. */
    void (*on_issued)(void *context, const struct claim *claims, const enum coupon_state *states,
                      size_t count);
    /* On the writer thread, after tickets became durable: wake whoever waits. */
    void (*on_durable)(void *context);
    /* Every change of a coupon is noted in the outbox of each of these, in the transaction that
     * makes it. */
    bool tells[LEDGER_SINKS];
    /* On the writer thread, after a commit with events. May be NULL. */
    void (*on_events)(void *context);
    /* On the writer thread: the trace that a claim's request came with. May be NULL. */
    ledger_trace_fn find_trace;
    void *context;
};

/* Opens, checks, migrates and, with LEDGER_OWN, takes ownership for this process. CONFLICT: another
 * process owns it; the words say who. */
enum status ledger_open(struct ledger **ledger, const struct ledger_options *options,
                        struct error *error) MUST_CHECK;

/* False when no other process can use it at the same time. */
bool ledger_is_shareable(const struct ledger *ledger);

/* Commits what is queued (unless the database refuses), then closes. */
void ledger_close(struct ledger *ledger);

/* --- issuing --- */

/* Queues claims and bound keys; the ticket is durable when ledger_durable() has reached it. */
uint64_t ledger_issue(struct ledger *ledger, const struct claim *claims, size_t claim_count,
                      const struct key_binding *bindings, size_t binding_count);
uint64_t ledger_durable(const struct ledger *ledger);

/* Claims queued and not durable. */
size_t ledger_pending(const struct ledger *ledger);

/* Bytes left on the disk that it writes to; -1: that is another machine's. */
int64_t ledger_room(const struct ledger *ledger);

/* False while commits fail (disk full, database away): claims are refused before the gate. */
bool ledger_healthy(const struct ledger *ledger);

/* One claim from unleased stock in one transaction: what serves people while the gate is away. */
struct ledger_wish {
    /* asked */
    int64_t policy_id;
    struct id user;
    struct request_id request_id;
    int64_t now_ms;
    /* decided */
    enum verdict verdict; /* WON, HELD and the refusals; UNAVAILABLE: no unleased stock is left */
    struct coupon coupon; /* of WON and HELD */
    bool is_news;         /* the coupon is marked: a gate has something to hear of it */
    int64_t opens_at_ms;  /* of NOT_OPEN */
};
enum status ledger_claim(struct ledger *ledger, struct ledger_wish *wish,
                         struct error *error) MUST_CHECK;

/* --- what a shared gate has not heard of ---
 *
 * A coupon that ledger_claim() gave or bound a key to is marked in the same transaction, until the
 * gate has been told of it. Any process may do that, also several at once. */
struct entering_coupon {
    struct coupon coupon;
    int64_t changes; /* another one whenever there is more to tell of it */
};

/* Policies above `after_id` that have such coupons, in rising order. */
enum status ledger_entering_policies(struct ledger *ledger, int64_t after_id, int64_t *ids,
                                     size_t max, size_t *count, struct error *error) MUST_CHECK;

/* Policies above `after_id` whose codes have 8 characters, in rising order; no new ones come. */
enum status ledger_short_code_policies(struct ledger *ledger, int64_t after_id, int64_t *ids,
                                       size_t max, size_t *count, struct error *error) MUST_CHECK;

/* The first of a policy's, in rising order of seqs. `key` is called for every key that is bound to
 * one of them besides its own. */
enum status ledger_entering(struct ledger *ledger, int64_t policy_id,
                            struct entering_coupon *coupons, size_t max, size_t *count,
                            enum status (*key)(void *context, const struct key_binding *binding,
                                               struct error *error),
                            void *context, struct error *error) MUST_CHECK;

/* The gate has heard of these, as they were then; one that is not so any more is marked anew.
 * *left_count is how many are marked. */
enum status ledger_entered(struct ledger *ledger, const struct entering_coupon *coupons,
                           size_t count, size_t *left_count, struct error *error) MUST_CHECK;

/* No gate has to hear of this policy's any more. */
enum status ledger_entering_forget(struct ledger *ledger, int64_t policy_id,
                                   struct error *error) MUST_CHECK;

/* --- policies and leases --- */

/* The steward of a shared gate's policy has a term, which the ledger counts. Its writes carry the
 * term, and are refused in the same transaction when there is a later one. A gate that is not
 * shared has no terms. */
#define LEDGER_NO_TERM 0

/* The steward of a policy in a shared ledger from its creation, in term 1, until that is done, or
 * for 5 s. */
#define LEDGER_CREATOR    "creator"
#define LEDGER_FIRST_TERM 1

/* Inserts the policy (id 0: the next free one is given) and takes its first lease of
 * total − reserve units. CONFLICT: the id is taken. */
enum status ledger_policy_create(struct ledger *ledger, struct policy *policy, struct lease *lease,
                                 struct error *error) MUST_CHECK;
enum status ledger_policy_get(struct ledger *ledger, int64_t id, struct policy *policy,
                              struct error *error) MUST_CHECK;
/* Up to `max` policies with ids above after_id, in rising order. */
enum status ledger_policy_list(struct ledger *ledger, int64_t after_id, struct policy *policies,
                               size_t max, size_t *count, struct error *error) MUST_CHECK;

/* Applies the change in one transaction, after the gate has given back what `shrunk` says.
 * CONFLICT when total would fall below what is not unleased, or the policy is closed.
 * `policy` becomes what is now there. Closing twice is fine. */
enum status ledger_policy_change(struct ledger *ledger, int64_t id,
                                 const struct policy_change *change,
                                 const struct lease_shrunk *shrunk, size_t shrunk_count,
                                 struct policy *policy, struct error *error) MUST_CHECK;

/* Lends everything unleased but `keep` units. lease->count is 0 when there was nothing. CONFLICT:
 * the policy is in a later term. */
enum status ledger_lease_take(struct ledger *ledger, int64_t policy_id, int64_t term, int64_t keep,
                              struct lease *lease, struct policy *policy,
                              struct error *error) MUST_CHECK;

/* Closes a lease: what it never gave out returns to unleased. CONFLICT: its policy is in a later
 * term. */
enum status ledger_lease_close(struct ledger *ledger, int64_t lease_id, int64_t term,
                               struct error *error) MUST_CHECK;

/* Closes leases whose every seq has its row, so that no unit of theirs is left to return; all of
 * them at once. */
enum status ledger_used_leases_close(struct ledger *ledger, const int64_t *lease_ids, size_t count,
                                     struct error *error) MUST_CHECK;

/* The open leases of a policy, in rising order; *leases is the caller's to free(), also when this
 * fails. */
enum status ledger_lease_list(struct ledger *ledger, int64_t policy_id, struct lease **leases,
                              size_t *count, struct error *error) MUST_CHECK;

/* --- stewards --- */

struct ledger_stewardship {
    bool is_held; /* false: another one that lives is the steward */
    int64_t term;
    int64_t previous; /* the newest term before; 0: there was none */
};

/* Makes `holder` the steward of a policy in its next term, which is above `above` as well, unless
 * another one is that lives, by the database's clock. */
enum status ledger_steward_take(struct ledger *ledger, int64_t policy_id, const char *holder,
                                int64_t above, struct ledger_stewardship *taken,
                                struct error *error) MUST_CHECK;
/* The term stays the newest; the next one to look after the policy takes the one behind it. */
enum status ledger_steward_release(struct ledger *ledger, int64_t policy_id, const char *holder,
                                   struct error *error) MUST_CHECK;
/* Releases all that the holder looks after. */
enum status ledger_steward_leave(struct ledger *ledger, char *holder,
                                 struct error *error) MUST_CHECK;

/* CONFLICT: that term is not the policy's newest. */
enum status ledger_steward_confirm(struct ledger *ledger, int64_t policy_id, int64_t term,
                                   struct error *error) MUST_CHECK;

/* The newest term of a policy. */
struct ledger_term {
    int64_t policy_id;
    int64_t term;
    bool is_own;  /* whoever asks is its steward */
    bool is_held; /* its steward lives, or its creator has time left */
};
/* False: no memory for it. */
typedef bool (*ledger_term_fn)(void *context, const struct ledger_term *term);

/* Notes that `holder` lives for so much longer ("": nobody), and tells the terms of all policies
 * that are not over, by rising ids. */
enum status ledger_steward_beat(struct ledger *ledger, const char *holder, int64_t life_ms,
                                ledger_term_fn tell, void *context, struct error *error) MUST_CHECK;

/* How many workers live by the database's clock, or did so `grace_ms` ago. */
enum status ledger_worker_count(struct ledger *ledger, int64_t grace_ms, int64_t *count,
                                struct error *error) MUST_CHECK;

/* --- coupons --- */

enum status ledger_coupon_get(struct ledger *ledger, int64_t policy_id, int64_t seq,
                              struct coupon *coupon, struct error *error) MUST_CHECK;

/* All coupons of a user in rising (policy_id, seq) order, after the
 * given pair; the page's cursor is the last pair. */
enum status ledger_coupons_of_user(struct ledger *ledger, const struct id *user,
                                   int64_t after_policy_id, int64_t after_seq,
                                   struct coupon *coupons, size_t max, size_t *count,
                                   struct error *error) MUST_CHECK;

/* A user's coupons of one policy, latest seq first. */
enum status ledger_coupons_of_claimant(struct ledger *ledger, int64_t policy_id,
                                       const struct id *user, struct coupon *coupons, size_t max,
                                       size_t *count, struct error *error) MUST_CHECK;

/* Every row of a policy after the given seq, by rising seqs, of whatever state. */
enum status ledger_coupons_of_policy(struct ledger *ledger, int64_t policy_id, int64_t after_seq,
                                     struct coupon *coupons, size_t max, size_t *count,
                                     struct error *error) MUST_CHECK;

/* Idempotent: a coupon redeemed for the same order stays as it is. The event tells of
 * `traceparent` (NULL: none). CONFLICT with the reason when
 * it is cancelled, void, expired or redeemed for another order; `coupon` is filled then too. */
enum status ledger_coupon_redeem(struct ledger *ledger, int64_t policy_id, int64_t seq,
                                 const struct id *order_id, int64_t now_ms, const char *traceparent,
                                 struct coupon *coupon, struct error *error) MUST_CHECK;

/* Frees the slot and returns the unit to unleased; idempotent. CONFLICT when redeemed, expired or
 * void. `policy` becomes what is now there. */
enum status ledger_coupon_cancel(struct ledger *ledger, int64_t policy_id, int64_t seq,
                                 int64_t now_ms, const char *traceparent, struct coupon *coupon,
                                 struct policy *policy, struct error *error) MUST_CHECK;

/* --- dead letters --- */

/* Claims of a shared gate that ended VOID for good, by rising policies and seqs, after that pair.
 */
enum status ledger_dead_letters(struct ledger *ledger, int64_t after_policy_id, int64_t after_seq,
                                struct dead_letter *letters, size_t max, size_t *count,
                                struct error *error) MUST_CHECK;
enum status ledger_dead_letter_get(struct ledger *ledger, int64_t policy_id, int64_t seq,
                                   struct dead_letter *letter, struct error *error) MUST_CHECK;
enum status ledger_dead_letter_count(struct ledger *ledger, int64_t *count,
                                     struct error *error) MUST_CHECK;
/* Writes letters in one transaction; one that is there already stays as it is. A letter of what
 * came in and is no claim has policy 0, and its seq names the message. */
enum status ledger_dead_letters_write(struct ledger *ledger, const struct dead_letter *letters,
                                      size_t count, struct error *error) MUST_CHECK;
/* `letter` becomes what was there. NOT_FOUND: there was none. */
enum status ledger_dead_letter_drop(struct ledger *ledger, int64_t policy_id, int64_t seq,
                                    struct dead_letter *letter, struct error *error) MUST_CHECK;

/* --- events --- */

/* The events of a policy are numbered 1, 2, 3, … in the order in which their changes were
 * committed, and become visible in that order. */
struct ledger_event_place {
    int64_t policy_id;
    int64_t number;
};

/* A coupon as a change left it. A coupon is in a state at most once: its id and the state name the
 * event, also when it is told of twice. */
struct ledger_event {
    struct ledger_event_place place;
    /* Without its lease. ISSUED, VOID or MERGED at first, REDEEMED or CANCELLED later; it expires
     * when it would have as things were then. */
    struct coupon coupon;
    int64_t changed_at_ms;
    char traceparent[TRACEPARENT_SIZE]; /* "": none */
};

/* Up to `max` events for the sink after that place, by rising policies, then numbers. */
enum status ledger_events(struct ledger *ledger, enum ledger_sink sink,
                          const struct ledger_event_place *after, struct ledger_event *events,
                          size_t max, size_t *count, struct error *error) MUST_CHECK;

/* Forgets events that the sink has delivered: of each policy all up to the given number. */
enum status ledger_events_drop(struct ledger *ledger, enum ledger_sink sink,
                               const struct ledger_event_place *places, size_t count,
                               struct error *error) MUST_CHECK;

struct ledger_backlog {
    int64_t count;
    int64_t oldest_at_ms; /* 0: there is none */
};

/* Notes events for the sink once more, behind those that wait, in the order given; their coupons'
 * states are those that are told. CONFLICT: this process tells that sink nothing. */
enum status ledger_events_repeat(struct ledger *ledger, enum ledger_sink sink,
                                 const struct ledger_event *events, size_t count,
                                 struct error *error) MUST_CHECK;

/* What waits to be delivered by the sink. Counts the rows: not for every second. */
enum status ledger_event_backlog(struct ledger *ledger, enum ledger_sink sink,
                                 struct ledger_backlog *backlog, struct error *error) MUST_CHECK;

/* Since when a sink delivers nothing (wall; 0: it does) and why, for all processes, and how often
 * somebody asked to have it tried at once. */
struct ledger_sink_state {
    int64_t failing_since_ms;
    int64_t asked;
    char text[SINK_TEXT_SIZE];
};
enum status ledger_sink_state_get(struct ledger *ledger, enum ledger_sink sink,
                                  struct ledger_sink_state *state, struct error *error) MUST_CHECK;
/* `asked` stays as it is. */
enum status ledger_sink_state_put(struct ledger *ledger, enum ledger_sink sink,
                                  const struct ledger_sink_state *state,
                                  struct error *error) MUST_CHECK;
enum status ledger_sink_ask(struct ledger *ledger, enum ledger_sink sink,
                            struct error *error) MUST_CHECK;

/* --- duties --- */

/* Makes `holder` the one of all processes that does this for `term_ms` more, unless another one is:
 * *held says which. The database's clock decides. */
enum status ledger_duty_hold(struct ledger *ledger, const char *name, const char *holder,
                             int64_t term_ms, bool *held, struct error *error) MUST_CHECK;
enum status ledger_duty_release(struct ledger *ledger, const char *name, const char *holder,
                                struct error *error) MUST_CHECK;

/* --- users --- */

enum status ledger_user_block(struct ledger *ledger, const struct id *user, bool blocked,
                              int64_t now_ms, struct error *error) MUST_CHECK;
enum status ledger_user_blocked(struct ledger *ledger, const struct id *user, bool *blocked,
                                struct error *error) MUST_CHECK;

/* --- secrets the ledger keeps for its servers --- */

/* The bytes kept under `name`; made from `fresh` when there are none yet. */
enum status ledger_secret(struct ledger *ledger, const char *name, const uint8_t *fresh,
                          uint8_t *bytes, size_t length, struct error *error) MUST_CHECK;

/* --- the schema --- */

enum ledger_migration { LEDGER_MIGRATION_SHOW, LEDGER_MIGRATION_APPLY };

/* Told of every migration that the database lacks, before it is applied. */
typedef void (*ledger_migration_fn)(void *context, int number, const char *name, const char *text);

/* Brings the database's schema up to date, or only tells what that would take. FAILED: the database
 * has a newer schema than this build knows. */
enum status ledger_migrate(const struct ledger_options *options, enum ledger_migration mode,
                           ledger_migration_fn note, void *context, struct error *error) MUST_CHECK;

/* The number of the schema that this build has for such a database; 0: no such kind. */
int ledger_schema(const char *url);

/* Whether another process keeps it, which may be away; else it is a file. */
bool ledger_is_served(const char *url);

/* --- restoring a gate --- */

struct ledger_visitor {
    /* One that is damaged comes with words in `error`; one with a damaged lease comes again. */
    enum status (*policy)(void *context, const struct policy *policy, struct error *error);
    /* By rising seqs within a policy. */
    enum status (*claim)(void *context, const struct claim *claim, enum coupon_state state,
                         struct error *error);
    enum status (*key)(void *context, const struct key_binding *binding, struct error *error);
    /* One that is open. */
    enum status (*lease)(void *context, const struct lease *lease, struct error *error);
    enum status (*blocked)(void *context, const struct id *user, struct error *error);
    void *context;
};

/* Walks all that some policies are rebuilt from, in the order of the callbacks above, in one
 * snapshot: those with the highest ids below *below_id, as many as make one stretch of work. They
 * come by falling ids, and *below_id is the lowest of them afterwards; 0: none is left. */
#define LEDGER_ABOVE_ALL INT64_MAX
enum status ledger_visit_below(struct ledger *ledger, int64_t *below_id,
                               const struct ledger_visitor *visitor,
                               struct error *error) MUST_CHECK;

/* The claims of one policy and, unless `key` is NULL, its keys, in one snapshot; a key comes with
 * whose claim it is. */
enum status ledger_visit_policy(struct ledger *ledger, int64_t policy_id,
                                const struct ledger_visitor *visitor,
                                struct error *error) MUST_CHECK;

/* The blocked users. */
enum status ledger_visit_blocked(struct ledger *ledger, const struct ledger_visitor *visitor,
                                 struct error *error) MUST_CHECK;

/* --- an older ledger --- */

/* Whether the database was last seen to be older than what this process has committed: restored
 * from a backup, or a replica that lagged. Nothing is written to it then but a repair, and reads of
 * policies, coupons and users are UNAVAILABLE. */
bool ledger_is_behind(const struct ledger *ledger);

enum ledger_difference {
    LEDGER_LACKS,       /* a claim that it had once and has not */
    LEDGER_LACKS_YET,   /* a pending claim: no gap */
    LEDGER_IS_LATE,     /* a coupon that is redeemed or cancelled, and ISSUED here */
    LEDGER_HAS_MORE,    /* a coupon that the gate never gave, or gave otherwise: the ledger's row */
    LEDGER_HEARD_TWICE, /* a seq that two users hold in the gate */
};

/* What a gate and its service remember. */
struct ledger_memory {
    /* Tells of one policy its row, with the first seq that no lease has had; its leases with units
     * left (and how many were given out), by rising ids, and the highest one closed and empty when
     * it has none left; its claims by rising seqs; its keys. With policy_id 0 of every policy, by
     * rising ids, and then all blocked users. A status of the listener's that is not OK ends it. It
     * may be called again. */
    enum status (*tell)(void *context, int64_t policy_id, const struct claim_visitor *listener,
                        struct error *error);
    void *context;
    const char *secret_name; /* of ledger_secret(); NULL: it is kept elsewhere */
    const uint8_t *secret;
    size_t secret_length;
    bool forgets_freed; /* claims whose slot was freed are not told: they may be in the ledger */
    /* Told of every difference that ledger_compare() finds, one by one. May be NULL. */
    void (*differs)(void *context, enum ledger_difference difference,
                    const struct held_claim *held);
};

/* What the ledger lacks of one policy, or lacked before a repair. */
struct ledger_gap {
    int64_t policy_id;
    bool lacks_policy;
    bool has_older_policy;
    int64_t missing_count;   /* claims that it had once and has not */
    int64_t pending_count;   /* claims that it has not yet: no gap */
    int64_t redeemed_count;  /* coupons that are redeemed, and ISSUED here */
    int64_t cancelled_count; /* coupons that are cancelled, and ISSUED here */
    int64_t key_count;       /* bound keys that it lacked; only a repair counts them */
    int64_t unknown_count;   /* coupons that the gate never gave, or gave otherwise */
};

/* Compares the ledger with what is remembered of one policy, while people may use both. */
enum status ledger_compare(struct ledger *ledger, const struct ledger_memory *memory,
                           int64_t policy_id, struct ledger_gap *gap,
                           struct error *error) MUST_CHECK;

/* Where a policy's units are: total = unleased + leased + active, or the ledger is broken. */
struct ledger_balance {
    int64_t total;
    int64_t unleased;
    int64_t leased; /* Σ open leases (count − coupons in their range) */
    int64_t active;
    int64_t coupons;     /* rows, in whatever state */
    int64_t highest_seq; /* of them; 0: none */
    int64_t misplaced;   /* rows whose slot does not fit their state */
    int64_t over_limit;  /* users with more active coupons than per_user_limit */
    int64_t stray;       /* rows of a lease that the policy never had */
    int64_t version;
    int64_t next_seq;
};

/* Counted in one snapshot. NOT_FOUND: the ledger has no such policy. */
enum status ledger_balance(struct ledger *ledger, int64_t policy_id, struct ledger_balance *balance,
                           struct error *error) MUST_CHECK;

/* Makes the sums of a policy right by what is unleased; or, where that is asked, gives its coupons
 * their places and leaves the sums alone. Nobody's coupon goes. */
#define LEDGER_KEPT_SIZE 400
struct ledger_fix {
    /* asked */
    int64_t policy_id;
    int64_t term;       /* of a steward's; CONFLICT: there is a later one */
    bool raises_total;  /* when more coupons are active than there may be and nothing is lent */
    bool adopts_strays; /* coupons of a lease that never was become coupons without one */
    bool
        places_coupons; /* slots fit states and numbers; coupons above the limit are kept as such */
    bool only_if_asked; /* nothing is done unless a repair of the policy is under way */
    /* done */
    bool is_renumbered;          /* coupons have other numbers than the gate knows */
    int64_t kept_count;          /* coupons above the limit */
    char kept[LEDGER_KEPT_SIZE]; /* the first of them, with their users */
    bool is_changed;
    struct policy before; /* of what was looked at */
    struct policy after;
};

/* CONFLICT: more is issued and lent than there is, so that leases have to come back first. */
enum status ledger_fix(struct ledger *ledger, struct ledger_fix *fix,
                       struct error *error) MUST_CHECK;

/* All leases that a policy ever had, by rising first seqs; *leases is the caller's to free(), also
 * when this fails. */
enum status ledger_lease_history(struct ledger *ledger, int64_t policy_id, struct lease **leases,
                                 size_t *count, struct error *error) MUST_CHECK;

/* What a repair was to do and did, kept for good. */
#define LEDGER_REPAIR_TEXT_SIZE 1000
struct ledger_repair_note {
    int64_t asked_at_ms; /* with the policy its name */
    int64_t policy_id;
    int64_t done_at_ms; /* 0: it is under way */
    char plan[LEDGER_REPAIR_TEXT_SIZE];
    char outcome[LEDGER_REPAIR_TEXT_SIZE];
};
enum status ledger_repair_begin(struct ledger *ledger, const struct ledger_repair_note *note,
                                struct error *error) MUST_CHECK;
enum status ledger_repair_end(struct ledger *ledger, const struct ledger_repair_note *note,
                              struct error *error) MUST_CHECK;
/* Up to `max` of them, the newest first. */
enum status ledger_repairs(struct ledger *ledger, struct ledger_repair_note *notes, size_t max,
                           size_t *count, struct error *error) MUST_CHECK;

/* What a repair did. */
struct ledger_repair {
    bool is_done; /* false: the ledger was not behind, and nothing was done */
    int64_t policy_count;
    int64_t written_count; /* coupons */
    int64_t redeemed_count;
    int64_t cancelled_count;
    int64_t key_count;
    int64_t blocked_count;
    int64_t unblocked_count;
};

/* Writes into an older ledger, in one transaction, what is remembered and it lacks; logs what was
 * done for each policy. Does nothing when the ledger is not older. The caller sees to it that no
 * policy, lease or user is changed meanwhile. CONFLICT: it is not an older copy of this ledger, or
 * a repair is under way. UNKNOWN: it may have been done; ledger_is_behind() will tell. */
enum status ledger_repair(struct ledger *ledger, const struct ledger_memory *memory,
                          struct ledger_repair *done, struct error *error) MUST_CHECK;

/* The same for a ledger that is not older and still differs from the one gate that feeds it. */
enum status ledger_rewrite(struct ledger *ledger, const struct ledger_memory *memory,
                           struct ledger_repair *done, struct error *error) MUST_CHECK;

/* Writes one policy of a shared gate that the ledger lost, or has an older copy of, in one
 * transaction: its row, unless the ledger's is the newer, its claims, its keys. Its leases are
 * closed, and what is not issued is unleased. The ledger's own coupons stay, but for one in the
 * place (user and nth) of a claim that the gate has: that was cancelled since. A claim whose seq
 * the ledger has given to another becomes a dead letter. A second call changes nothing. */
enum status ledger_write_back(struct ledger *ledger, const struct ledger_memory *memory,
                              int64_t policy_id, struct ledger_repair *done,
                              struct error *error) MUST_CHECK;

/* --- seeing inside --- */

struct ledger_stats {
    struct histogram commit_ns;  /* from BEGIN to the return of COMMIT */
    struct histogram batch_size; /* claims per commit */
    struct histogram lag_ns; /* of each coupon: from its claim's time at the gate to its commit */
    _Atomic uint64_t commits;
    _Atomic uint64_t commit_failures;
    _Atomic uint64_t claims_issued;
    _Atomic uint64_t claims_void;
    _Atomic uint64_t checkpoints;    /* of a file: its log started over */
    _Atomic uint64_t log_bytes;      /* of a file: in its log */
    _Atomic uint64_t slowed_commits; /* of a file: held back because its log was too long */
};
const struct ledger_stats *ledger_stats(const struct ledger *ledger);

/* The kind of database and a word on its state, for /readyz: "sqlite", "ok" or why not. */
const char *ledger_kind(const struct ledger *ledger);
void ledger_state(struct ledger *ledger, struct error *failure);
