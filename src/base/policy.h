/* policy.h: what is handed out, and its columns, one line each.
 *
 * The ledger's rows, the row in Redis, the API's JSON, what may be changed and the command's flags
 * are read and written by this table; a test holds the OpenAPI document and the form's limits
 * against it. A new column is a member of struct policy, a line here, in the order of
 * {policy_columns} in ledger/statements.sql and of ROW in gate/redis/redis.lua, and a migration.
 *
 * Threads: values only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/verdict.h"

#define POLICY_ID_MAX              INT64_C(9007199254740991) /* 2^53 - 1: exact in every JSON reader */
#define POLICY_TOTAL_MAX           INT64_C(100000000)
#define POLICY_NAME_CHARACTERS_MAX 200
#define POLICY_NAME_SIZE           (POLICY_NAME_CHARACTERS_MAX * 4 + 1)
#define PER_USER_LIMIT_MAX         1000
#define DISCOUNT_PERCENT_MAX       100
#define DISCOUNT_FIXED_MAX         INT64_C(1000000000000)
#define COUPON_VALID_DAYS_MAX      3650

enum discount_type { DISCOUNT_PERCENT, DISCOUNT_FIXED };

/* What is handed out, as the ledger's row has it. */
struct policy {
    int64_t id;
    enum discount_type discount_type;
    int32_t currency; /* of a fixed discount; CURRENCY_NONE: not said */
    int64_t discount_value;
    int64_t total;
    int32_t per_user_limit;
    int32_t coupon_valid_days;    /* 0: none */
    int64_t opens_at_ms;          /* 0: open from the start */
    int64_t closes_at_ms;         /* 0: never by itself */
    int64_t coupon_expires_at_ms; /* 0: none */
    int64_t reserve;
    int64_t closed_at_ms; /* 0: not closed by hand */
    int64_t created_at_ms;
    int64_t version;  /* rises with every change */
    int64_t unleased; /* stock the ledger has not lent to a gate */
    int64_t next_seq; /* the first seq no lease has had yet */
    bool paused;
    /* Its row, or one of a lease of it, has a number that cannot be: nothing else is known. */
    bool is_damaged;
    char name[POLICY_NAME_SIZE]; /* last: what is kept is cut behind it */
};

/* The policy without the room that its name does not need, for who keeps many: NULL, there is no
 * memory. It is read in place, changed but for its name, copied by policy_copy() only, and
 * free()d. */
struct policy *policy_keep(const struct policy *policy);
void policy_copy(struct policy *to, const struct policy *kept);

/* By hand, or because its time is over. */
static inline bool policy_is_closed(const struct policy *policy, int64_t now_ms)
{
    return policy->closed_at_ms != 0 ||
           (policy->closes_at_ms != 0 && now_ms >= policy->closes_at_ms);
}

/* Why a user who has no claim of this policy to be shown gets none, in the order of the contract:
 * the first that applies. UNDECIDED: it is a question of stock. Every gate in C asks this;
 * redis.lua has the same. */
static inline enum verdict policy_refusal(const struct policy *policy, bool is_blocked,
                                          int64_t held_count, int64_t now_ms)
{
    return is_blocked                             ? VERDICT_BLOCKED
           : policy_is_closed(policy, now_ms)     ? VERDICT_CLOSED
           : policy->paused                       ? VERDICT_PAUSED
           : now_ms < policy->opens_at_ms         ? VERDICT_NOT_OPEN
           : held_count >= policy->per_user_limit ? VERDICT_LIMIT_REACHED
                                                  : VERDICT_UNDECIDED;
}

/* --- columns --- */

enum policy_kind {
    POLICY_NUMBER,
    POLICY_NUMBER_OR_NONE, /* 0: none, which is NULL in SQL and null in JSON */
    POLICY_TIME,
    POLICY_TIME_OR_NONE,
    POLICY_FLAG,
    POLICY_CURRENCY, /* letters as currency_of() packs them; text or NULL */
    POLICY_DISCOUNT, /* enum discount_type; "percent" or "fixed" */
    POLICY_TEXT,
};

/* Whether whoever creates a policy says it. */
enum policy_given { POLICY_NOT_GIVEN, POLICY_OPTIONAL, POLICY_REQUIRED };

/* Whether it may be changed later, by whoever may: never, as long as nobody can have claimed, or at
 * any time. */
enum policy_later { POLICY_STAYS, POLICY_UNTIL_OPEN, POLICY_CHANGES };

/* Gates hear of a change a moment after the ledger: this long before the opening it is too late for
 * what has to stay from then on. */
#define POLICY_OPENING_MS 5000

/* Column, member of struct policy, kind, whether it is given, whether it may be changed, and the
 * least and the most it may be (of a text: characters). */
#define POLICY_COLUMNS(X)                                                                  \
    X(id, id, NUMBER, OPTIONAL, STAYS, 1, POLICY_ID_MAX)                                   \
    X(name, name, TEXT, REQUIRED, UNTIL_OPEN, 1, POLICY_NAME_CHARACTERS_MAX)               \
    X(discount_type, discount_type, DISCOUNT, REQUIRED, UNTIL_OPEN, DISCOUNT_PERCENT,      \
      DISCOUNT_FIXED)                                                                      \
    X(discount_value, discount_value, NUMBER, REQUIRED, UNTIL_OPEN, 1, DISCOUNT_FIXED_MAX) \
    X(total, total, NUMBER, REQUIRED, CHANGES, 1, POLICY_TOTAL_MAX)                        \
    X(per_user_limit, per_user_limit, NUMBER, OPTIONAL, UNTIL_OPEN, 1, PER_USER_LIMIT_MAX) \
    X(opens_at, opens_at_ms, TIME_OR_NONE, OPTIONAL, CHANGES, 1, CLOCK_WALL_MAX_MS)        \
    X(closes_at, closes_at_ms, TIME_OR_NONE, OPTIONAL, CHANGES, 1, CLOCK_WALL_MAX_MS)      \
    X(coupon_valid_days, coupon_valid_days, NUMBER_OR_NONE, OPTIONAL, UNTIL_OPEN, 1,       \
      COUPON_VALID_DAYS_MAX)                                                               \
    X(coupon_expires_at, coupon_expires_at_ms, TIME_OR_NONE, OPTIONAL, UNTIL_OPEN, 1,      \
      CLOCK_WALL_MAX_MS)                                                                   \
    X(currency, currency, CURRENCY, OPTIONAL, UNTIL_OPEN, 1, CURRENCY_MAX)                 \
    X(reserve, reserve, NUMBER, OPTIONAL, CHANGES, 0, POLICY_TOTAL_MAX)                    \
    X(paused, paused, FLAG, NOT_GIVEN, CHANGES, 0, 1)                                      \
    X(created_at, created_at_ms, TIME, NOT_GIVEN, STAYS, 0, CLOCK_WALL_MAX_MS)             \
    X(closed_at, closed_at_ms, TIME_OR_NONE, NOT_GIVEN, STAYS, 1, CLOCK_WALL_MAX_MS)       \
    X(version, version, NUMBER, NOT_GIVEN, STAYS, 0, POLICY_ID_MAX)                        \
    X(unleased, unleased, NUMBER, NOT_GIVEN, STAYS, 0, POLICY_ID_MAX)                      \
    X(next_seq, next_seq, NUMBER, NOT_GIVEN, STAYS, 1, POLICY_ID_MAX)

enum policy_column {
#define POLICY_COLUMN_ENUM(column, ...) POLICY_COLUMN_##column,
    POLICY_COLUMNS(POLICY_COLUMN_ENUM)
#undef POLICY_COLUMN_ENUM
        POLICY_COLUMN_COUNT,
};

struct policy_column_rule {
    const char *name;
    const char *quoted; /* as a member of JSON: "name": */
    enum policy_kind kind;
    enum policy_given given;
    enum policy_later later;
    size_t offset; /* in struct policy */
    size_t size;
    int64_t minimum;
    int64_t maximum;
};

extern const struct policy_column_rule policy_columns[POLICY_COLUMN_COUNT];

/* A column of any kind but a text. */
int64_t policy_number(const struct policy *policy, enum policy_column column);

/* False: that number is not one that the column may have, and the policy is as it was. */
bool policy_set_number(struct policy *policy, enum policy_column column, int64_t number);

/* The words of the first rule between its columns, from number *from on, that a policy breaks, and
 * the API's name of what is wrong; *from is the next one then. NULL: none. */
const char *policy_broken_rule(const struct policy *policy, size_t *from, const char **field);

/* Writes a column as a member of a JSON object. */
void policy_put(struct buffer *out, const struct policy *policy, enum policy_column column);

/* What is to become of a policy: these columns get these numbers. */
struct policy_change {
    uint32_t sets;                   /* the columns, 1 << column each */
    int64_t to[POLICY_COLUMN_COUNT]; /* numbers that the columns may have */
    char name[POLICY_NAME_SIZE];
    bool closes;
    int64_t term; /* of a steward's change; CONFLICT: there is a later one */
    int64_t now_ms;
};
#define POLICY_CHANGE(column, number)                \
    ((struct policy_change){                         \
        .sets = 1U << POLICY_COLUMN_##column,        \
        .to = {[POLICY_COLUMN_##column] = (number)}, \
    })

static inline bool policy_change_sets(const struct policy_change *change, enum policy_column column)
{
    return (change->sets >> column & 1) != 0;
}

/* --- currencies ---
 *
 * Currencies of ISO 4217, as numbers that hold their three letters.
 *
 * Amounts are in a currency's smallest unit: 500 of USD are $5.00, 5000 of KRW are 5,000 won.
 */

#define CURRENCY_NONE        0
#define CURRENCY_MAX         0xffffff
#define CURRENCY_TEXT_SIZE   4
#define CURRENCY_AMOUNT_SIZE 32

/* CURRENCY_NONE: it is no code in use. Capitals only. */
int32_t currency_of(struct span code);

/* Its three letters; "" of none. */
const char *currency_text(int32_t currency, char text[CURRENCY_TEXT_SIZE]);

/* "5.00 USD", "5000 KRW", and of none the number alone. */
const char *currency_amount(int32_t currency, int64_t amount, char text[CURRENCY_AMOUNT_SIZE]);
