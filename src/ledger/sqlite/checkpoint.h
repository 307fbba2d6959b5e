/* checkpoint.h: moves what the log (WAL) gathers into the main file, so that no commit waits for
 * it.
 *
 * SQLite starts its log over when all of it is in the main file and that is synced. Both are done
 * a little at a time. A step copies the pages of some thousand frames: an open read transaction,
 * the anchor, marks the last of them, and a checkpoint that does not reach the end of the log
 * syncs nothing. A thread of its own syncs the main file meanwhile. When the log is long enough,
 * and that thread is so quick that little can be left to sync, one more checkpoint goes to the
 * end. It waits for the sync for a bounded time; when it takes longer, SQLite hears that it is not
 * done, and the log simply goes on. So the log is never started over before the main file is
 * durable, and until then a crash finds all of it in the log.
 *
 * Threads: the writer's only.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "ledger/sqlite/store.h"

/* A thread that syncs one file, so that whoever writes it need not wait. A sync that fails ends the
 * process: what the file holds is not known any more. Asking and waiting are for its owner's
 * thread. */
struct syncer {
    int descriptor; /* borrowed */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t asked;
    pthread_cond_t done;
    uint64_t asked_count; /* under the lock, as all below */
    uint64_t done_count;  /* asked for so often before the last sync that is done began */
    int64_t took_ms;      /* by the last sync that is done */
    bool stopping;
};

/* Whether all that was asked for is durable, after waiting for so long at most (0: not at all). */
bool syncer_wait(struct syncer *syncer, int64_t timeout_ms);
int64_t syncer_took_ms(struct syncer *syncer);

/* In frames of the log, one per page that a commit has changed. */
struct checkpoint_limits {
    int step;        /* what is copied at once */
    int enough;      /* from here on the log is to be started over */
    int slow;        /* from here on commits pause, longer and longer */
    int patience_ms; /* for the last sync, while the log is not longer than enough */
};

struct checkpointer {
    const struct ledger_store *store;
    sqlite3 *database; /* the writer's */
    sqlite3 *anchor;   /* only reads */
    struct syncer syncer;
    struct checkpoint_limits limits; /* for a disk with room */
    struct checkpoint_limits now;    /* for the room there is */
    int frames;                      /* in the log, as of the last commit */
    int moved;                       /* of those, in the main file */
    int anchored;                    /* the last frame of the step that is due; 0: none */
    int next;                        /* the length at which a step is due */
    int retry;                       /* the length at which the end may be tried again */
    int unsynced;                    /* moved since the last sync was asked for */
    bool is_slow;
};

/* What came of a look after a commit. */
struct checkpoint_progress {
    bool is_over;     /* the log starts over */
    int64_t pause_ms; /* before the next commit, as the log is too long */
};

enum status checkpointer_open(struct checkpointer *checkpointer, const struct ledger_store *store,
                              sqlite3 *database, const struct checkpoint_limits *limits,
                              struct error *error) MUST_CHECK;
/* Before the writer's connection is closed, which moves and syncs what is left. */
void checkpointer_close(struct checkpointer *checkpointer);

/* After each commit of the writer, with the frames that are in the log now. */
struct checkpoint_progress checkpointer_step(struct checkpointer *checkpointer, int frames);
int64_t checkpointer_log_bytes(const struct checkpointer *checkpointer);

/* Those of a server. */
extern const struct checkpoint_limits checkpoint_limits_default;
