/* audit_repair.c: puts right what an audit found, the ways that stewards go: what both topologies
 * do of it, and in which words it is told; and the ranking's board. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/zone.h"
#include "claim/audit_parts.h"
#include "ranking/board.h"

#define BOARD_LOOKS    3
#define BOARD_PAUSE_MS 250

/* --- what is done about each finding, in words for those who are asked --- */

#define PLAN_KEEP                                                                                 \
    "keep the coupons above the limit, and mark them as kept: none is taken from anyone; cancel " \
    "those that are not to stay"
#define PLAN_PLACE "give each coupon its slot by its state and number: none is taken from anyone"

/* What is done about each check: by a gate in memory, and by one that is shared. NULL: only people
 * can decide that. */
static const char *const audit_plans[AUDIT_CHECKS][2] = {
    [AUDIT_OVERSOLD] = {NULL, "raise the total to the coupons that people hold: none is taken from "
                              "anyone"},
    [AUDIT_STOCK] = {"set what is unleased by what is issued and lent",
                     "set what is unleased by what is issued and lent"},
    [AUDIT_OVER_LIMIT] = {PLAN_KEEP, PLAN_KEEP},
    [AUDIT_SLOT] = {PLAN_PLACE, PLAN_PLACE},
    [AUDIT_STRAY] = {"keep the coupons, as coupons without a lease",
                     "keep the coupons, as coupons without a lease"},
    [AUDIT_POLICY] = {"write the policy as the server knows it",
                      "write the policy and its claims as Redis has them, and build it anew; one "
                      "that the ledger lacks is let go with --forget, with a dead letter for each "
                      "claim"},
    [AUDIT_MISSING] = {"write the coupons that are missing from the server's memory",
                       "put the claims back among the pending ones, for a worker to write"},
    [AUDIT_UNKNOWN] = {NULL, "build the policy anew in the gate, with all coupons of the ledger"},
    [AUDIT_OUTDATED] = {"bring the coupons to the state that the server knows",
                        "build the policy anew in the gate, with the states of the ledger"},
    [AUDIT_REPEATED] = {NULL, "build the policy anew in the gate: each seq with its one coupon"},
    [AUDIT_PENDING] = {NULL, "give pending claims back to their users; remove what no lease gave"},
    [AUDIT_UNLEASED] = {NULL, "remove pending entries that no lease ever gave"},
    [AUDIT_REMAINING] = {NULL, "build the policy anew in the gate, with a fresh lease"},
    [AUDIT_LEASE] = {"write the leases as the server has them",
                     "build the policy anew in the gate, with a fresh lease"},
    [AUDIT_ADRIFT] = {"write the leases as the server has them",
                      "build the policy anew in the gate, with a fresh lease"},
    [AUDIT_MARK] = {NULL, "build the policy anew in the gate, and publish from the beginning"},
};

const char *policy_audit_plan(const struct service *service, const struct policy_audit *audit,
                              size_t number)
{
    for (size_t i = 0; i < AUDIT_CHECKS; i++) {
        if (audit->counts[i] != 0 && number-- == 0) {
            const char *plan = audit_plans[i][service->topology->gate_is_outside];
            return plan != NULL ? plan
                   : i == AUDIT_CORRUPT
                       ? "nothing: delete that value in Redis, then repair: what the ledger has "
                         "comes back"
                   : i == AUDIT_DAMAGED
                       ? "nothing: put that number right in the ledger, then restart the servers "
                         "that have a gate of their own"
                   : i == AUDIT_OVERSOLD
                       ? "nothing: raise the total to the coupons that people hold, or cancel "
                         "some, then restart the server"
                       : "nothing: a restart of the server takes over what the ledger has";
        }
    }
    return NULL;
}

void audit_write_plan(const struct policy_audit *audit, char *text, size_t size)
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < AUDIT_CHECKS && length < size; i++)
        if (audit->counts[i] != 0)
            length +=
                (size_t)snprintf(text + length, size - length, "%s%s %" PRId64,
                                 length > 0 ? ", " : "", audit_check_name(i), audit->counts[i]);
}

bool audit_is_for_rewrite(const struct policy_audit *audit)
{
    for (size_t i = 0; i < AUDIT_CHECKS; i++)
        if (audit->counts[i] != 0 && audit_plans[i][false] != NULL && i != AUDIT_OVER_LIMIT &&
            i != AUDIT_SLOT)
            return true;
    return false;
}

bool audit_needs_places(const struct policy_audit *audit)
{
    return audit->counts[AUDIT_OVER_LIMIT] != 0 || audit->counts[AUDIT_SLOT] != 0;
}

/* --- policies --- */

/* A ledger that cannot be written to has no place for the note either: the log has it. */
void audit_note(struct service *service, struct ledger_repair_note *note, const char *outcome)
{
    struct error error = {""};

    snprintf(note->outcome, sizeof(note->outcome), "%s", outcome);
    note->done_at_ms = clock_wall_ms();
    log_event(LOG_WARN, "repair_done", LOG_FIELD("policy", LOG_I64(note->policy_id)),
              LOG_FIELD("found", LOG_TEXT(note->plan)), LOG_FIELD("done", LOG_TEXT(outcome)));
    if (ledger_repair_end(service->ledger, note, &error) != STATUS_OK)
        log_event(LOG_WARN, "repair_note_failed", LOG_FIELD("policy", LOG_I64(note->policy_id)),
                  LOG_FIELD("error", LOG_TEXT(error.text)));
}

enum status audit_place(struct service *service, const struct policy_audit *audit,
                        struct audit_repair *done, bool *is_renumbered, struct error *error)
{
    struct ledger_fix fix = {.policy_id = audit->policy_id, .places_coupons = true};

    *is_renumbered = false;
    if (!audit_needs_places(audit))
        return STATUS_OK;
    enum status status = ledger_fix(service->ledger, &fix, error);
    if (status != STATUS_OK)
        return status;
    *is_renumbered = fix.is_renumbered;
    done->claim_count += audit->counts[AUDIT_SLOT] + fix.kept_count;
    if (fix.kept_count == 0)
        return STATUS_OK;
    log_event(LOG_WARN, "coupons_kept", LOG_FIELD("policy", LOG_I64(audit->policy_id)),
              LOG_FIELD("count", LOG_I64(fix.kept_count)),
              LOG_FIELD("coupons", LOG_TEXT(fix.kept)));
    snprintf(done->text, sizeof(done->text),
             "policy %" PRId64 ": kept above the limit: %" PRId64
             ", such as %s; cancel those that are not to stay",
             audit->policy_id, fix.kept_count, fix.kept);
    return STATUS_OK;
}

enum status audit_for_each(struct service *service, int64_t policy_id, audit_visit *visit,
                           void *context, struct error *error)
{
    int64_t *ids = NULL;
    size_t count = 0;
    enum status status = policy_id == 0 ? audit_list(service, 0, &ids, &count, error) : STATUS_OK;

    if (status == STATUS_OK)
        status = audit_each(service, AUDIT_DEEP, policy_id, ids, count, visit, context, error);
    free(ids);
    return status;
}

/* --- the ranking's board, held against the ledger day by day ---
 *
 * A server has a board, its own or the one in Redis that all share; who serves nobody opens the
 * latter to look at it. */

static enum status audit_board_compare(struct service *service, struct board_comparison *comparison,
                                       struct error *error)
{
    struct board *board = NULL;
    int64_t today = zone_day(service->zone, clock_wall_ms());

    if (service->ranking != NULL)
        return ranking_audit(service->ranking, comparison, error);
    enum status status = service_open_board(service, &board, error);
    if (status == STATUS_OK)
        status = board_compare(board, service->ledger, today - board->days_max + 1, today,
                               comparison, error);
    board_close(board);
    return status;
}

/* Whether there is a board to look at from here. */
static bool audit_board_is_here(const struct service *service)
{
    return service->ranking != NULL || service_shares_board(service);
}

void service_audit_board(struct service *service, struct board_audit *audit)
{
    *audit = (struct board_audit){.is_known = false};
    if (!audit_board_is_here(service) || ledger_is_behind(service->ledger))
        return;
    for (int i = 0; i < BOARD_LOOKS; i++) {
        struct board_comparison comparison = {0};
        struct error error = {""};
        service_pause(i > 0 ? BOARD_PAUSE_MS : 0);
        if (audit_board_compare(service, &comparison, &error) != STATUS_OK) {
            log_event(LOG_WARN, "audit_failed", LOG_FIELD("status", LOG_TEXT("board")),
                      LOG_FIELD("error", LOG_TEXT(error.text)));
            *audit = (struct board_audit){.is_known = false};
            return;
        }
        *audit = (struct board_audit){.is_known = true,
                                      .kind = comparison.board,
                                      .is_built = comparison.is_built,
                                      .counters = comparison.counter_count,
                                      .differences = comparison.difference_count};
        /* One that stands for something else is wrong in all that it says. */
        if (comparison.is_built && !comparison.follows && audit->differences == 0)
            audit->differences = 1;
        if (!audit->is_built || audit->differences == 0)
            return;
    }
}

static enum status audit_board_build(struct service *service, struct error *error)
{
    struct board *board = NULL;

    if (service->ranking != NULL)
        return ranking_repair(service->ranking, error);
    enum status status = service_open_board(service, &board, error);
    if (status == STATUS_OK)
        status = ranking_build_board(board, service->ledger,
                                     zone_day(service->zone, clock_wall_ms()), error);
    board_close(board);
    return status;
}

enum status audit_board_repair(struct service *service, struct audit_repair *done,
                               struct error *error)
{
    struct board_audit audit;

    service_audit_board(service, &audit);
    if (!audit.is_known || audit.differences == 0)
        return STATUS_OK;
    struct ledger_repair_note note = {.asked_at_ms = clock_wall_ms()};
    snprintf(note.plan, sizeof(note.plan), "board %" PRId64, audit.differences);
    enum status status = ledger_repair_begin(service->ledger, &note, error);
    if (status != STATUS_OK)
        return status;
    status = audit_board_build(service, error);
    if (status == STATUS_BUSY)
        status = STATUS_OK; /* Another server is at it. */
    done->is_board_built = status == STATUS_OK;
    audit_note(service, &note,
               status == STATUS_OK ? "done; the board was built anew" : error->text);
    return status;
}

enum status service_repair(struct service *service, int64_t policy_id, enum audit_lacking lacking,
                           struct audit_repair *done, struct error *error)
{
    *done = (struct audit_repair){0};
    enum status status = service->topology->repair(service, policy_id, lacking, done, error);
    return status == STATUS_OK && policy_id == 0 ? audit_board_repair(service, done, error)
                                                 : status;
}
