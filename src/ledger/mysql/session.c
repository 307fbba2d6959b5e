/* session.c: connects, sets up, checks the server, takes the locks. */
#include "ledger/mysql/session.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "ledger/rows.h"

#define MARIADB_VERSION_MIN 100600
#define MYSQL_VERSION_MIN   80000

#define OWNER_WAIT_S        2 /* a predecessor that was killed may still be finishing */
#define SHARE_PLACES        64
#define OWNER_WAIT_MAX_S    10
#define SNAPSHOT_ANSWER_S   600
#define SCHEMA_ANSWER_S     86400
#define NETWORK_WRITE_S     600
#define IDLE_S              28800
#define IDLE_WRITER_S       600 /* it looks at the database every second */
#define SETTING_SIZE        32
#define PACKET_BYTES_MIN    1048576 /* several times the largest batch */

static enum status session_ask(struct ledger_session *session, const struct sql_call *call,
                               struct error *error)
{
    return ledger_mysql_link_run(&session->link, call, error);
}

/* Whole seconds, which is all the server and the library know, rounded up. */
static int64_t session_timeout_s(const struct ledger_session *session)
{
    return (session->store->target.timeout_ms + 999) / 1000;
}

static int64_t session_lock_s(const struct ledger_session *session)
{
    return (session_timeout_s(session) + 1) / 2;
}

/* A lock gives up first, then the server on the statement, then the library on the server: so it is
 * known why. */
static struct ledger_mysql_timeouts session_timeout(const struct ledger_session *session,
                                                    enum ledger_mysql_pace pace)
{
    int64_t timeout_ms = session->store->target.timeout_ms;
    int64_t timeout_s = session_timeout_s(session);
    struct ledger_mysql_timeouts timeouts = {
        .connect_s = (unsigned)timeout_s,
        .answer_s = (unsigned)timeout_s + 2,
        .statement_ms = timeout_ms + 1000,
        .lock_s = session_lock_s(session),
        .idle_s = session->kind == SESSION_WRITER ? IDLE_WRITER_S : IDLE_S,
    };

    if (pace == LEDGER_MYSQL_LONG) {
        timeouts.answer_s = session->kind == SESSION_SCHEMA ? SCHEMA_ANSWER_S : SNAPSHOT_ANSWER_S;
        timeouts.statement_ms = 0;
    }
    return timeouts;
}

/* --- setting up --- */

static enum status session_set_up(struct ledger_session *session,
                                  const struct ledger_mysql_timeouts *timeouts, struct error *error)
{
    enum statement kind =
        session->kind == SESSION_READER ? STATEMENT_session_reads : STATEMENT_session_writes;
    enum status status =
        session_ask(session,
                    SQL_CALL(STATEMENT_session_set, NULL, NULL, sql_i64(timeouts->lock_s),
                             sql_i64(NETWORK_WRITE_S), sql_i64(timeouts->idle_s)),
                    error);

    return status == STATUS_OK ? session_ask(session, SQL_CALL(kind, NULL, NULL), error) : status;
}

/* Last of all: taking a lock may have to wait longer. */
static enum status session_limit_statements(struct ledger_session *session,
                                            const struct ledger_mysql_timeouts *timeouts,
                                            struct error *error)
{
    enum statement limit = mariadb_connection(session->link.mysql) ? STATEMENT_session_limit_mariadb
                                                                   : STATEMENT_session_limit_mysql;

    return session_ask(session, SQL_CALL(limit, NULL, NULL, sql_i64(timeouts->statement_ms)),
                       error);
}

/* --- the server --- */

/* As the server shows them; "" when it has no such setting. */
struct server_settings {
    char read_only[SETTING_SIZE];
    char flush_log[SETTING_SIZE];
    char log_bin[SETTING_SIZE];
    char sync_binlog[SETTING_SIZE];
    char binlog_format[SETTING_SIZE];
    char packet_bytes[SETTING_SIZE];
};

static enum status session_read_setting(void *context, const struct sql_value *columns,
                                        struct error *error)
{
    struct server_settings *settings = context;
    const struct {
        struct span name;
        char *value;
    } known[] = {
        {SPAN("read_only"), settings->read_only},
        {SPAN("innodb_flush_log_at_trx_commit"), settings->flush_log},
        {SPAN("log_bin"), settings->log_bin},
        {SPAN("sync_binlog"), settings->sync_binlog},
        {SPAN("binlog_format"), settings->binlog_format},
        {SPAN("max_allowed_packet"), settings->packet_bytes},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (columns[0].kind == SQL_TEXT && span_equal(columns[0].bytes, known[i].name))
            rows_read_text(&columns[1], known[i].value, SETTING_SIZE);
    return STATUS_OK;
}

static enum status session_check_version(struct ledger_session *session, struct error *error)
{
    MYSQL *mysql = session->link.mysql;
    bool is_mariadb = mariadb_connection(mysql);

    if (mysql_get_server_version(mysql) >= (is_mariadb ? MARIADB_VERSION_MIN : MYSQL_VERSION_MIN))
        return STATUS_OK;
    return error_set(error, STATUS_FAILED, "%s is %s %s; dibs needs MySQL 8.0 or MariaDB 10.6",
                     session->store->target.text, is_mariadb ? "MariaDB" : "MySQL",
                     mysql_get_server_info(mysql));
}

static void session_warn(const struct ledger_session *session, const char *setting,
                         const char *value)
{
    log_event(LOG_WARN, "ledger_may_lose_commits",
              LOG_FIELD("ledger", LOG_TEXT(session->store->target.text)),
              LOG_FIELD("setting", LOG_TEXT(setting)), LOG_FIELD("value", LOG_TEXT(value)),
              LOG_FIELD("why", LOG_TEXT("commits are not on disk when they are answered: a crash "
                                        "of the database server can lose coupons that were "
                                        "confirmed; set it to 1")));
}

static enum status session_check_server(struct ledger_session *session, struct error *error)
{
    const char *text = session->store->target.text;
    struct server_settings settings = {0};
    enum status status = session_check_version(session, error);

    if (status != STATUS_OK || session->kind == SESSION_READER)
        return status;
    status = session_ask(
        session, SQL_CALL(STATEMENT_server_settings, session_read_setting, &settings), error);
    if (status != STATUS_OK)
        return status;
    bool has_binlog = strcmp(settings.log_bin, "ON") == 0;
    if (strcmp(settings.read_only, "OFF") != 0)
        return error_set(error, STATUS_UNAVAILABLE, "%s is a read-only replica; name the primary",
                         text);
    if (settings.flush_log[0] == '\0')
        return error_set(error, STATUS_FAILED,
                         "%s has no InnoDB; enable it, because no other engine commits safely",
                         text);
    if (has_binlog && strcmp(settings.binlog_format, "STATEMENT") == 0)
        return error_set(error, STATUS_FAILED,
                         "%s has binlog_format=STATEMENT, which cannot follow concurrent "
                         "transactions; set it to ROW or MIXED",
                         text);
    if (strtoll(settings.packet_bytes, NULL, 10) < PACKET_BYTES_MIN)
        return error_set(error, STATUS_FAILED,
                         "%s has max_allowed_packet=%s, into which no full batch of claims fits; "
                         "set it to %d or more",
                         text, settings.packet_bytes, PACKET_BYTES_MIN);
    if (strcmp(settings.flush_log, "1") != 0)
        session_warn(session, "innodb_flush_log_at_trx_commit", settings.flush_log);
    if (has_binlog && strcmp(settings.sync_binlog, "1") != 0)
        session_warn(session, "sync_binlog", settings.sync_binlog);
    return STATUS_OK;
}

/* --- locks --- */

/* Names are at most 64 characters, and their case does not count. */
static void session_name_lock(const struct ledger_session *session, const char *what,
                              char name[LEDGER_MYSQL_LOCK_SIZE])
{
    const char *database = session->store->target.database;
    char folded[256];
    size_t length = 0;

    if ((size_t)snprintf(name, LEDGER_MYSQL_LOCK_SIZE, "dibs.%s.%s", what, database) <
        LEDGER_MYSQL_LOCK_SIZE)
        return;
    for (; database[length] != '\0' && length < sizeof(folded); length++)
        folded[length] = (char)tolower((unsigned char)database[length]);
    snprintf(name, LEDGER_MYSQL_LOCK_SIZE, "dibs.%s.%016llx", what,
             (unsigned long long)hash_mac((struct hash_key){0}, folded, length));
}

static enum status session_take_lock(struct ledger_session *session, const char *name,
                                     int64_t wait_s, bool *taken, struct error *error)
{
    int64_t answer = 0;
    enum status status = session_ask(session,
                                     SQL_CALL(STATEMENT_lock_take, rows_take_i64, &answer,
                                              sql_text(span_of(name)), sql_i64(wait_s)),
                                     error);

    *taken = status == STATUS_OK && answer == 1;
    return status;
}

struct lock_holder {
    int64_t connection; /* 0: nobody */
    char user[80];
    char host[80];
};

static enum status session_read_holder(void *context, const struct sql_value *columns,
                                       struct error *error)
{
    struct lock_holder *holder = context;

    *holder = (struct lock_holder){.user = "?", .host = "?"};
    if (columns[0].kind == SQL_I64)
        holder->connection = columns[0].number;
    if (columns[1].kind == SQL_TEXT)
        rows_read_text(&columns[1], holder->user, sizeof(holder->user));
    if (columns[2].kind == SQL_TEXT)
        rows_read_text(&columns[2], holder->host, sizeof(holder->host));
    return STATUS_OK;
}

static enum status session_find_holder(struct ledger_session *session, const char *name,
                                       struct lock_holder *holder, struct error *error)
{
    return session_ask(
        session,
        SQL_CALL(STATEMENT_lock_holder, session_read_holder, holder, sql_text(span_of(name))),
        error);
}

/* The connection that was lost may not be lost for the server, and its last transaction may still
 * be under way. It is told from a stranger's by our own lock. */
static enum status session_end_former(struct ledger_session *session, struct error *error)
{
    struct lock_holder holder = {0};
    enum status status = session_find_holder(session, session->own_lock, &holder, error);

    if (status != STATUS_OK || holder.connection == 0)
        return status;
    status = session_ask(
        session, SQL_CALL(STATEMENT_connection_end, NULL, NULL, sql_i64(holder.connection)), error);
    return session->link.mysql != NULL && session->link.code == LEDGER_MYSQL_NO_CONNECTION
               ? STATUS_OK
               : status;
}

static enum status session_take_own_lock(struct ledger_session *session, bool is_first,
                                         struct error *error)
{
    bool taken = false;
    enum status status = STATUS_OK;

    session->link.code = 0;
    if (!is_first)
        status = session_end_former(session, error);
    if (status == STATUS_OK)
        status = session_take_lock(session, session->own_lock, session_timeout_s(session), &taken,
                                   error);
    if (status == STATUS_OK && !taken)
        return error_set(error, STATUS_UNAVAILABLE,
                         "our former connection to %s is still finishing its work",
                         session->store->target.text);
    return status;
}

/* The connection of a process that was killed ends when the server notices, after its last commit
 * or when it has given up on a lock. The server answers before the library gives up on it. */
static int64_t session_owner_s(const struct ledger_session *session)
{
    int64_t wait_s = session_lock_s(session) + OWNER_WAIT_S;

    if (wait_s > session_timeout_s(session) + 1)
        wait_s = session_timeout_s(session) + 1;
    return wait_s < OWNER_WAIT_MAX_S ? wait_s : OWNER_WAIT_MAX_S;
}

static enum status session_take_ownership(struct ledger_session *session, struct error *error)
{
    char name[LEDGER_MYSQL_LOCK_SIZE];
    struct lock_holder holder = {0};
    bool taken = false;
    int64_t wait_s = session_owner_s(session);

    session_name_lock(session, "owner", name);
    enum status status = session_take_lock(session, name, wait_s, &taken, error);
    if (status != STATUS_OK || taken)
        return status;
    status = session_find_holder(session, name, &holder, error);
    if (status != STATUS_OK)
        return status;
    if (holder.connection == 0)
        return error_set(error, STATUS_UNAVAILABLE,
                         "the ledger at %s was in use until just now; try again",
                         session->store->target.text);
    return error_set(
        error, STATUS_CONFLICT,
        "another process owns the ledger at %s: connection %lld of user %s from %s; stop "
        "it first (if its machine is gone, end the connection: KILL %lld)",
        session->store->target.text, (long long)holder.connection, holder.user, holder.host,
        (long long)holder.connection);
}

/* --- sharing ---
 *
 * A named lock has one holder only. So whoever shares the ledger takes one of some places, and then
 * looks whether there is an owner; an owner looks at all places after it has taken the ledger. One
 * of two who come at the same time sees the other. */

static void session_name_place(const struct ledger_session *session, int number,
                               char name[LEDGER_MYSQL_LOCK_SIZE])
{
    char what[16];

    snprintf(what, sizeof(what), "share%d", number);
    session_name_lock(session, what, name);
}

static enum status session_in_use(const struct ledger_session *session,
                                  const struct lock_holder *holder, struct error *error)
{
    return error_set(
        error, STATUS_CONFLICT,
        "the ledger at %s is in use: connection %lld of user %s from %s; a dibs with a "
        "gate of its own and those that share a gate in Redis cannot run on one "
        "ledger: stop the others, or give this one another --ledger",
        session->store->target.text, (long long)holder->connection, holder->user, holder->host);
}

static enum status session_take_share(struct ledger_session *session, struct error *error)
{
    char name[LEDGER_MYSQL_LOCK_SIZE];
    struct lock_holder owner = {0};
    bool taken = false;
    enum status status = STATUS_OK;

    /* With all places taken, one more makes no difference to an owner. */
    for (int i = 0; i < SHARE_PLACES && status == STATUS_OK && !taken; i++) {
        session_name_place(session, i, name);
        status = session_take_lock(session, name, 0, &taken, error);
    }
    session_name_lock(session, "owner", name);
    if (status == STATUS_OK)
        status = session_find_holder(session, name, &owner, error);
    if (status == STATUS_OK && owner.connection != 0)
        status = session_in_use(session, &owner, error);
    return status;
}

static enum status session_keep_sharers_out(struct ledger_session *session, struct error *error)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < SHARE_PLACES && status == STATUS_OK; i++) {
        char name[LEDGER_MYSQL_LOCK_SIZE];
        struct lock_holder holder = {0};
        bool taken = false;
        session_name_place(session, i, name);
        status = session_find_holder(session, name, &holder, error);
        if (status == STATUS_OK && holder.connection == 0)
            continue;
        if (status == STATUS_OK) /* The server may not have noticed yet that it is gone. */
            status = session_take_lock(session, name, session_owner_s(session), &taken, error);
        if (status == STATUS_OK && !taken)
            status = session_in_use(session, &holder, error);
    }
    return status;
}

static enum status session_take_locks(struct ledger_session *session, bool is_first,
                                      struct error *error)
{
    if (session->kind != SESSION_WRITER)
        return STATUS_OK;
    enum status status = session_take_own_lock(session, is_first, error);
    if (status == STATUS_OK && session->store->use == LEDGER_SHARE)
        return session_take_share(session, error);
    if (status == STATUS_OK)
        status = session_take_ownership(session, error);
    if (status == STATUS_OK)
        status = session_keep_sharers_out(session, error);
    return status;
}

/* --- operations --- */

enum status ledger_mysql_session_connect(struct ledger_session *session,
                                         enum ledger_mysql_pace pace, struct error *error)
{
    bool is_first = session->own_lock[0] == '\0';
    struct ledger_mysql_timeouts timeouts = session_timeout(session, pace);
    uint64_t number;

    if (session->kind == SESSION_WRITER && is_first) {
        random_bytes(&number, sizeof(number));
        snprintf(session->own_lock, sizeof(session->own_lock), "dibs.writer.%016llx",
                 (unsigned long long)number);
    }
    ledger_mysql_batch_reset(session->batch);
    if (session->kind == SESSION_WRITER && !is_first && session->store->on_lost != NULL)
        session->store->on_lost(session->store->context);
    enum status status = ledger_mysql_link_connect(&session->link, &timeouts, error);
    if (status != STATUS_OK)
        return status;
    status = session_set_up(session, &timeouts, error);
    if (status == STATUS_OK)
        status = session_check_server(session, error);
    if (status == STATUS_OK)
        status = session_take_locks(session, is_first, error);
    if (status == STATUS_OK)
        status = session_limit_statements(session, &timeouts, error);
    if (status == STATUS_OK)
        return STATUS_OK;
    ledger_mysql_link_close(&session->link);
    return status == STATUS_BUSY ? STATUS_UNAVAILABLE : status;
}

enum status ledger_mysql_schema_lock_take(struct ledger_session *session, struct error *error)
{
    char name[LEDGER_MYSQL_LOCK_SIZE];
    struct lock_holder holder = {0};
    bool taken = false;

    session_name_lock(session, "schema", name);
    enum status status =
        session_take_lock(session, name, session_timeout_s(session), &taken, error);
    if (status != STATUS_OK || taken)
        return status;
    status = session_find_holder(session, name, &holder, error);
    if (status != STATUS_OK)
        return status;
    return error_set(error, STATUS_UNAVAILABLE,
                     "the schema of %s is being changed by connection %lld of user %s from %s",
                     session->store->target.text, (long long)holder.connection, holder.user,
                     holder.host);
}
