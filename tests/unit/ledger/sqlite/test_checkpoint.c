/* test_checkpoint.c: the log is moved into the main file while that file's syncs take as long as
 * they like, over a disk that loses and tears what was not synced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "fragile.h"
#include "ledger/sqlite/checkpoint.h"
#include "ledger/sqlite/vfs.h"

static const struct checkpoint_limits LIMITS = {
    .step = 30, .enough = 150, .slow = 1000, .patience_ms = 400};

static char folder[64];
static char path[96];
static char copy[96];
static struct ledger_store *store;
static struct checkpointer checkpointer;
static sqlite3 *database;
static int log_frames;
static int committed_rows; /* what a commit has returned for */
static int writing_rows;   /* in the transaction on its way */
static int crashes;

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

static int note_frames(void *context, sqlite3 *connection, const char *name, int frames)
{
    (void)context, (void)connection, (void)name;
    log_frames = frames;
    return SQLITE_OK;
}

static int set_up(void **state)
{
    char url[128];
    struct error error = {""};
    (void)state;

    snprintf(folder, sizeof(folder), "%s/dibs-checkpoint-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/a.db", folder);
    snprintf(copy, sizeof(copy), "%s/copy.db", folder);
    snprintf(url, sizeof(url), "sqlite:%s", path);
    const struct store_options options = {.url = url, .integrity = LEDGER_CHECK_OFF};
    assert_int_equal(ledger_sqlite_store_open(&store, &options, &error), STATUS_OK);
    assert_int_equal(ledger_sqlite_connect(store, SESSION_WRITER, &database, &error), STATUS_OK);
    sqlite3_wal_hook(database, note_frames, NULL);
    run(database, "CREATE TABLE t (id INTEGER PRIMARY KEY, key BLOB UNIQUE, words BLOB)");
    committed_rows = writing_rows = crashes = 0;
    fragile_watch(path);
    assert_int_equal(checkpointer_open(&checkpointer, store, database, &LIMITS, &error), STATUS_OK);
    return 0;
}

static void drop(const char *name)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};
    char full[128];
    for (int i = 0; i < 4; i++) {
        snprintf(full, sizeof(full), "%s%s", name, suffixes[i]);
        unlink(full);
    }
}

static int tear_down(void **state)
{
    (void)state;
    fragile_after_step(NULL);
    fragile_hold(false);
    checkpointer_close(&checkpointer);
    sqlite3_close(database);
    fragile_forget();
    ledger_sqlite_store_close(store);
    drop(path);
    drop(copy);
    return rmdir(folder);
}

/* A commit of users all over the index, and what follows it. */
static struct checkpoint_progress commit(int rows)
{
    char text[200];
    snprintf(text, sizeof(text),
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
             " INSERT INTO t (key, words) SELECT randomblob(16), randomblob(100) FROM n",
             rows);
    writing_rows = rows;
    run(database, text);
    committed_rows += rows;
    writing_rows = 0;
    return checkpointer_step(&checkpointer, log_frames);
}

static void step_until_over(void)
{
    while (!commit(3).is_over)
        continue;
}

/* All that was committed, and of the rest all or nothing. Read without our layer. */
static void look_after_a_crash(void)
{
    sqlite3 *restarted = NULL;

    fragile_crash_into(copy);
    assert_int_equal(sqlite3_open_v2(copy, &restarted, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    int rows = number(restarted, "SELECT COUNT(*) FROM t");
    if (rows != committed_rows && rows != committed_rows + writing_rows)
        fail_msg("crash %d: %d rows, %d were committed", crashes, rows, committed_rows);
    if (number(restarted, "SELECT COUNT(*) FROM pragma_integrity_check"
                          " WHERE integrity_check = 'ok'") != 1)
        fail_msg("crash %d: the database is damaged", crashes);
    sqlite3_close(restarted);
    drop(copy);
    crashes++;
}

/* --- tests --- */

static void test_sqlite_checkpoint__power_cut_after_any_write_loses_nothing(void **state)
{
    int overs = 0;
    (void)state;

    fragile_after_step(look_after_a_crash);
    while (overs < 5) {
        /* Now and then its syncs are held up for longer than anybody waits for them. */
        fragile_hold(committed_rows % 97 < 40 && checkpointer.frames < 2 * LIMITS.enough);
        overs += commit(1 + committed_rows % 7).is_over;
    }
    assert_true(crashes > 300);
    assert_true(fragile_counts().log_syncs > 100);
    assert_true(fragile_counts().main_syncs >= overs);
}

static void test_sqlite_checkpoint__no_commit_waits_for_the_main_file(void **state)
{
    (void)state;
    step_until_over();
    fragile_hold(true);
    while (checkpointer.frames < 4 * LIMITS.enough)
        assert_false(commit(3).is_over);
    assert_true(fragile_is_stuck());
    /* It is copied on, and stays in the log. */
    assert_true(checkpointer.moved > 3 * LIMITS.enough);
    look_after_a_crash();
    fragile_hold(false);
    step_until_over();
    commit(1);
    assert_true(checkpointer.frames < LIMITS.step);
    assert_int_equal(fragile_counts().syncs_by_writer, 0);
}

static void test_sqlite_checkpoint__waits_so_long_for_the_last_sync_and_no_longer(void **state)
{
    (void)state;
    step_until_over();
    /* Now and then the log starts over meanwhile. */
    do {
        commit(1);
    } while (checkpointer.frames < LIMITS.enough || checkpointer.frames < checkpointer.retry ||
             checkpointer.unsynced > 0 || checkpointer.anchored != 0 ||
             !syncer_wait(&checkpointer.syncer, 0) ||
             syncer_took_ms(&checkpointer.syncer) > LIMITS.patience_ms / 2);
    /* All that was copied is durable, so the next sync is that of the end of the log. */
    fragile_hold(true);
    while (!fragile_is_stuck())
        assert_false(commit(1).is_over);
    for (int i = 0; i < LIMITS.enough; i++)
        assert_false(commit(1).is_over);
    look_after_a_crash();
    fragile_hold(false);
    step_until_over();
}

static void test_sqlite_checkpoint__a_step_is_a_small_one(void **state)
{
    (void)state;
    checkpointer.limits.enough = checkpointer.now.enough = 20 * LIMITS.step;
    commit(3000);
    commit(1);
    for (bool is_over = false; !is_over;) {
        int before = fragile_counts().main_writes;
        run(database, "UPDATE t SET words = randomblob(100) WHERE id IN"
                      " (SELECT 1 + abs(random() % 3000) FROM t LIMIT 10)");
        is_over = checkpointer_step(&checkpointer, log_frames).is_over;
        assert_true(fragile_counts().main_writes - before < 2 * LIMITS.step);
    }
    assert_true(fragile_counts().main_writes > 5 * LIMITS.step);
}

static void test_sqlite_checkpoint__commits_slow_down_before_the_log_has_no_end(void **state)
{
    int64_t pause_ms = 0;
    (void)state;
    fragile_hold(true);
    while (checkpointer.frames <= LIMITS.slow) {
        assert_int_equal(pause_ms, 0);
        pause_ms = commit(3).pause_ms;
    }
    int64_t first_ms = pause_ms;
    while (checkpointer.frames < LIMITS.slow + 2500)
        pause_ms = commit(3).pause_ms;
    assert_true(first_ms > 0 && pause_ms > first_ms);
    assert_true(pause_ms <= 100);
    fragile_hold(false);
    step_until_over();
    assert_int_equal(commit(1).pause_ms, 0);
}

/* Somebody reads an older state for long. */
static void test_sqlite_checkpoint__a_long_reader_loses_nothing(void **state)
{
    sqlite3 *reader = NULL;
    struct error error;
    (void)state;
    commit(5);
    assert_int_equal(ledger_sqlite_connect(store, SESSION_READER, &reader, &error), STATUS_OK);
    run(reader, "BEGIN");
    int rows = number(reader, "SELECT COUNT(*) FROM t");
    while (checkpointer.frames < 3 * LIMITS.enough)
        assert_false(commit(3).is_over);
    assert_int_equal(number(reader, "SELECT COUNT(*) FROM t"), rows);
    look_after_a_crash();
    run(reader, "COMMIT");
    step_until_over();
    assert_int_equal(number(reader, "SELECT COUNT(*) FROM t"), committed_rows);
    sqlite3_close(reader);
}

int main(void)
{
#define CHECKPOINT_TEST(name) \
    cmocka_unit_test_setup_teardown(test_sqlite_checkpoint__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CHECKPOINT_TEST(power_cut_after_any_write_loses_nothing),
        CHECKPOINT_TEST(no_commit_waits_for_the_main_file),
        CHECKPOINT_TEST(waits_so_long_for_the_last_sync_and_no_longer),
        CHECKPOINT_TEST(a_step_is_a_small_one),
        CHECKPOINT_TEST(commits_slow_down_before_the_log_has_no_end),
        CHECKPOINT_TEST(a_long_reader_loses_nothing),
    };
    return cmocka_run_group_tests_name("sqlite_checkpoint", tests, NULL, NULL);
}
