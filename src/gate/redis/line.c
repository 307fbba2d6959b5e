/* line.c: the batches of a loop on their way to Redis and back.
 *
 * One call per policy at a time: while it is under way the batches of the next ticks gather, in the
 * order they came, and leave together, so that the more there is to do, the less each wish costs. A
 * reply names its call and is checked for it; on any error the connection is dropped, so that a
 * late reply never answers someone else. What became of a call whose connection broke is not known:
 * its wishes are UNAVAILABLE, and a retry finds its claim.
 *
 * A policy has a queue only while something of it is under way or waits, so that an id that
 * somebody made up leaves nothing behind. Only a few queues of ids that this process has never
 * heard of are under way at a time: the others are held in the order they came, so that a crowd
 * that makes up ids is never long in front of those who claim what there is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "gate/redis/gate.h"

#define REDIRECTS_MAX        4
#define TIMER_MS             10
#define WAIT_REPLICAS_MAX_MS 500
#define QUEUE_BUCKETS        4096 /* a power of two */
#define UNKNOWN_MAX          32   /* queues of unknown ids that are under way at a time */

struct redis_line;

/* A batch on its way; it lands when all of its calls have. */
struct redis_sent_batch {
    struct gate_batch *batch;
    size_t calls_left; /* and 1 until it has departed */
    bool is_claiming;  /* gate_redis_claim() tells by its return that it has landed */
    bool has_landed;
    struct redis_sent_batch *next; /* to depart */
};

/* The calls about one policy. */
struct redis_queue {
    int64_t policy_id;
    size_t busy_count;                /* calls under way, and whoever is sending some */
    bool is_unknown;                  /* nobody here has heard of the policy */
    struct redis_sent_batch *waiting; /* to depart, in order */
    struct redis_sent_batch **waiting_end;
    struct redis_queue *next; /* in its bucket */
    struct redis_queue *next_held;
};

/* Up to CALL_WISHES_MAX wishes of one or more batches, in one FCALL. */
struct redis_call_out {
    struct redis_line *line;
    struct redis_queue *queue; /* NULL: it is decided */
    int64_t policy_id;
    struct redis_channel *channel;
    struct redis_call_out *next; /* all calls of the line */
    struct redis_call_out *previous;
    int64_t deadline_ms;
    int redirects;
    int64_t settle_until_ms; /* it is decided, and waits for the ledger; 0: it does not */
    bool is_asked;           /* a question is on its way */
    bool waits;              /* the reply of WAIT follows, and only that one lands it */
    char name[24];
    size_t count;
    struct redis_sent_batch *sent_batches[CALL_WISHES_MAX]; /* of each wish */
    struct wish *wishes[CALL_WISHES_MAX];
};

struct redis_line {
    struct gate_line line; /* first */
    struct gate_redis *gate;
    struct gate_line_options options;
    uv_timer_t *timer;
    bool is_closing;
    uint64_t last_name;
    struct redis_channels channels;
    struct redis_call_out *calls;
    struct hash_key queues_key;
    struct redis_queue *queues[QUEUE_BUCKETS];
    size_t unknown_count; /* of the queues that are under way */
    struct redis_queue *held;
    struct redis_queue **held_end;
    bool starts_held; /* queues that were held are being sent: not from within */
    struct redis_args words;
};

static void redis_line_send(struct redis_call_out *call, struct redis_channel *channel);
static void redis_queue_let_go(struct redis_line *line, struct redis_queue *queue);

/* --- queues --- */

/* Where the policy's queue hangs, or NULL does. */
static struct redis_queue **redis_line_queue(struct redis_line *line, int64_t policy_id)
{
    uint64_t hash = hash_table(line->queues_key, &policy_id, sizeof(policy_id));
    struct redis_queue **place = &line->queues[hash % QUEUE_BUCKETS];

    while (*place != NULL && (*place)->policy_id != policy_id)
        place = &(*place)->next;
    return place;
}

static struct redis_queue *redis_queue_new(struct redis_line *line, int64_t policy_id)
{
    struct redis_queue *queue = calloc(1, sizeof(*queue));

    ensure(queue != NULL);
    queue->policy_id = policy_id;
    queue->is_unknown = !redis_watch_has(&line->gate->watch, policy_id);
    queue->waiting_end = &queue->waiting;
    return queue;
}

/* The next one of those that were held and need not wait any longer, or NULL. */
static struct redis_queue *redis_line_next_held(struct redis_line *line)
{
    struct redis_queue *queue = line->held;

    if (queue == NULL || line->unknown_count >= UNKNOWN_MAX)
        return NULL;
    line->held = queue->next_held;
    if (line->held == NULL)
        line->held_end = &line->held;
    line->unknown_count++;
    return queue;
}

/* --- landing --- */

/* Lets go of a sent batch for one call: the last one lands it. */
static void redis_sent_batch_release(struct redis_line *line, struct redis_sent_batch *sent_batch)
{
    if (--sent_batch->calls_left > 0)
        return;
    sent_batch->has_landed = true;
    if (sent_batch->is_claiming)
        return;
    struct gate_batch *batch = sent_batch->batch;
    free(sent_batch);
    if (!line->is_closing)
        line->options.decided(line->options.context, batch);
}

/* A call is decided: when it was the last one under way, what has gathered departs. */
static void redis_call_leave_queue(struct redis_call_out *call)
{
    struct redis_queue *queue = call->queue;
    size_t won_count = 0;

    if (queue == NULL)
        return;
    for (size_t i = 0; i < call->count; i++)
        won_count += call->wishes[i]->verdict == VERDICT_WON;
    redis_watch_answered(&call->line->gate->watch, call->policy_id, call->count, won_count);
    call->queue = NULL;
    redis_queue_let_go(call->line, queue);
}

static void redis_call_land(struct redis_call_out *call)
{
    struct redis_line *line = call->line;

    if (line->calls == call)
        line->calls = call->next;
    else
        call->previous->next = call->next;
    if (call->next != NULL)
        call->next->previous = call->previous;
    redis_call_leave_queue(call);
    for (size_t i = 0; i < call->count; i++)
        if (i + 1 == call->count || call->sent_batches[i + 1] != call->sent_batches[i])
            redis_sent_batch_release(line, call->sent_batches[i]);
    free(call);
}

/* It is over without an answer, and lands unless the reply of WAIT is still to come. */
static void redis_call_fail(struct redis_call_out *call, enum verdict verdict, bool is_away,
                            bool is_gone)
{
    for (size_t i = 0; i < call->count; i++) {
        struct wish *wish = call->wishes[i];
        wish->verdict = verdict;
        wish->ticket = 0;
        wish->is_accepted = false;
        wish->is_away = is_away;
        wish->is_gone = is_gone;
    }
    if (!call->waits)
        redis_call_land(call);
}

/* Redis is not there, or not well. */
static void redis_call_is_away(struct redis_call_out *call)
{
    redis_call_fail(call, VERDICT_UNAVAILABLE, true, false);
}

/* --- replies --- */

/* An error reply: to another server, or to the wishes. */
static void redis_call_refused(struct redis_call_out *call, enum redis_trouble trouble,
                               const char *words)
{
    struct redis_line *line = call->line;
    struct redis_channel *channel = call->channel;
    struct redis_address to;

    if (!call->waits && (trouble == REDIS_TROUBLE_MOVED || trouble == REDIS_TROUBLE_ASK) &&
        call->redirects++ < REDIRECTS_MAX &&
        redis_map_read_redirect(words, &channel->address, &to)) {
        struct redis_channel *other = redis_channels_find(&line->channels, &to);
        if (trouble == REDIS_TROUBLE_ASK && redis_channel_open(other) != NULL)
            (void)redisAsyncCommand(other->link, NULL, NULL, "ASKING");
        redis_line_send(call, other);
        return;
    }
    if (trouble == REDIS_TROUBLE_DROP)
        redis_channel_drop(channel);
    /* One that is known here was lost there, and comes back from the ledger. */
    bool is_gone = trouble == REDIS_TROUBLE_NO_POLICY;
    bool is_unknown = is_gone && !redis_watch_has(&line->gate->watch, call->policy_id);
    redis_call_fail(call, is_unknown ? VERDICT_NO_POLICY : VERDICT_UNAVAILABLE,
                    trouble == REDIS_TROUBLE_LATER || trouble == REDIS_TROUBLE_DROP, is_gone);
}

/* With GATE_ACK_LEDGER such wishes wait for the ledger. */
static bool redis_call_must_settle(const struct redis_call_out *call)
{
    if (call->line->gate->options.ack != GATE_ACK_LEDGER)
        return false;
    for (size_t i = 0; i < call->count; i++)
        if (redis_wish_is_unsettled(call->wishes[i]))
            return true;
    return false;
}

/* Its time is over: a win is told as accepted; that nothing is left is not certain. */
static void redis_call_give_up(struct redis_call_out *call)
{
    for (size_t i = 0; i < call->count; i++)
        if (call->wishes[i]->verdict == VERDICT_SOLD_OUT)
            call->wishes[i]->verdict = VERDICT_UNAVAILABLE;
    redis_call_land(call);
}

static void redis_call_decided(struct redis_call_out *call)
{
    FAULT_POINT("gate.after_decision");
    redis_call_leave_queue(call);
    if (!redis_call_must_settle(call)) {
        redis_call_land(call);
        return;
    }
    call->is_asked = false;
    call->settle_until_ms = clock_monotonic_ms() + call->line->gate->options.ack_timeout_ms;
}

static void redis_line_on_verdicts(redisAsyncContext *link, void *answer, void *context)
{
    struct redis_call_out *call = context;
    redisReply *reply = answer;

    redis_uv_mind(link);
    enum redis_trouble trouble = redis_trouble_of(reply);
    if (reply == NULL) {
        redis_call_is_away(call);
    } else if (trouble != REDIS_TROUBLE_NONE) {
        redis_call_refused(call, trouble, redis_reply_error(reply));
    } else if (redis_verdicts_read(reply, call->name, call->wishes, call->count)) {
        redis_channel_is_well(call->channel);
        redis_watch_meet(&call->line->gate->watch, call->policy_id);
        if (!call->waits)
            redis_call_decided(call);
    } else {
        /* Whose answer this is, nobody knows: no other one on this connection is read. */
        log_event(LOG_ERROR, "gate_answers_wrongly", LOG_FIELD("batch", LOG_TEXT(call->name)));
        redis_channel_drop(call->channel);
        redis_call_is_away(call);
    }
    freeReplyObject(reply);
}

/* Too few replicas have it in time: the claim may be lost with the primary, so it is not told. */
static void redis_line_on_replicas(redisAsyncContext *link, void *answer, void *context)
{
    struct redis_call_out *call = context;
    redisReply *reply = answer;
    int64_t replicas;
    bool is_safe =
        redis_reply_number(reply, call->line->gate->options.replicas, REDIS_COUNT_MAX, &replicas);

    redis_uv_mind(link);
    for (size_t i = 0; i < call->count && !is_safe; i++) {
        struct wish *wish = call->wishes[i];
        if (wish->verdict == VERDICT_WON || wish->verdict == VERDICT_HELD) {
            wish->verdict = VERDICT_UNAVAILABLE;
            wish->is_accepted = false;
        }
    }
    freeReplyObject(reply);
    redis_call_decided(call);
}

/* --- sending --- */

/* Hands the words that were written last to the connection. */
static bool redis_line_put(const struct redis_line *line, redisAsyncContext *link,
                           redisCallbackFn *on_reply, struct redis_call_out *call)
{
    const struct buffer *text = &line->words.text;

    return !text->overflowed &&
           redisAsyncFormattedCommand(link, on_reply, call, text->bytes, text->length) == REDIS_OK;
}

/* Sends a call on that channel. It lands with UNAVAILABLE when there is none, or no connection. */
static void redis_line_send(struct redis_call_out *call, struct redis_channel *channel)
{
    struct redis_line *line = call->line;
    redisAsyncContext *link = channel == NULL ? NULL : redis_channel_open(channel);
    const struct gate_options *options = &line->gate->options;

    call->channel = channel;
    call->waits = false;
    call->deadline_ms = clock_monotonic_ms() + options->timeout_ms;
    if (link != NULL)
        redis_args_write_claim(&line->words, call->policy_id, call->name, call->wishes, call->count,
                               line->gate);
    /* A command that was taken comes back, with or without a reply. */
    if (link == NULL || !redis_line_put(line, link, redis_line_on_verdicts, call)) {
        redis_call_is_away(call);
        return;
    }
    /* Redis must have answered by the time that it counts as away: replicas have half of it. */
    int64_t half_ms = options->timeout_ms / 2;
    int wait_ms = half_ms < WAIT_REPLICAS_MAX_MS ? (int)half_ms : WAIT_REPLICAS_MAX_MS;
    if (options->replicas > 0)
        call->waits = redisAsyncCommand(link, redis_line_on_replicas, call, "WAIT %d %d",
                                        options->replicas, wait_ms) == REDIS_OK;
}

static struct redis_call_out *redis_call_new(struct redis_line *line, struct redis_queue *queue)
{
    struct redis_call_out *call = malloc(sizeof(*call));

    ensure(call != NULL);
    memset(call, 0, offsetof(struct redis_call_out, sent_batches));
    call->line = line;
    call->queue = queue;
    call->policy_id = queue->policy_id;
    snprintf(call->name, sizeof(call->name), "%llx", (unsigned long long)++line->last_name);
    call->next = line->calls;
    if (call->next != NULL)
        call->next->previous = call;
    line->calls = call;
    queue->busy_count++;
    return call;
}

static void redis_line_keep_time(struct redis_line *line);

/* Where calls about a policy go now. NULL: nowhere. */
static struct redis_channel *redis_queue_channel(struct redis_line *line, int64_t policy_id)
{
    struct redis_address address;

    if (line->is_closing || !redis_map_find(&line->gate->map, policy_id, &address))
        return NULL;
    struct redis_channel *channel = redis_channels_find(&line->channels, &address);
    /* The watch has seen that Redis is back: there is no need to pause any longer. */
    if (channel->link == NULL &&
        redis_watch_saw(&line->gate->watch, policy_id, channel->lost_at_ms))
        channel->retry_at_ms = 0;
    return redis_channel_open(channel) == NULL ? NULL : channel;
}

/* Puts the wishes of a sent batch into the call, and into further ones: those that are full are
 * sent. The call that has room left, or NULL. */
static struct redis_call_out *redis_sent_batch_board(struct redis_line *line,
                                                     struct redis_queue *queue,
                                                     struct redis_channel *channel,
                                                     struct redis_sent_batch *sent_batch,
                                                     struct redis_call_out *call)
{
    bool is_aboard = false; /* of this call */

    for (size_t i = 0; i < sent_batch->batch->count; i++) {
        struct wish *wish = sent_batch->batch->wishes[i];
        if (wish->verdict != VERDICT_UNDECIDED)
            continue;
        if (call == NULL)
            call = redis_call_new(line, queue);
        if (!is_aboard)
            sent_batch->calls_left++;
        is_aboard = true;
        call->sent_batches[call->count] = sent_batch;
        call->wishes[call->count++] = wish;
        if (call->count == CALL_WISHES_MAX) {
            redis_line_send(call, channel);
            call = NULL;
            is_aboard = false;
        }
    }
    return call;
}

/* Sends all that has gathered about a policy, in as few calls as can be. */
static void redis_queue_send(struct redis_line *line, struct redis_queue *queue)
{
    struct redis_sent_batch *sent_batches = queue->waiting;
    struct redis_call_out *call = NULL;

    queue->waiting = NULL;
    queue->waiting_end = &queue->waiting;
    struct redis_channel *channel = redis_queue_channel(line, queue->policy_id);
    if (channel != NULL)
        redis_line_keep_time(line);
    for (struct redis_sent_batch *sent_batch = sent_batches; sent_batch != NULL;
         sent_batch = sent_batch->next)
        call = redis_sent_batch_board(line, queue, channel, sent_batch, call);
    if (call != NULL)
        redis_line_send(call, channel);
    /* A call that could not be sent has landed already: the sent batches' own hold is let go last.
     */
    for (struct redis_sent_batch *next; sent_batches != NULL; sent_batches = next) {
        next = sent_batches->next;
        redis_sent_batch_release(line, sent_batches);
    }
}

/* The queue stays busy meanwhile: a call that cannot be sent lands at once. */
static void redis_queue_depart(struct redis_line *line, struct redis_queue *queue)
{
    queue->busy_count++;
    redis_queue_send(line, queue);
    redis_queue_let_go(line, queue);
}

/* One call less is under way: after the last, what has gathered departs, or the queue ends. */
static void redis_queue_let_go(struct redis_line *line, struct redis_queue *queue)
{
    if (--queue->busy_count > 0)
        return;
    if (queue->waiting != NULL) {
        redis_queue_depart(line, queue);
        return;
    }
    *redis_line_queue(line, queue->policy_id) = queue->next;
    line->unknown_count -= queue->is_unknown;
    free(queue);
    if (line->starts_held)
        return;
    line->starts_held = true;
    while ((queue = redis_line_next_held(line)) != NULL)
        redis_queue_depart(line, queue);
    line->starts_held = false;
}

bool gate_redis_claim(struct gate_line *gate_line, struct gate_batch *batch, int64_t now_ms)
{
    struct redis_line *line = (struct redis_line *)gate_line;

    (void)now_ms; /* The window is judged by Redis's clock. */
    if (redis_watch_decide(&line->gate->watch, batch, &line->gate->blocklist,
                           &line->gate->options) == 0)
        return true;
    struct redis_sent_batch *sent_batch = calloc(1, sizeof(*sent_batch));
    ensure(sent_batch != NULL);
    *sent_batch = (struct redis_sent_batch){.batch = batch, .calls_left = 1, .is_claiming = true};
    struct redis_queue **place = redis_line_queue(line, batch->policy_id);
    struct redis_queue *queue = *place;
    bool is_new = queue == NULL;
    if (is_new)
        queue = *place = redis_queue_new(line, batch->policy_id);
    *queue->waiting_end = sent_batch;
    queue->waiting_end = &sent_batch->next;
    if (is_new && queue->is_unknown && line->unknown_count == UNKNOWN_MAX) {
        *line->held_end = queue;
        line->held_end = &queue->next_held;
    } else if (is_new) {
        line->unknown_count += queue->is_unknown;
        redis_queue_depart(line, queue);
    }
    sent_batch->is_claiming = false;
    if (!sent_batch->has_landed)
        return false;
    free(sent_batch);
    return true;
}

/* --- waiting for the ledger --- */

static void redis_line_on_settled(redisAsyncContext *link, void *answer, void *context)
{
    struct redis_call_out *call = context;
    redisReply *reply = answer;
    bool is_over = false;

    redis_uv_mind(link);
    call->is_asked = false;
    /* What is not readable is asked again by the timer, until its time is over. */
    (void)redis_settled_read(reply, call->wishes, call->count, &is_over);
    freeReplyObject(reply);
    if (is_over)
        redis_call_land(call);
}

static void redis_call_ask(struct redis_call_out *call)
{
    struct redis_line *line = call->line;
    redisAsyncContext *link = redis_channel_open(call->channel);

    if (link == NULL)
        return;
    redis_args_write_settled(&line->words, call->policy_id, call->wishes, call->count);
    call->is_asked = redis_line_put(line, link, redis_line_on_settled, call);
    call->deadline_ms = clock_monotonic_ms() + line->gate->options.timeout_ms;
}

/* --- time --- */

/* Drops a connection whose oldest call is over its time: everything behind it would be, too. */
static void redis_line_on_timer(uv_timer_t *timer)
{
    struct redis_line *line = timer->data;
    int64_t now_ms = clock_monotonic_ms();
    struct redis_call_out *next;

    for (struct redis_call_out *call = line->calls; call != NULL; call = next) {
        next = call->next; /* NOLINT(*Malloc): who lands leaves the list */
        bool is_waiting = call->settle_until_ms == 0 || call->is_asked;
        if (is_waiting && now_ms >= call->deadline_ms) {
            redis_channel_drop(call->channel);
            next = line->calls; /* Others went with it. */
        } else if (!is_waiting && now_ms >= call->settle_until_ms) {
            redis_call_give_up(call);
        } else if (!is_waiting) {
            redis_call_ask(call);
        }
    }
    if (line->calls == NULL)
        uv_timer_stop(timer);
}

static void redis_line_keep_time(struct redis_line *line)
{
    if (!uv_is_active((uv_handle_t *)line->timer))
        uv_timer_start(line->timer, redis_line_on_timer, TIMER_MS, TIMER_MS);
}

/* --- life --- */

enum status gate_redis_line_open(struct gate *gate, const struct gate_line_options *options,
                                 struct gate_line **line, struct error *error)
{
    struct redis_line *opened = calloc(1, sizeof(*opened));
    struct redis_address addresses[REDIS_NODES_MAX];

    *line = NULL;
    if (opened == NULL || (opened->timer = calloc(1, sizeof(*opened->timer))) == NULL) {
        free(opened);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a line to Redis");
    }
    opened->line.gate = gate;
    opened->gate = gate_redis_of(gate);
    opened->options = *options;
    redis_args_init(&opened->words);
    opened->queues_key = hash_key_random();
    opened->held_end = &opened->held;
    opened->channels =
        (struct redis_channels){.target = &opened->gate->target, .loop = options->loop};
    uv_timer_init(options->loop, opened->timer);
    opened->timer->data = opened;
    size_t count = redis_map_list(&opened->gate->map, addresses, REDIS_NODES_MAX);
    for (size_t i = 0; i < count; i++)
        (void)redis_channel_open(redis_channels_find(&opened->channels, &addresses[i]));
    *line = &opened->line;
    return STATUS_OK;
}

static void redis_line_on_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

void gate_redis_line_close(struct gate_line *gate_line)
{
    struct redis_line *line = (struct redis_line *)gate_line;

    line->is_closing = true;
    uv_close((uv_handle_t *)line->timer, redis_line_on_timer_closed);
    redis_channels_release(&line->channels);
    while (line->calls != NULL)
        redis_call_land(line->calls); /* NOLINT(*Malloc): who lands leaves the list */
    buffer_release(&line->words.text);
    free(line);
}
