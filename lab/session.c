/* session.c: blocking calls to Redis and PostgreSQL, one connection of each for a thread. */
#include "lab/session.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"

static atomic_int steps;          /* of this process */
static _Atomic(int64_t) *tallies; /* of the run */

/* The splitmix64 of seed and step: the same pauses whenever the seed is the same. */
static uint64_t lab_scatter(uint64_t seed, uint64_t step)
{
    uint64_t bits = (seed + step + 1) * 0x9e3779b97f4a7c15ULL;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ULL;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebULL;
    return bits ^ bits >> 31;
}

void lab_step(struct lab_session *session)
{
    const struct lab_knobs *knobs = session->knobs;
    int step = atomic_fetch_add(&steps, 1) + 1;
    if (session->kill_at != 0 && step == session->kill_at)
        raise(SIGKILL);
    if (knobs->pause_ms > 0)
        usleep((useconds_t)(lab_scatter(knobs->seed, (uint64_t)step) %
                            ((uint64_t)knobs->pause_ms * 1000)));
}

bool lab_tallies_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    void *shared =
        ftruncate(fd, LAB_TALLIES * sizeof(*tallies)) == 0
            ? mmap(NULL, LAB_TALLIES * sizeof(*tallies), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
            : MAP_FAILED;
    close(fd);
    if (tallies != NULL)
        munmap(tallies, LAB_TALLIES * sizeof(*tallies));
    tallies = shared != MAP_FAILED ? shared : NULL;
    return tallies != NULL;
}

void lab_tally(enum lab_tally tally)
{
    if (tallies != NULL)
        atomic_fetch_add(&tallies[tally], 1);
}

int64_t lab_tally_read(enum lab_tally tally)
{
    return tallies != NULL ? atomic_load(&tallies[tally]) : 0;
}

int64_t lab_now_ms(const struct lab_session *session)
{
    return clock_wall_ms() + session->knobs->clock_off_ms;
}

static void lab_session_drop_redis(struct lab_session *session)
{
    if (session->redis != NULL)
        redisFree(session->redis);
    session->redis = NULL;
}

static void lab_session_connect_redis(struct lab_session *session)
{
    char host[64];
    const char *colon = strrchr(session->redis_address, ':');
    snprintf(host, sizeof(host), "%.*s", (int)(colon - session->redis_address),
             session->redis_address);
    const struct timeval patience = {.tv_sec = 10};
    session->redis = redisConnectWithTimeout(host, atoi(colon + 1), patience);
    if (session->redis != NULL && session->redis->err == 0)
        (void)redisSetTimeout(session->redis, patience);
    else
        lab_session_drop_redis(session);
}

void lab_session_begin(struct lab_session *session)
{
    session->failed = false;
    session->sqlstate[0] = '\0';
    if (session->redis == NULL && session->redis_address != NULL)
        lab_session_connect_redis(session);
    if (session->db != NULL && PQstatus(session->db) != CONNECTION_OK) {
        PQfinish(session->db);
        session->db = NULL;
    }
    if (session->db == NULL)
        session->db = PQconnectdb(session->database);
    if ((session->redis == NULL && session->redis_address != NULL) ||
        PQstatus(session->db) != CONNECTION_OK)
        session->failed = true;
}

void lab_session_close(struct lab_session *session)
{
    lab_session_drop_redis(session);
    if (session->db != NULL)
        PQfinish(session->db);
    session->db = NULL;
}

/* NULL: it failed; an error of Redis's own counts as one. */
static redisReply *lab_redis_ask(struct lab_session *session, const char *format, va_list arguments)
{
    if (session->failed || session->redis == NULL) {
        session->failed = true;
        return NULL;
    }
    redisReply *reply = redisvCommand(session->redis, format, arguments);
    if (reply != NULL && reply->type != REDIS_REPLY_ERROR)
        return reply;
    session->failed = true;
    if (reply == NULL)
        lab_session_drop_redis(session);
    freeReplyObject(reply);
    return NULL;
}

int64_t lab_redis(struct lab_session *session, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = lab_redis_ask(session, format, arguments);
    va_end(arguments);
    int64_t number = 0;
    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER)
        number = reply->integer;
    else if (reply != NULL && reply->type == REDIS_REPLY_ARRAY)
        number = (int64_t)reply->elements;
    else if (reply != NULL && reply->type != REDIS_REPLY_NIL)
        number = 1;
    freeReplyObject(reply);
    return number;
}

bool lab_redis_text(struct lab_session *session, char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = lab_redis_ask(session, format, arguments);
    va_end(arguments);
    bool is_text = reply != NULL && reply->type == REDIS_REPLY_STRING;
    if (is_text)
        snprintf(text, size, "%s", reply->str);
    freeReplyObject(reply);
    return is_text;
}

size_t lab_redis_list(struct lab_session *session, char (*texts)[LAB_ID_SIZE], size_t count_max,
                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = lab_redis_ask(session, format, arguments);
    va_end(arguments);
    size_t count = 0;
    for (size_t i = 0; reply != NULL && i < reply->elements && count < count_max; i++)
        if (reply->element[i]->type == REDIS_REPLY_STRING)
            snprintf(texts[count++], LAB_ID_SIZE, "%s", reply->element[i]->str);
    freeReplyObject(reply);
    return count;
}

int64_t lab_sql(struct lab_session *session, const char *statement, int count, ...)
{
    const char *values[4] = {NULL};
    va_list arguments;
    va_start(arguments, count);
    for (int i = 0; i < count && i < 4; i++)
        values[i] = va_arg(arguments, const char *);
    va_end(arguments);
    if (session->failed)
        return -1;

    PGresult *result = PQexecParams(session->db, statement, count, NULL, values, NULL, NULL, 0);
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    int64_t number = -1;
    snprintf(session->sqlstate, sizeof(session->sqlstate), "%s", sqlstate == NULL ? "" : sqlstate);
    if (PQresultStatus(result) == PGRES_COMMAND_OK)
        number = atoll(PQcmdTuples(result));
    else if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0)
        number = atoll(PQgetvalue(result, 0, 0));
    else if (PQresultStatus(result) != PGRES_TUPLES_OK && sqlstate == NULL)
        session->failed = true;
    PQclear(result);
    return number;
}

bool lab_sql_is_duplicate(const struct lab_session *session)
{
    return strcmp(session->sqlstate, "23505") == 0;
}

static const char *lab_policy_text(const struct lab_session *session, char text[16])
{
    snprintf(text, 16, "%d", session->policy);
    return text;
}

bool lab_insert(struct lab_session *session, const char *user)
{
    char policy[16];
    return lab_sql(session, "INSERT INTO coupon (policy_id, user_id) VALUES ($1, $2)", 2,
                   lab_policy_text(session, policy), user) == 1;
}

bool lab_has_row(struct lab_session *session, const char *user)
{
    char policy[16];
    return lab_sql(session, "SELECT count(*) FROM coupon WHERE policy_id = $1 AND user_id = $2", 2,
                   lab_policy_text(session, policy), user) > 0;
}

int64_t lab_row_count(struct lab_session *session)
{
    char policy[16];
    return lab_sql(session, "SELECT count(*) FROM coupon WHERE policy_id = $1", 1,
                   lab_policy_text(session, policy));
}

int64_t lab_stock(struct lab_session *session, const char *statement)
{
    char policy[16];
    return lab_sql(session, statement, 1, lab_policy_text(session, policy));
}
