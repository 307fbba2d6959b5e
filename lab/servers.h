/* servers.h: the Redis and the PostgreSQL of a run, and its other processes.
 *
 * The lab starts its own on loopback, in a temporary folder that goes with them; PostgreSQL does
 * not run as root: it gets the user `postgres` then. Somebody else's can be named instead: a Redis
 * that is empty, which the lab empties again, and a PostgreSQL in which it makes a database for
 * each run and drops it. Those are never killed, and what PostgreSQL costs there is not seen.
 *
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct lab_postgres {
    char host[64];
    int port;
    char user[64];
    char password[64]; /* "": none */
};

struct lab_servers {
    char folder[64];
    const char *program;    /* of the lab: what stands beside it is found by it */
    char redis_address[64]; /* "127.0.0.1:6379" */
    struct lab_postgres postgres;
    char name[32];      /* of the run's database */
    char database[400]; /* how to reach it, for libpq: at once */
    char claims[400];   /* the same for the designs, through the proxy if there is one */
    int claims_port;
    bool has_own_redis;
    pid_t redis_pid;
    pid_t postgres_pid; /* 0: somebody else's */
    pid_t proxy_pid;
    int run_count;
};

/* What a run's servers are like. */
struct lab_climate {
    bool has_tables;   /* the lab's; dibs makes its own */
    bool syncs_always; /* appendfsync always; else everysec */
    bool is_going_to_crash;
    int latency_ms; /* of the database */
};

/* NULL: one of the lab's own. `redis` is "host:port", `postgres` what libpq takes. */
enum status lab_servers_start(struct lab_servers *servers, const char *redis, const char *postgres,
                              struct error *error) MUST_CHECK;
void lab_servers_stop(struct lab_servers *servers, bool keeps_logs);

/* In a handler of a signal: ends the lab's own servers and removes their folder. */
void lab_servers_abandon(const struct lab_servers *servers);

/* An empty Redis and an empty database. */
enum status lab_servers_renew(struct lab_servers *servers, const struct lab_climate *climate,
                              struct error *error) MUST_CHECK;

/* Waits until Redis syncs its file, which takes for ever when it is going to crash: what it answers
 * from now on, up to two seconds of it, is not written. Only for everysec. */
enum status lab_redis_await_sync(struct lab_servers *servers, struct error *error) MUST_CHECK;

/* kill -9, and a start with what was written. */
enum status lab_redis_crash(struct lab_servers *servers, bool syncs_always,
                            struct error *error) MUST_CHECK;

/* A number out of Redis's INFO; 0 when there is none. */
double lab_redis_info(const struct lab_servers *servers, const char *name);

/* Runs a statement in the run's database. */
enum status lab_database_run(const struct lab_servers *servers, const char *statement,
                             struct error *error) MUST_CHECK;

/* Starts a program in the folder; its output goes to NAME.log there. `environment`, if it is not
 * NULL, is added to its own: "NAME=value …", with spaces between some. */
pid_t lab_spawn(const char *folder, const char *name, const char *const *arguments,
                const char *environment);

/* SIGTERM, then SIGKILL after two seconds; 0 is nobody. */
void lab_end(pid_t *pid);

/* CPU seconds of a process and its children so far. */
double lab_cpu_seconds(pid_t pid);

int lab_free_port(void);
bool lab_is_open(int port);
