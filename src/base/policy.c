/* policy.c: a policy cut to size; numbers in and out of it, by column; currencies. */
#include "base/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

static size_t policy_size(const struct policy *policy)
{
    return offsetof(struct policy, name) + strlen(policy->name) + 1;
}

struct policy *policy_keep(const struct policy *policy)
{
    struct policy *kept = malloc(policy_size(policy));
    return kept != NULL ? memcpy(kept, policy, policy_size(policy)) : NULL;
}

void policy_copy(struct policy *to, const struct policy *kept)
{
    *to = (struct policy){0};
    memcpy(to, kept, policy_size(kept));
}

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

const char *policy_broken_rule(const struct policy *policy, size_t *from, const char **field)
{
    const struct {
        bool is_broken;
        const char *field;
        const char *text;
    } rules[] = {
        {policy->reserve > policy->total, "reserve", "reserve: must not be more than total"},
        {policy->closes_at_ms != 0 && policy->closes_at_ms <= policy->opens_at_ms, "closes_at",
         "closes_at: must be after opens_at"},
        {policy->coupon_expires_at_ms != 0 && policy->coupon_expires_at_ms <= policy->opens_at_ms,
         "coupon_expires_at", "coupon_expires_at: must be after opens_at"},
    };

    while (*from < COUNT_OF(rules)) {
        size_t i = (*from)++;
        if (rules[i].is_broken) {
            *field = rules[i].field;
            return rules[i].text;
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

/* --- currencies: the codes in use, and how many digits each has behind its point --- */

/* By the digits behind the point. */
static const char *const codes[] = {
    "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    "",
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN "
    "BZD "
    "CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL "
    "GHS "
    "GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD "
    "LSL "
    "MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN "
    "PGK "
    "PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB "
    "TJS "
    "TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VES VED WST XCD XCG YER ZAR ZMW ZWG",
    "BHD IQD JOD KWD LYD OMR TND",
    "CLF UYW",
};

#define DIGITS_COUNT (sizeof(codes) / sizeof(codes[0]))

/* The digits of a code; DIGITS_COUNT: nobody uses it. */
static size_t currency_digits(const char *code)
{
    size_t digits = 0;
    while (digits < DIGITS_COUNT && (strstr(codes[digits], code) == NULL))
        digits++;
    return digits;
}

int32_t currency_of(struct span code)
{
    char text[CURRENCY_TEXT_SIZE] = "";
    if (code.length != CURRENCY_TEXT_SIZE - 1)
        return CURRENCY_NONE;
    memcpy(text, code.bytes, code.length);
    if (strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != code.length ||
        currency_digits(text) == DIGITS_COUNT)
        return CURRENCY_NONE;
    return text[0] << 16 | text[1] << 8 | text[2];
}

const char *currency_text(int32_t currency, char text[CURRENCY_TEXT_SIZE])
{
    for (int i = 0; i < CURRENCY_TEXT_SIZE; i++)
        text[i] = (char)(((uint64_t)currency << 8) >> (24 - 8 * i) & 0xff);
    return text;
}

const char *currency_amount(int32_t currency, int64_t amount, char text[CURRENCY_AMOUNT_SIZE])
{
    char code[CURRENCY_TEXT_SIZE];
    int64_t unit = 1;
    size_t digits = currency == CURRENCY_NONE ? 0 : currency_digits(currency_text(currency, code));
    for (size_t i = 0; i < digits && digits < DIGITS_COUNT; i++)
        unit *= 10;
    int length = snprintf(text, CURRENCY_AMOUNT_SIZE, "%" PRId64, amount / unit);
    if (unit > 1)
        length += snprintf(text + length, CURRENCY_AMOUNT_SIZE - (size_t)length, ".%0*" PRId64,
                           (int)digits, amount % unit);
    if (currency != CURRENCY_NONE)
        snprintf(text + length, CURRENCY_AMOUNT_SIZE - (size_t)length, " %s", code);
    return text;
}
