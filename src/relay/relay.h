/* relay.h: carries claims that are pending in a shared gate to the ledger: directly (in the worker,
 * claim/shared/worker_relay.c) or through Kafka (kafka.h).
 *
 * A relay never drops or invents a claim. It carries a policy's claims in seq order; some may come
 * out twice, but none comes out for the first time behind a later one. A gate in memory needs no
 * relay: it puts its winners into the ledger's queue itself.
 *
 * Threads: a stream belongs to one thread, and so do the calls with it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"

struct relay;

/* How many claims the ledger may have been given that the gate was not told of yet. */
#define RELAY_OUTSTANDING_MAX 5000

/* A policy's claims on their way through the relay, of the worker that is its steward. Starts as
 * zeros. */
struct relay_stream {
    int64_t policy_id;
    int64_t cursor; /* what is pending up to this seq is on its way: read on behind it */
    void *state;    /* the backend's own */
};

struct relay_ops {
    /* A term of stewardship begins: sets the cursor. Also where one has begun before. Other than
     * OK: it has not begun, and is to be tried again. */
    enum status (*begin)(struct relay *relay, struct relay_stream *stream, struct error *error);
    /* Takes claims that are pending behind the cursor, at least one, in seq order, and moves it;
     * they may be changed. BUSY: too much is on its way, or the brokers are away; nothing was
     * taken. CONFLICT: another worker is the steward. Never blocks for long. */
    enum status (*carry)(struct relay *relay, struct relay_stream *stream, struct claim *claims,
                         size_t count, struct error *error);
    /* Nothing is pending behind the cursor, and so many claims are in all. May set the cursor back,
     * when what is pending before it did not come out: true then, if reading again makes sense at
     * once. */
    bool (*rest)(struct relay *relay, struct relay_stream *stream, int64_t pending_count);
    /* The policy gets no new claims. OK once all that was ever carried has come out and is settled;
     * `claims` are what is pending behind the cursor, and may be none. BUSY: not yet. */
    enum status (*pass)(struct relay *relay, struct relay_stream *stream, struct claim *claims,
                        size_t count, struct error *error);
    /* Another worker is the steward now, or this one ends: frees the stream's state. Also of a
     * stream that never began. */
    void (*leave)(struct relay *relay, struct relay_stream *stream);
};

/* Every backend's struct starts with this. */
struct relay {
    const struct relay_ops *ops;
};
