"""Time: expiry, windows, and things that must not expire; with a clock that tests can move."""

import os

import pytest

from harness import ROOT, expect, expect_problem, wait_until
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


def test_expiry__not_when_the_window_to_claim_closes(timed, clock):
    policy = timed.create(total=2, closes_at="2098-01-01T00:00:00Z")["id"]
    won = timed.win(policy, "u1")
    assert expect(timed.get(f"/v1/coupons/{won['coupon_id']}"), 200)["expires_at"] is None
    clock.set("@2098-01-01 00:00:10")
    wait_until(lambda: timed.policy(policy)["state"] == "CLOSED", "the end of the window")
    expect_problem(timed.claim(policy, "u2"), 410, "CLOSED")
    clock.set("@2120-01-01 00:00:10")
    assert expect(timed.get(f"/v1/coupons/{won['coupon_id']}"), 200)["state"] == "ISSUED"
    redeemed = timed.post(f"/v1/coupons/{won['code']}/redeem", {"order_id": "o"})
    assert expect(redeemed, 200)["state"] == "REDEEMED"


@pytest.mark.parametrize("days", [None, 36500 // 10])
def test_expiry__at_coupon_expires_at(timed, clock, days):
    end = "2027-01-01T00:00:00.000Z"
    policy = timed.create(total=2, coupon_expires_at=end, coupon_valid_days=days)["id"]
    won = timed.win(policy, "u1")
    assert expect(timed.get(f"/v1/coupons/{won['coupon_id']}"), 200)["expires_at"] == end
    clock.set("@2026-12-31 23:59:00")
    assert expect(timed.claim(policy, "u1"), 200)["coupon_state"] == "ISSUED"
    clock.set("@2027-01-01 00:00:10")
    wait_until(lambda: timed.claim(policy, "u1").json["coupon_state"] == "EXPIRED", "the end")
    assert expect(timed.get(f"/v1/coupons/{won['coupon_id']}"), 200)["state"] == "EXPIRED"
    problem = expect_problem(timed.post(f"/v1/coupons/{won['code']}/redeem", {}), 409, "CONFLICT")
    assert problem["coupon_state"] == "EXPIRED"


def test_expiry__of_policies_of_old_stays_with_their_window(timed, clock):
    """Before there was coupon_expires_at, a coupon without days of its own ended with the window; as
    if an older version had made these, what the migration does comes after them."""
    old = timed.create(total=3, closes_at="2098-01-01T00:00:00Z")["id"]
    dated = timed.create(total=3, closes_at="2098-01-01T00:00:00Z", coupon_valid_days=7)["id"]
    before = timed.win(old, "u1")
    code = timed.win(dated, "u1")["code"]
    timed.stop()
    kind = os.environ.get("DIBS_TEST_LEDGER") or "sqlite"
    text = (ROOT / f"src/ledger/{kind}/migrations/0016_ids_and_money.{kind}.sql").read_text()
    timed.database.execute(text.strip().rstrip(";").split(";")[-1])
    timed.start()
    end = "2098-01-01T00:00:00.000Z"
    assert timed.policy(old)["coupon_expires_at"] == end and timed.policy(old)["currency"] is None
    assert timed.policy(dated)["coupon_expires_at"] is None
    assert expect(timed.get(f"/v1/coupons/{code}"), 200)["expires_at"] < "2098"
    for won in (before, timed.win(old, "u2")):
        assert expect(timed.get(f"/v1/coupons/{won['coupon_id']}"), 200)["expires_at"] == end
    # A window that is moved takes them along when it ends later, and not when it ends earlier.
    for closes_at, expires_at in (("2098-02-01", "2098-02-01"), ("2097-12-01", "2098-02-01")):
        changed = expect(timed.patch(old, closes_at=f"{closes_at}T00:00:00.000Z"), 200)
        assert changed["coupon_expires_at"] == f"{expires_at}T00:00:00.000Z"
    clock.set("@2098-02-01 00:00:10")
    wait_until(lambda: timed.status(old, "u1").json["coupon_state"] == "EXPIRED", "expiry")


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
