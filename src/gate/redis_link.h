/* redis_link.h: connections to one Redis server, and what its errors mean.
 *
 * Threads: a connection belongs to one thread at a time; the target is only read.
 */
#ifndef GATE_REDIS_LINK_H
#define GATE_REDIS_LINK_H

#include <hiredis/async.h>

#include "gate/redis_reply.h"
#include "gate/redis_target.h"

/* What an error reply of Redis, or of our functions, asks for. None of them is a verdict. */
enum redis_trouble {
    REDIS_TROUBLE_NONE,       /* no error at all */
    REDIS_TROUBLE_LATER,      /* loading, busy, out of memory, cluster down, …: try again later */
    REDIS_TROUBLE_DROP,       /* read-only, a replica, no rights: ask someone else */
    REDIS_TROUBLE_MOVED,      /* the slot lives elsewhere */
    REDIS_TROUBLE_ASK,        /* this key is on its way elsewhere */
    REDIS_TROUBLE_NO_LIBRARY, /* our functions are not loaded */
    REDIS_TROUBLE_UNARMED,    /* the policy awaits its steward */
    REDIS_TROUBLE_NO_POLICY,  /* the gate does not have it */
    REDIS_TROUBLE_STALE_LEASE, /* a lease that is not above all that were seen */
    REDIS_TROUBLE_TOO_SOON,    /* stock for a sold-out policy that was not announced long enough */
    REDIS_TROUBLE_TOO_FEW,     /* a recall of more than there is */
    REDIS_TROUBLE_SPREAD,      /* a recall from more leases than it may touch */
    REDIS_TROUBLE_PENDING,     /* a reset while something is pending */
    REDIS_TROUBLE_FENCED,      /* a later term has begun, or another worker publishes the policy */
    REDIS_TROUBLE_OTHER,       /* what should not happen: a wrong type, a wrong argument */
};
enum redis_trouble redis_trouble_of(const redisReply *reply);

/* Has a connection break at an array that is longer than any of ours, before there is room made for
 * it. Every connection that is opened here is so. */
void redis_link_limit(redisContext *link);

/* Connects, authenticates and chooses the database, each within the target's timeout. UNAVAILABLE,
 * or FAILED: the server refuses us (password, rights). */
enum status redis_link_open(redisContext **link, const struct redis_target *target,
                            const struct redis_address *address, struct error *error) MUST_CHECK;

/* The same without waiting: the first commands are sent ahead of the caller's; when one of them is
 * refused the connection ends with an error. NULL: it could not even begin. */
redisAsyncContext *redis_link_begin(const struct redis_target *target,
                                    const struct redis_address *address, struct error *error);

#endif
