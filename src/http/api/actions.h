/* actions.h: notes what operators did, in the ledger.
 *
 * Threads: a pool thread's, in a call's `work`.
 */
#pragma once

#include "http/api/call.h"

/* Keeps it for GET /v1/actions: after the change, which it does not undo when it cannot be kept.
 * `was` and `became` are JSON; NULL: nothing to tell. */
void action_note(const struct call *call, struct service *service, const char *what,
                 const char *target, const struct buffer *was, const struct buffer *became);

/* Of a policy what operators change. */
void action_write_policy(struct buffer *out, const struct policy *policy);
