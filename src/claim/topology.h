/* topology.h: what depends on who has the gate: this process alone (claim/local) or many that share
 * one (claim/shared). It is chosen once, by the gate's URL; nobody asks afterwards which it is.
 *
 * Threads: constant tables; each slot says who calls it.
 */
#pragma once

#include "claim/audit.h"
#include "claim/service.h"
#include "gate/shared.h"

struct desk;
struct service;

/* A step of opening a service. One that asks another process is taken again while that one is not
 * there yet: it leaves nothing behind when it fails. */
enum service_asks { ASKS_NOBODY, ASKS_LEDGER, ASKS_GATE };

struct service_step {
    enum status (*take)(struct service *service, struct error *error);
    enum service_asks asks;
};

/* How fresh numbers of a policy have to be. */
enum numbers_age {
    NUMBERS_KNOWN, /* as this process has last heard */
    NUMBERS_NOW,   /* with all that happened before the call, also in other processes */
};

struct topology {
    /* Taken, in order, between opening gate and ledger and starting those who use them. */
    const struct service_step *steps;
    size_t step_count;

    /* How many parts a probe is told of. */
    size_t part_count;

    /* A policy that the gate does not know is being created just now, and is not listed yet. */
    bool lists_whole_only;

    /* The gate is outside of this process: it decides while the ledger is away, and may hold what
     * the ledger has lost, what nobody can read, and claims that no lease covers. It keeps nothing
     * of a claim whose slot was freed. */
    bool gate_is_outside;

    /* The ledger's callbacks of these names; `context` is the service. The gate is told of the
     * claims, at once or soon, and then whoever waits for them is woken. */
    void (*on_issued)(void *context, const struct claim *claims, const enum coupon_state *states,
                      size_t count);
    void (*on_durable)(void *context);

    /* Brings a policy that has just been created, with its first lease, into the gate. When it
     * fails, whoever looks after the policy does so later. Under the policy's lock. Blocks. */
    enum status (*load)(struct service *service, const struct policy *policy,
                        const struct lease *lease, struct error *error);

    /* A lease that was in doubt is in the ledger, with this row: sees to it that the gate gets it.
     * Under the policy's lock. Blocks. */
    enum status (*found_lease)(struct service *service, const struct policy *policy,
                               const struct lease *lease, struct error *error);

    /* The gate's numbers of a policy that the ledger has. Blocks. UNAVAILABLE: the gate is away or
     * does not know the policy yet. */
    enum status (*numbers)(struct service *service, int64_t policy_id, enum numbers_age age,
                           struct gate_numbers *numbers, struct error *error);

    /* Puts another coupon in the place of one, in the ledger; the gate does not know it yet. Under
     * the policy's lock. Blocks. As ledger_coupon_reissue(). */
    enum status (*reissue)(struct service *service, struct ledger_reissue *reissue,
                           struct error *error);

    /* Tells the gate of a reissue that the ledger has, also again. Under the policy's lock. Blocks.
     * UNAVAILABLE: it has not heard of it. */
    enum status (*reissued)(struct service *service, const struct ledger_reissue *reissue,
                            struct error *error);

    /* Whether the gate can be asked just now, and if not why; "ok" otherwise. Never blocks. */
    bool (*is_ready)(struct service *service, struct error *failure);

    /* Whether claims of this policy would be decided now, and if not why. Blocks. */
    enum status (*check)(struct service *service, int64_t policy_id, struct error *failure);

    /* What to know of the gate before this policy opens. Blocks. UNAVAILABLE: it is away. */
    enum status (*survey)(struct service *service, int64_t policy_id, struct gate_survey *survey,
                          struct error *error);

    /* The ids of all policies to be audited, in any order, some maybe twice. *ids is the caller's
     * to free(), also when this fails. Blocks. */
    enum status (*policies)(struct service *service, int64_t **ids, size_t *count,
                            struct error *error);

    /* Repairs what an audit of this policy, or with 0 of all, has found. Blocks. */
    enum status (*repair)(struct service *service, int64_t policy_id, enum audit_lacking lacking,
                          struct audit_repair *done, struct error *error);

    /* On the desk's thread: decides the wishes that are gathered in desk->batch, or marks their
     * entries as away and has them come back through desk_away_land(). */
    void (*decide)(struct desk *desk, int64_t policy_id, size_t count, int64_t wall_ms);
};

extern const struct topology topology_local;
extern const struct topology topology_shared;
