/* erase.c: erases a person: their id becomes a pseudonym, first in the ledger, then in the gate. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fault.h"
#include "claim/parts.h"
#include "ledger/erase.h"

#define PAGE         200
#define ERASURES_MAX 100 /* of one person, who claims anew in between */
#define TRIES        25  /* of a claim that is on its way to the ledger */
#define TRY_PAUSE_MS 200
#define WORDS_OF_OPEN \
    "they could claim again there; close it, wait for its end, or erase them anyway"

/* --- pseudonyms --- */

/* The pseudonym of somebody's nth erasure: the same each time, so that an erasure that was cut
 * short is gone on with, and known to nobody without the key of the codes. */
static struct id erase_pseudonym(const struct service *service, const struct id *user, int nth)
{
    char text[sizeof(PSEUDONYM_PREFIX) + 32];
    char input[32 + ID_LENGTH_MAX];
    uint64_t halves[2];

    for (int half = 0; half < 2; half++) {
        int length = snprintf(input, sizeof(input), "erasure %d %d %.*s", nth, half,
                              (int)user->length, user->bytes);
        halves[half] = hash_mac(service->code_key, input, (size_t)length);
    }
    snprintf(text, sizeof(text), PSEUDONYM_PREFIX "%016" PRIx64 "%016" PRIx64, halves[0],
             halves[1]);
    return id_of(span_of(text));
}

static enum status erase_has_claims(struct service *service, const struct id *user, bool *has,
                                    struct error *error)
{
    struct coupon coupon;
    size_t count;
    enum status status =
        ledger_coupons_of_user(service->ledger, user, 0, 0, &coupon, 1, &count, error);

    *has = status == STATUS_OK && count > 0;
    return status;
}

/* How often the person was erased before. */
static enum status erase_count(struct service *service, const struct id *user, int *count,
                               struct error *error)
{
    bool has = true;
    enum status status = STATUS_OK;

    for (*count = 0; status == STATUS_OK && has && *count < ERASURES_MAX; *count += has) {
        struct id pseudonym = erase_pseudonym(service, user, *count + 1);
        status = erase_has_claims(service, &pseudonym, &has, error);
    }
    return status;
}

/* --- refusing --- */

/* The first policy above that one of which the user has a claim that the ledger does not have yet;
 * 0: none. */
static enum status erase_find_pending(struct service *service, const struct id *user,
                                      int64_t *policy_id, struct error *error)
{
    struct gate_claim claims[CLAIMS_OF_USER_MAX];
    size_t count;

    while (gate_list(service->gate, *policy_id, policy_id, 1) == 1) {
        enum status status =
            gate_find(service->gate, *policy_id, user, claims, CLAIMS_OF_USER_MAX, &count, error);
        if (status == STATUS_NOT_FOUND)
            continue;
        if (status != STATUS_OK)
            return status;
        for (size_t i = 0; i < count && i < CLAIMS_OF_USER_MAX; i++)
            if (claims[i].pending)
                return STATUS_OK;
    }
    *policy_id = 0;
    return STATUS_OK;
}

/* It would come to nothing while its user is blocked. */
static enum status erase_check_pending(struct service *service, const struct id *user,
                                       struct error *error)
{
    int64_t policy_id = 0;
    enum status status = erase_find_pending(service, user, &policy_id, error);

    return status == STATUS_OK && policy_id != 0
               ? error_set(error, STATUS_CONFLICT,
                           "a claim of theirs on policy %" PRId64
                           " is not in the ledger yet: ask again, or erase them anyway",
                           policy_id)
               : status;
}

static enum status erase_check_open(struct service *service, const struct id *user,
                                    struct erasure_report *report, struct error *error)
{
    enum status status =
        ledger_erase_open(service->ledger, user, clock_wall_ms(), report->policy_ids,
                          ERASURE_POLICIES_MAX, &report->policy_count, error);

    return status == STATUS_OK && report->policy_count > 0
               ? error_set(error, STATUS_CONFLICT,
                           "the user has a coupon of policy %" PRId64 "%s: " WORDS_OF_OPEN,
                           report->policy_ids[0], report->policy_count > 1 ? " and of others" : "")
               : status;
}

/* An erasure that was cut short has left them blocked, and their first pseudonym, too. */
static enum status erase_check_blocked(struct service *service, const struct id *user,
                                       struct error *error)
{
    struct id mark = erase_pseudonym(service, user, 1);
    bool is_blocked = false;
    bool is_begun = false;
    enum status status = ledger_user_blocked(service->ledger, user, &is_blocked, error);

    if (status == STATUS_OK && is_blocked)
        status = ledger_user_blocked(service->ledger, &mark, &is_begun, error);
    return status == STATUS_OK && is_blocked && !is_begun
               ? error_set(error, STATUS_CONFLICT,
                           "the user is blocked, and could claim again when they are erased; "
                           "unblock them, or erase them anyway")
               : status;
}

static enum status erase_check(struct service *service, const struct id *user,
                               struct erasure_report *report, struct error *error)
{
    enum status status = erase_check_open(service, user, report, error);

    if (status == STATUS_OK)
        status = erase_check_pending(service, user, error);
    return status == STATUS_OK ? erase_check_blocked(service, user, error) : status;
}

/* --- blocking --- */

/* What they won before comes to the ledger, or to nothing there, before their id goes. */
static enum status erase_await_pending(struct service *service, const struct id *user,
                                       struct error *error)
{
    int64_t policy_id = 0;

    for (int i = 0; i < TRIES; i++) {
        enum status status = erase_find_pending(service, user, &policy_id, error);
        if (status != STATUS_OK || policy_id == 0)
            return status;
        service_pause(TRY_PAUSE_MS);
        policy_id--;
    }
    return error_set(error, STATUS_CONFLICT,
                     "a claim of theirs on policy %" PRId64
                     " is not in the ledger yet: ask again; they are blocked until then",
                     policy_id + 1);
}

/* The mark of an erasure is there before the block, and goes after it. */
static enum status erase_block(struct service *service, const struct id *user, struct error *error)
{
    struct id mark = erase_pseudonym(service, user, 1);
    enum status status = service_user_block(service, &mark, true, error);

    return status == STATUS_OK ? service_user_block(service, user, true, error) : status;
}

static enum status erase_unblock(struct service *service, const struct id *user,
                                 struct error *error)
{
    struct id mark = erase_pseudonym(service, user, 1);
    enum status status = service_user_block(service, user, false, error);

    FAULT_POINT("erase.after_unblock");
    return status == STATUS_OK ? service_user_block(service, &mark, false, error) : status;
}

/* --- the gate --- */

/* All claims of a pseudonym, by policies. */
struct erase_claims {
    struct claim *claims;
    size_t count;
    size_t capacity;
};

static enum status erase_load(struct service *service, const struct id *pseudonym,
                              struct erase_claims *list, struct error *error)
{
    struct coupon coupons[PAGE];
    int64_t policy_id = 0;
    int64_t seq = 0;
    size_t count;

    do {
        enum status status = ledger_coupons_of_user(service->ledger, pseudonym, policy_id, seq,
                                                    coupons, PAGE, &count, error);
        if (status != STATUS_OK)
            return status;
        for (size_t i = 0; i < count; i++) {
            if (!array_make_room(list->claims, list->count, list->capacity))
                return error_set(error, STATUS_UNAVAILABLE, "no memory for the claims of a user");
            list->claims[list->count++] = coupons[i].claim;
            policy_id = coupons[i].claim.policy_id;
            seq = coupons[i].claim.seq;
        }
    } while (count == PAGE);
    return STATUS_OK;
}

/* Those of one policy. A claim that the gate has and the ledger not yet comes to nothing, as its
 * user is blocked: that is waited for. */
static enum status erase_in_gate(struct service *service, const struct id *user,
                                 const struct id *pseudonym, const struct claim *claims,
                                 size_t count, struct error *error)
{
    struct key_binding *keys = NULL;
    size_t key_count = 0;
    enum status status =
        ledger_erase_keys(service->ledger, pseudonym, claims->policy_id, &keys, &key_count, error);
    const struct gate_renaming renaming = {
        .policy_id = claims->policy_id,
        .from = user,
        .to = pseudonym,
        .claims = claims,
        .claim_count = count,
        .bindings = keys,
        .binding_count = key_count,
    };

    for (int i = 0; status == STATUS_OK; i++) {
        status = gate_rename(service->gate, &renaming, error);
        if (status != STATUS_CONFLICT || i == TRIES)
            break;
        service_pause(TRY_PAUSE_MS);
        status = STATUS_OK;
    }
    free(keys);
    return status == STATUS_CONFLICT ? STATUS_UNAVAILABLE : status;
}

static enum status erase_in_gates(struct service *service, const struct id *user,
                                  const struct id *pseudonym, int64_t *coupon_count,
                                  struct error *error)
{
    struct erase_claims list = {0};
    enum status status = erase_load(service, pseudonym, &list, error);

    for (size_t i = 0; i < list.count && status == STATUS_OK;) {
        size_t end = i + 1;
        while (end < list.count && list.claims[end].policy_id == list.claims[i].policy_id)
            end++;
        status = erase_in_gate(service, user, pseudonym, list.claims + i, end - i, error);
        i = end;
    }
    if (status == STATUS_OK)
        *coupon_count += (int64_t)list.count;
    free(list.claims);
    return status;
}

/* --- both --- */

/* What comes to nothing while the gate is told leaves a row with the id: once more, then. */
static enum status erase_everywhere(struct service *service, const struct id *user,
                                    int erased_count, struct erasure_report *report,
                                    struct error *error)
{
    enum status status = STATUS_OK;
    bool has_claims = true;
    int last = erased_count;

    for (int i = 0; i < TRIES && status == STATUS_OK && has_claims; i++) {
        status = erase_has_claims(service, user, &has_claims, error);
        last += status == STATUS_OK && (has_claims || last == 0);
        report->pseudonym = erase_pseudonym(service, user, last);
        if (status == STATUS_OK)
            status = ledger_erase(service->ledger, user, &report->pseudonym, error);
        FAULT_POINT("erase.after_ledger");
        report->coupon_count = 0;
        for (int nth = last; nth > 0 && status == STATUS_OK; nth--) {
            struct id pseudonym = erase_pseudonym(service, user, nth);
            status = erase_in_gates(service, user, &pseudonym, &report->coupon_count, error);
        }
    }
    return status;
}

/* A coupon that they won between the first look and the block is one that they hold. */
static enum status erase_look_again(struct service *service, const struct id *user,
                                    struct erasure_report *report, struct error *error)
{
    enum status status = erase_check_open(service, user, report, error);

    if (status != STATUS_CONFLICT)
        return status;
    struct error ignored;
    enum status unblocked = erase_unblock(service, user, &ignored);
    return unblocked == STATUS_OK ? status : error_set(error, unblocked, "%s", ignored.text);
}

enum status service_user_erase(struct service *service, const struct id *user, enum erase_care care,
                               struct erasure_report *report, struct error *error)
{
    int erased_count = 0;

    *report = (struct erasure_report){0};
    /* A policy that is still to come may have been read with the person's id in it. */
    if (!restore_has_all(service->restore))
        return service_not_yet(error);
    if (id_is_pseudonym(user))
        return error_set(error, STATUS_CONFLICT,
                         "that is the pseudonym of a person who was erased");
    enum status status = erase_count(service, user, &erased_count, error);
    if (status == STATUS_OK && erased_count == ERASURES_MAX)
        return error_set(error, STATUS_CONFLICT, "they were erased %d times", ERASURES_MAX);
    if (status == STATUS_OK && care == ERASE_SAFELY)
        status = erase_check(service, user, report, error);
    FAULT_POINT("erase.before_block");
    if (status == STATUS_OK)
        status = erase_block(service, user, error);
    FAULT_POINT("erase.after_block");
    if (status == STATUS_OK)
        status = erase_await_pending(service, user, error);
    if (status == STATUS_OK && care == ERASE_SAFELY)
        status = erase_look_again(service, user, report, error);
    if (status == STATUS_OK)
        status = erase_everywhere(service, user, erased_count, report, error);
    FAULT_POINT("erase.after_gate");
    return status == STATUS_OK ? erase_unblock(service, user, error) : status;
}
