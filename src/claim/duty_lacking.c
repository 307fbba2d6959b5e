/* duty_lacking.c: claims that a shared gate calls issued and the ledger lacks.
 *
 * The gate is told that a claim is issued when the ledger has it. A ledger that lacks one was
 * restored from a backup, or somebody deleted the row: building the policy anew from the ledger
 * would drop a winner for good. So what a lease gave goes to the ledger once more before. Where the
 * ledger has it after all, that changes nothing. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/worker_parts.h"

#define LACKING_MAX   10000 /* in one round */
#define COUPONS_LIGHT 5000  /* up to so many are compared in any case */

struct duty_lacking {
    struct service *service;
    struct held_claim *claims; /* by rising seqs */
    size_t count;
    struct gate_state *state; /* of the gate, in which nothing is given out meanwhile */
    struct lease *leases;     /* all that the policy ever had */
    size_t lease_count;
};

static enum status duty_lacking_tell(void *context, int64_t policy_id,
                                     const struct ledger_listener *listener, struct error *error)
{
    const struct duty_lacking *lacking = context;
    struct gate_visitor visitor = {.policy = listener->policy,
                                   .lease = listener->lease,
                                   .claim = listener->claim,
                                   .key = listener->key,
                                   .blocked = listener->blocked,
                                   .context = listener->context};

    return gate_visit(lacking->service->gate, policy_id, &visitor, error);
}

/* Whether a lease gave that seq: nobody can hold what the gate has not come to yet. */
static bool duty_lacking_is_given(const struct duty_lacking *lacking, int64_t seq)
{
    const struct lease *lease = duty_lease_of(lacking->leases, lacking->lease_count, seq);

    for (size_t i = 0; lease != NULL && i < lacking->state->lease_count; i++) {
        const struct gate_lease *in_gate = &lacking->state->leases[i];
        if (in_gate->id == lease->id && seq >= in_gate->next_seq)
            return false;
    }
    return lease != NULL;
}

static void duty_lacking_note(void *context, enum ledger_difference difference,
                              const struct held_claim *held)
{
    struct duty_lacking *lacking = context;

    if (difference == LEDGER_LACKS && lacking->count < LACKING_MAX &&
        duty_lacking_is_given(lacking, held->claim.seq))
        lacking->claims[lacking->count++] = *held;
}

static enum status duty_lacking_find(struct duty_lacking *lacking, int64_t policy_id,
                                     struct error *error)
{
    struct ledger_memory memory = {.tell = duty_lacking_tell,
                                   .context = lacking,
                                   .forgets_freed = true,
                                   .differs = duty_lacking_note};
    struct ledger_gap gap = {0};

    lacking->count = 0;
    return ledger_compare(lacking->service->ledger, &memory, policy_id, &gap, error);
}

/* A coupon that was redeemed is not to be used twice. */
static void duty_lacking_redeem(const struct duty_lacking *lacking)
{
    const struct user_id no_order = {.length = 0};
    struct coupon coupon;
    struct error error = {""};

    for (size_t i = 0; i < lacking->count; i++) {
        const struct claim *claim = &lacking->claims[i].claim;
        if (lacking->claims[i].state == COUPON_REDEEMED &&
            ledger_coupon_redeem(lacking->service->ledger, claim->policy_id, claim->seq, &no_order,
                                 clock_wall_ms(), NULL, &coupon, &error) != STATUS_OK)
            log_event(LOG_WARN, "redeem_failed", LOG_FIELD("policy", LOG_I64(claim->policy_id)),
                      LOG_FIELD("seq", LOG_I64(claim->seq)),
                      LOG_FIELD("error", LOG_TEXT(error.text)));
    }
}

static enum status duty_lacking_put_back(struct worker *worker, struct duty *duty,
                                         const struct duty_lacking *lacking, struct error *error)
{
    struct gate_mend *mends = calloc(lacking->count, sizeof(*mends));
    int64_t changed_count = 0;

    if (mends == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for claims that the ledger lacks");
    for (size_t i = 0; i < lacking->count; i++)
        mends[i] =
            (struct gate_mend){.mending = GATE_MEND_PENDING, .claim = lacking->claims[i].claim};
    enum status status = gate_mend(lacking->service->gate, duty->policy_id, mends, lacking->count,
                                   &changed_count, error);
    free(mends);
    log_event(LOG_WARN, "claims_put_back", LOG_FIELD("policy", LOG_I64(duty->policy_id)),
              LOG_FIELD("claims", LOG_I64((int64_t)lacking->count)));
    if (status == STATUS_OK)
        status = duty_drain_all(worker, duty, error);
    if (status == STATUS_OK)
        duty_lacking_redeem(lacking);
    return status;
}

/* What the ledger does not take for good is a dead letter, and the gate lets go of it: each round
 * finds later claims than the one before, or is the last. */
static enum status duty_lacking_rounds(struct worker *worker, struct duty *duty,
                                       struct duty_lacking *lacking, struct error *error)
{
    int64_t seq = 0; /* of the last claim that was put back */
    enum status status;

    for (;;) {
        status = duty_lacking_find(lacking, duty->policy_id, error);
        if (status != STATUS_OK || lacking->count == 0 || lacking->claims[0].claim.seq <= seq)
            break;
        seq = lacking->claims[lacking->count - 1].claim.seq;
        status = duty_lacking_put_back(worker, duty, lacking, error);
        if (status != STATUS_OK)
            break;
    }
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

enum status duty_save_lacking(struct worker *worker, struct duty *duty, struct error *error)
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
