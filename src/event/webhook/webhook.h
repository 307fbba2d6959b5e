/* webhook.h: coupon events for a shop's own endpoint, signed as Standard Webhooks has it.
 *
 * Each event is one POST: a CloudEvent in JSON, whose id is the webhook-id, with the time of the
 * attempt and an HMAC-SHA256 of both under each of the secrets. An answer 2xx is delivered;
 * anything else is tried again, after a pause that grows. Events of a policy are sent one after the
 * other, several policies at once. A policy whose event is refused waits for itself; where nobody
 * answers, or all are refused, all wait.
 *
 * Threads: a sink as event/sink.h says, the rest from any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "event/event.h"

#define WEBHOOK_SECRETS_MAX     4 /* while one takes the place of another */
#define WEBHOOK_SECRET_MIN      24
#define WEBHOOK_SECRET_MAX      64
#define WEBHOOK_SIGNATURES_SIZE (WEBHOOK_SECRETS_MAX * 48)

struct webhook_options {
    const char *url;
    struct span secrets;  /* "whsec_…", one or several with spaces or lines between */
    const char *ca_file;  /* NULL or "": those that the system trusts */
    int64_t timeout_ms;   /* for an answer */
    int64_t retry_max_ms; /* the longest pause between tries */
};

/* --- signing --- */

struct webhook_key {
    uint8_t bytes[WEBHOOK_SECRET_MAX];
    size_t length;
};

struct webhook_keys {
    struct webhook_key items[WEBHOOK_SECRETS_MAX];
    size_t count;
};

/* INVALID: it is no such secret, and what one looks like. */
enum status webhook_read_secrets(struct webhook_keys *keys, struct span text,
                                 struct error *error) MUST_CHECK;

/* "v1,… v1,…": the value of webhook-signature. */
void webhook_sign(const struct webhook_keys *keys, const char *id, int64_t at_s, struct span body,
                  char signatures[WEBHOOK_SIGNATURES_SIZE]);

/* Appends the message as a CloudEvent in JSON. */
void webhook_write_body(struct buffer *out, const struct event_message *message);

/* --- trying --- */

/* After so many failures in a row, at least one: it doubles from a second (or from the longest, if
 * that is shorter), and a fifth of it is chance. */
int64_t webhook_pause_ms(unsigned failure_count, int64_t longest_ms);

/* What came of a request. */
enum webhook_outcome {
    WEBHOOK_DELIVERED,
    WEBHOOK_REFUSED, /* this event, as it seems */
    WEBHOOK_AWAY,    /* nobody is there, or wants none of them just now */
};

struct webhook_answer {
    enum webhook_outcome outcome;
    int64_t status;   /* of HTTP; 0: there was no answer */
    int64_t pause_ms; /* that it asked for in Retry-After; 0: it did not */
    int64_t took_ms;
    char text[160]; /* what went wrong */
};

/* Sends an event of the type dibs.webhook.test, waits for its answer, and tells of it. INVALID: the
 * options are wrong. */
enum status webhook_test(const struct webhook_options *options, struct webhook_answer *answer,
                         struct error *error) MUST_CHECK;
