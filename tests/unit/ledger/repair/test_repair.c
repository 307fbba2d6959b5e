/* test_repair.c: an older ledger gets back what the gate remembers, and nobody loses a coupon. */
#include "ledger/repair/repair.h"

#include "database.h"
#include "ledger/issue.h"
#include "ledger/outbox.h"
#include "ledger/repair/repair.h"
#include "ledger/rows.h"

#define NOW        INT64_C(1763200000000)
#define LATER      (NOW + 3600000)
#define POLICY     42
#define CLAIMS_MAX 2000
#define FEW_MAX    16

/* What the gate tells. */
struct gate {
    struct policy policies[FEW_MAX];
    size_t policy_count;
    struct lease leases[FEW_MAX];
    size_t lease_count;
    struct held_claim claims[CLAIMS_MAX];
    size_t claim_count;
    struct key_binding keys[FEW_MAX];
    size_t key_count;
    struct id users[FEW_MAX];
    size_t user_count;
    uint8_t secret[16];
    struct ledger_memory memory;
};

struct fixture {
    struct database database;
    struct gate gate;
    struct repair repair;
    struct issue_room room;
};

static enum status gate_tell_policy(const struct gate *gate, const struct policy *policy,
                                    const struct claim_visitor *to, struct error *error)
{
    enum status status = to->policy(to->context, policy, error);

    for (size_t i = 0; i < gate->lease_count && status == STATUS_OK; i++)
        if (gate->leases[i].policy_id == policy->id)
            status = to->lease(to->context, &gate->leases[i], 0, error);
    for (size_t i = 0; i < gate->claim_count && status == STATUS_OK; i++)
        if (gate->claims[i].claim.policy_id == policy->id)
            status = to->claim(to->context, &gate->claims[i], error);
    for (size_t i = 0; i < gate->key_count && status == STATUS_OK; i++)
        if (gate->keys[i].policy_id == policy->id)
            status = to->key(to->context, &gate->keys[i], error);
    return status;
}

static enum status gate_tell(void *context, int64_t policy_id, const struct claim_visitor *to,
                             struct error *error)
{
    const struct gate *gate = context;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < gate->policy_count && status == STATUS_OK; i++)
        if (policy_id == 0 || policy_id == gate->policies[i].id)
            status = gate_tell_policy(gate, &gate->policies[i], to, error);
    for (size_t i = 0; policy_id == 0 && i < gate->user_count && status == STATUS_OK; i++)
        status = to->blocked(to->context, &gate->users[i], error);
    return status;
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct gate *gate = &fixture->gate;
    struct keep_secret keep = {.name = "code_key", .fresh = gate->secret, .length = 16};
    uint8_t kept[16];

    database_open(&fixture->database);
    memset(gate->secret, 7, sizeof(gate->secret));
    gate->memory = (struct ledger_memory){.tell = gate_tell,
                                          .context = gate,
                                          .secret_name = "code_key",
                                          .secret = gate->secret,
                                          .secret_length = sizeof(gate->secret)};
    keep.bytes = kept;
    database_write(&fixture->database, transaction_keep_secret, &keep);
    repair_init(&fixture->repair, &gate->memory, LATER);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    repair_release(&fixture->repair);
    issue_room_release(&fixture->room);
    database_close(&fixture->database);
    free(fixture);
    return 0;
}

/* --- what the gate remembers --- */

static struct policy *remember_policy(struct gate *gate, int64_t id, int64_t total)
{
    struct policy *policy = &gate->policies[gate->policy_count++];
    *policy = (struct policy){.id = id,
                              .name = "launch",
                              .discount_type = DISCOUNT_FIXED,
                              .discount_value = 500,
                              .total = total,
                              .per_user_limit = 2,
                              .coupon_valid_days = 3,
                              .created_at_ms = NOW,
                              .version = 2,
                              .next_seq = total + 1};
    return policy;
}

static void remember_lease(struct gate *gate, int64_t id, int64_t first_seq, int64_t count)
{
    gate->leases[gate->lease_count++] = (struct lease){
        .id = id, .policy_id = POLICY, .first_seq = first_seq, .count = count, .open = count > 0};
}

static struct held_claim *remember_claim(struct gate *gate, int64_t seq, const char *user, int nth,
                                         enum coupon_state state)
{
    struct held_claim *held = &gate->claims[gate->claim_count++];
    *held = (struct held_claim){.claim = {.policy_id = POLICY,
                                          .seq = seq,
                                          .requested_at_ms = NOW + seq,
                                          .nth = nth,
                                          .user = id_of(span_of(user))},
                                .state = state};
    memcpy(held->claim.request_id.bytes + 8, &seq, sizeof(seq));
    return held;
}

static void remember_key(struct gate *gate, int64_t seq, uint8_t key)
{
    struct key_binding *binding = &gate->keys[gate->key_count++];
    *binding = (struct key_binding){.policy_id = POLICY, .seq = seq};
    binding->request_id.bytes[0] = 0x80;
    binding->request_id.bytes[15] = key;
}

static void remember_blocked(struct gate *gate, const char *user)
{
    gate->users[gate->user_count++] = id_of(span_of(user));
}

/* Ten units in one lease, of which the first six are given out. */
static void remember_six(struct gate *gate)
{
    remember_policy(gate, POLICY, 10);
    remember_lease(gate, 1, 1, 10);
    remember_claim(gate, 1, "ann", 1, COUPON_ISSUED);
    remember_claim(gate, 2, "bob", 1, COUPON_ISSUED);
    remember_claim(gate, 3, "cid", 1, COUPON_ISSUED);
    remember_claim(gate, 4, "ann", 2, COUPON_ISSUED);
    remember_claim(gate, 5, "dan", 1, COUPON_ISSUED);
    remember_claim(gate, 6, "eve", 1, COUPON_ISSUED);
}

/* --- the ledger --- */

/* Makes the ledger what the gate remembers now, of its first `claim_count` claims: as it once was.
 * The repair itself is the way, so that both tests and repair rest on what is checked below. */
static void write_first(struct fixture *fixture, size_t claim_count)
{
    struct gate *gate = &fixture->gate;
    size_t all = gate->claim_count;

    gate->claim_count = claim_count;
    database_write(&fixture->database, repair_write, &fixture->repair);
    gate->claim_count = all;
}

static const struct ledger_gap *repair(struct fixture *fixture)
{
    database_write(&fixture->database, repair_write, &fixture->repair);
    assert_int_equal(database_imbalance(&fixture->database), 0);
    assert_true(fixture->repair.done.is_done);
    return &fixture->repair.gaps[0];
}

/* Everything the ledger has, as one number. */
static int64_t ledger_digest(struct fixture *fixture)
{
    static const char *const tables[] = {"policy",    "lease",        "coupon",
                                         "claim_key", "blocked_user", "secret"};
    int64_t digest = 0;

    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        char query[64];
        sqlite3_stmt *prepared = NULL;
        sqlite3 *beside = database_beside(&fixture->database);
        snprintf(query, sizeof(query), "SELECT * FROM %s ORDER BY 1, 2", tables[i]);
        assert_int_equal(sqlite3_prepare_v2(beside, query, -1, &prepared, NULL), SQLITE_OK);
        while (sqlite3_step(prepared) == SQLITE_ROW) {
            for (int column = 0; column < sqlite3_column_count(prepared); column++) {
                int size = sqlite3_column_bytes(prepared, column);
                const void *bytes = sqlite3_column_blob(prepared, column);
                for (int byte = 0; byte < size; byte++)
                    digest = (int64_t)((uint64_t)digest * 31 + ((const uint8_t *)bytes)[byte]);
                digest = (int64_t)((uint64_t)digest * 31 + 257);
            }
        }
        sqlite3_finalize(prepared);
        sqlite3_close(beside);
    }
    return digest;
}

/* The repair is refused with these words, and the ledger is as it was. */
static void assert_refused(struct fixture *fixture, const char *words)
{
    struct sql *sql = &fixture->database.sql;
    struct error error = {""};
    int64_t before = ledger_digest(fixture);

    database_begin(&fixture->database);
    assert_int_equal(repair_write(sql, &fixture->repair, &error), STATUS_CONFLICT);
    sql->driver->rollback(sql->session);
    if (strstr(error.text, words) == NULL || strstr(error.text, "nothing was written") == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    assert_int_equal(ledger_digest(fixture), before);
}

static struct coupon coupon_at(struct fixture *fixture, int64_t seq)
{
    struct coupon coupon;
    database_check(&fixture->database,
                   rows_coupon_by_seq(&fixture->database.sql, POLICY, seq, ROWS_LOOK, &coupon,
                                      &fixture->database.error));
    return coupon;
}

static struct policy policy_now(struct fixture *fixture)
{
    struct policy policy;
    database_check(&fixture->database, rows_policy_by_id(&fixture->database.sql, POLICY, ROWS_LOOK,
                                                         &policy, &fixture->database.error));
    return policy;
}

static int64_t number(struct fixture *fixture, const char *text)
{
    return database_number(&fixture->database, text);
}

/* Takes a unit out of unleased and lends it. */
static struct lease take_lease(struct fixture *fixture)
{
    struct lease lease;
    struct policy policy;
    struct take_lease take = {.policy_id = POLICY, .lease = &lease, .policy = &policy};
    database_write(&fixture->database, transaction_take_lease, &take);
    return lease;
}

/* --- writing --- */

static void test_repair__empty_ledger_gets_everything(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;

    remember_six(gate);
    gate->policies[0].paused = true;
    gate->policies[0].reserve = 2;
    gate->policies[0].total = 12;
    gate->policies[0].opens_at_ms = 5;
    gate->policies[0].closes_at_ms = LATER;
    gate->claims[1].state = COUPON_REDEEMED;
    gate->claims[2].state = COUPON_CANCELLED;
    gate->claims[5].is_pending = true;
    remember_key(gate, 4, 9);
    remember_blocked(gate, "eve");
    database_execute(&fixture->database, "DELETE FROM secret");
    const struct ledger_gap *gap = repair(fixture);

    assert_true(gap->lacks_policy);
    assert_int_equal(gap->missing_count, 5);
    assert_int_equal(gap->pending_count, 1);
    assert_int_equal(gap->key_count, 1);
    assert_int_equal(fixture->repair.done.written_count, 6);
    assert_int_equal(fixture->repair.done.blocked_count, 1);
    struct policy policy = policy_now(fixture);
    assert_string_equal(policy.name, "launch");
    assert_int_equal(policy.discount_type, DISCOUNT_FIXED);
    assert_int_equal(policy.discount_value, 500);
    assert_int_equal(policy.per_user_limit, 2);
    assert_int_equal(policy.coupon_valid_days, 3);
    assert_int_equal(policy.opens_at_ms, 5);
    assert_int_equal(policy.closes_at_ms, LATER);
    assert_int_equal(policy.reserve, 2);
    assert_true(policy.paused);
    assert_int_equal(policy.created_at_ms, NOW);
    assert_int_equal(policy.total, 12);
    assert_int_equal(policy.unleased, 3);
    assert_int_equal(policy.next_seq, 11);
    assert_true(policy.version > 2);

    struct coupon coupon = coupon_at(fixture, 4);
    assert_int_equal(coupon.state, COUPON_ISSUED);
    assert_int_equal(coupon.claim.nth, 2);
    assert_true(span_equal(id_span(&coupon.claim.user), SPAN("ann")));
    assert_memory_equal(&coupon.claim.request_id, &gate->claims[3].claim.request_id, 16);
    assert_int_equal(coupon.claim.requested_at_ms, NOW + 4);
    assert_int_equal(coupon.issued_at_ms, NOW + 4);
    assert_int_equal(coupon.expires_at_ms, NOW + 4 + 3 * DAY_MS);
    assert_int_equal(coupon_at(fixture, 2).state, COUPON_REDEEMED);
    assert_int_equal(coupon_at(fixture, 2).redeemed_at_ms, LATER);
    assert_int_equal(coupon_at(fixture, 3).state, COUPON_CANCELLED);
    assert_int_equal(coupon_at(fixture, 3).cancelled_at_ms, LATER);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM coupon WHERE slot IS NOT NULL"), 5);
    assert_int_equal(number(fixture, "SELECT seq FROM claim_key"), 4);
    assert_int_equal(number(fixture, "SELECT user_id = 'eve' FROM blocked_user"), 1);
    assert_int_equal(number(fixture, "SELECT value = x'07070707070707070707070707070707'"
                                     " FROM secret WHERE name = 'code_key'"),
                     1);
}

/* Since the backup: cancelled and claimed again, redeemed, claimed, blocked and unblocked, a total
 * raised, another policy. */
static void test_repair__older_ledger_catches_up(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;

    remember_six(gate);
    remember_blocked(gate, "old");
    write_first(fixture, 4);
    gate->user_count = 0;
    remember_blocked(gate, "new");
    gate->claims[0].state = COUPON_CANCELLED;
    gate->claims[1].state = COUPON_REDEEMED;
    gate->claim_count = 4;
    remember_claim(gate, 5, "ann", 1, COUPON_ISSUED);
    remember_claim(gate, 6, "eve", 1, COUPON_CANCELLED);
    gate->policies[0].total = 30;
    gate->policies[0].version = 50;
    struct policy *other = remember_policy(gate, 43, 5);
    const struct ledger_gap *gap = repair(fixture);

    assert_false(gap->lacks_policy);
    assert_true(gap->has_older_policy);
    assert_int_equal(gap->missing_count, 2);
    assert_int_equal(gap->cancelled_count, 1);
    assert_int_equal(gap->redeemed_count, 1);
    assert_int_equal(fixture->repair.done.policy_count, 2);
    assert_int_equal(fixture->repair.done.blocked_count, 1);
    assert_int_equal(fixture->repair.done.unblocked_count, 1);
    assert_true(fixture->repair.gaps[1].lacks_policy);
    assert_int_equal(coupon_at(fixture, 1).state, COUPON_CANCELLED);
    assert_int_equal(coupon_at(fixture, 2).state, COUPON_REDEEMED);
    assert_int_equal(coupon_at(fixture, 5).state, COUPON_ISSUED);
    assert_int_equal(coupon_at(fixture, 6).state, COUPON_CANCELLED);
    assert_int_equal(policy_now(fixture).total, 30);
    assert_int_equal(policy_now(fixture).version, 51);
    /* 30 units: 4 active, 4 of the lease not given out. */
    assert_int_equal(policy_now(fixture).unleased, 22);
    assert_int_equal(number(fixture, "SELECT unleased FROM policy WHERE id = 43"), other->total);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM blocked_user WHERE user_id = 'new'"), 1);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM blocked_user"), 1);
    repair(fixture);
    assert_int_equal(fixture->repair.done.blocked_count + fixture->repair.done.unblocked_count, 0);
}

/* What the database had lost is told again: nobody knows whether it was told before. */
static void test_repair__tells_what_it_writes(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;
    struct outbox outbox;

    remember_six(gate);
    write_first(fixture, 4);
    gate->claims[0].state = COUPON_CANCELLED;
    gate->claims[5].state = COUPON_REDEEMED;
    struct ledger_options options = {.tells = {[LEDGER_SINK_KAFKA] = true}};
    outbox_init(&outbox, &options);
    fixture->database.sql.outbox = &outbox;
    for (int i = 0; i < 2; i++) {
        outbox_begin(&outbox);
        repair(fixture);
        assert_int_equal(number(fixture, "SELECT COUNT(*) FROM outbox"), 4);
    }
    fixture->database.sql.outbox = NULL;
    outbox_release(&outbox);
    assert_int_equal(number(fixture, "SELECT seq FROM outbox WHERE state = 'CANCELLED'"), 1);
    assert_int_equal(number(fixture, "SELECT seq FROM outbox WHERE state = 'REDEEMED'"), 6);
    assert_int_equal(number(fixture, "SELECT SUM(seq) FROM outbox WHERE state = 'ISSUED'"), 5 + 6);
    assert_int_equal(number(fixture, "SELECT changed_at FROM outbox WHERE state = 'REDEEMED'"),
                     LATER);
    assert_int_equal(number(fixture, "SELECT a.number < b.number FROM outbox a JOIN outbox b"
                                     " ON a.seq = 6 AND b.seq = 6 AND a.state = 'ISSUED'"
                                     " AND b.state = 'REDEEMED'"),
                     1);
}

static void test_repair__second_time_writes_nothing_new(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;

    remember_six(gate);
    gate->claims[1].state = COUPON_REDEEMED;
    gate->claims[2].state = COUPON_CANCELLED;
    remember_claim(gate, 7, "fay", 1, COUPON_VOID);
    remember_key(gate, 4, 9);
    remember_blocked(gate, "eve");
    repair(fixture);
    database_execute(&fixture->database, "UPDATE policy SET version = 0");
    int64_t before = ledger_digest(fixture);
    const struct ledger_gap *gap = repair(fixture);

    assert_int_equal(gap->missing_count + gap->pending_count + gap->cancelled_count +
                         gap->redeemed_count + gap->key_count,
                     0);
    assert_int_equal(fixture->repair.done.blocked_count + fixture->repair.done.unblocked_count, 0);
    database_execute(&fixture->database, "UPDATE policy SET version = 0");
    assert_int_equal(ledger_digest(fixture), before);
}

/* More than is compared at once, the gap in the middle of a chunk. */
static void test_repair__many_claims(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;

    remember_policy(gate, POLICY, 1800);
    remember_lease(gate, 1, 1, 1800);
    for (int i = 1; i <= 1700; i++) {
        char user[32];
        snprintf(user, sizeof(user), "user-%d", i);
        remember_claim(gate, i, user, 1, COUPON_ISSUED);
    }
    write_first(fixture, 720);
    for (int i = 0; i < 1700; i += 7)
        gate->claims[i].state = COUPON_CANCELLED;
    const struct ledger_gap *gap = repair(fixture);

    assert_int_equal(gap->missing_count, 980);
    assert_int_equal(gap->cancelled_count, 103);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM coupon"), 1700);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM coupon WHERE slot IS NOT NULL"), 1457);
    assert_int_equal(policy_now(fixture).unleased, 243);
    /* One that the gate does not know, behind the last of a chunk. */
    memmove(gate->claims + 500, gate->claims + 501, 1199 * sizeof(gate->claims[0]));
    gate->claim_count--;
    assert_refused(fixture, "42-501 of user user-501");
}

/* The queue tries claims again that the gate has told: they are found, once, as they are. */
static void test_repair__pending_claims_are_found_again(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;
    struct claim claims[3];
    enum coupon_state states[3];

    remember_six(gate);
    remember_claim(gate, 7, "fay", 1, COUPON_ISSUED); /* of a lease that was sold */
    gate->leases[0] =
        (struct lease){.id = 5, .policy_id = POLICY, .first_seq = 1, .count = 6, .open = true};
    gate->policies[0].total = 7;
    write_first(fixture, 3);
    for (size_t i = 4; i < 7; i++) {
        gate->claims[i].is_pending = true;
        claims[i - 4] = gate->claims[i].claim;
        claims[i - 4].lease_id = i == 6 ? 6 : 5;
    }
    repair(fixture);
    assert_int_equal(policy_now(fixture).unleased, 0);
    database_begin(&fixture->database);
    database_check(&fixture->database,
                   issue_claims(&fixture->database.sql, &fixture->room, claims, 3, ISSUE_WHOLE, NOW,
                                states, &fixture->database.error));
    database_commit(&fixture->database);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(states[i], COUPON_ISSUED);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM coupon"), 7);
    assert_int_equal(database_imbalance(&fixture->database), 0);
}

/* A claim that was decided behind the walk is covered by the lease that was told. */
static void test_repair__later_claim_is_covered(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state written;

    remember_six(&fixture->gate);
    repair(fixture);
    struct claim late = remember_claim(&fixture->gate, 7, "fay", 1, COUPON_ISSUED)->claim;
    late.lease_id = 1;
    database_begin(&fixture->database);
    database_check(&fixture->database,
                   issue_claims(&fixture->database.sql, &fixture->room, &late, 1, ISSUE_WHOLE, NOW,
                                &written, &fixture->database.error));
    database_commit(&fixture->database);
    assert_int_equal(written, COUPON_ISSUED);
    assert_int_equal(policy_now(fixture).unleased, 0);
    assert_int_equal(database_imbalance(&fixture->database), 0);
}

/* --- leases --- */

static void test_repair__leases_become_the_gates(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;

    remember_six(gate);
    write_first(fixture, 6);
    /* Since then the first lease gave two units back and was sold, and two more were lent. */
    gate->policies[0].total = 14;
    gate->policies[0].next_seq = 15;
    gate->lease_count = 0;
    remember_lease(gate, 4, 9, 3);
    remember_lease(gate, 7, 12, 3);
    remember_claim(gate, 7, "fay", 1, COUPON_ISSUED);
    remember_claim(gate, 8, "gus", 1, COUPON_ISSUED);
    remember_claim(gate, 9, "hal", 1, COUPON_ISSUED);
    repair(fixture);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM lease WHERE state = 'OPEN'"), 2);
    assert_int_equal(number(fixture, "SELECT state = 'CLOSED' FROM lease WHERE id = 1"), 1);
    assert_int_equal(number(fixture, "SELECT count FROM lease WHERE id = 1"), 0);
    assert_int_equal(number(fixture, "SELECT first_seq FROM lease WHERE id = 4"), 9);
    assert_int_equal(number(fixture, "SELECT count FROM lease WHERE id = 4"), 3);
    /* 14 units: 9 issued, 2 left in one lease, 3 in the other. */
    assert_int_equal(policy_now(fixture).unleased, 0);
}

/* A lease that the ledger knows gets its present size, also when it had been closed. */
static void test_repair__known_lease_is_opened_again(void **state)
{
    struct fixture *fixture = *state;

    remember_six(&fixture->gate);
    write_first(fixture, 6);
    database_execute(&fixture->database, "UPDATE lease SET state = 'CLOSED', count = 10");
    fixture->gate.leases[0].count = 8;
    repair(fixture);
    assert_int_equal(number(fixture, "SELECT count FROM lease WHERE id = 1 AND state = 'OPEN'"), 8);
    assert_int_equal(policy_now(fixture).unleased, 2);
}

/* The gate refuses leases below one that it has seen. */
static void test_repair__next_lease_is_above_all_seen(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;

    remember_six(gate);
    gate->policies[0].total = 6;
    gate->policies[0].next_seq = 90;
    gate->lease_count = 0;
    remember_lease(gate, 70, 1, 0);
    repair(fixture);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM lease WHERE state = 'OPEN'"), 0);
    database_execute(&fixture->database, "UPDATE policy SET unleased = 1, total = 7");
    struct lease lease = take_lease(fixture);
    assert_true(lease.id > 70);
    assert_int_equal(lease.first_seq, 90);
    assert_int_equal(lease.count, 1);
}

/* --- claims that came to nothing --- */

static void test_repair__void_claims_come_back_without_a_slot(void **state)
{
    struct fixture *fixture = *state;

    remember_six(&fixture->gate);
    fixture->gate.claims[0].state = COUPON_VOID;
    fixture->gate.claims[1].state = COUPON_MERGED;
    repair(fixture);
    assert_int_equal(coupon_at(fixture, 1).state, COUPON_VOID);
    assert_int_equal(coupon_at(fixture, 2).state, COUPON_MERGED);
    assert_string_not_equal(coupon_at(fixture, 1).reason, "");
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM coupon WHERE slot IS NOT NULL"), 4);
    /* Their units went back when they came to nothing. */
    assert_int_equal(policy_now(fixture).unleased, 2);
}

/* One whose seq was someone else's, and one whose row the database does not take. */
static void test_repair__void_claims_that_are_no_rows_stay_so(void **state)
{
    struct fixture *fixture = *state;

    remember_six(&fixture->gate);
    write_first(fixture, 6);
    database_execute(&fixture->database,
                     "DELETE FROM coupon WHERE seq = 3;"
                     "CREATE TRIGGER refuse BEFORE INSERT ON coupon WHEN NEW.user_id = 'cid'"
                     " BEGIN SELECT RAISE(ABORT, 'told so'); END");
    fixture->gate.claims[0].state = COUPON_VOID;
    fixture->gate.claims[0].claim.user = id_of(SPAN("someone"));
    fixture->gate.claims[2].state = COUPON_VOID;
    repair(fixture);
    struct coupon first = coupon_at(fixture, 1);
    assert_true(span_equal(id_span(&first.claim.user), SPAN("ann")));
    assert_int_equal(first.state, COUPON_ISSUED);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM coupon WHERE seq = 3"), 0);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM refused_claim WHERE seq = 3"), 1);
    assert_int_equal(coupon_at(fixture, 3).state, COUPON_VOID);
    repair(fixture);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM refused_claim"), 1);
}

/* --- what is not an older copy --- */

static void test_repair__refuses_coupons_it_never_gave(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;

    remember_six(gate);
    write_first(fixture, 6);
    gate->claim_count = 5; /* behind the last claim */
    assert_refused(fixture, "42-6 of user eve");
    gate->claim_count = 6;
    memmove(gate->claims + 2, gate->claims + 3, 3 * sizeof(gate->claims[0]));
    gate->claim_count = 5; /* between two */
    assert_refused(fixture, "42-3 of user cid");
    gate->claim_count = 0; /* without any */
    assert_refused(fixture, "42-1 of user ann");
}

static void test_repair__refuses_another_claim_with_the_same_seq(void **state)
{
    struct fixture *fixture = *state;
    struct held_claim *third = &fixture->gate.claims[2];

    remember_six(&fixture->gate);
    write_first(fixture, 6);
    third->claim.user = id_of(SPAN("kim"));
    assert_refused(fixture, "42-3 of user cid");
    third->claim.user = id_of(SPAN("cid"));
    third->claim.request_id.bytes[3] = 1;
    assert_refused(fixture, "42-3 of user cid");
    third->claim.request_id.bytes[3] = 0;
    third->claim.nth = 2;
    assert_refused(fixture, "42-3 of user cid");
    third->claim.nth = 1;
    repair(fixture);
}

/* Never takes a coupon from anyone, nor gives one back that was taken. */
static void test_repair__refuses_states_that_cannot_be(void **state)
{
    struct fixture *fixture = *state;
    struct held_claim *third = &fixture->gate.claims[2];

    remember_six(&fixture->gate);
    write_first(fixture, 6);
    third->state = COUPON_VOID;
    assert_refused(fixture, "42-3 of user cid");
    third->state = COUPON_CANCELLED;
    database_execute(&fixture->database, "UPDATE coupon SET state = 'REDEEMED' WHERE seq = 3");
    assert_refused(fixture, "42-3 of user cid");
    third->state = COUPON_ISSUED;
    repair(fixture); /* The gate may hear of it later. */
    database_execute(&fixture->database,
                     "UPDATE coupon SET state = 'CANCELLED', slot = NULL WHERE seq = 3");
    assert_refused(fixture, "42-3 of user cid");
}

static void test_repair__refuses_a_slot_that_is_taken(void **state)
{
    struct fixture *fixture = *state;

    remember_six(&fixture->gate);
    remember_policy(&fixture->gate, 43, 5);
    write_first(fixture, 5);
    /* Eve's coupon would be a second one in the place of Dan's. */
    fixture->gate.claims[5].claim.user = id_of(SPAN("dan"));
    assert_refused(fixture, "stand in the way");
}

static void test_repair__refuses_what_else_is_not_its_own(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;

    remember_six(gate);
    remember_policy(gate, 43, 5);
    remember_key(gate, 4, 9);
    write_first(fixture, 6);
    gate->policy_count = 1;
    assert_refused(fixture, "policy 43: this server does not know it");
    gate->policy_count = 2;
    gate->keys[0].seq = 5;
    assert_refused(fixture, "a key belongs to another claim");
    gate->keys[0].seq = 4;
    gate->leases[0].first_seq = 2;
    assert_refused(fixture, "one of its leases");
    gate->leases[0].first_seq = 1;
    gate->secret[3] = 1;
    assert_refused(fixture, "secret code_key");
    gate->secret[3] = 7;
    repair(fixture);
}

static void test_repair__refuses_more_units_than_there_are(void **state)
{
    struct fixture *fixture = *state;

    remember_six(&fixture->gate);
    fixture->gate.policies[0].total = 9;
    assert_refused(fixture, "policy 42: 10 units are issued or lent and its total is 9");
}

/* --- looking --- */

static struct ledger_gap look(struct fixture *fixture)
{
    struct ledger_gap gap;
    int64_t before = ledger_digest(fixture);
    database_check(&fixture->database, repair_find_gap(&fixture->repair, &fixture->database.sql,
                                                       POLICY, &gap, &fixture->database.error));
    assert_int_equal(ledger_digest(fixture), before);
    return gap;
}

static void test_repair__look_counts_what_is_missing(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;

    remember_six(gate);
    assert_true(look(fixture).lacks_policy);
    assert_int_equal(look(fixture).missing_count, 6);
    write_first(fixture, 3);
    gate->policies[0].version = 50;
    gate->claims[0].state = COUPON_CANCELLED;
    gate->claims[1].state = COUPON_REDEEMED;
    gate->claims[4].is_pending = true;
    gate->claims[5].is_pending = true;
    struct ledger_gap gap = look(fixture);
    assert_int_equal(gap.policy_id, POLICY);
    assert_false(gap.lacks_policy);
    assert_true(gap.has_older_policy);
    assert_int_equal(gap.missing_count, 1);
    assert_int_equal(gap.pending_count, 2);
    assert_int_equal(gap.cancelled_count, 1);
    assert_int_equal(gap.redeemed_count, 1);
    assert_int_equal(gap.unknown_count, 0);
}

/* A ledger in use is ahead of the gate for a moment, and some claims never get a row. */
static void test_repair__look_finds_no_gap_in_a_ledger_in_use(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = &fixture->gate;

    remember_six(gate);
    write_first(fixture, 6);
    database_execute(&fixture->database,
                     "UPDATE coupon SET state = 'CANCELLED', slot = NULL WHERE seq = 1;"
                     "UPDATE coupon SET state = 'REDEEMED' WHERE seq = 2;"
                     "UPDATE policy SET version = version + 1");
    remember_claim(gate, 7, "fay", 1, COUPON_VOID);
    remember_claim(gate, 8, "gus", 1, COUPON_ISSUED)->is_pending = true;
    remember_key(gate, 4, 9);
    struct ledger_gap gap = look(fixture);
    assert_false(gap.lacks_policy || gap.has_older_policy);
    assert_int_equal(
        gap.missing_count + gap.cancelled_count + gap.redeemed_count + gap.unknown_count, 0);
    assert_int_equal(gap.pending_count, 1);
}

static void test_repair__look_counts_what_it_does_not_know(void **state)
{
    struct fixture *fixture = *state;

    remember_six(&fixture->gate);
    write_first(fixture, 6);
    fixture->gate.claims[0].claim.user = id_of(SPAN("kim"));
    fixture->gate.claims[2] = fixture->gate.claims[3];
    memmove(fixture->gate.claims + 3, fixture->gate.claims + 4,
            2 * sizeof(fixture->gate.claims[0]));
    fixture->gate.claim_count = 5;
    assert_int_equal(look(fixture).unknown_count, 2);
}

static void test_repair__balance_counts_the_units(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_balance balance;
    struct error error;

    remember_six(&fixture->gate);
    fixture->gate.policies[0].total = 12;
    fixture->gate.claims[2].state = COUPON_CANCELLED;
    repair(fixture);
    assert_int_equal(balance_read(&fixture->database.sql, POLICY, &balance, &error), STATUS_OK);
    assert_int_equal(balance.total, 12);
    assert_int_equal(balance.active, 5);
    assert_int_equal(balance.leased, 4);
    assert_int_equal(balance.unleased, 3);
    assert_int_equal(balance_read(&fixture->database.sql, 7, &balance, &error), STATUS_NOT_FOUND);
}

int main(void)
{
#define REPAIR_TEST(name) cmocka_unit_test_setup_teardown(test_repair__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        REPAIR_TEST(empty_ledger_gets_everything),
        REPAIR_TEST(older_ledger_catches_up),
        REPAIR_TEST(tells_what_it_writes),
        REPAIR_TEST(second_time_writes_nothing_new),
        REPAIR_TEST(many_claims),
        REPAIR_TEST(pending_claims_are_found_again),
        REPAIR_TEST(later_claim_is_covered),
        REPAIR_TEST(leases_become_the_gates),
        REPAIR_TEST(known_lease_is_opened_again),
        REPAIR_TEST(next_lease_is_above_all_seen),
        REPAIR_TEST(void_claims_come_back_without_a_slot),
        REPAIR_TEST(void_claims_that_are_no_rows_stay_so),
        REPAIR_TEST(refuses_coupons_it_never_gave),
        REPAIR_TEST(refuses_another_claim_with_the_same_seq),
        REPAIR_TEST(refuses_states_that_cannot_be),
        REPAIR_TEST(refuses_a_slot_that_is_taken),
        REPAIR_TEST(refuses_what_else_is_not_its_own),
        REPAIR_TEST(refuses_more_units_than_there_are),
        REPAIR_TEST(look_counts_what_is_missing),
        REPAIR_TEST(look_finds_no_gap_in_a_ledger_in_use),
        REPAIR_TEST(look_counts_what_it_does_not_know),
        REPAIR_TEST(balance_counts_the_units),
    };
    return cmocka_run_group_tests_name("repair", tests, NULL, NULL);
}
