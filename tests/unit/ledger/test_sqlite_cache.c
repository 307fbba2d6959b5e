/* test_sqlite_cache.c: the page cache against a plain model of one, and under a real database. */
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
#include "ledger/sqlite_cache.h"

#define PAGE_SIZE  512
#define EXTRA_SIZE 104
#define KEYS_MAX   600

static sqlite3_pcache_methods2 methods;

static sqlite3_pcache *make_cache(int pages_max)
{
    sqlite3_pcache *cache = methods.xCreate(PAGE_SIZE, EXTRA_SIZE, 1);
    assert_non_null(cache);
    methods.xCachesize(cache, pages_max);
    return cache;
}

/* Fetches a page that may be new and marks it with its key. */
static sqlite3_pcache_page *put(sqlite3_pcache *cache, unsigned key)
{
    sqlite3_pcache_page *page = methods.xFetch(cache, key, 2);
    assert_non_null(page);
    memset(page->pBuf, (int)(key % 251), PAGE_SIZE);
    memset(page->pExtra, 1, EXTRA_SIZE);
    return page;
}

static bool has(sqlite3_pcache *cache, unsigned key)
{
    sqlite3_pcache_page *page = methods.xFetch(cache, key, 0);
    if (page == NULL)
        return false;
    for (size_t i = 0; i < PAGE_SIZE; i++)
        assert_int_equal(((unsigned char *)page->pBuf)[i], key % 251);
    methods.xUnpin(cache, page, 0);
    return true;
}

static void test_sqlite_cache__comes_too_late_once_sqlite_runs(void **state)
{
    (void)state;
    assert_int_equal(sqlite3_initialize(), SQLITE_OK);
    assert_false(sqlite_cache_register());
}

static void test_sqlite_cache__drops_the_least_recently_used(void **state)
{
    sqlite3_pcache *cache = make_cache(100);
    (void)state;
    for (unsigned key = 1; key <= 100; key++)
        methods.xUnpin(cache, put(cache, key), 0);
    assert_true(has(cache, 1));
    methods.xUnpin(cache, put(cache, 101), 0);
    methods.xUnpin(cache, put(cache, 102), 0);
    assert_int_equal(methods.xPagecount(cache), 100);
    assert_true(has(cache, 1));
    assert_false(has(cache, 2));
    assert_false(has(cache, 3));
    assert_true(has(cache, 4));
    methods.xShrink(cache);
    assert_int_equal(methods.xPagecount(cache), 0);
    methods.xDestroy(cache);
}

static void test_sqlite_cache__pinned_pages_stay(void **state)
{
    sqlite3_pcache *cache = make_cache(100);
    sqlite3_pcache_page *pinned[200];
    (void)state;
    for (unsigned key = 1; key <= 200; key++) {
        sqlite3_pcache_page *easy = methods.xFetch(cache, key, 1);
        if (key <= 90)
            assert_non_null(easy);
        else
            assert_null(easy); /* SQLite is to write some of what it has changed */
        pinned[key - 1] = put(cache, key);
    }
    assert_int_equal(methods.xPagecount(cache), 200);
    methods.xCachesize(cache, 50);
    methods.xShrink(cache);
    assert_int_equal(methods.xPagecount(cache), 200);
    for (unsigned key = 1; key <= 200; key++) {
        assert_ptr_equal(methods.xFetch(cache, key, 0), pinned[key - 1]);
        methods.xUnpin(cache, pinned[key - 1], 0);
    }
    assert_int_equal(methods.xPagecount(cache), 50);
    methods.xDestroy(cache);
}

static void test_sqlite_cache__new_pages_are_told_from_old(void **state)
{
    static const char zeros[EXTRA_SIZE];
    sqlite3_pcache *cache = make_cache(10);
    (void)state;
    for (unsigned key = 1; key <= 40; key++) {
        sqlite3_pcache_page *page = methods.xFetch(cache, key, 1);
        assert_memory_equal(page->pExtra, zeros, EXTRA_SIZE);
        memset(page->pExtra, 1, EXTRA_SIZE);
        methods.xUnpin(cache, page, 0);
        assert_int_equal(*(char *)methods.xFetch(cache, key, 1)->pExtra, 1);
        methods.xUnpin(cache, page, key % 3 == 0);
    }
    methods.xDestroy(cache);
}

/* --- against a model --- */

struct model {
    sqlite3_pcache *cache;
    sqlite3_pcache_page *pages[KEYS_MAX + 1]; /* by key; NULL: not there */
    unsigned marks[KEYS_MAX + 1];             /* the key that was written into its bytes */
    bool pinned[KEYS_MAX + 1];
    unsigned random;
};

static unsigned pick(struct model *model, unsigned limit)
{
    model->random = model->random * 1664525u + 1013904223u;
    return (unsigned)(((uint64_t)model->random * limit) >> 32);
}

static void model_fetch(struct model *model, unsigned key)
{
    sqlite3_pcache_page *page = methods.xFetch(model->cache, key, 2);
    assert_non_null(page);
    if (model->pages[key] == NULL) {
        assert_int_equal(*(char *)page->pExtra, 0);
        memset(page->pExtra, 1, EXTRA_SIZE);
        memset(page->pBuf, (int)(key % 251), PAGE_SIZE);
        model->marks[key] = key;
    } else {
        assert_ptr_equal(page, model->pages[key]);
    }
    model->pages[key] = page;
    model->pinned[key] = true;
}

/* What SQLite does to put two pages into order: one goes far away and comes back. */
static void model_swap(struct model *model, unsigned a, unsigned b)
{
    sqlite3_pcache_page *page = model->pages[a];
    unsigned mark = model->marks[a];
    bool pinned = model->pinned[a];

    methods.xRekey(model->cache, model->pages[a], a, 1000000);
    methods.xRekey(model->cache, model->pages[b], b, a);
    methods.xRekey(model->cache, page, 1000000, b);
    model->pages[a] = model->pages[b];
    model->marks[a] = model->marks[b];
    model->pinned[a] = model->pinned[b];
    model->pages[b] = page;
    model->marks[b] = mark;
    model->pinned[b] = pinned;
}

static void model_move(struct model *model, unsigned from, unsigned to)
{
    methods.xRekey(model->cache, model->pages[from], from, to);
    model->pages[to] = model->pages[from];
    model->marks[to] = model->marks[from];
    model->pinned[to] = model->pinned[from];
    model->pages[from] = NULL;
}

static void model_truncate(struct model *model, unsigned limit)
{
    methods.xTruncate(model->cache, limit);
    for (unsigned key = limit; key <= KEYS_MAX; key++)
        model->pages[key] = NULL;
}

static void model_compare(struct model *model)
{
    int count = 0;
    for (unsigned key = 1; key <= KEYS_MAX; key++) {
        sqlite3_pcache_page *page = methods.xFetch(model->cache, key, 0);
        assert_ptr_equal(page, model->pages[key]);
        if (page == NULL)
            continue;
        count++;
        assert_int_equal(((unsigned char *)page->pBuf)[0], model->marks[key] % 251);
        assert_int_equal(((unsigned char *)page->pBuf)[PAGE_SIZE - 1], model->marks[key] % 251);
        if (!model->pinned[key])
            methods.xUnpin(model->cache, page, 0);
    }
    assert_int_equal(methods.xPagecount(model->cache), count);
}

static void model_step(struct model *model)
{
    unsigned key = 1 + pick(model, KEYS_MAX);
    unsigned other = 1 + pick(model, KEYS_MAX);
    bool is_pinned = model->pages[key] != NULL && model->pinned[key];
    bool other_is_pinned = model->pages[other] != NULL && model->pinned[other];

    switch (pick(model, 8)) {
    case 0:
        if (is_pinned) {
            methods.xUnpin(model->cache, model->pages[key], 1);
            model->pages[key] = NULL;
        }
        break;
    case 1:
    case 2:
        if (is_pinned) {
            methods.xUnpin(model->cache, model->pages[key], 0);
            model->pinned[key] = false;
        }
        break;
    case 3:
        if (is_pinned && other_is_pinned && key != other)
            model_swap(model, key, other);
        break;
    case 4:
        if (is_pinned && !other_is_pinned && key != other)
            model_move(model, key, other);
        break;
    default:
        model_fetch(model, key);
        break;
    }
}

static void test_sqlite_cache__does_what_a_plain_one_does(void **state)
{
    struct model *model = calloc(1, sizeof(*model));
    (void)state;
    ensure(model != NULL);
    model->cache = make_cache(KEYS_MAX);
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < 200; i++)
            model_step(model);
        /* Often the very end, which is all that a commit ever cuts, and now and then much. */
        model_truncate(model,
                       KEYS_MAX + 1 - pick(model, 1 + pick(model, 1 + pick(model, 900) % 600)));
        model_compare(model);
    }
    model_truncate(model, 1);
    model_compare(model);
    methods.xDestroy(model->cache);
    free(model);
}

static void test_sqlite_cache__truncates_far_keys(void **state)
{
    sqlite3_pcache *cache = make_cache(100);
    (void)state;
    methods.xUnpin(cache, put(cache, 4000000000u), 0);
    methods.xUnpin(cache, put(cache, 7), 0);
    methods.xUnpin(cache, put(cache, 3000000), 0);
    methods.xTruncate(cache, 3000001);
    assert_int_equal(methods.xPagecount(cache), 2);
    methods.xUnpin(cache, put(cache, 4000000000u), 0);
    methods.xTruncate(cache, 3000000);
    assert_int_equal(methods.xPagecount(cache), 1);
    assert_true(has(cache, 7));
    methods.xTruncate(cache, 0);
    assert_int_equal(methods.xPagecount(cache), 0);
    methods.xDestroy(cache);
}

/* --- under a database --- */

static void run(sqlite3 *database, const char *text)
{
    if (sqlite3_exec(database, text, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(database));
}

static int number(sqlite3 *database, const char *text)
{
    sqlite3_stmt *prepared = NULL;
    int answer = -1;
    if (sqlite3_prepare_v2(database, text, -1, &prepared, NULL) == SQLITE_OK &&
        sqlite3_step(prepared) == SQLITE_ROW)
        answer = sqlite3_column_int(prepared, 0);
    sqlite3_finalize(prepared);
    return answer;
}

/* A cache much smaller than the database: pages come, go, are written early and are split. */
static void test_sqlite_cache__carries_a_database(void **state)
{
    static const char insert[] =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
        "INSERT INTO t (name, more) SELECT hex(randomblob(12)), randomblob(i % 700) FROM n";
    char folder[] = "/tmp/dibs-test-cache-XXXXXX";
    char path[64];
    sqlite3 *database = NULL;
    (void)state;
    ensure(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/cache.db", folder);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    run(database, "PRAGMA page_size = 512; PRAGMA journal_mode = WAL; PRAGMA cache_size = 60;"
                  "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT UNIQUE, more BLOB)");
    for (int round = 1; round <= 6; round++) {
        run(database, "BEGIN");
        run(database, insert);
        run(database, "SAVEPOINT s; DELETE FROM t WHERE id % 3 = 0");
        run(database, "ROLLBACK TO s; RELEASE s; COMMIT");
        run(database, "BEGIN");
        run(database, insert);
        run(database, "ROLLBACK");
        assert_int_equal(number(database, "SELECT COUNT(*) FROM t"), 3000 * round);
    }
    run(database, "DELETE FROM t WHERE id > 1000; VACUUM");
    assert_int_equal(number(database, "SELECT COUNT(*) FROM t NOT INDEXED"), 1000);
    assert_int_equal(number(database, "SELECT COUNT(*) FROM t WHERE name >= ''"), 1000);
    assert_int_equal(number(database, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                     1);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sqlite_cache__drops_the_least_recently_used),
        cmocka_unit_test(test_sqlite_cache__pinned_pages_stay),
        cmocka_unit_test(test_sqlite_cache__new_pages_are_told_from_old),
        cmocka_unit_test(test_sqlite_cache__does_what_a_plain_one_does),
        cmocka_unit_test(test_sqlite_cache__truncates_far_keys),
        cmocka_unit_test(test_sqlite_cache__carries_a_database),
        cmocka_unit_test(test_sqlite_cache__comes_too_late_once_sqlite_runs),
    };
    ensure(sqlite_cache_register());
    ensure(sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &methods) == SQLITE_OK);
    return cmocka_run_group_tests_name("sqlite_cache", tests, NULL, NULL);
}
