/* kafka_direct.c: claims that go past the topic, straight into the ledger, while other services
 * still hear through Kafka what becomes of coupons.
 *
 * The group goes on reading the topic: what a worker has published that let claims go through it
 * comes out here as well, so that both kinds may run at once and either may follow the other. A
 * claim that goes both ways finds its row in the ledger the second time.
 */
#include <stdlib.h>

#include "base/log.h"
#include "relay/kafka_parts.h"

static struct relay *direct_of(struct relay *relay)
{
    return ((struct relay_kafka *)relay)->direct;
}

/* A way's state is what the topic has to be past before its policy is armed. */
enum status relay_kafka_direct_begin(struct relay *relay, struct relay_way *way,
                                     struct error *error)
{
    struct kafka_goal *goal = way->state;

    if (goal == NULL)
        goal = way->state = malloc(sizeof(*goal));
    if (goal == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to drain");
    goal->is_set = false;
    return relay_begin(direct_of(relay), way, error);
}

enum status relay_kafka_direct_carry(struct relay *relay, struct relay_way *way,
                                     struct claim *claims, size_t count, struct error *error)
{
    return relay_carry(direct_of(relay), way, claims, count, error);
}

bool relay_kafka_direct_rest(struct relay *relay, struct relay_way *way, int64_t pending_count)
{
    return relay_rest(direct_of(relay), way, pending_count);
}

/* Where the gate lost its memory, the topic may have claims that nobody else knows any more. Those
 * who claim need no broker, though: while none answers nobody waits, and what comes out later takes
 * a unit anew. */
enum status relay_kafka_direct_pass(struct relay *relay, struct relay_way *way,
                                    struct claim *claims, size_t count, struct error *error)
{
    struct relay_kafka *kafka = (struct relay_kafka *)relay;
    struct kafka_goal *goal = way->state;
    struct kafka_view view;

    kafka_watch_read(kafka->watch, &view);
    if (!view.is_known)
        return error_set(error, STATUS_BUSY, "it is not known yet whether the brokers answer");
    bool is_new = !goal->is_set;
    if (!view.is_up || kafka_watch_reached(kafka->watch, goal))
        return relay_pass(direct_of(relay), way, claims, count, error);
    if (is_new)
        log_event(LOG_INFO, "arming_waits", LOG_FIELD("policy", LOG_I64(way->policy_id)),
                  LOG_FIELD("for", LOG_TEXT("published claims that the ledger does not have yet")));
    return error_set(error, STATUS_BUSY, "published claims are still on their way");
}

void relay_kafka_direct_leave(struct relay *relay, struct relay_way *way)
{
    free(way->state);
    way->state = NULL;
    relay_leave(direct_of(relay), way);
}
