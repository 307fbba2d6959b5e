/* writer.h: the one thread that writes, and its group commits.
 *
 * While one transaction syncs, the next gathers: queued claims first, in their order, then the
 * writes of callers who wait. A transaction that the database refuses is not lost: its claims are
 * tried again, with pauses, until they are in; callers who wait then, or come meanwhile, are told
 * UNAVAILABLE at once. A write that others are in the way of (a row that somebody has locked) is
 * left out, so that nothing else waits for it, and tried again a little later. A commit whose
 * outcome is not known is looked up before anything else is done. A database that is another
 * process is asked now and then when nobody writes, so that its absence, and its return, are
 * noticed without a claim. One that is older than what was committed is not written to; a repair
 * alone may bring it up to date, also between two tries of a batch.
 *
 * Threads: writer_issue(), writer_run() and the readers of its state may be called from any
 * thread; the callbacks run on the writer's own.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "ledger/driver.h"
#include "ledger/issue.h"
#include "ledger/mark.h"
#include "ledger/outbox.h"

/* The body of one transaction. */
typedef enum status (*write_fn)(struct sql *sql, void *argument, struct error *error);

/* What locks rows that all writes of its kind lock comes behind the others of its transaction:
 * processes that share a database then lock in the same order, and wait for each other at most.
 * What writes its own events into the outbox comes when those of all others are there: should it be
 * undone, it takes only its own with it. What only counts comes last and can be done twice; where
 * it is alone it does not move the mark, so that no process refuses a database for lack of it. */
enum write_turn { WRITE_IN_TURN, WRITE_LAST, WRITE_BEHIND_EVENTS, WRITE_COUNTS };

/* A caller's write, waiting on its stack. */
struct waiting_write {
    enum write_turn turn;
    write_fn apply;
    void *argument;
    enum status status;
    struct error *error;
    bool is_left_out; /* others were in its way: the transaction goes on without it */
    bool done;
    struct waiting_write *next;
};

/* What gathers for one transaction. */
struct write_batch {
    struct claim *claims;
    size_t claim_count;
    size_t claim_capacity;
    struct key_binding *bindings;
    size_t binding_count;
    size_t binding_capacity;
    struct waiting_write *writes; /* oldest first */
    struct waiting_write **writes_end;
    uint64_t ticket; /* of the newest claim or binding in it */
};

struct writer {
    struct sql sql;
    const struct ledger_options *options;
    struct ledger_stats *stats;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;     /* something was queued, or stop */
    pthread_cond_t finished; /* waiting writes are done */
    struct write_batch gathering;
    struct write_batch writing;
    enum coupon_state *states;
    size_t states_capacity;
    struct issue_room room;
    struct outbox outbox;         /* the writer's thread only */
    struct mark mark;             /* of a remote database; the writer's thread only */
    bool is_in_doubt;             /* the last commit's outcome is not known yet; likewise */
    bool has_told_doubt;          /* it was logged that it is not known yet; likewise */
    bool leaves_out;              /* the last try ended at a write that is left out; likewise */
    struct waiting_write *repair; /* NULL: nobody asks for one; under the lock */
    uint64_t last_ticket;
    int64_t last_commit_ns;  /* the writer's thread only */
    size_t last_claim_count; /* likewise */
    bool stopping;
    bool gave_up; /* claims were dropped at the stop: no later one may become durable */
    _Atomic uint64_t durable;
    _Atomic size_t pending;
    _Atomic bool healthy;
    _Atomic bool behind;  /* not healthy, because the database is older than what was committed */
    struct error trouble; /* why it is not healthy; under the lock */
};

/* Enters its mark and starts the thread on an open writer session, which stays the caller's. */
enum status writer_start(struct writer *writer, struct sql sql,
                         const struct ledger_options *options, struct ledger_stats *stats,
                         struct error *error) MUST_CHECK;

/* Commits what is queued, or gives up on it when the database refuses, and ends the thread. */
void writer_stop(struct writer *writer);

/* On the writer's thread: another process may have become the owner. Not healthy, until the
 * database has said that none has. */
void writer_lost(struct writer *writer);

uint64_t writer_issue(struct writer *writer, const struct claim *claims, size_t claim_count,
                      const struct key_binding *bindings, size_t binding_count);

/* Runs the write in the next group commit and waits until it is durable. */
enum status writer_run(struct writer *writer, write_fn apply, void *argument,
                       struct error *error) MUST_CHECK;

/* The same at its turn among the writes of its commit. */
enum status writer_run_in(struct writer *writer, enum write_turn turn, write_fn apply,
                          void *argument, struct error *error) MUST_CHECK;

/* For a remote database: runs the write in a transaction of its own when the database is older than
 * what was committed, and does nothing otherwise. Not turned away while the writer is not healthy.
 * CONFLICT: the write says so, or another repair is under way. UNKNOWN: it may have been done. */
enum status writer_repair(struct writer *writer, write_fn apply, void *argument,
                          struct error *error) MUST_CHECK;

/* --- for repair/writer_repair.c; on the writer's thread --- */

/* How often others in the way are waited out, and for how long at first, at most. */
#define WRITER_BUSY_TRIES    10
#define WRITER_BUSY_PAUSE_MS 5

/* Another process has taken the ledger over: says so and ends this one. */
void writer_die(const struct error *error);

/* Tells those who wait for the writes of a batch. Under the lock. */
void writer_finish_writes(struct writer *writer, struct write_batch *batch, enum status status,
                          const struct error *error);

void writer_sleep_ms(int64_t milliseconds);

/* What the last look at the database came to. Whoever waits behind trouble is told. */
void writer_set_health(struct writer *writer, enum status status, const struct error *error);

/* Does the repair that someone waits for. Called with the lock held, which it lets go meanwhile. */
void writer_serve_repair(struct writer *writer);
