/* redis_survey.h: how a Redis keeps what it was told, and what time it is there; for the Redis
 * gate's own files only.
 */
#ifndef GATE_REDIS_SURVEY_H
#define GATE_REDIS_SURVEY_H

#include "gate/gate.h"
#include "gate/redis_reply.h"

struct redis_durability {
    bool has_aof;
    char fsync[16]; /* "always", "everysec", "no"; "?": it does not tell */
};

/* The value behind "name:" in what INFO says, up to the end of the line; left as it is when that is
 * not there. */
void redis_info(struct span info, const char *name, char *value, size_t size);

/* `info` is what INFO says on that link. */
void redis_durability_read(struct redis_durability *durability, redisContext *link,
                           struct span info);

/* What may be lost of what was told before the ledger had it. */
enum gate_loss redis_durability_loss(const struct redis_durability *durability);

/* The slot of that name in struct gate_ops. */
enum status gate_redis_survey(struct gate *gate, int64_t policy_id, struct gate_survey *survey,
                              struct error *error);

#endif
