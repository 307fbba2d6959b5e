/* events.c: joins the service to Kafka and to the sinks that its events go to. */
#include <string.h>

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
