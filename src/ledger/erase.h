/* erase.h: a person's id goes from the ledger, and a pseudonym takes its place.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"

struct ledger;

/* What a pseudonym begins with, before 32 hexadecimal digits. */
#define PSEUDONYM_PREFIX "erased-"

bool id_is_pseudonym(const struct id *id);

/* The first policies that are not over and of which the user has an active coupon. */
enum status ledger_erase_open(struct ledger *ledger, const struct id *user, int64_t now_ms,
                              int64_t *policy_ids, size_t max, size_t *count,
                              struct error *error) MUST_CHECK;

/* Puts the pseudonym, which is nobody's, in the user's place: coupons, refused claims, dead
 * letters, events that wait, the reserve, what operators did to them, what repairs said. One
 * transaction. */
enum status ledger_erase(struct ledger *ledger, const struct id *user, const struct id *pseudonym,
                         struct error *error) MUST_CHECK;

/* The keys bound to the user's claims of a policy besides their own; *keys is the caller's to
 * free(), also when this fails. */
enum status ledger_erase_keys(struct ledger *ledger, const struct id *user, int64_t policy_id,
                              struct key_binding **keys, size_t *count,
                              struct error *error) MUST_CHECK;
