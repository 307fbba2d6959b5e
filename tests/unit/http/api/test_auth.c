/* test_auth.c: who may what, in every configuration of tokens. */
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/api/auth.h"

#define ADMIN   "admin-token-0123456789"
#define SERVICE "service-token-0123456789"
#define KEY     "0123456789abcdef0123456789abcdef"
#define NOW_MS  INT64_C(1000000000)

static const struct span own_host = {"127.0.0.1:8080", 14};
static const struct span foreign_host = {"shop.example", 12};

enum { HAS_ADMIN = 1, HAS_SERVICE = 2, HAS_KEY = 4, CLAIMS_OPEN = 8 };

static void open_auth(struct auth *auth, unsigned flags)
{
    const struct span none = {NULL, 0};
    auth_init(auth, &(struct auth_options){
                        .admin_token = flags & HAS_ADMIN ? SPAN(ADMIN) : none,
                        .service_token = flags & HAS_SERVICE ? SPAN(SERVICE) : none,
                        .user_key = flags & HAS_KEY ? SPAN(KEY) : none,
                        .user_audience = SPAN(""),
                        .claims_open = (flags & CLAIMS_OPEN) != 0,
                    });
}

/* A header with a user's token that lives for ever. */
static const char *user_header(const char *user, char text[512])
{
    char payload[160] = "{\"exp\":1e15,\"sub\":\"";
    strcat(strcat(payload, user), "\"}");
    char *at = strcpy(text, "Bearer ") + 7;
    sodium_bin2base64(at, 300, (const unsigned char *)"{\"alg\":\"HS256\"}", 15,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    strcat(at, ".");
    sodium_bin2base64(at + strlen(at), 300, (const unsigned char *)payload, strlen(payload),
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256(mac, (const unsigned char *)at, strlen(at), (const unsigned char *)KEY);
    strcat(at, ".");
    sodium_bin2base64(at + strlen(at), 100, mac, sizeof(mac),
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    return text;
}

static struct caller identify(const struct auth *auth, const char *header)
{
    struct caller caller;
    auth_identify(auth, header == NULL ? (struct span){NULL, 0} : span_of(header), NOW_MS, &caller);
    return caller;
}

static struct id user_of(const char *text)
{
    return id_of(span_of(text));
}

static void test_auth__tells_callers_apart(void **state)
{
    (void)state;
    struct auth auth;
    char text[512];
    open_auth(&auth, HAS_ADMIN | HAS_SERVICE | HAS_KEY);
    assert_int_equal(identify(&auth, NULL).kind, CALLER_NOBODY);
    assert_int_equal(identify(&auth, "Bearer " ADMIN).kind, CALLER_ADMIN);
    assert_int_equal(identify(&auth, "bearer " SERVICE).kind, CALLER_SERVICE);
    struct caller caller = identify(&auth, user_header("u1", text));
    assert_int_equal(caller.kind, CALLER_USER);
    assert_true(span_equal(id_span(&caller.user), SPAN("u1")));
    static const char *const wrong[] = {
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        ADMIN,
        "Basic " ADMIN,
        "Bearer " ADMIN "x",
        "Bearer admin-token-012345678",
        "Bearer x" ADMIN,
        "Bearer ADMIN-TOKEN-0123456789",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(identify(&auth, wrong[i]).kind, CALLER_WRONG);
        assert_non_null(identify(&auth, wrong[i]).words);
    }
    auth_release(&auth);
}

static void test_auth__a_token_that_is_not_set_opens_nothing(void **state)
{
    (void)state;
    struct auth auth;
    char text[512];
    open_auth(&auth, HAS_SERVICE);
    assert_int_equal(identify(&auth, "Bearer " ADMIN).kind, CALLER_WRONG);
    assert_int_equal(identify(&auth, user_header("u1", text)).kind, CALLER_WRONG);
    auth_release(&auth);
}

static void test_auth__who_administers(void **state)
{
    (void)state;
    struct auth auth;
    char text[512];
    open_auth(&auth, HAS_ADMIN | HAS_SERVICE | HAS_KEY);
    const char *const others[] = {NULL, "Bearer x", "Bearer " SERVICE, user_header("u", text)};
    for (size_t i = 0; i < 4; i++) {
        struct caller caller = identify(&auth, others[i]);
        assert_non_null(auth_may_administer(&auth, &caller, ACCESS_VIEWER));
    }
    struct caller admin = identify(&auth, "Bearer " ADMIN);
    assert_null(auth_may_administer(&auth, &admin, ACCESS_VIEWER));
    auth_release(&auth);

    open_auth(&auth, 0);
    struct caller nobody = identify(&auth, NULL);
    assert_null(auth_may_administer(&auth, &nobody, ACCESS_VIEWER));
    auth_release(&auth);
}

static void test_auth__without_an_admin_token_only_this_machine_asks(void **state)
{
    (void)state;
    struct auth auth;
    const struct http_request own = {.host = own_host};
    const struct http_request forwarded = {.host = own_host, .is_forwarded = true};
    /* By a name that a page could have chosen, or by none. */
    const struct http_request foreign = {.host = foreign_host};
    const struct http_request nameless = {.host = {NULL, 0}};
    open_auth(&auth, HAS_SERVICE);
    assert_null(auth_may_ask(&auth, &own));
    assert_non_null(auth_may_ask(&auth, &forwarded));
    assert_non_null(auth_may_ask(&auth, &foreign));
    assert_non_null(auth_may_ask(&auth, &nameless));
    auth_release(&auth);
    open_auth(&auth, HAS_ADMIN);
    assert_null(auth_may_ask(&auth, &forwarded));
    assert_null(auth_may_ask(&auth, &foreign));
    auth_release(&auth);
}

static void test_auth__who_claims(void **state)
{
    (void)state;
    char text[512];
    const char *user = user_header("u1", text);
    struct id u1 = user_of("u1");
    struct id u2 = user_of("u2");
    static const struct {
        unsigned flags;
        bool nobody, wrong, admin, service, own;
    } cases[] = {
        {0, true, true, true, true, true},
        {HAS_ADMIN, false, false, true, false, false},
        {HAS_ADMIN | HAS_SERVICE, false, false, true, true, false},
        {HAS_SERVICE, false, false, false, true, false},
        {HAS_ADMIN | HAS_KEY, false, false, false, false, true},
        {HAS_KEY, false, false, false, false, true},
        {HAS_ADMIN | HAS_SERVICE | HAS_KEY, false, false, false, false, true},
        {HAS_ADMIN | CLAIMS_OPEN, true, false, true, false, false},
        {HAS_ADMIN | HAS_SERVICE | CLAIMS_OPEN, true, false, true, true, false},
        {HAS_ADMIN | HAS_KEY | CLAIMS_OPEN, false, false, false, false, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct auth auth;
        open_auth(&auth, cases[i].flags);
        const char *const headers[] = {NULL, "Bearer x", "Bearer " ADMIN, "Bearer " SERVICE, user};
        const bool may[] = {cases[i].nobody, cases[i].wrong, cases[i].admin, cases[i].service,
                            cases[i].own};
        for (size_t h = 0; h < 5; h++) {
            struct caller caller = identify(&auth, headers[h]);
            assert_int_equal(auth_may_claim(&auth, &caller, &u1) == NULL, may[h]);
            /* Nobody proves to be the owner by asking. */
            assert_int_equal(auth_may_see_held_code(&auth, &caller),
                             cases[i].flags == 0 || headers[h] != NULL);
        }
        struct caller caller = identify(&auth, user);
        if (cases[i].flags & HAS_KEY)
            assert_non_null(auth_may_claim(&auth, &caller, &u2));
        assert_int_equal(auth.claims_are_open, cases[i].nobody);
        auth_release(&auth);
    }
}

static void test_auth__who_sees(void **state)
{
    (void)state;
    char text[512];
    const char *user = user_header("u1", text);
    struct id u1 = user_of("u1");
    struct id u2 = user_of("u2");
    for (unsigned flags = 0; flags < 16; flags++) {
        struct auth auth;
        open_auth(&auth, flags);
        struct caller nobody = identify(&auth, NULL);
        struct caller wrong = identify(&auth, "Bearer x");
        struct caller admin = identify(&auth, "Bearer " ADMIN);
        struct caller service = identify(&auth, "Bearer " SERVICE);
        struct caller own = identify(&auth, user);
        bool open = (flags & ~(unsigned)CLAIMS_OPEN) == 0;
        assert_int_equal(auth_may_see(&auth, &nobody, &u1) == NULL, open);
        assert_int_equal(auth_may_see(&auth, &wrong, &u1) == NULL, open);
        assert_int_equal(auth_may_see(&auth, &admin, &u1) == NULL, open || flags & HAS_ADMIN);
        assert_int_equal(auth_may_see(&auth, &service, &u1) == NULL, open || flags & HAS_SERVICE);
        assert_int_equal(auth_may_see(&auth, &own, &u1) == NULL, open || flags & HAS_KEY);
        assert_int_equal(auth_may_see(&auth, &own, &u2) == NULL, open);
        auth_release(&auth);
    }
}

static void test_auth__pages_of_other_origins_change_nothing(void **state)
{
    (void)state;
    struct auth auth;
    const struct span none = {NULL, 0};
    open_auth(&auth, 0);
    assert_null(auth_may_change_from(&auth, none, own_host));
    assert_null(auth_may_change_from(&auth, none, foreign_host));
    assert_null(auth_may_change_from(&auth, SPAN("http://127.0.0.1:8080"), own_host));
    assert_non_null(auth_may_change_from(&auth, SPAN("http://evil.example"), own_host));
    assert_non_null(auth_may_change_from(&auth, SPAN("null"), own_host));
    auth_release(&auth);
    open_auth(&auth, HAS_ADMIN);
    assert_null(auth_may_change_from(&auth, SPAN("http://shop.example"), own_host));
    auth_release(&auth);
}

/* What a browser sends along with the cookie of a valid session. */
struct sent {
    enum http_method method;
    const char *site;
    const char *origin;
    bool counts;
};

static struct span span_or_none(const char *text)
{
    return text != NULL ? span_of(text) : (struct span){NULL, 0};
}

static void test_auth__a_cookie_counts_for_our_own_pages_only(void **state)
{
    (void)state;
    static const struct sent cases[] = {
        {HTTP_METHOD_POST, "same-origin", "http://127.0.0.1:8080", true},
        {HTTP_METHOD_DELETE, "same-origin", NULL, true},
        /* Behind a proxy that names us otherwise. */
        {HTTP_METHOD_PATCH, "same-origin", "https://shop.example", true},
        {HTTP_METHOD_POST, NULL, "http://127.0.0.1:8080", true},
        {HTTP_METHOD_POST, NULL, NULL, false},
        {HTTP_METHOD_POST, NULL, "null", false},
        {HTTP_METHOD_POST, NULL, "http://127.0.0.1:3000", false},
        {HTTP_METHOD_POST, NULL, "http://evil.example", false},
        {HTTP_METHOD_POST, "same-site", "http://127.0.0.1:8080", false},
        {HTTP_METHOD_POST, "cross-site", NULL, false},
        {HTTP_METHOD_POST, "none", NULL, false},
        {HTTP_METHOD_PUT, "", "http://127.0.0.1:8080", false},
        {HTTP_METHOD_GET, NULL, NULL, true},
        {HTTP_METHOD_HEAD, "none", NULL, true},
        {HTTP_METHOD_GET, "same-origin", NULL, true},
        {HTTP_METHOD_GET, "same-site", NULL, false},
        {HTTP_METHOD_GET, "cross-site", NULL, false},
        {HTTP_METHOD_GET, NULL, "http://evil.example", false},
    };
    struct auth auth;
    char value[SESSION_VALUE_SIZE];
    char cookie[128] = SESSION_COOKIE "=";
    open_auth(&auth, HAS_ADMIN | HAS_SERVICE);
    session_write(&auth.admins[0].session_key, NOW_MS / 1000 + 1, value);
    strcat(cookie, value);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct http_request request = {.method = cases[i].method,
                                       .host = own_host,
                                       .cookie = span_of(cookie),
                                       .sec_fetch_site = span_or_none(cases[i].site),
                                       .origin = span_or_none(cases[i].origin)};
        struct caller caller;
        auth_identify_request(&auth, &request, NOW_MS, &caller);
        assert_int_equal(caller.kind, cases[i].counts ? CALLER_ADMIN : CALLER_WRONG);
        assert_true((caller.words == NULL) == cases[i].counts);
        auth_identify_request(&auth, &request, NOW_MS + 1000, &caller);
        assert_int_equal(caller.kind, CALLER_WRONG);
    }
    auth_release(&auth);
}

static void test_auth__a_header_goes_before_the_cookie(void **state)
{
    (void)state;
    struct auth auth;
    struct caller caller;
    char value[SESSION_VALUE_SIZE];
    char cookie[128] = SESSION_COOKIE "=";
    open_auth(&auth, HAS_ADMIN | HAS_SERVICE);
    session_write(&auth.admins[0].session_key, NOW_MS / 1000 + 1, value);
    strcat(cookie, value);
    struct http_request request = {.host = own_host, .cookie = span_of(cookie)};
    request.authorization = SPAN("Bearer " SERVICE);
    auth_identify_request(&auth, &request, NOW_MS, &caller);
    assert_int_equal(caller.kind, CALLER_SERVICE);
    request.authorization = SPAN("Bearer x");
    auth_identify_request(&auth, &request, NOW_MS, &caller);
    assert_int_equal(caller.kind, CALLER_WRONG);
    request.authorization = (struct span){NULL, 0};
    request.cookie = SPAN("other=1");
    auth_identify_request(&auth, &request, NOW_MS, &caller);
    assert_int_equal(caller.kind, CALLER_NOBODY);
    auth_release(&auth);

    /* Where there is no admin token, no cookie means anything, also one of an empty token. */
    open_auth(&auth, HAS_SERVICE);
    struct session_key zero = {{0}};
    session_write(&zero, NOW_MS / 1000 + 1, value);
    strcpy(strchr(cookie, '=') + 1, value);
    request.cookie = span_of(cookie);
    auth_identify_request(&auth, &request, NOW_MS, &caller);
    assert_int_equal(caller.kind, CALLER_NOBODY);
    assert_null(auth_find_admin(&auth, SPAN("")));
    auth_release(&auth);
}

/* Each may do what the lower ones may, and the log has their names. */
static void test_auth__roles_of_named_tokens(void **state)
{
    struct auth auth;
    (void)state;
    auth_init(&auth, &(struct auth_options){
                         .admin_token = SPAN(ADMIN),
                         .admin_tokens = SPAN("# who\n\nvera viewer viewer-token-0123456\n"
                                              "otto operator operator-token-012345\r\n"
                                              "anna admin anna-token-0123456789\n"),
                         .service_token = {NULL, 0},
                     });
    static const struct {
        const char *header;
        const char *name;
        enum access_role role;
    } cases[] = {
        {"Bearer viewer-token-0123456", "vera", ACCESS_VIEWER},
        {"Bearer operator-token-012345", "otto", ACCESS_OPERATOR},
        {"Bearer anna-token-0123456789", "anna", ACCESS_ADMIN},
        {"Bearer " ADMIN, "admin_token", ACCESS_ADMIN},
    };
    struct id user = id_of(SPAN("u1"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct caller caller = identify(&auth, cases[i].header);
        assert_int_equal(caller.kind, CALLER_ADMIN);
        assert_string_equal(caller.token, cases[i].name);
        for (enum access_role role = ACCESS_VIEWER; role <= ACCESS_ADMIN; role++)
            assert_int_equal(auth_may_administer(&auth, &caller, role) == NULL,
                             role <= cases[i].role);
        bool acts = cases[i].role >= ACCESS_OPERATOR;
        assert_int_equal(auth_may_claim(&auth, &caller, &user) == NULL, acts);
        assert_int_equal(auth_may_see(&auth, &caller, &user) == NULL, acts);
    }
    struct caller stranger = identify(&auth, "Bearer viewer-token-0123457");
    assert_int_equal(stranger.kind, CALLER_WRONG);
    assert_non_null(auth_may_administer(&auth, &stranger, ACCESS_VIEWER));
    auth_release(&auth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auth__tells_callers_apart),
        cmocka_unit_test(test_auth__a_token_that_is_not_set_opens_nothing),
        cmocka_unit_test(test_auth__who_administers),
        cmocka_unit_test(test_auth__roles_of_named_tokens),
        cmocka_unit_test(test_auth__without_an_admin_token_only_this_machine_asks),
        cmocka_unit_test(test_auth__who_claims),
        cmocka_unit_test(test_auth__who_sees),
        cmocka_unit_test(test_auth__pages_of_other_origins_change_nothing),
        cmocka_unit_test(test_auth__a_cookie_counts_for_our_own_pages_only),
        cmocka_unit_test(test_auth__a_header_goes_before_the_cookie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
