/* local_gate.h: the gate in process memory as its own files see it.
 *
 * Threads: `policies_lock` is around the list, each policy has a lock of its own, and the list of
 * blocked users sees to itself; the rest is set while opening and constant after.
 */
#ifndef GATE_LOCAL_GATE_H
#define GATE_LOCAL_GATE_H

#include <pthread.h>

#include "gate/local_policy.h"

struct gate_local {
    struct gate gate;
    struct gate_outlet outlet;
    pthread_rwlock_t policies_lock; /* the list; policies never go away while the gate is open */
    struct local_policy **policies; /* by rising id */
    size_t policy_count;
    size_t policy_capacity;
    struct blocklist blocklist;
};

static inline struct gate_local *gate_local_of(struct gate *gate)
{
    return (struct gate_local *)gate;
}

/* NULL: there is none. The policy stays as long as the gate is open. */
struct local_policy *gate_local_policy(struct gate_local *local, int64_t id);

/* Slots of struct gate_ops. */
enum status gate_local_find(struct gate *gate, int64_t policy_id, const struct user_id *user,
                            struct gate_claim *claims, size_t claims_max, size_t *count,
                            struct error *error);
enum status gate_local_count(struct gate *gate, int64_t policy_id, int64_t now_ms,
                             struct gate_numbers *numbers);
size_t gate_local_list(struct gate *gate, int64_t after_id, int64_t *ids, size_t ids_max);
enum status gate_local_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                               struct error *error);
enum status gate_local_visit(struct gate *gate, int64_t policy_id,
                             const struct gate_visitor *visitor, struct error *error);

#endif
