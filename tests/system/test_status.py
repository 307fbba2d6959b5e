"""What a claimant and a watcher can see: status, ?wait=, server-sent events."""

import time

import pytest

from harness import claim_bytes, expect, expect_problem, now_rfc3339, wait_until
from wire import SLOW, Closed, encode


def test_status__of_a_winner(shared):
    policy = shared.create(total=3, coupon_valid_days=7)
    shared.win(policy["id"], "first")
    won = shared.win(policy["id"], "u1")
    status = expect(shared.status(policy["id"], "u1"), 200)
    assert (status["state"], status["coupon_state"]) == ("ISSUED", "ISSUED")
    for name in ("policy_id", "user", "seq", "nth", "coupon_id", "code"):
        assert status[name] == won[name]
    assert status["ahead"] == 0
    assert status["issued_at"] >= status["requested_at"]
    assert status["expires_at"] > status["issued_at"]
    assert len(status["claims"]) == 1
    for name, value in status["claims"][0].items():
        assert status[name] == value


def test_status__of_many_who_ask_at_once(shared):
    policy = shared.create(total=100)
    won = {f"u{i}": shared.win(policy["id"], f"u{i}") for i in range(100)}
    users = [f"u{i % 110}" for i in range(600)]
    outcomes = shared.storm((encode("GET", f"/v1/policies/{policy['id']}/claims/{user}")
                             for user in users), connections=60, pipeline=5)
    for user, outcome in zip(users, outcomes):
        if user in won:
            assert expect(outcome.answer, 200)["seq"] == won[user]["seq"]
        else:
            expect_problem(outcome.answer, 404, "NO_CLAIM")


def test_status__shows_all_claims_latest_first(shared):
    policy = shared.create(total=9, limit=3)
    wins = [shared.win(policy["id"], "u1") for _ in range(3)]
    shared.win(policy["id"], "u2")
    expect(shared.cancel(wins[1]["coupon_id"]), 200)
    expect(shared.post(f"/v1/coupons/{wins[2]['coupon_id']}/redeem", {"order_id": "o"}), 200)
    status = expect(shared.status(policy["id"], "u1"), 200)
    assert (status["seq"], status["coupon_state"]) == (3, "REDEEMED")
    assert [(c["seq"], c["nth"], c["coupon_state"]) for c in status["claims"]] == [
        (3, 3, "REDEEMED"), (2, 2, "CANCELLED"), (1, 1, "ISSUED")]


def test_status__of_the_latest_claim_when_it_is_cancelled(shared):
    policy = shared.create(total=3)
    won = shared.win(policy["id"], "u1")
    expect(shared.cancel(won["coupon_id"]), 200)
    status = expect(shared.status(policy["id"], "u1"), 200)
    assert (status["state"], status["coupon_state"]) == ("ISSUED", "CANCELLED")


@pytest.mark.parametrize("change,state", [
    ({}, "OPEN"), ({"paused": True}, "PAUSED"), ({"opens_at": "2098-01-01T00:00:00Z"}, "SCHEDULED"),
    ({"closes_at": "2020-01-01T00:00:00Z"}, "CLOSED"),
])
def test_status__without_a_claim_names_the_policys_state(shared, change, state):
    policy = shared.create(total=3)
    if change:
        expect(shared.patch(policy["id"], **change), 200)
    problem = expect_problem(shared.status(policy["id"], "u1"), 404, "NO_CLAIM",
                             policy_state=state)
    assert "sold_out_at" not in problem


def test_status__sold_out_at_goes_when_stock_returns(shared):
    policy = shared.create(total=1)
    won = shared.win(policy["id"], "u1")
    problem = expect_problem(shared.status(policy["id"], "u2"), 404, "NO_CLAIM",
                             policy_state="SOLD_OUT")
    assert problem["sold_out_at"] <= now_rfc3339(1)
    expect(shared.cancel(won["coupon_id"]), 200)
    wait_until(lambda: shared.status(policy["id"], "u2").json["policy_state"] == "OPEN",
               "stock that came back")
    assert "sold_out_at" not in shared.status(policy["id"], "u2").json


def test_status__of_an_unknown_policy(shared):
    expect_problem(shared.status(123456789, "u1"), 404, "POLICY_NOT_FOUND")


@pytest.mark.parametrize("wait", ["-1", "61", "x", "", "1.5", "1s", "99999999999"])
def test_status__bad_wait_is_400(shared, wait):
    policy = shared.create(total=3)
    shared.win(policy["id"], "u1")
    expect_problem(shared.status(policy["id"], "u1", f"?wait={wait}"), 400, "INVALID_REQUEST")


@pytest.mark.parametrize("wait", [0, 1, 60])
def test_status__wait_answers_at_once_when_final(shared, wait):
    policy = shared.create(total=3)
    shared.win(policy["id"], "u1")
    begin = time.monotonic()
    status = expect(shared.status(policy["id"], "u1", f"?wait={wait}"), 200)
    assert status["state"] == "ISSUED"
    assert time.monotonic() - begin < 30 * SLOW


def test_status__unknown_query_is_400(shared):
    policy = shared.create(total=3)
    expect_problem(shared.status(policy["id"], "u1", "?weight=1"), 400, "INVALID_REQUEST")


def test_claim_events__a_final_status_and_the_end(shared):
    policy = shared.create(total=3)
    won = shared.win(policy["id"], "u1")
    with shared.events_of(f"/v1/policies/{policy['id']}/claims/u1/events") as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].split(";")[0] == "text/event-stream"
        assert stream.headers["cache-control"] in ("no-cache", "no-store")
        name, status = stream.next()
        assert (name, status["seq"], status["state"]) == ("status", won["seq"], "ISSUED")
        assert status == expect(shared.status(policy["id"], "u1"), 200)
        with pytest.raises((Closed, ConnectionError)):
            stream.next()


def test_claim_events__no_claim_and_no_policy(shared):
    policy = shared.create(total=3)
    answer = shared.get(f"/v1/policies/{policy['id']}/claims/u1/events")
    expect_problem(answer, 404, "NO_CLAIM", policy_state="OPEN")
    expect_problem(shared.get("/v1/policies/123456789/claims/u1/events"), 404, "POLICY_NOT_FOUND")


def test_policy_events__live_numbers(shared):
    policy = shared.create(total=20)
    before = now_rfc3339()
    with shared.events_of(f"/v1/policies/{policy['id']}/events") as stream:
        name, numbers = stream.next()
        assert name == "numbers"
        assert before <= numbers.pop("now") <= now_rfc3339(1)
        assert numbers == {"policy_id": policy["id"], "state": "OPEN", "total": 20,
                           "remaining": 20, "pending": 0, "issued": 0, "paused": False,
                           "opens_at": None, "closes_at": None, "sold_out_at": None}
        shared.claims(policy["id"], [f"u{i}" for i in range(30)])
        deadline = time.monotonic() + 60 * SLOW
        while numbers["issued"] != 20:
            assert time.monotonic() < deadline, numbers
            name, numbers = stream.next()
            assert numbers["remaining"] + numbers["pending"] + numbers["issued"] == 20
        assert numbers["state"] == "SOLD_OUT"
        assert before <= numbers["sold_out_at"] <= numbers["now"]
        expect(shared.patch(policy["id"], paused=True), 200)
        while numbers["state"] != "PAUSED":
            name, numbers = stream.next()


def test_policy_events__a_few_a_second_also_in_a_rush(server):
    policy = server.create(total=5000)
    path = f"/v1/policies/{policy['id']}/events"
    with server.events_of(path) as stream:
        begin = time.monotonic()
        server.storm((claim_bytes(policy["id"], f"u{i}") for i in range(5000)), connections=64)
        count = 0
        numbers = {"issued": 0}
        while numbers["issued"] != 5000:
            _, numbers = stream.next()
            count += 1
        spent_s = time.monotonic() - begin
    assert count <= 3 + 10 * spent_s


def test_policy_events__many_watchers_and_some_go_away(shared):
    policy = shared.create(total=10)
    path = f"/v1/policies/{policy['id']}/events"
    streams = [shared.events_of(path) for _ in range(50)]
    try:
        for stream in streams:
            assert stream.next()[1]["remaining"] == 10
        for stream in streams[::2]:
            stream.connection.close()
        shared.win(policy["id"], "u1")
        for stream in streams[1::2]:
            assert stream.next()[1]["remaining"] == 9
    finally:
        for stream in streams:
            stream.connection.close()


def test_policy_events__of_no_policy(shared):
    expect_problem(shared.get("/v1/policies/123456789/events"), 404, "POLICY_NOT_FOUND")


def test_policy_events__end_with_a_graceful_stop(server):
    policy = server.create(total=10)
    with server.events_of(f"/v1/policies/{policy['id']}/events") as stream:
        stream.next()
        server.stop()
        with pytest.raises((Closed, ConnectionError)):
            while True:
                stream.next()
