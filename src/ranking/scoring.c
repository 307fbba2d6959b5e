/* scoring.c: weights as text, and sums in units of 2^-32. */
#include "ranking/scoring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_BITS 32
/* The longest day of any zone has less. */
#define DAY_MAX_MS (INT64_C(27) * 3600000)

static enum sales_kind scoring_kind(const char *name, size_t length)
{
    static const char *const names[SALES_KIND_COUNT] = {
        [SALES_ORDER] = "order", [SALES_CART] = "cart", [SALES_VIEW] = "view"};

    for (int kind = SALES_ORDER; kind < SALES_KIND_COUNT; kind++)
        if (strlen(names[kind]) == length && memcmp(names[kind], name, length) == 0)
            return (enum sales_kind)kind;
    return SALES_KIND_NONE;
}

enum status scoring_read_weights(struct scoring *scoring, const char *text, struct error *error)
{
    bool seen[SALES_KIND_COUNT] = {false};

    memset(scoring->weights, 0, sizeof(scoring->weights));
    if (text[0] == '\0') {
        scoring->weights[SALES_ORDER] = 1;
        return STATUS_OK;
    }
    for (const char *at = text;; at++) {
        size_t name_length = strcspn(at, ":,");
        enum sales_kind kind = scoring_kind(at, name_length);
        const char *digits = at + name_length + 1;
        if (kind == SALES_KIND_NONE || at[name_length] != ':' || seen[kind])
            return error_set(
                error, STATUS_INVALID,
                "ranking_weights: must name each of view, cart and order once at most, as in "
                "view:1,cart:5,order:20");
        size_t digit_count = strspn(digits, "0123456789");
        long weight = digit_count > 0 && digit_count <= 4 ? strtol(digits, NULL, 10) : -1;
        if (weight < 0 || weight > SCORING_WEIGHT_MAX || strchr(",", digits[digit_count]) == NULL)
            return error_set(error, STATUS_INVALID,
                             "ranking_weights: a weight must be a number from 0 to %d",
                             SCORING_WEIGHT_MAX);
        seen[kind] = true;
        scoring->weights[kind] = weight;
        at = digits + digit_count;
        if (*at == '\0')
            break;
    }
    if (scoring->weights[SALES_ORDER] == 0 && scoring->weights[SALES_CART] == 0 &&
        scoring->weights[SALES_VIEW] == 0)
        return error_set(error, STATUS_INVALID,
                         "ranking_weights: at least one weight must be above 0");
    return STATUS_OK;
}

enum status scoring_check_half_life(int64_t half_life_ms, struct error *error)
{
    if (half_life_ms == 0 ||
        (half_life_ms >= SCORING_HALF_LIFE_MIN_MS && half_life_ms <= SCORING_HALF_LIFE_MAX_MS))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID,
                     "ranking_half_life: must be 0, or from 1h to 720h (30 days)");
}

bool scoring_is_on(const struct scoring *scoring)
{
    return scoring->half_life_ms > 0 || scoring->weights[SALES_CART] > 0 ||
           scoring->weights[SALES_VIEW] > 0;
}

scoring_sum scoring_add(const struct scoring *scoring, int64_t day_start_ms,
                        const struct sales_moment *moment)
{
    int64_t unit = INT64_C(1) << UNIT_BITS;
    int64_t since_ms = moment->at_s * 1000 - day_start_ms;

    ensure(moment->kind > SALES_KIND_NONE && moment->kind < SALES_KIND_COUNT);
    since_ms = since_ms < 0 ? 0 : since_ms > DAY_MAX_MS ? DAY_MAX_MS : since_ms;
    if (scoring->half_life_ms > 0)
        unit = llround(ldexp(exp2((double)since_ms / (double)scoring->half_life_ms), UNIT_BITS));
    return (scoring_sum)unit * (scoring->weights[moment->kind] * moment->quantity);
}

double scoring_worth(const struct scoring *scoring, int64_t day_start_ms, int64_t at_ms)
{
    double fade = scoring->half_life_ms == 0
                      ? 1.0
                      : exp2((double)(day_start_ms - at_ms) / (double)scoring->half_life_ms);

    return ldexp(fade, -UNIT_BITS);
}
