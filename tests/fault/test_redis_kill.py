"""kill -9 of Redis (appendfsync always), of servers and of workers under load: what was answered is
in the ledger, once, and everything starts again by itself."""

import pytest

from history import ROUNDS, seeded
from ledger import KIND, coupons
from redis_shop import Told

VICTIMS = ["redis", "server"] + (["worker"] if KIND != "sqlite" else [])


def kill_redis(shop, crowd, _chance, _policy):
    shop.redis.kill()
    crowd.await_refusals()
    shop.redis.start()


def kill_server(shop, _crowd, chance, _policy):
    """With SQLite it is the worker, too."""
    victim = chance.choice(shop.servers)
    victim.restart()
    if KIND == "sqlite":
        shop.end_terms()


def kill_worker(shop, crowd, chance, policy):
    """The one that works, between any two of its steps; the other takes over."""
    victim = shop.steward(policy) if chance.random() < 0.8 else chance.choice(shop.workers)
    victim.kill()
    shop.end_terms()
    crowd.await_wins(chance.randint(1, 50))  # Servers need no worker to go on.
    victim.start()


KILLS = {"redis": kill_redis, "server": kill_server, "worker": kill_worker}


@pytest.mark.parametrize("who", VICTIMS)
def test_redis_kill__under_load(shop_on, redis, who):
    """Traps 1 and 5. Every user asks twice, with a key, and goes on asking until there is an answer.
    The small policies are sold out while it happens."""
    chance = seeded()
    told = Told()
    with shop_on(redis) as shop:
        policies = {}
        for number in range(ROUNDS):
            # There is more of the big one than can be sold meanwhile, on whichever machine.
            small, big = chance.choice([60, 300]), 100_000
            # Without its key, a wish that is asked again would be a second one.
            policies |= {shop.create(total, limit=2): total for total in (small, big)}
            pair = list(policies)[-2:]
            with shop.crowd(told, pair, prefix=f"r{number}", workers=12) as crowd:
                crowd.await_wins(chance.randint(1, 250))
                KILLS[who](shop, crowd, chance, pair[1])
                crowd.await_wins(50)
                crowd.await_sold_out(pair[:1])
        shop.settle(policies)
        for policy, total in policies.items():
            told.check(shop.database, policy)
            users = [row["user_id"] for row in coupons(shop.database, policy)]
            assert len(users) == len(set(users)), "a wish was granted twice"
            if policy in told.sold_out:
                shop.await_sold(policy, total)
        told.check_answers(shop.servers[-1])
        assert len(told.sold_out) >= ROUNDS
