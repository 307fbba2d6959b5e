/* transactions.c: policies, leases, coupons and users change here, and nowhere else. */
#include "ledger/transactions.h"

#include "ledger/outbox.h"
#include "ledger/rows.h"

/* A recall touches at most so many leases at once. */
#define SHRUNK_MAX 64

/* Leases closed by one statement, and the text of their ids. */
#define CLOSE_IDS_MAX       10000
#define CLOSE_IDS_BYTES_MAX (CLOSE_IDS_MAX * 21 + 2)

enum status transaction_insert_policy(struct sql *sql, const struct policy *policy,
                                      struct error *error)
{
    return SQL_RUN(
        sql, STATEMENT_policy_insert, NULL, NULL, error, sql_i64(policy->id),
        sql_text(span_of(policy->name)),
        sql_text(policy->discount_type == DISCOUNT_FIXED ? SPAN("fixed") : SPAN("percent")),
        sql_i64(policy->discount_value), sql_i64(policy->total), sql_i64(policy->per_user_limit),
        sql_i64_or_null(policy->opens_at_ms), sql_i64_or_null(policy->closes_at_ms),
        sql_i64_or_null(policy->coupon_valid_days), sql_i64(policy->reserve),
        sql_i64(policy->created_at_ms));
}

enum status transaction_save_policy(struct sql *sql, struct policy *policy, struct error *error)
{
    policy->version++;
    return SQL_RUN(sql, STATEMENT_policy_update, NULL, NULL, error, sql_i64(policy->id),
                   sql_i64(policy->total), sql_i64_or_null(policy->opens_at_ms),
                   sql_i64_or_null(policy->closes_at_ms), sql_i64(policy->reserve),
                   sql_i64(policy->paused), sql_i64_or_null(policy->closed_at_ms),
                   sql_i64(policy->unleased), sql_i64(policy->next_seq));
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
    return SQL_RUN(sql, STATEMENT_lease_shrink, NULL, NULL, error, sql_i64(lease->id),
                   sql_i64(count));
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
    /* Whoever issues under this lease has it locked shared: none of them is under way now. */
    status = SQL_RUN(sql, STATEMENT_lease_rows, rows_take_i64, &row_count, error,
                     sql_i64(lease.policy_id), sql_i64(lease.first_seq),
                     sql_i64(lease.first_seq + lease.count));
    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, lease.policy_id, ROWS_LOCK, &policy, error);
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_lease_close, NULL, NULL, error, sql_i64(lease.id));
    if (status != STATUS_OK)
        return status;
    policy.unleased += lease.count - row_count;
    return transaction_save_policy(sql, &policy, error);
}

/* In statements that any server's packet takes. */
enum status transaction_close_used_leases(struct sql *sql, void *argument, struct error *error)
{
    const struct close_used_leases *close = argument;
    enum status status = STATUS_OK;
    struct buffer ids;

    buffer_init(&ids, CLOSE_IDS_BYTES_MAX);
    for (size_t i = 0; i < close->count && status == STATUS_OK; i++) {
        buffer_append_text(&ids, ids.length == 0 ? "[" : ",");
        buffer_append_i64(&ids, close->lease_ids[i]);
        if ((i + 1) % CLOSE_IDS_MAX != 0 && i + 1 < close->count)
            continue;
        buffer_append_text(&ids, "]");
        status = ids.overflowed
                     ? error_set(error, STATUS_UNAVAILABLE, "no memory for the leases to close")
                     : SQL_RUN(sql, STATEMENT_lease_close_these, NULL, NULL, error,
                               sql_text((struct span){.bytes = ids.bytes, .length = ids.length}));
        buffer_clear(&ids);
    }
    buffer_release(&ids);
    return status;
}

/* --- policies --- */

static enum status transaction_read_next_id(struct sql *sql, int64_t *id, struct error *error)
{
    return sql_run(sql, STATEMENT_policy_next_id, NULL, 0, rows_take_i64, id, NULL, error);
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

static enum status transaction_apply_change(struct policy *policy,
                                            const struct policy_change *change, struct error *error)
{
    if (change->sets_opens_at)
        policy->opens_at_ms = change->opens_at_ms;
    if (change->sets_closes_at)
        policy->closes_at_ms = change->closes_at_ms;
    if ((change->sets_opens_at || change->sets_closes_at) && policy->closes_at_ms != 0 &&
        policy->closes_at_ms <= policy->opens_at_ms)
        return error_set(error, STATUS_INVALID, "closes_at: must be after opens_at");
    if (change->sets_paused)
        policy->paused = change->paused;
    if (change->closes && policy->closed_at_ms == 0)
        policy->closed_at_ms = change->now_ms;
    return change->sets_total ? transaction_change_total(policy, change->total, error) : STATUS_OK;
}

enum status transaction_change_policy(struct sql *sql, void *argument, struct error *error)
{
    struct change_policy *arguments = argument;
    const struct policy_change *change = arguments->change;
    struct policy *policy = arguments->policy;
    struct lease leases[SHRUNK_MAX];
    enum status status = STATUS_OK;
    bool alters = change->sets_total || change->sets_opens_at || change->sets_closes_at ||
                  change->sets_paused;

    ensure(arguments->shrunk_count <= SHRUNK_MAX);
    status = transaction_check_term(sql, arguments->id, change->term, error);
    for (size_t i = 0; i < arguments->shrunk_count && status == STATUS_OK; i++)
        status = rows_lease_lock(sql, arguments->shrunk[i].lease_id, &leases[i], error);
    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, arguments->id, ROWS_LOCK, policy, error);
    for (size_t i = 0; i < arguments->shrunk_count && status == STATUS_OK; i++)
        status =
            transaction_shrink_lease(sql, arguments, &leases[i], arguments->shrunk[i].count, error);
    if (status == STATUS_OK && alters && policy->closed_at_ms != 0)
        return error_set(error, STATUS_CONFLICT, "the policy is closed; create a new one");
    if (status == STATUS_OK)
        status = transaction_apply_change(policy, change, error);
    return status == STATUS_OK ? transaction_save_policy(sql, policy, error) : status;
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
    if (coupon->state == COUPON_REDEEMED && user_id_equal(&coupon->order_id, redeem->order_id))
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
    return SQL_RUN(sql, STATEMENT_coupon_redeem, NULL, NULL, error, sql_i64(redeem->policy_id),
                   sql_i64(redeem->seq), sql_i64(redeem->now_ms),
                   redeem->order_id->length > 0 ? sql_text(user_id_span(redeem->order_id))
                                                : sql_null());
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
    status = SQL_RUN(sql, STATEMENT_coupon_cancel, NULL, NULL, error, sql_i64(cancel->policy_id),
                     sql_i64(cancel->seq), sql_i64(cancel->now_ms));
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_policy_return_unit, NULL, NULL, error,
                         sql_i64(cancel->policy_id));
    return status == STATUS_OK
               ? rows_policy_by_id(sql, cancel->policy_id, ROWS_LOOK, cancel->policy, error)
               : status;
}

/* --- users and secrets --- */

enum status transaction_block_user(struct sql *sql, void *argument, struct error *error)
{
    const struct block_user *block = argument;
    struct sql_value user = sql_text(user_id_span(block->user));

    if (block->blocked)
        return SQL_RUN(sql, STATEMENT_blocked_insert, NULL, NULL, error, user,
                       sql_i64(block->now_ms));
    return SQL_RUN(sql, STATEMENT_blocked_delete, NULL, NULL, error, user);
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
    enum status status = SQL_RUN(sql, STATEMENT_secret_insert, NULL, NULL, error, name,
                                 sql_blob(keep->fresh, keep->length));
    if (status != STATUS_OK)
        return status;
    return SQL_RUN(sql, STATEMENT_secret_by_name, transaction_read_secret, keep, error, name);
}
