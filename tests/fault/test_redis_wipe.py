"""Redis forgets in the middle of a drop: all of it, its keys, or its functions. What is left is
never sold twice, and in the end every unit has its coupon."""

import signal

import pytest

from history import ROUNDS, seeded
from redis_shop import Told

TOTAL = 600


def flush_functions(redis):
    with redis.client() as client:
        client.function_flush("SYNC")


def flush_scripts(redis):
    with redis.client() as client:
        client.script_flush("SYNC")


# How, and whether claims are forgotten by it.
WIPES = {
    "restarted_empty": (lambda redis: redis.restart_empty(), True),
    "keys": (lambda redis: redis.wipe(), True),
    "functions": (flush_functions, False),
    "scripts": (flush_scripts, False),
}


def signal_all(workers, number):
    for worker in workers:
        worker.signal(number)


@pytest.mark.parametrize("what", list(WIPES))
def test_redis_wipe__in_the_middle_of_a_drop(shop_on, redis, what):
    """The workers hold still for a moment, so that some of what is forgotten was pending."""
    chance = seeded()
    wipe, may_lose = WIPES[what]
    with shop_on(redis) as shop:
        for number in range(max(1, ROUNDS // 4)):
            told = Told(may_lose=may_lose)
            policy = shop.create(TOTAL)
            with shop.crowd(told, [policy], prefix=f"r{number}", workers=12) as crowd:
                crowd.await_wins(chance.randint(1, 200))
                signal_all(shop.workers, signal.SIGSTOP)
                crowd.await_wins(40)
                wipe(redis)
                signal_all(shop.workers, signal.SIGCONT)
                # Until then the crowd goes on, for what was lost after a sell-out is there again.
                shop.await_sold(policy, TOTAL)
                crowd.await_sold_out([policy])
            shop.settle([policy])
            lost = told.check(shop.database, policy)
            shop.await_sold(policy, TOTAL)
            # Whom they were given to, nobody knows; which they were, the ledger does.
            assert lost <= shop.missing_seqs(policy)
            if may_lose and shop.workers:
                assert lost, "what was pending was not forgotten"
            # Whoever has a coupon is told of it, as before.
            told.seqs = {claim: seq for claim, seq in told.seqs.items() if seq not in lost}
            told.check_answers(shop.servers[-1])
            assert shop.servers[0].request("DELETE", f"/v1/policies/{policy}").status == 200
