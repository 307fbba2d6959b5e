"""Two servers, one line: what one of them was told the other one knows; and who may join."""

import itertools
import time

import pytest

from harness import (Server, claim_bytes, expect, expect_problem, run_dibs, run_serve, tally, wait_until)
from ledger import coupons
from servers import Redis
from sharing import Sharing

SOLD_OUT = {(409, "SOLD_OUT")}


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


@pytest.fixture
def shop(tmp_path, redis):
    """Two servers and two workers on PostgreSQL."""
    with Sharing(tmp_path, redis) as made:
        made.servers = [made.serve(ack="ledger", ack_timeout="30s") for _ in range(2)]
        for _ in range(2):
            made.work()
        yield made


def functions_called(redis):
    with redis.client() as client:
        return client.info("commandstats")["cmdstat_fcall"]["calls"]


def sell_out(shop, policy, users):
    """All units go to these; then both servers tell everyone else from memory."""
    one, two = shop.servers
    for outcome in one.claims(policy, users):
        assert outcome.answer.status in (200, 201), outcome.answer
    shop.await_drained(policy)

    def is_told_from_memory():
        before = functions_called(shop.redis)
        answers = {server.claim(policy, f"late-{number}").status
                   for server in (one, two) for number in range(10)}
        return answers == {409} and functions_called(shop.redis) - before < 20

    wait_until(is_told_from_memory, "both know that it is sold out")


def test_redis_servers__returned_stock_is_claimable_at_both(shop):
    """Trap 23: SOLD_OUT remembered after stock came back."""
    one, two = shop.servers
    policy = one.create(total=4)["id"]
    sell_out(shop, policy, ["a", "b", "c", "d"])
    users = (f"next-{number}" for number in itertools.count())
    for seller, buyer in ((one, two), (two, one), (one, one)):
        # On a busy machine whoever sees to it may have to wait for longer.
        assert any(returns_in_time(shop, policy, seller, buyer, next(users)) for _ in range(5)), \
            "sold out for longer than a second"


def returns_in_time(shop, policy, seller, buyer, user):
    """Whether nobody who comes a second after a cancel is sent away; they wait for the unit."""
    seq = next(iter(shop.holders(policy).values()))
    expect(seller.cancel(f"{policy}-{seq}"), 200)
    cancelled_at, is_late = time.monotonic(), False

    def has_won():
        nonlocal is_late
        asked_at = time.monotonic()
        answer = buyer.claim(policy, user)
        if answer.status == 201:
            assert answer.json["seq"] > 4
            return True
        expect_problem(answer, 409, "SOLD_OUT")
        is_late = is_late or asked_at > cancelled_at + 1
        return False

    wait_until(has_won, "the unit is won")
    return not is_late


def test_redis_servers__a_lost_reply_is_found_at_the_other(shop):
    """Trap 27: SOLD_OUT from memory to a winner whose reply was lost."""
    one, two = shop.servers
    policy = one.create(total=3)["id"]
    with one.connect() as connection:
        connection.send(claim_bytes(policy, "lost"), "POST")
    rows = wait_until(lambda: coupons(shop.database, policy), "the claim nobody heard of", 30)
    sell_out(shop, policy, ["u1", "u2"])
    for _ in range(3):
        for server in (two, one):
            assert expect(server.claim(policy, "lost"), 200)["seq"] == rows[0]["seq"]
            expect_problem(server.claim(policy, "nobody"), 409, "SOLD_OUT")


def test_redis_servers__a_thousand_who_come_too_late_ask_redis_nothing(shop):
    """Trap 24: one of us looks for all of them."""
    one, two = shop.servers
    policy = one.create(total=2)["id"]
    sell_out(shop, policy, ["a", "b"])
    began = time.monotonic()
    before = functions_called(shop.redis)
    users = [f"late-{number}" for number in range(1000)]
    assert {*tally(one.claims(policy, users)), *tally(two.claims(policy, users))} == SOLD_OUT
    # The rest are looks: four a second by each of four processes, at one policy, and the workers'.
    looks = (time.monotonic() - began + 1) * (16 + 2 * 100)
    assert functions_called(shop.redis) - before < looks


def test_redis_servers__a_thousand_turned_away_do_not_come_back_together(shop):
    """Trap 24: those who are told to come again are spread."""
    policy = shop.servers[0].create(total=2000)["id"]
    shop.redis.kill()
    waits = [int(outcome.answer.headers["retry-after"]) for server in shop.servers
             for outcome in server.claims(policy, [f"u{number}" for number in range(500)])
             if outcome.answer.status == 503]
    assert len(waits) == 1000
    most = max(waits.count(wait) for wait in set(waits))
    assert min(waits) >= 1 and most < 600, {wait: waits.count(wait) for wait in set(waits)}
    shop.redis.start()
    wait_until(lambda: shop.servers[0].claim(policy, "after").status == 201, "it is back", 30)


def test_redis_servers__whoever_is_blocked_is_so_everywhere_within_a_second(shop):
    """Until the other server has heard of it, the ledger sees to it that nobody gets a coupon."""
    one, two = shop.servers
    policy = one.create(total=100)["id"]
    expect(one.request("PUT", "/v1/users/villain", {"blocked": True}), 200)
    expect_problem(one.claim(policy, "villain"), 403, "BLOCKED")
    wait_until(lambda: two.claim(policy, "villain").code == "BLOCKED", "the other one knows")
    shop.await_drained(policy)
    assert "villain" not in shop.holders(policy)
    expect(two.request("PUT", "/v1/users/villain", {"blocked": False}), 200)
    wait_until(lambda: one.claim(policy, "villain").status in (200, 201), "forgiven")


def test_redis_servers__forgiven_elsewhere_before_anyone_looked(shop):
    """Blocked at one server and forgiven at the other at once: neither stays behind."""
    one, two = shop.servers
    policy = one.create(total=100)["id"]
    for number in range(5):
        user = f"forgiven-{number}"
        expect(one.request("PUT", f"/v1/users/{user}", {"blocked": True}), 200)
        expect(two.request("PUT", f"/v1/users/{user}", {"blocked": False}), 200)
        for server in (one, two):
            wait_until(lambda server=server, user=user:
                       server.claim(policy, user).status in (200, 201), "forgiven")


def test_redis_servers__what_one_created_the_other_knows(shop):
    one, two = shop.servers
    for number in range(5):
        policy = one.create(total=3)["id"]
        if number == 0:
            expect(two.claim(policy, "u"), 201)
        elif number == 1:
            expect_problem(two.status(policy, "u"), 404, "NO_CLAIM", policy_state="OPEN")
        elif number == 2:
            assert two.policy(policy)["remaining"] == 3
        elif number == 3:
            with two.events_of(f"/v1/policies/{policy}/events") as stream:
                assert stream.next()[1]["remaining"] == 3
        else:
            assert policy in [item["id"] for item in
                              expect(two.get("/v1/policies"), 200)["items"]]
    with two.events_of("/v1/policies/987654321/events") as stream:
        assert stream.status == 404


# --- who may join ---


def test_redis_servers__one_that_evicts_is_refused(tmp_path):
    """Trap 14: the counters would go when it is full."""
    with Redis(settings={"maxmemory-policy": "allkeys-lru"}) as redis:
        ended = run_serve(f"sqlite:{tmp_path}/dibs.db", "--gate", redis.url())
        assert ended.returncode == 1, ended
        assert "maxmemory-policy noeviction" in ended.stderr, ended.stderr


def test_redis_servers__sqlite_has_one_process_only(tmp_path, redis):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve()
        policy = server.create(total=2)["id"]
        # It works as well.
        expect(server.claim(policy, "u1"), 202)
        shop.await_drained(policy)
        assert shop.holders(policy) == {"u1": 1}
        worker = run_dibs("worker", "--ledger", shop.database.url, "--gate", redis.url())
        another = run_serve(shop.database.url, "--gate", redis.url())
        assert (worker.returncode, another.returncode) == (2, 1), (worker, another)
        for ended in (worker, another):
            assert "postgres" in ended.stderr and "mysql" in ended.stderr, ended.stderr
        server.stop()
        # Also when nobody is in its way: it would have to leave before the next server starts.
        worker = run_dibs("worker", "--ledger", shop.database.url, "--gate", redis.url())
        assert worker.returncode == 2, worker
        assert "postgres" in worker.stderr and "mysql" in worker.stderr, worker.stderr


@pytest.mark.parametrize("ledger", ["postgres", "mysql"])
def test_redis_servers__a_gate_of_ones_own_is_refused_beside_them(tmp_path, redis, ledger):
    """It would sell the same seqs once more."""
    with Sharing(tmp_path, redis, ledger=ledger) as shop:
        server = shop.serve()
        policy = server.create(total=5)["id"]
        expect(server.claim(policy, "u1"), 202)
        ended = run_serve(shop.database.url, "--ledger-timeout", "1s", folder=tmp_path)
        assert ended.returncode == 1, ended
        assert "a gate of its own" in ended.stderr and "Redis" in ended.stderr, ended.stderr
        shop.work()
        shop.await_drained(policy)
        shop.work().stop()
        for process in shop.processes:
            process.stop()
        # And the other way round, as soon as they are gone.
        alone = Server(folder=tmp_path / "alone", database=shop.database,
                       config={"ledger_timeout": "1s"})
        with alone:
            assert expect(alone.claim(policy, "u2"), 201)["seq"] == 2
            ended = run_serve(shop.database.url, "--gate", redis.url(), "--ledger-timeout", "1s",
                              folder=tmp_path)
            assert ended.returncode == 1, ended
            assert "a gate of its own" in ended.stderr, ended.stderr


# --- time ---


def test_redis_servers__nothing_expires_while_the_policy_lives(shop):
    """Trap 8: whoever has won is known for as long as the policy is there, however long that is."""
    one, two = shop.servers
    policy = one.create(total=3, limit=2, reserve=1)["id"]
    won = expect(one.claim(policy, "u1", key="k"), 201)
    expect(two.claim(policy, "u1", key="k2"), 201)
    expect(two.cancel(won["coupon_id"]), 200)
    expect(one.claim(policy, "u2"), 201)
    for paused in (True, False):
        expect(two.patch(policy, paused=paused), 200)
    sell_out(shop, policy, ["u3"])
    with shop.redis.client() as client:
        names = client.keys(f"COUPON:POLICY:{{{policy}}}:*")
        assert {name: client.ttl(name) for name in names} == dict.fromkeys(names, -1)
    assert {name.decode().rsplit(":", 1)[1] for name in names} >= {"REMAINING", "ISSUED", "META",
                                                                  "LEASE", "KEYS"}
