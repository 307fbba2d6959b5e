/* event.c: writes claims and coupons as messages with CloudEvents headers, reads messages back into
 * claims and orders, and says why it refuses one. Claims that event_write_claim() wrote are read
 * without a JSON reader, which is much faster. */
#include "event/event.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/digits.h"
#include "base/utf8.h"

/* What a coupon in each state is told as. */
static const struct event_kind {
    const char *type;   /* the ce_type */
    const char *suffix; /* of the ce_id */
    const char *time;   /* the field that says when it happened */
} event_kinds[] = {
    [COUPON_ISSUED] = {"dibs.coupon.issued", "-issued", ",\"issued_at\":"},
    [COUPON_REDEEMED] = {"dibs.coupon.redeemed", "-redeemed", ",\"redeemed_at\":"},
    [COUPON_CANCELLED] = {"dibs.coupon.cancelled", "-cancelled", ",\"cancelled_at\":"},
    [COUPON_EXPIRED] = {NULL, NULL, NULL}, /* is never told */
    [COUPON_VOID] = {"dibs.coupon.voided", "-voided", ",\"voided_at\":"},
    [COUPON_MERGED] = {"dibs.coupon.merged", "-merged", ",\"merged_at\":"},
    [COUPON_PENDING] = {"dibs.coupon.pended", "", NULL}, /* the claim, not yet in the ledger */
};

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
static void event_write_head(struct event *event, enum coupon_state state,
                             const struct claim *claim, int64_t at_ms, struct span traceparent)
{
    struct buffer id = event_buffer(event->id, sizeof(event->id));
    buffer_append_i64(&id, claim->policy_id);
    struct span key = event_span(&id);
    buffer_append_literal(&id, "-");
    buffer_append_i64(&id, claim->seq);
    buffer_append_text(&id, event_kinds[state].suffix);
    event->id[id.length] = '\0';
    struct buffer source = event_buffer(event->source, sizeof(event->source));
    buffer_append_literal(&source, "/dibs/policies/");
    buffer_append_span(&source, key);
    clock_format_rfc3339(at_ms, event->time);

    event->message = (struct event_message){.key = key, .headers = event->headers};
    event_add_header(event, "ce_specversion", SPAN("1.0"));
    event_add_header(event, "ce_id", event_span(&id));
    event_add_header(event, "ce_source", event_span(&source));
    event_add_header(event, "ce_type", span_of(event_kinds[state].type));
    event_add_header(event, "ce_time",
                     (struct span){.bytes = event->time, .length = CLOCK_TEXT_SIZE - 1});
    event_add_header(event, "content-type", SPAN("application/json"));
    if (traceparent_valid(traceparent)) {
        memcpy(event->traceparent, traceparent.bytes, TRACEPARENT_LENGTH);
        event_add_header(event, "traceparent",
                         (struct span){.bytes = event->traceparent, .length = traceparent.length});
    }
}

static void event_append_claim(struct buffer *out, const struct claim *claim)
{
    json_begin(out, '{');
    json_put(out, "policy_id", claim->policy_id);
    json_put(out, "user", id_span(&claim->user));
    json_put(out, "seq", claim->seq);
    json_put(out, "nth", claim->nth);
}

static void event_append_request(struct buffer *out, const struct claim *claim)
{
    char digits[2 * sizeof(claim->request_id.bytes)];

    hex_write(digits, claim->request_id.bytes, sizeof(claim->request_id.bytes));
    json_put(out, "request_id", ((struct span){digits, sizeof(digits)}));
    json_put_time(out, "requested_at", claim->requested_at_ms);
}

void event_write_claim(struct event *event, const struct claim *claim, struct span traceparent)
{
    event_write_head(event, COUPON_PENDING, claim, claim->requested_at_ms, traceparent);
    struct buffer value = event_buffer(event->value, sizeof(event->value));
    event_append_claim(&value, claim);
    json_put(&value, "lease", claim->lease_id);
    event_append_request(&value, claim);
    buffer_append_literal(&value, "}");
    if (event->message.header_count == EVENT_HEADERS_MAX)
        buffer_append_literal(&value, "\n");
    event->message.value = event_span(&value);
}

void event_write_coupon(struct event *event, const struct coupon *coupon, int64_t at_ms,
                        struct span traceparent)
{
    const struct claim *claim = &coupon->claim;
    const struct event_kind *kind = &event_kinds[coupon->state];

    ensure(kind->time != NULL);
    event_write_head(event, coupon->state, claim, at_ms, traceparent);
    struct span coupon_id = {event->id, strlen(event->id) - strlen(kind->suffix)};
    struct buffer value = event_buffer(event->value, sizeof(event->value));
    event_append_claim(&value, claim);
    json_put(&value, "coupon_id", coupon_id);
    json_put(&value, "state", coupon_state_name(coupon->state));
    event_append_request(&value, claim);
    buffer_append_text(&value, kind->time);
    json_append_time(&value, at_ms);
    if (coupon->state == COUPON_ISSUED)
        json_put_time(&value, "expires_at", coupon->expires_at_ms);
    if (coupon->state == COUPON_REDEEMED && coupon->order_id.length > 0)
        json_put(&value, "order_id", id_span(&coupon->order_id));
    else if (coupon->state == COUPON_REDEEMED)
        json_put_null(&value, "order_id");
    if (coupon->state == COUPON_VOID)
        json_put(&value, "reason", coupon->reason);
    if (coupon->state == COUPON_MERGED)
        json_put(&value, "merged_into_seq", coupon->merged_into_seq);
    buffer_append_literal(&value, "}");
    event->message.value = event_span(&value);
}

/* --- reading --- */

/* The headers that mean something here; all others may be there too. */
enum event_header_name {
    HEADER_SPECVERSION,
    HEADER_ID,
    HEADER_SOURCE,
    HEADER_TYPE,
    HEADER_CONTENT_TYPE,
    HEADER_TRACEPARENT,
    HEADER_NAMES,
};

static const char *const event_header_names[HEADER_NAMES] = {
    [HEADER_SPECVERSION] = "ce_specversion", [HEADER_ID] = "ce_id",
    [HEADER_SOURCE] = "ce_source",           [HEADER_TYPE] = "ce_type",
    [HEADER_CONTENT_TYPE] = "content-type",  [HEADER_TRACEPARENT] = "traceparent",
};

struct event_head {
    struct span values[HEADER_NAMES];
    bool seen[HEADER_NAMES];
};

enum event_head_need { HEAD_REQUIRED, HEAD_OPTIONAL };

static enum status event_find_headers(const struct event_message *message, struct event_head *head,
                                      struct error *error)
{
    *head = (struct event_head){0};
    if (message->header_count > EVENT_HEADERS_SEEN) {
        return error_set(error, STATUS_INVALID, "headers: must be at most %d and are %zu",
                         EVENT_HEADERS_SEEN, message->header_count);
    }
    for (size_t i = 0; i < message->header_count; i++) {
        for (int name = 0; name < HEADER_NAMES; name++) {
            if (strcmp(message->headers[i].name, event_header_names[name]) != 0)
                continue;
            if (head->seen[name]) {
                return error_set(error, STATUS_INVALID, "header %s: must be there only once",
                                 event_header_names[name]);
            }
            head->seen[name] = true;
            head->values[name] = message->headers[i].value;
            break;
        }
    }
    return STATUS_OK;
}

/* A header's value for people: cut, and without what a terminal would obey. */
static const char *event_shown(struct span value, char text[48])
{
    struct span start = utf8_prefix(value, 47);
    for (size_t i = 0; i < start.length; i++) {
        unsigned char byte = (unsigned char)start.bytes[i];
        text[i] = byte < ' ' || byte > '~' ? '?' : (char)byte;
    }
    text[start.length] = '\0';
    return text;
}

static enum status event_check_header(const struct event_head *head, enum event_header_name name,
                                      struct span wanted, struct error *error)
{
    if (!head->seen[name]) {
        return error_set(error, STATUS_INVALID, "header %s: must be \"%.*s\" and is missing",
                         event_header_names[name], (int)wanted.length, wanted.bytes);
    }
    if (!span_equal(head->values[name], wanted)) {
        char shown[48];
        return error_set(error, STATUS_INVALID, "header %s: must be \"%.*s\" and is \"%s\"",
                         event_header_names[name], (int)wanted.length, wanted.bytes,
                         event_shown(head->values[name], shown));
    }
    return STATUS_OK;
}

/* Reads the headers of an event of that type. */
static enum status event_read_head(const struct event_message *message, const char *type,
                                   enum event_head_need need, struct event_head *head,
                                   struct error *error)
{
    enum status status = event_find_headers(message, head, error);
    /* application/json, with or without parameters. A structured event has its attributes in the
     * value, where nobody here looks for them. */
    struct span *content = &head->values[HEADER_CONTENT_TYPE];
    const char *parameters =
        content->length > 0 ? memchr(content->bytes, ';', content->length) : NULL;
    if (parameters != NULL)
        content->length = (size_t)(parameters - content->bytes);
    const struct {
        enum event_header_name name;
        struct span wanted;
    } checks[] = {{HEADER_SPECVERSION, SPAN("1.0")},
                  {HEADER_TYPE, span_of(type)},
                  {HEADER_CONTENT_TYPE, SPAN("application/json")}};
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]) && status == STATUS_OK; i++)
        if (need == HEAD_REQUIRED || head->seen[checks[i].name])
            status = event_check_header(head, checks[i].name, checks[i].wanted, error);
    if (status == STATUS_OK && need == HEAD_REQUIRED && head->values[HEADER_SOURCE].length == 0)
        status = error_set(error, STATUS_INVALID, "header ce_source: is missing or empty");
    return status;
}

/* What the key and the id have to be follows from the value. */
static enum status event_check_names(const struct event_message *message,
                                     const struct event_head *head, const struct claim *claim,
                                     struct error *error)
{
    char id[64];
    int length = snprintf(id, sizeof(id), "%" PRId64 "-%" PRId64, claim->policy_id, claim->seq);
    struct span wanted = {.bytes = id, .length = (size_t)length};
    enum status status = event_check_header(head, HEADER_ID, wanted, error);
    struct span key = {.bytes = id, .length = strcspn(id, "-")};
    if (status == STATUS_OK && !span_equal(message->key, key)) {
        char shown[48];
        status =
            error_set(error, STATUS_INVALID, "key: must be the policy's id \"%.*s\" and is \"%s\"",
                      (int)key.length, key.bytes, event_shown(message->key, shown));
    }
    return status;
}

static enum status event_read_value(struct json_reader *reader, struct span value,
                                    const struct json_field *fields, size_t field_count,
                                    struct error *error)
{
    enum status status = json_read_object(reader, value, fields, field_count, NULL, error);
    if (status != STATUS_OK)
        error_prefix(error, "value");
    return status;
}

enum status event_read_claim(struct json_reader *reader, const struct event_message *message,
                             struct claim *claim, struct span *traceparent, struct error *error)
{
    *claim = (struct claim){0};
    struct event_head head;
    enum status status =
        event_read_head(message, "dibs.coupon.pended", HEAD_REQUIRED, &head, error);
    if (status != STATUS_OK)
        return status;
    struct span user;
    struct span request_id;
    int64_t nth;
    const struct json_field fields[] = {
        {"policy_id", JSON_INTEGER, .minimum = 1, .maximum = POLICY_ID_MAX,
         .target = &claim->policy_id},
        {"user", JSON_ID, .target = &user},
        {"seq", JSON_INTEGER, .minimum = 1, .maximum = POLICY_ID_MAX, .target = &claim->seq},
        {"nth", JSON_INTEGER, .minimum = 1, .maximum = PER_USER_LIMIT_MAX, .target = &nth},
        {"request_id", JSON_TEXT, .minimum = 32, .maximum = 32, .target = &request_id},
        {"requested_at", JSON_TIME, .target = &claim->requested_at_ms},
        {"lease", JSON_INTEGER, .minimum = 1, .maximum = POLICY_ID_MAX, .target = &claim->lease_id},
    };
    status =
        event_read_value(reader, message->value, fields, sizeof(fields) / sizeof(fields[0]), error);
    if (status != STATUS_OK)
        return status;
    claim->user = id_of(user);
    claim->nth = (int32_t)nth;
    if (!hex_read(request_id, claim->request_id.bytes, sizeof(claim->request_id.bytes)))
        status = error_set(error, STATUS_INVALID,
                           "value: request_id: must be 32 hexadecimal digits in lower case");
    if (status == STATUS_OK)
        status = event_check_names(message, &head, claim, error);
    struct span trace = head.values[HEADER_TRACEPARENT];
    *traceparent = traceparent_valid(trace) ? trace : (struct span){0};
    return status;
}

/* --- claims that were written here --- */

/* Takes what has to come next. */
static bool event_own_take(struct span *text, struct span wanted)
{
    if (text->length < wanted.length || memcmp(text->bytes, wanted.bytes, wanted.length) != 0)
        return false;
    text->bytes += wanted.length;
    text->length -= wanted.length;
    return true;
}

/* A number from 1 on, without leading zeros. */
static bool event_own_number(struct span *text, int64_t maximum, int64_t *number)
{
    size_t length = 0;
    *number = 0;
    while (length < text->length && length < 17 && text->bytes[length] >= '0' &&
           text->bytes[length] <= '9')
        *number = *number * 10 + (text->bytes[length++] - '0');
    if (length == 0 || text->bytes[0] == '0' || *number > maximum)
        return false;
    text->bytes += length;
    text->length -= length;
    return true;
}

/* What stands before the next quote, where nothing is escaped. */
static bool event_own_text(struct span *text, struct span *found)
{
    const char *quote = memchr(text->bytes, '"', text->length);
    if (quote == NULL || memchr(text->bytes, '\\', (size_t)(quote - text->bytes)) != NULL)
        return false;
    *found = (struct span){.bytes = text->bytes, .length = (size_t)(quote - text->bytes)};
    text->bytes += found->length;
    text->length -= found->length;
    return true;
}

bool event_read_own_claim(struct span key, struct span value, struct claim *claim,
                          bool *has_traceparent)
{
    struct span user;
    struct span request;
    struct span time;
    int64_t nth;
    *claim = (struct claim){0};
    if (!event_own_take(&value, SPAN("{\"policy_id\":")))
        return false;
    const char *policy = value.bytes;
    if (!event_own_number(&value, POLICY_ID_MAX, &claim->policy_id) ||
        !span_equal(key, (struct span){policy, (size_t)(value.bytes - policy)}) ||
        !event_own_take(&value, SPAN(",\"user\":\"")) || !event_own_text(&value, &user) ||
        !json_id_valid(user) || !event_own_take(&value, SPAN("\",\"seq\":")) ||
        !event_own_number(&value, POLICY_ID_MAX, &claim->seq) ||
        !event_own_take(&value, SPAN(",\"nth\":")) ||
        !event_own_number(&value, PER_USER_LIMIT_MAX, &nth) ||
        !event_own_take(&value, SPAN(",\"lease\":")) ||
        !event_own_number(&value, POLICY_ID_MAX, &claim->lease_id) ||
        !event_own_take(&value, SPAN(",\"request_id\":\"")) || !event_own_text(&value, &request) ||
        !hex_read(request, claim->request_id.bytes, sizeof(claim->request_id.bytes)) ||
        !event_own_take(&value, SPAN("\",\"requested_at\":\"")) || !event_own_text(&value, &time) ||
        !clock_parse_rfc3339(time, &claim->requested_at_ms) || !event_own_take(&value, SPAN("\"}")))
        return false;
    claim->nth = (int32_t)nth;
    claim->user = id_of(user);
    *has_traceparent = event_own_take(&value, SPAN("\n"));
    return value.length == 0 && claim->requested_at_ms > 0;
}

/* --- orders --- */

enum status event_read_order(struct json_reader *reader, const struct event_message *message,
                             struct order *order, struct order_item items[ORDER_ITEMS_MAX],
                             struct error *error)
{
    struct event_head head;
    enum status status =
        event_read_head(message, "dibs.order.completed", HEAD_OPTIONAL, &head, error);
    if (status != STATUS_OK)
        return status;
    *order = (struct order){.items = items};
    struct span order_id;
    struct {
        struct span product_id;
        int64_t quantity;
    } item, read[ORDER_ITEMS_MAX];
    struct json_list list = {.element = &item, .element_size = sizeof(item), .elements = read};
    const struct json_field item_fields[] = {
        {"product_id", JSON_ID, .target = &item.product_id},
        {"quantity", JSON_INTEGER, .minimum = 1, .maximum = ORDER_QUANTITY_MAX,
         .target = &item.quantity},
    };
    const struct json_field fields[] = {
        {"order_id", JSON_ID, .target = &order_id},
        {"paid_at", JSON_TIME, JSON_OPTIONAL_OR_NULL, .target = &order->paid_at_ms},
        {"items", JSON_LIST, .minimum = 1, .maximum = ORDER_ITEMS_MAX, .target = &list,
         .fields = item_fields, .field_count = 2},
    };
    status = event_read_value(reader, message->value, fields, 3, error);
    if (status != STATUS_OK)
        return status;
    order->order_id = id_of(order_id);
    order->item_count = list.count;
    for (size_t i = 0; i < list.count; i++)
        items[i] = (struct order_item){id_of(read[i].product_id), read[i].quantity};
    return STATUS_OK;
}
