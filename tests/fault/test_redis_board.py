"""The board in Redis while servers and Redis die, stand still and forget: what is sold counts once,
and board and ledger agree in every counter when it is over."""

import contextlib
import itertools
import re
import signal
import threading
import time

import pytest

from board import BUILDER, META, await_agreement, day_key, window_key
from harness import ROOT, expect, wait_until
from history import ROUNDS, seeded
from servers import Redis
from test_redis_points import await_death, await_stop
from test_sales import Sales

POINTS = sorted({name for path in (ROOT / "src/ranking").rglob("*.c")
                 for name in re.findall(r'FAULT_POINT\("([a-z_.]+)"\)', path.read_text())})
APPLYING = [point for point in POINTS if point.endswith("_apply")]
BUILDING = [point for point in POINTS if point not in APPLYING]
PRODUCTS = 450  # more than go into one call


def test_redis_board__has_its_points():
    assert len(APPLYING) == 2 and len(BUILDING) == 3


@contextlib.contextmanager
def selling(sales, servers):
    """Sellers at all servers, until the end of the block; one whose server dies waits for it."""
    ends = threading.Event()
    errors = []

    def sell(name, server):
        try:
            while not ends.is_set():
                try:
                    sales.sell(server, f"{name}-{next(sales.number)}", 3)
                except TypeError as error:
                    # While it starts again nobody knows where it is.
                    assert "not NoneType" in str(error), error
                ends.wait(0.01)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=sell, args=each)
               for each in itertools.product(range(2), servers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert not errors, errors


def await_sold(sales, count):
    wanted = len(sales.heard) + count
    wait_until(lambda: len(sales.heard) >= wanted, f"{count} more orders", 30)


def sell_all(server, sales):
    """One order of every product, so that a board takes several calls to build."""
    for first in range(0, PRODUCTS, 40):
        body = sales.new_order(seeded())
        body["items"] = [{"product_id": f"p{number}", "quantity": 1}
                         for number in range(first, first + 40)]
        expect(server.post("/v1/orders", body), 201)
        sales.heard.add(body["order_id"])


def settle(shop, sales, server):
    """Everything counts once in the ledger, and so in the board."""
    sales.settle(server, batch_size=8,
                 judge=lambda _: await_agreement(shop.redis, shop.database))
    wait_until(lambda: top(server)["source"] == "board", "the board answers")


def top(server):
    return expect(server.get("/v1/products/top?fresh=true&limit=100"), 200)


def forget_builder(redis):
    """As if the time of a builder that was killed were over."""
    with redis.client() as client:
        client.delete(BUILDER)


@pytest.mark.parametrize("point", POINTS)
def test_redis_board__a_server_dies(shop_on, redis, point):
    sales = Sales(seeded())
    with shop_on(redis, servers=1, workers=0) as shop:
        server = shop.servers[0]
        sell_all(server, sales)
        await_agreement(redis, shop.database)
        server.stop()
        if point in BUILDING:
            with redis.client() as client:
                client.delete(META)
        count = 1 if point.endswith("_swap") else 2
        server.env = {"DIBS_FAULT": f"{point}:{count}:kill"}
        server.spawn()
        if point in APPLYING:
            server.await_start()
            with selling(sales, [server]):
                await_death(server)
        else:
            await_death(server)
        forget_builder(redis)
        server.env = {}
        server.start()
        settle(shop, sales, server)


@pytest.mark.parametrize("point", ["board.before_apply", "board.while_building",
                                   "board.before_swap", "board.after_swap"])
def test_redis_board__a_server_stands_still(shop_on, redis, point):
    """Another one has done it meanwhile; what the late one then does is refused."""
    sales = Sales(seeded())
    with shop_on(redis, servers=1, workers=0) as shop:
        first = shop.servers[0]
        sell_all(first, sales)
        await_agreement(redis, shop.database)
        first.stop()
        if point in BUILDING:
            with redis.client() as client:
                client.delete(META)
        late = shop.spawn_server(fault=f"{point}:1:stop")
        if point in APPLYING:
            late.await_start()
            expect(late.post("/v1/orders", sales.new_order(seeded())), 201)
        await_stop(late)  # One that builds may do so before or after it says where it listens.
        forget_builder(redis)
        first.start()
        with selling(sales, [first]):
            await_sold(sales, 60)
        await_agreement(redis, shop.database)
        late.signal(signal.SIGCONT)
        late.await_start()
        with selling(sales, [first, late]):
            await_sold(sales, 60)
        settle(shop, sales, late)


WIPES = [
    lambda client: client.flushall(),
    lambda client: client.delete(META),
    lambda client: client.delete(day_key()),
    lambda client: client.delete(window_key(3)),
    lambda client: client.delete(day_key(1), window_key(2)),
    lambda client: client.function_flush("SYNC"),
    lambda client: client.zadd(day_key(), {"p0": 5}, incr=True) and client.delete(META),
]


def test_redis_board__keys_go_during_load(shop_on, redis):
    """Whatever goes, nobody is told of what is left: what was sold before is there all the time."""
    sales = Sales(seeded())
    chance = seeded()
    with shop_on(redis, servers=2, workers=1) as shop:
        body = sales.new_order(chance)
        body["items"] = [{"product_id": "fixed", "quantity": 999999}]
        expect(shop.servers[0].post("/v1/orders", body), 201)
        await_agreement(redis, shop.database)
        with selling(sales, shop.servers), redis.client() as client:
            for wipe in WIPES * max(1, ROUNDS // 4):
                wipe(client)
                until = time.monotonic() + 0.4
                while time.monotonic() < until:
                    best = top(chance.choice(shop.servers))["items"][0]
                    assert (best["product_id"], best["sold"]) == ("fixed", 999999), best
        settle(shop, sales, shop.servers[0])


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_redis_board__redis_is_killed(shop_on, fsync):
    """It may come back with less than it had, or with nothing: the feed leads on from there."""
    sales = Sales(seeded())
    with Redis(appendfsync=fsync) as redis, shop_on(redis, servers=2, workers=0) as shop:
        with selling(sales, shop.servers):
            for how in [redis.restart, redis.restart_empty] * max(1, ROUNDS // 4):
                await_sold(sales, 40)
                if how == redis.restart:
                    redis.kill()
                    await_sold(sales, 20)
                    redis.start()
                else:
                    how()
                await_sold(sales, 20)
        settle(shop, sales, shop.servers[1])


def test_redis_board__servers_and_workers_are_killed(shop_on, redis):
    sales = Sales(seeded())
    chance = seeded()
    with shop_on(redis, servers=2, workers=1) as shop:
        with selling(sales, shop.servers):
            for _ in range(max(2, ROUNDS // 2)):
                await_sold(sales, 30)
                victim = chance.choice(shop.servers)
                victim.kill()
                victim.start()
                shop.workers[0].kill()
                shop.workers[0].start()
        settle(shop, sales, shop.servers[0])
