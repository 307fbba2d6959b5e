/* ask.c: the checks that handlers share. */
#include "http/ask.h"

#include "http/guess.h"
#include "http/header.h"
#include "http/reply.h"

void ask_refuse(struct ask *ask, const char *detail, const char *field)
{
    reply_problem_about(ask->loop, ask->exchange, PROBLEM_INVALID_REQUEST, detail, field);
}

bool ask_policy_id(struct ask *ask, size_t param, int64_t *policy_id)
{
    if (route_policy_id(ask->match.params[param], policy_id)) {
        return true;
    }
    ask_refuse(ask, "policy_id: must be an integer from 1 to 9007199254740991", "policy_id");
    return false;
}

bool ask_id(struct ask *ask, size_t param, const char *name, struct user_id *id)
{
    struct span text = ask->match.params[param];
    struct error error;
    if (json_id_valid(text)) {
        *id = user_id_of(text);
        return true;
    }
    error_set(&error, STATUS_INVALID, "%s: must be 1-64 of A-Z a-z 0-9 . _ : @ - and not . or ..",
              name);
    ask_refuse(ask, error.text, name);
    return false;
}

bool ask_user(struct ask *ask, size_t param, struct user_id *user)
{
    return ask_id(ask, param, "user", user);
}

struct address ask_address(const struct ask *ask)
{
    return proxies_client(&ask->loop->api->proxies, address_of(http_exchange_peer(ask->exchange)),
                          ask->request);
}

/* Where there are no tokens, there are no strangers: only this machine is served. */
static enum clerk_queue queue_of(const struct auth *auth, const struct caller *caller)
{
    switch (caller->kind) {
    case CALLER_ADMIN:
        return CLERK_ADMINS;
    case CALLER_SERVICE:
    case CALLER_USER:
        return CLERK_KNOWN;
    case CALLER_NOBODY:
    case CALLER_WRONG:
        break;
    }
    return auth->has_tokens ? CLERK_STRANGERS : CLERK_KNOWN;
}

static void identify(struct ask *ask)
{
    auth_identify_request(&ask->loop->api->auth, ask->request, http_loop_wall_ms(ask->loop->http),
                          &ask->caller);
    struct http_exchange_notes *notes = http_exchange_notes(ask->exchange);
    notes->token = ask->caller.token;
    notes->client = ask_address(ask);
    notes->queue = queue_of(&ask->loop->api->auth, &ask->caller);
    notes->acts_for_many = ask->caller.kind == CALLER_ADMIN || ask->caller.kind == CALLER_SERVICE ||
                           !ask->loop->api->auth.has_tokens;
}

bool ask_identify(struct ask *ask)
{
    identify(ask);
    return !ask->caller.is_guess || guess_was_wrong(ask, GUESS_TOKEN);
}

bool ask_is_admin(struct ask *ask)
{
    identify(ask);
    if (ask->caller.is_guess) {
        guess_note_wrong(ask, GUESS_TOKEN);
    }
    return auth_may_administer(&ask->loop->api->auth, &ask->caller) == NULL;
}

static bool allow(struct ask *ask, const char *refusal)
{
    if (refusal == NULL) {
        return true;
    }
    reply_problem_about(ask->loop, ask->exchange, PROBLEM_UNAUTHORIZED, refusal, NULL);
    return false;
}

bool ask_admin(struct ask *ask)
{
    if (!ask_identify(ask) ||
        !allow(ask, auth_may_administer(&ask->loop->api->auth, &ask->caller))) {
        return false;
    }
    http_exchange_notes(ask->exchange)->queue = CLERK_ADMINS;
    return true;
}

bool ask_may_see(struct ask *ask, const struct user_id *user)
{
    return ask_identify(ask) && allow(ask, auth_may_see(&ask->loop->api->auth, &ask->caller, user));
}

bool ask_query(struct ask *ask, struct query_param *params, size_t count)
{
    char field[QUERY_NAME_SIZE];
    struct error error;
    if (query_read(ask->request->query, params, count, field, &error) == STATUS_OK) {
        return true;
    }
    ask_refuse(ask, error.text, field);
    return false;
}

bool ask_no_query(struct ask *ask)
{
    return ask->request->query.length == 0 || ask_query(ask, NULL, 0);
}

bool ask_page(struct ask *ask, char cursor_kind, struct page *page)
{
    return ask_page_with(ask, cursor_kind, page, NULL);
}

bool ask_page_with(struct ask *ask, char cursor_kind, struct page *page, struct query_param *extra)
{
    struct query_param params[3] = {{.name = "limit"}, {.name = "after"}};
    struct error error;
    int64_t limit;
    *page = (struct page){0};
    if (extra != NULL) {
        params[2] = *extra;
    }
    if (!ask_query(ask, params, extra != NULL ? 3 : 2)) {
        return false;
    }
    if (extra != NULL) {
        *extra = params[2];
    }
    if (query_integer(&params[0], 1, PAGE_LIMIT_MAX, PAGE_LIMIT_DEFAULT, &limit, &error) !=
        STATUS_OK) {
        ask_refuse(ask, error.text, params[0].name);
        return false;
    }
    page->limit = (size_t)limit;
    http_exchange_expect(ask->exchange, page->limit * PAGE_ITEM_BYTES);
    struct span cursor = {params[1].value, params[1].length};
    if (params[1].present &&
        !cursor_read(cursor, cursor_kind, &page->after_first, &page->after_second)) {
        ask_refuse(ask, "after: must be the next of the page before", params[1].name);
        return false;
    }
    return true;
}

bool ask_body(struct ask *ask, enum ask_body presence, const struct json_field *fields,
              size_t field_count)
{
    const struct http_request *request = ask->request;
    if (presence == ASK_BODY_OPTIONAL && request->body.length == 0) {
        return true;
    }
    if (!header_is_json(request->content_type)) {
        reply_problem(ask->loop, ask->exchange, PROBLEM_UNSUPPORTED_MEDIA_TYPE);
        return false;
    }
    /* An empty body is not an object, even where every field is optional. */
    if (request->body.length == 0) {
        ask_refuse(ask, "The body must be a JSON object.", NULL);
        return false;
    }
    char field[QUERY_NAME_SIZE];
    struct error error;
    if (json_read_object(ask->loop->reader, request->body, fields, field_count, field, &error) ==
        STATUS_OK) {
        return true;
    }
    ask_refuse(ask, error.text, field);
    return false;
}
