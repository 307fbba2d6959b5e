/* test_model.c: thousands of random operations on a whole service, against a model in plain C.
 *
 * DIBS_MODEL_SEED repeats a run; DIBS_MODEL_STEPS makes it longer. */
#include "shop.h"

#include "gate/gate.h"

#define POLICIES     3
#define USERS        12
#define KEYS         24
#define CLAIMS_MAX   60000
#define STEPS        4000
#define BATCH_MAX    24
#define TOTAL_MAX    40
#define CLAIMS_SHOWN 64

/* One coupon, as the model has it. */
struct model_claim {
    int user;
    int64_t seq;
    int nth;
    enum coupon_state state;
};

struct model_policy {
    int64_t id;
    int64_t total;
    int limit;
    bool paused;
    bool closed;
    int64_t seq_top;
    int claims[CLAIMS_MAX / POLICIES]; /* indexes, in seq order */
    int claim_count;
    int key_claim[USERS][KEYS + 1]; /* the claim a user's key leads to, +1 */
};

struct model {
    struct model_policy policies[POLICIES];
    struct model_claim claims[CLAIMS_MAX];
    int claim_count;
    bool blocked[USERS];
    uint64_t random;
    int step;
};

static struct model model;

/* xorshift64*: the run is a function of the seed alone. */
static unsigned draw(unsigned below)
{
    model.random ^= model.random >> 12;
    model.random ^= model.random << 25;
    model.random ^= model.random >> 27;
    return (unsigned)((model.random * UINT64_C(2685821657736338717) >> 33) % below);
}

static const char *user_name(int user)
{
    static char names[USERS][16];
    snprintf(names[user], sizeof(names[user]), "user-%d", user);
    return names[user];
}

static bool is_active(const struct model_claim *claim)
{
    return claim->state == COUPON_ISSUED || claim->state == COUPON_REDEEMED;
}

static int64_t model_active(const struct model_policy *policy)
{
    int64_t count = 0;
    for (int i = 0; i < policy->claim_count; i++)
        count += is_active(&model.claims[policy->claims[i]]);
    return count;
}

/* The user's active claims: how many, and the newest. */
static int model_held(const struct model_policy *policy, int user, struct model_claim **newest)
{
    int count = 0;
    for (int i = 0; i < policy->claim_count; i++) {
        struct model_claim *claim = &model.claims[policy->claims[i]];
        if (claim->user == user && is_active(claim)) {
            count++;
            *newest = claim;
        }
    }
    return count;
}

static int model_free_nth(const struct model_policy *policy, int user)
{
    for (int nth = 1;; nth++) {
        bool taken = false;
        for (int i = 0; i < policy->claim_count; i++) {
            const struct model_claim *claim = &model.claims[policy->claims[i]];
            taken |= claim->user == user && is_active(claim) && claim->nth == nth;
        }
        if (!taken)
            return nth;
    }
}

/* --- claims --- */

struct expected {
    enum verdict verdict;
    struct model_claim *claim; /* of WON and HELD */
};

/* The contract's order of verdicts, told as simply as it can be. */
static struct expected model_decide(struct model_policy *policy, int user, int key)
{
    struct model_claim *newest = NULL;
    int held = model_held(policy, user, &newest);

    if (key != 0 && policy->key_claim[user][key] != 0)
        return (struct expected){VERDICT_HELD, &model.claims[policy->key_claim[user][key] - 1]};
    if (policy->limit == 1 && held == 1) {
        if (key != 0)
            policy->key_claim[user][key] = (int)(newest - model.claims) + 1;
        return (struct expected){VERDICT_HELD, newest};
    }
    if (model.blocked[user])
        return (struct expected){VERDICT_BLOCKED, NULL};
    if (policy->closed)
        return (struct expected){VERDICT_CLOSED, NULL};
    if (policy->paused)
        return (struct expected){VERDICT_PAUSED, NULL};
    if (held >= policy->limit)
        return (struct expected){VERDICT_LIMIT_REACHED, NULL};
    if (model_active(policy) >= policy->total)
        return (struct expected){VERDICT_SOLD_OUT, NULL};
    assert_true(model.claim_count < CLAIMS_MAX);
    struct model_claim *claim = &model.claims[model.claim_count];
    *claim = (struct model_claim){.user = user, .nth = model_free_nth(policy, user)};
    policy->claims[policy->claim_count++] = model.claim_count++;
    if (key != 0)
        policy->key_claim[user][key] = model.claim_count;
    return (struct expected){VERDICT_WON, claim};
}

static void check_answer(struct model_policy *policy, const struct expected *expected,
                         const struct shop_answer *answer)
{
    const struct wish *wish = &answer->wish;

    assert_int_equal(answer->count, 1);
    if (wish->verdict != expected->verdict)
        fail_msg("step %d: verdict %d, the model says %d", model.step, (int)wish->verdict,
                 (int)expected->verdict);
    if (expected->verdict == VERDICT_WON) {
        if (wish->seq <= policy->seq_top)
            fail_msg("step %d: seq %lld after %lld", model.step, (long long)wish->seq,
                     (long long)policy->seq_top);
        policy->seq_top = wish->seq;
        expected->claim->seq = wish->seq;
    }
    if (expected->verdict == VERDICT_WON || expected->verdict == VERDICT_HELD) {
        assert_int_equal(wish->seq, expected->claim->seq);
        assert_int_equal(wish->nth, expected->claim->nth);
        assert_int_equal(wish->coupon_state, expected->claim->state);
    }
}

/* Up to BATCH_MAX wishes in one tick. They are decided in their order; only those that wait for a
 * lease come after the tick's others, so a batch that might need one is sent one by one. */
static void step_claims(struct shop *shop)
{
    static struct shop_answer answers[BATCH_MAX];
    struct expected expected[BATCH_MAX];
    struct model_policy *policies[BATCH_MAX];
    unsigned count = 1 + (draw(3) == 0 ? draw(BATCH_MAX - 1) : 0);

    for (unsigned i = 0; i < count; i++) {
        int user = (int)draw(USERS);
        int key = draw(3) == 0 ? 1 + (int)draw(KEYS) : 0;
        policies[i] = &model.policies[draw(POLICIES)];
        bool may_park = shop_show(shop, policies[i]->id).policy.unleased > 0;
        if (may_park)
            shop_settle(shop);
        shop_submit(shop, policies[i]->id, user_name(user), (uint8_t)key, &answers[i]);
        expected[i] = model_decide(policies[i], user, key);
        if (may_park)
            shop_settle(shop);
    }
    shop_settle(shop);
    for (unsigned i = 0; i < count; i++)
        check_answer(policies[i], &expected[i], &answers[i]);
}

/* --- the other operations --- */

static struct model_claim *pick_claim(struct model_policy *policy)
{
    if (policy->claim_count == 0)
        return NULL;
    return &model.claims[policy->claims[draw((unsigned)policy->claim_count)]];
}

static void step_cancel(struct shop *shop, struct model_policy *policy)
{
    struct model_claim *claim = pick_claim(policy);
    if (claim == NULL)
        return;
    enum status expected = claim->state == COUPON_REDEEMED ? STATUS_CONFLICT : STATUS_OK;
    assert_int_equal(shop_cancel(shop, policy->id, claim->seq), expected);
    if (expected == STATUS_OK)
        claim->state = COUPON_CANCELLED;
}

static void step_redeem(struct shop *shop, struct model_policy *policy)
{
    struct model_claim *claim = pick_claim(policy);
    struct id none = {0};
    struct coupon coupon;
    if (claim == NULL)
        return;
    enum status expected = claim->state == COUPON_CANCELLED ? STATUS_CONFLICT : STATUS_OK;
    assert_int_equal(service_coupon_redeem(shop->service, policy->id, claim->seq, &none, NULL,
                                           &coupon, &shop->error),
                     expected);
    if (expected == STATUS_OK)
        claim->state = COUPON_REDEEMED;
}

static void step_total(struct shop *shop, struct model_policy *policy)
{
    int64_t total = 1 + draw(TOTAL_MAX);
    enum status expected =
        policy->closed || total < model_active(policy) ? STATUS_CONFLICT : STATUS_OK;
    if (shop_set_total(shop, policy->id, total) != expected)
        fail_msg("step %d: total %lld: %s", model.step, (long long)total, shop->error.text);
    if (expected == STATUS_OK)
        policy->total = total;
}

static void step_reserve(struct shop *shop, struct model_policy *policy)
{
    int64_t reserve = draw((unsigned)policy->total + 2);
    int64_t before = shop_show(shop, policy->id).policy.reserve;
    bool is_too_much = reserve > before && reserve > policy->total - model_active(policy);
    enum status expected = policy->closed            ? STATUS_CONFLICT
                           : reserve > policy->total ? STATUS_INVALID
                           : is_too_much             ? STATUS_CONFLICT
                                                     : STATUS_OK;
    if (shop_set_reserve(shop, policy->id, reserve) != expected)
        fail_msg("step %d: reserve %lld: %s", model.step, (long long)reserve, shop->error.text);
}

static void step_pause(struct shop *shop, struct model_policy *policy)
{
    bool paused = draw(3) == 0;
    enum status expected = policy->closed ? STATUS_CONFLICT : STATUS_OK;
    assert_int_equal(shop_set_paused(shop, policy->id, paused), expected);
    if (expected == STATUS_OK)
        policy->paused = paused;
}

static void step_block(struct shop *shop)
{
    int user = (int)draw(USERS);
    bool blocked = draw(3) == 0;
    struct id id = id_of(span_of(user_name(user)));
    assert_int_equal(service_user_block(shop->service, &id, blocked, &shop->error), STATUS_OK);
    model.blocked[user] = blocked;
}

static void open_policy(struct shop *shop, struct model_policy *policy)
{
    *policy = (struct model_policy){.total = 1 + draw(TOTAL_MAX), .limit = 1 + (int)draw(3)};
    policy->id = shop_create_with(
        shop, (struct policy){.total = policy->total,
                              .per_user_limit = policy->limit,
                              .reserve = draw(2) == 0 ? draw((unsigned)policy->total + 1) : 0});
}

/* A closed policy is looked at for a while and then replaced by a new one. */
static void step_close(struct shop *shop, struct model_policy *policy)
{
    if (policy->closed && draw(2) == 0) {
        open_policy(shop, policy);
        return;
    }
    assert_int_equal(shop_close_policy(shop, policy->id), STATUS_OK);
    policy->closed = true;
}

/* --- what must hold after every step --- */

static void check_ledger(struct shop *shop, const struct model_policy *policy)
{
    int64_t active = shop_active(shop, policy->id);

    assert_true(active <= policy->total);
    assert_int_equal(active, model_active(policy));
    if (shop_imbalance(shop, policy->id) != 0)
        fail_msg("step %d: policy %lld is off by %lld", model.step, (long long)policy->id,
                 (long long)shop_imbalance(shop, policy->id));
    assert_true(shop_query(shop,
                           "SELECT COALESCE(MAX(held), 0) FROM (SELECT COUNT(*) AS held FROM coupon"
                           " WHERE policy_id = ? AND state IN ('ISSUED', 'REDEEMED')"
                           " GROUP BY user_id)",
                           policy->id) <= policy->limit);
}

static void check_gate(struct shop *shop, const struct model_policy *policy)
{
    struct policy_view view = shop_show(shop, policy->id);
    int64_t active = model_active(policy);

    assert_int_equal(view.numbers.total, policy->total);
    assert_int_equal(view.numbers.issued, active);
    assert_int_equal(view.numbers.remaining, policy->total - active);
    assert_int_equal(view.numbers.pending, 0);
    if (!policy->closed && !policy->paused)
        assert_int_equal(view.numbers.state,
                         active == policy->total ? POLICY_SOLD_OUT : POLICY_OPEN);
}

static void check_user(struct shop *shop, const struct model_policy *policy, int user)
{
    static struct claim_status claims[CLAIMS_SHOWN];
    struct id id = id_of(span_of(user_name(user)));
    struct gate_numbers numbers;
    size_t count = 0;
    size_t shown = 0;

    assert_int_equal(service_claims_of(shop->service, policy->id, &id, claims, CLAIMS_SHOWN, &count,
                                       &numbers, &shop->error),
                     STATUS_OK);
    for (int i = policy->claim_count - 1; i >= 0 && shown < CLAIMS_SHOWN; i--) {
        const struct model_claim *claim = &model.claims[policy->claims[i]];
        if (claim->user != user)
            continue;
        assert_true(shown < count);
        assert_int_equal(claims[shown].coupon.claim.seq, claim->seq);
        assert_int_equal(claims[shown].coupon.claim.nth, claim->nth);
        assert_int_equal(claims[shown].coupon.state, claim->state);
        shown++;
    }
    assert_int_equal(count, shown);
}

static void step(struct shop *shop)
{
    struct model_policy *policy = &model.policies[draw(POLICIES)];
    unsigned kind = draw(1000);

    if (kind < 700)
        step_claims(shop);
    else if (kind < 800)
        step_cancel(shop, policy);
    else if (kind < 830)
        step_redeem(shop, policy);
    else if (kind < 870)
        step_total(shop, policy);
    else if (kind < 900)
        step_reserve(shop, policy);
    else if (kind < 930)
        step_pause(shop, policy);
    else if (kind < 970)
        step_block(shop);
    else if (kind < 975)
        step_close(shop, policy);
    else if (kind < 985)
        shop_restart(shop);
    else
        step_claims(shop);
    check_ledger(shop, policy);
    check_gate(shop, policy);
    check_user(shop, policy, (int)draw(USERS));
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

static void test_model__random_operations(void **state)
{
    struct shop *shop = *state;
    uint64_t seed = number_from("DIBS_MODEL_SEED", (uint64_t)clock_wall_ms());
    uint64_t steps = number_from("DIBS_MODEL_STEPS", STEPS);

    print_message("DIBS_MODEL_SEED=%llu\n", (unsigned long long)seed);
    model.random = seed * 2 + 1;
    for (int i = 0; i < POLICIES; i++)
        open_policy(shop, &model.policies[i]);
    for (model.step = 0; (uint64_t)model.step < steps; model.step++)
        step(shop);
    shop_restart(shop);
    for (int i = 0; i < POLICIES; i++) {
        check_ledger(shop, &model.policies[i]);
        check_gate(shop, &model.policies[i]);
        for (int user = 0; user < USERS; user++)
            check_user(shop, &model.policies[i], user);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model__random_operations, shop_set_up, shop_tear_down),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
