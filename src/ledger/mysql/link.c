/* link.c: connects, prepares on first use, binds, fetches, and closes what is lost. */
#include "ledger/mysql/link.h"

#include <ctype.h>
#include <errmsg.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define KEEPALIVE_IDLE_S     60
#define KEEPALIVE_INTERVAL_S 15
#define KEEPALIVE_PROBES     4
#define TEXT_LENGTH_MAX      8192
#define COLUMN_LENGTH_MAX    1024
#define CHARSET_BINARY       63

/* --- error numbers --- */

#define CODES_HAVE(codes, code) codes_have(codes, sizeof(codes) / sizeof((codes)[0]), code)

static bool codes_have(const unsigned *codes, size_t count, unsigned code)
{
    for (size_t i = 0; i < count; i++)
        if (codes[i] == code)
            return true;
    return false;
}

/* Of another transaction's making. */
static const unsigned busy_codes[] = {
    1205, /* waited too long for a lock */
    1213, /* deadlock */
    1020, /* a row has changed since it was read (snapshot isolation of MariaDB) */
    1412, /* a table was altered under the transaction */
    1615, /* a prepared statement has to be prepared again */
    3101, /* undone by another member of the group */
    3572, /* a lock is not free */
};

/* The server will not go on with this connection. */
static const unsigned lost_codes[] = {
    1047, /* a cluster's node is not ready */
    1053, /* shutting down */
    1077, /* ended normally */
    1079, /* shutdown complete */
    1080, /* closed by force */
    1152, /* aborted */
    1158, /* error reading, */
    1159, /* timeout reading, */
    1160, /* error writing, */
    1161, /* timeout writing on the network */
    1184, /* aborted */
    1290, /* read-only: another server may be the primary now */
    1836, /* read-only mode */
    1927, /* killed (MariaDB) */
    3032, /* offline mode */
    3169, /* killed (MySQL) */
    4031, /* idle for too long */
};

/* Not now, and none of the above. */
static const unsigned unavailable_codes[] = {
    1021, /* disk full */
    1026, /* error writing a file */
    1037, /* out of memory */
    1038, /* out of memory for sorting */
    1040, /* too many connections */
    1041, /* out of memory */
    1114, /* table full: the disk is */
    1129, /* host blocked after too many errors */
    1135, /* cannot make a thread */
    1203, /* the user has too many connections */
    1226, /* the user has used up a resource */
    1317, /* interrupted */
    1461, /* too many prepared statements */
    1969, /* statement timeout (MariaDB) */
    3024, /* statement timeout (MySQL) */
};

/* The server is there and will not have us: for the operator. */
static const unsigned refused_codes[] = {
    1044, /* no right to the database */
    1045, /* access denied */
    1049, /* unknown database */
    1130, /* this host may not connect */
    1251, /* the way to log in is too old */
    1275, /* the password is of an old kind */
    1524, /* the plugin to log in is not there */
    1698, /* access denied, without a password */
    1820, /* the password has to be changed */
    1862, /* the password has expired */
    2059, /* the plugin to log in is not there (client) */
    2061, /* it failed */
    4151, /* the account is locked */
};
#define TLS_FAILED 2026

/* May have come after the transaction was written. */
static const unsigned doubt_codes[] = {1180, 1196, 1317, 1969, 3024, 3100};

/* Values of the wrong type or range, checks and triggers, where the SQL state does not tell. */
static const unsigned row_codes[] = {1048, 1264, 1265, 1292, 1364, 1366, 1406, 1644, 3819, 4025};

/* The client library numbers what it finds itself. */
#define IS_CLIENT_CODE(code) \
    (((code) >= 2000 && (code) < 3000) || ((code) >= 5000 && (code) < 6000))

/* "Got error 28 ... from storage engine", and the like, carry the system's error number. */
static bool tells_of_a_full_disk(const char *text)
{
    return strstr(text, "rror 28 ") != NULL || strstr(text, "errno: 28") != NULL ||
           strstr(text, "No space left") != NULL;
}

/* A handshake that breaks off may succeed later; a certificate that is not good stays so. */
static bool ledger_mysql_refuses_us(unsigned code, const char *text)
{
    if (code == TLS_FAILED)
        return strcasestr(text, "certificate") != NULL || strcasestr(text, "required") != NULL;
    return CODES_HAVE(refused_codes, code);
}

bool ledger_mysql_is_lost(unsigned code)
{
    return IS_CLIENT_CODE(code) || CODES_HAVE(lost_codes, code);
}

enum status ledger_mysql_status(unsigned code, const char *text)
{
    if (CODES_HAVE(busy_codes, code))
        return STATUS_BUSY;
    if (ledger_mysql_is_lost(code) || CODES_HAVE(unavailable_codes, code))
        return STATUS_UNAVAILABLE;
    return tells_of_a_full_disk(text) ? STATUS_UNAVAILABLE : STATUS_FAILED;
}

/* After a lock that was waited for too long, only the statement is undone, but its locks are no
 * good for finishing the rest either. */
bool ledger_mysql_ends_transaction(unsigned code)
{
    return CODES_HAVE(busy_codes, code);
}

bool ledger_mysql_leaves_doubt(unsigned code)
{
    return ledger_mysql_is_lost(code) || CODES_HAVE(doubt_codes, code);
}

bool ledger_mysql_refuses_row(unsigned code, const char *sql_state)
{
    if (CODES_HAVE(row_codes, code))
        return true;
    return strncmp(sql_state, "22", 2) == 0 || strncmp(sql_state, "23", 2) == 0 ||
           strcmp(sql_state, "45000") == 0;
}

/* --- life --- */

struct ledger_mysql_statement {
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

static void statement_free(struct ledger_mysql_statement *statement)
{
    if (statement == NULL)
        return;
    if (statement->handle != NULL)
        mysql_stmt_close(statement->handle);
    free(statement->bytes);
    free(statement);
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
    for (size_t i = 0; i < STATEMENT_COUNT; i++) {
        statement_free(link->statements[i]);
        link->statements[i] = NULL;
    }
}

/* The client library does not always say on the statement what it noticed on the connection. */
enum status ledger_mysql_link_fail(struct ledger_mysql_link *link, MYSQL_STMT *handle,
                                   const char *what, struct error *error)
{
    MYSQL *mysql = link->mysql;
    const char *text = "the answer ended early";
    const char *sql_state = "HY000";

    link->code = CR_SERVER_LOST;
    if (handle != NULL && mysql_stmt_errno(handle) != 0) {
        link->code = mysql_stmt_errno(handle);
        sql_state = mysql_stmt_sqlstate(handle);
        text = mysql_stmt_error(handle);
    } else if (mysql_errno(mysql) != 0) {
        link->code = mysql_errno(mysql);
        sql_state = mysql_sqlstate(mysql);
        text = mysql_error(mysql);
    }
    snprintf(link->sql_state, sizeof(link->sql_state), "%s", sql_state);
    enum status status = error_set(error, ledger_mysql_status(link->code, text), "%s: %s (%u, %s)",
                                   what, text, link->code, link->target->text);
    if (ledger_mysql_is_lost(link->code))
        ledger_mysql_link_close(link);
    return status;
}

static enum status link_no_memory(struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE, "no memory for a statement");
}

/* --- connecting --- */

static void link_set_options(MYSQL *mysql, const struct ledger_mysql_target *target,
                             const struct ledger_mysql_timeouts *timeouts)
{
    const my_bool no = 0;
    const unsigned protocol = target->host != NULL ? MYSQL_PROTOCOL_TCP : MYSQL_PROTOCOL_SOCKET;
    const unsigned no_infile = 0;

    mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &timeouts->connect_s);
    mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &timeouts->answer_s);
    mysql_options(mysql, MYSQL_OPT_WRITE_TIMEOUT, &timeouts->answer_s);
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
                                      const struct ledger_mysql_timeouts *timeouts,
                                      struct error *error)
{
    const struct ledger_mysql_target *target = link->target;

    ensure(link->mysql == NULL);
    MYSQL *mysql = mysql_init(NULL);
    if (mysql == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a connection");
    link_set_options(mysql, target, timeouts);
    link_set_tls(mysql, target);
    /* FOUND_ROWS: a row that is set to what it was counts as changed, as everywhere else. */
    if (mysql_real_connect(mysql, target->host, target->user, target->password, target->database,
                           target->port, target->socket, CLIENT_FOUND_ROWS) == NULL) {
        link->code = mysql_errno(mysql);
        enum status status = ledger_mysql_refuses_us(mysql_errno(mysql), mysql_error(mysql))
                                 ? STATUS_FAILED
                                 : STATUS_UNAVAILABLE;
        (void)error_set(error, status, "cannot connect to %s: %s (%u); %s", target->text,
                        mysql_error(mysql), mysql_errno(mysql), LEDGER_CONNECT_ADVICE);
        mysql_close(mysql);
        return status;
    }
    if (target->tls >= LEDGER_MYSQL_TLS_REQUIRED && mysql_get_ssl_cipher(mysql) == NULL) {
        mysql_close(mysql);
        return error_set(error, STATUS_FAILED,
                         "%s offers no TLS, which the URL's ssl_mode requires", target->text);
    }
    link_keep_alive(mysql);
    link->mysql = mysql;
    return STATUS_OK;
}

/* --- preparing --- */

size_t ledger_mysql_take_numbers(struct buffer *text, const char *numbered, uint8_t *order,
                                 size_t order_max)
{
    size_t count = 0;

    while (*numbered != '\0') {
        buffer_append(text, numbered, 1);
        if (*numbered++ != '?')
            continue;
        size_t number = 0;
        while (isdigit((unsigned char)*numbered))
            number = number * 10 + (size_t)(*numbered++ - '0');
        ensure(number >= 1 && number <= LEDGER_MYSQL_VALUES_MAX && count < order_max);
        order[count++] = (uint8_t)(number - 1);
    }
    return count;
}

static bool statement_is_number(const MYSQL_FIELD *field)
{
    switch (field->type) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
    case MYSQL_TYPE_DECIMAL:
    case MYSQL_TYPE_NEWDECIMAL:
        return true;
    default:
        return false;
    }
}

/* Numbers are fetched as 64 bits, everything else as its bytes. */
static void statement_lay_out(struct ledger_mysql_statement *statement, const MYSQL_FIELD *fields)
{
    for (size_t i = 0; i < statement->column_count; i++) {
        MYSQL_BIND *bind = &statement->binds[i];
        bool is_number = statement_is_number(&fields[i]);
        char *place = statement->bytes + i * COLUMN_LENGTH_MAX;

        *bind = (MYSQL_BIND){
            .buffer_type = is_number ? MYSQL_TYPE_LONGLONG : MYSQL_TYPE_STRING,
            .buffer = is_number ? (void *)&statement->numbers[i] : place,
            .buffer_length = is_number ? sizeof(int64_t) : COLUMN_LENGTH_MAX,
            .length = &statement->lengths[i],
            .is_null = &statement->nulls[i],
        };
        statement->columns[i] = (struct sql_value){
            .kind = is_number                               ? SQL_I64
                    : fields[i].charsetnr == CHARSET_BINARY ? SQL_BLOB
                                                            : SQL_TEXT,
            .bytes.bytes = place,
        };
    }
}

static enum status link_prepare(struct ledger_mysql_link *link, enum statement name,
                                struct error *error)
{
    struct ledger_mysql_statement *statement = calloc(1, sizeof(*statement));
    enum status status = STATUS_OK;
    MYSQL_RES *metadata = NULL;
    struct buffer text;

    ensure(mysql_statements[name] != NULL);
    if (statement == NULL)
        return link_no_memory(error);
    buffer_init(&text, TEXT_LENGTH_MAX);
    statement->value_count = ledger_mysql_take_numbers(&text, mysql_statements[name],
                                                       statement->order, LEDGER_MYSQL_VALUES_MAX);
    if (text.overflowed || (statement->handle = mysql_stmt_init(link->mysql)) == NULL)
        status = link_no_memory(error);
    else if (mysql_stmt_prepare(statement->handle, text.bytes, text.length) != 0)
        status = ledger_mysql_link_fail(link, statement->handle, statement_names[name], error);
    else
        metadata = mysql_stmt_result_metadata(statement->handle);
    buffer_release(&text);
    ensure(status != STATUS_OK ||
           mysql_stmt_param_count(statement->handle) == statement->value_count);
    if (metadata != NULL) {
        statement->column_count = mysql_num_fields(metadata);
        ensure(statement->column_count <= SQL_COLUMNS_MAX);
        statement->bytes = malloc(statement->column_count * COLUMN_LENGTH_MAX);
        if (statement->bytes != NULL)
            statement_lay_out(statement, mysql_fetch_fields(metadata));
        else
            status = link_no_memory(error);
        mysql_free_result(metadata);
    }
    if (status == STATUS_OK)
        link->statements[name] = statement;
    else
        statement_free(statement);
    return status;
}

/* --- running --- */

static void statement_bind(MYSQL_BIND *bind, const struct sql_value *value)
{
    *bind = (MYSQL_BIND){.buffer_type = MYSQL_TYPE_NULL};
    switch (value->kind) {
    case SQL_I64:
        bind->buffer_type = MYSQL_TYPE_LONGLONG;
        bind->buffer = (void *)(uintptr_t)&value->number;
        break;
    case SQL_TEXT:
    case SQL_BLOB:
        bind->buffer_type = value->kind == SQL_TEXT ? MYSQL_TYPE_STRING : MYSQL_TYPE_BLOB;
        bind->buffer = (void *)(uintptr_t)value->bytes.bytes;
        bind->buffer_length = value->bytes.length;
        break;
    case SQL_NULL:
        break;
    }
}

static bool statement_execute(struct ledger_mysql_statement *statement, const struct sql_call *call)
{
    MYSQL_BIND binds[LEDGER_MYSQL_VALUES_MAX];

    for (size_t i = 0; i < statement->value_count; i++) {
        ensure(statement->order[i] < call->value_count);
        statement_bind(&binds[i], &call->values[statement->order[i]]);
    }
    if (statement->value_count > 0 && mysql_stmt_bind_param(statement->handle, binds) != 0)
        return false;
    return mysql_stmt_execute(statement->handle) == 0;
}

static enum status statement_show(struct ledger_mysql_statement *statement,
                                  const struct sql_call *call, struct error *error)
{
    struct sql_value columns[SQL_COLUMNS_MAX];

    for (size_t i = 0; i < statement->column_count; i++) {
        columns[i] = statement->columns[i];
        columns[i].number = statement->numbers[i];
        columns[i].bytes.length = statement->lengths[i];
        if (statement->nulls[i])
            columns[i] = sql_null();
    }
    return call->row(call->context, columns, error);
}

/* Whatever ends the loop, what is left of the answer is read, so that the next one is the next. */
static enum status link_fetch(struct ledger_mysql_link *link,
                              struct ledger_mysql_statement *statement, const struct sql_call *call,
                              struct error *error)
{
    MYSQL_STMT *handle = statement->handle;
    int fetched = mysql_stmt_bind_result(handle, statement->binds) == 0 ? 0 : 1;
    enum status status = STATUS_OK;

    while (fetched == 0 && status == STATUS_OK) {
        fetched = mysql_stmt_fetch(handle);
        if (fetched == 0 && call->row != NULL)
            status = statement_show(statement, call, error);
        link->row_count += fetched == 0;
    }
    if (fetched == MYSQL_DATA_TRUNCATED)
        status =
            error_set(error, STATUS_FAILED, "a column has more than %d bytes", COLUMN_LENGTH_MAX);
    else if (fetched != 0 && fetched != MYSQL_NO_DATA)
        status = ledger_mysql_link_fail(link, handle, statement_names[call->statement], error);
    if (link->mysql != NULL) /* else the statement is gone with it */
        mysql_stmt_free_result(handle);
    return status;
}

/* A statement without rows that made an id shows that. */
enum status ledger_mysql_link_run(struct ledger_mysql_link *link, const struct sql_call *call,
                                  struct error *error)
{
    enum status status = STATUS_OK;

    ensure(link->mysql != NULL);
    link->row_count = 0;
    if (link->statements[call->statement] == NULL)
        status = link_prepare(link, call->statement, error);
    if (status != STATUS_OK)
        return status;
    struct ledger_mysql_statement *statement = link->statements[call->statement];
    if (!statement_execute(statement, call))
        return ledger_mysql_link_fail(link, statement->handle, statement_names[call->statement],
                                      error);
    if (statement->column_count > 0)
        return link_fetch(link, statement, call, error);
    if (call->changed != NULL)
        *call->changed = (int64_t)mysql_stmt_affected_rows(statement->handle);
    if (call->row == NULL)
        return STATUS_OK;
    struct sql_value id = sql_i64((int64_t)mysql_stmt_insert_id(statement->handle));
    return call->row(call->context, &id, error);
}

enum status ledger_mysql_link_execute(struct ledger_mysql_link *link, const char *what,
                                      struct span text, struct error *error)
{
    ensure(link->mysql != NULL);
    return mysql_real_query(link->mysql, text.bytes, text.length) == 0
               ? STATUS_OK
               : ledger_mysql_link_fail(link, NULL, what, error);
}
