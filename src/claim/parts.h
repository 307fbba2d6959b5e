/* parts.h: what a running service is made of; for the files of claim/ only.
 *
 * Threads: the pointers are set while opening and constant after; each part has its own rule.
 */
#ifndef CLAIM_PARTS_H
#define CLAIM_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/traces.h"
#include "claim/audit_watch.h"
#include "claim/clerk.h"
#include "claim/fallback.h"
#include "claim/service.h"
#include "claim/steward.h"
#include "claim/sync.h"
#include "claim/terms.h"
#include "claim/workers.h"
#include "ranking/ranking.h"
#include "ranking/redis.h"
#include "relay/announcer.h"
#include "relay/kafka_orders.h"
#include "relay/relay.h"

#define DESKS_MAX        256
#define SERVICE_CODE_KEY "code_key" /* the ledger's secret that codes are made with */

/* How to wake a loop whose desk waits for something. */
struct desk_bell {
    _Atomic size_t *waiting_count; /* nobody is woken for an empty desk */
    void (*ring)(void *context);
    void *context;
};

/* Orders and signals that were sent to this process. */
struct service_sales_counters {
    _Atomic uint64_t orders[ORDER_DIFFERS + 1]; /* by enum order_result */
    _Atomic uint64_t orders_failed;
    _Atomic uint64_t refunds;
    _Atomic uint64_t signals[SIGNAL_DIFFERS + 1]; /* by enum signal_result */
};

struct service {
    struct service_options options;
    struct gate *gate;
    struct ledger *ledger;
    struct relay *relay;
    struct steward steward;
    struct sync *sync;                   /* of a shared gate; else NULL */
    struct terms *terms;                 /* of a shared gate; else NULL */
    struct workers *workers;             /* of a shared gate, when this process works; else NULL */
    struct announcer *_Atomic announcer; /* where other services are told; else NULL */
    struct kafka_orders *orders;         /* where orders come in from other systems; else NULL */
    struct traces *traces;               /* where claims are decided and told of; else NULL */
    struct fallback *fallback;           /* of a shared gate; else NULL */
    struct audit_watch *audit_watch;     /* where audits go on; else NULL */
    struct clerks clerks;
    struct scoring scoring;
    struct service_sales_counters sales;
    struct ranking *ranking; /* where people are served; else NULL */
    struct zone *zone;
    struct hash_key code_key;
    int64_t *short_codes; /* policies of old whose codes have 8 characters, in rising order */
    size_t short_code_count;
    _Atomic int64_t letter_count;   /* dead letters, as last counted */
    _Atomic int64_t worker_count;   /* of a shared gate: workers that live, as last counted */
    _Atomic uint64_t stock_changes; /* rises when a policy's stock or window may have changed */
    struct notices notices;
    pthread_mutex_t bells_lock;
    struct desk_bell bells[DESKS_MAX];
    size_t bell_count;
};

/* Wakes every desk that has claims waiting. */
void service_ring(struct service *service);

/* Lets the desks decide again those who wait for stock. */
void service_stock_changed(struct service *service);

/* Reads the policy from the ledger and tells the gate. */
enum status service_refresh(struct service *service, int64_t policy_id, struct policy *policy,
                            struct error *error) MUST_CHECK;

/* The gate's numbers of a policy that the ledger has, also when another process has just created
 * it. Blocks. UNAVAILABLE: the gate is away, and has not told of it before. */
enum status service_numbers(struct service *service, int64_t policy_id,
                            struct gate_numbers *numbers, struct error *error) MUST_CHECK;

/* What is told to whoever wants a change while gate and ledger do not agree on an earlier one. */
enum status service_not_yet(struct error *error) MUST_CHECK;

/* After a write in doubt, when the ledger can be asked: tells the gate what is there now. `lease`
 * may have been taken with it, unless its count is 0. Under steward_lock(). */
enum status service_policy_settle(struct service *service, int64_t policy_id,
                                  const struct lease *lease, struct error *error) MUST_CHECK;
enum status service_coupon_settle(struct service *service, int64_t policy_id, int64_t seq,
                                  struct error *error) MUST_CHECK;
enum status service_user_settle(struct service *service, const struct user_id *user,
                                struct error *error) MUST_CHECK;

/* The board that sales are counted on, for a server's ranking. */
struct board;
enum status service_open_board(struct service *service, struct board **board,
                               struct error *error) MUST_CHECK;

/* Builds the gate from the ledger; before anything else runs. */
enum status service_restore(struct service *service, struct error *error) MUST_CHECK;

#endif
