/* gate.h: the gate in process memory as its own files see it.
 *
 * Threads: `policies_lock` is around the list, each policy has a lock of its own, and the list of
 * blocked users sees to itself; the rest is set while opening and constant after.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "gate/blocklist.h"
#include "gate/gate.h"
#include "gate/local/holdings.h"

/* What is left of a lease. */
struct stock {
    int64_t lease_id;
    int64_t first_seq;
    int64_t next_seq;
    int64_t end_seq; /* the first seq that is not of this lease */
};

/* Everything is under its lock but what says otherwise. */
struct local_policy {
    pthread_mutex_t lock;
    int64_t id;         /* constant */
    struct policy *row; /* kept, as last set; its stock columns only tell what is unleased */
    struct holdings holdings;
    bool has_room;       /* of the go under way: for all that it may win */
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

static inline bool local_policy_is_sold_out(const struct local_policy *policy)
{
    return policy->remaining == 0 && policy->row->unleased == 0;
}

struct gate_local {
    struct gate gate;
    struct gate_outlet outlet;
    pthread_rwlock_t policies_lock; /* the list; policies never go away while the gate is open */
    struct local_policy **policies; /* by rising id */
    size_t policy_count;
    size_t policy_capacity;
    atomic_bool is_filling; /* some policies are still to come */
    struct blocklist blocklist;
};

static inline struct gate_local *gate_local_of(struct gate *gate)
{
    return (struct gate_local *)gate;
}

/* Under the list's lock: where the id is or would be. */
size_t gate_local_position(const struct gate_local *local, int64_t id);

/* NULL: there is none. The policy stays as long as the gate is open. */
struct local_policy *gate_local_policy(struct gate_local *local, int64_t id);

/* The same with its lock taken. NULL: there is none, and status and words say so: NOT_FOUND, or
 * UNAVAILABLE while it may be still to come. */
struct local_policy *gate_local_lock(struct gate *gate, int64_t id, enum status *status,
                                     struct error *error);

/* Returns that status. */
enum status local_policy_unlock(struct local_policy *policy, enum status status);

/* Nobody can find it any more. */
void local_policy_free(struct local_policy *policy);

/* Takes a policy whose room is made into the list; false: there is no memory. When there is one
 * with its id already, that one stays and *policy becomes it. */
bool gate_local_enlist(struct gate_local *local, struct local_policy **policy);

/* Slots of struct gate_ops. */
enum status gate_local_policy_set(struct gate *gate, const struct policy *row, struct error *error);
enum status gate_local_lend(struct gate *gate, const struct lease *lease, int64_t given_count,
                            int64_t term, struct error *error);
enum status gate_local_recall(struct gate *gate, int64_t policy_id, int64_t count,
                              struct lease_shrunk *shrunk, size_t *shrunk_count,
                              struct error *error);
enum status gate_local_restore(struct gate *gate, const struct claim *claim,
                               enum coupon_state state, struct error *error);
enum status gate_local_restore_key(struct gate *gate, const struct key_binding *binding,
                                   struct error *error);
enum status gate_local_find(struct gate *gate, int64_t policy_id, const struct id *user,
                            struct gate_claim *claims, size_t claims_max, size_t *count,
                            struct error *error);
enum status gate_local_count(struct gate *gate, int64_t policy_id, int64_t now_ms,
                             struct gate_numbers *numbers);
size_t gate_local_list(struct gate *gate, int64_t after_id, int64_t *ids, size_t ids_max);
enum status gate_local_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                               struct error *error);
enum status gate_local_visit(struct gate *gate, int64_t policy_id,
                             const struct claim_visitor *visitor, struct error *error);
