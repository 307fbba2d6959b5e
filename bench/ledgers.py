"""Each kind of ledger: how fast it takes claims, and what a durable claim costs the server."""

import contextlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

from harness import BenchError
from report import Figure, spread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

KINDS = ("sqlite", "postgres", "mysql")
DRAIN_ROWS = 100_000
SINGLE_ROWS = 1_000
CONNECTIONS = 256


@contextlib.contextmanager
def ledger_url(bench, kind, name):
    """An empty ledger of that kind; its server, where there is one, ends with the block."""
    if kind == "sqlite":
        yield f"sqlite:{bench.folder / name}.db"
        return
    import servers  # only here: the others need no database
    with servers.KINDS[kind](folder=None) as server:
        yield server.create_database(name)


def write(bench, url, mode, policy, rows):
    done = subprocess.run([bench.program("ledger"), url, mode, str(policy), str(rows)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(done.stderr.strip())
    return rows / json.loads(done.stdout)["seconds"]


def measure_writing(bench, report, kind, url, rounds, rows):
    drains, singles, plains = [], [], []
    for number in range(rounds):
        turns = [(drains, "drain", rows), (plains, "plain", rows), (singles, "single", SINGLE_ROWS)]
        for place, (column, mode, count) in enumerate(turns if number % 2 == 0 else turns[::-1]):
            policy = 1000 + number * 10 + place
            column.append(write(bench, url, mode, policy, count))
    report.add("ledgers", Figure(
        f"{kind}: batches : one row per transaction", spread([a / b for a, b in
                                                               zip(drains, singles)]),
        target=25.0 if kind == "postgres" else None, drained=statistics.median(drains),
        against=statistics.median(singles)))
    report.add("ledgers", Figure(
        f"{kind}: drain : plain multi-row insert", spread([a / b for a, b in zip(drains, plains)]),
        target=0.7, drained=statistics.median(drains), against=statistics.median(plains)))


def measure_serving(bench, report, kind, url, rounds):
    """Durable 201s per second of the server's own CPU; the database's is not in it."""
    with bench.dibs_on(url) as server:
        server.create_policy(1, 20_000)
        bench.preload(server, 1, 20_000)
        server.create_policy(2, 50_000_000)
        counted = [bench.round(server, "issued", 201, policy=2, connections=CONNECTIONS,
                               first=(number + 1) * 10**9, stretch=5, warmup=0.05)
                   for number in range(rounds)]
    report.add("serving", Figure(
        f"{kind}: durable 201s per CPU second of dibs", None,
        speed=statistics.median(c["per_cpu_second"] for c in counted),
        wall=statistics.median(c["requests"] / c["seconds"] for c in counted)))


def measure_ledgers(bench, report, say, quick):
    rounds = 1 if quick else 3
    rows = DRAIN_ROWS // 5 if quick else DRAIN_ROWS
    for kind in KINDS:
        say(f"  {kind} …")
        with ledger_url(bench, kind, "bench") as url:
            measure_writing(bench, report, kind, url, rounds, rows)
        with ledger_url(bench, kind, "serving") as url:
            measure_serving(bench, report, kind, url, rounds)
