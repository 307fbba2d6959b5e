/* session.h: a session of the MySQL driver: its connection as the ledger needs it, strict,
 * with limits on every wait, on a server that will do, and, for a writer, with its locks.
 *
 * A writer holds two locks of the server (GET_LOCK) while it is connected: one of its own, by which
 * a new connection recognises the old one, ends it and waits until it is gone, with whatever it was
 * doing decided; and with LEDGER_OWN the owner's, which keeps other processes out. They end with
 * the connection. One that the server has not noticed to be dead keeps them, until the server does.
 *
 * Threads: one at a time.
 */
#pragma once

#include "ledger/mysql/link.h"

struct ledger_store {
    struct ledger_mysql_target target;
    enum ledger_use use;
    void (*on_lost)(void *context); /* see struct store_options */
    void *context;
};

#define LEDGER_MYSQL_LOCK_SIZE 65

struct ledger_session {
    struct ledger_store *store;
    enum session_kind kind;
    struct ledger_mysql_link link;
    struct ledger_mysql_batch *batch;      /* of a writer */
    char own_lock[LEDGER_MYSQL_LOCK_SIZE]; /* of a writer: the name of its own lock */
    bool in_transaction;
    enum status over; /* of a transaction that can only be rolled back; OK: it goes on */
    struct ledger_session *schema; /* while the schema is locked: who changes it */
};

/* ORDINARY connections give up on an answer after the timeout; LONG ones are for work that takes as
 * long as there is data. */
enum ledger_mysql_pace { LEDGER_MYSQL_ORDINARY, LEDGER_MYSQL_LONG };

/* Connects, for the first time or after the connection was lost, and sets everything up.
 * UNAVAILABLE; FAILED when the server will not do; CONFLICT when another process owns the ledger.
 */
enum status ledger_mysql_session_connect(struct ledger_session *session,
                                         enum ledger_mysql_pace pace,
                                         struct error *error) MUST_CHECK;

/* The lock under which the schema is changed, which ends with the session. UNAVAILABLE: someone
 * else has it; the words say who. */
enum status ledger_mysql_schema_lock_take(struct ledger_session *session,
                                          struct error *error) MUST_CHECK;

/* --- batches ---
 *
 * Coupons written many at a time, in multi-row INSERTs.
 *
 * A batch is cut into runs whose lengths are powers of two, so that ten prepared statements serve
 * every size. MySQL undoes a statement that meets a duplicate as a whole, does not say which row it
 * was, and keeps locks on the gaps beside it, in which others that write at the same time wait for
 * each other. So after a duplicate the rows in the way are looked for, without locks, and flagged;
 * and for a while rows are looked for before they are written.
 */

struct ledger_mysql_batch;

struct ledger_mysql_batch *ledger_mysql_batch_new(void);
void ledger_mysql_batch_free(struct ledger_mysql_batch *batch);

/* Forgets the statements, whose connection is closed. */
void ledger_mysql_batch_reset(struct ledger_mysql_batch *batch);

/* As insert_coupons() of driver.h; never CONFLICT. */
enum status ledger_mysql_batch_insert(struct ledger_mysql_batch *batch,
                                      struct ledger_mysql_link *link, struct coupon_row *rows,
                                      size_t count, struct error *error) MUST_CHECK;
