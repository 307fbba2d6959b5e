/* worker_outlet.c: what a relay needs of the workers: the ledger to issue to, the gate that keeps
 * the mark of what is published, and a place for what is no claim. */
#include "base/fault.h"
#include "claim/worker_parts.h"

static void worker_outlet_issue(void *context, const struct claim *claims, size_t count)
{
    workers_note_issued(context, claims, count);
    FAULT_POINT("worker.before_issue");
    (void)ledger_issue(workers_service(context)->ledger, claims, count, NULL, 0);
}

static size_t worker_outlet_sift(void *context, struct claim *claims, size_t count)
{
    return workers_sift(context, claims, count);
}

static size_t worker_outlet_outstanding(void *context, int64_t policy_id)
{
    return workers_outstanding(context, policy_id);
}

static size_t worker_outlet_waiting(void *context, int64_t policy_id)
{
    return workers_waiting(context, policy_id);
}

static enum status worker_outlet_publish(void *context, int64_t policy_id, const char *token,
                                         int64_t *mark, struct error *error)
{
    return gate_publish(workers_service(context)->gate, policy_id, token, mark, error);
}

static enum status worker_outlet_published(void *context, int64_t policy_id, const char *token,
                                           int64_t seq, struct error *error)
{
    return gate_published(workers_service(context)->gate, policy_id, token, seq, error);
}

static enum status worker_outlet_letter(void *context, int64_t policy_id, int64_t seq,
                                        struct dead_letter *letter, struct error *error)
{
    return ledger_letter_get(workers_service(context)->ledger, policy_id, seq, letter, error);
}

static enum status worker_outlet_bury(void *context, const struct dead_letter *letter,
                                      struct error *error)
{
    return ledger_letters_write(workers_service(context)->ledger, letter, 1, error);
}

struct relay_outlet workers_outlet(struct workers *workers)
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
        .context = workers,
    };
}
