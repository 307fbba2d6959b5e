/* migrate.c: finds the migrations a database lacks, and runs them in order. */
#include "ledger/migrate.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "embedded_migrations.h"

static bool migrate_is_of(const char *file_name, const char *driver_name)
{
    char ending[32];
    size_t length = strlen(file_name);

    snprintf(ending, sizeof(ending), ".%s.sql", driver_name);
    return length > strlen(ending) && strcmp(file_name + length - strlen(ending), ending) == 0;
}

int migrate_newest(const char *driver_name)
{
    int newest = 0;

    for (size_t i = 0; i < embedded_migrations_count; i++)
        if (migrate_is_of(embedded_migrations[i].name, driver_name))
            newest = (int)strtol(embedded_migrations[i].name, NULL, 10);
    ensure(newest > 0);
    return newest;
}

/* Runs those above `version`; the files are in the order of their names. */
static enum status migrate_from(struct sql *sql, int version, enum ledger_migration mode,
                                ledger_migration_fn note, void *context, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < embedded_migrations_count && status == STATUS_OK; i++) {
        const struct embedded_file *file = &embedded_migrations[i];
        int number = (int)strtol(file->name, NULL, 10);
        if (!migrate_is_of(file->name, sql->driver->name) || number <= version)
            continue;
        if (note != NULL)
            note(context, number, file->name, (const char *)file->bytes);
        if (mode != LEDGER_MIGRATION_APPLY)
            continue;
        status = sql->driver->schema_apply(sql->session, number, file->name,
                                           (const char *)file->bytes, error);
        if (status == STATUS_OK)
            log_event(LOG_INFO, "migrated", LOG_FIELD("file", LOG_TEXT(file->name)));
        else
            error_prefix(error, "migration %s", file->name);
    }
    return status;
}

/* FAILED: a newer dibs wrote it. */
static enum status migrate_version(struct sql *sql, int newest, int *version, struct error *error)
{
    enum status status = sql->driver->schema_version(sql->session, version, error);

    if (status != STATUS_OK || *version <= newest)
        return status;
    return error_set(error, STATUS_FAILED,
                     "the ledger was written by a newer dibs (schema %d, this one knows %d); use "
                     "that version",
                     *version, newest);
}

enum status migrate_run(struct sql *sql, enum ledger_migration mode, ledger_migration_fn note,
                        void *context, struct error *error)
{
    int newest = migrate_newest(sql->driver->name);
    int version = 0;
    enum status status = migrate_version(sql, newest, &version, error);

    if (status != STATUS_OK || version == newest)
        return status;
    if (mode == LEDGER_MIGRATION_SHOW)
        return migrate_from(sql, version, mode, note, context, error);
    status = sql->driver->schema_lock(sql->session, error);
    if (status != STATUS_OK)
        return status;
    /* Someone else may have done it, and more, while this one waited for the lock. */
    status = migrate_version(sql, newest, &version, error);
    if (status == STATUS_OK)
        status = migrate_from(sql, version, mode, note, context, error);
    sql->driver->schema_unlock(sql->session);
    return status;
}
