/* vfs.h: a thin layer under SQLite that turns the many small writes of a commit into one, and lets
 * somebody else sync the main file.
 *
 * SQLite appends each changed page to the WAL with two writes. The writer's frames are gathered in
 * memory instead and handed to the file system as one write when SQLite syncs, which with
 * synchronous=FULL it does before it lets anyone see a commit. Everything else passes through.
 *
 * Threads: registering is safe from any; a file belongs to its connection's thread.
 */
#pragma once

#include <sqlite3.h>

/* Registers the layer once and returns its name for sqlite3_open_v2(). */
const char *sqlite_vfs_register(void);

/* Syncs the main file of a connection in SQLite's stead: SQLITE_OK says that all of it is durable,
 * and SQLITE_BUSY that it is not yet, which ends a checkpoint that would have made the log
 * unnecessary. */
typedef int (*sqlite_vfs_sync_fn)(void *context);

/* From now on this connection's main file is synced so; NULL: as SQLite does it. */
void sqlite_vfs_sync_main(sqlite3 *database, sqlite_vfs_sync_fn sync, void *context);
