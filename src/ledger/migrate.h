/* migrate.h: numbered SQL files that bring a database's schema up to date.
 *
 * A file is named NUMBER_what.DIALECT.sql; the numbers rise, and a database notes the last it has.
 *
 * Threads: one session, one thread.
 */
#pragma once

#include "ledger/driver.h"

/* The number of the newest migration of that dialect. */
int migrate_newest(const char *driver_name);

/* Tells of, and with LEDGER_MIGRATION_APPLY runs, what the database lacks, while nobody else does.
 * A database that lacks nothing is only read. `note` may be NULL. FAILED: a newer dibs wrote it. */
enum status migrate_run(struct sql *sql, enum ledger_migration mode, ledger_migration_fn note,
                        void *context, struct error *error) MUST_CHECK;
