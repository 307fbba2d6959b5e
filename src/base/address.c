/* address.c: addresses in their one form, and which network they are in. */
#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/digits.h"

#define V4_OFFSET     12
#define V4_PREFIX     (8 * V4_OFFSET)
#define ADDRESS_BITS  128
#define PREFIX_DIGITS 3

static struct address of_v4(const void *bytes)
{
    struct address address = {.bytes = {[10] = 0xff, [11] = 0xff}};
    memcpy(address.bytes + V4_OFFSET, bytes, 4);
    return address;
}

struct address address_of(const struct sockaddr *peer)
{
    struct address address = {.bytes = {0}};
    if (peer->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, peer, sizeof(v4));
        return of_v4(&v4.sin_addr);
    }
    if (peer->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, peer, sizeof(v6));
        memcpy(address.bytes, &v6.sin6_addr, sizeof(address.bytes));
    }
    return address;
}

bool address_is_v4(const struct address *address)
{
    static const uint8_t mapped[V4_OFFSET] = {[10] = 0xff, [11] = 0xff};
    return memcmp(address->bytes, mapped, sizeof(mapped)) == 0;
}

bool address_parse(struct span text, struct address *address)
{
    char copy[ADDRESS_TEXT_SIZE];
    uint8_t v4[4];
    if (text.length == 0 || text.length >= sizeof(copy))
        return false;
    memcpy(copy, text.bytes, text.length);
    copy[text.length] = '\0';
    /* A NUL among the bytes would hide what follows it. */
    if (strlen(copy) != text.length)
        return false;
    if (inet_pton(AF_INET, copy, v4) == 1) {
        *address = of_v4(v4);
        return true;
    }
    return inet_pton(AF_INET6, copy, address->bytes) == 1;
}

void address_format(const struct address *address, char text[ADDRESS_TEXT_SIZE])
{
    bool v4 = address_is_v4(address);
    const void *bytes = v4 ? address->bytes + V4_OFFSET : address->bytes;
    const char *written = inet_ntop(v4 ? AF_INET : AF_INET6, bytes, text, ADDRESS_TEXT_SIZE);
    ensure(written != NULL);
}

bool network_parse(struct span text, struct network *network)
{
    const char *slash = text.length > 0 ? memchr(text.bytes, '/', text.length) : NULL;
    size_t length = slash != NULL ? (size_t)(slash - text.bytes) : text.length;
    if (!address_parse((struct span){text.bytes, length}, &network->first))
        return false;
    network->prefix = ADDRESS_BITS;
    if (slash == NULL)
        return true;
    unsigned before = address_is_v4(&network->first) ? V4_PREFIX : 0;
    struct span digits = {slash + 1, text.length - length - 1};
    uint64_t prefix = 0;
    bool valid =
        digits.length <= PREFIX_DIGITS && digits_read(digits, ADDRESS_BITS - before, &prefix);
    network->prefix = before + (unsigned)prefix;
    return valid;
}

bool network_contains(const struct network *network, const struct address *address)
{
    unsigned whole = network->prefix / 8;
    unsigned rest = network->prefix % 8;
    if (memcmp(network->first.bytes, address->bytes, whole) != 0)
        return false;
    uint8_t differing = rest == 0 ? 0 : network->first.bytes[whole] ^ address->bytes[whole];
    return differing >> (8 - rest) == 0;
}

bool address_is_loopback(const struct address *address)
{
    static const struct network v4 = {{.bytes = {[10] = 0xff, [11] = 0xff, [12] = 127}}, 104};
    static const struct network v6 = {{.bytes = {[15] = 1}}, ADDRESS_BITS};
    return network_contains(&v4, address) || network_contains(&v6, address);
}
