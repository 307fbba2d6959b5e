/* relay.h: carries what is pending in a shared gate to the ledger, directly or through Kafka.
 *
 * One end is the worker that reads the gate and lets the relay carry what it finds; the other is
 * its outlet, where the claims come out, in this process or another, and are issued. A relay never
 * drops or invents a claim. It carries a policy's claims in seq order; some may come out again, but
 * none for the first time behind a later one.
 *
 * A gate in memory needs no relay: what it decides is in the ledger's queue at once. Then it only
 * takes what other services want to hear (kafka.h).
 *
 * Threads: a way belongs to one thread. relay_settled(), relay_count() and relay_is_ready() may be
 * called from any thread; the others from the owner's.
 */
#ifndef RELAY_RELAY_H
#define RELAY_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"

struct relay;
struct traces;

/* What this process does with it. */
enum relay_use {
    RELAY_WATCHES,   /* others carry; it is looked at how they fare */
    RELAY_PUBLISHES, /* nothing is pending here, but there is something to tell */
    RELAY_CARRIES,   /* a worker */
};

/* The other end, at the worker. Every slot is required; all may be called from any thread. */
struct relay_outlet {
    /* Hands claims to the ledger, without waiting. What becomes of each comes back through
     * relay_settled(), after the gate has heard of it. */
    void (*issue)(void *context, const struct claim *claims, size_t count);
    /* Takes out those that the ledger refused a moment ago; returns how many are left. */
    size_t (*sift)(void *context, struct claim *claims, size_t count);
    /* How many claims the ledger was given that the gate has not heard of, of all policies that are
     * at the same place as this one. */
    size_t (*outstanding)(void *context, int64_t policy_id);
    /* Of the policy's claims, how many wait to be tried again. */
    size_t (*waiting)(void *context, int64_t policy_id);
    /* Whoever gave the last token publishes the policy: *mark is up to where that was done. */
    enum status (*publish)(void *context, int64_t policy_id, const char *token, int64_t *mark,
                           struct error *error);
    /* Moves the mark, which never goes back. CONFLICT: another token was given since. */
    enum status (*published)(void *context, int64_t policy_id, const char *token, int64_t seq,
                             struct error *error);
    /* Why a claim came to nothing. Blocks. */
    enum status (*letter)(void *context, int64_t policy_id, int64_t seq, struct dead_letter *letter,
                          struct error *error);
    /* Keeps what came in and is no claim, for people to look at. Blocks. */
    enum status (*bury)(void *context, const struct dead_letter *letter, struct error *error);
    void *context;
};

/* A policy's way through the relay, of the worker that is its steward. Starts as zeros. */
struct relay_way {
    int64_t policy_id;
    int64_t cursor; /* what is pending up to this seq is on its way: read on behind it */
    void *state;    /* the backend's own */
};

#define RELAY_PARTITIONS_MAX 64

struct relay_numbers {
    bool is_up; /* brokers answer */
    uint64_t published;
    uint64_t confirmed;
    uint64_t failed; /* to be published again */
    uint64_t consumed;
    uint64_t dead;       /* sent to the dead-letter topic */
    uint64_t rebalanced; /* times that partitions came or went */
    uint64_t recreated;  /* times that the producer was made anew */
    size_t on_the_way;   /* sent and not confirmed */
    size_t partition_count;
    int64_t lags[RELAY_PARTITIONS_MAX]; /* of each, published and not in the ledger for sure */
};

/* A backend. Every slot is required. */
struct relay_ops {
    const char *name;
    enum status (*run)(struct relay *relay, const struct relay_outlet *outlet, struct error *error);
    enum status (*begin)(struct relay *relay, struct relay_way *way, struct error *error);
    enum status (*carry)(struct relay *relay, struct relay_way *way, struct claim *claims,
                         size_t count, struct error *error);
    bool (*rest)(struct relay *relay, struct relay_way *way, int64_t pending_count);
    enum status (*pass)(struct relay *relay, struct relay_way *way, struct claim *claims,
                        size_t count, struct error *error);
    void (*leave)(struct relay *relay, struct relay_way *way);
    void (*settled)(struct relay *relay, const struct claim *claims,
                    const enum coupon_state *states, size_t count);
    bool (*is_ready)(struct relay *relay, struct error *words);
    bool (*count)(struct relay *relay, struct relay_numbers *numbers);
    void (*stop)(struct relay *relay, int64_t timeout_ms);
    void (*close)(struct relay *relay);
};

/* Every backend's struct starts with this. */
struct relay {
    const struct relay_ops *ops;
};

struct relay_options {
    const char *url;      /* "direct" or "kafka://host:port,…" */
    const char *password; /* NULL: as the URL says */
    enum relay_use use;
    bool is_vital; /* without it this process is of no use, and not ready */
    /* Where the traces of claims that are carried are found, and of those that come out are put.
     * NULL: they go without. */
    struct traces *traces;
};

/* Does not wait for anybody. INVALID: the URL or a file that it names is wrong. */
enum status relay_open(struct relay **relay, const struct relay_options *options,
                       struct error *error) MUST_CHECK;
void relay_close(struct relay *relay);

/* From now on claims come out at the outlet. Of RELAY_CARRIES only. */
enum status relay_run(struct relay *relay, const struct relay_outlet *outlet,
                      struct error *error) MUST_CHECK;

/* Lets what is at work come to an end, for at most so long. Nothing comes out any more. Before the
 * ledger is closed. */
void relay_stop(struct relay *relay, int64_t timeout_ms);

/* A term of stewardship begins: sets the cursor. */
enum status relay_begin(struct relay *relay, struct relay_way *way, struct error *error) MUST_CHECK;

/* Takes claims that are pending behind the cursor, in seq order, and moves it; they may be changed.
 * BUSY: too much is on its way, or the brokers are away; nothing was taken. CONFLICT: another
 * worker is the steward. Never blocks for long. */
enum status relay_carry(struct relay *relay, struct relay_way *way, struct claim *claims,
                        size_t count, struct error *error) MUST_CHECK;

/* Nothing is pending behind the cursor. May set it back, when what is pending before it did not
 * come out: true then, if looking again makes sense at once. */
bool relay_rest(struct relay *relay, struct relay_way *way, int64_t pending_count);

/* Of a policy that gets no new claims: OK once all that was ever carried has come out and is
 * settled. `claims` are what is pending behind the cursor. BUSY: not yet. */
enum status relay_pass(struct relay *relay, struct relay_way *way, struct claim *claims,
                       size_t count, struct error *error) MUST_CHECK;

/* Another worker is the steward now, or this one ends. */
void relay_leave(struct relay *relay, struct relay_way *way);

/* What became of claims that were issued, in the order of issuing; the gate has heard of it. */
void relay_settled(struct relay *relay, const struct claim *claims, const enum coupon_state *states,
                   size_t count);

/* Whether it works just now, and if not why; "ok" otherwise. Never blocks. */
bool relay_is_ready(struct relay *relay, struct error *words);

/* False: nothing is in between that could be counted. */
bool relay_count(struct relay *relay, struct relay_numbers *numbers);

/* Whether other services are told what becomes of coupons, through a relay with that URL. */
bool relay_tells(const char *url);

#endif
