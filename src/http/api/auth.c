/* auth.c: tokens and sessions, compared in constant time, and the rules of who may what. */
#include "http/api/auth.h"

#include <inttypes.h>
#include <stdio.h>
#include <yyjson.h>

#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "http/server/header.h"

/* --- users' tokens: HS256 over two base64url parts, and the few fields inside that count --- */

#define SIGNATURE_SIZE crypto_auth_hmacsha256_BYTES

/* base64url makes 3 bytes of 4 characters. */
#define PART_SIZE (TOKEN_LENGTH_MAX / 4 * 3)
/* What yyjson may need for a document of PART_SIZE bytes; checked when a verifier is made. */
#define POOL_SIZE (48 * 1024)

/* The fields of the payload that count. */
struct token_claims {
    yyjson_val *sub;
    yyjson_val *exp;
    yyjson_val *nbf;
    yyjson_val *aud;
};

void token_verifier_init(struct token_verifier *verifier, struct span key, struct span audience)
{
    ensure(key.length >= TOKEN_KEY_MIN);
    ensure(yyjson_read_max_memory_usage(PART_SIZE, YYJSON_READ_NOFLAG) <= POOL_SIZE - 1024);
    crypto_auth_hmacsha256_init(&verifier->keyed, (const unsigned char *)key.bytes, key.length);
    verifier->audience = audience;
}

void token_verifier_release(struct token_verifier *verifier)
{
    sodium_memzero(&verifier->keyed, sizeof(verifier->keyed));
}

/* Strict: no padding, no other alphabet, no bits left over. */
static bool decode_part(struct span text, char *bytes, size_t size, size_t *length)
{
    return sodium_base642bin((unsigned char *)bytes, size, text.bytes, text.length, NULL, length,
                             NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0;
}

/* Cuts "header.payload.signature"; false unless there are exactly two dots. */
static bool split_token(struct span token, struct span *header, struct span *payload,
                        struct span *signature)
{
    const char *end = token.bytes + token.length;
    const char *first = memchr(token.bytes, '.', token.length);
    if (first == NULL)
        return false;
    const char *second = memchr(first + 1, '.', (size_t)(end - first - 1));
    if (second == NULL || memchr(second + 1, '.', (size_t)(end - second - 1)) != NULL)
        return false;
    *header = (struct span){token.bytes, (size_t)(first - token.bytes)};
    *payload = (struct span){first + 1, (size_t)(second - first - 1)};
    *signature = (struct span){second + 1, (size_t)(end - second - 1)};
    return true;
}

static bool signature_right(const struct token_verifier *verifier, struct span signed_part,
                            struct span signature)
{
    char given[SIGNATURE_SIZE];
    size_t given_length;
    if (!decode_part(signature, given, sizeof(given), &given_length) ||
        given_length != SIGNATURE_SIZE)
        return false;
    crypto_auth_hmacsha256_state state = verifier->keyed;
    unsigned char right[SIGNATURE_SIZE];
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)signed_part.bytes,
                                  signed_part.length);
    crypto_auth_hmacsha256_final(&state, right);
    bool same = sodium_memcmp(given, right, SIGNATURE_SIZE) == 0;
    sodium_memzero(&state, sizeof(state));
    sodium_memzero(right, sizeof(right));
    return same;
}

/* Decodes one part into a JSON object inside `pool`; NULL when it is none. */
static yyjson_val *read_part(struct span part, char *pool)
{
    char text[PART_SIZE];
    size_t length;
    yyjson_alc allocator;
    if (!decode_part(part, text, sizeof(text), &length) ||
        !yyjson_alc_pool_init(&allocator, pool, POOL_SIZE))
        return NULL;
    yyjson_doc *document = yyjson_read_opts(text, length, YYJSON_READ_NOFLAG, &allocator, NULL);
    yyjson_val *root = yyjson_doc_get_root(document);
    return yyjson_is_obj(root) ? root : NULL;
}

/* Which of two equal keys would count is a matter of the reader, so neither does. */
static bool take_once(yyjson_val **place, yyjson_val *value)
{
    if (*place != NULL)
        return false;
    *place = value;
    return true;
}

static enum token_verdict check_header(struct span part)
{
    char pool[POOL_SIZE];
    yyjson_val *root = read_part(part, pool);
    if (root == NULL)
        return TOKEN_MALFORMED;
    yyjson_val *algorithm = NULL;
    yyjson_obj_iter members = yyjson_obj_iter_with(root);
    for (yyjson_val *key; (key = yyjson_obj_iter_next(&members)) != NULL;) {
        if (yyjson_equals_str(key, "alg") && !take_once(&algorithm, yyjson_obj_iter_get_val(key)))
            return TOKEN_MALFORMED;
        /* "crit" lists extensions that must be understood; none are. */
        if (yyjson_equals_str(key, "crit"))
            return TOKEN_MALFORMED;
    }
    return yyjson_equals_str(algorithm, "HS256") ? TOKEN_VALID : TOKEN_WRONG_ALGORITHM;
}

static bool gather_claims(yyjson_val *root, struct token_claims *claims)
{
    yyjson_obj_iter members = yyjson_obj_iter_with(root);
    for (yyjson_val *key; (key = yyjson_obj_iter_next(&members)) != NULL;) {
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        yyjson_val **place = yyjson_equals_str(key, "sub")   ? &claims->sub
                             : yyjson_equals_str(key, "exp") ? &claims->exp
                             : yyjson_equals_str(key, "nbf") ? &claims->nbf
                             : yyjson_equals_str(key, "aud") ? &claims->aud
                                                             : NULL;
        if (place != NULL && !take_once(place, value))
            return false;
    }
    return true;
}

static bool audience_matches(yyjson_val *aud, struct span wanted)
{
    if (yyjson_is_str(aud))
        return yyjson_equals_strn(aud, wanted.bytes, wanted.length);
    yyjson_arr_iter items = yyjson_arr_iter_with(aud);
    for (yyjson_val *item; (item = yyjson_arr_iter_next(&items)) != NULL;)
        if (yyjson_equals_strn(item, wanted.bytes, wanted.length))
            return true;
    return false;
}

static enum token_verdict check_claims(const struct token_verifier *verifier, struct span part,
                                       int64_t now_ms, struct id *user)
{
    char pool[POOL_SIZE];
    struct token_claims claims = {0};
    yyjson_val *root = read_part(part, pool);
    if (root == NULL || !gather_claims(root, &claims) || !yyjson_is_num(claims.exp) ||
        (claims.nbf != NULL && !yyjson_is_num(claims.nbf)))
        return TOKEN_MALFORMED;
    double now_s = (double)now_ms / 1000.0;
    if (now_s >= yyjson_get_num(claims.exp) + TOKEN_SKEW_S)
        return TOKEN_EXPIRED;
    if (claims.nbf != NULL && now_s + TOKEN_SKEW_S < yyjson_get_num(claims.nbf))
        return TOKEN_TOO_EARLY;
    if (verifier->audience.length > 0 && !audience_matches(claims.aud, verifier->audience))
        return TOKEN_WRONG_AUDIENCE;
    struct span sub = {yyjson_get_str(claims.sub), yyjson_get_len(claims.sub)};
    if (!yyjson_is_str(claims.sub) || !json_id_valid(sub))
        return TOKEN_WRONG_SUBJECT;
    *user = id_of(sub);
    return TOKEN_VALID;
}

enum token_verdict token_verify(const struct token_verifier *verifier, struct span token,
                                int64_t now_ms, struct id *user)
{
    struct span header;
    struct span payload;
    struct span signature;
    if (token.length > TOKEN_LENGTH_MAX || !split_token(token, &header, &payload, &signature))
        return TOKEN_MALFORMED;
    struct span signed_part = {token.bytes, header.length + 1 + payload.length};
    if (!signature_right(verifier, signed_part, signature))
        return TOKEN_WRONG_SIGNATURE;
    enum token_verdict verdict = check_header(header);
    return verdict == TOKEN_VALID ? check_claims(verifier, payload, now_ms, user) : verdict;
}

const char *token_verdict_text(enum token_verdict verdict)
{
    static const char *const words[] = {
        [TOKEN_VALID] = "The token is valid.",
        [TOKEN_MALFORMED] = "The token cannot be read.",
        [TOKEN_WRONG_SIGNATURE] = "The token is not one of ours.",
        [TOKEN_WRONG_ALGORITHM] = "The token must be signed with HS256.",
        [TOKEN_EXPIRED] = "The token has expired.",
        [TOKEN_TOO_EARLY] = "The token is not valid yet.",
        [TOKEN_WRONG_AUDIENCE] = "The token is for another audience.",
        [TOKEN_WRONG_SUBJECT] = "The token's sub is not a user id.",
    };
    return words[verdict];
}

/* --- sessions --- */

#define MAC_LENGTH (2 * (size_t)SESSION_KEY_SIZE)

void session_key_derive(struct session_key *key, struct span admin_token)
{
    static const unsigned char purpose[] = "dibs session cookie, version 1";
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, (const unsigned char *)admin_token.bytes,
                                admin_token.length);
    crypto_auth_hmacsha256_update(&state, purpose, sizeof(purpose) - 1);
    crypto_auth_hmacsha256_final(&state, key->bytes);
    sodium_memzero(&state, sizeof(state));
}

void session_write(const struct session_key *key, int64_t expires_s, char value[SESSION_VALUE_SIZE])
{
    uint8_t mac[SESSION_KEY_SIZE];
    int length = snprintf(value, SESSION_EXPIRY_SIZE + 2, "%" PRId64 ".", expires_s);
    ensure(expires_s >= 0 && length <= SESSION_EXPIRY_SIZE + 1);
    crypto_auth_hmacsha256(mac, (const unsigned char *)value, (size_t)length, key->bytes);
    sodium_bin2hex(value + length, MAC_LENGTH + 1, mac, sizeof(mac));
}

/* The digits before the dot, which has to be where the MAC leaves room for it. */
static bool read_expiry(struct span value, int64_t *expires_s)
{
    size_t digits = value.length - MAC_LENGTH - 1;
    if (value.length < MAC_LENGTH + 2 || digits > SESSION_EXPIRY_SIZE || value.bytes[digits] != '.')
        return false;
    *expires_s = 0;
    for (size_t at = 0; at < digits; at++) {
        if (value.bytes[at] < '0' || value.bytes[at] > '9')
            return false;
        *expires_s = *expires_s * 10 + (value.bytes[at] - '0');
    }
    return true;
}

static enum session_verdict check_value(const struct session_key *key, struct span value,
                                        int64_t now_ms)
{
    char right[SESSION_VALUE_SIZE];
    int64_t expires_s;
    if (!read_expiry(value, &expires_s))
        return SESSION_WRONG;
    session_write(key, expires_s, right);
    if (strlen(right) != value.length || sodium_memcmp(right, value.bytes, value.length) != 0)
        return SESSION_WRONG;
    return expires_s * 1000 > now_ms ? SESSION_VALID : SESSION_EXPIRED;
}

enum session_verdict session_check(const struct session_key *key, struct span cookie,
                                   int64_t now_ms)
{
    const struct span prefix = SPAN("__Host-");
    const struct span name = SPAN(SESSION_COOKIE "=");
    enum session_verdict found = SESSION_ABSENT;
    while (cookie.length > 0 && found != SESSION_VALID) {
        const char *end = memchr(cookie.bytes, ';', cookie.length);
        struct span pair = {cookie.bytes,
                            end != NULL ? (size_t)(end - cookie.bytes) : cookie.length};
        size_t used = pair.length + (end != NULL ? 1 : 0);
        cookie = (struct span){cookie.bytes + used, cookie.length - used};
        while (pair.length > 0 && pair.bytes[0] == ' ')
            pair = (struct span){pair.bytes + 1, pair.length - 1};
        if (pair.length > prefix.length && memcmp(pair.bytes, prefix.bytes, prefix.length) == 0)
            pair = (struct span){pair.bytes + prefix.length, pair.length - prefix.length};
        if (pair.length < name.length || memcmp(pair.bytes, name.bytes, name.length) != 0)
            continue;
        struct span value = {pair.bytes + name.length, pair.length - name.length};
        enum session_verdict verdict = check_value(key, value, now_ms);
        /* Of those that do not count, the one that once did tells more. */
        found = found == SESSION_EXPIRED && verdict == SESSION_WRONG ? found : verdict;
    }
    return found;
}

/* --- callers --- */

/* Equal-length digests under a random key: comparing them tells nothing about the secret, not
 * even its length. */
static void digest(const struct auth *auth, struct span secret, uint8_t result[AUTH_DIGEST_SIZE])
{
    crypto_generichash(result, AUTH_DIGEST_SIZE, (const unsigned char *)secret.bytes, secret.length,
                       auth->digest_key, sizeof(auth->digest_key));
}

static void add_admin(struct auth *auth, const char *name, enum access_role role, struct span token)
{
    struct auth_admin *admin = &auth->admins[auth->admin_count++];

    snprintf(admin->name, sizeof(admin->name), "%.*s", (int)sizeof(admin->name) - 1, name);
    admin->role = role;
    digest(auth, token, admin->digest);
    session_key_derive(&admin->session_key, token);
}

static void add_admins(struct auth *auth, const struct auth_options *options)
{
    struct named_token tokens[NAMED_TOKENS_MAX];
    size_t count = 0;

    if (options->admin_token.bytes != NULL)
        add_admin(auth, "admin_token", ACCESS_ADMIN, options->admin_token);
    if (options->admin_tokens.bytes != NULL)
        ensure(named_tokens_read(options->admin_tokens, tokens, &count, NULL) == STATUS_OK);
    for (size_t i = 0; i < count; i++)
        add_admin(auth, tokens[i].name, tokens[i].role, tokens[i].token);
    sodium_memzero(tokens, sizeof(tokens));
}

bool auth_is_alike(const struct auth *auth, const struct auth *other)
{
    return auth->has_admin_token == other->has_admin_token &&
           auth->has_service_token == other->has_service_token &&
           auth->has_user_key == other->has_user_key &&
           auth->claims_are_open == other->claims_are_open;
}

void auth_init(struct auth *auth, const struct auth_options *options)
{
    memset(auth, 0, sizeof(*auth));
    random_bytes(auth->digest_key, sizeof(auth->digest_key));
    add_admins(auth, options);
    auth->has_admin_token = auth->admin_count > 0;
    auth->has_service_token = options->service_token.bytes != NULL;
    auth->has_user_key = options->user_key.bytes != NULL;
    auth->local_only = !auth->has_admin_token && !options->only_watched;
    auth->has_tokens = auth->has_admin_token || auth->has_service_token || auth->has_user_key;
    auth->claims_are_open = !auth->has_tokens || (options->claims_open && !auth->has_user_key);
    if (auth->has_service_token)
        digest(auth, options->service_token, auth->service_digest);
    if (auth->has_user_key)
        token_verifier_init(&auth->verifier, options->user_key, options->user_audience);
}

void auth_release(struct auth *auth)
{
    token_verifier_release(&auth->verifier);
    sodium_memzero(auth, sizeof(*auth));
}

static const struct auth_admin *find_admin(const struct auth *auth,
                                           const uint8_t given[AUTH_DIGEST_SIZE])
{
    for (size_t i = 0; i < auth->admin_count; i++)
        if (sodium_memcmp(given, auth->admins[i].digest, AUTH_DIGEST_SIZE) == 0)
            return &auth->admins[i];
    return NULL;
}

void auth_identify(const struct auth *auth, struct span authorization, int64_t now_ms,
                   struct caller *caller)
{
    caller->kind = CALLER_NOBODY;
    caller->user.length = 0;
    caller->role = ACCESS_NOTHING;
    caller->words = NULL;
    caller->token = "none";
    caller->is_guess = false;
    struct span token;
    if (authorization.bytes == NULL)
        return;
    if (!header_bearer(authorization, &token)) {
        caller->kind = CALLER_WRONG;
        caller->words = "The Authorization header must say Bearer and a token.";
        return;
    }
    uint8_t given[AUTH_DIGEST_SIZE];
    digest(auth, token, given);
    const struct auth_admin *admin = find_admin(auth, given);
    if (admin != NULL) {
        caller->kind = CALLER_ADMIN;
        caller->role = admin->role;
        caller->token = admin->name;
        return;
    }
    if (auth->has_service_token && sodium_memcmp(given, auth->service_digest, sizeof(given)) == 0) {
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
        caller->words = token_verdict_text(verdict);
    }
}

const struct auth_admin *auth_find_admin(const struct auth *auth, struct span token)
{
    uint8_t given[AUTH_DIGEST_SIZE];
    digest(auth, token, given);
    return find_admin(auth, given);
}

/* Another page can make a browser send any request, also with the cookie where SameSite is not
 * understood or that page is another port of the same host. It can change nothing that way. What
 * it makes the browser read it does not get to see, but there is no reason to fetch it either. */
static bool cookie_counts(const struct http_request *request)
{
    if (header_is_own_page(request->sec_fetch_site, request->origin, request->host))
        return true;
    bool reads = request->method == HTTP_METHOD_GET || request->method == HTTP_METHOD_HEAD;
    bool by_hand =
        request->sec_fetch_site.bytes == NULL || span_equal(request->sec_fetch_site, SPAN("none"));
    return reads && by_hand && request->origin.bytes == NULL;
}

/* Whose session it is. Of those that do not count, the one that once did tells more. */
static enum session_verdict find_session(const struct auth *auth, struct span cookie,
                                         int64_t now_ms, const struct auth_admin **admin)
{
    enum session_verdict found = SESSION_ABSENT;

    *admin = NULL;
    for (size_t i = 0; i < auth->admin_count && found != SESSION_VALID; i++) {
        enum session_verdict verdict = session_check(&auth->admins[i].session_key, cookie, now_ms);
        found = found == SESSION_EXPIRED && verdict == SESSION_WRONG ? found : verdict;
        *admin = &auth->admins[i];
    }
    return found;
}

void auth_identify_request(const struct auth *auth, const struct http_request *request,
                           int64_t now_ms, struct caller *caller)
{
    auth_identify(auth, request->authorization, now_ms, caller);
    if (caller->kind != CALLER_NOBODY || request->cookie.bytes == NULL || !auth->has_admin_token)
        return;
    const struct auth_admin *admin;
    switch (find_session(auth, request->cookie, now_ms, &admin)) {
    case SESSION_ABSENT:
        return;
    case SESSION_VALID:
        if (cookie_counts(request)) {
            caller->kind = CALLER_ADMIN;
            caller->role = admin->role;
            caller->token = admin->role == ACCESS_ADMIN && strcmp(admin->name, "admin_token") == 0
                                ? "session"
                                : admin->name;
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
    if (!auth->local_only)
        return NULL;
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

const char *auth_may_administer(const struct auth *auth, const struct caller *caller,
                                enum access_role role)
{
    if (!auth->has_admin_token || (caller->kind == CALLER_ADMIN && caller->role >= role))
        return NULL;
    if (caller->kind == CALLER_ADMIN)
        return role == ACCESS_ADMIN ? "This call needs an admin's token."
                                    : "This call needs an operator's token; yours may only look.";
    return refuse(caller, "This call needs the admin token.");
}

/* Who acts for users, as the shop's backend does. */
static bool acts_for_users(const struct caller *caller)
{
    return caller->kind == CALLER_SERVICE ||
           (caller->kind == CALLER_ADMIN && caller->role >= ACCESS_OPERATOR);
}

const char *auth_may_claim(const struct auth *auth, const struct caller *caller,
                           const struct id *user)
{
    if (auth->has_user_key) {
        if (caller->kind != CALLER_USER)
            return refuse(caller, "A claim needs the user's token.");
        return id_equal(&caller->user, user) ? NULL : "The token is another user's.";
    }
    if (!auth->has_tokens || acts_for_users(caller) ||
        (auth->claims_are_open && caller->kind == CALLER_NOBODY))
        return NULL;
    return refuse(caller, "A claim needs the service token.");
}

bool auth_may_see_held_code(const struct auth *auth, const struct caller *caller)
{
    return !auth->has_tokens || caller->kind != CALLER_NOBODY;
}

const char *auth_may_see(const struct auth *auth, const struct caller *caller,
                         const struct id *user)
{
    if (acts_for_users(caller))
        return NULL;
    if (caller->kind == CALLER_USER)
        return id_equal(&caller->user, user) ? NULL : "The token is another user's.";
    if (!auth->has_tokens)
        return NULL;
    return refuse(caller, "This needs the user's own token, the service token or the admin token.");
}

const char *auth_may_change_from(const struct auth *auth, struct span origin, struct span host)
{
    if (origin.bytes == NULL || auth->has_admin_token)
        return NULL;
    return header_origin_is_host(origin, host)
               ? NULL
               : "A page of another origin may not change anything here; set cors_origin to let "
                 "it.";
}
