/* redis.c: the board in Redis: its calls, and how their answers are read. */
#include "ranking/redis/redis.h"

#include <stdlib.h>

#include "base/fault.h"
#include "base/json.h"
#include "embedded_functions.h"
#include "ranking/redis/board.h"
#include "ranking/tally.h"

#define TIMEOUT_DEFAULT_MS 1000
#define TAG                "rank"
#define CACHE              "cache:product:{rank}:top_selling"
#define REFRESHER          "cache:product:{rank}:refresher"
#define PAGE               2000
#define ANSWER_HEAD        3 /* the word, and the place */

static const struct redis_library board_redis_library = {
    .file = "redis_board.lua",
    .version = "dibs_rank_version",
    .version_number = REDIS_BOARD_LUA_VERSION,
};

/* --- calls --- */

/* What the first word of an answer means. */
static enum status board_redis_argument(const redisReply *reply, struct error *error)
{
    static const struct {
        const char *word;
        enum status status;
        const char *text;
    } words[] = {
        {"OK", STATUS_OK, ""},
        {"GONE", STATUS_NOT_FOUND, "the board in Redis is missing, or not whole"},
        {"MOVED", STATUS_CONFLICT, "the board stands elsewhere in the feed"},
        {"LOST", STATUS_CONFLICT, "what was being built in Redis is gone"},
        {"BUSY", STATUS_BUSY, "another server is at it"},
        {"FULL", STATUS_FAILED,
         "a product sells more in a day than the board in Redis can count; set board=local"},
    };
    struct span word = {0};

    (void)redis_reply_text(redis_reply_at(reply, 0), &word);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (span_equal(word, span_of(words[i].word)))
            return words[i].status == STATUS_OK
                       ? STATUS_OK
                       : error_set(error, words[i].status, "%s", words[i].text);
    return error_set(error, STATUS_FAILED, "the board in Redis answers something else");
}

/* Calls, and reads the answer's first word. OK: `reply` is the caller's. */
static enum status board_redis_call(struct board_redis *redis, struct board_args *args,
                                    int attempts, redisReply **reply, struct error *error)
{
    enum status status = STATUS_UNKNOWN;

    *reply = NULL;
    for (int i = 0; i < attempts && status == STATUS_UNKNOWN; i++)
        status = redis_pool_send(&redis->pool, redis->slot, args->items, args->count, reply, error);
    if (status == STATUS_OK)
        status = board_redis_argument(*reply, error);
    if (status != STATUS_OK) {
        freeReplyObject(*reply);
        *reply = NULL;
    }
    return status;
}

/* A question may be asked twice: a connection that was idle while Redis restarted tells nothing
 * about Redis. */
static enum status board_redis_query(struct board *board, struct board_args *args,
                                     redisReply **reply, struct error *error)
{
    enum status status = board_redis_call(board_redis(board), args, 2, reply, error);

    return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
}

enum status board_redis_do(struct board_redis *redis, struct board_args *args, struct error *error)
{
    redisReply *reply;
    enum status status = board_redis_call(redis, args, 1, &reply, error);

    freeReplyObject(reply);
    return status;
}

/* --- reading --- */

static bool board_redis_number(const redisReply *reply, size_t at, int64_t *number)
{
    return redis_reply_number(redis_reply_at(reply, at), -REDIS_NUMBER_MAX, REDIS_NUMBER_MAX,
                              number);
}

static bool board_redis_read_place(const redisReply *reply, struct feed_place *place)
{
    return board_redis_number(reply, 1, &place->feed_id) &&
           board_redis_number(reply, 2, &place->written_at_ms);
}

static bool board_redis_read_product(const redisReply *reply, size_t at, struct id *product)
{
    struct span text;

    if (!redis_reply_text(redis_reply_at(reply, at), &text) || !json_id_valid(text))
        return false;
    *product = id_of(text);
    return true;
}

static enum status board_redis_unreadable(struct error *error)
{
    return error_set(error, STATUS_NOT_FOUND, "the board in Redis is not readable");
}

static enum status board_redis_read_lines(const redisReply *reply, size_t max,
                                          struct sales_line *lines, size_t *count,
                                          struct error *error)
{
    size_t word_count = redis_reply_count(reply) - ANSWER_HEAD; /* the head has been read */
    size_t line_count = word_count / BOARD_LINE_WORDS;

    if (line_count > max || word_count % BOARD_LINE_WORDS != 0)
        return board_redis_unreadable(error);
    for (size_t i = 0; i < line_count; i++) {
        size_t at = ANSWER_HEAD + i * BOARD_LINE_WORDS;
        lines[i] = (struct sales_line){0};
        if (!board_redis_number(reply, at, &lines[i].rank) ||
            !board_redis_read_product(reply, at + 1, &lines[i].product_id) ||
            !board_redis_number(reply, at + 2, &lines[i].sold) ||
            !board_redis_number(reply, at + 3, &lines[i].sold_last_day))
            return board_redis_unreadable(error);
    }
    *count = line_count;
    return STATUS_OK;
}

/* --- the place --- */

void board_redis_note(struct board_redis *redis, const struct feed_place *place, int64_t floor)
{
    pthread_mutex_lock(&redis->lock);
    redis->place = *place;
    redis->floor = floor;
    pthread_mutex_unlock(&redis->lock);
}

static enum status board_redis_place(struct board *board, struct feed_place *place,
                                     struct error *error)
{
    struct board_args args;
    redisReply *reply;
    int64_t floor;

    board_args_init(&args, "FCALL_RO", "dibs_rank_place", 1);
    board_args_add(&args, redis_text(BOARD_META));
    enum status status = board_redis_query(board, &args, &reply, error);
    if (status == STATUS_OK &&
        !(board_redis_read_place(reply, place) && board_redis_number(reply, 3, &floor)))
        status = board_redis_unreadable(error);
    if (status == STATUS_OK)
        board_redis_note(board_redis(board), place, floor);
    freeReplyObject(reply);
    return status;
}

/* --- following --- */

/* One call, behind a place that the board had with that floor. */
static enum status board_redis_apply_batch(struct board_redis *redis,
                                           const struct feed_place *after, int64_t floor,
                                           const struct feed_entry *entries, size_t count,
                                           struct error *error)
{
    struct board_key keys[BOARD_KEYS_MAX];
    size_t key_count = board_keys_of(entries, count, floor, keys);
    const struct feed_place *last = &entries[count - 1].place;
    struct board_args args;

    board_args_init(&args, "FCALL", "dibs_rank_apply", key_count + 1);
    board_args_add(&args, redis_text(BOARD_META));
    for (size_t i = 0; i < key_count; i++)
        board_args_key(&args, "", &keys[i]);
    board_args_add(&args, redis_number(after->feed_id), redis_number(after->written_at_ms),
                   redis_number(floor), redis_number(last->feed_id),
                   redis_number(last->written_at_ms));
    board_args_changes(&args, redis->zone, keys, key_count, entries, count);
    FAULT_POINT("board.before_apply");
    enum status status = board_redis_do(redis, &args, error);
    FAULT_POINT("board.after_apply");
    if (status == STATUS_OK)
        board_redis_note(redis, last, floor);
    return status;
}

static enum status board_redis_apply(struct board *board, const struct feed_place *after,
                                     const struct feed_entry *entries, size_t count,
                                     struct error *error)
{
    struct board_redis *redis = board_redis(board);
    struct feed_place at = *after;
    enum status status = STATUS_OK;

    pthread_mutex_lock(&redis->lock);
    bool is_there = feed_place_equal(&redis->place, after);
    int64_t floor = redis->floor;
    pthread_mutex_unlock(&redis->lock);
    if (!is_there)
        return error_set(error, STATUS_CONFLICT, "the board stands elsewhere in the feed");
    while (count > 0 && status == STATUS_OK) {
        size_t taken = board_batch(entries, count);
        status = board_redis_apply_batch(redis, &at, floor, entries, taken, error);
        at = entries[taken - 1].place;
        entries += taken;
        count -= taken;
    }
    return status;
}

static enum status board_redis_forget(struct board *board, int64_t first_day, struct error *error)
{
    struct board_args args;
    char day[ZONE_DAY_TEXT_SIZE];
    char window_end[ZONE_DAY_TEXT_SIZE];

    zone_format_day(first_day + 1, day);
    zone_format_day(first_day + 2, window_end);
    board_args_init(&args, "FCALL", "dibs_rank_forget", 1);
    board_args_add(&args, redis_text(BOARD_META), redis_number(first_day), redis_text(day),
                   redis_text(window_end));
    enum status status = board_redis_do(board_redis(board), &args, error);
    /* A board that is not there has nothing to forget. */
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static int64_t board_redis_first_day(struct board *board)
{
    struct board_redis *redis = board_redis(board);

    pthread_mutex_lock(&redis->lock);
    int64_t first_day = redis->floor;
    pthread_mutex_unlock(&redis->lock);
    return first_day;
}

/* --- questions --- */

/* The beginning of a question about a window of at most BOARD_WINDOW_DAYS_MAX days. */
static void board_redis_question(struct board_args *args, const char *function,
                                 const struct board_key *key)
{
    board_args_init(args, "FCALL_RO", function, 2);
    board_args_add(args, redis_text(BOARD_META));
    board_args_key(args, "", key);
    board_args_add(args, redis_text(key->first_day == key->last_day ? "day" : "sum"),
                   redis_number(board_key_floor_max(key)));
}

static int board_redis_compare_ranks(const void *left, const void *right)
{
    const struct sales_line *a = left;
    const struct sales_line *b = right;

    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* A board that went back, because Redis did, or because it was built anew a moment ago, does not
 * know what was already told. */
static enum status board_redis_ask(struct board *board, const struct board_question *question,
                                   struct sales_line *lines, size_t *count, struct error *error)
{
    static const char *const functions[] = {[BOARD_TOP] = "dibs_rank_top",
                                            [BOARD_OF] = "dibs_rank_of",
                                            [BOARD_AROUND] = "dibs_rank_around"};
    const struct board_key key = {question->first_day, question->last_day};
    struct board_redis *redis = board_redis(board);
    size_t max = question->kind == BOARD_TOP  ? question->limit
                 : question->kind == BOARD_OF ? question->id_count
                                              : 2 * question->limit + 1;
    struct feed_place place;
    struct board_args args;
    redisReply *reply;

    *count = 0;
    if (key.last_day < key.first_day || key.last_day - key.first_day >= BOARD_WINDOW_DAYS_MAX)
        return error_set(error, STATUS_NOT_FOUND, "the board in Redis keeps three days");
    board_redis_question(&args, functions[question->kind], &key);
    for (size_t i = 0; i < question->id_count; i++)
        board_args_add(&args, redis_user(&question->ids[i]));
    if (question->kind != BOARD_OF)
        board_args_add(&args, redis_number((int64_t)question->limit));
    enum status status = board_redis_query(board, &args, &reply, error);
    if (status == STATUS_OK && !board_redis_read_place(reply, &place))
        status = board_redis_unreadable(error);
    pthread_mutex_lock(&redis->lock);
    if (status == STATUS_OK && place.feed_id < redis->place.feed_id)
        status = error_set(error, STATUS_NOT_FOUND, "the board in Redis went back");
    pthread_mutex_unlock(&redis->lock);
    if (status == STATUS_OK)
        status = board_redis_read_lines(reply, max, lines, count, error);
    if (status == STATUS_OK)
        qsort(lines, *count, sizeof(*lines), board_redis_compare_ranks);
    freeReplyObject(reply);
    return status;
}

/* --- reading everything --- */

/* Adds one page of a day; *size becomes how many products the day has. */
static enum status board_redis_read_page(struct board *board, int64_t day, int64_t from,
                                         struct feed_place *place, int64_t *size,
                                         struct tally *tally, struct error *error)
{
    const struct board_key key = {day, day};
    struct board_args args;
    redisReply *reply;

    board_redis_question(&args, "dibs_rank_visit", &key);
    board_args_add(&args, redis_number(from), redis_number(PAGE));
    enum status status = board_redis_query(board, &args, &reply, error);
    if (status == STATUS_OK &&
        !(board_redis_read_place(reply, place) && board_redis_number(reply, ANSWER_HEAD, size)))
        status = board_redis_unreadable(error);
    size_t count = redis_reply_count(reply);
    for (size_t at = ANSWER_HEAD + 1; status == STATUS_OK && at < count; at += 2) {
        struct id product;
        int64_t sold;
        status = board_redis_read_product(reply, at, &product) &&
                         board_redis_number(reply, at + 1, &sold)
                     ? tally_add(tally, day, &product, sold, error)
                     : board_redis_unreadable(error);
    }
    freeReplyObject(reply);
    return status;
}

static enum status board_redis_read(struct board *board, int64_t first_day, int64_t last_day,
                                    struct tally *tally, struct feed_place *place,
                                    struct error *error)
{
    enum status status = board_redis_place(board, place, error);

    for (int64_t day = first_day; day <= last_day && status == STATUS_OK; day++) {
        int64_t size = 1;
        for (int64_t from = 0; from < size && status == STATUS_OK; from += PAGE) {
            struct feed_place now;
            status = board_redis_read_page(board, day, from, &now, &size, tally, error);
            if (status == STATUS_OK && !feed_place_equal(place, &now))
                status = error_set(error, STATUS_BUSY, "the board changes while it is read");
        }
    }
    return status;
}

/* --- the answer that servers share --- */

static enum status board_redis_recall(struct board *board, struct buffer *text, int64_t *age_ms,
                                      struct error *error)
{
    struct board_args args;
    struct span cached;
    redisReply *reply;

    board_args_init(&args, "FCALL_RO", "dibs_rank_recall", 1);
    board_args_add(&args, redis_text(CACHE), redis_number(BOARD_CACHE_MS));
    buffer_clear(text);
    enum status status = board_redis_query(board, &args, &reply, error);
    if (status == STATUS_OK && redis_reply_text(redis_reply_at(reply, 1), &cached) &&
        board_redis_number(reply, 2, age_ms))
        buffer_append(text, cached.bytes, cached.length);
    else if (status == STATUS_OK)
        status = error_set(error, STATUS_NOT_FOUND, "the cached answer is not readable");
    freeReplyObject(reply);
    return status;
}

static enum status board_redis_refresh(struct board *board, char token[BOARD_TOKEN_SIZE],
                                       struct error *error)
{
    struct board_args args;

    board_token(token);
    board_args_init(&args, "FCALL", "dibs_rank_refresh", 1);
    board_args_add(&args, redis_text(REFRESHER), redis_text(token));
    return board_redis_do(board_redis(board), &args, error);
}

static enum status board_redis_keep(struct board *board, const char *token, struct span text,
                                    struct error *error)
{
    struct board_args args;

    board_args_init(&args, "FCALL", "dibs_rank_keep", 2);
    board_args_add(&args, redis_text(REFRESHER), redis_text(CACHE), redis_text(token),
                   redis_bytes(text.bytes, text.length), redis_number(BOARD_CACHE_MS));
    return board_redis_do(board_redis(board), &args, error);
}

/* --- life --- */

static void board_redis_close(struct board *board)
{
    struct board_redis *redis = board_redis(board);

    redis_pool_release(&redis->pool);
    redis_map_release(&redis->map);
    redis_target_release(&redis->target);
    pthread_mutex_destroy(&redis->lock);
    free(redis);
}

static const struct board_ops board_redis_ops = {
    .name = "redis",
    .close = board_redis_close,
    .place = board_redis_place,
    .build = board_redis_build,
    .apply = board_redis_apply,
    .forget = board_redis_forget,
    .first_day = board_redis_first_day,
    .ask = board_redis_ask,
    .read = board_redis_read,
};

static const struct board_cache_ops board_redis_cache_ops = {
    .recall = board_redis_recall,
    .refresh = board_redis_refresh,
    .keep = board_redis_keep,
};

enum status board_redis_open(struct board **board, const struct board_redis_options *options,
                             struct error *error)
{
    struct board_redis *redis = calloc(1, sizeof(*redis));

    *board = NULL;
    if (redis == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the board");
    enum status status = redis_target_init(
        &redis->target, options->url, options->password,
        options->timeout_ms > 0 ? options->timeout_ms : TIMEOUT_DEFAULT_MS, error);
    if (status != STATUS_OK) {
        free(redis);
        return status;
    }
    redis->board = (struct board){.ops = &board_redis_ops,
                                  .cache = &board_redis_cache_ops,
                                  .days_max = BOARD_WINDOW_DAYS_MAX};
    redis->zone = options->zone;
    redis->slot = redis_map_slot_of(TAG);
    redis_map_init(&redis->map, &redis->target);
    redis_pool_init(&redis->pool, &redis->target, &redis->map, &board_redis_library);
    pthread_mutex_init(&redis->lock, NULL);
    board_check(&redis->board);
    *board = &redis->board;
    return STATUS_OK;
}
