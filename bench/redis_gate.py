"""The gate in Redis against a script that is called once per request, in CPU time of Redis."""

import contextlib
import statistics
import subprocess
import sys
from pathlib import Path

from harness import BenchError, process_cpu_seconds
from report import Figure

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

BATCHES = (64, 256)
DECISIONS = 64_000
KEYS = [f"COUPON:POLICY:{{1}}:{name}" for name in
        ("REMAINING", "PENDING", "ISSUED", "LEASE", "META", "KEYS", "BOUND")]
# A policy of 10^8 coupons, one each, as dibs_set_policy() takes its row.
POLICY = (1, 1, 0, 0, 0, 0, 0, 10**8, 0, 1, 0, 0, 0, 10, "bench")
PEER_KEYS = [f"{{peer}}:{name}" for name in ("stock", "users", "pending", "sequence")]


class Peer:
    """A Redis with both the function library and the script of one request each."""

    def __init__(self, redis):
        self.redis = redis
        self.client = redis.client()
        self.client.execute_command("FUNCTION", "LOAD", "REPLACE",
                                    (ROOT / "src/gate/redis.lua").read_text())
        self.sha = self.client.script_load((ROOT / "bench/claim.lua").read_text())
        self.named = 0

    def call(self, function, *arguments):
        return self.client.execute_command("FCALL", f"dibs_{function}", 7, *KEYS, *arguments)

    def spent(self, work):
        before = process_cpu_seconds(self.redis.process.pid)
        work()
        return process_cpu_seconds(self.redis.process.pid) - before

    def users(self, count):
        self.named += count
        return [f"u{number:016x}" for number in range(self.named - count, self.named)]

    def batched(self, stock, size):
        """Decisions per CPU second of the function, `size` of them a call."""
        self.client.flushall()
        self.call("set_policy", *POLICY)
        if stock:
            self.call("lend", 1, 1, 10**8, "lease")
        self.call("arm", "bench", 0, "")
        calls = []
        for number in range(DECISIONS // size):
            users = self.users(size)
            calls.append([f"{number:x}", "".join("0" * 14 + u[1:] + "00" for u in users), "-" * size,
                          *users])

        def work():
            for start in range(0, len(calls), 8):
                with self.client.pipeline(transaction=False) as pipe:
                    for arguments in calls[start:start + 8]:
                        pipe.execute_command("FCALL", "dibs_claim", 7, *KEYS, *arguments)
                    pipe.execute()
        return DECISIONS / self.spent(work)

    def per_request(self, stock, depth):
        """The same of the script, by redis-benchmark, `depth` requests sent together."""
        self.client.flushall()
        if stock:
            self.client.set(PEER_KEYS[0], 10**8)
        count = DECISIONS if depth > 1 else DECISIONS // 4

        def work():
            done = subprocess.run(
                ["redis-benchmark", "-p", str(self.redis.port), "-q", "-n", str(count), "-c", "50",
                 "-P", str(depth), "-r", "1000000000", "EVALSHA", self.sha, "4", *PEER_KEYS,
                 "u__rand_int__"], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BenchError(f"redis-benchmark: {done.stderr}{done.stdout}")
        return count / self.spent(work)


def spread(values):
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def compare(report, name, ours, theirs, target):
    report.add("redis", Figure(name, spread([a / b for a, b in zip(ours, theirs)]), target=target,
                               drained=statistics.median(ours), against=statistics.median(theirs)))


def measure_decisions(peer, report, rounds):
    for stock, word in ((True, "wins"), (False, "sold out")):
        ours = {size: [] for size in BATCHES}
        pipelined, alone = [], []
        for _ in range(rounds):
            for size in BATCHES:
                ours[size].append(peer.batched(stock, size))
            pipelined.append(peer.per_request(stock, 64))
            alone.append(peer.per_request(stock, 1))
        for size in BATCHES:
            compare(report, f"{word}, {size} a call : script, pipelined", ours[size], pipelined, 2.5)
        compare(report, f"{word}, 64 a call : script, one by one", ours[64], alone, 4.0)


def measure_path(bench, peer, report, rounds):
    """HTTP and Redis added up, with what draining costs Redis, against what the script alone costs
    it. The worker is a process of its own, as the peer would need one too."""
    import servers
    with servers.Postgres() as database, contextlib.ExitStack() as stack:
        url = database.create_database("bench")
        server = stack.enter_context(bench.dibs_on(url, gate=peer.redis.url()))
        stack.enter_context(bench.worker(url, peer.redis.url()))
        server.create_policy(1, 10_000_000)
        ours, theirs = [], []
        for number in range(rounds):
            before = process_cpu_seconds(peer.redis.process.pid)
            counted = bench.round(server, "issued", 202, policy=1, connections=256, stretch=3,
                                  first=(number + 1) * 10**9)
            redis = process_cpu_seconds(peer.redis.process.pid) - before
            ours.append(counted["requests"] / (counted["server_cpu_seconds"] + redis))
    for number in range(rounds):
        theirs.append(peer.per_request(True, 1))
    compare(report, "202 over HTTP, dibs and Redis : script alone, in Redis", ours, theirs, 1.0)


def measure_redis(bench, report, quick):
    import servers  # only here: the other parts need no Redis
    rounds = 1 if quick else 5
    with servers.Redis(appendfsync="no") as redis:
        peer = Peer(redis)
        measure_decisions(peer, report, rounds)
        peer.client.flushall()
        measure_path(bench, peer, report, rounds)
