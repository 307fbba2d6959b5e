/* sales.c: the ranking's board on a ledger's sales, and orders written as plain SQL, in CPU time.
 *
 * usage: sales board DATABASE DAYS LIMIT ROUNDS
 *          builds the board of a SQLite ledger, then works out the best of the last DAYS days up to
 *          the latest with sales, with where they stood the day before, ROUNDS times
 *        sales orders DATABASE FIRST COUNT PRODUCTS
 *          COUNT orders of one item into the ledger's own tables, a transaction each, nothing more
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/buffer.h"
#include "base/log.h"
#include "ledger/sales/sales.h"
#include "ranking/board.h"

#define LIMIT_MAX 100

__attribute__((noreturn)) static void die(const char *words)
{
    fprintf(stderr, "sales bench: %s\n", words);
    exit(1);
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* --- the board --- */

/* Nobody issues anything here. */
static void on_issued(void *context, const struct claim *claims, const enum coupon_state *states,
                      size_t count)
{
    (void)context;
    (void)claims;
    (void)states;
    (void)count;
}

static void on_durable(void *context)
{
    (void)context;
}

static enum status latest_place(void *context, const struct feed_place *place, struct error *error)
{
    (void)context;
    (void)place;
    (void)error;
    return STATUS_OK;
}

static enum status latest_total(void *context, int64_t day, const struct id *product_id,
                                int64_t sold, struct error *error)
{
    (void)product_id;
    (void)sold;
    (void)error;
    *(int64_t *)context = day;
    return STATUS_OK;
}

static void work_out(struct board *board, int64_t first, int64_t last, size_t limit)
{
    struct sales_line lines[LIMIT_MAX];
    struct sales_line before[LIMIT_MAX];
    struct id ids[LIMIT_MAX];
    size_t count;
    struct error error;

    struct board_question question = {
        .kind = BOARD_TOP, .first_day = first, .last_day = last, .limit = limit};
    if (board->ops->ask(board, &question, lines, &count, &error) != STATUS_OK)
        die(error.text);
    if (count != limit)
        die("the ledger has too few products");
    for (size_t i = 0; i < count; i++)
        ids[i] = lines[i].product_id;
    question = (struct board_question){.kind = BOARD_OF,
                                       .first_day = first - 1,
                                       .last_day = last - 1,
                                       .ids = ids,
                                       .id_count = count};
    if (board->ops->ask(board, &question, before, &count, &error) != STATUS_OK)
        die(error.text);
}

static void measure_board(const char *path, int64_t days, size_t limit, int rounds)
{
    struct ledger *ledger = NULL;
    struct board *board = NULL;
    struct error error;
    char url[4096];
    int64_t last = 0;
    struct sales_visitor visitor = {.place = latest_place, .total = latest_total, .context = &last};
    struct ledger_options options = {.url = url,
                                     .use = LEDGER_SHARE,
                                     .integrity = LEDGER_CHECK_OFF,
                                     .readers = 1,
                                     .on_issued = on_issued,
                                     .on_durable = on_durable};

    snprintf(url, sizeof(url), "sqlite:%s", path);
    if (ledger_open(&ledger, &options, &error) != STATUS_OK ||
        ledger_sales_days(ledger, 0, INT64_C(1) << 40, &visitor, &error) != STATUS_OK ||
        board_local_open(&board, NULL, &error) != STATUS_OK)
        die(error.text);
    double began = cpu_seconds();
    if (board->ops->build(board, ledger, last - days, last, &error) != STATUS_OK)
        die(error.text);
    double built = cpu_seconds();
    for (int i = 0; i < rounds; i++)
        work_out(board, last - days + 1, last, limit);
    double ended = cpu_seconds();
    printf("{\"last_day\":%lld,\"build_seconds\":%.6f,\"answer_seconds\":%.9f}\n", (long long)last,
           built - began, (ended - built) / rounds);
    board_close(board);
    ledger_close(ledger);
}

/* --- plain SQL --- */

static void run(sqlite3 *database, const char *sql)
{
    if (sqlite3_exec(database, sql, NULL, NULL, NULL) != SQLITE_OK)
        die(sqlite3_errmsg(database));
}

static sqlite3_stmt *prepare(sqlite3 *database, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(database, sql, -1, &statement, NULL) != SQLITE_OK)
        die(sqlite3_errmsg(database));
    return statement;
}

static void step(sqlite3 *database, sqlite3_stmt *statement)
{
    if (sqlite3_step(statement) != SQLITE_DONE)
        die(sqlite3_errmsg(database));
    sqlite3_reset(statement);
}

static void write_orders(const char *path, long long first, long long count, long long products)
{
    sqlite3 *database = NULL;
    int64_t now_ms = (int64_t)time(NULL) * 1000;

    if (sqlite3_open(path, &database) != SQLITE_OK)
        die("cannot open the database");
    run(database, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    sqlite3_stmt *order =
        prepare(database, "INSERT INTO sale_order (order_id, digest, paid_at, received_at, day)"
                          " VALUES (?1, '', ?2, ?2, ?3)");
    sqlite3_stmt *item = prepare(
        database, "INSERT INTO sale_item (order_id, product_id, quantity) VALUES (?1, ?2, 1)");
    double began = cpu_seconds();
    for (long long i = first; i < first + count; i++) {
        uint64_t mixed = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
        char order_id[32];
        char product_id[32];
        snprintf(order_id, sizeof(order_id), "u%016llx", (unsigned long long)mixed);
        snprintf(product_id, sizeof(product_id), "p%07llu",
                 (unsigned long long)(mixed >> 20) % (unsigned long long)products);
        sqlite3_bind_text(order, 1, order_id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(order, 2, now_ms);
        sqlite3_bind_int64(order, 3, now_ms / DAY_MS);
        sqlite3_bind_text(item, 1, order_id, -1, SQLITE_STATIC);
        sqlite3_bind_text(item, 2, product_id, -1, SQLITE_STATIC);
        run(database, "BEGIN IMMEDIATE");
        step(database, order);
        step(database, item);
        run(database, "COMMIT");
    }
    printf("{\"orders\":%lld,\"cpu_seconds\":%.6f}\n", count, cpu_seconds() - began);
    sqlite3_finalize(order);
    sqlite3_finalize(item);
    sqlite3_close(database);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        die("usage: sales board DATABASE DAYS LIMIT ROUNDS\n"
            "       sales orders DATABASE FIRST COUNT PRODUCTS");
    log_configure(LOG_ERROR, LOG_LOGFMT, 2);
    if (strcmp(argv[1], "board") == 0)
        measure_board(argv[2], strtoll(argv[3], NULL, 10), strtoul(argv[4], NULL, 10),
                      (int)strtol(argv[5], NULL, 10));
    else
        write_orders(argv[2], strtoll(argv[3], NULL, 10), strtoll(argv[4], NULL, 10),
                     strtoll(argv[5], NULL, 10));
    return 0;
}
