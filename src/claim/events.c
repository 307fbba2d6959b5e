/* events.c: joins the service to Kafka and to the sinks that its events go to, and asks after the
 * webhook, which operators test and have told once more. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "claim/parts.h"

/* For events and orders that are on their way; whoever comes next tells those that stay. */
#define STOP_MIN_MS 500
#define STOP_MAX_MS 2000

bool service_has_events(const struct service_options *options, bool tells[LEDGER_SINKS])
{
    const char *const urls[] = {options->relay_url, options->webhook.url};
    bool has_events = false;
    enum ledger_sink sink;

    memset(tells, 0, LEDGER_SINKS * sizeof(tells[0]));
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        if (urls[i] == NULL || !event_sink_exists(urls[i], &sink))
            continue;
        tells[sink] = true;
        has_events = true;
    }
    return has_events;
}

/* --- life --- */

enum status service_open_kafka(struct service *service, struct error *error)
{
    return kafka_open(&service->kafka, service->options.relay_url, service->options.relay_password,
                      &service->options.kafka_names,
                      service->works ? KAFKA_PUBLISHES : KAFKA_WATCHES, error);
}

static enum status service_open_sink(struct service *service, enum ledger_sink sink,
                                     struct error *error)
{
    const struct event_sink_options options = {
        .url =
            sink == LEDGER_SINK_KAFKA ? service->options.relay_url : service->options.webhook.url,
        .kafka = service->kafka,
        .webhook = &service->options.webhook,
    };
    struct announcer *announcer = NULL;
    enum status status = event_sink_open(&service->sinks[sink], &options, error);

    if (status != STATUS_OK)
        return status;
    status = announcer_open(&announcer,
                            &(struct announcer_options){.ledger = service->ledger,
                                                        .sink = service->sinks[sink],
                                                        .is_alone = service_is_alone(service)},
                            error);
    atomic_store(&service->announcers[sink], announcer);
    return status;
}

enum status service_open_events(struct service *service, struct error *error)
{
    bool tells[LEDGER_SINKS];
    enum status status = STATUS_OK;

    if (!service->works)
        return STATUS_OK;
    service_has_events(&service->options, tells);
    for (enum ledger_sink sink = 0; sink < LEDGER_SINKS && status == STATUS_OK; sink++)
        if (tells[sink])
            status = service_open_sink(service, sink, error);
    if (status == STATUS_OK && service->kafka != NULL)
        status = kafka_orders_open(&service->orders, service->kafka, service->ledger, error);
    return status;
}

/* What is at work is not dropped at once, though time is up. */
static int64_t service_left_ms(int64_t stop_at_ms)
{
    int64_t left_ms = stop_at_ms - clock_monotonic_ms();

    if (left_ms < STOP_MIN_MS)
        return STOP_MIN_MS;
    return left_ms < STOP_MAX_MS ? left_ms : STOP_MAX_MS;
}

void service_stop_events(struct service *service, int64_t stop_at_ms)
{
    kafka_orders_close(service->orders, service_left_ms(stop_at_ms));
    for (enum ledger_sink sink = 0; sink < LEDGER_SINKS; sink++)
        announcer_stop(service->announcers[sink], service_left_ms(stop_at_ms));
}

void service_close_events(struct service *service)
{
    for (enum ledger_sink sink = 0; sink < LEDGER_SINKS; sink++) {
        if (service->sinks[sink] != NULL)
            service->sinks[sink]->ops->close(service->sinks[sink]);
        announcer_close(service->announcers[sink]);
    }
    kafka_stop(service->kafka);
}

/* --- while it runs --- */

void service_announcers(struct service *service, struct announcer *announcers[LEDGER_SINKS])
{
    for (enum ledger_sink sink = 0; sink < LEDGER_SINKS; sink++)
        announcers[sink] = atomic_load(&service->announcers[sink]);
}

/* Also before there is an announcer, and when another process has it. */
void service_on_events(void *context)
{
    struct announcer *announcers[LEDGER_SINKS];

    service_announcers(context, announcers);
    for (enum ledger_sink sink = 0; sink < LEDGER_SINKS; sink++)
        if (announcers[sink] != NULL)
            announcer_wake(announcers[sink]);
}

void service_write_flow(struct service *service, struct buffer *out)
{
    struct announcer *announcers[LEDGER_SINKS];

    service_announcers(service, announcers);
    relay_kafka_metrics(service->kafka, service->relay_kafka, out);
    announcer_metrics(announcers, LEDGER_SINKS, out);
    kafka_orders_metrics(service->orders, out);
}

/* --- the webhook --- */

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
