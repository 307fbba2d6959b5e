/* dead.c: dead letters: listed, tried once more, dropped; for admins. */
#include <stdio.h>

#include "base/log.h"
#include "claim/code.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"

#define CURSOR_KIND 'd'

struct dead_call {
    struct call call;
    int64_t policy_id; /* 0: a message that is no claim */
    int64_t seq;
};

/* A message that is no claim is kept under policy 0. */
static void append_dead_letter(struct buffer *out, const struct dead_letter *letter)
{
    const struct claim *claim = &letter->claim;
    json_begin(out, '{');
    buffer_append_literal(out, "\"id\":\"");
    code_append_id(out, claim->policy_id, claim->seq);
    buffer_append_literal(out, "\"");
    if (claim->policy_id != 0) {
        json_put(out, "policy_id", claim->policy_id);
        json_put(out, "seq", claim->seq);
        json_put(out, "user", id_span(&claim->user));
        json_put(out, "nth", claim->nth);
    } else {
        buffer_append_literal(out, ",\"policy_id\":null,\"seq\":null,\"user\":null,\"nth\":null");
    }
    json_put(out, "reason", letter->reason);
    json_put(out, "attempts", letter->attempts);
    json_put_time(out, "requested_at", claim->requested_at_ms);
    json_put_time(out, "died_at", letter->died_at_ms);
    buffer_append_literal(out, "}");
}

/* --- listing --- */

static enum status read_list(const struct call *call, struct service *service, void *rows,
                             size_t max, size_t *count, struct error *error)
{
    return ledger_dead_letters(service_ledger(service), call->page.after_first,
                               call->page.after_second, rows, max, count, error);
}

static void render_row(struct buffer *out, const struct service *service, const void *row)
{
    append_dead_letter(out, row);
}

static void place_row(const void *row, int64_t *first, int64_t *second)
{
    const struct claim *claim = &((const struct dead_letter *)row)->claim;
    *first = claim->policy_id;
    *second = claim->seq;
}

static void work_list(struct call *call, struct service *service)
{
    static const struct call_rows rows = {
        sizeof(struct dead_letter), CURSOR_KIND, read_list, render_row, place_row,
    };
    call_list(call, service, &rows);
}

void dead_list(struct ask *ask)
{
    if (ask_page(ask, CURSOR_KIND, NULL))
        call_start(ask, work_list);
}

/* --- one of them --- */

/* "42-17", or "0-1026" of a message that is no claim. */
static bool parse_dead_letter(struct ask *ask, int64_t *policy_id, int64_t *seq)
{
    struct service *service = ask->loop->api->service;
    struct span id = ask->match.params[0];
    if (id.length < 3 || id.length > 24 || id.bytes[0] != '0' || id.bytes[1] != '-')
        return code_parse(service, id, policy_id, seq) == CODE_ID;
    char some_id[32];
    snprintf(some_id, sizeof(some_id), "1%.*s", (int)id.length - 1, id.bytes + 1);
    bool is_id = code_parse(service, span_of(some_id), policy_id, seq) == CODE_ID;
    *policy_id = 0;
    return is_id;
}

static void submit_about(struct ask *ask, call_work *work)
{
    struct dead_call self = {.seq = 0};
    if (parse_dead_letter(ask, &self.policy_id, &self.seq))
        call_start_copy(ask, work, &self.call, sizeof(self));
    else
        reply_problem(ask->loop, ask->exchange, PROBLEM_NOT_FOUND);
}

static void note(const struct dead_call *self, struct service *service, const char *what)
{
    char target[64];

    snprintf(target, sizeof(target), "dead/%lld-%lld", (long long)self->policy_id,
             (long long)self->seq);
    action_note(&self->call, service, what, target, NULL, NULL);
}

static void work_retry(struct call *call, struct service *service)
{
    struct dead_call *self = (struct dead_call *)(void *)call;
    struct wish wish;
    struct error error = {.text = ""};
    enum status status =
        service_dead_letter_retry(service, self->policy_id, self->seq, &wish, &error);
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    call_log(call, "letter_retried", LOG_FIELD("policy", LOG_I64(self->policy_id)),
             LOG_FIELD("seq", LOG_I64(self->seq)), LOG_FIELD("new_seq", LOG_I64(wish.seq)));
    note(self, service, "dead_letter_retried");
    render_claim(call_json(call, wish.is_accepted ? 202 : 201), service, &wish, CODE_SHOWN);
}

void dead_retry(struct ask *ask)
{
    if (ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0))
        submit_about(ask, work_retry);
}

static void work_drop(struct call *call, struct service *service)
{
    struct dead_call *self = (struct dead_call *)(void *)call;
    struct dead_letter letter;
    struct error error = {.text = ""};
    enum status status = ledger_dead_letter_drop(service_ledger(service), self->policy_id,
                                                 self->seq, &letter, &error);
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    call_log(call, "letter_dropped", LOG_FIELD("policy", LOG_I64(self->policy_id)),
             LOG_FIELD("seq", LOG_I64(self->seq)));
    note(self, service, "dead_letter_dropped");
    append_dead_letter(call_json(call, 200), &letter);
}

void dead_drop(struct ask *ask)
{
    submit_about(ask, work_drop);
}
