/* event.h: claims, coupons and orders as messages of other systems: CloudEvents 1.0, binary mode.
 *
 * A message has a key that keeps its order (the policy's id in decimal), headers that name the
 * event (ce_specversion, ce_id, ce_source, ce_type, ce_time, content-type, and traceparent where
 * there is one) and a JSON object as its value. The same event always has the same ce_id and
 * ce_source, so that who gets it twice can tell. A coupon's code is never in a message.
 *
 * Reading is strict: what was not written like this is refused, with words that say what is wrong.
 * Orders come from others, so theirs may lack the headers.
 *
 * Threads: values only; a json_reader belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json.h"
#include "base/model.h"
#include "base/traces.h"
#include "ledger/sales/sales.h"

/* A header; its name ends with a NUL. */
struct event_header {
    const char *name;
    struct span value;
};

/* A message as it comes or goes; everything is borrowed. */
struct event_message {
    struct span key;
    struct span value;
    const struct event_header *headers;
    size_t header_count;
};

/* --- writing --- */

#define EVENT_HEADERS_MAX 7
#define EVENT_VALUE_SIZE  2048

/* A message and all that it points to; it must not be moved or copied. */
struct event {
    struct event_message message;
    struct event_header headers[EVENT_HEADERS_MAX];
    char id[64];
    char source[48];
    char time[32];
    char traceparent[TRACEPARENT_LENGTH];
    char value[EVENT_VALUE_SIZE];
};

/* Fills event->message. `traceparent` that is empty or not valid is left out. The value of one that
 * has it ends with a line feed, so that whoever reads only values knows where to look for it. */
void event_write_claim(struct event *event, const struct claim *claim, struct span traceparent);

/* What became of a coupon, at that time: its row, in the state that is told (not EXPIRED and
 * PENDING, which never are). Only what belongs to that state is told, so that what the row has of
 * later ones does not show. */
void event_write_coupon(struct event *event, const struct coupon *coupon, int64_t at_ms,
                        struct span traceparent);

/* --- reading --- */

#define EVENT_VALUE_MAX    16384 /* what a json_reader for events must take */
#define EVENT_HEADERS_SEEN 32    /* more than these are refused */

/* Each answers OK, or INVALID with what is wrong with the message. `traceparent` gets the
 * message's, or becomes empty. The order's paid_at_ms is 0 where the message does not say when. */
enum status event_read_claim(struct json_reader *reader, const struct event_message *message,
                             struct claim *claim, struct span *traceparent,
                             struct error *error) MUST_CHECK;
enum status event_read_order(struct json_reader *reader, const struct event_message *message,
                             struct order *order, struct order_item items[ORDER_ITEMS_MAX],
                             struct error *error) MUST_CHECK;

/* The same from key and value alone, when the value is byte for byte as event_write_claim() has it;
 * else false, and event_read_claim() says what it is. Then headers need not be looked at: they say
 * nothing that the value does not, but the traceparent where there is one. */
bool event_read_own_claim(struct span key, struct span value, struct claim *claim,
                          bool *has_traceparent);

/* --- what could not be done --- */

/* Headers that a message in the dead letter topic has beside its own. */
#define EVENT_DEAD_REASON    "dibs_reason"    /* in words */
#define EVENT_DEAD_TOPIC     "dibs_topic"     /* where it came from */
#define EVENT_DEAD_PARTITION "dibs_partition" /* in decimal */
#define EVENT_DEAD_OFFSET    "dibs_offset"    /* in decimal */
#define EVENT_DEAD_TIME      "dibs_time"      /* when it was put aside, RFC 3339 */
