/* shop.h: a whole service on a file of its own, with one desk, for the tests of claim/.
 *
 * shop_stall() holds the database's write lock, so that commits wait; shop_break_disk() lets every
 * write to a file fail.
 *
 * Threads: the test's own; only shop_ring() comes from others.
 */
#pragma once

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/desk.h"
#include "claim/service.h"

#define SHOP_PATIENCE_MS 30000 /* far longer than anything takes */
#define SHOP_WAITS_MAX   100000

/* What became of one wish. */
struct shop_answer {
    int count;
    struct wish wish;
};

struct shop {
    char folder[64];
    char path[96];
    char url[128];
    struct service_options options;
    struct service *service;
    struct desk *desk;
    pthread_mutex_t lock;
    pthread_cond_t wakeup;
    bool rung;
    int waits;
    sqlite3 *staller; /* not NULL: it holds the write lock */
    struct error error;
};

static inline void shop_answered(void *context, void *asker, const struct wish *wish)
{
    struct shop_answer *answer = asker;
    (void)context;
    answer->count++;
    answer->wish = *wish;
}

static inline void shop_ring(void *context)
{
    struct shop *shop = context;
    pthread_mutex_lock(&shop->lock);
    shop->rung = true;
    pthread_cond_signal(&shop->wakeup);
    pthread_mutex_unlock(&shop->lock);
}

static inline void shop_start(struct shop *shop)
{
    struct desk_options desk_options = {
        .answer = shop_answered, .wake = shop_ring, .context = shop};

    if (service_open(&shop->service, &shop->options, &shop->error) != STATUS_OK)
        fail_msg("service_open: %s", shop->error.text);
    desk_options.service = shop->service;
    assert_int_equal(desk_open(&shop->desk, &desk_options, &shop->error), STATUS_OK);
}

static inline void shop_stop(struct shop *shop)
{
    desk_close(shop->desk);
    service_close(shop->service);
    shop->desk = NULL;
    shop->service = NULL;
}

static inline void shop_restart(struct shop *shop)
{
    shop_stop(shop);
    shop_start(shop);
}

static inline int shop_set_up(void **state)
{
    struct shop *shop = calloc(1, sizeof(*shop));
    pthread_condattr_t monotonic;

    log_configure(LOG_ERROR + 1, LOG_LOGFMT, STDERR_FILENO);
    signal(SIGXFSZ, SIG_IGN);
    /* In memory where there is such a place: nothing here is about what survives a power cut. */
    snprintf(shop->folder, sizeof(shop->folder), "%s/dibs-shop-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(shop->folder));
    snprintf(shop->path, sizeof(shop->path), "%s/dibs.db", shop->folder);
    snprintf(shop->url, sizeof(shop->url), "sqlite:%s", shop->path);
    pthread_mutex_init(&shop->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&shop->wakeup, &monotonic);
    pthread_condattr_destroy(&monotonic);
    shop->options = (struct service_options){.gate_url = "local",
                                             .ledger_url = shop->url,
                                             .relay_url = "direct",
                                             .integrity = LEDGER_CHECK_FULL,
                                             .pending_max = 100000,
                                             .ack_timeout_ms = SHOP_PATIENCE_MS,
                                             .pool_threads = 2};
    shop_start(shop);
    *state = shop;
    return 0;
}

static inline int shop_tear_down(void **state)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};
    struct shop *shop = *state;
    char name[128];

    /* A test that failed in the middle of trouble must not take the others with it. */
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    sqlite3_close(shop->staller);
    shop_stop(shop);
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        snprintf(name, sizeof(name), "%s%s", shop->path, suffixes[i]);
        unlink(name);
    }
    rmdir(shop->folder);
    pthread_cond_destroy(&shop->wakeup);
    pthread_mutex_destroy(&shop->lock);
    free(shop);
    return 0;
}

/* --- trouble --- */

static inline void shop_execute(sqlite3 *database, const char *text)
{
    if (sqlite3_exec(database, text, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(database));
}

/* Commits wait until shop_resume(); what `shop->staller` writes meanwhile comes before them. */
static inline void shop_stall(struct shop *shop)
{
    assert_int_equal(sqlite3_open(shop->path, &shop->staller), SQLITE_OK);
    sqlite3_busy_timeout(shop->staller, SHOP_PATIENCE_MS);
    shop_execute(shop->staller, "PRAGMA wal_autocheckpoint = 0; BEGIN IMMEDIATE");
}

static inline void shop_resume(struct shop *shop)
{
    shop_execute(shop->staller, "COMMIT");
    sqlite3_close(shop->staller);
    shop->staller = NULL;
}

static inline void shop_limit_files(rlim_t size)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = size;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static inline void shop_break_disk(void)
{
    shop_limit_files(0);
}

static inline void shop_fix_disk(void)
{
    shop_limit_files(RLIM_INFINITY);
}

/* --- claiming --- */

static inline struct wish shop_wish(int64_t policy_id, const char *user, uint8_t key)
{
    struct wish wish = {.policy_id = policy_id, .user = id_of(span_of(user))};
    static uint32_t made_count;

    if (key != 0) {
        wish.request_id.bytes[0] = 0x80;
        wish.request_id.bytes[1] = key;
        memcpy(wish.request_id.bytes + 2, wish.user.bytes, /* a key is its user's */
               wish.user.length < 14 ? wish.user.length : 14);
    } else {
        made_count++;
        memcpy(wish.request_id.bytes + 8, &made_count, sizeof(made_count));
    }
    return wish;
}

static inline void shop_submit(struct shop *shop, int64_t policy_id, const char *user, uint8_t key,
                               struct shop_answer *answer)
{
    struct wish wish = shop_wish(policy_id, user, key);
    *answer = (struct shop_answer){0};
    desk_submit(shop->desk, &wish, answer);
}

static inline void shop_tick(struct shop *shop)
{
    desk_tick(shop->desk, clock_wall_ms());
}

/* Waits for the bell, but not longer than a loop's timer would; and not for ever. */
static inline void shop_wait(struct shop *shop)
{
    struct timespec until;

    if (++shop->waits > SHOP_WAITS_MAX)
        fail_msg("waited in vain");

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 20000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&shop->lock);
    if (!shop->rung)
        pthread_cond_timedwait(&shop->wakeup, &shop->lock, &until);
    shop->rung = false;
    pthread_mutex_unlock(&shop->lock);
}

/* Ticks until everything is answered. */
static inline void shop_settle(struct shop *shop)
{
    int64_t deadline_ms = clock_monotonic_ms() + SHOP_PATIENCE_MS;

    for (shop_tick(shop); desk_waiting(shop->desk) > 0; shop_tick(shop)) {
        assert_true(clock_monotonic_ms() < deadline_ms);
        shop_wait(shop);
    }
}

static inline struct wish shop_claim(struct shop *shop, int64_t policy_id, const char *user,
                                     uint8_t key)
{
    struct shop_answer answer;
    shop_submit(shop, policy_id, user, key, &answer);
    shop_settle(shop);
    assert_int_equal(answer.count, 1);
    return answer.wish;
}

/* --- policies --- */

static inline int64_t shop_create_with(struct shop *shop, struct policy policy)
{
    struct policy_view view;
    snprintf(policy.name, sizeof(policy.name), "test");
    policy.discount_value = 10;
    if (policy.per_user_limit == 0)
        policy.per_user_limit = 1;
    if (service_policy_create(shop->service, &policy, &view, &shop->error) != STATUS_OK)
        fail_msg("service_policy_create: %s", shop->error.text);
    return view.policy.id;
}

static inline int64_t shop_create(struct shop *shop, int64_t total, int32_t per_user_limit)
{
    return shop_create_with(shop,
                            (struct policy){.total = total, .per_user_limit = per_user_limit});
}

static inline struct policy_view shop_show(struct shop *shop, int64_t policy_id)
{
    struct policy_view view;
    if (service_policy_show(shop->service, policy_id, &view, &shop->error) != STATUS_OK)
        fail_msg("service_policy_show: %s", shop->error.text);
    return view;
}

static inline enum status shop_set_total(struct shop *shop, int64_t policy_id, int64_t total)
{
    struct policy_change change = POLICY_CHANGE(total, total);
    struct policy_view view;
    return service_policy_change(shop->service, policy_id, &change, &view, &shop->error);
}

static inline enum status shop_set_reserve(struct shop *shop, int64_t policy_id, int64_t reserve)
{
    struct policy_change change = POLICY_CHANGE(reserve, reserve);
    struct policy_view view;
    return service_policy_change(shop->service, policy_id, &change, &view, &shop->error);
}

static inline enum status shop_set_paused(struct shop *shop, int64_t policy_id, bool paused)
{
    struct policy_change change = POLICY_CHANGE(paused, paused);
    struct policy_view view;
    return service_policy_change(shop->service, policy_id, &change, &view, &shop->error);
}

static inline enum status shop_close_policy(struct shop *shop, int64_t policy_id)
{
    struct policy_change change = {.closes = true};
    struct policy_view view;
    return service_policy_change(shop->service, policy_id, &change, &view, &shop->error);
}

static inline enum status shop_cancel(struct shop *shop, int64_t policy_id, int64_t seq)
{
    struct coupon coupon;
    return service_coupon_cancel(shop->service, policy_id, seq, NULL, &coupon, &shop->error);
}

/* One number out of the file, past everything that is being tested. */
static inline int64_t shop_query(struct shop *shop, const char *text, int64_t policy_id)
{
    sqlite3 *database = NULL;
    sqlite3_stmt *prepared = NULL;

    assert_int_equal(sqlite3_open_v2(shop->path, &database, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    sqlite3_busy_timeout(database, SHOP_PATIENCE_MS);
    if (sqlite3_prepare_v2(database, text, -1, &prepared, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(database));
    sqlite3_bind_int64(prepared, 1, policy_id);
    assert_int_equal(sqlite3_step(prepared), SQLITE_ROW);
    int64_t number = sqlite3_column_int64(prepared, 0);
    sqlite3_finalize(prepared);
    sqlite3_close(database);
    return number;
}

/* Guarantee 6: 0 when total = unleased + open leases (count - rows) + active. */
static inline int64_t shop_imbalance(struct shop *shop, int64_t policy_id)
{
    return shop_query(shop,
                      "SELECT p.unleased - p.total"
                      " + (SELECT COALESCE(SUM(l.count - (SELECT COUNT(*) FROM coupon c"
                      "      WHERE c.policy_id = l.policy_id AND c.seq >= l.first_seq"
                      "        AND c.seq < l.first_seq + l.count)), 0)"
                      "    FROM lease l WHERE l.policy_id = p.id AND l.state = 'OPEN')"
                      " + (SELECT COUNT(*) FROM coupon c WHERE c.policy_id = p.id"
                      "      AND c.state IN ('ISSUED', 'REDEEMED'))"
                      " FROM policy p WHERE p.id = ?",
                      policy_id);
}

static inline int64_t shop_active(struct shop *shop, int64_t policy_id)
{
    return shop_query(shop,
                      "SELECT COUNT(*) FROM coupon WHERE policy_id = ? AND"
                      " state IN ('ISSUED', 'REDEEMED')",
                      policy_id);
}
