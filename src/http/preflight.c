/* preflight.c: whether everything that a drop needs is there, for admins. */
#include "claim/preflight.h"

#include "http/call.h"
#include "http/handlers.h"

struct preflight_call {
    struct call call;
    int64_t policy_id;
};

static void render(struct buffer *out, const struct preflight *preflight)
{
    buffer_append_literal(out, "{\"ready\":");
    buffer_append_text(out, preflight_is_ready(preflight) ? "true" : "false");
    json_put_time(out, "now", preflight->now_ms);
    buffer_append_literal(out, ",\"checks\":[");
    for (size_t index = 0; index < preflight->count; index++) {
        const struct preflight_check *check = &preflight->checks[index];
        buffer_append_text(out, index > 0 ? ",{\"name\":\"" : "{\"name\":\"");
        buffer_append_text(out, check->name);
        buffer_append_literal(out, "\",\"state\":\"");
        buffer_append_text(out, preflight_state_name(check->state));
        buffer_append_literal(out, "\"");
        json_put(out, "words", check->words);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]}");
}

static void work_preflight(struct call *call, struct service *service)
{
    struct preflight_call *self = (struct preflight_call *)(void *)call;
    struct preflight preflight;
    struct error error = {.text = ""};
    enum status status = service_preflight(service, self->policy_id, &preflight, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_POLICY_NOT_FOUND);
        return;
    }
    render(call_json(call, 200), &preflight);
}

void preflight_show(struct ask *ask)
{
    int64_t policy_id;
    if (!ask_admin(ask) || !ask_policy_id(ask, 0, &policy_id) || !ask_no_query(ask)) {
        return;
    }
    struct preflight_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_preflight);
    if (self != NULL) {
        self->policy_id = policy_id;
        call_submit_or_refuse(&self->call);
    }
}
