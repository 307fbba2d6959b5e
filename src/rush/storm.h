/* storm.h: plans who presses the button when, presses it for everybody and writes down what each
 * was told.
 *
 * Times are nanoseconds from the start of the storm. The latency of a press counts from when it was
 * due, so that waiting for a free connection or a stalled server is in it.
 *
 * Threads: a storm belongs to one thread.
 */
#pragma once

#include <signal.h>
#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/metrics.h"
#include "rush/reply.h"
#include "rush/wire.h"

/* --- users' tokens: HS256 JWTs of one length, signed as fast as presses are sent --- */

#define SIGNER_KEY_MIN    32
#define SIGNER_TOKEN_SIZE 512

struct rush_signer {
    crypto_auth_hmacsha256_state keyed; /* with the key in it: copied per token */
    char claims[256];                   /* of the token; the user's number is written into it */
    size_t claims_length;
    size_t number_at;
    size_t token_length;
};

/* The audience is "" or what the aud is to be. INVALID: the key is too short, or the audience no
 * plain word. */
enum status rush_signer_init(struct rush_signer *signer, struct span key, const char *audience,
                             const char *run, int64_t expires_s, struct error *error) MUST_CHECK;

/* --- the plan: who presses the button when, worked out before it begins ---
 *
 * A press has a user and, in an open storm, the moment it is due, counted from the start; nothing
 * the server does moves it, so a server that stalls shows in every latency behind the stall. In a
 * closed storm a press is due when a connection is free. */

#define RUSH_USERS_MAX   10000000
#define RUSH_PRESSES_MAX 20000000

enum rush_shape {
    RUSH_CLOSED, /* as fast as the answers come */
    RUSH_STEADY, /* at one rate from the first moment on */
    RUSH_RAMP,   /* from nothing to the rate, evenly */
    RUSH_BURSTS, /* so many at once, again and again */
};

struct rush_plan_options {
    enum rush_shape shape;
    uint32_t user_count;
    double rate_per_s;         /* of STEADY, and the last one of RAMP */
    double duration_s;         /* 0: until every user has pressed once */
    uint32_t burst_size;       /* of BURSTS */
    int64_t burst_interval_ns; /* of BURSTS */
    double duplicate_share;    /* of the users, who press twice in quick succession */
    uint64_t seed;
};

struct rush_plan {
    struct rush_plan_options options;
    uint32_t *users; /* of each press, in order */
    size_t press_count;
};

/* Every user presses once, in order, some twice; when the duration asks for more presses, users
 * picked at random press again, and when it asks for fewer, the last users do not come. INVALID:
 * more than RUSH_PRESSES_MAX presses. */
enum status rush_plan_make(struct rush_plan *plan, const struct rush_plan_options *options,
                           struct error *error) MUST_CHECK;
void rush_plan_release(struct rush_plan *plan);

/* When a press is due, in nanoseconds from the start; 0 in a closed storm. */
int64_t rush_plan_due_ns(const struct rush_plan *plan, size_t press);

/* --- the storm --- */

/* One press, and its last answer. */
struct rush_press {
    uint32_t user;
    uint16_t status; /* of the last reply; 0: there was none */
    uint8_t outcome; /* enum rush_outcome */
    uint8_t tries;
    int32_t nth;
    bool is_issued;
    bool is_sent;
    bool may_be_done; /* a try before the last one had no answer that tells */
    int64_t seq;
    int64_t due_ns;
    int64_t sent_ns; /* the first time */
    int64_t answered_ns;
};

/* Why presses were refused, and how many: "401 UNAUTHORIZED". */
#define STORM_REFUSALS_MAX 8
struct storm_refusal {
    char text[48];
    uint64_t count;
};

struct storm_numbers {
    uint64_t press_count;
    uint64_t sent;
    uint64_t answered;
    uint64_t outcomes[RUSH_OUTCOMES];
    struct storm_refusal refusals[STORM_REFUSALS_MAX];
    size_t refusal_count;
    uint64_t retries;
    uint64_t failures; /* tries without an answer */
    int64_t elapsed_ns;
    int64_t slip_ns; /* the longest that a press was sent after it was due */
    uint64_t p50_us;
    uint64_t p99_us;
    struct wire_numbers wire;
};

struct storm_options {
    struct wire *wire;
    const struct rush_plan *plan;
    const struct wire_target *target;
    const char *run;            /* the run's name: 8 characters in the names of users and keys */
    struct rush_signer *signer; /* of the users' tokens; NULL: the target's token is everybody's */
    int64_t policy_id;
    bool sends_keys; /* an Idempotency-Key for every press, the same on every try of it */
    int retry_max;   /* how often a press is repeated that was not done, or may not have been */
    const volatile sig_atomic_t *stop; /* not 0: nobody presses any more */
    void (*tell)(void *context, const struct storm_numbers *numbers); /* a few times a second */
    void *context;
};

struct storm {
    struct storm_options options;
    struct rush_press *presses; /* in the order of the plan */
    size_t press_count;
    struct storm_numbers numbers;
    char first_failure[160]; /* why a press had no answer; "": none */

    /* its own */
    struct histogram latencies_us;
    int64_t start_ns;
    size_t next_press;
    struct storm_retry *retries; /* a heap */
    size_t retry_count;
    uint64_t random;
    struct buffer request;
    size_t user_at;
    size_t key_at;   /* 0: no key */
    size_t token_at; /* 0: the target's */
};

/* "rush-RRRRRRRR-NNNNNNNN" and a NUL. */
#define RUSH_USER_SIZE 23
void rush_user_name(char name[RUSH_USER_SIZE], const char *run, uint32_t user);

/* Runs to its end, or until it is stopped: then presses that were not sent stay so. */
enum status storm_run(struct storm *storm, const struct storm_options *options,
                      struct error *error) MUST_CHECK;
void storm_release(struct storm *storm);
