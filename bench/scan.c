/* scan.c: a plain scan of ledger rows through SQLite's own API, to compare the restore with.
 *
 * Steps a query to its end and reads every column of every row, which is the least that anyone
 * has to do who wants to know what stands in them.
 */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static int64_t scan_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Something of each value, so that no compiler can leave the reading out. */
static uint64_t scan_column(sqlite3_stmt *statement, int column)
{
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
        return (uint64_t)sqlite3_column_int64(statement, column);
    case SQLITE_NULL:
        return 0;
    default:
        break;
    }
    const unsigned char *bytes = sqlite3_column_blob(statement, column);
    int length = sqlite3_column_bytes(statement, column);
    return length > 0 ? (uint64_t)length + bytes[0] + bytes[length - 1] : 0;
}

int main(int argc, char **argv)
{
    sqlite3 *database = NULL;
    sqlite3_stmt *statement = NULL;
    if (argc != 3) {
        fputs("usage: scan DATABASE QUERY\n", stderr);
        return 2;
    }
    int64_t start_ns = scan_cpu_ns();
    if (sqlite3_open_v2(argv[1], &database, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(database, argv[2], -1, &statement, NULL) != SQLITE_OK) {
        fprintf(stderr, "scan: %s\n", sqlite3_errmsg(database));
        return 1;
    }
    uint64_t row_count = 0;
    uint64_t sum = 0;
    int column_count = sqlite3_column_count(statement);
    int result;
    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
        for (int column = 0; column < column_count; column++)
            sum += scan_column(statement, column);
        row_count++;
    }
    if (result != SQLITE_DONE) {
        fprintf(stderr, "scan: %s\n", sqlite3_errmsg(database));
        return 1;
    }
    int64_t took_ns = scan_cpu_ns() - start_ns;
    printf("{\"rows\":%" PRIu64 ",\"cpu_seconds\":%.6f,\"sum\":%" PRIu64 "}\n", row_count,
           (double)took_ns / 1e9, sum);
    sqlite3_finalize(statement);
    sqlite3_close(database);
    return 0;
}
