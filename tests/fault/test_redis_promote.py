"""A replica that is behind becomes the primary: what it never had may be lost, and is never given
twice; with replicas=1 nothing that was answered is lost."""

import contextlib
import itertools
import signal
import time

import pytest

from harness import wait_until
from history import ROUNDS, Claim
from proxy import Proxy
from redis_shop import Told
from servers import Redis, RedisSentinel

TOTAL = 800
BEHIND_S = 3
REPEATS = max(1, ROUNDS // 8)


def cut_off(replica):
    """It goes on as it is, and hears no more of its primary."""
    with replica.client() as client:
        client.replicaof("127.0.0.1", 1)


class Plain:
    """A primary and a replica behind an address that is switched by hand."""

    def __enter__(self):
        self.ends = contextlib.ExitStack()
        self.primary = self.ends.enter_context(Redis())
        self.replica = self.ends.enter_context(Redis())
        self.replica.follow(self.primary)
        self.way = self.ends.enter_context(Proxy(self.primary.port))
        return self

    def __exit__(self, *error):
        self.ends.__exit__(*error)

    def url(self):
        return f"redis://127.0.0.1:{self.way.port}"

    def fail_over(self):
        """The old primary lives on, and nobody reaches it."""
        self.replica.promote()
        self.way.target_port = self.replica.port
        self.way.cut()
        return self.replica

    def make_up(self):
        """The other one follows, and everything is as before, the other way round."""
        self.primary, self.replica = self.replica, self.primary
        self.replica.follow(self.primary)


class Watched(RedisSentinel):
    """The same, with a sentinel that sees to it when the primary dies."""

    def fail_over(self):
        self.primary.kill()
        with self.hasty():
            wait_until(lambda: self.master() is self.replica
                       and self.replica.info("replication")["role"] == "master", "a new master", 60)
        return self.replica

    def make_up(self):
        self.primary, self.replica = self.replica, self.primary
        self.replica.start()
        wait_until(lambda: self.replica.info("replication")["role"] == "slave"
                   and self.replica.is_in_step_with(self.primary), "the old one follows", 60)


PAIRS = {"by_hand": Plain, "sentinel": Watched}


def signal_all(workers, number):
    for worker in workers:
        worker.signal(number)


def win_for(shop, told, policy, seconds):
    """Some go on winning for that time."""
    until = time.monotonic() + seconds
    for number in itertools.count():
        claim = Claim(policy, f"slow-{number}", f"key-slow-{number}")
        told.saw(claim, shop.servers[number % 2].claim(*claim))
        if time.monotonic() > until:
            return
        time.sleep(0.05)


@pytest.mark.parametrize("how", list(PAIRS))
def test_redis_promote__a_replica_that_is_behind(shop_on, how):
    """Traps 12 and 29. Nothing is answered before a worker has compared the new primary with the
    ledger."""
    with PAIRS[how]() as pair, shop_on(pair.primary, gate=pair.url()) as shop:
        for number in range(REPEATS):
            told = Told(may_lose=True)
            policy = shop.create(TOTAL)
            with shop.crowd(told, [policy], prefix=f"a{number}", people=30, workers=4) as crowd:
                crowd.join()
            cut_off(pair.replica)
            win_for(shop, told, policy, BEHIND_S)
            signal_all(shop.workers, signal.SIGSTOP)
            with shop.crowd(told, [policy], prefix=f"b{number}", workers=2) as crowd:
                crowd.await_wins(20)  # These are pending, and only the primary has them.
                shop.redis = pair.fail_over()
                crowd.await_each_refused()  # What is heard from here on was asked of the new one.
                answered = crowd.counts[202]
                crowd.await_refusals(50)
                assert crowd.counts[202] == answered, "an unarmed gate has answered"
                signal_all(shop.workers, signal.SIGCONT)
                crowd.await_wins(50)
            with shop.crowd(told, [policy], prefix=f"c{number}", workers=12) as crowd:
                # Until then the crowd goes on, for what was lost after a sell-out is there again.
                shop.await_sold(policy, TOTAL)
                crowd.await_sold_out([policy])
            shop.settle([policy])
            lost = told.check(shop.database, policy)
            shop.await_sold(policy, TOTAL)
            assert lost, "the replica was not behind"
            assert lost <= shop.missing_seqs(policy)
            assert shop.servers[0].request("DELETE", f"/v1/policies/{policy}").status == 200
            if number + 1 < REPEATS:
                pair.make_up()


@pytest.mark.parametrize("how", list(PAIRS))
def test_redis_promote__one_replica_has_it(shop_on, how):
    """Trap 12: with replicas=1 too few get 503, and whoever asks again finds the claim, or wins one
    on the new primary. No 202 is lost."""
    with PAIRS[how]() as pair, shop_on(pair.primary, gate=pair.url(), replicas=1) as shop:
        assert "nor does a failover" in shop.servers[0].await_log("gate_opened")["guarantee"]
        for number in range(REPEATS):
            told = Told()
            policy = shop.create(TOTAL)
            # A replica that is away for a moment: what was decided meanwhile is found again.
            with shop.crowd(told, [policy], prefix=f"a{number}", people=60, workers=4) as crowd:
                crowd.await_wins(10)
                cut_off(pair.replica)
                crowd.await_refusals(10)
                pair.replica.follow(pair.primary)
                crowd.join()
            assert len(told.seqs) == 60
            # One that is behind, and promoted.
            with shop.crowd(told, [policy], prefix=f"b{number}", workers=4) as crowd:
                crowd.await_wins(10)
                # What would be told now is pending on the primary only.
                signal_all(shop.workers, signal.SIGSTOP)
                cut_off(pair.replica)
                crowd.await_refusals(20)
                won = crowd.wins()
                shop.redis = pair.fail_over()
                signal_all(shop.workers, signal.SIGCONT)
                pair.make_up()
                crowd.await_wins(50, since=won)
            with shop.crowd(told, [policy], prefix=f"c{number}", workers=12) as crowd:
                # Until then the crowd goes on, for what was lost after a sell-out is there again.
                shop.await_sold(policy, TOTAL)
                crowd.await_sold_out([policy])
            shop.settle([policy])
            assert not told.check(shop.database, policy)
            shop.await_sold(policy, TOTAL)
            told.check_answers(shop.servers[-1])
            assert shop.servers[0].request("DELETE", f"/v1/policies/{policy}").status == 200
