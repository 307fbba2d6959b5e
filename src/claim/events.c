/* events.c: joins the service to Kafka and to the sinks that its events go to. */
#include "base/clock.h"
#include "claim/parts.h"

/* For events and orders that are on their way; whoever comes next tells those that stay. */
#define STOP_MIN_MS 500
#define STOP_MAX_MS 2000

/* The settings whose URL may name an event sink. */
static const size_t service_sink_urls[] = {
    offsetof(struct service_options, relay_url),
};
#define SINK_URLS (sizeof(service_sink_urls) / sizeof(service_sink_urls[0]))

static const char *service_sink_url(const struct service_options *options, size_t index)
{
    const char *const *url = (const void *)((const char *)options + service_sink_urls[index]);

    return event_sink_exists(*url) ? *url : NULL;
}

bool service_has_events(const struct service_options *options)
{
    for (size_t i = 0; i < SINK_URLS; i++)
        if (service_sink_url(options, i) != NULL)
            return true;
    return false;
}

/* --- life --- */

enum status service_open_kafka(struct service *service, struct error *error)
{
    return kafka_open(&service->kafka, service->options.relay_url, service->options.relay_password,
                      service->works ? KAFKA_PUBLISHES : KAFKA_WATCHES, error);
}

static enum status service_open_sinks(struct service *service, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < SINK_URLS && status == STATUS_OK; i++) {
        const struct event_sink_options options = {
            .url = service_sink_url(&service->options, i),
            .kafka = service->kafka,
        };
        if (options.url == NULL)
            continue;
        status = event_sink_open(&service->sinks[service->sink_count], &options, error);
        service->sink_count += status == STATUS_OK;
    }
    return status;
}

enum status service_open_events(struct service *service, struct error *error)
{
    if (!service->works)
        return STATUS_OK;
    enum status status = service_open_sinks(service, error);
    if (status == STATUS_OK && service->sink_count > 0) {
        const struct announcer_options options = {
            .ledger = service->ledger,
            .sinks = service->sinks,
            .sink_count = service->sink_count,
            .is_alone = service_is_alone(service),
        };
        struct announcer *announcer = NULL;
        status = announcer_open(&announcer, &options, error);
        atomic_store(&service->announcer, announcer);
    }
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
    announcer_stop(service->announcer, service_left_ms(stop_at_ms));
}

void service_close_events(struct service *service)
{
    for (size_t i = 0; i < service->sink_count; i++)
        service->sinks[i]->ops->close(service->sinks[i]);
    announcer_close(service->announcer);
    kafka_stop(service->kafka);
}

/* --- while it runs --- */

/* Also before there is an announcer, and when another process has it. */
void service_on_events(void *context)
{
    struct service *service = context;
    struct announcer *announcer = atomic_load(&service->announcer);

    if (announcer != NULL)
        announcer_wake(announcer);
}

void service_write_flow(struct service *service, struct buffer *out)
{
    struct announcer *announcer = atomic_load(&service->announcer);

    relay_kafka_metrics(service->kafka, service->relay_kafka, out);
    if (announcer != NULL)
        announcer_metrics(announcer, out);
    kafka_orders_metrics(service->orders, out);
}
