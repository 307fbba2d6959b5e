/* mysql_leases.c: gathers the open leases, then counts the rows of each. */
#include "ledger/mysql_leases.h"

#include <stdlib.h>

#define CAPACITY_MIN 64

struct open_leases {
    struct lease *items;
    size_t count;
    size_t capacity;
};

static enum status leases_gather(void *context, const struct sql_value *columns,
                                 struct error *error)
{
    struct open_leases *leases = context;

    if (leases->count == leases->capacity) {
        size_t capacity = leases->capacity == 0 ? CAPACITY_MIN : leases->capacity * 2;
        struct lease *grown = realloc(leases->items, capacity * sizeof(*grown));
        if (grown == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "no memory for the open leases");
        leases->items = grown;
        leases->capacity = capacity;
    }
    leases->items[leases->count++] = (struct lease){
        .id = columns[0].number,
        .policy_id = columns[1].number,
        .first_seq = columns[2].number,
        .count = columns[3].number,
        .open = true,
    };
    return STATUS_OK;
}

struct lease_rows {
    int64_t count;
    int64_t last_seq;
};

static enum status leases_read_rows(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    (void)error;
    *(struct lease_rows *)context =
        (struct lease_rows){.count = columns[0].number, .last_seq = columns[1].number};
    return STATUS_OK;
}

static enum status leases_count(struct ledger_session *session, ledger_mysql_run_fn run,
                                const struct lease *lease, struct lease_rows *rows,
                                struct error *error)
{
    const struct sql_value range[] = {sql_i64(lease->policy_id), sql_i64(lease->first_seq),
                                      sql_i64(lease->first_seq + lease->count)};

    return run(session, STATEMENT_lease_rows, range, 3, leases_read_rows, rows, NULL, error);
}

enum status ledger_mysql_leases_list(struct ledger_session *session, ledger_mysql_run_fn run,
                                     sql_row_fn row, void *context, struct error *error)
{
    struct open_leases leases = {0};
    struct lease_rows rows;
    enum status status =
        run(session, STATEMENT_lease_list_open, NULL, 0, leases_gather, &leases, NULL, error);

    for (size_t i = 0; i < leases.count && status == STATUS_OK; i++) {
        const struct lease *lease = &leases.items[i];
        status = leases_count(session, run, lease, &rows, error);
        const struct sql_value columns[] = {sql_i64(lease->id),        sql_i64(lease->policy_id),
                                            sql_i64(lease->first_seq), sql_i64(lease->count),
                                            sql_i64(rows.count),       sql_i64(rows.last_seq)};
        if (status == STATUS_OK)
            status = row(context, columns, error);
    }
    free(leases.items);
    return status;
}

enum status ledger_mysql_leases_balance(struct ledger_session *session, ledger_mysql_run_fn run,
                                        const struct sql_value *policy_id, sql_row_fn row,
                                        void *context, struct error *error)
{
    struct open_leases leases = {0};
    struct lease_rows rows;
    int64_t balance = 0;
    enum status status =
        run(session, STATEMENT_lease_balance, policy_id, 1, leases_gather, &leases, NULL, error);

    for (size_t i = 0; i < leases.count && status == STATUS_OK; i++) {
        status = leases_count(session, run, &leases.items[i], &rows, error);
        if (status == STATUS_OK)
            balance += leases.items[i].count - rows.count;
    }
    free(leases.items);
    const struct sql_value column = sql_i64(balance);
    return status == STATUS_OK ? row(context, &column, error) : status;
}
