/* redis_terms.h: renewing the time for which policies are armed in Redis.
 *
 * It has connections and a short timeout of its own: a server that is slow or stands still must not
 * keep it from the others for long.
 *
 * Threads: a renewal belongs to one thread.
 */
#ifndef GATE_REDIS_TERMS_H
#define GATE_REDIS_TERMS_H

#include "gate/gate.h"
#include "gate/redis_pool.h"

/* What time it was on a server when the renewal began. */
struct redis_clock {
    struct redis_address address;
    struct gate_moment moment;
    bool is_due;           /* it answered, and nobody has renewed there a moment ago */
    int64_t away_until_ms; /* monotonic: it did not answer, and is left alone for a while */
};

struct redis_renewal {
    struct redis_target
        target; /* as the gate's, but for the timeout; what it points to is borrowed */
    struct redis_pool pool;
    struct redis_clock *servers; /* room for REDIS_NODES_MAX */
    size_t server_count;
};

enum status redis_renewal_init(struct redis_renewal *renewal, const struct redis_target *target,
                               struct redis_map *map, struct error *error) MUST_CHECK;
void redis_renewal_release(struct redis_renewal *renewal);

/* Slots of struct gate_ops. */
bool gate_redis_can_move(const struct gate *gate);
enum status gate_redis_take_over(struct gate *gate, int64_t policy_id, int64_t term,
                                 int64_t previous, bool *is_continuous, struct error *error);
enum status gate_redis_moment(struct gate *gate, int64_t policy_id, struct gate_moment *moment,
                              struct error *error);
bool gate_redis_renewal_begin(struct gate *gate, int64_t pause_ms);
void gate_redis_renew(struct gate *gate, const struct gate_term *terms, size_t count,
                      int64_t length_ms, bool is_confirmed);

#endif
