"""Claims: exact counts, first come first served, repeats, and who leaves no trace."""

import random
import threading

import pytest

from harness import (check_first_come_first_served, claim_bytes, expect, expect_problem, tally,
                     wait_until)
from ledger import coupons


def test_claim__answers_with_the_claim(shared):
    policy = shared.create(total=3)
    answer = shared.claim(policy["id"], "u1")
    body = expect(answer, 201)
    assert body["result"] == "ISSUED"
    assert body["policy_id"] == policy["id"]
    assert body["user"] == "u1"
    assert (body["seq"], body["nth"]) == (1, 1)
    assert body["coupon_id"] == f"{policy['id']}-1"
    assert body["coupon_state"] == "ISSUED"
    prefix, mac = body["code"].rsplit("-", 1)
    assert prefix == body["coupon_id"]
    assert len(mac) == 13 and mac.isalnum() and mac == mac.upper()
    assert answer.headers["location"] == f"/v1/policies/{policy['id']}/claims/u1"
    assert expect(shared.get(answer.headers["location"]), 200)["seq"] == 1


def test_claim__row_is_in_the_ledger_when_the_answer_is_out(shared):
    policy = shared.create(total=3)
    shared.win(policy["id"], "u1")
    row, = coupons(shared.database, policy["id"])
    assert (row["seq"], row["user_id"], row["nth"], row["state"]) == (1, "u1", 1, "ISSUED")
    assert row["issued_at"] >= row["requested_at"] > 0


def test_claim__exactly_total_win_in_ten_bursts(server):
    """1,000 coupons, 2,000 users in 10 bursts of 200."""
    policy = server.create(total=1000)
    outcomes = []
    for burst in range(10):
        users = [f"user-{burst * 200 + i}" for i in range(200)]
        outcomes += server.claims(policy["id"], users)
    assert tally(outcomes) == {(201, "ISSUED"): 1000, (409, "SOLD_OUT"): 1000}
    seqs = [o.answer.json["seq"] for o in outcomes if o.answer.status == 201]
    assert sorted(seqs) == list(range(1, 1001))
    check_first_come_first_served(outcomes)
    # The first five bursts took everything: nobody of a later one may have won.
    assert all(o.answer.status == 201 for o in outcomes[:1000])
    rows = coupons(server.database, policy["id"])
    assert [row["seq"] for row in rows] == list(range(1, 1001))
    issued_at = [row["issued_at"] for row in rows]
    assert issued_at == sorted(issued_at)
    by_user = {row["user_id"]: row["seq"] for row in rows}
    for outcome in outcomes[:1000]:
        body = outcome.answer.json
        assert by_user[body["user"]] == body["seq"]
    shown = server.policy(policy["id"])
    assert (shown["state"], shown["remaining"], shown["issued"]) == ("SOLD_OUT", 0, 1000)


def test_claim__one_user_in_a_thousand_parallel_claims_wins_once(server):
    """Trap 3: the same user claims twice and burns two units, or both win."""
    policy = server.create(total=500)
    outcomes = server.claims(policy["id"], ["same"] * 1000)
    assert tally(outcomes) == {(201, "ISSUED"): 1, (200, "ALREADY_ISSUED"): 999}
    assert {o.answer.json["seq"] for o in outcomes} == {1}
    assert len(coupons(server.database, policy["id"])) == 1
    assert server.policy(policy["id"])["remaining"] == 499


@pytest.mark.parametrize("limit", [2, 5])
def test_claim__per_user_limit_is_exact_in_parallel(shared, limit):
    policy = shared.create(total=100, limit=limit)
    outcomes = shared.claims(policy["id"], ["same"] * 200)
    assert tally(outcomes) == {(201, "ISSUED"): limit, (409, "LIMIT_REACHED"): 200 - limit}
    wins = [o.answer.json for o in outcomes if o.answer.status == 201]
    assert sorted(win["nth"] for win in wins) == list(range(1, limit + 1))
    assert sorted(win["seq"] for win in wins) == list(range(1, limit + 1))
    assert shared.policy(policy["id"])["remaining"] == 100 - limit


def test_claim__limit_of_five_then_limit_reached(shared):
    policy = shared.create(total=100, limit=5)
    assert [shared.win(policy["id"], "u")["nth"] for _ in range(5)] == [1, 2, 3, 4, 5]
    expect_problem(shared.claim(policy["id"], "u"), 409, "LIMIT_REACHED")
    shared.win(policy["id"], "other")


def test_claim__many_users_with_many_wishes_each(shared):
    policy = shared.create(total=120, limit=3)
    users = [f"u{i % 50}" for i in range(400)]
    random.Random(7).shuffle(users)
    outcomes = shared.claims(policy["id"], users)
    counts = tally(outcomes)
    assert counts[(201, "ISSUED")] == 120
    assert set(counts) <= {(201, "ISSUED"), (409, "LIMIT_REACHED"), (409, "SOLD_OUT")}
    check_first_come_first_served(outcomes)


def test_claim__policies_do_not_disturb_each_other(shared):
    """4 policies of 200 coupons, and 1,000 users who want all of them."""
    policies = [shared.create(total=200)["id"] for _ in range(4)]
    requests = [claim_bytes(policy, f"u{user}") for user in range(1000) for policy in policies]
    outcomes = shared.storm(requests, connections=400)
    assert tally(outcomes) == {(201, "ISSUED"): 800, (409, "SOLD_OUT"): 3200}
    wins = [o.answer.json for o in outcomes if o.answer.status == 201]
    for policy in policies:
        told = {win["seq"]: win["user"] for win in wins if win["policy_id"] == policy}
        rows = coupons(shared.database, policy)
        assert [row["seq"] for row in rows] == list(range(1, 201))
        assert {row["seq"]: row["user_id"] for row in rows} == told
        # They were written in the order in which they were won.
        issued_at = [row["issued_at"] for row in rows]
        assert issued_at == sorted(issued_at)


def test_claim__a_winner_who_asks_again_gets_the_same_claim(shared):
    policy = shared.create(total=2)
    first = shared.win(policy["id"], "u1")
    shared.win(policy["id"], "u2")
    for _ in range(3):
        answer = shared.claim(policy["id"], "u1")
        body = expect(answer, 200)
        assert body["result"] == "ALREADY_ISSUED"
        for name in ("seq", "nth", "coupon_id", "code", "user", "policy_id", "coupon_state"):
            assert body[name] == first[name]
        assert answer.headers["location"] == f"/v1/policies/{policy['id']}/claims/u1"


def test_claim__lost_reply_then_sold_out_then_retry_finds_the_win(shared):
    """Trap 27: SOLD_OUT from memory to a winner whose reply was lost."""
    policy = shared.create(total=5)
    with shared.connect() as connection:
        connection.send(claim_bytes(policy["id"], "lost"), "POST")
    wait_until(lambda: coupons(shared.database, policy["id"]), "the claim nobody heard of")
    outcomes = shared.claims(policy["id"], [f"u{i}" for i in range(20)])
    assert tally(outcomes) == {(201, "ISSUED"): 4, (409, "SOLD_OUT"): 16}
    for _ in range(3):
        body = expect(shared.claim(policy["id"], "lost"), 200)
        assert (body["result"], body["seq"]) == ("ALREADY_ISSUED", 1)


def test_claim__a_thousand_lost_replies_are_all_found(server):
    """Trap 27, in numbers: nobody who holds a row is ever told SOLD_OUT."""
    policy = server.create(total=300)
    for i in range(300):
        with server.connect() as connection:
            connection.send(claim_bytes(policy["id"], f"lost{i}"), "POST")
            if i % 2:
                connection.receive()
    wait_until(lambda: len(coupons(server.database, policy["id"])) == 300, "300 rows")
    by_user = {row["user_id"]: row["seq"] for row in coupons(server.database, policy["id"])}
    users = [f"lost{i}" for i in range(300)] + [f"late{i}" for i in range(300)]
    for user, outcome in zip(users, server.claims(policy["id"], users)):
        if user in by_user:
            assert expect(outcome.answer, 200)["seq"] == by_user[user]
        else:
            expect_problem(outcome.answer, 409, "SOLD_OUT")


def test_claim__a_loser_leaves_no_trace(shared):
    """Trap 4: a loser is later told "already issued"."""
    policy = shared.create(total=1)
    winner = shared.win(policy["id"], "winner")
    for _ in range(3):
        expect_problem(shared.claim(policy["id"], "loser"), 409, "SOLD_OUT")
    expect_problem(shared.status(policy["id"], "loser"), 404, "NO_CLAIM")
    expect(shared.cancel(winner["coupon_id"]), 200)
    answer = wait_until(
        lambda: next((a for a in [shared.claim(policy["id"], "loser")] if a.status != 409), None),
        "the returned unit")
    assert expect(answer, 201)["seq"] == 2


def test_claim__losers_at_the_limit_leave_no_trace(shared):
    """Trap 4 for LIMIT_REACHED: refused wishes neither burn units nor count later."""
    policy = shared.create(total=10, limit=2)
    coupon = shared.win(policy["id"], "u")
    shared.win(policy["id"], "u")
    for _ in range(20):
        expect_problem(shared.claim(policy["id"], "u"), 409, "LIMIT_REACHED")
    expect(shared.cancel(coupon["coupon_id"]), 200)
    assert shared.win(policy["id"], "u")["nth"] == 1  # The nth that was freed.
    expect_problem(shared.claim(policy["id"], "u"), 409, "LIMIT_REACHED")


def test_claim__sold_out_is_said_when_all_units_are_durable(server):
    """Guarantee 8: when SOLD_OUT is heard, all rows of the winners are there."""
    policy = server.create(total=100)
    seen = []

    def on_answer(outcome):
        if outcome.answer.status == 409 and not seen:
            seen.append(len(coupons(server.database, policy["id"])))

    server.storm([claim_bytes(policy["id"], f"u{i}") for i in range(400)], on_answer=on_answer)
    assert seen == [100]


def test_claim__already_is_said_when_the_claim_is_durable(server):
    """Guarantee 8: when ALREADY_ISSUED is heard, the row is there."""
    policy = server.create(total=100)
    checks = []

    def on_answer(outcome):
        if outcome.answer.status == 200 and len(checks) < 20:
            seq = outcome.answer.json["seq"]
            checks.append(seq in {row["seq"] for row in coupons(server.database, policy["id"])})

    users = [f"u{i % 20}" for i in range(400)]
    server.storm([claim_bytes(policy["id"], user) for user in users], on_answer=on_answer)
    assert len(checks) == 20 and all(checks)


def test_claim__first_come_first_served_over_keep_alive_and_pipelining(server):
    policy = server.create(total=2000)
    outcomes = server.storm((claim_bytes(policy["id"], f"u{i}") for i in range(3000)),
                            connections=16, pipeline=8)
    assert tally(outcomes) == {(201, "ISSUED"): 2000, (409, "SOLD_OUT"): 1000}
    check_first_come_first_served(outcomes)


def test_claim__numbers_add_up_at_every_moment_of_a_rush(server):
    policy = server.create(total=1000)
    stop = threading.Event()
    seen = []

    def watch():
        while not stop.is_set():
            seen.append(server.policy(policy["id"]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        server.storm((claim_bytes(policy["id"], f"u{i}") for i in range(2000)), connections=50)
    finally:
        stop.set()
        watcher.join()
    assert seen
    for shown in seen:
        assert shown["remaining"] + shown["pending"] + shown["issued"] == 1000, shown
        assert (shown["state"] == "SOLD_OUT") == (shown["remaining"] == 0), shown


def test_claim__many_claims_on_one_connection_arrive_in_order(shared):
    policy = shared.create(total=30)
    raw = b"".join(claim_bytes(policy["id"], f"u{i}") for i in range(50))
    with shared.connect() as connection:
        connection.send(raw, *["POST"] * 50)
        answers = [connection.receive() for _ in range(50)]
    assert [a.json["seq"] for a in answers[:30]] == list(range(1, 31))
    assert all(a.code == "SOLD_OUT" for a in answers[30:])


def test_claim__users_that_look_alike_are_different(shared):
    policy = shared.create(total=20)
    users = ["u", "U", "u.", "u_", "u:", "u@", "u-", "..u", "...", "0", "00", "a" * 64, "a" * 63]
    seqs = [shared.win(policy["id"], user)["seq"] for user in users]
    assert seqs == list(range(1, len(users) + 1))


def test_claim__integer_user_is_its_decimal_digits(shared):
    policy = shared.create(total=5)
    first = shared.win(policy["id"], 42)
    assert first["user"] == "42"
    assert expect(shared.claim(policy["id"], "42"), 200)["seq"] == first["seq"]
    assert shared.win(policy["id"], 0)["user"] == "0"
    assert shared.win(policy["id"], 9007199254740993)["user"] == "9007199254740993"
