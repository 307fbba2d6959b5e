/* session.c: makes and checks the cookie of a login. */
#include "http/session.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>

#include "base/error.h"

#define MAC_LENGTH (2 * (size_t)SESSION_KEY_SIZE)

void session_key_derive(struct session_key *key, struct span admin_token)
{
    static const unsigned char purpose[] = "dibs session cookie, version 1";
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, (const unsigned char *)admin_token.bytes,
                                admin_token.length);
    crypto_auth_hmacsha256_update(&state, purpose, sizeof purpose - 1);
    crypto_auth_hmacsha256_final(&state, key->bytes);
    sodium_memzero(&state, sizeof state);
}

void session_write(const struct session_key *key, int64_t expires_s, char value[SESSION_VALUE_SIZE])
{
    uint8_t mac[SESSION_KEY_SIZE];
    int length = snprintf(value, SESSION_EXPIRY_SIZE + 2, "%" PRId64 ".", expires_s);
    ensure(expires_s >= 0 && length <= SESSION_EXPIRY_SIZE + 1);
    crypto_auth_hmacsha256(mac, (const unsigned char *)value, (size_t)length, key->bytes);
    sodium_bin2hex(value + length, MAC_LENGTH + 1, mac, sizeof mac);
}

/* The digits before the dot, which has to be where the MAC leaves room for it. */
static bool read_expiry(struct span value, int64_t *expires_s)
{
    size_t digits = value.length - MAC_LENGTH - 1;
    if (value.length < MAC_LENGTH + 2 || digits > SESSION_EXPIRY_SIZE ||
        value.bytes[digits] != '.') {
        return false;
    }
    *expires_s = 0;
    for (size_t at = 0; at < digits; at++) {
        if (value.bytes[at] < '0' || value.bytes[at] > '9') {
            return false;
        }
        *expires_s = *expires_s * 10 + (value.bytes[at] - '0');
    }
    return true;
}

static enum session_verdict check_value(const struct session_key *key, struct span value,
                                        int64_t now_ms)
{
    char right[SESSION_VALUE_SIZE];
    int64_t expires_s;
    if (!read_expiry(value, &expires_s)) {
        return SESSION_WRONG;
    }
    session_write(key, expires_s, right);
    if (strlen(right) != value.length || sodium_memcmp(right, value.bytes, value.length) != 0) {
        return SESSION_WRONG;
    }
    return expires_s * 1000 > now_ms ? SESSION_VALID : SESSION_EXPIRED;
}

enum session_verdict session_check(const struct session_key *key, struct span cookie,
                                   int64_t now_ms)
{
    const struct span prefix = SPAN("__Host-");
    const struct span name = SPAN(SESSION_COOKIE "=");
    enum session_verdict found = SESSION_ABSENT;
    while (cookie.length > 0 && found != SESSION_VALID) {
        const char *end = memchr(cookie.bytes, ';', cookie.length);
        struct span pair = {cookie.bytes,
                            end != NULL ? (size_t)(end - cookie.bytes) : cookie.length};
        size_t used = pair.length + (end != NULL ? 1 : 0);
        cookie = (struct span){cookie.bytes + used, cookie.length - used};
        while (pair.length > 0 && pair.bytes[0] == ' ') {
            pair = (struct span){pair.bytes + 1, pair.length - 1};
        }
        if (pair.length > prefix.length && memcmp(pair.bytes, prefix.bytes, prefix.length) == 0) {
            pair = (struct span){pair.bytes + prefix.length, pair.length - prefix.length};
        }
        if (pair.length < name.length || memcmp(pair.bytes, name.bytes, name.length) != 0) {
            continue;
        }
        struct span value = {pair.bytes + name.length, pair.length - name.length};
        enum session_verdict verdict = check_value(key, value, now_ms);
        /* Of those that do not count, the one that once did tells more. */
        found = found == SESSION_EXPIRED && verdict == SESSION_WRONG ? found : verdict;
    }
    return found;
}
