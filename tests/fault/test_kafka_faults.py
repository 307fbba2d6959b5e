"""Brokers, databases and workers that fail while claims go through Kafka: every accepted claim is
one coupon, and a policy's messages keep their order."""

import json
import signal

import pytest

from harness import expect, run_dibs, wait_until
from history import ROUNDS, seeded
from kafka_stream import DEAD, PENDED, check_committed, check_pended, check_told
from redis_shop import Told

TOTAL = 300
MUCH = 10 ** 6  # never sold out, so that there is always something on its way
REPEATS = ROUNDS if ROUNDS > 4 else 1
# Those that break what a shop starts with, or leave something behind, get a new shop each time.
each_round = pytest.mark.parametrize("number", range(REPEATS))


def check_all(shop, stream, told, policies, skip=()):
    """What must hold in the end, whatever was broken."""
    shop.settle(policies)
    for policy in policies:
        told.check(shop.database, policy)
    wins = {policy: len({seq for owner, seq in told.wins if owner == policy})
            for policy in policies}
    check_pended(stream.pended(), wins, skip)
    stream.await_no_lag()
    check_told(stream, shop.database, policies)


def words_of_relay(server):
    """What a server says of the brokers. It stays ready without them: claims go on."""
    parts = expect(server.get("/readyz"), 200)["parts"]
    return next(part["detail"] for part in parts if part["name"] == "relay")


@pytest.mark.parametrize("how", ["killed", "hanging"])
def test_kafka_broker__away_in_the_middle_of_a_rush(shop_on, redis, stream, how):
    """Trap 9: claims go on, and what was not confirmed is published again, also when the worker
    that had sent it is gone by then."""
    chance = seeded()
    with shop_on(redis, relay=stream.url) as shop:
        for number in range(REPEATS):
            told = Told()
            policies = [shop.create(TOTAL), shop.create(TOTAL)]
            with shop.crowd(told, policies, prefix=f"r{number}", workers=8) as crowd:
                crowd.await_wins(chance.randint(1, 150))
                stream.broker.kill() if how == "killed" else stream.broker.pause()
                crowd.await_sold_out(policies)
            wait_until(lambda: not words_of_relay(shop.servers[0]).startswith("ok"),
                       "the server notices", 30)
            publisher = shop.steward(policies[0])
            publisher.restart()
            shop.end_terms()
            stream.broker.start() if how == "killed" else stream.broker.resume()
            check_all(shop, stream, told, policies)
            for policy in policies:
                shop.await_sold(policy, TOTAL)
            wait_until(lambda: words_of_relay(shop.servers[0]) == "ok", "it is well again", 30)


def test_kafka_broker__a_worker_ends_while_it_hangs(shop_on, redis, stream):
    """Requests that it does not answer time out after a minute; nobody waits for that, and the next
    worker publishes and commits what is left."""
    with shop_on(redis, relay=stream.url, stop_timeout="1s", gate_timeout="10s") as shop:
        policy = shop.create(TOTAL)
        before, after = ([f"{when}{number}" for number in range(30)] for when in ("b", "a"))
        for user in before:
            expect(shop.servers[0].claim(policy, user), 202)
        wait_until(lambda: shop.holders(policy), "coupons come", 30)
        stream.broker.pause()
        for user in after:
            expect(shop.servers[0].claim(policy, user), 202)
        for worker in shop.workers:
            worker.signal(signal.SIGTERM)
        assert [worker.wait(45) for worker in shop.workers] == [0, 0]  # not after a minute
        stream.broker.resume()
        for worker in shop.workers:
            worker.start()
        wait_until(lambda: shop.holders(policy).keys() == {*before, *after}, "all are issued", 60)


@each_round
def test_kafka_broker__away_from_the_start(shop_on, redis, stream, number):
    """Nobody waits for it to start; the topics are made when it is there."""
    told = Told()
    stream.broker.kill()
    with shop_on(redis, relay=stream.url, gate_timeout="20s") as shop:
        policy = shop.create(TOTAL)
        with shop.crowd(told, [policy], workers=8) as crowd:
            crowd.await_sold_out([policy])
        assert not crowd.counts[503], crowd.words
        assert not shop.holders(policy)
        stream.broker.start()
        check_all(shop, stream, told, [policy])
        shop.await_sold(policy, TOTAL)
        assert stream.broker.topics.partition_count(stream.name(PENDED)) == 3


@pytest.mark.parametrize("how", ["killed", "hanging"])
def test_kafka_database__away_while_messages_come(shop_on, redis, stream, victim, how):
    """Trap 10: nothing is committed to Kafka that is not in the database."""
    with shop_on(redis, relay=stream.url) as shop:
        for number in range(REPEATS):
            told = Told()
            policy = shop.create(TOTAL)
            with shop.crowd(told, [policy], prefix=f"r{number}", workers=8) as crowd:
                crowd.await_wins(50)
                victim.kill() if how == "killed" else victim.pause()
                crowd.await_sold_out([policy])
            victim.start() if how == "killed" else victim.resume()
            check_all(shop, stream, told, [policy])
            shop.await_sold(policy, TOTAL)


@each_round
def test_kafka_database__offsets_wait_for_it(shop_on, redis, stream, foreign, number):
    """Trap 10: while the rows cannot be written, no offset of theirs is committed."""
    told = Told()
    with shop_on(redis, relay=stream.url) as shop:
        policy = shop.create(TOTAL)
        with foreign(shop.database) as session:
            session.execute("LOCK TABLE coupon IN SHARE MODE")
            with shop.crowd(told, [policy], workers=4) as crowd:
                crowd.await_sold_out([policy])
            session.await_waiter()
            for _ in range(3):
                check_committed(stream, shop.database)
            session.rollback()
        check_all(shop, stream, told, [policy])
        shop.await_sold(policy, TOTAL)


@each_round
def test_kafka_poison__goes_to_the_dead_letter_topic(shop_on, redis, stream, number):
    """What cannot be read holds nobody up, and people find it with its reason."""
    told = Told()
    poison = {
        b"poison": "valid JSON",
        b"{}": "is missing",
        b'{"policy_id":1,"user":"u","seq":-1}': "value: seq",
    }
    with shop_on(redis, relay=stream.url) as shop:
        policy = shop.create(TOTAL)
        headers = {"ce_specversion": "1.0", "ce_type": "dibs.coupon.pended", "ce_id": "1-1",
                   "ce_source": "/dibs/policies/1", "content-type": "application/json"}
        with shop.crowd(told, [policy], workers=8) as crowd:
            crowd.await_wins(50)
            for partition in range(3):
                for value in poison:
                    stream.broker.topics.produce(stream.name(PENDED), value, key=b"1",
                                                 headers=headers, partition=partition)
            stream.broker.topics.produce(stream.name(PENDED), b"{}", key=b"1", partition=0)
            crowd.await_sold_out([policy])
        check_all(shop, stream, told, [policy], skip=set(poison))
        shop.await_sold(policy, TOTAL)
        dead = wait_until(lambda: len(stream.dead()) >= 10 and stream.dead(), "dead letters", 30)
        reasons = set()
        for message in dead:
            assert message.key == b"1", message
            assert message.headers["dibs_topic"] == stream.name(PENDED), message
            assert message.headers["dibs_partition"] in "012", message
            assert int(message.headers["dibs_offset"]) >= 0, message
            reason = message.headers["dibs_reason"]
            if "ce_id" in message.headers:
                assert poison[message.value] in reason, message
            else:
                assert reason == 'header ce_specversion: must be "1.0" and is missing', message
            reasons.add(reason)

        def are_listed():
            shown = run_dibs("dead", "list", "--json", "--url",
                             "http://%s:%d" % shop.servers[0].address)
            assert shown.returncode == 0, shown
            listed = json.loads(shown.stdout)["items"]
            # Words may be put around it, such as where it came from.
            return all(any(reason in item["reason"] for item in listed) for reason in reasons)

        wait_until(are_listed, "operators find them")


@each_round
def test_kafka_poison__what_the_ledger_refuses_for_good(shop_on, redis, stream, number):
    """A user who is blocked while the claim is on its way: VOID, with its reason in the topic."""
    told = Told()
    with shop_on(redis, relay=stream.url, gate_timeout="10s") as shop:
        policy = shop.create(10)
        server = shop.servers[0]
        for worker in shop.workers:
            worker.signal(signal.SIGSTOP)
        assert server.claim(policy, "bad").status == 202
        assert server.claim(policy, "good").status == 202
        expect(server.request("PUT", "/v1/users/bad", {"blocked": True}), 200)
        for worker in shop.workers:
            worker.signal(signal.SIGCONT)
        shop.settle([policy])
        wait_until(lambda: set(shop.holders(policy)) == {"good"}, "one is issued", 30)
        (message,) = wait_until(stream.dead, "a dead letter", 30)
        assert json.loads(message.value)["user"] == "bad"
        assert "blocked" in message.headers["dibs_reason"], message
        told.check(shop.database, policy)


def test_kafka_group__a_rebalance_in_the_middle(shop_on, redis, stream):
    """Workers come, go in good order and are killed while messages are on their way."""
    chance = seeded()
    with shop_on(redis, relay=stream.url, stop_timeout="1s") as shop:
        for number in range(REPEATS):
            told = Told()
            policies = [shop.create(TOTAL), shop.create(TOTAL), shop.create(MUCH)]
            with shop.crowd(told, policies, prefix=f"r{number}", workers=4) as crowd:
                crowd.await_wins(chance.randint(1, 200))
                third = shop.work()
                third.await_log("partitions_assigned", 60)
                crowd.await_wins(chance.randint(1, 100))
                shop.workers[0].stop()
                shop.workers[0].start()
                crowd.await_wins(50)
                third.kill()
                shop.end_terms()
                crowd.await_sold_out(policies[:2])
            shop.processes.remove(third)
            third.dispose()
            check_all(shop, stream, told, policies)
            for policy in policies[:2]:
                shop.await_sold(policy, TOTAL)


def test_kafka_publishers__two_of_one_policy(shop_on, redis, stream):
    """One is stalled in the middle, the other takes over, the first wakes up again: the order of
    first occurrences stays."""
    chance = seeded()
    with shop_on(redis, relay=stream.url) as shop:
        for number in range(REPEATS):
            told = Told()
            policy = shop.create(MUCH)
            with shop.crowd(told, [policy], prefix=f"r{number}", workers=4) as crowd:
                crowd.await_wins(chance.randint(20, 60))
                stalled = shop.steward(policy)
                stalled.signal(signal.SIGSTOP)
                shop.end_terms()
                crowd.await_wins(60)
                wait_until(lambda: shop.steward(policy) is not stalled, "another publishes", 30)
                stalled.signal(signal.SIGCONT)
                crowd.await_wins(60)
            check_all(shop, stream, told, [policy])


@each_round
def test_kafka_group__restarts_lose_nothing(shop_on, redis, stream, number):
    """Trap 20: every worker of the group is started again and again, in good order, and the first
    message of a group that never was is not skipped."""
    told = Told()
    # While people claim there is always something left to do before it could end.
    with shop_on(redis, relay=stream.url, stop_timeout="1s") as shop:
        policy = shop.create(MUCH)
        for worker in shop.workers:
            worker.stop()
        with shop.crowd(told, [policy], workers=2, pause_s=0.01) as crowd:
            for _ in range(3):
                for worker in shop.workers:
                    worker.start()
                crowd.await_wins(30)
                for worker in shop.workers:
                    worker.stop()
        for worker in shop.workers:
            worker.start()
        check_all(shop, stream, told, [policy])
        assert not stream.messages(DEAD)
