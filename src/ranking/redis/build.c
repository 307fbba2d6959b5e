/* build.c: builds the board in Redis beside the one that answers, and puts it in its place.
 *
 * The totals go into keys of the builder's own, which take the place of the board's, with the place
 * in the feed, in one call. One server at a time builds; the one that was too slow, or whose keys
 * somebody has deleted, is told so at its next call. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "base/fault.h"
#include "base/random.h"
#include "ranking/redis/board.h"

#define KEPT_DAYS     3 /* and ten minutes of the next one */
#define KEPT_EXTRA_MS 600000

/* --- counters --- */

static bool board_key_is_sum(const struct board_key *key)
{
    return key->first_day != key->last_day;
}

/* The window that ended yesterday is asked for as well, and its first day is not. */
int64_t board_key_floor_max(const struct board_key *key)
{
    return key->last_day - (board_key_is_sum(key) ? 2 : 1);
}

static size_t board_keys_add(struct board_key *keys, size_t count, int64_t floor, int64_t last_day,
                             int64_t days)
{
    const struct board_key key = {.first_day = last_day - days + 1, .last_day = last_day};

    if (board_key_floor_max(&key) < floor)
        return count;
    for (size_t i = 0; i < count; i++)
        if (keys[i].first_day == key.first_day && keys[i].last_day == key.last_day)
            return count;
    ensure(count < BOARD_KEYS_MAX);
    keys[count] = key;
    return count + 1;
}

/* A day, and every window that it is in. */
static size_t board_keys_add_day(struct board_key *keys, size_t count, int64_t floor, int64_t day)
{
    for (int64_t days = 1; days <= BOARD_WINDOW_DAYS_MAX; days++)
        for (int64_t last_day = day; last_day < day + days; last_day++)
            count = board_keys_add(keys, count, floor, last_day, days);
    return count;
}

size_t board_keys_of(const struct feed_entry *entries, size_t count, int64_t floor,
                     struct board_key keys[BOARD_KEYS_MAX])
{
    size_t key_count = 0;

    for (size_t i = 0; i < count; i++)
        if (i == 0 || entries[i].day != entries[i - 1].day)
            key_count = board_keys_add_day(keys, key_count, floor, entries[i].day);
    return key_count;
}

/* All counters that sales of the days behind the floor, up to this one, can change. */
static size_t board_keys_all(int64_t floor, int64_t last_day, struct board_key keys[BOARD_KEYS_MAX])
{
    size_t key_count = 0;

    for (int64_t day = floor; day <= last_day; day++)
        key_count = board_keys_add_day(keys, key_count, floor, day);
    return key_count;
}

size_t board_batch(const struct feed_entry *entries, size_t count)
{
    int64_t days[BOARD_BATCH_DAYS_MAX];
    size_t day_count = 0;
    size_t taken = 0;

    for (; taken < count && taken < BOARD_BATCH_MAX; taken++) {
        size_t at = 0;
        while (at < day_count && days[at] != entries[taken].day)
            at++;
        if (at == BOARD_BATCH_DAYS_MAX)
            break;
        if (at == day_count)
            days[day_count++] = entries[taken].day;
    }
    return taken;
}

/* When the counters of a day are no longer asked for by anyone. */
static int64_t board_expires_at_ms(const struct zone *zone, int64_t last_day)
{
    return zone_day_start_ms(zone, last_day + KEPT_DAYS) + KEPT_EXTRA_MS;
}

/* --- arguments --- */

void board_args_init(struct board_args *args, const char *command, const char *function,
                     size_t key_count)
{
    args->count = 0;
    args->text_length = 0;
    board_args_add(args, redis_text(command), redis_text(function),
                   redis_number((int64_t)key_count));
}

void board_args_append(struct board_args *args, const struct redis_argument *items, size_t count)
{
    ensure(args->count + count <= BOARD_ARGS_MAX);
    memcpy(args->items + args->count, items, count * sizeof(*items));
    args->count += count;
}

/* Adds a text, of which there is a copy until the call is over. */
PRINTF_LIKE(2, 3)
static void board_args_copy(struct board_args *args, const char *format, ...)
{
    char *text = args->texts + args->text_length;
    size_t room = BOARD_TEXTS_SIZE - args->text_length;
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(text, room, format, arguments);
    va_end(arguments);
    ensure(length >= 0 && (size_t)length < room);
    args->text_length += (size_t)length + 1;
    board_args_add(args, redis_bytes(text, (size_t)length));
}

void board_args_key(struct board_args *args, const char *below, const struct board_key *key)
{
    char first[ZONE_DAY_TEXT_SIZE];
    char last[ZONE_DAY_TEXT_SIZE];

    zone_format_day(key->first_day, first);
    zone_format_day(key->last_day, last);
    if (board_key_is_sum(key))
        board_args_copy(args, BOARD_PREFIX "%ssum:%s_%s", below, first, last);
    else
        board_args_copy(args, BOARD_PREFIX "%s%s", below, last);
}

/* Two changes of one product in a call are added up there. */
void board_args_changes(struct board_args *args, const struct zone *zone,
                        const struct board_key *keys, size_t key_count,
                        const struct feed_entry *entries, size_t count)
{
    for (size_t i = 0; i < key_count; i++) {
        const struct board_key *key = &keys[i];
        board_args_add(args, redis_number(board_expires_at_ms(zone, key->last_day)),
                       redis_text(board_key_is_sum(key) ? "sum" : "day"), redis_number(0));
        struct redis_argument *change_count = &args->items[args->count - 1];
        for (size_t j = 0; j < count; j++) {
            const struct feed_entry *entry = &entries[j];
            if (entry->day < key->first_day || entry->day > key->last_day)
                continue;
            change_count->number++;
            board_args_add(args, redis_user(&entry->product_id), redis_number(entry->quantity),
                           redis_number(entry->day == key->last_day ? entry->quantity : 0));
        }
    }
}

void board_token(char token[BOARD_TOKEN_SIZE])
{
    uint8_t bytes[(BOARD_TOKEN_SIZE - 1) / 2];

    random_bytes(bytes, sizeof(bytes));
    hex_write(token, bytes, sizeof(bytes));
    token[BOARD_TOKEN_SIZE - 1] = '\0';
}

/* --- building --- */

#define BUILDER BOARD_PREFIX "builder"

struct board_building {
    struct board_redis *redis;
    char token[BOARD_TOKEN_SIZE];
    char below[BOARD_TOKEN_SIZE + 8]; /* "build:TOKEN:" */
    int64_t floor;
    struct feed_place place;
    struct feed_entry entries[BOARD_BATCH_MAX];
    size_t count;
};

/* Begins a call of the builder with so many keys behind its own two. */
static void board_building_call(const struct board_building *building, const char *function,
                                size_t key_count, struct board_args *args)
{
    board_args_init(args, "FCALL", function, key_count + 2);
    board_args_add(args, redis_text(BUILDER));
    board_args_copy(args, BOARD_PREFIX "%smeta", building->below);
}

static enum status board_building_begin(struct board_building *building, struct error *error)
{
    struct board_args args;

    board_token(building->token);
    snprintf(building->below, sizeof(building->below), "build:%s:", building->token);
    board_args_init(&args, "FCALL", "dibs_rank_build_begin", 1);
    board_args_add(&args, redis_text(BUILDER), redis_text(building->token));
    return board_redis_do(building->redis, &args, error);
}

static enum status board_building_send(struct board_building *building,
                                       const struct feed_entry *entries, size_t count,
                                       struct error *error)
{
    struct board_key keys[BOARD_KEYS_MAX];
    size_t key_count = board_keys_of(entries, count, building->floor, keys);
    struct board_args args;

    board_building_call(building, "dibs_rank_build_add", key_count, &args);
    for (size_t i = 0; i < key_count; i++)
        board_args_key(&args, building->below, &keys[i]);
    board_args_add(&args, redis_text(building->token));
    board_args_changes(&args, building->redis->zone, keys, key_count, entries, count);
    FAULT_POINT("board.while_building");
    return board_redis_do(building->redis, &args, error);
}

static enum status board_building_flush(struct board_building *building, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t at = 0; at < building->count && status == STATUS_OK;) {
        size_t taken = board_batch(building->entries + at, building->count - at);
        status = board_building_send(building, building->entries + at, taken, error);
        at += taken;
    }
    building->count = 0;
    return status;
}

static enum status board_building_take_place(void *context, const struct feed_place *place,
                                             struct error *error)
{
    struct board_building *building = context;

    building->place = *place;
    return STATUS_OK;
}

static enum status board_building_take_total(void *context, int64_t day,
                                             const struct id *product_id, int64_t sold,
                                             struct error *error)
{
    struct board_building *building = context;

    if (sold == 0)
        return STATUS_OK;
    building->entries[building->count++] =
        (struct feed_entry){.day = day, .product_id = *product_id, .quantity = sold};
    return building->count == BOARD_BATCH_MAX ? board_building_flush(building, error) : STATUS_OK;
}

/* From now on it is the board. */
static enum status board_building_end(struct board_building *building, int64_t last_day,
                                      struct error *error)
{
    struct board_key keys[BOARD_KEYS_MAX];
    size_t key_count = board_keys_all(building->floor, last_day, keys);
    struct board_args args;

    board_building_call(building, "dibs_rank_build_end", 2 * key_count + 1, &args);
    board_args_add(&args, redis_text(BOARD_META));
    for (size_t i = 0; i < key_count; i++) {
        board_args_key(&args, building->below, &keys[i]);
        board_args_key(&args, "", &keys[i]);
    }
    board_args_add(&args, redis_text(building->token), redis_number(building->place.feed_id),
                   redis_number(building->place.written_at_ms), redis_number(building->floor));
    for (size_t i = 0; i < key_count; i++)
        board_args_add(&args,
                       redis_number(board_expires_at_ms(building->redis->zone, keys[i].last_day)));
    FAULT_POINT("board.before_swap");
    enum status status = board_redis_do(building->redis, &args, error);
    FAULT_POINT("board.after_swap");
    if (status == STATUS_OK)
        board_redis_note(building->redis, &building->place, building->floor);
    return status;
}

/* Lets another one build. What cannot be taken away now expires. */
static void board_building_stop(struct board_building *building, int64_t last_day)
{
    struct board_key keys[BOARD_KEYS_MAX];
    size_t key_count = board_keys_all(building->floor, last_day, keys);
    struct board_args args;

    board_building_call(building, "dibs_rank_build_stop", key_count, &args);
    for (size_t i = 0; i < key_count; i++)
        board_args_key(&args, building->below, &keys[i]);
    board_args_add(&args, redis_text(building->token));
    (void)!board_redis_do(building->redis, &args, NULL);
}

enum status board_redis_build(struct board *board, struct ledger *ledger, int64_t first_day,
                              int64_t last_day, struct error *error)
{
    struct board_building *building = calloc(1, sizeof(*building));

    if (building == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to build the board");
    building->redis = board_redis(board);
    building->floor = first_day;
    const struct sales_visitor visitor = {.place = board_building_take_place,
                                          .total = board_building_take_total,
                                          .context = building};
    enum status status = board_building_begin(building, error);
    if (status == STATUS_OK) {
        status = ledger_sales_days(ledger, first_day, last_day, &visitor, error);
        if (status == STATUS_OK)
            status = board_building_flush(building, error);
        if (status == STATUS_OK)
            status = board_building_end(building, last_day, error);
    }
    if (status != STATUS_OK && status != STATUS_BUSY)
        board_building_stop(building, last_day);
    free(building);
    return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
}
