/* service.c: opens the parts in order and closes them in the reverse one. */
#include "claim/service.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/zone.h"
#include "claim/parts.h"
#include "claim/retention.h"
#include "claim/totals.h"

#define START_PAUSE_MIN_MS 100
#define START_PAUSE_MAX_MS 1000
#define START_SAY_EVERY_MS 5000

static bool service_find_trace(void *context, const struct request_id *request_id,
                               char traceparent[TRACEPARENT_SIZE])
{
    struct service *service = context;

    return traces_find(service->traces, request_id, traceparent);
}

static void service_on_stock(void *context)
{
    service_stock_changed(context);
}

void service_pause(int64_t pause_ms)
{
    const struct timespec pause = {.tv_sec = pause_ms / 1000, .tv_nsec = pause_ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* --- opening --- */

static enum status service_load_code_key(struct service *service, struct error *error)
{
    struct hash_key fresh;

    if (service->options.has_code_key) {
        service->code_key = service->options.code_key;
        return STATUS_OK;
    }
    random_bytes(&fresh, sizeof(fresh));
    return ledger_secret(service->ledger, SERVICE_CODE_KEY, (const uint8_t *)&fresh,
                         (uint8_t *)&service->code_key, sizeof(service->code_key), error);
}

#define SHORT_CODES_PAGE 1024

/* They never become more: who makes a policy now gives it long codes. */
static enum status service_load_short_codes(struct service *service, struct error *error)
{
    size_t count = 0;

    service->short_code_count = 0;
    do {
        size_t known = service->short_code_count;
        int64_t *grown =
            reallocarray(service->short_codes, known + SHORT_CODES_PAGE, sizeof(*grown));
        if (grown == NULL)
            return error_set(error, STATUS_FAILED, "no memory for the policies of old");
        service->short_codes = grown;
        enum status status =
            ledger_short_code_policies(service->ledger, known > 0 ? grown[known - 1] : 0,
                                       grown + known, SHORT_CODES_PAGE, &count, error);
        if (status != STATUS_OK)
            return status;
        service->short_code_count += count;
    } while (count == SHORT_CODES_PAGE);
    return STATUS_OK;
}

/* What the ledger is opened with. */
static enum status service_prepare(struct service *service, struct error *error)
{
    const struct service_options *options = &service->options;

    service->topology =
        strcmp(options->gate_url, "local") == 0 ? &topology_local : &topology_shared;
    bool tells[LEDGER_SINKS];
    if (service_has_events(options, tells) && (service->traces = traces_new()) == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the traces of requests");
    enum status status =
        zone_open(&service->zone, options->timezone != NULL ? options->timezone : "UTC", error);
    service->scoring =
        (struct scoring){.half_life_ms = options->ranking_half_life_ms, .zone = service->zone};
    if (status == STATUS_OK)
        status = scoring_check_half_life(options->ranking_half_life_ms, error);
    if (status == STATUS_OK)
        status = scoring_read_weights(
            &service->scoring, options->ranking_weights != NULL ? options->ranking_weights : "",
            error);
    return status;
}

static enum status service_open_ledger(struct service *service, struct error *error)
{
    const struct service_options *options = &service->options;
    struct ledger_options ledger_options = {
        .url = options->ledger_url,
        .password = options->ledger_password,
        .use = options->ledger_use,
        .timeout_ms = options->ledger_timeout_ms,
        .integrity = options->integrity,
        .readers = options->pool_threads + 2,
        .zone = service->zone,
        /* Whoever waits for the ledger hears of the first refusal, and can ask again. */
        .issue_attempts = options->ack == GATE_ACK_LEDGER ? 1 : options->issue_attempts,
        .orders_keep_days = service->options.orders_keep_days,
        .keeps_moments = scoring_is_on(&service->scoring),
        .on_issued = service->topology->on_issued,
        .on_durable = service->topology->on_durable,
        .on_events = service_on_events,
        .find_trace = service_find_trace,
        .context = service,
    };

    service_has_events(options, ledger_options.tells);
    return ledger_open(&service->ledger, &ledger_options, error);
}

static enum status service_settle_zone(struct service *service, struct error *error)
{
    return ledger_zone_settle(service->ledger, error);
}

/* Scores are kept in the servers. */
bool service_shares_board(const struct service *service)
{
    return service->shared != NULL && service->options.board != BOARD_LOCAL &&
           !scoring_is_on(&service->scoring);
}

enum status service_open_board(struct service *service, struct board **board, struct error *error)
{
    const struct service_options *options = &service->options;
    const struct board_redis_options redis_options = {
        .url = options->gate_url,
        .password = options->gate_password,
        .timeout_ms = options->gate_timeout_ms,
        .zone = service->zone,
    };

    if (options->board == BOARD_REDIS && service->shared == NULL)
        return error_set(error, STATUS_INVALID,
                         "board=redis needs a gate in Redis: set gate=redis://…, or board=local");
    if (options->board == BOARD_REDIS && scoring_is_on(&service->scoring))
        return error_set(error, STATUS_INVALID,
                         "ranking_half_life and ranking_weights need board=local");
    return service_shares_board(service) ? board_redis_open(board, &redis_options, error)
                                         : board_local_open(board, &service->scoring, error);
}

static enum status service_rank(struct service *service, struct error *error)
{
    struct ranking_options options = {
        .ledger = service->ledger,
        .zone = service->zone,
        .refresh_ms = service->options.ranking_refresh_ms,
        .scoring = &service->scoring,
    };

    if (service->options.role != SERVICE_SERVES)
        return STATUS_OK;
    enum status status = service_open_board(service, &options.board, error);
    return status == STATUS_OK ? ranking_open(&service->ranking, &options, error) : status;
}

enum status service_open_gate(struct service *service, struct error *error)
{
    const struct service_options *options = &service->options;
    struct gate_options gate_options = {
        .url = options->gate_url,
        .password = options->gate_password,
        .timeout_ms = options->gate_timeout_ms,
        .ack = options->ack,
        .replicas = options->replicas,
        .page_size = options->worker_batch,
        .stock_changed = service_on_stock,
        .context = service,
        .outlet = {.push = local_on_win, .context = service},
        .ack_timeout_ms = options->ack_timeout_ms,
        .pending_max = (int64_t)options->pending_max,
        .traces = service->traces,
    };

    enum status status = gate_open(&service->gate, &gate_options, error);
    if (status != STATUS_OK)
        return status;
    service->shared = gate_shared(service->gate);
    service->works = service->shared == NULL || options->role == SERVICE_WORKS ||
                     !ledger_is_shareable(service->ledger);
    return STATUS_OK;
}

static enum status service_start_pool(struct service *service, struct error *error)
{
    return worker_pool_start(&service->pool, service, service->options.pool_threads, error);
}

/* Pauses between the tries of a start; the operator is told about them. */
struct start_wait {
    int64_t timeout_ms; /* for the whole start; 0: do not wait */
    int64_t since_ms;   /* of the first failure; 0: none yet */
    int64_t said_ms;    /* when the log last told of it */
    int64_t pause_ms;
};

/* After a step that ended with `status`: true when it is to be taken again, after a pause. When the
 * time is over, the error says so. */
static bool start_wait_again(struct start_wait *wait, enum status status, struct error *error)
{
    int64_t now_ms = clock_monotonic_ms();
    bool may_pass =
        status == STATUS_UNAVAILABLE || status == STATUS_BUSY || status == STATUS_UNKNOWN;

    if (status == STATUS_OK && wait->said_ms != 0) {
        log_event(LOG_INFO, "start_goes_on",
                  LOG_FIELD("waited_ms", LOG_I64(now_ms - wait->since_ms)));
        wait->said_ms = 0;
        wait->pause_ms = 0;
    }
    if (!may_pass || wait->timeout_ms == 0)
        return false;
    if (wait->since_ms == 0)
        wait->since_ms = now_ms;
    if (now_ms - wait->since_ms >= wait->timeout_ms) {
        error_prefix(error, "given up after %lld s (start_timeout)",
                     (long long)(wait->timeout_ms / 1000));
        return false;
    }
    if (wait->said_ms == 0 || now_ms - wait->said_ms >= START_SAY_EVERY_MS) {
        wait->said_ms = now_ms;
        log_event(LOG_WARN, "start_waits",
                  LOG_FIELD("waited_s", LOG_I64((now_ms - wait->since_ms) / 1000)),
                  LOG_FIELD("start_timeout_s", LOG_I64(wait->timeout_ms / 1000)),
                  LOG_FIELD("for", LOG_TEXT(error->text)));
    }
    wait->pause_ms = wait->pause_ms == 0 ? START_PAUSE_MIN_MS : wait->pause_ms * 2;
    if (wait->pause_ms > START_PAUSE_MAX_MS)
        wait->pause_ms = START_PAUSE_MAX_MS;
    service_pause(wait->pause_ms);
    return true;
}

/* The steps of opening, in order; those of the topology come between. */
static const struct service_step service_steps_before[] = {
    {service_prepare, ASKS_NOBODY},
    {service_open_ledger, ASKS_LEDGER},
    {service_settle_zone, ASKS_LEDGER},
    {service_open_gate, ASKS_GATE},
};
/* What a process that serves or works needs besides; one that only audits does not. */
static const struct service_step service_steps_running[] = {
    {service_open_kafka, ASKS_NOBODY},
    {service_load_code_key, ASKS_LEDGER},
    {service_load_short_codes, ASKS_LEDGER},
};
static const struct service_step service_steps_after[] = {
    {service_open_events, ASKS_NOBODY}, {service_rank, ASKS_NOBODY},
    {steward_start, ASKS_NOBODY},       {service_start_pool, ASKS_NOBODY},
    {audit_watch_start, ASKS_NOBODY},   {totals_start, ASKS_NOBODY},
    {retention_start, ASKS_NOBODY},
};

/* A file is there or is not. */
static bool service_step_waits(const struct service *service, const struct service_step *step)
{
    return step->asks == ASKS_GATE ||
           (step->asks == ASKS_LEDGER && ledger_is_served(service->options.ledger_url));
}

static enum status service_take_steps(struct service *service, struct start_wait *wait,
                                      const struct service_step *steps, size_t count,
                                      struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        do {
            status = steps[i].take(service, error);
        } while (service_step_waits(service, &steps[i]) && start_wait_again(wait, status, error));
    return status;
}

#define TAKE_STEPS(steps) \
    service_take_steps(service, &wait, steps, sizeof(steps) / sizeof((steps)[0]), error)

static enum status service_open_parts(struct service *service, struct error *error)
{
    struct start_wait wait = {.timeout_ms = service->options.start_timeout_ms};
    enum status status = TAKE_STEPS(service_steps_before);

    if (status != STATUS_OK || service->options.role == SERVICE_AUDITS)
        return status;
    status = TAKE_STEPS(service_steps_running);
    if (status == STATUS_OK)
        status = service_take_steps(service, &wait, service->topology->steps,
                                    service->topology->step_count, error);
    return status == STATUS_OK ? TAKE_STEPS(service_steps_after) : status;
}

enum status service_open(struct service **service, const struct service_options *options,
                         struct error *error)
{
    struct service *opened = calloc(1, sizeof(*opened));

    *service = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the service");
    opened->options = *options;
    atomic_init(&opened->worker_count, -1);
    pthread_mutex_init(&opened->wakeups_lock, NULL);
    notices_init(&opened->notices);
    steward_init(&opened->steward, opened);
    enum status status = service_open_parts(opened, error);
    if (status != STATUS_OK) {
        service_close(opened);
        return status;
    }
    *service = opened;
    return STATUS_OK;
}

void service_close(struct service *service)
{
    if (service == NULL)
        return;
    int64_t stop_at_ms = clock_monotonic_ms() + service->options.stop_timeout_ms;
    audit_watch_stop(service->audit_watch);
    totals_stop(service->totals);
    retention_stop(service->retention);
    if (service->pool.thread_count > 0)
        worker_pool_stop(&service->pool);
    ranking_close(service->ranking);
    restore_stop(service->restore);
    steward_stop(&service->steward);
    sync_stop(service->sync);
    fallback_stop(service->fallback);
    workers_stop(service->workers, stop_at_ms);
    terms_stop(service->terms);
    service_stop_events(service, stop_at_ms);
    ledger_close(service->ledger);
    service_close_events(service);
    workers_end(service->workers);
    steward_release(&service->steward);
    kafka_close(service->kafka);
    traces_free(service->traces);
    gate_close(service->gate);
    zone_free(service->zone);
    pthread_mutex_destroy(&service->wakeups_lock);
    notices_release(&service->notices);
    free(service->short_codes);
    free(service);
}

struct notices *service_notices(struct service *service)
{
    return &service->notices;
}

struct totals *service_totals(struct service *service)
{
    return service->totals;
}

struct gate *service_gate(struct service *service)
{
    return service->gate;
}

struct ledger *service_ledger(struct service *service)
{
    return service->ledger;
}

struct ranking *service_ranking(struct service *service)
{
    return service->ranking;
}

bool service_is_alone(const struct service *service)
{
    return service->options.ledger_use == LEDGER_OWN || !ledger_is_shareable(service->ledger);
}

bool service_reads_at_home(const struct service *service)
{
    return service->shared == NULL && !ledger_is_shareable(service->ledger);
}

bool service_submit(struct service *service, struct pool_task *task)
{
    return worker_pool_submit(&service->pool, task);
}

struct pool_numbers service_count_tasks(struct service *service, enum pool_queue queue)
{
    return worker_pool_count(&service->pool, queue);
}

enum status service_refresh(struct service *service, int64_t policy_id, struct policy *policy,
                            struct error *error)
{
    enum status status = ledger_policy_get(service->ledger, policy_id, policy, error);
    return status == STATUS_OK ? gate_policy_set(service->gate, policy, error) : status;
}

int64_t service_pending(struct service *service, int64_t *stuck_ms)
{
    int64_t ids[64];
    int64_t after_id = 0;
    int64_t pending = 0;
    int64_t now_ms = clock_monotonic_ms();
    size_t count;

    *stuck_ms = 0;
    if (service->shared == NULL)
        return -1;
    while ((count = gate_list(service->gate, after_id, ids, 64)) > 0) {
        for (size_t i = 0; i < count; i++) {
            struct gate_numbers numbers;
            if (gate_count(service->gate, ids[i], 0, &numbers) != STATUS_OK)
                continue;
            pending += numbers.pending;
            if (numbers.stuck_since_ms != 0 && now_ms - numbers.stuck_since_ms > *stuck_ms)
                *stuck_ms = now_ms - numbers.stuck_since_ms;
        }
        after_id = ids[count - 1];
    }
    return pending;
}

int64_t service_worker_count(struct service *service)
{
    return atomic_load(&service->worker_count);
}

int64_t service_dead_letter_count(struct service *service)
{
    return service->shared != NULL ? atomic_load(&service->dead_letter_count) : -1;
}

void service_trace(struct service *service, const struct request_id *request_id,
                   struct span traceparent)
{
    traces_put(service->traces, request_id, traceparent);
}

/* --- orders, signals, products --- */

/* The board catches up at once, whatever the outcome was. */
static void service_sold(struct service *service)
{
    if (service->ranking != NULL)
        ranking_wake(service->ranking);
}

enum status service_orders_add(struct service *service, struct order *orders, size_t count,
                               struct error *error)
{
    enum status status = ledger_orders_add(service->ledger, orders, count, clock_wall_ms(), error);

    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        atomic_fetch_add_explicit(&service->sales.orders[orders[i].result], 1,
                                  memory_order_relaxed);
    if (status != STATUS_OK)
        atomic_fetch_add_explicit(&service->sales.orders_failed, count, memory_order_relaxed);
    service_sold(service);
    return status;
}

enum status service_order_refund(struct service *service, const struct id *order_id,
                                 struct order *order, bool *is_news, struct error *error)
{
    enum status status =
        ledger_order_refund(service->ledger, order_id, clock_wall_ms(), order, is_news, error);

    if (status == STATUS_OK && *is_news)
        atomic_fetch_add_explicit(&service->sales.refunds, 1, memory_order_relaxed);
    service_sold(service);
    return status;
}

enum status service_signals_add(struct service *service, struct signal *signals, size_t count,
                                struct error *error)
{
    const struct scoring *scoring = &service->scoring;

    if (scoring->weights[SALES_VIEW] == 0 && scoring->weights[SALES_CART] == 0)
        return error_set(error, STATUS_CONFLICT,
                         "This server ranks by orders alone; ranking_weights makes views and carts "
                         "count.");
    enum status status =
        ledger_signals_add(service->ledger, signals, count, clock_wall_ms(), error);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        atomic_fetch_add_explicit(&service->sales.signals[signals[i].result], 1,
                                  memory_order_relaxed);
    service_sold(service);
    return status;
}

const struct sales_numbers *service_sales(const struct service *service)
{
    return &service->sales;
}

enum status service_products_put(struct service *service, struct product *products, size_t count,
                                 struct error *error)
{
    int64_t now_ms = clock_wall_ms();

    for (size_t i = 0; i < count; i++)
        products[i].updated_at_ms = now_ms;
    return ledger_products_put(service->ledger, products, count, now_ms, error);
}
