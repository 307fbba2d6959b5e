/* target.h: which database a mysql:// or mariadb:// URL names, and how it is reached:
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
 *
 * Threads: only read once parsed.
 */
#pragma once

#include "base/error.h"
#include "base/url.h"
#include "ledger/driver.h"

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
    char words[160]; /* "db.example.com:3306/shop", for people */
    int64_t timeout_ms;
};

/* INVALID: the URL is wrong; there is nothing to release then. */
enum status ledger_mysql_target_init(struct ledger_mysql_target *target,
                                     const struct store_options *options,
                                     struct error *error) MUST_CHECK;
void ledger_mysql_target_release(struct ledger_mysql_target *target);
