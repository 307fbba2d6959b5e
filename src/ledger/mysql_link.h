/* mysql_link.h: a connection to a MySQL or MariaDB server, and the statements prepared on it.
 *
 * It never connects by itself: whoever uses it knows what a new connection means. When a call finds
 * the connection lost it is closed, and `mysql` is NULL from then on.
 *
 * Threads: one at a time.
 */
#ifndef LEDGER_MYSQL_LINK_H
#define LEDGER_MYSQL_LINK_H

#include "ledger/mysql_statement.h"
#include "ledger/mysql_target.h"

/* The driver's own statements, behind those every driver has. */
#define LEDGER_MYSQL_OWN(X)  \
    X(session_set)           \
    X(session_writes)        \
    X(session_reads)         \
    X(session_limit_mariadb) \
    X(session_limit_mysql)   \
    X(server_settings)       \
    X(lock_take)             \
    X(lock_holder)           \
    X(connection_end)        \
    X(coupon_in_the_way)     \
    X(schema_version)        \
    X(schema_stranger)       \
    X(schema_note)

enum ledger_mysql_own {
    LEDGER_MYSQL_OWN_FIRST = STATEMENT_COUNT - 1,
#define OWN_ENUM(name) OWN_##name,
    LEDGER_MYSQL_OWN(OWN_ENUM)
#undef OWN_ENUM
        LEDGER_MYSQL_STATEMENT_COUNT,
};

/* How long to wait for the server. */
struct ledger_mysql_patience {
    unsigned connect_s;
    unsigned answer_s;    /* for each part of an answer */
    int64_t statement_ms; /* the server's own limit for a statement; 0: none */
    int64_t lock_s;
    int64_t idle_s; /* after that the server may close the connection */
};

struct ledger_mysql_link {
    const struct ledger_mysql_target *target;
    MYSQL *mysql; /* NULL: not connected */
    struct ledger_mysql_statement *statements[LEDGER_MYSQL_STATEMENT_COUNT];
    unsigned code; /* of the last call that failed */
    char sql_state[8];
};

void ledger_mysql_link_init(struct ledger_mysql_link *link,
                            const struct ledger_mysql_target *target);

/* UNAVAILABLE, with the server's words. */
enum status ledger_mysql_link_connect(struct ledger_mysql_link *link,
                                      const struct ledger_mysql_patience *patience,
                                      struct error *error) MUST_CHECK;

/* Ends the connection, if there is one. */
void ledger_mysql_link_close(struct ledger_mysql_link *link);

/* Runs a statement, `enum statement` or `enum ledger_mysql_own`. `row_count`, when not NULL, gets
 * how many rows were shown. */
enum status ledger_mysql_link_run(struct ledger_mysql_link *link, int statement,
                                  const struct sql_value *values, size_t value_count,
                                  sql_row_fn row, void *context, int64_t *changed,
                                  size_t *row_count, struct error *error) MUST_CHECK;

/* Runs a text that has no values and no rows. `what` it is goes into the words. */
enum status ledger_mysql_link_execute(struct ledger_mysql_link *link, const char *what,
                                      struct span text, struct error *error) MUST_CHECK;

/* Turns a result's error into a status with words, and closes a connection that is lost. `what`
 * failed. */
enum status ledger_mysql_link_fail(struct ledger_mysql_link *link,
                                   const struct ledger_mysql_result *result, const char *what,
                                   struct error *error);

#endif
