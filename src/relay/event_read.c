/* event_read.c: reads messages back into claims, coupons and orders, and says why it refuses one.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "relay/event.h"

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

static enum status event_read_head(const struct event_message *message, struct event_head *head,
                                   struct error *error)
{
    *head = (struct event_head){0};
    if (message->header_count > EVENT_HEADERS_SEEN) {
        return error_set(error, STATUS_INVALID, "headers: must be at most %d and are %zu",
                         EVENT_HEADERS_SEEN, message->header_count);
    }
    for (size_t i = 0; i < message->header_count; i++) {
        for (int name = 0; name < HEADER_NAMES; name++) {
            if (strcmp(message->headers[i].name, event_header_names[name]) != 0) {
                continue;
            }
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

/* application/json, with or without parameters. A structured event has its attributes in the value,
 * where nobody here looks for them. */
static enum status event_check_content(const struct event_head *head, struct error *error)
{
    struct span type = head->values[HEADER_CONTENT_TYPE];
    const char *parameters = type.length > 0 ? memchr(type.bytes, ';', type.length) : NULL;
    if (head->seen[HEADER_CONTENT_TYPE] && parameters != NULL) {
        type.length = (size_t)(parameters - type.bytes);
        struct event_head plain = *head;
        plain.values[HEADER_CONTENT_TYPE] = type;
        return event_check_header(&plain, HEADER_CONTENT_TYPE, SPAN("application/json"), error);
    }
    return event_check_header(head, HEADER_CONTENT_TYPE, SPAN("application/json"), error);
}

static enum status event_check_head(const struct event_head *head, enum event_kind kind,
                                    enum event_head_need need, struct error *error)
{
    struct span type = span_of(event_kind_name(kind));
    enum status status = STATUS_OK;
    if (need == HEAD_REQUIRED || head->seen[HEADER_SPECVERSION]) {
        status = event_check_header(head, HEADER_SPECVERSION, SPAN("1.0"), error);
    }
    if (status == STATUS_OK && (need == HEAD_REQUIRED || head->seen[HEADER_TYPE])) {
        status = event_check_header(head, HEADER_TYPE, type, error);
    }
    if (status == STATUS_OK && (need == HEAD_REQUIRED || head->seen[HEADER_CONTENT_TYPE])) {
        status = event_check_content(head, error);
    }
    if (status == STATUS_OK && need == HEAD_REQUIRED && head->values[HEADER_SOURCE].length == 0) {
        status = error_set(error, STATUS_INVALID, "header ce_source: is missing or empty");
    }
    return status;
}

/* What the key and the id have to be follows from the value. */
static enum status event_check_names(const struct event_message *message,
                                     const struct event_head *head, const struct claim *claim,
                                     const char *suffix, struct error *error)
{
    char id[64];
    int length =
        snprintf(id, sizeof(id), "%" PRId64 "-%" PRId64 "%s", claim->policy_id, claim->seq, suffix);
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

static void event_give_trace(const struct event_head *head, struct span *traceparent)
{
    if (traceparent != NULL) {
        struct span text = head->values[HEADER_TRACEPARENT];
        *traceparent = traceparent_valid(text) ? text : (struct span){0};
    }
}

static enum status event_read_value(struct json_reader *reader, struct span value,
                                    const struct json_field *fields, size_t field_count,
                                    struct error *error)
{
    enum status status = json_read_object(reader, value, fields, field_count, NULL, error);
    if (status != STATUS_OK) {
        error_prefix(error, "value");
    }
    return status;
}

static int event_hex_digit(char byte)
{
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static enum status event_parse_request(struct span text, struct request_id *id, struct error *error)
{
    bool good = text.length == 2 * sizeof(id->bytes);
    for (size_t i = 0; good && i < sizeof(id->bytes); i++) {
        int high = event_hex_digit(text.bytes[2 * i]);
        int low = event_hex_digit(text.bytes[2 * i + 1]);
        good = high >= 0 && low >= 0;
        id->bytes[i] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
    }
    return good ? STATUS_OK
                : error_set(error, STATUS_INVALID,
                            "value: request_id: must be 32 hexadecimal digits in lower case");
}

/* What the value of every event about a claim has, before it is one. */
struct event_claim_text {
    struct span user;
    struct span request_id;
    int64_t nth;
};

/* The fields of claims and coupons alike. */
#define CLAIM_FIELDS(claim, text)                                                      \
    {.name = "policy_id",                                                              \
     .kind = JSON_INTEGER,                                                             \
     .minimum = 1,                                                                     \
     .maximum = POLICY_ID_MAX,                                                         \
     .target = &(claim)->policy_id},                                                   \
        {.name = "user", .kind = JSON_ID, .target = &(text)->user},                    \
        {.name = "seq",                                                                \
         .kind = JSON_INTEGER,                                                         \
         .minimum = 1,                                                                 \
         .maximum = POLICY_ID_MAX,                                                     \
         .target = &(claim)->seq},                                                     \
        {.name = "nth",                                                                \
         .kind = JSON_INTEGER,                                                         \
         .minimum = 1,                                                                 \
         .maximum = PER_USER_LIMIT_MAX,                                                \
         .target = &(text)->nth},                                                      \
        {.name = "request_id",                                                         \
         .kind = JSON_TEXT,                                                            \
         .minimum = 32,                                                                \
         .maximum = 32,                                                                \
         .target = &(text)->request_id},                                               \
    {                                                                                  \
        .name = "requested_at", .kind = JSON_TIME, .target = &(claim)->requested_at_ms \
    }

static enum status event_finish_claim(const struct event_claim_text *text, struct claim *claim,
                                      struct error *error)
{
    claim->user = user_id_of(text->user);
    claim->nth = (int32_t)text->nth;
    claim->attempt = 0;
    return event_parse_request(text->request_id, &claim->request_id, error);
}

enum status event_read_claim(struct json_reader *reader, const struct event_message *message,
                             struct claim *claim, struct span *traceparent, struct error *error)
{
    *claim = (struct claim){0};
    struct event_head head;
    enum status status = event_read_head(message, &head, error);
    if (status == STATUS_OK) {
        status = event_check_head(&head, EVENT_CLAIM_PENDED, HEAD_REQUIRED, error);
    }
    if (status != STATUS_OK) {
        return status;
    }
    struct event_claim_text text;
    const struct json_field fields[] = {
        CLAIM_FIELDS(claim, &text),
        {.name = "lease",
         .kind = JSON_INTEGER,
         .minimum = 1,
         .maximum = POLICY_ID_MAX,
         .target = &claim->lease_id},
    };
    status =
        event_read_value(reader, message->value, fields, sizeof(fields) / sizeof(fields[0]), error);
    if (status == STATUS_OK) {
        status = event_finish_claim(&text, claim, error);
    }
    if (status == STATUS_OK) {
        status = event_check_names(message, &head, claim, "", error);
    }
    event_give_trace(&head, traceparent);
    return status;
}

/* --- coupons --- */

struct event_coupon_text {
    struct event_claim_text claim;
    struct span coupon_id;
    struct span state;
    struct span order_id;
    struct span reason;
    enum json_seen order_seen;
};

static enum status event_find_kind(const struct event_head *head, enum event_kind *kind,
                                   struct error *error)
{
    for (enum event_kind one = EVENT_COUPON_ISSUED; one <= EVENT_COUPON_MERGED; one++) {
        if (span_equal(head->values[HEADER_TYPE], span_of(event_kind_name(one)))) {
            *kind = one;
            return STATUS_OK;
        }
    }
    char shown[48];
    return error_set(error, STATUS_INVALID,
                     "header ce_type: must be one of dibs.coupon.issued, .redeemed, .cancelled, "
                     ".voided, .merged and is \"%s\"",
                     event_shown(head->values[HEADER_TYPE], shown));
}

/* What only one kind of event has, at most two fields. */
static size_t event_fate_fields(enum event_kind kind, struct coupon *coupon,
                                struct event_coupon_text *text, int64_t *at_ms,
                                struct json_field fields[2])
{
    static const char *const times[EVENT_KINDS] = {
        [EVENT_COUPON_ISSUED] = "issued_at",       [EVENT_COUPON_REDEEMED] = "redeemed_at",
        [EVENT_COUPON_CANCELLED] = "cancelled_at", [EVENT_COUPON_VOIDED] = "voided_at",
        [EVENT_COUPON_MERGED] = "merged_at",
    };
    fields[0] = (struct json_field){.name = times[kind], .kind = JSON_TIME, .target = at_ms};
    switch (kind) {
    case EVENT_COUPON_ISSUED:
        fields[1] = (struct json_field){.name = "expires_at",
                                        .kind = JSON_TIME,
                                        .presence = JSON_OPTIONAL_OR_NULL,
                                        .target = &coupon->expires_at_ms};
        return 2;
    case EVENT_COUPON_REDEEMED:
        fields[1] = (struct json_field){.name = "order_id",
                                        .kind = JSON_ID,
                                        .presence = JSON_OPTIONAL_OR_NULL,
                                        .target = &text->order_id,
                                        .seen = &text->order_seen};
        return 2;
    case EVENT_COUPON_VOIDED:
        fields[1] = (struct json_field){.name = "reason",
                                        .kind = JSON_TEXT,
                                        .maximum = REASON_SIZE - 1,
                                        .target = &text->reason};
        return 2;
    case EVENT_COUPON_MERGED:
        fields[1] = (struct json_field){.name = "merged_into_seq",
                                        .kind = JSON_INTEGER,
                                        .minimum = 1,
                                        .maximum = POLICY_ID_MAX,
                                        .target = &coupon->merged_into_seq};
        return 2;
    default:
        return 1;
    }
}

static enum status event_finish_coupon(enum event_kind kind, const struct event_coupon_text *text,
                                       struct coupon *coupon, int64_t at_ms, struct error *error)
{
    enum status status = event_finish_claim(&text->claim, &coupon->claim, error);
    if (status != STATUS_OK) {
        return status;
    }
    coupon->state = event_kind_state(kind);
    if (!span_equal(text->state, span_of(coupon_state_name(coupon->state)))) {
        return error_set(error, STATUS_INVALID, "value: state: must be \"%s\" in an event of %s",
                         coupon_state_name(coupon->state), event_kind_name(kind));
    }
    char id[64];
    snprintf(id, sizeof(id), "%" PRId64 "-%" PRId64, coupon->claim.policy_id, coupon->claim.seq);
    if (!span_equal(text->coupon_id, span_of(id))) {
        return error_set(error, STATUS_INVALID, "value: coupon_id: must be \"%s\"", id);
    }
    struct span reason = utf8_prefix(text->reason, REASON_SIZE - 1);
    if (reason.length > 0) {
        memcpy(coupon->reason, reason.bytes, reason.length);
    }
    if (text->order_seen == JSON_SEEN_VALUE) {
        coupon->order_id = user_id_of(text->order_id);
    }
    coupon->issued_at_ms = kind == EVENT_COUPON_ISSUED ? at_ms : 0;
    coupon->redeemed_at_ms = kind == EVENT_COUPON_REDEEMED ? at_ms : 0;
    coupon->cancelled_at_ms = kind == EVENT_COUPON_CANCELLED ? at_ms : 0;
    return STATUS_OK;
}

enum status event_read_coupon(struct json_reader *reader, const struct event_message *message,
                              enum event_kind *kind, struct coupon *coupon, int64_t *at_ms,
                              struct span *traceparent, struct error *error)
{
    *coupon = (struct coupon){0};
    struct event_head head;
    enum status status = event_read_head(message, &head, error);
    if (status == STATUS_OK) {
        status = event_find_kind(&head, kind, error);
    }
    if (status == STATUS_OK) {
        status = event_check_head(&head, *kind, HEAD_REQUIRED, error);
    }
    if (status != STATUS_OK) {
        return status;
    }
    struct event_coupon_text text = {0};
    struct json_field fields[10] = {
        CLAIM_FIELDS(&coupon->claim, &text.claim),
        {.name = "coupon_id", .kind = JSON_TEXT, .maximum = 64, .target = &text.coupon_id},
        {.name = "state", .kind = JSON_TEXT, .maximum = 16, .target = &text.state},
    };
    size_t fate_count = event_fate_fields(*kind, coupon, &text, at_ms, fields + 8);
    status = event_read_value(reader, message->value, fields, 8 + fate_count, error);
    if (status == STATUS_OK) {
        status = event_finish_coupon(*kind, &text, coupon, *at_ms, error);
    }
    if (status == STATUS_OK) {
        status = event_check_names(message, &head, &coupon->claim, event_kind_suffix(*kind), error);
    }
    event_give_trace(&head, traceparent);
    return status;
}

/* --- orders --- */

/* An item before it is one; as large as it has to be, because the list copies it. */
struct event_item_text {
    struct span product_id;
    int64_t quantity;
};

enum status event_read_order(struct json_reader *reader, const struct event_message *message,
                             struct event_order *order, struct error *error)
{
    order->paid_at_ms = 0;
    order->item_count = 0;
    struct event_head head;
    enum status status = event_read_head(message, &head, error);
    if (status == STATUS_OK) {
        status = event_check_head(&head, EVENT_ORDER_COMPLETED, HEAD_OPTIONAL, error);
    }
    if (status != STATUS_OK) {
        return status;
    }
    struct span order_id;
    struct event_item_text item;
    struct event_item_text items[EVENT_ORDER_ITEMS_MAX];
    struct json_list list = {.element = &item, .element_size = sizeof(item), .elements = items};
    const struct json_field item_fields[] = {
        {.name = "product_id", .kind = JSON_ID, .target = &item.product_id},
        {.name = "quantity",
         .kind = JSON_INTEGER,
         .minimum = 1,
         .maximum = EVENT_QUANTITY_MAX,
         .target = &item.quantity},
    };
    const struct json_field fields[] = {
        {.name = "order_id", .kind = JSON_ID, .target = &order_id},
        {.name = "paid_at",
         .kind = JSON_TIME,
         .presence = JSON_OPTIONAL_OR_NULL,
         .target = &order->paid_at_ms},
        {.name = "items",
         .kind = JSON_LIST,
         .minimum = 1,
         .maximum = EVENT_ORDER_ITEMS_MAX,
         .target = &list,
         .fields = item_fields,
         .field_count = 2},
    };
    status = event_read_value(reader, message->value, fields, 3, error);
    if (status != STATUS_OK) {
        return status;
    }
    order->order_id = user_id_of(order_id);
    for (size_t i = 0; i < list.count; i++) {
        order->items[i].product_id = user_id_of(items[i].product_id);
        order->items[i].quantity = items[i].quantity;
    }
    order->item_count = list.count;
    return STATUS_OK;
}
