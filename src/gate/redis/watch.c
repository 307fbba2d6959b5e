/* watch.c: looks, remembers, and answers those who came too late. */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "embedded_functions.h"
#include "gate/redis/gate.h"

#define LOOK_MS 250
/* How long SOLD_OUT is told from memory: less than the library holds stock back. */
#define FRESH_MS     (REDIS_LUA_HOLD_BACK_MS * 4 / 5)
#define NUMBERS_READ 14

/* --- the table --- */

/* Under the lock: where the policy is, or would be. */
static size_t redis_watch_place(const struct redis_watch *watch, int64_t policy_id)
{
    return array_place(watch->policies, watch->policy_count, .numbers.policy_id, policy_id);
}

static struct redis_watched *redis_watch_find(struct redis_watch *watch, int64_t policy_id)
{
    size_t place = redis_watch_place(watch, policy_id);

    if (place == watch->policy_count || watch->policies[place].numbers.policy_id != policy_id)
        return NULL;
    return &watch->policies[place];
}

static struct redis_watched *redis_watch_add(struct redis_watch *watch, int64_t policy_id)
{
    struct redis_watched *found = redis_watch_find(watch, policy_id);

    if (found != NULL)
        return found;
    size_t place = redis_watch_place(watch, policy_id);
    if (!array_insert(watch->policies, place, watch->policy_count, watch->policy_capacity))
        return NULL;
    watch->policies[place] =
        (struct redis_watched){.numbers.policy_id = policy_id, .winners_changes = -1};
    return &watch->policies[place];
}

/* --- winners --- */

static void redis_winners_add(struct redis_winners *winners, uint64_t hash)
{
    size_t at = hash & winners->mask;

    while (winners->hashes[at] != 0 && winners->hashes[at] != hash)
        at = (at + 1) & winners->mask;
    winners->hashes[at] = hash;
}

static bool redis_winners_have(const struct redis_winners *winners, uint64_t hash)
{
    size_t at = hash & winners->mask;

    while (winners->hashes[at] != 0 && winners->hashes[at] != hash)
        at = (at + 1) & winners->mask;
    return winners->hashes[at] == hash;
}

static uint64_t redis_watch_hash(const struct redis_watch *watch, const char *user, size_t length)
{
    return hash_table(watch->key, user, length) | 1;
}

/* Grows by twos, and stays at most half full. */
static bool redis_winners_fit(struct redis_winners *winners, size_t count)
{
    size_t size = winners->hashes == NULL ? 0 : winners->mask + 1;
    if (count * 2 < size)
        return true;
    struct redis_winners grown = {.mask = (size == 0 ? 1024 : size * 2) - 1};
    while (count * 2 >= grown.mask + 1)
        grown.mask = grown.mask * 2 + 1;
    grown.hashes = calloc(grown.mask + 1, sizeof(*grown.hashes));
    if (grown.hashes == NULL)
        return false;
    for (size_t i = 0; i < size; i++)
        if (winners->hashes[i] != 0)
            redis_winners_add(&grown, winners->hashes[i]);
    free(winners->hashes);
    *winners = grown;
    return true;
}

/* Winners on their way from Redis. */
struct redis_winners_read {
    const struct redis_watch *watch;
    struct redis_winners winners;
    size_t count;
};

static bool redis_watch_take_winner(void *context, struct span user, struct span held)
{
    struct redis_winners_read *read = context;

    if (!redis_winners_fit(&read->winners, ++read->count))
        return false;
    redis_winners_add(&read->winners, redis_watch_hash(read->watch, user.bytes, user.length));
    return true;
}

/* Reads all users of a policy that is sold out. */
static bool redis_watch_read_winners(const struct redis_watch *watch, int64_t policy_id,
                                     struct redis_winners *winners)
{
    struct redis_winners_read read = {.watch = watch};
    struct redis_address address;
    bool is_read = redis_winners_fit(&read.winners, 0) &&
                   redis_map_find(watch->pool->map, policy_id, &address) &&
                   redis_scan(watch->pool, &address, policy_id, SCAN_USERS, redis_watch_take_winner,
                              &read, NULL) == STATUS_OK;
    *winners = read.winners;
    return is_read;
}

/* --- looking --- */

/* What dibs_count answers: its arming, then numbers, of which how many are pending are added up
 * over all policies. */
static bool redis_watch_read(const redisReply *reply, int64_t numbers[NUMBERS_READ])
{
    return redis_reply_numbers(reply, NUMBERS_READ, numbers) && numbers[2] >= 0 &&
           numbers[2] <= REDIS_COUNT_MAX;
}

/* Under the lock. */
static void redis_watch_note_pending(struct redis_watch *watch, struct redis_watched *seen,
                                     int64_t pending_count)
{
    watch->pending_count += pending_count - seen->pending_count;
    seen->pending_count = pending_count;
}

/* What was announced to Redis may have been taken away since, when `total` was lowered: people are
 * shown no more than there can be. */
static int64_t redis_watch_remaining(const struct redis_watched *seen)
{
    int64_t free_count = seen->numbers.total - seen->numbers.pending - seen->numbers.issued;

    if (free_count < 0)
        return 0;
    return seen->stock < free_count ? seen->stock : free_count;
}

/* Under the lock: takes over what dibs_count answered to a question of that time. True: there may
 * be stock that was not there before. */
static bool redis_watch_take(struct redis_watch *watch, struct redis_watched *seen,
                             const int64_t read[NUMBERS_READ], int64_t asked_ns, int64_t won_count)
{
    if (asked_ns < seen->asked_ns)
        return false; /* Somebody has asked later, and was answered earlier. */
    bool has_changed = seen->changes != read[7] || seen->is_armed != (read[0] > 0);
    /* What was won since the question counts besides, though some of it may be in the answer. */
    redis_watch_note_pending(watch, seen, read[2] + seen->won_count - won_count);
    bool is_moving = read[2] < seen->numbers.pending || read[3] > seen->numbers.issued;
    if (read[2] == 0)
        seen->numbers.stuck_since_ms = 0;
    else if (seen->numbers.stuck_since_ms == 0 || is_moving)
        seen->numbers.stuck_since_ms = asked_ns / 1000000;
    seen->is_known = true;
    seen->is_armed = read[0] > 0;
    seen->numbers.is_suspended = read[0] < 0;
    seen->stock = read[1] + read[4];
    seen->numbers.pending = read[2];
    seen->numbers.issued = read[3];
    seen->numbers.total = read[5];
    seen->numbers.remaining = redis_watch_remaining(seen);
    seen->numbers.version = read[6];
    seen->changes = read[7];
    seen->numbers.sold_out_at_ms = seen->numbers.remaining == 0 ? read[8] : 0;
    seen->numbers.opens_at_ms = read[9];
    seen->numbers.closes_at_ms = read[10];
    seen->numbers.paused = read[11] != 0;
    seen->numbers.closed_by_hand = read[12] != 0;
    seen->redis_ms = read[13];
    seen->asked_ns = asked_ns;
    seen->polled_at_ms = asked_ns / 1000000;
    return has_changed;
}

void redis_watch_note_winners(struct redis_watch *watch, int64_t policy_id)
{
    struct redis_winners winners = {0};

    pthread_mutex_lock(&watch->lock);
    struct redis_watched *seen = redis_watch_find(watch, policy_id);
    int64_t changes = seen == NULL ? 0 : seen->changes;
    bool is_wanted =
        seen != NULL && seen->is_armed && seen->stock == 0 && seen->winners_changes != changes;
    pthread_mutex_unlock(&watch->lock);
    if (!is_wanted || !redis_watch_read_winners(watch, policy_id, &winners)) {
        free(winners.hashes);
        return;
    }
    pthread_mutex_lock(&watch->lock);
    seen = redis_watch_find(watch, policy_id);
    if (seen != NULL) {
        struct redis_winners old = seen->winners;
        seen->winners = winners;
        winners = old;
        seen->winners_changes = changes;
    }
    pthread_mutex_unlock(&watch->lock);
    free(winners.hashes);
}

enum status redis_watch_refresh(struct redis_watch *watch, int64_t policy_id, struct error *error)
{
    redisReply *reply = NULL;
    int64_t read[NUMBERS_READ];
    bool has_changed = false;

    pthread_mutex_lock(&watch->lock);
    struct redis_watched *seen = redis_watch_find(watch, policy_id);
    int64_t won_count = seen == NULL ? 0 : seen->won_count;
    pthread_mutex_unlock(&watch->lock);
    int64_t asked_ns = clock_monotonic_ns();
    enum status status = redis_ask(watch->pool, policy_id, "dibs_count", NULL, 0, &reply, error);
    if (status == STATUS_OK && !redis_watch_read(reply, read))
        status = redis_reply_is_strange("dibs_count", error);
    freeReplyObject(reply);
    pthread_mutex_lock(&watch->lock);
    /* One that is not there is not noted: anybody may ask for any. */
    seen = status == STATUS_OK ? redis_watch_add(watch, policy_id)
                               : redis_watch_find(watch, policy_id);
    if (seen != NULL && status == STATUS_OK) {
        has_changed = redis_watch_take(watch, seen, read, asked_ns, won_count);
    } else if (seen != NULL && status == STATUS_NOT_FOUND) {
        seen->is_known = seen->is_armed = false;
        redis_watch_note_pending(watch, seen, 0);
    }
    pthread_mutex_unlock(&watch->lock);
    if (has_changed)
        watch->stock_changed(watch->context);
    return status;
}

/* One round: what it found out about the servers, of which it looks at those that are well. */
struct redis_round {
    struct redis_address away[REDIS_NODES_MAX];
    size_t away_count;
    struct error trouble; /* the first; "": none */
};

static void redis_round_note(struct redis_round *round, enum status status,
                             const struct error *error)
{
    if (status != STATUS_OK && status != STATUS_NOT_FOUND && round->trouble.text[0] == '\0')
        round->trouble = *error;
}

/* Each policy of a server that is away would wait as long as the server did. */
static bool redis_round_is_away(const struct redis_round *round, struct redis_map *map,
                                int64_t policy_id)
{
    struct redis_address address;

    if (!redis_map_find(map, policy_id, &address))
        return true;
    for (size_t i = 0; i < round->away_count; i++)
        if (redis_address_equal(&round->away[i], &address))
            return true;
    return false;
}

static void redis_watch_poll_servers(struct redis_watch *watch, struct redis_round *round)
{
    struct redis_address addresses[REDIS_NODES_MAX];
    struct error error = {""};
    size_t count = redis_map_list(watch->pool->map, addresses, REDIS_NODES_MAX);
    bool measures = redis_rooms_begin(&watch->rooms);
    for (size_t i = 0; i < count; i++) {
        enum status status = redis_pool_check(watch->pool, &addresses[i], &error);
        redis_round_note(round, status, &error);
        if (status != STATUS_OK)
            round->away[round->away_count++] = addresses[i];
        else
            redis_round_note(round,
                             redis_room_check(watch->pool, &addresses[i],
                                              measures ? &watch->rooms : NULL, &error),
                             &error);
    }
    if (measures)
        redis_rooms_end(&watch->rooms);
    if (count == 0 || round->away_count > 0)
        redis_round_note(round, redis_map_refresh(watch->pool->map, &error), &error);
}

static void redis_watch_poll_policies(struct redis_watch *watch, struct redis_round *round)
{
    int64_t after_id = 0;
    int64_t ids[64];
    size_t count;
    struct error error = {""};

    while ((count = redis_watch_list(watch, after_id, ids, 64)) > 0) {
        for (size_t i = 0; i < count; i++) {
            if (redis_round_is_away(round, watch->pool->map, ids[i]))
                continue;
            enum status status = redis_watch_refresh(watch, ids[i], &error);
            redis_round_note(round, status, &error);
            if (status == STATUS_OK)
                redis_watch_note_winners(watch, ids[i]);
        }
        after_id = ids[count - 1];
    }
}

static int64_t redis_watch_poll_all(void *context)
{
    struct redis_watch *watch = context;
    struct redis_round round = {.away_count = 0};

    redis_watch_poll_servers(watch, &round);
    redis_watch_poll_policies(watch, &round);
    pthread_mutex_lock(&watch->lock);
    bool was_well = watch->trouble.text[0] == '\0';
    watch->trouble = round.trouble;
    pthread_mutex_unlock(&watch->lock);
    bool is_well = round.trouble.text[0] == '\0';
    if (was_well && !is_well)
        log_event(LOG_ERROR, "gate_refuses", LOG_FIELD("error", LOG_TEXT(round.trouble.text)));
    if (!was_well && is_well)
        log_event(LOG_INFO, "gate_recovered");
    return LOOK_MS;
}

/* --- life --- */

enum status redis_watch_start(struct redis_watch *watch, struct redis_pool *pool,
                              void (*stock_changed)(void *context), void *context,
                              struct error *error)
{
    *watch = (struct redis_watch){
        .pool = pool, .stock_changed = stock_changed, .context = context, .key = hash_key_random()};
    pthread_mutex_init(&watch->lock, NULL);
    redis_rooms_init(&watch->rooms);
    return periodic_start(&watch->periodic, "redis-watch", redis_watch_poll_all, watch, 0, error);
}

void redis_watch_stop(struct redis_watch *watch)
{
    periodic_stop(&watch->periodic);
    for (size_t i = 0; i < watch->policy_count; i++)
        free(watch->policies[i].winners.hashes);
    free(watch->policies);
    redis_rooms_release(&watch->rooms);
    pthread_mutex_destroy(&watch->lock);
}

/* --- asking --- */

/* The window is judged by Redis's clock, whatever ours says. */
static enum policy_state redis_watch_state(const struct redis_watched *seen)
{
    int64_t now_ms = seen->redis_ms + clock_monotonic_ms() - seen->polled_at_ms;

    if (seen->numbers.closed_by_hand ||
        (seen->numbers.closes_at_ms != 0 && now_ms >= seen->numbers.closes_at_ms))
        return POLICY_CLOSED;
    if (seen->numbers.paused)
        return POLICY_PAUSED;
    if (now_ms < seen->numbers.opens_at_ms)
        return POLICY_SCHEDULED;
    return seen->numbers.remaining == 0 ? POLICY_SOLD_OUT : POLICY_OPEN;
}

enum status gate_redis_count(struct gate *gate, int64_t policy_id, int64_t now_ms,
                             struct gate_numbers *numbers)
{
    struct redis_watch *watch = &gate_redis_of(gate)->watch;
    enum status status = STATUS_NOT_FOUND;

    (void)now_ms; /* The window is judged by Redis's clock. */
    pthread_mutex_lock(&watch->lock);
    const struct redis_watched *seen = redis_watch_find(watch, policy_id);
    if (seen != NULL && seen->polled_at_ms != 0) {
        *numbers = seen->numbers;
        numbers->state = redis_watch_state(seen);
        status = STATUS_OK;
    }
    pthread_mutex_unlock(&watch->lock);
    return status;
}

size_t redis_watch_list(struct redis_watch *watch, int64_t after_id, int64_t *ids, size_t ids_max)
{
    size_t count = 0;

    pthread_mutex_lock(&watch->lock);
    for (size_t at = redis_watch_place(watch, after_id + 1);
         at < watch->policy_count && count < ids_max; at++)
        ids[count++] = watch->policies[at].numbers.policy_id;
    pthread_mutex_unlock(&watch->lock);
    return count;
}

void redis_watch_meet(struct redis_watch *watch, int64_t policy_id)
{
    pthread_mutex_lock(&watch->lock);
    (void)redis_watch_add(watch, policy_id);
    pthread_mutex_unlock(&watch->lock);
}

void redis_watch_drop(struct redis_watch *watch, int64_t policy_id)
{
    pthread_mutex_lock(&watch->lock);
    struct redis_watched *seen = redis_watch_find(watch, policy_id);
    if (seen != NULL) {
        free(seen->winners.hashes);
        redis_watch_note_pending(watch, seen, 0);
        array_remove(watch->policies, seen - watch->policies, watch->policy_count);
    }
    pthread_mutex_unlock(&watch->lock);
}

bool redis_watch_has(struct redis_watch *watch, int64_t policy_id)
{
    pthread_mutex_lock(&watch->lock);
    bool is_there = redis_watch_find(watch, policy_id) != NULL;
    pthread_mutex_unlock(&watch->lock);
    return is_there;
}

bool redis_watch_saw(struct redis_watch *watch, int64_t policy_id, int64_t since_ms)
{
    pthread_mutex_lock(&watch->lock);
    const struct redis_watched *seen = redis_watch_find(watch, policy_id);
    bool saw = seen != NULL && seen->polled_at_ms > since_ms;
    pthread_mutex_unlock(&watch->lock);
    return saw;
}

/* Under the lock: what all of a policy's batch may be told from memory. */
static bool redis_watch_is_sold_out(const struct redis_watched *seen)
{
    return seen->winners_changes == seen->changes && seen->winners.hashes != NULL &&
           seen->is_armed && seen->stock == 0 &&
           clock_monotonic_ms() - seen->polled_at_ms < FRESH_MS &&
           redis_watch_state(seen) == POLICY_SOLD_OUT;
}

size_t redis_watch_decide(struct redis_watch *watch, const struct gate_batch *batch,
                          struct blocklist *blocklist, const struct gate_options *options)
{
    size_t left = batch->count;

    pthread_mutex_lock(&watch->lock);
    const struct redis_watched *seen = redis_watch_find(watch, batch->policy_id);
    int64_t room = options->pending_max - watch->pending_count - watch->asking_count;
    bool is_sold_out = seen != NULL && redis_watch_is_sold_out(seen) &&
                       (options->ack != GATE_ACK_LEDGER || seen->numbers.pending == 0);
    for (size_t i = 0; i < batch->count && (is_sold_out || room < (int64_t)batch->count); i++) {
        struct wish *wish = batch->wishes[i];
        /* A key may belong to a claim that was cancelled, which only Redis knows. */
        if (is_sold_out && !request_id_is_keyed(&wish->request_id) &&
            !redis_winners_have(&seen->winners,
                                redis_watch_hash(watch, wish->user.bytes, wish->user.length)))
            wish->verdict =
                blocklist_has(blocklist, &wish->user) ? VERDICT_BLOCKED : VERDICT_SOLD_OUT;
        else if (room-- <= 0)
            wish->verdict = VERDICT_UNAVAILABLE;
        else
            continue;
        wish->ticket = 0;
        left--;
    }
    watch->asking_count += (int64_t)left;
    pthread_mutex_unlock(&watch->lock);
    return left;
}

void redis_watch_answered(struct redis_watch *watch, int64_t policy_id, size_t count,
                          size_t won_count)
{
    pthread_mutex_lock(&watch->lock);
    struct redis_watched *seen = won_count == 0 ? NULL : redis_watch_find(watch, policy_id);
    watch->asking_count -= (int64_t)count;
    if (seen != NULL) {
        seen->won_count += (int64_t)won_count;
        redis_watch_note_pending(watch, seen, seen->pending_count + (int64_t)won_count);
    }
    pthread_mutex_unlock(&watch->lock);
}

size_t gate_rooms(struct shared_gate *gate, struct gate_room *rooms, size_t max)
{
    return redis_rooms_copy(&gate_redis_shared(gate)->watch.rooms, rooms, max);
}

bool gate_is_ready(struct shared_gate *gate, struct error *reason)
{
    struct redis_watch *watch = &gate_redis_shared(gate)->watch;

    pthread_mutex_lock(&watch->lock);
    bool is_well = watch->trouble.text[0] == '\0';
    if (is_well)
        error_set(reason, STATUS_OK, "ok");
    else
        *reason = watch->trouble;
    pthread_mutex_unlock(&watch->lock);
    return is_well;
}

enum status gate_refresh(struct shared_gate *gate, int64_t policy_id, struct error *error)
{
    struct error reason;

    /* One that hangs is not waited for by everyone who asks. */
    if (!gate_is_ready(gate, &reason))
        return error_set(error, STATUS_UNAVAILABLE, "%s", reason.text);
    return redis_watch_refresh(&gate_redis_shared(gate)->watch, policy_id, error);
}
