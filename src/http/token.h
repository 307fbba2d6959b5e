/* token.h: checks the signed tokens (JWT, HS256) that say who a user is.
 *
 * The algorithm is fixed: a token that names another one is refused, whatever its signature. The
 * signature is checked, in constant time, before anything inside is read. `sub` and `exp` must be
 * there; `nbf` and `aud` are checked when they are there or wanted.
 *
 * Threads: a verifier is written by init and release only; any thread may verify with it.
 */
#ifndef HTTP_TOKEN_H
#define HTTP_TOKEN_H

#include <sodium.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/model.h"

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
                                int64_t now_ms, struct user_id *user);

/* A sentence for whoever sent it. */
const char *token_verdict_words(enum token_verdict verdict);

#endif
