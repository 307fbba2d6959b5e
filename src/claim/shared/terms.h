/* terms.h: the terms in which policies of a shared gate are looked after.
 *
 * A policy is armed for a moment only, and every process that uses the gate renews it: it asks the
 * gate's servers what time it is, then the ledger for the newest terms, and then extends what is
 * armed in these from that time on. Whoever takes the next term of a policy knows that nothing of
 * an earlier one is armed anywhere once that moment has passed. Where Redis is one server
 * (redis://) there is no other place in which something could be armed: then terms that were heard
 * of a while ago will do, and claims go on while the ledger is away.
 *
 * A worker says here that it lives, so that others leave it the policies that it looks after.
 *
 * Threads: every function may be called from any thread; the work is done on two of its own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "ledger/ledger.h"

struct service;
struct terms;

/* For how long a policy is armed, and when that is over for sure, by another clock too. */
#define TERMS_ARMED_MS 2000
#define TERMS_OVER_MS  2100

/* A step of opening a service. */
enum status terms_start(struct service *service, struct error *error) MUST_CHECK;

/* The holder gives up all that it looks after. */
void terms_stop(struct terms *terms);

/* Whether the holder counts among the living, as far as it knows. */
bool terms_is_alive(struct terms *terms);

/* The newest term of a policy, as the ledger told at that time. False: it told of none. */
bool terms_find(struct terms *terms, int64_t policy_id, struct ledger_term *newest,
                int64_t *told_at_ms);

/* This process has begun that term of a policy: it need not be told by the ledger first. */
void terms_note(struct terms *terms, int64_t policy_id, int64_t term);

/* What is armed is renewed now. */
void terms_hurry(struct terms *terms);

/* Arms a policy that was built in that term. CONFLICT: there is a later one. */
enum status terms_arm(struct service *service, int64_t policy_id, int64_t term,
                      int64_t active_count, struct error *error) MUST_CHECK;
