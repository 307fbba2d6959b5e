/* region.c: memory from mmap, grown with mremap, so that the kernel moves page tables, not bytes.
 */
#include "base/region.h"

#include <sys/mman.h>
#include <unistd.h>

bool region_grow(struct region *region, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t rounded = (size + page - 1) / page * page;

    if (rounded < size)
        return false;
    if (rounded <= region->size)
        return true;

    void *base;
    if (region->base == NULL)
        base = mmap(NULL, rounded, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    else
        base = mremap(region->base, region->size, rounded, MREMAP_MAYMOVE);
    if (base == MAP_FAILED)
        return false;
    region->base = base;
    region->size = rounded;
    return true;
}

void region_make_resident(struct region *region)
{
    if (region->base == NULL)
        return;
    (void)madvise(region->base, region->size, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    (void)madvise(region->base, region->size, MADV_POPULATE_WRITE);
#endif
}

void region_release(struct region *region)
{
    if (region->base != NULL)
        munmap(region->base, region->size);
    *region = (struct region){0};
}
