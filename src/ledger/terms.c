/* terms.c: who looks after which policy, and in which term. */
#include "ledger/inside.h"
#include "ledger/rows.h"
#include "ledger/transactions.h"

/* How long whoever created a policy has to load it into a gate that is shared. */
#define CREATOR_TERM_MS 5000

/* --- inside other transactions --- */

enum status transaction_create_stewardship(struct sql *sql, int64_t policy_id, const char *holder,
                                           struct error *error)
{
    return SQL_WRITE(sql, STATEMENT_steward_create, error, sql_i64(policy_id),
                     sql_text(span_of(holder)), sql_i64(CREATOR_TERM_MS));
}

static enum status transaction_compare_terms(int64_t policy_id, int64_t term, int64_t newest,
                                             struct error *error)
{
    return term == newest ? STATUS_OK
                          : error_set(error, STATUS_CONFLICT,
                                      "policy %lld is in term %lld, and this was of term %lld",
                                      (long long)policy_id, (long long)newest, (long long)term);
}

enum status transaction_check_term(struct sql *sql, int64_t policy_id, int64_t term,
                                   struct error *error)
{
    int64_t newest = 0;

    if (term == LEDGER_NO_TERM)
        return STATUS_OK;
    enum status status =
        SQL_RUN(sql, STATEMENT_steward_share, rows_take_i64, &newest, error, sql_i64(policy_id));
    return status == STATUS_OK ? transaction_compare_terms(policy_id, term, newest, error) : status;
}

/* --- transactions of their own --- */

static enum status terms_read_steward(void *context, const struct sql_value *columns,
                                      struct error *error)
{
    struct ledger_stewardship *taken = context;

    taken->previous = columns[0].number;
    taken->is_held = columns[1].number == 0;
    return STATUS_OK;
}

enum status transaction_take_stewardship(struct sql *sql, void *argument, struct error *error)
{
    const struct take_stewardship *take = argument;
    struct ledger_stewardship *taken = take->taken;
    struct sql_value id = sql_i64(take->policy_id);
    struct sql_value holder = sql_text(span_of(take->holder));
    bool is_there = false;
    enum status status =
        SQL_RUN(sql, STATEMENT_steward_resolve, rows_note_any, &is_there, error, id);

    *taken = (struct ledger_stewardship){0};
    /* Inserting what is there already may wait for whoever has it locked. */
    if (status == STATUS_OK && !is_there)
        status = SQL_WRITE(sql, STATEMENT_steward_insert, error, id);
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_steward_for_update, terms_read_steward, taken, error, id,
                         holder);
    if (status != STATUS_OK || !taken->is_held)
        return status;
    taken->term = (taken->previous > take->above ? taken->previous : take->above) + 1;
    return SQL_WRITE(sql, STATEMENT_steward_take, error, id, holder, sql_i64(taken->term));
}

enum status ledger_steward_take(struct ledger *ledger, int64_t policy_id, const char *holder,
                                int64_t above, struct ledger_stewardship *taken,
                                struct error *error)
{
    struct take_stewardship take = {
        .policy_id = policy_id, .holder = holder, .above = above, .taken = taken};
    enum status status = ledger_term_write(ledger, transaction_take_stewardship, &take, error);

    if (status != STATUS_OK)
        *taken = (struct ledger_stewardship){0};
    return status;
}

static enum status terms_release(struct sql *sql, void *argument, struct error *error)
{
    const struct take_stewardship *take = argument;

    return SQL_WRITE(sql, STATEMENT_steward_release, error, sql_i64(take->policy_id),
                     sql_text(span_of(take->holder)));
}

enum status ledger_steward_release(struct ledger *ledger, int64_t policy_id, const char *holder,
                                   struct error *error)
{
    struct take_stewardship take = {.policy_id = policy_id, .holder = holder};

    return ledger_term_write(ledger, terms_release, &take, error);
}

static enum status terms_leave(struct sql *sql, void *argument, struct error *error)
{
    struct sql_value holder = sql_text(span_of(argument));
    enum status status = SQL_WRITE(sql, STATEMENT_steward_leave, error, holder);

    return status == STATUS_OK ? SQL_WRITE(sql, STATEMENT_holder_leave, error, holder) : status;
}

enum status ledger_steward_leave(struct ledger *ledger, char *holder, struct error *error)
{
    return ledger_term_write(ledger, terms_leave, holder, error);
}

/* --- looking --- */

enum status ledger_steward_confirm(struct ledger *ledger, int64_t policy_id, int64_t term,
                                   struct error *error)
{
    struct sql sql;
    int64_t newest = 0;
    enum status status = ledger_term_begin(ledger, &sql, error);

    if (status != STATUS_OK)
        return status;
    status =
        SQL_RUN(&sql, STATEMENT_steward_resolve, rows_take_i64, &newest, error, sql_i64(policy_id));
    status = ledger_term_end(ledger, sql, status, error);
    return status == STATUS_OK ? transaction_compare_terms(policy_id, term, newest, error) : status;
}

struct terms_told {
    ledger_term_fn tell;
    void *context;
};

static enum status terms_read_term(void *context, const struct sql_value *columns,
                                   struct error *error)
{
    const struct terms_told *told = context;
    struct ledger_term term = {.policy_id = columns[0].number,
                               .term = columns[1].number,
                               .is_own = columns[2].number != 0,
                               .is_held = columns[3].number != 0};

    return told->tell(told->context, &term)
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "no memory for the terms of policies");
}

enum status ledger_steward_beat(struct ledger *ledger, const char *holder, int64_t life_ms,
                                ledger_term_fn tell, void *context, struct error *error)
{
    struct terms_told told = {.tell = tell, .context = context};
    struct sql_value name = sql_text(span_of(holder));
    struct sql sql;
    enum status status = ledger_term_begin(ledger, &sql, error);

    if (status != STATUS_OK)
        return status;
    /* A ledger that no other process can use knows who lives. */
    if (holder[0] != '\0' && sql.driver->is_remote)
        status = SQL_WRITE(&sql, STATEMENT_holder_beat, error, name, sql_i64(life_ms));
    if (status == STATUS_OK)
        status = SQL_RUN(&sql, STATEMENT_steward_list, terms_read_term, &told, error, name);
    return ledger_term_end(ledger, sql, status, error);
}
