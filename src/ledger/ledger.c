/* ledger.c: opening the database, and the ways in: the writer for what changes, sessions of their
 * own for what only looks. */
#include "ledger/ledger.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/zone.h"
#include "ledger/driver.h"
#include "ledger/inside.h"
#include "ledger/migrate.h"
#include "ledger/repair/repair.h"
#include "ledger/writer.h"

#define TIMEOUT_DEFAULT_MS            10000
#define READ_PAUSE_MS                 500

#define LEDGER_DRIVER_LIST(kind, ...) &ledger_##kind##_driver,
static const struct ledger_driver *const ledger_drivers[] = {LEDGER_KINDS(LEDGER_DRIVER_LIST)};

struct ledger {
    struct ledger_options options;
    const struct ledger_driver *driver;
    struct ledger_store *store;
    struct ledger_stats stats;
    struct writer writer;
    struct batcher batcher;
    struct ledger_session *writer_session;
    pthread_mutex_t readers_lock;
    pthread_cond_t reader_free;
    struct ledger_session **readers; /* idle ones */
    unsigned readers_idle;
    bool read_failed;                    /* the last read did, because the database is away */
    int64_t read_again_ms;               /* then the next may try */
    pthread_mutex_t term_lock;           /* around the next, while it is used */
    struct ledger_session *term_session; /* of a remote database, for terms only; NULL: not yet */
};

/* --- opening and closing --- */

static const struct ledger_driver *ledger_driver_for(const char *url)
{
    const struct ledger_kind *kind = ledger_kind_of(url);

    for (size_t i = 0; i < sizeof(ledger_drivers) / sizeof(ledger_drivers[0]); i++) {
        const struct ledger_driver *driver = ledger_drivers[i];
        ensure(driver->store_open && driver->store_close && driver->session_open &&
               driver->session_close && driver->begin && driver->commit && driver->rollback &&
               driver->savepoint && driver->savepoint_end && driver->run &&
               driver->insert_coupons && driver->schema_lock && driver->schema_unlock &&
               driver->schema_version && driver->schema_apply);
        if (kind != NULL && strcmp(driver->name, kind->name) == 0)
            return driver;
    }
    return NULL;
}

static enum status ledger_unknown(struct error *error)
{
    struct span known = LEDGER_KIND_EXAMPLES;

    return error_set(error, STATUS_INVALID, "ledger: unknown kind of URL; known: %.*s",
                     (int)known.length, known.bytes);
}

static struct store_options ledger_store_options(const struct ledger_options *options)
{
    return (struct store_options){
        .url = options->url,
        .password = options->password,
        .use = options->use,
        .integrity = options->integrity,
        .timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : TIMEOUT_DEFAULT_MS,
    };
}

static void ledger_release(struct ledger *ledger)
{
    for (unsigned i = 0; i < ledger->readers_idle; i++)
        ledger->driver->session_close(ledger->readers[i]);
    ledger->driver->session_close(ledger->writer_session);
    ledger->driver->session_close(ledger->term_session);
    ledger->driver->store_close(ledger->store);
    pthread_mutex_destroy(&ledger->term_lock);
    pthread_cond_destroy(&ledger->reader_free);
    pthread_mutex_destroy(&ledger->readers_lock);
    batcher_release(&ledger->batcher);
    free(ledger->readers);
    free(ledger);
}

static void ledger_on_lost(void *context)
{
    struct ledger *ledger = context;
    writer_lost(&ledger->writer);
}

static enum status ledger_open_sessions(struct ledger *ledger, struct error *error)
{
    const struct ledger_driver *driver = ledger->driver;
    struct store_options options = ledger_store_options(&ledger->options);

    /* A gate in memory may be wrong as soon as another process owns the ledger. */
    if (options.use == LEDGER_OWN) {
        options.on_lost = ledger_on_lost;
        options.context = ledger;
    }
    enum status status = driver->store_open(&ledger->store, &options, error);

    if (status == STATUS_OK)
        status =
            driver->session_open(ledger->store, SESSION_WRITER, &ledger->writer_session, error);
    if (status == STATUS_OK)
        status = migrate_run(&(struct sql){.driver = driver, .session = ledger->writer_session},
                             LEDGER_MIGRATION_APPLY, NULL, NULL, error);
    for (unsigned i = 0; i < ledger->options.readers && status == STATUS_OK; i++) {
        status = driver->session_open(ledger->store, SESSION_READER, &ledger->readers[i], error);
        if (status == STATUS_OK)
            ledger->readers_idle++;
    }
    return status;
}

/* The driver's words say which connection owns the ledger; the ledger itself knows whose it is. */
static void ledger_name_owner(struct ledger *ledger, struct error *error)
{
    struct sql sql = {.driver = ledger->driver};
    struct error unheard;

    if (!sql.driver->is_remote || sql.driver->session_open(ledger->store, SESSION_READER,
                                                           &sql.session, &unheard) != STATUS_OK)
        return;
    mark_name_owner(&sql, error);
    sql.driver->session_close(sql.session);
}

enum status ledger_open(struct ledger **ledger, const struct ledger_options *options,
                        struct error *error)
{
    const struct ledger_driver *driver = ledger_driver_for(options->url);

    ensure(options->readers > 0 && options->on_issued != NULL && options->on_durable != NULL);
    *ledger = NULL;
    if (driver == NULL)
        return ledger_unknown(error);
    struct ledger *opened = calloc(1, sizeof(*opened));
    if (opened == NULL ||
        (opened->readers = calloc(options->readers, sizeof(*opened->readers))) == NULL) {
        free(opened);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the ledger");
    }
    opened->options = *options;
    opened->driver = driver;
    pthread_mutex_init(&opened->readers_lock, NULL);
    pthread_mutex_init(&opened->term_lock, NULL);
    pthread_cond_init(&opened->reader_free, NULL);
    batcher_init(&opened->batcher);
    enum status status = ledger_open_sessions(opened, error);
    if (status == STATUS_CONFLICT)
        ledger_name_owner(opened, error);
    if (status == STATUS_OK)
        status = writer_start(&opened->writer,
                              (struct sql){.driver = driver,
                                           .session = opened->writer_session,
                                           .store = opened->store},
                              &opened->options, &opened->stats, error);
    if (status != STATUS_OK) {
        ledger_release(opened);
        return status;
    }
    *ledger = opened;
    return STATUS_OK;
}

enum status ledger_migrate(const struct ledger_options *options, enum ledger_migration mode,
                           ledger_migration_fn note, void *context, struct error *error)
{
    const struct ledger_driver *driver = ledger_driver_for(options->url);
    struct store_options opening = ledger_store_options(options);
    struct ledger_store *store = NULL;
    struct ledger_session *session = NULL;

    if (driver == NULL)
        return ledger_unknown(error);
    opening.use = LEDGER_SHARE;
    opening.reads_only = mode == LEDGER_MIGRATION_SHOW;
    enum status status = driver->store_open(&store, &opening, error);
    if (status == STATUS_OK)
        status = driver->session_open(store, opening.reads_only ? SESSION_READER : SESSION_SCHEMA,
                                      &session, error);
    if (status == STATUS_OK)
        status = migrate_run(&(struct sql){.driver = driver, .session = session}, mode, note,
                             context, error);
    driver->session_close(session);
    driver->store_close(store);
    return status;
}

int ledger_schema(const char *url)
{
    const struct ledger_driver *driver = ledger_driver_for(url);
    return driver != NULL ? migrate_newest(driver->name) : 0;
}

bool ledger_is_served(const char *url)
{
    const struct ledger_driver *driver = ledger_driver_for(url);
    return driver != NULL && driver->is_remote;
}

/* The path behind the scheme of one that is a file. */
static enum status ledger_file_of(const char *url, const struct ledger_file **file,
                                  const char **path, struct error *error)
{
    const struct ledger_driver *driver = ledger_driver_for(url);

    *file = driver != NULL ? driver->file : NULL;
    *path = strchr(url, ':') != NULL ? strchr(url, ':') + 1 : url;
    return *file != NULL ? STATUS_OK
                         : error_set(error, STATUS_INVALID,
                                     "this ledger is no SQLite file; PostgreSQL and MySQL are "
                                     "backed up and restored with their own tools");
}

enum status ledger_backup(const char *url, const char *to, struct ledger_copy *copy,
                          struct error *error)
{
    const struct ledger_file *file;
    const char *path;
    enum status status = ledger_file_of(url, &file, &path, error);

    return status == STATUS_OK ? file->backup(path, to, copy, error) : status;
}

enum status ledger_restore(const char *url, const char *from, enum ledger_restore how,
                           struct ledger_copy *copy, struct error *error)
{
    const struct ledger_file *file;
    const char *path;
    enum status status = ledger_file_of(url, &file, &path, error);

    return status == STATUS_OK ? file->restore(path, from, how, copy, error) : status;
}

void ledger_close(struct ledger *ledger)
{
    if (ledger == NULL)
        return;
    writer_stop(&ledger->writer);
    ledger_release(ledger);
}

/* --- issuing --- */

uint64_t ledger_issue(struct ledger *ledger, const struct claim *claims, size_t claim_count,
                      const struct key_binding *bindings, size_t binding_count)
{
    return writer_issue(&ledger->writer, claims, claim_count, bindings, binding_count);
}

uint64_t ledger_durable(const struct ledger *ledger)
{
    return atomic_load(&ledger->writer.durable);
}

size_t ledger_pending(const struct ledger *ledger)
{
    return atomic_load_explicit(&ledger->writer.pending, memory_order_relaxed);
}

bool ledger_healthy(const struct ledger *ledger)
{
    return atomic_load_explicit(&ledger->writer.healthy, memory_order_relaxed);
}

/* --- writes --- */

enum status ledger_write(struct ledger *ledger, write_fn body, void *argument, struct error *error)
{
    return writer_run(&ledger->writer, body, argument, error);
}

enum status ledger_write_last(struct ledger *ledger, write_fn body, void *argument,
                              struct error *error)
{
    return writer_run_in(&ledger->writer, WRITE_LAST, body, argument, error);
}

enum status ledger_write_counts(struct ledger *ledger, write_fn body, void *argument,
                                struct error *error)
{
    return writer_run_in(&ledger->writer, WRITE_COUNTS, body, argument, error);
}

/* --- reads --- */

struct sql ledger_reader_take(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->readers_lock);
    while (ledger->readers_idle == 0)
        pthread_cond_wait(&ledger->reader_free, &ledger->readers_lock);
    struct ledger_session *session = ledger->readers[--ledger->readers_idle];
    pthread_mutex_unlock(&ledger->readers_lock);
    return (struct sql){.driver = ledger->driver, .session = session};
}

void ledger_reader_return(struct ledger *ledger, struct sql sql)
{
    pthread_mutex_lock(&ledger->readers_lock);
    ledger->readers[ledger->readers_idle++] = sql.session;
    pthread_cond_signal(&ledger->reader_free);
    pthread_mutex_unlock(&ledger->readers_lock);
}

/* In the words that the state is told in. */
static enum status ledger_refuse(struct ledger *ledger, struct error *error)
{
    if (error != NULL)
        ledger_state(ledger, error);
    return STATUS_UNAVAILABLE;
}

/* While the database is away, not everyone waits until it has not answered: one who asks does, now
 * and then, and tells the others. */
enum status ledger_read_begin(struct ledger *ledger, struct sql *sql, struct error *error)
{
    bool is_away = false;

    if (!ledger_healthy(ledger)) {
        int64_t now_ms = clock_monotonic_ms();
        pthread_mutex_lock(&ledger->readers_lock);
        is_away = ledger->read_failed && now_ms < ledger->read_again_ms;
        if (!is_away)
            ledger->read_again_ms = now_ms + READ_PAUSE_MS;
        pthread_mutex_unlock(&ledger->readers_lock);
    }
    if (is_away)
        return ledger_refuse(ledger, error);
    *sql = ledger_reader_take(ledger);
    return STATUS_OK;
}

enum status ledger_read_end(struct ledger *ledger, struct sql sql, enum status status,
                            struct error *error)
{
    ledger_reader_return(ledger, sql);
    pthread_mutex_lock(&ledger->readers_lock);
    ledger->read_failed = status == STATUS_UNAVAILABLE;
    if (ledger->read_failed)
        ledger->read_again_ms = clock_monotonic_ms() + READ_PAUSE_MS;
    pthread_mutex_unlock(&ledger->readers_lock);
    if (!ledger_is_behind(ledger) || (status != STATUS_OK && status != STATUS_NOT_FOUND))
        return status;
    return ledger_refuse(ledger, error);
}

/* --- terms --- */

/* Neither long reads nor what the writer waits for may hold them up. */
enum status ledger_term_begin(struct ledger *ledger, struct sql *sql, struct error *error)
{
    enum status status = STATUS_OK;

    if (!ledger->driver->is_remote)
        return ledger_read_begin(ledger, sql, error);
    if (ledger_is_behind(ledger))
        return ledger_refuse(ledger, error);
    pthread_mutex_lock(&ledger->term_lock);
    if (ledger->term_session == NULL)
        status = ledger->driver->session_open(ledger->store, SESSION_TERMS, &ledger->term_session,
                                              error);
    *sql = (struct sql){.driver = ledger->driver, .session = ledger->term_session};
    if (status != STATUS_OK)
        pthread_mutex_unlock(&ledger->term_lock);
    return status;
}

enum status ledger_term_end(struct ledger *ledger, struct sql sql, enum status status,
                            struct error *error)
{
    if (!ledger->driver->is_remote)
        return ledger_read_end(ledger, sql, status, error);
    pthread_mutex_unlock(&ledger->term_lock);
    return status;
}

enum status ledger_term_write(struct ledger *ledger, write_fn body, void *argument,
                              struct error *error)
{
    struct sql sql;

    if (!ledger->driver->is_remote)
        return ledger_write(ledger, body, argument, error);
    enum status status = ledger_term_begin(ledger, &sql, error);
    if (status != STATUS_OK)
        return status;
    status = sql.driver->begin(sql.session, error);
    if (status == STATUS_OK) {
        status = body(&sql, argument, error);
        if (status == STATUS_OK)
            status = sql.driver->commit(sql.session, error);
        if (status != STATUS_OK)
            sql.driver->rollback(sql.session);
    }
    return ledger_term_end(ledger, sql, status, error);
}

bool ledger_is_shared(const struct ledger *ledger)
{
    return ledger->options.use == LEDGER_SHARE;
}

bool ledger_is_shareable(const struct ledger *ledger)
{
    return ledger->driver->is_remote;
}

/* --- an older ledger --- */

bool ledger_is_behind(const struct ledger *ledger)
{
    return atomic_load(&ledger->writer.behind);
}

enum status ledger_compare(struct ledger *ledger, const struct ledger_memory *memory,
                           int64_t policy_id, struct ledger_gap *gap, struct error *error)
{
    struct repair repair;
    struct sql sql = ledger_reader_take(ledger);

    repair_init(&repair, memory, clock_wall_ms());
    enum status status = repair_find_gap(&repair, &sql, policy_id, gap, error);
    repair_release(&repair);
    ledger_reader_return(ledger, sql);
    return status;
}

enum status ledger_balance(struct ledger *ledger, int64_t policy_id, struct ledger_balance *balance,
                           struct error *error)
{
    struct sql sql = ledger_reader_take(ledger);
    enum status status = balance_read(&sql, policy_id, balance, error);

    ledger_reader_return(ledger, sql);
    return status;
}

static void ledger_repaired(struct repair *repair, enum status status, struct ledger_repair *done)
{
    *done = status == STATUS_OK ? repair->done : (struct ledger_repair){0};
    if (done->is_done)
        repair_log(repair);
    repair_release(repair);
}

enum status ledger_repair(struct ledger *ledger, const struct ledger_memory *memory,
                          struct ledger_repair *done, struct error *error)
{
    struct repair repair;

    repair_init(&repair, memory, clock_wall_ms());
    enum status status = writer_repair(&ledger->writer, repair_write, &repair, error);
    ledger_repaired(&repair, status, done);
    return status;
}

enum status ledger_rewrite(struct ledger *ledger, const struct ledger_memory *memory,
                           struct ledger_repair *done, struct error *error)
{
    struct repair repair;

    repair_init(&repair, memory, clock_wall_ms());
    enum status status =
        writer_run_in(&ledger->writer, WRITE_BEHIND_EVENTS, repair_write, &repair, error);
    ledger_repaired(&repair, status, done);
    return status;
}

enum status ledger_write_back(struct ledger *ledger, const struct ledger_memory *memory,
                              int64_t policy_id, struct ledger_repair *done, struct error *error)
{
    struct repair repair;

    repair_init(&repair, memory, clock_wall_ms());
    repair.policy_id = policy_id;
    enum status status =
        writer_run_in(&ledger->writer, WRITE_BEHIND_EVENTS, repair_write_one, &repair, error);
    ledger_repaired(&repair, status, done);
    return status;
}

/* --- seeing inside --- */

const struct ledger_stats *ledger_stats(const struct ledger *ledger)
{
    return &ledger->stats;
}

int64_t ledger_orders_keep_days(const struct ledger *ledger)
{
    return ledger->options.orders_keep_days;
}

bool ledger_keeps_moments(const struct ledger *ledger)
{
    return ledger->options.keeps_moments;
}

const struct zone *ledger_zone(const struct ledger *ledger)
{
    return ledger->options.zone != NULL ? ledger->options.zone : zone_utc();
}

struct batcher *ledger_batcher(struct ledger *ledger)
{
    return &ledger->batcher;
}

int64_t ledger_room(const struct ledger *ledger)
{
    const struct ledger_file *file = ledger->driver->file;

    return file != NULL ? file->room(ledger->store) : -1;
}

const char *ledger_kind(const struct ledger *ledger)
{
    return ledger->driver->name;
}

void ledger_state(struct ledger *ledger, struct error *failure)
{
    if (ledger_healthy(ledger)) {
        error_set(failure, STATUS_OK, "ok");
        return;
    }
    pthread_mutex_lock(&ledger->writer.lock);
    *failure = ledger->writer.trouble;
    pthread_mutex_unlock(&ledger->writer.lock);
}
