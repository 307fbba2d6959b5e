/* tally.c: counts by product and day; questions are one pass over the products. */
#include "ranking/tally.h"

#include <stdlib.h>
#include <string.h>

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
static uint64_t tally_hash(const struct user_id *product)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < product->length; i++)
        hash = (hash ^ (unsigned char)product->bytes[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

/* The slot that has the product, or the free one where it belongs. */
static size_t tally_slot(const struct tally *tally, const struct user_id *product)
{
    size_t at = tally_hash(product) & (tally->slot_count - 1);

    while (tally->slots[at] != 0 && !user_id_equal(&tally->products[tally->slots[at] - 1], product))
        at = (at + 1) & (tally->slot_count - 1);
    return at;
}

static size_t tally_find(const struct tally *tally, const struct user_id *product)
{
    if (tally->slot_count == 0)
        return NO_PRODUCT;
    uint32_t number = tally->slots[tally_slot(tally, product)];
    return number == 0 ? NO_PRODUCT : number - 1;
}

/* Room for one more product; at most half of the slots are taken. */
static bool tally_grow(struct tally *tally)
{
    if (tally->product_count == tally->product_capacity) {
        size_t capacity =
            tally->product_capacity == 0 ? SLOTS_FIRST / 2 : tally->product_capacity * 2;
        struct user_id *grown = realloc(tally->products, capacity * sizeof(*grown));
        if (grown == NULL)
            return false;
        tally->products = grown;
        tally->product_capacity = capacity;
    }
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

static size_t tally_take(struct tally *tally, const struct user_id *product)
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
    size_t capacity = day->capacity == 0 ? SLOTS_FIRST : day->capacity;

    while (capacity <= number)
        capacity *= 2;
    int64_t *sold = realloc(day->sold, capacity * sizeof(*sold));
    if (sold == NULL)
        return false;
    day->sold = sold;
    if (has_scores) {
        scoring_sum *scores = realloc(day->scores, capacity * sizeof(*scores));
        if (scores == NULL)
            return false;
        day->scores = scores;
    }
    day->capacity = capacity;
    return true;
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
static enum status tally_place(struct tally *tally, int64_t wanted, const struct user_id *product,
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

enum status tally_add(struct tally *tally, int64_t day, const struct user_id *product,
                      int64_t quantity, struct error *error)
{
    struct tally_day *kept;
    size_t number;
    enum status status = tally_place(tally, day, product, &kept, &number, error);

    if (kept != NULL)
        kept->sold[number] += quantity;
    return status;
}

enum status tally_score(struct tally *tally, int64_t day, const struct user_id *product,
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

bool tally_has(const struct tally *tally, const struct user_id *product)
{
    return tally_find(tally, product) != NO_PRODUCT;
}

int64_t tally_one(const struct tally *tally, int64_t day, const struct user_id *product)
{
    size_t number = tally_find(tally, product);

    for (size_t i = 0; i < tally->day_count && number != NO_PRODUCT; i++) {
        if (tally->days[i].day == day)
            return number < tally->days[i].length ? tally->days[i].sold[number] : 0;
    }
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

    for (size_t i = 0; i < window->day_count; i++) {
        if (number < window->days[i].length)
            sold += window->days[i].sold[number];
    }
    return sold;
}

static int64_t tally_sold_last(const struct tally_window *window, size_t number)
{
    const struct tally_day *last = window->last;
    return last != NULL && number < last->length ? last->sold[number] : 0;
}

static double tally_scored(const struct tally_window *window, size_t number)
{
    double score = 0;

    for (size_t i = 0; i < window->day_count; i++) {
        if (number < window->days[i].length)
            score += (double)window->days[i].scores[number] * window->worths[i];
    }
    return score;
}

/* What a product is ranked by: how it scored, if that is kept, and what was sold. */
struct tally_mark {
    double score;
    int64_t sold;
};

static struct tally_mark tally_mark(const struct tally_window *window, size_t number, int64_t sold)
{
    return (struct tally_mark){
        .score = window->tally->scoring != NULL ? tally_scored(window, number) : 0, .sold = sold};
}

/* What was sold of some products, added up day by day: as fast as memory is read. */
struct tally_block {
    size_t first;
    size_t count;
    int64_t sold[BLOCK];
};

/* The next products; the first time, `block` is {0}. */
static bool tally_next_block(const struct tally_window *window, struct tally_block *block)
{
    block->first += block->count;
    if (block->first >= window->tally->product_count)
        return false;
    size_t left = window->tally->product_count - block->first;
    block->count = left < BLOCK ? left : BLOCK;
    memset(block->sold, 0, sizeof(block->sold));
    for (size_t i = 0; i < window->day_count; i++) {
        const struct tally_day *day = &window->days[i];
        size_t end = day->length > block->first ? day->length - block->first : 0;
        for (size_t j = 0; j < end && j < block->count; j++)
            block->sold[j] += day->sold[block->first + j];
    }
    return true;
}

/* What a product must have sold to be looked at, when only those matter that do not rank behind
 * `line` (NULL: all that have a rank). */
static int64_t tally_least(const struct tally_window *window, const struct sales_line *line)
{
    if (window->tally->scoring != NULL)
        return INT64_MIN;
    return line != NULL ? line->sold : 1;
}

/* Whether a product with that mark has a rank. */
static bool tally_ranks(const struct tally_window *window, struct tally_mark mark)
{
    return window->tally->scoring != NULL ? mark.score > 0 : mark.sold > 0;
}

/* Most products are told apart here. */
static bool tally_is_below(struct tally_mark mark, const struct sales_line *line)
{
    return mark.score < line->score || (mark.score == line->score && mark.sold < line->sold);
}

static struct sales_line tally_line(const struct tally_window *window, size_t number,
                                    struct tally_mark mark)
{
    return (struct sales_line){.product_id = window->tally->products[number],
                               .score = mark.score,
                               .sold = mark.sold,
                               .sold_last_day = tally_sold_last(window, number)};
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
    return user_id_compare(&a->product_id, &b->product_id);
}

/* Keeps the best `limit` lines in a heap whose root is the worst of them. */
static void tally_sift(struct sales_line *heap, size_t count, size_t at)
{
    for (;;) {
        size_t worst = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            if (tally_compare(&heap[child], &heap[worst]) > 0)
                worst = child;
        }
        if (worst == at)
            return;
        struct sales_line swapped = heap[at];
        heap[at] = heap[worst];
        heap[worst] = swapped;
        at = worst;
    }
}

/* Takes a line that may be among the best `limit`. */
static void tally_keep(struct sales_line *heap, size_t *count, size_t limit, struct sales_line line)
{
    if (*count < limit) {
        heap[(*count)++] = line;
        for (size_t at = limit / 2; *count == limit && at-- > 0;)
            tally_sift(heap, limit, at);
    } else if (tally_compare(&line, &heap[0]) < 0) {
        heap[0] = line;
        tally_sift(heap, limit, 0);
    }
}

size_t tally_top(const struct tally *tally, int64_t first_day, int64_t last_day, size_t limit,
                 struct sales_line *lines)
{
    struct tally_window window = tally_window(tally, first_day, last_day);
    size_t count = 0;

    struct tally_block block = {0};
    const struct sales_line *worst = NULL; /* of the best, once there are enough */
    int64_t least = tally_least(&window, NULL);
    while (limit > 0 && tally_next_block(&window, &block)) {
        for (size_t i = 0; i < block.count; i++) {
            if (block.sold[i] < least)
                continue;
            struct tally_mark mark = tally_mark(&window, block.first + i, block.sold[i]);
            if (!tally_ranks(&window, mark) || (worst != NULL && tally_is_below(mark, worst)))
                continue;
            tally_keep(lines, &count, limit, tally_line(&window, block.first + i, mark));
            worst = count == limit ? &lines[0] : NULL;
            least = tally_least(&window, worst);
        }
    }
    if (count > 1)
        qsort(lines, count, sizeof(*lines), tally_compare);
    for (size_t i = 0; i < count; i++)
        lines[i].rank = (int64_t)i + 1;
    return count;
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

enum status tally_of(const struct tally *tally, int64_t first_day, int64_t last_day,
                     const struct user_id *ids, size_t id_count, struct sales_line *lines,
                     size_t *count, struct error *error)
{
    struct tally_window window = tally_window(tally, first_day, last_day);
    int64_t *before = calloc(id_count + 1, sizeof(*before)); /* how many rank between two of them */

    *count = 0;
    if (before == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a ranking");
    for (size_t i = 0; i < id_count; i++) {
        size_t number = tally_find(tally, &ids[i]);
        struct tally_mark mark = {0};
        if (number != NO_PRODUCT)
            mark = tally_mark(&window, number, tally_sold(&window, number));
        if (tally_ranks(&window, mark))
            lines[(*count)++] = tally_line(&window, number, mark);
    }
    if (*count > 1)
        qsort(lines, *count, sizeof(*lines), tally_compare);
    struct tally_block block = {0};
    const struct sales_line *last = *count > 0 ? &lines[*count - 1] : NULL;
    int64_t least = tally_least(&window, last);
    while (last != NULL && tally_next_block(&window, &block)) {
        for (size_t i = 0; i < block.count; i++) {
            if (block.sold[i] < least)
                continue;
            struct tally_mark mark = tally_mark(&window, block.first + i, block.sold[i]);
            if (!tally_ranks(&window, mark) || tally_is_below(mark, last))
                continue;
            struct sales_line line = tally_line(&window, block.first + i, mark);
            before[tally_search(lines, *count, &line)]++;
        }
    }
    int64_t rank = 0;
    for (size_t i = 0; i < *count; i++) {
        rank += before[i]; /* the product itself is the last of these */
        lines[i].rank = rank;
    }
    free(before);
    return STATUS_OK;
}

/* Those next to a product on one side, best first. */
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

/* One pass: who ranks before the product is counted, and who is nearest is kept. Returns its rank.
 */
static int64_t tally_pass(const struct tally_window *window, size_t number,
                          const struct sales_line *own, struct tally_side *before,
                          struct tally_side *behind)
{
    struct tally_block block = {0};
    int64_t rank = 1;

    while (tally_next_block(window, &block)) {
        for (size_t i = 0; i < block.count; i++) {
            bool is_full = behind->count == behind->max && behind->max > 0;
            const struct sales_line *last = is_full ? &behind->lines[behind->max - 1] : NULL;
            if (block.sold[i] < tally_least(window, last) || block.first + i == number)
                continue;
            struct tally_mark mark = tally_mark(window, block.first + i, block.sold[i]);
            if (!tally_ranks(window, mark) || (last != NULL && tally_is_below(mark, last)))
                continue;
            struct sales_line line = tally_line(window, block.first + i, mark);
            bool is_before = tally_compare(&line, own) < 0;
            rank += is_before;
            tally_side_add(is_before ? before : behind, &line, is_before);
        }
    }
    return rank;
}

size_t tally_around(const struct tally *tally, int64_t first_day, int64_t last_day,
                    const struct user_id *product, int64_t distance, struct sales_line *lines)
{
    struct tally_window window = tally_window(tally, first_day, last_day);
    size_t number = tally_find(tally, product);
    size_t max = (size_t)distance;

    if (number == NO_PRODUCT)
        return 0;
    struct tally_mark mark = tally_mark(&window, number, tally_sold(&window, number));
    if (!tally_ranks(&window, mark))
        return 0;
    struct sales_line own = tally_line(&window, number, mark);
    struct tally_side before = {.lines = lines, .max = max};
    struct tally_side behind = {.lines = lines + max + 1, .max = max};
    own.rank = tally_pass(&window, number, &own, &before, &behind);
    lines[before.count] = own;
    memmove(lines + before.count + 1, behind.lines, behind.count * sizeof(*lines));
    size_t count = before.count + 1 + behind.count;
    for (size_t i = 0; i < count; i++)
        lines[i].rank = own.rank - (int64_t)before.count + (int64_t)i;
    return count;
}
