"""The gate in Redis against a script that is called once per request, in CPU time of Redis."""

import contextlib
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

from harness import BenchError, Server, process_cpu_seconds
from report import Figure, spread

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

BATCHES = (64, 256)
DECISIONS = 64_000
CONNECTIONS = 50
DRAIN_TIMEOUT_S = 60
SOLD_OUT_SEEN_S = 1.0  # servers look at Redis four times a second
KEYS = [f"COUPON:POLICY:{{1}}:{name}" for name in
        ("REMAINING", "PENDING", "ISSUED", "LEASE", "META", "KEYS", "BOUND")]
FUNCTIONS = (ROOT / "src/gate/redis/redis.lua").read_text()
# A policy of 10^8 coupons, one each, as dibs_set_policy() takes its row: in the order of its ROW.
ROW = {"value": 10, "total": 10**8, "limit": 1, "version": 1, "name": "bench"}
POLICY = [ROW.get(name, 0) for name in
          re.findall(r"'(\w+)'", re.search(r"^local ROW = \{(.*?)\}", FUNCTIONS, re.M | re.S)[1])]
PEER_KEYS = [f"{{peer}}:{name}" for name in ("stock", "users", "pending", "sequence")]


class Peer:
    """A Redis with both the function library and the script of one request each."""

    def __init__(self, redis):
        self.redis = redis
        self.client = redis.client()
        self.client.execute_command("FUNCTION", "LOAD", "REPLACE", FUNCTIONS)
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
        # As long as those of redis-benchmark, and in no order.
        return [f"u{number * 618_033_988_749 % 10**12:012}"
                for number in range(self.named - count, self.named)]

    def batched(self, stock, size):
        """Decisions per CPU second of the function, `size` of them a call."""
        self.client.flushall()
        self.call("set_policy", *POLICY)
        if stock:
            self.call("lend", 1, 1, 10**8, "lease", 0)
        process = self.client.execute_command("FCALL_RO", "dibs_moment", 0, "bench", 0)[0]
        self.call("arm", "0:bench", 0, "", 0, process, 1, 10**13)
        calls = []
        for number in range(DECISIONS // size):
            users = self.users(size)
            calls.append([f"{number:x}", b"".join(bytes(4) + u[1:].encode() for u in users),
                          "0" * size, *users])

        # As many decisions on their way as redis-benchmark has, and no work between the calls.
        together = CONNECTIONS * 64 // size
        connection = self.client.connection_pool.get_connection("FCALL")
        packed = [b"".join(connection.pack_command("FCALL", "dibs_claim", 7, *KEYS, *arguments))
                  for arguments in calls]

        def work():
            for start in range(0, len(packed), together):
                connection.send_packed_command(packed[start:start + together])
                for _ in packed[start:start + together]:
                    connection.read_response()
        spent = self.spent(work)
        self.client.connection_pool.release(connection)
        return DECISIONS / spent

    def per_request(self, stock, depth, empty=True):
        """The same of the script, by redis-benchmark, `depth` requests sent together."""
        if empty:
            self.client.flushall()
        if stock:
            self.client.set(PEER_KEYS[0], 10**8)
        count = DECISIONS if depth > 1 else DECISIONS // 4

        def work():
            done = subprocess.run(
                ["redis-benchmark", "-p", str(self.redis.port), "-q", "-n", str(count),
                 "-c", str(CONNECTIONS),
                 "-P", str(depth), "-r", "1000000000", "EVALSHA", self.sha, "4", *PEER_KEYS,
                 "u__rand_int__", "00000000000000000000__rand_int__", "1700000000000"],
                capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BenchError(f"redis-benchmark: {done.stderr}{done.stdout}")
        return count / self.spent(work)


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


# --- the whole path ---

class GoPeer:
    """The HTTP server in bench/peer, which calls the script once per request; None without Go."""

    def __init__(self, bench, peer):
        self.program = bench.folder / "peer"
        self.bench, self.peer = bench, peer

    def start(self):
        if shutil.which("go") is None:
            return None
        built = subprocess.run(
            ["go", "build", "-o", str(self.program), "."], cwd=ROOT / "bench/peer", text=True,
            capture_output=True, check=False,
            env={"HOME": str(self.bench.folder), "GOFLAGS": "-mod=mod", **os.environ})
        if built.returncode != 0:
            raise BenchError(f"the peer in Go cannot be built:\n{built.stderr}")
        return Server([self.program, "-redis", f"127.0.0.1:{self.peer.redis.port}",
                       "-sha", self.peer.sha], self.bench.folder)


class Path:
    """Claims over HTTP, with what they cost the server and Redis, per million."""

    def __init__(self, bench, redis, server):
        self.bench, self.redis, self.server = bench, redis, server
        self.rounds, self.server_seconds, self.redis_seconds = 0, [], []

    def round(self):
        """One round; the claims are drained when it ends, where somebody drains."""
        self.rounds += 1
        before = process_cpu_seconds(self.redis.process.pid)
        counted = self.bench.round(self.server, "issued", 202, policy=1, connections=256, stretch=3,
                                   first=self.rounds * 10**9)
        self.settle()
        spent = process_cpu_seconds(self.redis.process.pid) - before
        self.server_seconds.append(counted["server_cpu_seconds"] / counted["requests"] * 1e6)
        self.redis_seconds.append(spent / counted["requests"] * 1e6)

    def settle(self):
        pass

    def sums(self):
        return [a + b for a, b in zip(self.server_seconds, self.redis_seconds)]

    def tell(self, report, name):
        report.add("redis_path", Figure(
            name, spread(self.sums()), server=statistics.median(self.server_seconds),
            redis=statistics.median(self.redis_seconds)))


class DibsPath(Path):
    def settle(self):
        with self.redis.client() as client:
            deadline = time.monotonic() + DRAIN_TIMEOUT_S
            while client.zcard(KEYS[1]) > 0:
                if time.monotonic() > deadline:
                    raise BenchError("the worker does not keep up")
                time.sleep(0.005)


def measure_path(bench, peer, report, rounds):
    """HTTP and Redis added up. What draining costs Redis is counted for dibs alone; the worker is a
    process of its own, as the peer would need one, too."""
    import servers
    with servers.Postgres() as database, contextlib.ExitStack() as stack:
        url = database.create_database("bench")
        server = stack.enter_context(bench.dibs_on(url, gate=peer.redis.url()))
        stack.enter_context(bench.worker(url, peer.redis.url()))
        server.create_policy(1, 10_000_000)
        ours = DibsPath(bench, peer.redis, server)
        theirs, alone = None, []
        go_server = GoPeer(bench, peer).start()
        if go_server is not None:
            theirs = Path(bench, peer.redis, stack.enter_context(go_server))
            peer.client.set(PEER_KEYS[0], 10**8)
        for _ in range(rounds):
            ours.round()
            if theirs is not None:
                theirs.round()
            alone.append(1e6 / peer.per_request(True, 1, empty=False))
        measure_sold_out(bench, server, report, rounds)
    ours.tell(report, "dibs, 202 over HTTP, drained by a worker")
    if theirs is not None:
        theirs.tell(report, "a Go server, one EVALSHA per request")
        report.add("redis_path", Figure("a Go server : dibs", spread(
            [b / a for a, b in zip(ours.sums(), theirs.sums())]), target=1.0))
    report.add("redis_path", Figure("the script alone, in Redis", spread(alone), server=0,
                                    redis=statistics.median(alone)))
    report.add("redis_path", Figure("the script alone, in Redis : dibs with HTTP", spread(
        [b / a for a, b in zip(ours.sums(), alone)]), target=1.0))


def measure_sold_out(bench, shared, report, rounds):
    """SOLD_OUT with the gate in Redis against the one in memory."""
    with bench.dibs(bench.folder / "sold.db") as local:
        for server in (local, shared):
            server.create_policy(2, 100)
            counted = bench.load(server, "issued", policy=2, requests=1000, connections=64)
            if sum(counted["statuses"].get(str(status), 0) for status in (201, 202)) != 100:
                raise BenchError(f"selling 100 coupons: {counted['statuses']}")
        time.sleep(SOLD_OUT_SEEN_S)
        speeds = {server: [] for server in (local, shared)}
        for _ in range(2 * rounds):
            for server, figures in speeds.items():
                figures.append(bench.round(server, "sold_out", 409, policy=2, connections=64,
                                           warmup=0.05)["per_cpu_second"])
    report.add("redis_path", Figure("SOLD_OUT, gate in Redis : local gate", spread(
        [b / a for a, b in zip(speeds[local], speeds[shared])]), target=0.95))


def measure_redis(bench, report, quick):
    import servers  # only here: the other parts need no Redis
    rounds = 3 if quick else 7
    # A rewrite of the AOF would fall into one row or another.
    with servers.Redis(appendfsync="no", settings={"auto-aof-rewrite-percentage": 0}) as redis:
        peer = Peer(redis)
        measure_decisions(peer, report, rounds)
        peer.client.flushall()
        measure_path(bench, peer, report, rounds)
