/* duty_term.c: being a policy's steward: taking its next term, and telling the gate of it.
 *
 * A term is armed in one process of Redis at most. So whoever has to arm a policy anew, and may
 * have armed it in this term before, takes the next one first. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/random.h"
#include "claim/worker_parts.h"

#define TAKE_PAUSE_MS 100 /* at least, between two tries to become a policy's steward */
#define CHECK_MS      800 /* between two looks whether what the gate sells is lent to it */

/* Another one is the steward, or will be. */
static void duty_lose(struct duty *duty)
{
    duty->term = 0;
    duty->is_told = false;
    duty->is_built = false;
    duty->has_way = false;
}

bool duty_take(struct worker *worker, struct duty *duty)
{
    struct ledger_stewardship taken;
    struct error error = {""};
    enum status status = ledger_steward_take(worker->service->ledger, duty->policy_id,
                                             worker->holder, duty->gate_term, &taken, &error);

    if (status != STATUS_OK)
        duty_say(duty, "term_failed", &error);
    if (status != STATUS_OK || !taken.is_held)
        return false;
    int64_t now_ms = clock_monotonic_ms();
    terms_note(worker->service->terms, duty->policy_id, taken.term);
    /* What was armed before runs out, where another server may have it. */
    if (duty->term == 0 || duty->is_used)
        duty->over_at_ms = gate_can_move(worker->service->gate) ? now_ms + TERMS_OVER_MS : 0;
    duty->term = taken.term;
    duty->previous = taken.previous;
    duty->taken_at_ms = now_ms;
    duty->is_used = false;
    duty->is_told = false;
    duty->is_built = false;
    /* Whoever had it before may have left something half done. */
    duty->lends_again = true;
    duty->has_way = false;
    duty->synced_at_ms = 0;
    return true;
}

/* As long as it is not known that the gate does not go on in this term, it may do so. */
enum status duty_tell(struct worker *worker, struct duty *duty, struct error *error)
{
    bool was_used = duty->is_used;
    bool is_continuous = false;

    duty->is_used = true;
    enum status status =
        gate_take_over(worker->service->gate, duty->policy_id, duty->term,
                       was_used ? duty->term : duty->previous, &is_continuous, error);
    if (status == STATUS_NOT_FOUND)
        status = STATUS_OK;
    if (status == STATUS_OK && !is_continuous)
        duty->is_used = was_used;
    if (is_continuous)
        terms_hurry(worker->service->terms);
    duty->is_told = status == STATUS_OK;
    return status;
}

bool duty_is_held(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct terms *terms = worker->service->terms;
    struct ledger_term newest;
    struct error error = {""};
    int64_t told_at_ms = 0;
    bool is_known = terms_find(terms, duty->policy_id, &newest, &told_at_ms);

    if (!terms_is_alive(terms))
        return false;
    if (duty->term != 0 && is_known && newest.term != duty->term && told_at_ms > duty->taken_at_ms)
        duty_lose(duty);
    if (duty->term == 0) {
        if ((is_known && newest.is_held && !newest.is_own) || now_ms < duty->take_at_ms)
            return false;
        duty->take_at_ms = now_ms + TAKE_PAUSE_MS + (int64_t)random_below(TAKE_PAUSE_MS);
        if (!duty_take(worker, duty))
            return false;
    }
    if (!duty->is_told && duty_tell(worker, duty, &error) != STATUS_OK) {
        duty_say(duty, "term_failed", &error);
        return false;
    }
    return true;
}

bool duty_is_current(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    if (duty->term == 0 || !duty->is_told || worker->pending->term == duty->term)
        return true;
    if (worker->pending->term > duty->term) {
        duty_lose(duty);
        return true;
    }
    /* Another server is there, which has not heard of it. */
    duty->is_told = false;
    (void)duty_is_held(worker, duty, now_ms);
    return false;
}

/* The lease's own row tells, not that it is missing: an older ledger is another matter. */
static bool duty_lease_is_closed(struct worker *worker, const struct duty *duty, int64_t lease_id)
{
    struct ledger *ledger = worker->service->ledger;
    struct lease *open = NULL;
    struct lease *all = NULL;
    size_t count = 0;
    bool is_open = false;
    bool is_closed = false;

    enum status status = ledger_lease_list(ledger, duty->policy_id, &open, &count, NULL);
    for (size_t i = 0; i < count; i++)
        is_open = is_open || open[i].id == lease_id;
    free(open);
    if (status != STATUS_OK || is_open ||
        ledger_lease_history(ledger, duty->policy_id, &all, &count, NULL) != STATUS_OK)
        count = 0;
    for (size_t i = 0; i < count; i++)
        is_closed = is_closed || (all[i].id == lease_id && !all[i].open);
    free(all);
    return is_closed;
}

bool duty_sells_what_is_lent(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    const struct gate_pending *pending = worker->pending;
    struct error error = {""};

    if (pending->selling_lease_id == 0 || now_ms - duty->checked_at_ms < CHECK_MS ||
        (pending->remaining == duty->checked_remaining && pending->pending_count == 0) ||
        !duty_is_held(worker, duty, now_ms))
        return true;
    duty->checked_at_ms = now_ms;
    duty->checked_remaining = pending->remaining;
    if (!duty_lease_is_closed(worker, duty, pending->selling_lease_id))
        return true;
    error_set(&error, STATUS_CONFLICT, "lease %lld is closed in the ledger",
              (long long)pending->selling_lease_id);
    duty_say(duty, "closed_lease_sold", &error);
    if (gate_lay_down(worker->service->gate, duty->policy_id, &error) != STATUS_OK)
        duty_say(duty, "disarm_failed", &error);
    return false;
}
