/* rush.h: what `dibs rush` was asked for, and what it holds while it runs.
 *
 * Threads: the main thread.
 */
#pragma once

#include "command/exchange.h"
#include "event/kafka/reader.h"
#include "rush/holdings.h"
#include "rush/prove.h"
#include "rush/report.h"
#include "rush/storm.h"
#include "rush/wire.h"

#define RUSH_POLICIES_MAX 64

/* For storms that begin together: `ready` is closed when this one could begin, and it begins when
 * `go` ends. */
struct rush_gun {
    int ready;
    int go;
};

struct rush_options {
    int64_t policy_id; /* 0: the storm makes its own */
    int64_t total;     /* of its own */
    int64_t per_user_limit;
    bool is_rehearsal;
    bool keeps_policy;
    size_t connection_count;
    int retry_max;
    int64_t start_at_ms; /* wall; 0: at once */
    int64_t settle_ms;
    int64_t p99_target_ms; /* 0: none */
    const char *report_path;
    const char *user_key_file; /* with the key of users' tokens; NULL: none */
    const char *user_audience;
    const char *topics_url; /* the Kafka that claims go through; NULL: nobody asks */
    int64_t policy_count;   /* storms at once */
    struct rush_plan_options plan;
};

struct rush {
    struct rush_options options;
    struct exchange exchange;
    int64_t policy_id;
    char policy_name[POLICY_NAME_SIZE];
    char run[9];
    struct rush_plan plan;
    struct wire *wire;
    struct wire_target target;
    struct rush_signer signer; /* where there is a key */
    struct storm storm;
    struct rush_holdings holdings;
    struct rush_evidence evidence;
    int64_t started_at_ms;
    int64_t won_count;
    bool is_stopped;
    const struct rush_gun *gun; /* NULL: it begins alone */
    struct kafka_target kafka;
    struct kafka_reader *reader; /* NULL: nobody asks */
    struct rush_topic topic;
};

/* Reads the flags. COMMAND_FINE, or COMMAND_USAGE in words. */
int rush_read_options(const struct command_call *call, struct rush_options *options);

/* Reads the key of users' tokens, if there is one, and asks the server whether one is needed. */
int rush_take_tokens(struct rush *rush);

/* One storm, its report on stdout; the exit code. */
int rush_one(const struct command_call *call, const struct rush_gun *gun);

/* So many at once, each of a policy of its own. */
int rush_many(const struct command_call *call, size_t count);
