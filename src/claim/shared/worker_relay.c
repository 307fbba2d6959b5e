/* worker_relay.c: the relay of the workers: what is pending goes straight into the ledger from
 * here, or through Kafka, which comes back here to issue. It counts what is on its way, and holds
 * back what the ledger refused a moment ago. */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fault.h"
#include "claim/shared/worker_parts.h"

#define FORGET_MS INT64_C(600000)

/* --- refused claims: a short list, searched from end to end, because refusals are rare --- */

static struct retry_claim *retry_list_find(const struct retry_list *retries, int64_t policy_id,
                                           int64_t seq)
{
    for (size_t i = 0; i < retries->count; i++)
        if (retries->claims[i].policy_id == policy_id && retries->claims[i].seq == seq)
            return &retries->claims[i];
    return NULL;
}

void retry_list_note(struct retry_list *retries, const struct claim *claim, int64_t now_ms)
{
    struct retry_claim *kept = retry_list_find(retries, claim->policy_id, claim->seq);

    if (kept == NULL) {
        if (!array_make_room(retries->claims, retries->count, retries->capacity))
            return;
        kept = &retries->claims[retries->count++];
        *kept = (struct retry_claim){.policy_id = claim->policy_id, .seq = claim->seq};
    }
    kept->attempt = claim->attempt + 1;
    int doublings = kept->attempt < 10 ? kept->attempt - 1 : 9;
    kept->again_at_ms = now_ms + ((int64_t)RETRY_PAUSE_MS << doublings);
}

void retry_list_forget(struct retry_list *retries, const struct claim *claim)
{
    struct retry_claim *kept = retry_list_find(retries, claim->policy_id, claim->seq);

    if (kept != NULL)
        *kept = retries->claims[--retries->count];
}

size_t retry_list_filter(struct retry_list *retries, struct claim *claims, size_t count,
                         int64_t now_ms)
{
    size_t left = 0;

    for (size_t i = 0; i < retries->count;)
        if (now_ms - retries->claims[i].again_at_ms > FORGET_MS)
            retries->claims[i] = retries->claims[--retries->count];
        else
            i++;
    for (size_t i = 0; i < count; i++) {
        const struct retry_claim *kept =
            retry_list_find(retries, claims[i].policy_id, claims[i].seq);
        if (kept != NULL && kept->again_at_ms > now_ms)
            continue;
        if (left != i)
            claims[left] = claims[i];
        claims[left++].attempt = kept == NULL ? 0 : kept->attempt;
    }
    return left;
}

size_t retry_list_waiting(const struct retry_list *retries, int64_t policy_id, int64_t now_ms)
{
    size_t waiting = 0;

    for (size_t i = 0; i < retries->count; i++)
        waiting +=
            retries->claims[i].policy_id == policy_id && retries->claims[i].again_at_ms > now_ms;
    return waiting;
}

/* --- what is on its way through the ledger --- */

/* Under the lock: counts claims of a policy that were handed to the ledger, or that the gate was
 * told of. Those of a policy count at the place where it was when the first was handed over. */
static void worker_relay_add(struct worker_relay *relay, int64_t policy_id, ptrdiff_t count)
{
    size_t at = array_place(relay->sent, relay->sent_count, .policy_id, policy_id);

    if (at == relay->sent_count || relay->sent[at].policy_id != policy_id) {
        if (count < 0)
            return;
        ensure(array_insert(relay->sent, at, relay->sent_count, relay->sent_capacity));
        relay->sent[at] = (struct sent_claims){
            .policy_id = policy_id, .place = gate_place(relay->service->shared, policy_id)};
    }
    struct sent_claims *sent = &relay->sent[at];
    if (count < 0 && (size_t)-count > sent->count)
        count = -(ptrdiff_t)sent->count;
    sent->count += (size_t)count;
    relay->outstanding[sent->place] += (size_t)count;
    if (sent->count == 0)
        array_remove(relay->sent, at, relay->sent_count);
}

uint64_t worker_relay_issue(struct worker_relay *relay, const struct claim *claims,
                            size_t claim_count, const struct key_binding *bindings,
                            size_t binding_count)
{
    pthread_mutex_lock(&relay->lock);
    for (size_t i = 0, length; i < claim_count; i += length) {
        length = claims_of_one_policy(claims + i, claim_count - i);
        worker_relay_add(relay, claims[i].policy_id, (ptrdiff_t)length);
    }
    pthread_mutex_unlock(&relay->lock);
    FAULT_POINT("worker.before_issue");
    return ledger_issue(relay->service->ledger, claims, claim_count, bindings, binding_count);
}

/* What the ledger did not take stays in the gate, and is tried again in a while. */
void worker_relay_told(struct worker_relay *relay, const struct claim *claims,
                       const enum coupon_state *states, size_t count)
{
    int64_t now_ms = clock_monotonic_ms();

    pthread_mutex_lock(&relay->lock);
    for (size_t i = 0, length; i < count; i += length) {
        length = claims_of_one_policy(claims + i, count - i);
        worker_relay_add(relay, claims[i].policy_id, -(ptrdiff_t)length);
    }
    for (size_t i = 0; i < count; i++)
        if (states[i] == COUPON_PENDING)
            retry_list_note(&relay->retries, &claims[i], now_ms);
        else
            retry_list_forget(&relay->retries, &claims[i]);
    pthread_mutex_unlock(&relay->lock);
}

size_t worker_relay_filter(struct worker_relay *relay, struct claim *claims, size_t count)
{
    pthread_mutex_lock(&relay->lock);
    size_t left = retry_list_filter(&relay->retries, claims, count, clock_monotonic_ms());
    pthread_mutex_unlock(&relay->lock);
    return left;
}

static size_t worker_relay_outstanding(struct worker_relay *relay, int64_t policy_id)
{
    size_t place = gate_place(relay->service->shared, policy_id);

    pthread_mutex_lock(&relay->lock);
    size_t outstanding = relay->outstanding[place];
    pthread_mutex_unlock(&relay->lock);
    return outstanding;
}

/* --- straight into the ledger --- */

/* A way's state is what the topic has to be past before its policy is armed, where there is one. */
static enum status worker_relay_begin(struct relay *relay, struct relay_stream *stream,
                                      struct error *error)
{
    struct kafka_goal *goal = stream->state;

    if (goal == NULL && ((struct worker_relay *)relay)->service->kafka != NULL &&
        (goal = stream->state = malloc(sizeof(*goal))) == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to drain");
    if (goal != NULL)
        goal->is_set = false;
    stream->cursor = 0;
    return STATUS_OK;
}

static enum status worker_relay_carry(struct relay *base, struct relay_stream *stream,
                                      struct claim *claims, size_t count, struct error *error)
{
    struct worker_relay *relay = (struct worker_relay *)base;

    if (worker_relay_outstanding(relay, stream->policy_id) > RELAY_OUTSTANDING_MAX)
        return error_set(error, STATUS_BUSY, "the ledger has much to do");
    stream->cursor = claims[count - 1].seq;
    count = worker_relay_filter(relay, claims, count);
    if (count > 0)
        (void)worker_relay_issue(relay, claims, count, NULL, 0);
    return STATUS_OK;
}

/* What is still pending though the ledger was given it is given again. */
static bool worker_relay_rest(struct relay *base, struct relay_stream *stream,
                              int64_t pending_count)
{
    struct worker_relay *relay = (struct worker_relay *)base;

    if (stream->cursor == 0 || worker_relay_outstanding(relay, stream->policy_id) > 0)
        return false;
    stream->cursor = 0;
    pthread_mutex_lock(&relay->lock);
    size_t waiting = retry_list_waiting(&relay->retries, stream->policy_id, clock_monotonic_ms());
    pthread_mutex_unlock(&relay->lock);
    return pending_count > (int64_t)waiting;
}

/* Where the gate lost its memory, a topic may have claims that nobody else knows any more. People
 * who claim need no broker, though: while none answers nobody waits, and what comes out later takes
 * a unit anew. */
static enum status worker_relay_pass(struct relay *relay, struct relay_stream *stream,
                                     struct claim *claims, size_t count, struct error *error)
{
    struct kafka *kafka = ((struct worker_relay *)relay)->service->kafka;
    struct kafka_view view = {.is_known = true};

    if (kafka != NULL)
        kafka_watch_read(kafka->watch, &view);
    if (!view.is_known)
        return error_set(error, STATUS_BUSY, "it is not known yet whether the brokers answer");
    if (view.is_up) {
        enum status status = relay_kafka_drained(kafka, stream->state, stream->policy_id, error);
        if (status != STATUS_OK)
            return status;
    }
    stream->cursor = 0;
    return STATUS_OK;
}

static void worker_relay_leave(struct relay *relay, struct relay_stream *stream)
{
    free(stream->state);
    stream->state = NULL;
    stream->cursor = 0;
}

static const struct relay_ops worker_relay_ops = {
    .begin = worker_relay_begin,
    .carry = worker_relay_carry,
    .rest = worker_relay_rest,
    .pass = worker_relay_pass,
    .leave = worker_relay_leave,
};

/* --- through Kafka: what comes out of it, and the mark of what went in --- */

static void outlet_issue(void *context, const struct claim *claims, size_t count)
{
    (void)worker_relay_issue(context, claims, count, NULL, 0);
}

static size_t outlet_filter(void *context, struct claim *claims, size_t count)
{
    return worker_relay_filter(context, claims, count);
}

static size_t outlet_outstanding(void *context, int64_t policy_id)
{
    return worker_relay_outstanding(context, policy_id);
}

static enum status outlet_publish(void *context, int64_t policy_id, const char *token,
                                  int64_t *mark, struct error *error)
{
    const struct worker_relay *relay = context;
    return gate_publish(relay->service->shared, policy_id, token, mark, error);
}

static enum status outlet_published(void *context, int64_t policy_id, const char *token,
                                    int64_t seq, struct error *error)
{
    const struct worker_relay *relay = context;
    return gate_published(relay->service->shared, policy_id, token, seq, error);
}

static enum status outlet_dead_letter(void *context, int64_t policy_id, int64_t seq,
                                      struct dead_letter *letter, struct error *error)
{
    const struct worker_relay *relay = context;
    return ledger_dead_letter_get(relay->service->ledger, policy_id, seq, letter, error);
}

static enum status outlet_keep(void *context, const struct dead_letter *letter, struct error *error)
{
    const struct worker_relay *relay = context;
    return ledger_dead_letters_write(relay->service->ledger, letter, 1, error);
}

/* --- life --- */

void worker_relay_init(struct worker_relay *relay, struct service *service)
{
    *relay = (struct worker_relay){.relay = {.ops = &worker_relay_ops}, .service = service};
    pthread_mutex_init(&relay->lock, NULL);
    service->relay = &relay->relay;
}

void worker_relay_release(struct worker_relay *relay)
{
    pthread_mutex_destroy(&relay->lock);
    free(relay->sent);
    free(relay->retries.claims);
}

enum status worker_relay_run(struct worker_relay *relay, struct error *error)
{
    struct service *service = relay->service;
    const struct relay_outlet outlet = {
        .issue = outlet_issue,
        .filter = outlet_filter,
        .outstanding = outlet_outstanding,
        .publish = outlet_publish,
        .published = outlet_published,
        .letter = outlet_dead_letter,
        .keep = outlet_keep,
        .context = relay,
    };

    if (service->kafka == NULL)
        return STATUS_OK;
    enum status status =
        relay_kafka_open(&service->relay_kafka, service->kafka, &outlet, service->traces, error);
    if (status == STATUS_OK && !service->kafka->target.claims_are_direct)
        service->relay = relay_kafka_publisher(service->relay_kafka);
    return status;
}
