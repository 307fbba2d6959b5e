/* client.c: one request over libcurl, and what its end means for whoever asked. */
#include "command/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/value.h"
#include "version.h"

/* --- the URL --- */

static enum status client_refuse_url(const char *url, const char *why, struct error *error)
{
    return error_set(error, STATUS_INVALID, "\"%.128s\" %s; it should look like %s", url, why,
                     CLIENT_URL_DEFAULT);
}

/* False when the URL lacks the part, or when it does not fit. */
static bool client_take_part(CURLU *parts, CURLUPart part, char *text, size_t size)
{
    char *value = NULL;

    if (curl_url_get(parts, part, &value, CURLU_DEFAULT_PORT) != CURLUE_OK)
        return false;
    bool fits = (size_t)snprintf(text, size, "%s", value) < size;
    curl_free(value);
    return fits;
}

/* Why it is no URL of a server, or NULL. */
static const char *client_take_parts(struct client *client, CURLU *parts, const char *url)
{
    if (curl_url_set(parts, CURLUPART_URL, url, 0) != CURLUE_OK)
        return "is not a URL of a dibs server";
    if (strncmp(url, "http://", strlen("http://")) != 0 &&
        strncmp(url, "https://", strlen("https://")) != 0)
        return "is not a URL of a dibs server";
    if (strchr(url, '@') != NULL ||
        !client_take_part(parts, CURLUPART_HOST, client->host, sizeof(client->host)) ||
        !client_take_part(parts, CURLUPART_PORT, client->port, sizeof(client->port)))
        return "has no usable host and port";
    if (strpbrk(url, "?#") != NULL ||
        !client_take_part(parts, CURLUPART_PATH, client->base, sizeof(client->base)))
        return "may only have a path after the host";
    return NULL;
}

static void client_trim(char *text)
{
    for (size_t end = strlen(text); end > 0 && text[end - 1] == '/'; end--)
        text[end - 1] = '\0';
}

enum status client_set_url(struct client *client, const char *url, struct error *error)
{
    if (strlen(url) > CLIENT_URL_LENGTH_MAX)
        return client_refuse_url(url, "is too long", error);
    CURLU *parts = curl_url();
    if (parts == NULL)
        return error_set(error, STATUS_FAILED, "no memory for a URL");
    const char *why = client_take_parts(client, parts, url);
    curl_url_cleanup(parts);
    if (why != NULL)
        return client_refuse_url(url, why, error);

    const char *authority = strstr(url, "://") + strlen("://");
    snprintf(client->authority, sizeof(client->authority), "%.*s", (int)strcspn(authority, "/"),
             authority);
    snprintf(client->url, sizeof(client->url), "%s", url);
    client_trim(client->url);
    client_trim(client->base);
    size_t length = strlen(client->host);
    if (client->host[0] == '[') {
        memmove(client->host, client->host + 1, length - 2);
        client->host[length - 2] = '\0';
    }
    return STATUS_OK;
}

enum status client_set_token(struct client *client, struct span token, struct error *error)
{
    if (token.length == 0 || token.length > CLIENT_TOKEN_LENGTH_MAX)
        return error_set(error, STATUS_INVALID, "the token is %s",
                         token.length == 0 ? "empty" : "too long");
    for (size_t i = 0; i < token.length; i++)
        if (token.bytes[i] <= ' ' || token.bytes[i] > '~')
            return error_set(error, STATUS_INVALID,
                             "the token must be visible ASCII characters only");
    memcpy(client->token, token.bytes, token.length);
    client->token[token.length] = '\0';
    return STATUS_OK;
}

void client_release(struct client *client)
{
    explicit_bzero(client, sizeof(*client));
}

/* --- the request --- */

static size_t client_take_body(char *bytes, size_t size, size_t count, void *context)
{
    struct buffer *body = context;

    buffer_append(body, bytes, size * count);
    return body->overflowed ? 0 : size * count;
}

/* libcurl takes a head that breaks off for a whole one; only an empty line ends it. */
static size_t client_take_head(char *line, size_t size, size_t count, void *context)
{
    bool *is_whole = context;

    *is_whole = size * count > 0 && (line[0] == '\r' || line[0] == '\n');
    return size * count;
}

static struct curl_slist *client_headers(const struct client_request *request)
{
    char line[512];
    struct curl_slist *headers = curl_slist_append(NULL, "Accept: application/json");

    headers = curl_slist_append(headers, "Expect:");
    if (request->body.length > 0)
        headers = curl_slist_append(headers, "Content-Type: application/json");
    if (request->idempotency_key != NULL) {
        snprintf(line, sizeof(line), "Idempotency-Key: %s", request->idempotency_key);
        headers = curl_slist_append(headers, line);
    }
    return headers;
}

/* A proxy is never asked: the server is named by whoever runs the command, and gets its token. */
static void client_set_up(CURL *curl, const struct client *client,
                          const struct client_request *request, struct client_answer *answer)
{
    char url[2 * CLIENT_URL_LENGTH_MAX];

    snprintf(url, sizeof(url), "%s%s", client->url, request->path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "dibs/" DIBS_VERSION);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS,
                     (long)(client->timeout_ms + request->extra_timeout_ms));
    if (getenv("SSL_CERT_FILE") != NULL)
        curl_easy_setopt(curl, CURLOPT_CAINFO, getenv("SSL_CERT_FILE"));
    if (client->token[0] != '\0') {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, client->token);
    }
    if (request->body.length > 0) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.length);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body.bytes);
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, client_take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer->body);
}

/* --- what its end means --- */

static enum status client_say_silence(const struct client *client, struct error *error)
{
    struct buffer timeout;

    buffer_init(&timeout, 64);
    config_append_duration(&timeout, client->timeout_ms);
    error_set(error, STATUS_UNKNOWN, "%s did not answer in %s", client->url, timeout.bytes);
    buffer_release(&timeout);
    return STATUS_UNKNOWN;
}

static enum status client_say_unreached(CURL *curl, const struct client *client, const char *words,
                                        struct error *error)
{
    long reason = 0;

    curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &reason);
    if (reason == ECONNREFUSED)
        return error_set(error, STATUS_UNAVAILABLE,
                         "nothing answers at %s: is `dibs serve` running?", client->url);
    return error_set(error, STATUS_UNAVAILABLE, "%s cannot be reached: %s", client->url, words);
}

static enum status client_judge(CURL *curl, CURLcode code, const struct client *client,
                                const struct client_answer *answer, const char *words,
                                struct error *error)
{
    curl_off_t connected_us = 0;

    curl_easy_getinfo(curl, CURLINFO_PRETRANSFER_TIME_T, &connected_us);
    switch (code) {
    case CURLE_OK:
        return STATUS_OK;
    case CURLE_PEER_FAILED_VERIFICATION:
        return error_set(error, STATUS_UNAVAILABLE,
                         "%s: %s; name the certificate of its authority in SSL_CERT_FILE",
                         client->url, words);
    case CURLE_OPERATION_TIMEDOUT:
        return connected_us > 0 ? client_say_silence(client, error)
                                : client_say_unreached(curl, client, "timed out", error);
    case CURLE_WRITE_ERROR:
        if (answer->body.overflowed)
            return error_set(error, STATUS_FAILED, "the answer of %s is larger than %d MiB",
                             client->url, CLIENT_ANSWER_MAX / 1024 / 1024);
        break;
    case CURLE_UNSUPPORTED_PROTOCOL: /* an answer without a status line */
    case CURLE_WEIRD_SERVER_REPLY:
        return error_set(error, STATUS_FAILED, "what answers at %s does not speak HTTP: %s",
                         client->url, words);
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
        return error_set(error, STATUS_UNKNOWN, "%s closed the connection without an answer",
                         client->url);
    default:
        break;
    }
    if (connected_us == 0)
        return client_say_unreached(curl, client, words, error);
    return error_set(error, STATUS_UNKNOWN, "the connection to %s broke: %s", client->url, words);
}

enum status client_send(const struct client *client, const struct client_request *request,
                        struct client_answer *answer, struct error *error)
{
    char words[CURL_ERROR_SIZE] = "";
    long status_code = 0;
    bool is_whole = false;
    CURL *curl = curl_easy_init();

    *answer = (struct client_answer){0};
    buffer_init(&answer->body, CLIENT_ANSWER_MAX);
    if (curl == NULL)
        return error_set(error, STATUS_FAILED, "libcurl cannot be set up");
    struct curl_slist *headers = client_headers(request);
    client_set_up(curl, client, request, answer);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, words);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, client_take_head);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &is_whole);
    CURLcode code = curl_easy_perform(curl);
    code = code == CURLE_OK && !is_whole ? CURLE_GOT_NOTHING : code;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status_code);
    answer->status = (int)status_code;
    enum status status = client_judge(curl, code, client, answer,
                                      words[0] != '\0' ? words : curl_easy_strerror(code), error);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return status;
}

void client_answer_release(struct client_answer *answer)
{
    buffer_release(&answer->body);
}
