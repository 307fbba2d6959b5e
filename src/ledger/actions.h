/* actions.h: what operators did, kept in the ledger.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"

struct ledger;

#define ACTION_WHO_SIZE    48
#define ACTION_WHAT_SIZE   32
#define ACTION_TARGET_SIZE 96
#define ACTION_STATE_SIZE  2048

struct ledger_action {
    int64_t id;
    int64_t at_ms;
    char who[ACTION_WHO_SIZE];       /* the token's name */
    char what[ACTION_WHAT_SIZE];     /* "policy_changed", as in the log */
    char target[ACTION_TARGET_SIZE]; /* "policies/42", "users/u1" */
    char was[ACTION_STATE_SIZE];     /* JSON; "": there was nothing, or it does not matter */
    char became[ACTION_STATE_SIZE];
};

/* "users/u1", as far as there is room. */
void action_user_target(char target[ACTION_TARGET_SIZE], const struct id *user);

/* Its id is the next one. */
enum status ledger_action_add(struct ledger *ledger, const struct ledger_action *action,
                              struct error *error) MUST_CHECK;

/* The latest first, those before that id (0: from the latest); of one target, or of all (""). */
enum status ledger_actions(struct ledger *ledger, const char *target, int64_t before_id,
                           struct ledger_action *actions, size_t max, size_t *count,
                           struct error *error) MUST_CHECK;
