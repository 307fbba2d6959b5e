"""Rows that cannot be written: they are refused alone, and everyone else goes on.

The rows in the way are put there by hand, behind the server's back, as a second writer that does
not exist in real life would."""

import sqlite3

from harness import expect, expect_problem, tally
from ledger import coupons


def write(server, statement, *arguments):
    """One statement on the ledger, from outside."""
    connection = sqlite3.connect(server.database, timeout=30, isolation_level=None)
    try:
        connection.execute(statement, arguments)
    finally:
        connection.close()


def intrude(server, policy, seq, user, slot=1):
    write(server, "INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id,"
          " lease_id, requested_at, issued_at) VALUES (?, ?, ?, 1, ?, 'ISSUED', ?, 1, 1, 1)",
          policy, seq, user, slot, b"\x01" * 16)


def test_poison__a_colliding_seq_is_never_taken_for_ones_own(serve):
    """Trap 17: INSERT OR IGNORE hides real violations."""
    server = serve()
    policy = server.create(total=100)["id"]
    intrude(server, policy, 5, "intruder")
    answers = [server.claim(policy, f"u{i}") for i in range(10)]
    told = {a.json["seq"]: a.json["user"] for a in answers if a.status in (200, 201)}
    rows = {row["seq"]: row["user_id"] for row in coupons(server.database, policy)}
    assert rows[5] == "intruder"
    assert 5 not in told, "told a seq that belongs to another user"
    assert told.items() <= rows.items()
    assert len(told) >= 9
    assert any("collision" in line for line in server.log), server.log_text()
    # Remove what never should have been there, for the audit after the test.
    write(server, "DELETE FROM coupon WHERE user_id = 'intruder'")


def test_poison__one_bad_row_among_hundreds(serve):
    """Trap 22: one failing batch poisons everyone in it."""
    server = serve()
    policy = server.create(total=1000)["id"]
    # This user holds a coupon already, which the gate does not know: its slot is taken.
    intrude(server, policy, 900000, "twice")
    users = [f"u{i}" for i in range(250)] + ["twice"] + [f"v{i}" for i in range(250)]
    outcomes = server.claims(policy, users)
    wins = [o.answer.json for o in outcomes if o.answer.status == 201]
    assert len(wins) >= 500, tally(outcomes)
    assert len({win["seq"] for win in wins}) == len(wins)
    others = [o for user, o in zip(users, outcomes) if user != "twice"]
    assert tally(others) == {(201, "ISSUED"): 500}
    active = [row for row in coupons(server.database, policy)
              if row["user_id"] == "twice" and row["state"] == "ISSUED"]
    assert len(active) == 1
    write(server, "DELETE FROM coupon WHERE seq = 900000")


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
