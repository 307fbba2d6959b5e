/* redis_cache.c: the answer that servers share, in Redis, and who works the next one out. */
#include "ranking/redis_board.h"

#define CACHE     "cache:product:{rank}:top_selling"
#define REFRESHER "cache:product:{rank}:refresher"

enum status board_redis_recall(struct board *board, int64_t keep_ms, struct buffer *text,
                               int64_t *age_ms, struct error *error)
{
    struct board_words *words = board_words_new("FCALL_RO", "dibs_rank_recall", 1, error);
    redisReply *reply = NULL;

    if (words == NULL)
        return STATUS_UNAVAILABLE;
    board_words_text(words, CACHE);
    board_words_number(words, keep_ms);
    enum status status = board_redis_ask(board_redis(board), words, &reply, error);
    if (status != STATUS_OK)
        return status;
    struct span cached;
    buffer_clear(text);
    if (!redis_reply_text(redis_reply_at(reply, 1), &cached) ||
        !board_redis_number(reply, 2, age_ms))
        status = error_set(error, STATUS_NOT_FOUND, "the cached answer is not readable");
    else
        buffer_append(text, cached.bytes, cached.length);
    freeReplyObject(reply);
    return status;
}

enum status board_redis_refresh(struct board *board, char token[BOARD_TOKEN_SIZE],
                                struct error *error)
{
    struct board_words *words = board_words_new("FCALL", "dibs_rank_refresh", 1, error);

    if (words == NULL)
        return STATUS_UNAVAILABLE;
    board_token(token);
    board_words_text(words, REFRESHER);
    board_words_text(words, token);
    return board_redis_do(board_redis(board), words, error);
}

enum status board_redis_keep(struct board *board, const char *token, struct span text,
                             int64_t keep_ms, struct error *error)
{
    struct board_words *words = board_words_new("FCALL", "dibs_rank_keep", 2, error);

    if (words == NULL)
        return STATUS_UNAVAILABLE;
    board_words_text(words, REFRESHER);
    board_words_text(words, CACHE);
    board_words_text(words, token);
    board_words_add(words, text.bytes, text.length);
    board_words_number(words, keep_ms);
    return board_redis_do(board_redis(board), words, error);
}
