/* retention.c: deletes orders that are older than they are to be kept. */
#include "claim/retention.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/zone.h"
#include "claim/parts.h"
#include "ledger/sales/sales.h"

/* A batch holds up orders for some milliseconds, and claims for one commit. */
#define PAUSE_MS INT64_C(50)
#define EVERY_MS (INT64_C(10) * 60 * 1000)
#define FIRST_MS INT64_C(1000)

struct retention {
    struct service *service;
    struct periodic periodic;
    int64_t deleted_count; /* since the last pause */
    bool has_told;         /* that the ledger does not do it */
};

/* Whole days, and one more: so no order that was just taken goes. */
static int64_t retention_run(void *context)
{
    struct retention *retention = context;
    const struct service *service = retention->service;
    struct error error = {""};
    int64_t count = 0;
    int64_t before_day = zone_day(service->zone, ledger_orders_earliest_ms(service->ledger)) - 1;
    enum status status = ledger_orders_trim(service->ledger, before_day, &count, &error);

    if (status != STATUS_OK && !retention->has_told)
        log_event(LOG_WARN, "retention_waits", LOG_FIELD("error", LOG_TEXT(error.text)),
                  LOG_FIELD("next", LOG_TEXT("trying again")));
    retention->has_told = status != STATUS_OK;
    retention->deleted_count += count;
    if (count == ORDER_TRIM_MAX)
        return PAUSE_MS;
    if (retention->deleted_count > 0)
        log_event(LOG_INFO, "orders_deleted",
                  LOG_FIELD("orders", LOG_I64(retention->deleted_count)));
    retention->deleted_count = 0;
    return EVERY_MS;
}

enum status retention_start(struct service *service, struct error *error)
{
    if (service->options.orders_keep_days == 0 || !service->works)
        return STATUS_OK;
    struct retention *started = calloc(1, sizeof(*started));
    if (started == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for retention");
    started->service = service;
    service->retention = started;
    return periodic_start(&started->periodic, "retention", retention_run, started, FIRST_MS, error);
}

void retention_stop(struct retention *retention)
{
    if (retention == NULL)
        return;
    periodic_stop(&retention->periodic);
    free(retention);
}
