/* statements.h: the names of the statements every driver's .sql file has. */
#ifndef LEDGER_STATEMENTS_H
#define LEDGER_STATEMENTS_H

#define STATEMENTS(X)          \
    X(policy_insert)           \
    X(policy_next_id)          \
    X(policy_by_id)            \
    X(policy_for_update)       \
    X(policy_list)             \
    X(policy_update)           \
    X(policy_overwrite)        \
    X(policy_return_unit)      \
    X(policy_take_unit)        \
    X(lease_insert)            \
    X(lease_for_update)        \
    X(lease_for_issue)         \
    X(lease_lock_open)         \
    X(lease_shrink)            \
    X(lease_close)             \
    X(lease_close_all)         \
    X(lease_close_these)       \
    X(lease_put)               \
    X(lease_reopen)            \
    X(lease_balance)           \
    X(lease_rows)              \
    X(lease_list_open)         \
    X(coupon_insert)           \
    X(coupon_by_seq)           \
    X(coupon_for_update)       \
    X(coupon_by_slot)          \
    X(coupon_list_of_user)     \
    X(coupon_list_of_claimant) \
    X(coupon_list_of_policy)   \
    X(coupon_redeem)           \
    X(coupon_cancel)           \
    X(coupon_scan)             \
    X(coupon_range)            \
    X(coupon_sums)             \
    X(coupon_stray)            \
    X(coupon_adopt)            \
    X(user_over_limit)         \
    X(coupon_crowded)          \
    X(coupon_free_slots)       \
    X(coupon_unplace)          \
    X(coupon_place)            \
    X(coupon_keep)             \
    X(refused_insert)          \
    X(refused_by_seq)          \
    X(refused_among)           \
    X(refused_scan)            \
    X(refused_scan_of_policy)  \
    X(key_insert)              \
    X(key_by_id)               \
    X(key_count)               \
    X(key_scan)                \
    X(short_code_policies)     \
    X(entering_insert)         \
    X(entering_policies)       \
    X(entering_list)           \
    X(entering_keys)           \
    X(entering_delete)         \
    X(entering_forget)         \
    X(reserve_insert)          \
    X(reserve_among)           \
    X(exceptions_any)          \
    X(blocked_has)             \
    X(blocked_among)           \
    X(blocked_insert)          \
    X(blocked_delete)          \
    X(blocked_scan)            \
    X(secret_insert)           \
    X(secret_by_name)          \
    X(steward_insert)          \
    X(steward_create)          \
    X(steward_for_update)      \
    X(steward_take)            \
    X(steward_share)           \
    X(steward_look)            \
    X(steward_list)            \
    X(steward_release)         \
    X(steward_leave)           \
    X(holder_beat)             \
    X(holder_count)            \
    X(holder_leave)            \
    X(writer_enter)            \
    X(writer_read)             \
    X(writer_peek)             \
    X(writer_move)             \
    X(writer_leave)            \
    X(letter_insert)           \
    X(letter_by_seq)           \
    X(letter_list)             \
    X(letter_delete)           \
    X(letter_count)            \
    X(lease_open_of_policy)    \
    X(lease_all_of_policy)     \
    X(repair_insert)           \
    X(repair_finish)           \
    X(repair_waiting)          \
    X(repair_list)             \
    X(coupon_scan_of_policy)   \
    X(key_scan_of_policy)      \
    X(event_take)              \
    X(event_last)              \
    X(event_insert)            \
    X(event_list)              \
    X(event_delete)            \
    X(event_backlog)           \
    X(duty_insert)             \
    X(duty_hold)               \
    X(duty_release)            \
    X(sale_lock)               \
    X(sale_peek)               \
    X(sale_move)               \
    X(sale_zone)               \
    X(sale_trim)               \
    X(order_any)               \
    X(order_among)             \
    X(order_insert)            \
    X(order_refund)            \
    X(order_by_id)             \
    X(item_insert)             \
    X(item_list)               \
    X(day_add)                 \
    X(day_subtract)            \
    X(feed_insert)             \
    X(feed_after)              \
    X(moment_insert)           \
    X(moment_trim)             \
    X(moment_scan)             \
    X(signal_among)            \
    X(signal_insert)           \
    X(signal_trim)             \
    X(day_scan)                \
    X(sales_top)               \
    X(sales_of)                \
    X(sales_around)            \
    X(product_put)             \
    X(product_by_id)           \
    X(product_among)

enum statement {
#define STATEMENT_ENUM(name) STATEMENT_##name,
    STATEMENTS(STATEMENT_ENUM)
#undef STATEMENT_ENUM
        STATEMENT_COUNT,
};

/* "policy_insert", ... */
const char *statement_name(enum statement statement);

/* The embedded .sql file of a database: "sqlite" has sqlite.sql. */
const char *statement_file(const char *driver_name);

/* Finds a statement's text in a .sql file: from behind its "-- name: X" line to the next one or
 * the end. NULL when it is not there. `length` gets the text's length. A file may have statements
 * of its driver's own, found by their names. */
const char *statement_text(const char *file, enum statement statement, unsigned long *length);
const char *statement_named(const char *file, const char *name, unsigned long *length);

#endif
