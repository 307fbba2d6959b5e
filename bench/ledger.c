/* ledger.c: writes coupons through the ledger, or as plain SQL without it, and tells how long it
 * took.
 *
 * usage: ledger URL drain|single|plain POLICY COUNT
 *   drain   COUNT claims handed over in batches of 500, as a worker does, until all are durable
 *   single  one claim per transaction, each durable before the next
 *   plain   the same rows as multi-row INSERTs of 500, one transaction each, nothing checked
 */
#include <libpq-fe.h>
#include <mysql.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/url.h"
#include "ledger/ledger.h"

#define BATCH 500

__attribute__((noreturn)) static void die(const char *words)
{
    fprintf(stderr, "ledger bench: %s\n", words);
    exit(1);
}

/* --- through the ledger --- */

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t durable;
    size_t void_count;
};

static void on_issued(void *context, const struct claim *claims, const enum coupon_state *states,
                      size_t count)
{
    struct waiter *waiter = context;

    (void)claims;
    for (size_t i = 0; i < count; i++)
        waiter->void_count += states[i] != COUPON_ISSUED;
}

static void on_durable(void *context)
{
    struct waiter *waiter = context;

    pthread_mutex_lock(&waiter->lock);
    pthread_cond_signal(&waiter->durable);
    pthread_mutex_unlock(&waiter->lock);
}

static void await(struct waiter *waiter, struct ledger *ledger, uint64_t ticket)
{
    pthread_mutex_lock(&waiter->lock);
    while (ledger_durable(ledger) < ticket)
        pthread_cond_wait(&waiter->durable, &waiter->lock);
    pthread_mutex_unlock(&waiter->lock);
}

/* Users come in no order, as people do. */
static void name_user(struct id *user, int64_t policy_id, int64_t seq)
{
    uint64_t mixed = ((uint64_t)policy_id << 40 ^ (uint64_t)seq) * UINT64_C(0x9e3779b97f4a7c15);
    char text[32];

    snprintf(text, sizeof(text), "u%016llx", (unsigned long long)mixed);
    *user = id_of(span_of(text));
}

static struct claim make_claim(int64_t policy_id, int64_t seq, int64_t lease_id)
{
    struct claim claim = {.policy_id = policy_id,
                          .seq = seq,
                          .lease_id = lease_id,
                          .requested_at_ms = clock_wall_ms(),
                          .nth = 1};

    name_user(&claim.user, policy_id, seq);
    memcpy(claim.request_id.bytes, &claim.seq, sizeof(claim.seq));
    memcpy(claim.request_id.bytes + 8, &policy_id, sizeof(policy_id));
    claim.request_id.bytes[0] &= 0x7f;
    return claim;
}

static struct ledger *open_ledger(const char *url, struct waiter *waiter)
{
    struct ledger *ledger = NULL;
    struct error error;
    struct ledger_options options = {.url = url,
                                     .use = LEDGER_SHARE,
                                     .integrity = LEDGER_CHECK_OFF,
                                     .readers = 1,
                                     .timeout_ms = 60000,
                                     .on_issued = on_issued,
                                     .on_durable = on_durable,
                                     .context = waiter};

    if (ledger_open(&ledger, &options, &error) != STATUS_OK)
        die(error.text);
    return ledger;
}

static int64_t create_policy(struct ledger *ledger, int64_t id, int64_t total)
{
    struct policy policy = {.id = id,
                            .name = "bench",
                            .discount_value = 10,
                            .total = total,
                            .per_user_limit = 1,
                            .created_at_ms = clock_wall_ms()};
    struct lease lease;
    struct error error;

    if (ledger_policy_create(ledger, &policy, &lease, &error) != STATUS_OK)
        die(error.text);
    return lease.id;
}

static double write_claims(struct ledger *ledger, struct waiter *waiter, int64_t policy_id,
                           int64_t lease_id, int64_t count, int64_t batch_size)
{
    struct claim *claims = malloc((size_t)batch_size * sizeof(*claims));
    int64_t started_ns = clock_monotonic_ns();
    uint64_t ticket = 0;

    for (int64_t seq = 1; seq <= count;) {
        size_t size = 0;
        for (; size < (size_t)batch_size && seq <= count; seq++)
            claims[size++] = make_claim(policy_id, seq, lease_id);
        uint64_t before = ticket;
        ticket = ledger_issue(ledger, claims, size, NULL, 0);
        /* One batch is written while the next is made; a single one has nothing behind it. */
        await(waiter, ledger, batch_size == 1 ? ticket : before);
    }
    await(waiter, ledger, ticket);
    free(claims);
    return (double)(clock_monotonic_ns() - started_ns) / 1e9;
}

/* --- plain SQL --- */

struct plain {
    PGconn *postgres;
    MYSQL *mysql;
    sqlite3 *sqlite;
};

static void plain_open(struct plain *plain, const char *url)
{
    struct url parts;
    struct error error;

    *plain = (struct plain){0};
    if (strncmp(url, "postgres", 8) == 0) {
        plain->postgres = PQconnectdb(url);
        if (PQstatus(plain->postgres) != CONNECTION_OK)
            die(PQerrorMessage(plain->postgres));
    } else if (strncmp(url, "sqlite:", 7) == 0) {
        if (sqlite3_open(url + 7, &plain->sqlite) != SQLITE_OK ||
            sqlite3_exec(plain->sqlite, "PRAGMA synchronous = FULL", NULL, NULL, NULL) != SQLITE_OK)
            die(sqlite3_errmsg(plain->sqlite));
    } else {
        plain->mysql = mysql_init(NULL);
        if (url_parse(&parts, url, &error) != STATUS_OK)
            die(error.text);
        if (mysql_real_connect(plain->mysql, parts.hosts[0].name, parts.user, parts.password,
                               parts.path, (unsigned)parts.hosts[0].port, NULL, 0) == NULL)
            die(mysql_error(plain->mysql));
        url_release(&parts);
    }
}

static void plain_run(struct plain *plain, const struct buffer *text)
{
    if (plain->postgres != NULL) {
        PGresult *result = PQexec(plain->postgres, text->bytes);
        if (PQresultStatus(result) != PGRES_COMMAND_OK)
            die(PQerrorMessage(plain->postgres));
        PQclear(result);
    } else if (plain->sqlite != NULL) {
        if (sqlite3_exec(plain->sqlite, text->bytes, NULL, NULL, NULL) != SQLITE_OK)
            die(sqlite3_errmsg(plain->sqlite));
    } else if (mysql_real_query(plain->mysql, text->bytes, text->length) != 0) {
        die(mysql_error(plain->mysql));
    }
}

static void plain_close(struct plain *plain)
{
    PQfinish(plain->postgres);
    if (plain->mysql != NULL)
        mysql_close(plain->mysql);
    sqlite3_close(plain->sqlite);
}

static void plain_append(struct buffer *text, const struct claim *claim, bool is_postgres,
                         bool is_first)
{
    buffer_printf(text, "%s(%lld,%lld,'%.*s',%d,%d,'ISSUED',%s", is_first ? "" : ",",
                  (long long)claim->policy_id, (long long)claim->seq, (int)claim->user.length,
                  claim->user.bytes, claim->nth, claim->nth, is_postgres ? "'\\x" : "x'");
    for (size_t i = 0; i < sizeof(claim->request_id.bytes); i++)
        buffer_printf(text, "%02x", claim->request_id.bytes[i]);
    buffer_printf(text, "',%lld,%lld,%lld)", (long long)claim->lease_id,
                  (long long)claim->requested_at_ms, (long long)claim->requested_at_ms);
}

/* The texts are made before the clock starts. */
static double write_plainly(const char *url, int64_t policy_id, int64_t lease_id, int64_t count)
{
    size_t text_count = (size_t)((count + BATCH - 1) / BATCH);
    struct buffer *texts = calloc(text_count, sizeof(*texts));
    struct plain plain;
    int64_t seq = 1;

    plain_open(&plain, url);
    for (size_t i = 0; i < text_count; i++) {
        buffer_init(&texts[i], 1 << 20);
        buffer_append_text(&texts[i],
                           "INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, "
                           "request_id, lease_id, requested_at, issued_at) VALUES ");
        for (int row = 0; row < BATCH && seq <= count; row++, seq++) {
            struct claim claim = make_claim(policy_id, seq, lease_id);
            plain_append(&texts[i], &claim, plain.postgres != NULL, row == 0);
        }
    }
    int64_t started_ns = clock_monotonic_ns();
    for (size_t i = 0; i < text_count; i++)
        plain_run(&plain, &texts[i]);
    double seconds = (double)(clock_monotonic_ns() - started_ns) / 1e9;
    for (size_t i = 0; i < text_count; i++)
        buffer_release(&texts[i]);
    free(texts);
    plain_close(&plain);
    return seconds;
}

int main(int argc, char **argv)
{
    struct waiter waiter = {.void_count = 0};
    double seconds;

    if (argc != 5)
        die("usage: ledger URL drain|single|plain POLICY COUNT");
    log_configure(LOG_ERROR, LOG_LOGFMT, 2);
    pthread_mutex_init(&waiter.lock, NULL);
    pthread_cond_init(&waiter.durable, NULL);
    int64_t policy_id = strtoll(argv[3], NULL, 10);
    int64_t count = strtoll(argv[4], NULL, 10);
    struct ledger *ledger = open_ledger(argv[1], &waiter);
    int64_t lease_id = create_policy(ledger, policy_id, count);
    if (strcmp(argv[2], "plain") == 0) {
        ledger_close(ledger);
        seconds = write_plainly(argv[1], policy_id, lease_id, count);
    } else {
        seconds = write_claims(ledger, &waiter, policy_id, lease_id, count,
                               strcmp(argv[2], "single") == 0 ? 1 : BATCH);
        ledger_close(ledger);
    }
    if (waiter.void_count > 0)
        die("a claim was not issued");
    printf("{\"rows\": %lld, \"seconds\": %.6f}\n", (long long)count, seconds);
    return 0;
}
