/* dead.c: dead letters: listed, tried once more, dropped; for admins. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/code.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/render.h"
#include "http/reply.h"

#define CURSOR_KIND 'd'

struct dead_call {
    struct call call;
    int64_t policy_id;
    int64_t seq;
    struct page page;
};

static void append_time(struct buffer *out, const char *name, int64_t wall_ms)
{
    buffer_append_literal(out, ",\"");
    buffer_append_text(out, name);
    buffer_append_literal(out, "\":");
    json_append_time(out, wall_ms);
}

static void append_claim(struct buffer *out, const struct claim *claim)
{
    buffer_append_literal(out, "\",\"policy_id\":");
    buffer_append_i64(out, claim->policy_id);
    buffer_append_literal(out, ",\"seq\":");
    buffer_append_i64(out, claim->seq);
    buffer_append_literal(out, ",\"user\":");
    json_append_text(out, user_id_span(&claim->user));
    buffer_append_literal(out, ",\"nth\":");
    buffer_append_i64(out, claim->nth);
}

/* A message that is no claim is kept under policy 0. */
static void append_letter(struct buffer *out, const struct dead_letter *letter)
{
    const struct claim *claim = &letter->claim;
    buffer_append_literal(out, "{\"id\":\"");
    code_append_id(out, claim->policy_id, claim->seq);
    if (claim->policy_id != 0) {
        append_claim(out, claim);
    } else {
        buffer_append_literal(out, "\",\"policy_id\":null,\"seq\":null,\"user\":null,\"nth\":null");
    }
    buffer_append_literal(out, ",\"reason\":");
    json_append_text(out, span_of(letter->reason));
    buffer_append_literal(out, ",\"attempts\":");
    buffer_append_i64(out, letter->attempts);
    append_time(out, "requested_at", claim->requested_at_ms);
    append_time(out, "died_at", letter->died_at_ms);
    buffer_append_literal(out, "}");
}

/* --- listing --- */

static void render_page(struct call *call, const struct page *page,
                        const struct dead_letter *letters, size_t count)
{
    size_t shown = count < page->limit ? count : page->limit;
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{\"items\":[");
    for (size_t index = 0; index < shown; index++) {
        if (index > 0) {
            buffer_append_literal(out, ",");
        }
        append_letter(out, &letters[index]);
    }
    buffer_append_literal(out, "],\"next\":");
    if (count > shown) {
        char cursor[CURSOR_SIZE];
        const struct claim *last = &letters[shown - 1].claim;
        cursor_write(cursor, CURSOR_KIND, last->policy_id, last->seq);
        json_append_text(out, span_of(cursor));
    } else {
        buffer_append_literal(out, "null");
    }
    buffer_append_literal(out, "}");
}

static void work_list(struct call *call, struct service *service)
{
    struct dead_call *self = (struct dead_call *)(void *)call;
    const struct page *page = &self->page;
    /* One more than asked for says whether there is a next page. */
    size_t max = page->limit + 1;
    struct error error = {.text = "out of memory"};
    struct dead_letter *letters = malloc(max * sizeof *letters);
    size_t count = 0;
    enum status status = STATUS_UNAVAILABLE;
    if (letters != NULL) {
        status = service_letters(service, page->after_first, page->after_second, letters, max,
                                 &count, &error);
    }
    if (status == STATUS_OK) {
        render_page(call, page, letters, count);
    } else {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
    }
    free(letters);
}

void dead_list(struct ask *ask)
{
    struct page page;
    if (!ask_admin(ask) || !ask_page(ask, CURSOR_KIND, &page)) {
        return;
    }
    struct dead_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_list);
    if (self != NULL) {
        self->page = page;
        call_submit_or_refuse(&self->call);
    }
}

/* --- one of them --- */

/* "42-17", or "0-1026" of a message that is no claim. */
static bool parse_letter(struct ask *ask, int64_t *policy_id, int64_t *seq)
{
    struct service *service = ask->loop->api->service;
    struct span id = ask->match.params[0];
    if (id.length < 3 || id.length > 24 || id.bytes[0] != '0' || id.bytes[1] != '-') {
        return code_parse(service, id, policy_id, seq) == CODE_ID;
    }
    char some_id[32];
    snprintf(some_id, sizeof some_id, "1%.*s", (int)id.length - 1, id.bytes + 1);
    bool is_id = code_parse(service, span_of(some_id), policy_id, seq) == CODE_ID;
    *policy_id = 0;
    return is_id;
}

static void submit_about(struct ask *ask, void (*work)(struct call *, struct service *))
{
    int64_t policy_id;
    int64_t seq;
    if (!parse_letter(ask, &policy_id, &seq)) {
        reply_problem(ask->loop, ask->exchange, PROBLEM_NOT_FOUND);
        return;
    }
    struct dead_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work);
    if (self != NULL) {
        self->policy_id = policy_id;
        self->seq = seq;
        call_submit_or_refuse(&self->call);
    }
}

/* The words are for whoever looks after the shop, and that is who asks. */
static void dead_failed(struct call *call, enum status status, const struct error *error)
{
    if (status == STATUS_CONFLICT) {
        call_problem(call, PROBLEM_CONFLICT, error->text, NULL);
    } else {
        call_failed(call, status, error, PROBLEM_NOT_FOUND);
    }
}

static void work_retry(struct call *call, struct service *service)
{
    struct dead_call *self = (struct dead_call *)(void *)call;
    struct wish wish;
    struct error error = {.text = ""};
    enum status status = service_letter_retry(service, self->policy_id, self->seq, &wish, &error);
    if (status != STATUS_OK) {
        dead_failed(call, status, &error);
        return;
    }
    call_log(call, "letter_retried", LOG_FIELD("policy", LOG_I64(self->policy_id)),
             LOG_FIELD("seq", LOG_I64(self->seq)), LOG_FIELD("new_seq", LOG_I64(wish.seq)));
    render_claim(call_json(call, wish.is_accepted ? 202 : 201), service, &wish, CODE_SHOWN);
}

void dead_retry(struct ask *ask)
{
    if (ask_admin(ask) && ask_no_query(ask) && ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0)) {
        submit_about(ask, work_retry);
    }
}

static void work_drop(struct call *call, struct service *service)
{
    struct dead_call *self = (struct dead_call *)(void *)call;
    struct dead_letter letter;
    struct error error = {.text = ""};
    enum status status = service_letter_drop(service, self->policy_id, self->seq, &letter, &error);
    if (status != STATUS_OK) {
        dead_failed(call, status, &error);
        return;
    }
    call_log(call, "letter_dropped", LOG_FIELD("policy", LOG_I64(self->policy_id)),
             LOG_FIELD("seq", LOG_I64(self->seq)));
    append_letter(call_json(call, 200), &letter);
}

void dead_drop(struct ask *ask)
{
    if (ask_admin(ask) && ask_no_query(ask)) {
        submit_about(ask, work_drop);
    }
}
