/* region.h: zero-filled memory that grows without copying and is resident only where touched. A
 * small one shares pages with others, as the system has only so many mappings.
 *
 * Growing may move it: pointers into a region are good until the next region_grow().
 *
 * Threads: one owner at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct region {
    void *base; /* NULL: nothing reserved yet */
    size_t size;
};

/* Below this size it is on the heap: it is copied when it grows, and resident as a whole. */
#define REGION_MAPPED_MIN ((size_t)64 << 10)

/* Makes it at least `size` bytes; new bytes are zero. False when the system has no room, and then
 * nothing changed. */
bool region_grow(struct region *region, size_t size);
void region_release(struct region *region);

/* Large pages where the system has them: only a matter of speed. */
void region_prefer_large_pages(struct region *region);
/* What is below this offset is not needed any more: it reads as zeros or as it was. */
void region_forget_below(struct region *region, size_t offset);
