/* fill.c: policies come into the gate in process memory: one by one, or many at once from a gate
 * that was built aside, while claims of the others are decided. */
#include <stdlib.h>

#include "base/array.h"
#include "gate/local/gate.h"

static bool gate_local_has_at(const struct gate_local *local, size_t at, int64_t id)
{
    return at < local->policy_count && local->policies[at]->id == id;
}

bool gate_local_enlist(struct gate_local *local, struct local_policy **policy)
{
    pthread_rwlock_wrlock(&local->policies_lock);
    size_t at = gate_local_position(local, (*policy)->id);
    bool is_known = gate_local_has_at(local, at, (*policy)->id);
    bool has_room =
        is_known || array_insert(local->policies, at, local->policy_count, local->policy_capacity);
    if (is_known)
        *policy = local->policies[at];
    else if (has_room)
        local->policies[at] = *policy;
    pthread_rwlock_unlock(&local->policies_lock);
    return has_room;
}

void gate_fill(struct gate *gate, enum gate_filling filling)
{
    atomic_store(&gate_local_of(gate)->is_filling, filling == GATE_IS_FILLED);
}

bool gate_is_filling(struct gate *gate)
{
    return atomic_load(&gate_local_of(gate)->is_filling);
}

bool gate_knows(struct gate *gate, int64_t policy_id)
{
    return gate_local_policy(gate_local_of(gate), policy_id) != NULL;
}

/* Both lists are by rising ids, and there is room for all: from the back, so that each is moved
 * once. What is here already is freed there, and leaves a gap at the front that is closed. */
static void gate_local_merge(struct gate_local *local, struct gate_local *other)
{
    size_t mine = local->policy_count;
    size_t theirs = other->policy_count;
    size_t at = mine + theirs;

    local->policy_count = at;
    while (theirs > 0) {
        struct local_policy *next = other->policies[theirs - 1];
        if (mine > 0 && local->policies[mine - 1]->id >= next->id) {
            if (local->policies[mine - 1]->id == next->id) {
                local_policy_free(next);
                theirs--;
            }
            next = local->policies[--mine];
        } else {
            theirs--;
        }
        local->policies[--at] = next;
    }
    memmove(local->policies + mine, local->policies + at,
            (local->policy_count - at) * sizeof(struct local_policy *));
    local->policy_count -= at - mine;
    other->policy_count = 0;
}

enum status gate_adopt(struct gate *gate, struct gate *other, struct error *error)
{
    struct gate_local *local = gate_local_of(gate);
    struct gate_local *from = gate_local_of(other);

    if (from->policy_count == 0)
        return STATUS_OK;
    pthread_rwlock_wrlock(&local->policies_lock);
    bool has_room = array_grow(&local->policies, local->policy_count + from->policy_count,
                               &local->policy_capacity, sizeof(struct local_policy *));
    if (has_room && from->policy_count > 0)
        gate_local_merge(local, from);
    pthread_rwlock_unlock(&local->policies_lock);
    return has_room ? STATUS_OK
                    : error_set(error, STATUS_UNAVAILABLE, "no memory for the list of policies");
}

int64_t gate_given(struct gate *gate, const struct lease *lease, int64_t *last_seq)
{
    enum status status;
    struct local_policy *policy = gate_local_lock(gate, lease->policy_id, &status, NULL);
    int64_t count = 0;

    *last_seq = 0;
    if (policy == NULL)
        return 0;
    uint32_t first = holdings_below(&policy->holdings, lease->first_seq);
    uint32_t end = holdings_below(&policy->holdings, lease->first_seq + lease->count);
    count = (int64_t)(end - first);
    if (count > 0)
        *last_seq = holdings_at(&policy->holdings, end - 1)->seq;
    pthread_mutex_unlock(&policy->lock);
    return count;
}
