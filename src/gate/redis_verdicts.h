/* redis_verdicts.h: reads what dibs_claim answers.
 *
 * Threads: values only.
 */
#ifndef GATE_REDIS_VERDICTS_H
#define GATE_REDIS_VERDICTS_H

#include <hiredis/hiredis.h>

#include "gate/gate.h"

/* Gives each wish its verdict. False: this is not the answer to the batch of that name, or it is
 * not readable to its last letter; then no verdict of it counts. */
bool redis_verdicts_read(const redisReply *reply, const char *name, struct wish *const *wishes,
                         size_t count);

/* The state of a coupon that a letter of the library stands for. */
enum coupon_state redis_state_of(char letter);

#endif
