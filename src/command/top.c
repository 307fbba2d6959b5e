/* top.c: `dibs top`: watches a server and its drops live. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "command/exchange.h"
#include "top/screen.h"
#include "top/view.h"

#define INTERVAL_MS   1000
#define ONCE_MS       1000
#define WATCH_MS      2000
#define OUTPUT_MAX    (16 * 1024 * 1024)
#define PAGE_PATH_MAX 1200

static volatile sig_atomic_t top_stop;

static void top_on_signal(int number)
{
    top_stop = 1;
}

struct top {
    struct exchange exchange;
    struct top_view view;
    int64_t interval_ms;
    size_t selected; /* where the selected policy is shown; it moves with its policy */
    int64_t selected_id;
    char footer[TOP_NAME_SIZE + 64]; /* a question, or what came of the last one */
    enum top_key asked;              /* PAUSE or RESUME while the question stands; else NONE */
    int64_t asked_id;                /* of the policy that it is about */
};

/* --- looking --- */

/* The answer's JSON, or NULL with the words in `snapshot`. 503 is an answer as well: of /readyz. */
static yyjson_doc *top_get(struct top *top, const char *path, struct top_snapshot *snapshot)
{
    struct client_answer answer;
    struct error error = {""};
    yyjson_doc *document = NULL;
    enum status status =
        client_send(&top->exchange.client, &(struct client_request){.method = "GET", .path = path},
                    &answer, &error);

    if (status == STATUS_OK && (answer.status == 200 || answer.status == 503))
        document = yyjson_read(answer.body.bytes, answer.body.length, YYJSON_READ_NOFLAG);
    if (status != STATUS_OK)
        snprintf(snapshot->trouble, sizeof(snapshot->trouble), "%.250s", error.text);
    else if (document == NULL)
        snprintf(snapshot->trouble, sizeof(snapshot->trouble), "%s answered %d%s", path,
                 answer.status,
                 answer.status == 401 ? ": set DIBS_ADMIN_TOKEN or use --token-file" : "");
    client_answer_release(&answer);
    return document;
}

static bool top_fetch_policies(struct top *top, struct top_snapshot *snapshot)
{
    char path[PAGE_PATH_MAX] = "/v1/policies?limit=1000";

    for (;;) {
        yyjson_doc *document = top_get(top, path, snapshot);
        yyjson_val *root = yyjson_doc_get_root(document);
        /* A 503 says that the database is away, for example. */
        snapshot->lacks_policies = yyjson_is_obj(root) && yyjson_obj_get(root, "items") == NULL;
        if (!yyjson_is_obj(root) || snapshot->lacks_policies) {
            yyjson_doc_free(document);
            return snapshot->lacks_policies;
        }
        top_snapshot_read_policies(snapshot, root);
        const char *next = yyjson_get_str(yyjson_obj_get(root, "next"));
        /* Cursors are made of letters, digits, - and _. */
        bool has_more = next != NULL && strlen(next) < 1000;
        if (has_more)
            snprintf(path, sizeof(path), "/v1/policies?limit=1000&after=%s", next);
        yyjson_doc_free(document);
        if (!has_more)
            return true;
    }
}

static void top_fetch_metrics(struct top *top, struct top_snapshot *snapshot)
{
    struct client_answer answer;
    struct error error;

    if (client_send(&top->exchange.client,
                    &(struct client_request){.method = "GET", .path = "/metrics?fresh=true"},
                    &answer, &error) == STATUS_OK &&
        answer.status == 200)
        top_snapshot_read_metrics(snapshot, buffer_span(&answer.body));
    client_answer_release(&answer);
}

static void top_select(struct top *top, size_t place)
{
    top->selected = place;
    if (place < top->view.now.policy_count)
        top->selected_id = top_view_policy(&top->view, place)->id;
}

static void top_fetch(struct top *top)
{
    struct top_snapshot snapshot = {.wall_ms = clock_wall_ms()};
    yyjson_doc *readiness = top_get(top, "/readyz", &snapshot);

    if (readiness != NULL) {
        top_snapshot_read_readiness(&snapshot, yyjson_doc_get_root(readiness));
        top_fetch_metrics(top, &snapshot);
        snapshot.is_reachable = top_fetch_policies(top, &snapshot);
    }
    yyjson_doc_free(readiness);
    snapshot.seen_at_ms = clock_monotonic_ms();
    top_view_take(&top->view, &snapshot);
    top->selected = top_view_place(&top->view, top->selected_id, top->selected);
    top_select(top, top->selected);
}

/* --- pausing and resuming --- */

static void top_ask(struct top *top, enum top_key key)
{
    if (top->view.now.policy_count == 0)
        return;
    const struct top_policy *policy = top_view_policy(&top->view, top->selected);
    top->asked = key;
    top->asked_id = policy->id;
    snprintf(top->footer, sizeof(top->footer), "%s policy %" PRId64 " (%.200s)? y/N ",
             key == TOP_KEY_PAUSE ? "Pause" : "Resume", policy->id, policy->name);
}

static void top_change(struct top *top)
{
    bool pauses = top->asked == TOP_KEY_PAUSE;
    struct client_answer answer;
    struct error error;
    char path[64];

    snprintf(path, sizeof(path), "/v1/policies/%" PRId64, top->asked_id);
    enum status status =
        client_send(&top->exchange.client,
                    &(struct client_request){.method = "PATCH",
                                             .path = path,
                                             .body = pauses ? SPAN("{\"paused\":true}")
                                                            : SPAN("{\"paused\":false}")},
                    &answer, &error);
    if (status != STATUS_OK)
        snprintf(top->footer, sizeof(top->footer), "%.250s", error.text);
    else if (answer.status != 200)
        snprintf(top->footer, sizeof(top->footer), "Not done: the server answered %d.%s",
                 answer.status, answer.status == 401 ? " It wants the admin token." : "");
    else
        top->footer[0] = '\0';
    client_answer_release(&answer);
}

/* What a key does; true when there is something new to look at. */
static bool top_on_key(struct top *top, enum top_key key)
{
    if (top->asked != TOP_KEY_NONE && key != TOP_KEY_NONE && key != TOP_KEY_RESIZE) {
        top->footer[0] = '\0';
        bool does_it = key == TOP_KEY_YES;
        if (does_it)
            top_change(top);
        top->asked = TOP_KEY_NONE;
        return does_it;
    }
    if (key == TOP_KEY_UP && top->selected > 0)
        top_select(top, top->selected - 1);
    else if (key == TOP_KEY_DOWN && top->selected + 1 < top->view.now.policy_count)
        top_select(top, top->selected + 1);
    else if (key == TOP_KEY_PAUSE || key == TOP_KEY_RESUME)
        top_ask(top, key);
    return false;
}

/* --- the ways to run --- */

static int top_watch(struct top *top)
{
    struct error error;
    struct sigaction action = {.sa_handler = top_on_signal};

    if (top_screen_open(&error) != STATUS_OK)
        return command_fail(top->exchange.call, "%s", error.text);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int64_t next_ms = clock_monotonic_ms();
    while (!top_stop) {
        int64_t now_ms = clock_monotonic_ms();
        if (now_ms >= next_ms) {
            top_fetch(top);
            next_ms = clock_monotonic_ms() + top->interval_ms;
            now_ms = clock_monotonic_ms();
        }
        top_screen_draw(&top->view, top->exchange.client.url, top->selected, top->footer);
        enum top_key key = top_screen_key(next_ms > now_ms ? next_ms - now_ms : 0);
        if (key == TOP_KEY_QUIT)
            break;
        if (top_on_key(top, key))
            next_ms = clock_monotonic_ms();
    }
    top_screen_close();
    return COMMAND_FINE;
}

/* Two looks, so that there are rates. */
static int top_once(struct top *top)
{
    struct buffer out;

    top_fetch(top);
    if (top->view.now.is_reachable) {
        nanosleep(&(struct timespec){.tv_sec = ONCE_MS / 1000, .tv_nsec = ONCE_MS % 1000 * 1000000},
                  NULL);
        top_fetch(top);
    }
    if (!top->view.now.is_reachable)
        return command_fail(top->exchange.call, "%s", top->view.now.trouble);
    buffer_init(&out, OUTPUT_MAX);
    if (top->exchange.json)
        top_json(&out, &top->view, top->exchange.client.url);
    else
        top_text(&out, &top->view, top->exchange.client.url);
    command_print(&out);
    return COMMAND_FINE;
}

int command_top(const struct command_call *call)
{
    struct top *top = calloc(1, sizeof(*top));

    if (top == NULL)
        return command_fail(call, "no memory");
    top->interval_ms = INTERVAL_MS;
    int code = command_duration(call, "interval", 100, &top->interval_ms);
    if (code == COMMAND_FINE)
        code = exchange_begin(&top->exchange, call, EXCHANGE_ADMIN);
    if (code == COMMAND_FINE) {
        bool is_once = command_option(call, "once") != NULL || top->exchange.json;
        /* Nobody can press a key while it waits: a server that hangs is soon said to. */
        if (!is_once && command_option(call, "timeout") == NULL)
            top->exchange.client.timeout_ms = WATCH_MS;
        code = is_once ? top_once(top) : top_watch(top);
        top_view_release(&top->view);
        exchange_end(&top->exchange);
    }
    free(top);
    return code;
}
