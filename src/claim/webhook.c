/* webhook.c: how the webhook does, a test of it, and what it has had once more. */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "claim/parts.h"

#define PAGE_COUPONS 500
#define GIVEN_UP_MS  INT64_C(86400000)
#define REPEAT_MAX   500 /* of one transaction */

static enum status webhook_is_set(const struct service *service, struct error *error)
{
    bool tells[LEDGER_SINKS];

    service_has_events(&service->options, tells);
    return tells[LEDGER_SINK_WEBHOOK]
               ? STATUS_OK
               : error_set(error, STATUS_CONFLICT,
                           "there is no webhook; set webhook=https://… and webhook_secret_file");
}

enum status service_webhook_show(struct service *service, struct webhook_view *view,
                                 struct error *error)
{
    *view = (struct webhook_view){.is_given_up = false};
    enum status status = webhook_is_set(service, error);
    if (status == STATUS_OK)
        status = ledger_sink_state_get(service->ledger, LEDGER_SINK_WEBHOOK, &view->state, error);
    if (status == STATUS_OK)
        status = ledger_event_backlog(service->ledger, LEDGER_SINK_WEBHOOK, &view->backlog, error);
    int64_t since_ms = view->state.failing_since_ms;
    view->is_given_up = since_ms != 0 && clock_wall_ms() - since_ms >= GIVEN_UP_MS;
    return status;
}

enum status service_webhook_enable(struct service *service, struct error *error)
{
    struct announcer *announcer = atomic_load(&service->announcers[LEDGER_SINK_WEBHOOK]);
    enum status status = webhook_is_set(service, error);

    if (status == STATUS_OK)
        status = ledger_sink_ask(service->ledger, LEDGER_SINK_WEBHOOK, error);
    if (status == STATUS_OK && announcer != NULL)
        announcer_retry(announcer);
    return status;
}

enum status service_webhook_test(struct service *service, struct webhook_answer *answer,
                                 struct error *error)
{
    enum status status = webhook_is_set(service, error);

    if (status == STATUS_OK)
        status = webhook_test(&service->options.webhook, answer, error);
    if (status == STATUS_OK && answer->outcome == WEBHOOK_DELIVERED)
        status = service_webhook_enable(service, error);
    return status;
}

/* --- once more --- */

/* A change of a coupon; the coupon itself is read again when it is told. */
struct webhook_change {
    int64_t at_ms;
    int64_t seq;
    enum coupon_state state;
};

struct webhook_changes {
    struct webhook_change *items;
    size_t count;
    size_t capacity;
    int64_t since_ms;
};

static void webhook_add(struct webhook_changes *changes, const struct coupon *coupon,
                        enum coupon_state state, int64_t at_ms)
{
    if (at_ms == 0 || at_ms < changes->since_ms)
        return;
    ensure(array_make_room(changes->items, changes->count, changes->capacity));
    changes->items[changes->count++] =
        (struct webhook_change){.at_ms = at_ms, .seq = coupon->claim.seq, .state = state};
}

static void webhook_add_coupon(struct webhook_changes *changes, const struct coupon *coupon)
{
    enum coupon_state first = coupon->state == COUPON_VOID || coupon->state == COUPON_MERGED
                                  ? coupon->state
                                  : COUPON_ISSUED;

    webhook_add(changes, coupon, first, coupon->issued_at_ms);
    if (coupon->state == COUPON_REDEEMED)
        webhook_add(changes, coupon, COUPON_REDEEMED, coupon->redeemed_at_ms);
    if (coupon->state == COUPON_CANCELLED)
        webhook_add(changes, coupon, COUPON_CANCELLED, coupon->cancelled_at_ms);
}

/* In the order in which they happened; a coupon is issued before anything else. */
static int webhook_compare(const void *a, const void *b)
{
    const struct webhook_change *one = a;
    const struct webhook_change *two = b;

    if (one->at_ms != two->at_ms)
        return one->at_ms < two->at_ms ? -1 : 1;
    if ((one->state == COUPON_ISSUED) != (two->state == COUPON_ISSUED))
        return one->state == COUPON_ISSUED ? -1 : 1;
    return one->seq == two->seq ? 0 : one->seq < two->seq ? -1 : 1;
}

static enum status webhook_gather(struct service *service, int64_t policy_id,
                                  struct webhook_changes *changes, struct error *error)
{
    struct coupon *coupons = calloc(PAGE_COUPONS, sizeof(*coupons));
    enum status status = coupons != NULL ? STATUS_OK : STATUS_UNAVAILABLE;
    int64_t after_seq = 0;
    size_t count = PAGE_COUPONS;

    changes->count = 0;
    while (status == STATUS_OK && count == PAGE_COUPONS) {
        status = ledger_coupons_of_policy(service->ledger, policy_id, after_seq, coupons,
                                          PAGE_COUPONS, &count, error);
        for (size_t i = 0; status == STATUS_OK && i < count; i++) {
            webhook_add_coupon(changes, &coupons[i]);
            after_seq = coupons[i].claim.seq;
        }
    }
    free(coupons);
    if (changes->count > 1)
        qsort(changes->items, changes->count, sizeof(changes->items[0]), webhook_compare);
    return status;
}

/* Notes up to REPEAT_MAX of the changes. */
static enum status webhook_repeat_some(struct service *service, int64_t policy_id,
                                       const struct webhook_change *changes, size_t count,
                                       struct ledger_event *events, struct error *error)
{
    for (size_t i = 0; i < count; i++) {
        struct coupon *coupon = &events[i].coupon;
        enum status status =
            ledger_coupon_get(service->ledger, policy_id, changes[i].seq, coupon, error);
        if (status != STATUS_OK)
            return status;
        coupon->state = changes[i].state;
        events[i].changed_at_ms = changes[i].at_ms;
    }
    return ledger_events_repeat(service->ledger, LEDGER_SINK_WEBHOOK, events, count, error);
}

struct webhook_redelivery {
    struct service *service;
    struct webhook_changes changes;
    struct ledger_event *events;
    int64_t count;
};

static enum status webhook_repeat(void *context, const struct policy *policy, struct error *error)
{
    struct webhook_redelivery *redelivery = context;
    struct webhook_changes *changes = &redelivery->changes;
    enum status status = webhook_gather(redelivery->service, policy->id, changes, error);

    for (size_t at = 0; at < changes->count && status == STATUS_OK; at += REPEAT_MAX) {
        size_t count = changes->count - at < REPEAT_MAX ? changes->count - at : REPEAT_MAX;
        status = webhook_repeat_some(redelivery->service, policy->id, changes->items + at, count,
                                     redelivery->events, error);
        if (status == STATUS_OK)
            redelivery->count += (int64_t)count;
    }
    return status;
}

enum status service_webhook_redeliver(struct service *service, int64_t since_ms, int64_t policy_id,
                                      int64_t *count, struct error *error)
{
    struct webhook_redelivery redelivery = {
        .service = service,
        .changes = {.since_ms = since_ms},
        .events = calloc(REPEAT_MAX, sizeof(struct ledger_event)),
    };
    struct policy policy;
    enum status status = webhook_is_set(service, error);

    if (status == STATUS_OK && redelivery.events == NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for the events");
    if (status == STATUS_OK && policy_id == 0) {
        status = service_each_policy(service, webhook_repeat, &redelivery, error);
    } else if (status == STATUS_OK) {
        status = ledger_policy_get(service->ledger, policy_id, &policy, error);
        if (status == STATUS_OK)
            status = webhook_repeat(&redelivery, &policy, error);
    }
    *count = redelivery.count;
    free(redelivery.events);
    free(redelivery.changes.items);
    return status;
}
