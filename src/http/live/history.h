/* history.h: what became of the claims of the last minutes, policy by policy, for those who
 * watch a drop.
 *
 * Each loop counts its own claims in tallies that nobody else touches, so that a claim costs a few
 * additions; a few times a second it adds them to the history that all loops share, under its
 * lock. What is kept is bounded: 15 minutes by the second, the first 30 seconds of a drop by
 * tenths, ten seconds of latencies, the last claims with their users masked; of the policies that
 * were claimed last.
 *
 * Threads: a live_tallies belongs to its loop; the history's functions may be called from any
 * thread.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/metrics.h"
#include "base/model.h"
#include "claim/totals.h"
#include "gate/gate.h"

#define TENTH_MS          100
#define LIVE_SECONDS      900
#define LIVE_TENTHS       300
#define LIVE_FEED         50
#define LIVE_POLICIES_MAX 128
#define LIVE_TALLIES      64 /* a power of two */
#define LIVE_TALLY_FEED   32 /* a power of two */

/* What boards count claims by; verdict.h says which result is which. */
enum live_outcome {
    LIVE_ISSUED,
    LIVE_ACCEPTED,
    LIVE_ALREADY_ISSUED,
    LIVE_SOLD_OUT,
    LIVE_OTHER,
    /* Within the last second only; later they are among the others. */
    LIVE_LIMIT_REACHED,
    LIVE_NOT_OPEN,
    LIVE_OUTCOMES,
};
#define LIVE_OUTCOMES_KEPT (LIVE_OTHER + 1)

/* A user as strangers may see it: the first two characters and the last, at most, and of a short
 * id less. */
struct live_mask {
    char head[2 * 4 + 1];
    char tail[4 + 1];
};
struct live_mask live_mask_of(const struct id *user);

/* One claim of the feed. */
struct live_claim {
    int64_t at_ms;
    int64_t seq;    /* 0: none */
    uint8_t result; /* enum claim_result */
    struct live_mask user;
};

#define LIVE_LATENCY_SECONDS 10

/* The latencies of one second's claims, in the buckets of a histogram of nanoseconds. */
struct live_latency {
    int64_t second;
    uint32_t counts[HISTOGRAM_BUCKETS];
};

/* --- a loop's own part --- */

struct live_tally {
    int64_t policy_id; /* 0: free */
    int64_t tenth;     /* wall ms / 100 that all of this happened in */
    bool has_begun;    /* someone was answered by what is in stock: the drop is open */
    uint32_t counts[LIVE_OUTCOMES];
    uint32_t results[CLAIM_RESULT_COUNT];
    uint32_t latencies[HISTOGRAM_BUCKETS];
    uint64_t feed_count;
    struct live_claim feed[LIVE_TALLY_FEED];
};

struct live_history;

struct live_tallies {
    struct live_history *history;
    uint64_t used; /* a bit for each tally that is not free */
    struct live_tally tallies[LIVE_TALLIES];
};

/* One claim that was answered; it came at `wall_ms`. `begins`: see live_tally.has_begun. */
struct live_answer {
    int64_t policy_id;
    int64_t wall_ms;
    uint64_t elapsed_ns;
    const struct id *user;
    int64_t seq;
    enum live_outcome outcome;
    uint8_t result;
    bool begins;
};
void live_tallies_count(struct live_tallies *tallies, const struct live_answer *answer);

/* Adds all of it to the history. `folded`, of LIVE_TALLIES places, gets the policies whose stock
 * may have changed; returns how many. */
size_t live_tallies_fold(struct live_tallies *tallies, int64_t *folded);

/* --- what is shared --- */

struct live_second {
    int64_t second;  /* 0: free */
    uint64_t change; /* the past's `changes` when it was last added to */
    uint32_t counts[LIVE_OUTCOMES_KEPT];
};

enum live_tenth_part { LIVE_TENTH_WON, LIVE_TENTH_SOLD_OUT, LIVE_TENTH_OTHER, LIVE_TENTH_PARTS };

struct live_tenth {
    uint64_t change;
    uint32_t counts[LIVE_TENTH_PARTS];
};

/* All that is kept of one policy. */
struct live_past {
    int64_t policy_id;
    int64_t touched_ms;
    uint64_t changes;    /* rises with all that is added */
    uint64_t received;   /* claims answered since this server started */
    int64_t first_tenth; /* of the first claim after the opening; 0: none yet */
    size_t tenth_count;  /* up to the last that has something in it */
    struct live_tenth tenths[LIVE_TENTHS];
    struct live_second seconds[LIVE_SECONDS];
    struct live_latency latencies[LIVE_LATENCY_SECONDS + 1];
    uint64_t feed_count; /* ever */
    struct live_claim feed[LIVE_FEED];
    struct gate_numbers look; /* when someone last looked, to tell what has happened since */
};

struct live_history {
    struct totals *totals; /* where claims are counted for good, too; NULL: nowhere */
    pthread_mutex_t lock;
    struct live_past *pasts[LIVE_POLICIES_MAX];
    size_t past_count;
};

void live_history_init(struct live_history *history, struct totals *totals);
void live_history_release(struct live_history *history);

/* A copy of what is kept; false, and all zeros but the id, when nothing is. */
bool live_history_copy(struct live_history *history, int64_t policy_id, struct live_past *copy);

/* Exchanges how the policy looks with how it looked; `before` is of no policy the first time. */
void live_history_observe(struct live_history *history, const struct gate_numbers *now,
                          int64_t now_ms, struct gate_numbers *before);

/* The quantile of the latencies of the ten seconds up to the last claim; 0 when there was none. */
double live_past_latency_ms(const struct live_past *past, double quantile);
