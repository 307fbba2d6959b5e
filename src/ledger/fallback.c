/* fallback.c: while a shared gate is away: its verdicts, in their order, from the tables; and the
 * coupons given then, marked until the gate has heard of them. */
#include "base/random.h"
#include "ledger/inside.h"
#include "ledger/outbox.h"
#include "ledger/rows.h"
#include "ledger/transactions.h"

#define COUPON_COLUMNS 15 /* those that rows_read_coupon() takes */

/* What the ledger knows of the user in this policy. */
struct fallback_user {
    const struct ledger_wish *wish;
    bool has_request; /* `held` is the claim that this request made, or its key is bound to */
    bool has_active;  /* else `held` is the user's latest active coupon */
    struct coupon held;
    int32_t active_count;
    bool slots[PER_USER_LIMIT_MAX + 1];
};

/* Coupons come latest first. */
static enum status fallback_read_coupon(void *context, const struct sql_value *columns,
                                        struct error *error)
{
    struct fallback_user *user = context;
    struct coupon coupon;

    (void)rows_read_coupon(&coupon, columns, error);
    /* A claim that came to nothing answers no request. */
    if (coupon.state == COUPON_VOID || coupon.state == COUPON_MERGED)
        return STATUS_OK;
    if (memcmp(&coupon.claim.request_id, &user->wish->request_id, sizeof(struct request_id)) == 0) {
        user->has_request = true;
        user->held = coupon;
    }
    if (!coupon_state_is_active(coupon.state))
        return STATUS_OK;
    if (!user->has_active && !user->has_request)
        user->held = coupon;
    user->has_active = true;
    user->active_count++;
    if (coupon.claim.nth >= 1 && coupon.claim.nth <= PER_USER_LIMIT_MAX)
        user->slots[coupon.claim.nth] = true;
    return STATUS_OK;
}

/* A key may be bound to a claim besides the one that it was made with. */
static enum status fallback_find_key(struct sql *sql, struct fallback_user *user,
                                     struct error *error)
{
    const struct ledger_wish *wish = user->wish;
    struct coupon coupon;
    int64_t seq = 0;

    if (user->has_request || !request_id_is_keyed(&wish->request_id))
        return STATUS_OK;
    enum status status =
        SQL_RUN(sql, STATEMENT_key_by_id, rows_take_i64, &seq, error, sql_i64(wish->policy_id),
                sql_blob(wish->request_id.bytes, sizeof(wish->request_id.bytes)));
    if (status != STATUS_OK || seq == 0)
        return status;
    status = rows_coupon_by_seq(sql, wish->policy_id, seq, ROWS_LOOK, &coupon, error);
    if (status == STATUS_OK && coupon.state != COUPON_VOID && coupon.state != COUPON_MERGED) {
        user->has_request = true;
        user->held = coupon;
    }
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* For a user who already held the coupon: the key answers with it from now on. */
static enum status fallback_bind_key(struct sql *sql, struct ledger_wish *wish, struct error *error)
{
    int64_t key_count = 0;
    enum status status = SQL_RUN(sql, STATEMENT_key_count, rows_take_i64, &key_count, error,
                                 sql_i64(wish->policy_id), sql_i64(wish->coupon.claim.seq));

    if (status == STATUS_OK && key_count >= CLAIM_KEYS_MAX)
        wish->verdict = VERDICT_KEYS_FULL;
    if (status != STATUS_OK || wish->verdict == VERDICT_KEYS_FULL)
        return status;
    status = SQL_WRITE(sql, STATEMENT_key_insert, error, sql_i64(wish->policy_id),
                       sql_blob(wish->request_id.bytes, sizeof(wish->request_id.bytes)),
                       sql_i64(wish->coupon.claim.seq));
    wish->is_news = true;
    return status == STATUS_OK ? entering_mark(sql, wish->policy_id, wish->coupon.claim.seq, error)
                               : status;
}

static enum verdict fallback_judge(const struct policy *policy, const struct fallback_user *user,
                                   bool is_blocked, int64_t now_ms)
{
    if (user->has_request || (policy->per_user_limit == 1 && user->has_active))
        return VERDICT_HELD;
    enum verdict refusal = policy_refusal(policy, is_blocked, user->active_count, now_ms);
    if (refusal != VERDICT_UNDECIDED)
        return refusal;
    return policy->unleased > 0 ? VERDICT_WON : VERDICT_UNAVAILABLE;
}

/* Takes the unit and writes the coupon. */
static enum status fallback_win(struct sql *sql, struct policy *policy,
                                const struct fallback_user *user, struct ledger_wish *wish,
                                struct error *error)
{
    int32_t nth = 1;

    while (user->slots[nth])
        nth++;
    struct claim claim = {.policy_id = policy->id,
                          .seq = policy->next_seq,
                          .requested_at_ms = wish->now_ms,
                          .request_id = wish->request_id,
                          .nth = nth,
                          .user = wish->user};
    struct coupon_row row = {.claim = &claim, .state = COUPON_ISSUED, .issued_at_ms = wish->now_ms};
    int64_t ends_at_ms = policy_coupon_ends_ms(policy, wish->now_ms);
    if (policy->coupon_valid_days != 0)
        row.expires_at_ms = ends_at_ms;
    enum status status = sql->driver->insert_coupons(sql->session, &row, 1, error);
    if (status == STATUS_CONFLICT || (status == STATUS_OK && row.conflicts))
        return error_set(error, STATUS_BUSY, "the user's slot is being taken");
    policy->unleased--;
    policy->next_seq++;
    if (status == STATUS_OK)
        status = transaction_save_policy(sql, policy, error);
    wish->coupon = (struct coupon){.claim = claim,
                                   .state = COUPON_ISSUED,
                                   .issued_at_ms = wish->now_ms,
                                   .expires_at_ms = ends_at_ms};
    row.claim = &wish->coupon.claim; /* which outlives this call */
    row.ends_at_ms = ends_at_ms;
    wish->is_news = true;
    if (status == STATUS_OK)
        outbox_note_row(sql->outbox, &row);
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_reserve_insert, error, sql_i64(policy->id),
                           sql_i64(claim.seq), sql_text(id_span(&claim.user)));
    return status == STATUS_OK ? entering_mark(sql, policy->id, claim.seq, error) : status;
}

enum status fallback_claim(struct sql *sql, void *argument, struct error *error)
{
    struct ledger_wish *wish = argument;
    struct fallback_user user = {.wish = wish};
    struct policy policy;
    bool is_blocked = false;
    bool is_leased = false;
    /* This very wish may be on its way from the gate: nobody issues it meanwhile. */
    enum status status = SQL_RUN(sql, STATEMENT_lease_lock_open, rows_note_any, &is_leased, error,
                                 sql_i64(wish->policy_id));

    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, wish->policy_id, ROWS_LOCK, &policy, error);

    wish->is_news = false;
    wish->verdict = status == STATUS_NOT_FOUND ? VERDICT_NO_POLICY : VERDICT_UNDECIDED;
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? STATUS_OK : status;
    status = SQL_RUN(sql, STATEMENT_coupon_list_of_claimant, fallback_read_coupon, &user, error,
                     sql_i64(policy.id), sql_text(id_span(&wish->user)), sql_i64(INT32_MAX));
    if (status == STATUS_OK)
        status = fallback_find_key(sql, &user, error);
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_blocked_has, rows_note_any, &is_blocked, error,
                         sql_text(id_span(&wish->user)));
    if (status != STATUS_OK)
        return status;
    wish->verdict = fallback_judge(&policy, &user, is_blocked, wish->now_ms);
    wish->opens_at_ms = policy.opens_at_ms;
    if (wish->verdict == VERDICT_HELD)
        wish->coupon = user.held;
    if (wish->verdict == VERDICT_WON)
        status = fallback_win(sql, &policy, &user, wish, error);
    bool binds = wish->verdict == VERDICT_HELD && !user.has_request &&
                 request_id_is_keyed(&wish->request_id);
    return status == STATUS_OK && binds ? fallback_bind_key(sql, wish, error) : status;
}

enum status ledger_claim(struct ledger *ledger, struct ledger_wish *wish, struct error *error)
{
    return ledger_write(ledger, fallback_claim, wish, error);
}

/* --- what the gate has not heard of --- */

enum status entering_mark(struct sql *sql, int64_t policy_id, int64_t seq, struct error *error)
{
    int64_t changes;

    /* A number that no other mark of this coupon ever had: who was told of that one has not heard
     * of this. */
    random_bytes(&changes, sizeof(changes));
    return SQL_WRITE(sql, STATEMENT_entering_insert, error, sql_i64(policy_id), sql_i64(seq),
                     sql_i64(changes));
}

static enum status list_policies(struct ledger *ledger, enum statement statement, int64_t after_id,
                                 int64_t *ids, size_t max, size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(ids, rows_take_i64, count);

    return LEDGER_READ(ledger, statement, rows_take, &page, error, sql_i64(after_id),
                       sql_i64((int64_t)max));
}

enum status ledger_entering_policies(struct ledger *ledger, int64_t after_id, int64_t *ids,
                                     size_t max, size_t *count, struct error *error)
{
    return list_policies(ledger, STATEMENT_entering_policies, after_id, ids, max, count, error);
}

enum status ledger_short_code_policies(struct ledger *ledger, int64_t after_id, int64_t *ids,
                                       size_t max, size_t *count, struct error *error)
{
    return list_policies(ledger, STATEMENT_short_code_policies, after_id, ids, max, count, error);
}

struct entering_page {
    struct entering_coupon *coupons;
    size_t count;
    enum status (*key)(void *context, const struct key_binding *binding, struct error *error);
    void *context;
};

static enum status entering_note_coupon(void *context, const struct sql_value *columns,
                                        struct error *error)
{
    struct entering_page *page = context;
    struct entering_coupon *entering = &page->coupons[page->count++];

    entering->changes = columns[COUPON_COLUMNS].number;
    return rows_read_coupon(&entering->coupon, columns, error);
}

static enum status entering_note_key(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    const struct entering_page *page = context;
    struct key_binding binding = rows_read_key(columns);

    return page->key(page->context, &binding, error);
}

enum status ledger_entering(struct ledger *ledger, int64_t policy_id,
                            struct entering_coupon *coupons, size_t max, size_t *count,
                            enum status (*key)(void *context, const struct key_binding *binding,
                                               struct error *error),
                            void *context, struct error *error)
{
    struct entering_page page = {.coupons = coupons, .key = key, .context = context};
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    *count = 0;
    if (status != STATUS_OK)
        return status;
    status = SQL_RUN(&sql, STATEMENT_entering_list, entering_note_coupon, &page, error,
                     sql_i64(policy_id), sql_i64((int64_t)max));
    *count = page.count;
    if (status == STATUS_OK && page.count > 0)
        status = SQL_RUN(&sql, STATEMENT_entering_keys, entering_note_key, &page, error,
                         sql_i64(policy_id), sql_i64(coupons[page.count - 1].coupon.claim.seq));
    return ledger_read_end(ledger, sql, status, error);
}

struct entered {
    const struct entering_coupon *coupons;
    size_t count;
    size_t *left_count;
};

struct entering_left {
    bool is_other; /* the coupon is not as it was told */
    bool is_marked;
};

static enum status entering_read_left(void *context, const struct sql_value *columns,
                                      struct error *error)
{
    (void)error;
    *(struct entering_left *)context = (struct entering_left){
        .is_other = columns[0].number != 0,
        .is_marked = columns[1].number != 0,
    };
    return STATUS_OK;
}

/* The mark that was told of is gone, or the coupon has changed. One that is as it was told is left
 * to whoever took the mark away, or set another: tellers who marked it anew would set each other
 * back again and again. Of one that is not, what was told just now may have come behind what
 * somebody else has told: it hears once more how it is now. */
static enum status entering_look_again(struct sql *sql, const struct coupon *coupon, bool *is_left,
                                       struct error *error)
{
    struct entering_left left = {false};
    enum status status = SQL_RUN(sql, STATEMENT_entering_left, entering_read_left, &left, error,
                                 sql_i64(coupon->claim.policy_id), sql_i64(coupon->claim.seq),
                                 sql_text(span_of(coupon_state_name(coupon->state))));

    *is_left = left.is_other || left.is_marked;
    return status == STATUS_OK && left.is_other
               ? entering_mark(sql, coupon->claim.policy_id, coupon->claim.seq, error)
               : status;
}

static enum status entering_unmark(struct sql *sql, void *argument, struct error *error)
{
    const struct entered *entered = argument;
    enum status status = STATUS_OK;

    *entered->left_count = 0;
    for (size_t i = 0; i < entered->count && status == STATUS_OK; i++) {
        const struct coupon *coupon = &entered->coupons[i].coupon;
        int64_t changed = 0;
        bool is_left = false;
        status = SQL_CHANGE(sql, STATEMENT_entering_delete, &changed, error,
                            sql_i64(coupon->claim.policy_id), sql_i64(coupon->claim.seq),
                            sql_i64(entered->coupons[i].changes),
                            sql_text(span_of(coupon_state_name(coupon->state))));
        if (status == STATUS_OK && changed == 0)
            status = entering_look_again(sql, coupon, &is_left, error);
        *entered->left_count += is_left;
    }
    return status;
}

enum status ledger_entered(struct ledger *ledger, const struct entering_coupon *coupons,
                           size_t count, size_t *left_count, struct error *error)
{
    struct entered entered = {.coupons = coupons, .count = count, .left_count = left_count};
    return ledger_write(ledger, entering_unmark, &entered, error);
}

static enum status entering_forget(struct sql *sql, void *argument, struct error *error)
{
    const int64_t *policy_id = argument;
    return SQL_WRITE(sql, STATEMENT_entering_forget, error, sql_i64(*policy_id));
}

enum status ledger_entering_forget(struct ledger *ledger, int64_t policy_id, struct error *error)
{
    return ledger_write(ledger, entering_forget, &policy_id, error);
}
