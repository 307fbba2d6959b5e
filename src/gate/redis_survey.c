/* redis_survey.c: asks a Redis for its clock and for how it keeps what it was told. */
#include "gate/redis_survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gate/redis_gate.h"

bool redis_info(const char *info, const char *name, char *value, size_t size)
{
    const char *line = strstr(info, name);

    if (line == NULL)
        return false;
    line += strlen(name);
    size_t length = strcspn(line, "\r\n");
    snprintf(value, size, "%.*s", (int)length, line);
    return true;
}

void redis_durability_read(struct redis_durability *durability, redisContext *link,
                           const char *info)
{
    char aof[8] = "0";

    (void)redis_info(info, "aof_enabled:", aof, sizeof(aof));
    *durability = (struct redis_durability){.has_aof = strcmp(aof, "1") == 0, .fsync = "?"};
    redisReply *setting = redisCommand(link, "CONFIG GET appendfsync");
    if (setting != NULL && setting->type == REDIS_REPLY_ARRAY && setting->elements == 2)
        snprintf(durability->fsync, sizeof(durability->fsync), "%s", setting->element[1]->str);
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
    bool is_time = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2;
    if (is_time) {
        int64_t there_ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                           strtoll(reply->element[1]->str, NULL, 10) / 1000;
        *ahead_ms = there_ms - (asked_ms + answered_ms) / 2;
    }
    freeReplyObject(reply);
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
    if (info->type == REDIS_REPLY_ERROR || info->str == NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "INFO is refused");
    else
        redis_durability_read(durability, link, info->str);
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
