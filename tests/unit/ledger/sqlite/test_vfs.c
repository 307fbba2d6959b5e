/* test_vfs.c: gathered WAL writes, over a file system that counts, fails and is copied at
 * every step as a crash would leave it. */
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/error.h"
#include "ledger/sqlite/vfs.h"

/* --- the file system below: SQLite's own, watched --- */

static struct {
    int writes, syncs; /* of WAL files */
    int fail_write_at; /* this one from now on fails, after half of it was written */
    void (*before_sync)(void);
    void (*after_step)(void); /* a write or a sync of a WAL is done */
} disk;

struct watched_file {
    sqlite3_file file;
    sqlite3_file real[];
};

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((struct watched_file *)file)->real;
}

static void step_done(void)
{
    void (*look)(void) = disk.after_step;
    disk.after_step = NULL; /* looking is not a step */
    if (look != NULL)
        look();
    disk.after_step = look;
}

static int watched_close(sqlite3_file *file)
{
    return real_of(file)->pMethods->xClose(real_of(file));
}

static int watched_read(sqlite3_file *file, void *bytes, int length, sqlite3_int64 offset)
{
    return real_of(file)->pMethods->xRead(real_of(file), bytes, length, offset);
}

static int watched_write(sqlite3_file *file, const void *bytes, int length, sqlite3_int64 offset)
{
    disk.writes++;
    if (disk.fail_write_at > 0 && --disk.fail_write_at == 0) {
        (void)real_of(file)->pMethods->xWrite(real_of(file), bytes, length / 2, offset);
        return SQLITE_FULL;
    }
    int code = real_of(file)->pMethods->xWrite(real_of(file), bytes, length, offset);
    step_done();
    return code;
}

static int watched_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    return real_of(file)->pMethods->xTruncate(real_of(file), size);
}

static int watched_sync(sqlite3_file *file, int flags)
{
    disk.syncs++;
    if (disk.before_sync != NULL)
        disk.before_sync();
    int code = real_of(file)->pMethods->xSync(real_of(file), flags);
    step_done();
    return code;
}

static int watched_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int watched_lock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int watched_unlock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int watched_check_lock(sqlite3_file *file, int *result)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), result);
}

static int watched_control(sqlite3_file *file, int operation, void *argument)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), operation, argument);
}

static int watched_sector(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int watched_device(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static const sqlite3_io_methods watched_methods = {
    .iVersion = 1,
    .xClose = watched_close,
    .xRead = watched_read,
    .xWrite = watched_write,
    .xTruncate = watched_truncate,
    .xSync = watched_sync,
    .xFileSize = watched_size,
    .xLock = watched_lock,
    .xUnlock = watched_unlock,
    .xCheckReservedLock = watched_check_lock,
    .xFileControl = watched_control,
    .xSectorSize = watched_sector,
    .xDeviceCharacteristics = watched_device,
};

static sqlite3_vfs watched_vfs;

static int watched_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                        int *flags_out)
{
    sqlite3_vfs *real = vfs->pAppData;
    struct watched_file *watched = (struct watched_file *)file;

    if ((flags & SQLITE_OPEN_WAL) == 0)
        return real->xOpen(real, name, file, flags, flags_out);
    watched->file.pMethods = NULL;
    int code = real->xOpen(real, name, watched->real, flags, flags_out);
    if (code == SQLITE_OK)
        watched->file.pMethods = &watched_methods;
    return code;
}

/* Below the layer that is tested, which stands on whatever is the default when it is registered. */
static void watch_the_disk(void)
{
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);
    watched_vfs = *real;
    watched_vfs.zName = "watched";
    watched_vfs.pNext = NULL;
    watched_vfs.pAppData = real;
    watched_vfs.szOsFile = (int)sizeof(struct watched_file) + real->szOsFile;
    watched_vfs.xOpen = watched_open;
    ensure(sqlite3_vfs_register(&watched_vfs, 1) == SQLITE_OK);
    (void)sqlite_vfs_register();
    ensure(sqlite3_vfs_register(real, 1) == SQLITE_OK);
}

/* --- the database above --- */

static char folder[64];
static char path[96];
static char copy[96];
static sqlite3 *database;
static int committed_rows; /* what a commit has returned for */
static int writing_rows;   /* in the transaction on its way */

static void run(sqlite3 *connection, const char *text)
{
    if (sqlite3_exec(connection, text, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(connection));
}

static int number(sqlite3 *connection, const char *text)
{
    sqlite3_stmt *prepared = NULL;
    int answer = -1;
    if (sqlite3_prepare_v2(connection, text, -1, &prepared, NULL) == SQLITE_OK &&
        sqlite3_step(prepared) == SQLITE_ROW)
        answer = sqlite3_column_int(prepared, 0);
    sqlite3_finalize(prepared);
    return answer;
}

static void open_database(void)
{
    assert_int_equal(sqlite3_open_v2(path, &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                                     sqlite_vfs_register()),
                     SQLITE_OK);
    run(database, "PRAGMA page_size = 2048; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                  "PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -16384;");
}

static int set_up(void **state)
{
    (void)state;
    memset(&disk, 0, sizeof(disk));
    committed_rows = 0;
    writing_rows = 0;
    snprintf(folder, sizeof(folder), "%s/dibs-vfs-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/a.db", folder);
    snprintf(copy, sizeof(copy), "%s/copy.db", folder);
    open_database();
    run(database, "CREATE TABLE t (id INTEGER PRIMARY KEY, words BLOB)");
    return 0;
}

static void drop(const char *name)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char full[128];
    for (int i = 0; i < 3; i++) {
        snprintf(full, sizeof(full), "%s%s", name, suffixes[i]);
        unlink(full);
    }
}

static int tear_down(void **state)
{
    (void)state;
    memset(&disk, 0, sizeof(disk));
    sqlite3_close(database);
    drop(path);
    drop(copy);
    return rmdir(folder);
}

static int insert(int count, int size)
{
    char text[200];
    snprintf(text, sizeof(text),
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
             " INSERT INTO t (words) SELECT randomblob(%d) FROM n",
             count, size);
    writing_rows = count;
    int code = sqlite3_exec(database, text, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        committed_rows += count;
    writing_rows = 0;
    return code;
}

/* --- tests --- */

static void test_sqlite_vfs__a_commit_is_one_write(void **state)
{
    (void)state;
    insert(1, 10);
    disk.writes = disk.syncs = 0;
    assert_int_equal(insert(20, 1000), SQLITE_OK); /* many pages */
    assert_int_equal(disk.writes, 1);
    assert_int_equal(disk.syncs, 1);
}

static int rows_seen_by_another;

static void look_from_another(void)
{
    sqlite3 *other = NULL;
    assert_int_equal(sqlite3_open_v2(path, &other, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    rows_seen_by_another = number(other, "SELECT COUNT(*) FROM t");
    sqlite3_close(other);
}

/* Nobody sees a commit before it is synced, and everybody after. */
static void test_sqlite_vfs__readers_see_only_what_is_synced(void **state)
{
    (void)state;
    insert(3, 100);
    disk.before_sync = look_from_another;
    rows_seen_by_another = -1;
    insert(5, 100);
    disk.before_sync = NULL;
    assert_int_equal(rows_seen_by_another, 3);
    look_from_another();
    assert_int_equal(rows_seen_by_another, 8);
}

/* Beyond what is gathered, and spilled from a small cache, where frames are written twice. */
static void test_sqlite_vfs__large_transactions(void **state)
{
    (void)state;
    run(database, "PRAGMA cache_size = 20");
    assert_int_equal(insert(3000, 1500), SQLITE_OK);
    run(database, "BEGIN; UPDATE t SET words = randomblob(1500); UPDATE t SET words = zeroblob(7);"
                  "UPDATE t SET words = randomblob(900) WHERE id % 3 = 0; COMMIT");
    look_from_another();
    assert_int_equal(rows_seen_by_another, 3000);
    assert_int_equal(number(database, "SELECT COUNT(*) FROM t WHERE length(words) = 7"), 2000);
    run(database, "BEGIN; DELETE FROM t WHERE id % 2 = 0; UPDATE t SET words = x'00'; ROLLBACK");
    assert_int_equal(insert(1, 10), SQLITE_OK);
    sqlite3_close(database);
    open_database();
    assert_int_equal(number(database, "SELECT COUNT(*) FROM t"), 3001);
    assert_int_equal(number(database, "SELECT COUNT(*) FROM t WHERE length(words) = 7"), 2000);
    assert_int_equal(number(database, "SELECT COUNT(*) FROM pragma_integrity_check"
                                      " WHERE integrity_check = 'ok'"),
                     1);
}

/* A write that fails half-way fails its commit alone. */
static void test_sqlite_vfs__failed_write(void **state)
{
    (void)state;
    for (int at = 1; at <= 3; at++) {
        disk.fail_write_at = at;
        assert_int_equal(insert(200, 1000) & 0xff, SQLITE_FULL); /* four writes of 64 KiB */
        disk.fail_write_at = 0;
        look_from_another();
        assert_int_equal(rows_seen_by_another, committed_rows);
        assert_int_equal(insert(2, 1000), SQLITE_OK);
        look_from_another();
        assert_int_equal(rows_seen_by_another, committed_rows);
    }
    assert_int_equal(committed_rows, 6);
}

static void copy_file(const char *suffix)
{
    char from[128];
    char to[128];
    char bytes[65536];
    size_t length;

    snprintf(from, sizeof(from), "%s%s", path, suffix);
    snprintf(to, sizeof(to), "%s%s", copy, suffix);
    FILE *in = fopen(from, "rb");
    if (in == NULL)
        return;
    FILE *out = fopen(to, "wb");
    assert_non_null(out);
    while ((length = fread(bytes, 1, sizeof(bytes), in)) > 0)
        assert_int_equal(fwrite(bytes, 1, length, out), length);
    fclose(in);
    fclose(out);
}

static int crashes;

/* What a restart finds when the process dies here: all that was committed, and of the rest all or
 * nothing. Read without the layer, as the sqlite3 tool would. */
static void crash_here(void)
{
    sqlite3 *restarted = NULL;

    copy_file("");
    copy_file("-wal");
    assert_int_equal(sqlite3_open_v2(copy, &restarted, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    int rows = number(restarted, "SELECT COUNT(*) FROM t");
    if (rows != committed_rows && rows != committed_rows + writing_rows)
        fail_msg("crash %d: %d rows, %d were committed", crashes, rows, committed_rows);
    assert_int_equal(number(restarted, "SELECT COUNT(*) FROM pragma_integrity_check"
                                       " WHERE integrity_check = 'ok'"),
                     1);
    sqlite3_close(restarted);
    drop(copy);
    crashes++;
}

static void checkpoint(int mode)
{
    int frames = -1;
    int moved = -1;
    assert_int_equal(sqlite3_wal_checkpoint_v2(database, NULL, mode, &frames, &moved), SQLITE_OK);
    assert_int_equal(frames, moved);
}

/* Through a restart of the log, a truncated one, failures in between, and the last close. */
static void test_sqlite_vfs__crash_after_every_step(void **state)
{
    (void)state;
    crashes = 0;
    disk.after_step = crash_here;
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < 5; i++)
            assert_int_equal(insert(1 + 7 * i, 700), SQLITE_OK);
        disk.fail_write_at = 1 + round % 3;
        assert_int_equal(insert(300, 700) & 0xff, SQLITE_FULL);
        disk.fail_write_at = 0;
        crash_here();
        assert_int_equal(insert(1, 10), SQLITE_OK);
        if (round % 3 == 0)
            checkpoint(SQLITE_CHECKPOINT_PASSIVE);
        if (round % 5 == 4)
            checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
        crash_here();
    }
    assert_true(crashes > 150);
    sqlite3_close(database);
    crash_here();
    open_database();
    assert_int_equal(number(database, "SELECT COUNT(*) FROM t"), committed_rows);
}

int main(void)
{
#define VFS_TEST(name) cmocka_unit_test_setup_teardown(test_sqlite_vfs__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        VFS_TEST(a_commit_is_one_write),  VFS_TEST(readers_see_only_what_is_synced),
        VFS_TEST(large_transactions),     VFS_TEST(failed_write),
        VFS_TEST(crash_after_every_step),
    };
    watch_the_disk();
    return cmocka_run_group_tests_name("sqlite_vfs", tests, NULL, NULL);
}
