/* parts.h: what a running service is made of; for the files of claim/ only.
 *
 * Threads: the pointers are set while opening and constant after; each part has its own rule.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/traces.h"
#include "claim/local/restore.h"
#include "claim/local/steward.h"
#include "claim/service.h"
#include "claim/shared/fallback.h"
#include "claim/shared/sync.h"
#include "claim/shared/terms.h"
#include "claim/shared/workers.h"
#include "claim/topology.h"
#include "claim/worker_pool.h"
#include "event/announcer.h"
#include "event/kafka/kafka.h"
#include "ranking/ranking.h"
#include "ranking/redis/redis.h"
#include "relay/kafka.h"

#define DESKS_MAX        256
#define SERVICE_CODE_KEY "code_key" /* the ledger's secret that codes are made with */

/* How to wake a loop whose desk waits for something. */
struct desk_wakeup {
    _Atomic size_t *waiting_count; /* nobody is woken for an empty desk */
    void (*ring)(void *context);
    void *context;
};

struct service {
    struct service_options options;
    struct gate *gate;
    struct shared_gate *shared;      /* the same gate, where many share it; else NULL */
    const struct topology *topology; /* as the gate is shared or not */
    bool works;                      /* looks after policies: has the gate alone, or drains it */
    struct ledger *ledger;
    struct kafka *kafka;             /* where claims or events go through it; else NULL */
    struct relay *relay;             /* of a shared gate, when this process works; else NULL */
    struct relay_kafka *relay_kafka; /* the same with Kafka; else NULL */
    struct steward steward;
    struct restore *restore; /* of a gate in memory; else NULL */
    struct sync *sync;       /* of a shared gate; else NULL */
    struct terms *terms;     /* of a shared gate; else NULL */
    struct workers *workers; /* of a shared gate, when this process works; else NULL */
    /* That this process delivers events to, each by its outbox, and who does; else NULL. */
    struct event_sink *sinks[LEDGER_SINKS];
    struct announcer *_Atomic announcers[LEDGER_SINKS];
    struct kafka_orders *orders;     /* where orders come in from other systems; else NULL */
    struct traces *traces;           /* where claims are decided and told of; else NULL */
    struct fallback *fallback;       /* of a shared gate; else NULL */
    struct audit_watch *audit_watch; /* where audits go on; else NULL */
    struct totals *totals;           /* where people are served; else NULL */
    struct retention *retention;     /* where old orders are deleted; else NULL */
    struct worker_pool pool;
    struct scoring scoring;
    struct sales_numbers sales;
    struct ranking *ranking; /* where people are served; else NULL */
    struct zone *zone;
    struct hash_key code_key;
    int64_t *short_codes; /* policies of old whose codes have 8 characters, in rising order */
    size_t short_code_count;
    _Atomic int64_t dead_letter_count; /* dead letters, as last counted */
    _Atomic int64_t worker_count;      /* of a shared gate: workers that live, as last counted */
    _Atomic uint64_t stock_changes;    /* rises when a policy's stock or window may have changed */
    struct notices notices;
    pthread_mutex_t wakeups_lock;
    struct desk_wakeup wakeups[DESKS_MAX];
    size_t wakeup_count;
};

/* --- audit_watch.c: audits every policy again and again, and pauses one whose first guarantee is
 * broken --- */

/* A step of opening; nothing when this process has nothing to audit, or is told not to. */
enum status audit_watch_start(struct service *service, struct error *error) MUST_CHECK;
void audit_watch_stop(struct audit_watch *watch);

/* What people have to know of, "" as a rule. From any thread. */
void audit_watch_text(struct audit_watch *watch, char *text, size_t size);

/* --- events.c: Kafka, and what other services are told and tell --- */

/* Which event sinks the settings name; whether any. */
bool service_has_events(const struct service_options *options, bool tells[LEDGER_SINKS]);

/* Where the service's announcers are, NULL where there is none. */
void service_announcers(struct service *service, struct announcer *announcers[LEDGER_SINKS]);

enum status service_open_kafka(struct service *service, struct error *error) MUST_CHECK;
enum status service_open_events(struct service *service, struct error *error) MUST_CHECK;

/* Before the ledger is closed. */
void service_stop_events(struct service *service, int64_t stop_at_ms);

/* Nothing that was sent is reported any more after this. Before the workers end. */
void service_close_events(struct service *service);

/* On the ledger's thread, after a commit: there are new events. */
void service_on_events(void *context);

/* --- service.c --- */

/* Lets this thread do nothing for so long. */
void service_pause(int64_t pause_ms);

/* Whether no other process has this ledger. */
bool service_is_alone(const struct service *service);

/* Wakes every desk that has claims waiting: in desk.c, as the next. */
void service_ring(struct service *service);

/* Lets the desks decide again those who wait for stock. */
void service_stock_changed(struct service *service);

/* Reads the policy from the ledger and tells the gate. */
enum status service_refresh(struct service *service, int64_t policy_id, struct policy *policy,
                            struct error *error) MUST_CHECK;

/* Visits all policies that the ledger has, by rising ids. A visit that is not OK ends it. */
typedef enum status policy_visit(void *context, const struct policy *policy, struct error *error);
enum status service_each_policy(struct service *service, policy_visit *visit, void *context,
                                struct error *error) MUST_CHECK;

/* So many units of the gate's are about to be the ledger's: until it is told how many, nobody hears
 * SOLD_OUT. */
enum status service_policy_announce(struct service *service, const struct policy *policy,
                                    int64_t count, struct error *error) MUST_CHECK;

/* What is told to whoever wants a change while gate and ledger do not agree on an earlier one, or
 * the gate is being restored. */
enum status service_not_yet(struct error *error) MUST_CHECK;

/* After a write in doubt, when the ledger can be asked: tells the gate what is there now. `lease`
 * may have been taken with it, unless its count is 0. Under steward_lock(). */
enum status service_policy_settle(struct service *service, int64_t policy_id,
                                  const struct lease *lease, struct error *error) MUST_CHECK;
enum status service_coupon_settle(struct service *service, int64_t policy_id, int64_t seq,
                                  struct error *error) MUST_CHECK;
enum status service_user_settle(struct service *service, const struct id *user,
                                struct error *error) MUST_CHECK;

/* A write of the policy is in doubt, and a lease may have been taken with it, unless its count is
 * 0. */
void service_policy_doubt(struct service *service, int64_t policy_id, const struct lease *lease);

/* Lends the gate the lease, if it has units, before it hears that the ledger has none of them left:
 * nobody is told SOLD_OUT in between. */
enum status service_policy_lend(struct service *service, const struct policy *policy,
                                const struct lease *lease, int64_t term,
                                struct error *error) MUST_CHECK;

/* --- local/topology.c --- */

/* What a gate in memory hands its winners to; `context` is the service. */
uint64_t local_on_win(void *context, const struct claim *claims, size_t claim_count,
                      const struct key_binding *bindings, size_t binding_count);

/* --- shared/audit_repair.c --- */

/* A claim that nobody knows any more but by its seq, user and nth: that lease gave it. */
void claim_recover(struct claim *claim, const struct lease *lease);

/* The ledger has a claim again that it had lost: it is redeemed there where the gate says so. */
void service_redeem_again(struct service *service, const struct held_claim *held);

/* --- audit.c --- */

/* The lease whose range that seq is in, or NULL; also NULL when `state`, if it is not, says that
 * the gate has not come to that seq yet: nobody can hold it then. */
const struct lease *lease_that_gave(const struct lease *leases, size_t count,
                                    const struct gate_state *state, int64_t seq);

/* --- service.c --- */

/* The board that sales are counted on, for a server's ranking. */
struct board;
bool service_shares_board(const struct service *service);
enum status service_open_board(struct service *service, struct board **board,
                               struct error *error) MUST_CHECK;

/* A step of opening; again, after the gate was closed. */
enum status service_open_gate(struct service *service, struct error *error) MUST_CHECK;
