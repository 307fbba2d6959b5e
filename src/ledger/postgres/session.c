/* session.c: from a URL to a connection that is safe to write through, again and again. */
#include "ledger/postgres/session.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "ledger/rows.h"

#define SERVER_VERSION_MIN 120000
#define OWNER_LOCK         0x64696273 /* "dibs" */
#define OWNER_WAIT_MS      2000
#define OWNER_WAIT_MAX_MS  10000
#define OWNER_PAUSE_MS     50
#define PATIENCE_MORE_MS   1000

int64_t postgres_session_timeout_ms(const struct ledger_session *session)
{
    return session->store->timeout_ms + PATIENCE_MORE_MS;
}

/* --- a new connection --- */

/* Runs one of the driver's own statements on the connection there is, whatever waits. */
static enum status postgres_session_try(struct ledger_session *session, const struct sql_call *call,
                                        struct error *error)
{
    struct postgres_parameters parameters;
    struct postgres_answer answer = {.row = call->row, .context = call->context};
    struct postgres_step step = {
        .kind = STEP_RUN, .text = postgres_statements[call->statement], .parameters = &parameters};

    postgres_parameters_init(&parameters);
    enum status status = postgres_parameters_set(&parameters, call, error);
    if (status == STATUS_OK)
        status = postgres_link_ask(&session->link, &step, 1, postgres_session_timeout_ms(session),
                                   &answer, error);
    postgres_parameters_release(&parameters);
    return status;
}

/* What session_setup says about the server. */
struct postgres_setup {
    struct postgres_backend backend;
    bool is_replica;
    bool is_read_only;
    bool syncs;
    bool writes_full_pages;
    bool has_schema;
    char encoding[32];
};

static enum status postgres_session_read_setup(void *context, const struct sql_value *columns,
                                               struct error *error)
{
    struct postgres_setup *setup = context;

    setup->backend.pid = columns[0].number;
    rows_read_text(&columns[1], setup->backend.start, sizeof(setup->backend.start));
    setup->is_replica = columns[2].number != 0;
    setup->is_read_only = columns[3].number != 0;
    setup->syncs = columns[4].number != 0;
    setup->writes_full_pages = columns[5].number != 0;
    setup->has_schema = columns[6].kind != SQL_NULL;
    rows_read_text(&columns[7], setup->encoding, sizeof(setup->encoding));
    return STATUS_OK;
}

/* A lock is given up before the whole statement is, so that the two are told apart. */
static int64_t postgres_session_lock_ms(const struct ledger_session *session)
{
    return session->store->timeout_ms / 2 + 1;
}

/* A process of ours that stalls must not hold locks for long, nor a machine that is gone; one that
 * only reads may take its time with what it was sent. */
static enum status postgres_session_set_up(struct ledger_session *session,
                                           struct postgres_setup *setup, struct error *error)
{
    int64_t timeout_ms = session->store->timeout_ms;
    bool only_reads = session->kind == SESSION_READER || session->store->reads_only;

    *setup = (struct postgres_setup){0};
    return postgres_session_try(
        session,
        SQL_CALL(STATEMENT_session_setup, postgres_session_read_setup, setup, sql_i64(timeout_ms),
                 sql_i64(postgres_session_lock_ms(session)), sql_i64(timeout_ms * 3),
                 sql_i64(timeout_ms / 2000 + 1), sql_i64(only_reads ? 0 : timeout_ms),
                 sql_text(only_reads ? SPAN("on") : SPAN("off"))),
        error);
}

static enum status postgres_session_refuse(const struct ledger_session *session,
                                           const struct postgres_setup *setup, struct error *error)
{
    const PGconn *connection = session->link.connection;
    const char *host = PQhost(connection);

    if (session->store->reads_only)
        return STATUS_OK;
    if (setup->is_replica)
        return error_set(error, STATUS_UNAVAILABLE,
                         "PostgreSQL at %s is a read-only replica; name the primary in the "
                         "ledger's URL, or all hosts and target_session_attrs=read-write",
                         host);
    if (setup->is_read_only && session->kind != SESSION_READER)
        return error_set(error, STATUS_UNAVAILABLE,
                         "PostgreSQL at %s only lets user %s read; set "
                         "default_transaction_read_only off",
                         host, PQuser(connection));
    if (!setup->has_schema)
        return error_set(error, STATUS_FAILED,
                         "user %s has no schema in database %s to keep tables in; create one, or "
                         "set its search_path",
                         PQuser(connection), PQdb(connection));
    if (strcmp(setup->encoding, "UTF8") != 0 && strcmp(setup->encoding, "SQL_ASCII") != 0)
        return error_set(error, STATUS_FAILED,
                         "database %s has the encoding %s; create it with ENCODING 'UTF8'",
                         PQdb(connection), setup->encoding);
    return STATUS_OK;
}

/* What does not keep us from running, but somebody should know; once. */
static void postgres_session_warn(struct ledger_session *session,
                                  const struct postgres_setup *setup)
{
    bool has_pooler = PQbackendPID(session->link.connection) != setup->backend.pid;

    if ((setup->syncs && setup->writes_full_pages && !has_pooler) ||
        atomic_flag_test_and_set(&session->store->has_warned))
        return;
    if (!setup->syncs || !setup->writes_full_pages)
        log_event(
            LOG_WARN, "ledger_may_lose_commits",
            LOG_FIELD("why", LOG_TEXT(setup->syncs ? "full_page_writes is off" : "fsync is off")),
            LOG_FIELD("next", LOG_TEXT("switch it on in postgresql.conf")));
    if (has_pooler)
        log_event(LOG_WARN, "ledger_behind_pooler",
                  LOG_FIELD("next", LOG_TEXT("let it pool sessions, not transactions: locks and "
                                             "prepared statements belong to a session")));
}

/* --- ownership --- */

static enum status postgres_session_read_text(void *context, const struct sql_value *columns,
                                              struct error *error)
{
    struct error *failure = context;

    rows_read_text(&columns[0], failure->text, sizeof(failure->text));
    return STATUS_OK;
}

static enum status postgres_session_not_owner(struct ledger_session *session, struct error *error)
{
    struct error who = {""};
    enum status status = postgres_session_try(
        session,
        SQL_CALL(STATEMENT_owner_who, postgres_session_read_text, &who, sql_i64(OWNER_LOCK)),
        error);

    if (status != STATUS_OK)
        return status;
    if (who.text[0] == '\0')
        return error_set(error, STATUS_UNAVAILABLE,
                         "this ledger was in use until just now; try again");
    return error_set(error, STATUS_CONFLICT,
                     "this ledger is in use (%s); only one dibs with a gate of its own may run on "
                     "it, and none beside those that share a gate in Redis: stop that one, or give "
                     "this one another --ledger",
                     who.text);
}

/* Takes the ledger for itself, or its share of it. Waits a while: the connection of a process that
 * was killed ends when the server notices, after its last commit, or when it has given up on a
 * lock. If it is held by a connection that we lost, that one is ended. */
static enum status postgres_session_own(struct ledger_session *session,
                                        const struct postgres_backend *fresh, struct error *error)
{
    int64_t timeout_ms = postgres_session_lock_ms(session) + OWNER_WAIT_MS;
    int64_t deadline_ms =
        clock_monotonic_ms() + (timeout_ms < OWNER_WAIT_MAX_MS ? timeout_ms : OWNER_WAIT_MAX_MS);
    enum statement statement =
        session->store->use == LEDGER_OWN ? STATEMENT_owner_take : STATEMENT_owner_share;
    int64_t is_owner = 0;
    enum status status = STATUS_OK;

    if (session->may_own)
        status = postgres_session_try(session,
                                      SQL_CALL(STATEMENT_owner_end, NULL, NULL,
                                               sql_i64(session->backend.pid),
                                               sql_text(span_of(session->backend.start))),
                                      error);
    /* From here on it is this connection that has the lock, also if we do not hear so. */
    if (status == STATUS_OK) {
        session->backend = *fresh;
        session->may_own = true;
    }
    while (status == STATUS_OK) {
        status = postgres_session_try(
            session, SQL_CALL(statement, rows_take_i64, &is_owner, sql_i64(OWNER_LOCK)), error);
        if (status != STATUS_OK || is_owner)
            break;
        if (clock_monotonic_ms() >= deadline_ms)
            return postgres_session_not_owner(session, error);
        nanosleep(&(struct timespec){.tv_nsec = OWNER_PAUSE_MS * 1000000L}, NULL);
    }
    return status;
}

enum status postgres_session_connect(struct ledger_session *session, struct error *error)
{
    const struct ledger_store *store = session->store;
    const struct postgres_target target = {.url = store->url,
                                           .password = store->password,
                                           .timeout_ms = store->timeout_ms,
                                           .is_first = session->backend.pid == 0};
    struct postgres_setup setup;

    if (session->kind == SESSION_WRITER && !target.is_first && store->on_lost != NULL)
        store->on_lost(store->context);
    enum status status = postgres_link_open(&session->link, &target, error);
    if (status != STATUS_OK)
        return status;
    memset(session->is_prepared, 0, sizeof(session->is_prepared));
    int version = PQserverVersion(session->link.connection);
    if (version < SERVER_VERSION_MIN)
        status = error_set(error, STATUS_FAILED, "PostgreSQL %d is too old; use 12 or newer",
                           version / 10000);
    if (status == STATUS_OK)
        status = postgres_session_set_up(session, &setup, error);
    if (status == STATUS_OK)
        status = postgres_session_refuse(session, &setup, error);
    if (status == STATUS_OK && session->kind == SESSION_WRITER && !store->reads_only)
        status = postgres_session_own(session, &setup.backend, error);
    if (status != STATUS_OK) {
        postgres_link_close(&session->link);
        return status;
    }
    postgres_session_warn(session, &setup);
    session->backend = setup.backend;
    return STATUS_OK;
}

enum status postgres_session_reconnect(struct ledger_session *session, struct error *error)
{
    enum status status = postgres_session_connect(session, error);

    /* A server that will not do may be replaced by one that does, as the lost one was. */
    return status == STATUS_FAILED ? STATUS_UNAVAILABLE : status;
}

/* --- running --- */

#define NO_STATEMENT STATEMENT_COUNT /* only what waits */

/* One exchange: what waits, then the statement, prepared first where it is not yet. */
static enum status postgres_session_exchange(struct ledger_session *session,
                                             enum statement statement,
                                             struct postgres_answer *answer, struct error *error)
{
    struct postgres_step steps[POSTGRES_WAITING_MAX + 2];
    bool prepares = statement != NO_STATEMENT && !session->is_prepared[statement];
    size_t count = 0;

    for (; count < session->waiting_count; count++)
        steps[count] = (struct postgres_step){.kind = STEP_RUN, .text = session->waiting[count]};
    size_t prepare_at = count;
    if (prepares)
        steps[count++] = (struct postgres_step){.kind = STEP_PREPARE,
                                                .name = statement_names[statement],
                                                .text = postgres_statements[statement]};
    if (statement != NO_STATEMENT)
        steps[count++] = (struct postgres_step){.kind = STEP_RUN_PREPARED,
                                                .name = statement_names[statement],
                                                .parameters = &session->parameters};
    enum status status = postgres_link_ask(&session->link, steps, count,
                                           postgres_session_timeout_ms(session), answer, error);
    if (session->link.connection != NULL) {
        session->waiting_count = 0;
        if (prepares)
            session->is_prepared[statement] = answer->failed_at > prepare_at;
    }
    return status;
}

/* A connection that was lost can be replaced without anyone noticing, as long as nothing that
 * belongs to it is lost with it. One that did not answer has cost enough time already. */
static bool postgres_session_may_repeat(const struct ledger_session *session,
                                        const struct postgres_answer *answer)
{
    return session->link.connection == NULL && !session->link.timed_out && !session->has_begun &&
           !session->has_schema_lock && answer->row_count == 0;
}

static enum status postgres_session_ready(struct ledger_session *session, struct error *error)
{
    if (session->link.connection != NULL)
        return STATUS_OK;
    if (session->has_begun || session->has_schema_lock)
        return error_set(error, STATUS_UNAVAILABLE,
                         "the connection to PostgreSQL was lost in the middle of a transaction");
    return postgres_session_reconnect(session, error);
}

enum status postgres_session_run(struct ledger_session *session, enum statement statement,
                                 struct postgres_answer *answer, struct error *error)
{
    bool was_connected = session->link.connection != NULL;
    enum status status = postgres_session_ready(session, error);

    if (status == STATUS_OK)
        status = postgres_session_exchange(session, statement, answer, error);
    if (was_connected && postgres_session_may_repeat(session, answer)) {
        status = postgres_session_ready(session, error);
        if (status == STATUS_OK)
            status = postgres_session_exchange(session, statement, answer, error);
    }
    /* What could not be sent is missing from the transaction, which can only be rolled back. */
    session->has_begun = session->in_transaction;
    return status;
}

enum status postgres_session_wait(struct ledger_session *session, const char *text,
                                  struct error *error)
{
    if (session->waiting_count == POSTGRES_WAITING_MAX) {
        enum status status = postgres_session_flush(session, error);
        if (status != STATUS_OK)
            return status;
    }
    session->waiting[session->waiting_count++] = text;
    return STATUS_OK;
}

enum status postgres_session_flush(struct ledger_session *session, struct error *error)
{
    struct postgres_answer answer = {0};

    if (session->waiting_count == 0)
        return STATUS_OK;
    return postgres_session_run(session, NO_STATEMENT, &answer, error);
}
