/* check.c: SQLite's own checks of a file, at once or on a thread. */
#include "ledger/sqlite/check.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "ledger/sqlite/store.h"

enum status sqlite_check_now(sqlite3 *database, const char *path, enum ledger_integrity integrity,
                             struct error *error)
{
    struct error answer;

    if (integrity == LEDGER_CHECK_OFF)
        return STATUS_OK;
    enum status status = ledger_sqlite_pragma(
        database,
        integrity == LEDGER_CHECK_FULL ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)",
        &answer, error);
    if (status == STATUS_OK && strcmp(answer.text, "ok") != 0)
        return error_set(error, STATUS_FAILED,
                         "%s is damaged: %s; restore a backup, or save what is left with "
                         "`sqlite3 %s .recover`",
                         path, answer.text, path);
    return status;
}

static void *sqlite_check_main(void *context)
{
    struct sqlite_check *check = context;
    struct error error = {""};
    int64_t started_ms = clock_monotonic_ms();
    enum status status = sqlite_check_now(check->database, check->path, check->integrity, &error);

    if (atomic_load(&check->is_stopping))
        return NULL;
    if (status == STATUS_FAILED) {
        log_event(LOG_ERROR, "database_damaged", LOG_FIELD("error", LOG_TEXT(error.text)),
                  LOG_FIELD("next", LOG_TEXT("the process ends")));
        log_flush();
        _exit(1);
    }
    log_event(status == STATUS_OK ? LOG_INFO : LOG_WARN, "database_checked",
              LOG_FIELD("words", LOG_TEXT(status == STATUS_OK ? "ok" : error.text)),
              LOG_FIELD("ms", LOG_I64(clock_monotonic_ms() - started_ms)));
    return NULL;
}

enum status sqlite_check_aside(struct sqlite_check *check, sqlite3 *database, const char *path,
                               enum ledger_integrity integrity, struct error *error)
{
    *check = (struct sqlite_check){.database = database, .path = path, .integrity = integrity};
    if (pthread_create(&check->thread, NULL, sqlite_check_main, check) != 0) {
        sqlite3_close(database);
        check->database = NULL;
        return error_set(error, STATUS_UNAVAILABLE, "cannot start a thread");
    }
    (void)pthread_setname_np(check->thread, "ledger-check");
    return STATUS_OK;
}

void sqlite_check_stop(struct sqlite_check *check)
{
    if (check->database == NULL)
        return;
    atomic_store(&check->is_stopping, true);
    sqlite3_interrupt(check->database);
    pthread_join(check->thread, NULL);
    sqlite3_close(check->database);
    check->database = NULL;
}
