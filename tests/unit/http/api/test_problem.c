/* test_problem.c: every refusal has its words, valid JSON and a page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

#include "base/json.h"
#include "http/api/problem.h"

/* The codes and statuses of the contract, written down a second time on purpose. */
static const struct {
    const char *code;
    int status;
} contract[] = {
    {"SOLD_OUT", 409},
    {"LIMIT_REACHED", 409},
    {"BLOCKED", 403},
    {"NO_CLAIM", 404},
    {"POLICY_NOT_FOUND", 404},
    {"NOT_OPEN", 403},
    {"PAUSED", 403},
    {"CLOSED", 410},
    {"RATE_LIMITED", 429},
    {"UNAVAILABLE", 503},
    {"INVALID_REQUEST", 400},
    {"UNAUTHORIZED", 401},
    {"NOT_FOUND", 404},
    {"METHOD_NOT_ALLOWED", 405},
    {"CONFLICT", 409},
    {"TOO_LARGE", 413},
    {"UNSUPPORTED_MEDIA_TYPE", 415},
    {"URI_TOO_LONG", 414},
    {"HEADERS_TOO_LARGE", 431},
    {"TIMEOUT", 408},
    {"NOT_IMPLEMENTED", 501},
    {"VERSION_NOT_SUPPORTED", 505},
};
#define CONTRACT_COUNT (sizeof(contract) / sizeof(contract[0]))

static yyjson_doc *parse(struct span json)
{
    yyjson_doc *document = yyjson_read(json.bytes, json.length, 0);
    assert_non_null(document);
    assert_true(yyjson_is_obj(yyjson_doc_get_root(document)));
    return document;
}

static const char *text_of(yyjson_doc *document, const char *name)
{
    const char *text = yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(document), name));
    assert_non_null(text);
    return text;
}

static int64_t integer_of(yyjson_doc *document, const char *name)
{
    yyjson_val *value = yyjson_obj_get(yyjson_doc_get_root(document), name);
    assert_true(yyjson_is_int(value));
    return yyjson_get_sint(value);
}

static void check_members(yyjson_doc *document, enum problem problem)
{
    const struct problem_entry *entry = problem_entry(problem);
    char type[64];
    snprintf(type, sizeof(type), "/problems/%s", entry->code);
    assert_string_equal(text_of(document, "type"), type);
    assert_string_equal(text_of(document, "title"), entry->title);
    assert_int_equal(integer_of(document, "status"), entry->status);
    assert_string_equal(text_of(document, "code"), entry->code);
}

static void test_problem__has_every_code_of_the_contract(void **state)
{
    (void)state;
    assert_int_equal(PROBLEM_COUNT, CONTRACT_COUNT);
    for (size_t i = 0; i < CONTRACT_COUNT; i++) {
        enum problem problem;
        assert_true(problem_find(span_of(contract[i].code), &problem));
        assert_string_equal(problem_entry(problem)->code, contract[i].code);
        assert_int_equal(problem_status(problem), contract[i].status);
    }
}

static void test_problem__finds_only_whole_codes(void **state)
{
    (void)state;
    static const char *const strangers[] = {"", "SOLD", "SOLD_OUT2", "sold_out", "../SOLD_OUT"};
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        enum problem problem;
        assert_false(problem_find(span_of(strangers[i]), &problem));
    }
}

static void test_problem__usual_bodies_are_valid_json(void **state)
{
    (void)state;
    for (unsigned i = 0; i < PROBLEM_COUNT; i++) {
        yyjson_doc *document = parse(problem_body((enum problem)i));
        check_members(document, (enum problem)i);
        assert_true(strlen(text_of(document, "detail")) > 0);
        assert_int_equal(yyjson_obj_size(yyjson_doc_get_root(document)), 5);
        yyjson_doc_free(document);
    }
}

static void test_problem__escapes_what_callers_add(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 4096);
    problem_begin(&out, PROBLEM_NOT_OPEN, SPAN("a \"quoted\"\nline \\"));
    json_put_time(&out, "opens_at", INT64_C(1794744000000));
    json_put(&out, "field", "discount.\"value\"");
    json_put(&out, "count", -7);
    buffer_append_literal(&out, "}");

    yyjson_doc *document = parse((struct span){out.bytes, out.length});
    check_members(document, PROBLEM_NOT_OPEN);
    assert_string_equal(text_of(document, "detail"), "a \"quoted\"\nline \\");
    assert_string_equal(text_of(document, "opens_at"), "2026-11-15T12:00:00.000Z");
    assert_string_equal(text_of(document, "field"), "discount.\"value\"");
    assert_int_equal(integer_of(document, "count"), -7);
    assert_int_equal(yyjson_obj_size(yyjson_doc_get_root(document)), 8);
    yyjson_doc_free(document);
    buffer_release(&out);
}

static void test_problem__writes_a_detail_of_its_own(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 4096);
    problem_begin(&out, PROBLEM_CONFLICT, SPAN("policy 42 exists"));
    buffer_append_literal(&out, "}");
    yyjson_doc *document = parse((struct span){out.bytes, out.length});
    check_members(document, PROBLEM_CONFLICT);
    assert_string_equal(text_of(document, "detail"), "policy 42 exists");
    assert_int_equal(yyjson_obj_size(yyjson_doc_get_root(document)), 5);
    yyjson_doc_free(document);
    buffer_release(&out);
}

static void test_problem__chooses_the_page_by_accept(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        enum problem_page_format format;
    } cases[] = {
        {"", PROBLEM_PAGE_HTML},
        {"*/*", PROBLEM_PAGE_HTML},
        {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", PROBLEM_PAGE_HTML},
        {"application/json", PROBLEM_PAGE_JSON},
        {"Application/JSON; charset=utf-8", PROBLEM_PAGE_JSON},
        {"application/json, text/html", PROBLEM_PAGE_JSON},
        {"text/html, application/json", PROBLEM_PAGE_HTML},
        {"application/jso", PROBLEM_PAGE_HTML},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(problem_page_format(span_of(cases[i].accept)), cases[i].format);
    assert_int_equal(problem_page_format((struct span){NULL, 0}), PROBLEM_PAGE_HTML);
}

static void test_problem__json_pages_say_what_to_do(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 16384);
    for (unsigned i = 0; i < PROBLEM_COUNT; i++) {
        const struct problem_entry *entry = problem_entry((enum problem)i);
        buffer_clear(&out);
        problem_page(&out, (enum problem)i, PROBLEM_PAGE_JSON);
        yyjson_doc *document = parse((struct span){out.bytes, out.length});
        assert_string_equal(text_of(document, "code"), entry->code);
        assert_int_equal(integer_of(document, "status"), entry->status);
        assert_string_equal(text_of(document, "title"), entry->title);
        assert_string_equal(text_of(document, "meaning"), entry->meaning);
        assert_string_equal(text_of(document, "remedy"), entry->remedy);
        yyjson_doc_free(document);
    }
    buffer_release(&out);
}

static void test_problem__html_pages_need_nothing_from_elsewhere(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 16384);
    for (unsigned i = 0; i < PROBLEM_COUNT; i++) {
        const struct problem_entry *entry = problem_entry((enum problem)i);
        /* The words are put into the page unescaped. */
        const char *const words[] = {entry->title, entry->meaning, entry->remedy};
        for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++)
            assert_null(strpbrk(words[w], "<>&\""));
        buffer_clear(&out);
        problem_page(&out, (enum problem)i, PROBLEM_PAGE_HTML);
        assert_false(out.overflowed);
        assert_non_null(strstr(out.bytes, entry->code));
        assert_non_null(strstr(out.bytes, entry->meaning));
        assert_non_null(strstr(out.bytes, entry->remedy));
        assert_non_null(strstr(out.bytes, "prefers-color-scheme:dark"));
        assert_null(strstr(out.bytes, "http://"));
        assert_null(strstr(out.bytes, "https://"));
        assert_null(strstr(out.bytes, "<script"));
    }
    buffer_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_problem__has_every_code_of_the_contract),
        cmocka_unit_test(test_problem__finds_only_whole_codes),
        cmocka_unit_test(test_problem__usual_bodies_are_valid_json),
        cmocka_unit_test(test_problem__escapes_what_callers_add),
        cmocka_unit_test(test_problem__writes_a_detail_of_its_own),
        cmocka_unit_test(test_problem__chooses_the_page_by_accept),
        cmocka_unit_test(test_problem__json_pages_say_what_to_do),
        cmocka_unit_test(test_problem__html_pages_need_nothing_from_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
