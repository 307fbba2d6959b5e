/* ledger_fixture.h: a ledger on a database of its own, and the moves that the suite's tests make.
 *
 * Threads: a fixture's moves may be called from any; what it remembers of claims is in the order in
 * which the ledger told it.
 */
#pragma once

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "ledger_suite.h"

#define NOW        INT64_C(1763200000000)
#define CLAIMS_MAX 4096

struct fixture {
    const char *url;
    struct ledger *ledger;
    enum ledger_use use;
    bool has_events;
    bool has_webhook;
    void (*on_events)(void *context);
    ledger_trace_fn find_trace;
    atomic_int told_count; /* how often there were events */
    struct error error;
    pthread_mutex_t lock;
    pthread_cond_t durable;
    /* What the ledger said of the claims, in its order. */
    struct claim claims[CLAIMS_MAX];
    enum coupon_state states[CLAIMS_MAX];
    size_t issued_count;
    struct ledger_suite_session *session;     /* the test's own */
    struct ledger_suite_session *sessions[4]; /* others of its, which end with it */
    size_t session_count;
};

/* Fails the test with the ledger's words. */
void check(struct fixture *fixture, enum status status);

/* One that is not open yet. */
struct fixture *fixture_new(const char *url, enum ledger_use use);
void fixture_free(struct fixture *fixture);
struct ledger_options options_of(struct fixture *fixture);
void open_ledger(struct fixture *fixture);
void reopen(struct fixture *fixture);

/* A database, a ledger that owns it, or shares it, and a session of the test's own. */
int set_up(void **state);
int set_up_shared(void **state);
int tear_down(void **state);

/* --- moves --- */

void wait_for(struct fixture *fixture, uint64_t ticket);

/* A policy with that total, all of it lent but the reserve, and a limit of 5 per user. */
struct policy create(struct fixture *fixture, int64_t total, struct lease *lease);
struct policy create_with(struct fixture *fixture, int64_t total, int64_t reserve,
                          int32_t per_user_limit, struct lease *lease);

struct claim claim_of(const struct lease *lease, int64_t seq, const char *user, int32_t nth);

/* Issues and returns what became of the last claim. */
enum coupon_state issue(struct fixture *fixture, const struct claim *claims, size_t count);
enum coupon_state issue_one(struct fixture *fixture, const struct lease *lease, int64_t seq,
                            const char *user, int32_t nth);

struct coupon coupon_of(struct fixture *fixture, int64_t policy_id, int64_t seq);

/* The policy, whose stock has to be conserved. */
struct policy policy_of(struct fixture *fixture, int64_t id);
enum status change(struct fixture *fixture, int64_t id, struct policy_change what,
                   const struct lease_shrunk *shrunk, size_t shrunk_count);

/* --- from beside --- */

/* One more session of the test's own, until the test ends. */
struct ledger_suite_session *another_session(struct fixture *fixture);

/* The number that a statement of the test's own answers. */
int64_t ask(struct ledger_suite_session *session, const char *format, ...) PRINTF_LIKE(2, 3);

/* The conservation of stock in one snapshot, computed by the database itself from the tables:
 * unleased + Σ open leases (count − rows) + active − total, which has to be 0. */
int64_t imbalance_of(struct ledger_suite_session *session, int64_t policy_id);
