/* fallback.h: what becomes of claims while a shared gate is away: they are turned away at once, or
 * served from the stock that the ledger keeps in reserve.
 *
 * Every policy has a breaker of its own, since the servers of a cluster fail one by one. While it
 * is open a thread looks at the gate; before claims go there again, everyone who won without it,
 * through this process or one that has ended, enters it, so that they are known there.
 *
 * Threads: every function may be called from any thread; start and stop from the owner.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "claim/shared/breaker.h"

struct service;
struct fallback;
struct wish;

/* A step of opening a service. UNAVAILABLE: the ledger cannot be asked whom the gate has to hear
 * of. */
enum status fallback_start(struct service *service, struct error *error) MUST_CHECK;

/* Winners who have not entered the gate are marked in the ledger: whoever starts next enters them,
 * or a worker. */
void fallback_stop(struct fallback *fallback);

/* Where claims go. */
enum fallback_choice {
    FALLBACK_ASK,    /* to the gate */
    FALLBACK_SERVE,  /* to fallback_serve(), each of them, for certain */
    FALLBACK_HOLD,   /* nowhere for the moment: try again soon */
    FALLBACK_REFUSE, /* nowhere: the gate is away */
};

/* For a batch of claims that are to be decided. Never blocks on I/O. */
enum fallback_choice fallback_admit(struct fallback *fallback, int64_t policy_id, size_t count);

/* The gate has been asked; it was away for so many of the batch. Where those go now; never to the
 * gate. Never blocks on I/O. */
enum fallback_choice fallback_note(struct fallback *fallback, int64_t policy_id, size_t away_count);

/* Decides one claim in the ledger. Blocks. */
void fallback_serve(struct fallback *fallback, struct wish *wish);

/* Decides one claim of a policy that is closed for good in the ledger, which nobody wins any more:
 * what the user holds, or why not. Blocks. */
void fallback_answer(struct fallback *fallback, struct wish *wish);

/* One that was to be served is not, after all. */
void fallback_drop(struct fallback *fallback, int64_t policy_id);

/* Tells the gate of some of the policy's coupons that the ledger gave while the gate was away.
 * *is_done: there were no others. A policy that is over, and that the gate has let go, has none.
 * Blocks. From any thread, also for one policy at once. UNAVAILABLE: the gate or the ledger is
 * away, which is told of a gate also when there are no coupons. */
enum status fallback_tell_gate(struct service *service, int64_t policy_id, bool *is_done,
                               struct error *error) MUST_CHECK;
