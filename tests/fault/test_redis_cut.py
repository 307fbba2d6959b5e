"""The way between servers and Redis: cut for one of them, or slower than anyone waits."""

import itertools
import threading

from harness import wait_until
from history import ROUNDS, Claim, seeded
from ledger import audit, coupons
from proxy import Proxy
from redis_shop import Told
from servers import Redis

TOTAL, RESERVE = 400, 100
REPEATS = max(1, ROUNDS // 4)


def breaker(server):
    return [event["state"] for event in server.events("gate_breaker")][-1:]


def check_both(database, policy, histories):
    """Every win of either server is a coupon, or was merged into the one that its user has."""
    audit(database)
    found = {row["seq"]: row for row in coupons(database, policy)}
    merged = 0
    for (owner, seq), user in itertools.chain(*(told.wins.items() for told in histories)):
        if owner != policy:
            continue
        row = found[seq]
        assert row["user_id"] == user, f"{policy}-{seq} went from {user} to {row}"
        if row["state"] == "MERGED":
            merged += 1
            kept = found[row["merged_into"]]
            assert (kept["user_id"], kept["state"]) == (user, "ISSUED"), (row, kept)
        else:
            assert row["state"] == "ISSUED", f"{user} was told {policy}-{seq}: {row}"
    return merged


def test_redis_cut__one_of_two_servers_and_back(shop_on, redis):
    """Traps 19 and 31: the same people before both servers, while one of them comes and goes."""
    with Proxy(redis.port) as way, shop_on(redis, fallback="ledger", gates=[
            None, f"redis://127.0.0.1:{way.port}"]) as shop:
        near, far = shop.servers
        for number in range(REPEATS):
            policy = shop.create(TOTAL, reserve=RESERVE)
            wait_until(lambda policy=policy: far.claim(policy, "probe").status in (200, 202),
                       "both know it")
            # One told of a seq in Redis and of another by the ledger keeps one of them.
            histories = [Told(may_lose=True), Told(may_lose=True)]
            with shop.crowd(histories[1], [policy], [far], prefix=f"r{number}",
                            workers=4) as other:
                # Before the near one has sold everything.
                other.await_wins(10)
                for worker in shop.workers:
                    worker.signal(19)  # SIGSTOP: what is won in Redis stays pending for a while.
                way.refuse()
                way.cut()
                with shop.crowd(histories[0], [policy], [near], prefix=f"r{number}",
                                workers=4) as one:
                    wait_until(lambda other=other: other.counts[201] >= 20 or other.errors,
                               "it is served from the reserve", 30)
                    audit(shop.database)
                    wait_until(lambda one=one: one.counts[202] >= 10 or one.errors,
                               "the near one goes on")
                    for worker in shop.workers:
                        worker.signal(18)  # SIGCONT
                    audit(shop.database)
                    way.admit()
                    wait_until(lambda: breaker(far) == ["closed"], "the way is free again", 60)
                    audit(shop.database)
                    one.await_sold_out([policy])
                    other.await_sold_out([policy])
            shop.settle([policy])
            assert check_both(shop.database, policy, histories) > 0, "nobody won twice"
            # What the merged gave back is won by others.
            late = itertools.count()

            def are_issued(policy=policy, number=number, late=late):
                near.claim(policy, f"late{number}-{next(late)}")
                return len(shop.holders(policy)) == TOTAL

            wait_until(are_issued, "every unit is issued", 60)
            shop.settle([policy])
            assert audit(shop.database)[policy] == TOTAL
            check_both(shop.database, policy, histories)
            assert near.request("DELETE", f"/v1/policies/{policy}").status == 200


def test_redis_cut__people_ask_again_faster_than_they_enter(shop_on, redis):
    """Who won without Redis enters it one after the other; a crowd that asks again and again
    meanwhile does not keep the way back shut."""
    with Proxy(redis.port) as way, shop_on(redis, servers=1, fallback="ledger", gate_timeout="5s",
                                           gates=[f"redis://127.0.0.1:{way.port}"]) as shop:
        server = shop.servers[0]
        policy = shop.create(TOTAL, reserve=RESERVE)
        told = Told()
        people = [Claim(policy, f"u{number}", f"key-{number}") for number in range(12)]
        wait_until(lambda: server.claim(policy, "probe").status in (200, 202), "it is known")
        way.refuse()
        way.cut()
        for claim in people:
            answer = wait_until(lambda claim=claim: (got := server.claim(*claim)).status == 201
                                and got, "the reserve serves", 30)
            told.saw(claim, answer)
        over = threading.Event()
        errors = []

        def ask_again(mine):
            try:
                for claim in itertools.cycle(mine):
                    if over.is_set():
                        return
                    told.saw(claim, server.claim(*claim))
            except BaseException as error:  # pylint: disable=broad-except
                errors.append(error)

        threads = [threading.Thread(target=ask_again, args=(people[part::3],)) for part in range(3)]
        way.delay_s = 0.05  # so that far more ask than enter
        way.admit()
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: breaker(server) == ["closed"] or errors, "the way back", 60)
        finally:
            over.set()
            way.delay_s = 0
            for thread in threads:
                thread.join()
        assert not errors, errors
        shop.settle([policy])
        told.check(shop.database, policy)


class Weather:
    """Makes a way slower than its users wait, and quick again, in turns of a moment."""

    def __init__(self, way, chance, pauses_s):
        self.way, self.chance, self.pauses_s = way, chance, pauses_s
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._blow, daemon=True)

    def _blow(self):
        while not self.over.wait(self.chance.uniform(0.03, 0.3)):
            self.way.delay_s = self.chance.choice(self.pauses_s)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.way.delay_s = 0


def test_redis_cut__answers_that_come_too_late(shop_on):
    """Trap 16: after a timeout the late reply answers the next command. Nobody gets another's
    place, on whichever connection."""
    chance = seeded()
    told = Told()
    # Nobody kills this one: only the way is slow, not a disk.
    with Redis(appendonly="no") as redis, Proxy(redis.port) as way, \
            shop_on(redis, gate_timeout="200ms",
                    gates=[f"redis://127.0.0.1:{way.port}"] * 2) as shop:
        policy, total = shop.create(10 ** 6), 300
        small = shop.create(total)

        def opened():
            """Each time, three calls in a row were not answered in time."""
            return sum(event["state"] == "open" for server in shop.servers
                       for event in server.events("gate_breaker"))

        with shop.crowd(told, [policy], prefix="late", workers=24) as crowd:
            with Weather(way, chance, [0, 0, 0.06, 0.3]):
                wait_until(lambda: crowd.errors or opened() >= 12 * REPEATS,
                           "answers that come too late", 120)
            crowd.await_wins(50)
        with shop.crowd(told, [small], prefix="quick", workers=12) as crowd:
            crowd.await_sold_out([small])
        shop.settle([policy, small])
        told.check(shop.database, policy)
        told.check(shop.database, small)
        shop.await_sold(small, total)
        for server in shop.servers:
            told.check_answers(server)
