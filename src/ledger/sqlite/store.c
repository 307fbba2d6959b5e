/* store.c: opens the file, in WAL mode with synchronous=FULL; readers open it read-only. */
#include "ledger/sqlite/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "ledger/sqlite/vfs.h"

/* A claim changes one page of the table's end, shared by its batch, and one page of the users'
 * index, which is its own. Small pages make that cheap, and a long WAL lets many changes of an
 * index page share one checkpoint. */
#define PAGE_SIZE             2048
#define BUSY_TIMEOUT_MS       5000
#define PAGE_CACHE_KIB_WRITER 32768
#define PAGE_CACHE_KIB_READER 2048
#define LOCKS_READ_MAX        20
/* A file of so many bytes is checked while the server works: reading it takes a while. */
#define CHECKED_ASIDE_MIN (16 << 20)

/* --- the lock ---
 *
 * flock() on the file: the kernel lets go when the holder dies and knows who it is. SQLite's own
 * locks are of another kind and do not meet this one. */

/* The process on a line of the kernel's list of locks, when it is about this file; else 0. Lines
 * read "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF". */
static long owner_read_lock(const char *line, const struct stat *file)
{
    const char *flock_word = strstr(line, "FLOCK");
    const char *write_word = flock_word == NULL ? NULL : strstr(flock_word, "WRITE");
    const char *inode_text = strrchr(line, ':');
    char *end = NULL;

    if (write_word == NULL || inode_text == NULL || inode_text < write_word)
        return 0;
    if (strtoull(inode_text + 1, NULL, 10) != file->st_ino)
        return 0;
    long pid = strtol(write_word + strlen("WRITE"), &end, 10);
    return *end == ' ' ? pid : 0;
}

/* The process that has the file locked; 0 when the kernel does not say (a holder in another
 * container, say). The list is read in pieces: when somebody else unlocks in between, a line may be
 * passed over, so it is read again. */
static long owner_find_holder(int descriptor)
{
    struct stat file;
    char line[256];
    long holder = 0;

    if (fstat(descriptor, &file) != 0)
        return 0;
    for (int i = 0; i < LOCKS_READ_MAX && holder <= 0; i++) {
        FILE *locks = fopen("/proc/locks", "re");
        if (locks == NULL)
            return 0;
        while (holder <= 0 && fgets(line, sizeof(line), locks) != NULL)
            holder = owner_read_lock(line, &file);
        fclose(locks);
    }
    return holder > 0 ? holder : 0;
}

/* The holder's command line, its arguments separated by blanks; "" when it cannot be read. */
static void owner_read_command(long pid, char *command, size_t size)
{
    char name[64];
    size_t length = 0;

    snprintf(name, sizeof(name), "/proc/%ld/cmdline", pid);
    FILE *file = fopen(name, "re");
    if (file != NULL) {
        length = fread(command, 1, size - 1, file);
        fclose(file);
    }
    for (size_t i = 0; i + 1 < length; i++)
        if (command[i] == '\0')
            command[i] = ' ';
    command[length] = '\0';
}

static enum status owner_lock_refused(int descriptor, const char *path, struct error *error)
{
    char command[160] = "";
    char holder[224] = "another process";
    long pid = owner_find_holder(descriptor);

    if (pid != 0) {
        owner_read_command(pid, command, sizeof(command));
        snprintf(holder, sizeof(holder), "process %ld%s%s", pid, command[0] == '\0' ? "" : ", ",
                 command);
    }
    return error_set(error, STATUS_CONFLICT,
                     "%s is in use (%s); only one dibs may run on a file: stop that one, give this "
                     "one another --ledger, or share one of postgres:// or mysql://",
                     path, holder);
}

/* Locks the file; the words are about `path`. */
static enum status owner_lock_file(struct owner_lock *lock, const char *file, const char *path,
                                   struct error *error)
{
    int descriptor = open(file, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);

    if (descriptor < 0)
        return error_set(error, STATUS_FAILED, "cannot open %s: %s", path, strerror(errno));
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        enum status status =
            errno == EWOULDBLOCK
                ? owner_lock_refused(descriptor, path, error)
                : error_set(error, STATUS_FAILED, "cannot lock %s: %s", path, strerror(errno));
        close(descriptor);
        return status;
    }
    *lock = (struct owner_lock){.descriptor = descriptor, .held = true};
    return STATUS_OK;
}

enum status owner_lock_take(struct owner_lock *lock, const char *path, struct error *error)
{
    return owner_lock_file(lock, path, path, error);
}

enum status owner_lock_take_name(struct owner_lock *lock, const char *path, struct error *error)
{
    char *file = NULL;

    if (asprintf(&file, "%s-lock", path) < 0)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to lock %s", path);
    enum status status = owner_lock_file(lock, file, path, error);
    free(file);
    return status;
}

void owner_lock_release(struct owner_lock *lock)
{
    if (lock->held)
        close(lock->descriptor);
    lock->held = false;
}

/* --- errors --- */

/* After a failed fsync the kernel may have dropped the pages it could not write and report success
 * the next time. Nothing this process believes about the file can be trusted any more; a restart
 * reads what is really there. */
static void ledger_sqlite_die(const char *text)
{
    log_event(LOG_ERROR, "fsync_failed", LOG_FIELD("error", LOG_TEXT(text)),
              LOG_FIELD("next", LOG_TEXT("the process ends; check the disk, then start again")));
    log_flush();
    _exit(1);
}

enum status ledger_sqlite_error(sqlite3 *database, int code, const char *what, struct error *error)
{
    const char *text = database != NULL ? sqlite3_errmsg(database) : sqlite3_errstr(code);

    switch (code) {
    case SQLITE_IOERR_FSYNC:
    case SQLITE_IOERR_DIR_FSYNC:
        ledger_sqlite_die(text);
        break;
    default:
        break;
    }
    switch (code & 0xff) {
    case SQLITE_FULL:
        return error_set(error, STATUS_UNAVAILABLE, "%s: the disk is full", what);
    case SQLITE_IOERR:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_NOMEM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_INTERRUPT:
        return error_set(error, STATUS_UNAVAILABLE, "%s: %s (%d)", what, text, code);
    default:
        return error_set(error, STATUS_FAILED, "%s: %s (%d)", what, text, code);
    }
}

enum status ledger_sqlite_execute(sqlite3 *database, const char *text, const char *what,
                                  struct error *error)
{
    if (sqlite3_exec(database, text, NULL, NULL, NULL) == SQLITE_OK)
        return STATUS_OK;
    return ledger_sqlite_error(database, sqlite3_extended_errcode(database), what, error);
}

/* --- opening --- */

static int ledger_sqlite_keep_text(void *context, int count, char **values, char **names)
{
    if (count > 0 && values[0] != NULL)
        error_set(context, STATUS_OK, "%s", values[0]);
    return 0;
}

enum status ledger_sqlite_pragma(sqlite3 *database, const char *text, struct error *answer,
                                 struct error *error)
{
    answer->text[0] = '\0';
    if (sqlite3_exec(database, text, ledger_sqlite_keep_text, answer, NULL) == SQLITE_OK)
        return STATUS_OK;
    return ledger_sqlite_error(database, sqlite3_extended_errcode(database), text, error);
}

static enum status ledger_sqlite_configure_writer(sqlite3 *database, struct error *error)
{
    struct error answer;
    char page_size[64];

    sqlite3_snprintf(sizeof(page_size), page_size, "PRAGMA page_size = %d", PAGE_SIZE);
    enum status status = ledger_sqlite_execute(database, page_size, "page_size", error);
    if (status == STATUS_OK)
        status = ledger_sqlite_pragma(database, "PRAGMA journal_mode = WAL", &answer, error);
    if (status != STATUS_OK)
        return status;
    if (strcmp(answer.text, "wal") != 0)
        return error_set(error, STATUS_FAILED,
                         "the file system does not allow WAL mode (journal_mode is %s); use a "
                         "local disk",
                         answer.text);
    return ledger_sqlite_execute(database,
                                 "PRAGMA synchronous = FULL;"
                                 "PRAGMA wal_autocheckpoint = 0;"
                                 "PRAGMA journal_size_limit = 134217728;"
                                 "PRAGMA foreign_keys = ON;"
                                 "PRAGMA secure_delete = OFF;"
                                 "PRAGMA temp_store = MEMORY;",
                                 "setting up the database", error);
}

enum status ledger_sqlite_connect(const struct ledger_store *store, enum session_kind kind,
                                  sqlite3 **database, struct error *error)
{
    const char *path = store->path;
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                (store->is_still ? SQLITE_OPEN_URI : 0) |
                (kind == SESSION_READER ? SQLITE_OPEN_READONLY
                                        : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    int code = sqlite3_open_v2(path, database, flags, sqlite_vfs_register());
    enum status status = STATUS_OK;

    if (code != SQLITE_OK) {
        status = ledger_sqlite_error(*database, code, path, error);
    } else {
        char cache[64];
        sqlite3_snprintf(sizeof(cache), cache, "PRAGMA cache_size = -%d",
                         kind == SESSION_WRITER ? PAGE_CACHE_KIB_WRITER : PAGE_CACHE_KIB_READER);
        sqlite3_busy_timeout(*database, BUSY_TIMEOUT_MS);
        status = ledger_sqlite_execute(*database, cache, path, error);
    }
    if (status == STATUS_OK && kind != SESSION_READER)
        status = ledger_sqlite_configure_writer(*database, error);
    if (status != STATUS_OK) {
        sqlite3_close(*database);
        *database = NULL;
    }
    return status;
}

/* --- the file that is there --- */

struct sqlite_identity ledger_sqlite_identify(const char *path, const char *suffix)
{
    struct sqlite_identity identity = {0};
    char *name = sqlite3_mprintf("%s%s", path, suffix);
    struct stat file;

    if (name != NULL && stat(name, &file) == 0)
        identity = (struct sqlite_identity){.device = file.st_dev, .inode = file.st_ino};
    sqlite3_free(name);
    return identity;
}

static bool ledger_sqlite_is_identical(struct sqlite_identity a, struct sqlite_identity b)
{
    return a.device == b.device && a.inode == b.inode;
}

bool ledger_sqlite_is_there(const struct ledger_store *store)
{
    struct stat file;

    return stat(store->path, &file) == 0 && file.st_dev == store->file.device &&
           file.st_ino == store->file.inode;
}

enum status ledger_sqlite_exchanged(const struct ledger_store *store, struct error *error)
{
    return error_set(error, STATUS_NOT_FOUND,
                     "%s was replaced or deleted while this server has it open", store->path);
}

void ledger_sqlite_disconnect(const struct ledger_store *store, sqlite3 *database)
{
    if (database != NULL && !store->is_still && !ledger_sqlite_is_there(store))
        sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_close(database);
}

static void ledger_sqlite_remove_beside(const struct ledger_store *store, const char *suffix)
{
    char *name = sqlite3_mprintf("%s%s", store->path, suffix);

    if (name != NULL)
        (void)unlink(name);
    sqlite3_free(name);
}

enum status ledger_sqlite_adopt(struct ledger_store *store, struct error *error)
{
    struct owner_lock owner;
    enum status status = owner_lock_take(&owner, store->path, error);

    if (status != STATUS_OK)
        return status;
    if (ledger_sqlite_is_identical(ledger_sqlite_identify(store->path, "-wal"), store->log)) {
        ledger_sqlite_remove_beside(store, "-wal");
        ledger_sqlite_remove_beside(store, "-shm");
    }
    /* The lock of the old file stays with whatever still has that open. */
    store->owner = owner;
    store->file = ledger_sqlite_identify(store->path, "");
    atomic_fetch_add(&store->generation, 1);
    return STATUS_OK;
}

int64_t ledger_sqlite_room(const struct ledger_store *store)
{
    struct statvfs disk;

    return statvfs(store->path, &disk) == 0 ? (int64_t)(disk.f_bavail * disk.f_frsize) : -1;
}

void ledger_sqlite_store_close(struct ledger_store *store)
{
    if (store == NULL)
        return;
    sqlite_check_stop(&store->check);
    owner_lock_release(&store->owner);
    owner_lock_release(&store->name);
    free(store->path);
    free(store);
}

static const char *ledger_sqlite_path(const char *url)
{
    return url + strlen("sqlite:");
}

/* "file:PATH?immutable=1", with what URIs give a meaning to escaped. */
static char *ledger_sqlite_still_uri(const char *path)
{
    struct buffer uri;

    buffer_init(&uri, 4 * strlen(path) + 64);
    buffer_append_text(&uri, "file:");
    for (const char *at = path; *at != '\0'; at++)
        buffer_printf(&uri, strchr("%?#", *at) != NULL ? "%%%02X" : "%c", (unsigned char)*at);
    buffer_append_text(&uri, "?immutable=1");
    char *text = uri.overflowed ? NULL : strndup(uri.bytes, uri.length);
    buffer_release(&uri);
    return text;
}

/* A database that is only looked at and does not exist is an empty one in memory. One that nobody
 * has open has no log beside it; opened as usual, SQLite would make one. */
static enum status ledger_sqlite_store_check(struct ledger_store *store, struct error *error)
{
    char *log_path = sqlite3_mprintf("%s-wal", store->path);
    char *path = NULL;
    bool exists = access(store->path, F_OK) == 0 || errno != ENOENT;

    store->is_still = exists && log_path != NULL && access(log_path, F_OK) != 0;
    sqlite3_free(log_path);
    if (exists && !store->is_still)
        return STATUS_OK;
    path = exists ? ledger_sqlite_still_uri(store->path) : strdup(":memory:");
    free(store->path);
    store->path = path;
    return path != NULL ? STATUS_OK : error_set(error, STATUS_UNAVAILABLE, "no memory");
}

static int64_t ledger_sqlite_size(const struct ledger_store *store)
{
    struct stat file;

    return stat(store->path, &file) == 0 ? (int64_t)file.st_size : 0;
}

/* Locks the file, and its name for as long as another may take its place, and checks it. */
static enum status ledger_sqlite_store_own(struct ledger_store *store,
                                           enum ledger_integrity integrity, struct error *error)
{
    sqlite3 *database = NULL;
    enum status status = owner_lock_take(&store->owner, store->path, error);

    if (status == STATUS_OK)
        status = owner_lock_take_name(&store->name, store->path, error);
    store->file = ledger_sqlite_identify(store->path, "");
    if (status == STATUS_OK)
        status = ledger_sqlite_connect(store, SESSION_WRITER, &database, error);
    bool is_large = ledger_sqlite_size(store) >= CHECKED_ASIDE_MIN;
    if (status == STATUS_OK && !is_large)
        status = sqlite_check_now(database, store->path, integrity, error);
    sqlite3_close(database);
    if (status == STATUS_OK && is_large && integrity != LEDGER_CHECK_OFF) {
        status = ledger_sqlite_connect(store, SESSION_READER, &database, error);
        if (status == STATUS_OK)
            status = sqlite_check_aside(&store->check, database, store->path, integrity, error);
    }
    return status;
}

enum status ledger_sqlite_store_open(struct ledger_store **store,
                                     const struct store_options *options, struct error *error)
{
    const char *path = ledger_sqlite_path(options->url);
    struct ledger_store *opened = calloc(1, sizeof(*opened));

    *store = NULL;
    if (path[0] == '\0' || strcmp(path, ":memory:") == 0) {
        free(opened);
        return error_set(error, STATUS_INVALID, "sqlite: needs a file name, as in sqlite:dibs.db");
    }
    if (opened == NULL || (opened->path = strdup(path)) == NULL) {
        free(opened);
        return error_set(error, STATUS_UNAVAILABLE, "no memory to open %s", path);
    }
    enum status status = options->reads_only
                             ? ledger_sqlite_store_check(opened, error)
                             : ledger_sqlite_store_own(opened, options->integrity, error);
    if (status != STATUS_OK) {
        ledger_sqlite_store_close(opened);
        return status;
    }
    *store = opened;
    return STATUS_OK;
}
