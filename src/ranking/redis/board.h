/* board.h: the parts of the board in Redis; for its own files only.
 *
 * Threads: arguments and keys belong to one thread; the rest has its own rule.
 */
#pragma once

#include <pthread.h>

#include "gate/redis/pool.h"
#include "ranking/redis/redis.h"

#define BOARD_WINDOW_DAYS_MAX 3
#define BOARD_BATCH_MAX       100 /* sales in one call: Redis does nothing else meanwhile */
#define BOARD_BATCH_DAYS_MAX  8   /* on so many days */
#define BOARD_KEYS_MAX        128
#define BOARD_ARGS_MAX        4096
#define BOARD_TEXTS_SIZE      32768
#define BOARD_LINE_WORDS      4 /* rank, product, sold, sold on the last day */

#define BOARD_PREFIX          "zs:product:{rank}:"
#define BOARD_META            BOARD_PREFIX "meta" /* the place, the floor, the sizes */

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

/* How many of these sales, from the first on, fit into one call. */
size_t board_batch(const struct feed_entry *entries, size_t count);

/* The highest floor of a board that still keeps it. */
int64_t board_key_floor_max(const struct board_key *key);

/* --- arguments --- */

/* The arguments of one call, and room for the texts among them. */
struct board_args {
    struct redis_argument items[BOARD_ARGS_MAX];
    size_t count;
    char texts[BOARD_TEXTS_SIZE];
    size_t text_length;
};

/* Begins a call of a function with so many keys; "FCALL_RO" for one that only reads. */
void board_args_init(struct board_args *args, const char *command, const char *function,
                     size_t key_count);

/* Adds arguments, whose bytes live until the call is over. */
#define board_args_add(args, ...)                                            \
    board_args_append(args, (const struct redis_argument[]){__VA_ARGS__},    \
                      sizeof((const struct redis_argument[]){__VA_ARGS__}) / \
                          sizeof(struct redis_argument))
void board_args_append(struct board_args *args, const struct redis_argument *items, size_t count);

/* The key's name: BOARD_PREFIX, then `below` ("" or what ends with a colon), then its days. */
void board_args_key(struct board_args *args, const char *below, const struct board_key *key);

/* For each key when it expires, what it is, and what these sales change of it. */
void board_args_changes(struct board_args *args, const struct zone *zone,
                        const struct board_key *keys, size_t key_count,
                        const struct feed_entry *entries, size_t count);

/* --- calls --- */

/* Calls a function that changes something and has nothing to answer. NOT_FOUND: there is no board.
 * CONFLICT: it stands elsewhere, or what was being built is gone. BUSY: another one is at it.
 * FAILED: more was sold than the board can count. UNKNOWN: it may have been done. */
enum status board_redis_do(struct board_redis *redis, struct board_args *args,
                           struct error *error) MUST_CHECK;

/* Remembers where the board stands. */
void board_redis_note(struct board_redis *redis, const struct feed_place *place, int64_t floor);

/* 32 hex digits and a NUL. */
void board_token(char token[BOARD_TOKEN_SIZE]);

/* A slot of struct board_ops, in build.c. */
enum status board_redis_build(struct board *board, struct ledger *ledger, int64_t first_day,
                              int64_t last_day, struct error *error);
