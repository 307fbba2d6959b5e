"""Claims through Kafka, and what other services hear: one message per claim, one row per message."""

import json
import re

import pytest

from harness import claim_bytes, encode, expect, run_dibs, wait_until
from kafka_stream import DEAD, ISSUED, PENDED, Stream, check_issued, check_pended
from ledger import coupons
from servers import Redis
from sharing import Sharing

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


@pytest.fixture
def stream():
    one = Stream()
    yield one
    one.revive()


def test_kafka__a_rush_is_one_message_and_one_row_per_win(tmp_path, redis, stream):
    """4 policies of 200, each claimed by 1,000 users at two servers; two workers publish and
    consume."""
    totals = {}
    with Sharing(tmp_path, redis) as shop:
        servers = [shop.serve(relay=stream.url) for _ in range(2)]
        for _ in range(2):
            shop.work(relay=stream.url)
        for _ in range(4):
            totals[servers[0].create(total=200)["id"]] = 200
        won = {policy: set() for policy in totals}
        for half, server in enumerate(servers):
            requests = [(policy, f"u{i}") for i in range(half, 1000, 2) for policy in totals]
            outcomes = server.storm([claim_bytes(*request) for request in requests],
                                    connections=200)
            for (policy, user), outcome in zip(requests, outcomes):
                assert outcome.answer.status in (202, 409), outcome.answer
                if outcome.answer.status == 202:
                    won[policy].add(user)
        assert {len(users) for users in won.values()} == {200}
        for policy in totals:
            shop.await_drained(policy)
        for policy, seqs in check_pended(stream.pended(), totals).items():
            assert set(seqs.values()) == won[policy]
            assert shop.holders(policy) == {user: seq for seq, user in seqs.items()}
        stream.await_no_lag()
        events = stream.await_issued(800)
        told = check_issued(events)
        assert len(told) == 800 and set(map(tuple, told.values())) == {("issued",)}
        for event in events:
            row = won[event.body["policy_id"]]
            assert event.body["user"] in row and event.body["state"] == "ISSUED", event
        assert not stream.dead()
        assert stream.broker.topics.partition_count(stream.name(PENDED)) == 3
        assert stream.broker.topics.partition_count(stream.name(ISSUED)) == 3
        assert stream.broker.topics.partition_count(stream.name(DEAD)) >= 1


def test_kafka__a_rush_shows_the_messages_beside_the_rows(tmp_path, redis, stream):
    """Also of a topic that had messages before, and others' between them."""
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve(relay=stream.url)
        shop.work(relay=stream.url)
        for count in range(2):
            ended = run_dibs("rush", "--url", f"http://127.0.0.1:{server.address[1]}", "--json",
                             "--policies", "4", "--total", "50", "--users", "120", "--connections",
                             "40", "--topics", stream.url, timeout_s=120)
            assert ended.returncode == 0, ended
            for storm in json.loads(ended.stdout)["policies"]:
                there = [message for message in stream.pended()
                         if message.key == str(storm["policy_id"]).encode()]
                assert storm["rows"] == 50 and len(there) == 50
                assert storm["topic"] == {
                    "name": stream.name(PENDED), "messages": 50, "partition": there[0].partition,
                    "first_offset": min(message.offset for message in there),
                    "last_offset": max(message.offset for message in there)}
        ended = run_dibs("rush", "--url", f"http://127.0.0.1:{server.address[1]}", "--total", "5",
                         "--topics", stream.url, "-c", "4", timeout_s=60)
        assert re.search(r"\n  messages +5  in partition [0-2] of \S+, offsets \d+ to \d+\n",
                         ended.stdout), ended


def test_kafka__topics_groups_and_partitions_as_they_are_called_here(tmp_path, redis, stream):
    names = {"kafka_topic_pended": "my.claims", "kafka_topic_issued": "my.coupons",
             "kafka_topic_orders": "my.orders", "kafka_group": "my-issuer",
             "kafka_orders_group": "my-counter", "kafka_partitions": 5}
    topics = stream.broker.topics
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve(relay=stream.url, **names)
        shop.work(relay=stream.url, **names)
        policy = server.create(total=20)["id"]
        server.claims(policy, [f"u{i}" for i in range(30)])
        shop.await_drained(policy)
        assert len(topics.messages(stream.name("my.claims"))) == 20
        wait_until(lambda: len(topics.messages(stream.name("my.coupons"))) == 20, "all are told", 30)
        for topic in ("my.claims", "my.coupons", "my.orders", "my.claims-dlq", "my.orders-dlq"):
            assert topics.partition_count(stream.name(topic)) == 5, topic
        topics.produce(stream.name("my.orders"), json.dumps(
            {"order_id": "o1", "items": [{"product_id": "p", "quantity": 2}]}).encode())
        wait_until(lambda: [item["sold"] for item in expect(
            server.get("/v1/products/top?fresh=true"), 200)["items"]] == [2], "it is counted", 30)
        for group, topic, count in (("my-issuer", "my.claims", 20), ("my-counter", "my.orders", 1)):
            wait_until(lambda group=group, topic=topic, count=count: sum(
                topics.committed(stream.prefix + group, stream.name(topic)).values()) == count, f"{group} commits", 30)
        assert not stream.pended()
        ended = run_dibs("rush", "--url", f"http://127.0.0.1:{server.address[1]}", "--json",
                         "--total", "5", "--topics", stream.url, "-c", "4", timeout_s=60,
                         env={"DIBS_KAFKA_TOPIC_PENDED": "my.claims"})
        assert json.loads(ended.stdout)["topic"]["messages"] == 5, ended
    ended = run_dibs("serve", "--relay", stream.url, "--ledger", f"sqlite:{tmp_path}/x.db",
                     "--kafka-topic-issued", "coupon-pended", "--listen", "127.0.0.1:0")
    assert ended.returncode == 2 and "two topics of Kafka are called" in ended.stderr, ended


def test_kafka__what_is_on_its_way_is_pending(tmp_path, redis, stream):
    """Until its row is there, whether it was published or not."""
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve(relay=stream.url)
        policy = server.create(total=10)["id"]

        def pending():
            return [item["user"] for item in
                    expect(server.get(f"/v1/policies/{policy}/pending"), 200)["items"]]
        for user in ("first", "second"):
            assert server.claim(policy, user).status == 202
        assert pending() == ["first", "second"]
        shop.work(relay=stream.url)
        wait_until(lambda: pending() == [], "their rows are there", 60)
        assert len(shop.holders(policy)) == 2 and len(stream.pended()) == 2


def test_kafka__the_life_of_a_coupon_is_told_in_order(tmp_path, redis, stream):
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve(relay=stream.url)
        shop.work(relay=stream.url)
        policy = server.create(total=10)["id"]
        for user in ("redeems", "cancels", "keeps"):
            assert server.claim(policy, user).status == 202
        wait_until(lambda: len(shop.holders(policy)) == 3, "they are issued", 30)
        seqs = shop.holders(policy)
        redeemed, cancelled = (f"{policy}-{seqs[user]}" for user in ("redeems", "cancels"))
        expect(server.post(f"/v1/coupons/{redeemed}/redeem", {"order_id": "o-1"}), 200)
        expect(server.cancel(cancelled), 200)
        stream.await_issued(1, "dibs.coupon.redeemed")
        events = stream.await_issued(1, "dibs.coupon.cancelled")
        told = check_issued(events)
        assert told[redeemed] == ["issued", "redeemed"]
        assert told[cancelled] == ["issued", "cancelled"]
        assert told[f"{policy}-{seqs['keeps']}"] == ["issued"]
        (body,) = {json.dumps(event.body) for event in events
                   if event.headers["ce_type"] == "dibs.coupon.redeemed"}
        assert json.loads(body)["order_id"] == "o-1"


@pytest.mark.parametrize("claims", ["kafka", "direct"])
def test_kafka__a_local_gate_tells_of_its_coupons(serve, stream, claims):
    """Nothing is pending there, so nothing goes through the first topic, whatever is said."""
    server = serve(config={"relay": f"{stream.url}&claims={claims}"})
    policy = server.create(total=50)["id"]
    outcomes = server.claims(policy, [f"u{i}" for i in range(60)])
    assert sum(outcome.answer.status == 201 for outcome in outcomes) == 50
    told = check_issued(stream.await_issued(50))
    assert set(told) == {f"{policy}-{row['seq']}" for row in coupons(server.database, policy)}
    assert not stream.pended()


def test_kafka__the_trace_of_a_request_goes_on(serve, stream):
    """Of what happens in one process."""
    server = serve(config={"relay": stream.url})
    policy = server.create(total=5)["id"]
    assert server.claim(policy, "traced", headers={"traceparent": TRACE}).status == 201
    assert server.claim(policy, "plain").status == 201
    traces = {event.body["user"]: event.headers.get("traceparent")
              for event in stream.await_issued(2)}
    assert traces == {"traced": TRACE, "plain": None}


def trace_of(number):
    return f"00-{number:032x}-{number:016x}-01"


def test_kafka__the_trace_of_a_request_goes_through_redis(tmp_path, redis, stream):
    """From a server through Redis to whoever publishes, and from the message into the ledger: a
    crowd, some of them with a trace, and users with two claims. Afterwards Redis has none left."""
    wanted = {}
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve(relay=stream.url)
        shop.work(relay=stream.url)
        policy = server.create(total=400, limit=2)["id"]
        batch = []
        for number in range(1, 301):
            headers = {"traceparent": trace_of(number)} if number % 3 else {}
            wanted[f"u{number}", 1] = headers.get("traceparent")
            batch.append(encode("POST", f"/v1/policies/{policy}/claims", {"user": f"u{number}"},
                                headers))
        for number in range(301, 311):
            for nth in (1, 2):
                wanted[f"u{number}", nth] = trace_of(1000 * nth + number)
                batch.append(encode("POST", f"/v1/policies/{policy}/claims",
                                    {"user": f"u{number}"},
                                    {"Idempotency-Key": f"{number}-{nth}",
                                     "traceparent": trace_of(1000 * nth + number)}))
        assert {outcome.answer.status for outcome in server.storm(batch, connections=100)} == {202}
        issued = stream.await_issued(len(wanted))
        # Of two claims of one user whichever came first is the first.
        for events in ([(json.loads(one.value), one.headers) for one in stream.pended()],
                       [(one.body, one.headers) for one in issued]):
            found = {(body["user"], body["nth"]): headers.get("traceparent")
                     for body, headers in events}
            assert found.keys() == wanted.keys()
            for user in {user for user, _ in wanted}:
                assert {found[key] for key in found if key[0] == user} == \
                    {wanted[key] for key in wanted if key[0] == user}, user
        shop.await_drained(policy)
        with redis.client() as client:
            fields = client.hkeys(f"COUPON:POLICY:{{{policy}}}:META")
        assert not [field for field in fields if b"trace:" in field]


def test_kafka__readiness_and_status_show_the_broker(tmp_path, redis, stream):
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve(relay=stream.url)
        worker = shop.work(relay=stream.url, worker_listen="127.0.0.1:0")
        policy = server.create(total=10)["id"]
        assert server.claim(policy, "u1").status == 202
        wait_until(lambda: "u1" in shop.holders(policy), "it is issued", 30)

        def part_of(process):
            answer = process.get("/readyz")
            return next(part for part in answer.json["parts"] if part["name"] == "relay")

        for process in (server, worker):
            part = wait_until(lambda process=process: part_of(process)["ready"] and
                              part_of(process), "the relay is ready", 30)
            assert part["kind"] == "kafka", part

        # The coupon may be there before whoever wrote it has counted it.
        def is_counted():
            metrics = worker.metrics()
            return all(metrics[f"dibs_relay_{name}"] >= 1
                       for name in ("up", "published_total", "consumed_total"))

        wait_until(is_counted, "the worker's numbers", 30)
        shown = run_dibs("status", "--url", "http://%s:%d" % server.address)
        assert shown.returncode == 0 and "kafka" in shown.stdout, shown
