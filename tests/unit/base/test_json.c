/* test_json.c: what the reader takes and refuses, and text that survives the way there and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"

#define BODY_MAX 16384

static struct json_reader *reader;
static char field[JSON_FIELD_SIZE];
static struct error error;

/* A table with every kind and presence. */
static struct {
    struct span name;
    struct span user;
    int64_t total;
    bool paused;
    int64_t opens_at_ms;
    enum json_seen opens_at_seen;
    struct span type;
    int64_t value;
    enum json_seen value_seen;
    enum json_seen paused_seen;
} got;

static const struct json_field discount_fields[] = {
    {.name = "type",
     .kind = JSON_TEXT,
     .presence = JSON_REQUIRED,
     .maximum = 10,
     .target = &got.type},
    {.name = "value",
     .kind = JSON_INTEGER,
     .presence = JSON_REQUIRED,
     .minimum = -5,
     .maximum = INT64_MAX,
     .target = &got.value,
     .seen = &got.value_seen},
};

static const struct json_field fields[] = {
    {.name = "name",
     .kind = JSON_TEXT,
     .presence = JSON_OPTIONAL,
     .minimum = 1,
     .maximum = 5,
     .target = &got.name},
    {.name = "user", .kind = JSON_ID, .presence = JSON_OPTIONAL, .target = &got.user},
    {.name = "total",
     .kind = JSON_INTEGER,
     .presence = JSON_REQUIRED,
     .minimum = 1,
     .maximum = 100000000,
     .target = &got.total},
    {.name = "paused",
     .kind = JSON_FLAG,
     .presence = JSON_OPTIONAL,
     .target = &got.paused,
     .seen = &got.paused_seen},
    {.name = "opens_at",
     .kind = JSON_TIME,
     .presence = JSON_OPTIONAL_OR_NULL,
     .target = &got.opens_at_ms,
     .seen = &got.opens_at_seen},
    {.name = "discount",
     .kind = JSON_OBJECT,
     .presence = JSON_OPTIONAL,
     .fields = discount_fields,
     .field_count = 2},
};

static int setup(void **state)
{
    reader = json_reader_new(BODY_MAX);
    memset(&got, 0, sizeof(got));
    return reader == NULL;
}

static int teardown(void **state)
{
    json_reader_free(reader);
    return 0;
}

/* The body in memory of just its size, gone before the spans are looked at. */
static enum status read_body(struct span body)
{
    char *copy = malloc(body.length > 0 ? body.length : 1);
    assert_non_null(copy);
    if (body.length > 0)
        memcpy(copy, body.bytes, body.length);
    strcpy(error.text, "");
    memset(field, '#', sizeof(field));
    enum status status =
        json_read_object(reader, (struct span){.bytes = copy, .length = body.length}, fields,
                         sizeof(fields) / sizeof(fields[0]), field, &error);
    free(copy);
    return status;
}

static void assert_refused(const char *body, const char *expected_field, const char *words)
{
    enum status status = read_body(span_of(body));
    if (status != STATUS_INVALID || strcmp(field, expected_field) != 0 ||
        strstr(error.text, words) == NULL) {
        fail_msg("%s: status %s, field \"%s\", words \"%s\"", body, status_name(status), field,
                 error.text);
    }
}

static void assert_taken(const char *body)
{
    if (read_body(span_of(body)) != STATUS_OK)
        fail_msg("%s: %s", body, error.text);
    assert_string_equal(field, "");
}

static void test_json__every_kind_reaches_its_target(void **state)
{
    assert_taken(" {\"name\":\"caf\\u00e9\", \"user\":\"u1@shop:x-y_z.0\", \"total\":100000000,\r\n"
                 "\t\"paused\":true,\"opens_at\":\"2026-11-15T21:00:00+09:00\","
                 "\"discount\":{\"type\":\"percent\",\"value\":-5}} ");
    assert_true(span_equal(got.name, SPAN("caf\xc3\xa9")));
    assert_true(span_equal(got.user, SPAN("u1@shop:x-y_z.0")));
    assert_int_equal(got.total, 100000000);
    assert_true(got.paused);
    assert_int_equal(got.paused_seen, JSON_SEEN_VALUE);
    assert_int_equal(got.opens_at_ms, INT64_C(1794744000000));
    assert_int_equal(got.opens_at_seen, JSON_SEEN_VALUE);
    assert_true(span_equal(got.type, SPAN("percent")));
    assert_int_equal(got.value, -5);
}

static void test_json__seen_tells_value_null_and_absence(void **state)
{
    assert_taken("{\"total\":1,\"opens_at\":null,\"discount\":{\"type\":\"\",\"value\":1}}");
    assert_int_equal(got.opens_at_seen, JSON_SEEN_NULL);
    assert_int_equal(got.value_seen, JSON_SEEN_VALUE);
    assert_int_equal(got.paused_seen, JSON_NOT_SEEN);
    /* What an earlier document had does not stay. */
    assert_taken("{\"total\":1}");
    assert_int_equal(got.opens_at_seen, JSON_NOT_SEEN);
    assert_int_equal(got.value_seen, JSON_NOT_SEEN);
}

static void test_json__numbers_become_ids(void **state)
{
    struct span ids[3];
    const struct json_field id_fields[] = {
        {.name = "a", .kind = JSON_ID, .target = &ids[0]},
        {.name = "b", .kind = JSON_ID, .target = &ids[1]},
        {.name = "c", .kind = JSON_ID, .target = &ids[2]},
    };
    struct span body = SPAN("{\"a\":0,\"b\":18446744073709551615,\"c\":10}");
    /* More often than the room for digits would last if it were not used again. */
    for (int i = 0; i < BODY_MAX / 20; i++) {
        assert_int_equal(json_read_object(reader, body, id_fields, 3, NULL, NULL), STATUS_OK);
        assert_true(span_equal(ids[0], SPAN("0")));
        assert_true(span_equal(ids[1], SPAN("18446744073709551615")));
        assert_true(span_equal(ids[2], SPAN("10")));
    }
}

static void test_json__values_out_of_bounds_are_refused_by_name(void **state)
{
    static const char *const totals[] = {
        "0",
        "-1",
        "100000001",
        "9223372036854775808",
        "18446744073709551616",
        "1e400",
        "1.0",
        "1e0",
        "1E3",
        "-0.0",
        "1.5",
        "\"1\"",
        "true",
        "null",
        "[1]",
        "{\"a\":1}",
        "-9223372036854775809",
    };
    for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
        char body[128];
        snprintf(body, sizeof(body), "{\"total\":%s}", totals[i]);
        if (strcmp(totals[i], "1e400") == 0)
            assert_refused(body, "", "must be valid JSON");
        else
            assert_refused(body, "total", "total: must be an integer from 1 to 100000000");
    }
    assert_refused("{\"total\":1,\"name\":\"\"}", "name", "must be a string of 1 to 5 characters");
    assert_refused("{\"total\":1,\"name\":\"123456\"}", "name", "1 to 5 characters");
    assert_refused("{\"total\":1,\"name\":\"a\\u0000b\"}", "name", "without U+0000");
    assert_refused("{\"total\":1,\"name\":5}", "name", "must be a string");
    assert_refused("{\"total\":1,\"name\":null}", "name", "must be a string");
    assert_refused("{\"total\":1,\"paused\":1}", "paused", "must be true or false");
    assert_refused("{\"total\":1,\"paused\":null}", "paused", "must be true or false");
    assert_refused("{\"total\":1,\"opens_at\":\"tomorrow\"}", "opens_at",
                   "such as \"2026-11-15T12:00:00Z\", or null");
    assert_refused("{\"total\":1,\"opens_at\":1794744000}", "opens_at", "RFC 3339");
    assert_refused("{\"total\":1,\"opens_at\":\"1970-01-01T00:00:00.0009Z\"}", "opens_at",
                   "after 1970");
    assert_refused("{\"total\":1,\"discount\":[]}", "discount", "must be an object");
    assert_refused("{\"total\":1,\"discount\":{\"type\":\"p\",\"value\":-6}}", "discount.value",
                   "discount.value: must be an integer from -5 to 9223372036854775807");
    assert_refused("{\"total\":1,\"discount\":{\"type\":\"p\",\"value\":18446744073709551615}}",
                   "discount.value", "must be an integer");
}

static void test_json__text_counts_characters(void **state)
{
    assert_taken(
        "{\"total\":1,\"name\":\"\xf0\x9f\x8e\x9f\xf0\x9f\x8e\x9f\xe2\x82\xac\xc3\xa9x\"}");
    assert_int_equal(got.name.length, 14);
    assert_taken("{\"total\":1,\"name\":\"\\ud83c\\udf9f\\u20ac\"}");
    assert_true(span_equal(got.name, SPAN("\xf0\x9f\x8e\x9f\xe2\x82\xac")));
    assert_refused("{\"total\":1,\"name\":\"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\"}",
                   "name", "1 to 5 characters");
}

static void test_json__ids_are_printable_text(void **state)
{
    char longest[130];
    memset(longest, 'a', sizeof(longest));
    for (unsigned byte = 0; byte < 256; byte++) {
        char id[3] = {'x', (char)byte, 'y'};
        bool allowed = byte >= ' ' && byte < 0x7f && byte != '/';
        assert_int_equal(json_id_valid((struct span){.bytes = id, .length = 3}), allowed);
        /* At an end, and alone. */
        allowed = allowed && byte != ' ';
        assert_int_equal(json_id_valid((struct span){.bytes = id, .length = 2}), allowed);
        assert_int_equal(json_id_valid((struct span){.bytes = id + 1, .length = 2}), allowed);
        assert_int_equal(json_id_valid((struct span){.bytes = id + 1, .length = 1}),
                         allowed && byte != '.');
    }
    assert_false(json_id_valid((struct span){0}));
    assert_true(json_id_valid((struct span){.bytes = longest, .length = 1}));
    assert_true(json_id_valid((struct span){.bytes = longest, .length = 128}));
    assert_false(json_id_valid((struct span){.bytes = longest, .length = 129}));

    static const char *const good[] = {"...",
                                       ".a",
                                       "a.",
                                       "a+b@x.com",
                                       "auth0|123",
                                       "김하늘",
                                       "a b",
                                       "김\xe3\x80\x80늘",
                                       "\xf0\x9f\x8e\x9f",
                                       "\\",
                                       "\""};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(json_id_valid(span_of(good[i])));
    static const char *const bad[] = {
        ".",
        "..",
        " ",
        " a",
        "a ",
        "a/b",
        "김/늘",
        "\xe3\x80\x80"
        "a",
        "김\xe3\x80\x80",
        "a\xc2\xa0", /* wide and hard blanks at ends */
        "a\xc2\x85"
        "b",
        "a\xe2\x80\xa8"
        "b",
        "a\xe2\x80\xae"
        "b", /* controls, line and text direction */
        "a\xe2\x81\xa6"
        "b",
        "a\xd8\x9c"
        "b",
        "a\xe2\x80\x8f"
        "b",
        "a\xff"
        "b",
        "\xc1\xa1",
        "\xed\xa0\x80",
        "김\xea\xb9", /* no UTF-8 */
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (json_id_valid(span_of(bad[i])))
            fail_msg("%zu: \"%s\" is taken", i, bad[i]);

    static const char *const bodies[] = {
        "{\"total\":1,\"user\":\"\"}",
        "{\"total\":1,\"user\":\"..\"}",
        "{\"total\":1,\"user\":\"a \"}",
        "{\"total\":1,\"user\":\"a/b\"}",
        "{\"total\":1,\"user\":-1}",
        "{\"total\":1,\"user\":-0}",
        "{\"total\":1,\"user\":1.0}",
        "{\"total\":1,\"user\":true}",
        "{\"total\":1,\"user\":null}",
        "{\"total\":1,\"user\":[\"u1\"]}",
        "{\"total\":1,\"user\":18446744073709551616}",
        "{\"total\":1,\"user\":\"\\u202e\"}",
        "{\"total\":1,\"user\":\"a\\u0000\"}",
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        assert_refused(bodies[i], "user", "user: " JSON_ID_RULE);
}

/* A list beside a field of the body, as an order has it. */
static struct item {
    struct span product;
    int64_t quantity;
    enum json_seen quantity_seen;
} item, items[3];
static struct json_list list = {.element = &item, .element_size = sizeof(item), .elements = items};
static const struct json_field item_fields[] = {
    {.name = "product", .kind = JSON_ID, .presence = JSON_REQUIRED, .target = &item.product},
    {.name = "quantity",
     .kind = JSON_INTEGER,
     .presence = JSON_OPTIONAL,
     .minimum = 1,
     .maximum = 9,
     .target = &item.quantity,
     .seen = &item.quantity_seen},
};
static const struct json_field list_field = {.name = "items",
                                             .kind = JSON_LIST,
                                             .presence = JSON_REQUIRED,
                                             .minimum = 1,
                                             .maximum = 3,
                                             .target = &list,
                                             .fields = item_fields,
                                             .field_count = 2};

static void assert_list_refused(const char *body, const char *path, const char *words)
{
    assert_int_equal(json_read_object(reader, span_of(body), &list_field, 1, field, &error),
                     STATUS_INVALID);
    assert_string_equal(field, path);
    assert_non_null(strstr(error.text, words));
}

static void test_json__lists_reach_their_elements(void **state)
{
    const char *body = "{\"items\":[{\"product\":\"p1\",\"quantity\":2},{\"product\":7},"
                       "{\"quantity\":9,\"product\":\"p3\"}]}";
    assert_int_equal(json_read_object(reader, span_of(body), &list_field, 1, field, &error),
                     STATUS_OK);
    assert_int_equal(list.count, 3);
    assert_true(span_equal(items[0].product, SPAN("p1")));
    assert_int_equal(items[0].quantity, 2);
    assert_true(span_equal(items[1].product, SPAN("7")));
    assert_int_equal(items[1].quantity, 0);
    assert_int_equal(items[1].quantity_seen, JSON_NOT_SEEN);
    assert_true(span_equal(items[2].product, SPAN("p3")));
    assert_int_equal(items[2].quantity, 9);
}

/* Orders with items: what all orders have lies in one row, and each knows its part. */
static struct nest {
    struct span name;
    struct json_part part;
} nest, nested[3];
static struct json_list inner_list = {.element = &item,
                                      .element_size = sizeof(item),
                                      .elements = items,
                                      .part = &nest.part,
                                      .elements_max = 3};
static struct json_list outer_list = {
    .element = &nest, .element_size = sizeof(nest), .elements = nested};
static const struct json_field outer_fields[] = {
    {.name = "name", .kind = JSON_ID, .presence = JSON_REQUIRED, .target = &nest.name},
    {.name = "items",
     .kind = JSON_LIST,
     .presence = JSON_OPTIONAL,
     .minimum = 1,
     .maximum = 3,
     .target = &inner_list,
     .fields = item_fields,
     .field_count = 2},
};
static const struct json_field outer_field = {.name = "orders",
                                              .kind = JSON_LIST,
                                              .presence = JSON_REQUIRED,
                                              .minimum = 1,
                                              .maximum = 3,
                                              .target = &outer_list,
                                              .fields = outer_fields,
                                              .field_count = 2};

static void test_json__lists_within_lists(void **state)
{
    const char *body = "{\"orders\":[{\"name\":\"a\",\"items\":[{\"product\":\"p1\"},"
                       "{\"product\":\"p2\",\"quantity\":2}]},{\"name\":\"b\"},"
                       "{\"items\":[{\"product\":\"p3\"}],\"name\":\"c\"}]}";
    const char *many = "{\"orders\":[{\"name\":\"a\",\"items\":[{\"product\":\"p1\"},"
                       "{\"product\":\"p2\"}]},{\"name\":\"b\",\"items\":"
                       "[{\"product\":\"p3\"},{\"product\":\"p4\"}]}]}";
    const char *wrong = "{\"orders\":[{\"name\":\"a\"},{\"name\":\"b\",\"items\":"
                        "[{\"product\":\"p3\",\"quantity\":0}]}]}";

    inner_list.count = 0;
    assert_int_equal(json_read_object(reader, span_of(body), &outer_field, 1, field, &error),
                     STATUS_OK);
    assert_int_equal(outer_list.count, 3);
    assert_int_equal(inner_list.count, 3);
    assert_int_equal(nested[0].part.first, 0);
    assert_int_equal(nested[0].part.count, 2);
    assert_int_equal(nested[1].part.count, 0);
    assert_int_equal(nested[2].part.first, 2);
    assert_int_equal(nested[2].part.count, 1);
    assert_true(span_equal(items[2].product, SPAN("p3")));
    assert_int_equal(items[1].quantity, 2);
    assert_int_equal(items[2].quantity, 0);

    inner_list.count = 0;
    assert_int_equal(json_read_object(reader, span_of(many), &outer_field, 1, field, &error),
                     STATUS_INVALID);
    assert_string_equal(field, "orders.2.items");
    assert_non_null(strstr(error.text, "must be at most 3 in all"));
    inner_list.count = 0;
    assert_int_equal(json_read_object(reader, span_of(wrong), &outer_field, 1, field, &error),
                     STATUS_INVALID);
    assert_string_equal(field, "orders.2.items.1.quantity");
}

static void test_json__lists_are_refused_by_element(void **state)
{
    assert_list_refused("{}", "items", "items: is missing");
    assert_list_refused("{\"items\":{}}", "items", "must be a list of 1 to 3 objects");
    assert_list_refused("{\"items\":[]}", "items", "must be a list of 1 to 3 objects");
    assert_list_refused("{\"items\":[1,2,3,4]}", "items", "must be a list of 1 to 3 objects");
    assert_list_refused("{\"items\":[{\"product\":1},2]}", "items.2", "must be an object");
    assert_list_refused("{\"items\":[{\"product\":1},{}]}", "items.2.product", "is missing");
    assert_list_refused("{\"items\":[{\"product\":1,\"quantity\":10}]}", "items.1.quantity",
                        "an integer from 1 to 9");
    assert_list_refused("{\"items\":[{\"product\":1,\"x\":10}]}", "items.1.x", "not a known");
}

static void test_json__missing_unknown_and_double_fields_are_refused(void **state)
{
    assert_refused("{}", "total", "total: is missing");
    assert_refused("{\"discount\":{\"type\":\"p\"},\"total\":1}", "discount.value",
                   "discount.value: is missing");
    assert_refused("{\"total\":1,\"colour\":2}", "colour",
                   "colour: is not a known field; known are name, user, total, paused");
    assert_refused("{\"total\":1,\"discount\":{\"typ\":\"p\"}}", "discount.typ", "type, value");
    assert_refused("{\"total\":1,\"Total\":1}", "Total", "is not a known field");
    assert_refused("{\"total\":1,\"tota\":1}", "tota", "is not a known field");
    assert_refused("{\"total\":1,\"total\\u0000\":1}", "total?", "is not a known field");
    assert_refused("{\"total\":1,\"\":1}", "", "is not a known field");
    assert_refused("{\"total\":1,\"total\":1}", "total", "total: must be there only once");
    assert_refused("{\"total\":1,\"t\\u006ftal\":2}", "total", "only once");
    assert_refused("{\"total\":1,\"opens_at\":null,\"opens_at\":null}", "opens_at", "only once");
    assert_refused("{\"total\":1,\"discount\":{\"type\":\"a\",\"type\":\"b\",\"value\":1}}",
                   "discount.type", "only once");
}

static void test_json__a_long_field_name_is_cut_at_a_character(void **state)
{
    /* 62 bytes, then a character that would end at 65. */
    char body[256] = "{\"total\":1,\"";
    for (int i = 0; i < 31; i++)
        strcat(body, "\xc3\xa9");
    strcat(body, "\xe2\x82\xac\":1}");
    assert_int_equal(read_body(span_of(body)), STATUS_INVALID);
    assert_int_equal(strlen(field), 62);
    assert_true(field[61] == '\xa9');

    char name[101];
    memset(name, 'n', 100);
    name[100] = '\0';
    for (int length = 40; length <= 100; length++) {
        snprintf(body, sizeof(body), "{\"total\":1,\"discount\":{\"%.*s\":1}}", length, name);
        assert_int_equal(read_body(span_of(body)), STATUS_INVALID);
        assert_int_equal(strlen(field), 9 + length < 63 ? 9 + length : 63);
        assert_memory_equal(field, "discount.nnn", 12);
    }
}

static void test_json__a_path_ends_where_its_room_does(void **state)
{
    char parent[80];
    const struct json_field inner = {.name = "inner", .kind = JSON_FLAG, .target = &got.paused};
    const struct json_field outer = {
        .name = parent, .kind = JSON_OBJECT, .fields = &inner, .field_count = 1};
    for (int length = 50; length < 80; length++) {
        memset(parent, 'p', sizeof(parent));
        parent[length] = '\0';
        char body[128];
        snprintf(body, sizeof(body), "{\"%s\":{}}", parent);
        assert_int_equal(json_read_object(reader, span_of(body), &outer, 1, field, &error),
                         STATUS_INVALID);
        assert_int_equal(strlen(field), length + 6 < 63 ? length + 6 : 63);
    }
}

static void test_json__a_long_list_of_known_fields_is_cut(void **state)
{
    struct json_field many[64];
    for (size_t i = 0; i < 64; i++)
        many[i] = (struct json_field){.name = "a_rather_long_name", .kind = JSON_FLAG};
    for (size_t count = 0; count <= 64; count++) {
        assert_int_equal(json_read_object(reader, SPAN("{\"x\":1}"), many, count, field, &error),
                         STATUS_INVALID);
        assert_string_equal(field, "x");
    }
    assert_non_null(strstr(error.text, "known are a_rather_long_name, a_rather"));
}

static void test_json__what_is_no_object_is_refused(void **state)
{
    static const char *const bodies[] = {
        " ", "[]", "\"total\"", "1", "null", "true", "[{\"total\":1}]",
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        assert_refused(bodies[i], "",
                       i == 0 ? "body: must be valid JSON" : "body: must be a JSON object");
    }
}

static void test_json__what_is_no_json_is_refused(void **state)
{
    static const struct span bodies[] = {
        SPAN("{\"total\":1"),
        SPAN("{\"total\":1}}"),
        SPAN("{\"total\":1} x"),
        SPAN("{\"total\":1}{\"total\":1}"),
        SPAN("{\"total\":1}\0"),
        SPAN("{\"total\":1,}"),
        SPAN("{\"total\" 1}"),
        SPAN("{total:1}"),
        SPAN("{'total':1}"),
        SPAN("{\"total\":01}"),
        SPAN("{\"total\":+1}"),
        SPAN("{\"total\":0x1}"),
        SPAN("{\"total\":.5}"),
        SPAN("{\"total\":1.}"),
        SPAN("{\"total\":NaN}"),
        SPAN("{\"total\":nan}"),
        SPAN("{\"total\":Infinity}"),
        SPAN("{\"total\":-Infinity}"),
        SPAN("{\"total\":inf}"),
        SPAN("{\"total\":1}//"),
        SPAN("/**/{\"total\":1}"),
        SPAN("{\"name\":\"a\nb\"}"),
        SPAN("{\"name\":\"a\tb\"}"),
        SPAN("{\"name\":\"\\x41\"}"),
        SPAN("{\"name\":\"\\ud800\"}"),
        SPAN("{\"name\":\"\\udc00\\ud800\"}"),
        SPAN("{\"name\":\"\xff\"}"),
        SPAN("{\"name\":\"\xc0\xaf\"}"),
        SPAN("{\"name\":\"\xed\xa0\x80\"}"),
        SPAN("{\"name\":\"\xf4\x90\x80\x80\"}"),
        SPAN("{\"name\":\"\xe2\x82\"}"),
        SPAN("{\"\xff\":1}"),
        SPAN("\xef\xbb\xbf{\"total\":1}"),
        SPAN("{\0\"\0t\0\"\0:\0\x31\0}\0"),
        SPAN("{"),
        SPAN("{\""),
        SPAN("\0"),
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        enum status status = read_body(bodies[i]);
        if (status != STATUS_INVALID || strcmp(field, "") != 0 ||
            strncmp(error.text, "body: must be valid JSON: ", 26) != 0) {
            fail_msg("%s: status %s, words \"%s\"", bodies[i].bytes, status_name(status),
                     error.text);
        }
    }
}

/* {"total":1,"discount":{...}} with containers of `open` inside each other, `depth` in all. */
static void check_depth(char open, char close, int depth, const char *words)
{
    char body[256] = "{\"discount\":";
    size_t length = strlen(body);
    for (int i = 1; i < depth; i++)
        length += (size_t)sprintf(body + length, open == '{' && i > 1 ? "\"a\":%c" : "%c", open);
    for (int i = 1; i < depth; i++)
        body[length++] = close;
    strcpy(body + length, "}");
    assert_int_equal(read_body(span_of(body)), STATUS_INVALID);
    if (strstr(error.text, words) == NULL)
        fail_msg("%s: %s", body, error.text);
}

static void test_json__more_than_eight_levels_are_refused(void **state)
{
    check_depth('[', ']', 8, "discount: must be an object");
    check_depth('[', ']', 9, "body: must not be nested deeper than 8 levels");
    check_depth('{', '}', 8, "discount.a: is not a known field");
    check_depth('{', '}', 9, "body: must not be nested deeper than 8 levels");
    /* Breadth is not depth. */
    assert_refused("{\"discount\":[[],[],[],[],[],[],[],[],[],[],[{},{},{}]]}", "discount",
                   "must be an object");
    /* Deep inside a field that nobody knows, after shallow ones. */
    assert_refused("{\"total\":1,\"x\":[[],{},[[[[[[[[]]]]]]]]]}", "", "nested deeper");
}

static void test_json__brackets_without_end_do_not_exhaust_the_reader(void **state)
{
    static char body[BODY_MAX + 2];
    memset(body, '[', BODY_MAX);
    assert_refused(body, "", "body: must be valid JSON: ");
    memset(body, '{', BODY_MAX);
    assert_refused(body, "", "body: must be valid JSON: ");
    for (size_t i = 0; i + 5 <= BODY_MAX; i += 5)
        memcpy(body + i, "{\"a\":", 5);
    assert_refused(body, "", "body: must be valid JSON: ");
    assert_taken("{\"total\":1}");
}

static void test_json__the_longest_documents_are_read_without_more_memory(void **state)
{
    /* As many values as fit: the pool must hold every valid text. */
    static char body[BODY_MAX + 2];
    strcpy(body, "{\"total\":[");
    size_t length = strlen(body);
    while (length < BODY_MAX - 3) {
        body[length++] = '1';
        body[length++] = ',';
    }
    strcpy(body + length - 1, "]}");
    assert_refused(body, "total", "must be an integer");

    memset(body, ' ', BODY_MAX);
    memcpy(body, "{\"total\":7}", 11);
    body[BODY_MAX] = '\0';
    assert_taken(body);
    assert_int_equal(got.total, 7);
    body[BODY_MAX] = ' ';
    body[BODY_MAX + 1] = '\0';
    assert_refused(body, "", "body: must have at most 16384 bytes");
}

static void test_json__an_empty_body_is_an_empty_object_if_nothing_is_required(void **state)
{
    assert_refused("", "", "body: must be a JSON object and is empty");
    got.paused_seen = JSON_SEEN_VALUE;
    assert_int_equal(json_read_object(reader, (struct span){0}, &fields[3], 1, field, &error),
                     STATUS_OK);
    assert_int_equal(got.paused_seen, JSON_NOT_SEEN);
    assert_int_equal(json_read_object(reader, SPAN("{}"), NULL, 0, field, &error), STATUS_OK);
    assert_int_equal(json_read_object(reader, SPAN("{\"a\":1}"), NULL, 0, field, &error),
                     STATUS_INVALID);
    assert_string_equal(error.text, "a: is not a known field; known are none");
}

static void test_json__refusals_need_no_words(void **state)
{
    assert_int_equal(json_read_object(reader, SPAN("{\"total\":0}"), fields, 6, NULL, NULL),
                     STATUS_INVALID);
}

static void append_and_compare(struct span text, const char *expected)
{
    struct buffer out;
    buffer_init(&out, 1000);
    json_append_text(&out, text);
    assert_string_equal(out.bytes, expected);
    buffer_release(&out);
}

static void test_json__append_text_escapes(void **state)
{
    append_and_compare((struct span){0}, "\"\"");
    append_and_compare(SPAN("u1"), "\"u1\"");
    append_and_compare(SPAN("a\"b\\c/d"), "\"a\\\"b\\\\c/d\"");
    append_and_compare(SPAN("\n\r\t\b\f\x01\x1f\0"),
                       "\"\\n\\r\\t\\u0008\\u000c\\u0001\\u001f\\u0000\"");
    append_and_compare(SPAN("caf\xc3\xa9 \xf0\x9f\x8e\x9f\x7f"),
                       "\"caf\xc3\xa9 \xf0\x9f\x8e\x9f\\u007f\"");
    /* What could drive a terminal: CSI in one character, text that runs backwards, a line's end. */
    append_and_compare(SPAN("a\xc2\x9b\xe2\x80\xaez\xe2\x80\xa8"), "\"a\\u009b\\u202ez\\u2028\"");
    append_and_compare(SPAN("a\xff\xc3z\xe2\x82"),
                       "\"a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\"");
    append_and_compare(SPAN("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void test_json__every_character_survives_the_way_there_and_back(void **state)
{
    struct buffer out;
    buffer_init(&out, 1000);
    struct span back;
    const struct json_field text_field = {
        .name = "t", .kind = JSON_TEXT, .maximum = 10, .target = &back};
    for (int byte = 1; byte < 128; byte++) {
        char text[4] = {'x', (char)byte, (char)byte, 'y'};
        struct span span = {.bytes = text, .length = 4};
        buffer_clear(&out);
        buffer_append_literal(&out, "{\"t\":");
        json_append_text(&out, span);
        buffer_append_literal(&out, "}");
        struct span body = {.bytes = out.bytes, .length = out.length};
        assert_int_equal(json_read_object(reader, body, &text_field, 1, NULL, &error), STATUS_OK);
        assert_true(span_equal(back, span));
    }
    buffer_release(&out);
}

static void test_json__members_get_their_commas(void **state)
{
    struct buffer out;
    char name[] = "a\"b";
    const char *none = NULL;
    int32_t small = -7;

    buffer_init(&out, 1024);
    buffer_append_text(&out, "data: ");
    json_begin(&out, '{');
    json_put(&out, "n", (int64_t)12);
    json_put(&out, "small", small);
    json_put_flag(&out, "yes", true);
    json_put(&out, "name", name);
    json_put(&out, "span", SPAN("x"));
    json_put(&out, "none", none);
    json_put_null(&out, "null");
    json_put_time(&out, "at", 0);
    buffer_append_text(&out, ",\"list\":[");
    for (int i = 0; i < 2; i++) {
        json_begin(&out, '{');
        json_put_time(&out, "at", 1000);
        buffer_append_text(&out, "}");
    }
    buffer_append_text(&out, "]");
    json_put(&out, "end", "");
    buffer_append_text(&out, "}");
    assert_string_equal(out.bytes, "data: {\"n\":12,\"small\":-7,\"yes\":true,\"name\":\"a\\\"b\","
                                   "\"span\":\"x\",\"none\":null,\"null\":null,\"at\":null,"
                                   "\"list\":[{\"at\":\"1970-01-01T00:00:01.000Z\"},"
                                   "{\"at\":\"1970-01-01T00:00:01.000Z\"}],\"end\":\"\"}");
    buffer_release(&out);
}

static void test_json__append_time_writes_null_for_none(void **state)
{
    struct buffer out;
    buffer_init(&out, 1000);
    json_append_time(&out, 0);
    json_append_time(&out, 1);
    json_append_time(&out, CLOCK_WALL_MAX_MS);
    assert_string_equal(out.bytes, "null\"1970-01-01T00:00:00.001Z\"\"9999-12-31T23:59:59.999Z\"");
    assert_int_equal(out.length, strlen(out.bytes));
    buffer_release(&out);
}

/* In the order in which they are found, each field once, and no more than there are places for. */
static void test_json__tells_all_mistakes(void **state)
{
    const struct span body =
        SPAN("{\"name\":\"too long\",\"total\":0,\"who\":1,\"total\":1,\"paused\":\"yes\","
             "\"discount\":{\"type\":1}}");
    static const char *const named[] = {"name",   "total",         "who",
                                        "paused", "discount.type", "discount.value"};
    const struct json_mistakes *mistakes = json_reader_mistakes(reader);
    char many[1024] = "{";

    (void)state;
    assert_int_equal(json_read_object(reader, body, fields, COUNT_OF(fields), field, &error),
                     STATUS_INVALID);
    assert_string_equal(field, "name");
    assert_int_equal(mistakes->count, COUNT_OF(named));
    for (size_t i = 0; i < COUNT_OF(named); i++)
        assert_string_equal(mistakes->items[i].field, named[i]);
    assert_string_equal(mistakes->items[5].message, "is missing");
    json_reader_note(reader, "user", "user: is blocked");
    json_reader_note(reader, "total", "is too low");
    assert_int_equal(mistakes->count, COUNT_OF(named) + 1);
    assert_string_equal(mistakes->items[6].message, "is blocked");

    for (int i = 0; i < 50; i++)
        snprintf(many + strlen(many), 16, "%s\"f%d\":1", i > 0 ? "," : "", i);
    strcat(many, "}");
    assert_int_equal(
        json_read_object(reader, span_of(many), fields, COUNT_OF(fields), NULL, &error),
        STATUS_INVALID);
    assert_int_equal(mistakes->count, JSON_MISTAKES_MAX);
    assert_int_equal(
        json_read_object(reader, SPAN("{\"total\":1}"), fields, COUNT_OF(fields), NULL, &error),
        STATUS_OK);
    assert_int_equal(mistakes->count, 0);
}

int main(void)
{
#define READER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        READER_TEST(test_json__every_kind_reaches_its_target),
        READER_TEST(test_json__seen_tells_value_null_and_absence),
        READER_TEST(test_json__numbers_become_ids),
        READER_TEST(test_json__values_out_of_bounds_are_refused_by_name),
        READER_TEST(test_json__text_counts_characters),
        READER_TEST(test_json__ids_are_printable_text),
        READER_TEST(test_json__lists_reach_their_elements),
        READER_TEST(test_json__lists_are_refused_by_element),
        READER_TEST(test_json__lists_within_lists),
        READER_TEST(test_json__tells_all_mistakes),
        READER_TEST(test_json__missing_unknown_and_double_fields_are_refused),
        READER_TEST(test_json__a_long_field_name_is_cut_at_a_character),
        READER_TEST(test_json__a_path_ends_where_its_room_does),
        READER_TEST(test_json__a_long_list_of_known_fields_is_cut),
        READER_TEST(test_json__what_is_no_object_is_refused),
        READER_TEST(test_json__what_is_no_json_is_refused),
        READER_TEST(test_json__more_than_eight_levels_are_refused),
        READER_TEST(test_json__brackets_without_end_do_not_exhaust_the_reader),
        READER_TEST(test_json__the_longest_documents_are_read_without_more_memory),
        READER_TEST(test_json__an_empty_body_is_an_empty_object_if_nothing_is_required),
        READER_TEST(test_json__refusals_need_no_words),
        READER_TEST(test_json__every_character_survives_the_way_there_and_back),
        cmocka_unit_test(test_json__append_text_escapes),
        cmocka_unit_test(test_json__members_get_their_commas),
        cmocka_unit_test(test_json__append_time_writes_null_for_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
