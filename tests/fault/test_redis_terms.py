"""Who looks after a policy does so in terms that the ledger counts, and Redis answers for a policy
for a short time only, which is renewed in the newest term: what stood still, was slow or comes back
from elsewhere sells nothing that others have in their hands."""

import copy
import signal
import time

import pytest

from harness import wait_until
from ledger import rows
from proxy import HOLD_REQUEST, Proxy
from redis_shop import Told
from servers import RedisSentinel
from sharing import Worker

TOTAL = 400


def term(shop, policy):
    """The policy's newest."""
    (row,) = rows(shop.database, "SELECT term FROM steward WHERE policy_id = ?", policy)
    return row["term"]


def open_leases(shop, policy):
    return [row["id"] for row in rows(
        shop.database, "SELECT id FROM lease WHERE policy_id = ? AND state = 'OPEN'", policy)]


def sell_out(shop, told, policy, total=TOTAL):
    """The rest is sold, and every win that was told is a coupon with the told seq."""
    with shop.crowd(told, [policy], prefix="rest", workers=8) as crowd:
        shop.await_sold(policy, total)
        crowd.await_sold_out([policy])
    shop.settle([policy])
    assert not told.check(shop.database, policy)
    shop.await_sold(policy, total)
    told.check_answers(shop.servers[0])
    assert not rows(shop.database, "SELECT * FROM dead_letter")
    assert not rows(shop.database, "SELECT * FROM coupon WHERE state = 'VOID'")


def win(shop, told, policy, prefix, people=60):
    """So many win, however often they have to ask, and have their coupons."""
    with shop.crowd(told, [policy], people=people, prefix=prefix, workers=4) as crowd:
        crowd.join()
    shop.settle([policy])


class Sentinels(RedisSentinel):
    """Two servers, and a sentinel that says which is the master when the test tells it to."""

    def fail_over(self, to):
        with to.client() as client:
            client.replicaof("NO", "ONE")
        with self.sentinel.client() as client:
            client.execute_command("SENTINEL", "REMOVE", "dibs")
            client.execute_command("SENTINEL", "MONITOR", "dibs", "127.0.0.1", to.port, 1)
            client.execute_command("SENTINEL", "SET", "dibs", "down-after-milliseconds", 600_000)
        return to


@pytest.mark.parametrize("when", ["armed", "not armed yet"])
def test_redis_terms__a_master_that_stood_still_is_promoted_again(shop_on, when):
    """Trap 45: A stands still, B takes its place and is armed, or about to be; B dies as A goes on
    and is the master again, with its token, its keys and a lease that was closed."""
    told = Told()
    with Sentinels() as pair, shop_on(pair.primary, gate=pair.url()) as shop:
        first, second = pair.primary, pair.replica
        policy = shop.create(TOTAL)
        win(shop, told, policy, "a")
        wait_until(lambda: second.is_in_step_with(first), "the replica has it all", 30)
        before = term(shop, policy)
        first.pause()
        shop.redis = pair.fail_over(second)
        if when == "armed":
            win(shop, told, policy, "b")
        else:
            wait_until(lambda: term(shop, policy) > before, "the next term has begun", 30)
        second.kill()
        first.resume()
        shop.redis = pair.fail_over(first)
        sell_out(shop, told, policy)


def test_redis_terms__databases_swapped_there_and_back(shop_on, redis):
    """Trap 45: what SWAPDB brings back has the token that it had, and another's time."""
    told = Told()
    with shop_on(redis) as shop, redis.client() as client:
        policy = shop.create(TOTAL)
        win(shop, told, policy, "a")
        client.swapdb(0, 1)
        win(shop, told, policy, "b")
        client.swapdb(0, 1)
        sell_out(shop, told, policy)


def late_worker(shop, way):
    """A worker that reaches its database by that way, and waits for it for long; it would die when
    it has closed all leases."""
    database = copy.copy(shop.database)
    database.url = way.url(database.url)
    worker = Worker(folder=shop.folder / "late", database=database,
                    config={"gate": shop.redis.url(), "gate_timeout": "2s",
                            "ledger_timeout": "60s", "fault": "worker.before_reset:1:kill"})
    shop.processes.append(worker)
    return worker.spawn().await_start()


def test_redis_terms__a_steward_whose_database_is_late(shop_on, redis, victim):
    """Trap 46: it asks which leases are open while it builds, and hears of its successor's, which
    it must not close."""
    told = Told()
    with Proxy(victim.port) as way, shop_on(redis, servers=1, workers=0) as shop:
        policy = shop.create(TOTAL)
        late = late_worker(shop, way)
        win(shop, told, policy, "a")
        trap = way.trap(b"lease_open_of_policy", HOLD_REQUEST)
        with redis.client() as client:
            client.function_flush("SYNC")
        trap.wait()
        way.pause()
        heir = shop.work()
        heir.await_log("policy_armed", 60)
        with shop.crowd(told, [policy], people=60, prefix="b", workers=4) as crowd:
            crowd.join()
        heir.signal(signal.SIGSTOP)
        lent = open_leases(shop, policy)
        way.resume()
        trap.release()
        wait_until(lambda: not late.alive or late.events("reconcile_failed"),
                   "it goes on with what it was at", 30)
        # Units that return while they are on sale are lent again, and then more win than there are.
        assert open_leases(shop, policy) == lent != []
        late.kill()
        shop.processes.remove(late)
        heir.signal(signal.SIGCONT)
        sell_out(shop, told, policy)


def test_redis_terms__two_workers_and_a_long_way_to_build(shop_on, redis):
    """Trap 47: the one that builds says meanwhile that it lives, and the other leaves it alone."""
    held = 21_000
    with Proxy(redis.port) as way, shop_on(redis, servers=1, workers=0) as shop:
        policy = shop.create(held + 10)
        shop.database.execute(f"""
            INSERT INTO coupon (policy_id, seq, lease_id, requested_at, issued_at, nth, slot,
                request_id, user_id, state)
            SELECT l.policy_id, seq, l.id, 1, 1, 1, 1, decode(md5(seq::text), 'hex'),
                'user-' || seq, 'ISSUED'
            FROM generate_series(1, {held}) seq, lease l WHERE l.policy_id = {policy}""")
        with redis.client() as client:
            client.function_flush("SYNC")
        way.delay_s = 0.05
        workers = [shop.work(gate=f"redis://127.0.0.1:{way.port}", gate_timeout="5s")
                   for _ in range(2)]
        wait_until(lambda: shop.is_armed(policy), "it is armed", 90)
        way.delay_s = 0
        wait_until(lambda: any(worker.events("policy_armed") for worker in workers), "a log line")
        assert sum(len(worker.events("policy_armed")) for worker in workers) == 1
        assert shop.servers[0].claim(policy, "user-17").json["seq"] == 17
        shop.workers = workers


def test_redis_terms__rows_soon_after_a_worker_was_killed(shop_on, redis):
    """Others take over what it looked after when it has not said for a second that it lives."""
    told = Told()
    waited_s = []
    with shop_on(redis, servers=1, gate_timeout="20s") as shop:
        policy = shop.create(10 ** 6)
        with shop.crowd(told, [policy], workers=2, pause_s=0.01) as crowd:
            # Twice in time, of however many on a busy machine.
            while sum(taken_s < 2 for taken_s in waited_s) < 2:
                assert len(waited_s) < 10, f"as long as stewards were taken to live: {waited_s}"
                crowd.await_wins(20)
                victim = shop.steward(policy)
                wait_until(lambda: shop.numbers(policy)[1] < 100, "what is pending is written", 30)
                victim.kill()
                killed_at = time.monotonic()
                top = max((row["seq"] for row in rows(
                    shop.database, "SELECT seq FROM coupon WHERE policy_id = ?", policy)),
                    default=0)
                wait_until(lambda top=top: rows(
                    shop.database, "SELECT 1 AS one FROM coupon WHERE policy_id = ? AND seq > ?"
                    " LIMIT 1", policy, top), "rows again", 30)
                waited_s.append(time.monotonic() - killed_at)
                victim.start()
        print(f"rows again after {waited_s}")
        assert not crowd.counts[503], crowd.words
        shop.settle([policy])
        assert not told.check(shop.database, policy)


def test_redis_terms__a_lease_that_was_closed_behind_its_back(shop_on, redis):
    """The gate is disarmed, and built anew with what is its own."""
    told = Told()
    with shop_on(redis, servers=1) as shop:
        policy = shop.create(TOTAL)
        win(shop, told, policy, "a")
        shop.database.execute(
            f"UPDATE policy SET unleased = unleased + {TOTAL} - 60, version = version + 1"
            f" WHERE id = {policy}")
        shop.database.execute(f"UPDATE lease SET state = 'CLOSED' WHERE policy_id = {policy}")
        before = term(shop, policy)
        with shop.crowd(told, [policy], prefix="b", people=200, workers=2) as crowd:
            wait_until(lambda: any(worker.events("closed_lease_sold") for worker in shop.workers),
                       "it is noticed", 30)
            crowd.join()
        wait_until(lambda: term(shop, policy) > before, "it is built anew in another term", 30)
        shop.settle([policy])
        sell_out(shop, told, policy)
