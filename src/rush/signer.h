/* signer.h: users' tokens for a storm, HS256 JWTs of one length, signed as fast as presses are
 * sent.
 *
 * Threads: a signer belongs to one thread.
 */
#pragma once

#include <sodium.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

#define SIGNER_KEY_MIN    32
#define SIGNER_TOKEN_SIZE 512

struct rush_signer {
    crypto_auth_hmacsha256_state keyed; /* with the key in it: copied per token */
    char claims[256];                   /* of the token; the user's number is written into it */
    size_t claims_length;
    size_t number_at;
    size_t token_length;
};

/* The audience is "" or what the aud is to be. INVALID: the key is too short, or the audience no
 * plain word. */
enum status rush_signer_init(struct rush_signer *signer, struct span key, const char *audience,
                             const char *run, int64_t expires_s, struct error *error) MUST_CHECK;

/* Writes the token of that user, token_length characters without a NUL. */
void rush_signer_write(struct rush_signer *signer, uint32_t user, char *token);
