/* totals.h: counts what people were told about each policy, and adds it to the ledger's totals
 * every few seconds and at the end: off the way of a claim, in one transaction. A kill -9 loses
 * what was counted since; coupons do not rest on it.
 *
 * Threads: totals_add() and totals_flush() from any.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/verdict.h"

struct service;
struct totals;

/* How often, and so how much a kill -9 can lose. */
#define TOTALS_EVERY_MS 3000

/* A step of opening, where people are served. */
enum status totals_start(struct service *service, struct error *error) MUST_CHECK;

/* Adds what is left. Before the ledger is closed. NULL is fine, here and below. */
void totals_stop(struct totals *totals);

/* So many claims by result that came at that time. Never blocks on the ledger. */
void totals_add(struct totals *totals, int64_t policy_id, int64_t wall_ms,
                const uint32_t counts[CLAIM_RESULT_COUNT]);

/* Adds to the ledger what this process has counted until now. Blocks. */
enum status totals_flush(struct totals *totals, struct error *error) MUST_CHECK;
