/* duty.c: draining, lending, arming and letting go of one policy. */
#include "claim/duty.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "claim/entering.h"
#include "claim/worker_parts.h"

#define PAUSE_MIN_MS  10
#define PAUSE_MAX_MS  250
#define PAUSE_WARM_MS 20 /* of a policy that had something to do a moment ago */
#define WARM_MS       10000
#define REFUSED_MS    200
#define FORGOTTEN_MS \
    510 /* a policy that was built anew is armed when every server has forgotten it */
#define RETIRE_SECONDS 86400
#define SETTLE_MS      20000
#define SAY_MS         5000

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

/* --- building anew --- */

struct duty_restore {
    struct worker *worker;
    struct gate *gate;
    int64_t active_count;
};

static enum status duty_restore_claim(void *context, const struct claim *claim,
                                      enum coupon_state state, struct error *error)
{
    struct duty_restore *restore = context;

    if (worker_must_end(restore->worker))
        return error_set(error, STATUS_UNAVAILABLE, "the worker ends");
    restore->active_count += coupon_state_is_active(state);
    return gate_restore(restore->gate, claim, state, error);
}

static enum status duty_restore_key(void *context, const struct key_binding *binding,
                                    struct error *error)
{
    struct duty_restore *restore = context;
    return gate_restore_key(restore->gate, binding, error);
}

/* Whether what was handed to the ledger and settled is what the gate shows once more. */
static bool duty_is_stuck(const struct gate_pending *pending, int64_t seq,
                          const struct request_id *key)
{
    if (pending->claim_count > 0)
        return pending->claims[0].seq == seq;
    return seq == 0 && memcmp(&pending->bindings[0].request_id, key, sizeof(*key)) == 0;
}

/* Each round takes something out of the gate, or is the last. */
enum status duty_drain_all(struct worker *worker, struct duty *duty, struct error *error)
{
    struct gate_pending *pending = worker->pending;
    struct gate *gate = worker->service->gate;
    int64_t seq = -1; /* of the first claim of the last round; 0: there were only keys */
    struct request_id key = {{0}};

    while (!worker_must_end(worker)) {
        enum status status = gate_pending(gate, duty->policy_id, 0, pending, error);
        if (status == STATUS_OK && pending->claim_count + pending->binding_count == 0) {
            if (pending->stray_count == 0)
                return STATUS_OK;
            status = duty_recover_strays(worker, duty, error);
            if (status == STATUS_OK)
                continue;
        }
        if (status != STATUS_OK)
            return status;
        pending->claim_count = workers_sift(worker->workers, pending->claims, pending->claim_count);
        if (pending->claim_count + pending->binding_count == 0)
            return error_set(error, STATUS_UNAVAILABLE,
                             "claims that the ledger refuses are tried again first");
        if (duty_is_stuck(pending, seq, &key))
            return error_set(error, STATUS_UNAVAILABLE,
                             "the gate keeps pending what the ledger has");
        seq = pending->claim_count > 0 ? pending->claims[0].seq : 0;
        key = pending->bindings[0].request_id;
        uint64_t ticket = worker_issue(worker, pending->claims, pending->claim_count,
                                       pending->bindings, pending->binding_count);
        if (!worker_settle(worker, ticket, SETTLE_MS))
            return error_set(error, STATUS_UNAVAILABLE, "the ledger does not take what is pending");
        status = gate_acknowledge_keys(gate, pending->bindings, pending->binding_count, error);
        if (status != STATUS_OK)
            return status;
    }
    return error_set(error, STATUS_UNAVAILABLE, "the worker ends");
}

/* What the gate never gave out, or lost, returns to unleased; a late claim takes a unit anew. */
static enum status duty_close_leases(struct worker *worker, struct duty *duty, struct error *error)
{
    struct ledger *ledger = worker->service->ledger;
    struct lease *leases = NULL;
    size_t count = 0;
    enum status status = ledger_lease_list(ledger, duty->policy_id, &leases, &count, error);

    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = ledger_lease_close(ledger, leases[i].id, duty->term, error);
    free(leases);
    return status;
}

/* When a repair was asked for, what is unleased is set by what is issued, now that nothing is lent.
 * The seqs of the next lease are above all that the gate has seen. */
static enum status duty_mend(struct worker *worker, struct duty *duty, struct error *error)
{
    struct ledger_mend mend = {.policy_id = duty->policy_id,
                               .term = duty->term,
                               .raises_total = true,
                               .adopts_strays = true,
                               .only_if_asked = true};
    enum status status = ledger_mend(worker->service->ledger, &mend, error);

    if (status == STATUS_OK && mend.is_changed)
        log_event(LOG_WARN, "stock_mended", LOG_FIELD("policy", LOG_I64(duty->policy_id)),
                  LOG_FIELD("total", LOG_I64(mend.after.total)),
                  LOG_FIELD("unleased", LOG_I64(mend.after.unleased)),
                  LOG_FIELD("unleased_before", LOG_I64(mend.before.unleased)));
    return status;
}

/* Lends what is unleased but `keep` units. A lease that the gate does not take goes back. */
static enum status duty_lend(struct worker *worker, struct duty *duty, int64_t keep,
                             struct error *error)
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
    else
        duty->synced_at_ms = 0; /* What was announced has come, or never will. */
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

/* All but arming it, for which its servers have to forget first. */
static enum status duty_build(struct worker *worker, struct duty *duty, struct error *error)
{
    struct service *service = worker->service;
    struct duty_restore restore = {.worker = worker, .gate = service->gate};
    struct ledger_visitor visitor = {
        .claim = duty_restore_claim, .key = duty_restore_key, .context = &restore};
    struct policy policy;
    enum status status = duty_drain_all(worker, duty, error);

    if (status == STATUS_OK)
        status = duty_save_lacking(worker, duty, error);
    /* From here on nothing that was armed before may go on. */
    duty->previous = duty->term;
    if (status == STATUS_OK)
        status = duty_close_leases(worker, duty, error);
    if (status == STATUS_OK)
        status = duty_mend(worker, duty, error);
    if (status == STATUS_OK)
        status = ledger_policy_get(service->ledger, duty->policy_id, &policy, error);
    FAULT_POINT("worker.before_reset");
    if (status == STATUS_OK)
        status = gate_reset(service->gate, duty->policy_id, policy.next_seq - 1, duty->term, error);
    FAULT_POINT("worker.after_reset");
    if (status == STATUS_OK)
        status = ledger_visit_policy(service->ledger, duty->policy_id, &visitor, error);
    if (status == STATUS_OK)
        status = gate_policy_set(service->gate, &policy, error);
    if (status == STATUS_OK && policy.closed_at_ms == 0)
        status = duty_lend(worker, duty, policy.reserve, error);
    duty->is_built = status == STATUS_OK;
    duty->built_count = restore.active_count;
    duty->arm_at_ms =
        clock_monotonic_ms() + (duty->is_built && policy.next_seq > 1 ? FORGOTTEN_MS : 0);
    return status;
}

static enum status duty_arm(struct worker *worker, struct duty *duty, struct error *error)
{
    FAULT_POINT("worker.before_arm");
    duty->is_used = true;
    enum status status =
        terms_arm(worker->service, duty->policy_id, duty->term, duty->built_count, error);
    duty->is_built = false; /* What was refused is built anew. */
    if (status != STATUS_OK)
        return status;
    log_event(LOG_INFO, "policy_armed", LOG_FIELD("policy", LOG_I64(duty->policy_id)),
              LOG_FIELD("claims", LOG_I64(duty->built_count)));
    pthread_mutex_lock(&worker->lock);
    worker->numbers.reconciled++;
    pthread_mutex_unlock(&worker->lock);
    service_stock_changed(worker->service);
    return STATUS_OK;
}

/* A term begins where the one before has left off. */
static enum status duty_begin(struct worker *worker, struct duty *duty, struct error *error)
{
    if (duty->has_way)
        return STATUS_OK;
    enum status status = relay_begin(worker->service->relay, &duty->way, error);
    duty->has_way = status == STATUS_OK;
    return status;
}

/* What the gate still has behind the cursor, and what is on its way, comes first: BUSY until it has
 * come out. */
static enum status duty_pass(struct worker *worker, struct duty *duty, struct error *error)
{
    struct gate_pending *pending = worker->pending;

    if (!duty->has_way) {
        enum status status = duty_begin(worker, duty, error);
        if (status == STATUS_OK)
            status = gate_pending(worker->service->gate, duty->policy_id, duty->way.cursor, pending,
                                  error);
        if (status != STATUS_OK)
            return status;
    }
    return relay_pass(worker->service->relay, &duty->way, pending->claims, pending->claim_count,
                      error);
}

/* Whether the policy has to be built, in a term in which nothing was armed yet, and the time of
 * what was armed before is over. */
static bool duty_may_build(struct worker *worker, struct duty *duty)
{
    const struct gate_pending *pending = worker->pending;
    struct error error = {""};

    if (duty->is_built)
        return true;
    if (pending->is_continuous && pending->term == duty->term) {
        terms_hurry(worker->service->terms);
        return false;
    }
    if (!duty->is_used && pending->term <= duty->term)
        return clock_monotonic_ms() >= duty->over_at_ms;
    if (duty_take(worker, duty) && duty_tell(worker, duty, &error) != STATUS_OK)
        duty_say(duty, "term_failed", &error);
    return false;
}

/* Many policies may have to be built at once: while one waits to be armed, others are built. */
static void duty_reconcile(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct error error = {""};
    enum status status = STATUS_OK;

    duty->next_look_ms = now_ms + REFUSED_MS;
    bool was_told = duty->is_told;
    if (!duty_is_held(worker, duty, now_ms)) {
        duty->is_built = false;
        return;
    }
    if (!was_told || !duty_may_build(worker, duty)) {
        duty->next_look_ms = now_ms < duty->over_at_ms ? duty->over_at_ms : now_ms + PAUSE_MIN_MS;
        return;
    }
    if (!duty->is_built) {
        status = duty_pass(worker, duty, &error);
        if (status == STATUS_OK)
            status = duty_build(worker, duty, &error);
        if (status == STATUS_OK)
            duty->has_way = false;
    }
    if (status == STATUS_OK && clock_monotonic_ms() >= duty->arm_at_ms) {
        status = duty_arm(worker, duty, &error);
        duty->arm_at_ms = now_ms;
    }
    if (status == STATUS_OK)
        duty->next_look_ms = duty->arm_at_ms;
    else if (status != STATUS_BUSY)
        duty_say(duty, "reconcile_failed", &error);
}

/* --- an armed policy --- */

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
        if (gate_acknowledge_keys(service->gate, duty->keys, duty->key_count, &error) != STATUS_OK)
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
    duty->keys_ticket = worker_issue(worker, NULL, 0, duty->keys, duty->key_count);
}

/* True when there was something to drain. */
static bool duty_drain(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct gate_pending *pending = worker->pending;
    struct relay *relay = worker->service->relay;
    struct error error = {""};

    if (pending->claim_count + pending->binding_count == 0 && duty->keys == NULL) {
        if (duty->has_way)
            return relay_rest(relay, &duty->way, duty->pending_count);
        /* What is pending before the cursor was on its way when the gate did not answer: without a
         * new beginning nobody would ask for it again. */
        if (duty->pending_count <= 0)
            return false;
    }
    if (!duty_is_held(worker, duty, now_ms))
        return false;
    if (!duty->has_way) {
        enum status status = duty_begin(worker, duty, &error);
        if (status != STATUS_OK)
            duty_say(duty, "drain_failed", &error);
        return status == STATUS_OK;
    }
    bool had_keys = duty->keys != NULL;
    duty_drain_keys(worker, duty);
    if (pending->claim_count == 0)
        return had_keys != (duty->keys != NULL) ||
               relay_rest(relay, &duty->way, duty->pending_count);
    enum status status =
        relay_carry(relay, &duty->way, pending->claims, pending->claim_count, &error);
    if (status == STATUS_CONFLICT)
        duty->has_way = false; /* Somebody else has begun. */
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
    if (gate_announce(worker->service->gate, duty->policy_id, worker->pending->unleased, &wait_ms,
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
    if (!duty_is_held(worker, duty, now_ms) || !duty_announce(worker, duty) ||
        clock_monotonic_ms() < duty->lend_at_ms)
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
        gate_retire(worker->service->gate, duty->policy_id, RETIRE_SECONDS, NULL) == STATUS_OK) {
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

    if (duty->way.cursor == 0)
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
        status = entering_tell(worker->service, duty->policy_id, &is_done, &error);
    if (status != STATUS_OK && status != STATUS_UNAVAILABLE)
        duty_say(duty, "enter_failed", &error);
}

void duty_attend(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct gate_pending *pending = worker->pending;
    struct error error = {""};

    enum status status =
        gate_pending(worker->service->gate, duty->policy_id, duty->way.cursor, pending, &error);
    if (status != STATUS_OK) {
        duty->has_way = false;
        duty->next_look_ms = now_ms + REFUSED_MS / 2 + (int64_t)random_below(REFUSED_MS);
        if (status != STATUS_UNAVAILABLE) /* Of a Redis that is away the gate tells. */
            duty_say(duty, "drain_failed", &error);
        return;
    }
    duty->gate_term = pending->term;
    duty->is_closed = duty->ends_at_ms != 0 && pending->now_ms >= duty->ends_at_ms;
    duty_count_pending(duty, pending);
    duty->oldest_requested_ms = pending->claim_count > 0 && duty->way.cursor == 0
                                    ? pending->claims[0].requested_at_ms
                                : pending->pending_count == 0 ? 0
                                                              : duty->oldest_requested_ms;
    if (pending->is_suspended) {
        duty->has_way = false;
        duty->next_look_ms = now_ms + PAUSE_MAX_MS;
        return;
    }
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
        duty->next_look_ms = now_ms;
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
    if (is_busy)
        duty->busy_at_ms = now_ms;
    int64_t pause_max_ms = now_ms - duty->busy_at_ms < WARM_MS ? PAUSE_WARM_MS : PAUSE_MAX_MS;
    duty->pause_ms = is_busy                         ? 0
                     : duty->pause_ms < PAUSE_MIN_MS ? PAUSE_MIN_MS
                                                     : duty->pause_ms * 2;
    if (duty->pause_ms > pause_max_ms)
        duty->pause_ms = pause_max_ms;
    duty->next_look_ms = now_ms + duty->pause_ms;
    if (duty->lend_at_ms > now_ms && duty->lend_at_ms < duty->next_look_ms)
        duty->next_look_ms = duty->lend_at_ms;
}
