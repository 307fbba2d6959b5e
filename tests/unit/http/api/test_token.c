/* test_token.c: only tokens that are ours, in time and for us name a user. */
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http/api/auth.h"

#define KEY    "0123456789abcdef0123456789abcdef"
#define HEADER "{\"alg\":\"HS256\",\"typ\":\"JWT\"}"
#define NOW_S  1000000
#define NOW_MS (INT64_C(1000) * NOW_S)

/* A token in the making; tests bend it before they sign it. */
struct draft {
    char text[3 * TOKEN_LENGTH_MAX];
};

static void encode(char *out, size_t size, const void *bytes, size_t length)
{
    sodium_bin2base64(out, size, bytes, length, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

static const char *sign(struct draft *draft, const char *header, const char *payload,
                        const char *key)
{
    char *at = draft->text;
    encode(at, sizeof(draft->text), header, strlen(header));
    at += strlen(at);
    *at++ = '.';
    encode(at, TOKEN_LENGTH_MAX * 2, payload, strlen(payload));
    at += strlen(at);
    crypto_auth_hmacsha256_state state;
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_init(&state, (const unsigned char *)key, strlen(key));
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)draft->text,
                                  (size_t)(at - draft->text));
    crypto_auth_hmacsha256_final(&state, mac);
    *at++ = '.';
    encode(at, 64, mac, sizeof(mac));
    return draft->text;
}

static enum token_verdict verify_text(const char *token, const char *audience, struct id *user)
{
    struct token_verifier verifier;
    token_verifier_init(&verifier, span_of(KEY), span_of(audience));
    enum token_verdict verdict = token_verify(&verifier, span_of(token), NOW_MS, user);
    token_verifier_release(&verifier);
    return verdict;
}

static enum token_verdict verdict_of(const char *header, const char *payload)
{
    struct draft draft;
    struct id user = {0};
    return verify_text(sign(&draft, header, payload, KEY), "shop", &user);
}

static void test_token__names_its_user(void **state)
{
    (void)state;
    struct draft draft;
    struct id user = {0};
    const char *token =
        sign(&draft, HEADER, "{\"sub\":\"alice@x\",\"exp\":1000060,\"aud\":\"shop\"}", KEY);
    assert_int_equal(verify_text(token, "shop", &user), TOKEN_VALID);
    assert_true(span_equal(id_span(&user), SPAN("alice@x")));
}

/* RFC 7515, appendix A.1: a token and a key that others made. */
static void test_token__agrees_with_the_rfc(void **state)
{
    (void)state;
    static const char key_text[] =
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    static const char token[] = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9."
                                "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt"
                                "cGxlLmNvbS9pc19yb290Ijp0cnVlfQ."
                                "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    unsigned char key[64];
    size_t key_length;
    assert_int_equal(sodium_base642bin(key, sizeof(key), key_text, strlen(key_text), NULL,
                                       &key_length, NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING),
                     0);
    struct token_verifier verifier;
    struct id user;
    token_verifier_init(&verifier, (struct span){(const char *)key, key_length}, SPAN(""));
    /* Its signature is right; it has no sub, and at its time it had not expired. */
    assert_int_equal(token_verify(&verifier, span_of(token), INT64_C(1300819380) * 1000, &user),
                     TOKEN_WRONG_SUBJECT);
    assert_int_equal(token_verify(&verifier, span_of(token), INT64_C(1300819440) * 1000, &user),
                     TOKEN_EXPIRED);
    token_verifier_release(&verifier);
}

static void test_token__refuses_other_algorithms(void **state)
{
    (void)state;
    static const char payload[] = "{\"sub\":\"u\",\"exp\":1000060,\"aud\":\"shop\"}";
    static const char *const headers[] = {
        "{\"alg\":\"none\"}",   "{\"alg\":\"HS512\"}", "{\"alg\":\"hs256\"}",
        "{\"alg\":\"HS256 \"}", "{\"typ\":\"JWT\"}",   "{\"alg\":256}",
    };
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        assert_int_equal(verdict_of(headers[i], payload), TOKEN_WRONG_ALGORITHM);
    static const char *const broken[] = {
        "{\"alg\":\"none\",\"alg\":\"HS256\"}",
        "{\"alg\":\"HS256\",\"crit\":[\"b64\"]}",
        "[\"HS256\"]",
        "{\"alg\":\"HS256\"",
        "",
    };
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
        assert_int_equal(verdict_of(broken[i], payload), TOKEN_MALFORMED);
}

static void test_token__every_bit_of_the_signature_counts(void **state)
{
    (void)state;
    struct draft draft;
    struct id user;
    const char *token = sign(&draft, HEADER, "{\"sub\":\"u\",\"exp\":1000060}", KEY);
    char *signature = strrchr(draft.text, '.') + 1;
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    size_t length;
    assert_int_equal(sodium_base642bin(mac, sizeof(mac), signature, strlen(signature), NULL,
                                       &length, NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING),
                     0);
    for (size_t bit = 0; bit < sizeof(mac) * 8; bit++) {
        mac[bit / 8] ^= (unsigned char)(1 << bit % 8);
        encode(signature, 64, mac, sizeof(mac));
        assert_int_equal(verify_text(token, "", &user), TOKEN_WRONG_SIGNATURE);
        mac[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    encode(signature, 64, mac, sizeof(mac));
    assert_int_equal(verify_text(token, "", &user), TOKEN_VALID);
}

static void test_token__signature_text_is_strict(void **state)
{
    (void)state;
    struct draft draft;
    struct id user;
    char text[sizeof(draft.text) + 8];
    const char *token = sign(&draft, HEADER, "{\"sub\":\"u\",\"exp\":1000060}", KEY);
    size_t length = strlen(token);
    static const char *const tails[] = {"=", " ", "A", ".", ".A", "\n"};
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        snprintf(text, sizeof(text), "%s%s", token, tails[i]);
        assert_int_not_equal(verify_text(text, "", &user), TOKEN_VALID);
    }
    /* 32 bytes leave two bits over in the last character: they must be zero. */
    memcpy(text, token, length + 1);
    text[length - 1] = (char)(text[length - 1] + 1);
    assert_int_equal(verify_text(text, "", &user), TOKEN_WRONG_SIGNATURE);
}

static void test_token__time_has_sixty_seconds_of_skew(void **state)
{
    (void)state;
    static const struct {
        const char *payload;
        enum token_verdict verdict;
    } cases[] = {
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":999941}", TOKEN_VALID},
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":999940}", TOKEN_EXPIRED},
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":999940.5}", TOKEN_VALID},
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":-1}", TOKEN_EXPIRED},
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":1e18}", TOKEN_VALID},
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":2000000,\"nbf\":1000060}", TOKEN_VALID},
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":2000000,\"nbf\":1000061}", TOKEN_TOO_EARLY},
        {"{\"sub\":\"u\",\"aud\":\"shop\"}", TOKEN_MALFORMED},
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":\"2000000\"}", TOKEN_MALFORMED},
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":null}", TOKEN_MALFORMED},
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":2000000,\"nbf\":\"1\"}", TOKEN_MALFORMED},
        {"{\"sub\":\"u\",\"aud\":\"shop\",\"exp\":1,\"exp\":2000000}", TOKEN_MALFORMED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(verdict_of(HEADER, cases[i].payload), cases[i].verdict);
}

static void test_token__audience_is_text_or_one_of_a_list(void **state)
{
    (void)state;
    static const struct {
        const char *payload;
        enum token_verdict verdict;
    } cases[] = {
        {"{\"sub\":\"u\",\"exp\":2000000,\"aud\":[\"a\",\"shop\"]}", TOKEN_VALID},
        {"{\"sub\":\"u\",\"exp\":2000000,\"aud\":[\"a\",\"b\"]}", TOKEN_WRONG_AUDIENCE},
        {"{\"sub\":\"u\",\"exp\":2000000,\"aud\":[]}", TOKEN_WRONG_AUDIENCE},
        {"{\"sub\":\"u\",\"exp\":2000000,\"aud\":\"shopping\"}", TOKEN_WRONG_AUDIENCE},
        {"{\"sub\":\"u\",\"exp\":2000000,\"aud\":\"sho\"}", TOKEN_WRONG_AUDIENCE},
        {"{\"sub\":\"u\",\"exp\":2000000,\"aud\":{\"shop\":1}}", TOKEN_WRONG_AUDIENCE},
        {"{\"sub\":\"u\",\"exp\":2000000}", TOKEN_WRONG_AUDIENCE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(verdict_of(HEADER, cases[i].payload), cases[i].verdict);
    struct draft draft;
    struct id user;
    const char *token = sign(&draft, HEADER, cases[1].payload, KEY);
    assert_int_equal(verify_text(token, "", &user), TOKEN_VALID);
}

static void test_token__subject_is_a_user_id(void **state)
{
    (void)state;
    static const char *const subjects[] = {"\"\"", "\"a \"",      "\"..\"", "5",
                                           "null", "\"\\u0000\"", "\"a/b\""};
    for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++) {
        char payload[128];
        snprintf(payload, sizeof(payload), "{\"sub\":%s,\"exp\":2000000,\"aud\":\"shop\"}",
                 subjects[i]);
        assert_int_equal(verdict_of(HEADER, payload), TOKEN_WRONG_SUBJECT);
    }
    assert_int_equal(verdict_of(HEADER, "{\"exp\":2000000,\"aud\":\"shop\"}"), TOKEN_WRONG_SUBJECT);
    assert_int_equal(
        verdict_of(HEADER, "{\"sub\":\"a\",\"sub\":\"b\",\"exp\":2000000,\"aud\":\"shop\"}"),
        TOKEN_MALFORMED);
}

static void test_token__size_is_bounded(void **state)
{
    (void)state;
    struct draft draft;
    struct id user;
    char payload[TOKEN_LENGTH_MAX];
    /* The longest that fits, with as many values as it can hold. */
    static const char start[] = "{\"sub\":\"u\",\"exp\":2000000,\"x\":[0";
    size_t length = sizeof(start) - 1;
    memcpy(payload, start, length);
    while (length < 2900) {
        memcpy(payload + length, ",0", 2);
        length += 2;
    }
    memcpy(payload + length, "]}", 3);
    const char *token = sign(&draft, HEADER, payload, KEY);
    assert_true(strlen(token) <= TOKEN_LENGTH_MAX);
    assert_int_equal(verify_text(token, "", &user), TOKEN_VALID);
    /* Each part would fit, all of them together do not. */
    char header[2001];
    memset(header, ' ', sizeof(header) - 1);
    memcpy(header, HEADER, sizeof(HEADER) - 1);
    header[sizeof(header) - 1] = '\0';
    memset(payload, ' ', 2000);
    memcpy(payload, "{\"sub\":\"u\",\"exp\":2000000}", 25);
    payload[2000] = '\0';
    token = sign(&draft, header, payload, KEY);
    assert_true(strlen(token) > TOKEN_LENGTH_MAX);
    assert_int_equal(verify_text(token, "", &user), TOKEN_MALFORMED);
}

static void test_token__shapes_that_are_no_token(void **state)
{
    (void)state;
    struct id user;
    static const char *const texts[] = {"", ".", "..", "...", "a", "a.b", "a.b.c.d", "!.!.!"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_not_equal(verify_text(texts[i], "", &user), TOKEN_VALID);
}

static void test_token__wrong_key(void **state)
{
    (void)state;
    struct draft draft;
    struct id user = {0};
    const char *token = sign(&draft, HEADER, "{\"sub\":\"u\",\"exp\":2000000}", KEY "\n");
    assert_int_equal(verify_text(token, "", &user), TOKEN_WRONG_SIGNATURE);
    assert_int_equal(user.length, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token__names_its_user),
        cmocka_unit_test(test_token__agrees_with_the_rfc),
        cmocka_unit_test(test_token__refuses_other_algorithms),
        cmocka_unit_test(test_token__every_bit_of_the_signature_counts),
        cmocka_unit_test(test_token__signature_text_is_strict),
        cmocka_unit_test(test_token__time_has_sixty_seconds_of_skew),
        cmocka_unit_test(test_token__audience_is_text_or_one_of_a_list),
        cmocka_unit_test(test_token__subject_is_a_user_id),
        cmocka_unit_test(test_token__size_is_bounded),
        cmocka_unit_test(test_token__shapes_that_are_no_token),
        cmocka_unit_test(test_token__wrong_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
