/* redis_cluster.h: a private Redis Cluster, and a primary with a replica under a sentinel, made of
 * the servers of redis_fixture.h.
 *
 * Threads: everything belongs to the test's thread.
 */
#pragma once

#include "redis_fixture.h"

#define CLUSTER_NODES_MAX 6

struct redis_cluster {
    struct redis_server nodes[CLUSTER_NODES_MAX]; /* the primaries first */
    redisContext *links[CLUSTER_NODES_MAX];       /* NULL: killed */
    char ids[CLUSTER_NODES_MAX][48];
    size_t count;
    size_t primary_count;
    char url[256];
};

/* So many primaries, each with so many replicas; all slots are served. */
void redis_cluster_start(struct redis_cluster *cluster, size_t primaries, size_t replicas);
void redis_cluster_release(struct redis_cluster *cluster);

/* The living node that has the policy. */
size_t redis_cluster_owner(struct redis_cluster *cluster, int64_t policy_id);

/* The lowest id of a policy that lives on that node, from `from` on. */
int64_t redis_cluster_policy_of(struct redis_cluster *cluster, size_t node, int64_t from);

/* Moves a policy's slot, in steps: it is opened at both ends, its keys move, everyone is told. */
void redis_cluster_begin_move(struct redis_cluster *cluster, int64_t policy_id, size_t to);
void redis_cluster_move_keys(struct redis_cluster *cluster, int64_t policy_id, size_t from,
                             size_t to, int64_t keys_max);
void redis_cluster_end_move(struct redis_cluster *cluster, int64_t policy_id, size_t to);

void redis_cluster_kill(struct redis_cluster *cluster, size_t node);

/* Starts a sentinel that watches the server on that port under the name "dibs". */
void redis_sentinel_start(struct redis_server *sentinel, int primary_port);
