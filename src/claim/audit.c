/* audit.c: holds the ledger against the gate, and repairs one that is older. */
#include "base/clock.h"
#include "base/log.h"
#include "claim/parts.h"

/* --- what this process remembers --- */

static enum status audit_tell(void *context, int64_t policy_id,
                              const struct ledger_listener *listener, struct error *error)
{
    struct service *service = context;
    struct gate_visitor visitor = {
        .policy = listener->policy,
        .lease = listener->lease,
        .claim = listener->claim,
        .key = listener->key,
        .blocked = listener->blocked,
        .context = listener->context,
    };

    return gate_visit(service->gate, policy_id == 0 ? GATE_VISIT_ALL : policy_id, &visitor, error);
}

static struct ledger_memory audit_memory(struct service *service)
{
    struct ledger_memory memory = {
        .tell = audit_tell, .context = service, .forgets_freed = service->gate->ops->is_shared};

    if (!service->options.has_code_key) {
        memory.secret_name = SERVICE_CODE_KEY;
        memory.secret = (const uint8_t *)&service->code_key;
        memory.secret_length = sizeof(service->code_key);
    }
    return memory;
}

/* --- looking --- */

int64_t policy_audit_imbalance(const struct policy_audit *audit)
{
    const struct ledger_balance *balance = &audit->balance;
    return balance->total - balance->unleased - balance->leased - balance->active;
}

bool policy_audit_is_fine(const struct policy_audit *audit)
{
    const struct ledger_gap *gap = &audit->gap;
    return !gap->lacks_policy && !gap->has_older_policy && gap->missing_count == 0 &&
           gap->redeemed_count == 0 && gap->cancelled_count == 0 && gap->unknown_count == 0 &&
           policy_audit_imbalance(audit) == 0 && audit->balance.active <= audit->balance.total;
}

static enum status audit_policy(struct service *service, const struct ledger_memory *memory,
                                int64_t policy_id, struct policy_audit *audit, struct error *error)
{
    *audit = (struct policy_audit){.policy_id = policy_id};
    enum status status = ledger_compare(service->ledger, memory, policy_id, &audit->gap, error);
    if (status == STATUS_OK && !audit->gap.lacks_policy)
        status = ledger_balance(service->ledger, policy_id, &audit->balance, error);
    return status;
}

enum status service_audit(struct service *service, int64_t after_id, struct policy_audit *audits,
                          size_t max, size_t *count, struct error *error)
{
    struct ledger_memory memory = audit_memory(service);
    enum status status = STATUS_OK;

    *count = 0;
    while (*count < max && status == STATUS_OK &&
           gate_list(service->gate, after_id, &after_id, 1) == 1) {
        status = audit_policy(service, &memory, after_id, &audits[*count], error);
        (*count)++;
    }
    return status;
}

/* --- repairing --- */

/* The gate takes over the rows that the repair has written: their versions and what is unleased. */
static void audit_refresh(struct service *service)
{
    int64_t id = 0;
    struct policy policy;
    struct error error = {""};

    while (gate_list(service->gate, id, &id, 1) == 1) {
        if (service_refresh(service, id, &policy, &error) == STATUS_OK)
            continue;
        log_event(LOG_WARN, "refresh_failed", LOG_FIELD("policy", LOG_I64(id)),
                  LOG_FIELD("error", LOG_TEXT(error.text)));
        steward_call(&service->steward, id, STEWARD_REFRESH);
    }
}

/* While this goes on nobody changes a policy, a lease or who is blocked, so that the gate holds
 * still but for claims. After UNKNOWN the units that were given back are forgotten as well: either
 * the repair was done, or the ledger is still older, and only another repair can change that. */
enum status service_repair(struct service *service, struct ledger_repair *done, struct error *error)
{
    struct ledger_memory memory = audit_memory(service);
    int64_t started_ms = clock_monotonic_ms();

    *done = (struct ledger_repair){0};
    if (service->gate->ops->is_shared)
        return error_set(error, STATUS_CONFLICT,
                         "a repair writes what one server remembers; a gate in Redis is fed by "
                         "many, and its ledger cannot be repaired from it: bring the newer "
                         "database back. Workers that wrote to that one wait for it");
    steward_lock(&service->steward);
    enum status status = ledger_repair(service->ledger, &memory, done, error);
    if (status == STATUS_UNKNOWN || (status == STATUS_OK && done->is_done)) {
        steward_repaired(&service->steward);
        audit_refresh(service);
    }
    steward_unlock(&service->steward);
    if (status == STATUS_OK && done->is_done)
        log_event(LOG_INFO, "repair_done",
                  LOG_FIELD("ms", LOG_I64(clock_monotonic_ms() - started_ms)));
    service_stock_changed(service);
    return status;
}
