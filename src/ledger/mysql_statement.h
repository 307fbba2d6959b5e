/* mysql_statement.h: one prepared statement: its numbered values bound, its rows read one by one.
 *
 * The texts number their values (?1, ?2, …) because a statement may use one twice; MySQL only
 * knows a bare `?`, so the numbers are taken out when a statement is prepared, and kept as the
 * order in which the values are bound.
 *
 * Rows are not gathered: a scan of a million coupons takes the memory of one.
 *
 * Threads: as its connection, one at a time.
 */
#ifndef LEDGER_MYSQL_STATEMENT_H
#define LEDGER_MYSQL_STATEMENT_H

#include <mysql.h>

#include "base/buffer.h"
#include "ledger/driver.h"

#define LEDGER_MYSQL_VALUES_MAX 24

struct ledger_mysql_statement {
    MYSQL *mysql;
    MYSQL_STMT *handle;
    uint8_t order[LEDGER_MYSQL_VALUES_MAX]; /* per `?`: the number of its value, from 0 */
    size_t value_count;                     /* of `?` */
    size_t column_count;
    MYSQL_BIND binds[SQL_COLUMNS_MAX];
    struct sql_value columns[SQL_COLUMNS_MAX]; /* of the present row */
    int64_t numbers[SQL_COLUMNS_MAX];
    unsigned long lengths[SQL_COLUMNS_MAX];
    my_bool nulls[SQL_COLUMNS_MAX];
    char *bytes; /* where texts are put */
};

/* What a statement came to. `code` is 0, or an error number of the server or of the client library,
 * with its words; `status` is what the row callback answered last. */
struct ledger_mysql_result {
    unsigned code;
    char sql_state[8];
    struct error words;
    enum status status;
    size_t row_count;
    int64_t changed_count;
};

/* Appends the statement to `text` with every ?N made a `?`, up to its semicolon. The numbers go
 * into `order`, which has room for `order_max`; returns how many there are. */
size_t ledger_mysql_take_numbers(struct buffer *text, struct span numbered, uint8_t *order,
                                 size_t order_max);

/* New, or NULL with `result` filled. */
struct ledger_mysql_statement *ledger_mysql_statement_new(MYSQL *mysql, struct span numbered,
                                                          struct ledger_mysql_result *result);
void ledger_mysql_statement_free(struct ledger_mysql_statement *statement);

/* Runs it to its end, with `row` called per row. A statement without rows that made an id calls it
 * once, with that id. */
void ledger_mysql_statement_run(struct ledger_mysql_statement *statement,
                                const struct sql_value *values, size_t value_count, sql_row_fn row,
                                void *context, struct ledger_mysql_result *result,
                                struct error *error);

/* Notes what went wrong on a handle (which may be NULL) or, when that is silent, on its
 * connection. */
void ledger_mysql_result_fail(struct ledger_mysql_result *result, MYSQL_STMT *handle, MYSQL *mysql);
void ledger_mysql_result_no_memory(struct ledger_mysql_result *result);

#endif
