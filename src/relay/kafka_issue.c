/* kafka_issue.c: a batch of messages becomes coupons: read, issued, settled; what the ledger
 * refuses for now is tried again, what comes to nothing is put aside. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/json.h"
#include "base/log.h"
#include "relay/kafka_parts.h"

#define REFUSED_MS  200 /* until the first try again; twice as long each time */
#define REFUSED_MAX 6   /* doublings */
#define LATER_MS    200
#define TOPS_MAX    64
#define OFFSET_STEP 1024 /* between the letters of two offsets: room for the partition */

enum kafka_phase {
    PHASE_FRESH,   /* a new batch */
    PHASE_ISSUED,  /* the ledger has it */
    PHASE_REFUSED, /* what is left of it waits to be tried again */
    PHASE_DEAD,    /* all is settled but what came to nothing */
    PHASE_BURYING, /* that is on its way to the dead-letter topic */
};

/* The lane's work: one batch at a time. */
struct kafka_issue {
    struct kafka_issue *next; /* of those that wait for the ledger; under the relay's lock */
    enum kafka_phase phase;
    struct json_reader *reader;
    size_t count;
    struct claim claims[KAFKA_LANE_MAX];
    size_t message_at[KAFKA_LANE_MAX];
    enum coupon_state states[KAFKA_LANE_MAX]; /* under the relay's lock while ISSUED, as these */
    bool is_settled[KAFKA_LANE_MAX];
    size_t settled_count;
    size_t hint; /* where the next one is to be expected */
    /* The highest seq of each policy in the batch. */
    struct {
        int64_t policy_id;
        int64_t seq;
    } tops[TOPS_MAX];
    size_t top_count;
    struct kafka_dead *dead;
    size_t dead_count;
    size_t dead_capacity;
    struct kafka_burial *burial;
};

/* --- reading --- */

static bool kafka_issue_put_aside(struct kafka_issue *issue, rd_kafka_message_t *message,
                                  int64_t policy_id, int64_t seq, const char *reason)
{
    if (issue->dead_count == issue->dead_capacity) {
        size_t capacity = issue->dead_capacity == 0 ? 16 : issue->dead_capacity * 2;
        struct kafka_dead *grown = realloc(issue->dead, capacity * sizeof(*grown));
        ensure(grown != NULL);
        issue->dead = grown;
        issue->dead_capacity = capacity;
    }
    struct kafka_dead *dead = &issue->dead[issue->dead_count++];
    *dead = (struct kafka_dead){.message = message, .policy_id = policy_id, .seq = seq};
    snprintf(dead->reason, sizeof(dead->reason), "%.*s", (int)sizeof(dead->reason) - 1, reason);
    return true;
}

static bool kafka_issue_has(const struct kafka_issue *issue, const struct claim *claim)
{
    for (size_t i = issue->count; i-- > 0;) {
        if (issue->claims[i].seq == claim->seq && issue->claims[i].policy_id == claim->policy_id)
            return true;
    }
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
static bool kafka_issue_read_claim(struct relay_kafka *kafka, struct kafka_issue *issue,
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
        if (event_read_claim(issue->reader, &message, claim, &traceparent, error) != STATUS_OK)
            return false;
    }
    traces_put(kafka->traces, &claim->request_id, traceparent);
    return true;
}

static void kafka_issue_read(struct relay_kafka *kafka, struct kafka_issue *issue,
                             const struct kafka_lane *lane)
{
    struct error error = {""};

    issue->count = issue->top_count = issue->dead_count = 0;
    for (size_t i = 0; i < lane->count; i++) {
        rd_kafka_message_t *read = lane->messages[i];
        struct claim *claim = &issue->claims[issue->count];
        if (!kafka_issue_read_claim(kafka, issue, read, claim, &error)) {
            kafka_issue_put_aside(issue, read, 0, 0, error.text);
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
        for (*at = 0; *at < issue->count; (*at)++) {
            if (kafka_issue_is(issue, *at, claim))
                return issue;
        }
    }
    return NULL;
}

void relay_kafka_settled(struct relay *relay, const struct claim *claims,
                         const enum coupon_state *states, size_t count)
{
    struct relay_kafka *kafka = (struct relay_kafka *)relay;
    bool is_any_done = false;

    pthread_mutex_lock(&kafka->lock);
    for (size_t i = 0; i < count && kafka->issues != NULL; i++) {
        size_t at = 0;
        struct kafka_issue *issue = kafka_issue_find(kafka->issues, &claims[i], &at);
        if (issue == NULL || issue->is_settled[at])
            continue;
        issue->is_settled[at] = true;
        issue->states[at] = states[i];
        issue->hint = at + 1;
        is_any_done = ++issue->settled_count == issue->count || is_any_done;
    }
    pthread_mutex_unlock(&kafka->lock);
    if (is_any_done)
        kafka_consumer_wake(kafka->consumer);
}

/* Once all is settled: keeps what was refused for now, and puts aside what came to nothing. */
static void kafka_issue_sort(struct kafka_issue *issue, struct kafka_lane *lane, int64_t now_ms)
{
    size_t left = 0;
    int32_t attempt_max = 0;

    for (size_t i = 0; i < issue->count; i++) {
        const struct claim *claim = &issue->claims[i];
        if (issue->states[i] == COUPON_VOID)
            kafka_issue_put_aside(issue, lane->messages[issue->message_at[i]], claim->policy_id,
                                  claim->seq, "");
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
        lane->again_at_ms = now_ms + ((int64_t)REFUSED_MS << doublings);
    }
}

/* --- what came to nothing --- */

/* The reason why a claim was not issued stands in its letter; what is no claim gets one. */
static enum status kafka_dead_keep(struct relay_kafka *kafka, struct kafka_dead *dead)
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
    enum status status = outlet->bury(outlet->context, &letter, &error);
    if (status == STATUS_OK)
        log_event(LOG_WARN, "message_unreadable",
                  LOG_FIELD("topic", LOG_TEXT(rd_kafka_topic_name(message->rkt))),
                  LOG_FIELD("partition", LOG_I64(message->partition)),
                  LOG_FIELD("offset", LOG_I64(message->offset)),
                  LOG_FIELD("error", LOG_TEXT(dead->reason)));
    return status;
}

/* True when every one of them has its reason; those whose letter is gone are dropped. */
static bool kafka_issue_keep_dead(struct relay_kafka *kafka, struct kafka_issue *issue)
{
    size_t left = 0;
    bool is_complete = true;

    for (size_t i = 0; i < issue->dead_count; i++) {
        struct kafka_dead *dead = &issue->dead[i];
        enum status status = STATUS_OK;
        if (!dead->is_kept && is_complete) {
            status = kafka_dead_keep(kafka, dead);
            dead->is_kept = status == STATUS_OK;
            is_complete = status == STATUS_OK || status == STATUS_NOT_FOUND;
        }
        if (status != STATUS_NOT_FOUND)
            issue->dead[left++] = *dead;
    }
    issue->dead_count = left;
    return is_complete;
}

static enum kafka_step kafka_issue_bury(struct relay_kafka *kafka, struct kafka_issue *issue,
                                        struct kafka_lane *lane, int64_t now_ms)
{
    if (issue->dead_count > 0 && now_ms < lane->again_at_ms && lane->again_at_ms != INT64_MAX)
        return KAFKA_WAIT;
    lane->again_at_ms = now_ms + LATER_MS;
    if (!kafka_issue_keep_dead(kafka, issue))
        return KAFKA_WAIT;
    if (issue->dead_count == 0) {
        issue->phase = PHASE_FRESH;
        return KAFKA_DONE;
    }
    const struct kafka_grave grave = {.producer = kafka->producer,
                                      .topic = KAFKA_COUPON_PENDED_DLQ,
                                      .consumer = &kafka->consumer,
                                      .lock = &kafka->lock};
    issue->burial = kafka_bury(&grave, issue->dead, issue->dead_count);
    if (issue->burial != NULL) {
        issue->phase = PHASE_BURYING;
        lane->again_at_ms = INT64_MAX;
    }
    return KAFKA_WAIT;
}

static enum kafka_step kafka_issue_await_burial(struct relay_kafka *kafka,
                                                struct kafka_issue *issue, struct kafka_lane *lane,
                                                int64_t now_ms)
{
    bool is_fine = false;

    if (!kafka_burial_is_over(issue->burial, &is_fine))
        return KAFKA_WAIT;
    issue->burial = NULL;
    if (!is_fine) {
        issue->phase = PHASE_DEAD;
        lane->again_at_ms = now_ms + LATER_MS;
        return KAFKA_WAIT;
    }
    atomic_fetch_add(&kafka->dead, issue->dead_count);
    issue->phase = PHASE_FRESH;
    return KAFKA_DONE;
}

/* --- the consumer's callbacks --- */

static struct kafka_issue *kafka_issue_new(void)
{
    struct kafka_issue *issue = calloc(1, sizeof(*issue));

    if (issue == NULL)
        return NULL;
    issue->reader = json_reader_new(EVENT_VALUE_MAX);
    if (issue->reader != NULL)
        return issue;
    free(issue);
    return NULL;
}

enum kafka_step relay_kafka_work(void *context, struct kafka_lane *lane, int64_t now_ms)
{
    struct relay_kafka *kafka = context;
    struct kafka_issue *issue = lane->work;

    if (issue == NULL && (issue = lane->work = kafka_issue_new()) == NULL) {
        lane->again_at_ms = now_ms + LATER_MS;
        return KAFKA_WAIT;
    }
    if (issue->phase == PHASE_FRESH) {
        kafka_issue_read(kafka, issue, lane);
        issue->phase = issue->count > 0 ? PHASE_REFUSED : PHASE_DEAD;
        lane->again_at_ms = now_ms;
    }
    if (issue->phase == PHASE_REFUSED && now_ms >= lane->again_at_ms) {
        lane->again_at_ms = INT64_MAX;
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
            kafka_issue_sort(issue, lane, now_ms);
    }
    if (issue->phase == PHASE_BURYING)
        return kafka_issue_await_burial(kafka, issue, lane, now_ms);
    return issue->phase == PHASE_DEAD ? kafka_issue_bury(kafka, issue, lane, now_ms) : KAFKA_WAIT;
}

void relay_kafka_forget(void *context, struct kafka_lane *lane)
{
    struct relay_kafka *kafka = context;
    struct kafka_issue *issue = lane->work;

    if (issue == NULL)
        return;
    pthread_mutex_lock(&kafka->lock);
    kafka_issue_unlist(kafka, issue);
    pthread_mutex_unlock(&kafka->lock);
    if (issue->burial != NULL)
        kafka_burial_forget(issue->burial);
    json_reader_free(issue->reader);
    free(issue->dead);
    free(issue);
    lane->work = NULL;
}
