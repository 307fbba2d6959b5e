/* backup.c: copies a SQLite ledger while it is in use, and puts a copy in its place; either is
 * verified before it counts.
 *
 * Whoever copies is a reader like any other: the file is opened read-only, so that the process that
 * owns it stays the only one that writes or checkpoints. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "ledger/sqlite/store.h"

#define BUSY_TIMEOUT_MS 30000

/* Units that are neither unleased nor lent nor out, over all policies: none, or something is wrong.
 */
#define BALANCE                                                                     \
    "SELECT COUNT(*) FROM policy p WHERE p.total <> p.unleased"                     \
    " + (SELECT COUNT(*) FROM coupon c WHERE c.policy_id = p.id"                    \
    "    AND c.state IN ('ISSUED', 'REDEEMED'))"                                    \
    " + (SELECT COALESCE(SUM(l.count"                                               \
    "      - (SELECT COUNT(*) FROM coupon c WHERE c.policy_id = l.policy_id"        \
    "         AND c.seq >= l.first_seq AND c.seq < l.first_seq + l.count)"          \
    "      - (SELECT COUNT(*) FROM refused_claim r WHERE r.policy_id = l.policy_id" \
    "         AND r.seq >= l.first_seq AND r.seq < l.first_seq + l.count)), 0)"     \
    "    FROM lease l WHERE l.policy_id = p.id AND l.state = 'OPEN')"

static enum status backup_error(const char *what, const char *path, struct error *error)
{
    return error_set(error, STATUS_FAILED, "cannot %s %s: %s", what, path, strerror(errno));
}

/* --- files --- */

static enum status backup_sync(const char *path, struct error *error)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool is_safe = file >= 0 && fsync(file) == 0;
    enum status status = is_safe ? STATUS_OK : backup_error("sync", path, error);

    if (file >= 0)
        close(file);
    return status;
}

static enum status backup_sync_folder(const char *path, struct error *error)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL   ? strdup(".")
                   : slash == path ? strdup("/")
                                   : strndup(path, (size_t)(slash - path));
    enum status status = folder != NULL ? backup_sync(folder, error) : STATUS_UNAVAILABLE;

    free(folder);
    return status;
}

/* An empty file that only its owner may read: it will hold the key of the coupon codes. */
static enum status backup_create(const char *path, struct error *error)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (file < 0)
        return backup_error("create", path, error);
    close(file);
    return STATUS_OK;
}

/* --- verifying --- */

static enum status backup_number(sqlite3 *database, const char *text, int64_t *number,
                                 struct error *error)
{
    struct error answer;
    enum status status = ledger_sqlite_pragma(database, text, &answer, error);

    *number = status == STATUS_OK ? strtoll(answer.text, NULL, 10) : 0;
    return status;
}

/* A ledger of a schema that this build knows. */
static enum status backup_check_schema(sqlite3 *database, const char *path,
                                       struct ledger_copy *copy, struct error *error)
{
    int64_t is_ledger = 0;
    enum status status = backup_number(database, "PRAGMA user_version", &copy->schema, error);

    if (status == STATUS_OK)
        status = backup_number(database,
                               "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table'"
                               " AND name IN ('policy', 'lease', 'coupon', 'refused_claim')",
                               &is_ledger, error);
    if (status == STATUS_OK && (copy->schema == 0 || is_ledger != 4))
        return error_set(error, STATUS_FAILED, "%s is no ledger of dibs", path);
    return status;
}

/* Damage, and the audit's balance, in one snapshot. */
static enum status backup_verify(sqlite3 *database, const char *path, struct ledger_copy *copy,
                                 struct error *error)
{
    struct error answer;
    int64_t unbalanced = 0;
    enum status status =
        ledger_sqlite_pragma(database, "PRAGMA integrity_check(1)", &answer, error);

    if (status == STATUS_OK && strcmp(answer.text, "ok") != 0)
        return error_set(error, STATUS_FAILED, "%s is damaged: %s", path, answer.text);
    if (status == STATUS_OK)
        status = backup_check_schema(database, path, copy, error);
    if (status == STATUS_OK)
        status = backup_number(database, BALANCE, &unbalanced, error);
    if (status == STATUS_OK && unbalanced > 0)
        return error_set(error, STATUS_FAILED,
                         "%s: the stock of %lld policies does not add up; see what `dibs audit` "
                         "says of the server",
                         path, (long long)unbalanced);
    if (status == STATUS_OK)
        status = backup_number(database, "SELECT COUNT(*) FROM policy", &copy->policies, error);
    if (status == STATUS_OK)
        status = backup_number(database, "SELECT COUNT(*) FROM coupon", &copy->coupons, error);
    return status;
}

/* --- copying --- */

static enum status backup_open(const char *path, int flags, sqlite3 **database, struct error *error)
{
    int code = sqlite3_open_v2(path, database, flags | SQLITE_OPEN_EXRESCODE, NULL);

    if (code != SQLITE_OK)
        return ledger_sqlite_error(*database, code, path, error);
    sqlite3_busy_timeout(*database, BUSY_TIMEOUT_MS);
    return STATUS_OK;
}

/* All pages of one snapshot, in one step: nobody who writes meanwhile begins it anew. The copy is
 * one file, without a log beside it. */
static enum status backup_copy(sqlite3 *from, sqlite3 *to, const char *path, struct error *error)
{
    struct error answer;
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");

    if (backup == NULL)
        return ledger_sqlite_error(to, sqlite3_extended_errcode(to), path, error);
    int code = sqlite3_backup_step(backup, -1);
    int end = sqlite3_backup_finish(backup);
    if (code != SQLITE_DONE)
        return ledger_sqlite_error(to, end != SQLITE_OK ? end : code, path, error);
    return ledger_sqlite_pragma(to, "PRAGMA journal_mode = DELETE", &answer, error);
}

/* Copies the database to a new file and verifies that. */
static enum status backup_make(const char *from_path, const char *to_path, struct ledger_copy *copy,
                               struct error *error)
{
    sqlite3 *from = NULL;
    sqlite3 *to = NULL;
    struct stat file;

    *copy = (struct ledger_copy){.schema = 0};
    if (stat(from_path, &file) != 0)
        return backup_error("read", from_path, error);
    enum status status = backup_create(to_path, error);
    if (status != STATUS_OK)
        return status;
    status = backup_open(from_path, SQLITE_OPEN_READONLY, &from, error);
    if (status == STATUS_OK)
        status = backup_open(to_path, SQLITE_OPEN_READWRITE, &to, error);
    if (status == STATUS_OK)
        status = backup_copy(from, to, to_path, error);
    if (status == STATUS_OK)
        status = backup_verify(to, from_path, copy, error);
    sqlite3_close(from);
    sqlite3_close(to);
    if (status == STATUS_OK)
        status = backup_sync(to_path, error);
    if (status == STATUS_OK && stat(to_path, &file) == 0)
        copy->bytes = file.st_size;
    if (status != STATUS_OK)
        (void)unlink(to_path);
    return status;
}

enum status ledger_sqlite_backup(const char *path, const char *to, struct ledger_copy *copy,
                                 struct error *error)
{
    char *part = sqlite3_mprintf("%s.part", to);
    enum status status = part != NULL ? STATUS_OK : STATUS_UNAVAILABLE;

    if (access(to, F_OK) == 0)
        status = error_set(error, STATUS_CONFLICT,
                           "%s is there already; name a new file, or remove it", to);
    if (status == STATUS_OK)
        status = backup_make(path, part, copy, error);
    /* Not rename(): what somebody has put there meanwhile stays. */
    if (status == STATUS_OK && link(part, to) != 0)
        status = backup_error("create", to, error);
    if (status == STATUS_OK)
        status = backup_sync_folder(to, error);
    if (part != NULL && copy->schema != 0)
        (void)unlink(part);
    sqlite3_free(part);
    return status;
}

/* --- restoring --- */

/* Moves what is in the place aside, the log first: a log without its file is never applied to
 * another. */
static enum status backup_move_aside(const char *path, const char *name, struct error *error)
{
    static const char *const suffixes[] = {"-wal", "-shm", ""};
    enum status status = STATUS_OK;

    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]) && status == STATUS_OK; i++) {
        char *from = sqlite3_mprintf("%s%s", path, suffixes[i]);
        char *to = sqlite3_mprintf("%s%s", name, suffixes[i]);
        if (from == NULL || to == NULL)
            status = STATUS_UNAVAILABLE;
        else if (rename(from, to) != 0 && errno != ENOENT)
            status = backup_error("move aside", from, error);
        sqlite3_free(from);
        sqlite3_free(to);
    }
    return status;
}

/* With the place locked: nobody serves from it, and nobody begins to. */
static enum status backup_put(const char *from, const char *path, const char *part,
                              enum ledger_restore how, struct ledger_copy *copy,
                              struct error *error)
{
    struct stat file;
    bool is_taken = stat(path, &file) == 0;

    if (is_taken && how != LEDGER_RESTORE_OVER)
        return error_set(error, STATUS_CONFLICT,
                         "%s is there already; --yes moves it aside and restores", path);
    enum status status = backup_make(from, part, copy, error);
    if (status == STATUS_OK && is_taken) {
        snprintf(copy->aside, sizeof(copy->aside), "%s.before-%lld", path,
                 (long long)clock_wall_ms());
        status = backup_move_aside(path, copy->aside, error);
    }
    if (status == STATUS_OK && rename(part, path) != 0)
        status = backup_error("put in place", path, error);
    return status == STATUS_OK ? backup_sync_folder(path, error) : status;
}

enum status ledger_sqlite_restore(const char *path, const char *from, enum ledger_restore how,
                                  struct ledger_copy *copy, struct error *error)
{
    struct owner_lock name = {.held = false};
    struct owner_lock owner = {.held = false};
    char *part = sqlite3_mprintf("%s.part", path);
    enum status status = part != NULL ? STATUS_OK : STATUS_UNAVAILABLE;

    *copy = (struct ledger_copy){.schema = 0};
    if (status == STATUS_OK)
        status = owner_lock_take_name(&name, path, error);
    if (status == STATUS_OK && access(path, F_OK) == 0)
        status = owner_lock_take(&owner, path, error);
    if (status == STATUS_OK)
        status = backup_put(from, path, part, how, copy, error);
    owner_lock_release(&owner);
    owner_lock_release(&name);
    sqlite3_free(part);
    return status;
}
