/* preflight.h: what an operator wants to know before a policy opens, looked at now.
 *
 * Each check has a state and a sentence. `fail` means that claims would be refused or promises
 * broken; `warn` that somebody should have a look. Nothing is changed.
 *
 * Threads: blocks, so on a pool thread's; the judgements are pure functions.
 */
#pragma once

#include <stdbool.h>

#include "claim/service.h"
#include "gate/shared.h"

enum preflight_state { PREFLIGHT_OK, PREFLIGHT_WARN, PREFLIGHT_FAIL };

struct preflight_check {
    const char *name; /* "gate", "ledger", … */
    enum preflight_state state;
    char text[512];
};

#define PREFLIGHT_CHECKS_MAX 12

struct preflight {
    int64_t now_ms;
    struct preflight_check checks[PREFLIGHT_CHECKS_MAX];
    size_t count;
};

/* NOT_FOUND: no such policy. UNAVAILABLE: neither gate nor ledger can tell whether there is one. */
enum status service_preflight(struct service *service, int64_t policy_id,
                              struct preflight *preflight, struct error *error) MUST_CHECK;

/* No check fails. */
bool preflight_is_ready(const struct preflight *preflight);

/* "ok", "warn", "fail". */
const char *preflight_state_name(enum preflight_state state);

/* --- the judgements --- */

/* Judges the window with the pause, and the stock. */
struct preflight_check preflight_judge_window(const struct gate_numbers *numbers, int64_t now_ms);
struct preflight_check preflight_judge_stock(const struct gate_numbers *numbers);

/* Judges the clock that decides about the window, which is so far ahead of ours; `is_synced`: the
 * kernel says that our own clock is synchronized. */
struct preflight_check preflight_judge_clock(int64_t ahead_ms, bool is_synced);

/* Judges the disk under the ledger (-1: not on this machine), which has to take so many more
 * coupons.
 */
struct preflight_check preflight_judge_disk(int64_t free_bytes, int64_t coupons);

/* Judges what the settings can lose. */
struct preflight_check preflight_judge_loss(enum gate_loss loss, int replicas);
