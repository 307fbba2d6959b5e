/* redis_cluster.c: makes, moves and breaks a private cluster. */
#include "redis_cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "base/clock.h"

static bool redis_cluster_has_met(const struct redis_cluster *cluster)
{
    for (size_t i = 0; i < cluster->count; i++) {
        redisReply *nodes = ask(cluster->links[i], "CLUSTER NODES");
        size_t known = 0;
        for (const char *line = nodes->str; *line != '\0'; line++)
            known += *line == '\n';
        bool shakes_hands = strstr(nodes->str, "handshake") != NULL;
        freeReplyObject(nodes);
        if (known != cluster->count || shakes_hands)
            return false;
    }
    return true;
}

static bool redis_cluster_is_well(const struct redis_cluster *cluster)
{
    for (size_t i = 0; i < cluster->count; i++) {
        if (cluster->links[i] == NULL)
            continue;
        redisReply *info = ask(cluster->links[i], "CLUSTER INFO");
        bool is_ok = strstr(info->str, "cluster_state:ok") != NULL;
        freeReplyObject(info);
        info = ask(cluster->links[i], "INFO replication");
        is_ok = is_ok && (strstr(info->str, "role:master") != NULL ||
                          strstr(info->str, "master_link_status:up") != NULL);
        freeReplyObject(info);
        if (!is_ok)
            return false;
    }
    return true;
}

void redis_cluster_start(struct redis_cluster *cluster, size_t primaries, size_t replicas)
{
    const char *const settings[] = {"--cluster-enabled",
                                    "yes",
                                    "--cluster-node-timeout",
                                    "1000",
                                    "--cluster-replica-validity-factor",
                                    "0",
                                    "--cluster-require-full-coverage",
                                    "no",
                                    NULL};
    size_t length = 0;

    *cluster =
        (struct redis_cluster){.count = primaries * (1 + replicas), .primary_count = primaries};
    assert_true(cluster->count <= CLUSTER_NODES_MAX);
    for (size_t i = 0; i < cluster->count; i++) {
        redis_server_start(&cluster->nodes[i], settings);
        cluster->links[i] = redis_server_connect(&cluster->nodes[i]);
        redisReply *id = ask(cluster->links[i], "CLUSTER MYID");
        snprintf(cluster->ids[i], sizeof(cluster->ids[i]), "%.40s", id->str);
        freeReplyObject(id);
        order(cluster->links[i], "CLUSTER SET-CONFIG-EPOCH %d", (int)i + 1);
        if (i < primaries)
            order(cluster->links[i], "CLUSTER ADDSLOTSRANGE %d %d",
                  (int)(REDIS_SLOTS * i / primaries), (int)(REDIS_SLOTS * (i + 1) / primaries) - 1);
        length +=
            (size_t)snprintf(cluster->url + length, sizeof(cluster->url) - length, "%s127.0.0.1:%d",
                             i == 0 ? "redis+cluster://" : ",", cluster->nodes[i].port);
    }
    for (size_t i = 1; i < cluster->count; i++)
        order(cluster->links[0], "CLUSTER MEET 127.0.0.1 %d %d", cluster->nodes[i].port,
              cluster->nodes[i].bus_port);
    await(redis_cluster_has_met(cluster));
    for (size_t i = primaries; i < cluster->count; i++)
        order(cluster->links[i], "CLUSTER REPLICATE %s", cluster->ids[i % primaries]);
    await(redis_cluster_is_well(cluster));
}

void redis_cluster_release(struct redis_cluster *cluster)
{
    for (size_t i = 0; i < cluster->count; i++) {
        if (cluster->links[i] != NULL)
            redisFree(cluster->links[i]);
        redis_server_release(&cluster->nodes[i]);
    }
}

void redis_cluster_kill(struct redis_cluster *cluster, size_t node)
{
    redisFree(cluster->links[node]);
    cluster->links[node] = NULL;
    redis_server_kill(&cluster->nodes[node]);
}

size_t redis_cluster_owner(struct redis_cluster *cluster, int64_t policy_id)
{
    unsigned slot = redis_map_slot(policy_id);
    size_t asked = 0;

    while (cluster->links[asked] == NULL)
        asked++;
    redisReply *slots = ask(cluster->links[asked], "CLUSTER SLOTS");
    size_t owner = CLUSTER_NODES_MAX;
    for (size_t i = 0; i < slots->elements; i++) {
        const redisReply *range = slots->element[i];
        if (slot < range->element[0]->integer || slot > range->element[1]->integer)
            continue;
        for (size_t j = 0; j < cluster->count; j++)
            if (cluster->nodes[j].port == range->element[2]->element[1]->integer)
                owner = j;
    }
    freeReplyObject(slots);
    return owner;
}

int64_t redis_cluster_policy_of(struct redis_cluster *cluster, size_t node, int64_t from)
{
    while (redis_cluster_owner(cluster, from) != node)
        from++;
    return from;
}

/* --- moving --- */

void redis_cluster_begin_move(struct redis_cluster *cluster, int64_t policy_id, size_t to)
{
    size_t from = redis_cluster_owner(cluster, policy_id);
    unsigned slot = redis_map_slot(policy_id);

    order(cluster->links[to], "CLUSTER SETSLOT %u IMPORTING %s", slot, cluster->ids[from]);
    order(cluster->links[from], "CLUSTER SETSLOT %u MIGRATING %s", slot, cluster->ids[to]);
}

void redis_cluster_move_keys(struct redis_cluster *cluster, int64_t policy_id, size_t from,
                             size_t to, int64_t keys_max)
{
    unsigned slot = redis_map_slot(policy_id);

    for (int64_t moved = 0; moved < keys_max; moved++) {
        redisReply *keys = ask(cluster->links[from], "CLUSTER GETKEYSINSLOT %u 1", slot);
        if (keys->elements == 1)
            order(cluster->links[from], "MIGRATE 127.0.0.1 %d %s 0 20000", cluster->nodes[to].port,
                  keys->element[0]->str);
        bool is_empty = keys->elements == 0;
        freeReplyObject(keys);
        if (is_empty)
            return;
    }
}

void redis_cluster_end_move(struct redis_cluster *cluster, int64_t policy_id, size_t to)
{
    unsigned slot = redis_map_slot(policy_id);

    order(cluster->links[to], "CLUSTER SETSLOT %u NODE %s", slot, cluster->ids[to]);
    for (size_t i = 0; i < cluster->primary_count; i++)
        if (i != to && cluster->links[i] != NULL)
            order(cluster->links[i], "CLUSTER SETSLOT %u NODE %s", slot, cluster->ids[to]);
}

/* --- sentinels --- */

void redis_sentinel_start(struct redis_server *sentinel, int primary_port)
{
    static char monitor[64];
    const char *const settings[] = {"--sentinel", NULL};

    snprintf(monitor, sizeof(monitor), "sentinel monitor dibs 127.0.0.1 %d 1", primary_port);
    redis_server_prepare(sentinel, settings);
    redis_server_write(sentinel, "redis.conf",
                       "%s\nsentinel down-after-milliseconds dibs 500\n"
                       "sentinel failover-timeout dibs 5000\n",
                       monitor);
    redis_server_begin(sentinel);
}
