/* kafka.h: how pending claims of a shared gate get to the ledger: what every relay does, and the
 * one through Kafka. The worker's own (claim/shared/worker_relay.c) carries them there directly.
 *
 * A relay never drops or invents a claim. It carries a policy's claims in seq order; some may come
 * out twice, but none comes out for the first time behind a later one. A gate in memory needs no
 * relay: it puts its winners into the ledger's queue itself.
 *
 * Kafka: a policy's steward publishes what is pending to the topic of pended claims, in seq order,
 * and moves the mark in the gate as far as Kafka has confirmed it. Workers, as members of one
 * group, read the topic, issue what they read, and commit its offset when the ledger has it and the
 * gate has heard of it.
 *
 * With claims=direct in the URL nobody publishes claims. The group goes on reading the topic: what
 * a worker has published that let claims go through it comes out as well, so that both kinds may
 * run at once and either may follow the other. A claim that goes both ways finds its row in the
 * ledger the second time.
 *
 * Threads: a stream belongs to one thread, and so do the calls with it. Open, stop and close from
 * the owner; settled and metrics from any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/model.h"
#include "event/kafka/kafka.h"

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

struct relay_kafka;
struct traces;

/* What the relay needs of the worker. All may be called from any thread. */
struct relay_outlet {
    /* Hands claims to the ledger, without waiting. What becomes of each comes back through
     * relay_kafka_settled(), after the gate has heard of it. */
    void (*issue)(void *context, const struct claim *claims, size_t count);
    /* Takes out those that the ledger refused a moment ago; returns how many are left. */
    size_t (*filter)(void *context, struct claim *claims, size_t count);
    /* How many claims the ledger was given that the gate has not heard of, of all policies that are
     * at the same place as this one. */
    size_t (*outstanding)(void *context, int64_t policy_id);
    /* The caller whose token was given last publishes the policy: *mark is the seq up to which that
     * was done. NOT_FOUND: the gate does not have the policy. */
    enum status (*publish)(void *context, int64_t policy_id, const char *token, int64_t *mark,
                           struct error *error);
    /* Moves the mark, which never goes back. CONFLICT: another token was given since. */
    enum status (*published)(void *context, int64_t policy_id, const char *token, int64_t seq,
                             struct error *error);
    /* Why a claim came to nothing. NOT_FOUND: nobody knows any more. Blocks. */
    enum status (*letter)(void *context, int64_t policy_id, int64_t seq, struct dead_letter *letter,
                          struct error *error);
    /* Keeps what came in and is no claim, for people to look at. Blocks. */
    enum status (*keep)(void *context, const struct dead_letter *letter, struct error *error);
    void *context;
};

/* From now on claims come out at the outlet. `kafka` is borrowed, publishes, and is stopped before
 * the relay is closed. `traces`: where the traces of claims that are carried are found, and of
 * those that come out are put; NULL: they go without. */
enum status relay_kafka_open(struct relay_kafka **relay, struct kafka *kafka,
                             const struct relay_outlet *outlet, struct traces *traces,
                             struct error *error) MUST_CHECK;

/* Lets what is at work come to an end, for at most so long. Nothing comes out any more. Before the
 * ledger is closed. NULL is fine, here and below. */
void relay_kafka_stop(struct relay_kafka *relay, int64_t timeout_ms);
void relay_kafka_close(struct relay_kafka *relay);

/* The relay that publishes into the topic. */
struct relay *relay_kafka_publisher(struct relay_kafka *relay);

/* What became of claims that were issued, in the order of issuing; the gate has heard of it. */
void relay_kafka_settled(struct relay_kafka *kafka, const struct claim *claims,
                         const enum coupon_state *states, size_t count);

/* OK once the ledger has all that was in the topic when the goal was set; BUSY: not yet. */
enum status relay_kafka_drained(struct kafka *kafka, struct kafka_goal *goal, int64_t policy_id,
                                struct error *error) MUST_CHECK;

/* `relay` is NULL where others carry. */
void relay_kafka_metrics(struct kafka *kafka, struct relay_kafka *relay, struct buffer *out);
