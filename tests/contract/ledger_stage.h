/* ledger_stage.h: two transactions on two sessions, interleaved at every statement.
 *
 * One goes some steps, then the other some, then each to its end; a step is whatever it asks of the
 * driver. One that waits for a lock of the other's has come as far as it can. In each case the
 * outcome must be one that they could have had one after the other.
 *
 * Threads: the test's own; the actors have theirs.
 */
#pragma once

#include "ledger/issue.h"
#include "ledger/transactions.h"
#include "ledger_fixture.h"

#define STAGE_CLAIMS_MAX 2

struct stage;

/* One of the two, on a thread of its own. */
struct actor {
    struct stage *stage;
    enum status (*act)(struct sql *sql, void *argument, struct error *error);
    void *argument;
    struct sql sql;
    int steps;   /* begun, or about to be */
    int allowed; /* so many may be begun */
    bool is_done;
    bool waits;     /* for the other to be done */
    int busy_count; /* how often it was in the other's way, and done again */
    enum status status;
    struct error error;
    pthread_t thread;
};

struct stage {
    struct fixture *fixture;
    struct ledger_driver stepping;
    struct ledger_store *store;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct actor actors[2];
    char words[96]; /* which interleaving it is */
    /* What the scenes play with. */
    struct policy policy;
    struct lease lease;
    struct policy policies[2];
    struct lease leases[2];
    struct coupon coupons[2];
    struct ledger_wish wishes[2];
    struct issuing {
        struct issue_room room;
        struct claim claims[STAGE_CLAIMS_MAX];
        size_t count;
        enum coupon_state states[STAGE_CLAIMS_MAX];
    } issuing[2];
    union {
        struct create_policy create;
        struct take_lease take;
        struct close_lease close;
        struct change_policy change;
        struct redeem_coupon redeem;
        struct cancel_coupon cancel;
        struct block_user block;
        struct take_stewardship steward;
    } arguments[2];
    struct ledger_stewardship taken[2];
};

int set_up_stage(void **state);
int tear_down_stage(void **state);

/* Gives one of the two its part: the body of a transaction. */
void cast(struct stage *stage, int number,
          enum status (*body)(struct sql *sql, void *argument, struct error *error),
          void *argument);

typedef void (*scene_fn)(struct stage *stage);

/* Whether the two may find each other in the way and have to be done again, or lock what they need
 * in one order and only ever wait. */
enum scene_kind { SCENE_ORDERLY, SCENE_BUSY };

/* A scene is set, played and looked at again for each interleaving; the stock of stage->policy has
 * to be conserved each time. */
void play_all(struct stage *stage, enum scene_kind kind, scene_fn set, scene_fn look);

/* Fails the test with words that say which interleaving it is. */
void expect(struct stage *stage, bool condition, const char *what);
