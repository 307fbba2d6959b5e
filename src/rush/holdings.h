/* holdings.h: asks the server, after the storm, what each of these users holds.
 *
 * Asks again while something is pending, until it is final or the time is up.
 *
 * Threads: the thread of the wire.
 */
#pragma once

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "rush/wire.h"

enum rush_fate {
    RUSH_FATE_PENDING,
    RUSH_FATE_ISSUED, /* active in the ledger, whatever became of it since */
    RUSH_FATE_MERGED,
    RUSH_FATE_VOID,
};

/* One claim as the server shows it. */
struct rush_coupon {
    uint32_t user;
    int32_t nth;
    int64_t seq;
    int64_t requested_at_ms; /* by the gate's clock; 0: it was not told */
    int64_t issued_at_ms;    /* by that of whoever wrote the row; 0: there is none */
    enum rush_fate fate;
};

struct rush_holdings {
    struct rush_coupon *coupons; /* by rising users */
    size_t coupon_count;
    size_t asked_count;   /* users */
    size_t unknown_count; /* users about whom no answer could be had */
};

struct holdings_options {
    struct wire *wire;
    const struct wire_target *target;
    const char *run;
    int64_t policy_id;
    const uint32_t *users; /* rising, each once */
    size_t user_count;
    int64_t timeout_ms; /* for what is pending, and for a server that does not answer */
    const volatile sig_atomic_t *stop;
    void (*tell)(void *context, size_t done, size_t count);
    void *context;
};

enum status rush_holdings(struct rush_holdings *holdings, const struct holdings_options *options,
                          struct error *error) MUST_CHECK;
/* Rows that were written, and how many milliseconds after the last of their claims was accepted the
 * last of them was; -1: there are none, or the server does not tell. */
size_t rush_holdings_rows(const struct rush_holdings *holdings, int64_t *last_row_ms);

void rush_holdings_release(struct rush_holdings *holdings);
