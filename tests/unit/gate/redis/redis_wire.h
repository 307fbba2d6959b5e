/* redis_wire.h: a gate in Redis, and connections, whose server has already said all it will say.
 *
 * Whatever is asked, the next bytes are the answer; behind the last one the connection breaks, and
 * no other one can be opened. There is no socket.
 */
#pragma once

#include "gate/redis/gate.h"

struct redis_wire {
    struct gate_redis redis;
    struct span said; /* what is left of it */
};

/* The bytes live as long as the wire does. */
void redis_wire_open(struct redis_wire *wire, struct span said);
void redis_wire_close(struct redis_wire *wire);

/* Gives a pool a connection on which that is said. */
void redis_wire_plug(struct redis_pool *pool, struct span *said);
