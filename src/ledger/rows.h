/* rows.h: table rows into structs.
 *
 * Threads: one session, one thread.
 */
#pragma once

#include "base/policy.h"
#include "ledger/driver.h"

/* A reader is the callback for a row, and what it is called with is where the row goes. These are
 * for the column lists that the statements of a kind share. FAILED: something else than dibs has
 * written there what cannot be; the words say what. */
enum status rows_read_policy(void *row, const struct sql_value *columns, struct error *error);
/* For lists: one that cannot be is damaged, `error` says why, and the others go on. */
enum status rows_read_listed_policy(void *row, const struct sql_value *columns,
                                    struct error *error);
static inline struct policy rows_damaged_policy(int64_t id)
{
    /* A version that no row has: once it is put right, that is a change. */
    return (struct policy){
        .id = id, .per_user_limit = 1, .version = -1, .next_seq = 1, .is_damaged = true};
}
enum status rows_read_lease(void *row, const struct sql_value *columns, struct error *error);
enum status rows_read_coupon(void *row, const struct sql_value *columns, struct error *error);
void rows_read_text(const struct sql_value *column, char *text, size_t size);
struct id rows_read_user(const struct sql_value *column);
struct request_id rows_read_request_id(const struct sql_value *column);
enum coupon_state rows_read_state(const struct sql_value *column);

/* A coupon's columns, in the order in which coupon_insert has them, and what is written there. */
enum coupon_column {
    COUPON_COLUMN_POLICY_ID,
    COUPON_COLUMN_SEQ,
    COUPON_COLUMN_USER_ID,
    COUPON_COLUMN_NTH,
    COUPON_COLUMN_SLOT,
    COUPON_COLUMN_STATE,
    COUPON_COLUMN_REQUEST_ID,
    COUPON_COLUMN_LEASE_ID,
    COUPON_COLUMN_REQUESTED_AT,
    COUPON_COLUMN_ISSUED_AT,
    COUPON_COLUMN_EXPIRES_AT,
    COUPON_COLUMN_MERGED_INTO,
    COUPON_COLUMN_REASON,
    COUPON_COLUMN_COUNT,
};
struct sql_value rows_coupon_value(const struct coupon_row *row, enum coupon_column column);

/* For statements that answer one number, or a row or none: the number for an int64_t, and that
 * there is a row for a bool. */
enum status rows_take_i64(void *number, const struct sql_value *columns, struct error *error);
enum status rows_note_any(void *is_there, const struct sql_value *columns, struct error *error);

/* Rows into the caller's array, one behind the other: rows_take() is the callback for each. */
struct rows_page {
    sql_row_fn read;
    char *rows;
    size_t row_size;
    size_t *count;
};
#define ROWS_PAGE(array, reader, counted)                             \
    (*(counted) = 0, (struct rows_page){.read = (reader),             \
                                        .rows = (char *)(array),      \
                                        .row_size = sizeof(*(array)), \
                                        .count = (counted)})
enum status rows_take(void *context, const struct sql_value *columns, struct error *error);

/* The same where nobody knows how many come: the array grows, and is to be freed. */
struct rows_list {
    sql_row_fn read;
    char *rows;
    size_t row_size;
    size_t count;
    size_t capacity;
};
enum status rows_gather(void *context, const struct sql_value *columns, struct error *error);

/* Runs policy_insert or policy_update with the policy's columns. */
enum status rows_write_policy(struct sql *sql, enum statement statement,
                              const struct policy *policy, struct error *error) MUST_CHECK;

/* Whether a row is read to be changed: then nobody else changes it before this transaction ends. */
enum rows_lock { ROWS_LOOK, ROWS_LOCK };

/* NOT_FOUND when there is no such row. Transactions that lock more than one kind of row do so in
 * the order lease, coupon, policy, and at last the outbox's counters, or they would wait for each
 * other. */
enum status rows_policy_by_id(struct sql *sql, int64_t id, enum rows_lock lock,
                              struct policy *policy, struct error *error) MUST_CHECK;
enum status rows_coupon_by_seq(struct sql *sql, int64_t policy_id, int64_t seq, enum rows_lock lock,
                               struct coupon *coupon, struct error *error) MUST_CHECK;
enum status rows_lease_lock(struct sql *sql, int64_t id, struct lease *lease,
                            struct error *error) MUST_CHECK;

/* Policy, request id, seq, user and nth: a key with whose claim it is. */
struct key_binding rows_read_key(const struct sql_value *columns);
