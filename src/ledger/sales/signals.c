/* signals.c: views and carts into rows and the feed, in one transaction. */
#include <stdlib.h>

#include "base/fault.h"
#include "base/zone.h"
#include "ledger/inside.h"
#include "ledger/list.h"
#include "ledger/rows.h"
#include "ledger/sales/feed.h"
#include "ledger/sales/sales.h"

/* A signal of the batch with what it takes to judge it. */
struct signals_entry {
    struct known_entry key;
    struct signal *signal;
    int64_t at_ms;
    int64_t day;
    struct signal known; /* in the ledger, or written for an earlier one of its id */
};

struct signals_batch {
    struct signals_entry *entries; /* sorted */
    size_t count;
    struct feed_change *changes;
    size_t change_count;
    struct buffer text;
    int64_t now_ms;
    int64_t first_day_kept;
};

static struct known_batch signals_known(const struct signals_batch *batch)
{
    return (struct known_batch){batch->entries, batch->count, sizeof(*batch->entries)};
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
    struct known_batch keys = signals_known(batch);

    for (size_t i = known_find(&keys, &known.signal_id); known_is_at(&keys, i, &known.signal_id);
         i++) {
        batch->entries[i].key.is_there = true;
        batch->entries[i].known = known;
    }
    return STATUS_OK;
}

/* A signal that was sent without a time is the same whenever it is sent again. */
static bool signals_same(const struct signal *sent, const struct signal *known)
{
    return sent->kind == known->kind && sent->quantity == known->quantity &&
           id_equal(&sent->product_id, &known->product_id) &&
           (sent->at_ms == 0 || sent->at_ms == known->at_ms);
}

static void signals_judge(struct signals_batch *batch)
{
    size_t count = 0;

    for (size_t i = 0; i < batch->count; i++) {
        struct signals_entry *entry = &batch->entries[i];
        struct signal *signal = entry->signal;
        const struct signals_entry *before = i > 0 ? &batch->entries[i - 1] : NULL;
        if (!entry->key.is_there && before != NULL && id_equal(before->key.id, entry->key.id)) {
            entry->key.is_there = true;
            entry->known = before->known;
        }
        if (entry->key.is_there) {
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
        if (entry->key.is_there)
            continue;
        const struct signal *signal = entry->signal;
        LIST_ROW(text, sql_text(id_span(&signal->signal_id)), sql_i64(signal->kind),
                 sql_text(id_span(&signal->product_id)), sql_i64(signal->quantity),
                 sql_i64(entry->at_ms), sql_i64(entry->day));
    }
    enum status status = list_end(text, &rows, error);
    return status == STATUS_OK ? SQL_WRITE(sql, STATEMENT_signal_insert, error, rows) : status;
}

static enum status signals_write(struct sql *sql, void *argument, struct error *error)
{
    struct signals_batch *batch = argument;
    struct known_batch keys = signals_known(batch);
    struct feed_place last;
    enum status status = feed_lock(sql, &last, error);

    if (status == STATUS_OK)
        status = known_ask(sql, STATEMENT_signal_among, &keys, &batch->text, signals_note_known,
                           batch, error);
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
        status = SQL_WRITE(sql, STATEMENT_signal_trim, error, sql_i64(batch->first_day_kept));
    return status;
}

static void signals_enter(struct signals_entry *entry, struct signal *signal, size_t place,
                          const struct zone *zone, int64_t now_ms)
{
    int64_t at_ms = signal->at_ms != 0 ? signal->at_ms : now_ms;

    *entry = (struct signals_entry){.key = {.id = &signal->signal_id, .place = place},
                                    .signal = signal,
                                    .at_ms = at_ms,
                                    .day = zone_day(zone, at_ms)};
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
        struct known_batch keys = signals_known(&batch);
        known_sort(&keys);
        status = ledger_write_last(ledger, signals_write, &batch, error);
    }
    free(batch.entries);
    free(batch.changes);
    buffer_release(&batch.text);
    return status;
}
