/* service.c: opens the parts in order and closes them in the reverse one. */
#include "claim/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "base/zone.h"
#include "claim/parts.h"
#include "claim/start_wait.h"
#include "relay/kafka.h"

/* For events and orders that are on their way; whoever comes next tells those that stay. */
#define KAFKA_STOP_MIN_MS 500
#define KAFKA_STOP_MAX_MS 2000

/* --- what the ledger tells --- */

/* On the ledger's thread, after a commit: the gate hears first, so that whoever is woken finds it
 * up to date. */
static void service_on_issued(void *context, const struct claim *claims,
                              const enum coupon_state *states, size_t count)
{
    struct service *service = context;

    if (service->workers != NULL) {
        workers_on_issued(service->workers, claims, states, count);
        return;
    }
    gate_acknowledge(service->gate, claims, states, count);
    for (size_t i = 0; i < count; i++) {
        if (!coupon_state_is_active(states[i]))
            steward_call(&service->steward, claims[i].policy_id, STEWARD_REFRESH);
    }
}

static void service_on_durable(void *context)
{
    struct service *service = context;

    if (service->workers != NULL)
        workers_on_durable(service->workers);
    service_ring(service);
}

/* Also before there is an announcer, and when another process has it. */
static void service_on_events(void *context)
{
    struct service *service = context;
    struct announcer *announcer = atomic_load(&service->announcer);

    if (announcer != NULL)
        announcer_wake(announcer);
}

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

void service_ring(struct service *service)
{
    pthread_mutex_lock(&service->bells_lock);
    for (size_t i = 0; i < service->bell_count; i++) {
        const struct desk_bell *bell = &service->bells[i];
        if (atomic_load(bell->waiting_count) > 0)
            bell->ring(bell->context);
    }
    pthread_mutex_unlock(&service->bells_lock);
}

void service_stock_changed(struct service *service)
{
    atomic_fetch_add(&service->stock_changes, 1);
    service_ring(service);
}

static uint64_t service_on_win(void *context, const struct claim *claims, size_t claim_count,
                               const struct key_binding *bindings, size_t binding_count)
{
    struct service *service = context;
    FAULT_POINT("gate.after_decision");
    return ledger_issue(service->ledger, claims, claim_count, bindings, binding_count);
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

/* Whether this process drains a shared gate. */
static bool service_works(const struct service *service)
{
    return service->gate->ops->is_shared &&
           (service->options.role == SERVICE_WORKS || !ledger_is_shareable(service->ledger));
}

static enum status service_open_relay(struct service *service, struct error *error)
{
    struct relay_options options = {
        .url = service->options.relay_url,
        .password = service->options.relay_password,
        .use = !service->gate->ops->is_shared ? RELAY_PUBLISHES
               : service_works(service)       ? RELAY_CARRIES
                                              : RELAY_WATCHES,
        .is_vital = service->options.role == SERVICE_WORKS,
        .traces = service->traces,
    };
    return relay_open(&service->relay, &options, error);
}

static enum status service_send(void *context, struct kafka_batch *batch, size_t count,
                                struct error *error)
{
    return kafka_producer_send(context, KAFKA_COUPON_ISSUED, batch, count, error);
}

/* Whoever publishes tells other services what becomes of coupons. */
static enum status service_announce(struct service *service, struct error *error)
{
    struct announcer_options options = {
        .ledger = service->ledger,
        .send = service_send,
        .context = relay_kafka_producer(service->relay),
        .is_alone =
            service->options.ledger_use == LEDGER_OWN || !ledger_is_shareable(service->ledger),
    };
    struct announcer *announcer = NULL;

    if (options.context == NULL)
        return STATUS_OK;
    enum status status = announcer_open(&announcer, &options, error);
    atomic_store(&service->announcer, announcer);
    return status;
}

/* And hears what they tell of orders. */
static enum status service_take_orders(struct service *service, struct error *error)
{
    const struct kafka_orders_options options = {
        .target = relay_kafka_target(service->relay),
        .producer = relay_kafka_producer(service->relay),
        .ledger = service->ledger,
    };

    return options.producer != NULL ? kafka_orders_open(&service->orders, &options, error)
                                    : STATUS_OK;
}

/* What the ledger is opened with. */
static enum status service_prepare(struct service *service, struct error *error)
{
    const struct service_options *options = &service->options;

    if (relay_tells(options->relay_url) && (service->traces = traces_new()) == NULL)
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
        .readers = options->clerks + 2,
        .zone = service->zone,
        .keeps_moments = scoring_is_on(&service->scoring),
        .on_issued = service_on_issued,
        .on_durable = service_on_durable,
        .has_events = relay_tells(options->relay_url),
        .on_events = service_on_events,
        .find_trace = service_find_trace,
        .context = service,
    };

    return ledger_open(&service->ledger, &ledger_options, error);
}

static enum status service_settle_zone(struct service *service, struct error *error)
{
    return ledger_zone_settle(service->ledger, error);
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

    if (options->board == BOARD_REDIS && !service->gate->ops->is_shared)
        return error_set(error, STATUS_INVALID,
                         "board=redis needs a gate in Redis: set gate=redis://…, or board=local");
    if (options->board == BOARD_REDIS && scoring_is_on(&service->scoring))
        return error_set(error, STATUS_INVALID,
                         "ranking_half_life and ranking_weights need board=local");
    /* Scores are kept in the servers. */
    return options->board == BOARD_LOCAL || !service->gate->ops->is_shared ||
                   scoring_is_on(&service->scoring)
               ? board_local_open(board, &service->scoring, error)
               : board_redis_open(board, &redis_options, error);
}

static enum status service_rank(struct service *service, struct error *error)
{
    struct ranking_options options = {
        .ledger = service->ledger, .zone = service->zone, .scoring = &service->scoring};

    if (service->options.role != SERVICE_SERVES)
        return STATUS_OK;
    enum status status = service_open_board(service, &options.board, error);
    return status == STATUS_OK ? ranking_open(&service->ranking, &options, error) : status;
}

static enum status service_open_gate(struct service *service, struct error *error)
{
    const struct service_options *options = &service->options;
    struct gate_options gate_options = {
        .url = options->gate_url,
        .password = options->gate_password,
        .timeout_ms = options->gate_timeout_ms,
        .ack = options->ack,
        .replicas = options->replicas,
        .stock_changed = service_on_stock,
        .context = service,
        .outlet = {.push = service_on_win, .context = service},
        .ack_timeout_ms = options->ack_timeout_ms,
        .pending_max = (int64_t)options->pending_max,
        .traces = service->traces,
    };

    return gate_open(&service->gate, &gate_options, error);
}

/* A gate that is there already is not restored: what it lacks, its steward brings. One that was
 * restored halfway is begun anew. */
static enum status service_fill_gate(struct service *service, struct error *error)
{
    if (service->gate->ops->is_shared)
        return STATUS_OK;
    enum status status = service_restore(service, error);
    if (status == STATUS_OK)
        return STATUS_OK;
    gate_close(service->gate);
    service->gate = NULL;
    enum status opened = service_open_gate(service, NULL);
    return opened == STATUS_OK ? status : opened;
}

static enum status service_start_worker(struct service *service, struct error *error)
{
    return service_works(service) ? workers_start(&service->workers, service, error) : STATUS_OK;
}

static enum status service_start_terms(struct service *service, struct error *error)
{
    const char *holder = service->workers != NULL ? workers_holder(service->workers) : "";

    return service->gate->ops->is_shared ? terms_start(&service->terms, service, holder, error)
                                         : STATUS_OK;
}

static enum status service_start_fallback(struct service *service, struct error *error)
{
    return service->gate->ops->is_shared ? fallback_start(&service->fallback, service, error)
                                         : STATUS_OK;
}

static enum status service_start_sync(struct service *service, struct error *error)
{
    return service->gate->ops->is_shared ? sync_start(&service->sync, service, error) : STATUS_OK;
}

static enum status service_run_worker(struct service *service, struct error *error)
{
    return service->workers != NULL ? workers_run(service->workers, error) : STATUS_OK;
}

static enum status service_start_steward(struct service *service, struct error *error)
{
    return steward_start(&service->steward, error);
}

static enum status service_start_clerks(struct service *service, struct error *error)
{
    return clerks_start(&service->clerks, service, service->options.clerks, error);
}

static enum status service_start_audits(struct service *service, struct error *error)
{
    return audit_watch_start(&service->audit_watch, service, error);
}

/* The steps of opening, in order. One that asks another process is taken again while that one is
 * not there yet: it leaves nothing behind when it fails. */
enum service_asks { ASKS_NOBODY, ASKS_LEDGER, ASKS_GATE };

static const struct service_step {
    enum status (*take)(struct service *service, struct error *error);
    enum service_asks asks;
} service_steps[] = {
    {service_prepare, ASKS_NOBODY},
    {service_open_ledger, ASKS_LEDGER},
    {service_settle_zone, ASKS_LEDGER},
    {service_open_gate, ASKS_GATE}, /* Whoever only audits needs no more. */
    {service_open_relay, ASKS_NOBODY},
    {service_load_code_key, ASKS_LEDGER},
    {service_load_short_codes, ASKS_LEDGER},
    {service_fill_gate, ASKS_LEDGER},
    {service_start_worker, ASKS_NOBODY},
    {service_start_terms, ASKS_LEDGER},
    {service_start_fallback, ASKS_LEDGER},
    {service_start_sync, ASKS_GATE},
    {service_run_worker, ASKS_NOBODY},
    {service_announce, ASKS_NOBODY},
    {service_take_orders, ASKS_NOBODY},
    {service_rank, ASKS_NOBODY},
    {service_start_steward, ASKS_NOBODY},
    {service_start_clerks, ASKS_NOBODY},
    {service_start_audits, ASKS_NOBODY},
};

/* A file is there or is not. */
static bool service_step_waits(const struct service *service, const struct service_step *step)
{
    return step->asks == ASKS_GATE ||
           (step->asks == ASKS_LEDGER && ledger_is_served(service->options.ledger_url));
}

static enum status service_open_parts(struct service *service, struct error *error)
{
    struct start_wait wait = {.timeout_ms = service->options.start_timeout_ms};
    enum status status = STATUS_OK;

    for (size_t i = 0; i < sizeof(service_steps) / sizeof(service_steps[0]); i++) {
        const struct service_step *step = &service_steps[i];
        do {
            status = step->take(service, error);
        } while (service_step_waits(service, step) && start_wait_again(&wait, status, error));
        if (status != STATUS_OK ||
            (step->take == service_open_gate && service->options.role == SERVICE_AUDITS))
            break;
    }
    return status;
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
    pthread_mutex_init(&opened->bells_lock, NULL);
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

/* What is at work is not dropped at once, though time is up. */
static int64_t service_left_ms(int64_t stop_at_ms)
{
    int64_t left_ms = stop_at_ms - clock_monotonic_ms();

    if (left_ms < KAFKA_STOP_MIN_MS)
        return KAFKA_STOP_MIN_MS;
    return left_ms < KAFKA_STOP_MAX_MS ? left_ms : KAFKA_STOP_MAX_MS;
}

void service_close(struct service *service)
{
    if (service == NULL)
        return;
    int64_t stop_at_ms = clock_monotonic_ms() + service->options.stop_timeout_ms;
    audit_watch_stop(service->audit_watch);
    if (service->clerks.thread_count > 0)
        clerks_stop(&service->clerks);
    ranking_close(service->ranking);
    steward_stop(&service->steward);
    sync_stop(service->sync);
    fallback_stop(service->fallback);
    if (service->workers != NULL)
        workers_stop(service->workers, stop_at_ms);
    terms_stop(service->terms);
    kafka_orders_stop(service->orders, service_left_ms(stop_at_ms));
    announcer_stop(service->announcer, service_left_ms(stop_at_ms));
    ledger_close(service->ledger);
    if (service->workers != NULL)
        workers_end(service->workers);
    steward_release(&service->steward);
    relay_close(service->relay);
    announcer_close(service->announcer);
    kafka_orders_close(service->orders);
    traces_free(service->traces);
    gate_close(service->gate);
    zone_free(service->zone);
    pthread_mutex_destroy(&service->bells_lock);
    notices_release(&service->notices);
    free(service->short_codes);
    free(service);
}

struct notices *service_notices(struct service *service)
{
    return &service->notices;
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

bool service_reads_at_home(const struct service *service)
{
    return !service->gate->ops->is_shared && !ledger_is_shareable(service->ledger);
}

bool service_submit(struct service *service, struct clerk_task *task)
{
    return clerks_submit(&service->clerks, task);
}

struct clerk_numbers service_count_tasks(struct service *service, enum clerk_queue queue)
{
    return clerks_count(&service->clerks, queue);
}

enum status service_refresh(struct service *service, int64_t policy_id, struct policy *policy,
                            struct error *error)
{
    enum status status = ledger_policy_get(service->ledger, policy_id, policy, error);
    return status == STATUS_OK ? gate_policy_set(service->gate, policy, error) : status;
}

bool service_count_worker(struct service *service, struct worker_numbers *numbers)
{
    if (service->workers == NULL)
        return false;
    workers_count(service->workers, numbers);
    return true;
}

int64_t service_pending(struct service *service)
{
    int64_t ids[64];
    int64_t after_id = 0;
    int64_t pending = 0;
    size_t count;

    if (!service->gate->ops->is_shared)
        return -1;
    while ((count = gate_list(service->gate, after_id, ids, 64)) > 0) {
        for (size_t i = 0; i < count; i++) {
            struct gate_numbers numbers;
            if (gate_count(service->gate, ids[i], 0, &numbers) == STATUS_OK)
                pending += numbers.pending;
        }
        after_id = ids[count - 1];
    }
    return pending;
}

int64_t service_worker_count(struct service *service)
{
    return atomic_load(&service->worker_count);
}

int64_t service_letter_count(struct service *service)
{
    return service->gate->ops->is_shared ? atomic_load(&service->letter_count) : -1;
}

bool service_count_relay(struct service *service, struct relay_numbers *numbers)
{
    return relay_count(service->relay, numbers);
}

bool service_count_orders(struct service *service, struct kafka_orders_numbers *numbers)
{
    if (service->orders == NULL)
        return false;
    kafka_orders_count(service->orders, numbers);
    return true;
}

bool service_count_events(struct service *service, struct announcer_numbers *numbers)
{
    struct announcer *announcer = atomic_load(&service->announcer);

    if (announcer == NULL)
        return false;
    announcer_count(announcer, numbers);
    return true;
}

void service_trace(struct service *service, const struct request_id *request_id,
                   struct span traceparent)
{
    traces_put(service->traces, request_id, traceparent);
}

bool service_count_fallback(struct service *service, struct fallback_numbers *numbers)
{
    if (service->fallback == NULL)
        return false;
    fallback_count(service->fallback, numbers);
    return true;
}

bool service_count_audit(struct service *service, struct audit_numbers *numbers)
{
    return audit_watch_count(service->audit_watch, numbers);
}
