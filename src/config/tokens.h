/* tokens.h: operators' tokens of their own, with what each may do: lines of NAME ROLE TOKEN.
 *
 * Threads: values only.
 */
#pragma once

#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

/* Each may do what those before it may. */
enum access_role {
    ACCESS_NOTHING,
    ACCESS_VIEWER,   /* sees how it goes; no codes, and nobody's coupons */
    ACCESS_OPERATOR, /* acts for users, changes policies, blocks, looks after what failed */
    ACCESS_ADMIN,    /* all: makes and closes policies, repairs */
};

#define NAMED_TOKENS_MAX     64
#define NAMED_TOKEN_NAME_MAX 32
#define NAMED_TOKEN_MIN      16

struct named_token {
    char name[NAMED_TOKEN_NAME_MAX + 1];
    enum access_role role;
    struct span token; /* within the text */
};

/* Reads all of them; lines that are empty or begin with # are passed over. INVALID, with the number
 * of the line: something is wrong with it, or a name or a token is there twice. */
enum status named_tokens_read(struct span text, struct named_token tokens[NAMED_TOKENS_MAX],
                              size_t *count, struct error *error) MUST_CHECK;

/* "viewer", "operator", "admin"; NULL for none. */
const char *access_role_name(enum access_role role);
