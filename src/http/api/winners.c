/* winners.c: the winners of a policy as a CSV file, page by page.
 *
 * A pool thread reads and renders a page; the loop sends it when the client has taken most of what
 * came before, and has the next one read meanwhile. So a download of any length takes two pages of
 * memory, and a slow reader holds up nobody. */
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "claim/code.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"

#define WINNERS_PAGE         500
#define WINNERS_UNSENT_MAX   ((size_t)64 * 1024)
#define DOWNLOADS_OPEN_MAX   8 /* on a loop */
#define WINNERS_CONTENT_TYPE SPAN("text/csv; charset=utf-8")

struct winners_call {
    struct call call;
    bool is_head;
    bool started;
    bool gone;

    /* Written by `work`. */
    int64_t after_seq;
    bool is_last; /* the page in the call's body is */

    /* Waiting for the client, with a page to send or, when the pool threads were busy, with none.
     */
    bool has_page;
    struct winners_call *next;
    struct winners_call **place; /* NULL: not waiting */
};

/* --- on a pool thread --- */

static void append_time(struct buffer *out, int64_t wall_ms)
{
    char text[CLOCK_TEXT_SIZE];
    clock_format_rfc3339(wall_ms, text);
    buffer_append_text(out, text);
}

static void append_row(struct buffer *out, const struct service *service,
                       const struct coupon *coupon)
{
    const struct claim *claim = &coupon->claim;
    buffer_append_i64(out, claim->seq);
    buffer_append_literal(out, ",");
    csv_append_text(out, id_span(&claim->user));
    buffer_append_literal(out, ",");
    buffer_append_i64(out, claim->nth);
    buffer_append_literal(out, ",");
    code_append_id(out, claim->policy_id, claim->seq);
    buffer_append_literal(out, ",");
    code_append(out, service, claim->policy_id, claim->seq);
    buffer_append_literal(out, ",");
    buffer_append_text(out, coupon_state_name(coupon->state));
    buffer_append_literal(out, ",");
    append_time(out, claim->requested_at_ms);
    buffer_append_literal(out, ",");
    append_time(out, coupon->issued_at_ms);
    buffer_append_literal(out, "\r\n");
}

static enum status read_page(struct winners_call *self, struct service *service,
                             struct coupon *coupons, struct error *error)
{
    struct buffer *out = &self->call.body;
    size_t count = 0;
    if (self->after_seq == 0) {
        struct policy_view view;
        enum status status = service_policy_show(service, self->call.policy_id, &view, error);
        if (status != STATUS_OK)
            return status;
        buffer_append_literal(out, "seq,user,nth,coupon_id,code,state,requested_at,issued_at\r\n");
    }
    enum status status = service_coupons_of_policy(service, self->call.policy_id, self->after_seq,
                                                   coupons, WINNERS_PAGE, &count, error);
    for (size_t index = 0; index < count && status == STATUS_OK; index++) {
        /* A claim that became VOID or MERGED has no coupon: its user is no winner. */
        if (coupons[index].state != COUPON_VOID && coupons[index].state != COUPON_MERGED)
            append_row(out, service, &coupons[index]);
        self->after_seq = coupons[index].claim.seq;
    }
    self->is_last = count < WINNERS_PAGE;
    return status;
}

static void work_page(struct call *call, struct service *service)
{
    struct winners_call *self = (struct winners_call *)(void *)call;
    struct error error = {.text = "out of memory"};
    struct coupon *coupons = malloc(WINNERS_PAGE * sizeof(*coupons));
    enum status status = STATUS_UNAVAILABLE;
    call->is_problem = false;
    buffer_clear(&call->body);
    if (coupons != NULL)
        status = read_page(self, service, coupons, &error);
    if (status == STATUS_OK && call->body.overflowed)
        status = error_set(&error, STATUS_UNAVAILABLE, "no memory for a page of winners");
    (void)call_is_done(call, status, &error, PROBLEM_POLICY_NOT_FOUND);
    free(coupons);
}

/* --- on the loop --- */

static void wait_for_client(struct winners_call *self, bool has_page)
{
    struct api_loop *loop = self->call.loop;
    self->has_page = has_page;
    self->next = loop->downloads;
    self->place = &loop->downloads;
    if (self->next != NULL)
        self->next->place = &self->next;
    loop->downloads = self;
    api_loop_keep_ticking(loop);
}

static void stop_waiting(struct winners_call *self)
{
    *self->place = self->next;
    if (self->next != NULL)
        self->next->place = self->place;
    self->place = NULL;
}

/* The client has gone: what waits ends here, what is with a pool thread when it comes back. */
static void winners_gone(void *context)
{
    struct winners_call *self = context;
    self->gone = true;
    self->call.loop->downloads_open--;
    if (self->place != NULL) {
        stop_waiting(self);
        call_free(&self->call);
    }
}

static void end(struct winners_call *self)
{
    http_stream_end(self->call.exchange);
    self->call.loop->downloads_open--;
    call_free(&self->call);
}

static void ask_for_page(struct winners_call *self)
{
    if (!call_submit(&self->call))
        wait_for_client(self, false);
}

static void send_page(struct winners_call *self)
{
    struct call *call = &self->call;
    if (http_stream_unsent(call->exchange) > WINNERS_UNSENT_MAX) {
        wait_for_client(self, true);
        return;
    }
    if (!self->is_head)
        http_stream_write(call->exchange, (struct span){call->body.bytes, call->body.length});
    if (self->is_last || self->is_head)
        end(self);
    else
        ask_for_page(self);
}

void winners_tick(struct api_loop *loop)
{
    struct winners_call *next;
    for (struct winners_call *self = loop->downloads; self != NULL; self = next) {
        next = self->next;
        if (self->call.is_problem)
            continue; /* broken off: it goes with its connection */
        if (!self->has_page || http_stream_unsent(self->call.exchange) <= WINNERS_UNSENT_MAX) {
            stop_waiting(self);
            if (self->has_page)
                send_page(self);
            else
                ask_for_page(self);
        }
    }
}

static bool start(struct winners_call *self)
{
    struct call *call = &self->call;
    char disposition[64];
    if (call->loop->downloads_open >= DOWNLOADS_OPEN_MAX) {
        reply_problem_about(call->loop, call->exchange, PROBLEM_UNAVAILABLE,
                            "Too many downloads are under way on this server.", NULL);
        return false;
    }
    call->loop->downloads_open++;
    self->started = true;
    call_log(call, "winners_downloaded", LOG_FIELD("policy", LOG_I64(self->call.policy_id)));
    snprintf(disposition, sizeof(disposition), "attachment; filename=\"winners-%lld.csv\"",
             (long long)self->call.policy_id);
    reply_begin(call->loop, call->exchange, 200, WINNERS_CONTENT_TYPE);
    http_answer_header(call->exchange, SPAN("Content-Disposition"), span_of(disposition));
    http_stream_start(call->exchange, winners_gone, self);
    http_stream_must_finish(call->exchange);
    return true;
}

static void answer_page(struct call *call)
{
    struct winners_call *self = (struct winners_call *)(void *)call;
    bool starts = !self->gone && !call->is_problem && !self->started;
    if (self->gone || (starts && (!start(self) || self->gone))) {
        call_free(call);
    } else if (call->is_problem && !self->started) {
        call_answer(call);
    } else if (call->is_problem) {
        /* A file that ends early must not look whole. */
        wait_for_client(self, false);
        http_stream_break(call->exchange);
    } else {
        send_page(self);
    }
}

/* Nobody will be there to hear that the client has gone. */
static void abandon(struct call *call)
{
    struct winners_call *self = (struct winners_call *)(void *)call;
    if (self->started && !self->gone) {
        http_stream_break(call->exchange);
        http_stream_end(call->exchange);
    }
}

void winners_loop_close(struct api_loop *loop)
{
    while (loop->downloads != NULL) {
        struct winners_call *self = loop->downloads;
        stop_waiting(self);
        abandon(&self->call);
        call_free(&self->call);
    }
}

void winners_download(struct ask *ask)
{
    struct winners_call *self = call_new(ask, sizeof(*self), work_page);
    if (self != NULL) {
        self->is_head = ask->request->method == HTTP_METHOD_HEAD;
        self->call.answer = answer_page;
        self->call.abandon = abandon;
        call_submit_or_refuse(&self->call);
    }
}
