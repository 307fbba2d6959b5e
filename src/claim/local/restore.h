/* restore.h: a start builds the gate in memory from the ledger while the server listens already.
 *
 * Policies come by stretches, the newest first, each stretch from one snapshot of the ledger. They
 * are built in a gate aside that nobody asks, and moved over when all of them are whole: users,
 * claims, keys and stock. So a policy that the gate has is complete, and nobody is told SOLD_OUT,
 * or wins twice, because something of theirs was still to come. Of one that it does not have yet
 * claims get 503, its stock is not changed by anybody, and what is written of its coupons is told
 * to the gate later.
 *
 * Threads: its own reads; the rest from any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct service;
struct restore;

/* A step of opening. It waits a moment: a small ledger is all there when it returns. */
enum status restore_start(struct service *service, struct error *error);

/* Ends it where it is. */
void restore_stop(struct restore *restore);

/* Whether the gate has the policy with all that belongs to it, or would have it. NULL: nothing is
 * restored here. */
bool restore_has(const struct restore *restore, int64_t policy_id);

/* Whether it has all policies. NULL: as above. */
bool restore_has_all(const struct restore *restore);

/* The same; words says what it does meanwhile, "ok" otherwise. */
bool restore_is_over(struct restore *restore, struct error *words);
