/* orders.c: a batch of messages becomes orders, as many at once as the ledger takes. */
#include <librdkafka/rdkafka.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/metrics.h"
#include "event/kafka/consumer.h"
#include "ledger/sales/sales.h"

struct kafka_orders {
    struct kafka *kafka;
    struct ledger *ledger;
    struct kafka_consumer *consumer;
    _Atomic uint64_t added;
    _Atomic uint64_t known;
    _Atomic uint64_t dead;
};

/* The partition's work: the batch goes to the ledger in parts. */
struct orders_work {
    size_t done_count;   /* messages that are settled */
    int64_t earliest_ms; /* of paid_at; 0: any */
    bool is_single;      /* the ledger refused a part: one by one */
    /* The part that is on its way. */
    struct order orders[ORDER_BATCH_MAX];
    size_t message_at[ORDER_BATCH_MAX];
    size_t order_count;
    struct order_item items[ORDER_BATCH_ITEMS_MAX];
    size_t item_count;
    size_t end;       /* behind the part's last message */
    size_t dead_kept; /* dead letters of the parts that are settled */
};

/* --- reading --- */

/* Whether the part has no room for another order of any size. */
static bool orders_is_full(const struct orders_work *work)
{
    return work->order_count == (work->is_single ? 1 : ORDER_BATCH_MAX) ||
           work->item_count + ORDER_ITEMS_MAX > ORDER_BATCH_ITEMS_MAX;
}

/* Reads the next part, from behind what is settled. */
static void orders_read(struct orders_work *work, struct kafka_partition *partition)
{
    struct event_header headers[EVENT_HEADERS_SEEN + 1];
    int64_t latest_ms = clock_wall_ms() + ORDER_AHEAD_MAX_MS;
    struct error error;

    work->order_count = work->item_count = 0;
    partition->dead_count = work->dead_kept;
    for (work->end = work->done_count; work->end < partition->count && !orders_is_full(work);
         work->end++) {
        rd_kafka_message_t *read = partition->messages[work->end];
        struct event_message message = kafka_event_of(read, headers);
        struct order *order = &work->orders[work->order_count];
        if (event_read_order(partition->reader, &message, order, work->items + work->item_count,
                             &error) != STATUS_OK) {
            kafka_partition_reject(partition, read, error.text);
        } else if (order->paid_at_ms > latest_ms) {
            kafka_partition_reject(partition, read, "value: paid_at: must not be in the future");
        } else if (order->paid_at_ms != 0 && order->paid_at_ms < work->earliest_ms) {
            kafka_partition_reject(partition, read,
                                   "value: paid_at: must not be longer ago than orders_keep_days");
        } else {
            work->message_at[work->order_count++] = work->end;
            work->item_count += order->item_count;
        }
    }
}

/* --- writing --- */

static void orders_judge(struct kafka_orders *orders, struct orders_work *work,
                         struct kafka_partition *partition)
{
    uint64_t added_count = 0;
    uint64_t known_count = 0;

    for (size_t i = 0; i < work->order_count; i++) {
        added_count += work->orders[i].result == ORDER_ADDED;
        known_count += work->orders[i].result == ORDER_KNOWN;
        if (work->orders[i].result == ORDER_DIFFERS)
            kafka_partition_reject(
                partition, partition->messages[work->message_at[i]],
                "order_id: an order with this id and other contents is there already");
    }
    atomic_fetch_add(&orders->added, added_count);
    atomic_fetch_add(&orders->known, known_count);
}

/* Brings the part into the ledger. False: not now. */
static bool orders_write(struct kafka_orders *orders, struct orders_work *work,
                         struct kafka_partition *partition)
{
    struct error error = {""};
    enum status status = STATUS_OK;

    FAULT_POINT("orders.before_commit");
    if (work->order_count > 0)
        status = ledger_orders_add(orders->ledger, work->orders, work->order_count, clock_wall_ms(),
                                   &error);
    FAULT_POINT("orders.after_commit");
    if (status == STATUS_OK)
        orders_judge(orders, work, partition);
    else if (status == STATUS_INVALID && work->order_count == 1)
        kafka_partition_reject(partition, partition->messages[work->message_at[0]], error.text);
    else if (status == STATUS_INVALID)
        work->is_single = true;
    if (status != STATUS_OK && (status != STATUS_INVALID || work->order_count > 1))
        return false;
    work->done_count = work->end;
    work->dead_kept = partition->dead_count;
    return true;
}

/* --- the consumer's callbacks --- */

static enum kafka_step orders_work(void *context, struct kafka_partition *partition, int64_t now_ms)
{
    struct kafka_orders *orders = context;
    struct orders_work *work = partition->work;

    if (kafka_partition_waits(partition, now_ms))
        return KAFKA_WAIT;
    work->earliest_ms = ledger_orders_earliest_ms(orders->ledger);
    while (work->done_count < partition->count) {
        orders_read(work, partition);
        if (!orders_write(orders, work, partition)) {
            partition->again_at_ms = now_ms + KAFKA_LATER_MS;
            return KAFKA_WAIT;
        }
    }
    if (kafka_partition_send_dead(partition, now_ms) != KAFKA_DONE)
        return KAFKA_WAIT;
    atomic_fetch_add(&orders->dead, partition->dead_count);
    work->done_count = work->dead_kept = 0;
    work->is_single = false;
    return KAFKA_DONE;
}

/* --- life --- */

enum status kafka_orders_open(struct kafka_orders **orders, struct kafka *kafka,
                              struct ledger *ledger, struct error *error)
{
    struct kafka_orders *opened = calloc(1, sizeof(*opened));

    *orders = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the orders");
    opened->kafka = kafka;
    opened->ledger = ledger;
    const struct kafka_consumer_options consumer_options = {
        .kafka = kafka,
        .topic = KAFKA_ORDER_COMPLETED,
        .dead_topic = KAFKA_ORDER_COMPLETED_DLQ,
        .group = kafka->target.orders_group,
        .work_size = sizeof(struct orders_work),
        .work = orders_work,
        .context = opened,
    };
    enum status status = kafka_consumer_open(&opened->consumer, &consumer_options, error);
    if (status != STATUS_OK) {
        free(opened);
        return status;
    }
    *orders = opened;
    return STATUS_OK;
}

void kafka_orders_close(struct kafka_orders *orders, int64_t timeout_ms)
{
    if (orders == NULL)
        return;
    kafka_consumer_stop(orders->consumer, timeout_ms);
    kafka_consumer_close(orders->consumer);
    free(orders);
}

void kafka_orders_metrics(struct kafka_orders *orders, struct buffer *out)
{
    static const char name[] = "dibs_orders_consumed_total";

    if (orders == NULL)
        return;
    metrics_family(out, name, METRICS_COUNTER,
                   "Orders that came in through a topic, by what became of them.");
    metrics_sample_u64(out, name, "result=\"added\"", atomic_load(&orders->added));
    metrics_sample_u64(out, name, "result=\"known\"", atomic_load(&orders->known));
    metrics_sample_u64(out, name, "result=\"dead\"", atomic_load(&orders->dead));
}
