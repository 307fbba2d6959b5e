/* local_policy.h: one policy of the gate in process memory; for the local gate's own files only.
 *
 * Threads: everything is under `lock` but what says otherwise.
 */
#ifndef GATE_LOCAL_POLICY_H
#define GATE_LOCAL_POLICY_H

#include <pthread.h>
#include <stdatomic.h>

#include "gate/blocklist.h"
#include "gate/gate.h"
#include "gate/holdings.h"

/* What is left of a lease. */
struct stock {
    int64_t lease_id;
    int64_t first_seq;
    int64_t next_seq;
    int64_t end_seq; /* the first seq that is not of this lease */
};

struct local_policy {
    pthread_mutex_t lock;
    int64_t id;
    struct policy policy; /* as last set; its stock columns only tell what is unleased */
    struct holdings holdings;
    struct stock *stock; /* leases that still have units, oldest first */
    size_t stock_count;
    size_t stock_capacity;
    int64_t remaining;
    int64_t active_count;
    int64_t pending_count;
    int64_t acknowledged_seq; /* claims up to here are in the ledger */
    int64_t lease_id_top;
    int64_t seq_top;     /* of all leases accepted and claims restored */
    int64_t last_win_ms; /* while sold out: when that happened */
    uint64_t last_ticket;
    uint64_t binding_ticket; /* the last that carried a bound key */
    _Atomic uint32_t void_count;
};

static inline bool local_policy_is_closed(const struct local_policy *policy, int64_t now_ms)
{
    const struct policy *row = &policy->policy;
    return row->closed_at_ms != 0 || (row->closes_at_ms != 0 && now_ms >= row->closes_at_ms);
}

static inline bool local_policy_is_sold_out(const struct local_policy *policy)
{
    return policy->remaining == 0 && policy->policy.unleased == 0;
}

/* Decides wishes in their order, the lock taken once per 64 of them. Takes the lock itself. */
void local_policy_claim(struct local_policy *policy, struct blocklist *blocklist,
                        const struct gate_outlet *outlet, struct wish **wishes, size_t count,
                        int64_t now_ms);

#endif
