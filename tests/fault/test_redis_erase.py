"""Erasures with a gate in Redis: cut short at every point, or beside claims at another server."""

import concurrent.futures
import signal

import pytest

from harness import expect, expect_problem, wait_until
from ledger import rows
from test_erase_points import USER, ids_in
from test_redis_points import await_death, await_stop
from wire import Closed

ANYWAY = {"anyway": True}


def names_in(redis):
    """All that Redis has, as one text."""
    with redis.client() as client:
        read = {"string": client.get, "hash": client.hgetall,
                "list": lambda key: client.lrange(key, 0, -1),
                "zset": lambda key: client.zrange(key, 0, -1)}
        return "\n".join(str(read[client.type(key).decode()](key)) for key in client.keys())


def is_fine(server):
    return all(item["ok"] for item in expect(server.get("/v1/audit"), 200)["items"])


@pytest.mark.parametrize("point", ["erase.after_block", "erase.after_ledger"])
def test_redis_erase__a_server_dies(shop_on, redis, point):
    """Another finishes it, and nothing that a repair did in between is in its way."""
    with shop_on(redis, servers=1, workers=1) as shop:
        server = shop.servers[0]
        policy = shop.create(4)
        won = server.claim(policy, USER, "key-1").json
        server.claim(policy, "somebody-else")
        shop.settle([policy])
        doomed = shop.serve(fault=f"{point}:1:kill")
        with pytest.raises((Closed, OSError)):
            doomed.post(f"/v1/users/{USER}/erase", ANYWAY)
        await_death(doomed)
        if point == "erase.after_ledger":
            expect(server.post("/v1/audit/repair"), 200)
            wait_until(lambda: is_fine(server), "a repair is through", 60)
        name = expect(server.post(f"/v1/users/{USER}/erase", ANYWAY), 200)["pseudonym"]
        assert not [id_ for id_ in ids_in(shop.database) if USER in id_]
        assert USER not in names_in(redis)
        assert not rows(shop.database, "SELECT user_id FROM blocked_user")
        (held,) = expect(server.status(policy, name), 200)["claims"]
        assert held["seq"] == won["seq"]
        assert is_fine(server)
        assert server.claim(policy, USER).json["nth"] == 1
        shop.settle([policy])


def test_redis_erase__a_coupon_won_at_another_server_is_seen(shop_on, redis):
    """After the first look, and before the block: they keep it, and are not blocked."""
    with shop_on(redis, servers=1, workers=1) as shop, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        policy = shop.create(4)
        slow = shop.serve(fault="erase.before_block:1:stop")
        erased = pool.submit(slow.post, f"/v1/users/{USER}/erase")
        await_stop(slow)
        won = shop.servers[0].claim(policy, USER).json
        shop.settle([policy])
        slow.signal(signal.SIGCONT)
        problem = expect_problem(erased.result(), 409, "CONFLICT")
        assert f"policy {policy}" in problem["detail"]
        assert expect(slow.claim(policy, USER), 200)["seq"] == won["seq"]
        assert not rows(shop.database, "SELECT user_id FROM blocked_user")
        assert is_fine(slow)
