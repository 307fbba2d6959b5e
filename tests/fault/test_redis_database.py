"""The database is away in the middle of a drop: claims go on, and all are issued when it is back."""

import time

import pytest

from history import ROUNDS
from redis_shop import Told

AWAY_S = 30 if ROUNDS > 4 else 3
TOTAL = 300


@pytest.mark.parametrize("how", ["killed", "hanging"])
def test_redis_database__away_in_the_middle_of_a_drop(shop_on, redis, victim, how):
    """Trap 10. Nobody is refused meanwhile, and a policy that is sold out by then stays so."""
    told = Told()
    # A disk that takes its time for Redis is not what this is about.
    with shop_on(redis, gate_timeout="20s") as shop:
        small, big = shop.create(TOTAL), shop.create(10 ** 6)
        with shop.crowd(told, [big], prefix="before", workers=4) as crowd:
            crowd.await_wins(50)
        assert not crowd.counts[503]
        victim.kill() if how == "killed" else victim.pause()
        until = time.monotonic() + AWAY_S
        with shop.crowd(told, [small, big], prefix="away", workers=6) as crowd:
            crowd.await_sold_out([small])
            while time.monotonic() < until:
                crowd.await_wins(20)
                time.sleep(0.1)  # So that a soak does not gather more than it can check.
        assert not crowd.counts[503] and not crowd.counts[None], crowd.words
        victim.start() if how == "killed" else victim.resume()
        with shop.crowd(told, [big], prefix="after", workers=4) as crowd:
            crowd.await_wins(50)
        shop.settle([small, big])
        for policy in (small, big):
            assert not told.check(shop.database, policy)
        shop.await_sold(small, TOTAL)
        told.check_answers(shop.servers[-1])
