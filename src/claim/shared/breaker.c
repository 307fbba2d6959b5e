/* breaker.c: the three states and what leads from one to the other. */
#include "claim/shared/breaker.h"

const char *breaker_state_name(enum breaker_state state)
{
    static const char *const names[BREAKER_STATES] = {"closed", "half_open", "open"};
    return names[state];
}

static void breaker_enter_state(struct breaker *breaker, enum breaker_state state, int64_t now_ms)
{
    breaker->state = state;
    breaker->changed_at_ms = now_ms;
    breaker->probed_at_ms = 0;
}

bool breaker_lets_through(struct breaker *breaker, int64_t now_ms)
{
    if (breaker->state != BREAKER_HALF_OPEN)
        return breaker->state == BREAKER_CLOSED;
    if (breaker->probed_at_ms != 0 && now_ms - breaker->probed_at_ms < BREAKER_PROBE_MS)
        return false;
    breaker->probed_at_ms = now_ms;
    return true;
}

/* A probe that fails keeps the pause it came to: a gate that comes and goes is looked at less. */
static void breaker_open(struct breaker *breaker, int64_t now_ms)
{
    if (breaker->state == BREAKER_CLOSED)
        breaker->pause_ms = BREAKER_PAUSE_MIN_MS;
    breaker_enter_state(breaker, BREAKER_OPEN, now_ms);
    breaker->probe_at_ms = now_ms + breaker->pause_ms;
}

bool breaker_note(struct breaker *breaker, bool was_away, int64_t now_ms)
{
    if (!was_away)
        breaker->failure_count = 0;
    else if (breaker->failure_count < BREAKER_FAILURES_MAX)
        breaker->failure_count++;
    if (breaker->state == BREAKER_HALF_OPEN && !was_away) {
        breaker_enter_state(breaker, BREAKER_CLOSED, now_ms);
        return true;
    }
    /* What an open one still hears of was asked before it opened. */
    bool opens =
        was_away && (breaker->state == BREAKER_HALF_OPEN ||
                     (breaker->state == BREAKER_CLOSED &&
                      (breaker->is_quick || breaker->failure_count == BREAKER_FAILURES_MAX)));
    if (opens)
        breaker_open(breaker, now_ms);
    else if (breaker->state == BREAKER_CLOSED)
        breaker->changed_at_ms = now_ms;
    return opens;
}

void breaker_put_off(struct breaker *breaker, int64_t now_ms, uint32_t jitter)
{
    breaker->pause_ms *= 2;
    if (breaker->pause_ms > BREAKER_PAUSE_MAX_MS)
        breaker->pause_ms = BREAKER_PAUSE_MAX_MS;
    /* Between half of the pause and all of it. */
    breaker->probe_at_ms =
        now_ms + breaker->pause_ms / 2 + breaker->pause_ms / 2 * (int64_t)(jitter % 1024) / 1024;
}

void breaker_try(struct breaker *breaker, int64_t now_ms)
{
    breaker_enter_state(breaker, BREAKER_HALF_OPEN, now_ms);
}

void breaker_distrust(struct breaker *breaker, int64_t now_ms)
{
    breaker_open(breaker, now_ms);
    breaker->probe_at_ms = now_ms;
}

bool breaker_forget(struct breaker *breaker, int64_t now_ms)
{
    bool is_old = now_ms - breaker->changed_at_ms >= BREAKER_FORGET_MS;

    if (breaker->state == BREAKER_OPEN || !is_old)
        return false;
    if (breaker->state == BREAKER_HALF_OPEN && breaker->probed_at_ms != 0 &&
        now_ms - breaker->probed_at_ms < BREAKER_PROBE_MS)
        return false;
    bool changes = breaker->state != BREAKER_CLOSED;
    breaker->failure_count = 0;
    breaker_enter_state(breaker, BREAKER_CLOSED, now_ms);
    return changes;
}
