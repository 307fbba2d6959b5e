/* redis_target.h: which Redis a URL names, and how it is reached:
 *
 *     redis://user:password@host:6379/0           one server; rediss:// with TLS
 *     redis:///0?socket=/run/redis.sock           a unix socket
 *     redis+sentinel://host,host/master/0         whoever the sentinels call the master
 *     redis+cluster://host,host                   a cluster, from any of its nodes
 *
 * Parameters for TLS: ssl_ca (a file; else the system's), ssl_cert and ssl_key, and ssl_verify:
 * full (the default: chain and name), ca (the chain), none.
 *
 * Threads: only read once parsed.
 */
#ifndef GATE_REDIS_TARGET_H
#define GATE_REDIS_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
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
struct error redis_address_words(const struct redis_address *address);
bool redis_address_equal(const struct redis_address *a, const struct redis_address *b);

#endif
