/* rows.h: table rows into structs.
 *
 * Threads: one session, one thread.
 */
#ifndef LEDGER_ROWS_H
#define LEDGER_ROWS_H

#include "ledger/driver.h"

/* Readers of the column lists that the statements of a kind share. */
void rows_read_policy(const struct sql_value *columns, void *policy);
void rows_read_coupon(const struct sql_value *columns, void *coupon);
void rows_read_text(const struct sql_value *column, char *text, size_t size);
struct user_id rows_read_user(const struct sql_value *column);
struct request_id rows_read_request_id(const struct sql_value *column);
enum coupon_state rows_read_state(const struct sql_value *column);

/* For statements that answer one number, or a row or none: the number for an int64_t, and that
 * there is a row for a bool. */
enum status rows_take_i64(void *number, const struct sql_value *columns, struct error *error);
enum status rows_note_any(void *is_there, const struct sql_value *columns, struct error *error);

/* Rows into the caller's array, one behind the other: rows_take() is the callback for each. */
struct rows_page {
    void (*read)(const struct sql_value *columns, void *row);
    char *rows;
    size_t row_size;
    size_t *count;
};
#define ROWS_PAGE(array, reader, counted)                             \
    (*(counted) = 0, (struct rows_page){.read = (reader),             \
                                        .rows = (char *)(array),      \
                                        .row_size = sizeof(*(array)), \
                                        .count = (counted)})
enum status rows_take(void *page, const struct sql_value *columns, struct error *error);

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

#endif
