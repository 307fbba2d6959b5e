"""The board in Redis: shared by two servers, wiped, away and back, and the answer it keeps."""

import datetime
import itertools
import json
import random
import time

import pytest

from board import CACHE, REFRESHER, await_agreement, day_key, today, window_key
from harness import expect, run_serve, wait_until
from ledger import ServedDatabase
from servers import Postgres, Redis
from sharing import Sharing
from test_expiry import Clock
from test_ranking import Reference, ids, seen, top
from wire import encode

UTC = datetime.timezone.utc
NUMBER = itertools.count(1)


@pytest.fixture(scope="module")
def _redis():
    with Redis(appendonly="no") as server:
        yield server


@pytest.fixture
def redis(_redis):
    _redis.wipe()
    return _redis


@pytest.fixture(scope="module")
def _postgres():
    with Postgres() as server:
        yield server


class Shop(Sharing):
    """On a database of its own, of a server that all tests here share."""

    def __init__(self, folder, redis, postgres):
        super().__init__(folder, redis)
        self.postgres = postgres

    def __enter__(self):
        self.database = ServedDatabase(self.postgres)
        self._ends.callback(self.database.discard)
        return self


@pytest.fixture
def shop(tmp_path, redis, _postgres):
    with Shop(tmp_path, redis, _postgres) as opened:
        yield opened


def order(server, items, paid_at=None):
    body = {"order_id": f"o-{next(NUMBER)}",
            "items": [{"product_id": product, "quantity": quantity}
                      for product, quantity in items.items()]}
    if paid_at is not None:
        body["paid_at"] = paid_at.isoformat().replace("+00:00", "Z")
    return expect(server.post("/v1/orders", body), 201)["order_id"]


def await_board(shop, server):
    """Waits until the board has what the ledger has, and answers."""
    await_counters(shop)
    wait_until(lambda: top(server, fresh=True)["source"] == "board", "the board answers", 30)


def await_counters(shop):
    await_agreement(shop.redis, shop.database)


def test_ranking_redis__two_servers_share_a_board(shop):
    one, two = shop.serve(), shop.serve()
    random.seed(5)
    reference = Reference()
    now = datetime.datetime.now(UTC)
    placed = []
    for step in range(120):
        server = random.choice((one, two))
        if placed and random.random() < 0.15:
            name, day, items = placed.pop(random.randrange(len(placed)))
            expect(server.post(f"/v1/orders/{name}/refund"), 200)
            reference.add(day, items, -1)
        else:
            paid_at = now - datetime.timedelta(days=random.randrange(5))
            items = {f"p{random.randrange(20)}": random.randint(1, 10)
                     for _ in range(random.randint(1, 4))}
            placed.append((order(server, items, paid_at), paid_at.date(), items))
            reference.add(paid_at.date(), items)
        if step % 40 == 39:
            for days, limit, asked in itertools.product((1, 2, 3, 5), (3, 100), (one, two)):
                assert seen(top(asked, days=days, limit=limit, fresh=True)) == \
                    reference.answer(now.date(), days, limit), (step, days)
    await_board(shop, one)
    # What the board does not keep, the ledger knows.
    assert top(one, days=4, fresh=True)["source"] == "ledger"
    wait_until(lambda: sum(len(server.events("board_built")) for server in (one, two)) == 1,
               "it was built once")


def test_ranking_redis__keys_and_cached_answer(shop, redis):
    one = shop.serve()
    expect(one.request("PUT", "/v1/products/mug", {"name": "Mug \"ü\"", "price": 1990}), 200)
    now = datetime.datetime.now(UTC)
    order(one, {"mug": 5, "pen": 5}, now - datetime.timedelta(days=1))
    order(one, {"pen": 2})
    await_counters(shop)
    answer = top(one)
    assert seen(answer) == [(1, "pen", 7, 1), (2, "mug", 5, -1)] and answer["source"] == "board"
    with redis.client() as client:
        assert [(name, int(score)) for name, score in client.zrevrange(window_key(3), 0, -1, True)] == [
            (b"pen", 7), (b"mug", 5)]
        assert 0 < client.pttl(CACHE) <= 600000
        kept = json.loads(client.get(CACHE))
    assert kept["items"] == [dict(item, sold_last_day=sold)
                             for item, sold in zip(answer["items"], (2, 0))]
    assert (kept["days"], kept["last_day"], kept["as_of"]) == (3, str(today()), answer["as_of"])
    # Another one has nothing at hand, and finds it there; then it follows by itself.
    two = shop.serve()
    recalled = top(two)
    assert recalled["source"] == "cache" and recalled["items"] == answer["items"]
    assert recalled["as_of"] == answer["as_of"]
    order(one, {"mug": 9})
    assert ids(wait_until(lambda: (found := top(two, fresh=True))["items"][0]["sold"] == 14
                          and found, "the order")) == ["mug", "pen"]
    wait_until(lambda: ids(top(two)) == ["mug", "pen"], "the order")
    # Also when it was the other one that took it over into the board.
    order(one, {"pen": 20})
    wait_until(lambda: ids(top(two, fresh=True)) == ["pen", "mug"], "the other's order")


def test_ranking_redis__a_miss_waits_for_who_works_it_out(shop, redis):
    one = shop.serve()
    order(one, {"mug": 1})
    await_counters(shop)
    assert ids(top(one)) == ["mug"]
    with redis.client() as client:
        kept = client.get(CACHE)
        client.delete(CACHE)
        client.set(REFRESHER, "somebody", px=60000)
        two = shop.serve()
        # Somebody takes too long: it is worked out here, and left to them to keep.
        assert top(two)["source"] == "board"
        assert not client.exists(CACHE)
        # Somebody is done in time, unless this machine is slower than their patience.
        for _ in range(5):
            client.delete(CACHE)
            with shop.serve().connect() as waiting:
                waiting.send(encode("GET", "/v1/products/top"), "GET")
                client.set(CACHE, kept.replace(b'"sold":1', b'"sold":77'), px=500000)
                answer = waiting.receive().json
            if answer["source"] == "cache":
                break
        assert answer["source"] == "cache" and answer["items"][0]["sold"] == 77
        # What is left by a stranger is no answer.
        client.set(CACHE, b'{"items":7}', px=500000)
        assert top(shop.serve())["items"][0]["sold"] == 1


@pytest.mark.heavy
def test_ranking_redis__the_answer_is_renewed_on_the_clock(shop, redis, tmp_path):
    """Every ten minutes, without anybody asking; and by one server."""
    clock = Clock(tmp_path)
    first_s = 660 - time.time() % 600  # a minute of the next ten is over
    clock.forward(first_s)
    server = shop.serve(env={**clock.environment(), "FAKETIME_FORCE_MONOTONIC_FIX": "0"})
    order(server, {"mug": 1})
    await_counters(shop)
    assert ids(top(server)) == ["mug"]
    with redis.client() as client:
        before = client.get(CACHE)
        order(server, {"pen": 4})
        await_counters(shop)
        clock.forward(first_s + 540)
        wait_until(lambda: client.get(CACHE) != before, "it is renewed")
        kept = json.loads(client.get(CACHE))
        assert [item["product_id"] for item in kept["items"]] == ["pen", "mug"]
        # Not again within the same ten minutes; in the next ones it is.
        order(server, {"jar": 9})
        await_counters(shop)
        assert json.loads(client.get(CACHE)) == kept
        clock.forward(first_s + 1140)
        wait_until(lambda: json.loads(client.get(CACHE))["items"][0]["product_id"] == "jar",
                   "it is renewed")
        assert client.pttl(CACHE) > 500000 and not client.exists(REFRESHER)


@pytest.mark.heavy
def test_ranking_redis__built_by_one_whose_clock_is_behind(shop, redis, tmp_path):
    """It builds for days that are still to come, by its clock."""
    server = shop.serve()
    order(server, {"mug": 3})
    await_board(shop, server)
    server.stop()
    redis.wipe()
    clock = Clock(tmp_path)
    clock.set(f"-{4 * 86400}")
    behind = shop.serve(env={**clock.environment(), "FAKETIME_FORCE_MONOTONIC_FIX": "0"})
    behind.await_log("board_built")
    server.start()
    order(server, {"mug": 1, "pen": 2})
    await_board(shop, server)
    wait_until(lambda: seen(top(server, fresh=True)) == [(1, "mug", 4, None), (2, "pen", 2, None)],
               "today's sales, before and after")


BREAKS = {
    "everything": lambda redis, client: client.flushall(),
    "a_day": lambda redis, client: client.delete(day_key()),
    "a_type": lambda redis, client: client.set(day_key(), "text"),
    "functions": lambda redis, client: client.function_flush("SYNC"),
    "restarted_empty": lambda redis, client: redis.restart_empty(),
}


def test_ranking_redis__whatever_is_wiped_comes_back(shop, redis):
    one, two = shop.serve(), shop.serve()
    for number, (name, wipe) in enumerate(BREAKS.items(), 1):
        order(one, {"mug": 2, f"p{number}": 1})
        await_board(shop, two)
        with redis.client() as client:
            wipe(redis, client)
        # From wherever it comes, at most a second behind.
        for server in (one, two):
            wait_until(lambda: top(server, fresh=True)["items"][0]["sold"] == 2 * number, name)
        order(two, {"pen": 1})
        await_board(shop, one)
        sold = {"mug": 2 * number, "pen": number, **{f"p{each}": 1 for each in range(1, number + 1)}}
        wait_until(lambda: {item["product_id"]: item["sold"] for item in
                            top(two, fresh=True, limit=100)["items"]} == sold, name)


@pytest.mark.parametrize("how", ["killed", "hanging"])
def test_ranking_redis__away_and_back(shop, redis, how):
    server = shop.serve(gate_timeout="1s")
    order(server, {"mug": 2})
    await_board(shop, server)
    redis.kill() if how == "killed" else redis.pause()
    order(server, {"pen": 3})
    answer = wait_until(lambda: (found := top(server, fresh=True))["source"] == "ledger" and found,
                        "the ledger answers")
    assert ids(answer) == ["pen", "mug"]
    rank = expect(server.get("/v1/products/mug/rank"), 200)
    assert (rank["rank"], rank["source"]) == (2, "ledger")
    wait_until(lambda: server.metrics()["dibs_board_current"] == 0, "it knows")
    redis.start() if how == "killed" else redis.resume()
    await_board(shop, server)
    assert ids(top(server, fresh=True)) == ["pen", "mug"]


def test_ranking_redis__settings(shop, redis, tmp_path):
    server = shop.serve(board="local")
    order(server, {"mug": 2})
    wait_until(lambda: ids(top(server, fresh=True)) == ["mug"], "at most a second behind")
    assert server.await_log("board_built")["board"] == "local"
    with redis.client() as client:
        assert not client.keys("*{rank}*")
    ended = run_serve(f"sqlite:{tmp_path}/own.db", "--board", "redis")
    assert ended.returncode == 2 and "board=redis needs a gate in Redis" in ended.stderr
