/* mark.h: how far a writer has come, kept in a database that is another process.
 *
 * Every transaction of the writer moves its mark by one, and only from where the writer left it.
 * So a commit whose answer was lost is looked up instead of guessed, a database that was restored
 * from an older backup is noticed before anything is written to it, and so is another process that
 * has taken the ledger over. The look locks the mark's row: it waits for a transaction that is
 * still under way, and one that was cut off before its COMMIT can never move the mark.
 *
 * Threads: the writer's own.
 */
#ifndef LEDGER_MARK_H
#define LEDGER_MARK_H

#include "ledger/driver.h"

struct mark {
    char name[40];    /* the row: of the one owner, or of this process among those that share */
    char holder[160]; /* who we are, for people */
    int64_t value;    /* as of our last commit */
};

/* Finds or makes our row, in a transaction of its own. */
enum status mark_enter(struct mark *mark, struct sql *sql, enum ledger_use use,
                       struct error *error) MUST_CHECK;

/* Removes the row of one that shared, if that still works. */
void mark_leave(struct mark *mark, struct sql *sql, enum ledger_use use);

/* Inside a transaction, first of all: moves the mark. FAILED: the ledger is older than what we
 * have committed. CONFLICT: another process has written in our name. */
enum status mark_move(struct mark *mark, struct sql *sql, struct error *error) MUST_CHECK;

/* After a commit whose outcome is UNKNOWN, in a transaction of its own: OK when it was committed,
 * UNAVAILABLE when it was not, UNKNOWN while the database cannot be asked; or as mark_move(). */
enum status mark_look(struct mark *mark, struct sql *sql, struct error *error) MUST_CHECK;

/* When idle: whether the ledger is there and as we left it; as mark_move(), without moving. */
enum status mark_check(struct mark *mark, struct sql *sql, struct error *error) MUST_CHECK;

#endif
