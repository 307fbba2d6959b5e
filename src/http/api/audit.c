/* audit.c: gate and ledger held against each other, what a repair did, and what earlier ones did.
 */
#include "http/api/audit.h"

#include <stdlib.h>

#include "base/json.h"
#include "base/log.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"

#define CURSOR_KIND 'a'

struct audit_call {
    struct call call;
    int64_t policy_id; /* 0: a page of all */
    enum audit_lacking lacking;
};

/* The words are for those who run the server, and that is who asks. */
static bool audit_is_done(struct call *call, enum status status, const struct error *error)
{
    if (status == STATUS_OK || status == STATUS_NOT_FOUND)
        return call_is_done(call, status, error, PROBLEM_POLICY_NOT_FOUND);
    log_event(LOG_WARN, "audit_failed", LOG_FIELD("status", LOG_TEXT(status_name(status))),
              LOG_FIELD("error", LOG_TEXT(error->text)));
    call_problem(call, status == STATUS_CONFLICT ? PROBLEM_CONFLICT : PROBLEM_UNAVAILABLE,
                 error->text, NULL);
    return false;
}

/* --- looking --- */

static void append_ledger(struct buffer *out, struct ledger *ledger)
{
    struct error words;
    const char *state = "OK";
    ledger_state(ledger, &words);
    if (ledger_is_behind(ledger))
        state = "BEHIND";
    else if (!ledger_healthy(ledger))
        state = "UNAVAILABLE";
    buffer_append_literal(out, "{");
    json_put(out, "kind", ledger_kind(ledger));
    json_put(out, "state", state);
    json_put(out, "detail", words.text);
    buffer_append_literal(out, "}");
}

static void append_findings(struct buffer *out, const struct service *service,
                            const struct policy_audit *audit)
{
    size_t number = 0;
    buffer_append_literal(out, ",\"findings\":[");
    for (unsigned check = 0; check < AUDIT_CHECKS; check++) {
        if (audit->counts[check] == 0)
            continue;
        json_begin(out, '{');
        json_put(out, "check", audit_check_name(check));
        json_put(out, "count", audit->counts[check]);
        json_put(out, "meaning", policy_audit_text(audit, check));
        json_put(out, "repair", policy_audit_plan(service, audit, number++));
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

static void append_audit(struct buffer *out, const struct service *service,
                         const struct policy_audit *audit)
{
    static const char *const gates[] = {[AUDIT_GATE_ARMED] = "ARMED",
                                        [AUDIT_GATE_UNARMED] = "UNARMED",
                                        [AUDIT_GATE_SUSPENDED] = "SUSPENDED",
                                        [AUDIT_GATE_UNKNOWN] = "UNKNOWN"};
    const struct ledger_balance *balance = &audit->balance;
    json_begin(out, '{');
    json_put(out, "policy_id", audit->policy_id);
    json_put_flag(out, "ok", policy_audit_is_fine(audit));
    json_put_flag(out, "in_ledger", !audit->is_lacking);
    json_put_flag(out, "is_outdated", audit->is_older);
    json_put(out, "gate", gates[audit->gate]);
    json_put(out, "total", balance->total);
    json_put(out, "unleased", balance->unleased);
    json_put(out, "leased", balance->leased);
    json_put(out, "active", balance->active);
    json_put(out, "imbalance", policy_audit_imbalance(audit));
    json_put(out, "pending", audit->pending);
    json_put(out, "missing", audit->counts[AUDIT_MISSING]);
    json_put(out, "outdated", audit->counts[AUDIT_OUTDATED]);
    json_put(out, "unknown", audit->counts[AUDIT_UNKNOWN]);
    json_put(out, "unaccounted", audit->unaccounted);
    append_findings(out, service, audit);
    buffer_append_literal(out, "}");
}

/* null: it was not looked at. */
static void append_board(struct buffer *out, const struct board_audit *board)
{
    if (board == NULL || !board->is_known) {
        buffer_append_literal(out, "null");
        return;
    }
    buffer_append_literal(out, "{");
    json_put(out, "kind", board->kind);
    json_put(out, "state", !board->is_built ? "UNBUILT" : board->differences != 0 ? "DRIFT" : "OK");
    json_put(out, "counters", board->counters);
    json_put(out, "differences", board->differences);
    buffer_append_literal(out, "}");
}

void audit_write(struct buffer *out, struct service *service, const struct board_audit *board,
                 const struct policy_audit *audits, size_t count, bool has_more)
{
    char cursor[CURSOR_SIZE];
    buffer_append_literal(out, "{\"ledger\":");
    append_ledger(out, service_ledger(service));
    buffer_append_literal(out, ",\"board\":");
    append_board(out, board);
    buffer_append_literal(out, ",\"items\":[");
    for (size_t index = 0; index < count; index++)
        append_audit(out, service, &audits[index]);
    buffer_append_literal(out, "]");
    if (has_more)
        cursor_write(cursor, CURSOR_KIND, audits[count - 1].policy_id, 0);
    json_put(out, "next", has_more ? cursor : NULL);
    buffer_append_literal(out, "}");
}

int64_t audit_read_cursor(const char *cursor)
{
    int64_t policy_id = 0;
    int64_t ignored;
    return cursor_read(span_of(cursor), CURSOR_KIND, &policy_id, &ignored) ? policy_id : 0;
}

static void work_show(struct call *call, struct service *service)
{
    struct audit_call *self = (struct audit_call *)(void *)call;
    size_t limit = self->policy_id != 0 ? 1 : call->page.limit;
    struct error error = {.text = "out of memory"};
    struct policy_audit *audits = malloc(limit * sizeof(*audits));
    struct board_audit board = {.is_known = false};
    bool has_more = false;
    size_t count = 1;
    enum status status = STATUS_UNAVAILABLE;
    if (audits != NULL && self->policy_id != 0) {
        status = service_audit_one(service, AUDIT_DEEP, self->policy_id, audits, &error);
    } else if (audits != NULL) {
        status = service_audit(service, AUDIT_DEEP, call->page.after_first, audits, limit, &count,
                               &has_more, &error);
        /* It is the same on every page. */
        if (status == STATUS_OK && call->page.after_first == 0)
            service_audit_board(service, &board);
    }
    if (audit_is_done(call, status, &error))
        audit_write(call_json(call, 200), service, &board, audits, count, has_more);
    free(audits);
}

/* False: it was refused. */
static bool take_policy(struct ask *ask, const struct query_param *policy, int64_t *policy_id)
{
    if (policy->present &&
        !route_policy_id((struct span){policy->value, policy->length}, policy_id)) {
        ask_refuse(ask, "policy: must be an integer from 1 to 9007199254740991", policy->name);
        return false;
    }
    return true;
}

void audit_show(struct ask *ask)
{
    struct query_param policy = {.name = "policy"};
    int64_t policy_id = 0;
    if (ask_page(ask, CURSOR_KIND, &policy) && take_policy(ask, &policy, &policy_id))
        call_start_with(ask, work_show, struct audit_call, .policy_id = policy_id);
}

/* --- repairing --- */

void audit_write_repair(struct buffer *out, const struct audit_repair *done)
{
    const struct ledger_repair *ledger = &done->ledger;
    bool is_done = ledger->is_done || done->policy_count > 0 || done->is_board_built;
    buffer_append_literal(out, "{");
    json_put_flag(out, "repaired", is_done);
    json_put(out, "policies", ledger->is_done ? ledger->policy_count : done->policy_count);
    json_put(out, "coupons_written", ledger->written_count);
    json_put(out, "coupons_redeemed", ledger->redeemed_count);
    json_put(out, "coupons_cancelled", ledger->cancelled_count);
    json_put(out, "keys_written", ledger->key_count);
    json_put(out, "users_blocked", ledger->blocked_count);
    json_put(out, "users_unblocked", ledger->unblocked_count);
    json_put(out, "stock_set", done->stock_count);
    json_put(out, "claims_repaired", done->claim_count);
    json_put(out, "policies_built", done->built_count);
    json_put(out, "letters_written", done->dead_letter_count);
    json_put_flag(out, "board_built", done->is_board_built);
    json_put(out, "detail", done->text);
    buffer_append_literal(out, "}");
}

static void work_repair(struct call *call, struct service *service)
{
    const struct audit_call *self = (struct audit_call *)(void *)call;
    struct audit_repair done;
    struct error error;
    enum status status = service_repair(service, self->policy_id, self->lacking, &done, &error);
    if (!audit_is_done(call, status, &error))
        return;
    bool has_repaired = done.ledger.is_done || done.policy_count > 0;
    call_log(call, "repair_asked", LOG_FIELD("repaired", LOG_FLAG(has_repaired)));
    if (has_repaired)
        action_note(call, service, "repaired", "audit", NULL, NULL);
    audit_write_repair(call_json(call, 200), &done);
}

void audit_repair(struct ask *ask)
{
    struct query_param params[] = {{.name = "policy"}, {.name = "lacking"}};
    int64_t policy_id = 0;
    if (!ask_query(ask, params, 2) || !ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0) ||
        !take_policy(ask, &params[0], &policy_id))
        return;
    bool forgets = span_equal((struct span){params[1].value, params[1].length}, SPAN("forget"));
    if (params[1].present && (!forgets || policy_id == 0)) {
        ask_refuse(ask, "lacking: must be forget, and goes with policy", params[1].name);
        return;
    }
    call_start_with(ask, work_repair, struct audit_call, .policy_id = policy_id,
                    .lacking = params[1].present ? AUDIT_LET_GO : AUDIT_WRITE_BACK);
}

/* --- what earlier repairs did --- */

static void append_note(struct buffer *out, const struct ledger_repair_note *note)
{
    json_begin(out, '{');
    json_put_time(out, "asked_at", note->asked_at_ms);
    json_put(out, "policy_id", note->policy_id);
    json_put(out, "found", note->plan);
    json_put_time(out, "done_at", note->done_at_ms);
    json_put(out, "outcome", note->outcome);
    buffer_append_literal(out, "}");
}

void audit_write_history(struct buffer *out, const struct ledger_repair_note *notes, size_t count)
{
    buffer_append_literal(out, "{\"items\":[");
    for (size_t index = 0; index < count; index++)
        append_note(out, &notes[index]);
    buffer_append_literal(out, "],\"next\":null}");
}

static void work_history(struct call *call, struct service *service)
{
    struct ledger_repair_note *notes = malloc(AUDIT_HISTORY_MAX * sizeof(*notes));
    struct error error = {.text = "out of memory"};
    size_t count = 0;
    enum status status = notes == NULL ? STATUS_UNAVAILABLE
                                       : ledger_repairs(service_ledger(service), notes,
                                                        AUDIT_HISTORY_MAX, &count, &error);
    if (audit_is_done(call, status, &error))
        audit_write_history(call_json(call, 200), notes, count);
    free(notes);
}

void audit_history(struct ask *ask)
{
    call_start(ask, work_history);
}
