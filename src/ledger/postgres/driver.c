/* driver.c: the ledger in a PostgreSQL database. */
#include <stdlib.h>

#include "ledger/postgres/session.h"
#include "ledger/rows.h"

#define SCHEMA_LOCK          0x6469626d /* "dibm" */
#define MIGRATION_TIMEOUT_MS 3600000
#define INSERT_ROWS_MAX      10000

/* --- the database --- */

static void ledger_postgres_store_close(struct ledger_store *store)
{
    if (store == NULL)
        return;
    secret_free(store->url);
    secret_free(store->password);
    free(store);
}

static enum status ledger_postgres_store_open(struct ledger_store **store,
                                              const struct store_options *options,
                                              struct error *error)
{
    struct ledger_store *opened = NULL;
    enum status status = postgres_target_check(options->url, error);

    *store = NULL;
    if (status != STATUS_OK)
        return status;
    opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a database");
    *opened = (struct ledger_store){
        .url = strdup(options->url),
        .password = options->password != NULL ? strdup(options->password) : NULL,
        .use = options->use,
        .timeout_ms = options->timeout_ms,
        .reads_only = options->reads_only,
        .on_lost = options->on_lost,
        .context = options->context,
        .has_warned = ATOMIC_FLAG_INIT,
    };
    if (opened->url == NULL || (options->password != NULL && opened->password == NULL)) {
        ledger_postgres_store_close(opened);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a database");
    }
    *store = opened;
    return STATUS_OK;
}

static void ledger_postgres_session_close(struct ledger_session *session)
{
    if (session == NULL)
        return;
    postgres_link_close(&session->link);
    postgres_parameters_release(&session->parameters);
    free(session);
}

static enum status ledger_postgres_session_open(struct ledger_store *store, enum session_kind kind,
                                                struct ledger_session **session,
                                                struct error *error)
{
    struct ledger_session *opened = calloc(1, sizeof(*opened));

    *session = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a session");
    opened->store = store;
    opened->kind = kind;
    postgres_parameters_init(&opened->parameters);
    enum status status = postgres_session_connect(opened, error);
    if (status != STATUS_OK) {
        ledger_postgres_session_close(opened);
        return status;
    }
    *session = opened;
    return STATUS_OK;
}

/* --- transactions --- */

/* A snapshot may be long: its rows come as they are read, in the order of an index. It has no time
 * limit as a whole, and sorting first would take time in which nothing comes. */
static enum status ledger_postgres_begin(struct ledger_session *session, struct error *error)
{
    enum status status = STATUS_OK;

    ensure(!session->in_transaction && session->waiting_count == 0);
    if (session->link.connection == NULL)
        status = postgres_session_reconnect(session, error);
    if (status != STATUS_OK)
        return status;
    session->in_transaction = true;
    session->has_begun = false;
    if (session->kind != SESSION_READER)
        return postgres_session_wait(session, "BEGIN", error);
    status =
        postgres_session_wait(session, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", error);
    if (status == STATUS_OK)
        status = postgres_session_wait(session, "SET LOCAL statement_timeout = 0", error);
    if (status == STATUS_OK)
        status = postgres_session_wait(session, "SET LOCAL enable_sort = off", error);
    return status;
}

static void ledger_postgres_end(struct ledger_session *session)
{
    session->in_transaction = false;
    session->has_begun = false;
    session->waiting_count = 0;
}

/* Sends COMMIT or ROLLBACK, alone. */
static enum status ledger_postgres_finish(struct ledger_session *session, const char *text,
                                          struct postgres_answer *answer, struct error *error)
{
    const struct postgres_step step = {.kind = STEP_RUN, .text = text};
    enum status status = postgres_link_ask(&session->link, &step, 1,
                                           postgres_session_timeout_ms(session), answer, error);

    ledger_postgres_end(session);
    return status;
}

/* Without a connection the COMMIT was never sent; without an answer nobody knows what became of it.
 * A server that answers with an error has not committed, and neither has one that says that it
 * rolled back. */
static enum status ledger_postgres_commit(struct ledger_session *session, struct error *error)
{
    struct postgres_answer answer = {0};

    ensure(session->in_transaction);
    if (!session->has_begun) { /* Nothing has been done. */
        ledger_postgres_end(session);
        return STATUS_OK;
    }
    enum status status = postgres_session_flush(session, error);
    if (status == STATUS_OK && session->link.connection == NULL)
        status = error_set(error, STATUS_UNAVAILABLE,
                           "the connection to PostgreSQL was lost before the commit");
    if (status != STATUS_OK)
        return status;
    status = ledger_postgres_finish(session, "COMMIT", &answer, error);
    if (status == STATUS_OK && strcmp(answer.command, "COMMIT") != 0)
        return error_set(error, STATUS_FAILED, "PostgreSQL rolled back what was to be committed");
    if (session->link.connection == NULL && session->kind != SESSION_READER)
        return STATUS_UNKNOWN;
    return status;
}

static void ledger_postgres_rollback(struct ledger_session *session)
{
    struct postgres_answer answer = {0};
    struct error error;

    if (!session->has_begun || session->link.connection == NULL)
        ledger_postgres_end(session);
    else if (ledger_postgres_finish(session, "ROLLBACK", &answer, &error) != STATUS_OK)
        postgres_link_close(&session->link); /* The server rolls back when it notices. */
}

#define SAVEPOINT "SAVEPOINT one_write"

static enum status ledger_postgres_savepoint(struct ledger_session *session, struct error *error)
{
    return postgres_session_wait(session, SAVEPOINT, error);
}

static enum status ledger_postgres_savepoint_end(struct ledger_session *session, bool keep,
                                                 struct error *error)
{
    enum status status = STATUS_OK;

    /* One that was never sent had nothing happen behind it. */
    if (session->waiting_count > 0 &&
        strcmp(session->waiting[session->waiting_count - 1], SAVEPOINT) == 0) {
        session->waiting_count--;
        return STATUS_OK;
    }
    if (!keep)
        status = postgres_session_wait(session, "ROLLBACK TO SAVEPOINT one_write", error);
    if (status == STATUS_OK)
        status = postgres_session_wait(session, "RELEASE SAVEPOINT one_write", error);
    return status;
}

/* --- statements --- */

static enum status ledger_postgres_run(struct ledger_session *session, const struct sql_call *call,
                                       struct error *error)
{
    struct postgres_answer answer = {.row = call->row,
                                     .context = call->context,
                                     .streams = session->kind == SESSION_READER &&
                                                session->in_transaction};
    enum status status = postgres_parameters_set(&session->parameters, call, error);

    if (status == STATUS_OK)
        status = postgres_session_run(session, call->statement, &answer, error);
    if (call->changed != NULL)
        *call->changed = answer.changed;
    if (answer.error_state[0] == '\0')
        return status;
    /* Another one who creates a policy at the same moment has got that id. */
    if (call->statement == STATEMENT_policy_insert && strcmp(answer.error_state, "23505") == 0)
        status = STATUS_BUSY;
    error_prefix(error, "%s", statement_names[call->statement]);
    return status;
}

/* The rows that the server inserted come back in their order. */
struct ledger_postgres_inserted {
    struct coupon_row *next;
    const struct coupon_row *end;
};

static enum status ledger_postgres_note_inserted(void *context, const struct sql_value *columns,
                                                 struct error *error)
{
    struct ledger_postgres_inserted *inserted = context;

    for (; inserted->next < inserted->end; inserted->next++) {
        const struct claim *claim = inserted->next->claim;
        if (claim->policy_id != columns[0].number || claim->seq != columns[1].number)
            continue;
        inserted->next->conflicts = false;
        inserted->next++;
        return STATUS_OK;
    }
    return error_set(error, STATUS_FAILED,
                     "PostgreSQL inserted coupon %lld-%lld out of turn; does a trigger change it?",
                     (long long)columns[0].number, (long long)columns[1].number);
}

/* What a value, a constraint or a trigger says is against a row; a trigger may have codes of its
 * own. These are against more than a row: a statement, a right, a connection, the server. */
static bool ledger_postgres_refuses_row(const char *state)
{
    static const char *const classes[] = {"00", "01", "02", "03", "08", "0A", "0B", "0L",
                                          "0P", "21", "24", "25", "26", "28", "2B", "2D",
                                          "34", "3B", "3D", "3F", "40", "42", "53", "54",
                                          "55", "57", "58", "72", "F0", "HV", "XX"};

    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strncmp(state, classes[i], 2) == 0)
            return false;
    return state[0] != '\0';
}

static enum status ledger_postgres_insert_some(struct ledger_session *session,
                                               struct coupon_row *rows, size_t count,
                                               struct error *error)
{
    struct ledger_postgres_inserted inserted = {.next = rows, .end = rows + count};
    struct postgres_answer answer = {.row = ledger_postgres_note_inserted, .context = &inserted};
    enum status status = postgres_parameters_set_coupons(&session->parameters, rows, count, error);

    for (size_t i = 0; i < count; i++)
        rows[i].conflicts = true;
    if (status == STATUS_OK)
        status = postgres_session_run(session, STATEMENT_coupon_insert, &answer, error);
    if (strcmp(answer.error_state, "23505") == 0) /* the user's slot is taken */
        return STATUS_CONFLICT;
    return status == STATUS_FAILED && ledger_postgres_refuses_row(answer.error_state)
               ? STATUS_INVALID
               : status;
}

static enum status ledger_postgres_insert_coupons(struct ledger_session *session,
                                                  struct coupon_row *rows, size_t count,
                                                  struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count && status == STATUS_OK; i += INSERT_ROWS_MAX) {
        size_t left = count - i;
        status = ledger_postgres_insert_some(
            session, rows + i, left < INSERT_ROWS_MAX ? left : INSERT_ROWS_MAX, error);
    }
    return status;
}

/* --- the schema --- */

static enum status ledger_postgres_schema_lock(struct ledger_session *session, struct error *error)
{
    enum status status = ledger_postgres_run(
        session, SQL_CALL(STATEMENT_schema_lock, NULL, NULL, sql_i64(SCHEMA_LOCK)), error);

    if (status == STATUS_BUSY)
        return error_set(error, STATUS_UNAVAILABLE,
                         "another process is migrating this database; wait until it is done");
    session->has_schema_lock = status == STATUS_OK;
    return status;
}

static void ledger_postgres_schema_unlock(struct ledger_session *session)
{
    struct error error;

    if (session->link.connection != NULL &&
        ledger_postgres_run(session,
                            SQL_CALL(STATEMENT_schema_unlock, NULL, NULL, sql_i64(SCHEMA_LOCK)),
                            &error) != STATUS_OK)
        postgres_link_close(&session->link); /* The lock ends with it. */
    session->has_schema_lock = false;
}

static enum status ledger_postgres_schema_version(struct ledger_session *session, int *version,
                                                  struct error *error)
{
    int64_t number = 0;
    enum status status =
        ledger_postgres_run(session, SQL_CALL(STATEMENT_schema_has, rows_take_i64, &number), error);

    *version = 0;
    if (status != STATUS_OK || number == 0)
        return status;
    status = ledger_postgres_run(session,
                                 SQL_CALL(STATEMENT_schema_version, rows_take_i64, &number), error);
    *version = (int)number;
    return status;
}

/* Everything of a migration and the note of it are one transaction, so that there is nothing half
 * done. A large table may take its time. */
static enum status ledger_postgres_schema_apply(struct ledger_session *session, int number,
                                                const char *name, const char *text,
                                                struct error *error)
{
    enum status status = ledger_postgres_begin(session, error);

    if (status == STATUS_OK)
        status = postgres_session_wait(session, "SET LOCAL statement_timeout = 0", error);
    if (status == STATUS_OK)
        status = postgres_session_flush(session, error);
    if (status == STATUS_OK)
        status = postgres_link_script(&session->link, text, MIGRATION_TIMEOUT_MS, error);
    if (status == STATUS_OK)
        status = ledger_postgres_run(
            session,
            SQL_CALL(STATEMENT_schema_note, NULL, NULL, sql_i64(number), sql_text(span_of(name))),
            error);
    if (status == STATUS_OK)
        status = ledger_postgres_commit(session, error);
    if (status != STATUS_OK)
        ledger_postgres_rollback(session);
    return status;
}

const struct ledger_driver ledger_postgres_driver = {
    .name = "postgres",
    .is_remote = true,
    .store_open = ledger_postgres_store_open,
    .store_close = ledger_postgres_store_close,
    .session_open = ledger_postgres_session_open,
    .session_close = ledger_postgres_session_close,
    .begin = ledger_postgres_begin,
    .commit = ledger_postgres_commit,
    .rollback = ledger_postgres_rollback,
    .savepoint = ledger_postgres_savepoint,
    .savepoint_end = ledger_postgres_savepoint_end,
    .run = ledger_postgres_run,
    .insert_coupons = ledger_postgres_insert_coupons,
    .schema_lock = ledger_postgres_schema_lock,
    .schema_unlock = ledger_postgres_schema_unlock,
    .schema_version = ledger_postgres_schema_version,
    .schema_apply = ledger_postgres_schema_apply,
};
