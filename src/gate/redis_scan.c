/* redis_scan.c: asks for page after page on one connection. */
#include "gate/redis_scan.h"

#include <string.h>

#define SCAN_COUNT 1000

/* One page from that cursor on. */
static redisReply *redis_scan_ask(redisContext *link, const struct redis_keys *keys,
                                  enum redis_scanned what, const char *cursor)
{
    switch (what) {
    case SCAN_POLICIES:
        return redisCommand(link, "SCAN %s MATCH " REDIS_KEY_HEAD "*}:META COUNT %d", cursor,
                            SCAN_COUNT);
    case SCAN_USERS:
        return redisCommand(link, "HSCAN %s %s COUNT %d", keys->names[2], cursor, SCAN_COUNT);
    case SCAN_KEYS:
        return redisCommand(link, "HSCAN %s %s COUNT %d", keys->names[5], cursor, SCAN_COUNT);
    default:
        /* Which of them are pending is another key's matter, and both are read in one step. */
        return redisCommand(link, "FCALL_RO dibs_visit 7 %s %s %s %s %s %s %s %s %d",
                            keys->names[0], keys->names[1], keys->names[2], keys->names[3],
                            keys->names[4], keys->names[5], keys->names[6], cursor, SCAN_COUNT);
    }
}

/* What the library calls unreadable, and what is there and cannot be taken, stays so: FAILED. */
static enum status redis_scan_refused(const struct redis_address *address,
                                      const struct redis_keys *keys, enum redis_scanned what,
                                      const redisReply *reply, struct error *error)
{
    const char *key = what == SCAN_POLICIES ? "its keys"
                      : what == SCAN_KEYS   ? keys->names[5]
                                            : keys->names[2];
    const char *words = redis_reply_error(reply);
    bool is_wrong =
        words == NULL || strncmp(words, "DIBSBAD", 7) == 0 || strncmp(words, "WRONGTYPE", 9) == 0;

    return error_set(error, is_wrong ? STATUS_FAILED : STATUS_UNAVAILABLE,
                     "Redis at %s: %s: %.300s", redis_address_words(address).text, key,
                     words != NULL ? words : "an entry is not readable");
}

/* Reads a page; `cursor` becomes the next one's. */
static bool redis_scan_read(const redisReply *reply, size_t step,
                            bool (*take)(void *context, struct span name, struct span value),
                            void *context, char *cursor, size_t cursor_size)
{
    const redisReply *page = redis_reply_at(reply, 1);
    struct span name;
    struct span value;
    size_t count = redis_reply_count(page);

    if (!redis_reply_is_array(page) || count % step != 0)
        return false;
    for (size_t i = 0; i < count; i += step) {
        if (!redis_reply_text(redis_reply_at(page, i), &name) ||
            !redis_reply_text(redis_reply_at(page, i + step - 1), &value) ||
            !take(context, name, value))
            return false;
    }
    return redis_reply_copy(redis_reply_at(reply, 0), cursor, cursor_size);
}

enum status redis_scan(struct redis_pool *pool, const struct redis_address *address,
                       const struct redis_keys *keys, enum redis_scanned what,
                       bool (*take)(void *context, struct span name, struct span value),
                       void *context, struct error *error)
{
    redisContext *link = NULL;
    char cursor[32] = "0";
    enum status status = redis_pool_take(pool, address, &link, error);

    if (status != STATUS_OK)
        return status;
    do {
        redisReply *reply = redis_scan_ask(link, keys, what, cursor);
        if (reply == NULL)
            status = error_set(error, STATUS_UNAVAILABLE, "Redis at %s: no answer",
                               redis_address_words(address).text);
        else if (!redis_scan_read(reply, what == SCAN_POLICIES ? 1 : 2, take, context, cursor,
                                  sizeof(cursor)))
            status = redis_scan_refused(address, keys, what, reply, error);
        freeReplyObject(reply);
    } while (status == STATUS_OK && strcmp(cursor, "0") != 0);
    if (status == STATUS_OK)
        redis_pool_give(pool, address, link);
    else
        redisFree(link);
    return status;
}
