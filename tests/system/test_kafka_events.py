"""What other services hear of coupons: every change once or more, in order, whatever dies."""

import collections
import contextlib
import json
import signal

import pytest

from harness import Server, expect, wait_until
from kafka_stream import Stream, url_of
from ledger import coupons, rows
from servers import Redis
from sharing import Sharing

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SUFFIXES = {"ISSUED": "issued", "REDEEMED": "redeemed", "CANCELLED": "cancelled", "VOID": "voided",
            "MERGED": "merged"}


@pytest.fixture(name="broker")
def _broker():
    stream = Stream()
    yield stream.broker
    stream.revive()


@pytest.fixture(name="topic")
def _topic(request):
    """A prefix of the test's own."""
    return "".join(letter for letter in request.node.name if letter.isalnum()) + "-"


def told(broker, prefix):
    """The events by policy, in their order: each the first time that it was told."""
    seen, found = set(), collections.defaultdict(list)
    for message in broker.topics.messages(prefix + "coupon-issued"):
        if message.headers["ce_id"] not in seen:
            seen.add(message.headers["ce_id"])
            found[message.key.decode()].append(message)
    return found


def expected(database, policy):
    """The ids of the events that the ledger's rows stand for."""
    ids = set()
    for row in coupons(database, policy):
        first = row["state"] if row["state"] in ("VOID", "MERGED") else "ISSUED"
        for state in {first, row["state"]}:
            ids.add(f"{policy}-{row['seq']}-{SUFFIXES[state]}")
    return ids


def check_told(broker, prefix, database, policy):
    """Every change of the policy's coupons was told, in an order that makes sense."""
    messages = told(broker, prefix)[str(policy)]
    ids = [message.headers["ce_id"] for message in messages]
    assert set(ids) == expected(database, policy)
    assert len({message.partition for message in messages}) == 1
    place = {id_: at for at, id_ in enumerate(ids)}
    for id_ in ids:
        coupon, _, kind = id_.rpartition("-")
        if kind in ("redeemed", "cancelled"):
            assert place[f"{coupon}-issued"] < place[id_], ids


def outbox_count(database):
    return rows(database, "SELECT COUNT(*) AS n FROM outbox")[0]["n"]


def await_empty(database):
    wait_until(lambda: outbox_count(database) == 0, "the outbox is empty", 60)


def storm_until_dead(server, policy):
    """Claims that go on while the server dies of what it does with them, if it has not yet."""
    with contextlib.suppress(ConnectionRefusedError):
        server.claims(policy, [f"b{i}" for i in range(20)])
    wait_until(lambda: not server.alive, "it dies", 30)


def change_some(server, policy, won):
    """Redeems and cancels some of those; returns how many changes that are."""
    for seq in won[::5]:
        expect(server.post(f"/v1/coupons/{policy}-{seq}/redeem", {"order_id": f"o{seq}"}), 200)
    for seq in won[1::5]:
        expect(server.cancel(f"{policy}-{seq}"), 200)
    return len(won[::5]) + len(won[1::5])


def winners(outcomes):
    return sorted(outcome.answer.json["seq"] for outcome in outcomes
                  if outcome.answer.status in (201, 202))


# --- a server of its own ---

def test_events__what_they_say(broker, topic):
    with Server(config={"relay": url_of(broker, topic)}) as server:
        policy = server.create(total=3, limit=2)["id"]
        first = expect(server.claim(policy, "u1", key="a", headers={"traceparent": TRACE}), 201)
        expect(server.claim(policy, "u1", key="b", headers={"traceparent": "nonsense"}), 201)
        expect(server.post(f"/v1/coupons/{policy}-1/redeem", {"order_id": "o1"},
                           headers={"traceparent": TRACE}), 200)
        expect(server.cancel(f"{policy}-2"), 200)
        expect(server.cancel(f"{policy}-2"), 200)
        assert server.claim(policy, "u1", key="a").status == 200
        await_empty(server.database)
        messages = told(broker, topic)[str(policy)]
        check_told(broker, topic, server.database, policy)
        server.stop()
        server.check_log()
    assert [message.headers["ce_id"] for message in messages] == [
        f"{policy}-1-issued", f"{policy}-2-issued", f"{policy}-1-redeemed", f"{policy}-2-cancelled"]
    assert [message.headers.get("traceparent") for message in messages] == [TRACE, None, TRACE, None]
    issued, redeemed = (json.loads(messages[at].value) for at in (0, 2))
    assert issued["state"] == "ISSUED" and issued["user"] == "u1" and issued["nth"] == 1
    assert issued["coupon_id"] == first["coupon_id"] and issued["policy_id"] == policy
    assert redeemed["order_id"] == "o1" and redeemed["state"] == "REDEEMED"
    for message in messages:
        assert message.headers["ce_specversion"] == "1.0"
        assert message.headers["content-type"].startswith("application/json")
        assert first["code"] not in message.value.decode()


def test_events__wait_while_the_broker_is_away(broker, topic):
    """Also when the process that had sent them is killed before any broker has them."""
    with Server(config={"relay": url_of(broker, topic)}) as server:
        policy = server.create(total=200)["id"]
        won = winners(server.claims(policy, [f"a{i}" for i in range(50)]))
        await_empty(server.database)
        broker.kill()
        won += winners(server.claims(policy, [f"b{i}" for i in range(50)]))
        assert len(won) == 100
        changes = change_some(server, policy, won)
        server.await_log("events_held_up", 60)
        wait_until(lambda: server.metrics()['dibs_events_waiting{sink="kafka"}'] == 50 + changes, "they wait", 30)
        assert server.metrics()['dibs_events_oldest_seconds{sink="kafka"}'] > 0
        wait_until(lambda: "events wait" in (ready := server.get("/readyz")).body.decode()
                   and ready.status == 200, "it is told, and keeps nobody away")
        expect(server.claim(policy, "late"), 201)
        server.kill()
        server.start()
        server.await_log("events_held_up", 60)
        broker.start()
        await_empty(server.database)
        server.await_log("events_go_on", 30)
        wait_until(lambda: server.metrics()['dibs_events_waiting{sink="kafka"}'] == 0, "none waits")
        check_told(broker, topic, server.database, policy)


@pytest.mark.parametrize("point", ["announcer.after_send", "announcer.after_delivery",
                                   "announcer.after_forget"])
def test_events__none_is_lost_when_it_is_killed(broker, topic, point):
    """Between every two steps; what comes twice has the same id."""
    with Server(config={"relay": url_of(broker, topic)},
                env={"DIBS_FAULT": f"{point}:2:kill"}) as server:
        policy = server.create(total=300)["id"]
        server.claims(policy, [f"a{i}" for i in range(20)])
        wait_until(lambda: not server.alive or outbox_count(server.database) == 0, "the first go")
        if server.alive:
            storm_until_dead(server, policy)
        server.wait()
        server.env = {}
        server.start()
        won = winners(server.claims(policy, [f"late{i}" for i in range(20)]))
        change_some(server, policy, won)
        await_empty(server.database)
        check_told(broker, topic, server.database, policy)


# --- several processes on PostgreSQL ---

@pytest.fixture(name="redis")
def _redis():
    with Redis() as redis:
        yield redis


def test_events__several_processes_tell_in_order(tmp_path, broker, redis, topic):
    """Two workers and two servers change coupons of the same policies; whoever publishes is killed
    in the middle, and the other goes on."""
    with Sharing(tmp_path, redis) as shop:
        relay = url_of(broker, topic)
        servers = [shop.serve(relay=relay) for _ in range(2)]
        workers = [shop.work(relay=relay, worker_listen="127.0.0.1:0") for _ in range(2)]
        policies = [servers[0].create(total=120)["id"] for _ in range(2)]
        for server in servers:
            wait_until(lambda server=server: all(
                server.get(f"/v1/policies/{policy}").status == 200 for policy in policies),
                       "both know them")
        announcer = wait_until(
            lambda: next((worker for worker in workers
                          if worker.metrics()['dibs_events_announcer{sink="kafka"}'] == 1), None),
            "one has the duty", 30)
        won = {}
        for policy in policies:
            won[policy] = winners(servers[0].claims(policy, [f"u{i}" for i in range(100)]))
            assert len(won[policy]) == 100
        announcer.kill()
        for policy in policies:
            shop.await_drained(policy)
            for at, seq in enumerate(won[policy]):
                server = servers[at % 2]
                if at % 4 == 0:
                    expect(server.cancel(f"{policy}-{seq}"), 200)
                elif at % 4 == 1:
                    expect(server.post(f"/v1/coupons/{policy}-{seq}/redeem",
                                       {"order_id": f"o{seq}"}), 200)
        await_empty(shop.database)
        for policy in policies:
            check_told(broker, topic, shop.database, policy)
        announcer.start()


def test_events__a_stalled_announcer_does_no_harm(tmp_path, broker, redis, topic):
    """The one that was stopped finds out that another has the duty."""
    with Sharing(tmp_path, redis) as shop:
        relay = url_of(broker, topic)
        server = shop.serve(relay=relay)
        workers = [shop.work(relay=relay, worker_listen="127.0.0.1:0") for _ in range(2)]
        policy = server.create(total=200)["id"]
        stalled = wait_until(
            lambda: next((worker for worker in workers
                          if worker.metrics()['dibs_events_announcer{sink="kafka"}'] == 1), None),
            "one has the duty", 30)
        other = next(worker for worker in workers if worker is not stalled)
        stalled.signal(signal.SIGSTOP)
        try:
            won = winners(server.claims(policy, [f"u{i}" for i in range(60)]))
            shop.await_drained(policy)
            change_some(server, policy, won)
            wait_until(lambda: other.metrics()['dibs_events_announcer{sink="kafka"}'] == 1, "the other has it", 30)
            await_empty(shop.database)
        finally:
            stalled.signal(signal.SIGCONT)
        stalled.await_log("announcing_elsewhere", 30)
        winners(server.claims(policy, [f"v{i}" for i in range(60)]))
        shop.await_drained(policy)
        await_empty(shop.database)
        check_told(broker, topic, shop.database, policy)
