/* announcer.h: publishes what happened to coupons, from the ledger's outbox to the event sinks.
 *
 * Of all processes on a ledger one has the duty at a time, by the database's clock. It reads the
 * outbox in order, sends a batch to each sink, and deletes the events when every sink has delivered
 * all of it: each event is sent at least once, and those of a policy in their order (of an event
 * that is sent twice, the first time counts). A sink that has delivered a batch does not get it
 * again while another is retried. While a sink takes nothing, events wait in the outbox, and
 * nothing else waits for them.
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
    struct event_sink *const *sinks; /* the caller's, as the ledger; copied */
    size_t sink_count;
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
    char words[200];      /* "ok", or why they wait */
};

/* Starts at once. */
enum status announcer_open(struct announcer **announcer, const struct announcer_options *options,
                           struct error *error) MUST_CHECK;

/* There are new events. */
void announcer_wake(struct announcer *announcer);

/* Sends no more, waits for what is on its way, at most so long, and gives the duty up. Events that
 * are reported later stay in the outbox and will be sent again. Before the ledger is closed. */
void announcer_stop(struct announcer *announcer, int64_t timeout_ms);

/* After the sinks were closed, which report everything. NULL is fine. */
void announcer_close(struct announcer *announcer);

void announcer_count(struct announcer *announcer, struct announcer_numbers *numbers);
void announcer_metrics(struct announcer *announcer, struct buffer *out);
