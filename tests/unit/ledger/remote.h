/* remote.h: a database of another process, scripted: it comes, goes, forgets, loses what it is told
 * or what it says, and is taken over. It has one writer's row, and a count of rows instead of
 * coupons.
 *
 * Threads: what a test changes, it changes under the lock.
 */
#pragma once

#include <pthread.h>
#include <stdio.h>

#include "ledger/writer.h"

/* What becomes of the next commit. */
enum fate {
    FATE_PLAIN,
    FATE_ANSWER_LOST,  /* committed, and nobody hears of it */
    FATE_REQUEST_LOST, /* not committed, and nobody hears of it */
};

struct remote {
    pthread_mutex_t lock;
    bool is_away;
    enum fate fate;
    bool is_away_after; /* the connection that loses the answer cannot be had again */
    bool is_another_owner;
    bool has_row;
    char name[40];
    int64_t mark;
    int row_count, commits;
    /* The open transaction. */
    bool moved;
    int64_t moved_to;
    int written;
    /* The writer and what it said. */
    struct writer writer;
    struct ledger_options options;
    struct ledger_stats stats;
    size_t issued_count;
    int writes;
};

#define LOCKED(remote, ...)                    \
    do {                                       \
        pthread_mutex_lock(&(remote)->lock);   \
        __VA_ARGS__;                           \
        pthread_mutex_unlock(&(remote)->lock); \
    } while (false)

static struct remote *remote_of(struct ledger_session *session)
{
    return (struct remote *)session;
}

static enum status remote_away(struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE, "nobody answers");
}

static enum status remote_begin(struct ledger_session *session, struct error *error)
{
    struct remote *remote = remote_of(session);

    pthread_mutex_lock(&remote->lock);
    remote->moved = false;
    remote->written = 0;
    enum status status = STATUS_OK;
    if (remote->is_another_owner)
        status = error_set(error, STATUS_CONFLICT, "process 77 owns it");
    else if (remote->is_away)
        status = remote_away(error);
    pthread_mutex_unlock(&remote->lock);
    return status;
}

static enum status remote_commit(struct ledger_session *session, struct error *error)
{
    struct remote *remote = remote_of(session);

    pthread_mutex_lock(&remote->lock);
    enum fate fate = remote->fate;
    bool is_away = remote->is_away;
    if (fate != FATE_REQUEST_LOST && !is_away) {
        if (remote->moved)
            remote->mark = remote->moved_to;
        remote->row_count += remote->written;
        remote->commits++;
    }
    if (fate != FATE_PLAIN)
        remote->is_away = remote->is_away_after;
    remote->fate = FATE_PLAIN;
    pthread_mutex_unlock(&remote->lock);
    if (is_away)
        return remote_away(error);
    return fate == FATE_PLAIN ? STATUS_OK : error_set(error, STATUS_UNKNOWN, "the line went dead");
}

static void remote_rollback(struct ledger_session *session)
{
    (void)session;
}

/* Savepoints are never rolled back to here. */
static enum status remote_savepoint(struct ledger_session *session, struct error *error)
{
    (void)session;
    (void)error;
    return STATUS_OK;
}

static enum status remote_savepoint_end(struct ledger_session *session, bool keep,
                                        struct error *error)
{
    ensure(keep);
    return remote_savepoint(session, error);
}

static bool remote_is_named(const struct remote *remote, const struct sql_value *name)
{
    return remote->has_row && span_equal(name->bytes, span_of(remote->name));
}

/* The statements of the mark; the lock is held. */
static enum status remote_run_mark(struct remote *remote, const struct sql_call *call,
                                   struct error *error)
{
    enum statement statement = call->statement;
    const struct sql_value *values = call->values;
    bool is_ours = remote_is_named(remote, &values[0]);

    if (statement == STATEMENT_writer_enter) {
        remote->mark = is_ours ? remote->mark + 1 : 1;
        remote->has_row = true;
        snprintf(remote->name, sizeof(remote->name), "%.*s", (int)values[0].bytes.length,
                 values[0].bytes.bytes);
    } else if (statement == STATEMENT_writer_leave) {
        remote->has_row = remote->has_row && !is_ours;
    } else if (statement == STATEMENT_writer_move) {
        remote->moved = is_ours && remote->mark == values[1].number;
        *call->changed = remote->moved;
        remote->moved_to = values[2].number;
    } else if (statement == STATEMENT_writer_read && is_ours) {
        return call->row(call->context, (struct sql_value[]){sql_i64(remote->mark), sql_null()},
                         error);
    }
    return STATUS_OK;
}

static enum status remote_run(struct ledger_session *session, const struct sql_call *call,
                              struct error *error)
{
    struct remote *remote = remote_of(session);
    enum status status = STATUS_OK;

    pthread_mutex_lock(&remote->lock);
    if (remote->is_away)
        status = remote_away(error);
    else if (call->statement == STATEMENT_lease_for_issue)
        status = call->row(call->context,
                           (struct sql_value[]){sql_i64(1), sql_i64(1), sql_i64(1000000),
                                                sql_i64(1), sql_null(), sql_null()},
                           error);
    else if (call->statement >= STATEMENT_writer_enter)
        status = remote_run_mark(remote, call, error);
    pthread_mutex_unlock(&remote->lock);
    return status;
}

static enum status remote_insert(struct ledger_session *session, struct coupon_row *rows,
                                 size_t count, struct error *error)
{
    (void)rows;
    (void)error;
    remote_of(session)->written += (int)count;
    return STATUS_OK;
}

static const struct ledger_driver remote_driver = {
    .name = "remote",
    .is_remote = true,
    .begin = remote_begin,
    .commit = remote_commit,
    .rollback = remote_rollback,
    .savepoint = remote_savepoint,
    .savepoint_end = remote_savepoint_end,
    .run = remote_run,
    .insert_coupons = remote_insert,
};
