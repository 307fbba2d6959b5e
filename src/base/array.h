/* array.h: arrays that grow by doubling, and arrays in rising order of ids. The owner keeps the
 * pointer, the count and the capacity (a size_t), all zero at the start, and frees the pointer.
 *
 * Threads: one owner at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_CAPACITY_MIN 16

/* How many items an array that is declared as one has. */
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* What array_reserve() does; `array` is the address of the pointer. */
static inline bool array_grow(void *array, size_t needed, size_t *capacity, size_t item_size)
{
    size_t grown = *capacity < ARRAY_CAPACITY_MIN ? ARRAY_CAPACITY_MIN : *capacity * 2;
    void *items;

    if (needed <= *capacity)
        return true;
    if (grown < needed)
        grown = needed;
    if (grown > PTRDIFF_MAX / item_size)
        return false;
    memcpy(&items, array, sizeof(items));
    items = realloc(items, grown * item_size);
    if (items == NULL)
        return false;
    memcpy(array, &items, sizeof(items));
    *capacity = grown;
    return true;
}

/* Room for `needed` items in all; false when there is no memory, and then nothing changed. */
#define array_reserve(items, needed, capacity) \
    array_grow(&(items), needed, &(capacity), sizeof(*(items)))

/* Room for one more. */
#define array_make_room(items, count, capacity) array_reserve(items, (count) + 1, capacity)

/* Counts one more and moves what stands from `at` on behind it; false as above. */
#define array_insert(items, at, count, capacity)                                              \
    ({                                                                                        \
        bool has_room_ = array_make_room(items, count, capacity);                             \
        if (has_room_) {                                                                      \
            memmove((items) + (at) + 1, (items) + (at), ((count) - (at)) * sizeof(*(items))); \
            (count)++;                                                                        \
        }                                                                                     \
        has_room_;                                                                            \
    })

/* Takes one out and keeps the order. */
#define array_remove(items, at, count)                                                       \
    ({                                                                                       \
        size_t at_ = (size_t)(at);                                                           \
        (count)--;                                                                           \
        (void)memmove((items) + at_, (items) + at_ + 1, ((count) - at_) * sizeof(*(items))); \
    })

/* Where the item with that id is, or would be. `member` is how an item's id is written behind it:
 * .policy_id, ->id, or nothing. */
#define array_place(items, count, member, sought)       \
    ({                                                  \
        size_t low_ = 0;                                \
        for (size_t high_ = (count); low_ < high_;) {   \
            size_t middle_ = low_ + (high_ - low_) / 2; \
            if ((items)[middle_] member < (sought))     \
                low_ = middle_ + 1;                     \
            else                                        \
                high_ = middle_;                        \
        }                                               \
        low_;                                           \
    })
