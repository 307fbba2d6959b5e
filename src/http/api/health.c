/* health.c: liveness, readiness with each part's state, and Prometheus metrics. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "claim/audit.h"
#include "gate/shared.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"
#include "ranking/ranking.h"
#include "version.h"

/* More policies than this are not shown one by one. */
#define POLICIES_SHOWN_MAX 1000
#define ROOMS_SHOWN_MAX    64
#define NANOSECONDS        1e9
/* The same text is sent again within this time. */
#define METRICS_AGE_MS 1000

void health_live(struct ask *ask)
{
    reply_json(ask->loop, ask->exchange, 200, SPAN("{\"status\":\"ok\"}"));
}

/* What is behind it is nobody's business but the operators'. */
static void append_parts(struct buffer *body, const struct service_part *parts, size_t count)
{
    buffer_append_literal(body, ",\"parts\":[");
    for (size_t index = 0; index < count; index++) {
        json_begin(body, '{');
        json_put(body, "name", parts[index].name);
        json_put(body, "kind", parts[index].kind);
        json_put_flag(body, "ready", parts[index].ready);
        json_put(body, "detail", parts[index].text);
        buffer_append_literal(body, "}");
    }
    buffer_append_literal(body, "]");
}

void health_ready(struct ask *ask)
{
    struct api *api = ask->loop->api;
    struct service_part parts[SERVICE_PARTS];
    /* A server that stops is no place to send new work to. */
    size_t count;
    bool ready = service_parts(api->service, parts, &count) && !api_stopping(api);
    struct buffer *body = &ask->loop->body;
    buffer_clear(body);
    json_begin(body, '{');
    json_put_flag(body, "ready", ready);
    if (ask_is_admin(ask))
        append_parts(body, parts, count);
    buffer_append_literal(body, "}");
    reply_json(ask->loop, ask->exchange, ready ? 200 : 503,
               (struct span){body->bytes, body->length});
}

/* --- metrics --- */

/* What all loops have counted together. */
struct totals {
    uint64_t claims[CLAIM_RESULT_COUNT];
    uint64_t responses[RESPONSE_CLASSES];
    uint64_t rankings;
    uint64_t streams;
    uint64_t streams_refused;
    struct histogram_snapshot claim_ns;
    struct histogram_snapshot batch_size;
};

static uint64_t peek(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void add_up(struct api *api, struct totals *totals)
{
    pthread_mutex_lock(&api->loops_lock);
    for (unsigned index = 0; index < api->loops_max; index++) {
        const struct api_loop *loop = api->loops[index];
        if (loop == NULL)
            continue;
        for (unsigned result = 0; result < CLAIM_RESULT_COUNT; result++)
            totals->claims[result] += peek(&loop->counters.claims[result]);
        for (unsigned class = 0; class < RESPONSE_CLASSES; class ++)
            totals->responses[class] += peek(&loop->counters.responses[class]);
        totals->rankings += peek(&loop->counters.rankings);
        totals->streams += peek(&loop->counters.streams_open);
        totals->streams_refused += peek(&loop->counters.streams_refused);
        histogram_add_to(&loop->counters.claim_ns, &totals->claim_ns);
        if (loop->desk != NULL)
            histogram_add_to(desk_batch_sizes(loop->desk), &totals->batch_size);
    }
    pthread_mutex_unlock(&api->loops_lock);
}

/* A time that is shown in seconds. */
static void seconds(struct buffer *out, const char *name, const char *help, int64_t ms)
{
    metrics_family(out, name, METRICS_GAUGE, help);
    metrics_sample(out, name, NULL, ms < 0 ? 0 : (double)ms / 1000);
}

static void labelled(struct buffer *out, const char *name, const char *label, const char *value,
                     uint64_t number)
{
    char labels[64];
    snprintf(labels, sizeof(labels), "%s=\"%s\"", label, value);
    metrics_sample_u64(out, name, labels, number);
}

static void write_claims(struct buffer *out, const struct totals *totals)
{
    metrics_family(out, "dibs_claims_total", METRICS_COUNTER, "Claims by their result.");
    for (unsigned result = 0; result < CLAIM_RESULT_COUNT; result++)
        labelled(out, "dibs_claims_total", "result", claim_result_name(result),
                 totals->claims[result]);
    metrics_family(out, "dibs_claim_seconds", METRICS_HISTOGRAM,
                   "From the complete request to the answer of a claim.");
    metrics_histogram(out, "dibs_claim_seconds", NULL, &totals->claim_ns, NANOSECONDS);
    metrics_family(out, "dibs_gate_batch_size", METRICS_HISTOGRAM,
                   "Claims decided by one call of the gate.");
    metrics_histogram(out, "dibs_gate_batch_size", NULL, &totals->batch_size, 1);
}

static void write_ledger(struct buffer *out, struct api *api)
{
    const struct ledger *ledger = service_ledger(api->service);
    const struct ledger_stats *stats = ledger_stats(ledger);
    struct histogram_snapshot commit_ns = {0};
    struct histogram_snapshot batch_size = {0};
    struct histogram_snapshot lag_ns = {0};
    histogram_add_to(&stats->lag_ns, &lag_ns);
    metrics_family(out, "dibs_issue_lag_seconds", METRICS_HISTOGRAM,
                   "From a claim's win at the gate to the commit of its coupon here.");
    metrics_histogram(out, "dibs_issue_lag_seconds", NULL, &lag_ns, NANOSECONDS);
    histogram_add_to(&stats->commit_ns, &commit_ns);
    histogram_add_to(&stats->batch_size, &batch_size);
    metrics_family(out, "dibs_ledger_commit_seconds", METRICS_HISTOGRAM,
                   "One transaction of the ledger, with its sync.");
    metrics_histogram(out, "dibs_ledger_commit_seconds", NULL, &commit_ns, NANOSECONDS);
    metrics_family(out, "dibs_ledger_batch_size", METRICS_HISTOGRAM,
                   "Claims written by one transaction.");
    metrics_histogram(out, "dibs_ledger_batch_size", NULL, &batch_size, 1);
    metrics_single(out, "dibs_ledger_commits_total", METRICS_COUNTER, "Transactions committed.",
                   peek(&stats->commits));
    metrics_single(out, "dibs_ledger_commit_failures_total", METRICS_COUNTER,
                   "Transactions that failed.", peek(&stats->commit_failures));
    metrics_single(out, "dibs_ledger_claims_issued_total", METRICS_COUNTER,
                   "Claims that became coupons.", peek(&stats->claims_issued));
    metrics_single(out, "dibs_ledger_claims_void_total", METRICS_COUNTER, "Claims that ended VOID.",
                   peek(&stats->claims_void));
    metrics_single(out, "dibs_ledger_checkpoints_total", METRICS_COUNTER,
                   "Checkpoints of the database.", peek(&stats->checkpoints));
    metrics_single(out, "dibs_ledger_log_bytes", METRICS_GAUGE,
                   "SQLite: what is in the log (WAL) file.", peek(&stats->log_bytes));
    metrics_single(out, "dibs_ledger_slowed_commits_total", METRICS_COUNTER,
                   "SQLite: commits held back because the log was too long.",
                   peek(&stats->slowed_commits));
    int64_t stuck_ms;
    int64_t pending = service_pending(api->service, &stuck_ms);
    int64_t room = ledger_room(ledger);
    metrics_single(out, "dibs_pending", METRICS_GAUGE, "Claims won and not yet in the ledger.",
                   pending >= 0 ? (uint64_t)pending : ledger_pending(ledger));
    if (pending >= 0) {
        seconds(out, "dibs_pending_stuck_seconds",
                "How long claims of a policy have been pending while none of them was written.",
                stuck_ms);
    }
    if (room >= 0) {
        metrics_single(out, "dibs_ledger_room_bytes", METRICS_GAUGE,
                       "What is free on the disk of the ledger's file.", (uint64_t)room);
    }
    metrics_single(out, "dibs_pending_max", METRICS_GAUGE,
                   "Over so many pending claims new ones get 503.",
                   (uint64_t)api->config->pending_max);
}

/* Of what blocks, by who asks. */
static void write_pool(struct buffer *out, struct api *api)
{
    static const char *const labels[POOL_QUEUES] = {[POOL_STRANGERS] = "queue=\"strangers\"",
                                                    [POOL_KNOWN] = "queue=\"known\"",
                                                    [POOL_ADMINS] = "queue=\"admins\""};
    struct pool_numbers numbers[POOL_QUEUES];
    for (unsigned queue = 0; queue < POOL_QUEUES; queue++)
        numbers[queue] = service_count_tasks(api->service, queue);
    metrics_family(out, "dibs_pool_tasks_waiting", METRICS_GAUGE,
                   "Blocking calls that wait for a thread, by who asks.");
    for (unsigned queue = 0; queue < POOL_QUEUES; queue++)
        metrics_sample_u64(out, "dibs_pool_tasks_waiting", labels[queue], numbers[queue].waiting);
    metrics_family(out, "dibs_pool_tasks_refused_total", METRICS_COUNTER,
                   "Blocking calls that got 503 because too many waited.");
    for (unsigned queue = 0; queue < POOL_QUEUES; queue++) {
        metrics_sample_u64(out, "dibs_pool_tasks_refused_total", labels[queue],
                           numbers[queue].refused);
    }
}

/* Metrics of a process that drains a shared gate. */
static void write_worker(struct buffer *out, struct api *api)
{
    struct worker_numbers numbers;
    int64_t letters = service_dead_letter_count(api->service);
    if (letters >= 0) {
        metrics_single(out, "dibs_dead_letters", METRICS_GAUGE,
                       "Claims that came to nothing, to look at.", (uint64_t)letters);
    }
    int64_t workers = service_worker_count(api->service);
    if (workers >= 0) {
        metrics_single(out, "dibs_workers", METRICS_GAUGE,
                       "Workers that live, of all that share the ledger; every process tells.",
                       (uint64_t)workers);
    }
    if (!service_count_worker(api->service, &numbers))
        return;
    int64_t age_ms =
        numbers.oldest_requested_ms == 0 ? 0 : clock_wall_ms() - numbers.oldest_requested_ms;
    seconds(out, "dibs_pending_oldest_seconds",
            "How long the oldest pending claim has waited for the ledger.", age_ms);
    metrics_single(out, "dibs_drained_total", METRICS_COUNTER,
                   "Claims written to the ledger and taken out of the gate.", numbers.drained);
    metrics_family(out, "dibs_drained_per_second", METRICS_GAUGE, "How fast that goes just now.");
    metrics_sample(out, "dibs_drained_per_second", NULL, numbers.drained_per_second);
    metrics_single(out, "dibs_drain_refused_total", METRICS_COUNTER,
                   "Times that the ledger did not take a claim, which is tried again.",
                   numbers.refused);
    metrics_single(out, "dibs_reconciled_total", METRICS_COUNTER,
                   "Policies built anew in the gate from the ledger.", numbers.reconciled);
}

/* Of orders and signals that came over HTTP. */
static void write_sales(struct buffer *out, struct api *api)
{
    const struct sales_numbers *numbers = service_sales(api->service);
    metrics_family(out, "dibs_orders_total", METRICS_COUNTER,
                   "Orders sent over HTTP, by their result.");
    metrics_sample_u64(out, "dibs_orders_total", "result=\"added\"", numbers->orders[ORDER_ADDED]);
    metrics_sample_u64(out, "dibs_orders_total", "result=\"known\"", numbers->orders[ORDER_KNOWN]);
    metrics_sample_u64(out, "dibs_orders_total", "result=\"conflict\"",
                       numbers->orders[ORDER_DIFFERS]);
    metrics_sample_u64(out, "dibs_orders_total", "result=\"unavailable\"", numbers->orders_failed);
    metrics_single(out, "dibs_refunds_total", METRICS_COUNTER, "Orders that were taken back.",
                   numbers->refunds);
    metrics_family(out, "dibs_signals_total", METRICS_COUNTER, "Views and carts, by their result.");
    metrics_sample_u64(out, "dibs_signals_total", "result=\"added\"",
                       numbers->signals[SIGNAL_ADDED]);
    metrics_sample_u64(out, "dibs_signals_total", "result=\"known\"",
                       numbers->signals[SIGNAL_KNOWN]);
    metrics_sample_u64(out, "dibs_signals_total", "result=\"conflict\"",
                       numbers->signals[SIGNAL_DIFFERS]);
}

/* Metrics of a process that audits in the background. */
static void write_audit(struct buffer *out, struct api *api)
{
    struct audit_numbers numbers;
    if (!service_count_audit(api->service, &numbers))
        return;
    metrics_family(out, "dibs_audit_drift", METRICS_GAUGE,
                   "What the last audit found wrong in all policies, by check.");
    for (unsigned check = 0; check < AUDIT_CHECKS; check++)
        labelled(out, "dibs_audit_drift", "check", audit_check_name(check),
                 (uint64_t)numbers.counts[check]);
    labelled(out, "dibs_audit_drift", "check", "board", (uint64_t)numbers.board.differences);
    seconds(out, "dibs_audit_last_seconds", "Since the last audit of all policies ended.",
            clock_wall_ms() - numbers.ended_at_ms);
    seconds(out, "dibs_audit_took_seconds", "How long that audit took.", numbers.took_ms);
}

/* Metrics of a process that answers which products sell best. */
static void write_ranking(struct buffer *out, struct api *api, const struct totals *totals)
{
    struct ranking *ranking = service_ranking(api->service);
    struct ranking_numbers numbers;
    if (ranking == NULL)
        return;
    write_sales(out, api);
    ranking_count(ranking, &numbers);
    metrics_single(out, "dibs_board_current", METRICS_GAUGE,
                   "1 while the board of the ranking follows the ledger; else the ledger is asked.",
                   numbers.is_current);
    seconds(out, "dibs_board_behind_seconds", "Since the board was last found to have every sale.",
            numbers.behind_ms);
    metrics_single(out, "dibs_board_applied_total", METRICS_COUNTER,
                   "Sales taken over from the feed.", numbers.applied);
    metrics_single(out, "dibs_board_built_total", METRICS_COUNTER,
                   "Times the board was built anew.", numbers.built);
    metrics_single(out, "dibs_ranking_questions_total", METRICS_COUNTER,
                   "Times the best sellers were asked for.", totals->rankings);
    metrics_family(out, "dibs_rankings_total", METRICS_COUNTER,
                   "Rankings that were worked out, by the board or by the ledger.");
    metrics_sample_u64(out, "dibs_rankings_total", "source=\"board\"",
                       numbers.computed - numbers.from_ledger);
    metrics_sample_u64(out, "dibs_rankings_total", "source=\"ledger\"", numbers.from_ledger);
}

/* How full the gate's servers are. */
static void write_gate_rooms(struct buffer *out, struct api *api)
{
    static const char *const names[3] = {"dibs_redis_memory_bytes", "dibs_redis_memory_limit_bytes",
                                         "dibs_redis_keys"};
    static const char *const helps[3] = {"Memory that Redis uses.",
                                         "Its maxmemory; 0 is none: all that the machine has.",
                                         "Keys in its database, of dibs and of others."};
    struct shared_gate *gate = gate_shared(service_gate(api->service));
    struct gate_room *rooms = gate == NULL ? NULL : malloc(ROOMS_SHOWN_MAX * sizeof(*rooms));
    size_t count = rooms == NULL ? 0 : gate_rooms(gate, rooms, ROOMS_SHOWN_MAX);

    for (unsigned kind = 0; kind < 3 && rooms != NULL; kind++) {
        metrics_family(out, names[kind], METRICS_GAUGE, helps[kind]);
        for (size_t index = 0; index < count; index++) {
            const struct gate_room *of = &rooms[index];
            int64_t values[3] = {of->used_bytes, of->limit_bytes, of->key_count};
            char labels[GATE_SERVER_SIZE + 16];
            snprintf(labels, sizeof(labels), "server=\"%s\"", of->server);
            metrics_sample_u64(out, names[kind], labels, (uint64_t)values[kind]);
        }
    }
    free(rooms);
}

/* Metrics of a gate in another process, which may be away. */
static void write_fallback(struct buffer *out, struct api *api)
{
    struct fallback_numbers numbers;
    if (!service_count_fallback(api->service, &numbers))
        return;
    metrics_family(out, "dibs_gate_breakers", METRICS_GAUGE,
                   "Policies whose way to the gate is cut (open) or on trial (half_open).");
    for (unsigned state = BREAKER_HALF_OPEN; state < BREAKER_STATES; state++)
        labelled(out, "dibs_gate_breakers", "state", breaker_state_name(state),
                 numbers.breakers[state]);
    metrics_family(out, "dibs_gate_breaker_switches_total", METRICS_COUNTER,
                   "How often a breaker went into that state.");
    for (unsigned state = 0; state < BREAKER_STATES; state++)
        labelled(out, "dibs_gate_breaker_switches_total", "state", breaker_state_name(state),
                 numbers.switches[state]);
    metrics_family(out, "dibs_fallback_claims_total", METRICS_COUNTER,
                   "Claims decided in the ledger while the gate was away.");
    metrics_sample_u64(out, "dibs_fallback_claims_total", "result=\"won\"", numbers.won);
    metrics_sample_u64(out, "dibs_fallback_claims_total", "result=\"held\"", numbers.held);
    metrics_sample_u64(out, "dibs_fallback_claims_total", "result=\"refused\"", numbers.refused);
    metrics_single(out, "dibs_fallback_entering", METRICS_GAUGE,
                   "Winners of the fallback that the gate has not heard of yet.", numbers.entering);
}

static void write_http(struct buffer *out, struct api *api, const struct totals *totals)
{
    uint64_t connections = 0;
    uint64_t accepted = 0;
    uint64_t requests = 0;
    uint64_t refused = 0;
    uint64_t timeouts = 0;
    for (unsigned index = 0; index < http_server_loop_count(api->server); index++) {
        const struct http_counters *counters = http_server_counters(api->server, index);
        connections += peek(&counters->connections_open);
        accepted += peek(&counters->connections_accepted);
        requests += peek(&counters->requests);
        refused += peek(&counters->refusals) + peek(&counters->connections_refused);
        timeouts += peek(&counters->timeouts);
    }
    metrics_single(out, "dibs_http_connections", METRICS_GAUGE, "Connections open now.",
                   connections);
    metrics_single(out, "dibs_http_connections_total", METRICS_COUNTER, "Connections accepted.",
                   accepted);
    metrics_single(out, "dibs_http_streams", METRICS_GAUGE, "Event streams open now.",
                   totals->streams);
    metrics_single(
        out, "dibs_http_streams_refused_total", METRICS_COUNTER,
        "Event streams that got 503 because too many are open, on a loop or of an address.",
        totals->streams_refused);
    metrics_single(out, "dibs_http_requests_total", METRICS_COUNTER, "Complete requests.",
                   requests);
    metrics_single(out, "dibs_http_refused_total", METRICS_COUNTER,
                   "Requests and connections that HTTP itself refused.", refused);
    metrics_single(out, "dibs_http_timeouts_total", METRICS_COUNTER,
                   "Connections that were too slow.", timeouts);
    metrics_family(out, "dibs_wrong_guesses_total", METRICS_COUNTER,
                   "Wrong codes and tokens, also those that were not looked at any more.");
    metrics_sample_u64(out, "dibs_wrong_guesses_total", "kind=\"code\"",
                       atomic_load(&api->guesses.wrong[GUESS_CODE]));
    metrics_sample_u64(out, "dibs_wrong_guesses_total", "kind=\"token\"",
                       atomic_load(&api->guesses.wrong[GUESS_TOKEN]));
    metrics_single(out, "dibs_guesses_throttled_total", METRICS_COUNTER,
                   "Answers 429 to those who guess codes or tokens.",
                   atomic_load(&api->guesses.throttled));
    metrics_single(out, "dibs_log_dropped_total", METRICS_COUNTER,
                   "Log lines that nobody took in time, or that could not be written.",
                   log_dropped());
    metrics_family(out, "dibs_http_responses_total", METRICS_COUNTER,
                   "Answers by the class of their status.");
    for (unsigned class = 2; class < RESPONSE_CLASSES; class ++) {
        char labels[16];
        snprintf(labels, sizeof(labels), "status=\"%uxx\"", class);
        metrics_sample_u64(out, "dibs_http_responses_total", labels, totals->responses[class]);
    }
}

/* Each family has to be in one piece, so the numbers are gathered before they are written. */
static void write_policies(struct buffer *out, struct api *api, int64_t wall_ms)
{
    static const char *const names[4] = {"dibs_policy_total", "dibs_policy_remaining",
                                         "dibs_policy_pending", "dibs_policy_issued"};
    static const char *const helps[4] = {"Units the policy has.", "Units nobody has claimed yet.",
                                         "Claims won and not yet in the ledger.",
                                         "Active coupons in the ledger."};
    struct gate *gate = service_gate(api->service);
    int64_t *ids = malloc(POLICIES_SHOWN_MAX * sizeof(*ids));
    struct gate_numbers *numbers = malloc(POLICIES_SHOWN_MAX * sizeof(*numbers));
    size_t known = 0;
    size_t shown = 0;
    if (ids != NULL && numbers != NULL)
        known = gate_list(gate, 0, ids, POLICIES_SHOWN_MAX);
    for (size_t index = 0; index < known; index++)
        shown += gate_count(gate, ids[index], wall_ms, &numbers[shown]) == STATUS_OK;
    for (unsigned kind = 0; kind < 4; kind++) {
        metrics_family(out, names[kind], METRICS_GAUGE, helps[kind]);
        for (size_t index = 0; index < shown; index++) {
            const struct gate_numbers *of = &numbers[index];
            int64_t values[4] = {of->total, of->remaining, of->pending, of->issued};
            char labels[40];
            snprintf(labels, sizeof(labels), "policy=\"%lld\"", (long long)of->policy_id);
            metrics_sample_u64(out, names[kind], labels, (uint64_t)values[kind]);
        }
    }
    free(numbers);
    free(ids);
}

void health_write_metrics(struct buffer *out, struct api *api)
{
    struct totals totals = {0};
    struct service_part parts[SERVICE_PARTS];
    size_t part_count;
    add_up(api, &totals);
    metrics_family(out, "dibs_build_info", METRICS_GAUGE, "What runs here.");
    metrics_sample_u64(out, "dibs_build_info",
                       "version=\"" DIBS_VERSION "\",revision=\"" DIBS_REVISION "\"", 1);
    metrics_single(out, "dibs_up", METRICS_GAUGE, "1 when every part is ready.",
                   service_parts(api->service, parts, &part_count) ? 1 : 0);
    metrics_family(out, "dibs_clock_seconds", METRICS_GAUGE,
                   "This machine's time, in seconds since 1970.");
    metrics_sample(out, "dibs_clock_seconds", NULL, (double)clock_wall_ms() / 1000);
    metrics_family(out, "process_start_time_seconds", METRICS_GAUGE,
                   "When the process started, in seconds since 1970.");
    metrics_sample(out, "process_start_time_seconds", NULL, (double)api->started_ms / 1000);
    write_claims(out, &totals);
    write_ledger(out, api);
    write_pool(out, api);
    write_worker(out, api);
    write_audit(out, api);
    write_ranking(out, api, &totals);
    service_write_flow(api->service, out);
    write_fallback(out, api);
    write_gate_rooms(out, api);
    write_http(out, api, &totals);
    write_policies(out, api, clock_wall_ms());
}

/* Where they have a listener of their own, strangers do not get them here. */
void health_metrics(struct ask *ask)
{
    const struct api *api = ask->loop->api;
    bool is_elsewhere = !api->only_watched && api->config->metrics_listen[0] != '\0';
    if (is_elsewhere && !ask_role(ask, ACCESS_VIEWER))
        return;
    bool is_fresh = span_equal(ask->request->query, SPAN("fresh=true")) && ask_is_admin(ask);
    metrics_page_send(api->metrics, ask->loop, ask->exchange, is_fresh ? 0 : METRICS_AGE_MS);
}
