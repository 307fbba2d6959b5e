/* header.c: the small grammars of header values. */
#include "http/header.h"

#include <arpa/inet.h>
#include <strings.h>

static bool same_letters(struct span a, struct span b)
{
    return a.length == b.length && strncasecmp(a.bytes, b.bytes, a.length) == 0;
}

static bool starts_with(struct span text, struct span start)
{
    return text.length >= start.length && strncasecmp(text.bytes, start.bytes, start.length) == 0;
}

static struct span skip(struct span text, size_t count)
{
    return (struct span){text.bytes + count, text.length - count};
}

static struct span skip_blanks(struct span text)
{
    while (text.length > 0 && (text.bytes[0] == ' ' || text.bytes[0] == '\t')) {
        text = skip(text, 1);
    }
    return text;
}

bool header_is_visible(struct span value, size_t length_max)
{
    if (value.length == 0 || value.length > length_max) {
        return false;
    }
    for (size_t at = 0; at < value.length; at++) {
        if (value.bytes[at] < '!' || value.bytes[at] > '~') {
            return false;
        }
    }
    return true;
}

bool header_idempotency_key(struct span value, char bytes[IDEMPOTENCY_KEY_MAX], struct span *key)
{
    if (value.length == 0 || value.bytes[0] != '"') {
        *key = value;
        return header_is_visible(value, IDEMPOTENCY_KEY_MAX);
    }
    size_t length = 0;
    for (size_t at = 1; at < value.length; at++) {
        char byte = value.bytes[at];
        if (byte == '"') {
            *key = (struct span){bytes, length};
            return at + 1 == value.length && header_is_visible(*key, IDEMPOTENCY_KEY_MAX);
        }
        if (byte == '\\') {
            at++;
            byte = at < value.length ? value.bytes[at] : '\0';
            if (byte != '"' && byte != '\\') {
                return false;
            }
        }
        if (length == IDEMPOTENCY_KEY_MAX) {
            return false;
        }
        bytes[length++] = byte;
    }
    return false;
}

bool header_is_json(struct span content_type)
{
    const struct span type = SPAN("application/json");
    if (content_type.bytes == NULL || !starts_with(content_type, type)) {
        return false;
    }
    struct span rest = skip_blanks(skip(content_type, type.length));
    if (rest.length == 0) {
        return true;
    }
    if (rest.bytes[0] != ';') {
        return false;
    }
    rest = skip_blanks(skip(rest, 1));
    return rest.length == 0 || same_letters(rest, SPAN("charset=utf-8")) ||
           same_letters(rest, SPAN("charset=\"utf-8\""));
}

bool header_bearer(struct span authorization, struct span *token)
{
    const struct span scheme = SPAN("Bearer ");
    if (authorization.bytes == NULL || !starts_with(authorization, scheme)) {
        return false;
    }
    *token = skip_blanks(skip(authorization, scheme.length));
    return token->length > 0;
}

/* "127.0.0.1:8080" without its port; the brackets of an IPv6 address stay. */
static struct span without_port(struct span host)
{
    for (size_t at = host.length; at > 0; at--) {
        char byte = host.bytes[at - 1];
        if (byte == ':') {
            return (struct span){host.bytes, at - 1};
        }
        if (byte < '0' || byte > '9') {
            break;
        }
    }
    return host;
}

bool header_host_is_loopback(struct span host)
{
    if (host.bytes == NULL) {
        return false;
    }
    struct span name = without_port(host);
    char text[INET_ADDRSTRLEN];
    struct in_addr address;
    if (same_letters(name, SPAN("localhost")) || same_letters(name, SPAN("[::1]"))) {
        return true;
    }
    if (name.length >= sizeof text) {
        return false;
    }
    memcpy(text, name.bytes, name.length);
    text[name.length] = '\0';
    return inet_pton(AF_INET, text, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

bool header_origin_is_host(struct span origin, struct span host)
{
    if (origin.bytes == NULL || host.bytes == NULL) {
        return false;
    }
    const struct span schemes[] = {SPAN("http://"), SPAN("https://")};
    for (size_t index = 0; index < sizeof schemes / sizeof schemes[0]; index++) {
        if (starts_with(origin, schemes[index])) {
            return same_letters(skip(origin, schemes[index].length), host);
        }
    }
    return false;
}
