/* store.h: one SQLite file: finding, locking and connecting to it, and noticing that another
 * one is in its place.
 *
 * Threads: the generation is for every thread; all else is the writer's, once the store is open.
 */
#pragma once

#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "ledger/driver.h"
#include "ledger/sqlite/check.h"

/* One process per file: a lock that dies with its holder. It is on the file itself, so it holds
 * under every name of it: a relative path, a symbolic link, a hard link. A second one is on the
 * name, so it holds when the file is exchanged. */
struct owner_lock {
    int descriptor; /* valid while held */
    bool held;
};

/* Locks the file, which is made when it is not there, readable by its owner alone: it holds the key
 * of the coupon codes. CONFLICT when another process has it; the
 * words say which. To be taken before SQLite opens the file and released after it closed it:
 * closing any descriptor of a file drops the locks that SQLite has on it. */
enum status owner_lock_take(struct owner_lock *lock, const char *path,
                            struct error *error) MUST_CHECK;

/* Locks the name as well, by a file beside it that stays: whoever is given another file of the same
 * name, because somebody replaced or deleted the first, finds that it is in use. */
enum status owner_lock_take_name(struct owner_lock *lock, const char *path,
                                 struct error *error) MUST_CHECK;
void owner_lock_release(struct owner_lock *lock);

/* Which file it is, whatever its name. */
struct sqlite_identity {
    dev_t device;
    ino_t inode;
};

struct ledger_store {
    char *path;
    bool is_still; /* only looked at, and nobody has it open: its path is a URI that says so */
    struct owner_lock name;  /* of the path: the file may be exchanged under it */
    struct owner_lock owner; /* of the file */
    struct sqlite_identity file;
    struct sqlite_identity log;  /* the WAL beside it */
    _Atomic unsigned generation; /* rises when another file takes its place */
    bool has_writer;             /* there is never a second one */
    struct sqlite_check check;   /* of a large file, after the start */
};

/* The status that SQLite's code stands for. Ends the process when a sync has failed. */
enum status ledger_sqlite_error(sqlite3 *database, int code, const char *what, struct error *error);
enum status ledger_sqlite_execute(sqlite3 *database, const char *text, const char *what,
                                  struct error *error) MUST_CHECK;
/* The single text a pragma answers. */
enum status ledger_sqlite_pragma(sqlite3 *database, const char *text, struct error *answer,
                                 struct error *error) MUST_CHECK;

enum status ledger_sqlite_store_open(struct ledger_store **store,
                                     const struct store_options *options,
                                     struct error *error) MUST_CHECK;
void ledger_sqlite_store_close(struct ledger_store *store);

/* *database is NULL unless this is OK. */
enum status ledger_sqlite_connect(const struct ledger_store *store, enum session_kind kind,
                                  sqlite3 **database, struct error *error) MUST_CHECK;
/* Neither applies the log of a file that is gone to the one in its place, nor removes it by its
 * name. */
void ledger_sqlite_disconnect(const struct ledger_store *store, sqlite3 *database);

/* Zeros: there is no such file. */
struct sqlite_identity ledger_sqlite_identify(const char *path, const char *suffix);

/* False: somebody has replaced or deleted the file, and what is written to it is lost. */
bool ledger_sqlite_is_there(const struct ledger_store *store);
/* NOT_FOUND, in words. */
enum status ledger_sqlite_exchanged(const struct ledger_store *store, struct error *error);

/* The file's own way of ledger_backup() and ledger_restore(). */
enum status ledger_sqlite_backup(const char *path, const char *to, struct ledger_copy *copy,
                                 struct error *error) MUST_CHECK;
enum status ledger_sqlite_restore(const char *path, const char *from, enum ledger_restore how,
                                  struct ledger_copy *copy, struct error *error) MUST_CHECK;

/* Bytes left where it lies; -1: not known. */
int64_t ledger_sqlite_room(const struct ledger_store *store);

/* Goes on with the file that is there now, or a new one. CONFLICT: another process has it. */
enum status ledger_sqlite_adopt(struct ledger_store *store, struct error *error) MUST_CHECK;
