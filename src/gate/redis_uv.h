/* redis_uv.h: lets a libuv loop drive an asynchronous connection of hiredis.
 *
 * Threads: the loop's own.
 */
#ifndef GATE_REDIS_UV_H
#define GATE_REDIS_UV_H

#include <hiredis/async.h>
#include <stdbool.h>
#include <uv.h>

/* From now on the loop reads and writes for this connection, until that is freed. False: no memory,
 * or the loop refuses it. */
bool redis_uv_attach(redisAsyncContext *link, uv_loop_t *loop);

/* First of all in every reply's callback: ends the connection after it when more has come than was
 * asked for. hiredis would abort the process over such a reply. */
void redis_uv_mind(redisAsyncContext *link);

#endif
