/* address.h: IP addresses and networks, from text and from sockets.
 *
 * An IPv4 address is kept as its IPv6-mapped form (::ffff:192.0.2.1), so that the two ways in which
 * a socket may show the same caller are one.
 *
 * Threads: values only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buffer.h"

/* Holds every address as text, with its NUL. */
#define ADDRESS_TEXT_SIZE 46

struct address {
    uint8_t bytes[16]; /* all zero: not known */
};

/* The addresses whose first `prefix` bits are those of `first`. */
struct network {
    struct address first;
    unsigned prefix;
};

/* The address of a socket's other end; not known for anything but IP. */
struct address address_of(const struct sockaddr *peer);

/* "192.0.2.1" or "2001:db8::1"; false for anything else. */
bool address_parse(struct span text, struct address *address);

/* The same texts. */
void address_format(const struct address *address, char text[ADDRESS_TEXT_SIZE]);

bool address_is_v4(const struct address *address);

/* 127.0.0.0/8 or ::1. */
bool address_is_loopback(const struct address *address);

/* "10.0.0.0/8", "2001:db8::/32", or one address. */
bool network_parse(struct span text, struct network *network);

bool network_contains(const struct network *network, const struct address *address);
