/* request.c: one POST over libcurl, what its answer means, and when it is worth another try. */
#include "event/webhook/request.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "version.h"

#define PAUSE_FIRST_MS    1000
#define RETRY_AFTER_MAX_S 3600
#define LINE_SIZE         512
#define MS_PER_S          1000
#define TEST_ID_SIZE      40

int64_t webhook_pause_ms(unsigned failure_count, int64_t longest_ms)
{
    int64_t pause_ms = PAUSE_FIRST_MS < longest_ms ? PAUSE_FIRST_MS : longest_ms;

    while (--failure_count > 0 && pause_ms < longest_ms)
        pause_ms *= 2;
    if (pause_ms > longest_ms)
        pause_ms = longest_ms;
    return pause_ms - (int64_t)random_below((uint64_t)pause_ms / 5 + 1);
}

/* What the receiver says is of interest to people only, and only how it begins. */
static size_t webhook_take_body(char *bytes, size_t size, size_t count, void *context)
{
    struct webhook_request *request = context;

    for (size_t i = 0; i < size * count && request->said_length + 1 < sizeof(request->said); i++) {
        char byte = bytes[i];
        request->said[request->said_length++] = byte < ' ' || byte > '~' ? ' ' : byte;
    }
    request->said[request->said_length] = '\0';
    return size * count;
}

enum status webhook_request_init(struct webhook_request *request,
                                 const struct webhook_options *options, struct error *error)
{
    *request = (struct webhook_request){.curl = curl_easy_init()};
    CURL *curl = request->curl;
    if (curl == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the webhook");
    curl_easy_setopt(curl, CURLOPT_URL, options->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "dibs/" DIBS_VERSION);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)options->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, webhook_take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, request->trouble);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, request);
    if (options->ca_file != NULL && options->ca_file[0] != '\0')
        curl_easy_setopt(curl, CURLOPT_CAINFO, options->ca_file);
    return STATUS_OK;
}

void webhook_request_release(struct webhook_request *request)
{
    curl_slist_free_all(request->headers);
    if (request->curl != NULL)
        curl_easy_cleanup(request->curl);
    *request = (struct webhook_request){.curl = NULL};
}

bool webhook_request_prepare(struct webhook_request *request, const struct webhook_keys *keys,
                             const char *id, struct span body)
{
    char signatures[WEBHOOK_SIGNATURES_SIZE];
    char lines[3][LINE_SIZE];
    int64_t at_s = clock_wall_ms() / MS_PER_S;
    bool is_whole = true;

    webhook_sign(keys, id, at_s, body, signatures);
    snprintf(lines[0], LINE_SIZE, "webhook-id: %s", id);
    snprintf(lines[1], LINE_SIZE, "webhook-timestamp: %lld", (long long)at_s);
    snprintf(lines[2], LINE_SIZE, "webhook-signature: %s", signatures);
    const char *const all[] = {"Content-Type: application/cloudevents+json", "Expect:", lines[0],
                               lines[1], lines[2]};
    curl_slist_free_all(request->headers);
    request->headers = NULL;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && is_whole; i++) {
        struct curl_slist *longer = curl_slist_append(request->headers, all[i]);
        is_whole = longer != NULL;
        request->headers = is_whole ? longer : request->headers;
    }
    request->said[0] = request->trouble[0] = '\0';
    request->said_length = 0;
    curl_easy_setopt(request->curl, CURLOPT_HTTPHEADER, request->headers);
    curl_easy_setopt(request->curl, CURLOPT_POSTFIELDSIZE, (long)body.length);
    curl_easy_setopt(request->curl, CURLOPT_POSTFIELDS, body.bytes);
    return is_whole;
}

/* Whether an answer of that status is about this event; else it is about all of them. */
static bool webhook_is_about_one(int64_t status)
{
    return status >= 400 && status != 401 && status != 403 && status != 404 && status != 408 &&
           status != 410 && status != 429 && (status < 502 || status > 504);
}

void webhook_request_judge(struct webhook_request *request, CURLcode code,
                           struct webhook_answer *answer)
{
    curl_off_t took_us = 0;
    curl_off_t after_s = 0;
    long status = 0;

    curl_easy_getinfo(request->curl, CURLINFO_TOTAL_TIME_T, &took_us);
    *answer = (struct webhook_answer){.took_ms = took_us / MS_PER_S};
    if (code != CURLE_OK) {
        answer->outcome = WEBHOOK_AWAY;
        snprintf(answer->text, sizeof(answer->text), "no answer: %.140s",
                 request->trouble[0] != '\0' ? request->trouble : curl_easy_strerror(code));
        return;
    }
    curl_easy_getinfo(request->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(request->curl, CURLINFO_RETRY_AFTER, &after_s);
    answer->status = status;
    if (status >= 200 && status < 300) {
        answer->outcome = WEBHOOK_DELIVERED;
        return;
    }
    answer->outcome = webhook_is_about_one(status) ? WEBHOOK_REFUSED : WEBHOOK_AWAY;
    answer->pause_ms = (after_s < RETRY_AFTER_MAX_S ? after_s : RETRY_AFTER_MAX_S) * MS_PER_S;
    snprintf(answer->text, sizeof(answer->text), "it answers %ld%s%.100s", status,
             request->said[0] != '\0' ? ": " : "", request->said);
}

/* --- the test --- */

static struct span webhook_write_test(struct buffer *body, char id[TEST_ID_SIZE])
{
    char time[CLOCK_TEXT_SIZE];
    int64_t now_ms = clock_wall_ms();

    clock_format_rfc3339(now_ms, time);
    snprintf(id, TEST_ID_SIZE, "test-%lld-%04llx", (long long)now_ms,
             (unsigned long long)random_below(1 << 16));
    const struct event_header headers[] = {
        {"ce_specversion", SPAN("1.0")},      {"ce_id", span_of(id)},
        {"ce_source", SPAN("/dibs/webhook")}, {"ce_type", SPAN("dibs.webhook.test")},
        {"ce_time", span_of(time)},           {"content-type", SPAN("application/json")},
    };
    webhook_write_body(body, &(struct event_message){
                                 .value = SPAN("{\"words\":\"dibs asks whether events arrive\"}"),
                                 .headers = headers,
                                 .header_count = sizeof(headers) / sizeof(headers[0])});
    return buffer_span(body);
}

enum status webhook_test(const struct webhook_options *options, struct webhook_answer *answer,
                         struct error *error)
{
    struct webhook_keys keys;
    struct webhook_request request;
    struct buffer body;
    char id[TEST_ID_SIZE];
    enum status status = webhook_read_secrets(&keys, options->secrets, error);

    if (status == STATUS_OK)
        status = webhook_request_init(&request, options, error);
    if (status != STATUS_OK)
        return status;
    buffer_init(&body, EVENT_VALUE_MAX);
    struct span text = webhook_write_test(&body, id);
    CURLcode code = webhook_request_prepare(&request, &keys, id, text)
                        ? curl_easy_perform(request.curl)
                        : CURLE_OUT_OF_MEMORY;
    webhook_request_judge(&request, code, answer);
    buffer_release(&body);
    webhook_request_release(&request);
    explicit_bzero(&keys, sizeof(keys));
    return STATUS_OK;
}
