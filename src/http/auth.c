/* auth.c: tokens compared in constant time, and the rules of who may what. */
#include "http/auth.h"

#include <sodium.h>

#include "base/random.h"
#include "http/header.h"

/* Equal-length digests under a random key: comparing them tells nothing about the secret, not
 * even its length. */
static void digest(const struct auth *auth, struct span secret, uint8_t result[AUTH_DIGEST_SIZE])
{
    crypto_generichash(result, AUTH_DIGEST_SIZE, (const unsigned char *)secret.bytes, secret.length,
                       auth->digest_key, sizeof auth->digest_key);
}

void auth_init(struct auth *auth, const struct auth_options *options)
{
    memset(auth, 0, sizeof *auth);
    random_bytes(auth->digest_key, sizeof auth->digest_key);
    auth->has_admin_token = options->admin_token.bytes != NULL;
    auth->has_service_token = options->service_token.bytes != NULL;
    auth->has_user_key = options->user_key.bytes != NULL;
    auth->local_only = !auth->has_admin_token && !options->only_watched;
    auth->has_tokens = auth->has_admin_token || auth->has_service_token || auth->has_user_key;
    auth->claims_are_open = !auth->has_tokens || (options->claims_open && !auth->has_user_key);
    if (auth->has_admin_token) {
        digest(auth, options->admin_token, auth->admin_digest);
        session_key_derive(&auth->session_key, options->admin_token);
    }
    if (auth->has_service_token) {
        digest(auth, options->service_token, auth->service_digest);
    }
    if (auth->has_user_key) {
        token_verifier_init(&auth->verifier, options->user_key, options->user_audience);
    }
}

void auth_release(struct auth *auth)
{
    token_verifier_release(&auth->verifier);
    sodium_memzero(auth, sizeof *auth);
}

void auth_identify(const struct auth *auth, struct span authorization, int64_t now_ms,
                   struct caller *caller)
{
    caller->kind = CALLER_NOBODY;
    caller->user.length = 0;
    caller->words = NULL;
    caller->token = "none";
    caller->is_guess = false;
    struct span token;
    if (authorization.bytes == NULL) {
        return;
    }
    if (!header_bearer(authorization, &token)) {
        caller->kind = CALLER_WRONG;
        caller->words = "The Authorization header must say Bearer and a token.";
        return;
    }
    uint8_t given[AUTH_DIGEST_SIZE];
    digest(auth, token, given);
    if (auth->has_admin_token && sodium_memcmp(given, auth->admin_digest, sizeof given) == 0) {
        caller->kind = CALLER_ADMIN;
        caller->token = "admin_token";
        return;
    }
    if (auth->has_service_token && sodium_memcmp(given, auth->service_digest, sizeof given) == 0) {
        caller->kind = CALLER_SERVICE;
        caller->token = "service_token";
        return;
    }
    caller->kind = CALLER_WRONG;
    caller->words = "This token is not known here.";
    caller->is_guess = auth->has_tokens;
    if (auth->has_user_key) {
        enum token_verdict verdict = token_verify(&auth->verifier, token, now_ms, &caller->user);
        if (verdict == TOKEN_VALID) {
            caller->kind = CALLER_USER;
            caller->token = "user_token";
        }
        /* What we have signed is no guess, though it may be late. */
        caller->is_guess = verdict == TOKEN_MALFORMED || verdict == TOKEN_WRONG_SIGNATURE ||
                           verdict == TOKEN_WRONG_ALGORITHM;
        caller->words = token_verdict_words(verdict);
    }
}

bool auth_is_admin_token(const struct auth *auth, struct span token)
{
    uint8_t given[AUTH_DIGEST_SIZE];
    digest(auth, token, given);
    return auth->has_admin_token && sodium_memcmp(given, auth->admin_digest, sizeof given) == 0;
}

/* Another page can make a browser send any request, also with the cookie where SameSite is not
 * understood or that page is another port of the same host. It can change nothing that way. What
 * it makes the browser read it does not get to see, but there is no reason to fetch it either. */
static bool cookie_counts(const struct http_request *request)
{
    if (header_is_own_page(request->sec_fetch_site, request->origin, request->host)) {
        return true;
    }
    bool reads = request->method == HTTP_METHOD_GET || request->method == HTTP_METHOD_HEAD;
    bool by_hand =
        request->sec_fetch_site.bytes == NULL || span_equal(request->sec_fetch_site, SPAN("none"));
    return reads && by_hand && request->origin.bytes == NULL;
}

void auth_identify_request(const struct auth *auth, const struct http_request *request,
                           int64_t now_ms, struct caller *caller)
{
    auth_identify(auth, request->authorization, now_ms, caller);
    if (caller->kind != CALLER_NOBODY || request->cookie.bytes == NULL || !auth->has_admin_token) {
        return;
    }
    switch (session_check(&auth->session_key, request->cookie, now_ms)) {
    case SESSION_ABSENT:
        return;
    case SESSION_VALID:
        if (cookie_counts(request)) {
            caller->kind = CALLER_ADMIN;
            caller->token = "session";
            return;
        }
        caller->words = "With the session's cookie, only this server's own pages may do this.";
        break;
    case SESSION_EXPIRED:
        caller->words = "The session has ended: log in again.";
        break;
    case SESSION_WRONG:
        caller->words = "This session is not of this server's admin token: log in again.";
        break;
    }
    caller->kind = CALLER_WRONG;
}

/* What to say to someone whose token, if any, does not do. */
static const char *refuse(const struct caller *caller, const char *words)
{
    return caller->kind == CALLER_WRONG ? caller->words : words;
}

const char *auth_may_ask(const struct auth *auth, const struct http_request *request)
{
    if (!auth->local_only) {
        return NULL;
    }
    if (request->is_forwarded) {
        return "A proxy has forwarded this request, and without an admin token only this machine "
               "itself is served: set admin_token_file (or the variable DIBS_ADMIN_TOKEN).";
    }
    /* A page that makes its own name resolve to 127.0.0.1 still sends that name. */
    return header_host_is_loopback(request->host)
               ? NULL
               : "Without an admin token only requests to localhost, 127.0.0.1 or [::1] by that "
                 "name are served: set admin_token_file (or the variable DIBS_ADMIN_TOKEN).";
}

const char *auth_may_administer(const struct auth *auth, const struct caller *caller)
{
    return !auth->has_admin_token || caller->kind == CALLER_ADMIN
               ? NULL
               : refuse(caller, "This call needs the admin token.");
}

const char *auth_may_claim(const struct auth *auth, const struct caller *caller,
                           const struct user_id *user)
{
    if (auth->has_user_key) {
        if (caller->kind != CALLER_USER) {
            return refuse(caller, "A claim needs the user's token.");
        }
        return user_id_equal(&caller->user, user) ? NULL : "The token is another user's.";
    }
    if (!auth->has_tokens || caller->kind == CALLER_SERVICE || caller->kind == CALLER_ADMIN ||
        (auth->claims_are_open && caller->kind == CALLER_NOBODY)) {
        return NULL;
    }
    return refuse(caller, "A claim needs the service token.");
}

bool auth_may_see_held_code(const struct auth *auth, const struct caller *caller)
{
    return !auth->has_tokens || caller->kind != CALLER_NOBODY;
}

const char *auth_may_see(const struct auth *auth, const struct caller *caller,
                         const struct user_id *user)
{
    if (caller->kind == CALLER_ADMIN || caller->kind == CALLER_SERVICE) {
        return NULL;
    }
    if (caller->kind == CALLER_USER) {
        return user_id_equal(&caller->user, user) ? NULL : "The token is another user's.";
    }
    if (!auth->has_tokens) {
        return NULL;
    }
    return refuse(caller, "This needs the user's own token, the service token or the admin token.");
}

const char *auth_may_change_from(const struct auth *auth, struct span origin, struct span host)
{
    if (origin.bytes == NULL || auth->has_admin_token) {
        return NULL;
    }
    return header_origin_is_host(origin, host)
               ? NULL
               : "A page of another origin may not change anything here; set cors_origin to let "
                 "it.";
}
