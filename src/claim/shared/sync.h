/* sync.h: keeps a gate that processes share, and what this process remembers of it, in step with
 * the ledger: policies that others made or changed, and who is blocked. What the ledger has lost of
 * them, because an older copy took its place or somebody deleted it, is suspended in the gate: it
 * is not given out any more.
 *
 * Threads: one of its own; start and stop from the owner.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"

struct service;
struct sync;

/* A step of opening a service. Looks once before it returns, so that everything is known from the
 * start. */
enum status sync_start(struct service *service, struct error *error) MUST_CHECK;
void sync_stop(struct sync *sync);

/* Whether that policy is closed, by hand or because its time is over, as the ledger had it when it
 * was last looked at. From any thread; never blocks on I/O. */
bool sync_knows_closed(struct sync *sync, int64_t policy_id);

/* Whether the ledger had that policy when it was last looked at. From any thread; never blocks on
 * I/O. */
bool sync_lists(struct sync *sync, int64_t policy_id);

/* What people have to know of policies that the ledger has lost, "" as a rule. From any thread. */
void sync_lost_text(struct sync *sync, char *text, size_t size);

/* This server has blocked or forgiven the user, while others may do so too: the next look settles
 * who was last. From any thread. */
void sync_touch(struct sync *sync, const struct id *user);
