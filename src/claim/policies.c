/* policies.c: creating, changing and showing policies, in step with the gate. */
#include <stdlib.h>

#include "base/clock.h"
#include "claim/parts.h"

static enum status service_count(struct service *service, enum numbers_age age,
                                 struct policy_view *view, struct error *error)
{
    return service->topology->numbers(service, view->policy.id, age, &view->numbers, error);
}

/* Tells the gate that `count` units are on their way between it and the ledger, so that it asks for
 * a lease meanwhile and tells nobody SOLD_OUT. */
enum status service_policy_announce(struct service *service, const struct policy *policy,
                                    int64_t count, struct error *error)
{
    struct policy between = *policy;

    between.unleased += count;
    return gate_policy_set(service->gate, &between, error);
}

enum status service_not_yet(struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE,
                     "an earlier change waits for the ledger, or the gate is being restored");
}

void service_policy_doubt(struct service *service, int64_t policy_id, const struct lease *lease)
{
    steward_doubt(
        &service->steward,
        &(struct steward_doubt){.about = DOUBT_POLICY, .policy_id = policy_id, .lease = *lease});
}

enum status service_policy_lend(struct service *service, const struct policy *policy,
                                const struct lease *lease, int64_t term, struct error *error)
{
    enum status status = service_policy_announce(service, policy, lease->count, error);

    if (status == STATUS_OK && lease->count > 0)
        status = gate_lend(service->gate, lease, 0, term, error);
    return status == STATUS_OK ? gate_policy_set(service->gate, policy, error) : status;
}

/* Under the lock of an id that was given; one that the ledger gives nobody knows before. */
static enum status service_policy_make(struct service *service, struct policy *policy,
                                       struct lease *lease, struct error *error)
{
    if (policy->id != 0 && !steward_is_sure(&service->steward, policy->id))
        return service_not_yet(error);
    enum status status = ledger_policy_create(service->ledger, policy, lease, error);
    if (status == STATUS_UNKNOWN)
        service_policy_doubt(service, policy->id, lease);
    return status;
}

enum status service_policy_create(struct service *service, const struct policy *policy,
                                  struct policy_view *view, struct error *error)
{
    struct lease lease = {0};
    int64_t locked_id = policy->id;

    view->policy = *policy;
    view->policy.created_at_ms = clock_wall_ms();
    if (locked_id != 0)
        steward_lock(&service->steward, locked_id);
    enum status status = service_policy_make(service, &view->policy, &lease, error);
    if (locked_id == 0 && status == STATUS_OK) {
        locked_id = view->policy.id;
        steward_lock(&service->steward, locked_id);
    }
    if (status == STATUS_OK)
        status = service->topology->load(service, &view->policy, &lease, error);
    if (locked_id != 0)
        steward_unlock(&service->steward, locked_id);
    return status == STATUS_OK ? service_count(service, NUMBERS_KNOWN, view, error) : status;
}

enum status service_policy_show(struct service *service, int64_t id, struct policy_view *view,
                                struct error *error)
{
    enum status status = ledger_policy_get(service->ledger, id, &view->policy, error);

    /* A client that was answered by another process sees here what came of it. */
    return status == STATUS_OK ? service_count(service, NUMBERS_NOW, view, error) : status;
}

void service_observe(struct service *service, int64_t policy_id)
{
    struct gate_numbers numbers;

    (void)!service->topology->numbers(service, policy_id, NUMBERS_NOW, &numbers, NULL);
}

enum status service_policy_list(struct service *service, int64_t after_id,
                                struct policy_view *views, size_t max, size_t *count,
                                struct error *error)
{
    struct policy *policies = calloc(max, sizeof(*policies));
    enum status status =
        policies == NULL ? error_set(error, STATUS_UNAVAILABLE, "no memory for %zu policies", max)
                         : STATUS_OK;
    bool is_end = false;

    *count = 0;
    while (status == STATUS_OK && *count < max && !is_end) {
        size_t wanted = max - *count;
        size_t found = 0;
        status = ledger_policy_list(service->ledger, after_id, policies, wanted, &found, error);
        is_end = found < wanted;
        for (size_t i = 0; i < found && status == STATUS_OK; i++) {
            views[*count].policy = policies[i];
            after_id = policies[i].id;
            /* The audit tells which number it is, and so does asking for this one. */
            if (policies[i].is_damaged)
                continue;
            bool is_restored = restore_has(service->restore, after_id);
            status = service_count(service, NUMBERS_KNOWN, &views[*count], error);
            if (status == STATUS_OK)
                ++*count;
            else if (status == STATUS_UNAVAILABLE && service->topology->lists_whole_only &&
                     is_restored)
                status = STATUS_OK;
        }
    }
    free(policies);
    return status;
}

enum status service_each_policy(struct service *service, policy_visit *visit, void *context,
                                struct error *error)
{
    enum { PAGE = 64 };
    struct policy *page = malloc(PAGE * sizeof(*page));
    enum status status =
        page == NULL ? error_set(error, STATUS_UNAVAILABLE, "no memory for a page of policies")
                     : STATUS_OK;
    int64_t after_id = 0;
    size_t count = PAGE;

    while (status == STATUS_OK && count == PAGE) {
        status = ledger_policy_list(service->ledger, after_id, page, PAGE, &count, error);
        for (size_t i = 0; i < count && status == STATUS_OK; i++)
            status = visit(context, &page[i], error);
        after_id = count > 0 ? page[count - 1].id : after_id;
    }
    free(page);
    return status;
}

/* What the gate could not give back for: the words for whoever asked for it. */
static enum status service_too_few(struct service *service, const struct policy *wanted,
                                   struct error *error)
{
    struct gate_numbers numbers = {0};

    (void)!gate_count(service->gate, wanted->id, clock_wall_ms(), &numbers);
    long long taken = numbers.issued + numbers.pending;
    if (taken > wanted->total)
        return error_set(error, STATUS_CONFLICT,
                         "total: %lld coupons are issued or pending; it cannot be %lld", taken,
                         (long long)wanted->total);
    return error_set(error, STATUS_CONFLICT,
                     "reserve: %lld of %lld coupons are issued or pending; it cannot be %lld",
                     taken, (long long)wanted->total, (long long)wanted->reserve);
}

/* Units the gate has to give back before the total can be lowered, or a reserve be kept; the
 * unleased ones go first. A gate that had sold its lease may have been lent the reserve: one that
 * does not rise is kept as far as it is there. */
static enum status service_recall_for(struct service *service, const struct policy *policy,
                                      const struct policy_change *change,
                                      struct lease_shrunk *shrunk, size_t *shrunk_count,
                                      struct error *error)
{
    struct policy wanted = *policy;
    int64_t kept = 0;
    const char *field;

    *shrunk_count = 0;
    if (policy->closed_at_ms != 0)
        return STATUS_OK;
    if (policy_change_sets(change, POLICY_COLUMN_total))
        wanted.total = change->to[POLICY_COLUMN_total];
    if (policy_change_sets(change, POLICY_COLUMN_reserve)) {
        wanted.reserve = kept = change->to[POLICY_COLUMN_reserve];
        const char *broken = policy_broken_rule(&wanted, &(size_t){0}, &field);
        if (broken != NULL)
            return error_set(error, STATUS_INVALID, "%s", broken);
        if (kept <= policy->reserve && kept > policy->unleased)
            kept = policy->unleased;
    }
    int64_t count = kept + policy->total - wanted.total - policy->unleased;
    if (count <= 0)
        return STATUS_OK;
    enum status status = service_policy_announce(service, policy, count, error);
    if (status == STATUS_OK)
        status = gate_recall(service->gate, policy->id, count, shrunk, shrunk_count, error);
    if (status != STATUS_OK)
        (void)!gate_policy_set(service->gate, policy, NULL);
    return status == STATUS_CONFLICT ? service_too_few(service, &wanted, error) : status;
}

/* The opening may have been put off when some had claimed already: what their coupons are stays. */
static enum status service_check_given(struct service *service, const struct policy_change *change,
                                       struct policy_view *view, struct error *error)
{
    const char *column = NULL;

    for (int i = 0; i < POLICY_COLUMN_COUNT; i++)
        if (policy_change_sets(change, i) && policy_columns[i].later == POLICY_UNTIL_OPEN &&
            i != POLICY_COLUMN_name)
            column = policy_columns[i].name;
    if (column == NULL)
        return STATUS_OK;
    enum status status = service_count(service, NUMBERS_NOW, view, error);
    int64_t given = view->numbers.issued + view->numbers.pending;
    return status != STATUS_OK || given == 0
               ? status
               : error_set(error, STATUS_CONFLICT, "%s: %lld coupons are issued or pending", column,
                           (long long)given);
}

/* A closed policy's stock goes home. The policy is closed already, in ledger and gate: if this is
 * cut short, the next start closes the leases that are left. */
static void service_empty_gate(struct service *service, int64_t policy_id)
{
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;
    struct error error;

    while (steward_is_settled(&service->steward, policy_id) &&
           gate_recall(service->gate, policy_id, GATE_RECALL_ALL, shrunk, &shrunk_count, &error) ==
               STATUS_OK &&
           shrunk_count > 0)
        steward_give_back(&service->steward, policy_id, shrunk, shrunk_count);
}

enum status service_policy_change(struct service *service, int64_t id,
                                  const struct policy_change *change, struct policy_view *view,
                                  struct error *error)
{
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;
    struct policy_change dated = *change;

    dated.now_ms = clock_wall_ms();
    steward_lock(&service->steward, id);
    enum status status = steward_is_settled(&service->steward, id)
                             ? ledger_policy_get(service->ledger, id, &view->policy, error)
                             : service_not_yet(error);
    if (status == STATUS_OK)
        status = service_check_given(service, change, view, error);
    if (status == STATUS_OK)
        status = service_recall_for(service, &view->policy, &dated, shrunk, &shrunk_count, error);
    if (status == STATUS_OK) {
        status = ledger_policy_change(service->ledger, id, &dated, shrunk, shrunk_count,
                                      &view->policy, error);
        /* Giving the units back tells what became of the change as well. */
        if (status != STATUS_OK)
            steward_give_back(&service->steward, id, shrunk, shrunk_count);
        if (status == STATUS_UNKNOWN && shrunk_count == 0)
            service_policy_doubt(service, id, &(struct lease){0});
    }
    if (status == STATUS_OK)
        status = gate_policy_set(service->gate, &view->policy, error);
    if (status == STATUS_OK && view->policy.closed_at_ms != 0)
        service_empty_gate(service, id);
    steward_unlock(&service->steward, id);
    service_stock_changed(service);
    return status == STATUS_OK ? service_count(service, NUMBERS_KNOWN, view, error) : status;
}

/* Nobody has changed the policy's line since the doubt began: if the lease's first seq is no longer
 * the next one, the lease was taken. */
enum status service_policy_settle(struct service *service, int64_t policy_id,
                                  const struct lease *lease, struct error *error)
{
    struct policy policy;
    enum status status = ledger_policy_get(service->ledger, policy_id, &policy, error);

    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (status == STATUS_OK && lease->count > 0 && policy.next_seq > lease->first_seq)
        return service->topology->found_lease(service, &policy, lease, error);
    return status == STATUS_OK ? gate_policy_set(service->gate, &policy, error) : status;
}
