/* gate_hand.h: a thread's own line to a gate, on a loop of its own, that waits for the verdicts.
 *
 * Threads: a hand belongs to one thread, which opens, uses and closes it.
 */
#pragma once

#include <uv.h>

#include "gate/gate.h"

struct gate_hand {
    uv_loop_t loop;
    struct gate_line *line;
    size_t decided_count; /* batches that came back */
};

void gate_hand_open(struct gate_hand *hand, struct gate *gate);
void gate_hand_close(struct gate_hand *hand);

/* Decides wishes as one batch, and waits for all verdicts. */
void gate_hand_claim(struct gate_hand *hand, int64_t policy_id, struct wish **wishes, size_t count);

/* Arms a policy of a shared gate that no steward looks after, and that nobody renews. */
enum status arm_for_long(struct gate *gate, int64_t policy_id, int64_t active_count,
                         struct error *error) MUST_CHECK;

/* Before a policy is built from the ledger: a shared gate is told so, one in memory is new. */
enum status reset_to_build(struct gate *gate, int64_t policy_id, int64_t last_seq,
                           struct error *error) MUST_CHECK;
