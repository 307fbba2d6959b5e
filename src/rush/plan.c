/* plan.c: makes the order of presses and reads off when each is due. */
#include "rush/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1000000000.0
/* Who presses twice does so while about so many others press. */
#define DUPLICATE_REACH 200

/* splitmix64: numbers in a row become numbers in no order. */
static uint64_t rush_random(uint64_t *state)
{
    uint64_t x = (*state += UINT64_C(0x9e3779b97f4a7c15));
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t rush_random_below(uint64_t *state, uint64_t limit)
{
    return (uint64_t)(((unsigned __int128)rush_random(state) * limit) >> 64);
}

/* How many presses the duration holds; 0: it does not say. */
static double rush_plan_wanted(const struct rush_plan_options *options)
{
    switch (options->shape) {
    case RUSH_STEADY:
        return options->rate_per_s * options->duration_s;
    case RUSH_RAMP:
        return options->rate_per_s * options->duration_s / 2;
    case RUSH_BURSTS:
        return ceil(options->duration_s * SECOND_NS / (double)options->burst_interval_ns) *
               options->burst_size;
    case RUSH_CLOSED:
        break;
    }
    return 0;
}

static int rush_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Presses sorted by place: a user's own place, and for a second press one a little behind. */
static size_t rush_plan_order(const struct rush_plan_options *options, uint64_t *places,
                              uint64_t *random)
{
    size_t count = 0;

    for (uint64_t user = 0; user < options->user_count; user++) {
        places[count++] = user << 32 | user;
        /* A thousandth at a time is fine enough for a share. */
        if (rush_random_below(random, 100000) < (uint64_t)(options->duplicate_share * 100000))
            places[count++] = (user + 1 + rush_random_below(random, DUPLICATE_REACH)) << 32 | user;
    }
    qsort(places, count, sizeof(*places), rush_compare);
    return count;
}

enum status rush_plan_make(struct rush_plan *plan, const struct rush_plan_options *options,
                           struct error *error)
{
    double wanted = rush_plan_wanted(options);
    uint64_t random = options->seed;

    *plan = (struct rush_plan){.options = *options};
    if (wanted > RUSH_PRESSES_MAX)
        return error_set(error, STATUS_INVALID,
                         "that makes %.0f presses; at most %d fit into one storm", wanted,
                         RUSH_PRESSES_MAX);
    uint64_t *places = malloc((size_t)options->user_count * 2 * sizeof(*places));
    if (places == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the plan");
    size_t count = rush_plan_order(options, places, &random);
    plan->press_count = wanted > 0 ? (size_t)wanted : count;
    if (plan->press_count == 0)
        plan->press_count = 1;
    plan->users = malloc(plan->press_count * sizeof(*plan->users));
    for (size_t i = 0; plan->users != NULL && i < plan->press_count; i++)
        plan->users[i] = i < count ? (uint32_t)places[i]
                                   : (uint32_t)rush_random_below(&random, options->user_count);
    free(places);
    return plan->users != NULL ? STATUS_OK
                               : error_set(error, STATUS_UNAVAILABLE, "no memory for the plan");
}

void rush_plan_release(struct rush_plan *plan)
{
    free(plan->users);
    *plan = (struct rush_plan){0};
}

int64_t rush_plan_due_ns(const struct rush_plan *plan, size_t press)
{
    const struct rush_plan_options *options = &plan->options;

    switch (options->shape) {
    case RUSH_STEADY:
        return (int64_t)((double)press * SECOND_NS / options->rate_per_s);
    case RUSH_RAMP:
        /* By the time t the ramp of length T has sent rate * t^2 / 2T; without a duration it is as
         * long as all presses need. */
        return (int64_t)(sqrt((double)press * (double)plan->press_count) * 2 * SECOND_NS /
                         options->rate_per_s);
    case RUSH_BURSTS:
        return (int64_t)(press / options->burst_size) * options->burst_interval_ns;
    case RUSH_CLOSED:
        break;
    }
    return 0;
}
