/* actions.c: what operators did: noted behind each change, and listed for those who may look. */
#include "http/api/call.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/api/handlers.h"
#include "ledger/actions.h"

#define CURSOR_KIND 'a'

struct actions_call {
    struct call call;
    char target[ACTION_TARGET_SIZE];
};

/* --- noting --- */

/* What is too long to be kept whole is left out: half of it would be no JSON. */
static void keep_state(char text[ACTION_STATE_SIZE], const struct buffer *state)
{
    bool fits = state != NULL && !state->overflowed && state->length < ACTION_STATE_SIZE;

    snprintf(text, ACTION_STATE_SIZE, "%.*s", fits ? (int)state->length : 0,
             fits ? state->bytes : "");
}

void action_note(const struct call *call, struct service *service, const char *what,
                 const char *target, const struct buffer *was, const struct buffer *became)
{
    struct ledger_action action = {.at_ms = clock_wall_ms()};
    struct error error = {""};

    snprintf(action.who, sizeof(action.who), "%s",
             strcmp(call->token, "none") == 0 ? "this machine" : call->token);
    snprintf(action.what, sizeof(action.what), "%s", what);
    snprintf(action.target, sizeof(action.target), "%s", target);
    keep_state(action.was, was);
    keep_state(action.became, became);
    if (ledger_action_add(service_ledger(service), &action, &error) != STATUS_OK)
        log_event(LOG_WARN, "action_not_kept", LOG_FIELD("what", LOG_TEXT(what)),
                  LOG_FIELD("target", LOG_TEXT(target)), LOG_FIELD("error", LOG_TEXT(error.text)));
}

void action_write_policy(struct buffer *out, const struct policy *policy)
{
    json_begin(out, '{');
    json_put(out, "name", policy->name);
    json_put(out, "discount_value", policy->discount_value);
    json_put(out, "total", policy->total);
    json_put(out, "per_user_limit", policy->per_user_limit);
    json_put(out, "reserve", policy->reserve);
    json_put_time(out, "opens_at", policy->opens_at_ms);
    json_put_time(out, "closes_at", policy->closes_at_ms);
    json_put_flag(out, "paused", policy->paused);
    json_put_time(out, "closed_at", policy->closed_at_ms);
    buffer_append_literal(out, "}");
}

/* --- listing --- */

static enum status read_list(const struct call *call, struct service *service, void *rows,
                             size_t max, size_t *count, struct error *error)
{
    const struct actions_call *self = (const struct actions_call *)(const void *)call;

    return ledger_actions(service_ledger(service), self->target, call->page.after_first, rows, max,
                          count, error);
}

static void put_state(struct buffer *out, const char *text)
{
    buffer_append_text(out, text[0] != '\0' ? text : "null");
}

static void render_row(struct buffer *out, const struct service *service, const void *row)
{
    const struct ledger_action *action = row;

    json_begin(out, '{');
    json_put(out, "id", action->id);
    json_put_time(out, "at", action->at_ms);
    json_put(out, "who", (const char *)action->who);
    json_put(out, "what", (const char *)action->what);
    json_put(out, "target", (const char *)action->target);
    buffer_append_literal(out, ",\"before\":");
    put_state(out, action->was);
    buffer_append_literal(out, ",\"after\":");
    put_state(out, action->became);
    buffer_append_literal(out, "}");
}

static void place_row(const void *row, int64_t *first, int64_t *second)
{
    *first = ((const struct ledger_action *)row)->id;
    *second = 0;
}

static void work_list(struct call *call, struct service *service)
{
    static const struct call_rows rows = {
        sizeof(struct ledger_action), CURSOR_KIND, read_list, render_row, place_row,
    };
    call_list(call, service, &rows);
}

void actions_list(struct ask *ask)
{
    struct query_param target = {.name = "target"};
    struct actions_call self = {.target = ""};

    if (!ask_page(ask, CURSOR_KIND, &target))
        return;
    self.call.page = ask->page;
    snprintf(self.target, sizeof(self.target), "%.*s", (int)target.length, target.value);
    call_start_copy(ask, work_list, &self.call, sizeof(self));
}
