/* rush_options.c: the flags of `dibs rush`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "command/rush.h"

#define CONNECTIONS_DEFAULT 256
#define TOTAL_DEFAULT       1000
#define SETTLE_DEFAULT_MS   30000
#define EVERY_DEFAULT_MS    1000
#define RETRY_MAX           100
#define RATE_MAX            10000000

/* "10%" */
static int rush_take_share(const struct command_call *call, double *share)
{
    const char *text = command_option(call, "duplicates");
    char *end = NULL;
    if (text == NULL)
        return COMMAND_FINE;
    double percent = strtod(text, &end);
    if (end == text || strcmp(end, "%") != 0 || !(percent >= 0 && percent <= 100))
        return command_usage(call, "--duplicates: \"%s\" is not a percentage, as in 10%%", text);
    *share = percent / 100;
    return COMMAND_FINE;
}

static int rush_take_start(const struct command_call *call, int64_t *start_at_ms)
{
    const char *text = command_option(call, "at");
    if (text != NULL && !clock_parse_rfc3339(span_of(text), start_at_ms)) {
        return command_usage(call,
                             "--at: \"%s\" is not a time with its offset, as in "
                             "2026-11-15T12:00:00+09:00",
                             text);
    }
    /* Not at once instead: a slip in the date or the offset would give real coupons away. */
    if (text != NULL && *start_at_ms < clock_wall_ms())
        return command_usage(call, "--at: %s is over", text);
    return COMMAND_FINE;
}

/* Several at once share the connections. */
static int rush_take_many(const struct command_call *call, struct rush_options *options)
{
    int code = command_number(call, "policies", 1, RUSH_POLICIES_MAX, &options->policy_count);
    if (code != COMMAND_FINE || options->policy_count == 1)
        return code;
    if (options->policy_id != 0)
        return command_usage(call, "--policies goes with --total: each storm makes its own");
    if (options->report_path != NULL)
        return command_usage(call,
                             "--report shows one policy; leave out --policies, or use --json");
    options->connection_count /= (size_t)options->policy_count;
    if (options->connection_count == 0)
        options->connection_count = 1;
    return COMMAND_FINE;
}

/* Which shape the flags ask for; those that do not go together are refused. */
static int rush_take_shape(const struct command_call *call, struct rush_plan_options *plan)
{
    int64_t rate = 0;
    int64_t bursts = 0;
    int64_t duration_ms = 0;
    int64_t every_ms = EVERY_DEFAULT_MS;
    bool is_closed = command_option(call, "closed") != NULL;
    bool is_ramp = command_option(call, "ramp") != NULL;
    int code = command_number(call, "rate", 1, RATE_MAX, &rate);
    if (code == COMMAND_FINE)
        code = command_number(call, "bursts", 1, RUSH_PRESSES_MAX, &bursts);
    if (code == COMMAND_FINE)
        code = command_duration(call, "duration", 1, &duration_ms);
    if (code == COMMAND_FINE)
        code = command_duration(call, "every", 1, &every_ms);
    if (code != COMMAND_FINE)
        return code;
    if (is_closed + (rate > 0) + (bursts > 0) > 1)
        return command_usage(call, "--rate, --bursts and --closed do not go together");
    if (is_ramp && rate == 0)
        return command_usage(call, "--ramp needs the --rate it leads to");
    if (bursts == 0 && command_option(call, "every") != NULL)
        return command_usage(call, "--every needs the --bursts it is between");
    if (duration_ms > 0 && rate == 0 && bursts == 0) {
        return command_usage(call, "--duration needs --rate or --bursts; without them the storm is "
                                   "over when everybody has an answer");
    }
    plan->shape = rate > 0     ? is_ramp ? RUSH_RAMP : RUSH_STEADY
                  : bursts > 0 ? RUSH_BURSTS
                               : RUSH_CLOSED;
    plan->rate_per_s = (double)rate;
    plan->duration_s = (double)duration_ms / 1000;
    plan->burst_size = (uint32_t)bursts;
    plan->burst_interval_ns = every_ms * 1000000;
    return COMMAND_FINE;
}

static int rush_take_target(const struct command_call *call, struct rush_options *options)
{
    const char *policy = command_option(call, "policy");
    int code = command_number(call, "total", 1, POLICY_TOTAL_MAX, &options->total);
    if (code == COMMAND_FINE && policy != NULL)
        code = exchange_check_policy(call, policy);
    if (code == COMMAND_FINE) {
        code =
            command_number(call, "per-user-limit", 1, PER_USER_LIMIT_MAX, &options->per_user_limit);
    }
    if (code != COMMAND_FINE)
        return code;
    options->policy_id = policy != NULL ? strtoll(policy, NULL, 10) : 0;
    options->is_rehearsal = command_option(call, "rehearse") != NULL;
    options->keeps_policy = command_option(call, "keep") != NULL;
    if (policy != NULL && options->total > 0) {
        return command_usage(call, "say either --policy N, which is there, or --total N, for one "
                                   "that is made and closed again");
    }
    if (options->is_rehearsal && policy == NULL)
        return command_usage(call, "--rehearse needs the --policy to rehearse");
    if (policy == NULL && options->total == 0)
        options->total = TOTAL_DEFAULT;
    if (policy != NULL && command_option(call, "per-user-limit") != NULL) {
        return command_usage(call, "--per-user-limit goes with --total; policy %s has its own",
                             policy);
    }
    return COMMAND_FINE;
}

static int rush_take_user_key(const struct command_call *call, struct rush_options *options)
{
    options->user_key_file = command_option(call, "user-key-file");
    options->user_audience = command_option(call, "user-audience");
    if (options->user_audience != NULL && options->user_key_file == NULL)
        return command_usage(call, "--user-audience goes with --user-key-file");
    return COMMAND_FINE;
}

int rush_read_options(const struct command_call *call, struct rush_options *options)
{
    int64_t users = 0;
    int64_t connections = CONNECTIONS_DEFAULT;
    int64_t retries = 0;
    *options = (struct rush_options){
        .per_user_limit = 1, .settle_ms = SETTLE_DEFAULT_MS, .policy_count = 1};
    options->report_path = command_option(call, "report");
    options->topics_url = command_option(call, "topics");
    int code = rush_take_target(call, options);
    if (code == COMMAND_FINE)
        code = rush_take_user_key(call, options);
    if (code == COMMAND_FINE)
        code = command_number(call, "users", 1, RUSH_USERS_MAX, &users);
    if (code == COMMAND_FINE)
        code = command_number(call, "connections", 1, WIRE_CONNECTIONS_MAX, &connections);
    if (code == COMMAND_FINE)
        code = command_number(call, "retry", 0, RETRY_MAX, &retries);
    if (code == COMMAND_FINE)
        code = command_duration(call, "settle", 1, &options->settle_ms);
    if (code == COMMAND_FINE)
        code = command_duration(call, "p99", 1, &options->p99_target_ms);
    if (code == COMMAND_FINE)
        code = rush_take_share(call, &options->plan.duplicate_share);
    if (code == COMMAND_FINE)
        code = rush_take_start(call, &options->start_at_ms);
    if (code == COMMAND_FINE)
        code = rush_take_shape(call, &options->plan);
    options->plan.user_count = (uint32_t)users;
    options->connection_count = (size_t)connections;
    options->retry_max = (int)retries;
    return code == COMMAND_FINE ? rush_take_many(call, options) : code;
}

/* --- tokens: one for each user, where there is a key --- */

#define KEY_LENGTH_MAX 4096
#define TOKENS_LAST_S  86400

/* The key of users' tokens, as the server reads its own: without a newline at the end. */
static int rush_take_key(struct rush *rush)
{
    char bytes[KEY_LENGTH_MAX];
    struct error error;
    const char *path = rush->options.user_key_file;
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return command_fail(rush->exchange.call, "%s: %s", path, strerror(errno));
    size_t length = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    while (length > 0 && (bytes[length - 1] == '\n' || bytes[length - 1] == '\r'))
        length--;
    const char *audience = rush->options.user_audience;
    enum status status = rush_signer_init(&rush->signer, (struct span){bytes, length},
                                          audience != NULL ? audience : "", rush->run,
                                          clock_wall_ms() / 1000 + TOKENS_LAST_S, &error);
    explicit_bzero(bytes, sizeof(bytes));
    return status == STATUS_OK ? COMMAND_FINE
                               : command_fail(rush->exchange.call, "%s: %s", path, error.text);
}

/* Nobody could press: said before a policy is made. A server that does not tell is stormed. */
static int rush_check_tokens(struct rush *rush)
{
    if (!exchange_ask(&rush->exchange,
                      &(struct client_request){.method = "GET", .path = "/v1/session"}))
        return COMMAND_FAILED;
    bool takes_tokens = rush->exchange.answer.status == 200 &&
                        yyjson_is_true(yyjson_obj_get(rush->exchange.root, "user_tokens"));
    if (takes_tokens && rush->options.user_key_file == NULL)
        return command_fail(rush->exchange.call,
                            "this server takes users' own tokens only; give the key that signs "
                            "them with --user-key-file");
    return COMMAND_FINE;
}

int rush_take_tokens(struct rush *rush)
{
    int code = rush->options.user_key_file != NULL ? rush_take_key(rush) : COMMAND_FINE;

    return code == COMMAND_FINE ? rush_check_tokens(rush) : code;
}
