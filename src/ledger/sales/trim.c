/* trim.c: orders that are old enough go; what was sold on their days stays counted. */
#include "base/clock.h"
#include "ledger/inside.h"
#include "ledger/list.h"
#include "ledger/rows.h"
#include "ledger/sales/sales.h"

int64_t ledger_orders_earliest_ms(const struct ledger *ledger)
{
    int64_t days = ledger_orders_keep_days(ledger);

    return days == 0 ? 0 : clock_wall_ms() - days * DAY_MS;
}

struct trim {
    int64_t before_day;
    int64_t count;
    struct buffer ids;
};

static enum status trim_note(void *context, const struct sql_value *columns, struct error *error)
{
    struct trim *trim = context;

    (void)error;
    trim->count++;
    list_add(&trim->ids, columns[0]);
    return STATUS_OK;
}

/* Under the counter's lock no refund reads an order while it goes. */
static enum status trim_orders(struct sql *sql, void *argument, struct error *error)
{
    struct trim *trim = argument;
    struct sql_value ids;
    enum status status = SQL_RUN(sql, STATEMENT_sale_lock, NULL, NULL, error);

    trim->count = 0;
    list_begin(&trim->ids);
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_order_old, trim_note, trim, error,
                         sql_i64(trim->before_day), sql_i64(ORDER_TRIM_MAX));
    if (status == STATUS_OK && trim->count > 0)
        status = list_end(&trim->ids, &ids, error);
    if (status == STATUS_OK && trim->count > 0)
        status = SQL_WRITE(sql, STATEMENT_item_delete, error, ids);
    if (status == STATUS_OK && trim->count > 0)
        status = SQL_WRITE(sql, STATEMENT_order_delete, error, ids);
    return status;
}

enum status ledger_orders_trim(struct ledger *ledger, int64_t before_day, int64_t *count,
                               struct error *error)
{
    struct trim trim = {.before_day = before_day};

    buffer_init(&trim.ids, LIST_LENGTH_MAX);
    enum status status = ledger_write_last(ledger, trim_orders, &trim, error);
    *count = status == STATUS_OK ? trim.count : 0;
    buffer_release(&trim.ids);
    return status;
}
