/* redis_verdicts.h: reads what dibs_claim and dibs_settled answer.
 *
 * Threads: values only.
 */
#ifndef GATE_REDIS_VERDICTS_H
#define GATE_REDIS_VERDICTS_H

#include "gate/gate.h"
#include "gate/redis_reply.h"

/* Gives each wish its verdict. False: this is not the answer to the batch of that name, or it is
 * not readable to its last letter; then no verdict of it counts. */
bool redis_verdicts_read(const redisReply *reply, const char *name, struct wish *const *wishes,
                         size_t count);

/* Whether the wish rests on what the ledger may not have: a claim that is pending or, of those who
 * are told that nothing is left, all that are. */
bool redis_wish_is_unsettled(const struct wish *wish);

/* Tells the wishes that are unsettled what became of them; *is_over: none of them is any longer.
 * False: it is not readable, and nothing has changed. */
bool redis_settled_read(const redisReply *reply, struct wish *const *wishes, size_t count,
                        bool *is_over);

/* The state of a coupon that a letter of the library stands for. */
enum coupon_state redis_state_of(char letter);

#endif
