"""Rows that cannot be written: they are refused alone, and everyone else goes on.

The rows in the way are put there by hand, behind the server's back, as a second writer that does
not exist in real life would."""

import contextlib

import pytest

from harness import expect, expect_problem, tally, wait_until
from ledger import KIND, audit, coupons


def write(server, statement, *arguments):
    """One statement on the ledger, from outside."""
    server.database.execute(statement, *arguments)


@contextlib.contextmanager
def intruder(server, policy, seq, user):
    """A row that the gate does not know; taken out again before the audit."""
    write(server, "INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id,"
          " lease_id, requested_at, issued_at) VALUES (?, ?, ?, 1, 1, 'ISSUED', ?, 1, 1, 1)",
          policy, seq, user, b"\x01" * 16)
    try:
        yield
    finally:
        write(server, "DELETE FROM coupon WHERE policy_id = ? AND seq = ?", policy, seq)


def test_poison__a_colliding_seq_is_never_taken_for_ones_own(serve):
    """Trap 17: INSERT OR IGNORE hides real violations."""
    server = serve()
    policy = server.create(total=100)["id"]
    with intruder(server, policy, 5, "intruder"):
        answers = [server.claim(policy, f"u{i}") for i in range(10)]
        told = {a.json["seq"]: a.json["user"] for a in answers if a.status in (200, 201)}
        rows = {row["seq"]: row["user_id"] for row in coupons(server.database, policy)}
    assert rows[5] == "intruder"
    assert 5 not in told, "told a seq that belongs to another user"
    assert told.items() <= rows.items()
    assert len(told) >= 9
    wait_until(lambda: any("collision" in line for line in server.log), "it is logged")


def test_poison__one_bad_row_among_hundreds(serve):
    """Trap 22: one failing batch poisons everyone in it."""
    server = serve()
    policy = server.create(total=1000)["id"]
    users = [f"u{i}" for i in range(250)] + ["twice"] + [f"v{i}" for i in range(250)]
    # This user holds a coupon already, which the gate does not know: its slot is taken.
    with intruder(server, policy, 900000, "twice"):
        outcomes = server.claims(policy, users)
        active = [row for row in coupons(server.database, policy)
                  if row["user_id"] == "twice" and row["state"] == "ISSUED"]
    assert len(active) == 1
    others = [o for user, o in zip(users, outcomes) if user != "twice"]
    assert tally(others) == {(201, "ISSUED"): 500}
    assert len({o.answer.json["seq"] for o in others}) == 500


def test_poison__neighbours_of_a_bad_row_get_one_coupon_each(serve):
    """Trap 22: those who share a batch with it must neither lose theirs nor get a second one."""
    server = serve()
    policy = server.create(total=1000, limit=3)["id"]
    users = [f"u{i}" for i in range(100)] + ["twice"] + [f"v{i}" for i in range(100)]
    with intruder(server, policy, 900000, "twice"):
        outcomes = server.claims(policy, users)
    others = [o for user, o in zip(users, outcomes) if user != "twice"]
    assert tally(others) == {(201, "ISSUED"): 200}
    held = {}
    for row in coupons(server.database, policy):
        if row["state"] == "ISSUED":
            held[row["user_id"]] = held.get(row["user_id"], 0) + 1
    assert {user: count for user, count in held.items() if count > 1 and user != "twice"} == {}


def test_poison__nobody_is_told_they_won_what_is_void(serve):
    """Guarantee 4: every 201 ends as a row that is ISSUED, however fast the commit was."""
    server = serve()
    policy = server.create(total=1000, limit=1000)["id"]
    write(server, "INSERT INTO blocked_user (user_id, blocked_at) VALUES ('poison', 1)")
    for i in range(30):
        answer = server.claim(policy, "poison", key=f"k{i}" if i % 2 else None)
        assert answer.status != 201, answer
        if answer.status == 200:  # The key names its claim, and the answer says what it came to.
            assert (answer.json["state"], answer.json["coupon_state"]) == ("VOID", None)
    rows = coupons(server.database, policy)
    assert {row["state"] for row in rows} <= {"VOID"}
    # Bounded attempts: a claim that cannot be issued is not tried for ever.
    assert len(rows) <= 30 * 10, f"{len(rows)} attempts for 30 claims"


def test_poison__a_claim_that_always_fails_does_not_hold_up_the_line(serve):
    """Trap 6: one user who always fails keeps the worker in a loop."""
    server = serve()
    policy = server.create(total=50)["id"]
    # Blocked in the ledger, unknown to the gate: its claims win at the gate and fail at the row.
    write(server, "INSERT INTO blocked_user (user_id, blocked_at) VALUES ('poison', 1)")
    first = server.claim(policy, "poison")
    assert first.status not in (200, 201), first
    outcomes = server.claims(policy, ["poison"] * 5 + [f"u{i}" for i in range(20)])
    assert tally(outcomes[5:]) == {(201, "ISSUED"): 20}
    for outcome in outcomes[:5]:
        assert outcome.answer.status in (403, 503), outcome.answer
    # Each failed claim gave its unit back: all of it can still be won.
    history = [server.claim(policy, f"v{i}").status for i in range(30)]
    assert history == [201] * 30
    expect_problem(server.claim(policy, "late"), 409, "SOLD_OUT")
    status = server.status(policy, "poison")
    if status.status == 200:
        body = expect(status, 200)
        assert body["state"] == "VOID" and body["reason"]


# --- rules of the shop's own that refuse a VOID row as well ---

CUSTOMERS = ["CREATE TABLE customer (id VARCHAR(64) NOT NULL PRIMARY KEY)",
             *(f"INSERT INTO customer (id) VALUES ('u{i}')" for i in range(20))]
# Each keeps `unknown…` out, whatever the row says, and nobody else.
RULES = {
    "sqlite": {
        "foreign key": [*CUSTOMERS, "CREATE TRIGGER known BEFORE INSERT ON coupon WHEN NOT EXISTS"
                                    " (SELECT 1 FROM customer WHERE id = NEW.user_id)"
                                    " BEGIN SELECT RAISE(ABORT, 'no such customer'); END"],
        "unique": ["CREATE UNIQUE INDEX one_each ON coupon (substr(user_id, 1, 7), nth)"
                   " WHERE user_id LIKE 'unknown%' OR user_id = '.'",
                   "INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id,"
                   " lease_id, requested_at, issued_at) VALUES (77, 1, 'unknown', 1, 1, 'ISSUED',"
                   " x'01010101010101010101010101010101', 1, 1, 1)"],
    },
    "postgres": {
        "foreign key": [*CUSTOMERS, "ALTER TABLE coupon ADD FOREIGN KEY (user_id)"
                                    " REFERENCES customer (id)"],
        "check": ["ALTER TABLE coupon ADD CHECK (user_id LIKE 'u%%' AND user_id"
                  " NOT LIKE 'unknown%%')"],
        "not null": ["ALTER TABLE coupon ADD COLUMN channel text NOT NULL DEFAULT 'shop'",
                     "CREATE FUNCTION channel() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN"
                     " IF NEW.user_id NOT SIMILAR TO ''u[0-9]+'' THEN NEW.channel := NULL; END IF;"
                     " RETURN NEW; END'",
                     "CREATE TRIGGER channel BEFORE INSERT ON coupon FOR EACH ROW"
                     " EXECUTE FUNCTION channel()"],
    },
    "mysql": {
        "foreign key": ["CREATE TABLE customer (id VARCHAR(128) CHARACTER SET utf8mb4"
                        " COLLATE utf8mb4_bin NOT NULL PRIMARY KEY)", *CUSTOMERS[1:],
                        "ALTER TABLE coupon ADD FOREIGN KEY (user_id) REFERENCES customer (id)"],
        "check": ["ALTER TABLE coupon ADD CHECK (user_id LIKE 'u%%' AND user_id"
                  " NOT LIKE 'unknown%%')"],
    },
}[KIND]


@pytest.mark.parametrize("rule", RULES)
def test_poison__a_rule_of_the_shops_burns_no_unit(serve, rule):
    """Trap 37: it refuses the coupon and every row that would stand in its place. The claim is VOID
    and says so, its unit returns without a restart, and all of the stock can be won."""
    server = serve()
    policy = server.create(total=10)["id"]
    server.win(policy, "u0")
    for statement in RULES[rule]:
        write(server, statement)
    unknown = [f"unknown{i}" for i in range(3)]
    outcomes = server.claims(policy, unknown + [f"u{i}" for i in range(1, 5)])
    assert tally(outcomes[3:]) == {(201, "ISSUED"): 4}
    for outcome in outcomes[:3]:
        expect_problem(outcome.answer, 503, "UNAVAILABLE")
    for again in unknown:
        expect_problem(server.claim(policy, again), 503, "UNAVAILABLE")
    assert [server.claim(policy, f"u{i}").status for i in range(5, 10)] == [201] * 5
    expect_problem(server.claim(policy, "u10"), 409, "SOLD_OUT")

    def check():
        for user in unknown:
            status = expect(server.status(policy, user), 200)
            assert (status["state"], status["reason"]) == ("VOID", "the database refused it")
            items = expect(server.get(f"/v1/users/{user}/coupons"), 200)["items"]
            assert {item["state"] for item in items} == {"VOID"}
            expect_problem(server.cancel(items[0]["coupon_id"]), 409, "CONFLICT")
        shown = server.policy(policy)
        assert (shown["remaining"], shown["issued"]) == (0, 10)
        assert {event["attempt"] for event in server.events("claim_refused")} <= {"1"}
        if rule == "unique":
            write(server, "DELETE FROM coupon WHERE policy_id = 77")
        audit(server.database)

    check()
    server.restart()
    check()
    expect_problem(server.claim(policy, "u10"), 409, "SOLD_OUT")
    expect(server.cancel(f"{policy}-1"), 200)
    assert server.win(policy, "u10")["seq"] > 10


def test_poison__a_key_without_its_claim_does_not_stop_the_start(serve):
    """Somebody has removed a coupon by hand, and not the keys that were bound to it."""
    server = serve()
    policy = server.create(total=10)["id"]
    server.win(policy, "u1")
    server.stop()
    write(server, "INSERT INTO claim_key (policy_id, request_id, seq) VALUES (?, ?, 7)", policy,
          b"\x81" * 16)
    write(server, "INSERT INTO claim_key (policy_id, request_id, seq) VALUES (4711, ?, 1)",
          b"\x82" * 16)
    server.start()
    assert {event["policy"] for event in server.events("key_without_claim")} == \
        {str(policy), "4711"}
    assert server.win(policy, "u2")["seq"] == 2


DAMAGES = ["UPDATE policy SET total = 100000001 WHERE id = ?",
           "UPDATE lease SET count = 1152921504606846976 WHERE policy_id = ?"]
REPAIRS = ["UPDATE policy SET total = 10 WHERE id = ?",
           "UPDATE lease SET count = 10 WHERE policy_id = ?"]


@pytest.mark.parametrize("damage", [0, 1], ids=["policy", "lease"])
def test_poison__an_impossible_number_stops_its_policy_only(serve, damage):
    """A row that only a hand or a disk can have written: its policy is 503 and a finding, never 404
    or SOLD_OUT; the others are listed, sold and restored. Put right, it goes on after a restart."""
    server = serve()
    damaged, other = server.create(total=10)["id"], server.create(total=10)["id"]
    server.win(damaged, "u1")
    server.win(other, "u1")

    def others_go_on(user, items):
        assert [item["id"] for item in expect(server.get("/v1/policies"), 200)["items"]] == items
        server.win(other, user)
        assert len(expect(server.get("/v1/audit"), 200)["items"]) == 2
        assert expect(server.get(f"/v1/audit?policy={other}"), 200)["items"][0]["ok"]

    write(server, DAMAGES[damage], damaged)
    others_go_on("u2", [other] if damage == 0 else [damaged, other])
    server.restart()
    others_go_on("u3", [other])
    for user in ("u1", "u4"):
        expect_problem(server.claim(damaged, user), 503, "UNAVAILABLE")
    assert {event["policy"] for event in server.events("policy_damaged")} == {str(damaged)}
    found = expect(server.get(f"/v1/audit?policy={damaged}"), 200)["items"][0]
    assert [finding["check"] for finding in found["findings"]] == ["damaged"], found
    assert str((100000001, 2**60)[damage]) in found["findings"][0]["meaning"], found
    write(server, REPAIRS[damage], damaged)
    server.restart()
    others_go_on("u4", [damaged, other])
    assert expect(server.claim(damaged, "u1"), 200)["seq"] == 1
    assert server.win(damaged, "u2")["seq"] == 2
