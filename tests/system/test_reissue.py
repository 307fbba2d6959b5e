"""A coupon whose code was lost or has leaked: another one takes its place, in one step."""

import pytest

from harness import claim_bytes, expect, expect_problem, tally, wait_until
from ledger import coupons
from wire import encode


def reissue(server, coupon, **options):
    return server.post(f"/v1/coupons/{coupon}/reissue", {}, **options)


def held(server, policy, user):
    return {row["seq"]: row["state"] for row in coupons(server.database, policy)
            if row["user_id"] == user}


def test_reissue__of_a_policy_that_is_sold_out_asked_again_it_is_the_same(shared):
    policy = shared.create(total=2)["id"]
    won = shared.win(policy, "u1", key="k")
    shared.win(policy, "u2")
    anew = expect(reissue(shared, won["code"]), 200)
    assert (anew["user"], anew["nth"], anew["state"]) == ("u1", 1, "ISSUED")
    assert anew["seq"] == 3 and anew["code"] != won["code"]
    assert expect(reissue(shared, won["coupon_id"]), 200) == anew
    assert expect(shared.get(f"/v1/coupons/{won['code']}"), 200)["state"] == "CANCELLED"
    wait_until(lambda: held(shared, policy, "u1") == {1: "CANCELLED", 3: "ISSUED"}, "the rows")
    # The gate knows, too: whoever presses again has it, and nobody else has anything.
    assert expect(shared.claim(policy, "u1"), 200)["seq"] == 3
    assert expect(shared.claim(policy, "u1", key="k"), 200)["seq"] == 1
    expect_problem(shared.claim(policy, "u3"), 409, "SOLD_OUT")
    view = wait_until(lambda: (seen := shared.policy(policy))["issued"] == 2 and seen, "the numbers")
    assert (view["remaining"], view["pending"]) == (0, 0)
    redeemed = shared.post(f"/v1/coupons/{anew['code']}/redeem", {"order_id": "o"})
    assert expect(redeemed, 200)["state"] == "REDEEMED"
    assert expect(reissue(shared, won["code"]), 200)["state"] == "REDEEMED"


def test_reissue__again_and_again_gives_one_each_time(shared):
    """Each takes the place of the one before, while others win."""
    policy = shared.create(total=30, limit=2)["id"]
    first = shared.win(policy, "u1", key="a")
    other = shared.win(policy, "u1", key="b")
    chain = [first]
    for i in range(5):
        chain.append(expect(reissue(shared, chain[-1]["coupon_id"]), 200))
        shared.win(policy, f"other{i}")
    assert len({one["code"] for one in chain}) == 6
    assert [one["nth"] for one in chain] == [1] * 6
    assert expect(reissue(shared, first["coupon_id"]), 200)["seq"] == chain[1]["seq"]
    expect_problem(shared.claim(policy, "u1", key="c"), 409, "LIMIT_REACHED")
    wait_until(lambda: sorted(held(shared, policy, "u1").values()) ==
               ["CANCELLED"] * 5 + ["ISSUED"] * 2, "the rows")
    view = wait_until(lambda: (seen := shared.policy(policy))["issued"] == 7 and seen, "the numbers")
    assert (view["remaining"], view["pending"]) == (23, 0)
    # A place that is free again is one that can be won.
    expect(shared.cancel(other["coupon_id"]), 200)
    wait_until(lambda: shared.claim(policy, "u1", key="c").status == 201, "the place")


def test_reissue__needs_a_coupon_that_works(shared):
    policy = shared.create(total=9)["id"]
    cancelled, used, blocked = (shared.win(policy, f"{name}-{policy}") for name in "abc")
    expect(shared.cancel(cancelled["code"]), 200)
    expect(shared.post(f"/v1/coupons/{used['code']}/redeem", {}), 200)
    user = f"/v1/users/{blocked['user']}"
    expect(shared.request("PUT", user, {"blocked": True}), 200)
    for coupon, why in ((cancelled, "CANCELLED"), (used, "REDEEMED"), (blocked, "ISSUED")):
        problem = expect_problem(reissue(shared, coupon["coupon_id"]), 409, "CONFLICT")
        assert problem["coupon_state"] == why
    expect(shared.request("PUT", user, {"blocked": False}), 200)
    assert expect(reissue(shared, blocked["coupon_id"]), 200)["user"] == blocked["user"]
    for nothing in (f"{policy}-99", "999999-1", "1-1-AAAAAAAAAAAAA"):
        expect_problem(reissue(shared, nothing), 404, "NOT_FOUND")


def test_reissue__of_a_policy_that_is_paused_or_closed(shared):
    policy = shared.create(total=5)["id"]
    won = [shared.win(policy, f"u{i}") for i in range(2)]
    expect(shared.patch(policy, paused=True), 200)
    assert expect(reissue(shared, won[0]["coupon_id"]), 200)["state"] == "ISSUED"
    expect(shared.request("DELETE", f"/v1/policies/{policy}"), 200)
    anew = expect(reissue(shared, won[1]["coupon_id"]), 200)
    assert expect(shared.get(f"/v1/coupons/{anew['code']}"), 200)["state"] == "ISSUED"
    assert expect(reissue(shared, won[1]["coupon_id"]), 200) == anew


def test_reissue__many_at_once_in_a_rush_are_exact(server):
    """Every winner's coupon is given anew twice while a crowd takes the rest; then a restart."""
    policy = server.create(total=60)["id"]
    winners = [server.win(policy, f"w{i}") for i in range(20)]
    requests = [encode("POST", f"/v1/coupons/{one['coupon_id']}/reissue", {}) for one in winners]
    crowd = [claim_bytes(policy, f"c{i}") for i in range(80)]
    requests = [one for pair in zip(requests * 2, crowd) for one in pair] + crowd[40:]
    outcomes = server.storm(requests, connections=16)
    told = tally(outcomes)
    anew = [one.answer.json for one in outcomes if one.answer.json.get("state") == "ISSUED"
            and one.answer.json["user"].startswith("w")]
    assert len(anew) == 40 and len({one["code"] for one in anew}) == 20, told
    assert told[(201, "ISSUED")] == 40, told
    for _ in range(2):
        rows = wait_until(lambda: len(found := [row for row in coupons(server.database, policy)
                                                if row["state"] == "ISSUED"]) == 60 and found,
                          "all rows")
        assert {row["user_id"]: row["seq"] for row in rows
                if row["user_id"].startswith("w")} == {one["user"]: one["seq"] for one in anew}
        expect_problem(server.claim(policy, "late"), 409, "SOLD_OUT")
        for one in anew[:5]:
            assert expect(server.claim(policy, one["user"]), 200)["seq"] == one["seq"]
        server.restart()


@pytest.mark.parametrize("days", [None, 30])
def test_reissue__the_new_one_ends_as_a_new_one_does(shared, days):
    """By the policy's own end; or, where coupons have days of their own, after as many from now."""
    ends = {"coupon_valid_days": days} if days else {"coupon_expires_at": "2040-01-01T00:00:00.000Z"}
    policy = shared.create(total=1, **ends)["id"]
    won = shared.win(policy, "u")
    old = expect(shared.get(f"/v1/coupons/{won['code']}"), 200)
    anew = expect(reissue(shared, won["code"]), 200)
    if days:
        assert anew["expires_at"] > old["expires_at"]
    else:
        assert anew["expires_at"] == old["expires_at"] == ends["coupon_expires_at"]
