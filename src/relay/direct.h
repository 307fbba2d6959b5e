/* direct.h: the relay with nothing in between. Opened through relay_open(). */
#ifndef RELAY_DIRECT_H
#define RELAY_DIRECT_H

#include "relay/relay.h"

enum status relay_direct_open(struct relay **relay, struct error *error) MUST_CHECK;

#endif
