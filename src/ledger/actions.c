/* actions.c: writes and lists what operators did. */
#include "ledger/actions.h"

#include <stdio.h>

#include "ledger/inside.h"
#include "ledger/rows.h"

void action_user_target(char target[ACTION_TARGET_SIZE], const struct id *user)
{
    snprintf(target, ACTION_TARGET_SIZE, "users/%.*s", (int)user->length, user->bytes);
}

static enum status actions_add(struct sql *sql, void *argument, struct error *error)
{
    const struct ledger_action *action = argument;

    return SQL_WRITE(sql, STATEMENT_action_insert, error, sql_i64(action->at_ms),
                     sql_text(span_of(action->who)), sql_text(span_of(action->what)),
                     sql_text(span_of(action->target)), sql_text(span_of(action->was)),
                     sql_text(span_of(action->became)));
}

enum status ledger_action_add(struct ledger *ledger, const struct ledger_action *action,
                              struct error *error)
{
    struct ledger_action copy = *action;

    return ledger_write(ledger, actions_add, &copy, error);
}

static enum status actions_read(void *row, const struct sql_value *columns, struct error *error)
{
    struct ledger_action *action = row;

    *action = (struct ledger_action){.id = columns[0].number, .at_ms = columns[1].number};
    rows_read_text(&columns[2], action->who, sizeof(action->who));
    rows_read_text(&columns[3], action->what, sizeof(action->what));
    rows_read_text(&columns[4], action->target, sizeof(action->target));
    rows_read_text(&columns[5], action->was, sizeof(action->was));
    rows_read_text(&columns[6], action->became, sizeof(action->became));
    return STATUS_OK;
}

enum status ledger_actions(struct ledger *ledger, const char *target, int64_t before_id,
                           struct ledger_action *actions, size_t max, size_t *count,
                           struct error *error)
{
    struct rows_page page = ROWS_PAGE(actions, actions_read, count);
    int64_t before = before_id != 0 ? before_id : INT64_MAX;

    if (target[0] == '\0')
        return LEDGER_READ(ledger, STATEMENT_action_list, rows_take, &page, error, sql_i64(before),
                           sql_i64((int64_t)max));
    return LEDGER_READ(ledger, STATEMENT_action_list_of, rows_take, &page, error, sql_i64(before),
                       sql_i64((int64_t)max), sql_text(span_of(target)));
}
