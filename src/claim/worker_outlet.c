/* worker_outlet.c: what a relay needs of the worker: the ledger to issue to, the gate that keeps
 * the mark of what is published, and a place for what is no claim. */
#include "base/clock.h"
#include "claim/worker_parts.h"

static void worker_outlet_issue(void *context, const struct claim *claims, size_t count)
{
    (void)worker_issue(context, claims, count, NULL, 0);
}

static size_t worker_outlet_sift(void *context, struct claim *claims, size_t count)
{
    return worker_sift(context, claims, count);
}

static size_t worker_outlet_outstanding(void *context)
{
    struct worker *worker = context;

    pthread_mutex_lock(&worker->lock);
    size_t outstanding = worker->outstanding;
    pthread_mutex_unlock(&worker->lock);
    return outstanding;
}

static size_t worker_outlet_waiting(void *context, int64_t policy_id)
{
    struct worker *worker = context;

    pthread_mutex_lock(&worker->lock);
    size_t waiting = patience_waiting(&worker->patience, policy_id, clock_monotonic_ms());
    pthread_mutex_unlock(&worker->lock);
    return waiting;
}

static enum status worker_outlet_publish(void *context, int64_t policy_id, const char *token,
                                         int64_t *mark, struct error *error)
{
    struct worker *worker = context;
    return gate_publish(worker->service->gate, policy_id, token, mark, error);
}

static enum status worker_outlet_published(void *context, int64_t policy_id, const char *token,
                                           int64_t seq, struct error *error)
{
    struct worker *worker = context;
    return gate_published(worker->service->gate, policy_id, token, seq, error);
}

static enum status worker_outlet_letter(void *context, int64_t policy_id, int64_t seq,
                                        struct dead_letter *letter, struct error *error)
{
    struct worker *worker = context;
    return ledger_letter_get(worker->service->ledger, policy_id, seq, letter, error);
}

static enum status worker_outlet_bury(void *context, const struct dead_letter *letter,
                                      struct error *error)
{
    struct worker *worker = context;
    return ledger_letter_write(worker->service->ledger, letter, error);
}

struct relay_outlet worker_outlet(struct worker *worker)
{
    return (struct relay_outlet){
        .issue = worker_outlet_issue,
        .sift = worker_outlet_sift,
        .outstanding = worker_outlet_outstanding,
        .waiting = worker_outlet_waiting,
        .publish = worker_outlet_publish,
        .published = worker_outlet_published,
        .letter = worker_outlet_letter,
        .bury = worker_outlet_bury,
        .context = worker,
    };
}
