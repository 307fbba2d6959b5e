/* webhook.c: how the webhook does; tested, tried again at once, told once more; for admins. */
#include "config/config.h"
#include "http/api/call.h"
#include "http/api/handlers.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct redeliver_call {
    struct call call;
    int64_t since_ms;
    int64_t policy_id; /* 0: all */
};

/* --- how it does --- */

static void render_webhook(const struct call *call, struct buffer *out,
                           const struct webhook_view *view)
{
    const struct ledger_sink_state *state = &view->state;
    bool is_failing = state->failing_since_ms != 0;
    struct buffer url;

    buffer_init(&url, ANSWER_LENGTH_MAX);
    config_append_value(&url, call->loop->api->config, config_key_find("webhook"));
    json_begin(out, '{');
    json_put(out, "url", buffer_span(&url));
    json_put(out, "state", view->is_given_up ? "DISABLED" : is_failing ? "FAILING" : "OK");
    json_put_time(out, "failing_since", state->failing_since_ms);
    if (is_failing)
        json_put(out, "reason", state->text);
    else
        json_put_null(out, "reason");
    json_put(out, "waiting", view->backlog.count);
    json_put_time(out, "oldest_at", view->backlog.oldest_at_ms);
    buffer_append_literal(out, "}");
    buffer_release(&url);
}

static void work_show(struct call *call, struct service *service)
{
    struct webhook_view view;
    struct error error = {""};

    if (call_is_done(call, service_webhook_show(service, &view, &error), &error, PROBLEM_NOT_FOUND))
        render_webhook(call, call_json(call, 200), &view);
}

void webhook_show(struct ask *ask)
{
    call_start(ask, work_show);
}

/* --- trying --- */

static void work_test(struct call *call, struct service *service)
{
    struct webhook_answer answer = {.took_ms = 0};
    struct error error = {""};

    if (!call_is_done(call, service_webhook_test(service, &answer, &error), &error,
                      PROBLEM_NOT_FOUND))
        return;
    bool is_delivered = answer.outcome == WEBHOOK_DELIVERED;
    call_log(call, "webhook_tested", LOG_FIELD("delivered", LOG_FLAG(is_delivered)));
    struct buffer *out = call_json(call, 200);
    json_begin(out, '{');
    json_put_flag(out, "delivered", is_delivered);
    json_put_unless(out, "status", 0, answer.status);
    json_put(out, "took_ms", answer.took_ms);
    if (is_delivered)
        json_put_null(out, "reason");
    else
        json_put(out, "reason", (const char *)answer.text);
    buffer_append_literal(out, "}");
}

void webhook_try(struct ask *ask)
{
    if (ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0))
        call_start(ask, work_test);
}

static void work_enable(struct call *call, struct service *service)
{
    struct error error = {""};

    if (!call_is_done(call, service_webhook_enable(service, &error), &error, PROBLEM_NOT_FOUND))
        return;
    call_log(call, "webhook_enabled", LOG_FIELD("words", LOG_TEXT("it is tried at once")));
    action_note(call, service, "webhook_enabled", "webhook", NULL, NULL);
    work_show(call, service);
}

void webhook_enable(struct ask *ask)
{
    if (ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0))
        call_start(ask, work_enable);
}

/* --- once more --- */

static void work_redeliver(struct call *call, struct service *service)
{
    struct redeliver_call *self = (struct redeliver_call *)(void *)call;
    struct error error = {""};
    int64_t count = 0;
    enum status status =
        service_webhook_redeliver(service, self->since_ms, self->policy_id, &count, &error);

    if (!call_is_done(call, status, &error, PROBLEM_POLICY_NOT_FOUND))
        return;
    call_log(call, "webhook_redelivered", LOG_FIELD("events", LOG_I64(count)));
    action_note(call, service, "webhook_redelivered", "webhook", NULL, NULL);
    struct buffer *out = call_json(call, 200);
    json_begin(out, '{');
    json_put(out, "events", count);
    buffer_append_literal(out, "}");
}

void webhook_redeliver(struct ask *ask)
{
    int64_t since_ms = 0;
    int64_t policy_id = 0;
    const struct json_field fields[] = {
        {.name = "since", .kind = JSON_TIME, .target = &since_ms},
        {.name = "policy_id",
         .kind = JSON_INTEGER,
         .presence = JSON_OPTIONAL,
         .minimum = 1,
         .maximum = POLICY_ID_MAX,
         .target = &policy_id},
    };

    if (ask_body(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields)))
        call_start_with(ask, work_redeliver, struct redeliver_call, .since_ms = since_ms,
                        .policy_id = policy_id);
}
