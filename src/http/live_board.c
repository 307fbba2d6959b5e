/* live_board.c: GET /v1/live: the server and its policies at a glance, for operators. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/live.h"
#include "http/render.h"
#include "http/reply.h"
#include "version.h"

#define BOARD_MS 500

static const char *const rate_names[LIVE_RATES] = {
    [LIVE_RATE_ISSUED] = "issued",
    [LIVE_RATE_ACCEPTED] = "accepted",
    [LIVE_RATE_ALREADY_ISSUED] = "already_issued",
    [LIVE_RATE_SOLD_OUT] = "sold_out",
    [LIVE_RATE_LIMIT_REACHED] = "limit_reached",
    [LIVE_RATE_NOT_OPEN] = "not_open",
    [LIVE_RATE_OTHER] = "other",
};

/* --- the server --- */

/* A gate or relay that is away is made up for where claims go on without it. */
static const char *part_state(const struct api *api, const struct service_part *part)
{
    if (part->ready) {
        return "ok";
    }
    bool is_gate = strcmp(part->name, "gate") == 0;
    bool goes_on = is_gate ? strcmp(api->config->fallback, "ledger") == 0
                           : service_gate(api->service)->ops->is_shared;
    bool is_told_only = strcmp(part->name, "steward") == 0 || strcmp(part->name, "workers") == 0;
    return goes_on || is_told_only ? "degraded" : "down";
}

static void render_parts(struct buffer *out, struct api *api, const struct service_part *parts,
                         size_t count)
{
    buffer_append_literal(out, ",\"parts\":[");
    for (size_t index = 0; index < count; index++) {
        const struct service_part *part = &parts[index];
        bool is_steward = strcmp(part->name, "steward") == 0;
        buffer_append_text(out, index > 0 ? ",{\"name\":\"" : "{\"name\":\"");
        buffer_append_text(out, is_steward ? "reconciliation" : part->name);
        buffer_append_literal(out, "\",\"state\":\"");
        buffer_append_text(out, part_state(api, part));
        buffer_append_literal(out, "\"");
        json_put(out, "words", part->words);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

static uint64_t count_streams(struct api *api)
{
    uint64_t streams = 0;
    pthread_mutex_lock(&api->loops_lock);
    for (unsigned index = 0; index < api->loops_max; index++) {
        if (api->loops[index] != NULL) {
            streams += atomic_load_explicit(&api->loops[index]->counters.streams_open,
                                            memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&api->loops_lock);
    return streams;
}

static void render_rates(struct buffer *out, struct api *api, int64_t wall_ms)
{
    uint32_t rates[LIVE_RATES];
    live_rates(api->live, wall_ms, rates);
    buffer_append_literal(out, ",\"claims_per_s\":{");
    for (unsigned rate = 0; rate < LIVE_RATES; rate++) {
        buffer_append_text(out, rate > 0 ? ",\"" : "\"");
        buffer_append_text(out, rate_names[rate]);
        buffer_append_literal(out, "\":");
        buffer_append_u64(out, rates[rate]);
    }
    buffer_append_literal(out, "}");
}

static void render_server(struct buffer *out, struct api *api, int64_t wall_ms)
{
    struct service_part parts[SERVICE_PARTS];
    int64_t letters = service_letter_count(api->service);
    size_t count;
    (void)service_parts(api->service, parts, &count);
    buffer_append_literal(out, "{");
    json_put_time(out, "now", wall_ms);
    buffer_append_literal(out, ",\"server\":{\"version\":\"" DIBS_VERSION "\",\"uptime_s\":");
    buffer_append_i64(out, (wall_ms - api->started_ms) / 1000);
    for (size_t index = 0; index < 3; index++) {
        buffer_append_literal(out, ",\"");
        buffer_append_text(out, parts[index].name);
        buffer_append_literal(out, "\":");
        json_append_text(out, span_of(parts[index].kind));
    }
    buffer_append_literal(out, "}");
    render_parts(out, api, parts, count);
    json_put(out, "dead_letters", letters > 0 ? letters : 0);
    json_put(out, "streams", count_streams(api));
    render_rates(out, api, wall_ms);
}

/* --- its policies --- */

static void render_entry(struct buffer *out, struct gate *gate, const struct live_entry *entry,
                         int64_t wall_ms)
{
    struct gate_numbers numbers;
    if (gate_count(gate, entry->numbers.policy_id, wall_ms, &numbers) != STATUS_OK) {
        numbers = entry->numbers;
    }
    json_begin(out, '{');
    json_put(out, "id", numbers.policy_id);
    json_put(out, "name", entry->name);
    render_number_members(out, &numbers);
    buffer_append_literal(out, "}");
}

static uint64_t sent_hash(const struct live_loop *live, size_t index, int64_t policy_id)
{
    /* Mostly it is where it was. */
    for (size_t step = 0; step < live->sent_count; step++) {
        const struct live_sent *sent = &live->sent[(index + step) % live->sent_count];
        if (sent->policy_id == policy_id) {
            return sent->hash;
        }
    }
    return 0;
}

enum board_extent { BOARD_ALL, BOARD_CHANGED };

/* BOARD_CHANGED remembers what it leaves the watchers with; that is what "changed" compares to. */
static void render_policies(struct buffer *out, struct api_loop *loop, enum board_extent extent,
                            int64_t wall_ms)
{
    struct live_directory *directory = &loop->api->live->directory;
    struct gate *gate = service_gate(loop->api->service);
    struct live_loop *live = loop->live;
    struct live_sent now[LIVE_DIRECTORY_MAX];
    buffer_append_literal(out, ",\"policies\":[");
    pthread_mutex_lock(&directory->lock);
    size_t count = directory->count;
    for (size_t index = 0; index < count; index++) {
        const struct live_entry *entry = &directory->entries[index];
        size_t before = out->length;
        render_entry(out, gate, entry, wall_ms);
        size_t begin = before + (out->bytes[before] == ',');
        now[index].policy_id = entry->numbers.policy_id;
        now[index].hash =
            hash_mac((struct hash_key){1, 1}, out->bytes + begin, out->length - begin);
        if (extent == BOARD_CHANGED &&
            sent_hash(live, index, now[index].policy_id) == now[index].hash)
            out->length = before;
    }
    pthread_mutex_unlock(&directory->lock);
    buffer_append_literal(out, "]}");
    if (extent == BOARD_CHANGED) {
        memcpy(live->sent, now, count * sizeof now[0]);
        live->sent_count = count;
    }
}

static void render_board(struct buffer *out, struct api_loop *loop, enum board_extent extent)
{
    int64_t wall_ms = http_loop_wall_ms(loop->http);
    buffer_clear(out);
    buffer_append_text(out,
                       extent == BOARD_ALL ? "event: snapshot\ndata: " : "event: numbers\ndata: ");
    render_server(out, loop->api, wall_ms);
    render_policies(out, loop, extent, wall_ms);
    buffer_append_literal(out, "\n\n");
}

/* --- who watches --- */

static void on_empty(struct watchers *watchers)
{
    struct live_loop *live = watchers->loop->live;
    buffer_release(&live->snapshot);
    live->sent_count = 0;
}

void live_board_init(struct api_loop *loop)
{
    watchers_init(&loop->live->board, loop, on_empty);
    buffer_init(&loop->live->snapshot, ANSWER_LENGTH_MAX);
}

void live_board_tick(struct api_loop *loop, int64_t now_ms)
{
    struct live_loop *live = loop->live;
    if (live->board.first == NULL) {
        return;
    }
    if (now_ms < live->board_due_ms) {
        watchers_tick(&live->board, now_ms);
        return;
    }
    int64_t period_ms = watchers_period_ms(loop, BOARD_MS);
    live->board_due_ms = now_ms + period_ms;
    live_directory_keep(&loop->api->live->directory, now_ms);
    render_board(&loop->body, loop, BOARD_CHANGED);
    watchers_send(&live->board, (struct span){loop->body.bytes, loop->body.length}, period_ms,
                  now_ms);
    buffer_clear(&live->snapshot);
}

static void work_board(struct call *call, struct service *service)
{
    (void)service;
    live_directory_read(&call->loop->api->live->directory);
}

/* Those who come between two renderings of the numbers share a snapshot. */
static void answer_board(struct call *call)
{
    struct api_loop *loop = call->loop;
    struct live_loop *live = loop->live;
    if (live->snapshot.length == 0) {
        render_board(&live->snapshot, loop, BOARD_ALL);
    }
    if (live->board.first == NULL) {
        live->board_due_ms = clock_monotonic_ms() + BOARD_MS;
    }
    (void)watchers_add(&live->board, call->exchange,
                       (struct span){live->snapshot.bytes, live->snapshot.length});
    call_free(call);
}

void live_board(struct ask *ask)
{
    if (!ask_admin(ask) || !ask_no_query(ask)) {
        return;
    }
    struct call *call = call_new(ask->loop, ask->exchange, sizeof *call, work_board);
    if (call != NULL) {
        call->answer = answer_board;
        call_submit_or_refuse(call);
    }
}
