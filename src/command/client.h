/* client.h: one HTTP or HTTPS request of a command that talks to a running server, over libcurl.
 *
 * One request per connection, no proxy, an answer of at most 64 MiB, and one deadline for all of
 * it. The token is sent as a bearer and never printed.
 *
 * Threads: a client belongs to one thread.
 */
#pragma once

#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

#define CLIENT_URL_DEFAULT      "http://127.0.0.1:8080"
#define CLIENT_TIMEOUT_MS       30000
#define CLIENT_ANSWER_MAX       (64 * 1024 * 1024)
#define CLIENT_URL_LENGTH_MAX   512
#define CLIENT_TOKEN_LENGTH_MAX 4096

struct client {
    char url[CLIENT_URL_LENGTH_MAX + 1]; /* as it was given, for words */
    char host[256];                      /* name or address, without brackets */
    char port[6];
    char authority[272];                  /* what the Host header says */
    char base[CLIENT_URL_LENGTH_MAX + 1]; /* a path in front of all others, without a final "/" */
    char token[CLIENT_TOKEN_LENGTH_MAX + 1]; /* "": none */
    int64_t timeout_ms;
};

struct client_request {
    const char *method;
    const char *path;            /* starts with "/" and needs no escaping */
    struct span body;            /* JSON, or nothing */
    const char *idempotency_key; /* or NULL */
    int64_t extra_timeout_ms;    /* how long the server itself may wait before it answers */
};

struct client_answer {
    int status;
    struct buffer body; /* followed by a NUL */
};

/* Takes "http[s]://host[:port][/base]" apart. STATUS_INVALID with words for anything else. */
enum status client_set_url(struct client *client, const char *url, struct error *error) MUST_CHECK;

/* Visible ASCII only; STATUS_INVALID otherwise, without repeating the token. */
enum status client_set_token(struct client *client, struct span token,
                             struct error *error) MUST_CHECK;

/* Sends the request and reads the answer, whatever its status code.
 *
 * STATUS_UNAVAILABLE: nothing was sent, because nobody answers there. STATUS_UNKNOWN: it was sent
 * and no whole answer came back, so it may have been done. STATUS_FAILED: what came back is not
 * HTTP or too large. The answer is initialised in every case; release it in every case. */
enum status client_send(const struct client *client, const struct client_request *request,
                        struct client_answer *answer, struct error *error) MUST_CHECK;
void client_answer_release(struct client_answer *answer);

/* Forgets the token. */
void client_release(struct client *client);
