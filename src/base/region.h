/* region.h: zero-filled memory that grows without copying and is resident only where touched.
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

/* Makes it at least `size` bytes; new bytes are zero. False when the system has no room, and then
 * nothing changed. */
bool region_grow(struct region *region, size_t size);
void region_release(struct region *region);

/* Makes the memory resident now, in large pages where the system has them, so that using it later
 * costs no page faults. Only a matter of speed: it cannot fail. */
void region_make_resident(struct region *region);
