/* request.h: one POST of an event over libcurl; for the files of this folder.
 *
 * Threads: a request belongs to one thread at a time.
 */
#pragma once

#include <curl/curl.h>

#include "event/webhook/webhook.h"

struct webhook_request {
    CURL *curl;
    struct curl_slist *headers;
    char trouble[CURL_ERROR_SIZE];
    char said[128]; /* how the answer begins */
    size_t said_length;
};

/* May be used again and again, and keeps its connection. */
enum status webhook_request_init(struct webhook_request *request,
                                 const struct webhook_options *options,
                                 struct error *error) MUST_CHECK;
void webhook_request_release(struct webhook_request *request);

/* Signs the body, which has to stay until it is done; id is as webhook_sign() takes it. False: no
 * memory. */
bool webhook_request_prepare(struct webhook_request *request, const struct webhook_keys *keys,
                             const char *id, struct span body);

/* What libcurl's end of it means. */
void webhook_request_judge(struct webhook_request *request, CURLcode code,
                           struct webhook_answer *answer);
