/* session.h: a thread's connections to Redis and PostgreSQL, and the few calls that strategies
 * make.
 *
 * A call that fails drops its connection, sets `failed` and answers as if there was nothing; the
 * claim is then told LAB_FAILED. The next claim connects again.
 *
 * Threads: a session belongs to one thread.
 */
#pragma once

#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "lab/strategy.h"

#define LAB_ID_SIZE 64 /* a user's name with its NUL */

struct lab_session {
    const struct lab_knobs *knobs;
    const char *redis_address; /* "127.0.0.1:6379"; NULL: not needed */
    const char *database;      /* a libpq connection string */
    const char *kafka_address; /* "" where there is none */
    int kill_at;               /* the number of the step at which this process dies; 0: never */
    int policy;                /* which one is asked for, from 1 */
    struct redisContext *redis;
    PGconn *db;
    bool failed;
    char sqlstate[6]; /* of the last statement; "" when it worked */
};

/* Connects what is not connected, and forgets the last failure. */
void lab_session_begin(struct lab_session *session);
void lab_session_close(struct lab_session *session);

/* A place between two commands, which may take a while. The one whose turn it is does not come
 * back. */
void lab_step(struct lab_session *session);

/* Where the processes of a run count together: a file that is mapped by all of them. */
bool lab_tallies_open(const char *path);
void lab_tally(enum lab_tally tally);
int64_t lab_tally_read(enum lab_tally tally);

/* The time by which this process goes, which may be wrong. */
int64_t lab_now_ms(const struct lab_session *session);

/* Sends a command, as redisCommand() has it. The integer of its reply: 1 for OK and for a text, 0
 * for nil and for a failure, the count for a list. */
int64_t lab_redis(struct lab_session *session, const char *format, ...);

/* The text of the reply, cut if need be; false: nil or a failure. */
bool lab_redis_text(struct lab_session *session, char *text, size_t size, const char *format, ...);

/* The texts of a reply that is a list. */
size_t lab_redis_list(struct lab_session *session, char (*texts)[LAB_ID_SIZE], size_t count_max,
                      const char *format, ...);

/* Runs a statement with `count` texts as $1, $2, …: how many rows it changed, or the number in the
 * first column of its first row; -1: none, or it failed (`sqlstate` says with what). */
int64_t lab_sql(struct lab_session *session, const char *statement, int count, ...);
bool lab_sql_is_duplicate(const struct lab_session *session);

/* Writes a coupon's row. False: the database refused it. */
bool lab_insert(struct lab_session *session, const char *user);
bool lab_has_row(struct lab_session *session, const char *user);
int64_t lab_row_count(struct lab_session *session);

/* lab_sql() with the policy's id as $1. */
int64_t lab_stock(struct lab_session *session, const char *statement);
