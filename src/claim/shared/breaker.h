/* breaker.h: whether a gate in another process is asked, is left alone because it is away, or is
 * tried again; of one policy.
 *
 * Closed: it is asked. After some calls in a row found it away, or the first of a quick one, it
 * opens: it is left alone until whoever looks after it finds it there again. Then it is half open:
 * one batch is let through, and what becomes of that closes or opens it. Nothing here does I/O or
 * knows the time.
 *
 * Threads: values only; the owner locks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum breaker_state { BREAKER_CLOSED, BREAKER_HALF_OPEN, BREAKER_OPEN };
#define BREAKER_STATES 3

/* "closed", "half_open", "open" */
const char *breaker_state_name(enum breaker_state state);

#define BREAKER_FAILURES_MAX 3    /* in a row; then it opens */
#define BREAKER_PAUSE_MIN_MS 100  /* until the first look */
#define BREAKER_PAUSE_MAX_MS 2000 /* between looks */
#define BREAKER_PROBE_MS     5000 /* a probe that was not answered by then is lost */
#define BREAKER_FORGET_MS    5000 /* after so long without a call it closes by itself */

struct breaker {
    enum breaker_state state;
    bool is_quick;     /* constant: the first failure opens it, since nobody has to wait for it */
    int failure_count; /* in a row */
    int64_t changed_at_ms;
    int64_t probe_at_ms; /* of an open one: when it is looked at again */
    int64_t pause_ms;
    int64_t probed_at_ms; /* of a half open one; 0: nobody was let through */
};

/* Whether a batch may be let through to the gate. Of a half open one only the first is. */
bool breaker_lets_through(struct breaker *breaker, int64_t now_ms);

/* What became of a call. True: the state has changed. */
bool breaker_note(struct breaker *breaker, bool was_away, int64_t now_ms);

/* After a look at an open one that found the gate still away: when to look again. `jitter` below
 * 1024 spreads those who wait. */
void breaker_put_off(struct breaker *breaker, int64_t now_ms, uint32_t jitter);

/* The gate is there again, and all is ready for it: half open from now on. */
void breaker_try(struct breaker *breaker, int64_t now_ms);

/* Opens one that is to be looked at before anyone is let through. */
void breaker_distrust(struct breaker *breaker, int64_t now_ms);

/* Closes one that nobody has used for long. True: the state has changed. */
bool breaker_forget(struct breaker *breaker, int64_t now_ms);
