/* checkpoint.c: steps to an anchor, syncs elsewhere, and a last step with a bounded wait. */
#include "ledger/sqlite/checkpoint.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "ledger/sqlite/store.h"
#include "ledger/sqlite/vfs.h"

#define FRAME_SIZE       (24 + 2048) /* a page and its header */
#define SYNCS_PER_LOG    4
#define PATIENCE_MAX_MS  1000
#define SLOW_STEP_FRAMES 1000 /* a longer log makes a pause longer by a millisecond */
#define PAUSE_MAX_MS     100

/* Few of the pages that a step copies are copied again by a later one when users are many, and most
 * are when they are few: a step is as long as a commit may be held up by it, which is some
 * milliseconds. */
const struct checkpoint_limits checkpoint_limits_default = {
    .step = 4000, .enough = 64000, .slow = 8 * 64000, .patience_ms = 20};

/* --- the thread that syncs the main file --- */

static void *syncer_main(void *context)
{
    struct syncer *syncer = context;
    struct error error;

    pthread_setname_np(pthread_self(), "ledger-syncer");
    pthread_mutex_lock(&syncer->lock);
    for (;;) {
        while (syncer->done_count == syncer->asked_count && !syncer->stopping)
            pthread_cond_wait(&syncer->asked, &syncer->lock);
        if (syncer->stopping)
            break;
        uint64_t asked_count = syncer->asked_count;
        pthread_mutex_unlock(&syncer->lock);
        int64_t started_ms = clock_monotonic_ms();
        FAULT_POINT("ledger.before_main_sync");
        if (fdatasync(syncer->descriptor) != 0)
            (void)ledger_sqlite_error(NULL, SQLITE_IOERR_FSYNC, "syncing the database", &error);
        FAULT_POINT("ledger.after_main_sync");
        pthread_mutex_lock(&syncer->lock);
        syncer->took_ms = clock_monotonic_ms() - started_ms;
        syncer->done_count = asked_count;
        pthread_cond_signal(&syncer->done);
    }
    pthread_mutex_unlock(&syncer->lock);
    return NULL;
}

/* The descriptor stays the caller's and open until the stop. */
static enum status syncer_start(struct syncer *syncer, int descriptor, struct error *error)
{
    *syncer = (struct syncer){.descriptor = descriptor};
    pthread_mutex_init(&syncer->lock, NULL);
    pthread_cond_init(&syncer->asked, NULL);
    clock_condition_init(&syncer->done);
    if (pthread_create(&syncer->thread, NULL, syncer_main, syncer) == 0)
        return STATUS_OK;
    pthread_cond_destroy(&syncer->done);
    pthread_cond_destroy(&syncer->asked);
    pthread_mutex_destroy(&syncer->lock);
    return error_set(error, STATUS_UNAVAILABLE, "cannot start the thread that syncs the ledger");
}

/* Waits for a sync under way; what was asked for and not begun is left undone. */
static void syncer_stop(struct syncer *syncer)
{
    pthread_mutex_lock(&syncer->lock);
    syncer->stopping = true;
    pthread_cond_signal(&syncer->asked);
    pthread_mutex_unlock(&syncer->lock);
    pthread_join(syncer->thread, NULL);
    pthread_cond_destroy(&syncer->done);
    pthread_cond_destroy(&syncer->asked);
    pthread_mutex_destroy(&syncer->lock);
}

/* All that was written so far is to be synced. */
static void syncer_ask(struct syncer *syncer)
{
    pthread_mutex_lock(&syncer->lock);
    syncer->asked_count++;
    pthread_cond_signal(&syncer->asked);
    pthread_mutex_unlock(&syncer->lock);
}

bool syncer_wait(struct syncer *syncer, int64_t timeout_ms)
{
    struct timespec until = clock_deadline_in_ms(timeout_ms);
    int code = timeout_ms > 0 ? 0 : 1;

    pthread_mutex_lock(&syncer->lock);
    while (code == 0 && syncer->done_count != syncer->asked_count)
        code = pthread_cond_timedwait(&syncer->done, &syncer->lock, &until);
    bool is_done = syncer->done_count == syncer->asked_count;
    pthread_mutex_unlock(&syncer->lock);
    return is_done;
}

int64_t syncer_took_ms(struct syncer *syncer)
{
    pthread_mutex_lock(&syncer->lock);
    int64_t took_ms = syncer->took_ms;
    pthread_mutex_unlock(&syncer->lock);
    return took_ms;
}

/* --- steps --- */

static int checkpointer_sync(void *context);

enum status checkpointer_open(struct checkpointer *checkpointer, const struct ledger_store *store,
                              sqlite3 *database, const struct checkpoint_limits *limits,
                              struct error *error)
{
    *checkpointer = (struct checkpointer){.store = store,
                                          .database = database,
                                          .limits = *limits,
                                          .now = *limits,
                                          .next = limits->step};
    enum status status = ledger_sqlite_connect(store, SESSION_READER, &checkpointer->anchor, error);
    if (status == STATUS_OK)
        status = syncer_start(&checkpointer->syncer, store->owner.descriptor, error);
    if (status != STATUS_OK) {
        ledger_sqlite_disconnect(store, checkpointer->anchor);
        *checkpointer = (struct checkpointer){0};
        return status;
    }
    sqlite_vfs_sync_main(database, checkpointer_sync, checkpointer);
    return STATUS_OK;
}

void checkpointer_close(struct checkpointer *checkpointer)
{
    if (checkpointer->database == NULL)
        return;
    sqlite_vfs_sync_main(checkpointer->database, NULL, NULL);
    syncer_stop(&checkpointer->syncer);
    ledger_sqlite_disconnect(checkpointer->store, checkpointer->anchor);
    checkpointer->database = NULL;
}

int64_t checkpointer_log_bytes(const struct checkpointer *checkpointer)
{
    return (int64_t)checkpointer->frames * FRAME_SIZE;
}

/* --- the limits --- */

/* On a disk that is nearly full the log is started over sooner, and commits slow down sooner. */
static void checkpointer_look_at_room(struct checkpointer *checkpointer)
{
    const struct checkpoint_limits *limits = &checkpointer->limits;
    int64_t room = ledger_sqlite_room(checkpointer->store);
    int64_t most = checkpointer->frames + room / FRAME_SIZE;

    checkpointer->now = *limits;
    if (room < 0)
        return;
    if (most / 2 < limits->enough)
        checkpointer->now.enough = most / 2 < 2 * limits->step ? 2 * limits->step : (int)(most / 2);
    if (most / 4 * 3 < limits->slow)
        checkpointer->now.slow =
            most / 4 * 3 < 4 * limits->step ? 4 * limits->step : (int)(most / 4 * 3);
}

/* A disk that takes its time for every sync is waited for longer as the log grows: at twice its
 * length four times as long. */
static int64_t checkpointer_patience_ms(const struct checkpointer *checkpointer)
{
    int64_t patience_ms = checkpointer->now.patience_ms;

    for (int64_t frames = 2 * (int64_t)checkpointer->now.enough;
         frames <= checkpointer->frames && patience_ms < PATIENCE_MAX_MS;
         frames += checkpointer->now.enough)
        patience_ms *= 4;
    return patience_ms < PATIENCE_MAX_MS ? patience_ms : PATIENCE_MAX_MS;
}

static int64_t checkpointer_pause_ms(struct checkpointer *checkpointer)
{
    int64_t over = (int64_t)checkpointer->frames - checkpointer->now.slow;
    bool is_slow = over > 0;
    int64_t pause_ms = over <= 0 ? 0 : 1 + over / SLOW_STEP_FRAMES;

    if (is_slow && !checkpointer->is_slow)
        log_event(LOG_WARN, "commits_slowed_down",
                  LOG_FIELD("log_bytes", LOG_I64(checkpointer_log_bytes(checkpointer))),
                  LOG_FIELD("next", LOG_TEXT("the disk does not keep up, or is nearly full, or "
                                             "somebody reads for long; until the log file could be "
                                             "written back, claims take longer")));
    if (!is_slow && checkpointer->is_slow)
        log_event(LOG_INFO, "commits_at_full_speed",
                  LOG_FIELD("log_bytes", LOG_I64(checkpointer_log_bytes(checkpointer))));
    checkpointer->is_slow = is_slow;
    return pause_ms < PAUSE_MAX_MS ? pause_ms : PAUSE_MAX_MS;
}

/* --- the steps --- */

/* The anchor's mark in the log lets no checkpoint go further than to here. */
static void checkpointer_anchor(struct checkpointer *checkpointer)
{
    checkpointer_look_at_room(checkpointer);
    if (sqlite3_exec(checkpointer->anchor, "BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL,
                     NULL) == SQLITE_OK)
        checkpointer->anchored = checkpointer->frames;
    else
        (void)sqlite3_exec(checkpointer->anchor, "ROLLBACK", NULL, NULL, NULL);
}

static void checkpointer_weigh_anchor(struct checkpointer *checkpointer)
{
    checkpointer->anchored = 0;
    (void)sqlite3_exec(checkpointer->anchor, "ROLLBACK", NULL, NULL, NULL);
}

/* SQLite asks for this where a checkpoint has reached the end of the log, and only there. */
static int checkpointer_sync(void *context)
{
    struct checkpointer *checkpointer = context;

    checkpointer->unsynced = 0;
    syncer_ask(&checkpointer->syncer);
    return syncer_wait(&checkpointer->syncer, checkpointer_patience_ms(checkpointer)) ? SQLITE_OK
                                                                                      : SQLITE_BUSY;
}

/* As far as readers and the anchor let it. */
static bool checkpointer_move(struct checkpointer *checkpointer)
{
    int frames = 0;
    int moved = 0;

    FAULT_POINT("ledger.before_checkpoint");
    int code = sqlite3_wal_checkpoint_v2(checkpointer->database, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                         &frames, &moved);
    checkpointer->next = checkpointer->frames + checkpointer->now.step;
    if (code == SQLITE_BUSY)
        return false;
    if (code != SQLITE_OK) {
        struct error error;
        (void)ledger_sqlite_error(checkpointer->database, code, "checkpoint", &error);
        log_event(LOG_WARN, "checkpoint_failed", LOG_FIELD("error", LOG_TEXT(error.text)),
                  LOG_FIELD("next", LOG_TEXT("the log file grows until one succeeds")));
        checkpointer->retry = checkpointer->next;
        return false;
    }
    if (moved > checkpointer->moved)
        checkpointer->unsynced += moved - checkpointer->moved;
    checkpointer->moved = moved;
    return true;
}

/* Up to the anchor. When the log is long enough the sync begins at once, else now and then. */
static void checkpointer_take_step(struct checkpointer *checkpointer, bool is_enough)
{
    bool is_done = checkpointer_move(checkpointer);

    checkpointer_weigh_anchor(checkpointer);
    if (!is_done)
        return;
    if (checkpointer->unsynced > (is_enough ? 0 : checkpointer->now.enough / SYNCS_PER_LOG)) {
        checkpointer->unsynced = 0;
        syncer_ask(&checkpointer->syncer);
    }
}

/* All that was moved is durable, quickly, and little came since: a sync of that can be waited for.
 */
static bool checkpointer_may_finish(struct checkpointer *checkpointer)
{
    return checkpointer->unsynced == 0 &&
           checkpointer->frames - checkpointer->moved <= checkpointer->now.step &&
           syncer_took_ms(&checkpointer->syncer) <= checkpointer_patience_ms(checkpointer) / 2;
}

/* To the end of the log. Not over: the sync takes longer, or somebody reads an older state. */
static bool checkpointer_finish(struct checkpointer *checkpointer)
{
    bool is_over = checkpointer_move(checkpointer) && checkpointer->moved == checkpointer->frames;

    checkpointer->retry = checkpointer->frames + checkpointer->now.step / 8;
    if (is_over)
        checkpointer->unsynced = 0;
    return is_over;
}

struct checkpoint_progress checkpointer_step(struct checkpointer *checkpointer, int frames)
{
    bool is_over = false;

    if (frames == checkpointer->frames) /* nothing was written */
        return (struct checkpoint_progress){0};
    if (frames < checkpointer->frames) { /* the log has started over */
        checkpointer->moved = 0;
        checkpointer->next = checkpointer->now.step;
        checkpointer->retry = 0;
    }
    checkpointer->frames = frames;
    bool is_enough = frames >= checkpointer->now.enough;
    if (checkpointer->anchored != 0) {
        checkpointer_take_step(checkpointer, is_enough);
    } else if (is_enough && frames >= checkpointer->retry && frames > checkpointer->moved &&
               syncer_wait(&checkpointer->syncer, 0)) {
        if (checkpointer_may_finish(checkpointer))
            is_over = checkpointer_finish(checkpointer);
        else
            checkpointer_anchor(checkpointer);
    } else if (frames >= checkpointer->next) {
        checkpointer_anchor(checkpointer);
    }
    return (struct checkpoint_progress){.is_over = is_over,
                                        .pause_ms = checkpointer_pause_ms(checkpointer)};
}
