/* mark.h: how far a writer has come, kept in a database that is another process. A file of our own
 * needs no mark, because its driver knows whether it is still there; what follows from that is the
 * same.
 *
 * Every transaction of the writer moves its mark by one, and only from where the writer left it.
 * So a commit whose answer was lost is looked up instead of guessed, a database that was restored
 * from an older backup is noticed before anything is written to it, and so is another process that
 * has taken the ledger over. The look locks the mark's row: it waits for a transaction that is
 * still under way, and one that was cut off before its COMMIT can never move the mark.
 *
 * Threads: the writer's own.
 */
#pragma once

#include "ledger/driver.h"

struct mark {
    char name[40];    /* the row: of the one owner, or of this process among those that share */
    char holder[160]; /* who we are, for people */
    int64_t value;    /* as of our last commit */
    int64_t repaired; /* what a repair, whose commit was not answered, may have set it to; else 0 */
    bool is_behind;   /* when last looked at, the ledger was older than what we have committed */
    bool is_another; /* what is open is not what we have written to, and no repair has made it so */
};

/* Finds or makes our row, in a transaction of its own. */
enum status mark_enter(struct mark *mark, struct sql *sql, enum ledger_use use,
                       struct error *error) MUST_CHECK;

/* Puts "the ledger was last taken by …" in front of the words; on a session of any kind. */
void mark_name_owner(struct sql *sql, struct error *error);

/* Begins a transaction of the writer. CONFLICT: another process has taken the ledger over. FAILED,
 * with `is_behind`: the file was exchanged. */
enum status mark_begin(struct mark *mark, struct sql *sql, struct error *error) MUST_CHECK;

/* Commits it. FAILED, with `is_behind`: nothing was committed, the file was exchanged. */
enum status mark_commit(struct mark *mark, struct sql *sql, struct error *error) MUST_CHECK;

/* Removes the row of one that shared, if that still works. */
void mark_leave(struct mark *mark, struct sql *sql, enum ledger_use use);

/* Inside a transaction, first of all: moves the mark. FAILED: the ledger is older than what we
 * have committed. CONFLICT: another process has written in our name. */
enum status mark_move(struct mark *mark, struct sql *sql, struct error *error) MUST_CHECK;

/* After a commit whose outcome is UNKNOWN, in a transaction of its own: OK when it was committed,
 * UNAVAILABLE when it was not, UNKNOWN while the database cannot be asked; or as mark_move(). */
enum status mark_verify(struct mark *mark, struct sql *sql, struct error *error) MUST_CHECK;

/* When idle: whether the ledger is there and as we left it; as mark_move(), without moving. */
enum status mark_check(struct mark *mark, struct sql *sql, struct error *error) MUST_CHECK;

/* --- repairing an older ledger, in the transaction that brings it up to date --- */

/* As mark_move(), without moving. A repair is only for FAILED with `is_behind`. */
enum status mark_compare(struct mark *mark, struct sql *sql, struct error *error) MUST_CHECK;

/* Puts the mark above where we left it, and above where any commit of ours may have left it. */
enum status mark_repair(struct mark *mark, struct sql *sql, struct error *error) MUST_CHECK;

/* What became of the repair's commit. After UNKNOWN, whoever looks at the mark next finds out. */
void mark_repaired(struct mark *mark, enum status status);
