"""A start with many policies: how soon the server listens, and how soon all of them are open."""

import contextlib
import http.client
import sqlite3
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

POLICY_ROWS = """INSERT INTO policy (id, name, discount_type, discount_value, total, per_user_limit,
    reserve, paused, created_at, version, unleased, next_seq)
SELECT n, 'start', 'percent', 10, {total}, 1, 0, {no}, 1, 1, 0, {total} + 1 FROM {policies}"""
LEASE_ROWS = """INSERT INTO lease (policy_id, first_seq, count, state)
SELECT n, 1, {total}, 'OPEN' FROM {policies}"""
COUPON_ROWS = """INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id,
    requested_at, issued_at)
SELECT n / {claims} + 1, n % {claims} + 1, 'user-' || (1000000000 + n), 1, 1, 'ISSUED', {request_id},
    n / {claims} + 1, 1700000000000, 1700000000000 FROM {all}"""


def statements(policies, claims, numbers, request_id, no):
    """The rows as SQL: `numbers` gives a table of that many numbers n from a first one."""
    words = {"total": 2 * claims, "claims": claims, "policies": numbers(1, policies),
             "all": numbers(0, policies * claims), "request_id": request_id, "no": no}
    return [text.format(**words) for text in (POLICY_ROWS, LEASE_ROWS, COUPON_ROWS)]


def fill_sqlite(path, policies, claims):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = OFF")

        def numbers(first, count):
            return (f"(WITH RECURSIVE r(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM r"
                    f" WHERE n + 1 < {first + count}) SELECT n FROM r)")
        for text in statements(policies, claims, numbers,
                               "CAST(printf('%016d', n) AS BLOB)", 0):
            connection.execute(text)
        connection.execute("PRAGMA journal_mode = WAL")


def fill_postgres(database, policies, claims):
    def numbers(first, count):
        return f"generate_series({first}, {first + count - 1}) n"
    for text in statements(policies, claims, numbers,
                           "decode(lpad(to_hex(n), 32, '0'), 'hex')", "false"):
        database.execute(text)
    database.execute("VACUUM ANALYZE")


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
    with bench.dibs(ledger):
        pass
    fill_sqlite(ledger, policies, CLAIMS)
    measure_kind(bench, report, "sqlite", f"sqlite:{ledger}", policies)
    ledger.unlink()
    import servers  # only here: the others need no database
    from ledger import ServedDatabase
    with servers.Postgres() as postgres:
        database = ServedDatabase(postgres)
        with bench.dibs_on(database.url):
            pass
        fill_postgres(database, policies, CLAIMS)
        measure_kind(bench, report, "postgres", database.url, policies)
