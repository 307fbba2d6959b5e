/* pool.c: takes an idle connection or a new one, calls, and decides what an error asks for.
 */
#include "gate/redis/pool.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "embedded_functions.h"

#define RETRY_PAUSE_MS 20
#define SCAN_COUNT     1000

const struct redis_library redis_gate_library = {
    .file = "redis.lua", .version = "dibs_version", .version_number = REDIS_LUA_VERSION};

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

static void redis_write_bytes(struct buffer *out, const char *bytes, size_t length)
{
    buffer_append_literal(out, "$");
    buffer_append_u64(out, length);
    buffer_append_literal(out, "\r\n");
    buffer_append(out, bytes, length);
    buffer_append_literal(out, "\r\n");
}

static void redis_write_argument(struct buffer *out, const struct redis_argument *argument)
{
    char digits[24];

    if (argument->bytes != NULL)
        redis_write_bytes(out, argument->bytes, argument->length);
    else
        redis_write_bytes(
            out, digits,
            (size_t)snprintf(digits, sizeof(digits), "%lld", (long long)argument->number));
}

void redis_write_call(struct buffer *out, const char *command, const char *function,
                      int64_t policy_id, const struct redis_argument *arguments, size_t count)
{
    size_t key_count = policy_id == 0 ? 0 : REDIS_KEYS;
    struct redis_keys keys;

    buffer_printf(out, "*%zu\r\n", 3 + key_count + count);
    redis_write_bytes(out, command, strlen(command));
    redis_write_bytes(out, function, strlen(function));
    redis_write_bytes(out, key_count == 0 ? "0" : "7", 1);
    redis_keys_of(&keys, policy_id);
    for (size_t i = 0; i < key_count; i++)
        redis_write_bytes(out, keys.names[i], strlen(keys.names[i]));
    for (size_t i = 0; i < count; i++)
        redis_write_argument(out, &arguments[i]);
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

/* OK: it answers, if only that it has no library. What passes by itself is UNAVAILABLE; missing
 * rights, or a library that Redis cannot take, are for the operator. */
static enum status redis_pool_refused(const char *doing, const redisContext *link,
                                      const redisReply *reply, struct error *error)
{
    enum redis_trouble trouble = redis_trouble_of(reply);
    const char *message = reply == NULL ? link->errstr : redis_reply_error(reply);

    if (message == NULL || trouble == REDIS_TROUBLE_NO_LIBRARY)
        return STATUS_OK;
    bool passes =
        reply == NULL || trouble == REDIS_TROUBLE_LATER || strncmp(message, "READONLY", 8) == 0;
    return error_set(error, passes ? STATUS_UNAVAILABLE : STATUS_FAILED, "%s: %.300s", doing,
                     message);
}

/* Loads ours unless the same or a newer one is there. Reloading disarms every policy. */
static enum status redis_pool_load(const struct redis_library *library, redisContext *link,
                                   struct error *error)
{
    int64_t version = 0;
    redisReply *reply = redisCommand(link, "FCALL_RO %s 0", library->version);
    enum status status = redis_pool_refused("asking for the function library", link, reply, error);

    (void)redis_reply_number(reply, 0, INT32_MAX, &version);
    freeReplyObject(reply);
    if (status != STATUS_OK || version == library->version_number)
        return status;
    if (version > library->version_number)
        return error_set(error, STATUS_FAILED,
                         "the function library in Redis is of a newer dibs (%lld, this one has "
                         "%d); use that version",
                         (long long)version, library->version_number);
    const struct embedded_file *file = redis_pool_file(library);
    reply = redisCommand(link, "FUNCTION LOAD REPLACE %b", file->bytes, file->length);
    status = redis_pool_refused("loading the function library", link, reply, error);
    freeReplyObject(reply);
    if (status == STATUS_OK)
        log_event(LOG_INFO, "library_loaded", LOG_FIELD("library", LOG_TEXT(library->file)),
                  LOG_FIELD("version", LOG_I64(library->version_number)));
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
        error_prefix(error, "Redis at %s", redis_address_text(address).text);
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
    error_prefix(error, "Redis at %s", redis_address_text(address).text);
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
    const char *function;
    struct buffer text; /* as it is sent */
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
    return redis_link_call(link, &call->text);
}

/* What the library itself refuses, by its first word, and what is said of the policy then; NULL:
 * the library's own words. */
static const struct redis_refusal {
    const char *name;
    enum status status;
    const char *message;
} redis_refusals[] = {
    {"UNARMED", STATUS_UNAVAILABLE, "awaits its steward"},
    {"NOPOLICY", STATUS_NOT_FOUND, "is not in the gate"},
    /* a lease that is not above all that were seen */
    {"STALELEASE", STATUS_CONFLICT, "has seen a later lease"},
    {"TOOSOON", STATUS_BUSY, "has just been announced more stock"},
    {"TOOFEW", STATUS_CONFLICT, "has fewer units left"},
    {"SPREAD", STATUS_UNAVAILABLE, "has its stock in too many leases"},
    {"PENDING", STATUS_CONFLICT, "has claims pending"},
    /* a later term has begun, or another worker publishes the policy */
    {"FENCED", STATUS_CONFLICT, NULL},
};

static enum status redis_call_refusal(const struct redis_call *call, enum redis_trouble trouble,
                                      const char *message, struct error *error)
{
    if (trouble < REDIS_TROUBLE_NO_POLICY)
        return STATUS_UNAVAILABLE; /* The words are there. */
    for (size_t i = 0; i < sizeof(redis_refusals) / sizeof(redis_refusals[0]); i++) {
        const struct redis_refusal *refusal = &redis_refusals[i];
        if (strncmp(message, refusal->name, strlen(refusal->name)) == 0)
            return error_set(error, refusal->status, "policy %lld %.300s",
                             (long long)call->policy_id,
                             refusal->message != NULL ? refusal->message : message);
    }
    return error_set(error, STATUS_FAILED, "Redis at %s: %s: %.300s",
                     redis_address_text(&call->address).text, call->function, message);
}

/* After an error reply: whether and where to go on. */
static bool redis_call_goes_on(struct redis_call *call, enum redis_trouble trouble,
                               const char *message, struct error *error)
{
    call->asks = trouble == REDIS_TROUBLE_ASK;
    error_set(error, STATUS_UNAVAILABLE, "Redis at %s: %.300s",
              redis_address_text(&call->address).text, message);
    switch (trouble) {
    case REDIS_TROUBLE_ASK:
        return redis_map_read_redirect(message, &call->address, &call->address);
    case REDIS_TROUBLE_MOVED:
        /* Everyone else learns of it from the map; this call goes where it was told to. */
        (void)!redis_map_refresh(call->pool->map, NULL);
        return redis_map_read_redirect(message, &call->address, &call->address);
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
                      redis_address_text(&call->address).text, link->errstr);
            redisFree(link);
            redis_pool_forget(call->pool, &call->address);
            (void)!redis_map_refresh(call->pool->map, NULL);
            return STATUS_UNKNOWN;
        }
        enum redis_trouble trouble = redis_trouble_of(*reply);
        struct redis_address from = call->address;
        const char *message = redis_reply_error(*reply);
        bool goes_on = message != NULL && redis_call_goes_on(call, trouble, message, error);
        if (trouble == REDIS_TROUBLE_NO_LIBRARY || trouble == REDIS_TROUBLE_DROP)
            redisFree(link);
        else
            redis_pool_give(call->pool, &from, link);
        if (trouble == REDIS_TROUBLE_NONE)
            return STATUS_OK;
        if (!goes_on)
            status = redis_call_refusal(call, trouble, message, error);
        freeReplyObject(*reply);
        *reply = NULL;
        if (!goes_on)
            return status;
    } while (clock_monotonic_ms() < call->deadline_ms);
    return STATUS_UNAVAILABLE;
}

/* The call's text is written; it goes with the call. */
static enum status redis_call_finish(struct redis_call *call, redisReply **reply,
                                     struct error *error)
{
    call->deadline_ms = clock_monotonic_ms() + call->pool->target->timeout_ms;
    *reply = NULL;
    enum status status = call->text.overflowed
                             ? error_set(error, STATUS_UNAVAILABLE, "no memory to call Redis")
                             : redis_call_run(call, reply, error);
    buffer_release(&call->text);
    return status;
}

enum status redis_pool_send(struct redis_pool *pool, unsigned slot,
                            const struct redis_argument *arguments, size_t count,
                            redisReply **reply, struct error *error)
{
    struct redis_call call = {.pool = pool, .slot = slot, .function = arguments[1].bytes};

    buffer_init(&call.text, REDIS_CALL_LENGTH_MAX);
    buffer_printf(&call.text, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++)
        redis_write_argument(&call.text, &arguments[i]);
    return redis_call_finish(&call, reply, error);
}

enum status redis_pool_call(struct redis_pool *pool, int64_t policy_id, const char *function,
                            const struct redis_argument *arguments, size_t count,
                            redisReply **reply, struct error *error)
{
    struct redis_call call = {.pool = pool,
                              .slot = redis_map_slot(policy_id),
                              .policy_id = policy_id,
                              .function = function};

    buffer_init(&call.text, REDIS_CALL_LENGTH_MAX);
    redis_write_call(&call.text, "FCALL", function, policy_id, arguments, count);
    return redis_call_finish(&call, reply, error);
}

enum status redis_pool_call_surely(struct redis_pool *pool, int64_t policy_id, const char *function,
                                   const struct redis_argument *arguments, size_t count,
                                   redisReply **reply, struct error *error)
{
    enum status status = redis_pool_call(pool, policy_id, function, arguments, count, reply, error);

    if (status != STATUS_UNKNOWN)
        return status;
    status = redis_pool_call(pool, policy_id, function, arguments, count, reply, error);
    return status == STATUS_UNAVAILABLE ? STATUS_UNKNOWN : status;
}

enum status redis_ask(struct redis_pool *pool, int64_t policy_id, const char *function,
                      const struct redis_argument *arguments, size_t count, redisReply **reply,
                      struct error *error)
{
    enum status status =
        redis_pool_call_surely(pool, policy_id, function, arguments, count, reply, error);

    return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
}

enum status redis_do(struct redis_pool *pool, int64_t policy_id, const char *function,
                     const struct redis_argument *arguments, size_t count, int64_t *number,
                     struct error *error)
{
    redisReply *reply = NULL;
    enum status status = redis_ask(pool, policy_id, function, arguments, count, &reply, error);

    if (status == STATUS_OK && number != NULL &&
        !redis_reply_number(reply, 0, REDIS_NUMBER_MAX, number))
        status = redis_reply_is_strange(function, error);
    freeReplyObject(reply);
    return status;
}

/* --- calls to one server --- */

redisReply *redis_server_call(struct redis_pool *pool, const struct redis_address *address,
                              const char *command, const char *function,
                              const struct redis_argument *arguments, size_t count,
                              struct error *error)
{
    redisContext *link = NULL;
    struct buffer text;

    if (redis_pool_take(pool, address, &link, error) != STATUS_OK)
        return NULL;
    buffer_init(&text, REDIS_CALL_LENGTH_MAX);
    redis_write_call(&text, command, function, 0, arguments, count);
    redisReply *reply = redis_link_call(link, &text);
    buffer_release(&text);
    if (redis_trouble_of(reply) == REDIS_TROUBLE_NONE && reply != NULL) {
        redis_pool_give(pool, address, link);
        return reply;
    }
    error_set(error, STATUS_UNAVAILABLE, "Redis at %s: %.300s", redis_address_text(address).text,
              reply == NULL ? link->errstr : redis_reply_error(reply));
    freeReplyObject(reply);
    redisFree(link);
    return NULL;
}

/* One page from that cursor on. */
static redisReply *redis_scan_ask(redisContext *link, int64_t policy_id,
                                  const struct redis_keys *keys, enum redis_scanned what,
                                  const char *cursor)
{
    const struct redis_argument arguments[] = {redis_text(cursor), redis_number(SCAN_COUNT)};
    struct buffer text;

    switch (what) {
    case SCAN_POLICIES:
        return redisCommand(link, "SCAN %s MATCH " REDIS_KEY_HEAD "*}:META COUNT %d", cursor,
                            SCAN_COUNT);
    case SCAN_USERS:
        return redisCommand(link, "HSCAN %s %s COUNT %d", keys->names[REDIS_KEY_ISSUED], cursor,
                            SCAN_COUNT);
    case SCAN_KEYS:
        return redisCommand(link, "HSCAN %s %s COUNT %d", keys->names[REDIS_KEY_KEYS], cursor,
                            SCAN_COUNT);
    default:
        /* Which of them are pending is another key's matter, and both are read in one step. */
        buffer_init(&text, REDIS_CALL_LENGTH_MAX);
        redis_write_call(&text, "FCALL_RO", "dibs_visit", policy_id, arguments, 2);
        redisReply *reply = redis_link_call(link, &text);
        buffer_release(&text);
        return reply;
    }
}

/* What the library calls unreadable, and what is there and cannot be taken, stays so: FAILED. */
static enum status redis_scan_refused(const struct redis_address *address,
                                      const struct redis_keys *keys, enum redis_scanned what,
                                      const redisReply *reply, struct error *error)
{
    const char *key = what == SCAN_POLICIES ? "its keys"
                      : what == SCAN_KEYS   ? keys->names[REDIS_KEY_KEYS]
                                            : keys->names[REDIS_KEY_ISSUED];
    const char *message = redis_reply_error(reply);
    bool is_wrong = message == NULL || strncmp(message, "DIBSBAD", 7) == 0 ||
                    strncmp(message, "WRONGTYPE", 9) == 0;

    return error_set(error, is_wrong ? STATUS_FAILED : STATUS_UNAVAILABLE,
                     "Redis at %s: %s: %.300s", redis_address_text(address).text, key,
                     message != NULL ? message : "an entry is not readable");
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
    for (size_t i = 0; i < count; i += step)
        if (!redis_reply_text(redis_reply_at(page, i), &name) ||
            !redis_reply_text(redis_reply_at(page, i + step - 1), &value) ||
            !take(context, name, value))
            return false;
    return redis_reply_copy(redis_reply_at(reply, 0), cursor, cursor_size);
}

enum status redis_scan(struct redis_pool *pool, const struct redis_address *address,
                       int64_t policy_id, enum redis_scanned what,
                       bool (*take)(void *context, struct span name, struct span value),
                       void *context, struct error *error)
{
    redisContext *link = NULL;
    struct redis_keys keys;
    char cursor[32] = "0";
    enum status status = redis_pool_take(pool, address, &link, error);

    if (status != STATUS_OK)
        return status;
    redis_keys_of(&keys, policy_id);
    do {
        redisReply *reply = redis_scan_ask(link, policy_id, &keys, what, cursor);
        if (reply == NULL)
            status = error_set(error, STATUS_UNAVAILABLE, "Redis at %s: no answer",
                               redis_address_text(address).text);
        else if (!redis_scan_read(reply, what == SCAN_POLICIES ? 1 : 2, take, context, cursor,
                                  sizeof(cursor)))
            status = redis_scan_refused(address, &keys, what, reply, error);
        freeReplyObject(reply);
    } while (status == STATUS_OK && strcmp(cursor, "0") != 0);
    if (status == STATUS_OK)
        redis_pool_give(pool, address, link);
    else
        redisFree(link);
    return status;
}
