/* fuzz_json.c: any bytes as a request body: never a crash, and what is taken keeps its promises. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"

#define BODY_MAX 16384

/* The fields of a policy, and a user's id beside them, so that every kind comes up. */
static struct policy_body {
    struct span name;
    struct span user;
    struct span type;
    int64_t value;
    int64_t total;
    int64_t opens_at_ms;
    bool paused;
    enum json_seen name_seen;
    enum json_seen user_seen;
    enum json_seen discount_seen;
    enum json_seen opens_at_seen;
    enum json_seen paused_seen;
} body;

static const struct json_field discount_fields[] = {
    {.name = "type",
     .kind = JSON_TEXT,
     .presence = JSON_REQUIRED,
     .minimum = 1,
     .maximum = 16,
     .target = &body.type},
    {.name = "value",
     .kind = JSON_INTEGER,
     .presence = JSON_REQUIRED,
     .minimum = 1,
     .maximum = INT64_C(1000000000000),
     .target = &body.value},
};

static const struct json_field policy_fields[] = {
    {.name = "name",
     .kind = JSON_TEXT,
     .presence = JSON_OPTIONAL,
     .minimum = 1,
     .maximum = 200,
     .target = &body.name,
     .seen = &body.name_seen},
    {.name = "user",
     .kind = JSON_ID,
     .presence = JSON_OPTIONAL,
     .target = &body.user,
     .seen = &body.user_seen},
    {.name = "total",
     .kind = JSON_INTEGER,
     .presence = JSON_REQUIRED,
     .minimum = 1,
     .maximum = 100000000,
     .target = &body.total},
    {.name = "opens_at",
     .kind = JSON_TIME,
     .presence = JSON_OPTIONAL_OR_NULL,
     .target = &body.opens_at_ms,
     .seen = &body.opens_at_seen},
    {.name = "paused",
     .kind = JSON_FLAG,
     .presence = JSON_OPTIONAL,
     .target = &body.paused,
     .seen = &body.paused_seen},
    {.name = "discount",
     .kind = JSON_OBJECT,
     .presence = JSON_OPTIONAL,
     .seen = &body.discount_seen,
     .fields = discount_fields,
     .field_count = 2},
};
static const size_t policy_field_count = sizeof(policy_fields) / sizeof(policy_fields[0]);

/* The code points of well-formed UTF-8; anything else is a broken promise. */
static int64_t count_characters(struct span text)
{
    int64_t count = 0;
    while (text.length > 0) {
        uint32_t code_point;
        size_t length = utf8_decode(text.bytes, text.length, &code_point);
        ensure(length > 0);
        text.bytes += length;
        text.length -= length;
        count++;
    }
    return count;
}

static void check_refusal(const char *field, const struct error *error)
{
    ensure(memchr(field, '\0', JSON_FIELD_SIZE) != NULL);
    count_characters(span_of(field));
    ensure(error->text[0] != '\0');
    ensure(strncmp(error->text, field, strlen(field)) == 0);
}

static void check_values(const struct policy_body *read)
{
    ensure(read->total >= 1 && read->total <= 100000000);
    if (read->name_seen == JSON_SEEN_VALUE) {
        int64_t count = count_characters(read->name);
        ensure(count >= 1 && count <= 200);
        ensure(memchr(read->name.bytes, '\0', read->name.length) == NULL);
    }
    if (read->user_seen == JSON_SEEN_VALUE)
        ensure(json_id_valid(read->user));
    if (read->discount_seen == JSON_SEEN_VALUE) {
        ensure(count_characters(read->type) >= 1);
        ensure(read->value >= 1);
    }
    if (read->opens_at_seen == JSON_SEEN_VALUE)
        ensure(read->opens_at_ms > 0 && read->opens_at_ms <= CLOCK_WALL_MAX_MS);
}

static void write_again(const struct policy_body *read, struct buffer *out)
{
    buffer_append_literal(out, "{\"total\":");
    buffer_append_i64(out, read->total);
    if (read->name_seen == JSON_SEEN_VALUE) {
        buffer_append_literal(out, ",\"name\":");
        json_append_text(out, read->name);
    }
    if (read->user_seen == JSON_SEEN_VALUE) {
        buffer_append_literal(out, ",\"user\":");
        json_append_text(out, read->user);
    }
    if (read->opens_at_seen != JSON_NOT_SEEN) {
        buffer_append_literal(out, ",\"opens_at\":");
        json_append_time(out, read->opens_at_seen == JSON_SEEN_VALUE ? read->opens_at_ms : 0);
    }
    if (read->paused_seen == JSON_SEEN_VALUE)
        buffer_append_text(out, read->paused ? ",\"paused\":true" : ",\"paused\":false");
    if (read->discount_seen == JSON_SEEN_VALUE) {
        buffer_append_literal(out, ",\"discount\":{\"type\":");
        json_append_text(out, read->type);
        buffer_append_literal(out, ",\"value\":");
        buffer_append_i64(out, read->value);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "}");
    ensure(!out->overflowed);
}

static void check_same(const struct policy_body *a, const struct policy_body *b)
{
    ensure(a->total == b->total);
    ensure(a->name_seen == b->name_seen && a->user_seen == b->user_seen &&
           a->opens_at_seen == b->opens_at_seen && a->paused_seen == b->paused_seen &&
           a->discount_seen == b->discount_seen);
    ensure(a->name_seen == JSON_NOT_SEEN || span_equal(a->name, b->name));
    ensure(a->user_seen == JSON_NOT_SEEN || span_equal(a->user, b->user));
    ensure(a->opens_at_seen != JSON_SEEN_VALUE || a->opens_at_ms == b->opens_at_ms);
    ensure(a->paused_seen == JSON_NOT_SEEN || a->paused == b->paused);
    ensure(a->discount_seen == JSON_NOT_SEEN ||
           (span_equal(a->type, b->type) && a->value == b->value));
}

static bool is_well_formed(struct span text)
{
    while (text.length > 0) {
        uint32_t code_point;
        size_t length = utf8_decode(text.bytes, text.length, &code_point);
        if (length == 0)
            return false;
        text.bytes += length;
        text.length -= length;
    }
    return true;
}

/* Any bytes at all, written as text, are JSON; what was well-formed is read back as it was. */
static void check_any_text(struct json_reader *reader, struct span bytes)
{
    struct span back = {0};
    const struct json_field field = {
        .name = "t", .kind = JSON_TEXT, .maximum = BODY_MAX, .target = &back};
    struct buffer out;
    buffer_init(&out, 8 * BODY_MAX);
    buffer_append_literal(&out, "{\"t\":");
    json_append_text(&out, bytes);
    buffer_append_literal(&out, "}");
    struct span text = {.bytes = out.bytes, .length = out.length};
    bool has_nul = memchr(bytes.bytes, '\0', bytes.length) != NULL;
    enum status status = json_read_object(reader, text, &field, 1, NULL, NULL);
    ensure(status == (has_nul || text.length > BODY_MAX ? STATUS_INVALID : STATUS_OK));
    ensure(status != STATUS_OK || !is_well_formed(bytes) || span_equal(back, bytes));
    buffer_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct json_reader *reader;
    static struct json_reader *second_reader;
    if (reader == NULL) {
        reader = json_reader_new(BODY_MAX);
        second_reader = json_reader_new(BODY_MAX);
        ensure(reader != NULL && second_reader != NULL);
    }
    struct span input = {.bytes = (const char *)bytes, .length = length};
    struct error error = {""};
    char field[JSON_FIELD_SIZE];
    memset(&body, 0, sizeof(body));
    enum status status =
        json_read_object(reader, input, policy_fields, policy_field_count, field, &error);
    if (status == STATUS_OK) {
        struct policy_body first = body;
        check_values(&first);
        struct buffer out;
        buffer_init(&out, 4 * BODY_MAX);
        write_again(&first, &out);
        struct span again = {.bytes = out.bytes, .length = out.length};
        ensure(json_read_object(second_reader, again, policy_fields, policy_field_count, field,
                                &error) == STATUS_OK);
        check_same(&first, &body);
        buffer_release(&out);
    } else {
        ensure(status == STATUS_INVALID);
        check_refusal(field, &error);
    }
    if (length > 0)
        check_any_text(second_reader, input);
    return 0;
}
