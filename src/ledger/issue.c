/* issue.c: from claims to coupon rows: leases checked, conflicts compared, units accounted for. */
#include "ledger/issue.h"
#include "ledger/transactions.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/fault.h"
#include "base/log.h"
#include "ledger/dead_letters.h"
#include "ledger/erase.h"
#include "ledger/outbox.h"
#include "ledger/rows.h"

#define REASON_NO_STOCK  "its lease was closed and no stock was left"
#define REASON_REFUSED   "the database refused it"
#define REASON_COLLISION "its seq belongs to another claim"

void issue_room_release(struct issue_room *room)
{
    free(room->rows);
    buffer_release(&room->users);
    *room = (struct issue_room){0};
}

/* --- the lease of a claim --- */

struct lease_terms {
    int64_t lease_id;
    bool found;
    bool open;
    int64_t policy_id;
    int64_t first_seq;
    int64_t count;
    int64_t valid_days;
    int64_t expires_at_ms;
};

static enum status issue_read_terms(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    struct lease_terms *terms = context;
    terms->found = true;
    terms->policy_id = columns[0].number;
    terms->first_seq = columns[1].number;
    terms->count = columns[2].number;
    terms->open = columns[3].number != 0;
    terms->valid_days = columns[4].kind == SQL_NULL ? 0 : columns[4].number;
    terms->expires_at_ms = columns[5].kind == SQL_NULL ? 0 : columns[5].number;
    return STATUS_OK;
}

/* Looks the lease up unless it is the one just looked up: batches come in runs of one lease. */
static enum status issue_load_terms(struct sql *sql, int64_t lease_id, struct lease_terms *terms,
                                    struct error *error)
{
    if (terms->found && terms->lease_id == lease_id)
        return STATUS_OK;
    *terms = (struct lease_terms){.lease_id = lease_id};
    return SQL_RUN(sql, STATEMENT_lease_for_issue, issue_read_terms, terms, error,
                   sql_i64(lease_id));
}

static bool issue_is_covered(const struct lease_terms *terms, const struct claim *claim)
{
    return terms->found && terms->open && terms->policy_id == claim->policy_id &&
           claim->seq >= terms->first_seq && claim->seq < terms->first_seq + terms->count;
}

/* --- what a row becomes --- */

static enum status issue_return_unit(struct sql *sql, int64_t policy_id, struct error *error)
{
    return SQL_WRITE(sql, STATEMENT_policy_return_unit, error, sql_i64(policy_id));
}

/* A claim whose lease was closed meanwhile needs a unit of its own. No lease keeps the reserve from
 * serving the same wish: only now the policy does. */
static enum status issue_late_claim(struct sql *sql, struct issue_room *room,
                                    struct coupon_row *row, struct error *error)
{
    int64_t changed = 0;
    enum status status = SQL_CHANGE(sql, STATEMENT_policy_take_unit, &changed, error,
                                    sql_i64(row->claim->policy_id));

    if (status == STATUS_OK && changed == 0) {
        row->state = COUPON_VOID;
        row->reason = REASON_NO_STOCK;
        return status;
    }
    if (status == STATUS_OK)
        status = issue_find_reserved(sql, room, row, 1, error);
    return status == STATUS_OK && row->state == COUPON_MERGED
               ? issue_return_unit(sql, row->claim->policy_id, error)
               : status;
}

/* By policy and seq; the same claim twice stays in the order it came. */
static int issue_compare(const void *a, const void *b)
{
    const struct claim *first = ((const struct coupon_row *)a)->claim;
    const struct claim *second = ((const struct coupon_row *)b)->claim;

    if (first->policy_id != second->policy_id)
        return first->policy_id < second->policy_id ? -1 : 1;
    if (first->seq != second->seq)
        return first->seq < second->seq ? -1 : 1;
    return first < second ? -1 : 1;
}

/* Transactions that write the same claims at the same moment write them in the same order: they
 * wait for each other, and never deadlock. One gate's claims of one policy come in order. */
static void issue_sort(struct coupon_row *rows, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (issue_compare(&rows[i - 1], &rows[i]) > 0) {
            qsort(rows, count, sizeof(*rows), issue_compare);
            return;
        }
    }
}

static enum status issue_read_exceptions(void *context, const struct sql_value *columns,
                                         struct error *error)
{
    *(struct issue_exceptions *)context = (struct issue_exceptions){
        .has_blocked = columns[0].number != 0,
        .has_refused = columns[1].number != 0,
        .has_reserved = columns[2].number != 0,
    };
    return STATUS_OK;
}

static enum status issue_prepare(struct sql *sql, struct issue_room *room,
                                 const struct claim *claims, size_t count, int64_t now_ms,
                                 struct lease_terms *terms, struct error *error)
{
    struct issue_exceptions any = {0};
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count; i++)
        room->rows[i] = (struct coupon_row){
            .claim = &claims[i],
            .state = COUPON_ISSUED,
            .issued_at_ms = now_ms,
            .is_kept = room->tries_again && claims[i].attempt + 1 < room->attempts_max,
        };
    issue_sort(room->rows, count);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        struct coupon_row *row = &room->rows[i];
        status = issue_load_terms(sql, row->claim->lease_id, terms, error);
        if (status == STATUS_OK && terms->valid_days != 0)
            row->expires_at_ms = coupon_expires_at_ms(terms->valid_days, terms->expires_at_ms,
                                                      row->claim->requested_at_ms);
        row->ends_at_ms = terms->expires_at_ms;
    }
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_exceptions_any, issue_read_exceptions, &any, error);
    if (status == STATUS_OK && (any.has_blocked || any.has_refused || any.has_reserved))
        status = issue_find_exceptions(sql, room, count, &any, error);
    return status;
}

/* --- inserting --- */

static void issue_refuse(struct coupon_row *row, const struct error *why)
{
    row->state = row->is_kept ? COUPON_PENDING : COUPON_VOID;
    row->is_refused = true;
    row->is_news = !row->is_kept;
    if (row->is_news && row->refusal == NULL)
        row->refusal = strdup(why->text);
    log_event(row->is_kept ? LOG_WARN : LOG_ERROR, "claim_refused",
              LOG_FIELD("policy", LOG_I64(row->claim->policy_id)),
              LOG_FIELD("seq", LOG_I64(row->claim->seq)),
              LOG_FIELD("user", LOG_SPAN(id_span(&row->claim->user))),
              LOG_FIELD("attempt", LOG_I64(row->claim->attempt + 1)),
              LOG_FIELD("error", LOG_TEXT(why->text)));
}

/* Inserts under a savepoint: `*inserted` says OK, CONFLICT or INVALID, and `why`. */
static enum status issue_try(struct sql *sql, struct coupon_row *rows, size_t count,
                             enum status *inserted, struct error *why, struct error *error)
{
    const struct ledger_driver *driver = sql->driver;
    enum status status = driver->savepoint(sql->session, error);

    if (status != STATUS_OK)
        return status;
    *inserted = driver->insert_coupons(sql->session, rows, count, why);
    if (*inserted == STATUS_OK || *inserted == STATUS_CONFLICT || *inserted == STATUS_INVALID)
        return driver->savepoint_end(sql->session, *inserted == STATUS_OK, error);
    if (error != NULL)
        *error = *why;
    return *inserted;
}

/* Halves what the database does not take until the row in the way stands alone. */
static enum status issue_insert_split(struct sql *sql, struct coupon_row *rows, size_t count,
                                      struct error *error)
{
    struct error why = {""};
    enum status inserted;
    enum status status = issue_try(sql, rows, count, &inserted, &why, error);

    if (status != STATUS_OK || inserted == STATUS_OK)
        return status;
    if (count > 1) {
        status = issue_insert_split(sql, rows, count / 2, error);
        if (status == STATUS_OK)
            status = issue_insert_split(sql, rows + count / 2, count - count / 2, error);
        return status;
    }
    rows->conflicts = inserted == STATUS_CONFLICT;
    if (inserted == STATUS_INVALID)
        issue_refuse(rows, &why);
    return STATUS_OK;
}

static enum status issue_insert(struct sql *sql, struct coupon_row *rows, size_t count,
                                enum issue_care care, struct error *error)
{
    if (care != ISSUE_WHOLE)
        return issue_insert_split(sql, rows, count, error);
    return sql->driver->insert_coupons(sql->session, rows, count, error);
}

/* --- units --- */

enum status issue_write_refused(struct sql *sql, const struct coupon_row *row, struct error *error)
{
    const struct claim *claim = row->claim;

    return SQL_WRITE(sql, STATEMENT_refused_insert, error, sql_i64(claim->policy_id),
                     sql_i64(claim->seq), sql_text(id_span(&claim->user)), sql_i64(claim->nth),
                     sql_blob(claim->request_id.bytes, sizeof(claim->request_id.bytes)),
                     sql_i64(claim->lease_id), sql_i64(claim->requested_at_ms),
                     sql_i64(row->issued_at_ms), sql_text(span_of(row->reason)));
}

/* Writes down that a claim came to nothing. Whoever issues has the lease locked shared: with the
 * lock to itself this one knows that nobody else writes the claim, and looks whether someone has.
 */
static enum status issue_dead_letter(struct sql *sql, struct coupon_row *row, struct error *error)
{
    const struct claim *claim = row->claim;
    struct coupon present;
    struct lease lease;
    enum status status = rows_lease_lock(sql, claim->lease_id, &lease, error);

    if (status == STATUS_OK || status == STATUS_NOT_FOUND)
        status = rows_coupon_by_seq(sql, claim->policy_id, claim->seq, ROWS_LOOK, &present, error);
    if (status == STATUS_OK) {
        row->state = present.state;
        row->is_news = false;
        return STATUS_OK;
    }
    if (status != STATUS_NOT_FOUND)
        return status;
    if (row->reason == NULL)
        row->reason = REASON_REFUSED;
    row->expires_at_ms = 0;
    row->is_buried = true;
    return issue_write_refused(sql, row, error);
}

/* For a covered win that the database refused. */
static enum status issue_give_back(struct sql *sql, struct coupon_row *row, struct error *error)
{
    enum status status = issue_dead_letter(sql, row, error);

    return status == STATUS_OK && row->is_buried
               ? issue_return_unit(sql, row->claim->policy_id, error)
               : status;
}

/* --- conflicts --- */

/* Its place may have been taken when it was written: then the row has another one; and its user
 * may have been erased since. */
static bool issue_is_same(const struct claim *row, const struct claim *claim)
{
    return row->policy_id == claim->policy_id && row->seq == claim->seq &&
           (id_equal(&row->user, &claim->user) || id_is_pseudonym(&row->user)) &&
           memcmp(row->request_id.bytes, claim->request_id.bytes, sizeof(row->request_id.bytes)) ==
               0;
}

/* The one in the way was cancelled meanwhile, or never was. */
static enum status issue_without_conflict(struct coupon_row *row, enum issue_care care,
                                          struct error *error)
{
    struct error why;
    enum status status = error_set(&why, STATUS_BUSY,
                                   "claim %lld-%lld is not written, and nothing is in its way; "
                                   "does a trigger drop it?",
                                   (long long)row->claim->policy_id, (long long)row->claim->seq);

    if (care == ISSUE_LAST) {
        issue_refuse(row, &why);
        return STATUS_OK;
    }
    if (error != NULL)
        *error = why;
    return status;
}

/* The keys of a merged claim, its own and those bound to it, answer with the coupon that the user
 * has instead. */
static enum status issue_bind_merged(struct sql *sql, const struct coupon_row *row,
                                     struct error *error)
{
    const struct claim *claim = row->claim;
    struct key_binding key = {.policy_id = claim->policy_id,
                              .seq = row->merged_into_seq,
                              .request_id = claim->request_id};
    bool is_bound = row->is_other_wish && request_id_is_keyed(&claim->request_id);
    int64_t moved = 0;
    enum status status = SQL_CHANGE(sql, STATEMENT_key_move, &moved, error, sql_i64(key.policy_id),
                                    sql_i64(claim->seq), sql_i64(key.seq));

    if (status == STATUS_OK && is_bound)
        status = issue_bindings(sql, &key, 1, error);
    return status == STATUS_OK && (is_bound || moved > 0)
               ? entering_mark(sql, key.policy_id, key.seq, error)
               : status;
}

/* The user holds a coupon in that slot already. The claim gets another slot where there is room,
 * which the gate hears of; else it is merged into what the user holds. A claim that was written
 * before is found as a row and does not come here again. */
static enum status issue_fit(struct sql *sql, struct coupon_row *row, enum issue_care care,
                             struct error *error)
{
    const struct claim *claim = row->claim;
    struct slot_choice choice;
    enum status status = slot_choose(sql, claim, &choice, error);

    if (status != STATUS_OK)
        return status;
    if (choice.nth == 0 && choice.merged_into_seq == 0)
        return issue_without_conflict(row, care, error);
    row->moved_nth = choice.nth;
    row->merged_into_seq = choice.merged_into_seq;
    row->is_other_wish = choice.is_other_wish;
    if (choice.merged_into_seq != 0)
        row->state = COUPON_MERGED;
    status = issue_insert(sql, row, 1, care, error);
    if (status != STATUS_OK || row->is_refused)
        return status;
    if (row->conflicts)
        return error_set(error, STATUS_BUSY, "claim %lld-%lld was written meanwhile",
                         (long long)claim->policy_id, (long long)claim->seq);
    if (choice.nth != 0)
        return entering_mark(sql, claim->policy_id, claim->seq, error);
    status = issue_return_unit(sql, claim->policy_id, error);
    return status == STATUS_OK ? issue_bind_merged(sql, row, error) : status;
}

/* What stands in the way: the very same claim, another one with its seq, or the user's slot. */
static enum status issue_resolve(struct sql *sql, struct coupon_row *row, enum issue_care care,
                                 struct error *error)
{
    struct coupon present;
    enum status status =
        rows_coupon_by_seq(sql, row->claim->policy_id, row->claim->seq, ROWS_LOOK, &present, error);

    if (status == STATUS_NOT_FOUND)
        return issue_fit(sql, row, care, error);
    if (status != STATUS_OK)
        return status;
    if (issue_is_same(&present.claim, row->claim)) {
        row->state = present.state;
        return STATUS_OK;
    }
    row->state = COUPON_VOID;
    row->is_news = true;
    row->reason = REASON_COLLISION;
    log_event(LOG_ERROR, "seq_collision", LOG_FIELD("policy", LOG_I64(row->claim->policy_id)),
              LOG_FIELD("seq", LOG_I64(row->claim->seq)),
              LOG_FIELD("user", LOG_SPAN(id_span(&row->claim->user))),
              LOG_FIELD("holder", LOG_SPAN(id_span(&present.claim.user))));
    return STATUS_OK;
}

/* Stock follows the state: whoever is not covered by an open lease needs a unit, and a covered
 * claim that came to nothing gives its unit back. */
static enum status issue_account(struct sql *sql, struct issue_room *room, struct coupon_row *row,
                                 bool covered, struct error *error)
{
    if (coupon_state_is_active(row->state) && !covered)
        return issue_late_claim(sql, room, row, error);
    if (!coupon_state_is_active(row->state) && covered)
        return issue_return_unit(sql, row->claim->policy_id, error);
    return STATUS_OK;
}

/* For a row that was accounted for in that state and is not written after all. */
static enum status issue_unaccount(struct sql *sql, const struct coupon_row *row,
                                   enum coupon_state accounted, bool covered, struct error *error)
{
    if (coupon_state_is_active(accounted) && !covered)
        return issue_return_unit(sql, row->claim->policy_id, error);
    if (!coupon_state_is_active(accounted) && covered)
        return SQL_WRITE(sql, STATEMENT_policy_take_unit, error, sql_i64(row->claim->policy_id));
    return STATUS_OK;
}

/* A row that is not a plain, covered win: accounted for before it is written, so that a late claim
 * without stock is written as VOID; a merged one gives back what it had taken. */
static enum status issue_one(struct sql *sql, struct issue_room *room, struct coupon_row *row,
                             bool covered, enum issue_care care, struct error *error)
{
    struct coupon present;
    enum status status =
        rows_coupon_by_seq(sql, row->claim->policy_id, row->claim->seq, ROWS_LOOK, &present, error);

    row->conflicts = status == STATUS_OK;
    if (status == STATUS_OK)
        return issue_resolve(sql, row, care, error);
    if (status != STATUS_NOT_FOUND)
        return status;
    status = issue_account(sql, room, row, covered, error);
    enum coupon_state accounted = row->state;
    if (status == STATUS_OK)
        status = issue_insert(sql, row, 1, care, error);
    if (status == STATUS_OK && row->conflicts)
        status = issue_fit(sql, row, care, error);
    else if (status == STATUS_OK && row->state == COUPON_MERGED)
        status = issue_bind_merged(sql, row, error);
    if (status == STATUS_OK && row->state == COUPON_VOID)
        row->is_news = true;
    if (status == STATUS_OK && row->is_refused && row->state == COUPON_VOID)
        status = issue_dead_letter(sql, row, error);
    if (status == STATUS_OK && row->is_buried && coupon_state_is_active(accounted))
        status = issue_return_unit(sql, row->claim->policy_id, error);
    else if (status == STATUS_OK && row->is_refused && !row->is_buried)
        status = issue_unaccount(sql, row, accounted, covered, error);
    return status;
}

/* --- letters --- */

/* What came to nothing for good in a shared gate is written down: nobody waits for the answer. */
static enum status issue_write_dead_letter(struct sql *sql, const struct coupon_row *row,
                                           struct error *error)
{
    struct dead_letter letter = {
        .claim = *row->claim, .attempts = row->claim->attempt + 1, .died_at_ms = row->issued_at_ms};

    if (row->refusal != NULL)
        snprintf(letter.reason, sizeof(letter.reason), REASON_REFUSED ": %s", row->refusal);
    else
        snprintf(letter.reason, sizeof(letter.reason), "%s", row->reason);
    return dead_letters_write(sql, &letter, error);
}

/* A claim that was found written, or that there is no row of, changed nothing. */
static void issue_note_event(struct sql *sql, const struct coupon_row *row)
{
    if (row->is_buried || (!row->is_refused && !row->conflicts))
        outbox_note_row(sql->outbox, row);
}

/* Tells the states, and lets go of what the rows held. */
static enum status issue_conclude(struct sql *sql, struct issue_room *room,
                                  const struct claim *claims, size_t count, enum status status,
                                  enum coupon_state *states, struct error *error)
{
    for (size_t i = 0; i < count; i++) {
        struct coupon_row *row = &room->rows[i];
        if (status == STATUS_OK && room->tries_again && row->is_news)
            status = issue_write_dead_letter(sql, row, error);
        if (status == STATUS_OK)
            states[row->claim - claims] = row->state;
        if (status == STATUS_OK && sql->outbox != NULL)
            issue_note_event(sql, row);
        free(row->refusal);
        row->refusal = NULL;
    }
    return status;
}

/* --- the batch --- */

enum status issue_claims(struct sql *sql, struct issue_room *room, const struct claim *claims,
                         size_t count, enum issue_care care, int64_t now_ms,
                         enum coupon_state *states, struct error *error)
{
    struct lease_terms terms = {0};

    if (count == 0)
        return STATUS_OK;
    if (!array_reserve(room->rows, count, room->capacity))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a batch of %zu claims", count);
    enum status status = issue_prepare(sql, room, claims, count, now_ms, &terms, error);

    FAULT_POINT("ledger.before_insert");
    for (size_t i = 0; i < count && status == STATUS_OK;) {
        struct coupon_row *rows = room->rows;
        size_t end = i;
        status = issue_load_terms(sql, rows[i].claim->lease_id, &terms, error);
        while (end < count && rows[end].state == COUPON_ISSUED &&
               rows[end].claim->lease_id == terms.lease_id &&
               issue_is_covered(&terms, rows[end].claim))
            end++;
        if (status != STATUS_OK)
            break;
        if (end == i) {
            status = issue_one(sql, room, &rows[i], issue_is_covered(&terms, rows[i].claim), care,
                               error);
            i++;
            continue;
        }
        status = issue_insert(sql, rows + i, end - i, care, error);
        for (; i < end && status == STATUS_OK; i++) {
            if (rows[i].conflicts)
                status = issue_resolve(sql, &rows[i], care, error);
            if (status == STATUS_OK && rows[i].is_refused && rows[i].state == COUPON_VOID)
                status = issue_give_back(sql, &rows[i], error);
        }
    }
    return issue_conclude(sql, room, claims, count, status, states, error);
}

enum status issue_bindings(struct sql *sql, const struct key_binding *bindings, size_t count,
                           struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status =
            SQL_WRITE(sql, STATEMENT_key_insert, error, sql_i64(bindings[i].policy_id),
                      sql_blob(bindings[i].request_id.bytes, sizeof(bindings[i].request_id.bytes)),
                      sql_i64(bindings[i].seq));
    return status;
}
