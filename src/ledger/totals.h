/* totals.h: what became of the claims on each policy, counted by all servers together, in the
 * ledger: by the minute in the first hour after the opening, by the hour before and later.
 *
 * Threads: as the ledger's other calls, from any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "ledger/ledger.h"

#define CLAIM_LABEL_SIZE 33

/* So many claims of a policy ended with that result in a minute or an hour. */
struct claim_total {
    int64_t policy_id;
    int64_t starts_at_ms;
    int64_t seconds; /* 60 or 3600 */
    int64_t count;
    char result[CLAIM_LABEL_SIZE]; /* a label of dibs_claims_total */
};

/* What one process adds in one transaction, minute by minute. */
struct claim_totals_batch {
    int64_t process; /* a random number */
    int64_t number;  /* rises; 1 is its first */
    const struct claim_total *totals;
    size_t count;
    int64_t now_ms;
};

/* Adds all of them, or none; a batch whose number was added before is passed over, so UNKNOWN may
 * be followed by the same call. Policies that are not there are passed over, too. */
enum status ledger_totals_add(struct ledger *ledger, const struct claim_totals_batch *batch,
                              struct error *error) MUST_CHECK;

/* The process adds no more. */
enum status ledger_totals_end(struct ledger *ledger, int64_t process,
                              struct error *error) MUST_CHECK;

/* All of a policy, by rising times, minutes before the hours that begin with them; *totals is the
 * caller's to free(), also when this fails. */
enum status ledger_totals(struct ledger *ledger, int64_t policy_id, struct claim_total **totals,
                          size_t *count, struct error *error) MUST_CHECK;
