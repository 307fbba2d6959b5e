/* redis_board.h: the parts of the board in Redis; for its own files only.
 *
 * Threads: words and keys belong to one thread; the rest has its own rule.
 */
#ifndef RANKING_REDIS_BOARD_H
#define RANKING_REDIS_BOARD_H

#include <pthread.h>

#include "gate/redis_pool.h"
#include "ranking/redis.h"

#define BOARD_WINDOW_DAYS_MAX 3
#define BOARD_BATCH_MAX       100 /* sales in one call: Redis does nothing else meanwhile */
#define BOARD_BATCH_DAYS_MAX  8   /* on so many days */
#define BOARD_KEYS_MAX        128
#define BOARD_WORDS_MAX       4096
#define BOARD_TEXTS_SIZE      49152
#define BOARD_LINE_WORDS      4 /* rank, product, sold, sold on the last day */

#define BOARD_PREFIX          "zs:product:{rank}:"

struct board_redis {
    struct board board;
    struct redis_target target;
    struct redis_map map;
    struct redis_pool pool;
    const struct zone *zone;
    unsigned slot;
    pthread_mutex_t lock;    /* guards what follows */
    struct feed_place place; /* where it was last seen to stand, and with which floor */
    int64_t floor;
};

static inline struct board_redis *board_redis(struct board *board)
{
    return (struct board_redis *)board;
}

/* --- counters --- */

/* A zset: of a day, or of a window of several. */
struct board_key {
    int64_t first_day;
    int64_t last_day;
};

/* The counters that these sales change, of a board with that floor; at most BOARD_KEYS_MAX, of
 * which a batch within the limits above has fewer. */
size_t board_keys_of(const struct feed_entry *entries, size_t count, int64_t floor,
                     struct board_key keys[BOARD_KEYS_MAX]);

/* All counters that sales of the days behind the floor, up to this one, can change. */
size_t board_keys_all(int64_t floor, int64_t last_day, struct board_key keys[BOARD_KEYS_MAX]);

/* How many of these sales, from the first on, fit into one call. */
size_t board_batch(const struct feed_entry *entries, size_t count);

/* The highest floor of a board that still keeps it. */
int64_t board_key_floor_max(const struct board_key *key);

/* --- words --- */

/* The words of one call, and room for the texts among them. */
struct board_words {
    const char *words[BOARD_WORDS_MAX];
    size_t lengths[BOARD_WORDS_MAX];
    size_t count;
    char texts[BOARD_TEXTS_SIZE];
    size_t text_length;
};

/* NULL: no memory, and the words say so. To be freed with free(). */
struct board_words *board_words_new(const char *command, const char *function, size_t key_count,
                                    struct error *error);

/* Adds what lives on until the call is over, or a copy of it. */
void board_words_add(struct board_words *words, const char *bytes, size_t length);
void board_words_text(struct board_words *words, const char *text);
void board_words_copy(struct board_words *words, const char *format, ...) PRINTF_LIKE(2, 3);
void board_words_number(struct board_words *words, int64_t number);

/* The key's name: BOARD_PREFIX, then `below` ("" or what ends with a colon), then its days. */
void board_words_key(struct board_words *words, const char *below, const struct board_key *key);

/* For each key when it expires, what it is, and what these sales change of it. */
void board_words_changes(struct board_words *words, const struct zone *zone,
                         const struct board_key *keys, size_t key_count,
                         const struct feed_entry *entries, size_t count);

/* When the counters of a day are no longer asked for by anyone. */
int64_t board_expires_at_ms(const struct zone *zone, int64_t last_day);

/* --- calls --- */

/* Calls, frees the words, and reads the answer's first one. OK: `reply` is the caller's. NOT_FOUND:
 * there is no board. CONFLICT: it stands elsewhere, or what was being built is gone. BUSY: another
 * one is at it. FAILED: more was sold than the board can count. UNKNOWN: it may have been done. */
enum status board_redis_call(struct board_redis *redis, struct board_words *words,
                             redisReply **reply, struct error *error) MUST_CHECK;

/* The same for a question, which may be asked twice. */
enum status board_redis_ask(struct board_redis *redis, struct board_words *words,
                            redisReply **reply, struct error *error) MUST_CHECK;

/* The same for what has nothing to answer. */
enum status board_redis_do(struct board_redis *redis, struct board_words *words,
                           struct error *error) MUST_CHECK;

/* The whole number at that place of an answer. */
bool board_redis_number(const redisReply *reply, size_t at, int64_t *number);

/* Remembers where the board stands. */
void board_redis_note(struct board_redis *redis, const struct feed_place *place, int64_t floor);

/* 32 hex digits and a NUL. */
void board_token(char token[BOARD_TOKEN_SIZE]);

/* Slots of struct board_ops, in redis_cache.c. */
enum status board_redis_recall(struct board *board, int64_t keep_ms, struct buffer *text,
                               int64_t *age_ms, struct error *error);
enum status board_redis_refresh(struct board *board, char token[BOARD_TOKEN_SIZE],
                                struct error *error);
enum status board_redis_keep(struct board *board, const char *token, struct span text,
                             int64_t keep_ms, struct error *error);

/* A slot of struct board_ops, in redis_build.c. */
enum status board_redis_build(struct board *board, struct ledger *ledger, int64_t first_day,
                              int64_t last_day, struct error *error);

#endif
