/* reply.h: reading HTTP replies as fast as a storm needs it, and what a claim's reply says.
 *
 * Only what the claim API sends is understood: a status line, a Content-Length, JSON that is looked
 * at just far enough. Everything else is garbage, which the caller counts.
 *
 * Threads: values only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

#define RUSH_REPLY_MAX (1 << 20)

struct rush_reply {
    int status;
    int retry_after_s; /* -1: not said */
    bool closes;       /* the connection ends with it */
    size_t length;     /* of head and body together */
    struct span body;
};

enum rush_reading { RUSH_READ_WHOLE, RUSH_READ_MORE, RUSH_READ_GARBAGE };

/* Looks for one reply at the start of the bytes. WHOLE fills `reply`, which points into them; MORE
 * asks for more bytes. */
enum rush_reading rush_reply_read(struct span bytes, struct rush_reply *reply);

/* What became of one press. */
enum rush_outcome {
    RUSH_NONE, /* no answer that tells: it may have been done */
    RUSH_WON,  /* 201 or 202 */
    RUSH_HELD, /* 200: the claim this user already holds */
    RUSH_SOLD_OUT,
    RUSH_LIMIT,   /* LIMIT_REACHED */
    RUSH_REFUSED, /* not open, paused, closed, blocked, rate limited for good, a bad request */
    RUSH_BUSY,    /* 429 or 503: not done, to be tried again */
};
#define RUSH_OUTCOMES (RUSH_BUSY + 1)

/* "won", "sold_out", ... as JSON has it. */
const char *rush_outcome_name(enum rush_outcome outcome);

struct rush_claim {
    enum rush_outcome outcome;
    bool is_issued; /* WON: the ledger has it (201) */
    int64_t seq;    /* of WON and HELD; 0: the reply names none */
    int32_t nth;
    char code[32]; /* of a refusal: "SOLD_OUT", ... */
};

/* Understands the answer to a claim. */
void rush_claim_read(const struct rush_reply *reply, struct rush_claim *claim);
