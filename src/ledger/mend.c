/* mend.c: makes a policy's stock add up again, and keeps what audits found and repairs did.
 *
 * No coupon goes: what is left of the total after them and the leases is unleased. */
#include <stdlib.h>

#include "ledger/balance.h"
#include "ledger/inside.h"
#include "ledger/ledger.h"
#include "ledger/places.h"
#include "ledger/rows.h"
#include "ledger/transactions.h"

#define MEND_TRIES 3

/* --- stock --- */

struct mend_stock {
    struct ledger_mend *mend;
    const struct lease *leases; /* all that there ever were, as they were a moment ago */
    size_t lease_count;
};

/* Whether all open leases are among those that this transaction has locked. Both are told by rising
 * first seqs. */
struct mend_leases {
    const struct mend_stock *stock;
    size_t at;
    bool has_more;
};

static enum status mend_check_lease(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    struct mend_leases *leases = context;
    const struct mend_stock *stock = leases->stock;
    int64_t id = columns[0].number;

    (void)error;
    while (leases->at < stock->lease_count && stock->leases[leases->at].id != id)
        leases->at++;
    leases->has_more =
        leases->has_more || leases->at == stock->lease_count || !stock->leases[leases->at].open;
    return STATUS_OK;
}

/* Whoever issues under a lease has it locked shared, and whoever moves a unit has the policy: with
 * both locked nothing moves, and all counts belong together. */
static enum status mend_lock(struct sql *sql, const struct mend_stock *stock, struct policy *policy,
                             struct error *error)
{
    struct mend_leases leases = {.stock = stock};
    struct lease lease;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < stock->lease_count && status == STATUS_OK; i++) {
        if (stock->leases[i].open)
            status = rows_lease_lock(sql, stock->leases[i].id, &lease, error);
    }
    if (status == STATUS_OK && stock->mend->adopts_strays)
        status = SQL_RUN(sql, STATEMENT_coupon_adopt, NULL, NULL, error,
                         sql_i64(stock->mend->policy_id));
    if (status == STATUS_OK && stock->mend->places_coupons)
        status = places_set(sql, stock->mend, error);
    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, stock->mend->policy_id, ROWS_LOCK, policy, error);
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_lease_open_of_policy, mend_check_lease, &leases, error,
                         sql_i64(stock->mend->policy_id));
    if (status == STATUS_OK && leases.has_more)
        status = error_set(error, STATUS_CONFLICT, "policy %lld was lent stock meanwhile",
                           (long long)stock->mend->policy_id);
    return status;
}

/* The next lease begins behind all that there ever were, also behind one that somebody has made
 * longer. */
static enum status mend_set(const struct mend_stock *stock, const struct ledger_balance *sums,
                            struct policy *policy, struct error *error)
{
    const struct ledger_mend *mend = stock->mend;
    int64_t unleased = policy->total - sums->leased - sums->active;

    if (unleased < 0 && mend->raises_total && sums->leased == 0) {
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

static enum status mend_stock(struct sql *sql, void *argument, struct error *error)
{
    const struct mend_stock *stock = argument;
    struct ledger_mend *mend = stock->mend;
    struct ledger_balance sums = {0};
    struct policy before;
    int64_t waiting_count = 1;
    enum status status = transaction_check_term(sql, mend->policy_id, mend->term, error);

    mend->is_changed = false;
    if (status == STATUS_OK)
        status = mend_lock(sql, stock, &before, error);
    if (status == STATUS_OK && mend->only_if_asked)
        status = SQL_RUN(sql, STATEMENT_repair_waiting, rows_take_i64, &waiting_count, error,
                         sql_i64(mend->policy_id));
    if (status != STATUS_OK || waiting_count == 0 || mend->places_coupons)
        return status;
    struct policy policy = before;
    status = balance_sum(sql, mend->policy_id, &sums, error);
    if (status == STATUS_OK)
        status = mend_set(stock, &sums, &policy, error);
    if (status != STATUS_OK)
        return status;
    mend->before = before;
    mend->after = policy;
    mend->is_changed = policy.total != before.total || policy.unleased != before.unleased ||
                       policy.next_seq != before.next_seq;
    return mend->is_changed ? transaction_save_policy(sql, &policy, error) : STATUS_OK;
}

enum status ledger_mend(struct ledger *ledger, struct ledger_mend *mend, struct error *error)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < MEND_TRIES; i++) {
        struct lease *leases = NULL;
        struct mend_stock stock = {.mend = mend};
        status = ledger_lease_history(ledger, mend->policy_id, &leases, &stock.lease_count, error);
        stock.leases = leases;
        if (status == STATUS_OK)
            status = ledger_write(ledger, mend_stock, &stock, error);
        free(leases);
        if (status != STATUS_CONFLICT)
            break;
    }
    return status;
}

/* --- what was done --- */

static enum status mend_note(struct sql *sql, void *argument, struct error *error)
{
    const struct ledger_repair_note *note = argument;

    return SQL_RUN(sql, STATEMENT_repair_insert, NULL, NULL, error, sql_i64(note->asked_at_ms),
                   sql_i64(note->policy_id), sql_text(span_of(note->plan)));
}

static enum status mend_note_done(struct sql *sql, void *argument, struct error *error)
{
    const struct ledger_repair_note *note = argument;

    return SQL_RUN(sql, STATEMENT_repair_finish, NULL, NULL, error, sql_i64(note->asked_at_ms),
                   sql_i64(note->policy_id), sql_i64(note->done_at_ms),
                   sql_text(span_of(note->outcome)));
}

static void mend_read_note(const struct sql_value *columns, void *row)
{
    struct ledger_repair_note *note = row;

    note->asked_at_ms = columns[0].number;
    note->policy_id = columns[1].number;
    note->done_at_ms = columns[2].kind == SQL_NULL ? 0 : columns[2].number;
    rows_read_text(&columns[3], note->plan, sizeof(note->plan));
    rows_read_text(&columns[4], note->outcome, sizeof(note->outcome));
}

enum status ledger_repair_begin(struct ledger *ledger, const struct ledger_repair_note *note,
                                struct error *error)
{
    struct ledger_repair_note copy = *note;
    return ledger_write(ledger, mend_note, &copy, error);
}

enum status ledger_repair_end(struct ledger *ledger, const struct ledger_repair_note *note,
                              struct error *error)
{
    struct ledger_repair_note copy = *note;
    return ledger_write(ledger, mend_note_done, &copy, error);
}

enum status ledger_repairs(struct ledger *ledger, struct ledger_repair_note *notes, size_t max,
                           size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(notes, mend_read_note, count);
    struct sql sql = ledger_reader_take(ledger);
    enum status status =
        SQL_RUN(&sql, STATEMENT_repair_list, rows_take, &page, error, sql_i64((int64_t)max));

    return ledger_read_end(ledger, sql, status, error);
}

/* --- all leases --- */

struct mend_ranges {
    struct lease *leases;
    size_t count;
    size_t capacity;
};

static enum status mend_read_range(void *context, const struct sql_value *columns,
                                   struct error *error)
{
    struct mend_ranges *ranges = context;

    if (ranges->count == ranges->capacity) {
        size_t capacity = ranges->capacity == 0 ? 64 : ranges->capacity * 2;
        struct lease *grown = realloc(ranges->leases, capacity * sizeof(*grown));
        if (grown == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "no memory for the leases of a policy");
        ranges->leases = grown;
        ranges->capacity = capacity;
    }
    ranges->leases[ranges->count++] = (struct lease){.id = columns[0].number,
                                                     .policy_id = columns[1].number,
                                                     .first_seq = columns[2].number,
                                                     .count = columns[3].number,
                                                     .open = columns[4].number != 0};
    return STATUS_OK;
}

enum status ledger_lease_history(struct ledger *ledger, int64_t policy_id, struct lease **leases,
                                 size_t *count, struct error *error)
{
    struct mend_ranges ranges = {0};
    struct sql sql = ledger_reader_take(ledger);
    enum status status = SQL_RUN(&sql, STATEMENT_lease_all_of_policy, mend_read_range, &ranges,
                                 error, sql_i64(policy_id));

    ledger_reader_return(ledger, sql);
    *leases = ranges.leases;
    *count = ranges.count;
    return status;
}
