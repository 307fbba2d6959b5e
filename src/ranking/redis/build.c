/* build.c: builds the board in Redis beside the one that answers, and puts it in its place.
 *
 * The totals go into keys of the builder's own, which take the place of the board's, with the place
 * in the feed, in one call. One server at a time builds; the one that was too slow, or whose keys
 * somebody has deleted, is told so at its next call. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fault.h"
#include "ranking/redis/board.h"

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
