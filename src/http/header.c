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

/* Cuts what comes before the next `end` off `text`, without the blanks around it. */
static struct span cut(struct span *text, char end)
{
    const char *found = memchr(text->bytes, end, text->length);
    size_t length = found != NULL ? (size_t)(found - text->bytes) : text->length;
    struct span piece = skip_blanks((struct span){text->bytes, length});
    while (piece.length > 0 &&
           (piece.bytes[piece.length - 1] == ' ' || piece.bytes[piece.length - 1] == '\t')) {
        piece.length--;
    }
    *text = skip(*text, found != NULL ? length + 1 : length);
    return piece;
}

/* RFC 9110 12.4.2: 0 or 1, and at most three decimals. */
static int read_weight(struct span text)
{
    static const int worth[] = {1000, 0, 100, 10, 1};
    int weight = 0;
    if (text.length == 0 || text.length > sizeof worth / sizeof worth[0]) {
        return 0;
    }
    for (size_t at = 0; at < text.length; at++) {
        if (at == 1) {
            if (text.bytes[at] != '.') {
                return 0;
            }
            continue;
        }
        if (text.bytes[at] < '0' || text.bytes[at] > '9') {
            return 0;
        }
        weight += (text.bytes[at] - '0') * worth[at];
    }
    return weight <= 1000 ? weight : 0;
}

int header_quality(struct span list, struct span name)
{
    while (list.length > 0) {
        struct span item = cut(&list, ',');
        if (item.length == 0 || !same_letters(cut(&item, ';'), name)) {
            continue;
        }
        while (item.length > 0) {
            struct span parameter = cut(&item, ';');
            if (starts_with(parameter, SPAN("q="))) {
                return read_weight(skip(parameter, 2));
            }
        }
        return 1000;
    }
    return -1;
}

bool header_knows_etag(struct span if_none_match, struct span etag)
{
    if (if_none_match.bytes != NULL && span_equal(if_none_match, SPAN("*"))) {
        return true;
    }
    while (if_none_match.length > 0) {
        struct span tag = cut(&if_none_match, ',');
        if (tag.length > 2 && tag.bytes[0] == 'W' && tag.bytes[1] == '/') {
            tag = skip(tag, 2);
        }
        if (span_equal(tag, etag)) {
            return true;
        }
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

bool header_is_own_page(struct span sec_fetch_site, struct span origin, struct span host)
{
    return sec_fetch_site.bytes != NULL ? span_equal(sec_fetch_site, SPAN("same-origin"))
                                        : header_origin_is_host(origin, host);
}
