/* owner.h: one process per database file: a lock that dies with its holder.
 *
 * The lock is on the file itself, so it holds under every name of it: a relative path, a symbolic
 * link, a hard link. A second one is on the name, so it holds when the file is exchanged.
 *
 * Threads: one owner at a time.
 */
#ifndef LEDGER_OWNER_H
#define LEDGER_OWNER_H

#include <stdbool.h>

#include "base/error.h"

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

#endif
