/* sales.c: orders and products; all of it is the ledger's, and boards follow its feed. */
#include "base/clock.h"
#include "claim/parts.h"

/* The board catches up at once, whatever the outcome was. */
static void service_sold(struct service *service)
{
    if (service->ranking != NULL)
        ranking_wake(service->ranking);
}

enum status service_orders_add(struct service *service, struct order *orders, size_t count,
                               struct error *error)
{
    enum status status = ledger_orders_add(service->ledger, orders, count, clock_wall_ms(), error);

    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        atomic_fetch_add_explicit(&service->sales.orders[orders[i].result], 1,
                                  memory_order_relaxed);
    if (status != STATUS_OK)
        atomic_fetch_add_explicit(&service->sales.orders_failed, count, memory_order_relaxed);
    service_sold(service);
    return status;
}

enum status service_order_refund(struct service *service, const struct id *order_id,
                                 struct order *order, bool *is_news, struct error *error)
{
    enum status status =
        ledger_order_refund(service->ledger, order_id, clock_wall_ms(), order, is_news, error);

    if (status == STATUS_OK && *is_news)
        atomic_fetch_add_explicit(&service->sales.refunds, 1, memory_order_relaxed);
    service_sold(service);
    return status;
}

enum status service_signals_add(struct service *service, struct signal *signals, size_t count,
                                struct error *error)
{
    const struct scoring *scoring = &service->scoring;

    if (scoring->weights[SALES_VIEW] == 0 && scoring->weights[SALES_CART] == 0)
        return error_set(error, STATUS_CONFLICT,
                         "This server ranks by orders alone; ranking_weights makes views and carts "
                         "count.");
    enum status status =
        ledger_signals_add(service->ledger, signals, count, clock_wall_ms(), error);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        atomic_fetch_add_explicit(&service->sales.signals[signals[i].result], 1,
                                  memory_order_relaxed);
    service_sold(service);
    return status;
}

const struct sales_numbers *service_sales(const struct service *service)
{
    return &service->sales;
}

enum status service_products_put(struct service *service, struct product *products, size_t count,
                                 struct error *error)
{
    int64_t now_ms = clock_wall_ms();

    for (size_t i = 0; i < count; i++)
        products[i].updated_at_ms = now_ms;
    return ledger_products_put(service->ledger, products, count, now_ms, error);
}
