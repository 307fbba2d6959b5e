/* gate_hand.c: runs a loop until its line has answered. */
#include "gate_hand.h"

#include "base/clock.h"
#include "gate/shared.h"

static void gate_hand_on_decided(void *context, struct gate_batch *batch)
{
    struct gate_hand *hand = context;

    (void)batch;
    hand->decided_count++;
}

void gate_hand_open(struct gate_hand *hand, struct gate *gate)
{
    struct error error;
    struct gate_line_options options = {
        .loop = &hand->loop, .decided = gate_hand_on_decided, .context = hand};

    hand->decided_count = 0;
    ensure(uv_loop_init(&hand->loop) == 0);
    ensure(gate_line_open(gate, &options, &hand->line, &error) == STATUS_OK);
}

void gate_hand_close(struct gate_hand *hand)
{
    gate_line_close(hand->line);
    while (uv_run(&hand->loop, UV_RUN_DEFAULT) != 0)
        continue;
    ensure(uv_loop_close(&hand->loop) == 0);
}

void gate_hand_claim(struct gate_hand *hand, int64_t policy_id, struct wish **wishes, size_t count)
{
    struct gate_batch batch = {.policy_id = policy_id, .wishes = wishes, .count = count};
    size_t decided_before = hand->decided_count;

    for (size_t i = 0; i < count; i++)
        wishes[i]->verdict = VERDICT_UNDECIDED;
    if (gate_claim(hand->line, &batch, clock_wall_ms())) {
        ensure(hand->decided_count == decided_before);
        return;
    }
    /* The last thing a loop had to do may have been to decide it. */
    while (hand->decided_count == decided_before)
        ensure(uv_run(&hand->loop, UV_RUN_ONCE) != 0 || hand->decided_count > decided_before);
    ensure(hand->decided_count == decided_before + 1);
}

enum status arm_for_long(struct gate *gate, int64_t policy_id, int64_t active_count,
                         struct error *error)
{
    struct gate_arming arming = {.length_ms = 3600000};
    struct shared_gate *shared = gate_shared(gate);

    if (shared == NULL)
        return STATUS_OK;
    enum status status = gate_moment(shared, policy_id, &arming.since, error);
    return status == STATUS_OK ? gate_arm(shared, policy_id, active_count, &arming, error) : status;
}

enum status reset_to_build(struct gate *gate, int64_t policy_id, int64_t last_seq,
                           struct error *error)
{
    struct shared_gate *shared = gate_shared(gate);

    return shared == NULL ? STATUS_OK : gate_reset(shared, policy_id, last_seq, 0, error);
}
