/* sqlite_cache.c: pages in blocks, found through a hash table, reused least recently used first. */
#include "ledger/sqlite_cache.h"

#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

#define BLOCK_SIZE_MIN  ((size_t)64 << 10)
#define BLOCK_SIZE_MAX  ((size_t)2 << 20) /* a huge page */
#define BUCKETS_MIN     256u
#define CACHE_LINE_SIZE 64

/* `page` is first: SQLite knows a page by the address of that part. */
struct cache_page {
    sqlite3_pcache_page page;
    struct cache_page *next; /* of its bucket, or of the free ones */
    struct cache_page *newer;
    struct cache_page *older; /* itself while pinned, when it is in no list */
    unsigned key;
};

/* Followed by its pages: each its struct cache_page, what SQLite keeps about it, which is looked at
 * together with it, and its bytes. */
struct cache_block {
    struct cache_block *next;
    size_t size;
};

struct cache {
    size_t page_size;
    size_t extra_size;
    bool is_purgeable;
    unsigned pages_max;
    unsigned page_count;
    unsigned pinned_count;
    unsigned bucket_count; /* a power of two */
    /* Every key is at most `key_bound`, and every key but one at most `key_bound_others`. */
    unsigned key_bound;
    unsigned key_bound_others;
    struct cache_page **buckets;
    struct cache_page *free;
    struct cache_page
        unpinned; /* the ends of the list: newer is the oldest page, older the newest */
    struct cache_block *blocks;
    size_t block_size_next;
};

static struct cache *cache_of(sqlite3_pcache *handle)
{
    return (struct cache *)handle;
}

static struct cache_page *cache_page_of(sqlite3_pcache_page *page)
{
    return (struct cache_page *)page;
}

/* --- blocks --- */

/* Memory of `size` bytes; from a huge page's size on aligned to one and straight from the kernel,
 * so that all of it goes back there. NULL: there is none. */
static void *cache_allocate(size_t size)
{
    if (size < BLOCK_SIZE_MAX)
        return malloc(size);
    char *mapped = mmap(NULL, size + BLOCK_SIZE_MAX, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)mapped % BLOCK_SIZE_MAX;
    if (before > 0)
        munmap(mapped, before);
    munmap(mapped + before + size, BLOCK_SIZE_MAX - before);
    (void)madvise(mapped + before, size, MADV_HUGEPAGE);
    return mapped + before;
}

static void cache_free(void *memory, size_t size)
{
    if (size < BLOCK_SIZE_MAX)
        free(memory);
    else
        munmap(memory, size);
}

/* Adds free pages, if there is memory. */
static void cache_add_block(struct cache *cache)
{
    size_t before = (sizeof(struct cache_page) + cache->extra_size + 7) / 8 * 8;
    size_t each = (before + cache->page_size + 7) / 8 * 8;
    size_t size = cache->block_size_next;

    while (size < sizeof(struct cache_block) + each)
        size *= 2;
    void *memory = cache_allocate(size);
    if (memory == NULL)
        return;
    if (size < BLOCK_SIZE_MAX)
        cache->block_size_next = size * 2;

    struct cache_block *block = memory;
    size_t count = (size - sizeof(*block)) / each;
    char *first = (char *)(block + 1);

    block->size = size;
    block->next = cache->blocks;
    cache->blocks = block;
    for (size_t i = count; i-- > 0;) {
        struct cache_page *page = (struct cache_page *)(first + i * each);
        page->page.pExtra = page + 1;
        page->page.pBuf = (char *)page + before;
        page->next = cache->free;
        cache->free = page;
    }
}

/* --- pinned and unpinned --- */

static bool cache_is_pinned(const struct cache_page *page)
{
    return page->older == page;
}

static void cache_pin(struct cache *cache, struct cache_page *page)
{
    page->newer->older = page->older;
    page->older->newer = page->newer;
    page->older = page;
    cache->pinned_count++;
}

static void cache_unpin_newest(struct cache *cache, struct cache_page *page)
{
    struct cache_page *ends = &cache->unpinned;

    page->newer = ends;
    page->older = ends->older;
    page->older->newer = page;
    ends->older = page;
    cache->pinned_count--;
}

/* --- keys --- */

static struct cache_page **cache_bucket(const struct cache *cache, unsigned key)
{
    return &cache->buckets[key & (cache->bucket_count - 1)];
}

static struct cache_page *cache_find(const struct cache *cache, unsigned key)
{
    struct cache_page *page = *cache_bucket(cache, key);
    while (page != NULL && page->key != key)
        page = page->next;
    return page;
}

static void cache_link(struct cache *cache, struct cache_page *page, unsigned key)
{
    struct cache_page **bucket = cache_bucket(cache, key);

    page->key = key;
    page->next = *bucket;
    *bucket = page;
    if (key > cache->key_bound) {
        cache->key_bound_others = cache->key_bound;
        cache->key_bound = key;
    } else if (key != cache->key_bound && key > cache->key_bound_others) {
        cache->key_bound_others = key;
    }
}

static void cache_unlink(struct cache *cache, struct cache_page *page)
{
    struct cache_page **at = cache_bucket(cache, page->key);

    while (*at != page)
        at = &(*at)->next;
    *at = page->next;
    if (page->key == cache->key_bound)
        cache->key_bound = cache->key_bound_others;
}

/* More buckets than pages; with fewer it would only be slower. */
static void cache_widen(struct cache *cache)
{
    unsigned count = cache->bucket_count * 2;
    struct cache_page **wider = calloc(count, sizeof(struct cache_page *));

    if (wider == NULL)
        return;
    for (unsigned i = 0; i < cache->bucket_count; i++) {
        for (struct cache_page *page = cache->buckets[i], *next; page != NULL; page = next) {
            next = page->next;
            page->next = wider[page->key & (count - 1)];
            wider[page->key & (count - 1)] = page;
        }
    }
    free(cache->buckets);
    cache->buckets = wider;
    cache->bucket_count = count;
}

/* Takes a page out, pinned or not. */
static void cache_drop(struct cache *cache, struct cache_page *page)
{
    if (!cache_is_pinned(page))
        cache_pin(cache, page);
    cache_unlink(cache, page);
    cache->pinned_count--;
    cache->page_count--;
    page->next = cache->free;
    cache->free = page;
}

static void cache_drop_unpinned(struct cache *cache, unsigned pages_max)
{
    while (cache->page_count > pages_max && cache->unpinned.newer != &cache->unpinned)
        cache_drop(cache, cache->unpinned.newer);
}

/* --- what SQLite calls --- */

static int cache_initialise(void *argument)
{
    (void)argument;
    return SQLITE_OK;
}

static sqlite3_pcache *cache_create(int page_size, int extra_size, int is_purgeable)
{
    struct cache *cache = calloc(1, sizeof(*cache));

    if (cache == NULL)
        return NULL;
    cache->buckets = calloc(BUCKETS_MIN, sizeof(struct cache_page *));
    if (cache->buckets == NULL) {
        free(cache);
        return NULL;
    }
    cache->page_size = (size_t)page_size;
    cache->extra_size = (size_t)extra_size;
    cache->is_purgeable = is_purgeable != 0;
    cache->bucket_count = BUCKETS_MIN;
    cache->block_size_next = BLOCK_SIZE_MIN;
    cache->unpinned.newer = &cache->unpinned;
    cache->unpinned.older = &cache->unpinned;
    return (sqlite3_pcache *)cache;
}

static void cache_destroy(sqlite3_pcache *handle)
{
    struct cache *cache = cache_of(handle);

    for (struct cache_block *block = cache->blocks, *next; block != NULL; block = next) {
        next = block->next;
        cache_free(block, block->size);
    }
    free(cache->buckets);
    free(cache);
}

static void cache_resize(sqlite3_pcache *handle, int pages_max)
{
    struct cache *cache = cache_of(handle);

    cache->pages_max = pages_max > 0 ? (unsigned)pages_max : 0;
    if (cache->is_purgeable)
        cache_drop_unpinned(cache, cache->pages_max);
}

static void cache_shrink(sqlite3_pcache *handle)
{
    cache_drop_unpinned(cache_of(handle), 0);
}

static int cache_count_pages(sqlite3_pcache *handle)
{
    return (int)cache_of(handle)->page_count;
}

static sqlite3_pcache_page *cache_make(struct cache *cache, unsigned key, bool must)
{
    /* Most of the cache is pinned, which is to say changed: SQLite had better write some of it. */
    if (!must && cache->is_purgeable && cache->pinned_count >= cache->pages_max / 10 * 9)
        return NULL;
    if (cache->is_purgeable && cache->page_count >= cache->pages_max &&
        cache->unpinned.newer != &cache->unpinned)
        cache_drop(cache, cache->unpinned.newer);
    if (cache->free == NULL)
        cache_add_block(cache);
    struct cache_page *page = cache->free;
    if (page == NULL)
        return NULL;
    if (cache->page_count >= cache->bucket_count)
        cache_widen(cache);
    cache->free = page->next;
    page->older = page;
    cache_link(cache, page, key);
    cache->page_count++;
    cache->pinned_count++;
    /* SQLite tells by this that the page is a new one. */
    memset(page->page.pExtra, 0, cache->extra_size);
    return &page->page;
}

/* SQLite is about to search the page, one step depending on the other; of a large tree each step
 * would wait for memory. Asked for all at once, the lines come while the first is awaited. */
static void cache_warm(const struct cache *cache, const struct cache_page *page)
{
    const char *bytes = page->page.pBuf;

    for (size_t at = 0; at < cache->page_size; at += CACHE_LINE_SIZE)
        __builtin_prefetch(bytes + at);
}

static sqlite3_pcache_page *cache_fetch(sqlite3_pcache *handle, unsigned key, int create)
{
    struct cache *cache = cache_of(handle);
    struct cache_page *page = cache_find(cache, key);

    if (page == NULL)
        return create == 0 ? NULL : cache_make(cache, key, create == 2);
    if (!cache_is_pinned(page)) {
        cache_pin(cache, page);
        cache_warm(cache, page);
    }
    return &page->page;
}

static void cache_unpin(sqlite3_pcache *handle, sqlite3_pcache_page *fetched, int discard)
{
    struct cache *cache = cache_of(handle);
    struct cache_page *page = cache_page_of(fetched);

    ensure(cache_is_pinned(page));
    if (discard || (cache->is_purgeable && cache->page_count > cache->pages_max))
        cache_drop(cache, page);
    else
        cache_unpin_newest(cache, page);
}

static void cache_rekey(sqlite3_pcache *handle, sqlite3_pcache_page *fetched, unsigned old_key,
                        unsigned new_key)
{
    struct cache *cache = cache_of(handle);
    struct cache_page *page = cache_page_of(fetched);
    struct cache_page *in_the_way = cache_find(cache, new_key);

    ensure(page->key == old_key);
    if (in_the_way == page)
        return;
    if (in_the_way != NULL)
        cache_drop(cache, in_the_way);
    cache_unlink(cache, page);
    cache_link(cache, page, new_key);
}

static void cache_truncate(sqlite3_pcache *handle, unsigned limit)
{
    struct cache *cache = cache_of(handle);

    if (limit > cache->key_bound)
        return;
    if (cache->key_bound - limit < cache->bucket_count) {
        for (unsigned key = cache->key_bound; key >= limit && key > 0; key--) {
            struct cache_page *page = cache_find(cache, key);
            if (page != NULL)
                cache_drop(cache, page);
        }
    } else {
        for (unsigned i = 0; i < cache->bucket_count; i++) {
            for (struct cache_page *page = cache->buckets[i], *next; page != NULL; page = next) {
                next = page->next;
                if (page->key >= limit)
                    cache_drop(cache, page);
            }
        }
    }
    unsigned bound = limit > 0 ? limit - 1 : 0;
    cache->key_bound = bound;
    cache->key_bound_others = bound;
}

bool sqlite_cache_register(void)
{
    static const sqlite3_pcache_methods2 methods = {
        .iVersion = 1,
        .xInit = cache_initialise,
        .xCreate = cache_create,
        .xCachesize = cache_resize,
        .xPagecount = cache_count_pages,
        .xFetch = cache_fetch,
        .xUnpin = cache_unpin,
        .xRekey = cache_rekey,
        .xTruncate = cache_truncate,
        .xDestroy = cache_destroy,
        .xShrink = cache_shrink,
    };
    return sqlite3_config(SQLITE_CONFIG_PCACHE2, &methods) == SQLITE_OK;
}
