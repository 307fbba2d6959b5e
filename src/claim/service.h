/* service.h: the running system: gate, ledger and the duties between them, wired once.
 *
 * The operations here are what the API offers besides claiming (which goes through a desk). They
 * block on the ledger, so they run on pool threads, never on a loop.
 *
 * Threads: every operation may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/model.h"
#include "claim/notices.h"
#include "claim/shared/breaker.h"
#include "claim/worker_pool.h"
#include "event/kafka/kafka.h"
#include "event/webhook/webhook.h"
#include "gate/gate.h"
#include "ledger/ledger.h"
#include "ledger/reissue.h"
#include "ledger/sales/sales.h"

struct service;
struct ranking;

/* What this process is there for. */
enum service_role {
    SERVICE_SERVES, /* answers people; with a ledger that cannot be shared it works as well */
    SERVICE_WORKS,  /* drains a shared gate */
    SERVICE_AUDITS, /* only looks at a shared gate and its ledger, and repairs them */
};

/* What becomes of claims while a shared gate is away. */
enum service_fallback { FALLBACK_REJECT, FALLBACK_LEDGER };

/* Where the ranking's counters are. */
enum service_board { BOARD_WITH_GATE, BOARD_LOCAL, BOARD_REDIS };

struct service_options {
    enum service_role role;
    const char *gate_url;
    const char *gate_password; /* NULL: as the URL says */
    int64_t gate_timeout_ms;   /* 0: the gate's default */
    enum gate_ack ack;
    int replicas;
    enum service_fallback fallback;
    int64_t sync_interval_ms;  /* between looks of a worker at what rarely changes; 0: 10 s */
    int64_t orders_keep_days;  /* 0: for ever */
    int64_t audit_interval_ms; /* between audits in the background; 0: none */
    int64_t stop_timeout_ms;   /* for draining at the end */
    int64_t start_timeout_ms;  /* for a Redis or a database that is not there yet; 0: none */
    const char *ledger_url;
    const char *ledger_password; /* NULL: as the URL or the environment says */
    enum ledger_use ledger_use;
    int64_t ledger_timeout_ms; /* 0: the ledger's default */
    const char *relay_url;
    const char *relay_password; /* NULL: as the URL says */
    struct kafka_names kafka_names;
    struct webhook_options webhook; /* its URL "": none */
    enum ledger_integrity integrity;
    enum service_board board;
    int64_t ranking_half_life_ms; /* 0: nothing fades */
    const char *ranking_weights;  /* see ranking/scoring.h; NULL: orders alone */
    const char *timezone;         /* of the days that sales are counted in; NULL: UTC */
    int64_t ranking_refresh_ms;   /* 0: the ranking's default */
    size_t pending_max;
    int worker_batch;        /* pending claims that are read at once; 0: as many as can be */
    int64_t worker_pause_ms; /* between looks at what is quiet, at most; 0: the worker's default */
    int issue_attempts;      /* of a claim whose row is refused; 0: the ledger's default */
    int64_t ack_timeout_ms;
    unsigned pool_threads; /* threads for blocking operations */
    bool has_code_key;
    struct hash_key code_key; /* when the operator keeps it; else the ledger does */
};

/* Opens the ledger, restores a gate in memory from it, and starts the steward and the pool threads,
 * or for a shared gate the sync and, where it belongs, the worker. Says on the log how much was
 * restored. A database or a Redis that is not there yet is waited for, as the log says; what will
 * not change by itself (a password, a schema, an owner) fails at once. */
enum status service_open(struct service **service, const struct service_options *options,
                         struct error *error) MUST_CHECK;

/* Ends the pool threads and the steward, commits what is pending, closes the ledger. The desks must
 * be closed before. */
void service_close(struct service *service);

struct gate *service_gate(struct service *service);
/* What has happened lately, for people who watch. */
struct notices *service_notices(struct service *service);
/* Where answered claims are counted; NULL in a process that does not serve. */
struct totals *service_totals(struct service *service);
struct ledger *service_ledger(struct service *service);

/* Whether reading asks nobody but this process: the gate is in its memory, the ledger in a file. */
bool service_reads_at_home(const struct service *service);

/* --- pool threads: threads for what blocks --- */

/* False when too many tasks wait already where it would (answer 503). */
bool service_submit(struct service *service, struct pool_task *task);
struct pool_numbers service_count_tasks(struct service *service, enum pool_queue queue);

/* --- policies --- */

/* A policy as the API shows it. */
struct policy_view {
    struct policy policy;
    struct gate_numbers numbers;
};

/* From here on gate_count() tells of all that happened before this call, also in other processes,
 * unless the gate is away. Blocks. */
void service_observe(struct service *service, int64_t policy_id);

/* Ready to claim when it returns. policy->id 0: the next free id. CONFLICT: the id is taken. */
enum status service_policy_create(struct service *service, const struct policy *policy,
                                  struct policy_view *view, struct error *error) MUST_CHECK;
enum status service_policy_show(struct service *service, int64_t id, struct policy_view *view,
                                struct error *error) MUST_CHECK;
enum status service_policy_list(struct service *service, int64_t after_id,
                                struct policy_view *views, size_t max, size_t *count,
                                struct error *error) MUST_CHECK;

/* change->now_ms is set by the service. NOT_FOUND, or CONFLICT: total below issued + pending, a
 * change of a closed policy. INVALID: the window would end before it begins. */
enum status service_policy_change(struct service *service, int64_t id,
                                  const struct policy_change *change, struct policy_view *view,
                                  struct error *error) MUST_CHECK;

/* --- claims and coupons --- */

#define CLAIMS_OF_USER_MAX (PER_USER_LIMIT_MAX + 24) /* shown at most, latest first */

struct claim_status {
    struct coupon coupon; /* for a pending claim: only `claim` is filled */
    bool pending;
    int64_t ahead;
};

/* The user's claims of a policy, pending ones included, latest first. NOT_FOUND: no such policy;
 * *count is 0 when the user has none. `policy_state` and `sold_out_at_ms` in `numbers`. */
enum status service_claims_of(struct service *service, int64_t policy_id, const struct id *user,
                              struct claim_status *claims, size_t max, size_t *count,
                              struct gate_numbers *numbers, struct error *error) MUST_CHECK;

enum status service_coupon_get(struct service *service, int64_t policy_id, int64_t seq,
                               struct coupon *coupon, struct error *error) MUST_CHECK;
enum status service_coupons_of_user(struct service *service, const struct id *user,
                                    int64_t after_policy_id, int64_t after_seq,
                                    struct coupon *coupons, size_t max, size_t *count,
                                    struct error *error) MUST_CHECK;
/* What the ledger has of a policy after the given seq, by rising seqs. */
enum status service_coupons_of_policy(struct service *service, int64_t policy_id, int64_t after_seq,
                                      struct coupon *coupons, size_t max, size_t *count,
                                      struct error *error) MUST_CHECK;
/* order_id->length 0: none given. CONFLICT fills `coupon` and says why. */
enum status service_coupon_redeem(struct service *service, int64_t policy_id, int64_t seq,
                                  const struct id *order_id, const char *traceparent,
                                  struct coupon *coupon, struct error *error) MUST_CHECK;
/* The unit is claimable again within a second, with a new seq. */
enum status service_coupon_cancel(struct service *service, int64_t policy_id, int64_t seq,
                                  const char *traceparent, struct coupon *coupon,
                                  struct error *error) MUST_CHECK;

/* Puts a new coupon in the place of one whose code was lost or has leaked; asked again, it is the
 * one that was put there. CONFLICT fills `coupon` with the old one and says why. */
enum status service_coupon_reissue(struct service *service, int64_t policy_id, int64_t seq,
                                   const char *traceparent, struct coupon *coupon,
                                   struct error *error) MUST_CHECK;

/* Claims that are won and that the ledger does not have yet, after the given seq, by rising seqs:
 * the oldest first. NOT_FOUND: no such policy. */
enum status service_pending_claims(struct service *service, int64_t policy_id, int64_t after_seq,
                                   struct claim *claims, size_t max, size_t *count,
                                   struct error *error) MUST_CHECK;

/* --- users --- */

enum status service_user_block(struct service *service, const struct id *user, bool blocked,
                               struct error *error) MUST_CHECK;

/* What erasing a person did. */
#define ERASURE_POLICIES_MAX 5
struct erasure_report {
    struct id pseudonym;
    int64_t coupon_count;                     /* claims that have it now, whatever became of them */
    int64_t policy_ids[ERASURE_POLICIES_MAX]; /* of CONFLICT: where they could claim again */
    size_t policy_count;
};

/* ERASE_SAFELY refuses while the person is blocked, or has an active coupon of a policy that is not
 * over, since under their old id they are new afterwards. */
enum erase_care { ERASE_SAFELY, ERASE_ANYWAY };

/* Replaces the person's id by a pseudonym, in ledger and gate; what is under way is waited for.
 * Nobody wins under the id meanwhile. Erasing twice is fine, and finishes what was cut short.
 * CONFLICT: see above. UNAVAILABLE: the ledger may have it, and the gate not yet; the id stays
 * blocked until it is erased once more. */
enum status service_user_erase(struct service *service, const struct id *user, enum erase_care care,
                               struct erasure_report *report, struct error *error) MUST_CHECK;

/* --- dead letters --- */

/* Lets the letter's user win again: a fresh unit and seq through the gate, and the letter is gone.
 * Once: a letter that was retried before, wherever, is put away with the claim that was won then.
 * NOT_FOUND: no such letter. CONFLICT: the gate does not let them win, and why; the letter stays.
 */
enum status service_dead_letter_retry(struct service *service, int64_t policy_id, int64_t seq,
                                      struct wish *wish, struct error *error) MUST_CHECK;

/* --- sales --- */

/* As the ledger's calls of these names, with the time set by the service. UNKNOWN: the same call
 * again tells. */
enum status service_orders_add(struct service *service, struct order *orders, size_t count,
                               struct error *error) MUST_CHECK;
enum status service_order_refund(struct service *service, const struct id *order_id,
                                 struct order *order, bool *is_news,
                                 struct error *error) MUST_CHECK;
/* Sets each product's updated_at_ms. */
enum status service_products_put(struct service *service, struct product *products, size_t count,
                                 struct error *error) MUST_CHECK;

/* Views and carts, for a ranking by score. CONFLICT: none is set, and they would count nothing. */
enum status service_signals_add(struct service *service, struct signal *signals, size_t count,
                                struct error *error) MUST_CHECK;

/* Orders and signals that were sent to this process, by their results. */
struct sales_numbers {
    _Atomic uint64_t orders[ORDER_DIFFERS + 1];
    _Atomic uint64_t orders_failed; /* of which nothing is known: they will be sent again */
    _Atomic uint64_t refunds;
    _Atomic uint64_t signals[SIGNAL_DIFFERS + 1];
};
const struct sales_numbers *service_sales(const struct service *service);

/* Which products sell best; NULL in a process that does not serve. */
struct ranking *service_ranking(struct service *service);

/* --- the webhook --- */

/* How it does, whichever process delivers. */
struct webhook_view {
    struct ledger_sink_state state;
    struct ledger_backlog backlog;
    bool is_given_up; /* it fails for so long that it is tried only now and then */
};

/* Each: CONFLICT, when none is set. */
enum status service_webhook_show(struct service *service, struct webhook_view *view,
                                 struct error *error) MUST_CHECK;
/* Sends a test from this process, and when it arrives lets what waits be tried at once. */
enum status service_webhook_test(struct service *service, struct webhook_answer *answer,
                                 struct error *error) MUST_CHECK;
/* Lets what waits be tried at once, whichever process delivers. */
enum status service_webhook_enable(struct service *service, struct error *error) MUST_CHECK;
/* Tells again of every change since then, of one policy or of all (0), in their order, behind what
 * waits. Takes as long as reading all of their coupons. */
enum status service_webhook_redeliver(struct service *service, int64_t since_ms, int64_t policy_id,
                                      int64_t *count, struct error *error) MUST_CHECK;

/* --- without the gate --- */

/* Numbers of the fallback for a shared gate that is away. */
struct fallback_numbers {
    uint64_t breakers[BREAKER_STATES]; /* policies whose breaker is in that state, but the closed */
    uint64_t switches[BREAKER_STATES]; /* how often one went into that state */
    uint64_t won;                      /* claims decided in the ledger */
    uint64_t held;
    uint64_t refused;
    uint64_t entering; /* winners that the gate has not heard of yet */
};

/* Numbers of the worker in this process. */
struct worker_numbers {
    uint64_t drained;            /* claims that the gate was told of */
    double drained_per_second;   /* in the last few seconds */
    int64_t pending;             /* in the gate, of all policies as last seen */
    int64_t oldest_requested_ms; /* wall, of the pending ones as last seen; 0: none */
    uint64_t reconciled;         /* policies built anew in the gate */
    uint64_t refused;            /* times that the ledger did not take a claim, for now */
};

/* False: none works in this process. */
bool service_count_worker(struct service *service, struct worker_numbers *numbers);

/* Shared gate only: claims in it that the ledger does not have yet, and dead letters, as last read;
 * -1: this gate is not shared. *stuck_ms is for how long claims of a policy have been pending while
 * none of them was written, as seen from here. */
int64_t service_pending(struct service *service, int64_t *stuck_ms);
int64_t service_dead_letter_count(struct service *service);

/* Shared gate only: live workers, as last read from the ledger; -1: not read yet, or this gate is
 * not shared. */
int64_t service_worker_count(struct service *service);

/* Writes the metrics of what joins gate and ledger, and of events and orders, as far as this
 * process has them. */
void service_write_flow(struct service *service, struct buffer *out);

/* The trace that the request with that id came with, for the event of its claim. Only a claim that
 * is decided and issued in this process takes it along. */
void service_trace(struct service *service, const struct request_id *request_id,
                   struct span traceparent);

/* False: this gate is never away. */
bool service_count_fallback(struct service *service, struct fallback_numbers *numbers);

/* --- readiness --- */

struct service_part {
    const char *name; /* "gate", "ledger", "relay", "steward", "workers", "webhook" */
    const char *kind; /* "local", "sqlite", "direct" */
    bool ready;
    bool claims_go_on; /* also while it is not ready */
    char text[256];    /* "ok", or what is wrong */
};
#define SERVICE_PARTS 6
/* Cheap and non-blocking: may be called on a loop. Fills `parts`; only a shared gate has workers,
 * and only who delivers events to a webhook tells of that. True when this process can serve:
 * workers are told of, but claims are won without them, and where no server answered for it nobody
 * could claim. */
bool service_parts(struct service *service, struct service_part parts[SERVICE_PARTS],
                   size_t *count);
