/* issue_exceptions.c: the blocked, those refused before and those that the reserve has served,
 * found by one statement each. */
#include "ledger/issue.h"

#include <stdlib.h>

#include "ledger/list.h"
#include "ledger/rows.h"

#define REASON_BLOCKED "the user was blocked before the coupon was issued"

/* A user id, its quotes and a comma, for any batch the queue can hold. */
#define USERS_LENGTH_MAX (SIZE_MAX / 2)

/* Some of the batch. */
struct issue_rows {
    struct coupon_row *rows;
    size_t count;
};

static enum status issue_note_blocked(void *context, const struct sql_value *columns,
                                      struct error *error)
{
    const struct issue_rows *blocked = context;
    struct id user = rows_read_user(&columns[0]);

    for (size_t i = 0; i < blocked->count; i++) {
        if (id_equal(&blocked->rows[i].claim->user, &user)) {
            blocked->rows[i].state = COUPON_VOID;
            blocked->rows[i].reason = REASON_BLOCKED;
        }
    }
    return STATUS_OK;
}

/* The users of some rows. */
static enum status issue_list_users(struct buffer *users, const struct coupon_row *rows,
                                    size_t count, struct sql_value *list, struct error *error)
{
    if (users->length_max == 0)
        buffer_init(users, USERS_LENGTH_MAX);
    list_begin(users);
    for (size_t i = 0; i < count; i++)
        list_add(users, sql_text(id_span(&rows[i].claim->user)));
    return list_end(users, list, error);
}

static enum status issue_refuse_blocked(struct sql *sql, struct issue_room *room, size_t count,
                                        struct error *error)
{
    struct issue_rows blocked = {.rows = room->rows, .count = count};
    struct sql_value users;
    enum status status = issue_list_users(&room->users, room->rows, count, &users, error);

    return status == STATUS_OK
               ? SQL_RUN(sql, STATEMENT_blocked_among, issue_note_blocked, &blocked, error, users)
               : status;
}

static int issue_compare_seq(const void *key, const void *item)
{
    int64_t seq = *(const int64_t *)key;
    int64_t at = ((const struct coupon_row *)item)->claim->seq;

    return seq < at ? -1 : seq > at;
}

/* The rows of one policy, by rising seqs. */
static enum status issue_note_refused(void *context, const struct sql_value *columns,
                                      struct error *error)
{
    const struct issue_rows *rows = context;
    struct coupon_row *row = bsearch(&columns[0].number, rows->rows, rows->count,
                                     sizeof(*rows->rows), issue_compare_seq);

    if (row != NULL)
        row->state = COUPON_VOID;
    return STATUS_OK;
}

/* A claim that was refused for good and comes again stays VOID, although the rule that refused it
 * may be gone: its unit has returned. issue_one() finds it by its seq. The leases are locked, so
 * nobody refuses a claim of the batch meanwhile. */
static enum status issue_find_refused(struct sql *sql, struct issue_rows *run, struct error *error)
{
    const struct claim *first = run->rows[0].claim;

    return SQL_RUN(sql, STATEMENT_refused_among, issue_note_refused, run, error,
                   sql_i64(first->policy_id), sql_i64(first->seq),
                   sql_i64(run->rows[run->count - 1].claim->seq));
}

static enum status issue_note_reserved(void *context, const struct sql_value *columns,
                                       struct error *error)
{
    const struct issue_rows *run = context;
    struct id user = rows_read_user(&columns[0]);
    struct request_id request_id = rows_read_request_id(&columns[1]);
    int64_t seq = columns[2].number;
    int64_t bound_seq = columns[3].kind == SQL_NULL ? 0 : columns[3].number;

    for (size_t i = 0; i < run->count; i++) {
        struct coupon_row *row = &run->rows[i];
        const struct claim *claim = row->claim;
        bool is_same = memcmp(&claim->request_id, &request_id, sizeof(request_id)) == 0;
        if (claim->seq == seq || !id_equal(&claim->user, &user) ||
            (!is_same && claim->seq != bound_seq))
            continue;
        row->is_other_wish = !is_same;
        row->state = COUPON_MERGED;
        row->reason = NULL;
        row->merged_into_seq = seq;
    }
    return STATUS_OK;
}

enum status issue_find_reserved(struct sql *sql, struct issue_room *room, struct coupon_row *rows,
                                size_t count, struct error *error)
{
    struct issue_rows run = {.rows = rows, .count = count};
    struct sql_value users;
    enum status status = issue_list_users(&room->users, rows, count, &users, error);

    return status == STATUS_OK ? SQL_RUN(sql, STATEMENT_reserve_among, issue_note_reserved, &run,
                                         error, sql_i64(rows[0].claim->policy_id), users)
                               : status;
}

/* In the rows of one policy. */
static enum status issue_find_in_run(struct sql *sql, struct issue_room *room,
                                     const struct issue_exceptions *any, struct issue_rows *run,
                                     struct error *error)
{
    enum status status = STATUS_OK;

    if (any->has_refused)
        status = issue_find_refused(sql, run, error);
    if (status == STATUS_OK && any->has_reserved)
        status = issue_find_reserved(sql, room, run->rows, run->count, error);
    return status;
}

enum status issue_find_exceptions(struct sql *sql, struct issue_room *room, size_t count,
                                  const struct issue_exceptions *any, struct error *error)
{
    enum status status = STATUS_OK;

    if (any->has_blocked)
        status = issue_refuse_blocked(sql, room, count, error);
    if (!any->has_refused && !any->has_reserved)
        return status;
    for (size_t i = 0, end; i < count && status == STATUS_OK; i = end) {
        const struct coupon_row *rows = room->rows;
        for (end = i + 1; end < count && rows[end].claim->policy_id == rows[i].claim->policy_id;)
            end++;
        struct issue_rows run = {.rows = room->rows + i, .count = end - i};
        status = issue_find_in_run(sql, room, any, &run, error);
    }
    return status;
}

/* --- places that are taken --- */

struct slot_user {
    const struct claim *claim;
    int64_t seqs[PER_USER_LIMIT_MAX + 1]; /* of the coupon in each place; 0: it is free */
    int64_t same_seq;                     /* of the coupon that the same request made; 0: none */
};

static enum status slot_read_coupon(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    struct slot_user *user = context;
    struct coupon coupon;

    (void)rows_read_coupon(&coupon, columns, error);
    if (coupon.state == COUPON_VOID || coupon.state == COUPON_MERGED)
        return STATUS_OK;
    if (memcmp(&coupon.claim.request_id, &user->claim->request_id, sizeof(struct request_id)) == 0)
        user->same_seq = coupon.claim.seq;
    if (coupon_state_is_active(coupon.state) && coupon.claim.nth >= 1 &&
        coupon.claim.nth <= PER_USER_LIMIT_MAX)
        user->seqs[coupon.claim.nth] = coupon.claim.seq;
    return STATUS_OK;
}

enum status slot_choose(struct sql *sql, const struct claim *claim, struct slot_choice *choice,
                        struct error *error)
{
    struct slot_user user = {.claim = claim};
    struct policy policy;
    int32_t nth = 1;

    *choice = (struct slot_choice){0};
    enum status status = rows_policy_by_id(sql, claim->policy_id, ROWS_LOOK, &policy, error);
    if (status == STATUS_OK)
        status =
            SQL_RUN(sql, STATEMENT_coupon_list_of_claimant, slot_read_coupon, &user, error,
                    sql_i64(claim->policy_id), sql_text(id_span(&claim->user)), sql_i64(INT32_MAX));
    if (status != STATUS_OK || user.seqs[claim->nth] == 0)
        return status;
    while (nth <= policy.per_user_limit && user.seqs[nth] != 0)
        nth++;
    if (user.same_seq == 0 && nth <= policy.per_user_limit) {
        choice->nth = nth;
    } else {
        choice->is_other_wish = user.same_seq == 0;
        choice->merged_into_seq = user.same_seq != 0 ? user.same_seq : user.seqs[claim->nth];
    }
    return STATUS_OK;
}
