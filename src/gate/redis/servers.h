/* servers.h: which Redis servers a URL names, and which of them has a policy.
 *
 *     redis://user:password@host:6379/0           one server; rediss:// with TLS
 *     redis:///0?socket=/run/redis.sock           a unix socket
 *     redis+sentinel://host,host/master/0         whoever the sentinels call the master
 *     redis+cluster://host,host                   a cluster, from any of its nodes
 *
 * Parameters for TLS: ssl_ca (a file; else the system's), ssl_cert and ssl_key, and ssl_verify:
 * full (the default: chain and name), ca (the chain), none.
 *
 * Threads: a target is only read once parsed; the functions of the map may be called from any
 * thread.
 */
#pragma once

#include <hiredis/hiredis.h>
#include <pthread.h>

#include "base/url.h"

#define REDIS_HOST_SIZE 256

/* One server. */
struct redis_address {
    char host[REDIS_HOST_SIZE]; /* begins with "/": a unix socket */
    int port;
};

enum redis_mode { REDIS_MODE_SINGLE, REDIS_MODE_SENTINEL, REDIS_MODE_CLUSTER };

struct redis_target {
    struct url url;
    enum redis_mode mode;
    struct redis_address seeds[URL_HOSTS_MAX];
    size_t seed_count;
    const char *user; /* NULL: none */
    char *password;   /* NULL: none */
    char *master;     /* of the sentinels; NULL otherwise */
    int database;
    int64_t timeout_ms;
    bool uses_tls;
    struct ssl_ctx_st *tls; /* NULL without TLS */
    bool verifies_name;
};

/* `password` wins over the URL's; NULL: none. INVALID: the URL or a file it names is wrong, and
 * there is nothing to release. */
enum status redis_target_init(struct redis_target *target, const char *url, const char *password,
                              int64_t timeout_ms, struct error *error) MUST_CHECK;
void redis_target_release(struct redis_target *target);

/* "host:port" or the socket's path, for people. */
struct error redis_address_text(const struct redis_address *address);
bool redis_address_equal(const struct redis_address *a, const struct redis_address *b);

/* --- the map: the only server, the sentinels' master, or the primary of a hash slot --- */

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

/* The server that has this policy, or this slot, as far as known. False: none is known yet. */
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
bool redis_map_read_redirect(const char *message, const struct redis_address *from,
                             struct redis_address *to);
