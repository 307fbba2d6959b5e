/* gate_fixture.h: what the gate suite's tests stand on: a gate with one policy, the ledger's moves,
 * and people who claim.
 *
 * The moves are those of a steward that knows nothing of the backend: new stock is announced before
 * it is lent, a gate that is BUSY is asked again, and a policy is armed before anyone claims.
 *
 * Threads: a fixture belongs to the test's thread; other threads claim with hands of their own.
 */
#pragma once

#include "gate_hand.h"
#include "gate_suite.h"

#define POLICY     42
#define CLAIMS_MAX 20000
#define HOUR_MS    INT64_C(3600000)

struct fixture {
    struct gate *gate;
    struct gate_hand hand;
    struct policy policy; /* as the ledger has it */
    int64_t lease_id;     /* the last one */
    /* What was pending when it was last looked at. */
    struct claim claims[CLAIMS_MAX];
    size_t claim_count;
    struct key_binding bindings[BINDINGS_MAX];
    size_t binding_count;
    struct error error;
};

int gate_fixture_set_up(void **state);
int gate_fixture_tear_down(void **state);
#define GATE_TEST(function) \
    cmocka_unit_test_setup_teardown(function, gate_fixture_set_up, gate_fixture_tear_down)

/* --- the ledger's moves --- */

/* Brings the row to the gate, with a new version. */
void set_policy(struct fixture *fixture);

/* Announces and lends everything that is unleased. */
void lend_all(struct fixture *fixture);

/* Lends that; as long as it has to wait for it, it waits. */
enum status lend(struct fixture *fixture, int64_t lease_id, int64_t first_seq, int64_t count);

/* A policy with all of its stock in the gate, and armed. */
void create(struct fixture *fixture, int64_t total, int32_t per_user_limit);

/* Looks at what is pending: how many claims. */
size_t look_at_pending(struct fixture *fixture);

/* Writes everything that is pending. */
void acknowledge(struct fixture *fixture);
void acknowledge_as(struct fixture *fixture, enum coupon_state state);

/* A cancelled coupon: its slot is free and its unit is back in the ledger. */
void cancel(struct fixture *fixture, const char *user, int64_t seq);

/* --- people --- */

/* Each with a request id of its own, as the server makes it. */
struct wish wish_of(const char *user);
struct wish wish_with_key(const char *user, uint8_t key);

struct wish claim(struct fixture *fixture, const char *user);
struct wish claim_with_key(struct fixture *fixture, const char *user, uint8_t key);

/* --- numbers --- */

/* What the gate tells may be a moment old: waits until it says so. */
void await_numbers(struct fixture *fixture, int64_t remaining, int64_t pending, int64_t issued);
void await_state(struct fixture *fixture, enum policy_state state);
struct gate_numbers numbers_of(struct fixture *fixture);

#define assert_status(fixture, actual, expected)                                    \
    do {                                                                            \
        enum status actual_ = (actual);                                             \
        if (actual_ != (expected))                                                  \
            fail_msg("%s, not %s: %s", status_name(actual_), status_name(expected), \
                     (fixture)->error.text);                                        \
    } while (0)
#define assert_ok(fixture, actual) assert_status(fixture, actual, STATUS_OK)
