/* crowd.c: a crowd by the numbers: the same one each time. */
#include "demo/crowd.h"

#include <stdio.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* So many presses, evenly, from one time to the next. */
static const struct wave {
    int64_t from_ms;
    int64_t until_ms;
    size_t count;
} waves[] = {
    {-2000, 0, 30},      /* too early */
    {0, 5000, 650},      /* the coupons are gone before this is over */
    {5000, 10000, 1300}, /* word has spread */
    {10000, 20000, 800}, /* latecomers */
};

int64_t crowd_time_ms(size_t index)
{
    for (size_t i = 0; i < COUNT_OF(waves); i++) {
        const struct wave *wave = &waves[i];
        if (index < wave->count) {
            int64_t length_ms = wave->until_ms - wave->from_ms;
            return wave->from_ms + length_ms * (int64_t)index / (int64_t)wave->count;
        }
        index -= wave->count;
    }
    return waves[COUNT_OF(waves) - 1].until_ms;
}

#define FIRST_COUNT   600 /* of the early ones and those at the opening */
#define REPEATS_EVERY 10
#define REPEATS_WHOM  17 /* presses before: long enough ago to have been answered */

void crowd_user(size_t index, char user[CROWD_USER_SIZE])
{
    static const char *const names[] = {
        "mina",  "jiho",    "sora", "alex",   "yuna",  "theo",  "hana", "minho",
        "clara", "joon",    "nora", "bora",   "felix", "eunji", "luca", "dasom",
        "ida",   "taeyang", "mila", "haneul", "oskar", "suji",  "emma",
    };
    if (index % REPEATS_EVERY == REPEATS_EVERY - 1 && index > REPEATS_WHOM) {
        /* Later on it is those who came first that look again whether they really have one. */
        index = index < FIRST_COUNT ? index - REPEATS_WHOM : index * 31 % FIRST_COUNT;
    }
    snprintf(user, CROWD_USER_SIZE, "%s-%zu", names[index * 7 % COUNT_OF(names)], 1000 + index);
}
