/* one_policy.h: a ledger in a SQLite file with one policy, of whose 1000 units 100 are lent. */
#pragma once

#include "database.h"
#include "ledger/ledger.h"

#define NOW    INT64_C(1763200000000)
#define POLICY 42

struct fixture {
    struct database database;
    struct ledger *ledger;
    struct lease lease;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct policy policy = {.id = POLICY,
                            .name = "test",
                            .discount_value = 1,
                            .total = 1000,
                            .reserve = 900,
                            .per_user_limit = 1,
                            .created_at_ms = NOW};

    database_make_folder(&fixture->database);
    fixture->ledger = database_ledger(&fixture->database, (struct ledger_options){.readers = 1});
    database_check(
        &fixture->database,
        ledger_policy_create(fixture->ledger, &policy, &fixture->lease, &fixture->database.error));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    ledger_close(fixture->ledger);
    database_remove_folder(&fixture->database);
    free(fixture);
    return 0;
}
