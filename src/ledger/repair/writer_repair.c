/* writer_repair.c: a transaction of its own, for a database that is older than what was committed.
 */
#include "base/random.h"
#include "ledger/migrate.h"
#include "ledger/writer.h"

enum status writer_repair(struct writer *writer, write_fn apply, void *argument,
                          struct error *error)
{
    struct waiting_write repair = {
        .apply = apply, .argument = argument, .status = STATUS_UNAVAILABLE, .error = error};

    pthread_mutex_lock(&writer->lock);
    if (writer->repair != NULL) {
        pthread_mutex_unlock(&writer->lock);
        return error_set(error, STATUS_CONFLICT, "a repair is under way");
    }
    writer->repair = &repair;
    pthread_cond_signal(&writer->work);
    while (!repair.done)
        pthread_cond_wait(&writer->finished, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
    return repair.status;
}

/* Opens the file that is in the place of ours, and brings its schema up to date. */
static enum status writer_adopt(struct writer *writer, struct error *error)
{
    struct sql schema = {.driver = writer->sql.driver};
    enum status status =
        schema.driver->session_open(writer->sql.store, SESSION_SCHEMA, &schema.session, error);

    if (status != STATUS_OK)
        return status;
    writer->mark.is_another = true;
    status = migrate_run(&schema, LEDGER_MIGRATION_APPLY, NULL, NULL, error);
    schema.driver->session_close(schema.session);
    return status;
}

/* Repairs a file, if it is not the one that was written to. */
static enum status writer_repair_file(struct writer *writer, const struct waiting_write *repair,
                                      bool *is_done, struct error *error)
{
    struct sql *sql = &writer->sql;
    enum status status = mark_check(&writer->mark, sql, error);

    *is_done = false;
    if (status != STATUS_FAILED || !writer->mark.is_behind)
        return status;
    status = writer_adopt(writer, error);
    if (status == STATUS_OK)
        status = sql->driver->begin(sql->session, error);
    if (status == STATUS_OK) {
        outbox_begin(sql->outbox);
        status = repair->apply(sql, repair->argument, error);
    }
    if (status == STATUS_OK)
        status = sql->driver->commit(sql->session, error);
    *is_done = status == STATUS_OK;
    if (*is_done)
        writer->mark.is_another = writer->mark.is_behind = false;
    else
        sql->driver->rollback(sql->session);
    return status == STATUS_NOT_FOUND ? STATUS_UNAVAILABLE : status;
}

/* The body runs only on a database that is older than what we have committed. */
static enum status writer_repair_once(struct writer *writer, const struct waiting_write *repair,
                                      bool *is_done, struct error *error)
{
    struct sql *sql = &writer->sql;
    enum status status = mark_begin(&writer->mark, sql, error);

    *is_done = false;
    if (status == STATUS_OK)
        status = mark_compare(&writer->mark, sql, error);
    if (status == STATUS_CONFLICT)
        writer_die(error);
    if (status == STATUS_FAILED && writer->mark.is_behind) {
        outbox_begin(sql->outbox);
        status = repair->apply(sql, repair->argument, error);
        if (status == STATUS_OK)
            status = mark_repair(&writer->mark, sql, error);
        if (status == STATUS_OK)
            status = sql->driver->commit(sql->session, error);
        mark_repaired(&writer->mark, status);
        *is_done = status == STATUS_OK;
    }
    if (!*is_done)
        sql->driver->rollback(sql->session);
    return status;
}

/* A commit that was not answered is looked up at once; if that does not work, whoever uses the mark
 * next finds out. */
static enum status writer_try_repair(struct writer *writer, struct waiting_write *repair,
                                     bool *is_done)
{
    struct error error = {""};
    enum status status = STATUS_BUSY;

    for (int i = 0; i < WRITER_BUSY_TRIES && status == STATUS_BUSY; i++) {
        if (i > 0)
            writer_sleep_ms((int64_t)random_below(WRITER_BUSY_PAUSE_MS * (uint64_t)i + 1));
        status = writer->sql.driver->is_remote
                     ? writer_repair_once(writer, repair, is_done, &error)
                     : writer_repair_file(writer, repair, is_done, &error);
    }
    if (status == STATUS_UNKNOWN) {
        enum status found = mark_check(&writer->mark, &writer->sql, &error);
        if (found == STATUS_CONFLICT)
            writer_die(&error);
        *is_done = found == STATUS_OK;
        if (found == STATUS_OK)
            status = STATUS_OK;
        else if (writer->mark.is_behind)
            status = STATUS_UNAVAILABLE;
    }
    if (repair->error != NULL)
        *repair->error = error;
    return status == STATUS_BUSY ? STATUS_UNAVAILABLE : status;
}

void writer_serve_repair(struct writer *writer)
{
    struct waiting_write *repair = writer->repair;
    struct error none = {""};
    bool is_done = false;

    if (repair == NULL)
        return;
    pthread_mutex_unlock(&writer->lock);
    repair->status = writer_try_repair(writer, repair, &is_done);
    if (is_done && !writer->is_in_doubt)
        writer_set_health(writer, STATUS_OK, &none);
    pthread_mutex_lock(&writer->lock);
    writer->repair = NULL;
    repair->done = true;
    pthread_cond_broadcast(&writer->finished);
}
