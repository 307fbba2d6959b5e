/* rush.h: what `dibs rush` was asked for, and what it holds while it runs.
 *
 * Threads: the main thread.
 */
#pragma once

#include "base/model.h"
#include "command/exchange.h"
#include "rush/holdings.h"
#include "rush/prove.h"
#include "rush/report.h"
#include "rush/storm.h"
#include "rush/wire.h"

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
    struct storm storm;
    struct rush_holdings holdings;
    struct rush_evidence evidence;
    int64_t started_at_ms;
    int64_t won_count;
    bool is_stopped;
};

/* Reads the flags. COMMAND_FINE, or COMMAND_USAGE in words. */
int rush_read_options(const struct command_call *call, struct rush_options *options);
