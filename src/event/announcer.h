/* announcer.h: publishes what happened to coupons, from a sink's outbox in the ledger to that sink.
 *
 * Of all processes on a ledger one has the duty for a sink at a time, by the database's clock. It
 * reads the outbox in order, sends a batch to the sink, and deletes the events that are delivered:
 * each event is sent at least once, and those of a policy in their order (of an event that is sent
 * twice, the first time counts). While a sink takes nothing, its events wait in its outbox, and
 * nothing else waits for them. Since when that is so, and why, is kept in the ledger for everybody.
 *
 * Threads: open, stop and close from the owner; the others from any thread. Sinks and the ledger
 * are used on the announcer's own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "event/sink.h"
#include "ledger/ledger.h"

struct announcer;

struct announcer_options {
    struct ledger *ledger;
    struct event_sink *sink; /* the caller's, as the ledger */
    bool is_alone;   /* no other process can have the duty: one that died does not leave it taken */
    int64_t term_ms; /* of the duty; 0: 5 s */
    int64_t poll_ms; /* between reads of the outbox, when nobody wakes it; 0: 500 ms */
};

enum announcer_state {
    ANNOUNCER_STANDS_BY, /* another process has the duty */
    ANNOUNCER_FLOWS,
    ANNOUNCER_HELD_UP, /* the events wait; the words say why */
};

struct announcer_numbers {
    enum announcer_state state;
    uint64_t announced;
    uint64_t failed;      /* batches that were not delivered, and are sent again */
    int64_t waiting;      /* events in the outbox, as last counted by whoever has the duty */
    int64_t oldest_at_ms; /* of them; 0: none */
    int64_t failing_since_ms;
    bool is_given_up; /* it fails for longer than the sink is patient: tried now and then */
    char text[SINK_TEXT_SIZE]; /* "ok", or why they wait */
};

/* Starts at once. */
enum status announcer_open(struct announcer **announcer, const struct announcer_options *options,
                           struct error *error) MUST_CHECK;

/* There are new events. */
void announcer_wake(struct announcer *announcer);

/* Tries again what failed, without waiting for its time. */
void announcer_retry(struct announcer *announcer);

/* Sends no more, waits for what is on its way, at most so long, and gives the duty up. Events that
 * are reported later stay in the outbox and will be sent again. Before the ledger is closed. */
void announcer_stop(struct announcer *announcer, int64_t timeout_ms);

/* After the sinks were closed, which report everything. NULL is fine. */
void announcer_close(struct announcer *announcer);

struct event_sink *announcer_sink(const struct announcer *announcer);

void announcer_count(struct announcer *announcer, struct announcer_numbers *numbers);
/* Of several announcers, NULL where there is none: each family is in one piece. */
void announcer_metrics(struct announcer *const *announcers, size_t count, struct buffer *out);
