/* test_policy.c: what the API's description and the form say of a policy is what the table has; and
 * a policy that is kept in less room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

#include "base/policy.h"
#include "source.h"

#define SCHEMA "/components/schemas/"

static yyjson_doc *read_openapi(void)
{
    char *text = read_source("src/http/pages/openapi.json");
    yyjson_doc *document = yyjson_read(text, strlen(text), 0);
    assert_non_null(document);
    free(text);
    return document;
}

/* What a schema is, behind its reference. */
static yyjson_val *plain(yyjson_doc *document, yyjson_val *schema)
{
    const char *reference = yyjson_get_str(yyjson_obj_get(schema, "$ref"));
    return reference == NULL ? schema
                             : plain(document, yyjson_doc_ptr_get(document, reference + 1));
}

static bool is_discount(int column)
{
    return column == POLICY_COLUMN_discount_type || column == POLICY_COLUMN_discount_value;
}

static void check_range(yyjson_doc *document, yyjson_val *schema, const char *name, int64_t minimum,
                        int64_t maximum)
{
    yyjson_val *rule = plain(document, schema);
    if (yyjson_get_sint(yyjson_obj_get(rule, "minimum")) != minimum ||
        yyjson_get_sint(yyjson_obj_get(rule, "maximum")) != maximum)
        fail_msg("%s: its range is %lld to %lld", name, (long long)minimum, (long long)maximum);
}

/* The columns that a schema has are those and no others, with their ranges. */
static void check_schema(const char *name, bool (*has)(const struct policy_column_rule *),
                         size_t other_count)
{
    char place[64];
    yyjson_doc *document = read_openapi();
    snprintf(place, sizeof(place), SCHEMA "%s/properties", name);
    yyjson_val *properties = yyjson_doc_ptr_get(document, place);
    size_t count = other_count;
    for (int i = 0; i < POLICY_COLUMN_COUNT; i++) {
        const struct policy_column_rule *rule = &policy_columns[i];
        yyjson_val *schema = yyjson_obj_get(properties, rule->name);
        if (is_discount(i))
            continue;
        if (has(rule) != (schema != NULL))
            fail_msg("%s: %s is %s", name, rule->name, schema == NULL ? "missing" : "too much");
        count += schema != NULL;
        if (schema != NULL && (rule->kind == POLICY_NUMBER || rule->kind == POLICY_NUMBER_OR_NONE))
            check_range(document, schema, rule->name, rule->minimum, rule->maximum);
    }
    assert_int_equal(yyjson_obj_size(properties), count);
    yyjson_doc_free(document);
}

static bool is_given(const struct policy_column_rule *rule)
{
    return rule->given != POLICY_NOT_GIVEN;
}

static bool changes(const struct policy_column_rule *rule)
{
    return rule->later != POLICY_STAYS;
}

static void test_policy__openapi_has_what_is_given_and_what_changes(void **state)
{
    (void)state;
    check_schema("PolicyInput", is_given, 1); /* and the discount */
    check_schema("PolicyChange", changes, 1);
}

static void test_policy__openapi_requires_what_must_be_given(void **state)
{
    (void)state;
    yyjson_doc *document = read_openapi();
    yyjson_val *required = yyjson_doc_ptr_get(document, SCHEMA "PolicyInput/required");
    size_t index;
    size_t max;
    yyjson_val *word;
    size_t count = 0;
    for (int i = 0; i < POLICY_COLUMN_COUNT; i++) {
        bool is_there = false;
        yyjson_arr_foreach(required, index, max, word) is_there =
            is_there || yyjson_equals_str(word, policy_columns[i].name);
        count += is_there;
        if (!is_discount(i))
            assert_int_equal(is_there, policy_columns[i].given == POLICY_REQUIRED);
    }
    assert_int_equal(yyjson_arr_size(required), count + 1); /* and the discount */
    yyjson_doc_free(document);
}

static void test_policy__openapi_shows_every_column(void **state)
{
    (void)state;
    yyjson_doc *document = read_openapi();
    yyjson_val *shown = yyjson_doc_ptr_get(document, SCHEMA "Policy/properties");
    for (int i = 0; i <= POLICY_COLUMN_version; i++)
        if (!is_discount(i) && yyjson_obj_get(shown, policy_columns[i].name) == NULL)
            fail_msg("Policy: %s is missing", policy_columns[i].name);
    yyjson_val *value = yyjson_doc_ptr_get(document, SCHEMA "Discount/properties/value");
    check_range(document, value, "discount.value", 1, DISCOUNT_FIXED_MAX);
    yyjson_val *most =
        yyjson_doc_ptr_get(document, SCHEMA "Discount/then/properties/value/maximum");
    assert_int_equal(yyjson_get_sint(most), DISCOUNT_PERCENT_MAX);
    yyjson_doc_free(document);
}

/* `NAME: {` and, within the braces, `limits: [LEAST, MOST]`. */
static void check_form(const char *text, const char *name, int64_t minimum, int64_t maximum)
{
    char head[64];
    long long least = 0;
    long long most = 0;
    snprintf(head, sizeof(head), "\n  %s: {", name);
    const char *found = strstr(text, head);
    const char *limits = found != NULL ? strstr(found, "limits: [") : NULL;
    if (limits == NULL || limits > strchr(found, '}') ||
        sscanf(limits, "limits: [%lld, %lld]", &least, &most) != 2)
        fail_msg("web/src/rules.js has no limits of %s", name);
    if (least != minimum || most != maximum)
        fail_msg("web/src/rules.js: %s is %lld to %lld", name, (long long)minimum,
                 (long long)maximum);
}

static void test_policy__the_form_has_the_limits(void **state)
{
    (void)state;
    char *text = read_source("web/src/rules.js");
    for (int i = 0; i < POLICY_COLUMN_COUNT; i++) {
        const struct policy_column_rule *rule = &policy_columns[i];
        if (is_given(rule) && !is_discount(i) &&
            (rule->kind == POLICY_NUMBER || rule->kind == POLICY_NUMBER_OR_NONE))
            check_form(text, rule->name, rule->minimum, rule->maximum);
    }
    check_form(text, "percent", 1, DISCOUNT_PERCENT_MAX);
    check_form(text, "fixed", 1, DISCOUNT_FIXED_MAX);
    free(text);
}

/* Cut to size: a sanitizer would see whoever reads or writes behind its name. */
static void test_policy__kept_has_all_but_the_room_of_its_name(void **state)
{
    (void)state;
    const char *names[] = {"", "short", "\xc3\xa9", NULL};
    char longest[POLICY_NAME_SIZE];
    memset(longest, 'n', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    names[3] = longest;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct policy policy = {0};
        struct policy copy;
        for (int column = 0; column < POLICY_COLUMN_COUNT; column++)
            if (policy_columns[column].kind != POLICY_TEXT)
                assert_true(policy_set_number(&policy, column, policy_columns[column].maximum));
        policy.is_damaged = true;
        memcpy(policy.name, names[i], strlen(names[i]) + 1);
        struct policy *kept = policy_keep(&policy);
        assert_non_null(kept);
        memset(&copy, 0xff, sizeof(copy));
        policy_copy(&copy, kept);
        free(kept);
        assert_true(copy.is_damaged);
        assert_string_equal(copy.name, names[i]);
        for (int column = 0; column < POLICY_COLUMN_COUNT; column++)
            if (policy_columns[column].kind != POLICY_TEXT)
                assert_int_equal(policy_number(&copy, column), policy_columns[column].maximum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy__openapi_has_what_is_given_and_what_changes),
        cmocka_unit_test(test_policy__openapi_requires_what_must_be_given),
        cmocka_unit_test(test_policy__openapi_shows_every_column),
        cmocka_unit_test(test_policy__the_form_has_the_limits),
        cmocka_unit_test(test_policy__kept_has_all_but_the_room_of_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
