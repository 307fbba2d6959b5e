/* audit_repair.c: puts right what an audit found, the ways that stewards go. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "claim/audit_parts.h"

#define HEALTH_WAIT_MS  5000  /* for the ledger to be well after it was repaired */
#define DRAIN_WAIT_MS   10000 /* for a worker to write what was put back */
#define BUILD_WAIT_MS   30000 /* for a steward to build a policy anew */
#define POLL_MS         50
#define WORKER_GRACE_MS 2000 /* a worker that has not said so for this long does not live */

static void audit_pause(void)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    nanosleep(&pause, NULL);
}

/* --- a gate in memory --- */

static enum status audit_tell_all(void *context, int64_t policy_id,
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

/* What this process remembers. */
static struct ledger_memory audit_memory(struct service *service)
{
    struct ledger_memory memory = {
        .tell = audit_tell_all, .context = service, .forgets_freed = service->gate->ops->is_shared};

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
        audit_pause();
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

/* A ledger that cannot be written to has no place for the note either: the log has it. */
void audit_note(struct service *service, struct ledger_repair_note *note, const char *outcome)
{
    struct error error = {""};

    snprintf(note->outcome, sizeof(note->outcome), "%s", outcome);
    note->done_at_ms = clock_wall_ms();
    log_event(LOG_WARN, "policy_mended", LOG_FIELD("policy", LOG_I64(note->policy_id)),
              LOG_FIELD("found", LOG_TEXT(note->plan)), LOG_FIELD("done", LOG_TEXT(outcome)));
    if (ledger_repair_end(service->ledger, note, &error) != STATUS_OK)
        log_event(LOG_WARN, "repair_note_failed", LOG_FIELD("policy", LOG_I64(note->policy_id)),
                  LOG_FIELD("error", LOG_TEXT(error.text)));
}

/* Of the policies that have any. */
static enum status audit_adopt(struct service *service, int64_t policy_id, struct error *error)
{
    struct ledger_mend mend = {.policy_id = policy_id, .adopts_strays = true};

    steward_lock(&service->steward, policy_id);
    enum status status = ledger_mend(service->ledger, &mend, error);
    if (status == STATUS_OK && mend.is_changed)
        audit_refresh(service);
    steward_unlock(&service->steward, policy_id);
    return status;
}

/* Nobody's coupon goes: what is above the limit stays, and is named. */
static enum status audit_place(struct service *service, const struct policy_audit *audit,
                               struct audit_repair *done, bool *is_renumbered, struct error *error)
{
    struct ledger_mend mend = {.policy_id = audit->policy_id, .places_coupons = true};

    *is_renumbered = false;
    if (!audit_needs_places(audit))
        return STATUS_OK;
    enum status status = ledger_mend(service->ledger, &mend, error);
    if (status != STATUS_OK)
        return status;
    *is_renumbered = mend.is_renumbered;
    done->claim_count += audit->counts[AUDIT_SLOT] + mend.kept_count;
    if (mend.kept_count == 0)
        return STATUS_OK;
    log_event(LOG_WARN, "coupons_kept", LOG_FIELD("policy", LOG_I64(audit->policy_id)),
              LOG_FIELD("count", LOG_I64(mend.kept_count)),
              LOG_FIELD("coupons", LOG_TEXT(mend.kept)));
    snprintf(done->words, sizeof(done->words),
             "policy %" PRId64 ": kept above the limit: %" PRId64
             ", such as %s; cancel those that are not to stay",
             audit->policy_id, mend.kept_count, mend.kept);
    return STATUS_OK;
}

/* Does that for one policy, or all (0), many at a time. */
static enum status audit_for_each(struct service *service, int64_t policy_id,
                                  enum status (*each)(void *context, const struct audit_look *look,
                                                      struct error *error),
                                  void *context, struct error *error)
{
    int64_t *ids = NULL;
    size_t count = 1;
    enum status status = policy_id == 0 ? audit_list(service, 0, &ids, &count, error) : STATUS_OK;

    for (size_t at = 0; at < count && status == STATUS_OK; at += AUDIT_LOOKS_MAX) {
        struct audit_look *looks = NULL;
        size_t some = count - at < AUDIT_LOOKS_MAX ? count - at : AUDIT_LOOKS_MAX;
        status = audit_look_surely(service, AUDIT_DEEP, policy_id == 0 ? ids + at : &policy_id,
                                   some, &looks, error);
        for (size_t i = 0; i < some && status == STATUS_OK; i++) {
            /* One of many may have gone meanwhile. */
            if (policy_id != 0 || looks[i].status != STATUS_NOT_FOUND)
                status = each(context, &looks[i], error);
        }
        audit_looks_free(looks, some);
    }
    free(ids);
    return status;
}

struct audit_plan {
    struct service *service;
    struct audit_repair *done;
    struct ledger_repair_note *note;
    bool needs_rewrite;
};

/* Notes what is to be done about a policy, if anything is. */
static enum status audit_plan_each(void *context, const struct audit_look *look,
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
        snprintf(plan->done->words, sizeof(plan->done->words),
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

static enum status audit_repair_alone(struct service *service, int64_t policy_id,
                                      struct audit_repair *done, struct error *error)
{
    bool is_behind = ledger_is_behind(service->ledger);
    struct ledger_repair_note note = {.policy_id = policy_id, .asked_at_ms = clock_wall_ms()};
    enum status status = STATUS_OK;
    int64_t id = 0;

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

/* --- a gate that is shared --- */

/* What the ledger has of a pending claim that nobody holds, or what can be known of it. False: no
 * lease gave it, or somebody else has that seq. */
static enum status audit_recover(const struct audit_look *look, struct claim *claim, bool *is_given,
                                 struct error *error)
{
    const struct lease *lease = audit_look_lease(look, claim->seq);
    struct coupon coupon;
    enum status status =
        ledger_coupon_get(look->service->ledger, claim->policy_id, claim->seq, &coupon, error);

    *is_given = false;
    if (status == STATUS_OK) {
        *is_given =
            user_id_equal(&coupon.claim.user, &claim->user) && coupon.claim.nth == claim->nth;
        if (*is_given)
            *claim = coupon.claim;
        return STATUS_OK;
    }
    if (status != STATUS_NOT_FOUND)
        return status;
    for (size_t i = 0; lease != NULL && i < look->after.lease_count; i++) {
        const struct gate_lease *in_gate = &look->after.leases[i];
        if (in_gate->id == lease->id && claim->seq >= in_gate->next_seq)
            return STATUS_OK; /* Nobody has got that far. */
    }
    if (lease == NULL)
        return STATUS_OK;
    *is_given = true;
    claim->lease_id = lease->id;
    claim->requested_at_ms = clock_wall_ms();
    random_bytes(&claim->request_id, sizeof(claim->request_id));
    claim->request_id.bytes[0] &= 0x7f; /* It is no key's. */
    return STATUS_OK;
}

/* What is to be put right claim by claim; *put_back is how many the ledger is to get. */
static enum status audit_list_mends(const struct audit_look *look, struct gate_mend *mends,
                                    size_t *count, size_t *put_back, struct error *error)
{
    enum status status = STATUS_OK;

    *count = *put_back = 0;
    for (size_t i = 0; i < look->suspect_count && status == STATUS_OK; i++) {
        const struct audit_suspect *suspect = &look->suspects[i];
        struct gate_mend *mend = &mends[*count];
        bool is_given = true;
        mend->claim = suspect->held.claim;
        if (suspect->check == AUDIT_MISSING) {
            /* One that no lease gave goes when the policy is built anew. */
            if (audit_look_lease(look, mend->claim.seq) == NULL)
                continue;
            mend->mending = GATE_MEND_PENDING;
            (*put_back)++;
        } else if (suspect->check == AUDIT_PENDING) {
            status = audit_recover(look, &mend->claim, &is_given, error);
            mend->mending = is_given ? GATE_MEND_HELD : GATE_MEND_REMOVE;
            *put_back += is_given;
        } else if (suspect->check == AUDIT_UNLEASED) {
            mend->mending = GATE_MEND_REMOVE;
        } else {
            continue;
        }
        (*count)++;
    }
    return status;
}

/* Whether anyone is there to write what is put back, and to build what is laid down. Whoever
 * refuses the ledger, as it is an older one, is not. */
static bool audit_has_worker(struct service *service)
{
    int64_t count = 0;
    struct error error;

    return service->workers != NULL ||
           ledger_worker_count(service->ledger, WORKER_GRACE_MS, &count, &error) != STATUS_OK ||
           count > 0;
}

/* True when the ledger has all of the claims that were given back to it. */
static bool audit_await_written(struct service *service, const struct gate_mend *mends,
                                size_t count)
{
    int64_t until_ms = clock_monotonic_ms() + DRAIN_WAIT_MS;
    struct coupon coupon;
    struct error error;
    size_t at = 0;

    while (at < count && clock_monotonic_ms() < until_ms) {
        const struct claim *claim = &mends[at].claim;
        if (mends[at].mending == GATE_MEND_REMOVE ||
            ledger_coupon_get(service->ledger, claim->policy_id, claim->seq, &coupon, &error) ==
                STATUS_OK)
            at++;
        else if (audit_has_worker(service))
            audit_pause();
        else
            break;
    }
    return at == count;
}

/* A coupon that was redeemed is not to be used twice, though its row was lost. */
static void audit_redeem_again(struct service *service, const struct audit_look *look)
{
    const struct user_id no_order = {.length = 0};
    struct coupon coupon;
    struct error error = {""};

    for (size_t i = 0; i < look->suspect_count; i++) {
        const struct audit_suspect *suspect = &look->suspects[i];
        if (suspect->check == AUDIT_MISSING && suspect->held.state == COUPON_REDEEMED &&
            ledger_coupon_redeem(service->ledger, suspect->held.claim.policy_id,
                                 suspect->held.claim.seq, &no_order, clock_wall_ms(), NULL, &coupon,
                                 &error) != STATUS_OK)
            log_event(LOG_WARN, "redeem_failed",
                      LOG_FIELD("policy", LOG_I64(suspect->held.claim.policy_id)),
                      LOG_FIELD("seq", LOG_I64(suspect->held.claim.seq)),
                      LOG_FIELD("error", LOG_TEXT(error.text)));
    }
}

enum status audit_await_built(struct service *service, int64_t policy_id, bool *is_built,
                              struct error *error)
{
    int64_t until_ms = clock_monotonic_ms() + BUILD_WAIT_MS;
    struct gate_state state = {0};
    enum status status = STATUS_OK;

    *is_built = false;
    while (status == STATUS_OK && !*is_built && clock_monotonic_ms() < until_ms &&
           audit_has_worker(service)) {
        audit_pause();
        status = gate_inspect(service->gate, policy_id, &state, error);
        *is_built = status == STATUS_OK && state.is_armed;
        if (status == STATUS_UNAVAILABLE)
            status = STATUS_OK;
    }
    return status;
}

/* Whether anything is wrong that only building the policy anew mends. */
static bool audit_needs_building(const struct policy_audit *audit)
{
    static const enum audit_check checks[] = {
        AUDIT_OVERSOLD, AUDIT_MISSING,   AUDIT_UNKNOWN, AUDIT_OUTDATED, AUDIT_REPEATED,
        AUDIT_PENDING,  AUDIT_REMAINING, AUDIT_LEASE,   AUDIT_ADRIFT,   AUDIT_MARK};

    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (audit->counts[checks[i]] != 0)
            return true;
    }
    return false;
}

/* Whether there are claims to be put back, which needs nobody, and which no loss of Redis undoes.
 */
static bool audit_puts_back(const struct policy_audit *audit)
{
    return audit->counts[AUDIT_MISSING] != 0 || audit->counts[AUDIT_PENDING] != 0;
}

static enum status audit_mend_stock(struct service *service, const struct audit_look *look,
                                    struct audit_repair *done, bool *is_overlent,
                                    struct error *error)
{
    struct ledger_mend mend = {.policy_id = look->audit.policy_id,
                               .adopts_strays = look->audit.counts[AUDIT_STRAY] != 0};
    struct policy policy;
    enum status status = ledger_mend(service->ledger, &mend, error);

    *is_overlent = status == STATUS_CONFLICT;
    if (status == STATUS_CONFLICT)
        return STATUS_OK;
    if (status == STATUS_OK && mend.is_changed) {
        done->stock_count++;
        (void)!service_refresh(service, mend.policy_id, &policy, NULL);
    }
    return status;
}

static enum status audit_repair_claims(struct service *service, const struct audit_look *look,
                                       struct audit_repair *done, bool *is_written,
                                       struct error *error)
{
    struct gate_mend *mends = calloc(look->suspect_count + 1, sizeof(*mends));
    size_t count = 0;
    size_t put_back = 0;
    int64_t changed = 0;

    if (mends == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the repair");
    enum status status = audit_list_mends(look, mends, &count, &put_back, error);
    if (status == STATUS_OK)
        status = gate_mend(service->gate, look->audit.policy_id, mends, count, &changed, error);
    done->claim_count += changed;
    *is_written = put_back == 0;
    if (status == STATUS_OK && put_back > 0)
        *is_written = audit_await_written(service, mends, count);
    if (*is_written)
        audit_redeem_again(service, look);
    free(mends);
    return status;
}

static enum status audit_repair_steps(struct service *service, const struct audit_look *look,
                                      struct audit_repair *done, const char **outcome,
                                      struct error *error)
{
    int64_t policy_id = look->audit.policy_id;
    bool is_written = false;
    bool is_renumbered = false;
    bool is_overlent = false;
    bool is_built = false;
    enum status status = audit_repair_claims(service, look, done, &is_written, error);

    if (status == STATUS_OK && !is_written) {
        *outcome = "claims were put back, and no worker has written them yet; start `dibs worker` "
                   "when none runs, or only such that refuse the ledger";
        return STATUS_OK;
    }
    if (status == STATUS_OK && audit_needs_building(&look->audit) && !audit_has_worker(service)) {
        *outcome = "claims were put right, and no worker is alive to build the policy anew; start "
                   "`dibs worker`, then repair again";
        return STATUS_OK;
    }
    if (status == STATUS_OK)
        status = audit_place(service, &look->audit, done, &is_renumbered, error);
    if (status == STATUS_OK)
        status = audit_mend_stock(service, look, done, &is_overlent, error);
    if (status != STATUS_OK)
        return status;
    *outcome = "done";
    if (!is_overlent && !is_renumbered && !audit_needs_building(&look->audit))
        return STATUS_OK;
    status = gate_lay_down(service->gate, policy_id, error);
    if (status == STATUS_OK)
        status = audit_await_built(service, policy_id, &is_built, error);
    done->built_count += is_built;
    *outcome = is_built ? "done; built anew" : "laid down, and no worker has built it anew yet";
    return status;
}

static enum status audit_repair_policy(struct service *service, const struct audit_look *look,
                                       enum audit_lacking lacking, struct audit_repair *done,
                                       struct error *error)
{
    int64_t policy_id = look->audit.policy_id;
    struct ledger_repair_note note = {.policy_id = policy_id, .asked_at_ms = clock_wall_ms()};
    const char *outcome = "";

    if (look->status != STATUS_OK)
        *error = look->error;
    if (look->status != STATUS_OK || policy_audit_is_fine(&look->audit))
        return look->status;
    if (!audit_look_is_lost(look) && audit_needs_building(&look->audit) &&
        !audit_puts_back(&look->audit) && !audit_has_worker(service))
        return error_set(
            error, STATUS_CONFLICT,
            "policy %lld: a repair needs a worker that runs, and none is alive, or only "
            "such that refuse the ledger; start `dibs worker`. Nothing was changed",
            (long long)policy_id);
    audit_write_plan(&look->audit, note.plan, sizeof(note.plan));
    done->policy_count++;
    enum status status = ledger_repair_begin(service->ledger, &note, error);
    if (status == STATUS_OK) {
        status = audit_look_is_lost(look)
                     ? audit_repair_lost(service, look, lacking, done, &outcome, error)
                     : audit_repair_steps(service, look, done, &outcome, error);
        audit_note(service, &note, status == STATUS_OK ? outcome : error->text);
    }
    if (status == STATUS_OK && outcome[0] != 'd')
        snprintf(done->words, sizeof(done->words), "policy %lld: %s", (long long)policy_id,
                 outcome);
    return status;
}

struct audit_task {
    struct service *service;
    enum audit_lacking lacking;
    struct audit_repair *done;
};

static enum status audit_repair_each(void *context, const struct audit_look *look,
                                     struct error *error)
{
    const struct audit_task *task = context;
    return audit_repair_policy(task->service, look, task->lacking, task->done, error);
}

enum status service_repair(struct service *service, int64_t policy_id, enum audit_lacking lacking,
                           struct audit_repair *done, struct error *error)
{
    struct audit_task task = {.service = service, .lacking = lacking, .done = done};

    *done = (struct audit_repair){0};
    enum status status = service_audits_shared(service)
                             ? audit_for_each(service, policy_id, audit_repair_each, &task, error)
                             : audit_repair_alone(service, policy_id, done, error);
    return status == STATUS_OK && policy_id == 0 ? audit_board_repair(service, done, error)
                                                 : status;
}
