/* transactions.c: policies, leases, coupons and users change here, and nowhere else. */
#include "ledger/transactions.h"

#include "ledger/inside.h"
#include "ledger/ledger.h"
#include "ledger/list.h"
#include "ledger/outbox.h"
#include "ledger/rows.h"

/* A recall touches at most so many leases at once. */
#define SHRUNK_MAX 64

/* Leases closed by one statement. */
#define CLOSE_IDS_MAX 10000

enum status transaction_insert_policy(struct sql *sql, const struct policy *policy,
                                      struct error *error)
{
    struct policy fresh = *policy;

    fresh.paused = false;
    fresh.closed_at_ms = 0;
    fresh.version = 1;
    fresh.unleased = policy->total;
    fresh.next_seq = 1;
    return rows_write_policy(sql, STATEMENT_policy_insert, &fresh, error);
}

enum status transaction_save_policy(struct sql *sql, struct policy *policy, struct error *error)
{
    policy->version++;
    return rows_write_policy(sql, STATEMENT_policy_update, policy, error);
}

/* --- leases --- */

/* Moves `count` units from the policy into a new lease and saves both. */
static enum status transaction_lend(struct sql *sql, struct policy *policy, int64_t count,
                                    struct lease *lease, struct error *error)
{
    *lease = (struct lease){
        .policy_id = policy->id, .first_seq = policy->next_seq, .count = count, .open = true};
    policy->unleased -= count;
    policy->next_seq += count;
    enum status status =
        SQL_RUN(sql, STATEMENT_lease_insert, rows_take_i64, &lease->id, error,
                sql_i64(lease->policy_id), sql_i64(lease->first_seq), sql_i64(count));
    return status == STATUS_OK ? transaction_save_policy(sql, policy, error) : status;
}

enum status transaction_take_lease(struct sql *sql, void *argument, struct error *error)
{
    struct take_lease *take = argument;
    enum status status = transaction_check_term(sql, take->policy_id, take->term, error);

    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, take->policy_id, ROWS_LOCK, take->policy, error);
    *take->lease = (struct lease){.policy_id = take->policy_id};
    if (status != STATUS_OK || take->policy->closed_at_ms != 0)
        return status;
    int64_t count = take->policy->unleased - take->keep;
    if (count <= 0)
        return STATUS_OK;
    return transaction_lend(sql, take->policy, count, take->lease, error);
}

enum status ledger_lease_take(struct ledger *ledger, int64_t policy_id, int64_t term, int64_t keep,
                              struct lease *lease, struct policy *policy, struct error *error)
{
    struct take_lease take = {
        .policy_id = policy_id, .term = term, .keep = keep, .lease = lease, .policy = policy};
    return ledger_write(ledger, transaction_take_lease, &take, error);
}

/* Units that a gate gave back. Their seqs were never given out, so when they are the policy's
 * last they are free for the next lease, and the line stays dense. Not so of a gate elsewhere: a
 * replica of it that has not heard of this would have seen later seqs than the ledger knows of. A
 * lease that somebody has closed meanwhile has returned them already. */
static enum status transaction_shrink_lease(struct sql *sql, const struct change_policy *change,
                                            const struct lease *lease, int64_t count,
                                            struct error *error)
{
    struct policy *policy = change->policy;

    ensure(lease->policy_id == policy->id);
    if (!lease->open || count >= lease->count)
        return STATUS_OK;
    policy->unleased += lease->count - count;
    if (!change->keeps_seqs && lease->first_seq + lease->count == policy->next_seq)
        policy->next_seq = lease->first_seq + count;
    return SQL_WRITE(sql, STATEMENT_lease_shrink, error, sql_i64(lease->id), sql_i64(count));
}

enum status transaction_close_lease(struct sql *sql, void *argument, struct error *error)
{
    const struct close_lease *close = argument;
    struct lease lease;
    struct policy policy;
    int64_t row_count = 0;
    enum status status = rows_lease_lock(sql, close->lease_id, &lease, error);

    if (status == STATUS_OK)
        status = transaction_check_term(sql, lease.policy_id, close->term, error);
    if (status != STATUS_OK || !lease.open)
        return status;
    /* A transaction that issues under this lease holds a shared lock on it: none is under way now.
     */
    status = SQL_RUN(sql, STATEMENT_lease_rows, rows_take_i64, &row_count, error,
                     sql_i64(lease.policy_id), sql_i64(lease.first_seq),
                     sql_i64(lease.first_seq + lease.count));
    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, lease.policy_id, ROWS_LOCK, &policy, error);
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_lease_close, error, sql_i64(lease.id));
    if (status != STATUS_OK)
        return status;
    policy.unleased += lease.count - row_count;
    return transaction_save_policy(sql, &policy, error);
}

enum status ledger_lease_close(struct ledger *ledger, int64_t lease_id, int64_t term,
                               struct error *error)
{
    struct close_lease close = {.lease_id = lease_id, .term = term};
    return ledger_write(ledger, transaction_close_lease, &close, error);
}

/* In statements that any server's packet takes. */
static enum status transaction_close_used_leases(struct sql *sql, void *argument,
                                                 struct error *error)
{
    const struct close_used_leases *close = argument;
    enum status status = STATUS_OK;
    struct buffer ids;

    buffer_init(&ids, LIST_LENGTH_MAX);
    for (size_t i = 0; i < close->count && status == STATUS_OK; i += CLOSE_IDS_MAX) {
        struct sql_value these;
        list_begin(&ids);
        for (size_t j = i; j < close->count && j < i + CLOSE_IDS_MAX; j++)
            list_add(&ids, sql_i64(close->lease_ids[j]));
        status = list_end(&ids, &these, error);
        if (status == STATUS_OK)
            status = SQL_WRITE(sql, STATEMENT_lease_close_these, error, these);
    }
    buffer_release(&ids);
    return status;
}

enum status ledger_used_leases_close(struct ledger *ledger, const int64_t *lease_ids, size_t count,
                                     struct error *error)
{
    struct close_used_leases close = {.lease_ids = lease_ids, .count = count};
    return ledger_write(ledger, transaction_close_used_leases, &close, error);
}

/* --- policies --- */

static enum status transaction_read_next_id(struct sql *sql, int64_t *id, struct error *error)
{
    return SQL_RUN(sql, STATEMENT_policy_next_id, rows_take_i64, id, error);
}

/* Those who create policies at the same moment take turns at the row of the newest one: who has it,
 * and still finds it the newest, has the next id. */
static enum status transaction_next_id(struct sql *sql, int64_t *id, struct error *error)
{
    struct policy newest;
    int64_t turn = 0;
    enum status status = transaction_read_next_id(sql, id, error);

    while (status == STATUS_OK && *id != turn) {
        turn = *id;
        status = rows_policy_by_id(sql, turn - 1, ROWS_LOCK, &newest, error);
        if (status == STATUS_OK || status == STATUS_NOT_FOUND)
            status = transaction_read_next_id(sql, id, error);
    }
    return status;
}

enum status transaction_create_policy(struct sql *sql, void *argument, struct error *error)
{
    struct create_policy *create = argument;
    struct policy *policy = create->policy;
    struct policy taken;
    enum status status = STATUS_OK;

    policy->id = create->id;
    if (policy->id == 0)
        status = transaction_next_id(sql, &policy->id, error);
    else if ((status = rows_policy_by_id(sql, policy->id, ROWS_LOOK, &taken, error)) == STATUS_OK)
        return error_set(error, STATUS_CONFLICT, "policy %lld exists already",
                         (long long)policy->id);
    if (status == STATUS_NOT_FOUND)
        status = STATUS_OK;
    if (status == STATUS_OK && policy->id > POLICY_ID_MAX)
        return error_set(error, STATUS_CONFLICT, "the policy ids are used up; choose one");
    if (status == STATUS_OK)
        status = transaction_insert_policy(sql, policy, error);
    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, policy->id, ROWS_LOCK, policy, error);
    if (status != STATUS_OK)
        return status;
    if (create->holder != NULL)
        status = transaction_create_stewardship(sql, policy->id, create->holder, error);
    if (status != STATUS_OK)
        return status;
    *create->lease = (struct lease){.policy_id = policy->id};
    if (policy->unleased <= policy->reserve)
        return STATUS_OK;
    return transaction_lend(sql, policy, policy->unleased - policy->reserve, create->lease, error);
}

enum status ledger_policy_create(struct ledger *ledger, struct policy *policy, struct lease *lease,
                                 struct error *error)
{
    struct create_policy create = {.id = policy->id,
                                   .holder = ledger_is_shared(ledger) ? LEDGER_CREATOR : NULL,
                                   .policy = policy,
                                   .lease = lease};
    return ledger_write(ledger, transaction_create_policy, &create, error);
}

static enum status transaction_change_total(struct policy *policy, int64_t total,
                                            struct error *error)
{
    int64_t unleased = policy->unleased + total - policy->total;

    if (unleased < 0)
        return error_set(error, STATUS_CONFLICT,
                         "total: %lld coupons are issued, pending or lent; it cannot be %lld",
                         (long long)(policy->total - policy->unleased), (long long)total);
    policy->unleased = unleased;
    policy->total = total;
    if (policy->reserve > total)
        policy->reserve = total;
    return STATUS_OK;
}

/* What stays once anybody may have claimed. */
static enum status transaction_check_stays(const struct policy *policy,
                                           const struct policy_change *change, struct error *error)
{
    for (int i = 0; i < POLICY_COLUMN_COUNT; i++)
        if (policy_change_sets(change, i) && policy_columns[i].later == POLICY_UNTIL_OPEN &&
            policy->opens_at_ms < change->now_ms + POLICY_OPENING_MS)
            return error_set(error, STATUS_CONFLICT,
                             "%s: can be changed until %d seconds before the opening",
                             policy_columns[i].name, POLICY_OPENING_MS / 1000);
    return STATUS_OK;
}

/* Coupons that end when the window closes go on doing so when it closes later. */
static void transaction_move_end(struct policy *policy, int64_t closed_at_ms)
{
    bool is_later = policy->closes_at_ms == 0 || policy->closes_at_ms > closed_at_ms;

    if (closed_at_ms != 0 && policy->coupon_expires_at_ms == closed_at_ms &&
        policy->coupon_valid_days == 0 && is_later)
        policy->coupon_expires_at_ms = policy->closes_at_ms;
}

static enum status transaction_apply_change(struct policy *policy,
                                            const struct policy_change *change, struct error *error)
{
    int64_t closed_at_ms = policy->closes_at_ms;
    const char *field;
    enum status status = transaction_check_stays(policy, change, error);

    if (status != STATUS_OK)
        return status;
    for (int i = 0; i < POLICY_COLUMN_COUNT; i++)
        if (policy_change_sets(change, i) && i != POLICY_COLUMN_total && i != POLICY_COLUMN_name)
            ensure(policy_set_number(policy, i, change->to[i]));
    if (policy_change_sets(change, POLICY_COLUMN_name))
        memcpy(policy->name, change->name, sizeof(policy->name));
    if (!policy_change_sets(change, POLICY_COLUMN_coupon_expires_at))
        transaction_move_end(policy, closed_at_ms);
    if (change->closes && policy->closed_at_ms == 0)
        policy->closed_at_ms = change->now_ms;
    if (policy_change_sets(change, POLICY_COLUMN_total))
        status = transaction_change_total(policy, change->to[POLICY_COLUMN_total], error);
    const char *broken =
        status == STATUS_OK ? policy_broken_rule(policy, &(size_t){0}, &field) : NULL;
    return broken == NULL ? status : error_set(error, STATUS_INVALID, "%s", broken);
}

enum status transaction_change_policy(struct sql *sql, void *argument, struct error *error)
{
    struct change_policy *arguments = argument;
    const struct policy_change *change = arguments->change;
    struct policy *policy = arguments->policy;
    struct lease leases[SHRUNK_MAX];
    enum status status = STATUS_OK;

    ensure(arguments->shrunk_count <= SHRUNK_MAX);
    status = transaction_check_term(sql, arguments->id, change->term, error);
    for (size_t i = 0; i < arguments->shrunk_count && status == STATUS_OK; i++)
        status = rows_lease_lock(sql, arguments->shrunk[i].lease_id, &leases[i], error);
    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, arguments->id, ROWS_LOCK, policy, error);
    for (size_t i = 0; i < arguments->shrunk_count && status == STATUS_OK; i++)
        status =
            transaction_shrink_lease(sql, arguments, &leases[i], arguments->shrunk[i].count, error);
    if (status == STATUS_OK && change->sets != 0 && policy->closed_at_ms != 0)
        return error_set(error, STATUS_CONFLICT, "the policy is closed; create a new one");
    if (status == STATUS_OK)
        status = transaction_apply_change(policy, change, error);
    return status == STATUS_OK ? transaction_save_policy(sql, policy, error) : status;
}

enum status ledger_policy_change(struct ledger *ledger, int64_t id,
                                 const struct policy_change *change,
                                 const struct lease_shrunk *shrunk, size_t shrunk_count,
                                 struct policy *policy, struct error *error)
{
    struct change_policy arguments = {.id = id,
                                      .change = change,
                                      .shrunk = shrunk,
                                      .shrunk_count = shrunk_count,
                                      .keeps_seqs = ledger_is_shared(ledger),
                                      .policy = policy};
    return ledger_write(ledger, transaction_change_policy, &arguments, error);
}

/* --- coupons --- */

enum status transaction_redeem_coupon(struct sql *sql, void *argument, struct error *error)
{
    const struct redeem_coupon *redeem = argument;
    struct coupon *coupon = redeem->coupon;
    enum status status =
        rows_coupon_by_seq(sql, redeem->policy_id, redeem->seq, ROWS_LOCK, coupon, error);

    if (status != STATUS_OK)
        return status;
    coupon->state = coupon_state_at(coupon->state, coupon->expires_at_ms, redeem->now_ms);
    if (coupon->state == COUPON_REDEEMED && id_equal(&coupon->order_id, redeem->order_id))
        return STATUS_OK;
    if (coupon->state == COUPON_REDEEMED)
        return error_set(error, STATUS_CONFLICT, "the coupon was redeemed %s",
                         coupon->order_id.length > 0 ? "for another order" : "without an order");
    if (coupon->state != COUPON_ISSUED)
        return error_set(error, STATUS_CONFLICT, "the coupon is %s",
                         coupon_state_name(coupon->state));
    coupon->state = COUPON_REDEEMED;
    coupon->redeemed_at_ms = redeem->now_ms;
    coupon->order_id = *redeem->order_id;
    outbox_note_coupon(sql->outbox, coupon, redeem->now_ms, redeem->traceparent);
    return SQL_WRITE(sql, STATEMENT_coupon_redeem, error, sql_i64(redeem->policy_id),
                     sql_i64(redeem->seq), sql_i64(redeem->now_ms),
                     redeem->order_id->length > 0 ? sql_text(id_span(redeem->order_id))
                                                  : sql_null());
}

enum status ledger_coupon_redeem(struct ledger *ledger, int64_t policy_id, int64_t seq,
                                 const struct id *order_id, int64_t now_ms, const char *traceparent,
                                 struct coupon *coupon, struct error *error)
{
    struct redeem_coupon redeem = {.policy_id = policy_id,
                                   .seq = seq,
                                   .order_id = order_id,
                                   .now_ms = now_ms,
                                   .traceparent = traceparent,
                                   .coupon = coupon};
    return ledger_write(ledger, transaction_redeem_coupon, &redeem, error);
}

enum status transaction_cancel_coupon(struct sql *sql, void *argument, struct error *error)
{
    const struct cancel_coupon *cancel = argument;
    struct coupon *coupon = cancel->coupon;
    enum status status =
        rows_coupon_by_seq(sql, cancel->policy_id, cancel->seq, ROWS_LOCK, coupon, error);

    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, cancel->policy_id, ROWS_LOOK, cancel->policy, error);
    if (status != STATUS_OK)
        return status;
    coupon->state = coupon_state_at(coupon->state, coupon->expires_at_ms, cancel->now_ms);
    if (coupon->state == COUPON_CANCELLED)
        return STATUS_OK;
    if (coupon->state != COUPON_ISSUED)
        return error_set(error, STATUS_CONFLICT, "the coupon is %s",
                         coupon_state_name(coupon->state));
    coupon->state = COUPON_CANCELLED;
    coupon->cancelled_at_ms = cancel->now_ms;
    outbox_note_coupon(sql->outbox, coupon, cancel->now_ms, cancel->traceparent);
    status = SQL_WRITE(sql, STATEMENT_coupon_cancel, error, sql_i64(cancel->policy_id),
                       sql_i64(cancel->seq), sql_i64(cancel->now_ms));
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_policy_return_unit, error, sql_i64(cancel->policy_id));
    return status == STATUS_OK
               ? rows_policy_by_id(sql, cancel->policy_id, ROWS_LOOK, cancel->policy, error)
               : status;
}

enum status ledger_coupon_cancel(struct ledger *ledger, int64_t policy_id, int64_t seq,
                                 int64_t now_ms, const char *traceparent, struct coupon *coupon,
                                 struct policy *policy, struct error *error)
{
    struct cancel_coupon cancel = {.policy_id = policy_id,
                                   .seq = seq,
                                   .now_ms = now_ms,
                                   .traceparent = traceparent,
                                   .coupon = coupon,
                                   .policy = policy};
    return ledger_write(ledger, transaction_cancel_coupon, &cancel, error);
}

/* --- users and secrets --- */

enum status transaction_block_user(struct sql *sql, void *argument, struct error *error)
{
    const struct block_user *block = argument;
    struct sql_value user = sql_text(id_span(block->user));

    if (block->blocked)
        return SQL_WRITE(sql, STATEMENT_blocked_insert, error, user, sql_i64(block->now_ms));
    return SQL_WRITE(sql, STATEMENT_blocked_delete, error, user);
}

enum status ledger_user_block(struct ledger *ledger, const struct id *user, bool blocked,
                              int64_t now_ms, struct error *error)
{
    struct block_user block = {.user = user, .blocked = blocked, .now_ms = now_ms};
    return ledger_write(ledger, transaction_block_user, &block, error);
}

static enum status transaction_read_secret(void *context, const struct sql_value *columns,
                                           struct error *error)
{
    struct keep_secret *keep = context;
    if (columns[0].kind != SQL_BLOB || columns[0].bytes.length != keep->length)
        return error_set(error, STATUS_FAILED, "the ledger's secret %s has a wrong length",
                         keep->name);
    memcpy(keep->bytes, columns[0].bytes.bytes, keep->length);
    return STATUS_OK;
}

enum status transaction_keep_secret(struct sql *sql, void *argument, struct error *error)
{
    struct keep_secret *keep = argument;
    struct sql_value name = sql_text(span_of(keep->name));
    enum status status =
        SQL_WRITE(sql, STATEMENT_secret_insert, error, name, sql_blob(keep->fresh, keep->length));
    if (status != STATUS_OK)
        return status;
    return SQL_RUN(sql, STATEMENT_secret_by_name, transaction_read_secret, keep, error, name);
}

enum status ledger_secret(struct ledger *ledger, const char *name, const uint8_t *fresh,
                          uint8_t *bytes, size_t length, struct error *error)
{
    struct keep_secret keep = {.name = name, .fresh = fresh, .bytes = bytes, .length = length};
    return ledger_write(ledger, transaction_keep_secret, &keep, error);
}
