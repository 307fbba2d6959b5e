/* audit_repair.c: puts right what an audit found beside a gate in memory: the ledger is written
 * from what the gate knows. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/audit_parts.h"

#define HEALTH_WAIT_MS 5000 /* for the ledger to be well after it was repaired */
#define POLL_MS        50

static enum status audit_tell_all(void *context, int64_t policy_id,
                                  const struct claim_visitor *listener, struct error *error)
{
    struct service *service = context;

    return gate_visit(service->gate, policy_id, listener, error);
}

/* What this process remembers. */
static struct ledger_memory audit_memory(struct service *service)
{
    struct ledger_memory memory = {.tell = audit_tell_all, .context = service};

    if (!service->options.has_code_key) {
        memory.secret_name = SERVICE_CODE_KEY;
        memory.secret = (const uint8_t *)&service->code_key;
        memory.secret_length = sizeof(service->code_key);
    }
    return memory;
}

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

/* The writer may have to look up what became of its last commit first. */
static void audit_await_health(struct service *service)
{
    int64_t until_ms = clock_monotonic_ms() + HEALTH_WAIT_MS;

    while ((ledger_is_behind(service->ledger) || !ledger_healthy(service->ledger)) &&
           clock_monotonic_ms() < until_ms)
        service_pause(POLL_MS);
}

/* While this goes on nobody changes a policy, a lease or who is blocked, so that the gate holds
 * still but for claims. After UNKNOWN the units that were given back are forgotten as well: either
 * the repair was done, or the ledger is still older, and only another repair can change that. */
static enum status audit_write_ledger(struct service *service, bool is_behind,
                                      struct ledger_repair *done, struct error *error)
{
    struct ledger_memory memory = audit_memory(service);
    int64_t started_ms = clock_monotonic_ms();

    steward_lock_all(&service->steward);
    enum status status = is_behind ? ledger_repair(service->ledger, &memory, done, error)
                                   : ledger_rewrite(service->ledger, &memory, done, error);
    if (status == STATUS_UNKNOWN || (status == STATUS_OK && done->is_done)) {
        audit_await_health(service);
        steward_repaired(&service->steward);
        audit_refresh(service);
    }
    steward_unlock_all(&service->steward);
    if (status == STATUS_OK && done->is_done)
        log_event(LOG_INFO, "repair_done",
                  LOG_FIELD("ms", LOG_I64(clock_monotonic_ms() - started_ms)));
    service_stock_changed(service);
    return status;
}

/* Only policies that have strays are changed. */
static enum status audit_adopt(struct service *service, int64_t policy_id, struct error *error)
{
    struct ledger_fix fix = {.policy_id = policy_id, .adopts_strays = true};

    steward_lock(&service->steward, policy_id);
    enum status status = ledger_fix(service->ledger, &fix, error);
    if (status == STATUS_OK && fix.is_changed)
        audit_refresh(service);
    steward_unlock(&service->steward, policy_id);
    return status;
}

struct audit_plan {
    struct service *service;
    struct audit_repair *done;
    struct ledger_repair_note *note;
    bool needs_rewrite;
};

/* Notes what is to be done about a policy, if anything is. */
static enum status audit_plan_each(void *context, const struct audit_pass *look,
                                   struct error *error)
{
    struct audit_plan *plan = context;
    const struct policy_audit *audit = &look->audit;
    bool is_for_rewrite = audit_is_for_rewrite(audit);
    bool is_renumbered = false;

    if (look->status != STATUS_OK)
        *error = look->error;
    if (look->status != STATUS_OK || !(is_for_rewrite || audit_needs_places(audit)))
        return look->status;
    plan->needs_rewrite = plan->needs_rewrite || is_for_rewrite;
    plan->done->policy_count++;
    plan->note->policy_id = audit->policy_id;
    audit_write_plan(audit, plan->note->plan, sizeof(plan->note->plan));
    enum status status = audit_place(plan->service, audit, plan->done, &is_renumbered, error);
    if (status == STATUS_OK && audit->counts[AUDIT_STRAY] != 0)
        status = audit_adopt(plan->service, audit->policy_id, error);
    if (is_renumbered)
        snprintf(plan->done->text, sizeof(plan->done->text),
                 "policy %" PRId64 ": coupons got other numbers; restart the server",
                 audit->policy_id);
    return status;
}

/* Writes the ledger from memory. */
static enum status audit_rewrite(struct service *service, bool is_behind, struct audit_repair *done,
                                 struct ledger_repair_note *note, struct error *error)
{
    char outcome[160];
    enum status status = audit_write_ledger(service, is_behind, &done->ledger, error);

    if (status != STATUS_OK || !done->ledger.is_done)
        return status;
    done->stock_count = done->policy_count;
    snprintf(outcome, sizeof(outcome),
             "written from the server's memory: %" PRId64 " policies, %" PRId64 " coupons",
             done->ledger.policy_count, done->ledger.written_count);
    if (ledger_repair_begin(service->ledger, note, error) == STATUS_OK)
        audit_note(service, note, outcome);
    return STATUS_OK;
}

enum status audit_repair_local(struct service *service, int64_t policy_id,
                               enum audit_lacking lacking, struct audit_repair *done,
                               struct error *error)
{
    bool is_behind = ledger_is_behind(service->ledger);
    struct ledger_repair_note note = {.policy_id = policy_id, .asked_at_ms = clock_wall_ms()};
    enum status status = STATUS_OK;
    int64_t id = 0;

    (void)lacking; /* A gate in memory and its ledger have the same policies. */
    if (gate_is_filling(service->gate))
        return error_set(error, STATUS_UNAVAILABLE,
                         "the gate is being restored: repair when /readyz says that it is over");
    if (policy_id != 0 && (gate_list(service->gate, policy_id - 1, &id, 1) == 0 || id != policy_id))
        return error_set(error, STATUS_NOT_FOUND, "there is no policy %" PRId64, policy_id);
    struct audit_plan plan = {.service = service, .done = done, .note = &note};
    if (is_behind)
        snprintf(note.plan, sizeof(note.plan), "the ledger is older than the server");
    else
        status = audit_for_each(service, policy_id, audit_plan_each, &plan, error);
    if (status != STATUS_OK || note.plan[0] == '\0')
        return status;
    if (is_behind || plan.needs_rewrite)
        return audit_rewrite(service, is_behind, done, &note, error);
    if (ledger_repair_begin(service->ledger, &note, error) == STATUS_OK)
        audit_note(service, &note, "done");
    return STATUS_OK;
}
