/* rush.c: `dibs rush`: storms a drop and proves that it was exact. */
#include "command/rush.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/random.h"
#include "version.h"

#define PAGE_MAX       (8 * 1024 * 1024)
#define POLL_MS        50
#define AUDIT_PATH_MAX 64

/* Set by the first Ctrl-C: nobody presses any more, and what was pressed is proven. */
static volatile sig_atomic_t rush_stop;

static void rush_on_signal(int number)
{
    rush_stop = 1;
}

/* --- telling how it goes --- */

/* Storms that run together would write over each other. */
static bool rush_is_watched(const struct rush *rush)
{
    return rush->gun == NULL && isatty(STDERR_FILENO) != 0;
}

static void rush_tell(void *context, const struct storm_numbers *numbers)
{
    const uint64_t *outcomes = numbers->outcomes;

    if (!rush_is_watched(context))
        return;
    fprintf(stderr,
            "\r\033[K%5.1f s  sent %" PRIu64 "/%" PRIu64 "  won %" PRIu64 "  sold out %" PRIu64
            "  errors %" PRIu64 "  p99 %.1f ms  late %.1f ms",
            (double)numbers->elapsed_ns / 1e9, numbers->sent, numbers->press_count,
            outcomes[RUSH_WON], outcomes[RUSH_SOLD_OUT],
            outcomes[RUSH_NONE] + outcomes[RUSH_BUSY] + numbers->failures,
            (double)numbers->p99_us / 1e3, (double)numbers->slip_ns / 1e6);
}

static void rush_tell_survey(void *context, size_t done, size_t count)
{
    if (rush_is_watched(context))
        fprintf(stderr, "\r\033[Klooking at what each of them holds: %zu of %zu", done, count);
}

static void rush_tell_nothing(const struct rush *rush)
{
    if (rush_is_watched(rush))
        fputs("\r\033[K", stderr);
}

/* --- the policy --- */

static bool rush_succeeded(const struct exchange *exchange)
{
    return exchange->answer.status >= 200 && exchange->answer.status <= 299;
}

static void rush_read_stock(yyjson_val *policy, struct rush_stock *stock)
{
    *stock = (struct rush_stock){
        .is_known = yyjson_is_int(yyjson_obj_get(policy, "remaining")),
        .total = yyjson_get_sint(yyjson_obj_get(policy, "total")),
        .remaining = yyjson_get_sint(yyjson_obj_get(policy, "remaining")),
        .pending = yyjson_get_sint(yyjson_obj_get(policy, "pending")),
        .issued = yyjson_get_sint(yyjson_obj_get(policy, "issued")),
    };
}

static void rush_read_policy(struct rush *rush, yyjson_val *policy)
{
    const char *name = yyjson_get_str(yyjson_obj_get(policy, "name"));

    rush->policy_id = yyjson_get_sint(yyjson_obj_get(policy, "id"));
    snprintf(rush->policy_name, sizeof(rush->policy_name), "%s", name != NULL ? name : "");
    rush->evidence.per_user_limit = yyjson_get_sint(yyjson_obj_get(policy, "per_user_limit"));
    if (rush->evidence.per_user_limit < 1)
        rush->evidence.per_user_limit = 1;
    rush_read_stock(policy, &rush->evidence.before);
}

/* Makes the storm's own policy: of so many coupons, or a copy of the one that is in the exchange.
 */
static int rush_create(struct rush *rush, yyjson_val *original)
{
    struct exchange *exchange = &rush->exchange;
    char name[POLICY_NAME_SIZE + 16] = "dibs rush";
    struct buffer body;
    int64_t total = rush->options.total;
    int64_t limit = rush->options.per_user_limit;

    if (original != NULL) {
        const char *copied = yyjson_get_str(yyjson_obj_get(original, "name"));
        /* A name has at most 200 characters; this many bytes are never more. */
        snprintf(name, sizeof(name), "Rehearsal: %.180s", copied != NULL ? copied : "");
        while (name[0] != '\0' && ((unsigned char)name[strlen(name) - 1] & 0xC0) == 0x80)
            name[strlen(name) - 1] = '\0'; /* not in the middle of a character */
        total = yyjson_get_sint(yyjson_obj_get(original, "total"));
        limit = yyjson_get_sint(yyjson_obj_get(original, "per_user_limit"));
    }
    buffer_init(&body, 4096);
    buffer_append_literal(&body, "{");
    json_put(&body, "name", name);
    buffer_printf(&body,
                  ",\"discount\":{\"type\":\"percent\",\"value\":10},\"total\":%" PRId64
                  ",\"per_user_limit\":%" PRId64 "}",
                  total, limit > 0 ? limit : 1);
    bool is_answered = exchange_ask(
        exchange, &(struct client_request){
                      .method = "POST", .path = "/v1/policies", .body = {body.bytes, body.length}});
    buffer_release(&body);
    if (!is_answered)
        return COMMAND_FAILED;
    if (!rush_succeeded(exchange))
        return exchange_refused(exchange);
    rush->evidence.is_alone = true;
    rush_read_policy(rush, exchange->root);
    return COMMAND_FINE;
}

static bool rush_ask_policy(struct rush *rush, int64_t policy_id)
{
    char path[64];

    snprintf(path, sizeof(path), "/v1/policies/%" PRId64, policy_id);
    return exchange_ask(&rush->exchange, &(struct client_request){.method = "GET", .path = path});
}

static int rush_find_policy(struct rush *rush)
{
    if (rush->options.policy_id == 0)
        return rush_create(rush, NULL);
    if (!rush_ask_policy(rush, rush->options.policy_id))
        return COMMAND_FAILED;
    if (!rush_succeeded(&rush->exchange))
        return exchange_refused(&rush->exchange);
    if (!rush->options.is_rehearsal) {
        rush_read_policy(rush, rush->exchange.root);
        return COMMAND_FINE;
    }
    yyjson_doc *original = rush->exchange.document; /* outlives the next answer */
    rush->exchange.document = NULL;
    int code = rush_create(rush, yyjson_doc_get_root(original));
    yyjson_doc_free(original);
    return code;
}

/* Closes the storm's own policy; its coupons stay in the ledger. */
static void rush_end_policy(struct rush *rush)
{
    char path[64];

    if (!rush->evidence.is_alone || rush->options.keeps_policy || rush->policy_id == 0)
        return;
    snprintf(path, sizeof(path), "/v1/policies/%" PRId64, rush->policy_id);
    if (!exchange_ask(&rush->exchange,
                      &(struct client_request){.method = "DELETE", .path = path}) ||
        !rush_succeeded(&rush->exchange))
        fprintf(stderr, "policy %" PRId64 " is still open: `dibs policy close %" PRId64 "`\n",
                rush->policy_id, rush->policy_id);
}

/* --- the storm --- */

/* Sleeps until the storm is to begin. */
static void rush_await_start(const struct rush *rush)
{
    char byte;

    if (rush->gun != NULL) {
        close(rush->gun->ready);
        while (!rush_stop && read(rush->gun->go, &byte, 1) < 0 && errno == EINTR)
            continue;
    }
    while (!rush_stop) {
        int64_t left_ms = rush->options.start_at_ms - clock_wall_ms();
        if (left_ms <= 0)
            break;
        if (rush_is_watched(rush))
            fprintf(stderr, "\r\033[K%" PRId64 " s to go", left_ms / 1000);
        int64_t wait_ms = left_ms < 200 ? left_ms : 200;
        nanosleep(&(struct timespec){.tv_nsec = wait_ms * 1000000}, NULL);
    }
}

static int rush_storm(struct rush *rush)
{
    struct error error;
    struct storm_options options = {
        .wire = rush->wire,
        .plan = &rush->plan,
        .target = &rush->target,
        .run = rush->run,
        .signer = rush->options.user_key_file != NULL ? &rush->signer : NULL,
        .policy_id = rush->policy_id,
        .sends_keys = rush->evidence.per_user_limit > 1,
        .retry_max = rush->options.retry_max,
        .stop = &rush_stop,
        .tell = rush_tell,
        .context = rush,
    };

    rush_await_start(rush);
    rush->started_at_ms = clock_wall_ms();
    enum status status = storm_run(&rush->storm, &options, &error);
    rush_tell_nothing(rush);
    if (status != STATUS_OK)
        return command_fail(rush->exchange.call, "%s", error.text);
    rush->is_stopped = rush_stop != 0;
    rush_stop = 0; /* a second one ends the proof as well */
    rush->evidence.presses = rush->storm.presses;
    rush->evidence.press_count = rush->storm.press_count;
    return COMMAND_FINE;
}

/* --- what is there afterwards --- */

static int rush_compare_users(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

/* Everybody who was told that they hold something, or whose press has no verdict. */
static size_t rush_list_users(const struct rush *rush, uint32_t *users)
{
    size_t count = 0;
    size_t kept = 0;

    for (size_t i = 0; i < rush->storm.press_count; i++) {
        const struct rush_press *press = &rush->storm.presses[i];
        if (press->is_sent && press->outcome != RUSH_SOLD_OUT && press->outcome != RUSH_LIMIT &&
            press->outcome != RUSH_REFUSED)
            users[count++] = press->user;
    }
    if (count > 1)
        qsort(users, count, sizeof(*users), rush_compare_users);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || users[kept - 1] != users[i])
            users[kept++] = users[i];
    return kept;
}

static int rush_holdings_at_users(struct rush *rush)
{
    struct error error;
    uint32_t *users = malloc((rush->storm.press_count + 1) * sizeof(*users));

    if (users == NULL)
        return command_fail(rush->exchange.call, "no memory to look at the users");
    struct holdings_options options = {
        .wire = rush->wire,
        .target = &rush->target,
        .run = rush->run,
        .policy_id = rush->policy_id,
        .users = users,
        .user_count = rush_list_users(rush, users),
        .timeout_ms = rush->options.settle_ms,
        .stop = &rush_stop,
        .tell = rush_tell_survey,
        .context = rush,
    };
    enum status status = rush_holdings(&rush->holdings, &options, &error);
    free(users);
    rush_tell_nothing(rush);
    rush->evidence.holdings = &rush->holdings;
    return status == STATUS_OK ? COMMAND_FINE : command_fail(rush->exchange.call, "%s", error.text);
}

/* The policy's numbers, when nothing is pending any more or the time is up. */
static void rush_ask_stock(struct rush *rush)
{
    int64_t until_ms = clock_monotonic_ms() + rush->options.settle_ms;

    for (;;) {
        struct rush_stock *after = &rush->evidence.after;
        if (!rush_ask_policy(rush, rush->policy_id) || !rush_succeeded(&rush->exchange))
            return;
        rush_read_stock(rush->exchange.root, after);
        bool is_settled = after->pending == 0 && after->remaining + after->issued == after->total &&
                          (!rush->evidence.is_alone || after->issued >= rush->won_count);
        if (is_settled || clock_monotonic_ms() >= until_ms || rush_stop)
            return;
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000}, NULL);
    }
}

/* "the audit finds missing 3, remaining 1": by the names of `dibs audit`. */
static void rush_read_findings(struct rush_evidence *evidence, yyjson_val *findings)
{
    const char *separator = " ";
    size_t size = sizeof(evidence->audit_text);
    size_t length = (size_t)snprintf(evidence->audit_text, size, "the audit finds");
    yyjson_val *finding;
    yyjson_arr_iter each;

    yyjson_arr_iter_init(findings, &each);
    while ((finding = yyjson_arr_iter_next(&each)) != NULL && length < size) {
        const char *check = yyjson_get_str(yyjson_obj_get(finding, "check"));
        length += (size_t)snprintf(evidence->audit_text + length, size - length, "%s%s %" PRId64,
                                   separator, check != NULL ? check : "something",
                                   yyjson_get_sint(yyjson_obj_get(finding, "count")));
        separator = ", ";
    }
    if (yyjson_arr_size(findings) == 0)
        snprintf(evidence->audit_text, size, "the audit says that it is not in order");
}

/* What the server's own audit says; one that has none says nothing. */
static void rush_ask_audit(struct rush *rush)
{
    struct rush_evidence *evidence = &rush->evidence;
    char path[AUDIT_PATH_MAX];

    snprintf(path, sizeof(path), "/v1/audit?policy=%" PRId64, rush->policy_id);
    if (!exchange_ask(&rush->exchange, &(struct client_request){.method = "GET", .path = path}) ||
        !rush_succeeded(&rush->exchange))
        return;
    yyjson_val *item = yyjson_arr_get_first(yyjson_obj_get(rush->exchange.root, "items"));
    if (!yyjson_is_bool(yyjson_obj_get(item, "ok")))
        return;
    evidence->audit =
        yyjson_get_bool(yyjson_obj_get(item, "ok")) ? RUSH_AUDIT_FINE : RUSH_AUDIT_BROKEN;
    evidence->audit_gap_count = yyjson_get_sint(yyjson_obj_get(item, "unaccounted"));
    rush_read_findings(evidence, yyjson_obj_get(item, "findings"));
}

/* --- the topic of claims --- */

static int rush_open_topic(struct rush *rush)
{
    struct error error;
    const char *url = rush->options.topics_url;

    if (url == NULL)
        return COMMAND_FINE;
    if (kafka_target_init(&rush->kafka, url, getenv("DIBS_RELAY_PASSWORD"), &error) != STATUS_OK)
        return command_usage(rush->exchange.call, "--topics: %s", error.text);
    const struct kafka_names names = {.pended = getenv("DIBS_KAFKA_TOPIC_PENDED")};
    if (kafka_target_name(&rush->kafka, &names, &error) != STATUS_OK)
        return command_usage(rush->exchange.call, "--topics: %s", error.text);
    enum status status =
        kafka_reader_open(&rush->reader, &rush->kafka, KAFKA_COUPON_PENDED, &error);
    return status == STATUS_OK ? COMMAND_FINE
                               : command_fail(rush->exchange.call, "--topics: %s", error.text);
}

static void rush_close_topic(struct rush *rush)
{
    kafka_reader_close(rush->reader);
    kafka_target_release(&rush->kafka);
}

/* What the storm has brought; nothing is pending any more, so all of it is there. */
static int rush_read_topic(struct rush *rush)
{
    struct kafka_found found;
    struct error error;
    char key[24];

    if (rush->reader == NULL)
        return COMMAND_FINE;
    snprintf(key, sizeof(key), "%" PRId64, rush->policy_id);
    if (kafka_reader_find(rush->reader, key, rush->options.settle_ms, &found, &error) != STATUS_OK)
        return command_fail(rush->exchange.call, "--topics: %s", error.text);
    rush->topic = (struct rush_topic){
        .name = rush->kafka.topics[KAFKA_COUPON_PENDED],
        .message_count = found.count,
        .partition = found.partition,
        .first_offset = found.first_offset,
        .last_offset = found.last_offset,
    };
    return COMMAND_FINE;
}

/* --- the verdict --- */

/* A page that cannot be written is told of before the storm, not after it. */
static int rush_check_page(const struct command_call *call, const char *path)
{
    bool is_there = path != NULL && access(path, F_OK) == 0;
    FILE *file = path != NULL ? fopen(path, "a") : NULL;

    if (path == NULL)
        return COMMAND_FINE;
    if (file == NULL)
        return command_fail(call, "%s cannot be written: %s", path, strerror(errno));
    fclose(file);
    if (!is_there)
        unlink(path);
    return COMMAND_FINE;
}

static int rush_write_page(const struct rush *rush, const struct rush_report *report)
{
    struct buffer page;
    const char *path = rush->options.report_path;

    buffer_init(&page, PAGE_MAX);
    rush_report_page(&page, report);
    FILE *file = fopen(path, "w");
    bool is_written = file != NULL && fwrite(page.bytes, 1, page.length, file) == page.length;
    is_written = (file == NULL || fclose(file) == 0) && is_written;
    buffer_release(&page);
    if (!is_written)
        return command_fail(rush->exchange.call, "%s cannot be written: %s", path, strerror(errno));
    fprintf(stderr, "The report is in %s\n", path);
    return COMMAND_FINE;
}

static int rush_judge(struct rush *rush)
{
    struct rush_figures figures;
    struct rush_proof proof;
    struct error error;
    struct buffer out;
    enum status status = rush_prove(&proof, &rush->evidence, &error);

    if (status == STATUS_OK)
        status = rush_figures_make(&figures, rush->storm.presses, rush->storm.press_count,
                                   proof.sold_out_ns, &error);
    if (status != STATUS_OK)
        return command_fail(rush->exchange.call, "%s", error.text);
    struct rush_report report = {
        .url = rush->exchange.client.url,
        .policy_id = rush->policy_id,
        .policy_name = rush->policy_name,
        .is_rehearsal = rush->options.is_rehearsal,
        .is_stopped = rush->is_stopped,
        .started_at_ms = rush->started_at_ms,
        .user_count = rush->plan.options.user_count,
        .connection_count = rush->options.connection_count,
        .plan = &rush->plan,
        .numbers = &rush->storm.numbers,
        .evidence = &rush->evidence,
        .proof = &proof,
        .figures = &figures,
        .first_failure = rush->storm.first_failure,
        .topic = rush->reader != NULL ? &rush->topic : NULL,
        .p99_target_ms = rush->options.p99_target_ms,
    };
    buffer_init(&out, PAGE_MAX);
    if (rush->exchange.json)
        rush_report_json(&out, &report);
    else
        rush_report_text(&out, &report, terminal_wants_colour(stdout));
    command_print(&out);
    int code = rush->options.report_path != NULL ? rush_write_page(rush, &report) : COMMAND_FINE;
    bool misses = rush_report_misses(&report);
    rush_figures_release(&figures);
    if (proof.is_broken)
        return COMMAND_GUARANTEE_BROKEN;
    if (!proof.is_exact || code != COMMAND_FINE)
        return COMMAND_FAILED;
    return misses ? COMMAND_TARGET_MISSED : COMMAND_FINE;
}

/* --- all of it --- */

static int rush_prepare(struct rush *rush)
{
    struct error error;
    struct wire_options options = {
        .host = rush->exchange.client.host,
        .port = rush->exchange.client.port,
        .is_tls = strncmp(rush->exchange.client.url, "https:", strlen("https:")) == 0,
        .connection_count = rush->options.connection_count,
        .timeout_ms = rush->exchange.client.timeout_ms,
    };
    uint64_t number;

    const struct client *client = &rush->exchange.client;
    rush->target = (struct wire_target){.base = client->base,
                                        .authority = client->authority,
                                        .token = client->token,
                                        .agent = "dibs-rush/" DIBS_VERSION};
    random_bytes(&number, sizeof(number));
    snprintf(rush->run, sizeof(rush->run), "%08x", (unsigned)(number & 0xffffffff));
    int code = rush_open_topic(rush);

    if (code == COMMAND_FINE)
        code = rush_take_tokens(rush);
    if (code == COMMAND_FINE)
        code = rush_find_policy(rush);
    if (code != COMMAND_FINE)
        return code;
    rush->options.plan.seed = number;
    if (rush->options.plan.user_count == 0) {
        int64_t users = 2 * rush->evidence.before.remaining;
        rush->options.plan.user_count = (uint32_t)(users < 100              ? 100
                                                   : users > RUSH_USERS_MAX ? RUSH_USERS_MAX
                                                                            : users);
    }
    if (rush_plan_make(&rush->plan, &rush->options.plan, &error) != STATUS_OK)
        return command_usage(rush->exchange.call, "%s", error.text);
    if (wire_open(&rush->wire, &options, &error) != STATUS_OK)
        return command_fail(rush->exchange.call, "%s: %s", rush->exchange.client.url, error.text);
    return COMMAND_FINE;
}

static int rush_all(struct rush *rush)
{
    struct sigaction action = {.sa_handler = rush_on_signal};
    struct sigaction before;
    int code = rush_prepare(rush);

    if (code != COMMAND_FINE)
        return code;
    sigaction(SIGINT, &action, &before);
    code = rush_storm(rush);
    rush->won_count = (int64_t)rush->storm.numbers.outcomes[RUSH_WON];
    if (code == COMMAND_FINE)
        code = rush_holdings_at_users(rush);
    if (code == COMMAND_FINE) {
        rush_ask_stock(rush);
        rush_ask_audit(rush);
        code = rush_read_topic(rush);
    }
    if (code == COMMAND_FINE)
        code = rush_judge(rush);
    sigaction(SIGINT, &before, NULL);
    return code;
}

int rush_one(const struct command_call *call, const struct rush_gun *gun)
{
    struct rush rush = {.gun = gun};
    int code = rush_read_options(call, &rush.options);

    if (code != COMMAND_FINE)
        return code;
    code = rush_check_page(call, rush.options.report_path);
    if (code != COMMAND_FINE)
        return code;
    code = exchange_begin(&rush.exchange, call, EXCHANGE_ADMIN);
    if (code != COMMAND_FINE)
        return code;
    rush_stop = 0;
    code = rush_all(&rush);
    rush_end_policy(&rush);
    rush_close_topic(&rush);
    wire_close(rush.wire);
    storm_release(&rush.storm);
    rush_holdings_release(&rush.holdings);
    rush_plan_release(&rush.plan);
    exchange_end(&rush.exchange);
    return code;
}

int command_rush(const struct command_call *call)
{
    struct rush_options options;
    int code = rush_read_options(call, &options);

    if (code != COMMAND_FINE)
        return code;
    return options.policy_count == 1 ? rush_one(call, NULL)
                                     : rush_many(call, (size_t)options.policy_count);
}
