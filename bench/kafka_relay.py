"""Claims through Kafka against the direct relay: how fast what is pending gets into the ledger, and
what a claim costs the worker."""

import contextlib
import os
import signal
import statistics
import sys
import time
from pathlib import Path

from harness import BenchError, process_cpu_seconds
from report import Figure, spread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

CLAIMS = 30_000
DRAIN_TIMEOUT_S = 120


class World:
    """A server and a worker with a ledger and a gate of their own, and one way between them."""

    def __init__(self, stack, bench, redis, number, url, relay):
        self.bench = bench
        self.client = redis.client(number)
        gate = redis.url(number)
        self.server = stack.enter_context(bench.dibs_on(url, gate=gate, relay=relay))
        self.worker = stack.enter_context(bench.worker(url, gate, relay=relay))
        self.policies = 0
        self.drain(CLAIMS // 10)  # Connections and topics are made once.

    def pending(self):
        return self.client.zcard(f"COUPON:POLICY:{{{self.policies}}}:PENDING")

    def drain(self, count):
        """Lets so many claims gather, then the worker go: (seconds, its CPU seconds)."""
        self.policies += 1
        self.server.create_policy(self.policies, count)
        os.kill(self.worker.pid, signal.SIGSTOP)
        counted = self.bench.load(self.server, "issued", policy=self.policies, requests=count,
                                  connections=256)
        if counted["statuses"] != {"202": count}:
            raise BenchError(f"{count} claims: {counted['statuses']}")
        cpu, start = process_cpu_seconds(self.worker.pid), time.monotonic()
        os.kill(self.worker.pid, signal.SIGCONT)
        while self.pending() > 0:
            if time.monotonic() - start > DRAIN_TIMEOUT_S:
                raise BenchError(f"{self.pending()} of {count} claims are still pending")
            time.sleep(0.002)
        return time.monotonic() - start, process_cpu_seconds(self.worker.pid) - cpu


def measure_kafka(bench, report, quick):
    import servers  # only here: the other parts need no broker
    rounds = 3 if quick else 7
    count = CLAIMS // 3 if quick else CLAIMS
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(servers.Redis(appendfsync="no"))
        database = stack.enter_context(servers.Postgres())
        broker = stack.enter_context(servers.KafkaBroker())
        direct, kafka = (
            World(stack, bench, redis, number, database.create_database(name), relay)
            for number, (name, relay) in enumerate([("direct", "direct"),
                                                    ("kafka", broker.url())]))
        turns = {direct: [], kafka: []}
        for number in range(rounds):
            for world in (direct, kafka) if number % 2 == 0 else (kafka, direct):
                turns[world].append(world.drain(count))
    for name, place, target in (("CPU of the worker per claim", 1, 2.0), ("time to drain", 0, None)):
        ours, theirs = ([turn[place] for turn in turns[world]] for world in (kafka, direct))
        report.add("kafka", Figure(
            f"{name}, Kafka : direct", spread([a / b for a, b in zip(ours, theirs)]),
            target=target, most=True, kafka=1e6 * statistics.median(ours) / count,
            direct=1e6 * statistics.median(theirs) / count))
