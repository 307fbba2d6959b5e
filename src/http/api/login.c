/* login.c: the session of a browser: begun with the admin token, shown, ended. */
#include <sodium.h>
#include <stdio.h>
#include <strings.h>

#include "base/log.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"
#include "http/server/header.h"

#define TOKEN_TEXT_MAX 4096

/* A page of another origin has no business with this server's sessions. */
static bool comes_from_elsewhere(const struct http_request *request)
{
    return (request->origin.bytes != NULL || request->sec_fetch_site.bytes != NULL) &&
           !header_is_own_page(request->sec_fetch_site, request->origin, request->host);
}

static bool refuse_elsewhere(struct ask *ask)
{
    if (!comes_from_elsewhere(ask->request))
        return false;
    reply_problem_about(ask->loop, ask->exchange, PROBLEM_UNAUTHORIZED,
                        "A page of another origin cannot log in or out here.", NULL);
    return true;
}

/* The cookie goes to this server only, is out of scripts' reach, and stays on TLS when the page
 * came over it. */
static void set_cookie(struct ask *ask, const char *value, int max_age_s)
{
    char text[SESSION_VALUE_SIZE + 128];
    struct span origin = ask->request->origin;
    bool secure = origin.length > 8 && strncasecmp(origin.bytes, "https://", 8) == 0;
    snprintf(text, sizeof(text), "%s=%s; HttpOnly; SameSite=Strict; Path=/; Max-Age=%d%s",
             secure ? SESSION_COOKIE_TLS : SESSION_COOKIE, value, max_age_s,
             secure ? "; Secure" : "");
    http_answer_header(ask->exchange, SPAN("Set-Cookie"), span_of(text));
    sodium_memzero(text, sizeof(text));
}

static void log_login(struct ask *ask)
{
    char address[ADDRESS_TEXT_SIZE];
    struct address client = ask_address(ask);
    address_format(&client, address);
    log_event(LOG_INFO, "login", LOG_FIELD("request_id", LOG_SPAN(reply_request_id(ask->exchange))),
              LOG_FIELD("address", LOG_TEXT(address)));
}

static const struct auth_admin *check_token(struct ask *ask, struct span token)
{
    const struct auth_admin *admin = auth_find_admin(api_auth(ask->loop->api), token);
    if (admin != NULL)
        return admin;
    if (guess_was_wrong(ask, GUESS_TOKEN)) {
        reply_problem_about(ask->loop, ask->exchange, PROBLEM_UNAUTHORIZED,
                            "This is not the admin token.", "token");
    }
    return NULL;
}

void login_create(struct ask *ask)
{
    struct span token = {NULL, 0};
    const struct json_field fields[] = {
        {"token", JSON_TEXT, JSON_REQUIRED, 1, TOKEN_TEXT_MAX, &token, NULL, NULL, 0},
    };
    if (refuse_elsewhere(ask) || !ask_body(ask, ASK_BODY_REQUIRED, fields, 1))
        return;
    const struct auth *auth = api_auth(ask->loop->api);
    if (!auth->has_admin_token) {
        reply_problem_about(ask->loop, ask->exchange, PROBLEM_CONFLICT,
                            "This server has no admin token: no login is needed.", NULL);
        return;
    }
    const struct auth_admin *admin = check_token(ask, token);
    if (admin != NULL) {
        char value[SESSION_VALUE_SIZE];
        int64_t now_s = http_loop_wall_ms(ask->loop->http) / 1000;
        session_write(&admin->session_key, now_s + SESSION_LIFE_S, value);
        log_login(ask);
        reply_begin(ask->loop, ask->exchange, 204, (struct span){NULL, 0});
        set_cookie(ask, value, SESSION_LIFE_S);
        http_answer_end(ask->exchange, (struct span){NULL, 0});
    }
}

void login_show(struct ask *ask)
{
    const struct auth *auth = api_auth(ask->loop->api);
    bool admin = auth_may_administer(auth, &ask->caller, ACCESS_VIEWER) == NULL;
    enum access_role role = auth->has_admin_token ? ask->caller.role : ACCESS_ADMIN;
    struct buffer *body = &ask->loop->body;
    buffer_clear(body);
    json_begin(body, '{');
    json_put_flag(body, "admin", admin);
    json_put(body, "role", role != ACCESS_NOTHING ? access_role_name(role) : "none");
    json_put(body, "login", auth->has_admin_token ? "token" : "none");
    json_put_flag(body, "user_tokens", auth->has_user_key);
    json_put(body, "claims",
             auth->has_user_key      ? "token"
             : auth->claims_are_open ? "open"
                                     : "service");
    json_name(body, "\"shop\":", strlen("\"shop\":"));
    buffer_append_span(body, buffer_span(&ask->loop->api->shop.json));
    buffer_append_literal(body, "}");
    reply_json(ask->loop, ask->exchange, 200, (struct span){body->bytes, body->length});
}

void login_end(struct ask *ask)
{
    if (refuse_elsewhere(ask))
        return;
    reply_begin(ask->loop, ask->exchange, 204, (struct span){NULL, 0});
    set_cookie(ask, "", 0);
    http_answer_end(ask->exchange, (struct span){NULL, 0});
}
