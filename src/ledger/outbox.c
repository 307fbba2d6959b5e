/* outbox.c: notes in memory, numbered and written in one go before the commit. */
#include "ledger/outbox.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/digits.h"
#include "ledger/inside.h"
#include "ledger/list.h"
#include "ledger/rows.h"

#define ROWS_MAX        1000 /* of one statement */
#define TEXT_LENGTH_MAX (ROWS_MAX * 1024)
#define NOTES_COUNT_MIN 256

void outbox_init(struct outbox *outbox, const struct ledger_options *options)
{
    *outbox = (struct outbox){.find_trace = options->find_trace, .context = options->context};
    memcpy(outbox->tells, options->tells, sizeof(outbox->tells));
    buffer_init(&outbox->text, TEXT_LENGTH_MAX);
}

void outbox_release(struct outbox *outbox)
{
    free(outbox->notes);
    buffer_release(&outbox->text);
    *outbox = (struct outbox){0};
}

/* --- noting --- */

/* A change that is made must be told of; as with the writer's queue, running out of memory for it
 * ends the process, and nothing of the transaction is committed. */
void outbox_note(struct outbox *outbox, const struct outbox_note *note)
{
    if (outbox == NULL)
        return;
    ensure(array_make_room(outbox->notes, outbox->count, outbox->capacity));
    outbox->notes[outbox->count++] = *note;
}

void outbox_note_row(struct outbox *outbox, const struct coupon_row *row)
{
    if (outbox == NULL)
        return;
    outbox_note(outbox,
                &(struct outbox_note){.claim = row->claim,
                                      .nth = coupon_row_nth(row),
                                      .state = row->state,
                                      .changed_at_ms = row->issued_at_ms,
                                      .issued_at_ms = row->issued_at_ms,
                                      .expires_at_ms = row->expires_at_ms != 0 ? row->expires_at_ms
                                                                               : row->ends_at_ms,
                                      .merged_into_seq = row->merged_into_seq,
                                      .reason = row->reason});
}

void outbox_note_coupon(struct outbox *outbox, const struct coupon *coupon, int64_t changed_at_ms,
                        const char *traceparent)
{
    if (outbox == NULL)
        return;
    outbox_note(outbox, &(struct outbox_note){.claim = &coupon->claim,
                                              .nth = coupon->claim.nth,
                                              .state = coupon->state,
                                              .changed_at_ms = changed_at_ms,
                                              .issued_at_ms = coupon->issued_at_ms,
                                              .expires_at_ms = coupon->expires_at_ms,
                                              .order_id = &coupon->order_id,
                                              .traceparent = traceparent});
}

/* --- writing --- */

static int outbox_compare(const void *a, const void *b)
{
    int64_t first = ((const struct outbox_note *)a)->claim->policy_id;
    int64_t second = ((const struct outbox_note *)b)->claim->policy_id;

    return first == second ? 0 : first < second ? -1 : 1;
}

/* Moves a note in front of those of higher policies; those of one policy stay as they came. Batches
 * come nearly sorted: claims by policy, and behind them a few writes of callers. */
static void outbox_sort(struct outbox *outbox)
{
    for (size_t i = 1; i < outbox->count; i++) {
        struct outbox_note note = outbox->notes[i];
        size_t low = 0;
        size_t high = i;

        if (outbox_compare(&outbox->notes[i - 1], &note) <= 0)
            continue;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (outbox_compare(&outbox->notes[middle], &note) <= 0)
                low = middle + 1;
            else
                high = middle;
        }
        memmove(&outbox->notes[low + 1], &outbox->notes[low], (i - low) * sizeof(note));
        outbox->notes[low] = note;
    }
}

/* Takes the next `count` numbers of a policy, and with them the lock on its counter. */
static enum status outbox_take_numbers(struct sql *sql, int64_t policy_id, size_t count,
                                       int64_t *first, struct error *error)
{
    int64_t last = 0;
    enum status status =
        SQL_WRITE(sql, STATEMENT_event_take, error, sql_i64(policy_id), sql_i64((int64_t)count));

    if (status == STATUS_OK)
        status =
            SQL_RUN(sql, STATEMENT_event_last, rows_take_i64, &last, error, sql_i64(policy_id));
    *first = last - (int64_t)count + 1;
    return status;
}

/* The trace that a claim came with is asked for by its request, and put into `found`; nobody else
 * changes a coupon that is only being written. */
static const char *outbox_trace(const struct outbox *outbox, const struct outbox_note *note,
                                char found[TRACEPARENT_SIZE])
{
    bool is_claimed =
        note->state == COUPON_ISSUED || note->state == COUPON_VOID || note->state == COUPON_MERGED;

    if (note->traceparent != NULL)
        return note->traceparent;
    return is_claimed && outbox->find_trace != NULL &&
                   outbox->find_trace(outbox->context, &note->claim->request_id, found)
               ? found
               : "";
}

static void outbox_append(struct outbox *outbox, const struct outbox_note *note, int64_t number,
                          enum ledger_sink sink)
{
    const struct claim *claim = note->claim;
    char found[TRACEPARENT_SIZE];

    LIST_ROW(
        &outbox->text, sql_i64(claim->policy_id), sql_i64(number), sql_i64(claim->seq),
        sql_text(id_span(&claim->user)), sql_i64(note->nth),
        sql_blob(claim->request_id.bytes, sizeof(claim->request_id.bytes)),
        sql_text(span_of(coupon_state_name(note->state))), sql_i64(note->changed_at_ms),
        sql_i64(claim->requested_at_ms), sql_i64(note->issued_at_ms), sql_i64(note->expires_at_ms),
        sql_text(note->order_id != NULL ? id_span(note->order_id) : SPAN("")),
        sql_i64(note->merged_into_seq), sql_text(span_of(note->reason != NULL ? note->reason : "")),
        sql_text(span_of(outbox_trace(outbox, note, found))), sql_i64(sink));
}

static enum status outbox_insert(struct sql *sql, struct error *error)
{
    struct buffer *text = &sql->outbox->text;
    struct sql_value rows;
    enum status status = list_end(text, &rows, error);

    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_event_insert, error, rows);
    list_begin(text);
    return status;
}

/* Writes a note for each sink that is told of it; `rows` are in the statement so far. */
static enum status outbox_put(struct sql *sql, const struct outbox_note *note, int64_t number,
                              size_t *rows, struct error *error)
{
    struct outbox *outbox = sql->outbox;
    enum status status = STATUS_OK;

    for (enum ledger_sink sink = 0; sink < LEDGER_SINKS && status == STATUS_OK; sink++) {
        if (!outbox->tells[sink] || (note->is_repeat && note->sink != sink))
            continue;
        outbox_append(outbox, note, number, sink);
        if (++*rows % ROWS_MAX == 0)
            status = outbox_insert(sql, error);
    }
    return status;
}

enum status outbox_write(struct sql *sql, struct error *error)
{
    struct outbox *outbox = sql->outbox;
    enum status status = STATUS_OK;
    size_t policy_end = 0;
    size_t rows = 0;
    int64_t number = 0;

    if (outbox == NULL || outbox->count == 0)
        return STATUS_OK;
    outbox_sort(outbox);
    list_begin(&outbox->text);
    for (size_t i = 0; i < outbox->count && status == STATUS_OK; i++) {
        const struct outbox_note *note = &outbox->notes[i];
        if (i == policy_end) {
            while (policy_end < outbox->count &&
                   outbox_compare(note, &outbox->notes[policy_end]) == 0)
                policy_end++;
            status =
                outbox_take_numbers(sql, note->claim->policy_id, policy_end - i, &number, error);
        }
        if (status == STATUS_OK)
            status = outbox_put(sql, note, number++, &rows, error);
    }
    if (status == STATUS_OK && rows % ROWS_MAX != 0)
        status = outbox_insert(sql, error);
    outbox->count = 0;
    outbox->has_written = status == STATUS_OK;
    return status;
}

/* --- reading --- */

/* What is not hex, which somebody else has written, is no id. */
static struct request_id outbox_read_hex(const struct sql_value *column)
{
    struct request_id id;

    return hex_read(column->bytes, id.bytes, sizeof(id.bytes)) ? id : (struct request_id){{0}};
}

static enum status outbox_read_event(void *row, const struct sql_value *columns,
                                     struct error *error)
{
    struct ledger_event *event = row;

    *event = (struct ledger_event){
        .place = {.policy_id = columns[0].number, .number = columns[1].number},
        .coupon = {.claim = {.policy_id = columns[0].number,
                             .seq = columns[2].number,
                             .user = rows_read_user(&columns[3]),
                             .nth = (int32_t)columns[4].number,
                             .request_id = outbox_read_hex(&columns[5]),
                             .requested_at_ms = columns[8].number},
                   .state = rows_read_state(&columns[6]),
                   .issued_at_ms = columns[9].number,
                   .expires_at_ms = columns[10].kind == SQL_NULL ? 0 : columns[10].number,
                   .merged_into_seq = columns[12].kind == SQL_NULL ? 0 : columns[12].number},
        .changed_at_ms = columns[7].number,
    };
    if (columns[11].kind != SQL_NULL)
        event->coupon.order_id = rows_read_user(&columns[11]);
    rows_read_text(&columns[13], event->coupon.reason, sizeof(event->coupon.reason));
    rows_read_text(&columns[14], event->traceparent, sizeof(event->traceparent));
    return STATUS_OK;
}

enum status ledger_events(struct ledger *ledger, enum ledger_sink sink,
                          const struct ledger_event_place *after, struct ledger_event *events,
                          size_t max, size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(events, outbox_read_event, count);

    return LEDGER_READ(ledger, STATEMENT_event_list, rows_take, &page, error,
                       sql_i64(after->policy_id), sql_i64(after->number), sql_i64((int64_t)max),
                       sql_i64(sink));
}

static enum status outbox_read_backlog(void *context, const struct sql_value *columns,
                                       struct error *error)
{
    struct ledger_backlog *backlog = context;

    backlog->count = columns[0].number;
    backlog->oldest_at_ms = columns[1].number;
    return STATUS_OK;
}

enum status ledger_event_backlog(struct ledger *ledger, enum ledger_sink sink,
                                 struct ledger_backlog *backlog, struct error *error)
{
    *backlog = (struct ledger_backlog){0};
    return LEDGER_READ(ledger, STATEMENT_event_backlog, outbox_read_backlog, backlog, error,
                       sql_i64(sink));
}

/* --- dropping --- */

struct drop_events {
    enum ledger_sink sink;
    const struct ledger_event_place *places;
    size_t count;
};

/* Deletes events that were delivered: of each policy all up to the given number. */
static enum status outbox_drop(struct sql *sql, void *argument, struct error *error)
{
    const struct drop_events *drop = argument;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < drop->count && status == STATUS_OK; i++)
        status = SQL_WRITE(sql, STATEMENT_event_delete, error, sql_i64(drop->places[i].policy_id),
                           sql_i64(drop->places[i].number), sql_i64(drop->sink));
    return status;
}

enum status ledger_events_drop(struct ledger *ledger, enum ledger_sink sink,
                               const struct ledger_event_place *places, size_t count,
                               struct error *error)
{
    struct drop_events drop = {.sink = sink, .places = places, .count = count};

    return ledger_write(ledger, outbox_drop, &drop, error);
}

/* --- once more --- */

struct repeat_events {
    enum ledger_sink sink;
    const struct ledger_event *events;
    size_t count;
};

static enum status outbox_repeat(struct sql *sql, void *argument, struct error *error)
{
    const struct repeat_events *repeat = argument;

    if (sql->outbox == NULL || !sql->outbox->tells[repeat->sink])
        return error_set(error, STATUS_CONFLICT, "nothing is told to it here");
    for (size_t i = 0; i < repeat->count; i++) {
        const struct coupon *coupon = &repeat->events[i].coupon;
        outbox_note(sql->outbox,
                    &(struct outbox_note){.claim = &coupon->claim,
                                          .nth = coupon->claim.nth,
                                          .state = coupon->state,
                                          .changed_at_ms = repeat->events[i].changed_at_ms,
                                          .issued_at_ms = coupon->issued_at_ms,
                                          .expires_at_ms = coupon->expires_at_ms,
                                          .merged_into_seq = coupon->merged_into_seq,
                                          .order_id = &coupon->order_id,
                                          .reason = coupon->reason,
                                          .traceparent = repeat->events[i].traceparent,
                                          .is_repeat = true,
                                          .sink = repeat->sink});
    }
    return STATUS_OK;
}

enum status ledger_events_repeat(struct ledger *ledger, enum ledger_sink sink,
                                 const struct ledger_event *events, size_t count,
                                 struct error *error)
{
    struct repeat_events repeat = {.sink = sink, .events = events, .count = count};

    return ledger_write(ledger, outbox_repeat, &repeat, error);
}

/* --- how a sink does --- */

static enum status outbox_read_state(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    struct ledger_sink_state *state = context;

    state->failing_since_ms = columns[0].number;
    state->asked = columns[1].number;
    rows_read_text(&columns[2], state->text, sizeof(state->text));
    return STATUS_OK;
}

enum status ledger_sink_state_get(struct ledger *ledger, enum ledger_sink sink,
                                  struct ledger_sink_state *state, struct error *error)
{
    *state = (struct ledger_sink_state){0};
    return LEDGER_READ(ledger, STATEMENT_sink_state_get, outbox_read_state, state, error,
                       sql_i64(sink));
}

struct put_state {
    enum ledger_sink sink;
    const struct ledger_sink_state *state;
};

static enum status outbox_put_state(struct sql *sql, void *argument, struct error *error)
{
    const struct put_state *put = argument;

    return SQL_WRITE(sql, STATEMENT_sink_state_put, error, sql_i64(put->sink),
                     sql_i64(put->state->failing_since_ms), sql_text(span_of(put->state->text)));
}

enum status ledger_sink_state_put(struct ledger *ledger, enum ledger_sink sink,
                                  const struct ledger_sink_state *state, struct error *error)
{
    struct put_state put = {.sink = sink, .state = state};

    return ledger_write(ledger, outbox_put_state, &put, error);
}

static enum status outbox_ask(struct sql *sql, void *argument, struct error *error)
{
    const enum ledger_sink *sink = argument;

    return SQL_WRITE(sql, STATEMENT_sink_state_ask, error, sql_i64(*sink));
}

enum status ledger_sink_ask(struct ledger *ledger, enum ledger_sink sink, struct error *error)
{
    return ledger_write(ledger, outbox_ask, &sink, error);
}

/* --- duties --- */

struct hold_duty {
    const char *name;
    const char *holder;
    int64_t term_ms;
    bool *held;
};

static enum status outbox_hold_duty(struct sql *sql, void *argument, struct error *error)
{
    const struct hold_duty *hold = argument;
    struct sql_value name = sql_text(span_of(hold->name));
    int64_t changed = 0;
    enum status status = SQL_WRITE(sql, STATEMENT_duty_insert, error, name);

    if (status == STATUS_OK)
        status = SQL_CHANGE(sql, STATEMENT_duty_hold, &changed, error, name,
                            sql_text(span_of(hold->holder)), sql_i64(hold->term_ms));
    *hold->held = status == STATUS_OK && changed == 1;
    return status;
}

enum status ledger_duty_hold(struct ledger *ledger, const char *name, const char *holder,
                             int64_t term_ms, bool *held, struct error *error)
{
    struct hold_duty hold = {.name = name, .holder = holder, .term_ms = term_ms, .held = held};

    *held = false;
    return ledger_write(ledger, outbox_hold_duty, &hold, error);
}

static enum status outbox_release_duty(struct sql *sql, void *argument, struct error *error)
{
    const struct hold_duty *hold = argument;

    return SQL_WRITE(sql, STATEMENT_duty_release, error, sql_text(span_of(hold->name)),
                     sql_text(span_of(hold->holder)));
}

enum status ledger_duty_release(struct ledger *ledger, const char *name, const char *holder,
                                struct error *error)
{
    struct hold_duty hold = {.name = name, .holder = holder};

    return ledger_write(ledger, outbox_release_duty, &hold, error);
}
