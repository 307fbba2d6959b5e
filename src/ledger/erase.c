/* erase.c: replaces a person's id in every table that has one. */
#include "ledger/erase.h"

#include <stdio.h>
#include <string.h>

#include "base/digits.h"
#include "ledger/actions.h"
#include "ledger/inside.h"
#include "ledger/rows.h"

#define PSEUDONYM_DIGITS 32
#define REASON_ERASED    "it named a person who was erased"
#define NAME_SHOWN       64 /* of a user, in what a repair says */

struct erasure {
    const struct id *user;
    const struct id *pseudonym;
};

bool id_is_pseudonym(const struct id *id)
{
    size_t prefix = strlen(PSEUDONYM_PREFIX);

    if (id->length != prefix + PSEUDONYM_DIGITS || memcmp(id->bytes, PSEUDONYM_PREFIX, prefix) != 0)
        return false;
    for (size_t i = prefix; i < id->length; i++)
        if (hex_digit(id->bytes[i]) < 0)
            return false;
    return true;
}

enum status ledger_erase_open(struct ledger *ledger, const struct id *user, int64_t now_ms,
                              int64_t *policy_ids, size_t max, size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(policy_ids, rows_take_i64, count);

    return LEDGER_READ(ledger, STATEMENT_erase_open, rows_take, &page, error,
                       sql_text(id_span(user)), sql_i64(now_ms), sql_i64((int64_t)max));
}

/* "users/u1" is what operators blocked. */
static enum status erase_actions(struct sql *sql, const struct erasure *erasure,
                                 struct error *error)
{
    char targets[2][ACTION_TARGET_SIZE];

    action_user_target(targets[0], erasure->user);
    action_user_target(targets[1], erasure->pseudonym);
    return SQL_WRITE(sql, STATEMENT_erase_actions, error, sql_text(span_of(targets[0])),
                     sql_text(span_of(targets[1])));
}

/* "42-17 of ann, 42-18 of bob; cancel …" */
static enum status erase_repairs(struct sql *sql, const struct erasure *erasure,
                                 struct error *error)
{
    char names[2][NAME_SHOWN + 8];
    int shown = erasure->user->length < NAME_SHOWN ? erasure->user->length : NAME_SHOWN;

    snprintf(names[0], sizeof(names[0]), " of %.*s,", shown, erasure->user->bytes);
    snprintf(names[1], sizeof(names[1]), " of %.*s;", shown, erasure->user->bytes);
    return SQL_WRITE(sql, STATEMENT_erase_repairs, error, sql_text(span_of(names[0])),
                     sql_text(SPAN(" of (erased),")), sql_text(span_of(names[1])),
                     sql_text(SPAN(" of (erased);")));
}

static enum status erase_user(struct sql *sql, void *argument, struct error *error)
{
    static const enum statement with_reasons[] = {STATEMENT_erase_coupons, STATEMENT_erase_refused,
                                                  STATEMENT_erase_letters, STATEMENT_erase_events};
    const struct erasure *erasure = argument;
    struct sql_value user = sql_text(id_span(erasure->user));
    struct sql_value pseudonym = sql_text(id_span(erasure->pseudonym));
    enum status status = STATUS_OK;

    for (size_t i = 0; i < sizeof(with_reasons) / sizeof(with_reasons[0]) && status == STATUS_OK;
         i++)
        status =
            SQL_WRITE(sql, with_reasons[i], error, user, pseudonym, sql_text(SPAN(REASON_ERASED)));
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_erase_reserve, error, user, pseudonym);
    if (status == STATUS_OK)
        status = erase_actions(sql, erasure, error);
    return status == STATUS_OK ? erase_repairs(sql, erasure, error) : status;
}

enum status ledger_erase(struct ledger *ledger, const struct id *user, const struct id *pseudonym,
                         struct error *error)
{
    struct erasure erasure = {.user = user, .pseudonym = pseudonym};

    return ledger_write(ledger, erase_user, &erasure, error);
}

static enum status erase_read_key(void *key, const struct sql_value *columns, struct error *error)
{
    (void)error;
    *(struct key_binding *)key = rows_read_key(columns);
    return STATUS_OK;
}

enum status ledger_erase_keys(struct ledger *ledger, const struct id *user, int64_t policy_id,
                              struct key_binding **keys, size_t *count, struct error *error)
{
    struct rows_list list = {.read = erase_read_key, .row_size = sizeof(**keys)};
    enum status status = LEDGER_READ(ledger, STATEMENT_erase_keys, rows_gather, &list, error,
                                     sql_text(id_span(user)), sql_i64(policy_id));

    *keys = (struct key_binding *)(void *)list.rows;
    *count = status == STATUS_OK ? list.count : 0;
    return status;
}
