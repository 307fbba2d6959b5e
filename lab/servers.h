/* servers.h: the lab's own Redis and PostgreSQL on loopback, and other processes of a run.
 *
 * Everything lives in one temporary folder that goes with them. PostgreSQL does not run as root: it
 * gets the user `postgres` then.
 *
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct lab_servers {
    char folder[64];
    char redis_address[32];
    char postgres[160]; /* a libpq connection string without dbname */
    char database[200]; /* the same with that of the run */
    pid_t redis_pid;
    pid_t postgres_pid;
    int redis_port;
    int run_count;
};

enum status lab_servers_start(struct lab_servers *servers, struct error *error) MUST_CHECK;
void lab_servers_stop(struct lab_servers *servers);

/* An empty Redis and an empty database, with the lab's tables if they are wanted. */
enum status lab_servers_renew(struct lab_servers *servers, bool with_tables,
                              struct error *error) MUST_CHECK;

/* kill -9, and a start with what is on its disk. */
enum status lab_redis_crash(struct lab_servers *servers, struct error *error) MUST_CHECK;

/* Starts a program in the folder; its output goes to NAME.log there. `output`, if it is not NULL,
 * gets the reading end of its stdout instead. */
pid_t lab_spawn(const char *folder, const char *name, const char *const *arguments, int *output);

/* SIGTERM, then SIGKILL after two seconds; 0 is nobody. */
void lab_end(pid_t *pid);

/* CPU seconds of a process and its children so far. */
double lab_cpu_seconds(pid_t pid);

int lab_free_port(void);
