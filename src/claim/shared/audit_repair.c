/* audit_repair.c: puts right what an audit found beside a shared gate: claims go back to whoever
 * writes or holds them, and the rest is built anew by a steward. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "claim/audit_parts.h"

#define DRAIN_WAIT_MS        10000 /* for a worker to write what was put back */
#define BUILD_WAIT_MS        30000 /* for a steward to build a policy anew */
#define POLL_MS              50
#define STRAYS_MAX           1000
#define LOST_STRAYS_MAX      10000
#define DEAD_LETTERS_AT_ONCE 500
#define WORKER_GRACE_MS      2000 /* a worker that has not said so for this long does not live */

enum status audit_find_strays(struct audit_pass *look, struct error *error)
{
    struct claim *strays = malloc(STRAYS_MAX * sizeof(*strays));
    size_t count = 0;

    if (strays == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the audit");
    enum status status = gate_strays(look->service->shared, look->audit.policy_id, strays,
                                     STRAYS_MAX, &count, error);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        audit_suspect(look, AUDIT_PENDING,
                      &(struct held_claim){.claim = strays[i], .is_pending = true});
    free(strays);
    return status;
}

void claim_recover(struct claim *claim, const struct lease *lease)
{
    claim->lease_id = lease->id;
    claim->requested_at_ms = clock_wall_ms();
    random_bytes(&claim->request_id, sizeof(claim->request_id));
    claim->request_id.bytes[0] &= 0x7f; /* It is no key's. */
}

/* What the ledger has of a pending claim that nobody holds, or what can be known of it. False: no
 * lease gave it, or somebody else has that seq. */
static enum status audit_recover(const struct audit_pass *look, struct claim *claim, bool *is_given,
                                 struct error *error)
{
    const struct lease *lease =
        lease_that_gave(look->leases, look->lease_count, &look->after, claim->seq);
    struct coupon coupon;
    enum status status =
        ledger_coupon_get(look->service->ledger, claim->policy_id, claim->seq, &coupon, error);

    *is_given = status == STATUS_OK
                    ? id_equal(&coupon.claim.user, &claim->user) && coupon.claim.nth == claim->nth
                    : status == STATUS_NOT_FOUND && lease != NULL;
    if (*is_given && status == STATUS_OK)
        *claim = coupon.claim;
    else if (*is_given)
        claim_recover(claim, lease);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* What is to be put right claim by claim; *put_back is how many the ledger is to get. */
static enum status audit_list_fixes(const struct audit_pass *look, struct gate_fix *fixes,
                                    size_t *count, size_t *put_back, struct error *error)
{
    enum status status = STATUS_OK;

    *count = *put_back = 0;
    for (size_t i = 0; i < look->suspect_count && status == STATUS_OK; i++) {
        const struct audit_suspect *suspect = &look->suspects[i];
        struct gate_fix *fix = &fixes[*count];
        bool is_given = true;
        fix->claim = suspect->held.claim;
        if (suspect->check == AUDIT_MISSING) {
            /* One that no lease gave goes when the policy is built anew. */
            if (lease_that_gave(look->leases, look->lease_count, NULL, fix->claim.seq) == NULL)
                continue;
            fix->kind = GATE_FIX_PENDING;
            (*put_back)++;
        } else if (suspect->check == AUDIT_PENDING) {
            status = audit_recover(look, &fix->claim, &is_given, error);
            fix->kind = is_given ? GATE_FIX_HELD : GATE_FIX_REMOVE;
            *put_back += is_given;
        } else if (suspect->check == AUDIT_UNLEASED) {
            fix->kind = GATE_FIX_REMOVE;
        } else {
            continue;
        }
        (*count)++;
    }
    return status;
}

/* Whether anyone is there to write what is put back, and to build what is disarmed. Whoever
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
static bool audit_await_written(struct service *service, const struct gate_fix *fixes, size_t count)
{
    int64_t until_ms = clock_monotonic_ms() + DRAIN_WAIT_MS;
    struct coupon coupon;
    struct error error;
    size_t at = 0;

    while (at < count && clock_monotonic_ms() < until_ms) {
        const struct claim *claim = &fixes[at].claim;
        if (fixes[at].kind == GATE_FIX_REMOVE ||
            ledger_coupon_get(service->ledger, claim->policy_id, claim->seq, &coupon, &error) ==
                STATUS_OK)
            at++;
        else if (audit_has_worker(service))
            service_pause(POLL_MS);
        else
            break;
    }
    return at == count;
}

/* A coupon that was redeemed is not to be used twice, though its row was lost. */
void service_redeem_again(struct service *service, const struct held_claim *held)
{
    const struct id no_order = {.length = 0};
    const struct claim *claim = &held->claim;
    struct coupon coupon;
    struct error error = {""};

    if (held->state == COUPON_REDEEMED &&
        ledger_coupon_redeem(service->ledger, claim->policy_id, claim->seq, &no_order,
                             clock_wall_ms(), NULL, &coupon, &error) != STATUS_OK)
        log_event(LOG_WARN, "redeem_failed", LOG_FIELD("policy", LOG_I64(claim->policy_id)),
                  LOG_FIELD("seq", LOG_I64(claim->seq)), LOG_FIELD("error", LOG_TEXT(error.text)));
}

/* Waits until a worker has built the policy anew. */
static enum status audit_await_built(struct service *service, int64_t policy_id, bool *is_built,
                                     struct error *error)
{
    int64_t until_ms = clock_monotonic_ms() + BUILD_WAIT_MS;
    struct gate_state state = {0};
    enum status status = STATUS_OK;

    *is_built = false;
    while (status == STATUS_OK && !*is_built && clock_monotonic_ms() < until_ms &&
           audit_has_worker(service)) {
        service_pause(POLL_MS);
        status = gate_inspect(service->gate, policy_id, &state, error);
        *is_built = status == STATUS_OK && state.is_armed;
        if (status == STATUS_UNAVAILABLE)
            status = STATUS_OK;
    }
    return status;
}

/* --- a policy that the ledger has lost ---
 *
 * It is written back as the gate has it, or let go with a dead letter for each claim. The policy is
 * suspended while this goes on, so the gate holds still. Only when the ledger has all that the gate
 * knows is it forgotten there, and built anew from the ledger as after a loss. Whoever dies in
 * between leaves it suspended, and the next repair begins again. */

/* No lease goes on: what is not given out is unleased, and lent anew. */
static enum status audit_tell_lost(void *context, int64_t policy_id,
                                   const struct claim_visitor *listener, struct error *error)
{
    struct service *service = context;
    struct claim_visitor visitor = *listener;

    visitor.lease = NULL;
    return gate_visit(service->gate, policy_id, &visitor, error);
}

static enum status audit_write_back(struct service *service, int64_t policy_id,
                                    struct audit_repair *done, struct error *error)
{
    struct ledger_memory memory = {
        .tell = audit_tell_lost, .context = service, .forgets_freed = true};
    struct ledger_repair written;
    enum status status = ledger_write_back(service->ledger, &memory, policy_id, &written, error);

    if (status != STATUS_OK)
        return status;
    done->ledger.written_count += written.written_count;
    done->ledger.redeemed_count += written.redeemed_count;
    done->ledger.cancelled_count += written.cancelled_count;
    done->ledger.key_count += written.key_count;
    return STATUS_OK;
}

struct audit_dead_letters {
    struct service *service;
    struct audit_repair *done;
    struct dead_letter letters[DEAD_LETTERS_AT_ONCE];
    size_t count;
};

static enum status audit_flush_dead_letters(struct audit_dead_letters *to, struct error *error)
{
    enum status status =
        ledger_dead_letters_write(to->service->ledger, to->letters, to->count, error);

    if (status == STATUS_OK) {
        to->done->dead_letter_count += (int64_t)to->count;
        to->count = 0;
    }
    return status;
}

static enum status audit_add_dead_letter(struct audit_dead_letters *to, const struct claim *claim,
                                         struct error *error)
{
    struct dead_letter *letter = &to->letters[to->count++];

    *letter = (struct dead_letter){.claim = *claim, .died_at_ms = clock_wall_ms()};
    snprintf(letter->reason, sizeof(letter->reason),
             "the ledger had lost its policy, which was let go");
    return to->count == DEAD_LETTERS_AT_ONCE ? audit_flush_dead_letters(to, error) : STATUS_OK;
}

static enum status audit_on_winner(void *context, const struct held_claim *held,
                                   struct error *error)
{
    return audit_add_dead_letter(context, &held->claim, error);
}

/* What is pending and held by nobody was won as well. */
static enum status audit_add_strays(struct audit_dead_letters *to, int64_t policy_id,
                                    struct error *error)
{
    struct claim *strays = malloc(LOST_STRAYS_MAX * sizeof(*strays));
    size_t count = 0;

    if (strays == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the repair");
    enum status status =
        gate_strays(to->service->shared, policy_id, strays, LOST_STRAYS_MAX, &count, error);
    if (status == STATUS_OK && count == LOST_STRAYS_MAX)
        status = error_set(error, STATUS_FAILED, "more than %d pending claims have no holder",
                           LOST_STRAYS_MAX - 1);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = audit_add_dead_letter(to, &strays[i], error);
    free(strays);
    return status;
}

static enum status audit_let_go(struct service *service, int64_t policy_id,
                                struct audit_repair *done, struct error *error)
{
    struct audit_dead_letters *to = calloc(1, sizeof(*to));
    struct claim_visitor visitor = {.claim = audit_on_winner, .context = to};

    if (to == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the repair");
    to->service = service;
    to->done = done;
    enum status status = gate_visit(service->gate, policy_id, &visitor, error);
    if (status == STATUS_OK)
        status = audit_add_strays(to, policy_id, error);
    if (status == STATUS_OK && to->count > 0)
        status = audit_flush_dead_letters(to, error);
    free(to);
    return status;
}

static enum status audit_repair_lost(struct service *service, const struct audit_pass *look,
                                     enum audit_lacking lacking, struct audit_repair *done,
                                     const char **outcome, struct error *error)
{
    int64_t policy_id = look->audit.policy_id;
    bool lets_go = look->audit.is_lacking && lacking == AUDIT_LET_GO;
    bool is_built = false;
    enum status status = gate_suspend(service->shared, policy_id, error);

    if (status == STATUS_OK)
        status = lets_go ? audit_let_go(service, policy_id, done, error)
                         : audit_write_back(service, policy_id, done, error);
    if (status == STATUS_OK)
        status = gate_forget(service->shared, policy_id, error);
    if (status != STATUS_OK)
        return status;
    *outcome = "done; let go, with a dead letter for each claim";
    if (lets_go)
        return STATUS_OK;
    status = audit_await_built(service, policy_id, &is_built, error);
    done->built_count += is_built;
    *outcome = is_built ? "done; written from Redis, and built anew"
                        : "written from Redis, and no worker has built it anew yet";
    return status;
}

/* --- any other --- */

/* Whether anything is wrong that only building the policy anew fixes. */
static bool audit_needs_building(const struct policy_audit *audit)
{
    static const enum audit_check checks[] = {
        AUDIT_OVERSOLD, AUDIT_MISSING,   AUDIT_UNKNOWN, AUDIT_OUTDATED, AUDIT_REPEATED,
        AUDIT_PENDING,  AUDIT_REMAINING, AUDIT_LEASE,   AUDIT_ADRIFT,   AUDIT_MARK};

    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
        if (audit->counts[checks[i]] != 0)
            return true;
    return false;
}

/* Whether there are claims to be put back, which needs nobody, and which no loss of Redis undoes.
 */
static bool audit_puts_back(const struct policy_audit *audit)
{
    return audit->counts[AUDIT_MISSING] != 0 || audit->counts[AUDIT_PENDING] != 0;
}

static enum status audit_fix_stock(struct service *service, const struct audit_pass *look,
                                   struct audit_repair *done, bool *is_overlent,
                                   struct error *error)
{
    struct ledger_fix fix = {.policy_id = look->audit.policy_id,
                             .adopts_strays = look->audit.counts[AUDIT_STRAY] != 0};
    struct policy policy;
    enum status status = ledger_fix(service->ledger, &fix, error);

    *is_overlent = status == STATUS_CONFLICT;
    if (status == STATUS_CONFLICT)
        return STATUS_OK;
    if (status == STATUS_OK && fix.is_changed) {
        done->stock_count++;
        (void)!service_refresh(service, fix.policy_id, &policy, NULL);
    }
    return status;
}

static enum status audit_repair_claims(struct service *service, const struct audit_pass *look,
                                       struct audit_repair *done, bool *is_written,
                                       struct error *error)
{
    struct gate_fix *fixes = calloc(look->suspect_count + 1, sizeof(*fixes));
    size_t count = 0;
    size_t put_back = 0;
    int64_t changed = 0;

    if (fixes == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the repair");
    enum status status = audit_list_fixes(look, fixes, &count, &put_back, error);
    if (status == STATUS_OK)
        status = gate_fix(service->shared, look->audit.policy_id, fixes, count, &changed, error);
    done->claim_count += changed;
    *is_written = put_back == 0;
    if (status == STATUS_OK && put_back > 0)
        *is_written = audit_await_written(service, fixes, count);
    for (size_t i = 0; i < look->suspect_count && *is_written; i++)
        if (look->suspects[i].check == AUDIT_MISSING)
            service_redeem_again(service, &look->suspects[i].held);
    free(fixes);
    return status;
}

static enum status audit_repair_steps(struct service *service, const struct audit_pass *look,
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
        status = audit_fix_stock(service, look, done, &is_overlent, error);
    if (status != STATUS_OK)
        return status;
    *outcome = "done";
    if (!is_overlent && !is_renumbered && !audit_needs_building(&look->audit))
        return STATUS_OK;
    status = gate_disarm(service->shared, policy_id, error);
    if (status == STATUS_OK)
        status = audit_await_built(service, policy_id, &is_built, error);
    done->built_count += is_built;
    *outcome = is_built ? "done; built anew" : "disarmed, and no worker has built it anew yet";
    return status;
}

static enum status audit_repair_policy(struct service *service, const struct audit_pass *look,
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
    if (!audit_pass_is_lost(look) && audit_needs_building(&look->audit) &&
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
        status = audit_pass_is_lost(look)
                     ? audit_repair_lost(service, look, lacking, done, &outcome, error)
                     : audit_repair_steps(service, look, done, &outcome, error);
        audit_note(service, &note, status == STATUS_OK ? outcome : error->text);
    }
    if (status == STATUS_OK && outcome[0] != 'd')
        snprintf(done->text, sizeof(done->text), "policy %lld: %s", (long long)policy_id, outcome);
    return status;
}

struct audit_task {
    struct service *service;
    enum audit_lacking lacking;
    struct audit_repair *done;
};

static enum status audit_repair_each(void *context, const struct audit_pass *look,
                                     struct error *error)
{
    const struct audit_task *task = context;
    return audit_repair_policy(task->service, look, task->lacking, task->done, error);
}

enum status audit_repair_shared(struct service *service, int64_t policy_id,
                                enum audit_lacking lacking, struct audit_repair *done,
                                struct error *error)
{
    struct audit_task task = {.service = service, .lacking = lacking, .done = done};

    return audit_for_each(service, policy_id, audit_repair_each, &task, error);
}
