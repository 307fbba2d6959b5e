"""A hostile crowd beside a normal one: what 5,000 claims a second, an operator and the server's
memory notice of it."""

import contextlib
import http.client
import json
import os
import statistics
import subprocess
import threading

from harness import GENERATOR_CORE, BenchError, Server, pin_to, resident_bytes
from report import Figure, spread

POLICIES = 500  # what lists and /metrics are long by
PER_SECOND = 5000
SECONDS = 4
TOKEN = "the-token-of-the-operator"
MEBIBYTE = 1 << 20


def pin_low():
    """On the generator's core, but never before the people, whose lateness is measured there."""
    pin_to(GENERATOR_CORE)()
    os.nice(19)


class Memory:
    """The most memory that a process had while this was open."""

    def __init__(self, pid):
        self.pid = pid
        self.most = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.ended.wait(0.05):
            self.most = max(self.most, resident_bytes(self.pid))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


class Shop:
    """A server that faces the internet: an operator with a token, and claims open to all."""

    def __init__(self, bench, server):
        self.bench = bench
        self.server = server
        self.claims = 0
        self.won = 0
        self.seen = {}

    def create_policies(self):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        connection = http.client.HTTPConnection(self.server.address, timeout=60)
        with contextlib.closing(connection):
            for number in range(1, POLICIES + 1):
                connection.request("POST", "/v1/policies", json.dumps({
                    "id": number, "name": f"policy {number}", "total": 100_000_000,
                    "discount": {"type": "percent", "value": 10}}), headers)
                reply = connection.getresponse()
                reply.read()
                if reply.status != 201:
                    raise BenchError(f"a policy was answered {reply.status}")

    def crowd(self, *words, **options):
        host, port = self.server.address.rsplit(":", 1)
        return subprocess.Popen(
            [str(self.bench.program("crowd")), words[0], host, port, *map(str, words[1:])],
            stdout=subprocess.PIPE, text=True, **options)

    def round(self, is_hostile):
        with contextlib.ExitStack() as stack:
            memory = stack.enter_context(Memory(self.server.pid))
            hostile = None
            if is_hostile:
                hostile = self.crowd("hostile", SECONDS + 1, preexec_fn=pin_low)
                stack.callback(hostile.wait)
                stack.callback(hostile.kill)
            people = self.crowd("people", TOKEN, SECONDS, PER_SECOND, self.claims,
                                preexec_fn=pin_to(GENERATOR_CORE))
            said = people.communicate()[0]
            if people.returncode != 0:
                raise BenchError("the people were sent away:\n"
                                 + self.server.log_path.read_text()[-2000:])
            if hostile is not None:
                self.seen = json.loads(hostile.communicate()[0])
        counted = json.loads(said)
        self.claims += SECONDS * PER_SECOND
        self.won += counted["won"]
        counted["memory"] = memory.most
        return counted

    def issued(self):
        connection = http.client.HTTPConnection(self.server.address, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/v1/policies/1")
            return json.loads(connection.getresponse().read())["issued"]


def audit(bench, server, token_file):
    """Whether gate and ledger are at one: 0, or what `dibs audit` ends with."""
    done = subprocess.run([str(bench.build / "dibs"), "audit", "--policy", "1", "--url",
                           f"http://{server.address}", "--token-file", str(token_file)],
                          capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise BenchError(f"audit: {done.stderr}")
    return done.returncode


def measure_crowd(bench, report, say, quick):
    rounds = 2 if quick else 4
    ledger = bench.folder / "crowd.db"
    (bench.folder / "admin").write_text(TOKEN)
    (bench.folder / "admin").chmod(0o600)
    command = [bench.build / "dibs", "serve", "--listen", "127.0.0.1:0", "--ledger",
               f"sqlite:{ledger}", "--claims", "open", "--admin-token-file", bench.folder / "admin",
               "--threads", "1"]
    alone, beside = [], []
    with Server(command, bench.folder) as server:
        shop = Shop(bench, server)
        shop.create_policies()
        shop.round(False)
        for turn in range(rounds):
            say(f"  crowd: round {turn + 1} of {rounds} …")
            alone.append(shop.round(False))
            beside.append(shop.round(True))
        lost = shop.won - shop.issued() + audit(bench, server, bench.folder / "admin")
    served = [counted["won"] / counted["claims"] for counted in beside]
    say(f"  crowd: {json.dumps(shop.seen)}")
    report.add("crowd", Figure(
        "p99 of claims, ms", spread([b["p99_ms"] / a["p99_ms"] for a, b in zip(alone, beside)]),
        target=2, most=True, alone=statistics.median(a["p99_ms"] for a in alone),
        beside=statistics.median(b["p99_ms"] for b in beside)))
    for name, field, unit, most in (("memory, MiB more", "memory", MEBIBYTE, 256),
                                    ("a change by the operator at most, ms", "patch_max_ms", 1, 100)):
        before = statistics.median(a[field] for a in alone) / unit
        during = [b[field] / unit for b in beside]
        value = [max(during) - before] * 3 if field == "memory" else spread(during)
        report.add("crowd", Figure(name, value, target=most, most=True, alone=before,
                                   beside=statistics.median(during)))
    report.add("crowd", Figure("claims that were won", spread(served), target=1, alone=1,
                               beside=statistics.median(served)))
    report.add("crowd", Figure("told as won, and not issued", (lost,) * 3, target=0, most=True,
                               alone=0, beside=lost))
