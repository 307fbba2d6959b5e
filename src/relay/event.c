/* event.c: writes claims and coupons as messages with CloudEvents headers. */
#include "relay/event.h"

#include <stdio.h>

#include "base/clock.h"

static const struct event_name {
    const char *type;
    const char *suffix;
} event_names[EVENT_KINDS] = {
    [EVENT_CLAIM_PENDED] = {"dibs.coupon.pended", ""},
    [EVENT_COUPON_ISSUED] = {"dibs.coupon.issued", "-issued"},
    [EVENT_COUPON_REDEEMED] = {"dibs.coupon.redeemed", "-redeemed"},
    [EVENT_COUPON_CANCELLED] = {"dibs.coupon.cancelled", "-cancelled"},
    [EVENT_COUPON_VOIDED] = {"dibs.coupon.voided", "-voided"},
    [EVENT_COUPON_MERGED] = {"dibs.coupon.merged", "-merged"},
    [EVENT_ORDER_COMPLETED] = {"dibs.order.completed", ""},
};

const char *event_kind_name(enum event_kind kind)
{
    return event_names[kind].type;
}

const char *event_kind_suffix(enum event_kind kind)
{
    return event_names[kind].suffix;
}

enum event_kind event_kind_of_state(enum coupon_state state)
{
    switch (state) {
    case COUPON_ISSUED:
        return EVENT_COUPON_ISSUED;
    case COUPON_REDEEMED:
        return EVENT_COUPON_REDEEMED;
    case COUPON_CANCELLED:
        return EVENT_COUPON_CANCELLED;
    case COUPON_VOID:
        return EVENT_COUPON_VOIDED;
    case COUPON_MERGED:
        return EVENT_COUPON_MERGED;
    case COUPON_EXPIRED:
    case COUPON_PENDING:
        break;
    }
    ensure_failed("a state that is told", __FILE__, __LINE__, __func__);
}

enum coupon_state event_kind_state(enum event_kind kind)
{
    static const enum coupon_state states[EVENT_KINDS] = {
        [EVENT_COUPON_ISSUED] = COUPON_ISSUED,       [EVENT_COUPON_REDEEMED] = COUPON_REDEEMED,
        [EVENT_COUPON_CANCELLED] = COUPON_CANCELLED, [EVENT_COUPON_VOIDED] = COUPON_VOID,
        [EVENT_COUPON_MERGED] = COUPON_MERGED,
    };
    ensure(kind >= EVENT_COUPON_ISSUED && kind <= EVENT_COUPON_MERGED);
    return states[kind];
}

/* A buffer over memory of a fixed size: full, it overflows and never grows. */
static struct buffer event_buffer(char *bytes, size_t size)
{
    return (struct buffer){.bytes = bytes, .capacity = size, .length_max = size - 1};
}

static struct span event_span(const struct buffer *buffer)
{
    ensure(!buffer->overflowed);
    return (struct span){.bytes = buffer->bytes, .length = buffer->length};
}

static void event_add_header(struct event *event, const char *name, struct span value)
{
    ensure(event->message.header_count < EVENT_HEADERS_MAX);
    event->headers[event->message.header_count++] =
        (struct event_header){.name = name, .value = value};
}

/* Key and headers of what happened to a claim at that time. */
static void event_write_head(struct event *event, enum event_kind kind, const struct claim *claim,
                             int64_t at_ms, struct span traceparent)
{
    struct buffer id = event_buffer(event->id, sizeof(event->id));
    buffer_append_i64(&id, claim->policy_id);
    struct span key = event_span(&id);
    buffer_append_literal(&id, "-");
    buffer_append_i64(&id, claim->seq);
    buffer_append_text(&id, event_names[kind].suffix);
    struct buffer source = event_buffer(event->source, sizeof(event->source));
    buffer_append_literal(&source, "/dibs/policies/");
    buffer_append_span(&source, key);
    clock_format_rfc3339(at_ms, event->time);

    event->message = (struct event_message){.key = key, .headers = event->headers};
    event_add_header(event, "ce_specversion", SPAN("1.0"));
    event_add_header(event, "ce_id", event_span(&id));
    event_add_header(event, "ce_source", event_span(&source));
    event_add_header(event, "ce_type", span_of(event_names[kind].type));
    event_add_header(event, "ce_time",
                     (struct span){.bytes = event->time, .length = CLOCK_TEXT_SIZE - 1});
    event_add_header(event, "content-type", SPAN("application/json"));
    if (traceparent_valid(traceparent)) {
        memcpy(event->traceparent, traceparent.bytes, TRACEPARENT_LENGTH);
        event_add_header(event, "traceparent",
                         (struct span){.bytes = event->traceparent, .length = traceparent.length});
    }
}

static void event_append_number(struct buffer *out, const char *before, int64_t number)
{
    buffer_append_text(out, before);
    buffer_append_i64(out, number);
}

/* Ids have no character that JSON would escape. */
static void event_append_id(struct buffer *out, const char *before, const struct user_id *id)
{
    buffer_append_text(out, before);
    buffer_append_literal(out, "\"");
    buffer_append_span(out, user_id_span(id));
    buffer_append_literal(out, "\"");
}

static void event_append_time(struct buffer *out, const char *before, int64_t at_ms)
{
    buffer_append_text(out, before);
    json_append_time(out, at_ms);
}

static void event_append_request(struct buffer *out, const struct claim *claim)
{
    static const char hex[] = "0123456789abcdef";
    char digits[2 * sizeof(claim->request_id.bytes)];
    for (size_t i = 0; i < sizeof(claim->request_id.bytes); i++) {
        digits[2 * i] = hex[claim->request_id.bytes[i] >> 4];
        digits[2 * i + 1] = hex[claim->request_id.bytes[i] & 15];
    }
    buffer_append_literal(out, ",\"request_id\":\"");
    buffer_append(out, digits, sizeof(digits));
    buffer_append_literal(out, "\"");
    event_append_time(out, ",\"requested_at\":", claim->requested_at_ms);
}

static void event_append_claim(struct buffer *out, const struct claim *claim)
{
    event_append_number(out, "{\"policy_id\":", claim->policy_id);
    event_append_id(out, ",\"user\":", &claim->user);
    event_append_number(out, ",\"seq\":", claim->seq);
    event_append_number(out, ",\"nth\":", claim->nth);
}

void event_write_claim(struct event *event, const struct claim *claim, struct span traceparent)
{
    event_write_head(event, EVENT_CLAIM_PENDED, claim, claim->requested_at_ms, traceparent);
    struct buffer value = event_buffer(event->value, sizeof(event->value));
    event_append_claim(&value, claim);
    event_append_number(&value, ",\"lease\":", claim->lease_id);
    event_append_request(&value, claim);
    buffer_append_literal(&value, "}");
    if (event->message.header_count == EVENT_HEADERS_MAX)
        buffer_append_literal(&value, "\n");
    event->message.value = event_span(&value);
}

static void event_append_fate(struct buffer *out, enum event_kind kind, const struct coupon *coupon,
                              int64_t at_ms)
{
    switch (kind) {
    case EVENT_COUPON_ISSUED:
        event_append_time(out, ",\"issued_at\":", at_ms);
        event_append_time(out, ",\"expires_at\":", coupon->expires_at_ms);
        return;
    case EVENT_COUPON_REDEEMED:
        event_append_time(out, ",\"redeemed_at\":", at_ms);
        if (coupon->order_id.length > 0) {
            event_append_id(out, ",\"order_id\":", &coupon->order_id);
        } else {
            buffer_append_literal(out, ",\"order_id\":null");
        }
        return;
    case EVENT_COUPON_CANCELLED:
        event_append_time(out, ",\"cancelled_at\":", at_ms);
        return;
    case EVENT_COUPON_VOIDED:
        event_append_time(out, ",\"voided_at\":", at_ms);
        buffer_append_literal(out, ",\"reason\":");
        json_append_text(out, span_of(coupon->reason));
        return;
    case EVENT_COUPON_MERGED:
        event_append_time(out, ",\"merged_at\":", at_ms);
        event_append_number(out, ",\"merged_into_seq\":", coupon->merged_into_seq);
        return;
    case EVENT_CLAIM_PENDED:
    case EVENT_ORDER_COMPLETED:
        break;
    }
    ensure_failed("an event of a coupon", __FILE__, __LINE__, __func__);
}

void event_write_coupon(struct event *event, enum event_kind kind, const struct coupon *coupon,
                        int64_t at_ms, struct span traceparent)
{
    event_write_head(event, kind, &coupon->claim, at_ms, traceparent);
    struct buffer value = event_buffer(event->value, sizeof(event->value));
    event_append_claim(&value, &coupon->claim);
    event_append_number(&value, ",\"coupon_id\":\"", coupon->claim.policy_id);
    event_append_number(&value, "-", coupon->claim.seq);
    buffer_append_literal(&value, "\",\"state\":\"");
    buffer_append_text(&value, coupon_state_name(event_kind_state(kind)));
    buffer_append_literal(&value, "\"");
    event_append_request(&value, &coupon->claim);
    event_append_fate(&value, kind, coupon, at_ms);
    buffer_append_literal(&value, "}");
    event->message.value = event_span(&value);
}
