/* test_router.c: every path of the contract, and near misses that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http/router.h"

static enum route route_of(const char *path)
{
    struct route_match match;
    router_match(span_of(path), &match);
    return match.route;
}

static void test_router__finds_every_path(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum route route;
        const char *params[2];
    } cases[] = {
        {"/v1/policies", ROUTE_POLICIES, {NULL, NULL}},
        {"/v1/policies/42", ROUTE_POLICY, {"42", NULL}},
        {"/v1/policies/42/events", ROUTE_POLICY_EVENTS, {"42", NULL}},
        {"/v1/policies/42/claims", ROUTE_CLAIMS, {"42", NULL}},
        {"/v1/policies/42/claims/u1", ROUTE_CLAIM, {"42", "u1"}},
        {"/v1/policies/42/claims/events", ROUTE_CLAIM, {"42", "events"}},
        {"/v1/policies/42/claims/u1/events", ROUTE_CLAIM_EVENTS, {"42", "u1"}},
        {"/v1/policies/42/preflight", ROUTE_POLICY_PREFLIGHT, {"42", NULL}},
        {"/v1/policies/42/winners.csv", ROUTE_POLICY_WINNERS, {"42", NULL}},
        {"/v1/users/a:b@c.d", ROUTE_USER, {"a:b@c.d", NULL}},
        {"/v1/users/u%2e1/coupons", ROUTE_USER_COUPONS, {"u.1", NULL}},
        {"/v1/users/a%2Fb", ROUTE_USER, {"a/b", NULL}},
        {"/v1/coupons/42-17", ROUTE_COUPON, {"42-17", NULL}},
        {"/v1/coupons/42-17-K7Q2M9XD/redeem", ROUTE_COUPON_REDEEM, {"42-17-K7Q2M9XD", NULL}},
        {"/v1/coupons/42-17/cancel", ROUTE_COUPON_CANCEL, {"42-17", NULL}},
        {"/v1/audit", ROUTE_AUDIT, {NULL, NULL}},
        {"/v1/audit/repair", ROUTE_AUDIT_REPAIR, {NULL, NULL}},
        {"/v1/audit/repairs", ROUTE_AUDIT_REPAIRS, {NULL, NULL}},
        {"/v1/dead", ROUTE_DEAD, {NULL, NULL}},
        {"/v1/dead/42-17", ROUTE_DEAD_LETTER, {"42-17", NULL}},
        {"/v1/dead/42-17/retry", ROUTE_DEAD_RETRY, {"42-17", NULL}},
        {"/v1/policies/%34%32", ROUTE_POLICY, {"42", NULL}},
        {"/v1/products/%74op", ROUTE_PRODUCT, {"top", NULL}},
        {"/v1/session", ROUTE_SESSION, {NULL, NULL}},
        {"/healthz", ROUTE_HEALTHZ, {NULL, NULL}},
        {"/readyz", ROUTE_READYZ, {NULL, NULL}},
        {"/metrics", ROUTE_METRICS, {NULL, NULL}},
        {"/openapi.json", ROUTE_OPENAPI, {NULL, NULL}},
        {"/problems/SOLD_OUT", ROUTE_PROBLEM_PAGE, {"SOLD_OUT", NULL}},
        {"/", ROUTE_BOARD, {NULL, NULL}},
        {"/drop/42", ROUTE_DROP, {"42", NULL}},
        {"/assets/app-AB12CD34.js", ROUTE_ASSET, {"app-AB12CD34.js", NULL}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct route_match match;
        router_match(span_of(cases[i].path), &match);
        assert_int_equal(match.route, cases[i].route);
        size_t count = (cases[i].params[0] != NULL) + (cases[i].params[1] != NULL);
        assert_int_equal(match.param_count, count);
        for (size_t p = 0; p < count; p++) {
            assert_true(span_equal(match.params[p], span_of(cases[i].params[p])));
        }
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
        assert_int_equal(route_of(paths[i]), ROUTE_NONE);
    }
}

static void test_router__broken_escapes_are_told_apart(void **state)
{
    (void)state;
    static const char *const paths[] = {"/v1/users/%",  "/v1/users/%4",          "/v1/users/%zz",
                                        "/v1/users/a%", "/v1/users/%4g/coupons", "/%"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        assert_int_equal(route_of(paths[i]), ROUTE_MALFORMED);
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
    assert_int_equal(match.route, ROUTE_USER);
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
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(router_match_claims(span_of(others[i]), &id));
    }
}

static void test_router__allow_says_what_the_route_takes(void **state)
{
    (void)state;
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};
    for (unsigned route = ROUTE_POLICIES; route < ROUTE_COUNT; route++) {
        char allow[80];
        struct span text = route_allow((enum route)route);
        snprintf(allow, sizeof(allow), "%.*s", (int)text.length, text.bytes);
        for (unsigned method = 0; method < sizeof(names) / sizeof(names[0]); method++) {
            bool listed = strstr(allow, names[method]) != NULL;
            assert_int_equal(listed, route_takes((enum route)route, (enum http_method)method));
        }
        assert_non_null(strstr(allow, "OPTIONS"));
    }
    assert_false(route_takes(ROUTE_CLAIMS, HTTP_METHOD_GET));
    assert_false(route_takes(ROUTE_POLICY, HTTP_METHOD_OTHER));
    assert_true(route_takes(ROUTE_METRICS, HTTP_METHOD_HEAD));
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
