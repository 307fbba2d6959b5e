/* sqlite_cache.h: a page cache for SQLite whose commits do not get slower as it fills.
 *
 * SQLite's own cache walks all its pages at the end of a transaction that split a page of an index:
 * for a moment one page then has a number far beyond the end of the file, and what has such a
 * number is thrown away at the commit. Tens of thousands of scattered pages, for nothing. This
 * cache forgets the number again when the page gets its real one. Its pages lie in large
 * blocks, each beside what is needed to find it and what SQLite keeps about it, and are read ahead
 * when they are fetched, so that a look-up waits for memory as little as can be; the blocks of a
 * large cache are huge pages where the kernel has them.
 *
 * Threads: registering is safe from any. Caches share nothing; each belongs to its connection.
 */
#ifndef LEDGER_SQLITE_CACHE_H
#define LEDGER_SQLITE_CACHE_H

#include <stdbool.h>

/* Makes SQLite use this cache for every connection opened from now on. False: SQLite was in use
 * before, and keeps its own cache. */
bool sqlite_cache_register(void);

#endif
