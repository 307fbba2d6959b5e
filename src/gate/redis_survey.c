/* redis_survey.c: asks a Redis for its clock and for how it keeps what it was told. */
#include "gate/redis_survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gate/redis_gate.h"

void redis_info(struct span info, const char *name, char *value, size_t size)
{
    const char *line = memmem(info.bytes, info.length, name, strlen(name));

    if (line == NULL)
        return;
    line += strlen(name);
    snprintf(value, size, "%.*s", (int)strcspn(line, "\r\n"), line);
}

void redis_durability_read(struct redis_durability *durability, redisContext *link,
                           struct span info)
{
    char aof[8] = "0";

    redis_info(info, "aof_enabled:", aof, sizeof(aof));
    *durability = (struct redis_durability){.has_aof = strcmp(aof, "1") == 0};
    redisReply *setting = redisCommand(link, "CONFIG GET appendfsync");
    if (!redis_reply_copy(redis_reply_at(setting, 1), durability->fsync, sizeof(durability->fsync)))
        memcpy(durability->fsync, "?", 2);
    freeReplyObject(setting);
}

enum gate_loss redis_durability_loss(const struct redis_durability *durability)
{
    if (!durability->has_aof)
        return GATE_LOSES_PENDING;
    return strcmp(durability->fsync, "always") == 0 ? GATE_LOSES_AT_FAILOVER : GATE_LOSES_SECONDS;
}

/* Half of the way there and back is taken for the way there. */
static enum status redis_survey_clock(redisContext *link, int64_t *ahead_ms, struct error *error)
{
    int64_t asked_ms = clock_wall_ms();
    redisReply *reply = redisCommand(link, "TIME");
    int64_t answered_ms = clock_wall_ms();

    if (reply == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "%s", link->errstr);
    int64_t seconds = 0;
    int64_t microseconds = 0;
    bool is_time =
        redis_reply_number(redis_reply_at(reply, 0), 0, CLOCK_WALL_MAX_MS / 1000, &seconds) &&
        redis_reply_number(redis_reply_at(reply, 1), 0, 999999, &microseconds);
    freeReplyObject(reply);
    if (is_time)
        *ahead_ms = seconds * 1000 + microseconds / 1000 - (asked_ms + answered_ms) / 2;
    return is_time ? STATUS_OK : error_set(error, STATUS_UNAVAILABLE, "TIME is refused");
}

static enum status redis_survey_ask(redisContext *link, struct redis_durability *durability,
                                    int64_t *ahead_ms, struct error *error)
{
    enum status status = redis_survey_clock(link, ahead_ms, error);

    if (status != STATUS_OK)
        return status;
    redisReply *info = redisCommand(link, "INFO persistence");
    if (info == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "%s", link->errstr);
    struct span text;
    if (!redis_reply_text(info, &text))
        status = error_set(error, STATUS_UNAVAILABLE, "INFO is refused");
    else
        redis_durability_read(durability, link, text);
    freeReplyObject(info);
    return status;
}

enum status gate_redis_survey(struct gate *gate, int64_t policy_id, struct gate_survey *survey,
                              struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    struct redis_durability durability = {.has_aof = false};
    struct redis_address address;
    redisContext *link = NULL;

    if (!redis_map_find(&redis->map, policy_id, &address))
        return error_set(error, STATUS_UNAVAILABLE, "no Redis is known to hold this policy");
    enum status status = redis_pool_take(&redis->pool, &address, &link, error);
    if (status != STATUS_OK)
        return status;
    status = redis_survey_ask(link, &durability, &survey->ahead_ms, error);
    if (status != STATUS_OK) {
        redisFree(link);
        return status;
    }
    redis_pool_give(&redis->pool, &address, link);
    survey->loss = redis->options.ack == GATE_ACK_LEDGER ? GATE_LOSES_NOTHING
                                                         : redis_durability_loss(&durability);
    return STATUS_OK;
}
