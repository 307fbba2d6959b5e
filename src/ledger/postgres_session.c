/* postgres_session.c: from a URL to a connection that is safe to write through, again and again. */
#include "ledger/postgres_session.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

#define SERVER_VERSION_MIN 120000
#define OWNER_LOCK         0x64696273 /* "dibs" */
#define OWNER_WAIT_MS      2000
#define OWNER_WAIT_MAX_MS  10000
#define OWNER_PAUSE_MS     50
#define PATIENCE_MORE_MS   1000

int64_t postgres_session_patience_ms(const struct ledger_session *session)
{
    return session->store->timeout_ms + PATIENCE_MORE_MS;
}

static const char *postgres_session_text(struct ledger_session *session, const char *name)
{
    unsigned long length = 0;
    const char *text = statement_named(session->store->statements, name, &length);

    ensure(text != NULL);
    while (text[length - 1] == '\n')
        length--;
    buffer_clear(&session->text);
    buffer_append(&session->text, text, length);
    ensure(!session->text.overflowed);
    return session->text.bytes;
}

/* --- a new connection --- */

/* Runs one of the driver's own statements on the connection there is, whatever waits. */
static enum status postgres_session_try(struct ledger_session *session, const char *name,
                                        const struct sql_value *values, size_t value_count,
                                        sql_row_fn row, void *context, struct error *error)
{
    struct postgres_parameters parameters;
    struct postgres_answer answer = {.row = row, .context = context};
    struct postgres_step step = {
        .kind = STEP_RUN, .text = postgres_session_text(session, name), .parameters = &parameters};

    postgres_parameters_init(&parameters);
    enum status status = postgres_parameters_set(&parameters, values, value_count, error);
    if (status == STATUS_OK)
        status = postgres_link_ask(&session->link, &step, 1, postgres_session_patience_ms(session),
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

static void postgres_session_copy(const struct sql_value *column, char *text, size_t size)
{
    snprintf(text, size, "%.*s", (int)column->bytes.length,
             column->bytes.bytes != NULL ? column->bytes.bytes : "");
}

static enum status postgres_session_read_setup(void *context, const struct sql_value *columns,
                                               struct error *error)
{
    struct postgres_setup *setup = context;

    (void)error;
    setup->backend.pid = columns[0].number;
    postgres_session_copy(&columns[1], setup->backend.start, sizeof(setup->backend.start));
    setup->is_replica = columns[2].number != 0;
    setup->is_read_only = columns[3].number != 0;
    setup->syncs = columns[4].number != 0;
    setup->writes_full_pages = columns[5].number != 0;
    setup->has_schema = columns[6].kind != SQL_NULL;
    postgres_session_copy(&columns[7], setup->encoding, sizeof(setup->encoding));
    return STATUS_OK;
}

static struct sql_value postgres_session_number(int64_t number, char *text, size_t size)
{
    snprintf(text, size, "%lld", (long long)number);
    return sql_text(span_of(text));
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
    bool only_reads = session->kind == SESSION_READER || session->store->looks_only;
    char texts[5][24];
    const struct sql_value values[] = {
        postgres_session_number(timeout_ms, texts[0], sizeof(texts[0])),
        postgres_session_number(postgres_session_lock_ms(session), texts[1], sizeof(texts[1])),
        postgres_session_number(timeout_ms * 3, texts[2], sizeof(texts[2])),
        postgres_session_number(timeout_ms / 2000 + 1, texts[3], sizeof(texts[3])),
        postgres_session_number(only_reads ? 0 : timeout_ms, texts[4], sizeof(texts[4])),
        sql_text(only_reads ? SPAN("on") : SPAN("off")),
    };

    *setup = (struct postgres_setup){0};
    return postgres_session_try(session, "session_setup", values,
                                sizeof(values) / sizeof(values[0]), postgres_session_read_setup,
                                setup, error);
}

static enum status postgres_session_refuse(const struct ledger_session *session,
                                           const struct postgres_setup *setup, struct error *error)
{
    const PGconn *connection = session->link.connection;
    const char *host = PQhost(connection);

    if (session->store->looks_only)
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

static enum status postgres_session_read_flag(void *context, const struct sql_value *columns,
                                              struct error *error)
{
    (void)error;
    *(bool *)context = columns[0].number != 0;
    return STATUS_OK;
}

static enum status postgres_session_read_words(void *context, const struct sql_value *columns,
                                               struct error *error)
{
    struct error *words = context;

    (void)error;
    postgres_session_copy(&columns[0], words->text, sizeof(words->text));
    return STATUS_OK;
}

static enum status postgres_session_not_owner(struct ledger_session *session, struct error *error)
{
    struct sql_value lock = sql_i64(OWNER_LOCK);
    struct error who = {""};
    enum status status = postgres_session_try(session, "owner_who", &lock, 1,
                                              postgres_session_read_words, &who, error);

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
    int64_t patience_ms = postgres_session_lock_ms(session) + OWNER_WAIT_MS;
    int64_t deadline_ms =
        clock_monotonic_ms() + (patience_ms < OWNER_WAIT_MAX_MS ? patience_ms : OWNER_WAIT_MAX_MS);
    const char *statement = session->store->use == LEDGER_OWN ? "owner_take" : "owner_share";
    struct sql_value lock = sql_i64(OWNER_LOCK);
    const struct sql_value lost[] = {sql_i64(session->backend.pid),
                                     sql_text(span_of(session->backend.start))};
    bool is_owner = false;
    enum status status = STATUS_OK;

    if (session->may_own)
        status = postgres_session_try(session, "owner_end", lost, 2, NULL, NULL, error);
    /* From here on it is this connection that has the lock, also if we do not hear so. */
    if (status == STATUS_OK) {
        session->backend = *fresh;
        session->may_own = true;
    }
    while (status == STATUS_OK) {
        status = postgres_session_try(session, statement, &lock, 1, postgres_session_read_flag,
                                      &is_owner, error);
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
    if (status == STATUS_OK && session->kind == SESSION_WRITER && !store->looks_only)
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

/* A statement with its name in postgres.sql. */
struct postgres_request {
    const char *name;  /* NULL: only what waits */
    bool *is_prepared; /* NULL: not worth it */
    const struct postgres_parameters *parameters;
};

/* One exchange: what waits, then the statement, prepared first where it is not yet. */
static enum status postgres_session_exchange(struct ledger_session *session,
                                             const struct postgres_request *request,
                                             struct postgres_answer *answer, struct error *error)
{
    struct postgres_step steps[POSTGRES_WAITING_MAX + 2];
    bool prepares = request->is_prepared != NULL && !*request->is_prepared;
    size_t count = 0;

    for (; count < session->waiting_count; count++)
        steps[count] = (struct postgres_step){.kind = STEP_RUN, .text = session->waiting[count]};
    size_t prepare_at = count;
    if (prepares)
        steps[count++] =
            (struct postgres_step){.kind = STEP_PREPARE,
                                   .name = request->name,
                                   .text = postgres_session_text(session, request->name)};
    if (request->is_prepared != NULL)
        steps[count++] = (struct postgres_step){
            .kind = STEP_RUN_PREPARED, .name = request->name, .parameters = request->parameters};
    else if (request->name != NULL)
        steps[count++] =
            (struct postgres_step){.kind = STEP_RUN,
                                   .text = postgres_session_text(session, request->name),
                                   .parameters = request->parameters};
    enum status status = postgres_link_ask(&session->link, steps, count,
                                           postgres_session_patience_ms(session), answer, error);
    if (session->link.connection != NULL) {
        session->waiting_count = 0;
        if (prepares)
            *request->is_prepared = answer->failed_at > prepare_at;
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

static enum status postgres_session_request(struct ledger_session *session,
                                            const struct postgres_request *request,
                                            struct postgres_answer *answer, struct error *error)
{
    bool was_connected = session->link.connection != NULL;
    enum status status = postgres_session_ready(session, error);

    if (status == STATUS_OK)
        status = postgres_session_exchange(session, request, answer, error);
    if (was_connected && postgres_session_may_repeat(session, answer)) {
        status = postgres_session_ready(session, error);
        if (status == STATUS_OK)
            status = postgres_session_exchange(session, request, answer, error);
    }
    /* What could not be sent is missing from the transaction, which can only be rolled back. */
    session->has_begun = session->in_transaction;
    return status;
}

enum status postgres_session_run(struct ledger_session *session, enum statement statement,
                                 struct postgres_answer *answer, struct error *error)
{
    const struct postgres_request request = {.name = statement_name(statement),
                                             .is_prepared = &session->is_prepared[statement],
                                             .parameters = &session->parameters};

    return postgres_session_request(session, &request, answer, error);
}

enum status postgres_session_run_own(struct ledger_session *session, const char *name,
                                     struct postgres_answer *answer, struct error *error)
{
    const struct postgres_request request = {.name = name, .parameters = &session->parameters};

    return postgres_session_request(session, &request, answer, error);
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
    return postgres_session_request(session, &(struct postgres_request){0}, &answer, error);
}
