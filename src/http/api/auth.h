/* auth.h: who is calling, and what they may do.
 *
 * Without an admin token the server listens on loopback only, and whoever is on this machine is an
 * admin. A proxy can send strangers on, and a browser can be tricked into asking, so a request that
 * was forwarded, or that names another host than this machine, is then refused altogether, and
 * nothing is changed for a page of another origin. With a user key, a claim is made by the user
 * whom a signed token names and by nobody else; without one a service token lets the shop's
 * backend act for its users. Once there is any token, claims need one, unless they are said to be
 * open.
 *
 * In a browser a session's cookie stands for the admin token. Browsers send it along whoever makes
 * them ask, so it counts only for requests that no other page can have made.
 *
 * Users' tokens are JWTs with HS256. The algorithm is fixed: a token that names another one is
 * refused, whatever its signature, which is checked, in constant time, before anything inside is
 * read. `sub` and `exp` must be there; `nbf` and `aud` are checked when they are there or wanted.
 *
 * A session's value is "EXPIRY.MAC": when it ends, in seconds since 1970, and a MAC of that under a
 * key that is derived from the admin token. Nothing is stored: every server with the same token
 * takes it, and a new token ends every session. The cookie does not tell the token.
 *
 * Every decision returns NULL for "may", or a sentence for the 401.
 *
 * Threads: written by init and release only; any thread may ask.
 */
#pragma once

#include <sodium.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/model.h"
#include "config/tokens.h"
#include "http/server/server.h"

/* --- users' tokens --- */

#define TOKEN_LENGTH_MAX 4096
#define TOKEN_SKEW_S     60
#define TOKEN_KEY_MIN    32

struct token_verifier {
    crypto_auth_hmacsha256_state keyed; /* the hash after the key went in: copied per token */
    struct span audience;               /* length 0: not checked */
};

enum token_verdict {
    TOKEN_VALID,
    TOKEN_MALFORMED,
    TOKEN_WRONG_SIGNATURE,
    TOKEN_WRONG_ALGORITHM,
    TOKEN_EXPIRED,
    TOKEN_TOO_EARLY,
    TOKEN_WRONG_AUDIENCE,
    TOKEN_WRONG_SUBJECT,
};

/* `key` is at least TOKEN_KEY_MIN bytes and not kept; `audience` is borrowed for the verifier's
 * life. */
void token_verifier_init(struct token_verifier *verifier, struct span key, struct span audience);
/* Wipes the key. */
void token_verifier_release(struct token_verifier *verifier);

/* TOKEN_VALID fills `user`; anything else leaves it alone. */
enum token_verdict token_verify(const struct token_verifier *verifier, struct span token,
                                int64_t now_ms, struct id *user);

/* A sentence for whoever sent it. */
const char *token_verdict_text(enum token_verdict verdict);

/* --- sessions --- */

#define SESSION_COOKIE "dibs_session"
/* Over TLS: browsers take a cookie of such a name only from this host itself, over TLS. */
#define SESSION_COOKIE_TLS  "__Host-" SESSION_COOKIE
#define SESSION_LIFE_S      43200
#define SESSION_KEY_SIZE    32
#define SESSION_EXPIRY_SIZE 12 /* digits at most: until the year 33658 */
/* Expiry, dot, MAC in hex, NUL. */
#define SESSION_VALUE_SIZE (SESSION_EXPIRY_SIZE + 1 + 2 * SESSION_KEY_SIZE + 1)

struct session_key {
    uint8_t bytes[SESSION_KEY_SIZE];
};

void session_key_derive(struct session_key *key, struct span admin_token);

/* The value of a cookie that is good until `expires_s`, which has at most 12 digits. */
void session_write(const struct session_key *key, int64_t expires_s,
                   char value[SESSION_VALUE_SIZE]);

enum session_verdict {
    SESSION_ABSENT, /* no cookie of that name */
    SESSION_VALID,
    SESSION_EXPIRED,
    SESSION_WRONG, /* no value of ours, or of another token */
};

/* Reads the Cookie header (bytes == NULL: none). When several cookies have either name, as those of
 * another path or of a parent domain may, a valid one among them counts. */
enum session_verdict session_check(const struct session_key *key, struct span cookie,
                                   int64_t now_ms);

/* --- callers --- */

#define AUTH_DIGEST_SIZE 32

enum caller_kind {
    CALLER_NOBODY, /* no token */
    CALLER_WRONG,  /* a token that is none of ours; `words` say why */
    CALLER_ADMIN,
    CALLER_SERVICE,
    CALLER_USER,
};

struct caller {
    enum caller_kind kind;
    struct id user; /* of CALLER_USER */
    const char *words;
    enum access_role role; /* of CALLER_ADMIN */
    const char *token; /* what it rests on, for logs: "admin_token", "session", a token's name */
    bool is_guess;     /* of CALLER_WRONG: one that was never a token of ours */
};

/* Secrets with bytes == NULL are not set. They are not kept. */
struct auth_options {
    struct span admin_token;
    struct span admin_tokens; /* as config/tokens.h has them, and right */
    struct span service_token;
    struct span user_key;
    struct span user_audience; /* borrowed for the life of the auth; empty: not checked */
    bool claims_open;          /* anyone may claim, although there are tokens */
    bool only_watched;         /* nothing but how it goes is shown: to strangers, too */
};

struct auth {
    bool local_only; /* see auth_may_ask() */
    bool has_admin_token;
    bool has_service_token;
    bool has_user_key;
    bool has_tokens;      /* any of them; else there is nothing to look at on a claim's way */
    bool claims_are_open; /* a claim needs no token */
    uint8_t digest_key[AUTH_DIGEST_SIZE];
    uint8_t service_digest[AUTH_DIGEST_SIZE];
    struct auth_admin {
        char name[NAMED_TOKEN_NAME_MAX + 1];
        enum access_role role;
        uint8_t digest[AUTH_DIGEST_SIZE];
        struct session_key session_key;
    } admins[NAMED_TOKENS_MAX + 1]; /* that of admin_token is called so */
    size_t admin_count;
    struct auth *older; /* of an API whose tokens were read again */
    struct token_verifier verifier;
};

void auth_init(struct auth *auth, const struct auth_options *options);
/* Wipes what it knew. */
void auth_release(struct auth *auth);

/* Whether the same kinds of tokens are set: only then may one take the place of the other. */
bool auth_is_alike(const struct auth *auth, const struct auth *other);

/* Reads the Authorization header. */
void auth_identify(const struct auth *auth, struct span authorization, int64_t now_ms,
                   struct caller *caller);

/* The same with the session's cookie, where no Authorization header was sent. */
void auth_identify_request(const struct auth *auth, const struct http_request *request,
                           int64_t now_ms, struct caller *caller);

/* For a login: in constant time. NULL: it is no admin's token. */
const struct auth_admin *auth_find_admin(const struct auth *auth, struct span token);

/* Ask anything at all: without an admin token only this machine itself. */
const char *auth_may_ask(const struct auth *auth, const struct http_request *request);

/* What needs that role, or a higher one. */
const char *auth_may_administer(const struct auth *auth, const struct caller *caller,
                                enum access_role role);

/* Claim for `user`. */
const char *auth_may_claim(const struct auth *auth, const struct caller *caller,
                           const struct id *user);

/* Whether the answer to a claim may show the code of a coupon that it did not make; asked of who
 * may claim. */
bool auth_may_see_held_code(const struct auth *auth, const struct caller *caller);

/* See the claims, coupons and codes of `user`. */
const char *auth_may_see(const struct auth *auth, const struct caller *caller,
                         const struct id *user);

/* Change anything, for a page of `origin` (absent: not a page). */
const char *auth_may_change_from(const struct auth *auth, struct span origin, struct span host);
