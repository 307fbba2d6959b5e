/* redis.c: the gate in Redis: opening with its checks, and the calls that change one policy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gate/redis/gate.h"

#define TIMEOUT_DEFAULT_MS 1000
#define VERSION_MAJOR_MIN  7
#define RENAME_KEYS_MAX    500

/* The numbers of a policy that was just changed are read at once, if Redis still answers. */
static enum status redis_changed(struct gate_redis *redis, int64_t policy_id, enum status status)
{
    if (status == STATUS_OK)
        (void)!redis_watch_refresh(&redis->watch, policy_id, NULL);
    return status;
}

static enum status redis_change(struct gate_redis *redis, int64_t policy_id, const char *function,
                                const struct redis_argument *arguments, size_t count,
                                struct error *error)
{
    return redis_changed(
        redis, policy_id,
        redis_do(&redis->pool, policy_id, function, arguments, count, NULL, error));
}

/* A name that makes a call count once. */
static struct redis_argument redis_call_name(char text[33])
{
    redis_random_name(text);
    return redis_text(text);
}

static enum status gate_redis_policy_set(struct gate *gate, const struct policy *policy,
                                         struct error *error)
{
    struct redis_argument arguments[REDIS_ROW_NUMBERS + 1];

    for (size_t i = 0; i < REDIS_ROW_NUMBERS; i++)
        arguments[i] = redis_number(policy_number(policy, REDIS_ROW_FIRST + i));
    arguments[REDIS_ROW_NUMBERS] = redis_text(policy->name);
    return redis_change(gate_redis_of(gate), policy->id, "dibs_set_policy", arguments,
                        REDIS_ROW_NUMBERS + 1, error);
}

enum status gate_announce(struct shared_gate *gate, int64_t policy_id, int64_t count,
                          int64_t *wait_ms, struct error *error)
{
    const struct redis_argument arguments[] = {redis_number(count < 0 ? 0 : count),
                                               redis_number(count == GATE_LEASES_AGREE)};

    *wait_ms = 0;
    return redis_do(&gate_redis_shared(gate)->pool, policy_id, "dibs_announce", arguments, 2,
                    wait_ms, error);
}

static enum status gate_redis_lend(struct gate *gate, const struct lease *lease,
                                   int64_t given_count, int64_t term, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    char name[33];
    redisReply *reply = NULL;
    const struct redis_argument arguments[] = {
        redis_number(lease->id), redis_number(lease->first_seq), redis_number(lease->count),
        redis_call_name(name), redis_number(term)};

    ensure(given_count == 0);
    enum status status = redis_pool_call_surely(&redis->pool, lease->policy_id, "dibs_lend",
                                                arguments, 5, &reply, error);
    freeReplyObject(reply);
    return redis_changed(redis, lease->policy_id, status);
}

/* "id:count id:count" */
static bool redis_read_shrunk(const redisReply *reply, struct lease_shrunk *shrunk, size_t *count)
{
    struct span text;
    int64_t numbers[2];

    if (!redis_reply_text(reply, &text))
        return false;
    for (*count = 0; text.length > 0; ++*count) {
        if (*count == GATE_RECALL_LEASES_MAX || (*count > 0 && !redis_text_take(&text, ' ')) ||
            !redis_text_take_numbers(&text, 2, numbers))
            return false;
        shrunk[*count] = (struct lease_shrunk){.lease_id = numbers[0], .count = numbers[1]};
    }
    return true;
}

static enum status gate_redis_recall(struct gate *gate, int64_t policy_id, int64_t count,
                                     struct lease_shrunk *shrunk, size_t *shrunk_count,
                                     struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    char name[33];
    redisReply *reply = NULL;

    *shrunk_count = 0;
    const struct redis_argument arguments[] = {
        count == GATE_RECALL_ALL ? redis_text("all") : redis_number(count), redis_call_name(name)};
    enum status status =
        redis_pool_call_surely(&redis->pool, policy_id, "dibs_recall", arguments, 2, &reply, error);
    if (status == STATUS_OK && !redis_read_shrunk(reply, shrunk, shrunk_count))
        status = redis_reply_is_strange("dibs_recall", error);
    freeReplyObject(reply);
    return redis_changed(redis, policy_id, status);
}

static enum status gate_redis_settle(struct gate *gate, int64_t policy_id, const struct id *user,
                                     int64_t seq, enum coupon_state state, struct error *error)
{
    const struct redis_argument arguments[] = {redis_user(user), redis_number(seq),
                                               redis_text(state == COUPON_REDEEMED ? "R" : "C")};

    return redis_change(gate_redis_of(gate), policy_id, "dibs_settle", arguments, 3, error);
}

static enum status gate_redis_rename(struct gate *gate, const struct gate_renaming *renaming,
                                     struct error *error)
{
    size_t most = 2 + renaming->claim_count + renaming->binding_count;
    struct redis_argument *arguments = calloc(most, sizeof(*arguments));
    struct gate_redis *redis = gate_redis_of(gate);
    size_t count = 2;
    enum status status = STATUS_OK;

    if (arguments == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the keys of a user");
    arguments[0] = redis_user(renaming->from);
    arguments[1] = redis_user(renaming->to);
    for (size_t i = 0; i < renaming->claim_count; i++)
        if (request_id_is_keyed(&renaming->claims[i].request_id))
            arguments[count++] = redis_id(&renaming->claims[i].request_id);
    for (size_t i = 0; i < renaming->binding_count; i++)
        arguments[count++] = redis_id(&renaming->bindings[i].request_id);
    /* The keys in as many calls as they need, each of which leaves nothing half done. */
    for (size_t done = 2; status == STATUS_OK && done <= count; done += RENAME_KEYS_MAX) {
        struct redis_argument page[2 + RENAME_KEYS_MAX] = {arguments[0], arguments[1]};
        size_t left = count - done < RENAME_KEYS_MAX ? count - done : RENAME_KEYS_MAX;
        memcpy(page + 2, arguments + done, left * sizeof(*page));
        status = redis_change(redis, renaming->policy_id, "dibs_rename", page, 2 + left, error);
    }
    free(arguments);
    return status;
}

static enum status gate_redis_block(struct gate *gate, const struct id *user, bool blocked,
                                    struct error *error)
{
    return blocklist_set(&gate_redis_of(gate)->blocklist, user, blocked, error);
}

/* "seq:nth:state:ahead:requested_at" */
static bool redis_read_found(const redisReply *reply, struct gate_claim *claim)
{
    struct span text;
    int64_t place[2];
    int64_t times[2];

    if (!redis_reply_text(reply, &text) || !redis_text_take_numbers(&text, 2, place) ||
        place[1] > PER_USER_LIMIT_MAX || !redis_text_take(&text, ':') || text.length == 0)
        return false;
    char state = text.bytes[0];
    if (memchr("PIR", state, 3) == NULL || !redis_text_take(&text, state) ||
        !redis_text_take(&text, ':') || !redis_text_take_numbers(&text, 2, times) ||
        text.length > 0)
        return false;
    *claim = (struct gate_claim){.seq = place[0],
                                 .nth = (int32_t)place[1],
                                 .pending = state == 'P',
                                 .coupon_state = redis_state_of(state),
                                 .ahead = times[0],
                                 .requested_at_ms = times[1]};
    return true;
}

static enum status gate_redis_find(struct gate *gate, int64_t policy_id, const struct id *user,
                                   struct gate_claim *claims, size_t claims_max, size_t *count,
                                   struct error *error)
{
    const struct redis_argument argument = redis_user(user);
    redisReply *reply = NULL;
    enum status status =
        redis_ask(&gate_redis_of(gate)->pool, policy_id, "dibs_find", &argument, 1, &reply, error);

    *count = 0;
    if (status == STATUS_OK && !redis_reply_is_array(reply))
        status = redis_reply_is_strange("dibs_find", error);
    /* Redis tells the latest last. */
    for (size_t i = redis_reply_count(reply); i > 0 && status == STATUS_OK; i--) {
        if (*count < claims_max && !redis_read_found(redis_reply_at(reply, i - 1), &claims[*count]))
            status = redis_reply_is_strange("dibs_find", error);
        ++*count;
    }
    freeReplyObject(reply);
    return status;
}

static size_t gate_redis_list(struct gate *gate, int64_t after_id, int64_t *ids, size_t ids_max)
{
    return redis_watch_list(&gate_redis_of(gate)->watch, after_id, ids, ids_max);
}

size_t gate_place(struct shared_gate *gate, int64_t policy_id)
{
    return redis_map_place(&gate_redis_shared(gate)->map, policy_id) % GATE_PLACES_MAX;
}

enum status gate_retire(struct shared_gate *gate, int64_t policy_id, int64_t seconds,
                        struct error *error)
{
    int64_t is_done;
    const struct redis_argument argument = redis_number(seconds);
    enum status status = redis_do(&gate_redis_shared(gate)->pool, policy_id, "dibs_retire",
                                  &argument, 1, &is_done, error);

    if (status == STATUS_OK && is_done == 0)
        status = error_set(error, STATUS_BUSY, "policy %lld is not closed and drained",
                           (long long)policy_id);
    return status;
}

enum status gate_disarm(struct shared_gate *gate, int64_t policy_id, struct error *error)
{
    return redis_change(gate_redis_shared(gate), policy_id, "dibs_disarm", NULL, 0, error);
}

enum status gate_suspend(struct shared_gate *gate, int64_t policy_id, struct error *error)
{
    return redis_change(gate_redis_shared(gate), policy_id, "dibs_suspend", NULL, 0, error);
}

enum status gate_forget(struct shared_gate *gate, int64_t policy_id, struct error *error)
{
    struct gate_redis *redis = gate_redis_shared(gate);
    enum status status = redis_do(&redis->pool, policy_id, "dibs_forget", NULL, 0, NULL, error);

    if (status == STATUS_OK)
        redis_watch_drop(&redis->watch, policy_id);
    return status;
}

/* --- how a server keeps what it was told, and what time it is there --- */

struct redis_durability {
    bool has_aof;
    char fsync[16]; /* "always", "everysec", "no"; "?": it does not tell */
};

/* The value behind "name:" in what INFO says, up to the end of the line; left as it is when that is
 * not there. */
static void redis_info(struct span info, const char *name, char *value, size_t size)
{
    const char *line = memmem(info.bytes, info.length, name, strlen(name));

    if (line == NULL)
        return;
    line += strlen(name);
    snprintf(value, size, "%.*s", (int)strcspn(line, "\r\n"), line);
}

/* `info` is what INFO says on that link. */
static void redis_durability_read(struct redis_durability *durability, redisContext *link,
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

/* What may be lost of what was told before the ledger had it. */
static enum gate_loss redis_durability_loss(const struct redis_durability *durability)
{
    if (!durability->has_aof)
        return GATE_LOSES_PENDING;
    return strcmp(durability->fsync, "always") == 0 ? GATE_LOSES_AT_FAILOVER : GATE_LOSES_SECONDS;
}

/* What INFO says on that link; OK: the reply is the caller's. */
static enum status redis_ask_info(redisContext *link, const char *section, redisReply **reply,
                                  struct span *info, struct error *error)
{
    *reply = redisCommand(link, "INFO %s", section);
    if (*reply == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "INFO: %s", link->errstr);
    if (redis_reply_text(*reply, info))
        return STATUS_OK;
    const char *message = redis_reply_error(*reply);
    bool passes = redis_trouble_of(*reply) == REDIS_TROUBLE_LATER;
    error_set(error, STATUS_FAILED, "INFO is refused: %.200s",
              message == NULL ? "no text" : message);
    freeReplyObject(*reply);
    *reply = NULL;
    return passes ? STATUS_UNAVAILABLE : STATUS_FAILED;
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

enum status gate_survey(struct shared_gate *gate, int64_t policy_id, struct gate_survey *survey,
                        struct error *error)
{
    struct gate_redis *redis = gate_redis_shared(gate);
    struct redis_durability durability;
    struct redis_address address;
    redisContext *link = NULL;
    redisReply *info;
    struct span text;

    if (!redis_map_find(&redis->map, policy_id, &address))
        return error_set(error, STATUS_UNAVAILABLE, "no Redis is known to hold this policy");
    enum status status = redis_pool_take(&redis->pool, &address, &link, error);
    if (status != STATUS_OK)
        return status;
    status = redis_survey_clock(link, &survey->ahead_ms, error);
    if (status == STATUS_OK)
        status = redis_ask_info(link, "persistence", &info, &text, error);
    if (status != STATUS_OK) {
        redisFree(link);
        return STATUS_UNAVAILABLE;
    }
    redis_durability_read(&durability, link, text);
    freeReplyObject(info);
    redis_pool_give(&redis->pool, &address, link);
    survey->loss = redis->options.ack == GATE_ACK_LEDGER ? GATE_LOSES_ACCEPTED
                                                         : redis_durability_loss(&durability);
    return STATUS_OK;
}

/* --- opening --- */

static const char *redis_guarantee(const struct redis_durability *durability,
                                   const struct gate_options *options)
{
    enum gate_loss loss = redis_durability_loss(durability);
    static const char *const texts[] = {
        [GATE_LOSES_NOTHING] = "a crash of Redis loses nothing",
        [GATE_LOSES_AT_FAILOVER] =
            "a crash of Redis loses nothing; a failover may lose the last 202s",
        [GATE_LOSES_SECONDS] =
            "a crash of Redis may lose up to 2 s of 202s; set appendfsync always",
        [GATE_LOSES_PENDING] =
            "no AOF: a crash of Redis loses every 202 that is still pending; set appendonly yes",
    };

    if (options->ack == GATE_ACK_LEDGER)
        return "nothing that was answered 201 is lost";
    if (loss == GATE_LOSES_AT_FAILOVER && options->replicas > 0)
        return "a crash of Redis loses nothing; nor does a failover to a replica that was waited "
               "for";
    return texts[loss];
}

/* Refuses a Redis that would break the guarantees, and says which ones hold with this one. */
static enum status redis_check_server(const struct gate_redis *redis,
                                      const struct redis_address *address, redisContext *link,
                                      struct error *error)
{
    char version[32] = "0";
    char policy[32] = "?";
    struct redis_durability durability;
    redisReply *info;
    struct span text;
    enum status status = redis_ask_info(link, "everything", &info, &text, error);

    if (status != STATUS_OK)
        return status;
    redis_info(text, "redis_version:", version, sizeof(version));
    redis_info(text, "maxmemory_policy:", policy, sizeof(policy));
    redis_durability_read(&durability, link, text);
    freeReplyObject(info);
    if (strtol(version, NULL, 10) < VERSION_MAJOR_MIN)
        return error_set(error, STATUS_FAILED, "is version %s; dibs needs 7.0 or newer", version);
    if (strcmp(policy, "noeviction") != 0)
        return error_set(error, STATUS_FAILED,
                         "evicts keys when it is full (maxmemory-policy is %s), and would sell "
                         "coupons twice; set maxmemory-policy noeviction",
                         policy);
    log_event(LOG_INFO, "gate_opened",
              LOG_FIELD("server", LOG_TEXT(redis_address_text(address).text)),
              LOG_FIELD("redis", LOG_TEXT(version)),
              LOG_FIELD("appendfsync", LOG_TEXT(durability.has_aof ? durability.fsync : "off")),
              LOG_FIELD("guarantee", LOG_TEXT(redis_guarantee(&durability, &redis->options))));
    return STATUS_OK;
}

static enum status redis_check_servers(struct gate_redis *redis, struct error *error)
{
    struct redis_address addresses[REDIS_NODES_MAX];
    enum status status = redis_map_refresh(&redis->map, error);
    size_t count =
        status == STATUS_OK ? redis_map_list(&redis->map, addresses, REDIS_NODES_MAX) : 0;

    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        redisContext *link = NULL;
        status = redis_link_open(&link, &redis->target, &addresses[i], error);
        if (status != STATUS_OK)
            break;
        status = redis_check_server(redis, &addresses[i], link, error);
        if (status != STATUS_OK)
            error_prefix(error, "Redis at %s", redis_address_text(&addresses[i]).text);
        redisFree(link);
        /* One that is good enough gets the functions. */
        if (status == STATUS_OK)
            status = redis_pool_take(&redis->pool, &addresses[i], &link, error);
        if (status == STATUS_OK)
            redis_pool_give(&redis->pool, &addresses[i], link);
    }
    return status;
}

static void gate_redis_free(struct gate_redis *redis)
{
    redis_pool_release(&redis->renewal.pool);
    redis_pool_release(&redis->pool);
    redis_map_release(&redis->map);
    blocklist_release(&redis->blocklist);
    redis_restores_release(redis);
    pthread_mutex_destroy(&redis->restore_lock);
    redis_target_release(&redis->target);
    free(redis);
}

static void gate_redis_close(struct gate *gate)
{
    struct gate_redis *redis = gate_redis_of(gate);

    redis_watch_stop(&redis->watch);
    gate_redis_free(redis);
}

const struct gate_ops gate_redis_ops = {
    .name = "redis",
    .close = gate_redis_close,
    .policy_set = gate_redis_policy_set,
    .lend = gate_redis_lend,
    .recall = gate_redis_recall,
    .restore = gate_redis_restore,
    .restore_key = gate_redis_restore_key,
    .line_open = gate_redis_line_open,
    .line_close = gate_redis_line_close,
    .claim = gate_redis_claim,
    .acknowledge = gate_redis_acknowledge,
    .settle = gate_redis_settle,
    .rename = gate_redis_rename,
    .block = gate_redis_block,
    .find = gate_redis_find,
    .count = gate_redis_count,
    .list = gate_redis_list,
    .inspect = gate_redis_inspect,
    .visit = gate_redis_visit,
};

enum status gate_redis_open(struct gate **gate, const struct gate_options *options,
                            struct error *error)
{
    struct gate_redis *redis = calloc(1, sizeof(*redis));

    if (redis == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the gate");
    redis->gate.ops = &gate_redis_ops;
    redis->options = *options;
    if (redis->options.timeout_ms == 0)
        redis->options.timeout_ms = TIMEOUT_DEFAULT_MS;
    enum status status = redis_target_init(&redis->target, options->url, options->password,
                                           redis->options.timeout_ms, error);
    if (status != STATUS_OK) {
        free(redis);
        return status;
    }
    redis->options.url = redis->options.password = NULL;
    redis_map_init(&redis->map, &redis->target);
    redis_pool_init(&redis->pool, &redis->target, &redis->map, &redis_gate_library);
    blocklist_init(&redis->blocklist);
    pthread_mutex_init(&redis->restore_lock, NULL);
    redis_renewal_init(&redis->renewal, &redis->target, &redis->map);
    status = redis_check_servers(redis, error);
    if (status == STATUS_OK)
        status = redis_watch_start(&redis->watch, &redis->pool, options->stock_changed,
                                   options->context, error);
    if (status != STATUS_OK) {
        gate_redis_free(redis);
        return status;
    }
    *gate = &redis->gate;
    return STATUS_OK;
}
