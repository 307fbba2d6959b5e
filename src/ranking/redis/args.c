/* args.c: which counters a sale changes, and the arguments that tell Redis so. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/digits.h"
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

size_t board_keys_all(int64_t floor, int64_t last_day, struct board_key keys[BOARD_KEYS_MAX])
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

int64_t board_expires_at_ms(const struct zone *zone, int64_t last_day)
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

void board_args_copy(struct board_args *args, const char *format, ...)
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
