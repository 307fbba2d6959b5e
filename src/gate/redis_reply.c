/* redis_reply.c: looks into replies, type first. */
#include "gate/redis_reply.h"

#include <string.h>

bool redis_reply_is_array(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_ARRAY;
}

bool redis_reply_is_nil(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_NIL;
}

const char *redis_reply_error(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_ERROR ? reply->str : NULL;
}

size_t redis_reply_count(const redisReply *reply)
{
    return redis_reply_is_array(reply) ? reply->elements : 0;
}

const redisReply *redis_reply_at(const redisReply *reply, size_t at)
{
    return at < redis_reply_count(reply) ? reply->element[at] : NULL;
}

bool redis_reply_text(const redisReply *reply, struct span *text)
{
    if (reply == NULL || (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_STATUS))
        return false;
    *text = (struct span){.bytes = reply->str, .length = reply->len};
    return true;
}

bool redis_reply_copy(const redisReply *reply, char *text, size_t size)
{
    struct span read;

    if (!redis_reply_text(reply, &read) || read.length >= size ||
        memchr(read.bytes, '\0', read.length) != NULL)
        return false;
    memcpy(text, read.bytes, read.length + 1);
    return true;
}

bool redis_reply_number(const redisReply *reply, int64_t minimum, int64_t maximum, int64_t *number)
{
    struct span text;
    int64_t read;

    if (redis_reply_text(reply, &text)) {
        bool is_negative = redis_text_take(&text, '-');
        if (!redis_text_take_numbers(&text, 1, &read) || text.length > 0)
            return false;
        read = is_negative ? -read : read;
    } else if (reply != NULL && reply->type == REDIS_REPLY_INTEGER) {
        read = reply->integer;
    } else {
        return false;
    }
    if (read < minimum || read > maximum)
        return false;
    *number = read;
    return true;
}

bool redis_reply_numbers(const redisReply *reply, size_t count, int64_t *numbers)
{
    for (size_t i = 0; i < count; i++) {
        if (!redis_reply_number(redis_reply_at(reply, i), -REDIS_NUMBER_MAX, REDIS_NUMBER_MAX,
                                &numbers[i]))
            return false;
    }
    return true;
}

/* --- texts --- */

bool redis_text_take(struct span *text, char wanted)
{
    if (text->length == 0 || text->bytes[0] != wanted)
        return false;
    text->bytes++;
    text->length--;
    return true;
}

static bool redis_text_take_digits(struct span *text, int64_t *number)
{
    size_t length = text->length;

    for (*number = 0; text->length > 0 && text->bytes[0] >= '0' && text->bytes[0] <= '9';) {
        *number = *number * 10 + (text->bytes[0] - '0');
        if (*number > REDIS_NUMBER_MAX)
            return false;
        text->bytes++;
        text->length--;
    }
    return text->length < length;
}

bool redis_text_take_numbers(struct span *text, size_t count, int64_t *numbers)
{
    for (size_t i = 0; i < count; i++) {
        if ((i > 0 && !redis_text_take(text, ':')) || !redis_text_take_digits(text, &numbers[i]))
            return false;
    }
    return true;
}

enum status redis_reply_is_strange(const char *function, struct error *error)
{
    return error_set(error, STATUS_FAILED, "%s answers something else", function);
}
