/* region.c: memory from mmap, grown with mremap, so that the kernel moves page tables, not bytes;
 * and from malloc while it is small. */
#include "base/region.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool region_grow_on_heap(struct region *region, size_t size)
{
    char *base = realloc(region->base, size);

    if (base == NULL)
        return false;
    memset(base + region->size, 0, size - region->size);
    *region = (struct region){.base = base, .size = size};
    return true;
}

static void *region_map(struct region *region, size_t size)
{
    if (region->size >= REGION_MAPPED_MIN)
        return mremap(region->base, region->size, size, MREMAP_MAYMOVE);
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED && region->base != NULL) {
        memcpy(base, region->base, region->size);
        free(region->base);
    }
    return base;
}

bool region_grow(struct region *region, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t rounded = (size + page - 1) / page * page;

    if (size <= region->size)
        return true;
    if (size < REGION_MAPPED_MIN)
        return region_grow_on_heap(region, size);
    if (rounded < size)
        return false;
    void *base = region_map(region, rounded);
    if (base == MAP_FAILED)
        return false;
    *region = (struct region){.base = base, .size = rounded};
    return true;
}

void region_prefer_large_pages(struct region *region)
{
    if (region->size >= REGION_MAPPED_MIN)
        (void)madvise(region->base, region->size, MADV_HUGEPAGE);
}

void region_forget_below(struct region *region, size_t offset)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (region->size >= REGION_MAPPED_MIN)
        (void)madvise(region->base, offset / page * page, MADV_DONTNEED);
}

void region_release(struct region *region)
{
    if (region->size >= REGION_MAPPED_MIN)
        munmap(region->base, region->size);
    else
        free(region->base);
    *region = (struct region){0};
}
