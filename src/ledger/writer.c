/* writer.c: gather, write, commit, tell. */
#include "ledger/writer.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"

#define RETRY_PAUSE_MIN_MS 20
#define RETRY_PAUSE_MAX_MS 1000
#define BUSY_WAIT_MAX_MS   1000
#define BUSY_TRIES_MIN     3 /* PostgreSQL takes a second to see a deadlock */
#define WRITE_WAIT_MAX_MS  2000
#define WRITE_PAUSE_MIN_MS 5
#define WRITE_PAUSE_MAX_MS 200
#define IDLE_CHECK_MS      1000
#define OWNER_CHECK_MS     200
#define AWAY_CHECK_MS      200
#define LINGER_CLAIMS_MIN  32
#define LINGER_STEP_NS     200000
#define LINGER_MAX_NS      2000000

static void write_batch_release(struct write_batch *batch)
{
    free(batch->claims);
    free(batch->bindings);
}

static void write_batch_clear(struct write_batch *batch)
{
    batch->claim_count = 0;
    batch->binding_count = 0;
    batch->writes = NULL;
    batch->writes_end = &batch->writes;
}

static bool write_batch_is_empty(const struct write_batch *batch)
{
    return batch->claim_count == 0 && batch->binding_count == 0 && batch->writes == NULL;
}

/* Queues are bounded by the pending cap, which is checked before the gate decides; a claim that
 * has been decided must find its place, so running out of memory here ends the process. */
uint64_t writer_issue(struct writer *writer, const struct claim *claims, size_t claim_count,
                      const struct key_binding *bindings, size_t binding_count)
{
    struct write_batch *batch = &writer->gathering;

    pthread_mutex_lock(&writer->lock);
    bool was_empty = write_batch_is_empty(batch);
    ensure(array_reserve(batch->claims, batch->claim_count + claim_count, batch->claim_capacity));
    ensure(array_reserve(batch->bindings, batch->binding_count + binding_count,
                         batch->binding_capacity));
    if (claim_count > 0)
        memcpy(batch->claims + batch->claim_count, claims, claim_count * sizeof(*claims));
    if (binding_count > 0)
        memcpy(batch->bindings + batch->binding_count, bindings, binding_count * sizeof(*bindings));
    batch->claim_count += claim_count;
    batch->binding_count += binding_count;
    uint64_t ticket = ++writer->last_ticket;
    batch->ticket = ticket;
    atomic_fetch_add(&writer->pending, claim_count);
    if (was_empty)
        pthread_cond_signal(&writer->work);
    pthread_mutex_unlock(&writer->lock);
    return ticket;
}

static enum status writer_run_once(struct writer *writer, enum write_turn turn, write_fn apply,
                                   void *argument, struct error *error)
{
    struct waiting_write write = {.turn = turn,
                                  .apply = apply,
                                  .argument = argument,
                                  .status = STATUS_UNAVAILABLE,
                                  .error = error};

    pthread_mutex_lock(&writer->lock);
    if (!atomic_load(&writer->healthy)) {
        /* Behind claims that are tried again and again it would wait as long as they do. */
        if (error != NULL)
            *error = writer->trouble;
        pthread_mutex_unlock(&writer->lock);
        return STATUS_UNAVAILABLE;
    }
    *writer->gathering.writes_end = &write;
    writer->gathering.writes_end = &write.next;
    pthread_cond_signal(&writer->work);
    while (!write.done)
        pthread_cond_wait(&writer->finished, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
    return write.status;
}

/* Waits for those in its way here, on the caller's thread. */
enum status writer_run_in(struct writer *writer, enum write_turn turn, write_fn apply,
                          void *argument, struct error *error)
{
    int64_t deadline_ms = clock_monotonic_ms() + WRITE_WAIT_MAX_MS;
    int64_t pause_ms = WRITE_PAUSE_MIN_MS;
    enum status status = writer_run_once(writer, turn, apply, argument, error);

    while (status == STATUS_BUSY && clock_monotonic_ms() < deadline_ms) {
        writer_sleep_ms(pause_ms / 2 + (int64_t)random_below((uint64_t)(pause_ms / 2 + 1)));
        pause_ms = pause_ms * 2 > WRITE_PAUSE_MAX_MS ? WRITE_PAUSE_MAX_MS : pause_ms * 2;
        status = writer_run_once(writer, turn, apply, argument, error);
    }
    return status == STATUS_BUSY ? STATUS_UNAVAILABLE : status;
}

enum status writer_run(struct writer *writer, write_fn apply, void *argument, struct error *error)
{
    return writer_run_in(writer, WRITE_IN_TURN, apply, argument, error);
}

/* --- what the writer thinks of its database, and who is told --- */

/* A gate whose ledger another process has taken over knows less than the ledger does: whatever it
 * answered from now on could be wrong. */
void writer_die(const struct error *error)
{
    log_event(
        LOG_ERROR, "ledger_taken_over", LOG_FIELD("error", LOG_TEXT(error->text)),
        LOG_FIELD("next", LOG_TEXT("the process ends; start it again when the other is gone")));
    log_flush();
    _exit(1);
}

/* Those who wait behind the trouble were not tried: nothing of theirs was done. */
void writer_set_health(struct writer *writer, enum status status, const struct error *error)
{
    bool healthy = status == STATUS_OK;
    bool was_healthy = atomic_load(&writer->healthy);

    atomic_store(&writer->behind, !healthy && writer->mark.is_behind);
    if (healthy && was_healthy)
        return;
    pthread_mutex_lock(&writer->lock);
    bool is_news = was_healthy || healthy || strcmp(writer->trouble.text, error->text) != 0;
    writer->trouble = *error;
    atomic_store(&writer->healthy, healthy);
    if (!healthy)
        writer_finish_writes(writer, &writer->gathering, STATUS_UNAVAILABLE, error);
    pthread_mutex_unlock(&writer->lock);
    if (healthy)
        log_event(LOG_INFO, "ledger_recovered", LOG_FIELD("pending", LOG_I64(writer->pending)));
    else if (is_news)
        log_event(LOG_ERROR, "ledger_refuses", LOG_FIELD("error", LOG_TEXT(error->text)),
                  LOG_FIELD("next", LOG_TEXT("claims get 503; trying again")));
}

void writer_lost(struct writer *writer)
{
    struct error error;

    if (!atomic_load(&writer->healthy)) /* or not started yet */
        return;
    error_set(&error, STATUS_UNAVAILABLE,
              "the connection to the database was lost, and with it the ownership of the ledger");
    writer_set_health(writer, STATUS_UNAVAILABLE, &error);
}

/* --- one transaction --- */

/* A write that its rules refuse is undone alone; one that the database refuses fails them all. */
static enum status writer_apply(struct writer *writer, struct waiting_write *write,
                                struct error *error)
{
    const struct ledger_driver *driver = writer->sql.driver;
    enum status status = driver->savepoint(writer->sql.session, error);
    size_t noted = outbox_place(writer->sql.outbox);

    if (status != STATUS_OK)
        return status;
    write->status = write->apply(&writer->sql, write->argument, write->error);
    if (write->status == STATUS_UNAVAILABLE || write->status == STATUS_BUSY) {
        if (error != NULL && write->error != NULL)
            *error = *write->error;
        return write->status;
    }
    if (write->status != STATUS_OK)
        outbox_return(writer->sql.outbox, noted);
    return driver->savepoint_end(writer->sql.session, write->status == STATUS_OK, error);
}

static enum status writer_move_mark(struct writer *writer, bool moves, struct error *error)
{
    if (!writer->sql.driver->is_remote)
        return STATUS_OK;
    enum status status = moves ? mark_move(&writer->mark, &writer->sql, error)
                               : mark_compare(&writer->mark, &writer->sql, error);
    if (status == STATUS_CONFLICT)
        writer_die(error);
    return status;
}

static enum status writer_apply_all(struct writer *writer, const struct write_batch *batch,
                                    enum write_turn turn, struct error *error)
{
    enum status status = STATUS_OK;

    for (struct waiting_write *write = batch->writes; write != NULL && status == STATUS_OK;
         write = write->next) {
        if (write->turn != turn || write->is_left_out)
            continue;
        status = writer_apply(writer, write, error);
        write->is_left_out = writer->leaves_out = status == STATUS_BUSY;
    }
    return status;
}

/* Whether something is left to be written, besides what only counts. */
static bool write_batch_has_more(const struct write_batch *batch, bool than_counts)
{
    for (const struct waiting_write *write = batch->writes; write != NULL; write = write->next)
        if (!write->is_left_out && !(than_counts && write->turn == WRITE_COUNTS))
            return true;
    return batch->claim_count + batch->binding_count > 0;
}

static enum status writer_write(struct writer *writer, struct write_batch *batch,
                                enum issue_care care, struct error *error)
{
    struct sql *sql = &writer->sql;
    bool moves = write_batch_has_more(batch, true);
    enum status status = mark_begin(&writer->mark, sql, error);

    outbox_begin(sql->outbox);
    if (status == STATUS_CONFLICT)
        writer_die(error);
    if (status == STATUS_OK)
        status = writer_move_mark(writer, moves, error);
    if (status == STATUS_OK)
        status = issue_bindings(sql, batch->bindings, batch->binding_count, error);
    if (status == STATUS_OK)
        status = issue_claims(sql, &writer->room, batch->claims, batch->claim_count, care,
                              clock_wall_ms(), writer->states, error);
    FAULT_POINT("ledger.after_insert");
    for (enum write_turn turn = WRITE_IN_TURN; turn <= WRITE_COUNTS && status == STATUS_OK;
         turn++) {
        if (turn == WRITE_BEHIND_EVENTS && outbox_place(sql->outbox) > 0)
            status = outbox_write(sql, error);
        if (status == STATUS_OK)
            status = writer_apply_all(writer, batch, turn, error);
    }
    FAULT_POINT("ledger.before_commit");
    if (status == STATUS_OK)
        status = mark_commit(&writer->mark, sql, error);
    FAULT_POINT("ledger.after_commit");
    if (status == STATUS_OK)
        writer->mark.value += moves;
    else
        sql->driver->rollback(sql->session);
    return status;
}

/* The same without the writes that others are in the way of, which would hold up all the rest. */
static enum status writer_write_rest(struct writer *writer, struct write_batch *batch,
                                     enum issue_care care, struct error *error)
{
    enum status status = STATUS_BUSY;

    do {
        writer->leaves_out = false;
        status = writer_write(writer, batch, care, error);
    } while (status == STATUS_BUSY && writer->leaves_out && write_batch_has_more(batch, false));
    return writer->leaves_out ? STATUS_OK : status;
}

/* Looks what became of a commit that was not answered: OK, or UNAVAILABLE when it was not
 * committed. With any other status the doubt remains: an older ledger does not tell. */
static enum status writer_verify_mark(struct writer *writer, struct error *error)
{
    enum status status = mark_verify(&writer->mark, &writer->sql, error);

    if (status == STATUS_CONFLICT)
        writer_die(error);
    if (status == STATUS_OK)
        writer->mark.value++;
    writer->is_in_doubt = status != STATUS_OK && status != STATUS_UNAVAILABLE;
    bool is_news = status != STATUS_UNKNOWN || !writer->has_told_doubt;
    writer->has_told_doubt = status == STATUS_UNKNOWN;
    if (!is_news)
        return status;
    log_event(LOG_WARN, "commit_looked_up",
              LOG_FIELD("outcome", LOG_TEXT(status == STATUS_OK        ? "committed"
                                            : status == STATUS_UNKNOWN ? "not known yet"
                                                                       : error->text)));
    return status;
}

void writer_sleep_ms(int64_t milliseconds)
{
    struct timespec time = {.tv_nsec = milliseconds * 1000000};
    nanosleep(&time, NULL);
}

/* One try, with all that can be settled at once: others in the way are waited out for a while, a
 * bad row is singled out, and a commit that was not answered is looked up. The rules of its writes
 * are their own; a whole transaction is only ever refused for now. */
static enum status writer_try(struct writer *writer, struct write_batch *batch, struct error *error)
{
    enum issue_care care = ISSUE_WHOLE;
    int64_t deadline_ms = clock_monotonic_ms() + BUSY_WAIT_MAX_MS;

    for (int i = 0; i < WRITER_BUSY_TRIES; i++) {
        enum status status = STATUS_UNAVAILABLE;
        if (i > 0)
            writer_sleep_ms((int64_t)random_below(WRITER_BUSY_PAUSE_MS * (uint64_t)i + 1));
        if (writer->is_in_doubt)
            status = writer_verify_mark(writer, error);
        if (status != STATUS_UNAVAILABLE)
            return status;
        status =
            writer_write_rest(writer, batch, i == WRITER_BUSY_TRIES - 1 ? ISSUE_LAST : care, error);
        if (status == STATUS_UNKNOWN)
            writer->is_in_doubt = true;
        else if (care == ISSUE_WHOLE && (status == STATUS_CONFLICT || status == STATUS_INVALID))
            care = ISSUE_SPLIT;
        else if (status != STATUS_BUSY)
            return status == STATUS_OK || status == STATUS_FAILED ? status : STATUS_UNAVAILABLE;
        else if (i + 1 >= BUSY_TRIES_MIN && clock_monotonic_ms() >= deadline_ms)
            break;
    }
    return writer->is_in_doubt ? STATUS_UNKNOWN : STATUS_BUSY;
}

void writer_finish_writes(struct writer *writer, struct write_batch *batch, enum status status,
                          const struct error *error)
{
    for (struct waiting_write *write = batch->writes, *next; write != NULL; write = next) {
        next = write->next;
        if (status != STATUS_OK && !write->is_left_out) {
            write->status = status;
            if (write->error != NULL)
                *write->error = *error;
        }
        write->done = true;
    }
    batch->writes = NULL;
    batch->writes_end = &batch->writes;
    pthread_cond_broadcast(&writer->finished);
}

static void writer_count(struct writer *writer, const struct write_batch *batch, int64_t started_ns)
{
    struct ledger_stats *stats = writer->stats;
    uint64_t void_count = 0;
    uint64_t kept_count = 0;
    int64_t now_ms = clock_wall_ms();

    for (size_t i = 0; i < batch->claim_count; i++) {
        /* Clocks differ: by this one, a claim may not have been made yet. */
        int64_t lag_ms = now_ms - batch->claims[i].requested_at_ms;
        if (coupon_state_is_active(writer->states[i]))
            histogram_record(&stats->lag_ns, lag_ms > 0 ? (uint64_t)lag_ms * 1000000 : 0);
        kept_count += writer->states[i] == COUPON_PENDING;
        void_count += !coupon_state_is_active(writer->states[i]);
    }
    void_count -= kept_count;
    atomic_fetch_add_explicit(&stats->commits, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&stats->claims_void, void_count, memory_order_relaxed);
    atomic_fetch_add_explicit(&stats->claims_issued, batch->claim_count - void_count - kept_count,
                              memory_order_relaxed);
    writer->last_commit_ns = clock_monotonic_ns() - started_ns;
    writer->last_claim_count = batch->claim_count;
    histogram_record(&stats->commit_ns, (uint64_t)writer->last_commit_ns);
    if (batch->claim_count > 0)
        histogram_record(&stats->batch_size, batch->claim_count);
}

/* The gate hears of the claims before the ticket counts as durable, so that whoever is woken by
 * it finds the gate up to date. */
static void writer_publish(struct writer *writer, struct write_batch *batch)
{
    const struct ledger_options *options = writer->options;

    if (batch->claim_count > 0)
        options->on_issued(options->context, batch->claims, writer->states, batch->claim_count);
    FAULT_POINT("ledger.after_acknowledge");
    if (batch->claim_count + batch->binding_count > 0) {
        atomic_fetch_sub(&writer->pending, batch->claim_count);
        atomic_store(&writer->durable, batch->ticket);
        options->on_durable(options->context);
    }
    if (writer->outbox.has_written && options->on_events != NULL)
        options->on_events(options->context);
}

/* --- batches --- */

/* Waits a little between tries, unless the writer is told to stop or a repair is asked for. False:
 * give up. */
static bool writer_pause(struct writer *writer, int64_t *pause_ms)
{
    int64_t wait_ms = *pause_ms / 2 + (int64_t)random_below((uint64_t)(*pause_ms / 2 + 1));
    struct timespec until = clock_deadline_in_ms(wait_ms);

    *pause_ms = *pause_ms * 2 > RETRY_PAUSE_MAX_MS ? RETRY_PAUSE_MAX_MS : *pause_ms * 2;
    pthread_mutex_lock(&writer->lock);
    bool stopping = writer->stopping;
    if (!stopping && writer->repair == NULL)
        pthread_cond_timedwait(&writer->work, &writer->lock, &until);
    writer_serve_repair(writer);
    pthread_mutex_unlock(&writer->lock);
    return !stopping;
}

/* Tries until the batch is in. Only its waiting writes are given up on, after the first try. */
static void writer_commit_batch(struct writer *writer, struct write_batch *batch)
{
    int64_t pause_ms = RETRY_PAUSE_MIN_MS;
    struct error error = {""};

    ensure(array_reserve(writer->states, batch->claim_count, writer->states_capacity));
    for (;;) {
        int64_t started_ns = clock_monotonic_ns();
        enum status status = writer_try(writer, batch, &error);

        if (status == STATUS_OK) {
            writer_set_health(writer, status, &error);
            writer_count(writer, batch, started_ns);
            writer_publish(writer, batch);
            pthread_mutex_lock(&writer->lock);
            writer_finish_writes(writer, batch, STATUS_OK, NULL);
            pthread_mutex_unlock(&writer->lock);
            return;
        }
        atomic_fetch_add_explicit(&writer->stats->commit_failures, 1, memory_order_relaxed);
        bool goes_on = batch->claim_count + batch->binding_count > 0 || writer->is_in_doubt;
        /* Where nothing is left to try again, only a look around would notice a recovery; and
         * others in the way of a write concern nobody else. */
        bool is_away =
            (writer->sql.driver->is_remote || writer->mark.is_behind) && status != STATUS_BUSY;
        /* Before those who wait hear of a doubt: while it lasts the ledger is not healthy. */
        if (goes_on || is_away)
            writer_set_health(writer, status, &error);
        if (status == STATUS_BUSY)
            status = STATUS_UNAVAILABLE;
        pthread_mutex_lock(&writer->lock);
        writer_finish_writes(writer, batch, writer->is_in_doubt ? STATUS_UNKNOWN : status, &error);
        pthread_mutex_unlock(&writer->lock);
        if (!goes_on)
            return;
        if (!writer_pause(writer, &pause_ms)) {
            writer->gave_up = true;
            log_event(LOG_ERROR, "claims_given_up", LOG_FIELD("claims", LOG_I64(writer->pending)),
                      LOG_FIELD("why", LOG_TEXT("stopping while the ledger refuses; none of them "
                                                "was answered as issued")));
            return;
        }
    }
}

/* After a large commit its clients, or others, send their next claims one after the other: while
 * they keep coming, the next transaction waits for them, for at most half as long as the last one
 * took. A sync shared by all of them costs much less than one for the first few and one for the
 * rest. A server that is not in a hurry never waits. Called with the lock held. */
static void writer_linger(struct writer *writer)
{
    int64_t left_ns = writer->last_commit_ns / 2;
    size_t gathered_count = 0;

    if (writer->last_claim_count < LINGER_CLAIMS_MIN)
        return;
    if (left_ns > LINGER_MAX_NS)
        left_ns = LINGER_MAX_NS;
    while (left_ns > 0 && !writer->stopping && writer->gathering.writes == NULL &&
           writer->gathering.claim_count > gathered_count) {
        struct timespec until = clock_deadline_in_ns(LINGER_STEP_NS);
        gathered_count = writer->gathering.claim_count;
        while (pthread_cond_timedwait(&writer->work, &writer->lock, &until) == 0)
            continue;
        left_ns -= LINGER_STEP_NS;
    }
}

static void writer_check_others(struct writer *writer)
{
    struct error error = {""};
    enum status status = mark_check(&writer->mark, &writer->sql, &error);

    if (status == STATUS_CONFLICT)
        writer_die(&error);
    writer_set_health(writer, status, &error);
}

/* Waits for work. The database is looked at meanwhile: it may go and come back while nobody writes,
 * or be exchanged. Called with the lock held. */
static void writer_wait(struct writer *writer)
{
    bool is_owner = writer->sql.driver->is_remote && writer->options->use == LEDGER_OWN;
    int64_t calm_ms = is_owner ? OWNER_CHECK_MS : IDLE_CHECK_MS;

    writer_serve_repair(writer);
    while (write_batch_is_empty(&writer->gathering) && !writer->stopping) {
        int64_t pause_ms = atomic_load(&writer->healthy) ? calm_ms : AWAY_CHECK_MS;
        struct timespec until = clock_deadline_in_ms(pause_ms);
        if (pthread_cond_timedwait(&writer->work, &writer->lock, &until) != 0) {
            pthread_mutex_unlock(&writer->lock);
            writer_check_others(writer);
            pthread_mutex_lock(&writer->lock);
        }
        writer_serve_repair(writer);
    }
}

static void *writer_main(void *context)
{
    struct writer *writer = context;
    const struct ledger_file *file = writer->sql.driver->file;

    pthread_setname_np(pthread_self(), "ledger-writer");
    pthread_mutex_lock(&writer->lock);
    for (;;) {
        writer_wait(writer);
        if (write_batch_is_empty(&writer->gathering) || writer->gave_up)
            break;
        writer_linger(writer);
        struct write_batch batch = writer->gathering;
        if (batch.writes == NULL)
            batch.writes_end = &batch.writes;
        writer->gathering = writer->writing;
        write_batch_clear(&writer->gathering);
        pthread_mutex_unlock(&writer->lock);

        writer_commit_batch(writer, &batch);
        int64_t pause_ms = file != NULL ? file->tend(writer->sql.session, writer->stats) : 0;
        if (pause_ms > 0)
            writer_sleep_ms(pause_ms);

        pthread_mutex_lock(&writer->lock);
        writer->writing = batch;
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

static void writer_release(struct writer *writer)
{
    write_batch_release(&writer->gathering);
    write_batch_release(&writer->writing);
    issue_room_release(&writer->room);
    outbox_release(&writer->outbox);
    free(writer->states);
    pthread_cond_destroy(&writer->work);
    pthread_cond_destroy(&writer->finished);
    pthread_mutex_destroy(&writer->lock);
}

enum status writer_start(struct writer *writer, struct sql sql,
                         const struct ledger_options *options, struct ledger_stats *stats,
                         struct error *error)
{
    *writer = (struct writer){.sql = sql, .options = options, .stats = stats};
    writer->room.tries_again = options->use == LEDGER_SHARE;
    writer->room.attempts_max =
        options->issue_attempts > 0 ? options->issue_attempts : ISSUE_ATTEMPTS_MAX;
    bool tells = false;
    for (enum ledger_sink sink = 0; sink < LEDGER_SINKS; sink++)
        tells = tells || options->tells[sink];
    if (tells) {
        outbox_init(&writer->outbox, options);
        writer->sql.outbox = &writer->outbox;
    }
    atomic_store(&writer->healthy, true);
    write_batch_clear(&writer->gathering);
    write_batch_clear(&writer->writing);
    pthread_mutex_init(&writer->lock, NULL);
    clock_condition_init(&writer->work);
    pthread_cond_init(&writer->finished, NULL);
    enum status status = STATUS_OK;
    if (sql.driver->is_remote)
        status = mark_enter(&writer->mark, &writer->sql, options->use, error);
    if (status == STATUS_OK && pthread_create(&writer->thread, NULL, writer_main, writer) != 0)
        status = error_set(error, STATUS_UNAVAILABLE, "cannot start the ledger's thread");
    if (status != STATUS_OK)
        writer_release(writer);
    return status;
}

void writer_stop(struct writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    writer->stopping = true;
    pthread_cond_signal(&writer->work);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    if (writer->sql.driver->is_remote && !writer->gave_up)
        mark_leave(&writer->mark, &writer->sql, writer->options->use);
    writer_release(writer);
}
