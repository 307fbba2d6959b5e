/* duty_build.c: building a policy anew in a gate that does not answer for it, and arming it.
 *
 * What survived in the gate goes to the ledger first, then what is left of its leases returns, and
 * the policy is restored from the ledger. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "claim/shared/worker_parts.h"

#define FORGOTTEN_MS \
    510 /* a policy that was built anew is armed when every server has forgotten it */
#define SETTLE_MS     20000
#define SLICE_MS      200 /* of draining, before others have their turn */
#define STRAYS_MAX    100
#define LACKING_MAX   10000 /* in one round */
#define COUPONS_LIGHT 5000  /* up to so many are compared in any case */

/* --- claims that are pending though their users do not hold them ---
 *
 * No step of ours leaves one behind, but whoever edits Redis by hand, or a damaged file, can. What
 * a lease gave was won: its user holds it again, and it goes to the ledger as every other. */

/* What is to be done about one: it goes when the ledger has a row with its seq, or no lease gave
 * it. */
static enum status duty_strays_plan(struct worker *worker, const struct lease *leases, size_t count,
                                    struct gate_fix *fix, struct error *error)
{
    struct claim *claim = &fix->claim;
    const struct lease *lease = lease_that_gave(leases, count, NULL, claim->seq);
    struct coupon coupon;
    enum status status =
        ledger_coupon_get(worker->service->ledger, claim->policy_id, claim->seq, &coupon, error);

    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    bool is_won = status == STATUS_NOT_FOUND && lease != NULL;
    fix->kind = is_won ? GATE_FIX_HELD : GATE_FIX_REMOVE;
    if (is_won)
        claim_recover(claim, lease);
    log_event(LOG_WARN, is_won ? "claim_recovered" : "claim_removed",
              LOG_FIELD("policy", LOG_I64(claim->policy_id)), LOG_FIELD("seq", LOG_I64(claim->seq)),
              LOG_FIELD("user", LOG_SPAN(id_span(&claim->user))));
    return STATUS_OK;
}

/* Gives what is pending and no user holds back to its users, as far as a lease or the ledger says
 * that they won it, and takes the rest out of a gate that is not armed. */
static enum status duty_recover_strays(struct worker *worker, struct duty *duty,
                                       struct error *error)
{
    struct service *service = worker->service;
    struct claim *strays = malloc(STRAYS_MAX * sizeof(*strays));
    struct gate_fix *fixes = malloc(STRAYS_MAX * sizeof(*fixes));
    struct lease *leases = NULL;
    size_t stray_count = 0;
    size_t lease_count = 0;
    int64_t changed_count = 0;
    enum status status = strays == NULL || fixes == NULL
                             ? error_set(error, STATUS_UNAVAILABLE, "no memory for what is pending")
                             : gate_strays(service->shared, duty->policy_id, strays, STRAYS_MAX,
                                           &stray_count, error);

    if (status == STATUS_OK)
        status =
            ledger_lease_history(service->ledger, duty->policy_id, &leases, &lease_count, error);
    for (size_t i = 0; i < stray_count && status == STATUS_OK; i++) {
        fixes[i].claim = strays[i];
        status = duty_strays_plan(worker, leases, lease_count, &fixes[i], error);
    }
    if (status == STATUS_OK)
        status =
            gate_fix(service->shared, duty->policy_id, fixes, stray_count, &changed_count, error);
    if (status == STATUS_OK && changed_count == 0)
        status = error_set(error, STATUS_FAILED, "pending claims are not readable");
    free(strays);
    free(fixes);
    free(leases);
    return status;
}

/* --- what is pending --- */

/* Whether what was handed to the ledger and settled is what the gate shows once more. */
static bool duty_is_stuck(const struct gate_pending *pending, int64_t seq,
                          const struct request_id *key)
{
    if (pending->claim_count > 0)
        return pending->claims[0].seq == seq;
    return seq == 0 && memcmp(&pending->bindings[0].request_id, key, sizeof(*key)) == 0;
}

/* Hands everything that survived in a gate that is not armed to the ledger. Each round takes
 * something out of the gate, or is the last. BUSY: there is more, and it is the others' turn. */
static enum status duty_drain_all(struct worker *worker, struct duty *duty, struct error *error)
{
    struct gate_pending *pending = worker->pending;
    struct shared_gate *shared = worker->service->shared;
    int64_t seq = -1; /* of the first claim of the last round; 0: there were only keys */
    struct request_id key = {{0}};
    int64_t until_ms = clock_monotonic_ms() + SLICE_MS;

    while (!worker_must_end(worker)) {
        enum status status = gate_pending(shared, duty->policy_id, 0, pending, error);
        if (status == STATUS_OK && pending->claim_count + pending->binding_count == 0) {
            if (pending->stray_count == 0)
                return STATUS_OK;
            status = duty_recover_strays(worker, duty, error);
            if (status == STATUS_OK)
                continue;
        }
        if (status != STATUS_OK)
            return status;
        pending->claim_count =
            worker_relay_filter(worker->relay, pending->claims, pending->claim_count);
        if (pending->claim_count + pending->binding_count == 0)
            return error_set(error, STATUS_UNAVAILABLE,
                             "claims that the ledger refuses are tried again first");
        if (duty_is_stuck(pending, seq, &key))
            return error_set(error, STATUS_UNAVAILABLE,
                             "the gate keeps pending what the ledger has");
        if (seq >= 0 && clock_monotonic_ms() >= until_ms) {
            duty->next_attend_ms = clock_monotonic_ms();
            return error_set(error, STATUS_BUSY, "there is more that is pending");
        }
        seq = pending->claim_count > 0 ? pending->claims[0].seq : 0;
        key = pending->bindings[0].request_id;
        uint64_t ticket = worker_relay_issue(worker->relay, pending->claims, pending->claim_count,
                                             pending->bindings, pending->binding_count);
        if (!worker_settle(worker, ticket, SETTLE_MS))
            return error_set(error, STATUS_UNAVAILABLE, "the ledger does not take what is pending");
        status = gate_acknowledge_keys(shared, pending->bindings, pending->binding_count, error);
        if (status != STATUS_OK)
            return status;
    }
    return error_set(error, STATUS_UNAVAILABLE, "the worker ends");
}

/* --- claims that the gate calls issued and the ledger lacks ---
 *
 * The gate is told that a claim is issued when the ledger has it. A ledger that lacks one was
 * restored from a backup, or somebody deleted the row: building the policy anew from the ledger
 * would drop a winner for good. So what a lease gave goes to the ledger once more before. Where the
 * ledger has it after all, that changes nothing. */

struct duty_lacking {
    struct service *service;
    struct held_claim *claims; /* by rising seqs */
    size_t count;
    struct gate_state *state; /* of the gate, in which nothing is given out meanwhile */
    struct lease *leases;     /* all that the policy ever had */
    size_t lease_count;
};

static enum status duty_lacking_tell(void *context, int64_t policy_id,
                                     const struct claim_visitor *listener, struct error *error)
{
    const struct duty_lacking *lacking = context;

    return gate_visit(lacking->service->gate, policy_id, listener, error);
}

static void duty_lacking_note(void *context, enum ledger_difference difference,
                              const struct held_claim *held)
{
    struct duty_lacking *lacking = context;

    if (difference == LEDGER_LACKS && lacking->count < LACKING_MAX &&
        lease_that_gave(lacking->leases, lacking->lease_count, lacking->state, held->claim.seq) !=
            NULL)
        lacking->claims[lacking->count++] = *held;
}

static enum status duty_lacking_put_back(struct worker *worker, struct duty *duty,
                                         const struct duty_lacking *lacking, struct error *error)
{
    struct gate_fix *fixes = calloc(lacking->count, sizeof(*fixes));
    int64_t changed_count = 0;

    if (fixes == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for claims that the ledger lacks");
    for (size_t i = 0; i < lacking->count; i++)
        fixes[i] = (struct gate_fix){.kind = GATE_FIX_PENDING, .claim = lacking->claims[i].claim};
    enum status status = gate_fix(lacking->service->shared, duty->policy_id, fixes, lacking->count,
                                  &changed_count, error);
    free(fixes);
    log_event(LOG_WARN, "claims_put_back", LOG_FIELD("policy", LOG_I64(duty->policy_id)),
              LOG_FIELD("claims", LOG_I64((int64_t)lacking->count)));
    if (status == STATUS_OK)
        status = duty_drain_all(worker, duty, error);
    for (size_t i = 0; i < lacking->count && status == STATUS_OK; i++)
        service_redeem_again(lacking->service, &lacking->claims[i]);
    return status;
}

/* What the ledger does not take for good is a dead letter, and the gate lets go of it: each round
 * finds later claims than the one before, or is the last. */
static enum status duty_lacking_rounds(struct worker *worker, struct duty *duty,
                                       struct duty_lacking *lacking, struct error *error)
{
    const struct ledger_memory memory = {.tell = duty_lacking_tell,
                                         .context = lacking,
                                         .forgets_freed = true,
                                         .differs = duty_lacking_note};
    int64_t seq = 0; /* of the last claim that was put back */
    enum status status;

    do {
        struct ledger_gap gap = {0};
        lacking->count = 0;
        status = ledger_compare(lacking->service->ledger, &memory, duty->policy_id, &gap, error);
        if (status != STATUS_OK || lacking->count == 0 || lacking->claims[0].claim.seq <= seq)
            break;
        seq = lacking->claims[lacking->count - 1].claim.seq;
        status = duty_lacking_put_back(worker, duty, lacking, error);
    } while (status == STATUS_OK);
    return status;
}

/* Comparing takes as long as a good part of building: a large policy is compared when the gate has
 * more active coupons than the ledger. */
static enum status duty_lacking_is_likely(const struct duty_lacking *lacking, int64_t policy_id,
                                          bool *is_likely, struct error *error)
{
    const struct gate_state *state = lacking->state;
    struct ledger_balance balance = {0};
    enum status status = gate_inspect(lacking->service->gate, policy_id, lacking->state, error);

    *is_likely = status == STATUS_OK && state->is_known && state->issued > 0;
    if (*is_likely)
        status = ledger_balance(lacking->service->ledger, policy_id, &balance, error);
    *is_likely = *is_likely && (balance.coupons <= COUPONS_LIGHT || state->issued > balance.active);
    return status;
}

/* Hands the ledger what it lacks of the claims that a gate which is not armed calls issued. */
static enum status duty_save_lacking(struct worker *worker, struct duty *duty, struct error *error)
{
    struct duty_lacking lacking = {.service = worker->service,
                                   .claims = malloc(LACKING_MAX * sizeof(struct held_claim)),
                                   .state = calloc(1, sizeof(struct gate_state))};
    bool is_likely = false;
    enum status status =
        lacking.claims == NULL || lacking.state == NULL
            ? error_set(error, STATUS_UNAVAILABLE, "no memory for the claims of a policy")
            : duty_lacking_is_likely(&lacking, duty->policy_id, &is_likely, error);

    if (status == STATUS_OK && is_likely)
        status = ledger_lease_history(lacking.service->ledger, duty->policy_id, &lacking.leases,
                                      &lacking.lease_count, error);
    if (status == STATUS_OK && is_likely)
        status = duty_lacking_rounds(worker, duty, &lacking, error);
    free(lacking.claims);
    free(lacking.state);
    free(lacking.leases);
    /* What is not readable tells of no claim, and is put right by building the policy anew. */
    if (status == STATUS_FAILED)
        duty_say(duty, "claims_unreadable", error);
    return status == STATUS_FAILED || status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* --- building anew --- */

struct duty_restore {
    struct worker *worker;
    const struct duty *duty;
    struct gate *gate;
    int64_t active_count;
};

static enum status duty_restore_claim(void *context, const struct claim *claim,
                                      enum coupon_state state, struct error *error)
{
    struct duty_restore *restore = context;

    if (worker_must_end(restore->worker))
        return error_set(error, STATUS_UNAVAILABLE, "the worker ends");
    worker_serve_others(restore->worker, restore->duty);
    restore->active_count += coupon_state_is_active(state);
    return gate_restore(restore->gate, claim, state, error);
}

static enum status duty_restore_key(void *context, const struct key_binding *binding,
                                    struct error *error)
{
    struct duty_restore *restore = context;
    return gate_restore_key(restore->gate, binding, error);
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
static enum status duty_fix(struct worker *worker, struct duty *duty, struct error *error)
{
    struct ledger_fix fix = {.policy_id = duty->policy_id,
                             .term = duty->term,
                             .raises_total = true,
                             .adopts_strays = true,
                             .only_if_asked = true};
    enum status status = ledger_fix(worker->service->ledger, &fix, error);

    if (status == STATUS_OK && fix.is_changed)
        log_event(LOG_WARN, "stock_repaired", LOG_FIELD("policy", LOG_I64(duty->policy_id)),
                  LOG_FIELD("total", LOG_I64(fix.after.total)),
                  LOG_FIELD("unleased", LOG_I64(fix.after.unleased)),
                  LOG_FIELD("unleased_before", LOG_I64(fix.before.unleased)));
    return status;
}

/* All but arming it, for which its servers have to forget first. */
static enum status duty_build(struct worker *worker, struct duty *duty, struct error *error)
{
    struct service *service = worker->service;
    struct duty_restore restore = {.worker = worker, .duty = duty, .gate = service->gate};
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
        status = duty_fix(worker, duty, error);
    if (status == STATUS_OK)
        status = ledger_policy_get(service->ledger, duty->policy_id, &policy, error);
    FAULT_POINT("worker.before_reset");
    if (status == STATUS_OK)
        status =
            gate_reset(service->shared, duty->policy_id, policy.next_seq - 1, duty->term, error);
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

/* What the gate still has behind the cursor, and what is on its way, comes first: BUSY until it has
 * come out. */
static enum status duty_pass(struct worker *worker, struct duty *duty, struct error *error)
{
    struct gate_pending *pending = worker->pending;
    struct relay *relay = worker->service->relay;

    if (!duty->is_passing) {
        enum status status = duty_begin(worker, duty, error);
        if (status == STATUS_OK)
            status = gate_pending(worker->service->shared, duty->policy_id, duty->stream.cursor,
                                  pending, error);
        if (status != STATUS_OK)
            return status;
    }
    return relay->ops->pass(relay, &duty->stream, pending->claims, pending->claim_count, error);
}

/* Whether the policy has to be built, in a term in which nothing was armed yet, and the time of
 * what was armed before is over. */
static bool duty_may_build(struct worker *worker, struct duty *duty)
{
    const struct gate_pending *pending = worker->pending;

    if (duty->is_built)
        return true;
    if (pending->is_continuous && pending->term == duty->term) {
        terms_hurry(worker->service->terms);
        return false;
    }
    if (!duty->is_used && pending->term <= duty->term)
        return clock_monotonic_ms() >= duty->over_at_ms;
    duty_take_next(worker, duty);
    return false;
}

/* Many policies may have to be built at once: while one waits to be armed, others are built. */
void duty_reconcile(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct error error = {""};
    enum status status = STATUS_OK;

    duty->next_attend_ms = now_ms + DUTY_REFUSED_MS;
    bool was_told = duty->is_told;
    if (!duty_is_held(worker, duty, now_ms)) {
        duty->is_built = false;
        return;
    }
    if (!was_told || !duty_may_build(worker, duty)) {
        duty->next_attend_ms =
            now_ms < duty->over_at_ms ? duty->over_at_ms : now_ms + DUTY_PAUSE_MS;
        return;
    }
    if (!duty->is_built) {
        status = duty_pass(worker, duty, &error);
        if (status == STATUS_OK)
            status = duty_build(worker, duty, &error);
        if (status == STATUS_OK)
            duty->is_passing = false;
    }
    if (status == STATUS_OK && clock_monotonic_ms() >= duty->arm_at_ms) {
        status = duty_arm(worker, duty, &error);
        duty->arm_at_ms = now_ms;
    }
    if (status == STATUS_OK)
        duty->next_attend_ms = duty->arm_at_ms;
    else if (status != STATUS_BUSY)
        duty_say(duty, "reconcile_failed", &error);
}
