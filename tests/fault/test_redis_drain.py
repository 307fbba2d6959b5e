"""What keeps a worker from draining: one user, one policy, one Redis of several. The others go on,
and a worker that is told to stop ends."""

import json
import signal
import time

import pytest

from harness import claim_bytes, expect, expect_problem, run_dibs, wait_until
from ledger import coupons
from proxy import Proxy
from redis_shop import keys_of
from servers import RedisCluster


def open_breaker(server, policy, user):
    """Claims for the user until the ledger serves them, because the gate counts as away."""
    def is_served():
        answer = server.claim(policy, user)
        return answer if answer.status == 201 else None

    return wait_until(is_served, "the reserve serves them", 30).json


def audit_of(server, policy):
    """What an audit through the server finds wrong with the policy."""
    ended = run_dibs("audit", "--url", f"http://127.0.0.1:{server.address[1]}", "--json")
    items = json.loads(ended.stdout)["items"]
    return next(item for item in items if item["policy_id"] == policy)


def test_redis_drain__a_reserve_coupon_below_a_pending_claim(shop_on, redis):
    """Trap 48: the same user is served by the reserve, and wins a later seq in Redis."""
    with Proxy(redis.port) as way, \
            shop_on(redis, servers=2, workers=1, fallback="ledger", gate_timeout="10s",
                    gates=[None, f"redis://127.0.0.1:{way.port}"]) as shop:
        (near, far), (worker,) = shop.servers, shop.workers
        policy, other = near.create(total=6, reserve=3)["id"], near.create(total=20)["id"]
        for number in range(2):
            expect(near.claim(policy, f"early{number}"), 202)
        wait_until(lambda: far.claim(policy, "early0").status == 200, "both know it")
        worker.signal(signal.SIGSTOP)
        way.refuse()
        way.cut()
        low = open_breaker(far, policy, "twice")
        # Only the server that is cut off will tell Redis of it.
        shop.database.execute("UPDATE entering_coupon SET policy_id = -policy_id")
        worker.signal(signal.SIGCONT)
        # The lease is sold, and Redis gets what is left of the reserve.
        expect(near.claim(policy, "early2"), 202)
        with redis.client() as client:
            wait_until(lambda: client.get(keys_of(policy)[0]) != b"0", "it is lent more", 30)
        shop.settle([policy])
        worker.signal(signal.SIGSTOP)
        high = expect(near.claim(policy, "twice"), 202)
        assert high["seq"] > low["seq"]
        shop.database.execute("UPDATE entering_coupon SET policy_id = -policy_id")
        way.admit()

        def enters():
            far.claim(policy, "twice")
            with redis.client() as client:
                return b"I0," in client.hget(keys_of(policy)[2], "twice")

        wait_until(enters, "Redis knows of both", 30)
        worker.signal(signal.SIGCONT)
        shop.settle([policy])
        states = {row["seq"]: row["state"] for row in coupons(shop.database, policy)}
        assert (states[low["seq"]], states[high["seq"]]) == ("ISSUED", "MERGED")
        # A restart of Redis finds nothing that cannot be drained, and all go on.
        redis.kill()
        redis.start()
        for one in (policy, other):
            wait_until(lambda one=one: near.claim(one, "after").status in (200, 202), "it wins", 30)
        shop.settle([policy, other])


REFUSE_BAD = [
    "CREATE FUNCTION refuse_bad() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.user_id LIKE"
    " ''bad%%'' THEN RAISE check_violation; END IF; RETURN NEW; END'",
    "CREATE TRIGGER refuse_bad BEFORE INSERT ON coupon FOR EACH ROW EXECUTE FUNCTION refuse_bad()"]


def test_redis_drain__away_while_claims_are_on_their_way(shop_on, redis, foreign):
    """The ledger has what was pending, and refuses some of it for now, when Redis does not answer
    for a moment. Nobody claims after that; what is pending is tried again all the same."""
    with shop_on(redis, servers=1, workers=0, ledger_timeout="60s", gate_timeout="10s") as shop:
        (server,), worker = shop.servers, shop.work(gate_timeout="500ms")
        policy = server.create(total=5)["id"]
        for statement in REFUSE_BAD:
            shop.database.execute(statement)
        with foreign(shop.database) as session:
            session.execute("LOCK TABLE coupon IN EXCLUSIVE MODE")
            for user in ("good", "bad"):
                expect(server.claim(policy, user), 202)
            session.await_waiter()
            redis.pause()
            worker.await_log("gate_refuses")
            time.sleep(1)  # Longer than a call waits: whoever asks meanwhile hears that it is away.
            session.rollback()
        worker.await_log("claim_refused")
        redis.resume()
        shop.database.execute("DROP TRIGGER refuse_bad ON coupon")
        shop.settle([policy])
        assert set(shop.holders(policy)) == {"good", "bad"}


@pytest.mark.parametrize("damage", ["gone", "another seq"])
def test_redis_drain__a_pending_claim_that_nobody_holds(shop_on, redis, damage):
    """It is passed over, told and found by an audit; those behind it and other policies go on. When
    the policy is built anew it is a coupon after all: somebody has won it."""
    with shop_on(redis, servers=1, workers=0, gate_timeout="10s") as shop:
        server = shop.servers[0]
        policy, other = shop.create(10), shop.create(10)
        seqs = {user: expect(server.claim(policy, user), 202)["seq"] for user in ("a", "b", "c")}
        expect(server.claim(other, "o"), 202)
        issued = keys_of(policy)[2]
        with redis.client() as client:
            if damage == "gone":
                client.hdel(issued, "a")
            else:
                client.hset(issued, "a", client.hget(issued, "a").rpartition(b":")[0] + b":7")
        worker = shop.work()
        wait_until(lambda: shop.holders(policy).keys() == {"b", "c"}, "those behind it", 30)
        wait_until(lambda: shop.holders(other).keys() == {"o"}, "the other policy", 30)
        worker.await_log("claims_without_users", 30)
        found = audit_of(server, policy)["findings"]
        assert {finding["check"] for finding in found} >= {"pending"}, found
        with redis.client() as client:
            client.function_flush("SYNC")
        wait_until(lambda: shop.holders(policy).get("a") == seqs["a"], "it is a coupon", 30)
        shop.settle([policy, other])
        wait_until(lambda: audit_of(server, policy)["ok"], "nothing is wrong any more")


def test_redis_drain__a_policy_that_cannot_be_drained(shop_on, redis):
    """The ledger has its claims and Redis does not let go of them: others are drained all the same,
    and the worker ends when it is told to."""
    with shop_on(redis, servers=1, workers=1, stop_timeout="1s", gate_timeout="10s") as shop:
        server, worker = shop.servers[0], shop.workers[0]
        stuck, other = shop.create(10), shop.create(10)
        worker.signal(signal.SIGSTOP)
        expect(server.claim(stuck, "s"), 202)
        with redis.client() as client:
            client.execute_command("ACL", "SETUSER", "default", "-zremrangebyscore", "-zrem")
            client.function_flush("SYNC")
        worker.signal(signal.SIGCONT)
        worker.await_log("reconcile_failed", 30)
        wait_until(lambda: server.claim(other, "o").status in (200, 202), "it wins", 30)
        wait_until(lambda: "o" in shop.holders(other), "the other policy is drained", 30)
        worker.stop()
        shop.workers.clear()
        with redis.client() as client:
            client.execute_command("ACL", "SETUSER", "default", "+@all")
        shop.work()
        wait_until(lambda: "s" in shop.holders(stuck), "it is a coupon", 30)
        shop.settle([stuck])


def test_redis_drain__a_redis_that_is_full(shop_on, redis):
    """Trap 49: it hears what the ledger has, and so gets room again; claims get 503 meanwhile, and
    servers and workers start beside it."""
    def limit_memory(size):
        with redis.client() as client:
            client.config_set("maxmemory", size)

    with shop_on(redis, servers=1, workers=0, gate_timeout="10s") as shop:
        server = shop.servers[0]
        policy = shop.create(500)
        told = server.claims(policy, [f"u{number}" for number in range(200)])
        assert {outcome.answer.status for outcome in told} == {202}
        first = expect(server.claim(policy, "u0"), 200)
        limit_memory("1mb")
        expect_problem(server.claim(policy, "late"), 503, "UNAVAILABLE")
        wait_until(lambda: "is full" in json.dumps(server.get("/readyz").json), "it says so", 30)
        wait_until(lambda: server.get("/readyz").status == 503, "it says that it is not ready", 30)
        worker = shop.work()
        wait_until(lambda: len(shop.holders(policy)) == 200, "all are issued", 30)
        wait_until(lambda: shop.drained(policy), "Redis has heard of it", 30)
        assert expect(server.cancel(first["coupon_id"]), 200)["state"] == "CANCELLED"
        other = shop.serve()
        expect_problem(other.claim(policy, "late"), 503, "UNAVAILABLE")
        # What is asked of it works as ever.
        assert expect(other.status(policy, "u1"), 200)["state"] == "ISSUED"
        assert expect(other.patch(policy, paused=True), 200)["state"] == "PAUSED"
        expect(other.patch(policy, paused=False), 200)
        limit_memory("0")
        for one in (server, other):
            wait_until(lambda one=one: one.claim(policy, "late").status in (200, 202), "it wins", 30)
            wait_until(lambda one=one: one.get("/readyz").status == 200, "it is ready", 30)
        shop.settle([policy])
        assert worker.alive


def policies_by_owner(server, cluster, count):
    """So many policies of each primary."""
    made = {node: [] for node in cluster.nodes}
    while any(len(policies) < count for policies in made.values()):
        policy = server.create(total=20)["id"]
        made[cluster.owner(policy)].append(policy)
    return made


def test_redis_drain__one_primary_of_a_cluster_stands_still(shop_on):
    """Trap 48: what is won at the others becomes coupons, and their policies are made and changed,
    also while a change of a coupon at that one waits for it."""
    with RedisCluster() as cluster, shop_on(cluster, gate=cluster.url(), servers=1,
                                            workers=1, stop_timeout="3s", gate_timeout="2s") as shop:
        server, worker = shop.servers[0], shop.workers[0]
        made = policies_by_owner(server, cluster, 3)
        frozen, *others = cluster.nodes
        stuck, well = made[frozen], [policy for node in others for policy in made[node]]
        for policy in [*stuck, *well]:
            assert server.claim(policy, "early").status == 202
        for policy in [*stuck, *well]:
            wait_until(lambda policy=policy: "early" in shop.holders(policy), "all are issued", 30)
        fresh = next(one for one in range(1000, 2000) if cluster.owner(one) in others)
        frozen.pause()
        try:
            coupon = f"{stuck[0]}-{shop.holders(stuck[0])['early']}"
            assert expect(server.cancel(coupon), 200)["state"] == "CANCELLED"
            for policy in well:
                wait_until(lambda policy=policy: server.claim(policy, "late").status in (200, 202),
                           "it wins", 30)
            for policy in well:
                wait_until(lambda policy=policy: "late" in shop.holders(policy),
                           "the others are drained", 30)
                assert expect(server.patch(policy, total=30), 200)["total"] == 30
            answer = server.post("/v1/policies", {
                "id": fresh, "name": "n", "discount": {"type": "percent", "value": 1}, "total": 5})
            expect(answer, 201)
            # A worker that is told to stop does not wait for it.
            worker.stop()
        finally:
            frozen.resume()
        shop.workers[0] = shop.work()
        # The change of the coupon has come through: its user may win again.
        wait_until(lambda: server.claim(stuck[0], "early").status == 202, "they win again", 30)
        for policy in stuck:
            wait_until(lambda policy=policy: server.claim(policy, "late").status in (200, 202),
                       "it wins", 30)
            wait_until(lambda policy=policy: "late" in shop.holders(policy), "and is issued", 30)


@pytest.mark.parametrize("large", ["held", "pending"])
def test_redis_drain__one_that_is_built_holds_up_nobody(shop_on, redis, large):
    """Building a policy with thousands of coupons, or of claims that are still pending, takes long when
    Redis is far away. Meanwhile another policy's claims become coupons, and what they give back is
    sold."""
    count = 12_000
    with Proxy(redis.port) as way, shop_on(redis, servers=1, workers=0, gate_timeout="10s") as shop:
        server = shop.servers[0]
        built, other = shop.create(count), shop.create(2)
        won = server.storm([claim_bytes(built, f"user-{number}") for number in range(count)],
                           connections=4, pipeline=50)
        assert {outcome.answer.status for outcome in won} == {202}
        if large == "held":
            worker = shop.work()
            shop.settle([built])
            worker.stop()
            shop.end_terms()
        with redis.client() as client:
            client.hdel(keys_of(built)[4], "armed")

            def is_being_built():
                if large == "held":
                    return 0 < client.hlen(keys_of(built)[2]) < count
                return 0 < client.zcard(keys_of(built)[1]) < count

            way.delay_s = 0.1
            shop.workers.append(shop.work(gate=f"redis://127.0.0.1:{way.port}"))
            wait_until(is_being_built, "it is being built", 60)
            expect(server.claim(other, "ann"), 202)
            wait_until(lambda: "ann" in shop.holders(other), "ann has a coupon", 60)
            assert is_being_built(), "her coupon waited for the other policy"
            expect(server.claim(other, "bob"), 202)
            expect(server.cancel(f"{other}-{shop.holders(other)['ann']}"), 200)
            wait_until(lambda: server.claim(other, "eve").status == 202, "the unit is sold", 60)
            assert is_being_built(), "the unit waited for the other policy"
        way.delay_s = 0
        shop.settle([built, other])
        assert len(shop.holders(built)) == count
        assert shop.holders(other).keys() == {"bob", "eve"}
