/* announcer_metrics.c: what announcers have counted, a family over all of them at a time. */
#include <stdio.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "event/announcer.h"

/* One family of all announcers; of those that stand by as well. */
static void announcer_family(struct buffer *out, struct announcer *const *announcers, size_t count,
                             const char *name, enum metrics_kind kind, const char *help,
                             double (*value)(const struct announcer_numbers *numbers))
{
    metrics_family(out, name, kind, help);
    for (size_t i = 0; i < count; i++) {
        struct announcer_numbers numbers;
        char labels[32];
        if (announcers[i] == NULL)
            continue;
        announcer_count(announcers[i], &numbers);
        snprintf(labels, sizeof(labels), "sink=\"%s\"", announcer_sink(announcers[i])->ops->name);
        metrics_sample(out, name, labels, value(&numbers));
    }
}

static double announcer_is_on(const struct announcer_numbers *numbers)
{
    return numbers->state != ANNOUNCER_STANDS_BY;
}

static double announcer_told(const struct announcer_numbers *numbers)
{
    return (double)numbers->announced;
}

static double announcer_failed(const struct announcer_numbers *numbers)
{
    return (double)numbers->failed;
}

static double announcer_waiting(const struct announcer_numbers *numbers)
{
    return (double)numbers->waiting;
}

static double announcer_oldest_seconds(const struct announcer_numbers *numbers)
{
    int64_t age_ms = numbers->oldest_at_ms == 0 ? 0 : clock_wall_ms() - numbers->oldest_at_ms;

    return age_ms < 0 ? 0 : (double)age_ms / 1000;
}

static double announcer_given_up(const struct announcer_numbers *numbers)
{
    return numbers->is_given_up;
}

void announcer_metrics(struct announcer *const *announcers, size_t count, struct buffer *out)
{
    bool is_any = false;

    for (size_t i = 0; i < count; i++)
        is_any = is_any || announcers[i] != NULL;
    if (!is_any)
        return;
    announcer_family(out, announcers, count, "dibs_events_announcer", METRICS_GAUGE,
                     "1 in the process that publishes events to the sink; the others stand by.",
                     announcer_is_on);
    announcer_family(out, announcers, count, "dibs_events_total", METRICS_COUNTER,
                     "Events of coupons that were delivered.", announcer_told);
    announcer_family(out, announcers, count, "dibs_events_failed_total", METRICS_COUNTER,
                     "Batches of events that were not delivered, and are sent again.",
                     announcer_failed);
    announcer_family(out, announcers, count, "dibs_events_waiting", METRICS_GAUGE,
                     "Events in the outbox, as last counted.", announcer_waiting);
    announcer_family(out, announcers, count, "dibs_events_oldest_seconds", METRICS_GAUGE,
                     "How long the oldest event has waited.", announcer_oldest_seconds);
    announcer_family(out, announcers, count, "dibs_events_disabled", METRICS_GAUGE,
                     "1 while the sink fails for so long that it is tried only now and then.",
                     announcer_given_up);
    for (size_t i = 0; i < count; i++) {
        if (announcers[i] != NULL) {
            struct event_sink *sink = announcer_sink(announcers[i]);
            sink->ops->metrics(sink, out);
        }
    }
}
