/* check.h: whether the database file is whole, asked at the start. A large file takes seconds to be
 * read: it is checked aside while the server works already, and the process ends when damage is
 * found, as it does not begin where a small file is damaged.
 *
 * Threads: the owner's; a check aside has its own.
 */
#pragma once

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"
#include "ledger/driver.h"

struct sqlite_check {
    pthread_t thread;
    sqlite3 *database; /* its own connection, which only reads; NULL: there is no check aside */
    const char *path;
    enum ledger_integrity integrity;
    atomic_bool is_stopping;
};

/* FAILED: it is damaged, and how. */
enum status sqlite_check_now(sqlite3 *database, const char *path, enum ledger_integrity integrity,
                             struct error *error) MUST_CHECK;

/* Takes the connection over. */
enum status sqlite_check_aside(struct sqlite_check *check, sqlite3 *database, const char *path,
                               enum ledger_integrity integrity, struct error *error) MUST_CHECK;
/* Ends it where it is. Nothing where none was begun. */
void sqlite_check_stop(struct sqlite_check *check);
