/* redis_map.h: which server has a policy: the only one, the sentinels' master, or the primary of
 * its hash slot.
 *
 * Threads: every function may be called from any thread.
 */
#ifndef GATE_REDIS_MAP_H
#define GATE_REDIS_MAP_H

#include <pthread.h>

#include "gate/redis_link.h"

#define REDIS_SLOTS     16384
#define REDIS_NODES_MAX 256

struct redis_map {
    const struct redis_target *target;
    pthread_mutex_t refresh_lock; /* one asks at a time; taken before `lock` */
    int64_t refreshed_ms;         /* under it; 0: never */
    pthread_mutex_t lock;         /* never held while anyone is asked */
    struct redis_address nodes[REDIS_NODES_MAX];
    uint16_t places[REDIS_NODES_MAX]; /* of the nodes; one keeps its place, whatever moves */
    size_t node_count;
    uint16_t slots[REDIS_SLOTS]; /* the index of the node; of a cluster only */
};

void redis_map_init(struct redis_map *map, const struct redis_target *target);
void redis_map_release(struct redis_map *map);

/* Asks the servers where things are, unless that was done a moment ago. UNAVAILABLE: none answers.
 */
enum status redis_map_refresh(struct redis_map *map, struct error *error) MUST_CHECK;

/* Who has this policy, or this slot, as far as known. False: nobody is known yet. */
bool redis_map_find(struct redis_map *map, int64_t policy_id, struct redis_address *address);
bool redis_map_find_slot(struct redis_map *map, unsigned slot, struct redis_address *address);

/* The place of the server that has this policy: servers have different ones, from 0 on. Whoever
 * takes over from another takes its place. */
size_t redis_map_place(struct redis_map *map, int64_t policy_id);

/* Every server that holds policies. Returns how many were written. */
size_t redis_map_list(struct redis_map *map, struct redis_address *addresses, size_t max);

/* The hash slot of a policy's keys: that of its tag, the id in decimal digits. */
unsigned redis_map_slot(int64_t policy_id);

/* The hash slot of all keys with that tag. */
unsigned redis_map_slot_of(const char *tag);

/* Reads what a sentinel says of its master, or a cluster's node, `from`, of its slots, as the
 * target wants it. False: it is not readable. */
bool redis_map_read(struct redis_map *fresh, const redisReply *reply,
                    const struct redis_target *target, const struct redis_address *from);

/* Reads "MOVED 3999 127.0.0.1:6381" or "ASK …". False: it is not readable. */
bool redis_map_read_redirect(const char *words, const struct redis_address *from,
                             struct redis_address *to);

#endif
