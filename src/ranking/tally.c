/* tally.c: counts by product and day; questions are one pass over the products. */
#include "ranking/tally.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define SLOTS_FIRST 1024
#define NO_PRODUCT  SIZE_MAX
#define BLOCK       256

void tally_init(struct tally *tally, const struct scoring *scoring)
{
    *tally = (struct tally){.scoring = scoring};
}

static void tally_day_release(struct tally_day *day)
{
    free(day->sold);
    free(day->scores);
}

void tally_release(struct tally *tally)
{
    for (size_t i = 0; i < tally->day_count; i++)
        tally_day_release(&tally->days[i]);
    free(tally->products);
    free(tally->slots);
    tally_init(tally, tally->scoring);
}

/* --- products --- */

/* FNV-1a: ids are the shop's own, not a stranger's. */
static uint64_t tally_hash(const struct id *product)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < product->length; i++)
        hash = (hash ^ (unsigned char)product->bytes[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

/* The slot that has the product, or the free one where it belongs. */
static size_t tally_slot(const struct tally *tally, const struct id *product)
{
    size_t at = tally_hash(product) & (tally->slot_count - 1);

    while (tally->slots[at] != 0 && !id_equal(&tally->products[tally->slots[at] - 1], product))
        at = (at + 1) & (tally->slot_count - 1);
    return at;
}

static size_t tally_find(const struct tally *tally, const struct id *product)
{
    if (tally->slot_count == 0)
        return NO_PRODUCT;
    uint32_t number = tally->slots[tally_slot(tally, product)];
    return number == 0 ? NO_PRODUCT : number - 1;
}

/* Room for one more product; at most half of the slots are taken. */
static bool tally_grow(struct tally *tally)
{
    if (!array_make_room(tally->products, tally->product_count, tally->product_capacity))
        return false;
    if (tally->slot_count > 2 * tally->product_count)
        return true;
    size_t slot_count = tally->slot_count == 0 ? SLOTS_FIRST : tally->slot_count * 2;
    uint32_t *slots = calloc(slot_count, sizeof(*slots));
    if (slots == NULL)
        return false;
    free(tally->slots);
    tally->slots = slots;
    tally->slot_count = slot_count;
    for (size_t i = 0; i < tally->product_count; i++)
        slots[tally_slot(tally, &tally->products[i])] = (uint32_t)i + 1;
    return true;
}

static size_t tally_take(struct tally *tally, const struct id *product)
{
    size_t number = tally_find(tally, product);

    if (number != NO_PRODUCT || tally->product_count == UINT32_MAX || !tally_grow(tally))
        return number;
    number = tally->product_count++;
    tally->products[number] = *product;
    tally->slots[tally_slot(tally, product)] = (uint32_t)number + 1;
    return number;
}

/* --- days --- */

/* Something of the days before this one is gone. */
static void tally_raise(struct tally *tally, int64_t first_day)
{
    if (tally->first_day < first_day)
        tally->first_day = first_day;
}

static struct tally_day *tally_day(struct tally *tally, int64_t day)
{
    size_t at = 0;

    while (at < tally->day_count && tally->days[at].day < day)
        at++;
    if (at < tally->day_count && tally->days[at].day == day)
        return &tally->days[at];
    if (tally->day_count == TALLY_DAYS_MAX) {
        tally_raise(tally, at == 0 ? day + 1 : tally->days[0].day + 1);
        if (at == 0)
            return NULL; /* older than all of them */
        tally_day_release(&tally->days[0]);
        memmove(tally->days, tally->days + 1, (TALLY_DAYS_MAX - 1) * sizeof(*tally->days));
        tally->day_count--;
        at--;
    }
    memmove(tally->days + at + 1, tally->days + at, (tally->day_count - at) * sizeof(*tally->days));
    tally->day_count++;
    tally->days[at] = (struct tally_day){.day = day};
    if (tally->scoring != NULL)
        tally->days[at].start_ms = zone_day_start_ms(tally->scoring->zone, day);
    return &tally->days[at];
}

static bool tally_day_grow(struct tally_day *day, size_t number, bool has_scores)
{
    size_t capacity = day->capacity;

    if (has_scores && !array_make_room(day->scores, number, capacity))
        return false;
    return array_make_room(day->sold, number, day->capacity);
}

static bool tally_day_reach(struct tally_day *day, size_t number, bool has_scores)
{
    if (number < day->length)
        return true;
    if (number >= day->capacity && !tally_day_grow(day, number, has_scores))
        return false;
    memset(day->sold + day->length, 0, (number + 1 - day->length) * sizeof(*day->sold));
    if (has_scores)
        memset(day->scores + day->length, 0, (number + 1 - day->length) * sizeof(*day->scores));
    day->length = number + 1;
    return true;
}

/* The day's place of a product; *day stays NULL when nobody asks for a day that old. */
static enum status tally_place(struct tally *tally, int64_t wanted, const struct id *product,
                               struct tally_day **day, size_t *number, struct error *error)
{
    *day = NULL;
    *number = tally_take(tally, product);
    if (*number == NO_PRODUCT)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for another product");
    struct tally_day *kept = tally_day(tally, wanted);
    if (kept != NULL && !tally_day_reach(kept, *number, tally->scoring != NULL))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a day's sales");
    *day = kept;
    return STATUS_OK;
}

enum status tally_add(struct tally *tally, int64_t day, const struct id *product, int64_t quantity,
                      struct error *error)
{
    struct tally_day *kept;
    size_t number;
    enum status status = tally_place(tally, day, product, &kept, &number, error);

    if (kept != NULL)
        kept->sold[number] += quantity;
    return status;
}

enum status tally_score(struct tally *tally, int64_t day, const struct id *product,
                        const struct sales_moment *moment, struct error *error)
{
    struct tally_day *kept;
    size_t number;
    enum status status = tally_place(tally, day, product, &kept, &number, error);

    if (kept == NULL)
        return status;
    ensure(kept->scores != NULL);
    kept->scores[number] += scoring_add(tally->scoring, kept->start_ms, moment);
    return status;
}

struct tally_reading {
    struct tally *tally;
    struct feed_place *place;
};

static enum status tally_take_place(void *context, const struct feed_place *place,
                                    struct error *error)
{
    *((struct tally_reading *)context)->place = *place;
    return STATUS_OK;
}

static enum status tally_take_total(void *context, int64_t day, const struct id *product,
                                    int64_t sold, struct error *error)
{
    struct tally_reading *reading = context;
    return sold == 0 ? STATUS_OK : tally_add(reading->tally, day, product, sold, error);
}

static enum status tally_take_moment(void *context, int64_t day, const struct id *product,
                                     const struct sales_moment *moment, struct error *error)
{
    return tally_score(((struct tally_reading *)context)->tally, day, product, moment, error);
}

enum status tally_read(struct tally *tally, struct ledger *ledger, int64_t first_day,
                       int64_t last_day, struct feed_place *place, struct error *error)
{
    struct tally_reading reading = {.tally = tally, .place = place};
    const struct sales_visitor visitor = {
        .place = tally_take_place,
        .total = tally_take_total,
        .moment = tally->scoring != NULL ? tally_take_moment : NULL,
        .context = &reading,
    };
    return ledger_sales_days(ledger, first_day, last_day, &visitor, error);
}

void tally_forget(struct tally *tally, int64_t first_day)
{
    size_t gone = 0;

    while (gone < tally->day_count && tally->days[gone].day < first_day)
        tally_day_release(&tally->days[gone++]);
    memmove(tally->days, tally->days + gone, (tally->day_count - gone) * sizeof(*tally->days));
    tally->day_count -= gone;
    tally_raise(tally, first_day);
}

/* --- questions --- */

bool tally_has(const struct tally *tally, const struct id *product)
{
    return tally_find(tally, product) != NO_PRODUCT;
}

int64_t tally_one(const struct tally *tally, int64_t day, const struct id *product)
{
    size_t number = tally_find(tally, product);

    for (size_t i = 0; i < tally->day_count && number != NO_PRODUCT; i++)
        if (tally->days[i].day == day)
            return number < tally->days[i].length ? tally->days[i].sold[number] : 0;
    return 0;
}

/* The days of a window. */
struct tally_window {
    const struct tally *tally;
    const struct tally_day *days;
    size_t day_count;
    const struct tally_day *last;  /* NULL: nothing was sold on it */
    double worths[TALLY_DAYS_MAX]; /* of each day's scores when the last day begins */
};

static struct tally_window tally_window(const struct tally *tally, int64_t first_day,
                                        int64_t last_day)
{
    struct tally_window window = {.tally = tally, .days = tally->days, .worths = {0}};

    for (size_t i = 0; i < tally->day_count; i++) {
        const struct tally_day *day = &tally->days[i];
        if (day->day < first_day)
            window.days = day + 1;
        else if (day->day <= last_day)
            window.day_count++;
        if (day->day == last_day)
            window.last = day;
    }
    for (size_t i = 0; i < window.day_count && tally->scoring != NULL; i++)
        window.worths[i] = scoring_worth(tally->scoring, window.days[i].start_ms,
                                         zone_day_start_ms(tally->scoring->zone, last_day));
    return window;
}

static int64_t tally_sold(const struct tally_window *window, size_t number)
{
    int64_t sold = 0;

    for (size_t i = 0; i < window->day_count; i++)
        if (number < window->days[i].length)
            sold += window->days[i].sold[number];
    return sold;
}

static double tally_scored(const struct tally_window *window, size_t number)
{
    double score = 0;

    for (size_t i = 0; i < window->day_count; i++)
        if (number < window->days[i].length)
            score += (double)window->days[i].scores[number] * window->worths[i];
    return score;
}

/* Fills what the product is ranked by: how it scored, if that is kept, and what was sold. */
static void tally_rate(const struct tally_window *window, size_t number, int64_t sold,
                       struct sales_line *line)
{
    line->score = window->tally->scoring != NULL ? tally_scored(window, number) : 0;
    line->sold = sold;
}

/* One pass over the products that have a rank. What was sold is added up for a block of them, day
 * by day: as fast as memory is read. */
struct tally_scan {
    const struct tally_window *window;
    const struct sales_line *last; /* those that rank below it are left out; NULL: none are */
    size_t first;                  /* the block's first product */
    size_t count;
    size_t at; /* the next of the block */
    int64_t sold[BLOCK];
};

static bool tally_next_block(struct tally_scan *scan)
{
    const struct tally_window *window = scan->window;

    scan->first += scan->count;
    scan->at = 0;
    if (scan->first >= window->tally->product_count)
        return false;
    size_t left = window->tally->product_count - scan->first;
    scan->count = left < BLOCK ? left : BLOCK;
    memset(scan->sold, 0, sizeof(scan->sold));
    for (size_t i = 0; i < window->day_count; i++) {
        const struct tally_day *day = &window->days[i];
        size_t end = day->length > scan->first ? day->length - scan->first : 0;
        for (size_t j = 0; j < end && j < scan->count; j++)
            scan->sold[j] += day->sold[scan->first + j];
    }
    return true;
}

/* Whether a product that was rated so has a rank. */
static bool tally_ranks(const struct tally_window *window, const struct sales_line *line)
{
    return window->tally->scoring != NULL ? line->score > 0 : line->sold > 0;
}

/* Fills the rest of a line that was rated, but for its rank. */
static void tally_complete(const struct tally_window *window, size_t number,
                           struct sales_line *line)
{
    const struct tally_day *last = window->last;

    line->product_id = window->tally->products[number];
    line->sold_last_day = last != NULL && number < last->length ? last->sold[number] : 0;
}

/* The line of a product; false: it has no rank. */
static bool tally_line(const struct tally_window *window, const struct id *product,
                       struct sales_line *line)
{
    size_t number = tally_find(window->tally, product);

    if (number == NO_PRODUCT)
        return false;
    tally_rate(window, number, tally_sold(window, number), line);
    tally_complete(window, number, line);
    return tally_ranks(window, line);
}

/* Negative: the left one ranks before the right one. */
static int tally_compare(const void *left, const void *right)
{
    const struct sales_line *a = left;
    const struct sales_line *b = right;

    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    if (a->sold != b->sold)
        return a->sold > b->sold ? -1 : 1;
    if (a->sold_last_day != b->sold_last_day)
        return a->sold_last_day > b->sold_last_day ? -1 : 1;
    return id_compare(&a->product_id, &b->product_id);
}

/* Most products are told apart by score and sold alone. */
static bool tally_is_below(const struct sales_line *line, const struct sales_line *last)
{
    return line->score < last->score || (line->score == last->score && line->sold < last->sold);
}

/* The next line that does not rank below scan->last; false: there is none. */
static bool tally_scan_next(struct tally_scan *scan, struct sales_line *line)
{
    const struct tally_window *window = scan->window;
    bool is_scored = window->tally->scoring != NULL;
    int64_t least = is_scored ? INT64_MIN : scan->last != NULL ? scan->last->sold : 1;

    while (scan->at < scan->count || tally_next_block(scan)) {
        size_t at = scan->at++;
        if (scan->sold[at] < least)
            continue;
        tally_rate(window, scan->first + at, scan->sold[at], line);
        if (!tally_ranks(window, line) || (scan->last != NULL && tally_is_below(line, scan->last)))
            continue;
        tally_complete(window, scan->first + at, line);
        return true;
    }
    return false;
}

/* The first of these lines, best first, that does not rank before `line`. */
static size_t tally_search(const struct sales_line *lines, size_t count,
                           const struct sales_line *line)
{
    size_t low = 0;
    size_t high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tally_compare(&lines[middle], line) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The best lines, or those next to a product on one side; best first. */
struct tally_side {
    struct sales_line *lines;
    size_t count;
    size_t max;
};

/* Of more than there is room for, those that stay are the ones at the end that is next to the
 * product: the last ones before it, the first ones behind it. */
static void tally_side_add(struct tally_side *side, const struct sales_line *line, bool is_before)
{
    struct sales_line *lines = side->lines;
    size_t at = tally_search(lines, side->count, line);

    if (side->count < side->max) {
        memmove(lines + at + 1, lines + at, (side->count++ - at) * sizeof(*lines));
        lines[at] = *line;
    } else if (is_before && at > 0) {
        memmove(lines, lines + 1, (at - 1) * sizeof(*lines));
        lines[at - 1] = *line;
    } else if (!is_before && at < side->count) {
        memmove(lines + at + 1, lines + at, (side->count - 1 - at) * sizeof(*lines));
        lines[at] = *line;
    }
}

size_t tally_top(const struct tally *tally, int64_t first_day, int64_t last_day, size_t limit,
                 struct sales_line *lines)
{
    struct tally_window window = tally_window(tally, first_day, last_day);
    struct tally_scan scan = {.window = &window};
    struct tally_side best = {.lines = lines, .max = limit};
    struct sales_line line;

    while (limit > 0 && tally_scan_next(&scan, &line)) {
        tally_side_add(&best, &line, false);
        if (best.count == limit)
            scan.last = &lines[limit - 1];
    }
    for (size_t i = 0; i < best.count; i++)
        lines[i].rank = (int64_t)i + 1;
    return best.count;
}

enum status tally_of(const struct tally *tally, int64_t first_day, int64_t last_day,
                     const struct id *ids, size_t id_count, struct sales_line *lines, size_t *count,
                     struct error *error)
{
    struct tally_window window = tally_window(tally, first_day, last_day);
    int64_t *before = calloc(id_count + 1, sizeof(*before)); /* how many rank between two of them */

    *count = 0;
    if (before == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a ranking");
    for (size_t i = 0; i < id_count; i++)
        *count += tally_line(&window, &ids[i], &lines[*count]);
    if (*count > 1)
        qsort(lines, *count, sizeof(*lines), tally_compare);
    struct tally_scan scan = {.window = &window, .last = *count > 0 ? &lines[*count - 1] : NULL};
    struct sales_line line;
    while (*count > 0 && tally_scan_next(&scan, &line))
        before[tally_search(lines, *count, &line)]++;
    int64_t rank = 0;
    for (size_t i = 0; i < *count; i++) {
        rank += before[i]; /* the product itself is the last of these */
        lines[i].rank = rank;
    }
    free(before);
    return STATUS_OK;
}

size_t tally_around(const struct tally *tally, int64_t first_day, int64_t last_day,
                    const struct id *product, size_t distance, struct sales_line *lines)
{
    struct tally_window window = tally_window(tally, first_day, last_day);
    struct tally_scan scan = {.window = &window};
    struct sales_line asked;
    struct sales_line line;
    int64_t rank = 1;

    if (!tally_line(&window, product, &asked))
        return 0;
    struct tally_side before = {.lines = lines, .max = distance};
    struct tally_side behind = {.lines = lines + distance + 1, .max = distance};
    while (tally_scan_next(&scan, &line)) {
        int order = tally_compare(&line, &asked);
        rank += order < 0;
        if (order != 0)
            tally_side_add(order < 0 ? &before : &behind, &line, order < 0);
        if (behind.count == distance && distance > 0)
            scan.last = &behind.lines[distance - 1];
    }
    lines[before.count] = asked;
    memmove(lines + before.count + 1, behind.lines, behind.count * sizeof(*lines));
    size_t count = before.count + 1 + behind.count;
    for (size_t i = 0; i < count; i++)
        lines[i].rank = rank - (int64_t)before.count + (int64_t)i;
    return count;
}
