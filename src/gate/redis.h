/* redis.h: the gate in Redis, shared by any number of servers and workers. Opened through
 * gate_open(). What it keeps where, and how it decides, is in redis.lua.
 */
#ifndef GATE_REDIS_H
#define GATE_REDIS_H

#include "gate/gate.h"

/* Connects, checks the server's version and settings, and loads the function library. FAILED: it is
 * a Redis that must not be used, and why. */
enum status gate_redis_open(struct gate **gate, const struct gate_options *options,
                            struct error *error) MUST_CHECK;

#endif
