/* kafka_orders.c: a batch of messages becomes orders, as many at once as the ledger takes. */
#include "relay/kafka_orders.h"

#include <librdkafka/rdkafka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/json.h"
#include "base/log.h"
#include "ledger/sales.h"
#include "relay/kafka_consumer.h"
#include "relay/kafka_dead.h"

#define LATER_MS 200

struct kafka_orders {
    struct kafka_orders_options options;
    struct kafka_consumer *consumer;
    pthread_mutex_t lock; /* of what is put aside */
    _Atomic uint64_t added;
    _Atomic uint64_t known;
    _Atomic uint64_t dead;
};

/* The lane's work: the batch goes to the ledger in parts. */
struct orders_work {
    struct json_reader *reader;
    struct event_order read; /* the message that is being read */
    size_t done_count;       /* messages that are settled */
    bool is_single;          /* the ledger refused a part: one by one */
    /* The part that is on its way. */
    struct order orders[ORDER_BATCH_MAX];
    size_t message_at[ORDER_BATCH_MAX];
    size_t order_count;
    struct order_item items[ORDER_BATCH_ITEMS_MAX];
    size_t item_count;
    size_t end; /* behind the part's last message */
    struct kafka_dead *dead;
    size_t dead_count;
    size_t dead_capacity;
    size_t dead_kept; /* of the parts that are settled */
    struct kafka_burial *burial;
};

/* --- reading --- */

static void orders_put_aside(struct orders_work *work, rd_kafka_message_t *message,
                             const char *reason)
{
    if (work->dead_count == work->dead_capacity) {
        size_t capacity = work->dead_capacity == 0 ? 16 : work->dead_capacity * 2;
        struct kafka_dead *grown = realloc(work->dead, capacity * sizeof(*grown));
        ensure(grown != NULL);
        work->dead = grown;
        work->dead_capacity = capacity;
    }
    struct kafka_dead *dead = &work->dead[work->dead_count++];
    *dead = (struct kafka_dead){.message = message};
    snprintf(dead->reason, sizeof(dead->reason), "%.*s", (int)sizeof(dead->reason) - 1, reason);
}

/* Adds the order that was read to the part. False: there is no room for it. */
static bool orders_add(struct orders_work *work, size_t message_at)
{
    const struct event_order *read = &work->read;
    struct order_item *items = work->items + work->item_count;

    if (work->order_count == ORDER_BATCH_MAX ||
        work->item_count + read->item_count > ORDER_BATCH_ITEMS_MAX)
        return false;
    for (size_t i = 0; i < read->item_count; i++)
        items[i] = (struct order_item){.product_id = read->items[i].product_id,
                                       .quantity = read->items[i].quantity};
    work->message_at[work->order_count] = message_at;
    work->orders[work->order_count++] = (struct order){.order_id = read->order_id,
                                                       .paid_at_ms = read->paid_at_ms,
                                                       .items = items,
                                                       .item_count = read->item_count};
    work->item_count += read->item_count;
    return true;
}

/* Reads the next part, from behind what is settled. */
static void orders_read(struct orders_work *work, struct kafka_lane *lane)
{
    struct event_header headers[EVENT_HEADERS_SEEN + 1];
    int64_t latest_ms = clock_wall_ms() + ORDER_AHEAD_MAX_MS;
    struct error error;

    work->order_count = work->item_count = 0;
    work->dead_count = work->dead_kept;
    for (work->end = work->done_count; work->end < lane->count; work->end++) {
        struct event_message message = kafka_event_of(lane->messages[work->end], headers);
        if (work->is_single && work->order_count == 1)
            return;
        if (event_read_order(work->reader, &message, &work->read, &error) != STATUS_OK)
            orders_put_aside(work, lane->messages[work->end], error.text);
        else if (work->read.paid_at_ms > latest_ms)
            orders_put_aside(work, lane->messages[work->end],
                             "value: paid_at: must not be in the future");
        else if (!orders_add(work, work->end))
            return;
    }
}

/* --- writing --- */

static void orders_judge(struct kafka_orders *orders, struct orders_work *work,
                         struct kafka_lane *lane)
{
    uint64_t added_count = 0;
    uint64_t known_count = 0;

    for (size_t i = 0; i < work->order_count; i++) {
        added_count += work->orders[i].result == ORDER_ADDED;
        known_count += work->orders[i].result == ORDER_KNOWN;
        if (work->orders[i].result == ORDER_DIFFERS)
            orders_put_aside(work, lane->messages[work->message_at[i]],
                             "order_id: an order with this id and other contents is there already");
    }
    atomic_fetch_add(&orders->added, added_count);
    atomic_fetch_add(&orders->known, known_count);
}

/* Brings the part into the ledger. False: not now. */
static bool orders_write(struct kafka_orders *orders, struct orders_work *work,
                         struct kafka_lane *lane)
{
    struct error error = {""};
    enum status status = STATUS_OK;

    FAULT_POINT("orders.before_commit");
    if (work->order_count > 0)
        status = ledger_orders_add(orders->options.ledger, work->orders, work->order_count,
                                   clock_wall_ms(), &error);
    FAULT_POINT("orders.after_commit");
    if (status == STATUS_OK)
        orders_judge(orders, work, lane);
    else if (status == STATUS_INVALID && work->order_count == 1)
        orders_put_aside(work, lane->messages[work->message_at[0]], error.text);
    else if (status == STATUS_INVALID)
        work->is_single = true;
    if (status != STATUS_OK && (status != STATUS_INVALID || work->order_count > 1))
        return false;
    work->done_count = work->end;
    work->dead_kept = work->dead_count;
    return true;
}

/* --- the consumer's callbacks --- */

static struct orders_work *orders_work_new(void)
{
    struct orders_work *work = calloc(1, sizeof(*work));

    if (work != NULL && (work->reader = json_reader_new(EVENT_VALUE_MAX)) == NULL) {
        free(work);
        work = NULL;
    }
    return work;
}

static void orders_log_dead(const struct kafka_dead *dead)
{
    const rd_kafka_message_t *message = dead->message;

    log_event(LOG_WARN, "message_unreadable",
              LOG_FIELD("topic", LOG_TEXT(rd_kafka_topic_name(message->rkt))),
              LOG_FIELD("partition", LOG_I64(message->partition)),
              LOG_FIELD("offset", LOG_I64(message->offset)),
              LOG_FIELD("error", LOG_TEXT(dead->reason)));
}

/* What is put aside has to be in its topic before the offset moves on. */
static enum kafka_step orders_bury(struct kafka_orders *orders, struct orders_work *work,
                                   struct kafka_lane *lane, int64_t now_ms)
{
    bool is_fine = false;

    lane->again_at_ms = now_ms + LATER_MS;
    if (work->burial == NULL) {
        const struct kafka_grave grave = {.producer = orders->options.producer,
                                          .topic = KAFKA_ORDER_COMPLETED_DLQ,
                                          .consumer = &orders->consumer,
                                          .lock = &orders->lock};
        work->burial = kafka_bury(&grave, work->dead, work->dead_count);
        return KAFKA_WAIT;
    }
    if (!kafka_burial_is_over(work->burial, &is_fine))
        return KAFKA_WAIT;
    work->burial = NULL;
    if (!is_fine)
        return KAFKA_WAIT;
    for (size_t i = 0; i < work->dead_count; i++)
        orders_log_dead(&work->dead[i]);
    atomic_fetch_add(&orders->dead, work->dead_count);
    return KAFKA_DONE;
}

static enum kafka_step orders_work(void *context, struct kafka_lane *lane, int64_t now_ms)
{
    struct kafka_orders *orders = context;
    struct orders_work *work = lane->work;
    enum kafka_step step = KAFKA_DONE;

    if (work == NULL)
        work = lane->work = orders_work_new();
    if (work == NULL || now_ms < lane->again_at_ms) {
        if (work == NULL)
            lane->again_at_ms = now_ms + LATER_MS;
        if (work == NULL || work->burial == NULL)
            return KAFKA_WAIT;
    }
    while (work->done_count < lane->count) {
        orders_read(work, lane);
        if (!orders_write(orders, work, lane)) {
            lane->again_at_ms = now_ms + LATER_MS;
            return KAFKA_WAIT;
        }
    }
    if (work->dead_count > 0)
        step = orders_bury(orders, work, lane, now_ms);
    if (step == KAFKA_DONE) {
        work->done_count = work->dead_count = work->dead_kept = 0;
        work->is_single = false;
    }
    return step;
}

static void orders_forget(void *context, struct kafka_lane *lane)
{
    struct orders_work *work = lane->work;

    (void)context;
    if (work == NULL)
        return;
    if (work->burial != NULL)
        kafka_burial_forget(work->burial);
    json_reader_free(work->reader);
    free(work->dead);
    free(work);
    lane->work = NULL;
}

/* --- life --- */

enum status kafka_orders_open(struct kafka_orders **orders,
                              const struct kafka_orders_options *options, struct error *error)
{
    struct kafka_orders *opened = calloc(1, sizeof(*opened));

    *orders = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the orders");
    opened->options = *options;
    const struct kafka_consumer_options consumer_options = {
        .target = options->target,
        .topic = KAFKA_ORDER_COMPLETED,
        .group = options->target->orders_group,
        .work = orders_work,
        .forget = orders_forget,
        .context = opened,
    };
    pthread_mutex_init(&opened->lock, NULL);
    /* Its thread may put something aside before it is known here. */
    pthread_mutex_lock(&opened->lock);
    enum status status = kafka_consumer_open(&opened->consumer, &consumer_options, error);
    pthread_mutex_unlock(&opened->lock);
    if (status != STATUS_OK) {
        pthread_mutex_destroy(&opened->lock);
        free(opened);
        return status;
    }
    *orders = opened;
    return STATUS_OK;
}

void kafka_orders_stop(struct kafka_orders *orders, int64_t timeout_ms)
{
    if (orders == NULL)
        return;
    kafka_consumer_stop(orders->consumer, timeout_ms);
    kafka_consumer_close(orders->consumer);
}

void kafka_orders_close(struct kafka_orders *orders)
{
    if (orders == NULL)
        return;
    pthread_mutex_destroy(&orders->lock);
    free(orders);
}

void kafka_orders_count(struct kafka_orders *orders, struct kafka_orders_numbers *numbers)
{
    *numbers = (struct kafka_orders_numbers){.added = atomic_load(&orders->added),
                                             .known = atomic_load(&orders->known),
                                             .dead = atomic_load(&orders->dead)};
}
