/* repair_claims.c: claims of the gate against the ledger's coupons, a chunk of both at a time. */
#include <stdlib.h>

#include "ledger/dead_letters.h"
#include "ledger/issue.h"
#include "ledger/outbox.h"
#include "ledger/repair/repair.h"
#include "ledger/rows.h"

#define CHUNK_CLAIMS 500
#define REST_MAX     10000 /* coupons behind the last claim that a look reads */
#define REASON_TAKEN "its seq belongs to another claim since the ledger was restored"
#define REASON_LOST  "written again after the ledger was restored; the reason was not kept"

/* What a claim needs to be in the ledger as it is in the gate. */
enum repair_step {
    STEP_INSERT,
    STEP_REDEEM,
    STEP_CANCEL,
    STEP_NOTHING,
    STEP_LETTER, /* its seq is another's by now */
};

struct repair_chunk {
    struct held_claim claims[CHUNK_CLAIMS]; /* in rising seq order */
    enum repair_step steps[CHUNK_CLAIMS];
    struct coupon_row rows[CHUNK_CLAIMS];
    size_t count;
    size_t at; /* the first claim that no coupon read so far has passed */
    int64_t unknown_count;
    int64_t foreign_count; /* active coupons with the seq of a claim that came to nothing */
};

bool repair_chunk_begin(struct repair *repair)
{
    if (repair->chunk == NULL)
        repair->chunk = calloc(1, sizeof(*repair->chunk));
    if (repair->chunk != NULL)
        repair->chunk->count = 0;
    return repair->chunk != NULL;
}

/* --- comparing --- */

static void repair_tell(const struct ledger_memory *memory, enum ledger_difference difference,
                        const struct held_claim *held)
{
    if (memory->differs != NULL)
        memory->differs(memory->context, difference, held);
}

/* In a look it is counted; a repair ends here. */
static enum status repair_found_unknown(struct repair *repair, const struct claim *present,
                                        enum coupon_state state, struct error *error)
{
    const struct held_claim held = {.claim = *present, .state = state};
    int64_t seq = present->seq;
    const struct id *user = &present->user;

    repair->chunk->unknown_count++;
    if (repair->mode == REPAIR_ONE)
        return STATUS_OK;
    if (repair->mode == REPAIR_LOOK) {
        repair_tell(repair->memory, LEDGER_HAS_MORE, &held);
        return STATUS_OK;
    }
    return error_set(error, STATUS_CONFLICT,
                     "the ledger has a coupon %lld-%lld of user %.*s that this server never gave, "
                     "or gave otherwise: it is not an older copy of this server's ledger, and "
                     "nothing was written",
                     (long long)repair->policy.id, (long long)seq, (int)user->length, user->bytes);
}

static bool repair_is_same(const struct claim *a, const struct claim *b)
{
    return a->nth == b->nth && id_equal(&a->user, &b->user) &&
           memcmp(a->request_id.bytes, b->request_id.bytes, sizeof(a->request_id.bytes)) == 0;
}

/* Came to nothing. A merged claim whose row a rule of the shop's refuses stands in the ledger as
 * VOID. */
static bool repair_is_void(enum coupon_state state)
{
    return state == COUPON_VOID || state == COUPON_MERGED;
}

/* A ledger is behind when the gate knows of a redeemed or cancelled coupon and the ledger does not.
 * While people use it, it may be ahead for a moment, between a commit and its acknowledgement.
 * False when it can be neither. */
static bool repair_step_for(enum coupon_state held, enum coupon_state present,
                            enum repair_mode mode, enum repair_step *step)
{
    *step = STEP_NOTHING;
    if (present == COUPON_ISSUED && held == COUPON_REDEEMED)
        *step = STEP_REDEEM;
    else if (present == COUPON_ISSUED && held == COUPON_CANCELLED)
        *step = STEP_CANCEL;
    else if (held == COUPON_ISSUED && mode != REPAIR_LOOK)
        return coupon_state_is_active(present);
    else if (repair_is_void(held))
        return repair_is_void(present);
    else
        return held == present || held == COUPON_ISSUED;
    return true;
}

/* Coupons come in rising seq order. */
static enum status repair_read_coupon(void *context, const struct sql_value *columns,
                                      struct error *error)
{
    struct repair *repair = context;
    struct repair_chunk *chunk = repair->chunk;
    struct claim present = {
        .policy_id = repair->policy.id,
        .seq = columns[0].number,
        .user = rows_read_user(&columns[1]),
        .nth = (int32_t)columns[2].number,
        .request_id = rows_read_request_id(&columns[4]),
    };

    enum coupon_state state = rows_read_state(&columns[3]);

    while (chunk->at < chunk->count && chunk->claims[chunk->at].claim.seq < present.seq)
        chunk->at++;
    if (chunk->at == chunk->count || chunk->claims[chunk->at].claim.seq != present.seq)
        return repair->memory->forgets_freed && !coupon_state_is_active(state)
                   ? STATUS_OK
                   : repair_found_unknown(repair, &present, state, error);
    const struct held_claim *held = &chunk->claims[chunk->at];
    enum repair_step *step = &chunk->steps[chunk->at];
    bool is_same = repair_is_same(&held->claim, &present);
    /* A claim that came to nothing because its seq was someone else's has no coupon of its own. */
    if (!is_same && repair_is_void(held->state)) {
        *step = STEP_NOTHING;
        chunk->foreign_count += coupon_state_is_active(state);
        return STATUS_OK;
    }
    if (!repair_step_for(held->state, state, repair->mode, step) || !is_same) {
        *step = is_same ? STEP_NOTHING : STEP_LETTER;
        return repair_found_unknown(repair, &present, state, error);
    }
    return STATUS_OK;
}

static enum status repair_compare(struct repair *repair, struct error *error)
{
    struct repair_chunk *chunk = repair->chunk;

    for (size_t i = 0; i < chunk->count; i++)
        chunk->steps[i] = STEP_INSERT;
    chunk->at = 0;
    chunk->unknown_count = 0;
    chunk->foreign_count = 0;
    /* One coupon more than there are claims is one too many, unless some may be untold. */
    int64_t limit = repair->memory->forgets_freed ? INT32_MAX : (int64_t)chunk->count + 1;
    return SQL_RUN(repair->sql, STATEMENT_coupon_range, repair_read_coupon, repair, error,
                   sql_i64(repair->policy.id), sql_i64(repair->seq),
                   sql_i64(chunk->claims[chunk->count - 1].claim.seq), sql_i64(limit));
}

enum status repair_check_rest(struct repair *repair, struct error *error)
{
    struct repair_chunk *chunk = repair->chunk;

    chunk->count = 0;
    chunk->at = 0;
    return SQL_RUN(repair->sql, STATEMENT_coupon_range, repair_read_coupon, repair, error,
                   sql_i64(repair->policy.id), sql_i64(repair->seq), sql_i64(INT64_MAX),
                   sql_i64(repair->mode == REPAIR_LOOK ? REST_MAX : 1));
}

/* --- writing --- */

/* Dates a coupon that was redeemed or cancelled. */
static enum status repair_settle(struct repair *repair, const struct held_claim *held,
                                 struct error *error)
{
    if (held->state == COUPON_CANCELLED)
        return SQL_WRITE(repair->sql, STATEMENT_coupon_cancel, error, sql_i64(repair->policy.id),
                         sql_i64(held->claim.seq), sql_i64(repair->now_ms));
    if (held->state == COUPON_REDEEMED)
        return SQL_WRITE(repair->sql, STATEMENT_coupon_redeem, error, sql_i64(repair->policy.id),
                         sql_i64(held->claim.seq), sql_i64(repair->now_ms), sql_null());
    return STATUS_OK;
}

static struct coupon_row repair_row(const struct repair *repair, const struct held_claim *held)
{
    struct coupon_row row = {
        .claim = &held->claim, .state = held->state, .issued_at_ms = held->claim.requested_at_ms};

    if (repair->policy.coupon_valid_days != 0)
        row.expires_at_ms = policy_coupon_ends_ms(&repair->policy, held->claim.requested_at_ms);
    if (repair_is_void(held->state))
        row.reason = REASON_LOST;
    return row;
}

/* Writes the rows as a whole. A slot that is taken belongs to a coupon that the gate never gave. */
static enum status repair_insert(struct repair *repair, struct coupon_row *rows, size_t count,
                                 struct error *error)
{
    const struct ledger_driver *driver = repair->sql->driver;
    enum status status =
        count == 0 ? STATUS_OK : driver->insert_coupons(repair->sql->session, rows, count, error);

    if (status == STATUS_INVALID)
        return STATUS_FAILED;
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        if (rows[i].conflicts)
            status = STATUS_CONFLICT;
    if (status != STATUS_CONFLICT)
        return status;
    return error_set(error, STATUS_CONFLICT,
                     "coupons of policy %lld between %lld and %lld stand in the way of others: "
                     "this is not an older copy of this server's ledger, and nothing was written",
                     (long long)repair->policy.id, (long long)rows[0].claim->seq,
                     (long long)rows[count - 1].claim->seq);
}

/* A user's older coupon in the place of a claim that the gate has: it was cancelled since. */
static enum status repair_free_slots(struct repair *repair, const struct coupon_row *rows,
                                     size_t count, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        const struct claim *claim = rows[i].claim;
        int64_t seq = 0;
        status = SQL_RUN(repair->sql, STATEMENT_coupon_by_slot, rows_take_i64, &seq, error,
                         sql_i64(claim->policy_id), sql_text(id_span(&claim->user)),
                         sql_i64(claim->nth));
        if (status != STATUS_OK || seq == 0)
            continue;
        repair->gap.cancelled_count++;
        status = SQL_WRITE(repair->sql, STATEMENT_coupon_cancel, error, sql_i64(claim->policy_id),
                           sql_i64(seq), sql_i64(repair->now_ms));
    }
    return status;
}

/* The ledger is believed only where the gate says nothing. */
static enum status repair_insert_over(struct repair *repair, struct coupon_row *rows, size_t count,
                                      struct error *error)
{
    const struct ledger_driver *driver = repair->sql->driver;
    struct error why = {""};
    enum status status = count == 0 ? STATUS_OK : driver->savepoint(repair->sql->session, error);

    if (status != STATUS_OK || count == 0)
        return status;
    enum status inserted = driver->insert_coupons(repair->sql->session, rows, count, &why);
    bool conflicts = inserted == STATUS_CONFLICT;
    for (size_t i = 0; i < count; i++)
        conflicts = conflicts || rows[i].conflicts;
    if (inserted != STATUS_OK && inserted != STATUS_CONFLICT) {
        if (error != NULL)
            *error = why;
        return inserted == STATUS_INVALID ? STATUS_FAILED : inserted;
    }
    status = driver->savepoint_end(repair->sql->session, !conflicts, error);
    if (status != STATUS_OK || !conflicts)
        return status;
    for (size_t i = 0; i < count; i++)
        rows[i].conflicts = false;
    status = repair_free_slots(repair, rows, count, error);
    return status == STATUS_OK ? repair_insert(repair, rows, count, error) : status;
}

static enum status repair_write_dead_letter(struct repair *repair, const struct claim *claim,
                                            struct error *error)
{
    struct dead_letter letter = {
        .claim = *claim, .died_at_ms = repair->now_ms, .reason = REASON_TAKEN};

    return dead_letters_write(repair->sql, &letter, error);
}

/* What the database had lost may have been told of before, or not: it is told again. */
static void repair_note(struct repair *repair, const struct held_claim *held, bool is_new)
{
    struct coupon_row row = repair_row(repair, held);
    struct outbox_note note = {.claim = &held->claim,
                               .state = held->state,
                               .changed_at_ms = repair->now_ms,
                               .issued_at_ms = row.issued_at_ms,
                               .expires_at_ms = row.expires_at_ms};

    if (held->state == COUPON_CANCELLED || held->state == COUPON_REDEEMED)
        row.state = COUPON_ISSUED;
    if (is_new)
        outbox_note_row(repair->sql->outbox, &row);
    if (held->state == COUPON_CANCELLED || held->state == COUPON_REDEEMED)
        outbox_note(repair->sql->outbox, &note);
}

/* The database may have refused the row before, which is how the claim came to nothing. */
static enum status repair_insert_void(struct repair *repair, size_t index, struct error *error)
{
    const struct ledger_driver *driver = repair->sql->driver;
    struct coupon_row row = repair_row(repair, &repair->chunk->claims[index]);
    struct error why = {""};
    enum status status = driver->savepoint(repair->sql->session, error);

    if (status != STATUS_OK)
        return status;
    enum status inserted = driver->insert_coupons(repair->sql->session, &row, 1, &why);
    bool is_refused = inserted == STATUS_CONFLICT || inserted == STATUS_INVALID || row.conflicts;
    if (inserted != STATUS_OK && !is_refused) {
        if (error != NULL)
            *error = why;
        return inserted;
    }
    status = driver->savepoint_end(repair->sql->session, !is_refused, error);
    return status == STATUS_OK && is_refused ? issue_write_refused(repair->sql, &row, error)
                                             : status;
}

/* What was freed makes room first, then come the rows that may need it. */
static enum status repair_write_chunk(struct repair *repair, struct error *error)
{
    struct repair_chunk *chunk = repair->chunk;
    enum status status = STATUS_OK;
    size_t row_count = 0;

    for (size_t i = 0; i < chunk->count && status == STATUS_OK; i++) {
        const struct held_claim *held = &chunk->claims[i];
        if (chunk->steps[i] == STEP_INSERT && repair_is_void(held->state))
            status = repair_insert_void(repair, i, error);
        else if (chunk->steps[i] == STEP_INSERT)
            chunk->rows[row_count++] = repair_row(repair, held);
        else if (chunk->steps[i] == STEP_REDEEM || chunk->steps[i] == STEP_CANCEL)
            status = repair_settle(repair, held, error);
        else if (chunk->steps[i] == STEP_LETTER)
            status = repair_write_dead_letter(repair, &held->claim, error);
    }
    if (status == STATUS_OK)
        status = repair->mode == REPAIR_ONE
                     ? repair_insert_over(repair, chunk->rows, row_count, error)
                     : repair_insert(repair, chunk->rows, row_count, error);
    for (size_t i = 0; i < chunk->count && status == STATUS_OK; i++) {
        if (chunk->steps[i] == STEP_INSERT)
            status = repair_settle(repair, &chunk->claims[i], error);
        if (chunk->steps[i] != STEP_NOTHING && chunk->steps[i] != STEP_LETTER)
            repair_note(repair, &chunk->claims[i], chunk->steps[i] == STEP_INSERT);
    }
    return status == STATUS_OK ? outbox_write(repair->sql, error) : status;
}

/* --- counting --- */

/* A coupon in the range of a lease has taken its unit, whatever became of it. */
static void repair_count_in_lease(struct repair *repair, int64_t seq)
{
    while (repair->lease_at < repair->lease_count &&
           seq >=
               repair->leases[repair->lease_at].first_seq + repair->leases[repair->lease_at].count)
        repair->lease_at++;
    if (repair->lease_at < repair->lease_count && seq >= repair->leases[repair->lease_at].first_seq)
        repair->lease_rows[repair->lease_at]++;
}

static void repair_count(struct repair *repair)
{
    const struct repair_chunk *chunk = repair->chunk;
    struct ledger_gap *gap = &repair->gap;

    for (size_t i = 0; i < chunk->count; i++) {
        const struct held_claim *held = &chunk->claims[i];
        bool is_missing = chunk->steps[i] == STEP_INSERT;
        if (held->claim.seq == repair->counted_seq)
            repair_tell(repair->memory, LEDGER_HEARD_TWICE, held);
        repair->counted_seq = held->claim.seq;
        if (is_missing && held->is_pending) {
            gap->pending_count++;
            repair_tell(repair->memory, LEDGER_LACKS_YET, held);
        } else if (is_missing && !(repair_is_void(held->state) && repair->mode == REPAIR_LOOK)) {
            gap->missing_count++;
            repair_tell(repair->memory, LEDGER_LACKS, held);
        } else if (chunk->steps[i] == STEP_REDEEM || chunk->steps[i] == STEP_CANCEL) {
            repair_tell(repair->memory, LEDGER_IS_LATE, held);
        }
        gap->redeemed_count += chunk->steps[i] == STEP_REDEEM;
        gap->cancelled_count += chunk->steps[i] == STEP_CANCEL;
        repair->active_count += coupon_state_is_active(held->state);
        repair_count_in_lease(repair, held->claim.seq);
    }
    repair->active_count += chunk->foreign_count;
    gap->unknown_count += chunk->unknown_count;
}

enum status repair_flush(struct repair *repair, struct error *error)
{
    struct repair_chunk *chunk = repair->chunk;

    if (chunk->count == 0)
        return STATUS_OK;
    enum status status = repair_compare(repair, error);
    if (status == STATUS_OK && repair->mode != REPAIR_LOOK)
        status = repair_write_chunk(repair, error);
    if (status != STATUS_OK)
        return status;
    repair_count(repair);
    repair->seq = chunk->claims[chunk->count - 1].claim.seq;
    chunk->count = 0;
    return STATUS_OK;
}

enum status repair_claim(void *context, const struct held_claim *held, struct error *error)
{
    struct repair *repair = context;
    struct repair_chunk *chunk = repair->chunk;

    chunk->claims[chunk->count++] = *held;
    return chunk->count == CHUNK_CLAIMS ? repair_flush(repair, error) : STATUS_OK;
}
