"""A start with many policies: how soon the server listens, and how soon all of them are open."""

import contextlib
import http.client
import statistics
import sys
import time
from pathlib import Path

from harness import BenchError, process_cpu_seconds
from report import Figure, spread

for folder in ("tests", "tests/system"):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / folder))

POLICIES, CLAIMS = 100_000, 100   # 10 million claims, and each policy's lease is half sold
LISTENS_S = 0.2
OPEN_S = {"sqlite": 10.0, "postgres": 20.0}

def answer(address, method, path, body=None):
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
        return reply.status


def await_status(server, started, status, *request):
    """Seconds until the request is answered so."""
    while answer(server.address, *request) != status:
        if server.process.poll() is not None:
            raise BenchError(server.log_path.read_text())
        time.sleep(0.01)
    return time.monotonic() - started


def measure_once(bench, url, policies):
    with bench.dibs_on(url, restores=False) as server:
        started = time.monotonic() - server.listening_seconds
        newest = await_status(server, started, 201, "POST", f"/v1/policies/{policies}/claims",
                              f'{{"user": "late-{time.monotonic_ns()}"}}')
        everything = await_status(server, started, 200, "GET", "/readyz")
        return server.listening_seconds, newest, everything, process_cpu_seconds(server.pid)


def measure_kind(bench, report, kind, url, policies):
    turns = [measure_once(bench, url, policies) for _ in range(max(2, bench.rounds // 8))]
    listens, newest, everything, cpu = zip(*turns)
    full = policies == POLICIES
    report.add("start", Figure(f"{kind}: seconds until it listens", spread(listens),
                               target=LISTENS_S if full else None, most=True))
    report.add("start", Figure(f"{kind}: seconds until the newest of {policies} policies is open",
                               spread(newest), most=True))
    report.add("start", Figure(f"{kind}: seconds until all are", spread(everything),
                               target=OPEN_S[kind] if full else None, most=True,
                               cpu_seconds=statistics.median(cpu)))


def measure_start(bench, report, say, quick):
    policies = POLICIES // 20 if quick else POLICIES
    ledger = bench.folder / "start.db"
    say(f"start: {policies} policies of {CLAIMS} claims …")
    import many  # only here, as the next: the others need no tests
    with bench.dibs(ledger):
        pass
    many.fill_sqlite(ledger, policies, 2 * CLAIMS, CLAIMS)
    measure_kind(bench, report, "sqlite", f"sqlite:{ledger}", policies)
    ledger.unlink()
    import servers
    from ledger import ServedDatabase
    with servers.Postgres() as postgres:
        database = ServedDatabase(postgres)
        with bench.dibs_on(database.url):
            pass
        many.fill_postgres(database, policies, 2 * CLAIMS, CLAIMS)
        measure_kind(bench, report, "postgres", database.url, policies)
