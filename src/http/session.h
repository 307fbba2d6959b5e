/* session.h: the cookie that stands for the admin token in a browser.
 *
 * Its value is "EXPIRY.MAC": when it ends, in seconds since 1970, and a MAC of that under a key
 * that is derived from the admin token. Nothing is stored: every server with the same token takes
 * it, and a new token ends every session. The cookie does not tell the token.
 *
 * Threads: pure functions.
 */
#ifndef HTTP_SESSION_H
#define HTTP_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

#define SESSION_COOKIE "dibs_session"
/* Over TLS: browsers take a cookie of such a name only from this host itself, over TLS. */
#define SESSION_COOKIE_TLS  "__Host-" SESSION_COOKIE
#define SESSION_LIFE_S      43200
#define SESSION_KEY_SIZE    32
#define SESSION_EXPIRY_SIZE 12 /* digits at most: until the year 33658 */
/* Expiry, dot, MAC in hex, NUL. */
#define SESSION_VALUE_SIZE (SESSION_EXPIRY_SIZE + 1 + 2 * SESSION_KEY_SIZE + 1)

struct session_key {
    uint8_t bytes[SESSION_KEY_SIZE];
};

void session_key_derive(struct session_key *key, struct span admin_token);

/* The value of a cookie that is good until `expires_s`, which has at most 12 digits. */
void session_write(const struct session_key *key, int64_t expires_s,
                   char value[SESSION_VALUE_SIZE]);

enum session_verdict {
    SESSION_ABSENT, /* no cookie of that name */
    SESSION_VALID,
    SESSION_EXPIRED,
    SESSION_WRONG, /* no value of ours, or of another token */
};

/* Reads the Cookie header (bytes == NULL: none). When several cookies have either name, as those of
 * another path or of a parent domain may, a valid one among them counts. */
enum session_verdict session_check(const struct session_key *key, struct span cookie,
                                   int64_t now_ms);

#endif
