/* redis_pool.c: takes an idle connection or a new one, calls, and decides what an error asks for.
 */
#include "gate/redis_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "embedded_functions.h"

#define RETRY_PAUSE_MS      20
#define CALL_ARGUMENTS_MAX  12000
#define CALL_ARGUMENTS_FEW  32
#define CALL_ARGUMENTS_HEAD (3 + REDIS_KEYS)

const struct redis_library redis_gate_library = {
    .file = "redis.lua", .version = "dibs_version", .version_number = REDIS_LIBRARY_VERSION};

void redis_pool_init(struct redis_pool *pool, const struct redis_target *target,
                     struct redis_map *map, const struct redis_library *library)
{
    *pool = (struct redis_pool){.target = target, .map = map, .library = library};
    pthread_mutex_init(&pool->lock, NULL);
}

void redis_pool_release(struct redis_pool *pool)
{
    for (size_t i = 0; i < pool->idle_count; i++)
        redisFree(pool->idle[i].link);
    pthread_mutex_destroy(&pool->lock);
}

void redis_keys_of(struct redis_keys *keys, int64_t policy_id)
{
    static const char *const names[REDIS_KEYS] = {"REMAINING", "PENDING", "ISSUED", "LEASE",
                                                  "META",      "KEYS",    "BOUND"};

    for (size_t i = 0; i < REDIS_KEYS; i++)
        snprintf(keys->names[i], sizeof(keys->names[i]), REDIS_KEY_HEAD "%lld}:%s",
                 (long long)policy_id, names[i]);
}

/* --- the library --- */

static const struct embedded_file *redis_pool_file(const struct redis_library *library)
{
    const struct embedded_file *file = embedded_functions;

    while (file->name != NULL && strcmp(file->name, library->file) != 0)
        file++;
    ensure(file->name != NULL);
    return file;
}

/* What passes by itself is UNAVAILABLE; missing rights, or a library that Redis cannot take, are
 * for the operator. */
static enum status redis_pool_refused(const char *doing, const redisReply *reply,
                                      struct error *error)
{
    const char *words = redis_reply_error(reply);
    bool passes =
        redis_trouble_of(reply) == REDIS_TROUBLE_LATER || strncmp(words, "READONLY", 8) == 0;

    return error_set(error, passes ? STATUS_UNAVAILABLE : STATUS_FAILED, "%s: %.300s", doing,
                     words);
}

/* Loads ours unless the same or a newer one is there. Reloading disarms every policy. */
static enum status redis_pool_load(const struct redis_library *library, redisContext *link,
                                   struct error *error)
{
    redisReply *reply = redisCommand(link, "FCALL_RO %s 0", library->version);

    if (reply == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "%s", link->errstr);
    int64_t version;
    if (!redis_reply_number(reply, 0, INT32_MAX, &version))
        version = 0;
    enum redis_trouble trouble = redis_trouble_of(reply);
    if (trouble != REDIS_TROUBLE_NONE && trouble != REDIS_TROUBLE_NO_LIBRARY) {
        enum status status = redis_pool_refused("asking for the function library", reply, error);
        freeReplyObject(reply);
        return status;
    }
    freeReplyObject(reply);
    if (version == library->version_number)
        return STATUS_OK;
    if (version > library->version_number)
        return error_set(error, STATUS_FAILED,
                         "the function library in Redis is of a newer dibs (%lld, this one has "
                         "%d); use that version",
                         (long long)version, library->version_number);
    const struct embedded_file *file = redis_pool_file(library);
    reply = redisCommand(link, "FUNCTION LOAD REPLACE %b", file->bytes, file->length);
    if (reply == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "%s", link->errstr);
    enum status status = STATUS_OK;
    if (redis_trouble_of(reply) != REDIS_TROUBLE_NONE)
        status = redis_pool_refused("loading the function library", reply, error);
    else
        log_event(LOG_INFO, "library_loaded", LOG_FIELD("library", LOG_TEXT(library->file)),
                  LOG_FIELD("version", LOG_I64(library->version_number)));
    freeReplyObject(reply);
    return status;
}

/* --- connections --- */

enum status redis_pool_take(struct redis_pool *pool, const struct redis_address *address,
                            redisContext **link, struct error *error)
{
    *link = NULL;
    pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; i < pool->idle_count && *link == NULL; i++) {
        if (redis_address_equal(&pool->idle[i].address, address)) {
            *link = pool->idle[i].link;
            pool->idle[i] = pool->idle[--pool->idle_count];
        }
    }
    pthread_mutex_unlock(&pool->lock);
    if (*link != NULL)
        return STATUS_OK;
    enum status status = redis_link_open(link, pool->target, address, error);
    if (status != STATUS_OK)
        return status;
    status = redis_pool_load(pool->library, *link, error);
    if (status != STATUS_OK) {
        error_prefix(error, "Redis at %s", redis_address_words(address).text);
        redisFree(*link);
        *link = NULL;
    }
    return status;
}

void redis_pool_give(struct redis_pool *pool, const struct redis_address *address,
                     redisContext *link)
{
    pthread_mutex_lock(&pool->lock);
    bool has_room = pool->idle_count < REDIS_POOL_IDLE_MAX;
    if (has_room)
        pool->idle[pool->idle_count++] = (struct redis_idle){.link = link, .address = *address};
    pthread_mutex_unlock(&pool->lock);
    if (!has_room)
        redisFree(link);
}

/* Closes the idle connections to a server that has just broken one: they are as old. */
static void redis_pool_forget(struct redis_pool *pool, const struct redis_address *address)
{
    redisContext *links[REDIS_POOL_IDLE_MAX];
    size_t count = 0;

    pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; i < pool->idle_count;) {
        if (redis_address_equal(&pool->idle[i].address, address)) {
            links[count++] = pool->idle[i].link;
            pool->idle[i] = pool->idle[--pool->idle_count];
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    for (size_t i = 0; i < count; i++)
        redisFree(links[i]);
}

enum status redis_pool_check(struct redis_pool *pool, const struct redis_address *address,
                             struct error *error)
{
    redisContext *link = NULL;
    enum status status = redis_pool_take(pool, address, &link, error);

    if (status != STATUS_OK)
        return status;
    status = redis_pool_load(pool->library, link, error);
    if (status == STATUS_OK) {
        redis_pool_give(pool, address, link);
        return STATUS_OK;
    }
    error_prefix(error, "Redis at %s", redis_address_words(address).text);
    bool is_broken = link->err != 0;
    redisFree(link);
    if (!is_broken)
        return status;
    /* It may have been idle while Redis restarted: another one tells. */
    redis_pool_forget(pool, address);
    status = redis_pool_take(pool, address, &link, error);
    if (status == STATUS_OK)
        redis_pool_give(pool, address, link);
    return status;
}

/* --- calling --- */

/* One call on its way through retries and redirections. */
struct redis_call {
    struct redis_pool *pool;
    unsigned slot;
    int64_t policy_id; /* 0: the keys are not those of a policy */
    int argc;
    const char **argv;
    const size_t *lengths;
    int64_t deadline_ms;
    bool asks; /* ASKING comes before it */
    struct redis_address address;
};

static void redis_call_pause(void)
{
    struct timespec pause = {.tv_nsec = (RETRY_PAUSE_MS / 2 + (long)random_below(RETRY_PAUSE_MS)) *
                                        1000000};
    nanosleep(&pause, NULL);
}

/* Sends it once. NULL: the connection broke, and what became of the call is not known. */
static redisReply *redis_call_once(const struct redis_call *call, redisContext *link)
{
    if (call->asks) {
        redisReply *asking = redisCommand(link, "ASKING");
        if (asking == NULL)
            return NULL;
        freeReplyObject(asking);
    }
    return redisCommandArgv(link, call->argc, call->argv, call->lengths);
}

/* What the library itself refuses. */
static enum status redis_call_refusal(const struct redis_call *call, enum redis_trouble trouble,
                                      const char *words, struct error *error)
{
    long long id = call->policy_id;

    switch (trouble) {
    case REDIS_TROUBLE_UNARMED:
        return error_set(error, STATUS_UNAVAILABLE, "policy %lld awaits its steward", id);
    case REDIS_TROUBLE_NO_POLICY:
        return error_set(error, STATUS_NOT_FOUND, "the gate has no policy %lld", id);
    case REDIS_TROUBLE_STALE_LEASE:
        return error_set(error, STATUS_CONFLICT, "policy %lld has seen a later lease", id);
    case REDIS_TROUBLE_TOO_SOON:
        return error_set(error, STATUS_BUSY, "policy %lld has just been announced more stock", id);
    case REDIS_TROUBLE_TOO_FEW:
        return error_set(error, STATUS_CONFLICT, "policy %lld has fewer units left", id);
    case REDIS_TROUBLE_SPREAD:
        return error_set(error, STATUS_UNAVAILABLE,
                         "the stock of policy %lld is spread over too many leases", id);
    case REDIS_TROUBLE_PENDING:
        return error_set(error, STATUS_CONFLICT, "policy %lld has claims pending", id);
    case REDIS_TROUBLE_FENCED:
        return error_set(error, STATUS_CONFLICT, "policy %lld: %.300s", id, words);
    case REDIS_TROUBLE_MOVED:
    case REDIS_TROUBLE_ASK:
    case REDIS_TROUBLE_DROP:
    case REDIS_TROUBLE_LATER:
        return STATUS_UNAVAILABLE; /* The words are there. */
    default:
        return error_set(error, STATUS_FAILED, "Redis at %s: %s: %.300s",
                         redis_address_words(&call->address).text, call->argv[1], words);
    }
}

/* After an error reply: whether and where to go on. */
static bool redis_call_goes_on(struct redis_call *call, enum redis_trouble trouble,
                               const char *words, struct error *error)
{
    call->asks = trouble == REDIS_TROUBLE_ASK;
    error_set(error, STATUS_UNAVAILABLE, "Redis at %s: %.300s",
              redis_address_words(&call->address).text, words);
    switch (trouble) {
    case REDIS_TROUBLE_ASK:
        return redis_map_read_redirect(words, &call->address, &call->address);
    case REDIS_TROUBLE_MOVED:
        /* Everyone else learns of it from the map; this call goes where it was told to. */
        (void)!redis_map_refresh(call->pool->map, NULL);
        return redis_map_read_redirect(words, &call->address, &call->address);
    case REDIS_TROUBLE_DROP:
    case REDIS_TROUBLE_LATER:
        redis_call_pause();
        (void)!redis_map_refresh(call->pool->map, NULL);
        return redis_map_find_slot(call->pool->map, call->slot, &call->address);
    case REDIS_TROUBLE_NO_LIBRARY:
        /* The connection is given up, and the next one loads it. */
        return true;
    default:
        return false;
    }
}

static enum status redis_call_run(struct redis_call *call, redisReply **reply, struct error *error)
{
    if (!redis_map_find_slot(call->pool->map, call->slot, &call->address)) {
        enum status status = redis_map_refresh(call->pool->map, error);
        if (status != STATUS_OK ||
            !redis_map_find_slot(call->pool->map, call->slot, &call->address))
            return status == STATUS_OK
                       ? error_set(error, STATUS_UNAVAILABLE, "it is not known where Redis is")
                       : status;
    }
    do {
        redisContext *link = NULL;
        enum status status = redis_pool_take(call->pool, &call->address, &link, error);
        if (status != STATUS_OK) {
            (void)!redis_map_refresh(call->pool->map, NULL);
            return status;
        }
        *reply = redis_call_once(call, link);
        if (*reply == NULL) {
            error_set(error, STATUS_UNKNOWN, "Redis at %s: %s",
                      redis_address_words(&call->address).text, link->errstr);
            redisFree(link);
            redis_pool_forget(call->pool, &call->address);
            (void)!redis_map_refresh(call->pool->map, NULL);
            return STATUS_UNKNOWN;
        }
        enum redis_trouble trouble = redis_trouble_of(*reply);
        struct redis_address from = call->address;
        const char *words = redis_reply_error(*reply);
        bool goes_on = words != NULL && redis_call_goes_on(call, trouble, words, error);
        if (trouble == REDIS_TROUBLE_NO_LIBRARY || trouble == REDIS_TROUBLE_DROP)
            redisFree(link);
        else
            redis_pool_give(call->pool, &from, link);
        if (trouble == REDIS_TROUBLE_NONE)
            return STATUS_OK;
        if (!goes_on)
            status = redis_call_refusal(call, trouble, words, error);
        freeReplyObject(*reply);
        *reply = NULL;
        if (!goes_on)
            return status;
    } while (clock_monotonic_ms() < call->deadline_ms);
    return STATUS_UNAVAILABLE;
}

enum status redis_pool_send(struct redis_pool *pool, unsigned slot, const char **words,
                            const size_t *lengths, size_t count, redisReply **reply,
                            struct error *error)
{
    struct redis_call call = {.pool = pool,
                              .slot = slot,
                              .argc = (int)count,
                              .argv = words,
                              .lengths = lengths,
                              .deadline_ms = clock_monotonic_ms() + pool->target->timeout_ms};

    *reply = NULL;
    return redis_call_run(&call, reply, error);
}

enum status redis_pool_call_surely(struct redis_pool *pool, int64_t policy_id, const char *function,
                                   const struct redis_argument *arguments, size_t argument_count,
                                   redisReply **reply, struct error *error)
{
    enum status status =
        redis_pool_call(pool, policy_id, function, arguments, argument_count, reply, error);

    if (status != STATUS_UNKNOWN)
        return status;
    status = redis_pool_call(pool, policy_id, function, arguments, argument_count, reply, error);
    return status == STATUS_UNAVAILABLE ? STATUS_UNKNOWN : status;
}

enum status redis_pool_call(struct redis_pool *pool, int64_t policy_id, const char *function,
                            const struct redis_argument *arguments, size_t argument_count,
                            redisReply **reply, struct error *error)
{
    const char *few_argv[CALL_ARGUMENTS_HEAD + CALL_ARGUMENTS_FEW];
    size_t few_lengths[CALL_ARGUMENTS_HEAD + CALL_ARGUMENTS_FEW];
    struct redis_keys keys;
    size_t *lengths = few_lengths;
    struct redis_call call = {.pool = pool,
                              .slot = redis_map_slot(policy_id),
                              .policy_id = policy_id,
                              .argc = (int)(CALL_ARGUMENTS_HEAD + argument_count),
                              .argv = few_argv,
                              .deadline_ms = clock_monotonic_ms() + pool->target->timeout_ms};

    *reply = NULL;
    ensure(argument_count <= CALL_ARGUMENTS_MAX);
    if (argument_count > CALL_ARGUMENTS_FEW) {
        call.argv = malloc((size_t)call.argc * sizeof(*call.argv));
        lengths = malloc((size_t)call.argc * sizeof(*lengths));
    }
    enum status status = STATUS_UNAVAILABLE;
    if (call.argv == NULL || lengths == NULL) {
        error_set(error, status, "no memory to call Redis");
    } else {
        redis_keys_of(&keys, policy_id);
        call.argv[0] = "FCALL";
        call.argv[1] = function;
        call.argv[2] = "7";
        for (size_t i = 0; i < REDIS_KEYS; i++)
            call.argv[3 + i] = keys.names[i];
        for (size_t i = 0; i < CALL_ARGUMENTS_HEAD; i++)
            lengths[i] = strlen(call.argv[i]);
        for (size_t i = 0; i < argument_count; i++) {
            call.argv[CALL_ARGUMENTS_HEAD + i] = arguments[i].bytes;
            lengths[CALL_ARGUMENTS_HEAD + i] = arguments[i].length;
        }
        call.lengths = lengths;
        status = redis_call_run(&call, reply, error);
    }
    if (call.argv != few_argv)
        free(call.argv);
    if (lengths != few_lengths)
        free(lengths);
    return status;
}
