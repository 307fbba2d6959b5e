/* audit.c: looks at a policy in gate and ledger, and again at what looks wrong. */
#include "claim/audit.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "claim/audit_parts.h"

#define SUSPECTS_MAX  10000
#define COUPONS_LIGHT 200000 /* of more than these a light audit takes the sums only */

/* A change under way is over by the last look. */
static const int64_t audit_pauses_ms[] = {0, 250, 750};
#define LOOKS (sizeof(audit_pauses_ms) / sizeof(audit_pauses_ms[0]))

/* --- words --- */

static const struct {
    const char *name;
    const char *text;
} audit_checks[AUDIT_CHECKS] = {
    [AUDIT_OVERSOLD] = {"oversold", "coupons or winners above the total"},
    [AUDIT_STOCK] = {"stock", "units that total, unleased, leases and coupons do not agree on"},
    [AUDIT_OVER_LIMIT] = {"over_limit", "users with more coupons than the limit"},
    [AUDIT_SLOT] = {"slot", "coupons whose slot does not fit their state"},
    [AUDIT_STRAY] = {"stray", "coupons without a lease"},
    [AUDIT_POLICY] = {"policy", "the policy is missing in the ledger, or older than in the gate"},
    [AUDIT_MISSING] = {"missing", "claims that the ledger lacks and nobody is bringing"},
    [AUDIT_UNKNOWN] = {"unknown", "coupons that the gate has lost, or never gave"},
    [AUDIT_OUTDATED] = {"outdated", "coupons whose state is newer in the gate"},
    [AUDIT_REPEATED] = {"repeated", "seqs that two users hold"},
    [AUDIT_PENDING] = {"pending", "pending entries that no user holds"},
    [AUDIT_UNLEASED] = {"unleased_claim", "pending claims without a lease"},
    [AUDIT_REMAINING] = {"remaining", "units that the gate's stock and its leases differ by"},
    [AUDIT_LEASE] = {"lease", "leases of the gate that the ledger does not have so"},
    [AUDIT_ADRIFT] = {"adrift", "units that are lent and not in the gate"},
    [AUDIT_CORRUPT] = {"corrupt", "a value in Redis is not readable"},
    [AUDIT_DAMAGED] = {"damaged", "a number in the ledger cannot be"},
    [AUDIT_MARK] = {"mark", "seqs that the mark of what is published is too high by"},
};

const char *audit_check_name(enum audit_check check)
{
    return audit_checks[check].name;
}

const char *policy_audit_text(const struct policy_audit *audit, enum audit_check check)
{
    return check == AUDIT_CORRUPT || check == AUDIT_DAMAGED ? audit->corrupt
                                                            : audit_checks[check].text;
}

int64_t policy_audit_imbalance(const struct policy_audit *audit)
{
    const struct ledger_balance *balance = &audit->balance;
    return balance->total - balance->unleased - balance->leased - balance->active;
}

bool policy_audit_is_fine(const struct policy_audit *audit)
{
    for (size_t i = 0; i < AUDIT_CHECKS; i++)
        if (audit->counts[i] != 0)
            return false;
    return true;
}

/* --- suspects --- */

static void audit_pass_release(struct audit_pass *look)
{
    free(look->suspects);
    free(look->leases);
    look->suspects = NULL;
    look->leases = NULL;
    look->suspect_count = look->lease_count = 0;
}

/* Without memory for it, or beyond the most that is kept, it is not counted. */
void audit_suspect(struct audit_pass *look, enum audit_check check, const struct held_claim *held)
{
    if (look->suspect_count == SUSPECTS_MAX)
        return;
    if (!array_make_room(look->suspects, look->suspect_count, look->suspect_capacity))
        return;
    look->suspects[look->suspect_count++] = (struct audit_suspect){.check = check, .held = *held};
}

static int audit_compare(const void *a, const void *b)
{
    const struct audit_suspect *left = a;
    const struct audit_suspect *right = b;

    if (left->check != right->check)
        return left->check < right->check ? -1 : 1;
    if (left->held.claim.seq != right->held.claim.seq)
        return left->held.claim.seq < right->held.claim.seq ? -1 : 1;
    return id_compare(&left->held.claim.user, &right->held.claim.user);
}

/* Those of the later look that the earlier one had as well. */
static void audit_keep_same(struct audit_pass *later, const struct audit_pass *earlier)
{
    size_t kept = 0;

    for (size_t i = 0, at = 0; i < later->suspect_count; i++) {
        const struct audit_suspect *suspect = &later->suspects[i];
        while (at < earlier->suspect_count && audit_compare(&earlier->suspects[at], suspect) < 0)
            at++;
        if (at < earlier->suspect_count && audit_compare(&earlier->suspects[at], suspect) == 0)
            later->suspects[kept++] = *suspect;
    }
    later->suspect_count = kept;
}

/* --- claims and coupons --- */

const struct lease *lease_that_gave(const struct lease *leases, size_t count,
                                    const struct gate_state *state, int64_t seq)
{
    const struct lease *lease = NULL;

    for (size_t i = 0; i < count && lease == NULL; i++)
        if (seq >= leases[i].first_seq && seq < leases[i].first_seq + leases[i].count)
            lease = &leases[i];
    for (size_t i = 0; lease != NULL && state != NULL && i < state->lease_count; i++)
        if (state->leases[i].id == lease->id && seq >= state->leases[i].next_seq)
            return NULL;
    return lease;
}

/* A claim whose lease is not told was brought back from the ledger, and any lease will do. */
static bool audit_is_covered(const struct audit_pass *look, const struct claim *claim)
{
    const struct lease *lease = lease_that_gave(look->leases, look->lease_count, NULL, claim->seq);
    return lease != NULL && (claim->lease_id == 0 || claim->lease_id == lease->id);
}

bool audit_pass_is_lost(const struct audit_pass *look)
{
    return look->service->topology->gate_is_outside &&
           (look->before.is_suspended || look->audit.is_lacking || look->audit.is_older);
}

static void audit_differs(void *context, enum ledger_difference difference,
                          const struct held_claim *held)
{
    struct audit_pass *look = context;

    switch (difference) {
    case LEDGER_LACKS:
        audit_suspect(look, AUDIT_MISSING, held);
        break;
    case LEDGER_LACKS_YET:
        look->audit.pending++;
        if (look->service->topology->gate_is_outside && !audit_pass_is_lost(look) &&
            !audit_is_covered(look, &held->claim))
            audit_suspect(look, AUDIT_UNLEASED, held);
        break;
    case LEDGER_IS_LATE:
        audit_suspect(look, AUDIT_OUTDATED, held);
        break;
    case LEDGER_HAS_MORE:
        audit_suspect(look, AUDIT_UNKNOWN, held);
        break;
    case LEDGER_HEARD_TWICE:
        audit_suspect(look, AUDIT_REPEATED, held);
        break;
    }
}

/* What cannot be read is a finding. */
static enum status audit_found(struct audit_pass *look, enum audit_check check, enum status status,
                               const struct error *error)
{
    if (status == STATUS_FAILED) {
        look->audit.counts[check] = 1;
        snprintf(look->audit.corrupt, sizeof(look->audit.corrupt), "%.255s", error->text);
    }
    return status;
}

/* What a gate outside of this process says of itself. */
static enum status audit_heard(struct audit_pass *look, enum status status,
                               const struct error *error)
{
    return look->service->topology->gate_is_outside
               ? audit_found(look, AUDIT_CORRUPT, status, error)
               : status;
}

static enum status audit_tell(void *context, int64_t policy_id,
                              const struct claim_visitor *listener, struct error *error)
{
    struct audit_pass *look = context;

    return audit_heard(look, gate_visit(look->service->gate, policy_id, listener, error), error);
}

static enum status audit_compare_claims(struct audit_pass *look, struct error *error)
{
    struct ledger_memory memory = {.tell = audit_tell,
                                   .context = look,
                                   .forgets_freed = look->service->topology->gate_is_outside,
                                   .differs = audit_differs};
    struct ledger_gap gap = {0};

    enum status status =
        ledger_compare(look->service->ledger, &memory, look->audit.policy_id, &gap, error);
    look->audit.is_lacking = gap.lacks_policy;
    look->audit.is_older = look->audit.is_older || gap.has_older_policy;
    return status;
}

/* --- numbers --- */

static int64_t audit_magnitude(int64_t number)
{
    return number < 0 ? -number : number;
}

static bool audit_has_lease(const struct audit_pass *look, const struct gate_lease *in_gate)
{
    for (size_t i = 0; i < look->lease_count; i++) {
        const struct lease *lease = &look->leases[i];
        if (lease->id == in_gate->id)
            return lease->open && lease->first_seq == in_gate->first_seq &&
                   in_gate->end_seq <= lease->first_seq + lease->count;
    }
    return false;
}

/* Nothing moved between both, and the ledger's numbers are from in between. */
static bool audit_is_still(const struct audit_pass *look)
{
    const struct gate_state *before = &look->before;
    const struct gate_state *after = &look->after;

    return before->pending_count == 0 && after->pending_count == 0 &&
           before->remaining == after->remaining && before->issued == after->issued &&
           before->changes == after->changes && before->version == after->version &&
           after->version == look->audit.balance.version && before->left == after->left;
}

static void audit_count_ledger(struct policy_audit *audit)
{
    const struct ledger_balance *balance = &audit->balance;

    audit->counts[AUDIT_POLICY] =
        audit->is_lacking || audit->is_older || audit->gate == AUDIT_GATE_SUSPENDED;
    if (audit->is_lacking)
        return;
    if (balance->active > balance->total)
        audit->counts[AUDIT_OVERSOLD] = balance->active - balance->total;
    audit->counts[AUDIT_STOCK] = audit_magnitude(policy_audit_imbalance(audit));
    audit->counts[AUDIT_OVER_LIMIT] = balance->over_limit;
    audit->counts[AUDIT_SLOT] = balance->misplaced;
    audit->counts[AUDIT_STRAY] = balance->stray + (balance->highest_seq >= balance->next_seq);
    int64_t unaccounted = balance->next_seq - 1 - balance->coupons - balance->leased;
    audit->unaccounted = unaccounted > 0 ? unaccounted : 0;
}

static void audit_count_gate(struct audit_pass *look)
{
    const struct gate_state *state = &look->after;
    struct policy_audit *audit = &look->audit;

    audit->counts[AUDIT_REMAINING] = audit_magnitude(state->remaining - state->left);
    if (state->mark > state->seq_top)
        audit->counts[AUDIT_MARK] = state->mark - state->seq_top;
    for (size_t i = 0; i < state->lease_count; i++)
        audit->counts[AUDIT_LEASE] += state->leases[i].next_seq < state->leases[i].end_seq &&
                                      !audit_has_lease(look, &state->leases[i]);
    if (audit_is_still(look))
        audit->counts[AUDIT_ADRIFT] = audit_magnitude(audit->balance.leased - state->left);
}

/* Those who were told that they have won: as long as no unit came back meanwhile, whoever is active
 * at first and whoever is still pending later are different people. */
static enum status audit_count_told(struct audit_pass *look, struct error *error)
{
    struct policy_audit *audit = &look->audit;
    const struct ledger_balance *balance = &audit->balance;
    struct policy policy;

    if (audit->is_lacking || balance->active + audit->pending <= balance->total)
        return STATUS_OK;
    enum status status = ledger_policy_get(look->service->ledger, audit->policy_id, &policy, error);
    if (status == STATUS_OK && policy.version == balance->version)
        audit->counts[AUDIT_OVERSOLD] = balance->active + audit->pending - balance->total;
    /* An older ledger is not read for this; the older it is, the less it can tell. */
    return status == STATUS_NOT_FOUND || status == STATUS_UNAVAILABLE ? STATUS_OK : status;
}

/* --- a look --- */

static enum status audit_pass_into_ledger(struct audit_pass *look, struct error *error)
{
    struct ledger *ledger = look->service->ledger;
    int64_t policy_id = look->audit.policy_id;
    struct policy policy;
    enum status status =
        ledger_lease_history(ledger, policy_id, &look->leases, &look->lease_count, error);

    /* An older ledger answers with sums only. */
    if (status == STATUS_OK &&
        ledger_policy_get(ledger, policy_id, &policy, error) == STATUS_FAILED)
        status = STATUS_FAILED;
    status = audit_found(look, AUDIT_DAMAGED, status, error);
    return status == STATUS_OK ? ledger_balance(ledger, policy_id, &look->audit.balance, error)
                               : status;
}

static enum status audit_pass_into_gate(struct audit_pass *look, enum audit_depth depth,
                                        struct error *error)
{
    struct service *service = look->service;
    int64_t policy_id = look->audit.policy_id;
    bool compares = depth == AUDIT_DEEP || look->audit.balance.coupons <= COUPONS_LIGHT;
    enum status status = STATUS_OK;

    if (compares)
        status = audit_compare_claims(look, error);
    if (status == STATUS_OK && compares && service->topology->gate_is_outside)
        status = audit_heard(look, audit_find_strays(look, error), error);
    if (status == STATUS_OK)
        status =
            audit_heard(look, gate_inspect(service->gate, policy_id, &look->after, error), error);
    /* What is suspended waits as it is. */
    if (status == STATUS_OK && look->after.is_known && audit_pass_is_lost(look))
        return STATUS_OK;
    /* While it is built anew it is neither what it was nor what it will be. */
    if (status == STATUS_NOT_FOUND || (status == STATUS_OK && !look->after.is_armed)) {
        look->audit.gate = AUDIT_GATE_UNARMED;
        look->suspect_count = 0;
        return STATUS_OK;
    }
    if (status == STATUS_OK)
        audit_count_gate(look);
    return status == STATUS_OK ? audit_count_told(look, error) : status;
}

static enum audit_gate audit_gate_of(const struct gate_state *state)
{
    return state->is_armed       ? AUDIT_GATE_ARMED
           : state->is_suspended ? AUDIT_GATE_SUSPENDED
           : state->is_known     ? AUDIT_GATE_UNARMED
                                 : AUDIT_GATE_UNKNOWN;
}

static enum status audit_pass_once(struct audit_pass *look, enum audit_depth depth,
                                   struct error *error)
{
    struct service *service = look->service;
    struct policy_audit *audit = &look->audit;
    enum status status = audit_heard(
        look, gate_inspect(service->gate, audit->policy_id, &look->before, error), error);

    if (status == STATUS_OK)
        status = audit_pass_into_ledger(look, error);
    audit->is_lacking = status == STATUS_NOT_FOUND;
    if (status == STATUS_NOT_FOUND && look->before.is_known)
        status = STATUS_OK;
    /* What the gate was told, the ledger has had before. */
    audit->is_older = service->topology->gate_is_outside && status == STATUS_OK &&
                      !audit->is_lacking && look->before.version > audit->balance.version;
    audit->gate = audit_gate_of(&look->before);
    if (status == STATUS_OK && (audit->gate == AUDIT_GATE_ARMED || audit_pass_is_lost(look)))
        status = audit_pass_into_gate(look, depth, error);
    if (status != STATUS_OK)
        return status;
    int64_t told_above = audit->counts[AUDIT_OVERSOLD];
    audit_count_ledger(audit);
    if (told_above > audit->counts[AUDIT_OVERSOLD])
        audit->counts[AUDIT_OVERSOLD] = told_above;
    if (look->suspect_count > 0)
        qsort(look->suspects, look->suspect_count, sizeof(*look->suspects), audit_compare);
    return STATUS_OK;
}

/* What is there in both looks. Numbers that are not from one snapshot have to be the very same. */
static void audit_pass_agree(struct audit_pass *later, const struct audit_pass *earlier)
{
    audit_keep_same(later, earlier);
    for (size_t i = 0; i < AUDIT_CHECKS; i++) {
        int64_t before = earlier->audit.counts[i];
        bool is_exact = i != AUDIT_LEASE && i != AUDIT_ADRIFT;
        if (is_exact ? before == 0 : before != later->audit.counts[i])
            later->audit.counts[i] = 0;
    }
}

/* One more look, held against the one before. */
static void audit_pass_again(struct audit_pass *look, enum audit_depth depth, bool is_first)
{
    struct audit_pass earlier = *look;

    *look =
        (struct audit_pass){.service = earlier.service, .audit.policy_id = earlier.audit.policy_id};
    look->status = audit_pass_once(look, depth, &look->error);
    if (look->audit.counts[AUDIT_CORRUPT] != 0 || look->audit.counts[AUDIT_DAMAGED] != 0) {
        look->status = STATUS_OK;
        look->suspect_count = 0;
    }
    if (look->status == STATUS_OK && !is_first)
        audit_pass_agree(look, &earlier);
    audit_pass_release(&earlier);
    look->is_sure = look->status != STATUS_OK ||
                    (look->suspect_count == 0 && policy_audit_is_fine(&look->audit));
}

static void audit_pass_rounds(struct audit_pass *looks, size_t count, enum audit_depth depth,
                              size_t rounds)
{
    size_t open_count = count;

    for (size_t round = 0; round < rounds && open_count > 0; round++) {
        service_pause(audit_pauses_ms[round]);
        open_count = 0;
        for (size_t i = 0; i < count; i++) {
            if (!looks[i].is_sure)
                audit_pass_again(&looks[i], depth, round == 0);
            open_count += !looks[i].is_sure;
        }
    }
}

enum status audit_pass_surely(struct service *service, enum audit_depth depth, const int64_t *ids,
                              size_t count, struct audit_pass **looks, struct error *error)
{
    /* A gate of our own holds still beside a ledger that is too old: nobody claims or writes. */
    bool is_still = !service->topology->gate_is_outside && ledger_is_behind(service->ledger);
    struct audit_pass *all = calloc(count + 1, sizeof(*all));

    *looks = all;
    if (all == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the audit");
    for (size_t i = 0; i < count; i++)
        all[i] = (struct audit_pass){.service = service, .audit.policy_id = ids[i]};
    audit_pass_rounds(all, count, depth, is_still ? 1 : LOOKS);
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0; at < all[i].suspect_count && all[i].status == STATUS_OK; at++)
            all[i].audit.counts[all[i].suspects[at].check]++;
    return STATUS_OK;
}

void audit_passes_free(struct audit_pass *looks, size_t count)
{
    for (size_t i = 0; looks != NULL && i < count; i++)
        audit_pass_release(&looks[i]);
    free(looks);
}

/* --- policies --- */

static int audit_compare_ids(const void *a, const void *b)
{
    const int64_t *left = a;
    const int64_t *right = b;
    return (*left > *right) - (*left < *right);
}

enum status audit_list(struct service *service, int64_t after_id, int64_t **ids, size_t *count,
                       struct error *error)
{
    size_t kept = 0;
    enum status status = service->topology->policies(service, ids, count, error);

    if (*count > 0)
        qsort(*ids, *count, sizeof(**ids), audit_compare_ids);
    for (size_t i = 0; i < *count; i++)
        if ((*ids)[i] > after_id && (kept == 0 || (*ids)[kept - 1] != (*ids)[i]))
            (*ids)[kept++] = (*ids)[i];
    *count = kept;
    return status;
}

enum status audit_each(struct service *service, enum audit_depth depth, int64_t policy_id,
                       const int64_t *ids, size_t count, audit_visit *visit, void *context,
                       struct error *error)
{
    enum status status = STATUS_OK;
    bool is_one = policy_id != 0;

    if (is_one) {
        ids = &policy_id;
        count = 1;
    }
    for (size_t at = 0; at < count && status == STATUS_OK; at += AUDIT_LOOKS_MAX) {
        struct audit_pass *looks = NULL;
        size_t some = count - at < AUDIT_LOOKS_MAX ? count - at : AUDIT_LOOKS_MAX;
        status = audit_pass_surely(service, depth, ids + at, some, &looks, error);
        for (size_t i = 0; i < some && status == STATUS_OK; i++)
            if (is_one || looks[i].status != STATUS_NOT_FOUND)
                status = visit(context, &looks[i], error);
        audit_passes_free(looks, some);
    }
    return status;
}

static enum status audit_keep_one(void *context, const struct audit_pass *look, struct error *error)
{
    struct policy_audit *audit = context;

    *audit = look->audit;
    if (error != NULL)
        *error = look->error;
    return look->status;
}

enum status service_audit_one(struct service *service, enum audit_depth depth, int64_t policy_id,
                              struct policy_audit *audit, struct error *error)
{
    return audit_each(service, depth, policy_id, NULL, 0, audit_keep_one, audit, error);
}

struct audit_page {
    struct policy_audit *audits;
    size_t *count;
};

static enum status audit_keep(void *context, const struct audit_pass *look, struct error *error)
{
    const struct audit_page *page = context;

    return audit_keep_one(&page->audits[(*page->count)++], look, error);
}

enum status service_audit(struct service *service, enum audit_depth depth, int64_t after_id,
                          struct policy_audit *audits, size_t max, size_t *count, bool *has_more,
                          struct error *error)
{
    struct audit_page page = {.audits = audits, .count = count};
    int64_t *ids = NULL;
    size_t id_count = 0;
    enum status status = audit_list(service, after_id, &ids, &id_count, error);

    *count = 0;
    *has_more = id_count > max;
    if (status == STATUS_OK)
        status = audit_each(service, depth, 0, ids, *has_more ? max : id_count, audit_keep, &page,
                            error);
    free(ids);
    return status;
}
