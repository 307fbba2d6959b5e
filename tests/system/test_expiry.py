"""Time: expiry, windows, and things that must not expire; with a clock that tests can move."""

import pytest

from harness import expect, expect_problem, wait_until
from ledger import coupons
from virtual_clock import Clock

DAY = 86400


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


@pytest.fixture
def timed(serve, clock):
    """A server whose wall clock the test moves."""
    return serve(env=clock.environment())


pytestmark = pytest.mark.heavy


def test_expiry__after_coupon_valid_days(timed, clock):
    policy = timed.create(total=2, coupon_valid_days=7)["id"]
    won = timed.win(policy, "u1")
    status = expect(timed.status(policy, "u1"), 200)
    clock.forward(7 * DAY - 60)
    assert expect(timed.get(f"/v1/coupons/{won['coupon_id']}"), 200)["state"] == "ISSUED"
    clock.forward(7 * DAY + 60)
    wait_until(lambda: timed.status(policy, "u1").json["coupon_state"] == "EXPIRED", "expiry")
    coupon = expect(timed.get(f"/v1/coupons/{won['coupon_id']}"), 200)
    assert coupon["state"] == "EXPIRED"
    assert coupon["expires_at"] == status["expires_at"]
    for path, body in (("redeem", {"order_id": "o"}), ("cancel", {})):
        problem = expect_problem(timed.post(f"/v1/coupons/{won['code']}/{path}", body), 409,
                                 "CONFLICT")
        assert problem["coupon_state"] == "EXPIRED"
    # An expired coupon still counts: its unit and its place are not given again.
    assert expect(timed.claim(policy, "u1"), 200)["coupon_state"] == "EXPIRED"
    assert timed.policy(policy)["issued"] == 1


def test_expiry__at_closes_at(timed, clock):
    policy = timed.create(total=2, closes_at="2098-01-01T00:00:00Z")["id"]
    won = timed.win(policy, "u1")
    assert expect(timed.get(f"/v1/coupons/{won['coupon_id']}"), 200)["expires_at"] == \
        "2098-01-01T00:00:00.000Z"
    clock.set("@2098-01-01 00:00:10")
    wait_until(lambda: timed.policy(policy)["state"] == "CLOSED", "the end of the window")
    assert expect(timed.get(f"/v1/coupons/{won['coupon_id']}"), 200)["state"] == "EXPIRED"
    expect_problem(timed.claim(policy, "u2"), 410, "CLOSED")


def test_expiry__redeemed_in_time_stays_redeemed(timed, clock):
    policy = timed.create(total=2, coupon_valid_days=1)["id"]
    won = timed.win(policy, "u1")
    first = expect(timed.post(f"/v1/coupons/{won['code']}/redeem", {"order_id": "o"}), 200)
    clock.forward(3 * DAY)
    again = expect(timed.post(f"/v1/coupons/{won['code']}/redeem", {"order_id": "o"}), 200)
    assert again == first


def test_expiry__survives_a_restart(timed, clock):
    policy = timed.create(total=2, coupon_valid_days=1)["id"]
    won = timed.win(policy, "u1")
    clock.forward(2 * DAY)
    timed.restart()
    assert expect(timed.get(f"/v1/coupons/{won['coupon_id']}"), 200)["state"] == "EXPIRED"
    assert expect(timed.claim(policy, "u1"), 200)["coupon_state"] == "EXPIRED"


@pytest.mark.parametrize("limit", [1, 2])
def test_dedupe__does_not_expire_while_the_policy_lives(timed, clock, limit):
    """Trap 8: status and dedupe keys expire, and the user can claim again."""
    policy = timed.create(total=10, limit=limit)["id"]
    first = timed.win(policy, "u1", key="k")
    for seconds in (200, 3600, DAY, 365 * DAY, 3650 * DAY):
        clock.forward(seconds)
        again = expect(timed.claim(policy, "u1", key="k"), 200)
        assert again["seq"] == first["seq"]
        assert expect(timed.status(policy, "u1"), 200)["seq"] == first["seq"]
        if limit == 1:
            assert expect(timed.claim(policy, "u1"), 200)["seq"] == first["seq"]
    timed.restart()
    assert expect(timed.claim(policy, "u1", key="k"), 200)["seq"] == first["seq"]
    assert len(coupons(timed.database, policy)) == 1


def test_window__opens_when_the_clock_says(timed, clock):
    policy = timed.create(total=2, opens_at="2098-01-01T00:00:00Z")["id"]
    expect_problem(timed.claim(policy, "u1"), 403, "NOT_OPEN")
    clock.set("@2097-12-31 23:59:30")
    answer = timed.claim(policy, "u1")
    expect_problem(answer, 403, "NOT_OPEN")
    assert 1 <= int(answer.headers["retry-after"]) <= 34  # Jitter spreads the crowd.
    clock.set("@2098-01-01 00:00:01")
    assert timed.win(policy, "u1")["seq"] == 1


def test_clock__that_jumps_back_loses_nothing(timed, clock):
    """Trap 7's kin: order comes from seqs, never from the wall clock."""
    policy = timed.create(total=10)["id"]
    seqs = [timed.win(policy, "a")["seq"]]
    clock.set("-3600")
    seqs.append(timed.win(policy, "b")["seq"])
    clock.forward(7200)
    seqs.append(timed.win(policy, "c")["seq"])
    timed.restart()
    clock.set("-86400")
    seqs.append(timed.win(policy, "d")["seq"])
    assert seqs == [1, 2, 3, 4]
    assert expect(timed.claim(policy, "b"), 200)["seq"] == 2
