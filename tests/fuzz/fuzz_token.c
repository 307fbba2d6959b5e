/* fuzz_token.c: any bytes as a token or a cookie, and any bytes as the inside of a token that is
 * signed right.
 *
 * Without the second half the signature would keep the fuzzer away from everything behind it. What
 * is accepted must name a valid user; what is signed by nobody must never be accepted.
 */
#include <sodium.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "http/api/ask.h"
#include "http/api/auth.h"
#include "http/server/header.h"

#define KEY    "0123456789abcdef0123456789abcdef"
#define NOW_MS INT64_C(1700000000000)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static enum token_verdict verify(struct span token)
{
    struct token_verifier verifier;
    struct id user = {0};
    token_verifier_init(&verifier, SPAN(KEY), SPAN("shop"));
    enum token_verdict verdict = token_verify(&verifier, token, NOW_MS, &user);
    token_verifier_release(&verifier);
    ensure((verdict == TOKEN_VALID) == (user.length > 0));
    ensure(verdict != TOKEN_VALID || json_id_valid(id_span(&user)));
    ensure(token_verdict_text(verdict) != NULL);
    return verdict;
}

/* The input up to the first newline is the header, the rest the payload. */
static void verify_signed(const uint8_t *bytes, size_t size)
{
    char token[2 * TOKEN_LENGTH_MAX + 64];
    const uint8_t *newline = memchr(bytes, '\n', size);
    size_t header_length = newline == NULL ? size : (size_t)(newline - bytes);
    size_t skipped = newline == NULL ? size : header_length + 1;
    if (size > TOKEN_LENGTH_MAX)
        return;
    char *at = token;
    sodium_bin2base64(at, sizeof(token), bytes, header_length,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    at += strlen(at);
    *at++ = '.';
    sodium_bin2base64(at, sizeof(token) - (size_t)(at - token), bytes + skipped, size - skipped,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    at += strlen(at);
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256(mac, (const unsigned char *)token, (size_t)(at - token),
                           (const unsigned char *)KEY);
    *at++ = '.';
    sodium_bin2base64(at, sizeof(token) - (size_t)(at - token), mac, sizeof(mac),
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    (void)verify(span_of(token));
}

/* The other small grammars that strangers write in. */
static void read_values(struct span value)
{
    char bytes[IDEMPOTENCY_KEY_MAX];
    struct span key;
    if (header_idempotency_key(value, bytes, &key))
        ensure(header_is_visible(key, IDEMPOTENCY_KEY_MAX));
    int64_t first;
    int64_t second;
    char cursor[CURSOR_SIZE];
    if (cursor_read(value, 'c', &first, &second)) {
        cursor_write(cursor, 'c', first, second);
        ensure(span_equal(value, span_of(cursor)));
    }
    struct query_param params[] = {{.name = "limit"}, {.name = "after"}};
    char field[QUERY_NAME_SIZE];
    struct error error;
    (void)!query_read(value, params, 2, field, &error);
    (void)header_host_is_loopback(value);
    (void)header_is_json(value);
    int quality = header_quality(value, SPAN("gzip"));
    ensure(quality >= -1 && quality <= 1000);
    (void)header_knows_etag(value, SPAN("\"a\""));
    (void)header_is_own_page(value, value, value);
}

/* Any Cookie header by itself, then with a good session behind it, and then with that session
 * changed by the input's first byte. */
static void check_sessions(const uint8_t *bytes, size_t size)
{
    static const char name[] = "; " SESSION_COOKIE "=";
    char header[HTTP_HEADERS_BYTES_MAX + sizeof(name) + SESSION_VALUE_SIZE];
    struct session_key key;
    if (size == 0 || size > HTTP_HEADERS_BYTES_MAX)
        return;
    session_key_derive(&key, SPAN(KEY));
    ensure(session_check(&key, (struct span){(const char *)bytes, size}, NOW_MS) != SESSION_VALID);
    memcpy(header, bytes, size);
    memcpy(header + size, name, sizeof(name) - 1);
    char *value = header + size + sizeof(name) - 1;
    session_write(&key, NOW_MS / 1000 + 1, value);
    ensure(session_check(&key, (struct span){header, strlen(value) + (size_t)(value - header)},
                         NOW_MS) == SESSION_VALID);
    value[bytes[0] % strlen(value)] ^= 1;
    ensure(session_check(&key, (struct span){header, strlen(value) + (size_t)(value - header)},
                         NOW_MS) != SESSION_VALID);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct span input = {(const char *)bytes, size};
    /* Nobody finds a signature by chance. */
    ensure(verify(input) != TOKEN_VALID);
    verify_signed(bytes, size);
    read_values(input);
    check_sessions(bytes, size);
    return 0;
}
