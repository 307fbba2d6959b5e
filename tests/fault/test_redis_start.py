"""Servers and workers that start before their Redis: they wait and say so."""

import os
import threading

import pytest

from harness import wait_until
from ledger import KIND
from proxy import LOSE_REQUEST, Proxy
from servers import Redis

# Requests of a start, in the order in which they are made: the server's settings, the functions, a
# policy of the ledger.
STEPS = [b"INFO", b"dibs_version", b"dibs_set_policy"]


@pytest.fixture
def opened(shop_on):
    """Opens a shop without any process, and spawns a server and a worker."""
    def spawn(shop):
        processes = [shop.spawn_server()]
        if KIND != "sqlite":
            processes.append(shop.spawn_worker())
        return processes

    def open_shop(redis, **options):
        return shop_on(redis, servers=0, workers=0, **{"gate_timeout": "10s", **options})

    open_shop.spawn = spawn
    return open_shop


def await_both(shop, processes):
    for process in processes:
        process.await_start()
    policy = processes[0].create(total=3)["id"]
    assert processes[0].claim(policy, "u1").status == 202
    shop.await_drained(policy)


def test_redis_start__waits_for_one_that_is_not_there_yet(opened, redis):
    redis.kill()
    with opened(redis) as shop:
        processes = opened.spawn(shop)
        for process in processes:
            waits = process.await_log("start_waits")
            assert "Redis at 127.0.0.1" in waits["for"], waits
        redis.start()
        await_both(shop, processes)


@pytest.mark.parametrize("step", STEPS)
def test_redis_start__one_that_goes_away_in_between(opened, redis, step):
    """A connection that breaks at any request of the start, and cannot be made again for a while."""
    with Proxy(redis.port) as way, opened(redis, gate=f"redis://127.0.0.1:{way.port}") as shop:
        first = shop.serve(gate=redis.url())
        first.create(total=3)
        trap = way.trap(step, LOSE_REQUEST, shuts=True)
        server = shop.spawn_server()
        trap.wait()
        server.await_log("start_waits")
        way.admit()
        server.await_start()


def is_loading(redis):
    with redis.client() as client:
        try:
            client.ping()
        except redis.connection_errors() as error:
            return "loading" in str(error).lower()
    return False


def test_redis_start__waits_while_it_loads(opened):
    """LOADING: it takes connections, and has nothing to say yet."""
    slowly = {"key-load-delay": 20000, "loading-process-events-interval-bytes": 2048}
    with Redis(settings=slowly) as redis, opened(redis) as shop:
        with redis.client() as client:
            client.mset({f"other-{number}": os.urandom(1000) for number in range(1500)})
            client.bgrewriteaof()  # Of what it loads key by key it tells in between.
            wait_until(lambda: client.info()["aof_base_size"] > 1500000, "the keys are rewritten")
        redis.stop()
        loading = threading.Thread(target=redis.start)
        loading.start()
        wait_until(lambda: is_loading(redis), "it loads")
        processes = opened.spawn(shop)
        for process in processes:
            assert "LOADING" in process.await_log("start_waits")["for"]
        with redis.client() as client:
            client.config_set("key-load-delay", 0)
        loading.join()
        await_both(shop, processes)


def test_redis_start__waits_while_it_is_full(opened, redis):
    """OOM: the functions cannot be loaded."""
    with redis.client() as client, opened(redis) as shop:
        client.config_set("maxmemory", 1)
        processes = opened.spawn(shop)
        for process in processes:
            assert "OOM" in process.await_log("start_waits")["for"]
        client.config_set("maxmemory", 0)
        await_both(shop, processes)


def test_redis_start__a_signal_ends_the_wait_at_once(opened, redis):
    redis.kill()
    with opened(redis) as shop:
        processes = opened.spawn(shop)
        for process in processes:
            process.await_log("start_waits")
            process.stop()
        redis.start()


def test_redis_start__what_does_not_pass_ends_it_at_once(opened):
    with Redis(password="secret") as redis, opened(redis) as shop:
        shop.gate = redis.url().replace("secret", "wrong")
        for process in opened.spawn(shop):
            assert process.wait() == 1
            assert not process.events("start_waits"), process.log_text()
            assert "WRONGPASS" in process.log[-1], process.log_text()
