/* link.h: one connection to a PostgreSQL server that never makes its thread wait for ever.
 *
 * Statements that belong together are sent together, and every answer is awaited until a deadline.
 * Whoever gets no answer in time, or loses the connection, closes it: an answer that comes late can
 * never be taken for that of another statement.
 *
 * Threads: one owner at a time.
 */
#pragma once

#include "ledger/postgres/values.h"

struct postgres_link {
    PGconn *connection; /* NULL: there is none */
    bool timed_out;     /* the last one was given up because no answer came */
};

struct postgres_target {
    const char *url;
    const char *password; /* NULL: as the URL, the environment or libpq's files say */
    int64_t timeout_ms;   /* for each host, in whole seconds, at least two */
    bool is_first;        /* the first of its session: what is refused for good is FAILED */
};

/* INVALID when libpq does not take the URL; the words show nothing that could be a password. */
enum status postgres_target_check(const char *url, struct error *error) MUST_CHECK;

/* Connects to the first host that lets us. UNAVAILABLE with the server's words. FAILED: a wrong
 * password, a missing right or database, a certificate; asked for by `is_first` only. */
enum status postgres_link_open(struct postgres_link *link, const struct postgres_target *target,
                               struct error *error) MUST_CHECK;
void postgres_link_close(struct postgres_link *link);

/* Something to send: a statement to run, to prepare under a name, or to run by its name. */
struct postgres_step {
    enum { STEP_RUN, STEP_PREPARE, STEP_RUN_PREPARED } kind;
    const char *name;                             /* of STEP_PREPARE and STEP_RUN_PREPARED */
    const char *text;                             /* of STEP_RUN and STEP_PREPARE */
    const struct postgres_parameters *parameters; /* NULL: none */
};

/* What the last of several steps is answered with. */
struct postgres_answer {
    /* in */
    sql_row_fn row; /* NULL: the rows are of no interest */
    void *context;
    bool streams; /* row() is called while rows still come, and the deadline is for each */
    /* out */
    size_t row_count;    /* that row() was called for */
    int64_t changed;     /* rows affected */
    char command[16];    /* what was done: "COMMIT", "INSERT" ... */
    size_t failed_at;    /* the step that failed; those behind it were not done */
    char error_state[6]; /* the SQLSTATE of an error answer, or "" */
};

/* Sends the steps together and reads all their answers, each within `timeout_ms`. Statuses as
 * driver.h has them, by the class of the server's error; what row() says ends it too. The
 * connection is closed when it is lost, timed out, or better replaced (the server is shutting down
 * or has become a replica). */
enum status postgres_link_ask(struct postgres_link *link, const struct postgres_step *steps,
                              size_t count, int64_t timeout_ms, struct postgres_answer *answer,
                              struct error *error) MUST_CHECK;

/* Runs a text of several statements without arguments. Statuses as above. */
enum status postgres_link_script(struct postgres_link *link, const char *text, int64_t timeout_ms,
                                 struct error *error) MUST_CHECK;
