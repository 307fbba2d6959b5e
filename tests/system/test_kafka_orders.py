"""Orders that come in through a topic: each counts once, whatever comes twice or dies."""

import json

import pytest

from harness import Server, now_rfc3339, wait_until
from kafka_stream import Stream, url_of
from ledger import rows
from servers import Redis
from sharing import Sharing


@pytest.fixture(name="broker")
def _broker():
    stream = Stream()
    yield stream.broker
    stream.revive()


@pytest.fixture(name="topic")
def _topic(request):
    """A prefix of the test's own."""
    return "".join(letter for letter in request.node.name if letter.isalnum()) + "-"


def order(number, quantity=1, **fields):
    return json.dumps({"order_id": f"o{number}", "paid_at": "2026-11-15T12:00:00Z",
                       "items": [{"product_id": f"p{number % 3}", "quantity": quantity}],
                       **fields}).encode()


def sold(database):
    """{product: how many}, as the ledger counts them."""
    return {row["product_id"]: int(row["sold"]) for row in
            rows(database, "SELECT product_id, SUM(quantity) AS sold FROM sale_day"
                           " GROUP BY product_id")}


def consumed(process, result):
    return process.metrics()[f'dibs_orders_consumed_total{{result="{result}"}}']


def await_committed(broker, prefix, count):
    """Until the group has committed everything that is in the topic."""
    wait_until(lambda: sum(broker.topics.committed(prefix + "dibs-orders",
                                                   prefix + "order-completed").values()) == count,
               "all offsets are committed", 60)


def test_kafka_orders__count_once(broker, topic):
    with Server(config={"relay": url_of(broker, topic), "orders_keep_days": "20000"}) as server:
        name = topic + "order-completed"
        wait_until(lambda: broker.topics.partition_count(name) == 3, "the topic is there", 30)
        for number in range(12):
            broker.topics.produce(name, order(number), key=f"k{number}".encode())
        broker.topics.produce(name, order(3))
        broker.topics.produce(name, json.dumps(
            {"order_id": "late", "items": [{"product_id": "p0", "quantity": 5}]}).encode())
        await_committed(broker, topic, 14)
        assert sold(server.database) == {"p0": 4 + 5, "p1": 4, "p2": 4}
        wait_until(lambda: (consumed(server, "added"), consumed(server, "known")) == (13, 1),
                   "they are counted")
        # What is no order, or tells otherwise of one, is put aside and holds up nothing.
        broker.topics.produce(name, b"{]", key=b"poison", headers={"mine": "kept"})
        broker.topics.produce(name, order(4, quantity=9))
        broker.topics.produce(name, order(5, quantity=0))
        tomorrow = order(6, paid_at=now_rfc3339(86400))
        old = order(21, paid_at="1971-01-01T00:00:00Z")
        broker.topics.produce(name, tomorrow)
        broker.topics.produce(name, old)
        broker.topics.produce(name, order(20))
        await_committed(broker, topic, 20)
        assert sold(server.database)["p2"] == 5
        dead = broker.topics.messages(topic + "order-completed-dlq")
        assert sorted(message.value for message in dead) == sorted(
            [b"{]", order(4, quantity=9), order(5, quantity=0), tomorrow, old])
        for message in dead:
            assert message.headers["dibs_topic"] == name
            assert message.headers["dibs_reason"] and message.headers["dibs_offset"].isdigit()
        assert next(m for m in dead if m.key == b"poison").headers["mine"] == "kept"
        assert "orders_keep_days" in next(m for m in dead if m.value == old).headers["dibs_reason"]
        wait_until(lambda: consumed(server, "dead") == 5, "they are counted")
        server.stop()
        server.check_log()


@pytest.mark.parametrize("point", ["orders.before_commit", "orders.after_commit"])
def test_kafka_orders__count_once_when_it_is_killed(broker, topic, point):
    """Before the ledger has them, and between the ledger's commit and that of the offset."""
    name = topic + "order-completed"
    broker.topics.create(name)
    for number in range(10):
        broker.topics.produce(name, order(number))
    # They may come before it has said that it listens.
    with Server(config={"relay": url_of(broker, topic)},
                env={"DIBS_FAULT": f"{point}:1:kill"}).spawn() as server:
        server.wait(60)
        assert bool(sold(server.database)) == (point == "orders.after_commit")
        server.env = {}
        server.start()
        await_committed(broker, topic, 10)
        assert sold(server.database) == {"p0": 4, "p1": 3, "p2": 3}


def test_kafka_orders__wait_for_the_database(tmp_path, broker, topic):
    """Two workers share the partitions; while the database is away nothing is committed or lost."""
    name = topic + "order-completed"
    broker.topics.create(name)
    with Redis() as redis, Sharing(tmp_path, redis) as shop:
        workers = [shop.work(relay=url_of(broker, topic), ledger_timeout="1s",
                             worker_listen="127.0.0.1:0") for _ in range(2)]
        broker.topics.produce(name, order(0))
        await_committed(broker, topic, 1)
        shop.database.server.pause()
        for number in range(1, 9):
            broker.topics.produce(name, order(number))
        wait_until(lambda: all(worker.get("/readyz").status == 503 for worker in workers),
                   "they miss the database", 30)
        assert sum(broker.topics.committed(topic + "dibs-orders", name).values()) == 1
        shop.database.server.resume()
        await_committed(broker, topic, 9)
        assert sold(shop.database) == {"p0": 3, "p1": 3, "p2": 3}
        wait_until(lambda: sum(consumed(worker, "added") for worker in workers) == 9,
                   "they are counted")
