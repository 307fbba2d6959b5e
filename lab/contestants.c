/* contestants.c: the list of all: each strategy with its settings, and dibs with its own. */
#include <stddef.h>

#include "lab/run.h"

extern const struct lab_strategy lab_update_where, lab_for_update, lab_optimistic, lab_redis_lock,
    lab_optimistic_lock, lab_decr_zset, lab_set_list, lab_hash_zset_nx, lab_zset_rank,
    lab_list_rpoplpush, lab_decr_kafka, lab_lua;

const struct lab_contestant lab_contestants[] = {
    {.name = "update-where", .group = "Database", .strategy = &lab_update_where},
    {.name = "for-update", .group = "Database", .strategy = &lab_for_update},
    {.name = "optimistic-0", .group = "Database", .strategy = &lab_optimistic, .retries = 0},
    {.name = "optimistic-3", .group = "Database", .strategy = &lab_optimistic, .retries = 3},
    {.name = "optimistic-10", .group = "Database", .strategy = &lab_optimistic, .retries = 10},
    {.name = "redis-lock", .group = "Database", .strategy = &lab_redis_lock},
    {.name = "optimistic+lock",
     .group = "Database",
     .strategy = &lab_optimistic_lock,
     .retries = 3},
    {.name = "decr-zset", .group = "Redis", .strategy = &lab_decr_zset},
    {.name = "decr-zset+sync", .group = "Redis", .strategy = &lab_decr_zset, .sync_ms = 10000},
    {.name = "set-list", .group = "Redis", .strategy = &lab_set_list},
    {.name = "hash-zset-nx", .group = "Redis", .strategy = &lab_hash_zset_nx},
    {.name = "zset-rank", .group = "Redis", .strategy = &lab_zset_rank},
    {.name = "list-rpoplpush", .group = "Redis", .strategy = &lab_list_rpoplpush},
    {.name = "decr-kafka", .group = "Redis", .strategy = &lab_decr_kafka},
    {.name = "lua", .group = "References", .strategy = &lab_lua},
    {.name = "dibs", .group = "References", .gate = "local", .ack = "gate"},
    {.name = "dibs-redis", .group = "References", .gate = "redis", .ack = "gate"},
    {.name = "dibs-redis-ledger", .group = "References", .gate = "redis", .ack = "ledger"},
    {.name = "dibs-kafka",
     .group = "References",
     .gate = "redis",
     .ack = "gate",
     .has_kafka = true},
    {.name = NULL},
};
