/* backup.h: copies of a ledger that is a file: taken while it is in use, and put in its place.
 *
 * Threads: every function may be called from any thread, also of another process than the server's.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* What a copy has. */
struct ledger_copy {
    int64_t schema;
    int64_t policies;
    int64_t coupons;
    int64_t bytes;
    char aside[1024]; /* where what was in the place of a restored one is now; "": nothing was */
};

/* Copies a ledger that is a file, in use or not, to a new one that only its owner may read. It has
 * all that was committed before, is whole, and its stock adds up; else there is no copy. CONFLICT:
 * there is such a file already. INVALID: that ledger is no file. */
enum status ledger_backup(const char *url, const char *to, struct ledger_copy *copy,
                          struct error *error) MUST_CHECK;

enum ledger_restore { LEDGER_RESTORE_NEW, LEDGER_RESTORE_OVER };

/* Puts a copy of the file in the place of the ledger, verified in the same way; what is there is
 * moved aside, or with LEDGER_RESTORE_NEW stays: CONFLICT. CONFLICT, too, when a process uses it.
 */
enum status ledger_restore(const char *url, const char *from, enum ledger_restore how,
                           struct ledger_copy *copy, struct error *error) MUST_CHECK;
