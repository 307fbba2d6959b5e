"""Idempotency-Key: every rule of the contract."""

import pytest

from harness import claim_bytes, expect, expect_problem, tally, wait_until
from ledger import coupons


def returned(server, policy_id, user, key=None):
    """Claims until the returned unit is there again (a second at most)."""
    return expect(wait_until(
        lambda: next((a for a in [server.claim(policy_id, user, key=key)]
                      if a.code != "SOLD_OUT"), None), "the returned unit"), 201)


def test_key__same_key_same_claim(shared):
    policy = shared.create(total=10, limit=5)
    first = shared.win(policy["id"], "u1", key="attempt-1")
    for _ in range(3):
        again = expect(shared.claim(policy["id"], "u1", key="attempt-1"), 200)
        assert again["result"] == "ALREADY_ISSUED"
        assert {**again, "result": "ISSUED"} == first
    second = shared.win(policy["id"], "u1", key="attempt-2")
    assert (second["seq"], second["nth"]) == (2, 2)
    assert len(coupons(shared.database, policy["id"])) == 2


def test_key__without_one_each_post_is_a_new_wish(shared):
    policy = shared.create(total=10, limit=3)
    shared.win(policy["id"], "u1", key="k")
    assert [shared.win(policy["id"], "u1")["nth"] for _ in range(2)] == [2, 3]
    expect_problem(shared.claim(policy["id"], "u1"), 409, "LIMIT_REACHED")
    assert expect(shared.claim(policy["id"], "u1", key="k"), 200)["nth"] == 1


def test_key__quoted_and_bare_are_the_same(shared):
    policy = shared.create(total=10, limit=5)
    first = shared.win(policy["id"], "u1", key='"abc-123"')
    assert expect(shared.claim(policy["id"], "u1", key="abc-123"), 200)["seq"] == first["seq"]
    other = shared.win(policy["id"], "u1", key="bare")
    assert expect(shared.claim(policy["id"], "u1", key='"bare"'), 200)["seq"] == other["seq"]


def test_key__case_and_length_matter(shared):
    policy = shared.create(total=10, limit=10)
    keys = ["abc", "ABC", "abcd", "ab", "a", "x" * 128, "x" * 127, "!", "~", "k,k", "a\\b"]
    seqs = [shared.win(policy["id"], "u1", key=key)["seq"] for key in keys[:10]]
    assert seqs == list(range(1, 11))
    for key, seq in zip(keys, seqs):
        assert expect(shared.claim(policy["id"], "u1", key=key), 200)["seq"] == seq


@pytest.mark.parametrize("key", ["", '""', "x" * 129, '"' + "x" * 129 + '"', "a b", "a\tb",
                                 "\u00e9", "a\x7fb"],
                         ids=["empty", "empty quotes", "129", "129 quoted", "blank", "tab",
                              "latin", "del"])
def test_key__bad_key_is_400(shared, key):
    policy = shared.create(total=3)
    answer = shared.claim(policy["id"], "u1", key=key)
    expect_problem(answer, 400, "INVALID_REQUEST")
    assert coupons(shared.database, policy["id"]) == []


def test_key__128_quoted_characters_are_fine(shared):
    policy = shared.create(total=3)
    shared.win(policy["id"], "u1", key='"' + "x" * 128 + '"')


def test_key__twice_is_400(shared):
    policy = shared.create(total=3)
    raw = claim_bytes(policy["id"], "u1", key="a").replace(
        b"Idempotency-Key: a\r\n", b"Idempotency-Key: a\r\nIdempotency-Key: a\r\n")
    with shared.connect() as connection:
        connection.send(raw, "POST")
        expect_problem(connection.receive(), 400, "INVALID_REQUEST")


def test_key__another_users_is_another_key(shared):
    policy = shared.create(total=10, limit=2)
    first = shared.win(policy["id"], "u1", key="k")
    second = shared.win(policy["id"], "u2", key="k")
    # Neither shows the other's claim, nor stands in the way of it.
    for user, won in (("u1", first), ("u2", second)):
        again = expect(shared.claim(policy["id"], user, key="k"), 200)
        assert (again["user"], again["seq"], again["code"]) == (user, won["seq"], won["code"])
    assert first["seq"] != second["seq"]
    # Where one ends and the other begins makes no other key of it.
    assert shared.win(policy["id"], "u", key="1k")["seq"] == 3


def test_key__number_and_text_are_the_same_user(shared):
    policy = shared.create(total=10)
    seq = shared.win(policy["id"], 7, key="k")["seq"]
    assert expect(shared.claim(policy["id"], "7", key="k"), 200)["seq"] == seq


def test_key__scope_is_one_policy(shared):
    one, two = shared.create(total=3), shared.create(total=3)
    shared.win(one["id"], "u1", key="k")
    shared.win(two["id"], "u1", key="k")


def test_key__a_200_binds_the_key(shared):
    policy = shared.create(total=3)
    first = shared.win(policy["id"], "u1")
    assert expect(shared.claim(policy["id"], "u1", key="later"), 200)["seq"] == first["seq"]
    expect(shared.cancel(first["coupon_id"]), 200)
    again = expect(shared.claim(policy["id"], "u1", key="later"), 200)
    assert (again["seq"], again["coupon_state"]) == (first["seq"], "CANCELLED")


def test_key__several_keys_can_name_one_claim(shared):
    policy = shared.create(total=3)
    first = shared.win(policy["id"], "u1", key="k0")
    for i in range(1, 20):
        assert expect(shared.claim(policy["id"], "u1", key=f"k{i}"), 200)["seq"] == 1
    expect(shared.cancel(first["coupon_id"]), 200)
    for i in range(20):
        again = expect(shared.claim(policy["id"], "u1", key=f"k{i}"), 200)
        assert (again["seq"], again["coupon_state"]) == (1, "CANCELLED")


def test_key__one_too_many_is_refused(shared):
    """31 keys besides its own can name a claim; the next is told so, and changes nothing."""
    policy = shared.create(total=3)
    first = shared.win(policy["id"], "u1", key="k0")
    for i in range(1, 32):
        assert expect(shared.claim(policy["id"], "u1", key=f"k{i}"), 200)["seq"] == 1
    for key in ("k32", "k33", "k32"):
        refused = shared.claim(policy["id"], "u1", key=key)
        expect_problem(refused, 400, "INVALID_REQUEST")
        assert refused.json["field"] == "Idempotency-Key" and "31 keys" in refused.json["detail"]
    assert expect(shared.claim(policy["id"], "u1"), 200)["seq"] == 1
    expect(shared.cancel(first["coupon_id"]), 200)
    for i in range(32):
        again = expect(shared.claim(policy["id"], "u1", key=f"k{i}"), 200)
        assert (again["seq"], again["coupon_state"]) == (1, "CANCELLED")
    assert shared.win(policy["id"], "u1", key="k32")["seq"] > 1


def test_key__after_a_cancel_it_still_names_its_claim(shared):
    policy = shared.create(total=3)
    first = shared.win(policy["id"], "u1", key="k")
    expect(shared.cancel(first["coupon_id"]), 200)
    again = expect(shared.claim(policy["id"], "u1", key="k"), 200)
    assert again["result"] == "ALREADY_ISSUED"
    assert (again["seq"], again["coupon_state"]) == (1, "CANCELLED")
    # Without the key, or with a new one, it is a new wish.
    second = shared.win(policy["id"], "u1", key="k2")
    assert second["seq"] > 1
    assert expect(shared.claim(policy["id"], "u1", key="k"), 200)["seq"] == 1
    assert expect(shared.claim(policy["id"], "u1"), 200)["seq"] == second["seq"]


def test_key__after_redeem_the_state_is_told(shared):
    policy = shared.create(total=3)
    first = shared.win(policy["id"], "u1", key="k")
    expect(shared.post(f"/v1/coupons/{first['coupon_id']}/redeem", {"order_id": "o1"}), 200)
    assert expect(shared.claim(policy["id"], "u1", key="k"), 200)["coupon_state"] == "REDEEMED"
    assert expect(shared.claim(policy["id"], "u1"), 200)["coupon_state"] == "REDEEMED"


def test_key__a_refusal_binds_none(shared):
    policy = shared.create(total=1)
    first = shared.win(policy["id"], "u1")
    expect_problem(shared.claim(policy["id"], "u2", key="k"), 409, "SOLD_OUT")
    expect(shared.cancel(first["coupon_id"]), 200)
    # The key that only came with a refusal may win now.
    assert returned(shared, policy["id"], "u2", key="k")["seq"] == 2


@pytest.mark.one_server("who is blocked reaches the other servers within a second")
@pytest.mark.parametrize("refusal", ["PAUSED", "NOT_OPEN", "LIMIT_REACHED", "BLOCKED"])
def test_key__no_refusal_binds_one(shared, refusal):
    policy = shared.create(total=5, limit=2)
    shared.win(policy["id"], "u1")
    shared.win(policy["id"], "u1")
    user = "u2"
    if refusal == "PAUSED":
        shared.patch(policy["id"], paused=True)
    elif refusal == "NOT_OPEN":
        shared.patch(policy["id"], opens_at="2099-01-01T00:00:00Z")
    elif refusal == "LIMIT_REACHED":
        user = "u1"
    else:
        user = "key-blocked"
        expect(shared.request("PUT", f"/v1/users/{user}", {"blocked": True}), 200)
    assert shared.claim(policy["id"], user, key="k").code == refusal
    expect(shared.patch(policy["id"], paused=False, opens_at=None), 200)
    if refusal == "LIMIT_REACHED":
        expect(shared.cancel(f"{policy['id']}-1"), 200)
    elif refusal == "BLOCKED":
        expect(shared.request("PUT", f"/v1/users/{user}", {"blocked": False}), 200)
    shared.win(policy["id"], user, key="k")


def test_key__hundred_parallel_retries_are_one_claim(shared):
    policy = shared.create(total=50, limit=50)
    outcomes = shared.storm([claim_bytes(policy["id"], "u1", key="same") for _ in range(100)])
    assert tally(outcomes) == {(201, "ISSUED"): 1, (200, "ALREADY_ISSUED"): 99}
    assert {o.answer.json["seq"] for o in outcomes} == {1}


def test_key__parallel_users_with_one_key_all_win(shared):
    policy = shared.create(total=50)
    outcomes = shared.storm([claim_bytes(policy["id"], f"u{i}", key="same") for i in range(100)])
    assert tally(outcomes) == {(201, "ISSUED"): 50, (409, "SOLD_OUT"): 50}
    assert len(coupons(shared.database, policy["id"])) == 50


def test_key__everything_about_keys_survives_kill_9(server):
    policy = server.create(total=20, limit=1)
    own = server.win(policy["id"], "u1", key="own")
    plain = server.win(policy["id"], "u2")
    expect(server.claim(policy["id"], "u2", key="bound"), 200)
    gone = server.win(policy["id"], "u3", key="gone")
    expect(server.cancel(gone["coupon_id"]), 200)
    server.restart()
    assert expect(server.claim(policy["id"], "u1", key='"own"'), 200)["seq"] == own["seq"]
    assert expect(server.claim(policy["id"], "u2", key="bound"), 200)["seq"] == plain["seq"]
    again = expect(server.claim(policy["id"], "u3", key="gone"), 200)
    assert (again["seq"], again["coupon_state"]) == (gone["seq"], "CANCELLED")
    assert len(coupons(server.database, policy["id"])) == 3


def test_key__a_bound_key_is_durable_before_its_200(server):
    """Guarantee 8 for bindings: after every 200 with a fresh key, kill -9; the key still knows."""
    policy = server.create(total=5)
    for i in range(3):
        won = server.win(policy["id"], "u1")
        assert expect(server.claim(policy["id"], "u1", key=f"fresh{i}"), 200)["seq"] == won["seq"]
        server.restart()
        # One that had forgotten would let the key win again.
        expect(server.cancel(won["coupon_id"]), 200)
        again = expect(server.claim(policy["id"], "u1", key=f"fresh{i}"), 200)
        assert (again["seq"], again["coupon_state"]) == (won["seq"], "CANCELLED")
