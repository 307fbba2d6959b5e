"""Claims through Kafka against the direct relay: what a claim costs the worker, all of its threads
and all that it does for it: reading Redis, the ledger's client, telling Redis; through Kafka also
publishing and reading it, and the event that other services hear of it.

Like for like is against claims that take the direct way while the same events are told through
Kafka (claims=direct); beside it stands the direct relay that tells nobody anything.

Two ways to look at it, because both batch. A backlog is drained in full batches, where the direct
relay has nothing left to save; while few people claim at a time, each batch has few claims, and
what a batch costs counts. Beside them the floor: librdkafka alone, with as many messages."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import BenchError, process_cpu_seconds
from report import Figure, spread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

CLAIMS = 30_000
FEW_CLAIMS = 6_000
FEW_CONNECTIONS = 8
DRAIN_TIMEOUT_S = 120
# Nothing told; the events of coupons through Kafka; claims and events through Kafka.
DIRECT, EVENTS, KAFKA = WORLDS = ("direct", "direct with events", "Kafka")
FLOOR = "direct and librdkafka alone"


class World:
    """A server and a worker with a ledger and a gate of their own, and one way between them."""

    def __init__(self, stack, bench, redis, number, database, name, relay):
        self.bench = bench
        self.database, self.name = database, name
        self.client = redis.client(number)
        url, gate = database.create_database(name), redis.url(number)
        self.server = stack.enter_context(bench.dibs_on(url, gate=gate, relay=relay))
        self.worker = stack.enter_context(bench.worker(url, gate, relay=relay))
        self.policies = 0
        self.drain(CLAIMS // 10)  # Connections and topics are made once.

    def is_done(self):
        """Nothing is pending, and everything that others are to hear is told."""
        key = f"COUPON:POLICY:{{{self.policies}}}:PENDING"
        return self.client.zcard(key) == 0 and not self.database.query(
            self.name, "SELECT 1 AS waits FROM outbox LIMIT 1")

    def claim(self, count, connections):
        counted = self.bench.load(self.server, "issued", policy=self.policies, requests=count,
                                  connections=connections)
        if counted["statuses"] != {"202": count}:
            raise BenchError(f"{count} claims: {counted['statuses']}")

    def open_policy(self, count):
        self.policies += 1
        self.server.create_policy(self.policies, count)

    def await_done(self):
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while not self.is_done():
            if time.monotonic() > deadline:
                raise BenchError(f"the worker is not done with policy {self.policies}")
            time.sleep(0.005)

    def drain(self, count):
        """Lets so many claims gather, then the worker go: (its CPU seconds, seconds)."""
        self.open_policy(count)
        os.kill(self.worker.pid, signal.SIGSTOP)
        self.claim(count, 256)
        cpu, start = process_cpu_seconds(self.worker.pid), time.monotonic()
        os.kill(self.worker.pid, signal.SIGCONT)
        self.await_done()
        return process_cpu_seconds(self.worker.pid) - cpu, time.monotonic() - start

    def follow(self, count):
        """The worker goes along while few people at a time claim: (its CPU seconds, seconds)."""
        self.open_policy(count)
        cpu, start = process_cpu_seconds(self.worker.pid), time.monotonic()
        self.claim(count, FEW_CONNECTIONS)
        self.await_done()
        return process_cpu_seconds(self.worker.pid) - cpu, time.monotonic() - start


def floor(bench, broker, count):
    """Microseconds of CPU that librdkafka alone needs per claim: the least of a few rounds, since
    the first ones find everything cold."""
    host = broker.url().removeprefix("kafka://")
    done = subprocess.run([str(bench.program("kafka_floor")), host, str(count), "3"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(done.stderr.strip())
    return min(json.loads(done.stdout))


def compare(report, name, turns, pair, count, target=None):
    """Adds the ratio of two worlds; turns are the seconds of each of them by its name."""
    kafka, other = (turns[world] for world in pair)
    report.add("kafka", Figure(
        f"{name}: {pair[0]} : {pair[1]}", spread([a / b for a, b in zip(kafka, other)]),
        target=target, most=True, kafka=1e6 * statistics.median(kafka) / count,
        direct=1e6 * statistics.median(other) / count))


def add_floor(report, name, alone, cpu, count):
    """Against librdkafka alone, with as many messages as a claim has, on top of the direct relay: what
    is above it is the worker's own."""
    floors = [1e-6 * a * count + b for a, b in zip(alone, cpu[DIRECT])]
    compare(report, name, {KAFKA: cpu[KAFKA], FLOOR: floors}, (KAFKA, FLOOR), count)
    compare(report, name, {FLOOR: floors, DIRECT: cpu[DIRECT]}, (FLOOR, DIRECT), count)


def measure_kafka(bench, report, quick):
    import servers  # only here: the other parts need no broker
    rounds = 3 if quick else 7
    count = CLAIMS // 3 if quick else CLAIMS
    few = FEW_CLAIMS // 3 if quick else FEW_CLAIMS
    cpu, seconds, few_cpu = ({name: [] for name in WORLDS} for _ in range(3))
    alone = []
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(servers.Redis(appendfsync="no"))
        database = stack.enter_context(servers.Postgres(settings={"max_connections": 120}))
        broker = stack.enter_context(servers.KafkaBroker())
        relays = {DIRECT: "direct", EVENTS: broker.url(prefix="events-", claims="direct"),
                  KAFKA: broker.url()}
        worlds = [(name, World(stack, bench, redis, number, database, f"world{number}",
                               relays[name])) for number, name in enumerate(WORLDS)]
        for number in range(rounds):
            for name, world in worlds if number % 2 == 0 else reversed(worlds):
                spent, took = world.drain(count)
                cpu[name].append(spent)
                seconds[name].append(took)
                few_cpu[name].append(world.follow(few)[0])
            alone.append(floor(bench, broker, count))
    backlog, few_at_a_time = "worker's CPU, a backlog", "worker's CPU, few at a time"
    compare(report, backlog, cpu, (KAFKA, EVENTS), count, target=2.0)
    compare(report, backlog, cpu, (KAFKA, DIRECT), count)
    compare(report, backlog, cpu, (EVENTS, DIRECT), count)
    add_floor(report, backlog, alone, cpu, count)
    compare(report, few_at_a_time, few_cpu, (KAFKA, EVENTS), few)
    compare(report, few_at_a_time, few_cpu, (KAFKA, DIRECT), few)
    compare(report, "time to drain the backlog", seconds, (KAFKA, DIRECT), count)
