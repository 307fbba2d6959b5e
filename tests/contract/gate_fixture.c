/* gate_fixture.c: the ledger's moves and the people. */
#include "gate_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
/* cmocka.h needs the ones above it. */
#include <cmocka.h>

#include "base/clock.h"

#define AWAIT_MS 20000

int gate_fixture_set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->gate = gate_suite_open();
    gate_hand_open(&fixture->hand, fixture->gate);
    *state = fixture;
    return 0;
}

int gate_fixture_tear_down(void **state)
{
    struct fixture *fixture = *state;
    gate_hand_close(&fixture->hand);
    gate_suite_close(fixture->gate);
    free(fixture);
    return 0;
}

static void pause_a_moment(void)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    nanosleep(&moment, NULL);
}

/* --- the ledger's moves --- */

void set_policy(struct fixture *fixture)
{
    fixture->policy.version++;
    assert_ok(fixture, gate_policy_set(fixture->gate, &fixture->policy, &fixture->error));
}

enum status lend(struct fixture *fixture, int64_t lease_id, int64_t first_seq, int64_t count)
{
    struct lease lease = {.id = lease_id,
                          .policy_id = fixture->policy.id,
                          .first_seq = first_seq,
                          .count = count,
                          .open = true};
    int64_t until_ms = clock_monotonic_ms() + AWAIT_MS;
    enum status status;

    while ((status = gate_lend(fixture->gate, &lease, 0, 0, &fixture->error)) == STATUS_BUSY &&
           clock_monotonic_ms() < until_ms)
        pause_a_moment();
    return status;
}

void lend_all(struct fixture *fixture)
{
    struct policy *policy = &fixture->policy;

    set_policy(fixture);
    assert_ok(fixture, lend(fixture, ++fixture->lease_id, policy->next_seq, policy->unleased));
    policy->next_seq += policy->unleased;
    policy->unleased = 0;
    set_policy(fixture);
}

void create(struct fixture *fixture, int64_t total, int32_t per_user_limit)
{
    fixture->policy = (struct policy){.id = POLICY,
                                      .name = "contract",
                                      .discount_value = 10,
                                      .total = total,
                                      .per_user_limit = per_user_limit,
                                      .unleased = total,
                                      .next_seq = 1};
    lend_all(fixture);
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 0, &fixture->error));
}

size_t look_at_pending(struct fixture *fixture)
{
    fixture->claim_count = gate_suite_pending(fixture->gate, POLICY, fixture->claims, CLAIMS_MAX,
                                              fixture->bindings, &fixture->binding_count);
    return fixture->claim_count;
}

void acknowledge_as(struct fixture *fixture, enum coupon_state state)
{
    size_t count = look_at_pending(fixture);
    enum coupon_state *states = calloc(count + 1, sizeof(*states));

    for (size_t i = 0; i < count; i++)
        states[i] = state;
    gate_suite_acknowledge(fixture->gate, fixture->claims, states, count, fixture->bindings,
                           fixture->binding_count);
    free(states);
}

void acknowledge(struct fixture *fixture)
{
    acknowledge_as(fixture, COUPON_ISSUED);
}

void cancel(struct fixture *fixture, const char *user, int64_t seq)
{
    struct id id = id_of(span_of(user));

    assert_ok(fixture,
              gate_settle(fixture->gate, POLICY, &id, seq, COUPON_CANCELLED, &fixture->error));
    fixture->policy.unleased++;
    set_policy(fixture);
}

/* --- people --- */

struct wish wish_of(const char *user)
{
    static _Atomic uint32_t last_id;
    struct wish wish = {.policy_id = POLICY, .user = id_of(span_of(user))};
    uint32_t id = ++last_id;

    for (size_t i = 0; i < sizeof(id); i++)
        wish.request_id.bytes[4 + i] = (uint8_t)(id >> 8 * i);
    return wish;
}

struct wish wish_with_key(const char *user, uint8_t key)
{
    struct wish wish = {.policy_id = POLICY, .user = id_of(span_of(user))};
    uint8_t *bytes = wish.request_id.bytes;

    bytes[0] = 0x80;
    for (size_t i = 0; i < wish.user.length; i++) /* a key is its user's */
        bytes[1 + i % 14] = (uint8_t)(bytes[1 + i % 14] * 31 + (uint8_t)wish.user.bytes[i]);
    bytes[15] = key;
    return wish;
}

static struct wish claim_wish(struct fixture *fixture, struct wish wish)
{
    struct wish *wishes[] = {&wish};
    gate_hand_claim(&fixture->hand, POLICY, wishes, 1);
    return wish;
}

struct wish claim(struct fixture *fixture, const char *user)
{
    return claim_wish(fixture, wish_of(user));
}

struct wish claim_with_key(struct fixture *fixture, const char *user, uint8_t key)
{
    return claim_wish(fixture, wish_with_key(user, key));
}

/* --- numbers --- */

struct gate_numbers numbers_of(struct fixture *fixture)
{
    struct gate_numbers numbers;
    assert_int_equal(gate_count(fixture->gate, POLICY, gate_suite_now_ms(), &numbers), STATUS_OK);
    return numbers;
}

void await_numbers(struct fixture *fixture, int64_t remaining, int64_t pending, int64_t issued)
{
    int64_t until_ms = clock_monotonic_ms() + AWAIT_MS;
    struct gate_numbers numbers = numbers_of(fixture);

    while ((numbers.remaining != remaining || numbers.pending != pending ||
            numbers.issued != issued) &&
           clock_monotonic_ms() < until_ms) {
        pause_a_moment();
        numbers = numbers_of(fixture);
    }
    assert_int_equal(numbers.remaining, remaining);
    assert_int_equal(numbers.pending, pending);
    assert_int_equal(numbers.issued, issued);
    assert_int_equal(numbers.total, remaining + pending + issued);
}

void await_state(struct fixture *fixture, enum policy_state state)
{
    int64_t until_ms = clock_monotonic_ms() + AWAIT_MS;

    while (numbers_of(fixture).state != state && clock_monotonic_ms() < until_ms)
        pause_a_moment();
    assert_string_equal(policy_state_name(numbers_of(fixture).state), policy_state_name(state));
}
