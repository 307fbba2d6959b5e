/* driver.c: the ledger in MySQL 8.0 or MariaDB 10.6 and later: transactions, statements, schema.
 *
 * InnoDB, READ COMMITTED for the writer, one snapshot for a reader's transaction. The server ends a
 * transaction of its own accord (a deadlock) and takes the statements that follow as transactions
 * of their own; so a session notes that its transaction is over, and sends nothing more of it. */
#include "ledger/mysql/session.h"

#include <stdlib.h>
#include <string.h>

#include "ledger/rows.h"

/* --- opening --- */

static enum status ledger_mysql_store_open(struct ledger_store **store,
                                           const struct store_options *options, struct error *error)
{
    struct ledger_store *opened = calloc(1, sizeof(*opened));

    *store = NULL;
    if (opened == NULL || mysql_library_init(0, NULL, NULL) != 0) {
        free(opened);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the ledger");
    }
    enum status status = ledger_mysql_target_init(&opened->target, options, error);
    if (status != STATUS_OK) {
        free(opened);
        return status;
    }
    opened->use = options->use;
    opened->on_lost = options->on_lost;
    opened->context = options->context;
    *store = opened;
    return STATUS_OK;
}

static void ledger_mysql_store_close(struct ledger_store *store)
{
    if (store == NULL)
        return;
    ledger_mysql_target_release(&store->target);
    free(store);
}

static void ledger_mysql_session_close(struct ledger_session *session)
{
    if (session == NULL)
        return;
    ledger_mysql_session_close(session->schema);
    ledger_mysql_link_close(&session->link);
    ledger_mysql_batch_free(session->batch);
    free(session);
}

static enum ledger_mysql_pace ledger_mysql_pace_of(const struct ledger_session *session)
{
    return session->kind == SESSION_SCHEMA ? LEDGER_MYSQL_LONG : LEDGER_MYSQL_ORDINARY;
}

static enum status ledger_mysql_session_open(struct ledger_store *store, enum session_kind kind,
                                             struct ledger_session **session, struct error *error)
{
    struct ledger_session *opened = calloc(1, sizeof(*opened));

    *session = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a session");
    opened->store = store;
    opened->kind = kind;
    ledger_mysql_link_init(&opened->link, &store->target);
    if (kind == SESSION_WRITER && (opened->batch = ledger_mysql_batch_new()) == NULL) {
        free(opened);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a session");
    }
    enum status status = ledger_mysql_session_connect(opened, ledger_mysql_pace_of(opened), error);
    if (status != STATUS_OK) {
        ledger_mysql_session_close(opened);
        return status;
    }
    *session = opened;
    return STATUS_OK;
}

static enum status ledger_mysql_reconnect(struct ledger_session *session,
                                          enum ledger_mysql_pace pace, struct error *error)
{
    enum status status = ledger_mysql_session_connect(session, pace, error);

    /* A server that will not do may be replaced by one that does, as the lost one was. */
    return status == STATUS_FAILED ? STATUS_UNAVAILABLE : status;
}

/* --- transactions --- */

/* Statements of a transaction that is over must not reach the server. */
static enum status ledger_mysql_is_over(const struct ledger_session *session, struct error *error)
{
    ensure(session->in_transaction);
    if (session->over == STATUS_OK)
        return STATUS_OK;
    return error_set(error, session->over, "the transaction was %s",
                     session->over == STATUS_BUSY ? "undone, because others were in its way"
                                                  : "cut off with its connection");
}

/* After each statement of a transaction. */
static enum status ledger_mysql_note(struct ledger_session *session, enum status status)
{
    if (status == STATUS_OK)
        return status;
    if (session->link.mysql == NULL)
        session->over = STATUS_UNAVAILABLE;
    else if (status == STATUS_BUSY && ledger_mysql_ends_transaction(session->link.code))
        session->over = STATUS_BUSY;
    return status;
}

static enum status ledger_mysql_start(struct ledger_session *session, struct error *error)
{
    return ledger_mysql_link_execute(
        &session->link, "begin",
        session->kind == SESSION_READER
            ? SPAN("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            : SPAN("START TRANSACTION"),
        error);
}

/* A snapshot reads all there is, for as long as that takes, over a connection for that. Any other
 * transaction uses the one there is: when that turns out to be lost, nothing has been done yet, and
 * a new one takes its place. */
static enum status ledger_mysql_begin(struct ledger_session *session, struct error *error)
{
    enum ledger_mysql_pace pace = LEDGER_MYSQL_ORDINARY;
    enum status status = STATUS_OK;

    ensure(!session->in_transaction);
    if (session->kind == SESSION_READER) {
        ledger_mysql_link_close(&session->link);
        pace = LEDGER_MYSQL_LONG;
    }
    if (session->link.mysql != NULL) {
        status = ledger_mysql_start(session, error);
        if (session->link.mysql != NULL) {
            session->in_transaction = status == STATUS_OK;
            session->over = STATUS_OK;
            return status;
        }
    }
    status = ledger_mysql_reconnect(session, pace, error);
    if (status == STATUS_OK)
        status = ledger_mysql_start(session, error);
    session->in_transaction = status == STATUS_OK;
    session->over = STATUS_OK;
    return status;
}

static void ledger_mysql_rollback(struct ledger_session *session)
{
    if (!session->in_transaction)
        return;
    session->in_transaction = false;
    if (session->link.mysql == NULL)
        return;
    if (session->kind == SESSION_READER ||
        ledger_mysql_link_execute(&session->link, "rollback", SPAN("ROLLBACK"), NULL) != STATUS_OK)
        ledger_mysql_link_close(&session->link);
}

/* All answers have been read by now, so the COMMIT is what an error belongs to. One that leaves a
 * doubt also ends the connection: whoever looks afterwards finds it gone, and the commit decided.
 */
static enum status ledger_mysql_commit(struct ledger_session *session, struct error *error)
{
    enum status status = ledger_mysql_is_over(session, error);

    if (status != STATUS_OK)
        return status;
    status = ledger_mysql_link_execute(&session->link, "commit", SPAN("COMMIT"), error);
    if (status != STATUS_OK && !ledger_mysql_leaves_doubt(session->link.code))
        return ledger_mysql_note(session, status);
    session->in_transaction = false;
    if (status != STATUS_OK || session->kind == SESSION_READER)
        ledger_mysql_link_close(&session->link);
    return status == STATUS_OK ? STATUS_OK : STATUS_UNKNOWN;
}

/* Setting a savepoint takes the place of the last one of its name; keeping one needs no word. */
static enum status ledger_mysql_savepoint(struct ledger_session *session, struct error *error)
{
    enum status status = ledger_mysql_is_over(session, error);

    if (status != STATUS_OK)
        return status;
    return ledger_mysql_note(
        session,
        ledger_mysql_link_execute(&session->link, "savepoint", SPAN("SAVEPOINT one_write"), error));
}

static enum status ledger_mysql_savepoint_end(struct ledger_session *session, bool keep,
                                              struct error *error)
{
    enum status status = ledger_mysql_is_over(session, error);

    if (status != STATUS_OK || keep)
        return status;
    return ledger_mysql_note(
        session, ledger_mysql_link_execute(&session->link, "savepoint",
                                           SPAN("ROLLBACK TO SAVEPOINT one_write"), error));
}

/* --- statements --- */

/* Two who make a policy at the same time may have found the same next id. */
static enum status ledger_mysql_run_inside(struct ledger_session *session,
                                           const struct sql_call *call, struct error *error)
{
    enum status status = ledger_mysql_is_over(session, error);

    if (status != STATUS_OK)
        return status;
    session->link.code = 0;
    status = ledger_mysql_link_run(&session->link, call, error);
    if (status == STATUS_FAILED && call->statement == STATEMENT_policy_insert &&
        session->link.code == LEDGER_MYSQL_DUPLICATE)
        return STATUS_BUSY;
    return ledger_mysql_note(session, status);
}

/* Outside a transaction, a connection that turns out to be lost is replaced and the statement sent
 * again, unless rows of it have been shown. */
static enum status ledger_mysql_run_one(struct ledger_session *session, const struct sql_call *call,
                                        struct error *error)
{
    if (session->in_transaction)
        return ledger_mysql_run_inside(session, call, error);
    if (session->link.mysql != NULL) {
        enum status status = ledger_mysql_link_run(&session->link, call, error);
        if (session->link.mysql != NULL || session->link.row_count > 0)
            return status;
    }
    enum status status = ledger_mysql_reconnect(session, ledger_mysql_pace_of(session), error);
    return status == STATUS_OK ? ledger_mysql_link_run(&session->link, call, error) : status;
}

/* A count per lease, as a subquery, would read the whole policy for each of its leases: MySQL finds
 * a range by an index only when it knows both ends before it starts. So lease_balance only names
 * the leases, and lease_rows is asked for each of them. All of it belongs to one moment when it is
 * asked in a snapshot. */
static enum status ledger_mysql_leases_count(struct ledger_session *session,
                                             const struct lease *lease, int64_t *count,
                                             struct error *error)
{
    int64_t end_seq;

    if (__builtin_add_overflow(lease->first_seq, lease->count, &end_seq))
        end_seq = INT64_MAX;
    return ledger_mysql_run_one(session,
                                SQL_CALL(STATEMENT_lease_rows, rows_take_i64, count,
                                         sql_i64(lease->policy_id), sql_i64(lease->first_seq),
                                         sql_i64(end_seq)),
                                error);
}

static enum status ledger_mysql_leases_balance(struct ledger_session *session,
                                               const struct sql_call *call, struct error *error)
{
    struct rows_list list = {.read = rows_read_lease, .row_size = sizeof(struct lease)};
    int64_t count = 0;
    int64_t balance = 0;
    enum status status = ledger_mysql_run_one(
        session, SQL_CALL(STATEMENT_lease_balance, rows_gather, &list, call->values[0]), error);

    const struct lease *leases = (const struct lease *)(const void *)list.rows;
    for (size_t i = 0; i < list.count && status == STATUS_OK; i++) {
        status = ledger_mysql_leases_count(session, &leases[i], &count, error);
        if (status == STATUS_OK)
            balance += leases[i].count - count;
    }
    free(list.rows);
    const struct sql_value column = sql_i64(balance);
    return status == STATUS_OK ? call->row(call->context, &column, error) : status;
}

static enum status ledger_mysql_run(struct ledger_session *session, const struct sql_call *call,
                                    struct error *error)
{
    return call->statement == STATEMENT_lease_balance
               ? ledger_mysql_leases_balance(session, call, error)
               : ledger_mysql_run_one(session, call, error);
}

static enum status ledger_mysql_insert_coupons(struct ledger_session *session,
                                               struct coupon_row *rows, size_t count,
                                               struct error *error)
{
    enum status status = ledger_mysql_is_over(session, error);

    if (status != STATUS_OK)
        return status;
    return ledger_mysql_note(
        session, ledger_mysql_batch_insert(session->batch, &session->link, rows, count, error));
}

/* --- the schema --- */

/* Changing a large table takes long, which a writer's connection does not allow for. */
static enum status ledger_mysql_schema_lock(struct ledger_session *session, struct error *error)
{
    ensure(session->schema == NULL);
    enum status status =
        ledger_mysql_session_open(session->store, SESSION_SCHEMA, &session->schema, error);

    if (status == STATUS_OK)
        status = ledger_mysql_schema_lock_take(session->schema, error);
    if (status == STATUS_OK)
        return STATUS_OK;
    ledger_mysql_session_close(session->schema);
    session->schema = NULL;
    return status;
}

/* The lock ends with its connection. */
static void ledger_mysql_schema_unlock(struct ledger_session *session)
{
    ledger_mysql_session_close(session->schema);
    session->schema = NULL;
}

static enum status ledger_mysql_schema_version(struct ledger_session *session, int *version,
                                               struct error *error)
{
    int64_t number = 0;

    session->link.code = 0;
    enum status status = ledger_mysql_run_one(
        session, SQL_CALL(STATEMENT_schema_version, rows_take_i64, &number), error);
    *version = (int)number;
    return session->link.code == LEDGER_MYSQL_NO_TABLE ? STATUS_OK : status;
}

/* The next statement of a migration: up to a semicolon at the end of a line. */
static struct span ledger_mysql_next_statement(const char **text)
{
    struct span statement = {.bytes = *text};
    const char *end = strstr(*text, ";\n");

    if (end == NULL)
        return statement;
    statement.length = (size_t)(end - *text);
    *text = end + 2;
    return statement;
}

static enum status ledger_mysql_read_stranger(void *context, const struct sql_value *columns,
                                              struct error *error)
{
    struct error *name = context;

    rows_read_text(&columns[0], name->text, sizeof(name->text));
    return STATUS_OK;
}

/* Statements that do not mind a table that is there would take a stranger's for ours. */
static enum status ledger_mysql_refuse_strangers(struct ledger_mysql_link *link,
                                                 struct error *error)
{
    struct error name = {""};
    enum status status = ledger_mysql_link_run(
        link, SQL_CALL(STATEMENT_schema_stranger, ledger_mysql_read_stranger, &name), error);

    if (status != STATUS_OK || name.text[0] == '\0')
        return status;
    return error_set(error, STATUS_FAILED,
                     "%s has a table %s already that is not a ledger's; give dibs a database of "
                     "its own",
                     link->target->text, name.text);
}

/* Not in a transaction: MySQL commits after each change of the schema. A migration that was cut
 * short is run again, with statements that do not mind. */
static enum status ledger_mysql_schema_apply(struct ledger_session *session, int number,
                                             const char *name, const char *text,
                                             struct error *error)
{
    ensure(session->schema != NULL);
    struct ledger_mysql_link *link = &session->schema->link;
    struct span statement = ledger_mysql_next_statement(&text);
    enum status status = ledger_mysql_refuse_strangers(link, error);

    while (statement.length > 0 && status == STATUS_OK) {
        if (link->mysql == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "the connection was lost");
        status = ledger_mysql_link_execute(link, "schema", statement, error);
        statement = ledger_mysql_next_statement(&text);
    }
    if (status != STATUS_OK)
        return status;
    return ledger_mysql_link_run(
        link, SQL_CALL(STATEMENT_schema_note, NULL, NULL, sql_i64(number), sql_text(span_of(name))),
        error);
}

const struct ledger_driver ledger_mysql_driver = {
    .name = "mysql",
    .is_remote = true,
    .store_open = ledger_mysql_store_open,
    .store_close = ledger_mysql_store_close,
    .session_open = ledger_mysql_session_open,
    .session_close = ledger_mysql_session_close,
    .begin = ledger_mysql_begin,
    .commit = ledger_mysql_commit,
    .rollback = ledger_mysql_rollback,
    .savepoint = ledger_mysql_savepoint,
    .savepoint_end = ledger_mysql_savepoint_end,
    .run = ledger_mysql_run,
    .insert_coupons = ledger_mysql_insert_coupons,
    .schema_lock = ledger_mysql_schema_lock,
    .schema_unlock = ledger_mysql_schema_unlock,
    .schema_version = ledger_mysql_schema_version,
    .schema_apply = ledger_mysql_schema_apply,
};
