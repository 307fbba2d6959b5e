/* per_address.h: how many connections each address has, so that none takes all of them.
 *
 * One customer is all of an IPv4 address and the first 64 bits of an IPv6 one. This machine itself
 * (127.0.0.1 and ::1) is not counted: that is a proxy that nobody named, or a tool.
 *
 * Threads: safe from any.
 */
#ifndef HTTP_PER_ADDRESS_H
#define HTTP_PER_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/address.h"

struct per_address;

/* At most `max` each; 0: any number. NULL: no memory. */
struct per_address *per_address_new(size_t max);
void per_address_free(struct per_address *per_address);

/* One more of that address. False: it has as many as it may, or there is no memory for it. */
bool per_address_enter(struct per_address *per_address, const struct address *address);

/* One that entered has gone. */
void per_address_leave(struct per_address *per_address, const struct address *address);

#endif
