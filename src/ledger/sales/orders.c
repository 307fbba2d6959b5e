/* orders.c: orders and refunds into rows, totals and the feed, in one transaction. */
#include <sodium.h>
#include <stdlib.h>

#include "base/fault.h"
#include "base/zone.h"
#include "ledger/inside.h"
#include "ledger/list.h"
#include "ledger/rows.h"
#include "ledger/sales/feed.h"
#include "ledger/sales/sales.h"

#define DIGEST_BYTES 16
#define DIGEST_SIZE  (2 * DIGEST_BYTES + 1)

/* An order of the batch with what it takes to judge it. */
struct orders_entry {
    struct known_entry key;
    struct order *order;
    int64_t paid_at_ms;
    int64_t day;
    size_t first_item; /* among the batch's merged items */
    size_t item_count;
    char digest[DIGEST_SIZE];
    struct order known; /* what is in the ledger, or was written for an earlier one of its id */
    char known_digest[DIGEST_SIZE];
};

struct orders_batch {
    struct orders_entry *entries; /* sorted */
    size_t count;
    struct order_item *items; /* merged, by rising product ids within an order */
    size_t item_count;
    struct feed_change *changes; /* by rising (day, product), each once */
    size_t change_count;
    struct buffer text;
    int64_t now_ms;
    bool keeps_moments;
};

/* When an order was paid, if the ledger keeps that for the ranking. */
static struct sales_moment orders_moment(bool is_kept, int64_t paid_at_ms, int64_t quantity)
{
    return is_kept ? (struct sales_moment){.kind = SALES_ORDER,
                                           .at_s = paid_at_ms / 1000,
                                           .quantity = quantity}
                   : (struct sales_moment){.kind = SALES_KIND_NONE};
}

/* --- the contents of an order --- */

static int orders_compare_items(const void *a, const void *b)
{
    return id_compare(&((const struct order_item *)a)->product_id,
                      &((const struct order_item *)b)->product_id);
}

/* Sorts and merges the items at the end of the batch's; returns how many are left. */
static size_t orders_merge_items(struct order_item *items, size_t count)
{
    size_t kept = 0;

    qsort(items, count, sizeof(*items), orders_compare_items);
    for (size_t i = 0; i < count; i++)
        if (kept > 0 && id_equal(&items[kept - 1].product_id, &items[i].product_id))
            items[kept - 1].quantity += items[i].quantity;
        else
            items[kept++] = items[i];
    return kept;
}

/* Of what was sent, in the one form that all ways to write it have: a time that was not given is
 * not the time when it came, or no repeat would be the same. */
static void orders_digest(const struct order *order, const struct order_item *items, size_t count,
                          char digest[DIGEST_SIZE])
{
    crypto_generichash_state state;
    unsigned char bytes[DIGEST_BYTES];
    uint64_t number = htole64((uint64_t)order->paid_at_ms);

    crypto_generichash_init(&state, NULL, 0, sizeof(bytes));
    crypto_generichash_update(&state, (const unsigned char *)&number, sizeof(number));
    for (size_t i = 0; i < count; i++) {
        const struct id *product = &items[i].product_id;
        number = htole64((uint64_t)items[i].quantity);
        crypto_generichash_update(&state, &product->length, sizeof(product->length));
        crypto_generichash_update(&state, (const unsigned char *)product->bytes, product->length);
        crypto_generichash_update(&state, (const unsigned char *)&number, sizeof(number));
    }
    crypto_generichash_final(&state, bytes, sizeof(bytes));
    sodium_bin2hex(digest, DIGEST_SIZE, bytes, sizeof(bytes));
}

/* --- a batch --- */

static struct known_batch orders_known(const struct orders_batch *batch)
{
    return (struct known_batch){batch->entries, batch->count, sizeof(*batch->entries)};
}

static void orders_batch_release(struct orders_batch *batch)
{
    free(batch->entries);
    free(batch->items);
    free(batch->changes);
    buffer_release(&batch->text);
}

static void orders_batch_enter(struct orders_batch *batch, struct order *order, size_t place,
                               const struct zone *zone)
{
    struct orders_entry *entry = &batch->entries[place];
    struct order_item *items = batch->items + batch->item_count;

    *entry = (struct orders_entry){.key = {.id = &order->order_id, .place = place}, .order = order};
    memcpy(items, order->items, order->item_count * sizeof(*items));
    entry->first_item = batch->item_count;
    entry->item_count = orders_merge_items(items, order->item_count);
    entry->paid_at_ms = order->paid_at_ms != 0 ? order->paid_at_ms : batch->now_ms;
    entry->day = zone_day(zone, entry->paid_at_ms);
    orders_digest(order, items, entry->item_count, entry->digest);
    batch->item_count += entry->item_count;
}

static enum status orders_batch_init(struct orders_batch *batch, const struct zone *zone,
                                     const struct batcher_share *shares, struct error *error)
{
    size_t count = 0;
    size_t item_count = 0;
    int64_t now_ms = 0;

    for (const struct batcher_share *share = shares; share != NULL; share = share->next) {
        count += share->count;
        item_count += share->item_count;
        if (share->now_ms > now_ms)
            now_ms = share->now_ms;
    }
    *batch = (struct orders_batch){
        .entries = calloc(count + 1, sizeof(*batch->entries)),
        .items = calloc(item_count + 1, sizeof(*batch->items)),
        .changes = calloc(item_count + 1, sizeof(*batch->changes)),
        .now_ms = now_ms,
    };
    buffer_init(&batch->text, LIST_LENGTH_MAX);
    if (batch->entries == NULL || batch->items == NULL || batch->changes == NULL) {
        orders_batch_release(batch);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a batch of orders");
    }
    for (const struct batcher_share *share = shares; share != NULL; share = share->next)
        for (size_t i = 0; i < share->count; i++)
            orders_batch_enter(batch, &share->orders[i], batch->count++, zone);
    struct known_batch keys = orders_known(batch);
    known_sort(&keys);
    return STATUS_OK;
}

/* --- adding --- */

static enum status orders_read_order(const struct sql_value *columns, struct order *order,
                                     char digest[DIGEST_SIZE])
{
    *order = (struct order){
        .order_id = rows_read_user(&columns[0]),
        .paid_at_ms = columns[2].number,
        .received_at_ms = columns[3].number,
        .refunded_at_ms = columns[4].kind == SQL_I64 ? columns[4].number : 0,
        .day = columns[5].number,
        .result = ORDER_KNOWN,
    };
    rows_read_text(&columns[1], digest, DIGEST_SIZE);
    return STATUS_OK;
}

/* A row that is there: noted at every entry of its id. */
static enum status orders_note_known(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    struct orders_batch *batch = context;
    struct known_batch keys = orders_known(batch);
    struct order known;
    char digest[DIGEST_SIZE];

    (void)orders_read_order(columns, &known, digest);
    for (size_t i = known_find(&keys, &known.order_id); known_is_at(&keys, i, &known.order_id);
         i++) {
        struct orders_entry *entry = &batch->entries[i];
        entry->key.is_there = true;
        entry->known = known;
        memcpy(entry->known_digest, digest, sizeof(digest));
    }
    return STATUS_OK;
}

/* Judges each entry, and gathers the changes of those that are new. */
static void orders_judge(struct orders_batch *batch)
{
    size_t change_count = 0;

    for (size_t i = 0; i < batch->count; i++) {
        struct orders_entry *entry = &batch->entries[i];
        const struct orders_entry *before = i > 0 ? &batch->entries[i - 1] : NULL;
        if (!entry->key.is_there && before != NULL && id_equal(before->key.id, entry->key.id)) {
            entry->key.is_there = true;
            entry->known = before->known;
            entry->known.result = ORDER_KNOWN;
            memcpy(entry->known_digest, before->known_digest, sizeof(entry->known_digest));
        }
        if (entry->key.is_there) {
            if (strcmp(entry->known_digest, entry->digest) != 0)
                entry->known.result = ORDER_DIFFERS;
            continue;
        }
        entry->known = (struct order){.order_id = entry->order->order_id,
                                      .paid_at_ms = entry->paid_at_ms,
                                      .received_at_ms = batch->now_ms,
                                      .day = entry->day,
                                      .result = ORDER_ADDED};
        memcpy(entry->known_digest, entry->digest, sizeof(entry->known_digest));
        for (size_t j = 0; j < entry->item_count; j++) {
            const struct order_item *item = &batch->items[entry->first_item + j];
            batch->changes[change_count++] = (struct feed_change){
                .day = entry->day,
                .product_id = item->product_id,
                .quantity = item->quantity,
                .moment = orders_moment(batch->keeps_moments, entry->paid_at_ms, item->quantity)};
        }
    }
    batch->change_count = feed_merge(batch->changes, change_count);
}

static enum status orders_insert(struct sql *sql, struct orders_batch *batch, struct error *error)
{
    struct buffer *text = &batch->text;
    struct sql_value rows;

    list_begin(text);
    for (size_t i = 0; i < batch->count; i++) {
        const struct orders_entry *entry = &batch->entries[i];
        if (entry->key.is_there)
            continue;
        LIST_ROW(text, sql_text(id_span(&entry->order->order_id)), sql_text(span_of(entry->digest)),
                 sql_i64(entry->paid_at_ms), sql_i64(entry->day));
    }
    enum status status = list_end(text, &rows, error);
    return status == STATUS_OK
               ? SQL_WRITE(sql, STATEMENT_order_insert, error, rows, sql_i64(batch->now_ms))
               : status;
}

static enum status orders_insert_items(struct sql *sql, struct orders_batch *batch,
                                       struct error *error)
{
    struct buffer *text = &batch->text;
    struct sql_value rows;

    list_begin(text);
    for (size_t i = 0; i < batch->count; i++) {
        const struct orders_entry *entry = &batch->entries[i];
        for (size_t j = 0; j < entry->item_count && !entry->key.is_there; j++) {
            const struct order_item *item = &batch->items[entry->first_item + j];
            LIST_ROW(text, sql_text(id_span(&entry->order->order_id)),
                     sql_text(id_span(&item->product_id)), sql_i64(item->quantity));
        }
    }
    enum status status = list_end(text, &rows, error);
    return status == STATUS_OK ? SQL_WRITE(sql, STATEMENT_item_insert, error, rows) : status;
}

static enum status orders_write(struct sql *sql, void *argument, struct error *error)
{
    struct orders_batch *batch = argument;
    struct known_batch keys = orders_known(batch);
    struct sql_value changes;
    struct feed_place last;
    enum status status = feed_lock(sql, &last, error);

    if (status == STATUS_OK)
        status = known_ask(sql, STATEMENT_order_among, &keys, &batch->text, orders_note_known,
                           batch, error);
    if (status != STATUS_OK)
        return status;
    orders_judge(batch);
    if (batch->change_count == 0)
        return STATUS_OK;
    status = orders_insert(sql, batch, error);
    if (status == STATUS_OK)
        status = orders_insert_items(sql, batch, error);
    FAULT_POINT("sales.after_items");
    if (status == STATUS_OK)
        status = feed_totals(&batch->text, batch->changes, batch->change_count, &changes, error);
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_day_add, error, changes);
    FAULT_POINT("sales.after_totals");
    if (status == STATUS_OK)
        status = feed_write(sql, last, &batch->text, batch->changes, batch->change_count, 1,
                            batch->now_ms, error);
    FAULT_POINT("sales.after_feed");
    return status;
}

static enum status orders_write_shares(struct ledger *ledger, struct batcher_share *shares,
                                       struct error *error)
{
    struct orders_batch batch;
    enum status status = orders_batch_init(&batch, ledger_zone(ledger), shares, error);

    if (status != STATUS_OK)
        return status;
    batch.keeps_moments = ledger_keeps_moments(ledger);
    status = ledger_write_last(ledger, orders_write, &batch, error);
    for (size_t i = 0; i < batch.count && status == STATUS_OK; i++) {
        struct order *order = batch.entries[i].order;
        struct order asked = *order;
        *order = batch.entries[i].known;
        order->items = asked.items;
        order->item_count = asked.item_count;
    }
    orders_batch_release(&batch);
    return status;
}

enum status ledger_orders_add(struct ledger *ledger, struct order *orders, size_t count,
                              int64_t now_ms, struct error *error)
{
    struct batcher_share share = {
        .orders = orders, .count = count, .now_ms = now_ms, .error = error};

    ensure(count <= ORDER_BATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        ensure(orders[i].item_count > 0 && orders[i].item_count <= ORDER_ITEMS_MAX);
        share.item_count += orders[i].item_count;
    }
    ensure(share.item_count <= ORDER_BATCH_ITEMS_MAX);
    return count > 0 ? batcher_add(ledger_batcher(ledger), &share, ledger, orders_write_shares)
                     : STATUS_OK;
}

/* --- one order --- */

static enum status orders_read_one(void *order, const struct sql_value *columns,
                                   struct error *error)
{
    char digest[DIGEST_SIZE];

    return orders_read_order(columns, order, digest);
}

static enum status orders_find(struct sql *sql, const struct id *order_id, struct order *order,
                               struct error *error)
{
    size_t count;
    struct rows_page page = ROWS_PAGE(order, orders_read_one, &count);
    enum status status =
        SQL_RUN(sql, STATEMENT_order_by_id, rows_take, &page, error, sql_text(id_span(order_id)));

    if (status == STATUS_OK && count == 0)
        return error_set(error, STATUS_NOT_FOUND, "there is no order %.*s", order_id->length,
                         order_id->bytes);
    return status;
}

struct orders_items {
    struct order_item *items;
    size_t count;
};

static enum status orders_read_item(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    struct orders_items *list = context;

    if (list->count == ORDER_ITEMS_MAX)
        return error_set(error, STATUS_FAILED, "an order has more items than orders may have");
    list->items[list->count++] = (struct order_item){.product_id = rows_read_user(&columns[0]),
                                                     .quantity = columns[1].number};
    return STATUS_OK;
}

enum status ledger_order_get(struct ledger *ledger, const struct id *order_id, struct order *order,
                             struct order_item items[ORDER_ITEMS_MAX], struct error *error)
{
    struct orders_items list = {.items = items};
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    if (status != STATUS_OK)
        return status;
    status = orders_find(&sql, order_id, order, error);
    if (status == STATUS_OK)
        status = SQL_RUN(&sql, STATEMENT_item_list, orders_read_item, &list, error,
                         sql_text(id_span(order_id)));
    order->items = items;
    order->item_count = list.count;
    return ledger_read_end(ledger, sql, status, error);
}

/* --- refunds --- */

struct orders_refund {
    const struct id *order_id;
    int64_t now_ms;
    struct order *order;
    bool *is_news;
    struct order_item *items;
    struct feed_change *changes;
    struct buffer text;
    bool keeps_moments;
};

static enum status orders_take_back(struct sql *sql, struct orders_refund *refund,
                                    struct feed_place last, struct error *error)
{
    struct orders_items list = {.items = refund->items};
    struct sql_value id = sql_text(id_span(refund->order_id));
    struct sql_value changes;
    enum status status = SQL_RUN(sql, STATEMENT_item_list, orders_read_item, &list, error, id);

    for (size_t i = 0; i < list.count; i++)
        refund->changes[i] = (struct feed_change){.day = refund->order->day,
                                                  .product_id = list.items[i].product_id,
                                                  .quantity = list.items[i].quantity,
                                                  .moment = orders_moment(refund->keeps_moments,
                                                                          refund->order->paid_at_ms,
                                                                          list.items[i].quantity)};
    if (status == STATUS_OK)
        status = feed_totals(&refund->text, refund->changes, list.count, &changes, error);
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_day_subtract, error, changes);
    FAULT_POINT("sales.after_totals");
    if (status == STATUS_OK)
        status = feed_write(sql, last, &refund->text, refund->changes, list.count, -1,
                            refund->now_ms, error);
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_order_refund, error, id, sql_i64(refund->now_ms));
    return status;
}

static enum status orders_refund_write(struct sql *sql, void *argument, struct error *error)
{
    struct orders_refund *refund = argument;
    struct feed_place last;
    enum status status = feed_lock(sql, &last, error);

    *refund->is_news = false;
    if (status == STATUS_OK)
        status = orders_find(sql, refund->order_id, refund->order, error);
    if (status != STATUS_OK || refund->order->refunded_at_ms != 0)
        return status;
    status = orders_take_back(sql, refund, last, error);
    if (status == STATUS_OK) {
        refund->order->refunded_at_ms = refund->now_ms;
        *refund->is_news = true;
    }
    return status;
}

enum status ledger_order_refund(struct ledger *ledger, const struct id *order_id, int64_t now_ms,
                                struct order *order, bool *is_news, struct error *error)
{
    struct orders_refund refund = {
        .order_id = order_id,
        .now_ms = now_ms,
        .order = order,
        .is_news = is_news,
        .keeps_moments = ledger_keeps_moments(ledger),
        .items = calloc(ORDER_ITEMS_MAX, sizeof(*refund.items)),
        .changes = calloc(ORDER_ITEMS_MAX, sizeof(*refund.changes)),
    };
    enum status status = STATUS_OK;

    buffer_init(&refund.text, LIST_LENGTH_MAX);
    if (refund.items == NULL || refund.changes == NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for a refund");
    if (status == STATUS_OK)
        status = ledger_write_last(ledger, orders_refund_write, &refund, error);
    free(refund.items);
    free(refund.changes);
    buffer_release(&refund.text);
    return status;
}
