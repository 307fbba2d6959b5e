"""The order of verdicts: each pair of neighbours, and what a holder hears in every state."""

import itertools
import threading

import pytest

from harness import claim_bytes, expect, expect_problem, now_rfc3339, tally, wait_until
from ledger import coupons

FAR = 86400 * 30


def block(server, user, blocked=True):
    body = expect(server.request("PUT", f"/v1/users/{user}", {"blocked": blocked}), 200)
    assert body == {"user": user, "blocked": blocked}


def close(server, policy_id):
    expect(server.request("DELETE", f"/v1/policies/{policy_id}"), 200)


def test_verdict__bad_request_before_no_policy(shared):
    answer = shared.post("/v1/policies/987654321/claims", {"user": ""})
    expect_problem(answer, 400, "INVALID_REQUEST", field="user")
    answer = shared.claim(987654321, "u1", key="x" * 129)
    expect_problem(answer, 400, "INVALID_REQUEST")


def test_verdict__no_policy_before_held_elsewhere(shared):
    policy = shared.create(total=1)
    shared.win(policy["id"], "u1", key="same-key")
    expect_problem(shared.claim(987654321, "u1", key="same-key"), 404, "POLICY_NOT_FOUND")


@pytest.mark.one_server("who is blocked reaches the other servers within a second")
def test_verdict__no_policy_before_blocked(shared):
    block(shared, "verdict-blocked-1")
    expect_problem(shared.claim(987654321, "verdict-blocked-1"), 404, "POLICY_NOT_FOUND")


@pytest.mark.one_server("who is blocked reaches the other servers within a second")
def test_verdict__held_before_blocked(shared):
    policy = shared.create(total=5)
    seq = shared.win(policy["id"], "verdict-blocked-2")["seq"]
    block(shared, "verdict-blocked-2")
    assert expect(shared.claim(policy["id"], "verdict-blocked-2"), 200)["seq"] == seq
    block(shared, "verdict-blocked-2", False)


@pytest.mark.one_server("who is blocked reaches the other servers within a second")
def test_verdict__held_by_key_before_blocked(shared):
    policy = shared.create(total=5, limit=2)
    seq = shared.win(policy["id"], "verdict-blocked-3", key="k")["seq"]
    block(shared, "verdict-blocked-3")
    assert expect(shared.claim(policy["id"], "verdict-blocked-3", key="k"), 200)["seq"] == seq
    expect_problem(shared.claim(policy["id"], "verdict-blocked-3"), 403, "BLOCKED")
    expect_problem(shared.claim(policy["id"], "verdict-blocked-3", key="k2"), 403, "BLOCKED")


@pytest.mark.one_server("who is blocked reaches the other servers within a second")
def test_verdict__blocked_before_closed(shared):
    policy = shared.create(total=5)
    block(shared, "verdict-blocked-5")
    close(shared, policy["id"])
    expect_problem(shared.claim(policy["id"], "verdict-blocked-5"), 403, "BLOCKED")
    block(shared, "verdict-blocked-5", False)
    expect_problem(shared.claim(policy["id"], "verdict-blocked-5"), 410, "CLOSED")


@pytest.mark.one_server("who is blocked reaches the other servers within a second")
def test_verdict__blocked_before_everything_after_it(shared):
    policy = shared.create(total=1, limit=1)
    shared.win(policy["id"], "u1")
    block(shared, "verdict-blocked-6")
    expect_problem(shared.claim(policy["id"], "verdict-blocked-6"), 403, "BLOCKED")
    expect(shared.patch(policy["id"], paused=True, opens_at=now_rfc3339(FAR)), 200)
    expect_problem(shared.claim(policy["id"], "verdict-blocked-6"), 403, "BLOCKED")


def test_verdict__closed_by_hand_before_paused(shared):
    policy = shared.create(total=5)
    expect(shared.patch(policy["id"], paused=True), 200)
    close(shared, policy["id"])
    expect_problem(shared.claim(policy["id"], "u1"), 410, "CLOSED")


def test_verdict__closed_by_time_before_paused(shared):
    policy = shared.create(total=5)
    expect(shared.patch(policy["id"], paused=True, closes_at=now_rfc3339(-10)), 200)
    expect_problem(shared.claim(policy["id"], "u1"), 410, "CLOSED")
    assert shared.policy(policy["id"])["state"] == "CLOSED"


def test_verdict__paused_before_not_open(shared):
    policy = shared.create(total=5, opens_at=now_rfc3339(FAR))
    expect(shared.patch(policy["id"], paused=True), 200)
    expect_problem(shared.claim(policy["id"], "u1"), 403, "PAUSED")
    expect(shared.patch(policy["id"], paused=False), 200)
    expect_problem(shared.claim(policy["id"], "u1"), 403, "NOT_OPEN")


def test_verdict__not_open_before_limit_reached(shared):
    policy = shared.create(total=5, limit=2)
    shared.win(policy["id"], "u1")
    shared.win(policy["id"], "u1")
    expect_problem(shared.claim(policy["id"], "u1"), 409, "LIMIT_REACHED")
    expect(shared.patch(policy["id"], opens_at=now_rfc3339(FAR)), 200)
    expect_problem(shared.claim(policy["id"], "u1"), 403, "NOT_OPEN")


@pytest.mark.one_server("a server may know for 0.4 s what is sold out, and not that it opens later")
def test_verdict__not_open_before_sold_out(shared):
    policy = shared.create(total=1)
    shared.win(policy["id"], "u1")
    expect(shared.patch(policy["id"], opens_at=now_rfc3339(FAR)), 200)
    expect_problem(shared.claim(policy["id"], "u2"), 403, "NOT_OPEN")


@pytest.mark.one_server("a server may know for 0.4 s what is sold out, and not that it is paused")
def test_verdict__paused_before_sold_out(shared):
    policy = shared.create(total=1)
    shared.win(policy["id"], "u1")
    expect_problem(shared.claim(policy["id"], "u2"), 409, "SOLD_OUT")
    expect(shared.patch(policy["id"], paused=True), 200)
    expect_problem(shared.claim(policy["id"], "u2"), 403, "PAUSED")
    close(shared, policy["id"])
    expect_problem(shared.claim(policy["id"], "u2"), 410, "CLOSED")


def test_verdict__limit_reached_before_sold_out(shared):
    policy = shared.create(total=2, limit=2)
    shared.win(policy["id"], "u1")
    shared.win(policy["id"], "u1")
    expect_problem(shared.claim(policy["id"], "u1"), 409, "LIMIT_REACHED")
    expect_problem(shared.claim(policy["id"], "u2"), 409, "SOLD_OUT")


def test_verdict__not_open_says_when_and_how_long(shared):
    opens_at = now_rfc3339(FAR)
    policy = shared.create(total=5, opens_at=opens_at)
    assert policy["state"] == "SCHEDULED"
    answer = shared.claim(policy["id"], "u1")
    problem = expect_problem(answer, 403, "NOT_OPEN", opens_at=opens_at)
    assert problem["opens_at"] == policy["opens_at"]
    assert FAR - 120 <= int(answer.headers["retry-after"]) <= FAR + 60


STATES = {
    "paused": lambda server, policy: expect(server.patch(policy, paused=True), 200),
    "closed by hand": close,
    "closed by time": lambda server, policy: expect(
        server.patch(policy, closes_at=now_rfc3339(-10)), 200),
    "not open": lambda server, policy: expect(
        server.patch(policy, opens_at=now_rfc3339(FAR)), 200),
    "sold out": lambda server, policy: server.claims(policy, [f"x{i}" for i in range(10)]),
}


@pytest.mark.parametrize("change", STATES.values(), ids=STATES.keys())
def test_verdict__a_holder_gets_the_claim_in_every_state(shared, change):
    """Guarantee 5: a winner who asks again gets the claim they hold."""
    policy = shared.create(total=5)
    first = shared.win(policy["id"], "u1")
    keyed = shared.win(policy["id"], "u2", key="k2")
    change(shared, policy["id"])
    again = expect(shared.claim(policy["id"], "u1"), 200)
    assert (again["result"], again["seq"]) == ("ALREADY_ISSUED", first["seq"])
    assert expect(shared.claim(policy["id"], "u2", key="k2"), 200)["seq"] == keyed["seq"]
    assert shared.claim(policy["id"], "stranger").status in (403, 409, 410)


@pytest.mark.parametrize("change", STATES.values(), ids=STATES.keys())
def test_verdict__a_key_gets_its_claim_in_every_state(shared, change):
    policy = shared.create(total=5, limit=3)
    first = shared.win(policy["id"], "u1", key="k1")
    shared.win(policy["id"], "u1", key="k2")
    change(shared, policy["id"])
    again = expect(shared.claim(policy["id"], "u1", key="k1"), 200)
    assert (again["seq"], again["nth"]) == (first["seq"], 1)


def test_verdict__opens_by_itself(shared):
    """NOT_OPEN until opens_at, then claims win, with no other call in between."""
    policy = shared.create(total=5, opens_at=now_rfc3339(1.5))
    early = shared.claim(policy["id"], "u0")
    if now_rfc3339() < policy["opens_at"]:  # as on any machine but the slowest
        expect_problem(early, 403, "NOT_OPEN")

    def opened():
        answer = shared.claim(policy["id"], "u1")
        if answer.status == 201:
            return answer
        expect_problem(answer, 403, "NOT_OPEN")
        return None

    expect(wait_until(opened, "opens_at"), 201)
    assert now_rfc3339() >= policy["opens_at"]
    assert shared.policy(policy["id"])["state"] == "OPEN"


def test_verdict__closes_by_itself(shared):
    policy = shared.create(total=1000000, limit=1000, closes_at=now_rfc3339(1))
    assert policy["state"] == "OPEN" or now_rfc3339() >= policy["closes_at"]
    count = [0]

    def closed():
        answer = shared.claim(policy["id"], f"u{count[0]}")
        count[0] += 1
        return answer if answer.status != 201 else None

    expect_problem(wait_until(closed, "closes_at"), 410, "CLOSED")
    assert now_rfc3339() >= policy["closes_at"]
    assert shared.policy(policy["id"])["state"] == "CLOSED"


@pytest.mark.one_server("who is blocked reaches the other servers within a second")
def test_blocked__lifted_again(shared):
    policy = shared.create(total=5)
    block(shared, "verdict-blocked-7")
    block(shared, "verdict-blocked-7")
    expect_problem(shared.claim(policy["id"], "verdict-blocked-7"), 403, "BLOCKED")
    block(shared, "verdict-blocked-7", False)
    block(shared, "verdict-blocked-7", False)
    shared.win(policy["id"], "verdict-blocked-7")


@pytest.mark.one_server("who is blocked reaches the other servers within a second")
def test_blocked__survives_kill_9(server):
    policy = server.create(total=5)
    block(server, "bad")
    block(server, "good")
    block(server, "good", False)
    server.restart()
    expect_problem(server.claim(policy["id"], "bad"), 403, "BLOCKED")
    server.win(policy["id"], "good")


@pytest.mark.parametrize("body", [{}, {"blocked": 1}, {"blocked": "true"}, {"blocked": None},
                                  {"blocked": True, "x": 1}, [], b"", b"x"])
def test_blocked__bad_body_is_400(shared, body):
    answer = shared.request("PUT", "/v1/users/u1", body)
    expect_problem(answer, 400, "INVALID_REQUEST")


@pytest.mark.one_server("who is blocked reaches the other servers within a second")
def test_blocked__during_a_rush_touches_nobody_else(server):
    """A user is blocked and let go again and again while everyone claims: the others get what they
    asked for, once each, and whoever is told 201 has a row that says so."""
    policy = server.create(total=100000, limit=1000)["id"]
    stop = threading.Event()

    # As often as people are answered: by a clock, a slow machine would do little else.
    turns = threading.Semaphore(1)
    answered = itertools.count(1)

    def toggle():
        while turns.acquire() and not stop.is_set():
            block(server, "mallory")
            block(server, "mallory", False)

    def on_answer(_outcome):
        if next(answered) % 16 == 0:
            turns.release()

    toggler = threading.Thread(target=toggle)
    toggler.start()
    users = [f"u{i // 2}" if i % 2 else "mallory" for i in range(1600)]
    try:
        outcomes = server.storm((claim_bytes(policy, user) for user in users), connections=48,
                                on_answer=on_answer)
    finally:
        stop.set()
        turns.release()
        toggler.join()
    rows = {row["seq"]: row for row in coupons(server.database, policy)}
    told = [o.answer.json for o in outcomes if o.answer.status == 201]
    for body in told:
        row = rows[body["seq"]]
        assert (row["user_id"], row["state"]) == (body["user"], "ISSUED"), (body, row)
    assert len({body["seq"] for body in told}) == len(told)
    assert len(told) == sum(row["state"] == "ISSUED" for row in rows.values())
    others = [o for user, o in zip(users, outcomes) if user != "mallory"]
    assert tally(others) == {(201, "ISSUED"): 800}
