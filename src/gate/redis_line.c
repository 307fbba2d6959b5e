/* redis_line.c: the batches of a loop on their way to Redis and back.
 *
 * One call per policy at a time: while it is under way the batches of the next ticks gather, in the
 * order they came, and leave together, so that the more there is to do, the less each wish costs. A
 * reply names its call and is checked for it; on any error the connection is dropped, so that a
 * late reply never answers someone else. What became of a call whose connection broke is not known:
 * its wishes are UNAVAILABLE, and a retry finds its claim. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "gate/redis_channel.h"
#include "gate/redis_gate.h"
#include "gate/redis_lanes.h"
#include "gate/redis_uv.h"
#include "gate/redis_words.h"

#define REDIRECTS_MAX        4
#define TIMER_MS             10
#define WAIT_REPLICAS_MAX_MS 500
struct redis_line;

/* A batch on its way; it lands when all of its calls have. */
struct redis_flight {
    struct gate_batch *batch;
    size_t calls_left; /* and 1 until it has departed */
    bool is_claiming;  /* gate_redis_claim() tells by its return that it has landed */
    bool has_landed;
    struct redis_flight *next; /* to depart */
};

/* Up to CALL_WISHES_MAX wishes of one or more batches, in one FCALL. */
struct redis_call_out {
    struct redis_line *line;
    struct redis_lane *lane; /* NULL: it is decided */
    int64_t policy_id;
    struct redis_channel *channel;
    struct redis_call_out *next; /* all calls of the line */
    struct redis_call_out *previous;
    int64_t deadline_ms;
    int redirects;
    enum { CALL_DECIDING, CALL_SETTLING } stage;
    int64_t settle_until_ms;
    bool is_asked; /* a question is on its way */
    bool waits;    /* the reply of WAIT follows, and only that one lands it */
    char name[24];
    size_t count;
    struct redis_flight *flights[CALL_WISHES_MAX]; /* of each wish */
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
    struct redis_lanes lanes;
    bool starts_held; /* lanes that were held are being sent: not from within */
    struct redis_words words;
};

static void redis_line_send(struct redis_call_out *call, struct redis_channel *channel);
static void redis_lane_let_go(struct redis_line *line, struct redis_lane *lane);

/* --- landing --- */

static void redis_call_fail(struct redis_call_out *call, enum verdict verdict)
{
    for (size_t i = 0; i < call->count; i++) {
        call->wishes[i]->verdict = verdict;
        call->wishes[i]->ticket = 0;
        call->wishes[i]->is_accepted = false;
        call->wishes[i]->is_away = false;
        call->wishes[i]->is_gone = false;
    }
}

/* Redis is not there, or not well. */
static void redis_call_is_away(struct redis_call_out *call)
{
    redis_call_fail(call, VERDICT_UNAVAILABLE);
    for (size_t i = 0; i < call->count; i++)
        call->wishes[i]->is_away = true;
}

/* Lets go of a flight for one call: the last one lands it. */
static void redis_flight_release(struct redis_line *line, struct redis_flight *flight)
{
    if (--flight->calls_left > 0)
        return;
    flight->has_landed = true;
    if (flight->is_claiming)
        return;
    struct gate_batch *batch = flight->batch;
    free(flight);
    if (!line->is_closing)
        line->options.decided(line->options.context, batch);
}

/* A call is decided: when it was the last one under way, what has gathered departs. */
static void redis_call_leave_lane(struct redis_call_out *call)
{
    struct redis_lane *lane = call->lane;
    size_t won_count = 0;

    for (size_t i = 0; i < call->count && lane != NULL; i++)
        won_count += call->wishes[i]->verdict == VERDICT_WON;
    if (lane != NULL)
        redis_watch_answered(&call->line->gate->watch, call->policy_id, call->count, won_count);
    call->lane = NULL;
    if (lane != NULL)
        redis_lane_let_go(call->line, lane);
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
    redis_call_leave_lane(call);
    for (size_t i = 0; i < call->count; i++) {
        if (i + 1 == call->count || call->flights[i + 1] != call->flights[i])
            redis_flight_release(line, call->flights[i]);
    }
    free(call);
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
    bool is_unknown =
        trouble == REDIS_TROUBLE_NO_POLICY && !redis_watch_has(&line->gate->watch, call->policy_id);
    if (trouble == REDIS_TROUBLE_LATER || trouble == REDIS_TROUBLE_DROP)
        redis_call_is_away(call);
    else
        redis_call_fail(call, is_unknown ? VERDICT_NO_POLICY : VERDICT_UNAVAILABLE);
    for (size_t i = 0; i < call->count && trouble == REDIS_TROUBLE_NO_POLICY; i++)
        call->wishes[i]->is_gone = true;
    if (!call->waits)
        redis_call_land(call);
}

/* With GATE_ACK_LEDGER such wishes wait for the ledger. */
static bool redis_call_must_settle(const struct redis_call_out *call)
{
    if (call->line->gate->options.ack != GATE_ACK_LEDGER)
        return false;
    for (size_t i = 0; i < call->count; i++) {
        if (redis_wish_is_unsettled(call->wishes[i]))
            return true;
    }
    return false;
}

/* Its time is over: a win is told as accepted; that nothing is left is not certain. */
static void redis_call_give_up(struct redis_call_out *call)
{
    for (size_t i = 0; i < call->count; i++) {
        if (call->wishes[i]->verdict == VERDICT_SOLD_OUT)
            call->wishes[i]->verdict = VERDICT_UNAVAILABLE;
    }
    redis_call_land(call);
}

static void redis_call_decided(struct redis_call_out *call)
{
    FAULT_POINT("gate.after_decision");
    redis_call_leave_lane(call);
    if (!redis_call_must_settle(call)) {
        redis_call_land(call);
        return;
    }
    call->stage = CALL_SETTLING;
    call->is_asked = false;
    call->settle_until_ms = clock_monotonic_ms() + call->line->gate->options.ack_timeout_ms;
}

static void redis_line_on_verdicts(redisAsyncContext *link, void *answer, void *context)
{
    struct redis_call_out *call = context;
    redisReply *reply = answer;

    redis_uv_mind(link);
    if (reply == NULL) {
        redis_call_is_away(call);
        if (!call->waits)
            redis_call_land(call);
        return;
    }
    enum redis_trouble trouble = redis_trouble_of(reply);
    if (trouble != REDIS_TROUBLE_NONE) {
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
        if (!call->waits)
            redis_call_land(call);
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

/* How long replicas have. Redis itself must have answered by the time that it counts as away. */
static int redis_line_wait_ms(const struct redis_line *line)
{
    int64_t half_ms = line->gate->options.timeout_ms / 2;
    return half_ms < WAIT_REPLICAS_MAX_MS ? (int)half_ms : WAIT_REPLICAS_MAX_MS;
}

/* Sends a call on that channel. It lands with UNAVAILABLE when the channel is not there. */
static void redis_line_send(struct redis_call_out *call, struct redis_channel *channel)
{
    struct redis_line *line = call->line;
    redisAsyncContext *link = redis_channel_open(channel);
    struct redis_keys keys;
    int replicas = line->gate->options.replicas;

    call->channel = channel;
    call->waits = false;
    call->deadline_ms = clock_monotonic_ms() + line->gate->options.timeout_ms;
    redis_keys_of(&keys, call->policy_id);
    if (link != NULL)
        redis_words_write_claim(&line->words, &keys, call->name, call->wishes, call->count,
                                line->gate);
    /* A command that was taken comes back, with or without a reply. */
    if (link == NULL ||
        redisAsyncCommandArgv(link, redis_line_on_verdicts, call, (int)line->words.count,
                              line->words.argv, line->words.lengths) != REDIS_OK) {
        redis_call_is_away(call);
        redis_call_land(call);
        return;
    }
    if (replicas > 0)
        call->waits = redisAsyncCommand(link, redis_line_on_replicas, call, "WAIT %d %d", replicas,
                                        redis_line_wait_ms(line)) == REDIS_OK;
}

static struct redis_call_out *redis_call_new(struct redis_line *line, struct redis_lane *lane)
{
    struct redis_call_out *call = malloc(sizeof(*call));

    ensure(call != NULL);
    memset(call, 0, offsetof(struct redis_call_out, flights));
    call->line = line;
    call->lane = lane;
    call->policy_id = lane->policy_id;
    snprintf(call->name, sizeof(call->name), "%llx", (unsigned long long)++line->last_name);
    call->next = line->calls;
    if (call->next != NULL)
        call->next->previous = call;
    line->calls = call;
    lane->busy_count++;
    return call;
}

static void redis_line_keep_time(struct redis_line *line);

/* Where calls about a policy go now. NULL: nowhere. */
static struct redis_channel *redis_lane_channel(struct redis_line *line, int64_t policy_id)
{
    struct redis_address address;

    if (line->is_closing || !redis_map_find(&line->gate->map, policy_id, &address))
        return NULL;
    struct redis_channel *channel = redis_channels_find(&line->channels, &address);
    /* Who has seen it back does not pause any longer. */
    if (channel->link == NULL &&
        redis_watch_saw(&line->gate->watch, policy_id, channel->lost_at_ms))
        redis_channel_hurry(channel);
    return redis_channel_open(channel) == NULL ? NULL : channel;
}

static void redis_flight_is_away(struct redis_line *line, const struct redis_flight *flight)
{
    size_t count = 0;

    for (size_t i = 0; i < flight->batch->count; i++) {
        struct wish *wish = flight->batch->wishes[i];
        if (wish->verdict == VERDICT_UNDECIDED) {
            wish->verdict = VERDICT_UNAVAILABLE;
            wish->is_away = true;
            wish->ticket = 0;
            count++;
        }
    }
    redis_watch_answered(&line->gate->watch, flight->batch->policy_id, count, 0);
}

/* Puts the wishes of a flight into the call, and into further ones: those that are full are sent.
 * The call that has room left, or NULL. */
static struct redis_call_out *redis_flight_board(struct redis_line *line, struct redis_lane *lane,
                                                 struct redis_channel *channel,
                                                 struct redis_flight *flight,
                                                 struct redis_call_out *call)
{
    bool is_aboard = false; /* of this call */

    for (size_t i = 0; i < flight->batch->count; i++) {
        struct wish *wish = flight->batch->wishes[i];
        if (wish->verdict != VERDICT_UNDECIDED)
            continue;
        if (call == NULL)
            call = redis_call_new(line, lane);
        if (!is_aboard)
            flight->calls_left++;
        is_aboard = true;
        call->flights[call->count] = flight;
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
static void redis_lane_send(struct redis_line *line, struct redis_lane *lane)
{
    struct redis_flight *flights = lane->waiting;
    struct redis_call_out *call = NULL;

    lane->waiting = NULL;
    lane->waiting_end = &lane->waiting;
    struct redis_channel *channel = redis_lane_channel(line, lane->policy_id);
    if (channel != NULL)
        redis_line_keep_time(line);
    for (struct redis_flight *flight = flights; flight != NULL; flight = flight->next) {
        if (channel == NULL)
            redis_flight_is_away(line, flight);
        else
            call = redis_flight_board(line, lane, channel, flight, call);
    }
    if (call != NULL)
        redis_line_send(call, channel);
    /* A call that could not be sent has landed already: the flights' own hold is let go last. */
    for (struct redis_flight *next; flights != NULL; flights = next) {
        next = flights->next;
        redis_flight_release(line, flights);
    }
}

/* The lane stays busy meanwhile: a call that cannot be sent lands at once. */
static void redis_lane_depart(struct redis_line *line, struct redis_lane *lane)
{
    lane->busy_count++;
    redis_lane_send(line, lane);
    redis_lane_let_go(line, lane);
}

/* One call less is under way: after the last, what has gathered departs, or the lane ends. */
static void redis_lane_let_go(struct redis_line *line, struct redis_lane *lane)
{
    if (--lane->busy_count > 0)
        return;
    if (lane->waiting != NULL) {
        redis_lane_depart(line, lane);
        return;
    }
    redis_lanes_remove(&line->lanes, lane);
    if (line->starts_held)
        return;
    line->starts_held = true;
    while ((lane = redis_lanes_next(&line->lanes)) != NULL)
        redis_lane_depart(line, lane);
    line->starts_held = false;
}

bool gate_redis_claim(struct gate_line *gate_line, struct gate_batch *batch, int64_t now_ms)
{
    struct redis_line *line = (struct redis_line *)gate_line;

    (void)now_ms; /* The window is judged by Redis's clock. */
    if (redis_watch_decide(&line->gate->watch, batch, &line->gate->blocklist,
                           &line->gate->options) == 0)
        return true;
    struct redis_lane *lane = redis_lanes_find(&line->lanes, batch->policy_id);
    bool is_new = lane == NULL;
    if (is_new)
        lane = redis_lanes_add(&line->lanes, batch->policy_id,
                               !redis_watch_has(&line->gate->watch, batch->policy_id));
    struct redis_flight *flight = calloc(1, sizeof(*flight));
    ensure(flight != NULL);
    *flight = (struct redis_flight){.batch = batch, .calls_left = 1, .is_claiming = true};
    *lane->waiting_end = flight;
    lane->waiting_end = &flight->next;
    if (is_new && !redis_lanes_hold(&line->lanes, lane))
        redis_lane_depart(line, lane);
    flight->is_claiming = false;
    if (!flight->has_landed)
        return false;
    free(flight);
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
    struct redis_keys keys;

    if (link == NULL)
        return;
    redis_keys_of(&keys, call->policy_id);
    redis_words_write_settled(&line->words, &keys, call->wishes, call->count);
    call->is_asked =
        redisAsyncCommandArgv(link, redis_line_on_settled, call, (int)line->words.count,
                              line->words.argv, line->words.lengths) == REDIS_OK;
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
        next = call->next;
        bool is_waiting = call->stage == CALL_DECIDING || call->is_asked;
        if (is_waiting && now_ms >= call->deadline_ms) {
            redis_channel_drop(call->channel);
            next = line->calls; /* Others went with it. */
        } else if (call->stage == CALL_SETTLING && !call->is_asked) {
            if (now_ms >= call->settle_until_ms)
                redis_call_give_up(call);
            else
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
    redis_words_init(&opened->words);
    redis_lanes_init(&opened->lanes);
    redis_channels_init(&opened->channels, &opened->gate->target, options->loop);
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
        redis_call_land(line->calls);
    redis_lanes_release(&line->lanes);
    free(line);
}
