/* audit_lost.c: what becomes of a policy that a shared gate has and the ledger has lost: it is
 * written back as the gate has it, or let go with a dead letter for each claim.
 *
 * The policy is suspended while this goes on, so the gate holds still. Only when the ledger has all
 * that the gate knows is it forgotten there, and built anew from the ledger as after a loss.
 * Whoever dies in between leaves it suspended, and the next repair begins again. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "claim/audit_parts.h"

#define LETTERS_AT_ONCE 500
#define STRAYS_MAX      10000
#define REASON_LET_GO   "the ledger had lost its policy, which was let go"

/* --- writing back --- */

static enum status audit_skip_lease(void *context, const struct lease *lease, int64_t given_count,
                                    struct error *error)
{
    (void)context;
    (void)lease;
    (void)given_count;
    (void)error;
    return STATUS_OK;
}

/* No lease goes on: what is not given out is unleased, and lent anew. */
static enum status audit_tell_lost(void *context, int64_t policy_id,
                                   const struct ledger_listener *listener, struct error *error)
{
    struct service *service = context;
    struct gate_visitor visitor = {.policy = listener->policy,
                                   .lease = audit_skip_lease,
                                   .claim = listener->claim,
                                   .key = listener->key,
                                   .blocked = listener->blocked,
                                   .context = listener->context};

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

/* --- letting go --- */

struct audit_letters {
    struct service *service;
    struct audit_repair *done;
    struct dead_letter letters[LETTERS_AT_ONCE];
    size_t count;
};

static enum status audit_flush_letters(struct audit_letters *to, struct error *error)
{
    enum status status = ledger_letters_write(to->service->ledger, to->letters, to->count, error);

    if (status == STATUS_OK) {
        to->done->letter_count += (int64_t)to->count;
        to->count = 0;
    }
    return status;
}

static enum status audit_add_letter(struct audit_letters *to, const struct claim *claim,
                                    struct error *error)
{
    struct dead_letter *letter = &to->letters[to->count++];

    *letter = (struct dead_letter){.claim = *claim, .died_at_ms = clock_wall_ms()};
    snprintf(letter->reason, sizeof(letter->reason), REASON_LET_GO);
    return to->count == LETTERS_AT_ONCE ? audit_flush_letters(to, error) : STATUS_OK;
}

static enum status audit_on_row(void *context, const struct policy *policy, struct error *error)
{
    (void)context;
    (void)policy;
    (void)error;
    return STATUS_OK;
}

static enum status audit_on_winner(void *context, const struct held_claim *held,
                                   struct error *error)
{
    return audit_add_letter(context, &held->claim, error);
}

static enum status audit_skip_key(void *context, const struct key_binding *binding,
                                  struct error *error)
{
    (void)context;
    (void)binding;
    (void)error;
    return STATUS_OK;
}

/* What is pending and held by nobody was won as well. */
static enum status audit_add_strays(struct audit_letters *to, int64_t policy_id,
                                    struct error *error)
{
    struct claim *strays = malloc(STRAYS_MAX * sizeof(*strays));
    size_t count = 0;

    if (strays == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the repair");
    enum status status =
        gate_strays(to->service->gate, policy_id, strays, STRAYS_MAX, &count, error);
    if (status == STATUS_OK && count == STRAYS_MAX)
        status = error_set(error, STATUS_FAILED, "more than %d pending claims have no holder",
                           STRAYS_MAX - 1);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = audit_add_letter(to, &strays[i], error);
    free(strays);
    return status;
}

static enum status audit_let_go(struct service *service, int64_t policy_id,
                                struct audit_repair *done, struct error *error)
{
    struct audit_letters *to = calloc(1, sizeof(*to));
    struct gate_visitor visitor = {.policy = audit_on_row,
                                   .lease = audit_skip_lease,
                                   .claim = audit_on_winner,
                                   .key = audit_skip_key,
                                   .context = to};

    if (to == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the repair");
    to->service = service;
    to->done = done;
    enum status status = gate_visit(service->gate, policy_id, &visitor, error);
    if (status == STATUS_OK)
        status = audit_add_strays(to, policy_id, error);
    if (status == STATUS_OK && to->count > 0)
        status = audit_flush_letters(to, error);
    free(to);
    return status;
}

/* --- both --- */

enum status audit_repair_lost(struct service *service, const struct audit_look *look,
                              enum audit_lacking lacking, struct audit_repair *done,
                              const char **outcome, struct error *error)
{
    int64_t policy_id = look->audit.policy_id;
    bool lets_go = look->audit.is_lacking && lacking == AUDIT_LET_GO;
    bool is_built = false;
    enum status status = gate_suspend(service->gate, policy_id, error);

    if (status == STATUS_OK)
        status = lets_go ? audit_let_go(service, policy_id, done, error)
                         : audit_write_back(service, policy_id, done, error);
    if (status == STATUS_OK)
        status = gate_forget(service->gate, policy_id, error);
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
