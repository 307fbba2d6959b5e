/* board.c: GET /v1/live: the server and its policies at a glance, for operators; and the directory
 * of these policies. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"
#include "http/live/live.h"
#include "version.h"

#define BOARD_MS     500
#define PAGE         50
#define READ_MS      2000   /* at least so long between two reads that nobody asked for */
#define READ_SHARE   20     /* and so many times as long as the last one took */
#define SHOWN_FOR_MS DAY_MS /* after its end */

/* --- the directory: the newest policies, read page by page --- */

void live_directory_release(struct live_directory *directory)
{
    free(directory->entries);
    pthread_mutex_destroy(&directory->lock);
}

/* When it was closed or will close; 0: that is not known yet. */
static int64_t end_of(const struct policy *policy)
{
    return policy->closed_at_ms != 0 ? policy->closed_at_ms : policy->closes_at_ms;
}

static bool is_over(const struct policy *policy, int64_t wall_ms)
{
    return end_of(policy) != 0 && end_of(policy) <= wall_ms;
}

static bool is_shown(const struct policy *policy, int64_t wall_ms)
{
    return end_of(policy) == 0 || end_of(policy) > wall_ms - SHOWN_FOR_MS;
}

/* Newest first; of the same moment the higher id. */
static int compare_entries(const void *a, const void *b)
{
    const struct live_entry *left = a;
    const struct live_entry *right = b;
    if (left->created_at_ms != right->created_at_ms)
        return left->created_at_ms > right->created_at_ms ? -1 : 1;
    return left->numbers.policy_id > right->numbers.policy_id ? -1 : 1;
}

/* Whether the first makes room for the second: what is over first, then what is older. */
static bool yields_to(const struct live_entry *entry, const struct live_entry *other)
{
    return entry->is_over != other->is_over ? entry->is_over : compare_entries(entry, other) > 0;
}

/* Keeps the entry in a free place, or in that of one which yields to it. */
static void keep_entry(struct live_entry *entries, size_t *count, const struct live_entry *entry)
{
    if (*count < LIVE_DIRECTORY_MAX) {
        entries[(*count)++] = *entry;
        return;
    }
    struct live_entry *least = &entries[0];
    for (size_t index = 1; index < *count; index++)
        if (yields_to(&entries[index], least))
            least = &entries[index];
    if (yields_to(least, entry))
        *least = *entry;
}

static enum status read_pages(struct service *service, struct live_entry *entries, size_t *count,
                              struct policy_view *views, struct error *error)
{
    int64_t wall_ms = clock_wall_ms();
    int64_t after_id = 0;
    for (;;) {
        size_t got = 0;
        enum status status = service_policy_list(service, after_id, views, PAGE, &got, error);
        if (status != STATUS_OK)
            return status;
        for (size_t index = 0; index < got; index++) {
            const struct policy *policy = &views[index].policy;
            if (is_shown(policy, wall_ms)) {
                struct live_entry entry = {.created_at_ms = policy->created_at_ms,
                                           .is_over = is_over(policy, wall_ms),
                                           .numbers = views[index].numbers};
                memcpy(entry.name, policy->name, sizeof(entry.name));
                keep_entry(entries, count, &entry);
            }
        }
        if (got < PAGE)
            return STATUS_OK;
        after_id = views[got - 1].policy.id;
    }
}

static void read_anew(struct live_directory *directory)
{
    struct live_entry *entries = malloc(LIVE_DIRECTORY_MAX * sizeof(*entries));
    struct policy_view *views = malloc(PAGE * sizeof(*views));
    struct error error;
    size_t count = 0;
    /* Cleared before: what is changed meanwhile is read once more. */
    atomic_store(&directory->is_stale, false);
    int64_t began_ms = clock_monotonic_ms();
    /* A ledger that cannot be read just now leaves the board with what it had. */
    if (entries != NULL && views != NULL &&
        read_pages(directory->service, entries, &count, views, &error) == STATUS_OK) {
        qsort(entries, count, sizeof(*entries), compare_entries);
        pthread_mutex_lock(&directory->lock);
        struct live_entry *before = directory->entries;
        directory->entries = entries;
        directory->count = count;
        pthread_mutex_unlock(&directory->lock);
        entries = before;
    }
    int64_t now_ms = clock_monotonic_ms();
    int64_t rest_ms = (now_ms - began_ms) * READ_SHARE;
    atomic_store(&directory->due_ms, now_ms + (rest_ms > READ_MS ? rest_ms : READ_MS));
    free(entries);
    free(views);
}

static bool is_due(struct live_directory *directory, int64_t now_ms)
{
    return atomic_load(&directory->is_stale) || now_ms >= atomic_load(&directory->due_ms);
}

static void work_directory(struct pool_task *task, struct service *service)
{
    struct live_directory *directory =
        (struct live_directory *)(void *)((char *)task - offsetof(struct live_directory, task));
    read_anew(directory);
    atomic_store(&directory->is_being_read, false);
}

/* Has a pool thread read it when that is due. Never blocks. */
static void keep_directory(struct live_directory *directory, int64_t now_ms)
{
    if (!is_due(directory, now_ms) || atomic_exchange(&directory->is_being_read, true))
        return;
    directory->task = (struct pool_task){.work = work_directory, .queue = POOL_ADMINS};
    if (!service_submit(directory->service, &directory->task))
        atomic_store(&directory->is_being_read, false);
}

/* --- the server --- */

static void render_parts(struct buffer *out, const struct service_part *parts, size_t count)
{
    buffer_append_literal(out, ",\"parts\":[");
    for (size_t index = 0; index < count; index++) {
        const struct service_part *part = &parts[index];
        bool is_steward = strcmp(part->name, "steward") == 0;
        json_begin(out, '{');
        json_put(out, "name", is_steward ? "reconciliation" : part->name);
        json_put(out, "state", part->ready ? "ok" : part->claims_go_on ? "degraded" : "down");
        json_put(out, "words", part->text);
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
    uint32_t rates[LIVE_OUTCOMES];
    live_rates(api->live, wall_ms, rates);
    buffer_append_literal(out, ",\"claims_per_s\":{");
    live_put_counts(out, rates, LIVE_OUTCOMES);
    buffer_append_literal(out, "}");
}

static void render_server(struct buffer *out, struct api *api, int64_t wall_ms)
{
    struct service_part parts[SERVICE_PARTS];
    int64_t letters = service_dead_letter_count(api->service);
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
    render_parts(out, parts, count);
    json_put(out, "dead_letters", letters > 0 ? letters : 0);
    json_put(out, "streams", count_streams(api));
    render_rates(out, api, wall_ms);
}

/* --- its policies --- */

static void render_entry(struct buffer *out, struct gate *gate, const struct live_entry *entry,
                         int64_t wall_ms)
{
    struct gate_numbers numbers;
    if (gate_count(gate, entry->numbers.policy_id, wall_ms, &numbers) != STATUS_OK)
        numbers = entry->numbers;
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
        if (sent->policy_id == policy_id)
            return sent->hash;
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
        memcpy(live->sent, now, count * sizeof(now[0]));
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
    if (LIST_EMPTY(&live->board.list))
        return;
    if (now_ms < live->board_due_ms) {
        watchers_tick(&live->board, now_ms);
        return;
    }
    int64_t period_ms = watchers_period_ms(loop, BOARD_MS);
    live->board_due_ms = now_ms + period_ms;
    keep_directory(&loop->api->live->directory, now_ms);
    render_board(&loop->body, loop, BOARD_CHANGED);
    watchers_send(&live->board, (struct span){loop->body.bytes, loop->body.length}, period_ms,
                  now_ms);
    buffer_clear(&live->snapshot);
}

static void work_board(struct call *call, struct service *service)
{
    struct live_directory *directory = &call->loop->api->live->directory;
    if (is_due(directory, clock_monotonic_ms()))
        read_anew(directory);
}

/* Those who come between two renderings of the numbers share a snapshot. */
static void answer_board(struct call *call)
{
    struct api_loop *loop = call->loop;
    struct live_loop *live = loop->live;
    if (live->snapshot.length == 0)
        render_board(&live->snapshot, loop, BOARD_ALL);
    if (LIST_EMPTY(&live->board.list))
        live->board_due_ms = clock_monotonic_ms() + BOARD_MS;
    (void)watchers_add(&live->board, call->exchange,
                       (struct span){live->snapshot.bytes, live->snapshot.length});
    call_free(call);
}

void live_board(struct ask *ask)
{
    struct call *call = call_new(ask, sizeof(*call), work_board);
    if (call != NULL) {
        call->answer = answer_board;
        call_submit_or_refuse(call);
    }
}
