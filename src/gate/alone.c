/* alone.c: nothing to drain, nothing to arm. */
#include "gate/alone.h"

#include <stdlib.h>

#define ENUMERATE_PAGE 256

size_t gate_alone_place(struct gate *gate, int64_t policy_id)
{
    (void)gate;
    (void)policy_id;
    return 0;
}

enum status gate_alone_announce(struct gate *gate, int64_t policy_id, int64_t count,
                                int64_t *wait_ms, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)count;
    (void)error;
    *wait_ms = 0;
    return STATUS_OK;
}

enum status gate_alone_pending(struct gate *gate, int64_t policy_id, int64_t after_seq,
                               struct gate_pending *pending, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)after_seq;
    (void)error;
    pending->claim_count = 0;
    pending->binding_count = 0;
    pending->stray_count = 0;
    pending->now_ms = 0;
    pending->is_known = true;
    pending->is_armed = true;
    pending->is_continuous = true;
    pending->remaining = 0;
    pending->unleased = 0;
    pending->pending_count = 0;
    pending->version = 0;
    pending->term = 0;
    pending->selling_lease_id = 0;
    return STATUS_OK;
}

enum status gate_alone_acknowledge_keys(struct gate *gate, const struct key_binding *bindings,
                                        size_t count, struct error *error)
{
    (void)gate;
    (void)bindings;
    (void)count;
    (void)error;
    return STATUS_OK;
}

bool gate_alone_can_move(const struct gate *gate)
{
    (void)gate;
    return false;
}

enum status gate_alone_take_over(struct gate *gate, int64_t policy_id, int64_t term,
                                 int64_t previous, bool *is_continuous, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)term;
    (void)previous;
    (void)error;
    *is_continuous = true;
    return STATUS_OK;
}

enum status gate_alone_reset(struct gate *gate, int64_t policy_id, int64_t last_seq, int64_t term,
                             struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)last_seq;
    (void)term;
    (void)error;
    return STATUS_OK;
}

enum status gate_alone_moment(struct gate *gate, int64_t policy_id, struct gate_moment *moment,
                              struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)moment;
    (void)error;
    return STATUS_OK;
}

enum status gate_alone_arm(struct gate *gate, int64_t policy_id, int64_t active_count,
                           const struct gate_arming *arming, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)active_count;
    (void)arming;
    (void)error;
    return STATUS_OK;
}

bool gate_alone_renewal_begin(struct gate *gate, int64_t pause_ms)
{
    (void)gate;
    (void)pause_ms;
    return false;
}

void gate_alone_renew(struct gate *gate, const struct gate_term *terms, size_t count,
                      int64_t length_ms, bool is_confirmed)
{
    (void)gate;
    (void)terms;
    (void)count;
    (void)length_ms;
    (void)is_confirmed;
}

/* Nobody wins without a gate that is never away. */
enum status gate_alone_enter(struct gate *gate, int64_t policy_id, const struct claim *claims,
                             const enum coupon_state *states, size_t count, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)claims;
    (void)states;
    (void)error;
    ensure(count == 0);
    return STATUS_OK;
}

enum status gate_alone_leases(struct gate *gate, int64_t policy_id, struct gate_lease **leases,
                              size_t *count, int64_t *highest_id, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)error;
    *leases = NULL;
    *count = 0;
    *highest_id = 0;
    return STATUS_OK;
}

enum status gate_alone_retire(struct gate *gate, int64_t policy_id, int64_t seconds,
                              struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)seconds;
    (void)error;
    return STATUS_OK;
}

enum status gate_alone_publish(struct gate *gate, int64_t policy_id, const char *token,
                               int64_t *mark, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)token;
    (void)error;
    *mark = 0;
    return STATUS_OK;
}

enum status gate_alone_published(struct gate *gate, int64_t policy_id, const char *token,
                                 int64_t seq, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)token;
    (void)seq;
    (void)error;
    return STATUS_OK;
}

/* What is pending is in its own memory, with whoever holds it. */
enum status gate_alone_strays(struct gate *gate, int64_t policy_id, struct claim *strays,
                              size_t max, size_t *count, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)strays;
    (void)max;
    (void)error;
    *count = 0;
    return STATUS_OK;
}

enum status gate_alone_mend(struct gate *gate, int64_t policy_id, const struct gate_mend *mends,
                            size_t count, int64_t *changed_count, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)mends;
    (void)count;
    (void)error;
    *changed_count = 0;
    return STATUS_OK;
}

enum status gate_alone_lay_down(struct gate *gate, int64_t policy_id, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)error;
    return STATUS_OK;
}

enum status gate_alone_enumerate(struct gate *gate, int64_t **ids, size_t *count,
                                 struct error *error)
{
    size_t capacity = 0;
    size_t more;

    do {
        int64_t *grown = realloc(*ids, (capacity + ENUMERATE_PAGE) * sizeof(*grown));
        if (grown == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "no memory for the list of policies");
        *ids = grown;
        capacity += ENUMERATE_PAGE;
        more = gate->ops->list(gate, *count > 0 ? grown[*count - 1] : 0, grown + *count,
                               ENUMERATE_PAGE);
        *count += more;
    } while (more == ENUMERATE_PAGE);
    return STATUS_OK;
}

/* A ledger that lost something is noticed by its mark, and then the whole gate waits. */
enum status gate_alone_suspend(struct gate *gate, int64_t policy_id, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)error;
    return STATUS_OK;
}

enum status gate_alone_forget(struct gate *gate, int64_t policy_id, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)error;
    return STATUS_OK;
}

/* Its numbers are always those of now. */
enum status gate_alone_look(struct gate *gate, int64_t policy_id, struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)error;
    return STATUS_OK;
}

bool gate_alone_is_ready(struct gate *gate, struct error *words)
{
    (void)gate;
    error_set(words, STATUS_OK, "ok");
    return true;
}

/* Its clock is ours, and it tells of a win when the ledger has it. */
enum status gate_alone_survey(struct gate *gate, int64_t policy_id, struct gate_survey *survey,
                              struct error *error)
{
    (void)gate;
    (void)policy_id;
    (void)error;
    *survey = (struct gate_survey){.ahead_ms = 0, .loss = GATE_LOSES_NOTHING};
    return STATUS_OK;
}
