/* owner.h: one process per database file: a lock that dies with its holder and says who it is.
 *
 * Threads: one owner at a time.
 */
#ifndef LEDGER_OWNER_H
#define LEDGER_OWNER_H

#include "base/error.h"

struct owner_lock {
    int descriptor; /* valid while held */
    int held;
};

/* Locks "<path>-owner". CONFLICT when another process has it, with its pid and since when. */
enum status owner_lock_take(struct owner_lock *lock, const char *path,
                            struct error *error) MUST_CHECK;
void owner_lock_release(struct owner_lock *lock);

#endif
