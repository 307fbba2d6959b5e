/* duty.c: being the steward of one policy: its terms, and draining, lending and letting go of it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "claim/shared/worker_parts.h"

#define PAUSE_MAX_MS    250
#define PAUSE_WARM_MS   20 /* of a policy that had something to do a moment ago */
#define WARM_MS         10000
#define RETIRE_SECONDS  86400
#define SAY_MS          5000
#define TAKE_PAUSE_MS   100 /* at least, between two tries to become a policy's steward */
#define REFILL_AGAIN_MS 250 /* after the ledger had nothing to lend */
#define CHECK_MS        800 /* between two looks whether what the gate sells is lent to it */

void duty_say(struct duty *duty, const char *event, const struct error *error)
{
    int64_t now_ms = clock_monotonic_ms();

    if (duty->said != NULL && strcmp(duty->said, event) == 0 && now_ms - duty->said_at_ms < SAY_MS)
        return;
    duty->said = event;
    duty->said_at_ms = now_ms;
    log_event(LOG_WARN, event, LOG_FIELD("policy", LOG_I64(duty->policy_id)),
              LOG_FIELD("error", LOG_TEXT(error->text)));
}

/* --- being the steward ---
 *
 * A term is armed in one process of Redis at most. So whoever has to arm a policy anew, and may
 * have armed it in this term before, takes the next one first. */

/* Another one is the steward, or will be. */
static void duty_lose(struct duty *duty)
{
    duty->term = 0;
    duty->is_told = false;
    duty->is_built = false;
    duty->is_passing = false;
}

/* Takes the next term. False: another one is the steward. */
static bool duty_take(struct worker *worker, struct duty *duty)
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
        duty->over_at_ms = gate_can_move(worker->service->shared) ? now_ms + TERMS_OVER_MS : 0;
    duty->term = taken.term;
    duty->previous = taken.previous;
    duty->taken_at_ms = now_ms;
    duty->is_used = false;
    duty->is_told = false;
    duty->is_built = false;
    /* The steward before may have left something half done. */
    duty->lends_again = true;
    duty->is_passing = false;
    duty->synced_at_ms = 0;
    return true;
}

/* Tells the gate of the term: what was armed in the one before goes on, anything else is disarmed.
 * As long as it is not known that the gate does not go on in this term, it may do so. */
static bool duty_tell(struct worker *worker, struct duty *duty)
{
    struct error error = {""};
    bool was_used = duty->is_used;
    bool is_continuous = false;

    duty->is_used = true;
    enum status status =
        gate_take_over(worker->service->shared, duty->policy_id, duty->term,
                       was_used ? duty->term : duty->previous, &is_continuous, &error);
    if (status == STATUS_NOT_FOUND)
        status = STATUS_OK;
    if (status == STATUS_OK && !is_continuous)
        duty->is_used = was_used;
    if (is_continuous)
        terms_hurry(worker->service->terms);
    duty->is_told = status == STATUS_OK;
    if (!duty->is_told)
        duty_say(duty, "term_failed", &error);
    return duty->is_told;
}

void duty_take_next(struct worker *worker, struct duty *duty)
{
    if (duty_take(worker, duty))
        (void)duty_tell(worker, duty);
}

bool duty_is_held(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct terms *terms = worker->service->terms;
    struct ledger_term newest;
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
    return duty->is_told || duty_tell(worker, duty);
}

/* False: the gate of an armed policy has not heard of this worker's term, and has to be looked at
 * again. */
static bool duty_is_current(struct worker *worker, struct duty *duty, int64_t now_ms)
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

/* False: the gate sold a lease that the ledger has closed, and is disarmed. Looks when it is time.
 */
static bool duty_sells_what_is_lent(struct worker *worker, struct duty *duty, int64_t now_ms)
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
    if (gate_disarm(worker->service->shared, duty->policy_id, &error) != STATUS_OK)
        duty_say(duty, "disarm_failed", &error);
    return false;
}

/* --- an armed policy --- */

/* Lends what is unleased but `keep` units. A lease that the gate does not take goes back. */
enum status duty_lend(struct worker *worker, struct duty *duty, int64_t keep, struct error *error)
{
    struct service *service = worker->service;
    struct policy policy;
    struct lease lease;
    enum status status = ledger_lease_take(service->ledger, duty->policy_id, duty->term, keep,
                                           &lease, &policy, error);

    FAULT_POINT("worker.after_lease");
    if (status != STATUS_OK)
        return status;
    if (lease.count > 0)
        status = gate_lend(service->gate, &lease, 0, duty->term, error);
    else { /* What was announced has come, or never will, or somebody still gives it back. */
        duty->synced_at_ms = 0;
        duty->refill_at_ms = clock_monotonic_ms() + REFILL_AGAIN_MS;
    }
    if (status == STATUS_OK)
        return gate_policy_set(service->gate, &policy, error);
    if (status == STATUS_CONFLICT || status == STATUS_BUSY)
        (void)!ledger_lease_close(service->ledger, lease.id, duty->term, NULL);
    else
        duty->lends_again = true; /* The gate may have it, or not. */
    return status;
}

/* A steward before this one may have ended between taking a lease and lending it. The gate takes
 * those it does not have, and passes over the others. */
static enum status duty_lend_again(struct worker *worker, struct duty *duty, struct error *error)
{
    struct lease *leases = NULL;
    size_t count = 0;
    enum status status =
        ledger_lease_list(worker->service->ledger, duty->policy_id, &leases, &count, error);

    for (size_t i = 0; i < count && (status == STATUS_OK || status == STATUS_CONFLICT); i++)
        status = gate_lend(worker->service->gate, &leases[i], 0, duty->term, error);
    free(leases);
    return status == STATUS_CONFLICT ? STATUS_OK : status;
}

/* A term begins where the one before has left off. */
enum status duty_begin(struct worker *worker, struct duty *duty, struct error *error)
{
    if (duty->is_passing)
        return STATUS_OK;
    struct relay *relay = worker->service->relay;
    enum status status = relay->ops->begin(relay, &duty->stream, error);
    duty->is_passing = status == STATUS_OK;
    return status;
}

/* Keys need not wait for their claims: they are given to the ledger as they are, and taken out of
 * the gate when it has them. */
static void duty_drain_keys(struct worker *worker, struct duty *duty)
{
    struct service *service = worker->service;
    const struct gate_pending *pending = worker->pending;
    struct error error = {""};

    if (duty->keys != NULL) {
        if (ledger_durable(service->ledger) < duty->keys_ticket)
            return;
        if (gate_acknowledge_keys(service->shared, duty->keys, duty->key_count, &error) !=
            STATUS_OK)
            duty_say(duty, "acknowledge_failed", &error);
        free(duty->keys);
        duty->keys = NULL;
        return;
    }
    if (pending->binding_count == 0)
        return;
    duty->keys = malloc(pending->binding_count * sizeof(*duty->keys));
    if (duty->keys == NULL)
        return; /* They are there the next time as well. */
    memcpy(duty->keys, pending->bindings, pending->binding_count * sizeof(*duty->keys));
    duty->key_count = pending->binding_count;
    duty->keys_ticket = worker_relay_issue(worker->relay, NULL, 0, duty->keys, duty->key_count);
}

/* True when there was something to drain. */
static bool duty_drain(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct gate_pending *pending = worker->pending;
    struct relay *relay = worker->service->relay;
    struct error error = {""};

    if (pending->claim_count + pending->binding_count == 0 && duty->keys == NULL) {
        if (duty->is_passing)
            return relay->ops->rest(relay, &duty->stream, duty->pending_count);
        /* What is pending before the cursor was on its way when the gate did not answer: without a
         * new beginning nobody would ask for it again. */
        if (duty->pending_count <= 0)
            return false;
    }
    if (!duty_is_held(worker, duty, now_ms))
        return false;
    if (!duty->is_passing) {
        enum status status = duty_begin(worker, duty, &error);
        if (status != STATUS_OK)
            duty_say(duty, "drain_failed", &error);
        return status == STATUS_OK;
    }
    bool had_keys = duty->keys != NULL;
    duty_drain_keys(worker, duty);
    if (pending->claim_count == 0)
        return had_keys != (duty->keys != NULL) ||
               relay->ops->rest(relay, &duty->stream, duty->pending_count);
    enum status status =
        relay->ops->carry(relay, &duty->stream, pending->claims, pending->claim_count, &error);
    if (status == STATUS_CONFLICT)
        duty->is_passing = false; /* Somebody else has begun. */
    if (status != STATUS_OK && status != STATUS_BUSY)
        duty_say(duty, "drain_failed", &error);
    return status == STATUS_OK;
}

/* Tells the gate what is about to come, and hears when it may. */
static bool duty_announce(struct worker *worker, struct duty *duty)
{
    int64_t wait_ms = 0;
    struct error error = {""};

    if (duty->lend_at_ms != 0)
        return true;
    if (gate_announce(worker->service->shared, duty->policy_id, worker->pending->unleased, &wait_ms,
                      &error) != STATUS_OK) {
        duty_say(duty, "lease_failed", &error);
        return false;
    }
    duty->lend_at_ms = clock_monotonic_ms() + wait_ms;
    return true;
}

/* An empty gate gets what came back, and at last the reserve. It hears of that before the ledger
 * lets go of it: whoever dies or is cut off in between leaves a gate that knows of it. */
static void duty_refill(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct error error = {""};

    if (duty->is_closed || worker->pending->remaining > 0 || worker->pending->unleased == 0) {
        if (duty->lend_at_ms != 0)
            duty->synced_at_ms = 0; /* What was announced has come, or never will. */
        duty->lend_at_ms = 0;
        return;
    }
    if (now_ms < duty->refill_at_ms || !duty_is_held(worker, duty, now_ms) ||
        !duty_announce(worker, duty) || clock_monotonic_ms() < duty->lend_at_ms)
        return;
    duty->lend_at_ms = 0;
    enum status status = duty->lends_again ? duty_lend_again(worker, duty, &error) : STATUS_OK;
    duty->lends_again = status != STATUS_OK;
    if (status == STATUS_OK)
        status = duty_lend(worker, duty, 0, &error);
    if (status != STATUS_OK && status != STATUS_BUSY) {
        duty->lends_again = true;
        duty_say(duty, "lease_failed", &error);
    }
    service_stock_changed(worker->service);
}

/* Pushes the policy when it changed, and now and then in any case. */
static void duty_push(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct policy policy;
    struct error error = {""};

    if (worker->pending->version == duty->version &&
        now_ms - duty->pushed_at_ms < worker_sync_ms(worker))
        return;
    if (service_refresh(worker->service, duty->policy_id, &policy, &error) == STATUS_OK)
        duty->pushed_at_ms = now_ms;
    else
        duty_say(duty, "push_failed", &error);
}

static void duty_retire(struct worker *worker, struct duty *duty)
{
    if (duty->is_closed && worker->pending->pending_count == 0 &&
        worker->pending->binding_count == 0 && duty->keys == NULL &&
        gate_retire(worker->service->shared, duty->policy_id, RETIRE_SECONDS, NULL) == STATUS_OK) {
        duty->is_retired = true;
        /* It need not be armed any more. */
        (void)!ledger_steward_release(worker->service->ledger, duty->policy_id, worker->holder,
                                      NULL);
        duty->term = 0;
    }
}

/* What no user holds is passed over: it waits for an audit, or until the policy is built anew. */
static void duty_count_pending(struct duty *duty, const struct gate_pending *pending)
{
    struct error error;

    if (duty->stream.cursor == 0)
        duty->stray_count = (int64_t)pending->stray_count;
    duty->pending_count = pending->pending_count - duty->stray_count;
    if (pending->stray_count == 0)
        return;
    error_set(&error, STATUS_FAILED,
              "seq %lld and %zu more are pending, and their users do not hold them: see dibs audit",
              (long long)pending->stray_seq, pending->stray_count - 1);
    duty_say(duty, "claims_without_users", &error);
}

/* What a server gave while the gate was away, and could not tell the gate itself. */
static void duty_enter(struct worker *worker, struct duty *duty)
{
    struct error error = {""};
    bool is_done = false;
    enum status status = STATUS_OK;

    if (!duty->is_entering)
        return;
    duty->is_entering = false; /* until the next list */
    while (status == STATUS_OK && !is_done && !worker_must_end(worker))
        status = fallback_tell_gate(worker->service, duty->policy_id, &is_done, &error);
    if (status != STATUS_OK && status != STATUS_UNAVAILABLE)
        duty_say(duty, "enter_failed", &error);
}

/* Reads what is pending, and the numbers. False: there is nothing to be done about the policy now.
 */
static bool duty_look(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct gate_pending *pending = worker->pending;
    struct error error = {""};

    enum status status = gate_pending(worker->service->shared, duty->policy_id, duty->stream.cursor,
                                      pending, &error);
    if (status != STATUS_OK) {
        duty->is_passing = false;
        duty->next_attend_ms =
            now_ms + DUTY_REFUSED_MS / 2 + (int64_t)random_below(DUTY_REFUSED_MS);
        if (status != STATUS_UNAVAILABLE) /* Of a Redis that is away the gate tells. */
            duty_say(duty, "drain_failed", &error);
        return false;
    }
    duty->gate_term = pending->term;
    duty->is_closed = duty->ends_at_ms != 0 && pending->now_ms >= duty->ends_at_ms;
    duty_count_pending(duty, pending);
    duty->oldest_requested_ms = pending->claim_count > 0 && duty->stream.cursor == 0
                                    ? pending->claims[0].requested_at_ms
                                : pending->pending_count == 0 ? 0
                                                              : duty->oldest_requested_ms;
    if (pending->is_suspended) {
        duty->is_passing = false;
        duty->next_attend_ms = now_ms + PAUSE_MAX_MS;
    }
    return !pending->is_suspended;
}

/* When it is looked at next: the longer nothing was to be done, the later. */
static void duty_pause(const struct worker *worker, struct duty *duty, bool is_busy, int64_t now_ms)
{
    if (is_busy)
        duty->busy_at_ms = now_ms;
    int64_t said_ms = worker->service->options.worker_pause_ms;
    int64_t pause_max_ms = said_ms > 0 ? said_ms : PAUSE_MAX_MS;
    if (now_ms - duty->busy_at_ms < WARM_MS && pause_max_ms > PAUSE_WARM_MS)
        pause_max_ms = PAUSE_WARM_MS;
    duty->pause_ms = is_busy                          ? 0
                     : duty->pause_ms < DUTY_PAUSE_MS ? DUTY_PAUSE_MS
                                                      : duty->pause_ms * 2;
    if (duty->pause_ms > pause_max_ms)
        duty->pause_ms = pause_max_ms;
    duty->next_attend_ms = now_ms + duty->pause_ms;
    if (duty->lend_at_ms > now_ms && duty->lend_at_ms < duty->next_attend_ms)
        duty->next_attend_ms = duty->lend_at_ms;
}

void duty_serve(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    const struct gate_pending *pending = worker->pending;

    if (!duty_look(worker, duty, now_ms))
        return;
    if (!pending->is_known || !pending->is_armed || !duty_is_current(worker, duty, now_ms)) {
        duty->next_attend_ms = now_ms + DUTY_REFUSED_MS;
        return;
    }
    bool is_busy = duty_drain(worker, duty, now_ms);
    if (!duty->is_entering)
        duty_refill(worker, duty, now_ms);
    duty_pause(worker, duty, is_busy, now_ms);
}

void duty_attend(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    const struct gate_pending *pending = worker->pending;

    if (!duty_look(worker, duty, now_ms))
        return;
    if (!pending->is_known || !pending->is_armed) {
        if (!(duty->is_closed && !pending->is_known)) {
            duty_reconcile(worker, duty, now_ms);
        } else {
            duty_enter(worker, duty); /* Nobody has to hear of them any more. */
            duty->is_retired = true;
        }
        return;
    }
    duty->is_built = false;
    if (!duty_is_current(worker, duty, now_ms) || !duty_sells_what_is_lent(worker, duty, now_ms)) {
        duty->next_attend_ms = now_ms;
        return;
    }
    bool is_busy = duty_drain(worker, duty, now_ms);
    duty_enter(worker, duty);
    duty_refill(worker, duty, now_ms);
    duty_push(worker, duty, now_ms);
    duty_retire(worker, duty);
    if (!duty->is_retired) {
        duty_sync_users(worker, duty, now_ms);
        duty_sync_leases(worker, duty, now_ms);
    }
    duty_pause(worker, duty, is_busy, now_ms);
}
