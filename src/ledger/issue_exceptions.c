/* issue_exceptions.c: the blocked, those refused before and those that the reserve has served,
 * found by one statement each. */
#include "ledger/issue_exceptions.h"

#include <stdlib.h>

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
    struct user_id user = rows_read_user(&columns[0]);

    (void)error;
    for (size_t i = 0; i < blocked->count; i++) {
        if (user_id_equal(&blocked->rows[i].claim->user, &user)) {
            blocked->rows[i].state = COUPON_VOID;
            blocked->rows[i].reason = REASON_BLOCKED;
        }
    }
    return STATUS_OK;
}

/* The users of some rows as a JSON array. The alphabet of user ids has nothing that JSON would
 * escape. */
static enum status issue_list_users(struct buffer *users, const struct coupon_row *rows,
                                    size_t count, struct span *list, struct error *error)
{
    if (users->length_max == 0)
        buffer_init(users, USERS_LENGTH_MAX);
    buffer_clear(users);
    for (size_t i = 0; i < count; i++) {
        buffer_append_text(users, i == 0 ? "[\"" : ",\"");
        buffer_append_span(users, user_id_span(&rows[i].claim->user));
        buffer_append_text(users, "\"");
    }
    buffer_append_text(users, "]");
    if (users->overflowed)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the users of a batch");
    *list = (struct span){.bytes = users->bytes, .length = users->length};
    return STATUS_OK;
}

static enum status issue_refuse_blocked(struct sql *sql, struct issue_room *room, size_t count,
                                        struct error *error)
{
    struct issue_rows blocked = {.rows = room->rows, .count = count};
    struct span users;
    enum status status = issue_list_users(&room->users, room->rows, count, &users, error);

    return status == STATUS_OK ? SQL_RUN(sql, STATEMENT_blocked_among, issue_note_blocked, &blocked,
                                         error, sql_text(users))
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

    (void)error;
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
    struct user_id user = rows_read_user(&columns[0]);
    struct request_id request_id = rows_read_request_id(&columns[1]);
    int64_t seq = columns[2].number;

    (void)error;
    for (size_t i = 0; i < run->count; i++) {
        struct coupon_row *row = &run->rows[i];
        const struct claim *claim = row->claim;
        if (claim->seq == seq || !user_id_equal(&claim->user, &user) ||
            memcmp(&claim->request_id, &request_id, sizeof(request_id)) != 0)
            continue;
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
    struct span users;
    enum status status = issue_list_users(&room->users, rows, count, &users, error);

    return status == STATUS_OK ? SQL_RUN(sql, STATEMENT_reserve_among, issue_note_reserved, &run,
                                         error, sql_i64(rows[0].claim->policy_id), sql_text(users))
                               : status;
}

struct issue_exceptions {
    bool has_blocked;
    bool has_refused;
    bool has_reserved;
};

static enum status issue_read_exceptions(void *context, const struct sql_value *columns,
                                         struct error *error)
{
    (void)error;
    *(struct issue_exceptions *)context = (struct issue_exceptions){
        .has_blocked = columns[0].number != 0,
        .has_refused = columns[1].number != 0,
        .has_reserved = columns[2].number != 0,
    };
    return STATUS_OK;
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
                                  struct error *error)
{
    struct issue_exceptions any = {0};
    enum status status =
        sql_run(sql, STATEMENT_exceptions_any, NULL, 0, issue_read_exceptions, &any, NULL, error);

    if (status == STATUS_OK && any.has_blocked)
        status = issue_refuse_blocked(sql, room, count, error);
    if (!any.has_refused && !any.has_reserved)
        return status;
    for (size_t i = 0, end; i < count && status == STATUS_OK; i = end) {
        const struct coupon_row *rows = room->rows;
        for (end = i + 1; end < count && rows[end].claim->policy_id == rows[i].claim->policy_id;)
            end++;
        struct issue_rows run = {.rows = room->rows + i, .count = end - i};
        status = issue_find_in_run(sql, room, &any, &run, error);
    }
    return status;
}
