/* redis_words.c: which counters a sale changes, and the words that tell Redis so. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "ranking/redis_board.h"

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
    for (size_t i = 0; i < count; i++) {
        if (keys[i].first_day == key.first_day && keys[i].last_day == key.last_day)
            return count;
    }
    ensure(count < BOARD_KEYS_MAX);
    keys[count] = key;
    return count + 1;
}

/* A day, and every window that it is in. */
static size_t board_keys_add_day(struct board_key *keys, size_t count, int64_t floor, int64_t day)
{
    for (int64_t days = 1; days <= BOARD_WINDOW_DAYS_MAX; days++) {
        for (int64_t last_day = day; last_day < day + days; last_day++)
            count = board_keys_add(keys, count, floor, last_day, days);
    }
    return count;
}

size_t board_keys_of(const struct feed_entry *entries, size_t count, int64_t floor,
                     struct board_key keys[BOARD_KEYS_MAX])
{
    size_t key_count = 0;

    for (size_t i = 0; i < count; i++) {
        if (i == 0 || entries[i].day != entries[i - 1].day)
            key_count = board_keys_add_day(keys, key_count, floor, entries[i].day);
    }
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

/* --- words --- */

struct board_words *board_words_new(const char *command, const char *function, size_t key_count,
                                    struct error *error)
{
    struct board_words *words = malloc(sizeof(*words));

    if (words == NULL) {
        error_set(error, STATUS_UNAVAILABLE, "no memory to call Redis");
        return NULL;
    }
    words->count = 0;
    words->text_length = 0;
    board_words_text(words, command);
    board_words_text(words, function);
    board_words_number(words, (int64_t)key_count);
    return words;
}

void board_words_add(struct board_words *words, const char *bytes, size_t length)
{
    ensure(words->count < BOARD_WORDS_MAX);
    words->words[words->count] = bytes;
    words->lengths[words->count++] = length;
}

void board_words_text(struct board_words *words, const char *text)
{
    board_words_add(words, text, strlen(text));
}

void board_words_copy(struct board_words *words, const char *format, ...)
{
    char *text = words->texts + words->text_length;
    size_t room = BOARD_TEXTS_SIZE - words->text_length;
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(text, room, format, arguments);
    va_end(arguments);
    ensure(length >= 0 && (size_t)length < room);
    words->text_length += (size_t)length + 1;
    board_words_add(words, text, (size_t)length);
}

void board_words_number(struct board_words *words, int64_t number)
{
    board_words_copy(words, "%lld", (long long)number);
}

void board_words_key(struct board_words *words, const char *below, const struct board_key *key)
{
    char first[ZONE_DAY_TEXT_SIZE];
    char last[ZONE_DAY_TEXT_SIZE];

    zone_format_day(key->first_day, first);
    zone_format_day(key->last_day, last);
    if (board_key_is_sum(key))
        board_words_copy(words, BOARD_PREFIX "%ssum:%s_%s", below, first, last);
    else
        board_words_copy(words, BOARD_PREFIX "%s%s", below, last);
}

/* Two changes of one product in a call are added up there. */
static void board_words_change(struct board_words *words, const struct board_key *key,
                               const struct feed_entry *entries, size_t count)
{
    size_t count_at = words->count;
    size_t changes = 0;

    board_words_text(words, "");
    for (size_t i = 0; i < count; i++) {
        const struct feed_entry *entry = &entries[i];
        if (entry->day < key->first_day || entry->day > key->last_day)
            continue;
        board_words_add(words, entry->product_id.bytes, entry->product_id.length);
        board_words_number(words, entry->quantity);
        if (entry->day == key->last_day)
            board_words_add(words, words->words[words->count - 1],
                            words->lengths[words->count - 1]);
        else
            board_words_text(words, "0");
        changes++;
    }
    board_words_number(words, (int64_t)changes);
    words->count--;
    words->words[count_at] = words->words[words->count];
    words->lengths[count_at] = words->lengths[words->count];
}

void board_words_changes(struct board_words *words, const struct zone *zone,
                         const struct board_key *keys, size_t key_count,
                         const struct feed_entry *entries, size_t count)
{
    for (size_t i = 0; i < key_count; i++) {
        board_words_number(words, board_expires_at_ms(zone, keys[i].last_day));
        board_words_text(words, board_key_is_sum(&keys[i]) ? "sum" : "day");
        board_words_change(words, &keys[i], entries, count);
    }
}

void board_token(char token[BOARD_TOKEN_SIZE])
{
    uint8_t bytes[(BOARD_TOKEN_SIZE - 1) / 2];

    random_bytes(bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
}
