/* fix.c: makes a policy's stock add up again, and keeps what audits found and repairs did.
 *
 * No coupon goes: what is left of the total after them and the leases is unleased. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/inside.h"
#include "ledger/ledger.h"
#include "ledger/repair/repair.h"
#include "ledger/rows.h"
#include "ledger/transactions.h"

/* --- users whose places do not fit --- */

#define REASON_KEPT "kept above the limit by a repair"
#define NAME_SHOWN  64

struct placed_coupon {
    struct id user;
    int64_t seq;
    int32_t nth;
    int32_t slot; /* 0: none */
    int32_t place;
    bool is_kept; /* by an earlier repair */
    bool is_above;
};

/* By user, and then by rising seqs. */
struct places {
    struct placed_coupon *coupons;
    size_t count;
};

static enum status places_read(void *coupon, const struct sql_value *columns, struct error *error)
{
    *(struct placed_coupon *)coupon = (struct placed_coupon){.user = rows_read_user(&columns[0]),
                                                             .seq = columns[1].number,
                                                             .nth = (int32_t)columns[2].number,
                                                             .slot = (int32_t)columns[3].number,
                                                             .is_kept = columns[4].number != 0};
    return STATUS_OK;
}

/* The earliest coupon with a number keeps it; the others get the lowest that are free. The newest
 * are above the limit. */
static enum status places_choose(struct placed_coupon *coupons, size_t count, int32_t limit,
                                 struct error *error)
{
    bool is_taken[PER_USER_LIMIT_MAX + 1] = {true};
    size_t counted = 0;

    if (count > PER_USER_LIMIT_MAX)
        return error_set(error, STATUS_CONFLICT, "a user has %zu coupons, and the most is %d",
                         count, PER_USER_LIMIT_MAX);
    for (size_t i = 0; i < count; i++) {
        int32_t nth = coupons[i].nth;
        if (nth >= 1 && nth <= PER_USER_LIMIT_MAX && !is_taken[nth]) {
            is_taken[nth] = true;
            coupons[i].place = nth;
        }
        counted += !coupons[i].is_kept;
        coupons[i].is_above = !coupons[i].is_kept && counted > (size_t)limit;
    }
    for (size_t i = 0, place = 1; i < count; i++) {
        if (coupons[i].place != 0)
            continue;
        while (is_taken[place])
            place++;
        is_taken[place] = true;
        coupons[i].place = (int32_t)place;
    }
    return STATUS_OK;
}

static enum status places_choose_all(struct places *places, int32_t limit, struct error *error)
{
    enum status status = STATUS_OK;
    size_t next;

    for (size_t at = 0; at < places->count && status == STATUS_OK; at = next) {
        next = at + 1;
        while (next < places->count &&
               id_equal(&places->coupons[next].user, &places->coupons[at].user))
            next++;
        status = places_choose(&places->coupons[at], next - at, limit, error);
    }
    return status;
}

static bool places_moves(const struct placed_coupon *coupon)
{
    return coupon->slot != coupon->place || coupon->nth != coupon->place;
}

/* "42-17 of ann, 42-18 of bob", as far as there is room. */
static void places_name(struct ledger_fix *fix, const struct placed_coupon *coupon)
{
    size_t length = strlen(fix->kept);
    int shown = coupon->user.length < NAME_SHOWN ? coupon->user.length : NAME_SHOWN;

    fix->kept_count++;
    if (sizeof(fix->kept) - length > NAME_SHOWN + 64)
        snprintf(fix->kept + length, sizeof(fix->kept) - length,
                 "%s%" PRId64 "-%" PRId64 " of %.*s", length > 0 ? ", " : "", fix->policy_id,
                 coupon->seq, shown, coupon->user.bytes);
}

/* What is moved leaves its place first, which another one may get. */
static enum status places_write(struct sql *sql, const struct places *places,
                                struct ledger_fix *fix, struct error *error)
{
    struct sql_value id = sql_i64(fix->policy_id);
    enum status status = SQL_WRITE(sql, STATEMENT_coupon_free_slots, error, id);

    for (size_t i = 0; i < places->count && status == STATUS_OK; i++)
        if (places_moves(&places->coupons[i]))
            status = SQL_WRITE(sql, STATEMENT_coupon_unplace, error, id,
                               sql_i64(places->coupons[i].seq));
    for (size_t i = 0; i < places->count && status == STATUS_OK; i++) {
        const struct placed_coupon *coupon = &places->coupons[i];
        if (places_moves(coupon))
            status = SQL_WRITE(sql, STATEMENT_coupon_place, error, id, sql_i64(coupon->seq),
                               sql_i64(coupon->place));
        if (status == STATUS_OK && coupon->is_above)
            status = SQL_WRITE(sql, STATEMENT_coupon_keep, error, id, sql_i64(coupon->seq),
                               sql_text(span_of(REASON_KEPT)));
        fix->is_renumbered = fix->is_renumbered || coupon->nth != coupon->place;
        if (coupon->is_above)
            places_name(fix, coupon);
    }
    return status;
}

/* Sets the places of all active coupons of a policy, and says in `fix` what was done. A place is
 * the number of a coupon among its user's, kept in `nth` and, while the coupon is active, in
 * `slot`. Whoever edits the table can leave slots that do not fit, and more coupons than the limit.
 * No coupon is taken from anyone: those above the limit are marked as kept. CONFLICT: a user has
 * more coupons than any limit allows. */
static enum status places_set(struct sql *sql, struct ledger_fix *fix, struct error *error)
{
    struct rows_list list = {.read = places_read, .row_size = sizeof(struct placed_coupon)};
    struct places places;
    struct policy policy;
    enum status status = rows_policy_by_id(sql, fix->policy_id, ROWS_LOOK, &policy, error);

    fix->is_renumbered = false;
    fix->kept_count = 0;
    fix->kept[0] = '\0';
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_coupon_crowded, rows_gather, &list, error,
                         sql_i64(fix->policy_id), sql_i64(policy.per_user_limit));
    places =
        (struct places){.coupons = (struct placed_coupon *)(void *)list.rows, .count = list.count};
    if (status == STATUS_OK)
        status = places_choose_all(&places, policy.per_user_limit, error);
    if (status == STATUS_OK)
        status = places_write(sql, &places, fix, error);
    free(list.rows);
    return status;
}

#define FIX_TRIES 3

/* --- counting --- */

static enum status balance_read_sums(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    struct ledger_balance *balance = context;

    balance->coupons = columns[0].number;
    balance->active = columns[1].number;
    balance->highest_seq = columns[2].number;
    balance->misplaced = columns[3].number;
    return STATUS_OK;
}

enum status balance_sum(struct sql *sql, int64_t policy_id, struct ledger_balance *balance,
                        struct error *error)
{
    struct sql_value id = sql_i64(policy_id);
    enum status status =
        SQL_RUN(sql, STATEMENT_lease_balance, rows_take_i64, &balance->leased, error, id);

    return status == STATUS_OK
               ? SQL_RUN(sql, STATEMENT_coupon_sums, balance_read_sums, balance, error, id)
               : status;
}

enum status balance_read(struct sql *sql, int64_t policy_id, struct ledger_balance *balance,
                         struct error *error)
{
    struct policy policy;
    struct sql_value id = sql_i64(policy_id);
    enum status status = sql->driver->begin(sql->session, error);

    *balance = (struct ledger_balance){0};
    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, policy_id, ROWS_LOOK, &policy, error);
    if (status == STATUS_OK)
        status = balance_sum(sql, policy_id, balance, error);
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_user_over_limit, rows_take_i64, &balance->over_limit, error,
                         id, sql_i64(policy.per_user_limit));
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_coupon_stray, rows_take_i64, &balance->stray, error, id);
    sql->driver->rollback(sql->session);
    if (status == STATUS_OK) {
        balance->total = policy.total;
        balance->unleased = policy.unleased;
        balance->version = policy.version;
        balance->next_seq = policy.next_seq;
    }
    return status;
}

/* --- stock --- */

struct fix_stock {
    struct ledger_fix *fix;
    const struct lease *leases; /* all that there ever were, as they were a moment ago */
    size_t lease_count;
};

/* Whether all open leases are among those that this transaction has locked. Both are told by rising
 * first seqs. */
struct fix_leases {
    const struct fix_stock *stock;
    size_t at;
    bool has_more;
};

static enum status fix_check_lease(void *context, const struct sql_value *columns,
                                   struct error *error)
{
    struct fix_leases *leases = context;
    const struct fix_stock *stock = leases->stock;
    int64_t id = columns[0].number;

    while (leases->at < stock->lease_count && stock->leases[leases->at].id != id)
        leases->at++;
    leases->has_more =
        leases->has_more || leases->at == stock->lease_count || !stock->leases[leases->at].open;
    return STATUS_OK;
}

/* A transaction that issues under a lease holds a shared lock on it, and one that moves a unit
 * holds the policy: with both locked nothing moves, and all counts belong together. */
static enum status fix_lock(struct sql *sql, const struct fix_stock *stock, struct policy *policy,
                            struct error *error)
{
    struct fix_leases leases = {.stock = stock};
    struct lease lease;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < stock->lease_count && status == STATUS_OK; i++)
        if (stock->leases[i].open)
            status = rows_lease_lock(sql, stock->leases[i].id, &lease, error);
    if (status == STATUS_OK && stock->fix->adopts_strays)
        status = SQL_WRITE(sql, STATEMENT_coupon_adopt, error, sql_i64(stock->fix->policy_id));
    if (status == STATUS_OK && stock->fix->places_coupons)
        status = places_set(sql, stock->fix, error);
    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, stock->fix->policy_id, ROWS_LOCK, policy, error);
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_lease_open_of_policy, fix_check_lease, &leases, error,
                         sql_i64(stock->fix->policy_id));
    if (status == STATUS_OK && leases.has_more)
        status = error_set(error, STATUS_CONFLICT, "policy %lld was lent stock meanwhile",
                           (long long)stock->fix->policy_id);
    return status;
}

/* The next lease begins behind all that there ever were, also behind one that somebody has made
 * longer. */
static enum status fix_set(const struct fix_stock *stock, const struct ledger_balance *sums,
                           struct policy *policy, struct error *error)
{
    const struct ledger_fix *fix = stock->fix;
    int64_t unleased = policy->total - sums->leased - sums->active;

    if (unleased < 0 && fix->raises_total && sums->leased == 0) {
        policy->total = sums->active;
        unleased = 0;
    }
    if (unleased < 0)
        return error_set(error, STATUS_CONFLICT,
                         "policy %lld: %lld units are issued and %lld lent, and its total is %lld",
                         (long long)policy->id, (long long)sums->active, (long long)sums->leased,
                         (long long)policy->total);
    policy->unleased = unleased;
    if (policy->next_seq <= sums->highest_seq)
        policy->next_seq = sums->highest_seq + 1;
    for (size_t i = 0; i < stock->lease_count; i++) {
        int64_t end_seq = stock->leases[i].first_seq + stock->leases[i].count;
        if (policy->next_seq < end_seq)
            policy->next_seq = end_seq;
    }
    return STATUS_OK;
}

static enum status fix_stock(struct sql *sql, void *argument, struct error *error)
{
    const struct fix_stock *stock = argument;
    struct ledger_fix *fix = stock->fix;
    struct ledger_balance sums = {0};
    struct policy before;
    int64_t waiting_count = 1;
    enum status status = transaction_check_term(sql, fix->policy_id, fix->term, error);

    fix->is_changed = false;
    if (status == STATUS_OK)
        status = fix_lock(sql, stock, &before, error);
    if (status == STATUS_OK && fix->only_if_asked)
        status = SQL_RUN(sql, STATEMENT_repair_waiting, rows_take_i64, &waiting_count, error,
                         sql_i64(fix->policy_id));
    if (status != STATUS_OK || waiting_count == 0 || fix->places_coupons)
        return status;
    struct policy policy = before;
    status = balance_sum(sql, fix->policy_id, &sums, error);
    if (status == STATUS_OK)
        status = fix_set(stock, &sums, &policy, error);
    if (status != STATUS_OK)
        return status;
    fix->before = before;
    fix->after = policy;
    fix->is_changed = policy.total != before.total || policy.unleased != before.unleased ||
                      policy.next_seq != before.next_seq;
    return fix->is_changed ? transaction_save_policy(sql, &policy, error) : STATUS_OK;
}

enum status ledger_fix(struct ledger *ledger, struct ledger_fix *fix, struct error *error)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < FIX_TRIES; i++) {
        struct lease *leases = NULL;
        struct fix_stock stock = {.fix = fix};
        status = ledger_lease_history(ledger, fix->policy_id, &leases, &stock.lease_count, error);
        stock.leases = leases;
        if (status == STATUS_OK)
            status = ledger_write(ledger, fix_stock, &stock, error);
        free(leases);
        if (status != STATUS_CONFLICT)
            break;
    }
    return status;
}

/* --- what was done --- */

static enum status fix_note(struct sql *sql, void *argument, struct error *error)
{
    const struct ledger_repair_note *note = argument;

    return SQL_WRITE(sql, STATEMENT_repair_insert, error, sql_i64(note->asked_at_ms),
                     sql_i64(note->policy_id), sql_text(span_of(note->plan)));
}

static enum status fix_note_done(struct sql *sql, void *argument, struct error *error)
{
    const struct ledger_repair_note *note = argument;

    return SQL_WRITE(sql, STATEMENT_repair_finish, error, sql_i64(note->asked_at_ms),
                     sql_i64(note->policy_id), sql_i64(note->done_at_ms),
                     sql_text(span_of(note->outcome)));
}

static enum status fix_read_note(void *row, const struct sql_value *columns, struct error *error)
{
    struct ledger_repair_note *note = row;

    note->asked_at_ms = columns[0].number;
    note->policy_id = columns[1].number;
    note->done_at_ms = columns[2].kind == SQL_NULL ? 0 : columns[2].number;
    rows_read_text(&columns[3], note->plan, sizeof(note->plan));
    rows_read_text(&columns[4], note->outcome, sizeof(note->outcome));
    return STATUS_OK;
}

enum status ledger_repair_begin(struct ledger *ledger, const struct ledger_repair_note *note,
                                struct error *error)
{
    struct ledger_repair_note copy = *note;
    return ledger_write(ledger, fix_note, &copy, error);
}

enum status ledger_repair_end(struct ledger *ledger, const struct ledger_repair_note *note,
                              struct error *error)
{
    struct ledger_repair_note copy = *note;
    return ledger_write(ledger, fix_note_done, &copy, error);
}

enum status ledger_repairs(struct ledger *ledger, struct ledger_repair_note *notes, size_t max,
                           size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(notes, fix_read_note, count);

    return LEDGER_READ(ledger, STATEMENT_repair_list, rows_take, &page, error,
                       sql_i64((int64_t)max));
}
