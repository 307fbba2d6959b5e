"""The ledgers of the servers under test: makes them, reads them beside the running server, and
proves their sums.

DIBS_TEST_LEDGER says on which database the servers run: sqlite (the default), postgres or mysql.
The two that are servers run once for all tests; each dibs gets a database of its own on it. A test
that breaks its database server starts one of its own (tests/servers.py) and hands
`ServedDatabase(its_server)` to harness.Server.
"""

import contextlib
import itertools
import os
import pathlib
import re
import sqlite3
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

import servers  # noqa: E402 pylint: disable=wrong-import-position

KIND = os.environ.get("DIBS_TEST_LEDGER") or "sqlite"
ACTIVE = "('ISSUED', 'REDEEMED')"


def statements_of(kind):
    """{name: text} of what a ledger of that kind is asked."""
    text = subprocess.run([ROOT / "scripts" / "statements", "--print", kind], check=True,
                          capture_output=True, text=True).stdout
    return dict(re.findall(r"-- name: (\w+)\n(.*?);\n", text, re.DOTALL))


class Snapshot:
    """One read-only transaction; its queries have ? for each argument."""

    def __init__(self, query):
        self.query = query

    def rows(self, text, *arguments):
        """The rows of a query as dicts."""
        return self.query(text, *arguments)

    def one(self, text, *arguments):
        """The only value of the only row."""
        (row,) = self.query(text, *arguments)
        (value,) = row.values()
        return value


class SqliteDatabase:
    """A ledger in a file."""

    kind = "sqlite"

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.name = self.path.name
        self.url = f"sqlite:{path}"

    @contextlib.contextmanager
    def snapshot(self):
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=30,
                                     isolation_level=None)

        def query(text, *arguments):
            return [dict(row) for row in connection.execute(text, arguments)]

        with contextlib.closing(connection):
            connection.row_factory = sqlite3.Row
            connection.execute("BEGIN")
            yield Snapshot(query)

    def execute(self, text, *arguments):
        """One statement from outside, in a transaction of its own."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=30,
                                                isolation_level=None)) as connection:
            connection.execute(text, arguments)

    def holders(self, server):
        """What the owner may be called by: its process."""
        return [server.pid]

    def set_schema_version(self, number):
        """As a newer dibs would leave it."""
        self.execute(f"PRAGMA user_version = {number}")

    def check_storage(self):
        """What the database itself can say about its files."""
        with self.snapshot() as snapshot:
            assert snapshot.one("PRAGMA quick_check") == "ok"

    def log_text(self):
        return ""

    def discard(self):
        """The file goes with its folder."""


class ServedDatabase:
    """A ledger on a database server of tests/servers.py."""

    BEGIN = {"postgres": "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
             "mysql": "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"}
    SESSIONS = {"postgres": "SELECT pid AS id FROM pg_stat_activity WHERE datname = %s",
                "mysql": "SELECT id FROM information_schema.processlist WHERE db = %s"}
    _numbers = itertools.count(1)

    def __init__(self, server):
        self.server = server
        self.kind = server.KIND
        self.name = f"dibs_{next(self._numbers)}"
        self.url = server.create_database(self.name)
        self._idle = []  # connections
        self._log_start = server.log_path.stat().st_size

    @contextlib.contextmanager
    def snapshot(self):
        """A session for whoever looks costs the server more than the look: it is used again."""
        connection = self._begin()
        try:
            yield Snapshot(lambda text, *arguments: servers.rows_of(
                connection, text.replace("?", "%s"), *arguments))
            servers.rows_of(connection, "ROLLBACK")
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        self._close_idle(keep=1)

    def _begin(self):
        """A connection with a transaction. One from before may be gone with its server."""
        with contextlib.suppress(IndexError, *self.server.connection_errors()):
            connection = self._idle.pop()
            try:
                servers.rows_of(connection, self.BEGIN[self.kind])
                return connection
            except BaseException:
                connection.close()
                raise
        connection = self.server.connect(self.name)
        servers.rows_of(connection, self.BEGIN[self.kind])
        return connection

    def _close_idle(self, keep=0):
        while len(self._idle) > keep:
            with contextlib.suppress(IndexError):  # Others look, too.
                self._idle.pop().close()

    def execute(self, text, *arguments):
        """One statement from outside, in a transaction of its own."""
        self.server.query(self.name, text.replace("?", "%s"), *arguments)

    def holders(self, _server):
        """What the owner may be called by: its sessions, which may come from another machine."""
        return [row["id"] for row in self.server.query(self.name, self.SESSIONS[self.kind],
                                                       self.name)]

    def set_schema_version(self, number):
        """As a newer dibs would leave it."""
        self.execute("INSERT INTO schema_migration (number, name, applied_at)"
                     " SELECT ?, 'newer', max(applied_at) FROM schema_migration", number)

    def check_storage(self):
        """The sums of the audit read every row; these servers check their pages as they do."""

    def log_text(self):
        """What the database server has said since this database was made."""
        with open(self.server.log_path, "rb") as log:
            log.seek(self._log_start)
            return f"--- log of {self.kind} ---\n{log.read().decode(errors='replace')}"

    def discard(self):
        self._close_idle()
        if self.server.alive:
            self.server.drop_database(self.name)


class _Shared:
    """The database servers of all tests, each started when the first needs it."""

    servers = {}

    @classmethod
    def get(cls, kind):
        if kind not in cls.servers:
            # Room for the servers and workers of two crews at a time.
            cls.servers[kind] = servers.KINDS[kind](settings={"max_connections": 150})
        server = cls.servers[kind]
        if not server.alive:  # not yet, or left so by a test that failed
            server.kill()
            server.start()
        return server


def new_database(folder):
    """An empty ledger for one dibs."""
    if KIND == "sqlite":
        return SqliteDatabase(pathlib.Path(folder) / "dibs.db")
    return shared_database(KIND)


def shared_database(kind):
    """An empty ledger on the server of that kind; whoever stops that server starts it again."""
    return ServedDatabase(_Shared.get(kind))


@contextlib.contextmanager
def standing_still(database):
    """Nothing is committed meanwhile."""
    if database.kind != "sqlite":
        database.server.pause()
        try:
            yield
        finally:
            database.server.resume()
        return
    with contextlib.closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def rows(database, query, *arguments):
    with database.snapshot() as snapshot:
        return snapshot.rows(query, *arguments)


def coupons(database, policy_id):
    """All coupon rows of a policy by rising seq."""
    return rows(database, "SELECT * FROM coupon WHERE policy_id = ? ORDER BY seq", policy_id)


# What the audit asks for all policies at once: one column of values by policy_id each.
SUMS = {
    "active": f"SELECT policy_id, count(*) AS value FROM coupon WHERE state IN {ACTIVE}"
              " GROUP BY policy_id",
    "lent": "SELECT policy_id, sum(lease.count - (SELECT count(*) FROM coupon"
            " WHERE coupon.policy_id = lease.policy_id AND coupon.seq >= lease.first_seq"
            " AND coupon.seq < lease.first_seq + lease.count) - (SELECT count(*) FROM refused_claim r"
            " WHERE r.policy_id = lease.policy_id AND r.seq >= lease.first_seq"
            " AND r.seq < lease.first_seq + lease.count)) AS value"
            " FROM lease WHERE state = 'OPEN' GROUP BY policy_id",
    "repeats": "SELECT policy_id, count(seq) - count(DISTINCT seq) AS value FROM coupon"
               " GROUP BY policy_id",
    "highest": "SELECT policy_id, max(seq) AS value FROM coupon GROUP BY policy_id",
    "most": "SELECT policy_id, max(held) AS value FROM (SELECT policy_id, count(*) AS held"
            f" FROM coupon WHERE state IN {ACTIVE} GROUP BY policy_id, user_id) AS holders"
            " GROUP BY policy_id",
    "misplaced": "SELECT policy_id, count(*) AS value FROM coupon WHERE coalesce(slot, -1)"
                 f" <> (CASE WHEN state IN {ACTIVE} THEN nth ELSE -1 END) GROUP BY policy_id",
    "overlaps": "SELECT a.policy_id AS policy_id, count(*) AS value FROM lease a"
                " JOIN lease b ON a.policy_id = b.policy_id AND a.id < b.id"
                " AND a.first_seq < b.first_seq + b.count"
                " AND b.first_seq < a.first_seq + a.count"
                " AND a.count > 0 AND b.count > 0 GROUP BY a.policy_id",
}


# What must have no rows. The feed is whole as long as nothing of it was dropped.
SALES = {
    "totals and orders":
        "SELECT day, product_id, SUM(quantity) AS more FROM ("
        " SELECT day, product_id, quantity FROM sale_day UNION ALL"
        " SELECT o.day, i.product_id, -i.quantity FROM sale_order o"
        " JOIN sale_item i ON i.order_id = o.order_id WHERE o.refunded_at IS NULL) AS sums"
        " WHERE day >= (SELECT COALESCE(MIN(day), 0) FROM sale_order)"  # Older ones are not kept.
        " GROUP BY day, product_id HAVING SUM(quantity) <> 0",
    "totals and feed":
        "SELECT day, product_id, SUM(quantity) AS more FROM ("
        " SELECT day, product_id, quantity FROM sale_day UNION ALL"
        " SELECT day, product_id, -quantity FROM sale_feed) AS sums"
        " GROUP BY day, product_id HAVING SUM(quantity) <> 0",
    "feed and counter":
        "SELECT last_id FROM sale_counter WHERE last_id <> (SELECT COUNT(*) FROM sale_feed)"
        " OR last_id <> (SELECT COALESCE(MAX(id), 0) FROM sale_feed)",
    "orders without items":
        "SELECT order_id FROM sale_order"
        " WHERE order_id NOT IN (SELECT order_id FROM sale_item)",
}


def audit(database):
    """Guarantees 1, 2 and 6, and all sales, in one snapshot; returns {policy id: active coupons}."""
    database.check_storage()
    with database.snapshot() as snapshot:
        policies = {row["id"]: row for row in snapshot.rows("SELECT * FROM policy")}
        sums = {policy: dict.fromkeys(SUMS, 0) for policy in policies}
        for name, query in SUMS.items():
            for row in snapshot.rows(query):
                sums[row["policy_id"]][name] = row["value"]
        wrong = {name: snapshot.rows(query) for name, query in SALES.items()}
    for name, rows in wrong.items():
        assert not rows, f"sales do not add up, {name}: {rows[:5]}"
    for policy_id, policy in policies.items():
        _audit_policy(policy, **sums[policy_id])
    return {policy: sums[policy]["active"] for policy in policies}


def _audit_policy(policy, active, lent, repeats, highest, most, misplaced, overlaps):
    name = f"policy {policy['id']}"
    total, unleased = policy["total"], policy["unleased"]
    assert active <= total, f"{name} is oversold: {active} of {total}"
    assert unleased >= 0 and lent >= 0, f"{name}: {unleased} unleased, {lent} lent"
    assert total == unleased + lent + active, (
        f"{name} does not add up: total {total} != {unleased} unleased + {lent} lent"
        f" + {active} active")
    assert repeats == 0, f"{name}: {repeats} seqs were given twice"
    assert highest < policy["next_seq"], f"{name}: seq {highest} from outside every lease"
    assert most <= policy["per_user_limit"], f"{name}: a user holds {most}"
    assert misplaced == 0, f"{name}: {misplaced} coupons whose slot does not fit their state"
    assert overlaps == 0, f"{name}: {overlaps} leases overlap"
