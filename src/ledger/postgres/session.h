/* session.h: a session of the ledger on PostgreSQL: one connection that is set up,
 * checked, prepared, and made again when it is lost.
 *
 * BEGIN and the savepoints wait and are sent together with the next statement. COMMIT is sent
 * alone, after everything before it was answered, so that what was cut off before is never
 * committed.
 *
 * Threads: one owner at a time; the store is shared and read only.
 */
#pragma once

#include <stdatomic.h>

#include "ledger/postgres/link.h"

struct ledger_store {
    char *url;
    char *password; /* NULL: none of ours */
    enum ledger_use use;
    int64_t timeout_ms;
    bool reads_only;
    void (*on_lost)(void *context); /* see struct store_options */
    void *context;
    atomic_flag has_warned; /* of a server that may lose commits */
};

/* Which connection it is, to the server. */
struct postgres_backend {
    int64_t pid;
    char start[48];
};

#define POSTGRES_WAITING_MAX 8

struct ledger_session {
    struct ledger_store *store;
    enum session_kind kind;
    struct postgres_link link;
    struct postgres_backend backend;
    bool is_prepared[STATEMENT_COUNT]; /* on this connection */
    bool may_own;                      /* `backend` has asked for the ownership, and may have it */
    bool has_schema_lock;
    bool in_transaction;
    bool has_begun; /* something of the transaction has reached the server */
    const char *waiting[POSTGRES_WAITING_MAX]; /* not sent yet: BEGIN, savepoints */
    size_t waiting_count;
    struct postgres_parameters parameters;
};

/* Connects, sets the connection up and takes the ownership if it should have it. CONFLICT: another
 * process owns the ledger. FAILED: the server is too old, or refuses us for good. UNAVAILABLE:
 * anything else. */
enum status postgres_session_connect(struct ledger_session *session,
                                     struct error *error) MUST_CHECK;

/* The same after a connection was lost. Never FAILED. */
enum status postgres_session_reconnect(struct ledger_session *session,
                                       struct error *error) MUST_CHECK;

/* Runs a statement with session->parameters, and in front of it what waits. A connection that turns
 * out to be lost before anything of a transaction was done is made again, once. */
enum status postgres_session_run(struct ledger_session *session, enum statement statement,
                                 struct postgres_answer *answer, struct error *error) MUST_CHECK;

/* Puts a text that needs no arguments in front of the next statement. */
enum status postgres_session_wait(struct ledger_session *session, const char *text,
                                  struct error *error) MUST_CHECK;

/* Sends what waits, if anything does. */
enum status postgres_session_flush(struct ledger_session *session, struct error *error) MUST_CHECK;

/* How long an answer is awaited: the server gives up a little earlier and says so. */
int64_t postgres_session_timeout_ms(const struct ledger_session *session);
