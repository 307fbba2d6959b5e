/* mysql_link.c: connects, prepares on first use, and closes what is lost. */
#include "ledger/mysql_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "ledger/mysql_error.h"

#define KEEPALIVE_IDLE_S     60
#define KEEPALIVE_INTERVAL_S 15
#define KEEPALIVE_PROBES     4

static const char *const own_names[] = {
#define OWN_NAME(name) #name,
    LEDGER_MYSQL_OWN(OWN_NAME)
#undef OWN_NAME
};

static const char *link_statement_name(int statement)
{
    return statement < STATEMENT_COUNT ? statement_name((enum statement)statement)
                                       : own_names[statement - STATEMENT_COUNT];
}

void ledger_mysql_link_init(struct ledger_mysql_link *link,
                            const struct ledger_mysql_target *target)
{
    *link = (struct ledger_mysql_link){.target = target};
}

/* The connection goes first: closing a statement of a live one would read the rest of its rows. */
void ledger_mysql_link_close(struct ledger_mysql_link *link)
{
    if (link->mysql != NULL)
        mysql_close(link->mysql);
    link->mysql = NULL;
    for (size_t i = 0; i < LEDGER_MYSQL_STATEMENT_COUNT; i++) {
        ledger_mysql_statement_free(link->statements[i]);
        link->statements[i] = NULL;
    }
}

enum status ledger_mysql_link_fail(struct ledger_mysql_link *link,
                                   const struct ledger_mysql_result *result, const char *what,
                                   struct error *error)
{
    link->code = result->code;
    memcpy(link->sql_state, result->sql_state, sizeof(link->sql_state));
    if (ledger_mysql_is_lost(result->code))
        ledger_mysql_link_close(link);
    return error_set(error, ledger_mysql_status(result->code, result->words.text),
                     "%s: %s (%u, %s)", what, result->words.text, result->code,
                     link->target->words);
}

/* --- connecting --- */

static void link_set_options(MYSQL *mysql, const struct ledger_mysql_target *target,
                             const struct ledger_mysql_patience *patience)
{
    const my_bool no = 0;
    const unsigned protocol = target->host != NULL ? MYSQL_PROTOCOL_TCP : MYSQL_PROTOCOL_SOCKET;
    const unsigned no_infile = 0;

    mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &patience->connect_s);
    mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &patience->answer_s);
    mysql_options(mysql, MYSQL_OPT_WRITE_TIMEOUT, &patience->answer_s);
    mysql_options(mysql, MYSQL_OPT_PROTOCOL, &protocol);
    mysql_options(mysql, MYSQL_OPT_RECONNECT, &no);
    mysql_options(mysql, MYSQL_OPT_LOCAL_INFILE, &no_infile);
    mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    mysql_options4(mysql, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "dibs");
}

/* The library verifies nothing unless it has the authorities' file and is told to check the name.
 */
static void link_set_tls(MYSQL *mysql, const struct ledger_mysql_target *target)
{
    const my_bool uses_tls = target->tls != LEDGER_MYSQL_TLS_DISABLED;
    const my_bool verifies = target->tls == LEDGER_MYSQL_TLS_VERIFIED;

    if (target->tls_ca != NULL)
        mysql_options(mysql, MYSQL_OPT_SSL_CA, target->tls_ca);
    if (target->tls_certificate != NULL)
        mysql_options(mysql, MYSQL_OPT_SSL_CERT, target->tls_certificate);
    if (target->tls_key != NULL)
        mysql_options(mysql, MYSQL_OPT_SSL_KEY, target->tls_key);
    mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verifies);
    mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &uses_tls);
}

/* A connection that idles stays known to whatever stands between, and a server that is gone is
 * noticed. On a unix socket this fails, and it does not matter. */
static void link_keep_alive(MYSQL *mysql)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(mysql_get_socket(mysql), options[i].level, options[i].name,
                         &options[i].value, sizeof(options[i].value));
}

enum status ledger_mysql_link_connect(struct ledger_mysql_link *link,
                                      const struct ledger_mysql_patience *patience,
                                      struct error *error)
{
    const struct ledger_mysql_target *target = link->target;

    ensure(link->mysql == NULL);
    MYSQL *mysql = mysql_init(NULL);
    if (mysql == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a connection");
    link_set_options(mysql, target, patience);
    link_set_tls(mysql, target);
    /* FOUND_ROWS: a row that is set to what it was counts as changed, as everywhere else. */
    if (mysql_real_connect(mysql, target->host, target->user, target->password, target->database,
                           target->port, target->socket, CLIENT_FOUND_ROWS) == NULL) {
        link->code = mysql_errno(mysql);
        enum status status = ledger_mysql_refuses_us(mysql_errno(mysql), mysql_error(mysql))
                                 ? STATUS_FAILED
                                 : STATUS_UNAVAILABLE;
        (void)error_set(error, status, "cannot connect to %s: %s (%u); %s", target->words,
                        mysql_error(mysql), mysql_errno(mysql), LEDGER_CONNECT_ADVICE);
        mysql_close(mysql);
        return status;
    }
    if (target->tls >= LEDGER_MYSQL_TLS_REQUIRED && mysql_get_ssl_cipher(mysql) == NULL) {
        mysql_close(mysql);
        return error_set(error, STATUS_FAILED,
                         "%s offers no TLS, which the URL's ssl_mode requires", target->words);
    }
    link_keep_alive(mysql);
    link->mysql = mysql;
    return STATUS_OK;
}

/* --- statements --- */

static enum status link_prepare(struct ledger_mysql_link *link, int statement, struct error *error)
{
    struct ledger_mysql_result result = {0};
    const char *name = link_statement_name(statement);
    unsigned long length = 0;

    if (link->statements[statement] != NULL)
        return STATUS_OK;
    const char *text = statement_named(statement_file("mysql"), name, &length);
    ensure(text != NULL);
    link->statements[statement] = ledger_mysql_statement_new(
        link->mysql, (struct span){.bytes = text, .length = length}, &result);
    if (link->statements[statement] != NULL)
        return STATUS_OK;
    return ledger_mysql_link_fail(link, &result, name, error);
}

enum status ledger_mysql_link_run(struct ledger_mysql_link *link, int statement,
                                  const struct sql_value *values, size_t value_count,
                                  sql_row_fn row, void *context, int64_t *changed,
                                  size_t *row_count, struct error *error)
{
    struct ledger_mysql_result result = {0};

    ensure(link->mysql != NULL);
    enum status status = link_prepare(link, statement, error);
    if (status != STATUS_OK)
        return status;
    ledger_mysql_statement_run(link->statements[statement], values, value_count, row, context,
                               &result, error);
    if (changed != NULL)
        *changed = result.changed_count;
    if (row_count != NULL)
        *row_count = result.row_count;
    if (result.code != 0)
        return ledger_mysql_link_fail(link, &result, link_statement_name(statement), error);
    return result.status;
}

enum status ledger_mysql_link_execute(struct ledger_mysql_link *link, const char *what,
                                      struct span text, struct error *error)
{
    struct ledger_mysql_result result = {0};

    ensure(link->mysql != NULL);
    if (mysql_real_query(link->mysql, text.bytes, text.length) == 0)
        return STATUS_OK;
    ledger_mysql_result_fail(&result, NULL, link->mysql);
    return ledger_mysql_link_fail(link, &result, what, error);
}
