/* announcer.h: publishes what happened to coupons, from the ledger's outbox to other services.
 *
 * Of all processes on a ledger one has the duty at a time, as the database's clock says. It reads
 * the outbox in order, sends a batch, and forgets the events when all of it was delivered: each is
 * told at least once, and those of a policy in their order (of events told again the first time
 * counts). While nobody takes them, they wait in the outbox, and nothing else waits for them.
 *
 * Threads: open, stop and close from the owner; the others from any thread. Sending and the ledger
 * are used on the announcer's own.
 */
#ifndef RELAY_ANNOUNCER_H
#define RELAY_ANNOUNCER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "ledger/ledger.h"
#include "relay/kafka_producer.h"

struct announcer;

struct announcer_options {
    struct ledger *ledger;
    /* As kafka_producer_send(), to the topic of coupons. */
    enum status (*send)(void *context, struct kafka_batch *batch, size_t count,
                        struct error *error);
    void *context;
    bool is_alone;   /* no other process can have the duty: one that died does not leave it taken */
    int64_t term_ms; /* of the duty; 0: 5 s */
    int64_t poll_ms; /* between looks for what others committed; 0: 500 ms */
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

/* Starts at once. The ledger stays the caller's. */
enum status announcer_open(struct announcer **announcer, const struct announcer_options *options,
                           struct error *error) MUST_CHECK;

/* There are new events. */
void announcer_wake(struct announcer *announcer);

/* Sends no more, waits for what is on its way, at most so long, and gives the duty up. What is
 * reported later is not forgotten, and will be told again. Before the ledger is closed. */
void announcer_stop(struct announcer *announcer, int64_t timeout_ms);

/* After whatever sends has reported everything. NULL is fine. */
void announcer_close(struct announcer *announcer);

void announcer_count(struct announcer *announcer, struct announcer_numbers *numbers);

#endif
