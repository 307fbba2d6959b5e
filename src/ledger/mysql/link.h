/* link.h: a connection to a MySQL or MariaDB server, the statements prepared on it, and what the
 * errors of both mean for the ledger.
 *
 * It never connects by itself: whoever uses it knows what a new connection means. When a call finds
 * the connection lost it is closed, and `mysql` is NULL from then on.
 *
 * The texts of statements number their values (?1, ?2, …) because a statement may use one twice;
 * MySQL only knows a bare `?`, so the numbers are taken out when a statement is prepared, and kept
 * as the order in which the values are bound. Rows are not gathered: a scan of a million coupons
 * takes the memory of one.
 *
 * Threads: one at a time.
 */
#pragma once

#include <mysql.h>

#include "base/error.h"
#include "base/url.h"
#include "ledger/driver.h"

/* --- the server ---
 *
 * Which database a mysql:// or mariadb:// URL names, and how it is reached:
 *
 *     mysql://user:password@host:port/database?ssl_mode=…&ssl_ca=…&ssl_cert=…&ssl_key=…
 *     mysql://user@/database?socket=/run/mysqld/mysqld.sock
 *
 * Without a host it is the socket the client library knows. ssl_mode is one of
 *   disabled     no TLS; the default on a unix socket
 *   preferred    TLS when the server offers it, whoever it is; the default over TCP
 *   required     TLS, or no connection; whoever the server is
 *   verify-ca, verify-full
 *                the server's certificate must be signed by ssl_ca and carry the host's name (the
 *                client library checks the name with either)
 */

enum ledger_mysql_tls {
    LEDGER_MYSQL_TLS_DISABLED,
    LEDGER_MYSQL_TLS_PREFERRED,
    LEDGER_MYSQL_TLS_REQUIRED,
    LEDGER_MYSQL_TLS_VERIFIED,
};

/* The texts are the url's, or the password's copy; NULL: not said. */
struct ledger_mysql_target {
    struct url url;
    char *password_copy;
    const char *host; /* NULL: a unix socket */
    unsigned port;
    const char *socket;
    const char *user;
    const char *password;
    const char *database;
    enum ledger_mysql_tls tls;
    const char *tls_ca;
    const char *tls_certificate;
    const char *tls_key;
    char text[160]; /* "db.example.com:3306/shop", for people */
    int64_t timeout_ms;
};

/* INVALID: the URL is wrong; there is nothing to release then. */
enum status ledger_mysql_target_init(struct ledger_mysql_target *target,
                                     const struct store_options *options,
                                     struct error *error) MUST_CHECK;
void ledger_mysql_target_release(struct ledger_mysql_target *target);

/* --- the connection --- */

#define LEDGER_MYSQL_VALUES_MAX 24

/* How long to wait for the server. */
struct ledger_mysql_timeouts {
    unsigned connect_s;
    unsigned answer_s;    /* for each part of an answer */
    int64_t statement_ms; /* the server's own limit for a statement; 0: none */
    int64_t lock_s;
    int64_t idle_s; /* after that the server may close the connection */
};

struct ledger_mysql_statement;

struct ledger_mysql_link {
    const struct ledger_mysql_target *target;
    MYSQL *mysql; /* NULL: not connected */
    struct ledger_mysql_statement *statements[STATEMENT_COUNT];
    unsigned code;    /* of the last call that failed */
    size_t row_count; /* that the last statement has shown */
    char sql_state[8];
};

void ledger_mysql_link_init(struct ledger_mysql_link *link,
                            const struct ledger_mysql_target *target);

/* UNAVAILABLE, with the server's words. */
enum status ledger_mysql_link_connect(struct ledger_mysql_link *link,
                                      const struct ledger_mysql_timeouts *timeouts,
                                      struct error *error) MUST_CHECK;

/* Ends the connection, if there is one. */
void ledger_mysql_link_close(struct ledger_mysql_link *link);

/* Runs a statement. */
enum status ledger_mysql_link_run(struct ledger_mysql_link *link, const struct sql_call *call,
                                  struct error *error) MUST_CHECK;

/* Runs a text that has no values and no rows. `what` it is goes into the words. */
enum status ledger_mysql_link_execute(struct ledger_mysql_link *link, const char *what,
                                      struct span text, struct error *error) MUST_CHECK;

/* Turns what went wrong on a handle (which may be NULL) or, when that is silent, on its connection
 * into a status with words, and closes a connection that is lost. `what` failed. */
enum status ledger_mysql_link_fail(struct ledger_mysql_link *link, MYSQL_STMT *handle,
                                   const char *what, struct error *error);

/* Appends the statement to `text` with every ?N made a `?`. The numbers go
 * into `order`, which has room for `order_max`; returns how many there are. */
size_t ledger_mysql_take_numbers(struct buffer *text, const char *numbered, uint8_t *order,
                                 size_t order_max);

/* --- what an error number of the server or of the client library means --- */

/* Numbers that callers ask for by themselves. */
#define LEDGER_MYSQL_DUPLICATE     1062
#define LEDGER_MYSQL_NO_TABLE      1146
#define LEDGER_MYSQL_NO_CONNECTION 1094 /* there is no such connection to end */

/* BUSY, UNAVAILABLE or FAILED, as driver.h has them. `words` are the server's own. */
enum status ledger_mysql_status(unsigned code, const char *message);

/* The connection is gone, or no good any more: it must be closed and made again. */
bool ledger_mysql_is_lost(unsigned code);

/* The whole transaction is over, or has to be: going on would write outside of it. */
bool ledger_mysql_ends_transaction(unsigned code);

/* As the answer to a COMMIT: it may have been done all the same. */
bool ledger_mysql_leaves_doubt(unsigned code);

/* A value in the row is refused: a check, a trigger, a type. */
bool ledger_mysql_refuses_row(unsigned code, const char *sql_state);
