/* vfs.h: a thin layer under SQLite that turns the many small writes of a commit into one.
 *
 * SQLite appends each changed page to the WAL with two writes. The writer's frames are gathered in
 * memory instead and handed to the file system as one write when SQLite syncs, which with
 * synchronous=FULL it does before it lets anyone see a commit. Everything else passes through.
 *
 * Threads: registering is safe from any; a file belongs to its connection's thread.
 */
#pragma once

/* Registers the layer once and returns its name for sqlite3_open_v2(). */
const char *sqlite_vfs_register(void);
