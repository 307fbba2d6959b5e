/* audit.c: the ledger held against the gate, and the repair of one that is older. */
#include <stdlib.h>

#include "base/log.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/reply.h"

#define CURSOR_KIND 'a'

struct audit_call {
    struct call call;
    int64_t policy_id; /* 0: a page of all */
    struct page page;
};

/* The words are for those who run the server, and that is who asks. */
static void audit_failed(struct call *call, enum status status, const struct error *error)
{
    log_event(LOG_WARN, "audit_failed", LOG_FIELD("status", LOG_TEXT(status_name(status))),
              LOG_FIELD("error", LOG_TEXT(error->text)));
    call_problem(call, status == STATUS_CONFLICT ? PROBLEM_CONFLICT : PROBLEM_UNAVAILABLE,
                 error->text, NULL);
}

static void append_number(struct buffer *out, const char *name, int64_t number)
{
    buffer_append_literal(out, ",\"");
    buffer_append_text(out, name);
    buffer_append_literal(out, "\":");
    buffer_append_i64(out, number);
}

static void append_flag(struct buffer *out, const char *name, bool flag)
{
    buffer_append_literal(out, ",\"");
    buffer_append_text(out, name);
    buffer_append_text(out, flag ? "\":true" : "\":false");
}

/* --- looking --- */

static void append_ledger(struct buffer *out, struct ledger *ledger)
{
    struct error words;
    const char *state = "OK";
    ledger_state(ledger, &words);
    if (ledger_is_behind(ledger)) {
        state = "BEHIND";
    } else if (!ledger_healthy(ledger)) {
        state = "UNAVAILABLE";
    }
    buffer_append_literal(out, "{\"kind\":\"");
    buffer_append_text(out, ledger_kind(ledger));
    buffer_append_literal(out, "\",\"state\":\"");
    buffer_append_text(out, state);
    buffer_append_literal(out, "\",\"detail\":");
    json_append_text(out, span_of(words.text));
    buffer_append_literal(out, "}");
}

static void append_audit(struct buffer *out, const struct policy_audit *audit)
{
    const struct ledger_gap *gap = &audit->gap;
    const struct ledger_balance *balance = &audit->balance;
    buffer_append_literal(out, "{\"policy_id\":");
    buffer_append_i64(out, audit->policy_id);
    append_flag(out, "ok", policy_audit_is_fine(audit));
    append_flag(out, "in_ledger", !gap->lacks_policy);
    append_flag(out, "is_outdated", gap->has_older_policy);
    append_number(out, "total", balance->total);
    append_number(out, "unleased", balance->unleased);
    append_number(out, "leased", balance->leased);
    append_number(out, "active", balance->active);
    append_number(out, "imbalance", policy_audit_imbalance(audit));
    append_number(out, "pending", gap->pending_count);
    append_number(out, "missing", gap->missing_count);
    append_number(out, "outdated", gap->redeemed_count + gap->cancelled_count);
    append_number(out, "unknown", gap->unknown_count);
    buffer_append_literal(out, "}");
}

static void answer_audit(struct call *call, struct service *service,
                         const struct policy_audit *audits, size_t count, bool more)
{
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{\"ledger\":");
    append_ledger(out, service_ledger(service));
    buffer_append_literal(out, ",\"items\":[");
    for (size_t index = 0; index < count; index++) {
        if (index > 0) {
            buffer_append_literal(out, ",");
        }
        append_audit(out, &audits[index]);
    }
    buffer_append_literal(out, "],\"next\":");
    if (more) {
        char cursor[CURSOR_SIZE];
        cursor_write(cursor, CURSOR_KIND, audits[count - 1].policy_id, 0);
        json_append_text(out, span_of(cursor));
    } else {
        buffer_append_literal(out, "null");
    }
    buffer_append_literal(out, "}");
}

static void work_show(struct call *call, struct service *service)
{
    struct audit_call *self = (struct audit_call *)(void *)call;
    size_t limit = self->policy_id != 0 ? 1 : self->page.limit;
    int64_t after_id = self->policy_id != 0 ? self->policy_id - 1 : self->page.after_first;
    struct error error = {.text = "out of memory"};
    struct policy_audit *audits = malloc(limit * sizeof *audits);
    struct gate_numbers ignored;
    size_t count = 0;
    enum status status = STATUS_UNAVAILABLE;
    if (self->policy_id != 0 &&
        (gate_look(service_gate(service), self->policy_id, &error) == STATUS_NOT_FOUND ||
         gate_count(service_gate(service), self->policy_id, 0, &ignored) == STATUS_NOT_FOUND)) {
        status = STATUS_NOT_FOUND;
    } else if (audits != NULL) {
        status = service_audit(service, after_id, audits, limit, &count, &error);
    }
    if (status == STATUS_NOT_FOUND) {
        call_failed(call, status, &error, PROBLEM_POLICY_NOT_FOUND);
    } else if (status != STATUS_OK) {
        audit_failed(call, status, &error);
    } else {
        int64_t next_id;
        bool more = self->policy_id == 0 && count == limit &&
                    gate_list(service_gate(service), audits[count - 1].policy_id, &next_id, 1) > 0;
        answer_audit(call, service, audits, count, more);
    }
    free(audits);
}

void audit_show(struct ask *ask)
{
    struct query_param policy = {.name = "policy"};
    struct page page;
    int64_t policy_id = 0;
    if (!ask_admin(ask) || !ask_page_with(ask, CURSOR_KIND, &page, &policy)) {
        return;
    }
    if (policy.present &&
        !route_policy_id((struct span){policy.value, policy.length}, &policy_id)) {
        ask_refuse(ask, "policy: must be an integer from 1 to 9007199254740991", policy.name);
        return;
    }
    struct audit_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_show);
    if (self != NULL) {
        self->policy_id = policy_id;
        self->page = page;
        call_submit_or_refuse(&self->call);
    }
}

/* --- repairing --- */

static void work_repair(struct call *call, struct service *service)
{
    struct ledger_repair done;
    struct error error;
    enum status status = service_repair(service, &done, &error);
    if (status != STATUS_OK) {
        audit_failed(call, status, &error);
        return;
    }
    call_log(call, "repair_asked", LOG_FIELD("repaired", LOG_FLAG(done.is_done)));
    struct buffer *out = call_json(call, 200);
    buffer_append_text(out, done.is_done ? "{\"repaired\":true" : "{\"repaired\":false");
    append_number(out, "policies", done.policy_count);
    append_number(out, "coupons_written", done.written_count);
    append_number(out, "coupons_redeemed", done.redeemed_count);
    append_number(out, "coupons_cancelled", done.cancelled_count);
    append_number(out, "keys_written", done.key_count);
    append_number(out, "users_blocked", done.blocked_count);
    append_number(out, "users_unblocked", done.unblocked_count);
    buffer_append_literal(out, "}");
}

void audit_repair(struct ask *ask)
{
    if (!ask_admin(ask) || !ask_no_query(ask) || !ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0)) {
        return;
    }
    struct audit_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_repair);
    if (self != NULL) {
        call_submit_or_refuse(&self->call);
    }
}
