/* coupons.c: the life of a coupon after it was issued, what a user holds, and what the ledger does
 * not have yet. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fault.h"
#include "claim/code.h"
#include "claim/parts.h"
#include "claim/service.h"
#include "gate/shared.h"

/* A claim that the gate holds and the ledger has not written yet. */
static struct claim_status service_pending_claim(int64_t policy_id, const struct id *user,
                                                 const struct gate_claim *held)
{
    return (struct claim_status){
        .coupon = {.claim = {.policy_id = policy_id,
                             .seq = held->seq,
                             .nth = held->nth,
                             .requested_at_ms = held->requested_at_ms,
                             .user = *user},
                   .state = COUPON_ISSUED},
        .pending = true,
        .ahead = held->ahead,
    };
}

/* Pending claims first (they are the latest), then the ledger's rows. A claim that was written
 * between the two looks is in both: the row wins. */
static size_t service_merge_claims(int64_t policy_id, const struct id *user,
                                   const struct gate_claim *held, size_t held_count,
                                   const struct coupon *coupons, size_t coupon_count,
                                   struct claim_status *claims, size_t max)
{
    size_t count = 0;
    int64_t written_seq = coupon_count > 0 ? coupons[0].claim.seq : 0;
    int64_t now_ms = clock_wall_ms();

    for (size_t i = 0; i < held_count && count < max; i++)
        if (held[i].pending && held[i].seq > written_seq)
            claims[count++] = service_pending_claim(policy_id, user, &held[i]);
    for (size_t i = 0; i < coupon_count && count < max; i++) {
        claims[count] = (struct claim_status){.coupon = coupons[i]};
        claims[count].coupon.state =
            coupon_state_at(coupons[i].state, coupons[i].expires_at_ms, now_ms);
        count++;
    }
    return count;
}

enum status service_claims_of(struct service *service, int64_t policy_id, const struct id *user,
                              struct claim_status *claims, size_t max, size_t *count,
                              struct gate_numbers *numbers, struct error *error)
{
    struct gate_claim *held = calloc(max, sizeof(*held));
    struct coupon *coupons = calloc(max, sizeof(*coupons));
    size_t held_count = 0;
    size_t coupon_count = 0;
    enum status status = STATUS_OK;

    *count = 0;
    if (held == NULL || coupons == NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for the claims of a user");
    if (status == STATUS_OK)
        status = gate_find(service->gate, policy_id, user, held, max, &held_count, error);
    /* A user served during an outage finds that coupon even while Redis is still away. */
    enum status found = status;
    if (status == STATUS_UNAVAILABLE && service->options.fallback == FALLBACK_LEDGER)
        status = STATUS_OK;
    /* So does everyone when it has let go of the policy, though another server may have closed it
     * so lately that only the ledger knows. */
    if (status == STATUS_NOT_FOUND && service->sync != NULL && sync_lists(service->sync, policy_id))
        found = status = STATUS_OK;
    /* A user who holds nothing is told the state of the policy. */
    if (status == STATUS_OK)
        status = service->topology->numbers(
            service, policy_id, found == STATUS_OK && held_count == 0 ? NUMBERS_NOW : NUMBERS_KNOWN,
            numbers, error);
    if (status == STATUS_OK)
        status = ledger_coupons_of_claimant(service->ledger, policy_id, user, coupons, max,
                                            &coupon_count, error);
    if (status == STATUS_OK && found != STATUS_OK && coupon_count == 0)
        status = error_set(error, found, "the gate is away");
    if (status == STATUS_OK)
        *count = service_merge_claims(policy_id, user, held, held_count < max ? held_count : max,
                                      coupons, coupon_count, claims, max);
    free(held);
    free(coupons);
    return status;
}

/* What a person sees of coupons that the ledger has told of. */
static enum status service_show(enum status status, struct coupon *coupons, size_t count)
{
    int64_t now_ms = clock_wall_ms();

    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        coupons[i].state = coupon_state_at(coupons[i].state, coupons[i].expires_at_ms, now_ms);
    return status;
}

enum status service_coupon_get(struct service *service, int64_t policy_id, int64_t seq,
                               struct coupon *coupon, struct error *error)
{
    return service_show(ledger_coupon_get(service->ledger, policy_id, seq, coupon, error), coupon,
                        1);
}

enum status service_coupons_of_user(struct service *service, const struct id *user,
                                    int64_t after_policy_id, int64_t after_seq,
                                    struct coupon *coupons, size_t max, size_t *count,
                                    struct error *error)
{
    enum status status = ledger_coupons_of_user(service->ledger, user, after_policy_id, after_seq,
                                                coupons, max, count, error);

    return service_show(status, coupons, *count);
}

enum status service_coupons_of_policy(struct service *service, int64_t policy_id, int64_t after_seq,
                                      struct coupon *coupons, size_t max, size_t *count,
                                      struct error *error)
{
    enum status status =
        ledger_coupons_of_policy(service->ledger, policy_id, after_seq, coupons, max, count, error);

    return service_show(status, coupons, *count);
}

static void service_coupon_doubt(struct service *service, int64_t policy_id, int64_t seq)
{
    steward_doubt(
        &service->steward,
        &(struct steward_doubt){.about = DOUBT_COUPON, .policy_id = policy_id, .seq = seq});
}

/* The ledger has the change. A gate that is away hears of it when it is back; one that has let go
 * of the policy need not. */
static enum status service_coupon_told(struct service *service, int64_t policy_id, int64_t seq,
                                       enum status told)
{
    if (told == STATUS_UNAVAILABLE)
        service_coupon_doubt(service, policy_id, seq);
    return told == STATUS_UNAVAILABLE || told == STATUS_NOT_FOUND ? STATUS_OK : told;
}

enum status service_coupon_redeem(struct service *service, int64_t policy_id, int64_t seq,
                                  const struct id *order_id, const char *traceparent,
                                  struct coupon *coupon, struct error *error)
{
    enum status status = ledger_coupon_redeem(service->ledger, policy_id, seq, order_id,
                                              clock_wall_ms(), traceparent, coupon, error);
    if (status == STATUS_UNKNOWN)
        service_coupon_doubt(service, policy_id, seq);
    if (status != STATUS_OK)
        return status;
    status =
        gate_settle(service->gate, policy_id, &coupon->claim.user, seq, COUPON_REDEEMED, error);
    return service_coupon_told(service, policy_id, seq, status);
}

/* The unit is in the ledger's unleased stock when this returns and the gate knows it: the next
 * claim that finds the gate empty makes the steward lease it. */
enum status service_coupon_cancel(struct service *service, int64_t policy_id, int64_t seq,
                                  const char *traceparent, struct coupon *coupon,
                                  struct error *error)
{
    struct policy policy;

    /* Or the gate would open without the unit, and somebody be told SOLD_OUT. */
    if (!restore_has(service->restore, policy_id))
        return service_not_yet(error);
    enum status status = ledger_coupon_cancel(service->ledger, policy_id, seq, clock_wall_ms(),
                                              traceparent, coupon, &policy, error);

    if (status == STATUS_UNKNOWN)
        service_coupon_doubt(service, policy_id, seq);
    if (status != STATUS_OK)
        return status;
    status =
        gate_settle(service->gate, policy_id, &coupon->claim.user, seq, COUPON_CANCELLED, error);
    if (status == STATUS_OK)
        status = gate_policy_set(service->gate, &policy, error);
    return service_coupon_told(service, policy_id, seq, status);
}

/* --- reissuing --- */

/* No client's key has a space. */
static struct ledger_reissue service_reissue_of(const struct coupon *old)
{
    struct ledger_reissue reissue = {.policy_id = old->claim.policy_id,
                                     .seq = old->claim.seq,
                                     .now_ms = clock_wall_ms(),
                                     .old = *old};
    char key[64];
    int length =
        snprintf(key, sizeof(key), "reissue %" PRId64 "-%" PRId64, reissue.policy_id, reissue.seq);

    reissue.request_id =
        request_id_of_key(&old->claim.user, (struct span){.bytes = key, .length = (size_t)length});
    return reissue;
}

/* Under the policy's lock. The gate hears of it later where it cannot now: the ledger has it. */
static enum status service_reissue(struct service *service, struct ledger_reissue *reissue,
                                   struct error *error)
{
    enum status status = steward_is_settled(&service->steward, reissue->policy_id)
                             ? ledger_coupon_get(service->ledger, reissue->policy_id, reissue->seq,
                                                 &reissue->old, error)
                             : service_not_yet(error);
    if (status == STATUS_OK)
        status = service->topology->reissue(service, reissue, error);
    if (status == STATUS_UNKNOWN)
        service_coupon_doubt(service, reissue->policy_id, reissue->seq);
    if (status != STATUS_OK)
        return status;
    FAULT_POINT("claim.after_reissue");
    struct error ignored;
    if (service->topology->reissued(service, reissue, &ignored) != STATUS_OK)
        service_coupon_doubt(service, reissue->policy_id, reissue->seq);
    return STATUS_OK;
}

enum status service_coupon_reissue(struct service *service, int64_t policy_id, int64_t seq,
                                   const char *traceparent, struct coupon *coupon,
                                   struct error *error)
{
    enum status status = ledger_coupon_get(service->ledger, policy_id, seq, coupon, error);

    if (status != STATUS_OK)
        return status;
    struct ledger_reissue reissue = service_reissue_of(coupon);
    reissue.traceparent = traceparent;
    steward_lock(&service->steward, policy_id);
    status = service_reissue(service, &reissue, error);
    steward_unlock(&service->steward, policy_id);
    service_stock_changed(service);
    *coupon = status == STATUS_OK ? reissue.coupon : reissue.old;
    return service_show(status, coupon, 1);
}

/* --- what became of a change in doubt --- */

/* Something may have taken the place of one that is cancelled. */
static enum status service_reissue_settle(struct service *service, const struct coupon *old,
                                          struct error *error)
{
    struct ledger_reissue reissue = service_reissue_of(old);
    bool is_done;
    enum status status = ledger_coupon_reissued(service->ledger, &reissue, &is_done, error);

    return status == STATUS_OK && is_done ? service->topology->reissued(service, &reissue, error)
                                          : status;
}

/* Only what can no longer change is told: a call that comes meanwhile tells the rest itself. */
enum status service_coupon_settle(struct service *service, int64_t policy_id, int64_t seq,
                                  struct error *error)
{
    struct coupon coupon;
    struct policy policy;
    enum status status = ledger_coupon_get(service->ledger, policy_id, seq, &coupon, error);

    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (status == STATUS_OK && coupon.state == COUPON_CANCELLED)
        status = service_reissue_settle(service, &coupon, error);
    if (status == STATUS_OK &&
        (coupon.state == COUPON_REDEEMED || coupon.state == COUPON_CANCELLED))
        status =
            gate_settle(service->gate, policy_id, &coupon.claim.user, seq, coupon.state, error);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    return status == STATUS_OK ? service_refresh(service, policy_id, &policy, error) : status;
}

enum status service_user_block(struct service *service, const struct id *user, bool blocked,
                               struct error *error)
{
    /* One at a time, or two opposite calls could reach ledger and gate in different orders. */
    steward_lock(&service->steward, STEWARD_USERS);
    enum status status =
        steward_is_sure(&service->steward, STEWARD_USERS)
            ? ledger_user_block(service->ledger, user, blocked, clock_wall_ms(), error)
            : service_not_yet(error);
    if (status == STATUS_UNKNOWN)
        steward_doubt(&service->steward, &(struct steward_doubt){.about = DOUBT_USER,
                                                                 .policy_id = STEWARD_USERS,
                                                                 .user = *user});
    if (status == STATUS_OK)
        status = gate_block(service->gate, user, blocked, error);
    if (service->sync != NULL)
        sync_touch(service->sync, user);
    steward_unlock(&service->steward, STEWARD_USERS);
    return status;
}

enum status service_user_settle(struct service *service, const struct id *user, struct error *error)
{
    bool blocked;
    enum status status = ledger_user_blocked(service->ledger, user, &blocked, error);

    return status == STATUS_OK ? gate_block(service->gate, user, blocked, error) : status;
}

/* --- claims that the ledger does not have yet --- */

/* --- a gate in this process --- */

struct pending_page {
    int64_t after_seq;
    struct claim *claims;
    size_t max;
    size_t count;
};

/* A full page ends the walk: BUSY, which no gate answers with. */
static enum status pending_take(void *context, const struct held_claim *held, struct error *error)
{
    struct pending_page *page = context;

    if (!held->is_pending || held->claim.seq <= page->after_seq)
        return STATUS_OK;
    if (page->count == page->max)
        return error_set(error, STATUS_BUSY, "the page is full");
    page->claims[page->count++] = held->claim;
    return STATUS_OK;
}

static enum status pending_visit(struct gate *gate, int64_t policy_id, struct pending_page *page,
                                 struct error *error)
{
    const struct claim_visitor visitor = {.claim = pending_take, .context = page};
    enum status status = gate_visit(gate, policy_id, &visitor, error);

    return status == STATUS_BUSY ? STATUS_OK : status;
}

/* --- a shared gate --- */

/* Of one that the gate does not have, or has let go of, nothing is pending: the ledger knows
 * whether there is such a policy. While the gate has it, the ledger may be away. */
static enum status pending_read(struct service *service, int64_t policy_id,
                                struct pending_page *page, struct error *error)
{
    struct shared_gate *gate = service->shared;
    struct gate_pending *pending = malloc(sizeof(*pending));
    struct policy_view view;
    int64_t after_seq = page->after_seq;
    enum status status = pending == NULL
                             ? error_set(error, STATUS_UNAVAILABLE, "no memory for what is pending")
                             : gate_pending(gate, policy_id, after_seq, pending, error);

    if (status == STATUS_OK && !pending->is_known)
        status = service_policy_show(service, policy_id, &view, error);
    while (status == STATUS_OK && pending->is_known && pending->claim_count > 0 &&
           page->count < page->max) {
        for (size_t i = 0; i < pending->claim_count && page->count < page->max; i++)
            page->claims[page->count++] = pending->claims[i];
        after_seq = pending->claims[pending->claim_count - 1].seq;
        if (page->count < page->max)
            status = gate_pending(gate, policy_id, after_seq, pending, error);
    }
    free(pending);
    return status;
}

enum status service_pending_claims(struct service *service, int64_t policy_id, int64_t after_seq,
                                   struct claim *claims, size_t max, size_t *count,
                                   struct error *error)
{
    struct pending_page page = {.after_seq = after_seq, .claims = claims, .max = max};
    enum status status = service->shared != NULL
                             ? pending_read(service, policy_id, &page, error)
                             : pending_visit(service->gate, policy_id, &page, error);

    *count = page.count;
    return status;
}
