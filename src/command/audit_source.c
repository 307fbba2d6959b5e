/* audit_source.c: asks the API, or does what it does. */
#include "command/audit_source.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "claim/service.h"
#include "command/service.h"
#include "http/api/audit.h"

#define PAGE_LIMIT 100
#define PATH_SIZE  (EXCHANGE_TEXT_SIZE + 64)
#define ANSWER_MAX (16 * 1024 * 1024)
/* Reading every coupon of a large policy takes its time, and so does writing them. */
#define TIMEOUT_MS (10 * 60 * 1000)

/* --- opening --- */

static bool has_variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0';
}

/* Whether settings say where ledger and gate are, and nobody says where a server is. */
static bool is_alone(const struct command_call *call)
{
    return command_option(call, "url") == NULL &&
           (call->setting_count > 0 || (has_variable("DIBS_GATE") && !has_variable("DIBS_URL")));
}

static int open_service(struct audit_source *source)
{
    const struct command_call *call = source->call;
    struct error error = {""};
    int code = command_load_settings(call, &source->config);
    if (code != COMMAND_FINE)
        return code;
    if (strcmp(source->config.gate, "local") == 0) {
        config_release(&source->config);
        return call->setting_count == 0
                   ? exchange_begin(&source->exchange, call, EXCHANGE_ADMIN)
                   : command_usage(call, "the local gate is in its server's memory: ask that with "
                                         "--url, and leave out other settings");
    }
    log_configure(LOG_WARN, source->config.log_format, STDERR_FILENO);
    ensure(sodium_init() >= 0);
    struct service_options options = command_service_options(&source->config, SERVICE_AUDITS);
    enum status status = service_open(&source->service, &options, &error);
    sodium_memzero(&options.code_key, sizeof(options.code_key));
    if (status != STATUS_OK) {
        config_release(&source->config);
        return command_fail(call, "%s", error.text);
    }
    return COMMAND_FINE;
}

int audit_source_begin(struct audit_source *source, const struct command_call *call)
{
    *source = (struct audit_source){.call = call};
    if (is_alone(call))
        return open_service(source);
    if (call->setting_count > 0) {
        return command_usage(call, "\"%s\": a server that --url names has its own settings",
                             call->settings[0]);
    }
    return exchange_begin(&source->exchange, call, EXCHANGE_ADMIN);
}

void audit_source_end(struct audit_source *source)
{
    yyjson_doc_free(source->document);
    if (source->service == NULL) {
        exchange_end(&source->exchange);
        return;
    }
    service_close(source->service);
    config_release(&source->config);
}

/* --- asking a server --- */

static int ask(struct audit_source *source, const char *method, const char *path)
{
    const struct client_request request = {
        .method = method, .path = path, .extra_timeout_ms = TIMEOUT_MS};
    if (!exchange_ask(&source->exchange, &request))
        return COMMAND_FAILED;
    source->root = source->exchange.root;
    return source->exchange.answer.status == 200 ? COMMAND_FINE
                                                 : exchange_refused(&source->exchange);
}

/* --- doing it --- */

/* Takes the JSON over as the answer. */
static int answer(struct audit_source *source, struct buffer *json)
{
    yyjson_doc_free(source->document);
    source->document =
        json->overflowed ? NULL : yyjson_read(json->bytes, json->length, YYJSON_READ_NOFLAG);
    source->root = yyjson_doc_get_root(source->document);
    buffer_release(json);
    return source->root != NULL ? COMMAND_FINE : command_fail(source->call, "out of memory");
}

static int fetch_page(struct audit_source *source, const char *policy, const char *after)
{
    struct policy_audit *audits = malloc(PAGE_LIMIT * sizeof(*audits));
    struct board_audit board = {.is_known = false};
    struct buffer json;
    struct error error = {"out of memory"};
    size_t count = 1;
    bool has_more = false;
    enum status status = STATUS_UNAVAILABLE;
    if (audits != NULL && policy != NULL) {
        status = service_audit_one(source->service, AUDIT_DEEP, strtoll(policy, NULL, 10), audits,
                                   &error);
    } else if (audits != NULL) {
        status =
            service_audit(source->service, AUDIT_DEEP, after != NULL ? audit_read_cursor(after) : 0,
                          audits, PAGE_LIMIT, &count, &has_more, &error);
    }
    if (status != STATUS_OK) {
        free(audits);
        return command_fail(source->call, "%s", error.text);
    }
    buffer_init(&json, ANSWER_MAX);
    if (policy == NULL && after == NULL)
        service_audit_board(source->service, &board);
    audit_write(&json, source->service, &board, audits, count, has_more);
    free(audits);
    return answer(source, &json);
}

int audit_source_fetch(struct audit_source *source, const char *policy, const char *after)
{
    char path[PATH_SIZE];
    if (source->service != NULL)
        return fetch_page(source, policy, after);
    if (policy != NULL) {
        snprintf(path, sizeof(path), "/v1/audit?policy=%s", policy);
    } else {
        snprintf(path, sizeof(path), "/v1/audit?limit=%d%s%s", PAGE_LIMIT,
                 after != NULL ? "&after=" : "", after != NULL ? after : "");
    }
    return ask(source, "GET", path);
}

int audit_source_repair(struct audit_source *source, const char *policy, bool forgets)
{
    char path[PATH_SIZE];
    if (source->service == NULL) {
        snprintf(path, sizeof(path), "/v1/audit/repair%s%s%s", policy != NULL ? "?policy=" : "",
                 policy != NULL ? policy : "", forgets ? "&lacking=forget" : "");
        return ask(source, "POST", path);
    }
    struct audit_repair done;
    struct buffer json;
    struct error error = {""};
    enum status status =
        service_repair(source->service, policy != NULL ? strtoll(policy, NULL, 10) : 0,
                       forgets ? AUDIT_LET_GO : AUDIT_WRITE_BACK, &done, &error);
    if (status != STATUS_OK)
        return command_fail(source->call, "%s", error.text);
    buffer_init(&json, ANSWER_MAX);
    audit_write_repair(&json, &done);
    return answer(source, &json);
}

int audit_source_history(struct audit_source *source)
{
    if (source->service == NULL)
        return ask(source, "GET", "/v1/audit/repairs");
    struct ledger_repair_note *notes = malloc(AUDIT_HISTORY_MAX * sizeof(*notes));
    struct buffer json;
    struct error error = {"out of memory"};
    size_t count = 0;
    enum status status = notes == NULL ? STATUS_UNAVAILABLE
                                       : ledger_repairs(service_ledger(source->service), notes,
                                                        AUDIT_HISTORY_MAX, &count, &error);
    if (status != STATUS_OK) {
        free(notes);
        return command_fail(source->call, "%s", error.text);
    }
    buffer_init(&json, ANSWER_MAX);
    audit_write_history(&json, notes, count);
    free(notes);
    return answer(source, &json);
}
