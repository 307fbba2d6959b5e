/* policy.c: numbers in and out of a policy, by column. */
#include "base/policy.h"

#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/json.h"

const struct policy_column_rule policy_columns[POLICY_COLUMN_COUNT] = {
#define POLICY_COLUMN_RULE(column, member, kind, given, later, minimum, maximum) \
    {#column,                                                                    \
     "\"" #column "\":",                                                         \
     POLICY_##kind,                                                              \
     POLICY_##given,                                                             \
     POLICY_##later,                                                             \
     offsetof(struct policy, member),                                            \
     sizeof(((struct policy *)NULL)->member),                                    \
     minimum,                                                                    \
     maximum},
    POLICY_COLUMNS(POLICY_COLUMN_RULE)
#undef POLICY_COLUMN_RULE
};

int64_t policy_number(const struct policy *policy, enum policy_column column)
{
    const struct policy_column_rule *rule = &policy_columns[column];
    const char *member = (const char *)policy + rule->offset;
    int64_t number = 0;
    int32_t small;

    ensure(rule->kind != POLICY_TEXT);
    switch (rule->size) {
    case sizeof(int64_t):
        memcpy(&number, member, sizeof(number));
        return number;
    case sizeof(int32_t):
        memcpy(&small, member, sizeof(small));
        return small;
    default:
        return *(const bool *)member;
    }
}

bool policy_set_number(struct policy *policy, enum policy_column column, int64_t number)
{
    const struct policy_column_rule *rule = &policy_columns[column];
    char *member = (char *)policy + rule->offset;
    bool is_none =
        number == 0 && (rule->kind == POLICY_NUMBER_OR_NONE || rule->kind == POLICY_TIME_OR_NONE ||
                        rule->kind == POLICY_CURRENCY);
    int32_t small = (int32_t)number;

    ensure(rule->kind != POLICY_TEXT);
    if (!is_none && (number < rule->minimum || number > rule->maximum))
        return false;
    switch (rule->size) {
    case sizeof(int64_t):
        memcpy(member, &number, sizeof(number));
        break;
    case sizeof(int32_t):
        memcpy(member, &small, sizeof(small));
        break;
    default:
        *(bool *)member = number != 0;
    }
    return true;
}

const char *policy_broken_rule(const struct policy *policy, const char **field)
{
    const struct {
        bool is_broken;
        const char *field;
        const char *words;
    } rules[] = {
        {policy->reserve > policy->total, "reserve", "reserve: must not be more than total"},
        {policy->closes_at_ms != 0 && policy->closes_at_ms <= policy->opens_at_ms, "closes_at",
         "closes_at: must be after opens_at"},
        {policy->coupon_expires_at_ms != 0 && policy->coupon_expires_at_ms <= policy->opens_at_ms,
         "coupon_expires_at", "coupon_expires_at: must be after opens_at"},
    };

    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        if (rules[i].is_broken) {
            *field = rules[i].field;
            return rules[i].words;
        }
    }
    return NULL;
}

void policy_put(struct buffer *out, const struct policy *policy, enum policy_column column)
{
    const struct policy_column_rule *rule = &policy_columns[column];

    json_name(out, rule->quoted, strlen(rule->quoted));
    switch (rule->kind) {
    case POLICY_TEXT:
        json_append_chars(out, (const char *)policy + rule->offset);
        break;
    case POLICY_FLAG:
        json_append_flag(out, policy_number(policy, column) != 0);
        break;
    case POLICY_TIME:
    case POLICY_TIME_OR_NONE:
        json_append_time(out, policy_number(policy, column));
        break;
    case POLICY_CURRENCY: {
        char text[CURRENCY_TEXT_SIZE];
        json_append_chars(
            out, policy->currency == CURRENCY_NONE ? NULL : currency_text(policy->currency, text));
        break;
    }
    default:
        if (rule->kind == POLICY_NUMBER_OR_NONE && policy_number(policy, column) == 0)
            buffer_append_literal(out, "null");
        else
            buffer_append_i64(out, policy_number(policy, column));
    }
}
