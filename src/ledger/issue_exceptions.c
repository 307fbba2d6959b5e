/* issue_exceptions.c: the blocked and those refused before, found by one statement each. */
#include "ledger/issue_exceptions.h"

#include <stdlib.h>

#include "ledger/rows.h"

#define REASON_BLOCKED "the user was blocked before the coupon was issued"

/* A user id, its quotes and a comma, for any batch the queue can hold. */
#define USERS_LENGTH_MAX (SIZE_MAX / 2)

/* Finds the blocked among the batch. */
struct issue_blocked {
    struct coupon_row *rows;
    size_t count;
};

static enum status issue_note_blocked(void *context, const struct sql_value *columns,
                                      struct error *error)
{
    const struct issue_blocked *blocked = context;
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

/* The alphabet of user ids has nothing that JSON would escape. */
static enum status issue_refuse_blocked(struct sql *sql, struct issue_room *room, size_t count,
                                        struct error *error)
{
    struct issue_blocked blocked = {.rows = room->rows, .count = count};
    struct buffer *users = &room->users;

    if (users->length_max == 0)
        buffer_init(users, USERS_LENGTH_MAX);
    buffer_clear(users);
    for (size_t i = 0; i < count; i++) {
        buffer_append_text(users, i == 0 ? "[\"" : ",\"");
        buffer_append_span(users, user_id_span(&room->rows[i].claim->user));
        buffer_append_text(users, "\"");
    }
    buffer_append_text(users, "]");
    if (users->overflowed)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the users of a batch");
    return SQL_RUN(sql, STATEMENT_blocked_among, issue_note_blocked, &blocked, error,
                   sql_text((struct span){.bytes = users->bytes, .length = users->length}));
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
    const struct issue_blocked *rows = context;
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
static enum status issue_find_refused(struct sql *sql, struct coupon_row *rows, size_t count,
                                      struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0, end; i < count && status == STATUS_OK; i = end) {
        for (end = i + 1; end < count && rows[end].claim->policy_id == rows[i].claim->policy_id;)
            end++;
        struct issue_blocked run = {.rows = rows + i, .count = end - i};
        status = SQL_RUN(sql, STATEMENT_refused_among, issue_note_refused, &run, error,
                         sql_i64(rows[i].claim->policy_id), sql_i64(rows[i].claim->seq),
                         sql_i64(rows[end - 1].claim->seq));
    }
    return status;
}

struct issue_exceptions {
    bool has_blocked;
    bool has_refused;
};

static enum status issue_read_exceptions(void *context, const struct sql_value *columns,
                                         struct error *error)
{
    (void)error;
    *(struct issue_exceptions *)context = (struct issue_exceptions){
        .has_blocked = columns[0].number != 0, .has_refused = columns[1].number != 0};
    return STATUS_OK;
}

enum status issue_find_exceptions(struct sql *sql, struct issue_room *room, size_t count,
                                  struct error *error)
{
    struct issue_exceptions any = {0};
    enum status status =
        sql_run(sql, STATEMENT_exceptions_any, NULL, 0, issue_read_exceptions, &any, NULL, error);

    if (status == STATUS_OK && any.has_blocked)
        status = issue_refuse_blocked(sql, room, count, error);
    if (status == STATUS_OK && any.has_refused)
        status = issue_find_refused(sql, room->rows, count, error);
    return status;
}
