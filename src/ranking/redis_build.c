/* redis_build.c: builds the board in Redis beside the one that answers, and puts it in its place.
 *
 * The totals go into keys of the builder's own, which take the place of the board's, with the place
 * in the feed, in one call. One server at a time builds; the one that was too slow, or whose keys
 * somebody has deleted, is told so at its next call. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fault.h"
#include "ranking/redis_board.h"

#define BUILDER BOARD_PREFIX "builder"
#define META    BOARD_PREFIX "meta"

struct board_building {
    struct board_redis *redis;
    char token[BOARD_TOKEN_SIZE];
    char below[BOARD_TOKEN_SIZE + 8]; /* "build:TOKEN:" */
    int64_t floor;
    struct feed_place place;
    struct feed_entry entries[BOARD_BATCH_MAX];
    size_t count;
};

static void board_building_meta(struct board_words *words, const struct board_building *building)
{
    board_words_copy(words, BOARD_PREFIX "%smeta", building->below);
}

static enum status board_building_begin(struct board_building *building, struct error *error)
{
    struct board_words *words = board_words_new("FCALL", "dibs_rank_build_begin", 1, error);

    if (words == NULL)
        return STATUS_UNAVAILABLE;
    board_token(building->token);
    snprintf(building->below, sizeof(building->below), "build:%s:", building->token);
    board_words_text(words, BUILDER);
    board_words_text(words, building->token);
    return board_redis_do(building->redis, words, error);
}

static enum status board_building_send(struct board_building *building,
                                       const struct feed_entry *entries, size_t count,
                                       struct error *error)
{
    struct board_key keys[BOARD_KEYS_MAX];
    size_t key_count = board_keys_of(entries, count, building->floor, keys);
    struct board_words *words =
        board_words_new("FCALL", "dibs_rank_build_add", key_count + 2, error);

    if (words == NULL)
        return STATUS_UNAVAILABLE;
    board_words_text(words, BUILDER);
    board_building_meta(words, building);
    for (size_t i = 0; i < key_count; i++)
        board_words_key(words, building->below, &keys[i]);
    board_words_text(words, building->token);
    board_words_changes(words, building->redis->zone, keys, key_count, entries, count);
    FAULT_POINT("board.while_building");
    return board_redis_do(building->redis, words, error);
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

    (void)error;
    building->place = *place;
    return STATUS_OK;
}

static enum status board_building_take_total(void *context, int64_t day,
                                             const struct user_id *product_id, int64_t sold,
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
    struct board_words *words =
        board_words_new("FCALL", "dibs_rank_build_end", 2 * key_count + 3, error);

    if (words == NULL)
        return STATUS_UNAVAILABLE;
    board_words_text(words, BUILDER);
    board_building_meta(words, building);
    board_words_text(words, META);
    for (size_t i = 0; i < key_count; i++) {
        board_words_key(words, building->below, &keys[i]);
        board_words_key(words, "", &keys[i]);
    }
    board_words_text(words, building->token);
    board_words_number(words, building->place.feed_id);
    board_words_number(words, building->place.written_at_ms);
    board_words_number(words, building->floor);
    for (size_t i = 0; i < key_count; i++)
        board_words_number(words, board_expires_at_ms(building->redis->zone, keys[i].last_day));
    FAULT_POINT("board.before_swap");
    enum status status = board_redis_do(building->redis, words, error);
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
    struct board_words *words =
        board_words_new("FCALL", "dibs_rank_build_stop", key_count + 2, NULL);

    if (words == NULL)
        return;
    board_words_text(words, BUILDER);
    board_building_meta(words, building);
    for (size_t i = 0; i < key_count; i++)
        board_words_key(words, building->below, &keys[i]);
    board_words_text(words, building->token);
    (void)!board_redis_do(building->redis, words, NULL);
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
