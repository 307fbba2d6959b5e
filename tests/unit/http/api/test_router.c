/* test_router.c: every path of the contract, near misses that are none, and the API's description.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

#include "embedded_assets.h"
#include "http/api/handlers.h"

static void test_router__finds_every_path(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const char *pattern;
        const char *params[2];
    } cases[] = {
        {"/v1/policies", "/v1/policies", {NULL, NULL}},
        {"/v1/policies/42", "/v1/policies/{policy_id}", {"42", NULL}},
        {"/v1/policies/42/events", "/v1/policies/{policy_id}/events", {"42", NULL}},
        {"/v1/policies/42/claims", "/v1/policies/{policy_id}/claims", {"42", NULL}},
        {"/v1/policies/42/claims/u1", "/v1/policies/{policy_id}/claims/{user}", {"42", "u1"}},
        {"/v1/policies/42/claims/events",
         "/v1/policies/{policy_id}/claims/{user}",
         {"42", "events"}},
        {"/v1/policies/42/claims/u1/events",
         "/v1/policies/{policy_id}/claims/{user}/events",
         {"42", "u1"}},
        {"/v1/policies/42/preflight", "/v1/policies/{policy_id}/preflight", {"42", NULL}},
        {"/v1/policies/42/winners.csv", "/v1/policies/{policy_id}/winners.csv", {"42", NULL}},
        {"/v1/users/a:b@c.d", "/v1/users/{user}", {"a:b@c.d", NULL}},
        {"/v1/users/u%2e1/coupons", "/v1/users/{user}/coupons", {"u.1", NULL}},
        {"/v1/users/a%2Fb", "/v1/users/{user}", {"a/b", NULL}},
        {"/v1/coupons/42-17", "/v1/coupons/{coupon}", {"42-17", NULL}},
        {"/v1/coupons/42-17-K7Q2M9XD/redeem",
         "/v1/coupons/{coupon}/redeem",
         {"42-17-K7Q2M9XD", NULL}},
        {"/v1/coupons/42-17/cancel", "/v1/coupons/{coupon}/cancel", {"42-17", NULL}},
        {"/v1/audit", "/v1/audit", {NULL, NULL}},
        {"/v1/audit/repair", "/v1/audit/repair", {NULL, NULL}},
        {"/v1/audit/repairs", "/v1/audit/repairs", {NULL, NULL}},
        {"/v1/dead", "/v1/dead", {NULL, NULL}},
        {"/v1/dead/42-17", "/v1/dead/{letter}", {"42-17", NULL}},
        {"/v1/dead/42-17/retry", "/v1/dead/{letter}/retry", {"42-17", NULL}},
        {"/v1/policies/%34%32", "/v1/policies/{policy_id}", {"42", NULL}},
        {"/v1/products/%74op", "/v1/products/{product}", {"top", NULL}},
        {"/v1/session", "/v1/session", {NULL, NULL}},
        {"/healthz", "/healthz", {NULL, NULL}},
        {"/readyz", "/readyz", {NULL, NULL}},
        {"/metrics", "/metrics", {NULL, NULL}},
        {"/openapi.json", "/openapi.json", {NULL, NULL}},
        {"/problems/SOLD_OUT", "/problems/{code}", {"SOLD_OUT", NULL}},
        {"/", "/", {NULL, NULL}},
        {"/drop/42", "/drop/{drop}", {"42", NULL}},
        {"/assets/app-AB12CD34.js", "/assets/{name}", {"app-AB12CD34.js", NULL}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct route_match match;
        router_match(span_of(cases[i].path), &match);
        assert_non_null(match.first);
        assert_string_equal(match.first->pattern, cases[i].pattern);
        size_t count = (cases[i].params[0] != NULL) + (cases[i].params[1] != NULL);
        assert_int_equal(match.param_count, count);
        for (size_t p = 0; p < count; p++)
            assert_true(span_equal(match.params[p], span_of(cases[i].params[p])));
    }
}

static void test_router__near_misses_are_nothing(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "",
        "//",
        "/drop",
        "/drop/",
        "/drop/1/",
        "/assets/",
        "/assets/a/b",
        "/v1",
        "/v1/",
        "/v1/policies/",
        "/v1/policies//claims",
        "/v1/policies/42/",
        "/v1/policies/42/claims/",
        "/v1/policies/42/claim",
        "/V1/policies",
        "/v1/Policies",
        "/v2/policies",
        "/v1/policies/42/claims/u/events/",
        "/v1/policies/42/claims/u/events/x",
        "/v1/users",
        "/v1/users/",
        "/v1/coupons",
        "/v1/coupons/",
        "/v1/coupons/1/redeem/",
        "/v1/coupons//redeem",
        "/healthz/",
        "/healthzz",
        "/openapi.jso",
        "/problems",
        "/problems/",
        "/a/b/c/d/e/f/g/h/i/j/k/l",
        "/v1%2fpolicies",
        "/%761/policies",
        "/%6detrics",
        "/v1/policies/42/%63laims",
        "/v1/policies/42/winners%2ecsv",
    };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        struct route_match match;
        router_match(span_of(paths[i]), &match);
        assert_null(match.first);
        assert_false(match.is_malformed);
    }
}

static void test_router__broken_escapes_are_told_apart(void **state)
{
    (void)state;
    static const char *const paths[] = {"/v1/users/%",  "/v1/users/%4",          "/v1/users/%zz",
                                        "/v1/users/a%", "/v1/users/%4g/coupons", "/%"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        struct route_match match;
        router_match(span_of(paths[i]), &match);
        assert_true(match.is_malformed);
    }
}

static void test_router__long_segments_stay_too_long(void **state)
{
    (void)state;
    char path[2048];
    struct route_match match;
    memset(path, 'a', sizeof(path));
    memcpy(path, "/v1/users/", 10);
    router_match((struct span){path, sizeof(path)}, &match);
    assert_string_equal(match.first->pattern, "/v1/users/{user}");
    assert_int_equal(match.params[0].length, ROUTE_PARAM_SIZE);
}

static void test_router__claims_by_hand_agree_with_the_table(void **state)
{
    (void)state;
    int64_t id = 0;
    assert_true(router_match_claims(SPAN("/v1/policies/42/claims"), &id));
    assert_int_equal(id, 42);
    assert_true(router_match_claims(SPAN("/v1/policies/9007199254740991/claims"), &id));
    assert_int_equal(id, INT64_C(9007199254740991));
    static const char *const others[] = {
        "/v1/policies//claims",
        "/v1/policies/0/claims",
        "/v1/policies/042/claims",
        "/v1/policies/42/claims/",
        "/v1/policies/4x/claims",
        "/v1/policies/-1/claims",
        "/v1/policies/%34/claims",
        "/v1/policies/claims",
        "/v1/policies/4/2/claims",
        "/v1/policies/9007199254740992/claims",
        "/v1/policies/42/claimz",
        "/v1/policies/99999999999999999999999999999999/claims",
        "/v2/policies/42/claims",
        "/claims",
        "",
        "/v1/policies/ 42/claims",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(router_match_claims(span_of(others[i]), &id));
}

static const struct route *first_of(const char *path)
{
    struct route_match match;
    router_match(span_of(path), &match);
    assert_non_null(match.first);
    return match.first;
}

static void check_allow(const char *path, const char *expected)
{
    char text[ROUTE_ALLOW_SIZE];
    assert_true(span_equal(route_allow(first_of(path), text), span_of(expected)));
}

static void test_router__allow_says_what_the_route_takes(void **state)
{
    (void)state;
    check_allow("/v1/policies", "GET, HEAD, POST, OPTIONS");
    check_allow("/v1/policies/1", "GET, HEAD, PATCH, DELETE, OPTIONS");
    check_allow("/v1/policies/1/claims", "POST, OPTIONS");
    check_allow("/v1/session", "GET, HEAD, POST, DELETE, OPTIONS");
    check_allow("/assets/a", "GET, HEAD, OPTIONS");
    assert_null(route_for(first_of("/v1/policies/1/claims"), HTTP_METHOD_GET));
    assert_null(route_for(first_of("/v1/policies/1"), HTTP_METHOD_OTHER));
    assert_non_null(route_for(first_of("/metrics"), HTTP_METHOD_HEAD));
    assert_ptr_equal(route_for(first_of("/v1/policies/1/claims"), HTTP_METHOD_POST),
                     ROUTE_OF_CLAIMS);
}

/* Rows of one pattern that do not stand together would hide each other. */
static void test_router__every_row_is_found(void **state)
{
    (void)state;
    for (size_t row = 0; row < route_count; row++) {
        const struct route *route = &routes[row];
        assert_ptr_equal(route_for(first_of(route->pattern), route->method), route);
    }
}

/* --- the API's description --- */

static yyjson_doc *read_openapi(void)
{
    for (size_t index = 0; index < embedded_assets_count; index++)
        if (strcmp(embedded_assets[index].name, "openapi.json") == 0)
            return yyjson_read((const char *)embedded_assets[index].bytes,
                               embedded_assets[index].length, 0);
    fail_msg("no openapi.json in the binary");
    return NULL;
}

/* {}: without a token, too. */
static bool security_has(yyjson_val *security, const char *scheme)
{
    for (size_t at = 0; at < yyjson_arr_size(security); at++) {
        yyjson_val *one = yyjson_arr_get(security, at);
        if (scheme == NULL ? yyjson_obj_size(one) == 0 : yyjson_obj_get(one, scheme) != NULL)
            return true;
    }
    return false;
}

static void check_operation(const struct route *route, yyjson_val *operation)
{
    yyjson_val *security = yyjson_obj_get(operation, "security");
    if (!yyjson_is_arr(security))
        fail_msg("%s %s: no security", route_method_name(route->method), route->pattern);
    bool is_open = yyjson_arr_size(security) == 0 || security_has(security, NULL);
    bool fits;
    switch (route->access) {
    case ROUTE_ANYONE:
    case ROUTE_KNOWN:
        fits = is_open && !security_has(security, "user_token");
        break;
    case ROUTE_VIEWER:
    case ROUTE_OPERATOR:
    case ROUTE_ADMIN:
        fits = !is_open && security_has(security, "admin_token") &&
               !security_has(security, "user_token");
        break;
    case ROUTE_OWNER:
    case ROUTE_CLAIMER:
        fits = is_open && security_has(security, "user_token");
        break;
    default:
        fits = is_open && security_has(security, "admin_token");
    }
    if (!fits)
        fail_msg("%s %s: the document says something else of who may call",
                 route_method_name(route->method), route->pattern);
}

static void test_router__every_route_is_documented(void **state)
{
    (void)state;
    yyjson_doc *document = read_openapi();
    yyjson_val *paths = yyjson_obj_get(yyjson_doc_get_root(document), "paths");
    for (size_t row = 0; row < route_count; row++) {
        const struct route *route = &routes[row];
        /* Pages are for people. */
        if (route->handler == web_board || route->handler == web_docs ||
            route->handler == web_drop || route->handler == web_asset)
            continue;
        char method[8] = "";
        for (size_t at = 0; route_method_name(route->method)[at] != '\0'; at++)
            method[at] = (char)(route_method_name(route->method)[at] | 0x20);
        yyjson_val *operation = yyjson_obj_get(yyjson_obj_get(paths, route->pattern), method);
        if (operation == NULL)
            fail_msg("%s %s is not in openapi.json", method, route->pattern);
        check_operation(route, operation);
    }
    yyjson_doc_free(document);
}

static void test_router__every_documented_path_is_a_route(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum http_method method;
    } methods[] = {{"get", HTTP_METHOD_GET},
                   {"put", HTTP_METHOD_PUT},
                   {"post", HTTP_METHOD_POST},
                   {"patch", HTTP_METHOD_PATCH},
                   {"delete", HTTP_METHOD_DELETE}};
    yyjson_doc *document = read_openapi();
    yyjson_val *paths = yyjson_obj_get(yyjson_doc_get_root(document), "paths");
    size_t index, max;
    yyjson_val *path, *item;
    yyjson_obj_foreach(paths, index, max, path, item)
    {
        const struct route *first = first_of(yyjson_get_str(path));
        assert_string_equal(first->pattern, yyjson_get_str(path));
        for (size_t at = 0; at < sizeof(methods) / sizeof(methods[0]); at++)
            if (yyjson_obj_get(item, methods[at].name) != NULL &&
                route_for(first, methods[at].method) == NULL)
                fail_msg("%s %s is no route", methods[at].name, first->pattern);
    }
    yyjson_doc_free(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router__finds_every_path),
        cmocka_unit_test(test_router__near_misses_are_nothing),
        cmocka_unit_test(test_router__broken_escapes_are_told_apart),
        cmocka_unit_test(test_router__long_segments_stay_too_long),
        cmocka_unit_test(test_router__claims_by_hand_agree_with_the_table),
        cmocka_unit_test(test_router__allow_says_what_the_route_takes),
        cmocka_unit_test(test_router__every_row_is_found),
        cmocka_unit_test(test_router__every_route_is_documented),
        cmocka_unit_test(test_router__every_documented_path_is_a_route),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
