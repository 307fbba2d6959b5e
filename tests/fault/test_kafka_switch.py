"""Claims that go past Kafka while coupons are told through it, and shops that change from one way
to the other, under load and with kill -9: every accepted claim is one coupon, told as one."""

import json

import pytest

from harness import expect, wait_until
from history import ROUNDS, seeded
from kafka_stream import check_claim, check_told
from redis_shop import Told

TOTAL = 200
MUCH = 10 ** 6  # never sold out, so that there is always something on its way
REPEATS = ROUNDS if ROUNDS > 4 else 1
each_round = pytest.mark.parametrize("number", range(REPEATS))


def check_all(shop, stream, told, policies):
    """What must hold in the end. Of the claims only some went through the topic; each of those is
    the one that its winner was told of. Returns their seqs, by policy."""
    shop.settle(policies)
    for policy in policies:
        told.check(shop.database, policy)
    stream.await_no_lag()
    check_told(stream, shop.database, policies)
    pended = {policy: set() for policy in policies}
    for body in map(check_claim, stream.pended()):
        assert told.wins[body["policy_id"], body["seq"]] == body["user"], body
        pended[body["policy_id"]].add(body["seq"])
    assert not stream.dead()
    return pended


def published(shop, policy):
    """Up to which seq the gate knows that all is in the topic."""
    with shop.redis.client() as client:
        return int(client.hget(f"COUPON:POLICY:{{{policy}}}:META", "published") or 0)


def start_as(worker, relay):
    worker.config["relay"] = relay
    worker.start()


def relay_of(process):
    parts = expect(process.get("/readyz"), 200)["parts"]
    return next(part for part in parts if part["name"] == "relay")


@each_round
def test_kafka_direct__claims_need_no_broker(shop_on, redis, stream, number):
    """They go on into the ledger while it is away; what is to be told waits for it."""
    told = Told()
    with shop_on(redis, relay=stream.direct_url, workers=1, worker_listen="127.0.0.1:0") as shop:
        (worker,) = shop.workers
        policy = shop.create(TOTAL)
        with shop.crowd(told, [policy], workers=4) as crowd:
            crowd.await_wins(50)
            stream.broker.kill()
            crowd.await_sold_out([policy])
        shop.await_sold(policy, TOTAL)
        wait_until(lambda: "do not answer" in relay_of(worker)["detail"], "it is noticed", 30)
        stream.broker.start()
        assert not any(check_all(shop, stream, told, [policy]).values())
        part = wait_until(lambda: relay_of(worker)["detail"] == "ok" and relay_of(worker),
                          "it is well again", 30)
        assert part["kind"] == "kafka", part
        wait_until(lambda: worker.metrics()["dibs_relay_up"] == 1, "its number", 30)
        wait_until(lambda: {value for name, value in worker.metrics().items()
                            if name.startswith("dibs_relay_lag")} == {0}, "nothing lags", 30)
        metrics = worker.metrics()
        assert metrics["dibs_relay_published_total"] == metrics["dibs_relay_consumed_total"] == 0


def test_kafka_switch__workers_change_one_by_one(shop_on, redis, stream):
    """Each is killed and comes back the other way, so that both kinds run at once, there and
    back."""
    chance = seeded()
    with shop_on(redis, relay=stream.url) as shop:
        for number in range(REPEATS):
            told = Told()
            policies = [shop.create(MUCH), shop.create(MUCH)]
            with shop.crowd(told, policies, prefix=f"r{number}", workers=4) as crowd:
                crowd.await_wins(50)
                for relay in (stream.direct_url, stream.url):
                    for worker in chance.sample(shop.workers, 2):
                        crowd.await_wins(chance.randint(1, 60))
                        worker.kill()
                        shop.end_terms()
                        start_as(worker, relay)
                    crowd.await_wins(50)
                    for policy in policies:
                        shop.steward(policy)
            pended = check_all(shop, stream, told, policies)
            for policy in policies:
                won = {seq for owner, seq in told.wins if owner == policy}
                assert pended[policy] and pended[policy] < won, "some went each way"


@pytest.mark.parametrize("redis_forgets", [False, True])
def test_kafka_switch__what_is_in_the_topic_comes_out(shop_on, redis, stream, foreign,
                                                      redis_forgets):
    """All is published and marked, and nothing in the ledger, when the only worker is killed; the
    next one lets claims go past the topic. Also where Redis has lost its memory by then, so that
    the claims are nowhere else."""
    told = Told()
    with shop_on(redis, relay=stream.url, workers=1) as shop:
        (worker,) = shop.workers
        policy = shop.create(TOTAL)
        with foreign(shop.database) as session:
            session.execute("LOCK TABLE coupon IN SHARE MODE")
            with shop.crowd(told, [policy], workers=4) as crowd:
                crowd.await_sold_out([policy])
            wait_until(lambda: published(shop, policy) == TOTAL, "all is published", 30)
            session.await_waiter()
            worker.kill()
            session.rollback()
        assert not shop.holders(policy)
        if redis_forgets:
            redis.restart_empty()
        shop.end_terms()
        start_as(worker, stream.direct_url)
        shop.await_sold(policy, TOTAL)
        assert len(check_all(shop, stream, told, [policy])[policy]) == TOTAL


@each_round
def test_kafka_switch__what_waits_in_redis_is_published(shop_on, redis, stream, foreign, number):
    """The other way round: nothing is in the topic or in the ledger when the worker is killed."""
    told = Told()
    with shop_on(redis, relay=stream.direct_url, workers=1) as shop:
        (worker,) = shop.workers
        policy = shop.create(TOTAL)
        with foreign(shop.database) as session:
            session.execute("LOCK TABLE coupon IN SHARE MODE")
            with shop.crowd(told, [policy], workers=4) as crowd:
                crowd.await_sold_out([policy])
            session.await_waiter()
            worker.kill()
            session.rollback()
        assert not shop.holders(policy) and not stream.pended()
        shop.end_terms()
        start_as(worker, stream.url)
        shop.await_sold(policy, TOTAL)
        assert len(check_all(shop, stream, told, [policy])[policy]) == TOTAL
        bodies = [json.loads(message.value) for message in stream.pended()]
        assert [body["seq"] for body in bodies[:TOTAL]] == list(range(1, TOTAL + 1))
