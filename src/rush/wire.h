/* wire.h: many keep-alive connections to one server on one thread, one request in flight on each.
 *
 * The caller is asked for the next request whenever a connection is free, and told what came back.
 * A connection that breaks is made again; its request is the caller's to repeat.
 *
 * Threads: a wire and its callbacks belong to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "rush/reply.h"

#define WIRE_CONNECTIONS_MAX 20000
#define WIRE_NEVER           INT64_MAX

struct wire;

struct wire_options {
    const char *host;
    const char *port;
    bool is_tls;
    size_t connection_count;
    int64_t timeout_ms; /* for a connection, and for an answer */
};

/* Whom requests are for, and from. */
struct wire_target {
    const char *base;      /* in front of every path */
    const char *authority; /* of the Host header */
    const char *token;     /* "": none */
    const char *agent;     /* of the User-Agent header */
};

/* Appends a request. `headers` are more of them, each with its line end, in front of the body,
 * which is JSON or empty. */
void wire_append_request(struct buffer *out, const struct wire_target *target, const char *method,
                         const char *path, const char *headers, struct span body);

struct wire_caller {
    /* The next request that is due; false: none is. The bytes are sent or copied before the next
     * call; `job` comes back with what became of it. */
    bool (*next)(void *context, int64_t now_ns, struct span *request, uint64_t *job);
    /* When there will be another one: at once is `now_ns`; WIRE_NEVER: no more. */
    int64_t (*next_at_ns)(void *context, int64_t now_ns);
    /* Exactly one of these for every job. The reply is borrowed. */
    void (*answered)(void *context, uint64_t job, int64_t now_ns, const struct rush_reply *reply);
    void (*failed)(void *context, uint64_t job, int64_t now_ns, const char *why);
    /* A few times a second. */
    void (*tick)(void *context, int64_t now_ns);
    void *context;
};

/* Connects all of them. UNAVAILABLE: nobody answers there, or there are too few descriptors. */
enum status wire_open(struct wire **wire, const struct wire_options *options,
                      struct error *error) MUST_CHECK;
void wire_close(struct wire *wire);

/* Runs until the caller has no more requests and nothing is in flight. */
void wire_run(struct wire *wire, const struct wire_caller *caller);

struct wire_numbers {
    size_t in_flight;
    size_t connected;
    uint64_t reconnects;
};
void wire_count(const struct wire *wire, struct wire_numbers *numbers);
