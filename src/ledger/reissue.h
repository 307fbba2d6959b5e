/* reissue.h: another coupon in the place of one whose code was lost or has leaked.
 *
 * The old one is cancelled and its user has the new one, or nothing has happened: both are one
 * transaction. No stock moves, so a policy that is sold out, paused or closed is none the less.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/model.h"

struct ledger;

struct ledger_reissue {
    /* asked */
    int64_t policy_id;
    int64_t seq;
    struct request_id request_id; /* of the reissue: asked again, it is the same one */
    int64_t now_ms;
    const char *traceparent; /* "" or NULL: none */
    /* done */
    struct coupon old;
    struct coupon coupon; /* in its place; of an earlier call as it is by now */
};

/* The new seq is the policy's next: a gate that has stock of its own in memory has given it back.
 * A shared gate hears of both by their marks, as of those that the ledger gave while it was away.
 * CONFLICT: the old one is used, cancelled or over, or its user is blocked; `old` is filled. */
enum status ledger_coupon_reissue(struct ledger *ledger, struct ledger_reissue *reissue,
                                  struct error *error) MUST_CHECK;

/* Whether it was done, of `old` with this request: then `coupon` is filled. */
enum status ledger_coupon_reissued(struct ledger *ledger, struct ledger_reissue *reissue,
                                   bool *is_done, struct error *error) MUST_CHECK;
