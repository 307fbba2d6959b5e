"""kill -9 of a Redis whose disk is slow: what each setting of appendfsync and ack can lose, and what
none of them may."""

import contextlib
import signal

import pytest

from disk import Disk
from harness import wait_until
from history import ROUNDS, seeded
from redis_shop import Told
from servers import Redis

TOTAL = 500
REPEATS = max(1, ROUNDS // 4)


@contextlib.contextmanager
def slow_redis(appendfsync):
    """A Redis whose syncs of its log take as long as the test says."""
    redis = Redis(appendfsync=appendfsync)
    redis.disk = Disk(redis.folder, match="appendonlydir")
    redis.disk.control.chmod(0o644)
    redis.env = redis.disk.environment_of_another()
    with redis:
        yield redis


def start_again(redis):
    redis.disk.set("ok")
    redis.start()


def sell_out(shop, crowd, policy):
    """The rest of the drop. On a quick machine it was sold out before Redis died: what that lost is
    there to be claimed again, so the crowd goes on until everything is issued."""
    shop.await_sold(policy, TOTAL)
    crowd.await_sold_out([policy])
    crowd.stop()
    crowd.raise_errors()
    shop.settle([policy])


def test_redis_sync__always_loses_nothing(shop_on):
    """Trap 11. Whatever the disk does not take is not answered either."""
    chance = seeded()
    told = Told()
    with slow_redis("always") as redis, shop_on(redis) as shop:
        for number in range(REPEATS):
            policy = shop.create(TOTAL)
            with shop.crowd(told, [policy], prefix=f"r{number}") as crowd:
                crowd.await_wins(chance.randint(1, 200))
                redis.disk.set("stall")
                crowd.await_refusals(10)
                redis.kill()
                start_again(redis)
                sell_out(shop, crowd, policy)
            assert not told.check(shop.database, policy)
            told.check_answers(shop.servers[-1])


def freeze(redis):
    """From here on nothing reaches the log, and Redis knows that a sync takes its time: it answers
    all the same, for up to 2 s."""
    redis.disk.set("stall")
    with redis.client() as client:
        def is_put_off():
            client.incr("something to write")
            return client.info("persistence")["aof_pending_bio_fsync"] > 0

        wait_until(is_put_off, "a sync that does not end")
    redis.disk.set("freeze")


@pytest.mark.parametrize("ack", ["gate", "ledger"])
def test_redis_sync__everysec_loses_what_it_says(shop_on, ack):
    """Trap 11. Redis answers before its log is written. ack=gate then loses what was pending, and
    no seq is given twice; ack=ledger loses nothing that it answered 201."""
    with slow_redis("everysec") as redis, \
            shop_on(redis, ack=ack, ack_timeout="5s") as shop:
        for number in range(REPEATS):
            told = Told(may_lose=True)
            policy = shop.create(TOTAL)
            with shop.crowd(told, [policy], people=100, prefix=f"early{number}") as crowd:
                crowd.join()
            for worker in shop.workers:
                worker.signal(signal.SIGSTOP)
            freeze(redis)
            with shop.crowd(told, [policy], prefix=f"late{number}", repeats=1) as crowd:
                if ack == "gate":
                    crowd.await_wins(10)
                else:  # They are won, and nobody may be told before the ledger has them.
                    wait_until(lambda: shop.numbers(policy)[1] >= 10, "claims that are pending")
                redis.kill()
                for worker in shop.workers:
                    worker.signal(signal.SIGCONT)
                start_again(redis)
                sell_out(shop, crowd, policy)
            lost = told.check(shop.database, policy)
            assert lost <= shop.missing_seqs(policy)
            if ack == "gate":
                assert lost, "nothing was lost: the disk was too fast for this test"
            else:
                assert len(told.issued) > 100
            assert shop.servers[0].request("DELETE", f"/v1/policies/{policy}").status == 200
