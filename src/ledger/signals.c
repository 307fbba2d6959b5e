/* signals.c: views and carts into rows and the feed, in one transaction. */
#include <stdlib.h>

#include "base/fault.h"
#include "base/zone.h"
#include "ledger/feed.h"
#include "ledger/inside.h"
#include "ledger/list.h"
#include "ledger/rows.h"
#include "ledger/sales.h"

/* A signal of the batch with what it takes to judge it. */
struct signals_entry {
    struct signal *signal;
    size_t place; /* in the batch */
    int64_t at_ms;
    int64_t day;
    bool is_there;
    struct signal known; /* in the ledger, or written for an earlier one of its id */
};

struct signals_batch {
    struct signals_entry *entries; /* by rising ids, then as they came */
    size_t count;
    struct feed_change *changes;
    size_t change_count;
    struct buffer text;
    int64_t now_ms;
    int64_t first_day_kept;
};

static int signals_compare(const void *a, const void *b)
{
    const struct signals_entry *first = a;
    const struct signals_entry *second = b;
    int order = user_id_compare(&first->signal->signal_id, &second->signal->signal_id);

    return order != 0 ? order : first->place < second->place ? -1 : 1;
}

/* --- judging --- */

/* A row that is there: noted at every entry of its id. */
static enum status signals_note_known(void *context, const struct sql_value *columns,
                                      struct error *error)
{
    struct signals_batch *batch = context;
    struct signal known = {.signal_id = rows_read_user(&columns[0]),
                           .kind = (enum sales_kind)columns[1].number,
                           .product_id = rows_read_user(&columns[2]),
                           .quantity = columns[3].number,
                           .at_ms = columns[4].number};
    size_t low = 0;

    (void)error;
    for (size_t high = batch->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (user_id_compare(&batch->entries[middle].signal->signal_id, &known.signal_id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < batch->count; low++) {
        struct signals_entry *entry = &batch->entries[low];
        if (!user_id_equal(&entry->signal->signal_id, &known.signal_id))
            break;
        entry->is_there = true;
        entry->known = known;
    }
    return STATUS_OK;
}

static enum status signals_find_known(struct sql *sql, struct signals_batch *batch,
                                      struct error *error)
{
    struct sql_value ids;

    list_begin(&batch->text);
    for (size_t i = 0; i < batch->count; i++) {
        batch->entries[i].is_there = false;
        list_next(&batch->text);
        list_id(&batch->text, user_id_span(&batch->entries[i].signal->signal_id));
    }
    enum status status = list_end(&batch->text, &ids, error);
    return status == STATUS_OK
               ? SQL_RUN(sql, STATEMENT_signal_among, signals_note_known, batch, error, ids)
               : status;
}

/* Who sent no time may send it again at any time. */
static bool signals_same(const struct signal *sent, const struct signal *known)
{
    return sent->kind == known->kind && sent->quantity == known->quantity &&
           user_id_equal(&sent->product_id, &known->product_id) &&
           (sent->at_ms == 0 || sent->at_ms == known->at_ms);
}

static void signals_judge(struct signals_batch *batch)
{
    size_t count = 0;

    for (size_t i = 0; i < batch->count; i++) {
        struct signals_entry *entry = &batch->entries[i];
        struct signal *signal = entry->signal;
        const struct signals_entry *before = i > 0 ? &batch->entries[i - 1] : NULL;
        if (!entry->is_there && before != NULL &&
            user_id_equal(&before->signal->signal_id, &signal->signal_id)) {
            entry->is_there = true;
            entry->known = before->known;
        }
        if (entry->is_there) {
            signal->result = signals_same(signal, &entry->known) ? SIGNAL_KNOWN : SIGNAL_DIFFERS;
            continue;
        }
        entry->known = *signal;
        entry->known.at_ms = entry->at_ms;
        signal->result = SIGNAL_ADDED;
        batch->changes[count++] = (struct feed_change){.day = entry->day,
                                                       .product_id = signal->product_id,
                                                       .moment = {.kind = signal->kind,
                                                                  .at_s = entry->at_ms / 1000,
                                                                  .quantity = signal->quantity}};
    }
    batch->change_count = feed_merge(batch->changes, count);
}

/* --- writing --- */

static enum status signals_insert(struct sql *sql, struct signals_batch *batch, struct error *error)
{
    struct buffer *text = &batch->text;
    struct sql_value rows;

    list_begin(text);
    for (size_t i = 0; i < batch->count; i++) {
        const struct signals_entry *entry = &batch->entries[i];
        if (entry->is_there)
            continue;
        list_next(text);
        buffer_append_literal(text, "[");
        list_id(text, user_id_span(&entry->signal->signal_id));
        buffer_printf(text, ",%d,", (int)entry->signal->kind);
        list_id(text, user_id_span(&entry->signal->product_id));
        buffer_printf(text, ",%lld,%lld,%lld]", (long long)entry->signal->quantity,
                      (long long)entry->at_ms, (long long)entry->day);
    }
    enum status status = list_end(text, &rows, error);
    return status == STATUS_OK ? SQL_RUN(sql, STATEMENT_signal_insert, NULL, NULL, error, rows)
                               : status;
}

static enum status signals_write(struct sql *sql, void *argument, struct error *error)
{
    struct signals_batch *batch = argument;
    struct feed_place last;
    enum status status = feed_lock(sql, &last, error);

    if (status == STATUS_OK)
        status = signals_find_known(sql, batch, error);
    if (status != STATUS_OK)
        return status;
    signals_judge(batch);
    if (batch->change_count == 0)
        return STATUS_OK;
    status = signals_insert(sql, batch, error);
    FAULT_POINT("sales.after_signals");
    if (status == STATUS_OK)
        status = feed_write(sql, last, &batch->text, batch->changes, batch->change_count, 1,
                            batch->now_ms, error);
    if (status == STATUS_OK)
        status =
            SQL_RUN(sql, STATEMENT_signal_trim, NULL, NULL, error, sql_i64(batch->first_day_kept));
    return status;
}

static void signals_enter(struct signals_entry *entry, struct signal *signal, size_t place,
                          const struct zone *zone, int64_t now_ms)
{
    int64_t at_ms = signal->at_ms != 0 ? signal->at_ms : now_ms;

    *entry = (struct signals_entry){
        .signal = signal, .place = place, .at_ms = at_ms, .day = zone_day(zone, at_ms)};
}

enum status ledger_signals_add(struct ledger *ledger, struct signal *signals, size_t count,
                               int64_t now_ms, struct error *error)
{
    const struct zone *zone = ledger_zone(ledger);
    struct signals_batch batch = {
        .entries = calloc(count + 1, sizeof(*batch.entries)),
        .changes = calloc(count + 1, sizeof(*batch.changes)),
        .count = count,
        .now_ms = now_ms,
        .first_day_kept = zone_day(zone, now_ms) - SIGNAL_DAYS_KEPT,
    };
    enum status status;

    ensure(count > 0 && count <= SIGNAL_BATCH_MAX && ledger_keeps_moments(ledger));
    buffer_init(&batch.text, LIST_LENGTH_MAX);
    if (batch.entries == NULL || batch.changes == NULL) {
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for a batch of signals");
    } else {
        for (size_t i = 0; i < count; i++)
            signals_enter(&batch.entries[i], &signals[i], i, zone, now_ms);
        qsort(batch.entries, count, sizeof(*batch.entries), signals_compare);
        status = ledger_write_last(ledger, signals_write, &batch, error);
    }
    free(batch.entries);
    free(batch.changes);
    buffer_release(&batch.text);
    return status;
}
