/* tally.h: how much of each product was sold on each day, in memory, and how it scored.
 *
 * Products get numbers in the order they are first seen; a day is an array of counts by those
 * numbers. About 80 bytes for a product, and 8 for each day up to the highest number
 * that was sold on it; 24 where scores are kept.
 *
 * Threads: one owner, or under a lock.
 */
#pragma once

#include "ledger/sales/sales.h"
#include "ranking/scoring.h"

#define TALLY_DAYS_MAX 64

struct tally_day {
    int64_t day;
    int64_t start_ms;    /* wall, where scores are kept */
    int64_t *sold;       /* by the product's number */
    scoring_sum *scores; /* the same; NULL where none are kept */
    size_t length;       /* products from here on have sold nothing that day */
    size_t capacity;
};

struct tally {
    const struct scoring *scoring; /* NULL: what was sold ranks */
    struct id *products;
    size_t product_count;
    size_t product_capacity;
    uint32_t *slots; /* a hash table of numbers + 1; 0: free */
    size_t slot_count;
    struct tally_day days[TALLY_DAYS_MAX]; /* in rising order */
    size_t day_count;
    int64_t first_day; /* of which nothing was dropped, and of no later one */
};

/* Ranks by score if `scoring` is given, which outlives the tally; else by what was sold. */
void tally_init(struct tally *tally, const struct scoring *scoring);
void tally_release(struct tally *tally);

/* UNAVAILABLE: no memory; nothing was changed. A day beyond the first TALLY_DAYS_MAX drops the
 * oldest one. */
enum status tally_add(struct tally *tally, int64_t day, const struct id *product, int64_t quantity,
                      struct error *error) MUST_CHECK;

/* The same for a score, where they are kept. */
enum status tally_score(struct tally *tally, int64_t day, const struct id *product,
                        const struct sales_moment *moment, struct error *error) MUST_CHECK;

/* Adds what the ledger has of these days, and tells the place in the feed that it stands for. */
enum status tally_read(struct tally *tally, struct ledger *ledger, int64_t first_day,
                       int64_t last_day, struct feed_place *place, struct error *error) MUST_CHECK;

/* Drops the days before this one. */
void tally_forget(struct tally *tally, int64_t first_day);

/* Whether the product was ever seen, and what was sold of it on one day. */
bool tally_has(const struct tally *tally, const struct id *product);
int64_t tally_one(const struct tally *tally, int64_t day, const struct id *product);

/* The best of a window, as ledger_sales_top(); where scores are kept, those with the higher score
 * first, and then as ledger_sales_top(). */
size_t tally_top(const struct tally *tally, int64_t first_day, int64_t last_day, size_t limit,
                 struct sales_line *lines);

/* The lines of these products, by rank, as ledger_sales_of(). UNAVAILABLE: no memory. */
enum status tally_of(const struct tally *tally, int64_t first_day, int64_t last_day,
                     const struct id *ids, size_t id_count, struct sales_line *lines, size_t *count,
                     struct error *error) MUST_CHECK;

/* The product's line and its neighbours, as ledger_sales_around(); returns how many lines. */
size_t tally_around(const struct tally *tally, int64_t first_day, int64_t last_day,
                    const struct id *product, size_t distance, struct sales_line *lines);
