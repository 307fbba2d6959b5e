"""A policy that is closed and drained leaves Redis; the ledger answers for it from then on."""

import pytest

from harness import expect, expect_problem, now_rfc3339, wait_until
from servers import Postgres, Redis
from sharing import Sharing


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


def keys_of(redis, policy):
    with redis.client() as client:
        return client.keys(f"COUPON:POLICY:{{{policy}}}:*")


def is_let_go(redis, policy):
    """Whether all of its keys have a time to live."""
    with redis.client() as client:
        names = client.keys(f"COUPON:POLICY:{{{policy}}}:*")
        return names and all(client.ttl(name) > 0 for name in names)


def sell_and_close(shop, server, limit):
    """Two winners, one of them by key and with a redeemed coupon, and a loser at the door."""
    policy = server.create(total=5, limit=limit)["id"]
    by_key = expect(server.claim(policy, "keyed", key="k"), 202)
    plain = expect(server.claim(policy, "plain"), 202)
    expect(server.request("PUT", "/v1/users/blocked", {"blocked": True}), 200)
    shop.await_drained(policy)
    expect(server.post(f"/v1/coupons/{by_key['coupon_id']}/redeem", {"order_id": "o1"}), 200)
    expect(server.request("DELETE", f"/v1/policies/{policy}"), 200)
    wait_until(lambda: is_let_go(shop.redis, policy), "it is let go")
    return policy, by_key["seq"], plain["seq"]


def expect_answers(server, policy, keyed, plain, limit):
    """What everyone is told, as while it was in Redis."""
    by_key = expect(server.claim(policy, "keyed", key="k"), 200)
    assert (by_key["seq"], by_key["coupon_state"]) == (keyed, "REDEEMED")
    if limit == 1:
        assert expect(server.claim(policy, "plain"), 200)["seq"] == plain
    else:
        expect_problem(server.claim(policy, "plain"), 410, "CLOSED")
    expect_problem(server.claim(policy, "late"), 410, "CLOSED")
    expect_problem(server.claim(policy, "blocked"), 403, "BLOCKED")
    assert expect(server.status(policy, "plain"), 200)["seq"] == plain
    expect_problem(server.status(policy, "late"), 404, "NO_CLAIM", policy_state="CLOSED")
    shown = server.policy(policy)
    assert (shown["state"], shown["issued"], shown["pending"]) == ("CLOSED", 2, 0)
    listed = expect(server.get("/v1/policies"), 200)["items"]
    assert [(item["id"], item["state"]) for item in listed] == [(policy, "CLOSED")]
    cancelled = server.cancel(f"{policy}-{keyed}")
    expect_problem(cancelled, 409, "CONFLICT")


@pytest.mark.parametrize("limit", [1, 2])
def test_redis_closed__answers_after_redis_forgot_it(tmp_path, redis, limit):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve()
        policy, *seqs = sell_and_close(shop, server, limit)
        expect_answers(server, policy, *seqs, limit)
        # Its keys survive a restart, and what was in Redis's memory does not.
        redis.kill()
        redis.start()
        wait_until(lambda: server.claim(policy, "late").status == 410, "Redis is back")
        expect_answers(server, policy, *seqs, limit)
        # A day later nothing of it is left.
        with redis.client() as client:
            client.delete(*keys_of(redis, policy))
        expect_answers(server, policy, *seqs, limit)
        # A server that never saw it there knows as much, and does not bring it back.
        server.stop()
        other = shop.serve()
        expect_answers(other, policy, *seqs, limit)
        assert keys_of(redis, policy) == []
        # A coupon of it can still change.
        coupon = f"{policy}-{seqs[1]}"
        assert expect(other.cancel(coupon), 200)["state"] == "CANCELLED"
        expect_problem(other.claim(policy, "plain"), 410, "CLOSED")


def test_redis_closed__a_ledger_that_is_away_is_not_a_policy_that_is_gone(tmp_path, redis):
    """What only the ledger knows cannot be told while it is away: 503, never 404."""
    with Postgres() as database_server, \
            Sharing(tmp_path, redis, database_server=database_server) as shop:
        server = shop.serve(ledger_timeout="1s")
        worker = shop.work(ledger_timeout="1s")
        policy, _, plain = sell_and_close(shop, server, 1)
        with redis.client() as client:
            client.delete(*keys_of(redis, policy))
        # That it was let go takes the server a moment to hear.
        wait_until(lambda: server.status(policy, "plain").status == 200, "the ledger answers", 30)
        assert expect(server.status(policy, "plain"), 200)["seq"] == plain
        worker.stop()
        database_server.kill()
        for user in ("plain", "late"):
            expect_problem(server.status(policy, user), 503, "UNAVAILABLE")
        database_server.start()
        wait_until(lambda: server.status(policy, "plain").status == 200, "it is back", 30)


def expect_over(server, policy, seq):
    """Who holds a coupon finds it, and nobody wins any more."""
    assert expect(server.claim(policy, "winner"), 200)["seq"] == seq
    assert expect(server.status(policy, "winner"), 200)["seq"] == seq
    expect_problem(server.claim(policy, "late"), 410, "CLOSED")
    expect_problem(server.status(policy, "late"), 404, "NO_CLAIM", policy_state="CLOSED")
    shown = server.policy(policy)
    assert (shown["state"], shown["issued"], shown["pending"]) == ("CLOSED", 1, 0)


def test_redis_closed__by_its_window(tmp_path, redis):
    """One that closes by itself is let go as well, and comes back when its end is put off."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve()
        policy, other = server.create(total=5)["id"], server.create(total=5)["id"]
        seq = expect(server.claim(policy, "winner"), 202)["seq"]
        shop.await_drained(policy)
        expect(server.patch(policy, closes_at=now_rfc3339(1)), 200)
        wait_until(lambda: is_let_go(redis, policy), "it is let go", 30)
        expect_over(server, policy, seq)
        # Put off before Redis has forgotten it.
        expect(server.patch(policy, closes_at=now_rfc3339(3600)), 200)
        with redis.client() as client:
            assert all(client.ttl(name) == -1 for name in keys_of(redis, policy))
        wait_until(lambda: server.claim(policy, "second").status == 202, "it is open", 30)
        shop.await_drained(policy)
        expect(server.cancel(f"{policy}-{shop.holders(policy)['second']}"), 200)
        expect(server.patch(policy, closes_at=now_rfc3339(1)), 200)
        wait_until(lambda: is_let_go(redis, policy), "it is let go again", 30)
        # A Redis that lost everything does not get it back.
        redis.wipe()
        wait_until(lambda: server.claim(other, "o").status in (200, 202), "others are built", 30)
        assert keys_of(redis, policy) == []
        expect_over(server, policy, seq)
        # Nor from a server that never saw it there.
        server.stop()
        server = shop.serve()
        expect_over(server, policy, seq)
        assert keys_of(redis, policy) == []
        # Put off, it is there again with all it had.
        expect(server.patch(policy, closes_at=now_rfc3339(3600)), 200)
        wait_until(lambda: server.claim(policy, "third").status == 202, "it is built", 30)
        assert expect(server.claim(policy, "winner"), 200)["seq"] == seq
        shop.await_drained(policy)
