/* redis.c: the gate in Redis: opening with its checks, and the calls that change one policy. */
#include "gate/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "gate/redis_gate.h"
#include "gate/redis_survey.h"

#define TIMEOUT_DEFAULT_MS 1000
#define VERSION_MAJOR_MIN  7
#define ROW_NUMBERS        14

/* --- texts --- */

void redis_write_request_id(const struct request_id *id, char text[33])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < sizeof(id->bytes); i++) {
        text[2 * i] = digits[id->bytes[i] >> 4];
        text[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    text[32] = '\0';
}

bool redis_take_request_id(struct span *text, struct request_id *id)
{
    if (text->length < sizeof(*id))
        return false;
    memcpy(id, text->bytes, sizeof(*id));
    text->bytes += sizeof(*id);
    text->length -= sizeof(*id);
    return true;
}

/* The request id and "nth:lease:requested_at:seq"; then, but for the last one perhaps, the state, a
 * count, and a comma. */
bool redis_read_held(struct span *text, struct redis_held *held)
{
    struct claim *claim = &held->claim;
    int64_t numbers[4];
    int64_t bound_count;

    *held = (struct redis_held){.state = 'P'};
    if (!redis_take_request_id(text, &claim->request_id) ||
        !redis_text_take_numbers(text, 4, numbers) || numbers[0] < 1 ||
        numbers[0] > PER_USER_LIMIT_MAX || numbers[3] < 1)
        return false;
    claim->nth = (int32_t)numbers[0];
    claim->lease_id = numbers[1];
    claim->requested_at_ms = numbers[2];
    claim->seq = numbers[3];
    if (text->length == 0)
        return true;
    held->state = text->bytes[0];
    return memchr("PIR", held->state, 3) != NULL && redis_text_take(text, held->state) &&
           redis_text_take_numbers(text, 1, &bound_count) && redis_text_take(text, ',');
}

struct redis_argument redis_number_text(char text[24], int64_t number)
{
    int length = snprintf(text, 24, "%lld", (long long)number);
    return (struct redis_argument){.bytes = text, .length = (size_t)length};
}

/* --- calls --- */

enum status redis_ask(struct gate_redis *redis, int64_t policy_id, const char *function,
                      const struct redis_argument *arguments, size_t count, redisReply **reply,
                      struct error *error)
{
    enum status status =
        redis_pool_call_surely(&redis->pool, policy_id, function, arguments, count, reply, error);

    return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
}

enum status redis_ask_number(struct gate_redis *redis, int64_t policy_id, const char *function,
                             const struct redis_argument *arguments, size_t count, int64_t *number,
                             struct error *error)
{
    redisReply *reply = NULL;
    enum status status = redis_ask(redis, policy_id, function, arguments, count, &reply, error);

    if (status == STATUS_OK && !redis_reply_number(reply, 0, REDIS_NUMBER_MAX, number))
        status = redis_reply_is_strange(function, error);
    freeReplyObject(reply);
    return status;
}

enum status redis_do(struct gate_redis *redis, int64_t policy_id, const char *function,
                     const struct redis_argument *arguments, size_t count, struct error *error)
{
    redisReply *reply = NULL;
    enum status status = redis_ask(redis, policy_id, function, arguments, count, &reply, error);

    freeReplyObject(reply);
    return status;
}

/* Whoever changed a policy sees the change at once, if Redis is still there to be looked at. */
static enum status redis_changed(struct gate_redis *redis, int64_t policy_id, enum status status)
{
    if (status == STATUS_OK)
        (void)!redis_watch_look(&redis->watch, policy_id, NULL);
    return status;
}

void redis_random_name(char text[33])
{
    struct request_id name;

    random_bytes(&name, sizeof(name));
    redis_write_request_id(&name, text);
}

static struct redis_argument redis_call_name(char text[33])
{
    redis_random_name(text);
    return (struct redis_argument){.bytes = text, .length = 32};
}

static enum status gate_redis_policy_set(struct gate *gate, const struct policy *policy,
                                         struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    const int64_t numbers[ROW_NUMBERS] = {
        policy->version,       policy->per_user_limit, policy->opens_at_ms,
        policy->closes_at_ms,  policy->paused,         policy->closed_at_ms,
        policy->unleased,      policy->total,          policy->coupon_valid_days,
        policy->next_seq,      policy->reserve,        policy->created_at_ms,
        policy->discount_type, policy->discount_value};
    char texts[ROW_NUMBERS][24];
    struct redis_argument arguments[ROW_NUMBERS + 1];

    for (size_t i = 0; i < ROW_NUMBERS; i++)
        arguments[i] = redis_number_text(texts[i], numbers[i]);
    arguments[ROW_NUMBERS] =
        (struct redis_argument){.bytes = policy->name, .length = strlen(policy->name)};
    return redis_changed(
        redis, policy->id,
        redis_do(redis, policy->id, "dibs_set_policy", arguments, ROW_NUMBERS + 1, error));
}

static enum status gate_redis_announce(struct gate *gate, int64_t policy_id, int64_t count,
                                       int64_t *wait_ms, struct error *error)
{
    char text[24];
    const struct redis_argument argument = redis_number_text(text, count);

    *wait_ms = 0;
    return redis_ask_number(gate_redis_of(gate), policy_id, "dibs_announce", &argument, 1, wait_ms,
                            error);
}

static enum status gate_redis_lend(struct gate *gate, const struct lease *lease,
                                   int64_t given_count, int64_t term, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    char texts[4][24];
    char name[33];
    redisReply *reply = NULL;
    const struct redis_argument arguments[] = {
        redis_number_text(texts[0], lease->id), redis_number_text(texts[1], lease->first_seq),
        redis_number_text(texts[2], lease->count), redis_call_name(name),
        redis_number_text(texts[3], term)};

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
    char count_text[24];
    redisReply *reply = NULL;

    *shrunk_count = 0;
    struct redis_argument wanted = redis_number_text(count_text, count);
    if (count == GATE_RECALL_ALL)
        wanted = (struct redis_argument){.bytes = "all", .length = 3};
    const struct redis_argument arguments[] = {wanted, redis_call_name(name)};
    enum status status =
        redis_pool_call_surely(&redis->pool, policy_id, "dibs_recall", arguments, 2, &reply, error);
    if (status == STATUS_OK && !redis_read_shrunk(reply, shrunk, shrunk_count))
        status = redis_reply_is_strange("dibs_recall", error);
    freeReplyObject(reply);
    return redis_changed(redis, policy_id, status);
}

static enum status gate_redis_settle(struct gate *gate, int64_t policy_id,
                                     const struct user_id *user, int64_t seq,
                                     enum coupon_state state, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    char seq_text[24];
    const struct redis_argument arguments[] = {
        {.bytes = user->bytes, .length = user->length},
        redis_number_text(seq_text, seq),
        {.bytes = state == COUPON_REDEEMED ? "R" : "C", .length = 1}};

    return redis_changed(redis, policy_id,
                         redis_do(redis, policy_id, "dibs_settle", arguments, 3, error));
}

static enum status gate_redis_block(struct gate *gate, const struct user_id *user, bool blocked,
                                    struct error *error)
{
    return blocklist_set(&gate_redis_of(gate)->blocklist, user, blocked)
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "no memory for the blocked users");
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

static enum status gate_redis_find(struct gate *gate, int64_t policy_id, const struct user_id *user,
                                   struct gate_claim *claims, size_t claims_max, size_t *count,
                                   struct error *error)
{
    const struct redis_argument argument = {.bytes = user->bytes, .length = user->length};
    redisReply *reply = NULL;
    enum status status =
        redis_ask(gate_redis_of(gate), policy_id, "dibs_find", &argument, 1, &reply, error);

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

static enum status gate_redis_count(struct gate *gate, int64_t policy_id, int64_t now_ms,
                                    struct gate_numbers *numbers)
{
    (void)now_ms; /* The window is judged by Redis's clock. */
    return redis_watch_count(&gate_redis_of(gate)->watch, policy_id, numbers);
}

static enum status gate_redis_look(struct gate *gate, int64_t policy_id, struct error *error)
{
    struct redis_watch *watch = &gate_redis_of(gate)->watch;
    struct error words;

    /* One that hangs is not waited for by everyone who asks. */
    if (!redis_watch_is_well(watch, &words))
        return error_set(error, STATUS_UNAVAILABLE, "%s", words.text);
    return redis_watch_look(watch, policy_id, error);
}

static size_t gate_redis_list(struct gate *gate, int64_t after_id, int64_t *ids, size_t ids_max)
{
    return redis_watch_list(&gate_redis_of(gate)->watch, after_id, ids, ids_max);
}

static size_t gate_redis_place(struct gate *gate, int64_t policy_id)
{
    return redis_map_place(&gate_redis_of(gate)->map, policy_id) % GATE_PLACES_MAX;
}

/* What was told was told by Redis; nothing is decided again. */
static bool gate_redis_stands(struct gate *gate, const struct wish *wish)
{
    (void)gate;
    (void)wish;
    return true;
}

static bool gate_redis_is_ready(struct gate *gate, struct error *words)
{
    return redis_watch_is_well(&gate_redis_of(gate)->watch, words);
}

/* --- opening --- */

static const char *redis_guarantee(const struct redis_durability *durability,
                                   const struct gate_options *options)
{
    enum gate_loss loss = redis_durability_loss(durability);
    static const char *const words[] = {
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
    return words[loss];
}

/* Refuses a Redis that would break the guarantees, and says which ones hold with this one. */
static enum status redis_check_server(const struct gate_redis *redis,
                                      const struct redis_address *address, redisContext *link,
                                      struct error *error)
{
    char version[32] = "0";
    char policy[32] = "?";
    struct redis_durability durability;
    redisReply *info = redisCommand(link, "INFO everything");

    if (info == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "INFO: %s", link->errstr);
    struct span text;
    if (!redis_reply_text(info, &text)) {
        const char *words = redis_reply_error(info);
        enum redis_trouble trouble = redis_trouble_of(info);
        enum status status =
            error_set(error, trouble == REDIS_TROUBLE_LATER ? STATUS_UNAVAILABLE : STATUS_FAILED,
                      "INFO is refused: %.200s", words == NULL ? "no text" : words);
        freeReplyObject(info);
        return status;
    }
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
              LOG_FIELD("server", LOG_TEXT(redis_address_words(address).text)),
              LOG_FIELD("redis", LOG_TEXT(version)),
              LOG_FIELD("appendfsync", LOG_TEXT(durability.has_aof ? durability.fsync : "off")),
              LOG_FIELD("guarantee", LOG_TEXT(redis_guarantee(&durability, &redis->options))));
    return STATUS_OK;
}

static enum status redis_check_servers(struct gate_redis *redis, struct error *error)
{
    struct redis_address *addresses = calloc(REDIS_NODES_MAX, sizeof(*addresses));
    enum status status = addresses == NULL
                             ? error_set(error, STATUS_UNAVAILABLE, "no memory for the gate")
                             : redis_map_refresh(&redis->map, error);
    size_t count =
        status == STATUS_OK ? redis_map_list(&redis->map, addresses, REDIS_NODES_MAX) : 0;

    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        redisContext *link = NULL;
        status = redis_link_open(&link, &redis->target, &addresses[i], error);
        if (status != STATUS_OK)
            break;
        status = redis_check_server(redis, &addresses[i], link, error);
        if (status != STATUS_OK)
            error_prefix(error, "Redis at %s", redis_address_words(&addresses[i]).text);
        redisFree(link);
        /* One that is good enough gets the functions. */
        if (status == STATUS_OK)
            status = redis_pool_take(&redis->pool, &addresses[i], &link, error);
        if (status == STATUS_OK)
            redis_pool_give(&redis->pool, &addresses[i], link);
    }
    free(addresses);
    return status;
}

static void gate_redis_free(struct gate_redis *redis)
{
    redis_renewal_release(&redis->renewal);
    redis_pool_release(&redis->pool);
    redis_map_release(&redis->map);
    blocklist_release(&redis->blocklist);
    while (redis->restores != NULL) {
        struct redis_restore *next = redis->restores->next;
        free(redis->restores);
        redis->restores = next;
    }
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
    .decides_at_once = false,
    .is_shared = true,
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
    .block = gate_redis_block,
    .find = gate_redis_find,
    .count = gate_redis_count,
    .look = gate_redis_look,
    .list = gate_redis_list,
    .stands = gate_redis_stands,
    .place = gate_redis_place,
    .announce = gate_redis_announce,
    .pending = gate_redis_pending,
    .acknowledge_keys = gate_redis_acknowledge_keys,
    .can_move = gate_redis_can_move,
    .take_over = gate_redis_take_over,
    .reset = gate_redis_reset,
    .moment = gate_redis_moment,
    .arm = gate_redis_arm,
    .renewal_begin = gate_redis_renewal_begin,
    .renew = gate_redis_renew,
    .enter = gate_redis_enter,
    .leases = gate_redis_leases,
    .retire = gate_redis_retire,
    .publish = gate_redis_publish,
    .published = gate_redis_published,
    .inspect = gate_redis_inspect,
    .strays = gate_redis_strays,
    .mend = gate_redis_mend,
    .lay_down = gate_redis_lay_down,
    .enumerate = gate_redis_enumerate,
    .suspend = gate_redis_suspend,
    .forget = gate_redis_forget,
    .is_ready = gate_redis_is_ready,
    .survey = gate_redis_survey,
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
    status = redis_renewal_init(&redis->renewal, &redis->target, &redis->map, error);
    if (status == STATUS_OK)
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
