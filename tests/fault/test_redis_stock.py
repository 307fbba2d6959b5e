"""Stock on its way from the ledger to Redis: nobody is told that nothing is left meanwhile, and it
arrives soon."""

import signal
import time

import pytest

from harness import expect, expect_problem, wait_until
from ledger import rows
from proxy import Proxy
from redis_shop import keys_of
from test_redis_points import await_stop


RETURNED_S = 0.7


def sell_out(shop, policy, total):
    """Who has won what, all of it written."""
    server = shop.servers[0]
    for number in range(total):
        expect(server.claim(policy, f"u{number}"), 202)
    shop.settle([policy])
    return shop.holders(policy)


def returned(server, policy, sold):
    expect(server.cancel(f"{policy}-{sold['u0']}"), 200)


def raised(server, policy, sold):
    expect(server.patch(policy, total=len(sold) + 1), 200)


@pytest.mark.parametrize("add", [returned, raised])
def test_redis_stock__taken_and_not_lent(shop_on, redis, add):
    """The ledger has let go of it, the worker stands still before Redis gets it, and the server tells
    Redis that nothing is unleased any more."""
    with shop_on(redis, servers=1, workers=1, gate_timeout="10s") as shop:
        server = shop.servers[0]
        policy = shop.create(3)
        sold = sell_out(shop, policy, 3)
        expect_problem(server.claim(policy, "late"), 409, "SOLD_OUT")
        shop.workers.pop().stop()
        worker = shop.work(fault="worker.after_lease:1:stop")
        shop.workers.append(worker)
        add(server, policy, sold)
        await_stop(worker)

        def is_told():
            (row,) = rows(shop.database, "SELECT version FROM policy WHERE id = ?", policy)
            with redis.client() as client:
                return int(client.hget(keys_of(policy)[4], "version")) == row["version"]

        wait_until(is_told, "Redis has heard that the ledger has nothing left", 30)
        expect_problem(server.claim(policy, "late"), 503, "UNAVAILABLE")
        assert server.policy(policy)["state"] == "OPEN"
        worker.signal(signal.SIGCONT)
        wait_until(lambda: server.claim(policy, "late").status in (200, 202), "it is lent", 30)
        shop.settle([policy])
        # And that is all: what was announced has come.
        wait_until(lambda: server.claim(policy, "later").status == 409, "it is sold out", 30)
        shop.await_sold(policy, 3 + (add is raised))


def test_redis_stock__returns_to_a_distant_redis_within_a_second(shop_on, redis):
    """The worker is 30 ms from Redis, each way. It lends when Redis said that it may: not earlier, or
    Redis would refuse the lease, and one of some tries not much later than half a second, which
    servers are given to hear of it, and the way there. The others may have waited for the machine."""
    with Proxy(redis.port) as way, shop_on(redis, servers=1, workers=0, gate_timeout="10s") as shop:
        server = shop.servers[0]
        policy = shop.create(4)
        shop.workers.append(shop.work(gate=f"redis://127.0.0.1:{way.port}"))
        sold = sell_out(shop, policy, 4)
        way.delay_s = 0.03
        seconds = []
        user = min(sold)
        while len(seconds) < 3 or min(seconds) > RETURNED_S:
            assert len(seconds) < 20, seconds
            wait_until(lambda: server.claim(policy, "late").status == 409, "it is sold out", 30)
            wait_until(lambda: user in shop.holders(policy), "it is written", 30)  # noqa: B023
            expect(server.cancel(f"{policy}-{shop.holders(policy)[user]}"), 200)
            began, user = time.monotonic(), f"next{len(seconds)}"
            wait_until(lambda: server.claim(policy, user).status in (200, 202),  # noqa: B023
                       f"the unit is won by {user}", 30)
            seconds.append(time.monotonic() - began)
        print(seconds)
        way.delay_s = 0
        shop.settle([policy])
        refused = rows(shop.database, """
            SELECT id FROM lease l WHERE policy_id = ? AND state = 'CLOSED' AND NOT EXISTS
                (SELECT 1 FROM coupon c WHERE c.lease_id = l.id)""", policy)
        assert not refused, "lent before Redis takes it"


def test_redis_stock__a_copy_that_never_heard_of_a_recall(shop_on, redis):
    """A replica that lagged is promoted: it knows of seqs that the primary gave back when the total
    went down. It is built anew all the same, and goes on behind them."""
    with shop_on(redis, servers=1, workers=1, gate_timeout="10s") as shop:
        server = shop.servers[0]
        policy = shop.create(10)
        expect(server.claim(policy, "a"), 202)
        shop.settle([policy])
        with redis.client() as client:
            names = client.keys(f"COUPON:POLICY:{{{policy}}}:*")
            copy = {name: client.dump(name) for name in names}
        expect(server.patch(policy, total=5), 200)
        with redis.client() as client:  # At once: the worker looks, and writes, meanwhile.
            swap = client.pipeline(transaction=True)
            swap.delete(*names, *client.keys(f"COUPON:POLICY:{{{policy}}}:*"))
            for name, value in copy.items():
                swap.restore(name, 0, value)
            swap.execute()
        redis.kill()
        redis.start()
        for user in ("b", "c", "d", "e"):
            wait_until(lambda user=user: server.claim(policy, user).status in (200, 202),
                       "it is armed again", 30)
        shop.settle([policy])
        assert shop.holders(policy).keys() == {"a", "b", "c", "d", "e"}
        wait_until(lambda: server.claim(policy, "late").status == 409, "it is sold out", 30)
