"""Coupons: codes, lists, redeem, cancel, and stock that comes back."""

import os
import re

import pytest

from crew import GATE
from harness import ROOT, claim_bytes, expect, expect_problem, tally, wait_until
from ledger import coupons
from wire import encode


def redeem(server, coupon, order="o1", **options):
    body = {"order_id": order} if order is not None else {}
    return server.post(f"/v1/coupons/{coupon}/redeem", body, **options)


def claim_returned(server, policy_id, user):
    """The unit that was given back, claimed within a second."""
    return expect(wait_until(
        lambda: next((a for a in [server.claim(policy_id, user)] if a.status != 409), None),
        "the returned unit"), 201)


def test_coupon__shown_by_id_and_by_code(shared):
    policy = shared.create(total=3)
    won = shared.win(policy["id"], "u1")
    coupon = expect(shared.get(f"/v1/coupons/{won['coupon_id']}"), 200)
    assert coupon["coupon_id"] == won["coupon_id"]
    assert coupon["code"] == won["code"]
    assert (coupon["user"], coupon["seq"], coupon["nth"]) == ("u1", 1, 1)
    assert coupon["state"] == "ISSUED"
    for name in ("redeemed_at", "cancelled_at", "order_id", "expires_at"):
        assert coupon[name] is None
    assert expect(shared.get(f"/v1/coupons/{won['code']}"), 200) == coupon
    assert expect(shared.get(f"/v1/coupons/{won['code'].lower()}"), 200) == coupon


@pytest.mark.parametrize("name", ["999999-1", "1-999999", "0-1", "1-0", "-1-1", "abc", "1", "1-",
                                  "1-1-", "1-1-AAAAAAA", "1-1-AAAAAAAAA", "1-1-!!!!!!!!", "01-1",
                                  "1-01", "99999999999999999999-1", "1--1", "%00",
                                  "1-1-AAAAAAAA-1"])
def test_coupon__nothing_of_that_name(shared, name):
    for answer in (shared.get(f"/v1/coupons/{name}"), redeem(shared, name),
                   shared.cancel(name)):
        assert (answer.status, answer.code) in [
            (404, "NOT_FOUND"), (400, "INVALID_REQUEST")], answer


def test_coupon__a_wrong_code_opens_nothing(shared):
    policy = shared.create(total=3)
    won = shared.win(policy["id"], "u1")
    prefix, mac = won["code"].rsplit("-", 1)
    for position in range(8):
        letter = "A" if mac[position] != "A" else "B"
        wrong = f"{prefix}-{mac[:position]}{letter}{mac[position + 1:]}"
        for answer in (shared.get(f"/v1/coupons/{wrong}"), redeem(shared, wrong),
                       shared.cancel(wrong)):
            assert answer.status in (401, 404), answer
    assert expect(shared.get(f"/v1/coupons/{won['coupon_id']}"), 200)["state"] == "ISSUED"


def test_coupon__codes_cannot_be_told_from_each_other(shared):
    policy = shared.create(total=200)
    outcomes = shared.claims(policy["id"], [f"u{i}" for i in range(200)])
    macs = [o.answer.json["code"].rsplit("-", 1)[1] for o in outcomes]
    assert len(set(macs)) == 200
    letters = set("".join(macs))
    assert letters <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
    assert len(letters) == 32
    for position in range(8):
        assert len({mac[position] for mac in macs}) > 16


def test_coupon__codes_are_the_same_after_a_restart(server):
    policy = server.create(total=3)
    won = server.win(policy["id"], "u1")
    server.restart()
    assert expect(server.claim(policy["id"], "u1"), 200)["code"] == won["code"]
    expect(redeem(server, won["code"]), 200)


@pytest.mark.gate_local("about what is kept in the ledger")
def test_coupon__codes_of_policies_of_old_stay_as_they_are(server):
    """Codes have 13 characters; those of policies from before there were so many keep their 8."""
    old = server.win(server.create(total=5)["id"], "ann")
    assert re.fullmatch(r"\d+-\d+-[0-9A-HJKMNP-TV-Z]{13}", old["code"]), old
    server.stop()
    # As if an older version had made it: what the migration notes comes after it.
    kind = os.environ.get("DIBS_TEST_LEDGER") or "sqlite"
    text = (ROOT / f"src/ledger/{kind}/migrations/0013_codes.{kind}.sql").read_text()
    server.database.execute(text.strip().rstrip(";").split(";")[-1])
    server.start()
    short = old["code"][:-5]
    again = expect(server.claim(old["policy_id"], "ann"), 200)
    assert again["code"] == short
    assert expect(server.get(f"/v1/coupons/{short}"), 200)["user"] == "ann"
    expect_problem(server.get(f"/v1/coupons/{old['code']}"), 404, "NOT_FOUND")
    # A new policy gets the long ones, and nothing shorter opens them.
    new = server.win(server.create(total=5)["id"], "ann")
    assert len(new["code"].split("-")[2]) == 13
    expect_problem(server.get(f"/v1/coupons/{new['code'][:-5]}"), 404, "NOT_FOUND")
    expect(server.get(f"/v1/coupons/{new['code']}"), 200)


def test_coupon__codes_of_two_ledgers_differ(serve):
    codes = []
    for _ in range(2):
        server = serve()
        server.create(total=1, id=1)
        codes.append(server.win(1, "u1")["code"])
    assert codes[0] != codes[1]


def test_coupon__redeem_by_id_then_again(shared):
    policy = shared.create(total=3)
    won = shared.win(policy["id"], "u1")
    first = expect(redeem(shared, won["coupon_id"], "order-1"), 200)
    assert (first["state"], first["order_id"]) == ("REDEEMED", "order-1")
    assert first["redeemed_at"] >= first["issued_at"]
    assert expect(redeem(shared, won["coupon_id"], "order-1"), 200) == first
    assert expect(redeem(shared, won["code"], "order-1"), 200) == first
    problem = expect_problem(redeem(shared, won["coupon_id"], "order-2"), 409, "CONFLICT")
    assert problem["coupon_state"] == "REDEEMED"
    assert expect(shared.get(f"/v1/coupons/{won['coupon_id']}"), 200) == first


def test_coupon__redeem_by_code(shared):
    policy = shared.create(total=3)
    won = shared.win(policy["id"], "u1")
    assert expect(redeem(shared, won["code"], 17), 200)["order_id"] == "17"


def test_coupon__redeem_without_an_order(shared):
    policy = shared.create(total=3)
    won = shared.win(policy["id"], "u1")
    first = expect(redeem(shared, won["coupon_id"], None), 200)
    assert (first["state"], first["order_id"]) == ("REDEEMED", None)
    assert expect(redeem(shared, won["coupon_id"], None), 200) == first


@pytest.mark.parametrize("order", ["", "a ", "x" * 129, ".", None, True, 1.5, -1, []])
def test_coupon__bad_order_id_is_400(shared, order):
    policy = shared.create(total=3)
    won = shared.win(policy["id"], "u1")
    answer = shared.post(f"/v1/coupons/{won['coupon_id']}/redeem", {"order_id": order})
    expect_problem(answer, 400, "INVALID_REQUEST", field="order_id")
    assert expect(shared.get(f"/v1/coupons/{won['coupon_id']}"), 200)["state"] == "ISSUED"


def test_coupon__cancel_then_again(shared):
    policy = shared.create(total=3)
    won = shared.win(policy["id"], "u1")
    first = expect(shared.cancel(won["coupon_id"]), 200)
    assert first["state"] == "CANCELLED" and first["cancelled_at"]
    assert expect(shared.cancel(won["coupon_id"]), 200) == first
    assert expect(shared.cancel(won["code"]), 200) == first
    problem = expect_problem(redeem(shared, won["coupon_id"]), 409, "CONFLICT")
    assert problem["coupon_state"] == "CANCELLED"
    wait_until(lambda: shared.policy(policy["id"])["remaining"] == 3, "the unit")
    assert shared.policy(policy["id"])["issued"] == 0


def test_coupon__redeemed_cannot_be_cancelled(shared):
    policy = shared.create(total=1)
    won = shared.win(policy["id"], "u1")
    expect(redeem(shared, won["coupon_id"]), 200)
    problem = expect_problem(shared.cancel(won["coupon_id"]), 409, "CONFLICT")
    assert problem["coupon_state"] == "REDEEMED"
    expect_problem(shared.claim(policy["id"], "u2"), 409, "SOLD_OUT")


def test_coupon__many_cancels_of_one_return_one_unit(shared):
    policy = shared.create(total=1)
    won = shared.win(policy["id"], "u1")
    path = f"/v1/coupons/{won['coupon_id']}/cancel"
    outcomes = shared.storm([encode("POST", path, {}) for _ in range(50)])
    assert all(o.answer.status == 200 for o in outcomes)
    wait_until(lambda: shared.policy(policy["id"])["remaining"] == 1, "the unit")
    outcomes = shared.claims(policy["id"], [f"x{i}" for i in range(20)])
    assert tally(outcomes) == {(201, "ISSUED"): 1, (409, "SOLD_OUT"): 19}


def test_coupon__redeem_and_cancel_at_once_only_one_wins(shared):
    policy = shared.create(total=40)
    wins = [o.answer.json for o in shared.claims(policy["id"], [f"u{i}" for i in range(40)])]
    requests = []
    for won in wins:
        requests.append(encode("POST", f"/v1/coupons/{won['coupon_id']}/redeem",
                               {"order_id": "o"}))
        requests.append(encode("POST", f"/v1/coupons/{won['coupon_id']}/cancel", {}))
    outcomes = shared.storm(requests)
    for redeemed, cancelled in zip(outcomes[::2], outcomes[1::2]):
        assert sorted([redeemed.answer.status, cancelled.answer.status]) == [200, 409]


def test_coupon__cancelled_stock_is_claimable_within_a_second_with_a_new_seq(shared):
    """Trap 23: SOLD_OUT cached after stock came back."""
    policy = shared.create(total=3)
    wins = [shared.win(policy["id"], f"u{i}") for i in range(3)]
    for _ in range(5):
        expect_problem(shared.claim(policy["id"], "late"), 409, "SOLD_OUT")
    assert shared.policy(policy["id"])["state"] == "SOLD_OUT"
    expect(shared.cancel(wins[1]["coupon_id"]), 200)
    again = claim_returned(shared, policy["id"], "late")
    assert again["seq"] == 4
    expect_problem(shared.claim(policy["id"], "later"), 409, "SOLD_OUT")
    rows = {row["seq"]: (row["user_id"], row["state"])
            for row in coupons(shared.database, policy["id"])}
    assert rows == {1: ("u0", "ISSUED"), 2: ("u1", "CANCELLED"), 3: ("u2", "ISSUED"),
                    4: ("late", "ISSUED")}


def test_coupon__cancelled_stock_goes_to_the_back(shared):
    """While the gate still has stock, a returned unit comes after it."""
    policy = shared.create(total=5)
    wins = [shared.win(policy["id"], f"u{i}") for i in range(3)]
    expect(shared.cancel(wins[0]["coupon_id"]), 200)
    wait_until(lambda: shared.policy(policy["id"])["remaining"] == 3, "the unit")
    seqs = [shared.win(policy["id"], f"v{i}")["seq"] for i in range(3)]
    assert seqs == [4, 5, 6]


def test_coupon__cancel_and_reclaim_a_hundred_times(server):
    """Trap 32: the old row's UNIQUE key refuses the user's new claim."""
    # A gate in Redis gets returned units half a second later, all that there are.
    policy = server.create(total=1 if GATE == "local" else 40)
    seqs = []
    for _ in range(100):
        won = claim_returned(server, policy["id"], "u1")
        assert won["nth"] == 1
        seqs.append(won["seq"])
        expect(server.cancel(won["coupon_id"]), 200)
    assert seqs == sorted(set(seqs)) and len(seqs) == 100
    rows = coupons(server.database, policy["id"])
    assert [row["state"] for row in rows] == ["CANCELLED"] * 100
    assert all(row["slot"] is None for row in rows)
    server.restart()
    assert claim_returned(server, policy["id"], "u1")["seq"] > max(seqs)
    status = expect(server.status(policy["id"], "u1"), 200)
    assert len(status["claims"]) == 101


def test_coupon__cancel_and_reclaim_with_a_limit_of_three(shared):
    policy = shared.create(total=3, limit=3)
    held = [shared.win(policy["id"], "u1") for _ in range(3)]
    for round_number in range(30 if GATE == "local" else 6):
        gone = held.pop(round_number % 3)
        expect(shared.cancel(gone["coupon_id"]), 200)
        won = claim_returned(shared, policy["id"], "u1")
        assert won["nth"] == gone["nth"]
        held.append(won)
        assert sorted(c["nth"] for c in held) == [1, 2, 3]


def test_coupon__cancel_storm_during_a_rush(server):
    """Units that come back while others claim: nothing oversold, nothing lost."""
    policy = server.create(total=200)
    given_back = [0]

    def on_answer(outcome):
        if outcome.answer.status == 201 and outcome.answer.json["seq"] % 3 == 0:
            expect(server.cancel(outcome.answer.json["coupon_id"]), 200)
            given_back[0] += 1

    server.storm((claim_bytes(policy["id"], f"u{i}") for i in range(1500)), connections=32,
                 on_answer=on_answer)
    assert given_back[0] >= 66
    wait_until(lambda: server.policy(policy["id"])["remaining"] +
               server.policy(policy["id"])["issued"] == 200, "all units accounted for")
    # Whatever is left can be claimed to the last unit.
    left = server.policy(policy["id"])["remaining"]
    outcomes = server.claims(policy["id"], [f"z{i}" for i in range(left + 5)])
    wins = tally(outcomes).get((201, "ISSUED"), 0)
    assert wins == left, tally(outcomes)


def test_coupon__cancel_returns_stock_also_after_a_kill(server):
    """A unit returned just before kill -9 is claimable after the restart."""
    policy = server.create(total=1)
    # Workers that were killed are stewards for a second more.
    for i in range(3 if GATE == "local" else 1):
        won = claim_returned(server, policy["id"], f"u{i}")
        expect(server.cancel(won["coupon_id"]), 200)
        server.restart()
    assert claim_returned(server, policy["id"], "last")["seq"] >= (4 if GATE == "local" else 2)


def test_coupon__cancel_on_a_closed_policy_does_not_reopen_it(shared):
    policy = shared.create(total=1)
    won = shared.win(policy["id"], "u1")
    expect(shared.request("DELETE", f"/v1/policies/{policy['id']}"), 200)
    expect(shared.cancel(won["coupon_id"]), 200)
    expect_problem(shared.claim(policy["id"], "u2"), 410, "CLOSED")


# --- lists ---


def test_coupons__of_a_user_page_by_page(shared):
    policies = [shared.create(total=20, limit=10)["id"] for _ in range(3)]
    wins = [shared.win(policy, "collector")["coupon_id"] for policy in policies for _ in range(4)]
    seen, after = [], ""
    while True:
        page = expect(shared.get(f"/v1/users/collector/coupons?limit=5{after}"), 200)
        assert set(page) == {"items", "next"} and len(page["items"]) <= 5
        seen += page["items"]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert [coupon["coupon_id"] for coupon in seen] == wins
    assert all(coupon["code"].startswith(coupon["coupon_id"] + "-") for coupon in seen)


def test_coupons__page_stays_put_while_more_are_won(shared):
    policy = shared.create(total=20, limit=10)["id"]
    for _ in range(3):
        shared.win(policy, "stayer")
    page = expect(shared.get("/v1/users/stayer/coupons?limit=2"), 200)
    shared.win(policy, "stayer")
    rest = expect(shared.get(f"/v1/users/stayer/coupons?limit=9&after={page['next']}"), 200)
    seqs = [coupon["seq"] for coupon in page["items"] + rest["items"]]
    assert seqs == [1, 2, 3, 4]


def test_coupons__of_a_user_who_has_none(shared):
    assert expect(shared.get("/v1/users/nobody-at-all/coupons"), 200) == {
        "items": [], "next": None}


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after=nonsense", "after=",
                                   "page=2"])
def test_coupons__bad_query_is_400(shared, query):
    expect_problem(shared.get(f"/v1/users/u1/coupons?{query}"), 400, "INVALID_REQUEST")


@pytest.mark.parametrize("user", ["a%20", "%2e%2e", "a%2fb", "%00", "x" * 129, "%zz", "%e9"])
def test_coupons__bad_user_is_refused(shared, user):
    answer = shared.get(f"/v1/users/{user}/coupons")
    assert (answer.status, answer.code) in [(400, "INVALID_REQUEST"), (404, "NOT_FOUND")], answer
