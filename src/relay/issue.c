/* issue.c: a batch of messages becomes coupons: read, issued, settled; what the ledger
 * refuses for now is tried again, what comes to nothing is put aside. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/traces.h"
#include "relay/parts.h"

#define REFUSED_MS  200 /* until the first try again; twice as long each time */
#define REFUSED_MAX 6   /* doublings */
#define TOPS_MAX    64
#define OFFSET_STEP 1024 /* between the letters of two offsets: room for the partition */

enum kafka_phase {
    PHASE_FRESH,   /* a new batch */
    PHASE_ISSUED,  /* the ledger has it */
    PHASE_REFUSED, /* what is left of it waits to be tried again */
    PHASE_DEAD,    /* all is settled but what came to nothing */
};

/* The partition's work: one batch at a time. */
struct kafka_issue {
    struct kafka_consumer *consumer;
    struct kafka_issue *next; /* of those that wait for the ledger; under the relay's lock */
    enum kafka_phase phase;
    size_t count;
    struct claim claims[KAFKA_PARTITION_MAX];
    size_t message_at[KAFKA_PARTITION_MAX];
    enum coupon_state
        states[KAFKA_PARTITION_MAX]; /* under the relay's lock while ISSUED, as these */
    bool is_settled[KAFKA_PARTITION_MAX];
    size_t settled_count;
    size_t hint; /* where the next one is to be expected */
    /* The highest seq of each policy in the batch. */
    struct {
        int64_t policy_id;
        int64_t seq;
    } tops[TOPS_MAX];
    size_t top_count;
};
const size_t relay_kafka_work_size = sizeof(struct kafka_issue);

/* --- reading --- */

static bool kafka_issue_has(const struct kafka_issue *issue, const struct claim *claim)
{
    for (size_t i = issue->count; i-- > 0;)
        if (issue->claims[i].seq == claim->seq && issue->claims[i].policy_id == claim->policy_id)
            return true;
    return false;
}

/* Whether the claim is in the batch already. First occurrences rise, so one above all of its
 * policy's is not; only a repeat makes it look. */
static bool kafka_issue_repeats(struct kafka_issue *issue, const struct claim *claim)
{
    size_t at = 0;

    while (at < issue->top_count && issue->tops[at].policy_id != claim->policy_id)
        at++;
    if (at == TOPS_MAX)
        return kafka_issue_has(issue, claim);
    if (at == issue->top_count) {
        issue->tops[at].policy_id = claim->policy_id;
        issue->tops[issue->top_count++].seq = claim->seq;
        return false;
    }
    if (claim->seq > issue->tops[at].seq) {
        issue->tops[at].seq = claim->seq;
        return false;
    }
    return kafka_issue_has(issue, claim);
}

static struct span kafka_issue_traceparent(const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers;
    const void *value;
    size_t length;

    if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR ||
        rd_kafka_header_get_last(headers, "traceparent", &value, &length) !=
            RD_KAFKA_RESP_ERR_NO_ERROR)
        return (struct span){0};
    return (struct span){value, length};
}

/* False: it is none, and the words say why. Its trace is kept for the ledger to find. */
static bool kafka_issue_read_claim(struct relay_kafka *kafka, struct json_reader *reader,
                                   const rd_kafka_message_t *read, struct claim *claim,
                                   struct error *error)
{
    struct event_header headers[EVENT_HEADERS_SEEN + 1];
    struct span traceparent = {0};
    bool has_traceparent = false;

    if (event_read_own_claim((struct span){read->key, read->key_len},
                             (struct span){read->payload, read->len}, claim, &has_traceparent)) {
        if (!has_traceparent)
            return true;
        traceparent = kafka_issue_traceparent(read);
    } else {
        struct event_message message = kafka_event_of(read, headers);
        if (event_read_claim(reader, &message, claim, &traceparent, error) != STATUS_OK)
            return false;
    }
    traces_put(kafka->traces, &claim->request_id, traceparent);
    return true;
}

static void kafka_issue_read(struct relay_kafka *kafka, struct kafka_issue *issue,
                             struct kafka_partition *partition)
{
    struct error error = {""};

    issue->count = issue->top_count = 0;
    for (size_t i = 0; i < partition->count; i++) {
        rd_kafka_message_t *read = partition->messages[i];
        struct claim *claim = &issue->claims[issue->count];
        if (!kafka_issue_read_claim(kafka, partition->reader, read, claim, &error)) {
            kafka_partition_reject(partition, read, error.text);
        } else if (!kafka_issue_repeats(issue, claim)) {
            issue->message_at[issue->count] = i;
            issue->count++;
        }
    }
}

/* --- issuing --- */

static void kafka_issue_send(struct relay_kafka *kafka, struct kafka_issue *issue)
{
    pthread_mutex_lock(&kafka->lock);
    memset(issue->is_settled, 0, issue->count * sizeof(issue->is_settled[0]));
    issue->settled_count = issue->hint = 0;
    issue->next = kafka->issues;
    kafka->issues = issue;
    issue->phase = PHASE_ISSUED;
    pthread_mutex_unlock(&kafka->lock);
    FAULT_POINT("kafka.before_issue");
    kafka->outlet.issue(kafka->outlet.context, issue->claims, issue->count);
}

/* Under the lock. */
static void kafka_issue_unlist(struct relay_kafka *kafka, struct kafka_issue *issue)
{
    for (struct kafka_issue **link = &kafka->issues; *link != NULL; link = &(*link)->next) {
        if (*link == issue) {
            *link = issue->next;
            return;
        }
    }
}

static bool kafka_issue_is(const struct kafka_issue *issue, size_t at, const struct claim *claim)
{
    return at < issue->count && issue->claims[at].seq == claim->seq &&
           issue->claims[at].policy_id == claim->policy_id;
}

/* Under the lock: the batch that the claim is of, or NULL. They are settled in the order of
 * issuing, so it is nearly always the one behind the last. */
static struct kafka_issue *kafka_issue_find(struct kafka_issue *issues, const struct claim *claim,
                                            size_t *at)
{
    for (struct kafka_issue *issue = issues; issue != NULL; issue = issue->next) {
        if (kafka_issue_is(issue, issue->hint, claim)) {
            *at = issue->hint;
            return issue;
        }
    }
    for (struct kafka_issue *issue = issues; issue != NULL; issue = issue->next) {
        for (*at = 0; *at < issue->count; (*at)++)
            if (kafka_issue_is(issue, *at, claim))
                return issue;
    }
    return NULL;
}

void relay_kafka_settled(struct relay_kafka *kafka, const struct claim *claims,
                         const enum coupon_state *states, size_t count)
{
    struct kafka_consumer *consumer = NULL; /* of a batch that is settled */

    if (kafka == NULL)
        return;
    pthread_mutex_lock(&kafka->lock);
    for (size_t i = 0; i < count && kafka->issues != NULL; i++) {
        size_t at = 0;
        struct kafka_issue *issue = kafka_issue_find(kafka->issues, &claims[i], &at);
        if (issue == NULL || issue->is_settled[at])
            continue;
        issue->is_settled[at] = true;
        issue->states[at] = states[i];
        issue->hint = at + 1;
        if (++issue->settled_count == issue->count)
            consumer = issue->consumer;
    }
    pthread_mutex_unlock(&kafka->lock);
    if (consumer != NULL)
        kafka_consumer_wake(consumer);
}

/* Once all is settled: keeps what was refused for now, and puts aside what came to nothing. */
static void kafka_issue_sort(struct kafka_issue *issue, struct kafka_partition *partition,
                             int64_t now_ms)
{
    size_t left = 0;
    int32_t attempt_max = 1;

    for (size_t i = 0; i < issue->count; i++) {
        const struct claim *claim = &issue->claims[i];
        if (issue->states[i] == COUPON_VOID) {
            struct kafka_dead_letter *letter =
                kafka_partition_reject(partition, partition->messages[issue->message_at[i]], "");
            letter->policy_id = claim->policy_id;
            letter->seq = claim->seq;
        }
        if (issue->states[i] != COUPON_PENDING)
            continue;
        issue->claims[left] = *claim;
        issue->message_at[left] = issue->message_at[i];
        if (++issue->claims[left++].attempt > attempt_max)
            attempt_max = issue->claims[left - 1].attempt;
    }
    issue->count = left;
    issue->phase = left > 0 ? PHASE_REFUSED : PHASE_DEAD;
    if (left > 0) {
        int doublings = attempt_max > REFUSED_MAX ? REFUSED_MAX : attempt_max - 1;
        partition->again_at_ms = now_ms + ((int64_t)REFUSED_MS << doublings);
    }
}

/* --- what came to nothing --- */

/* The reason why a claim was not issued stands in the ledger; what is no claim is kept there. */
static enum status kafka_issue_keep(struct relay_kafka *kafka, struct kafka_dead_letter *dead)
{
    const struct relay_outlet *outlet = &kafka->outlet;
    const rd_kafka_message_t *message = dead->message;
    struct dead_letter letter = {.attempts = 1, .died_at_ms = clock_wall_ms()};
    struct error error = {""};

    if (dead->policy_id != 0) {
        enum status status =
            outlet->letter(outlet->context, dead->policy_id, dead->seq, &letter, &error);
        if (status == STATUS_OK)
            snprintf(dead->reason, sizeof(dead->reason), "%s", letter.reason);
        return status;
    }
    letter.claim.seq = (message->offset + 1) * OFFSET_STEP + message->partition % OFFSET_STEP;
    letter.claim.requested_at_ms = letter.died_at_ms;
    snprintf(letter.reason, sizeof(letter.reason), "%s partition %d offset %lld: %.250s",
             rd_kafka_topic_name(message->rkt), (int)message->partition, (long long)message->offset,
             dead->reason);
    return outlet->keep(outlet->context, &letter, &error);
}

/* True when every one of them has its reason; those whose reason is gone are dropped. */
static bool kafka_issue_keep_all(struct relay_kafka *kafka, struct kafka_partition *partition)
{
    size_t left = 0;
    bool is_complete = true;

    for (size_t i = 0; i < partition->dead_count; i++) {
        struct kafka_dead_letter *letter = &partition->dead[i];
        enum status status = STATUS_OK;
        if (!letter->is_kept && is_complete) {
            status = kafka_issue_keep(kafka, letter);
            letter->is_kept = status == STATUS_OK;
            is_complete = status == STATUS_OK || status == STATUS_NOT_FOUND;
        }
        if (status != STATUS_NOT_FOUND)
            partition->dead[left++] = *letter;
    }
    partition->dead_count = left;
    return is_complete;
}

static enum kafka_step kafka_issue_put_aside(struct relay_kafka *kafka, struct kafka_issue *issue,
                                             struct kafka_partition *partition, int64_t now_ms)
{
    if (kafka_partition_waits(partition, now_ms) && partition->dead_count > 0)
        return KAFKA_WAIT;
    if (partition->sending == NULL && !kafka_issue_keep_all(kafka, partition)) {
        partition->again_at_ms = now_ms + KAFKA_LATER_MS;
        return KAFKA_WAIT;
    }
    if (kafka_partition_send_dead(partition, now_ms) != KAFKA_DONE)
        return KAFKA_WAIT;
    atomic_fetch_add(&kafka->dead, partition->dead_count);
    issue->phase = PHASE_FRESH;
    return KAFKA_DONE;
}

/* --- the consumer's callbacks --- */

enum kafka_step relay_kafka_work(void *context, struct kafka_partition *partition, int64_t now_ms)
{
    struct relay_kafka *kafka = context;
    struct kafka_issue *issue = partition->work;

    if (issue->phase == PHASE_FRESH) {
        issue->consumer = partition->consumer;
        kafka_issue_read(kafka, issue, partition);
        issue->phase = issue->count > 0 ? PHASE_REFUSED : PHASE_DEAD;
        partition->again_at_ms = now_ms;
    }
    if (issue->phase == PHASE_REFUSED && now_ms >= partition->again_at_ms) {
        partition->again_at_ms = INT64_MAX;
        kafka_issue_send(kafka, issue);
        return KAFKA_WAIT;
    }
    if (issue->phase == PHASE_ISSUED) {
        pthread_mutex_lock(&kafka->lock);
        bool is_settled = issue->settled_count == issue->count;
        if (is_settled)
            kafka_issue_unlist(kafka, issue);
        pthread_mutex_unlock(&kafka->lock);
        if (is_settled)
            kafka_issue_sort(issue, partition, now_ms);
    }
    return issue->phase == PHASE_DEAD ? kafka_issue_put_aside(kafka, issue, partition, now_ms)
                                      : KAFKA_WAIT;
}

void relay_kafka_forget(void *context, struct kafka_partition *partition)
{
    struct relay_kafka *kafka = context;

    pthread_mutex_lock(&kafka->lock);
    kafka_issue_unlist(kafka, partition->work);
    pthread_mutex_unlock(&kafka->lock);
}
