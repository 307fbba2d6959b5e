"""kill -9 of a worker at every point between two steps of the way through Kafka: publishing, the
mark, the database's commit, the gate's acknowledgement, the offset; of the events that come out,
and of the orders that come in."""

import concurrent.futures
import json
import re
import signal

from harness import ROOT, wait_until
from history import ROUNDS, seeded
from kafka_stream import ORDERS, Stream, check_committed, check_pended, check_told
from ledger import ServedDatabase, rows
from redis_shop import Shop, Told
from servers import Redis

TOTAL = 60
REPEATS = ROUNDS if ROUNDS > 4 else 1
# The group waits for a member that was killed until its session is over, so several go at once.
AT_ONCE = 6
POINTS = sorted({
    "ledger.before_commit", "ledger.after_commit", "worker.before_acknowledge",
    "worker.after_acknowledge",
    *(name for folder in ("event", "relay") for path in (ROOT / "src" / folder).rglob("*.c")
      for name in re.findall(r'FAULT_POINT\("([a-z_.]+)"\)', path.read_text()))})


def die_at(shop, point, count):
    """Starts the worker so that it dies there."""
    (worker,) = shop.workers
    worker.env = {"DIBS_FAULT": f"{point}:{count}:kill"}
    worker.spawn()
    return worker


def kill_at(folder, redis, database, point, count):
    """A drop whose worker dies at the point and is started again."""
    told, stream = Told(), Stream()
    with Shop(folder, redis, database, servers=1, workers=1, relay=stream.url,
              gate_timeout="5s") as shop:
        policy = shop.create(TOTAL)
        rest = shop.create(10 ** 6)  # so that there is always something on its way
        shop.workers[0].stop()
        worker = die_at(shop, point, count)
        if point.startswith("orders."):
            send_orders(stream)
        with shop.crowd(told, [policy, rest], prefix="p", workers=3, pause_s=0.01) as crowd:
            if point == "kafka.revoked":
                worker.await_log("partitions_assigned", 60)
                shop.work()  # Its coming takes partitions away.
            wait_until(lambda: worker.process.poll() is not None, f"it passes {point}", 120)
            assert worker.wait() == -signal.SIGKILL, worker.log_text()
            check_committed(stream, database)
            shop.end_terms()
            worker.env = {}
            worker.start()
            crowd.await_sold_out([policy])
        shop.settle([policy, rest])
        for one in (policy, rest):
            told.check(shop.database, one)
        shop.await_sold(policy, TOTAL)
        wins = {one: len({seq for owner, seq in told.wins if owner == one})
                for one in (policy, rest)}
        check_pended(stream.pended(), wins)
        stream.await_no_lag()
        check_told(stream, shop.database, wins)
        if point.startswith("orders."):
            check_orders(shop.database)


def send_orders(stream):
    """Three orders, of which one comes twice."""
    for number in (1, 2, 2, 3):
        body = {"order_id": f"o{number}", "items": [{"product_id": "p", "quantity": number}]}
        stream.broker.topics.produce(stream.name(ORDERS), json.dumps(body).encode(), key=b"o")


def check_orders(database):
    wait_until(lambda: len(rows(database, "SELECT * FROM sale_order")) == 3, "every order", 30)
    assert sum(row["quantity"] for row in rows(database, "SELECT * FROM sale_day")) == 6


def test_kafka_points__a_worker_dies_between_any_two_steps(tmp_path, victim):
    """Traps 5, 9, 10 and 34: nothing is lost, nothing issued twice, nothing stays pending."""
    chance = seeded()
    assert len(POINTS) > 10
    with Redis(settings={"databases": REPEATS * len(POINTS)}) as redis, \
            concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = {}
        for number in range(REPEATS):
            for point in POINTS:
                name = f"{number}-{point}"
                # Each has keys, topics and a database of its own.
                own = RedisDatabase(redis, len(jobs))
                # Those that may be passed only once: the orders come in one batch.
                once = point == "kafka.revoked" or point.startswith("orders.")
                count = 1 if number == 0 or once else chance.choice([1, 2, 3])
                jobs[name] = pool.submit(kill_at, tmp_path / name, own, ServedDatabase(victim),
                                         point, count)
        failures = {name: job.exception() for name, job in jobs.items() if job.exception()}
    assert not failures, "\n\n".join(f"{name}: {error}" for name, error in failures.items())


class RedisDatabase:
    """One of the databases of a Redis, as if it were a server of its own."""

    def __init__(self, redis, number):
        self.redis = redis
        self.number = number

    def url(self):
        return self.redis.url(self.number)

    def client(self):
        return self.redis.client(self.number)

    def connection_errors(self):
        return self.redis.connection_errors()
