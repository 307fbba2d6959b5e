/* webhook.c: the sink: a thread that posts the events of a batch, those of a policy one by one. */
#include "event/webhook/webhook.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "event/sink.h"
#include "event/webhook/request.h"

#define TRANSFERS    8                 /* policies that are sent at once */
#define REFUSALS_MAX 64                /* policies that are known to be refused */
#define REFUSED_ALL  3                 /* so many, and none delivered: it is not their fault */
#define PATIENCE_MS  INT64_C(86400000) /* then it is tried now and then */
#define BODIES_MAX   ((size_t)64 << 20)
#define POLL_MS      1000

/* An event that is to be sent. */
struct webhook_delivery {
    int64_t policy_id;
    size_t offset; /* of its body */
    size_t length;
    char id[64];
};

/* A policy whose event was refused, and is not tried before its time. */
struct webhook_refusal {
    int64_t policy_id;
    unsigned count;
    int64_t until_ms; /* monotonic */
};

struct webhook_transfer {
    struct webhook_request request;
    size_t at; /* the delivery on its way */
    size_t end;
    bool is_busy;
};

/* One batch as it goes. */
struct webhook_run {
    size_t next; /* the first delivery that no transfer has taken */
    size_t delivered_count;
    size_t refused_count;
    bool is_away;
    bool is_put_off; /* some were not tried, because it is too early */
    int64_t pause_ms;
    struct error failure;
};

struct webhook {
    struct event_sink sink; /* the first, so that it leads here */
    char *url;
    char *ca_file;
    struct webhook_keys keys;
    int64_t retry_max_ms;
    CURLM *multi;
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct event_batch *batch; /* under the lock, as the next: being sent; NULL: none */
    bool is_closing;
    /* The sender's until the batch is handed over, then the thread's. */
    struct webhook_delivery *deliveries;
    size_t delivery_count;
    size_t delivery_capacity;
    struct buffer bodies;
    /* The thread's own. */
    struct webhook_transfer transfers[TRANSFERS];
    struct webhook_run run;
    struct webhook_refusal refusals[REFUSALS_MAX];
    size_t refusal_count;
    unsigned away_count; /* batches in a row that nobody took */
    /* Counted by the thread. */
    _Atomic uint64_t requests[WEBHOOK_AWAY + 1];
};

/* --- refusals --- */

static struct webhook_refusal *webhook_refusal_of(struct webhook *webhook, int64_t policy_id)
{
    for (size_t i = 0; i < webhook->refusal_count; i++)
        if (webhook->refusals[i].policy_id == policy_id)
            return &webhook->refusals[i];
    return NULL;
}

static void webhook_pardon(struct webhook *webhook, int64_t policy_id)
{
    struct webhook_refusal *refusal = webhook_refusal_of(webhook, policy_id);

    if (refusal != NULL)
        *refusal = webhook->refusals[--webhook->refusal_count];
}

/* When there are too many to remember, the last one is forgotten, and tried sooner. */
static void webhook_note_refusal(struct webhook *webhook, int64_t policy_id, int64_t wanted_ms)
{
    struct webhook_refusal *refusal = webhook_refusal_of(webhook, policy_id);

    if (refusal == NULL) {
        if (webhook->refusal_count < REFUSALS_MAX)
            webhook->refusal_count++;
        refusal = &webhook->refusals[webhook->refusal_count - 1];
        *refusal = (struct webhook_refusal){.policy_id = policy_id};
    }
    int64_t pause_ms = webhook_pause_ms(++refusal->count, webhook->retry_max_ms);
    refusal->until_ms = clock_monotonic_ms() + (pause_ms > wanted_ms ? pause_ms : wanted_ms);
}

/* --- transfers --- */

static void webhook_post(struct webhook *webhook, struct webhook_transfer *transfer)
{
    const struct webhook_delivery *delivery = &webhook->deliveries[transfer->at];
    struct span body = {webhook->bodies.bytes + delivery->offset, delivery->length};

    transfer->is_busy =
        webhook_request_prepare(&transfer->request, &webhook->keys, delivery->id, body) &&
        curl_multi_add_handle(webhook->multi, transfer->request.curl) == CURLM_OK;
    if (transfer->is_busy)
        return;
    webhook->run.is_away = true;
    error_set(&webhook->run.failure, STATUS_UNAVAILABLE, "no memory for the webhook");
}

/* Gives each transfer that is free the deliveries of a policy. */
static void webhook_fill(struct webhook *webhook, bool is_urgent)
{
    struct webhook_run *run = &webhook->run;
    size_t transfer = 0;

    while (run->next < webhook->delivery_count && !run->is_away) {
        int64_t policy_id = webhook->deliveries[run->next].policy_id;
        const struct webhook_refusal *refusal = webhook_refusal_of(webhook, policy_id);
        size_t end = run->next;
        while (transfer < TRANSFERS && webhook->transfers[transfer].is_busy)
            transfer++;
        if (transfer == TRANSFERS)
            return;
        while (end < webhook->delivery_count && webhook->deliveries[end].policy_id == policy_id)
            end++;
        if (refusal != NULL && !is_urgent && clock_monotonic_ms() < refusal->until_ms) {
            run->is_put_off = true;
        } else {
            webhook->transfers[transfer].at = run->next;
            webhook->transfers[transfer].end = end;
            webhook_post(webhook, &webhook->transfers[transfer]);
        }
        run->next = end;
    }
}

/* The delivery was not delivered; those behind it in its policy wait for it. */
static void webhook_fail(struct webhook *webhook, const struct webhook_delivery *delivery,
                         const struct webhook_answer *answer)
{
    struct webhook_run *run = &webhook->run;

    if (answer->outcome == WEBHOOK_REFUSED) {
        webhook_note_refusal(webhook, delivery->policy_id, answer->pause_ms);
        error_set(&run->failure, STATUS_CONFLICT, "%.60s: %s", delivery->id, answer->text);
        run->refused_count++;
        if (run->refused_count >= REFUSED_ALL && run->delivered_count == 0)
            run->is_away = true;
    } else {
        error_set(&run->failure, STATUS_UNAVAILABLE, "%s", answer->text);
        run->is_away = true;
    }
    if (run->pause_ms < answer->pause_ms)
        run->pause_ms = answer->pause_ms;
}

static void webhook_take_answer(struct webhook *webhook, struct webhook_transfer *transfer,
                                CURLcode code)
{
    const struct webhook_delivery *delivery = &webhook->deliveries[transfer->at];
    struct webhook_answer answer;

    webhook_request_judge(&transfer->request, code, &answer);
    curl_multi_remove_handle(webhook->multi, transfer->request.curl);
    transfer->is_busy = false;
    atomic_fetch_add(&webhook->requests[answer.outcome], 1);
    if (answer.outcome != WEBHOOK_DELIVERED) {
        webhook_fail(webhook, delivery, &answer);
        return;
    }
    if (webhook->batch->delivered != NULL)
        webhook->batch->delivered[transfer->at] = true;
    webhook->run.delivered_count++;
    webhook->away_count = 0;
    webhook_pardon(webhook, delivery->policy_id);
    if (++transfer->at < transfer->end)
        webhook_post(webhook, transfer);
}

static void webhook_take_answers(struct webhook *webhook)
{
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(webhook->multi, &left)) != NULL) {
        void *request = NULL;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &request);
        /* The request is the first of its transfer. */
        webhook_take_answer(webhook, request, code);
    }
}

static bool webhook_is_busy(const struct webhook *webhook)
{
    for (size_t i = 0; i < TRANSFERS; i++)
        if (webhook->transfers[i].is_busy)
            return true;
    return false;
}

/* --- a batch --- */

static bool webhook_is_closing(struct webhook *webhook)
{
    pthread_mutex_lock(&webhook->lock);
    bool is_closing = webhook->is_closing;
    pthread_mutex_unlock(&webhook->lock);
    return is_closing;
}

static void webhook_give_up(struct webhook *webhook)
{
    for (size_t i = 0; i < TRANSFERS; i++) {
        if (!webhook->transfers[i].is_busy)
            continue;
        curl_multi_remove_handle(webhook->multi, webhook->transfers[i].request.curl);
        webhook->transfers[i].is_busy = false;
    }
    webhook->run.is_away = true;
    error_set(&webhook->run.failure, STATUS_UNAVAILABLE, "dibs is being stopped");
}

static enum status webhook_conclude(struct webhook *webhook, struct event_batch *batch)
{
    struct webhook_run *run = &webhook->run;

    if (run->delivered_count == webhook->delivery_count)
        return STATUS_OK;
    if (!run->is_away) {
        if (run->refused_count == 0)
            error_set(&run->failure, STATUS_CONFLICT,
                      "policy %lld and others like it were refused before, and wait",
                      (long long)webhook->refusals[0].policy_id);
        return STATUS_CONFLICT;
    }
    batch->pause_ms = webhook_pause_ms(++webhook->away_count, webhook->retry_max_ms);
    if (batch->pause_ms < run->pause_ms)
        batch->pause_ms = run->pause_ms;
    return STATUS_UNAVAILABLE;
}

static void webhook_deliver(struct webhook *webhook, struct event_batch *batch)
{
    webhook->run = (struct webhook_run){.next = 0};
    for (;;) {
        int running;
        webhook_fill(webhook, batch->is_urgent);
        if (!webhook_is_busy(webhook))
            break;
        curl_multi_perform(webhook->multi, &running);
        webhook_take_answers(webhook);
        if (webhook_is_closing(webhook))
            webhook_give_up(webhook);
        else if (running > 0)
            curl_multi_poll(webhook->multi, NULL, 0, POLL_MS, NULL);
    }
    enum status status = webhook_conclude(webhook, batch);
    struct error failure = webhook->run.failure;
    pthread_mutex_lock(&webhook->lock);
    webhook->batch = NULL;
    pthread_mutex_unlock(&webhook->lock);
    batch->done(batch, status, &failure);
}

static void *webhook_main(void *context)
{
    struct webhook *webhook = context;

    for (;;) {
        pthread_mutex_lock(&webhook->lock);
        while (webhook->batch == NULL && !webhook->is_closing)
            pthread_cond_wait(&webhook->work, &webhook->lock);
        struct event_batch *batch = webhook->batch;
        pthread_mutex_unlock(&webhook->lock);
        if (batch == NULL)
            return NULL;
        webhook_deliver(webhook, batch);
    }
}

/* --- the sink --- */

/* The id of the event, as the announcer wrote it. */
static void webhook_copy_id(const struct event_message *message, struct webhook_delivery *delivery)
{
    for (size_t i = 0; i < message->header_count; i++)
        if (strcmp(message->headers[i].name, "ce_id") == 0)
            snprintf(delivery->id, sizeof(delivery->id), "%.*s",
                     (int)message->headers[i].value.length, message->headers[i].value.bytes);
}

/* The policy's id, which is a message's key. */
static int64_t webhook_policy_of(struct span key)
{
    int64_t policy_id = 0;

    for (size_t i = 0; i < key.length; i++)
        policy_id = policy_id * 10 + (key.bytes[i] - '0');
    return policy_id;
}

static bool webhook_copy(struct webhook *webhook, struct event_batch *batch, size_t count)
{
    if (webhook->delivery_capacity < count) {
        struct webhook_delivery *grown = reallocarray(webhook->deliveries, count, sizeof(*grown));
        if (grown == NULL)
            return false;
        webhook->deliveries = grown;
        webhook->delivery_capacity = count;
    }
    buffer_clear(&webhook->bodies);
    for (size_t i = 0; i < count; i++) {
        const struct event_message *message = batch->next(batch, i);
        struct webhook_delivery *delivery = &webhook->deliveries[i];
        *delivery = (struct webhook_delivery){.policy_id = webhook_policy_of(message->key),
                                              .offset = webhook->bodies.length};
        webhook_copy_id(message, delivery);
        webhook_write_body(&webhook->bodies, message);
        delivery->length = webhook->bodies.length - delivery->offset;
    }
    webhook->delivery_count = count;
    return !webhook->bodies.overflowed;
}

static enum status webhook_send(struct event_sink *sink, struct event_batch *batch, size_t count,
                                struct error *error)
{
    struct webhook *webhook = (struct webhook *)sink;

    pthread_mutex_lock(&webhook->lock);
    bool is_free = webhook->batch == NULL && !webhook->is_closing;
    pthread_mutex_unlock(&webhook->lock);
    if (!is_free || !webhook_copy(webhook, batch, count))
        return error_set(error, STATUS_BUSY, "the webhook is busy, or has no memory");
    pthread_mutex_lock(&webhook->lock);
    webhook->batch = batch;
    pthread_cond_signal(&webhook->work);
    pthread_mutex_unlock(&webhook->lock);
    return STATUS_OK;
}

static void webhook_metrics(struct event_sink *sink, struct buffer *out)
{
    struct webhook *webhook = (struct webhook *)sink;
    static const char *const labels[] = {[WEBHOOK_DELIVERED] = "result=\"delivered\"",
                                         [WEBHOOK_REFUSED] = "result=\"refused\"",
                                         [WEBHOOK_AWAY] = "result=\"failed\""};

    metrics_family(out, "dibs_webhook_requests_total", METRICS_COUNTER,
                   "Events posted to the webhook, by what came of it.");
    for (size_t i = 0; i <= WEBHOOK_AWAY; i++)
        metrics_sample_u64(out, "dibs_webhook_requests_total", labels[i],
                           atomic_load(&webhook->requests[i]));
}

static void webhook_close(struct event_sink *sink)
{
    struct webhook *webhook = (struct webhook *)sink;

    if (webhook->is_started) {
        pthread_mutex_lock(&webhook->lock);
        webhook->is_closing = true;
        pthread_cond_signal(&webhook->work);
        pthread_mutex_unlock(&webhook->lock);
        curl_multi_wakeup(webhook->multi);
        pthread_join(webhook->thread, NULL);
    }
    for (size_t i = 0; i < TRANSFERS; i++)
        webhook_request_release(&webhook->transfers[i].request);
    if (webhook->multi != NULL)
        curl_multi_cleanup(webhook->multi);
    pthread_mutex_destroy(&webhook->lock);
    pthread_cond_destroy(&webhook->work);
    buffer_release(&webhook->bodies);
    explicit_bzero(&webhook->keys, sizeof(webhook->keys));
    free(webhook->deliveries);
    free(webhook->url);
    free(webhook->ca_file);
    free(webhook);
}

static enum status webhook_start(struct webhook *webhook, const struct webhook_options *options,
                                 struct error *error)
{
    struct webhook_options kept = *options;

    webhook->multi = curl_multi_init();
    webhook->url = strdup(options->url);
    webhook->ca_file = strdup(options->ca_file != NULL ? options->ca_file : "");
    if (webhook->multi == NULL || webhook->url == NULL || webhook->ca_file == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the webhook");
    curl_multi_setopt(webhook->multi, CURLMOPT_MAXCONNECTS, (long)TRANSFERS);
    kept.url = webhook->url;
    kept.ca_file = webhook->ca_file;
    enum status status = webhook_read_secrets(&webhook->keys, options->secrets, error);
    for (size_t i = 0; i < TRANSFERS && status == STATUS_OK; i++)
        status = webhook_request_init(&webhook->transfers[i].request, &kept, error);
    if (status != STATUS_OK)
        return status;
    webhook->is_started = pthread_create(&webhook->thread, NULL, webhook_main, webhook) == 0;
    if (!webhook->is_started)
        return error_set(error, STATUS_UNAVAILABLE, "cannot start the webhook's thread");
    pthread_setname_np(webhook->thread, "webhook");
    return STATUS_OK;
}

enum status webhook_sink_open(struct event_sink **sink, const struct event_sink_options *options,
                              struct error *error)
{
    static const struct event_sink_ops ops = {.name = "webhook",
                                              .outbox = LEDGER_SINK_WEBHOOK,
                                              .duty = "announcer.webhook",
                                              .patience_ms = PATIENCE_MS,
                                              .batch_max = 200,
                                              .send = webhook_send,
                                              .metrics = webhook_metrics,
                                              .close = webhook_close};
    struct webhook *webhook = calloc(1, sizeof(*webhook));

    *sink = NULL;
    if (webhook == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the webhook");
    webhook->sink.ops = &ops;
    webhook->retry_max_ms = options->webhook->retry_max_ms;
    pthread_mutex_init(&webhook->lock, NULL);
    pthread_cond_init(&webhook->work, NULL);
    buffer_init(&webhook->bodies, BODIES_MAX);
    enum status status = webhook_start(webhook, options->webhook, error);
    if (status == STATUS_OK)
        *sink = &webhook->sink;
    else
        webhook_close(&webhook->sink);
    return status;
}
