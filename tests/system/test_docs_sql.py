"""The SQL in docs/sql does what it says: roles with no more rights than they need, partitions, and
the removal of a policy."""

import contextlib
import re
import subprocess

import pytest

import ledger
import servers
from harness import ROOT, Server, expect, run_dibs

# It shows a sanitizer nothing that the other tests do not.
pytestmark = pytest.mark.heavy

SQL = ROOT / "docs" / "sql"
OWNER, SERVE = "dibs_owner", "dibs_serve"


class Roles:
    """A database server whose administrator has run docs/sql/KIND_roles.sql."""

    def __init__(self, kind, server):
        self.kind, self.server = kind, server
        self.name = {"postgres": "shop", "mysql": "dibs"}[kind]
        if kind == "postgres":
            server.query(server.MAINTENANCE, f"CREATE DATABASE {self.name}")
        self.run_file(f"{kind}_roles.sql", {"postgres": "postgres", "mysql": "root"}[kind])

    def run_file(self, name, user, database=None):
        """Runs a file with the database's own client, as its first lines say."""
        self.run_text((SQL / name).read_text("utf-8"), user, database)

    def run_text(self, text, user, database=None):
        address = ["-h", "127.0.0.1", "--port", str(self.server.port)]
        command = {
            "postgres": ["psql", "-v", "ON_ERROR_STOP=1", "-qX", *address, "-U", user, "-d",
                         database or self.name, "-f", "-"],
            "mysql": ["mysql", "--no-defaults", "--skip-ssl", *address, "-u", user,
                      database or "mysql"],
        }[self.kind]
        ended = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60,
                               check=False)
        assert ended.returncode == 0 and not ended.stderr, ended

    def url(self, user):
        return f"{self.server.SCHEME}://{user}@127.0.0.1:{self.server.port}/{self.name}"

    def refusal(self, statement):
        """What the server says when dibs_serve tries this."""
        with contextlib.closing(self.server.connect(self.name, user=SERVE)) as connection:
            with pytest.raises(Exception) as caught:
                servers.rows_of(connection, statement)
        return str(caught.value).lower()


class RoleDatabase(ledger.ServedDatabase):
    """The ledger of dibs_serve; the audit looks at it as dibs_owner."""

    def __init__(self, roles):  # pylint: disable=super-init-not-called
        self.server, self.kind, self.name = roles.server, roles.kind, roles.name
        self.url = roles.url(SERVE)
        self._log_start = self.server.log_path.stat().st_size

    @contextlib.contextmanager
    def snapshot(self):
        with contextlib.closing(self.server.connect(self.name, user=OWNER)) as connection:
            def query(text, *arguments):
                return servers.rows_of(connection, text.replace("?", "%s"), *arguments)

            query(self.BEGIN[self.kind])
            yield ledger.Snapshot(query)


@pytest.fixture(params=sorted(servers.KINDS))
def roles(request):
    with servers.KINDS[request.param]() as server:
        yield Roles(request.param, server)


@pytest.fixture
def migrated(roles):
    ended = run_dibs("migrate", "--ledger", roles.url(OWNER))
    assert ended.returncode == 0, ended
    roles.run_file(f"{roles.kind}_grants.sql", OWNER, roles.name)
    return roles


@contextlib.contextmanager
def serving(roles, folder):
    """A server of dibs_serve, judged and audited in the end."""
    server = Server(folder=folder, database=RoleDatabase(roles)).start()
    try:
        yield server
        if server.process is not None:
            server.stop()
        server.check_log()
        ledger.audit(server.database)
    finally:
        server.dispose()


def test_roles__who_serves_cannot_migrate(roles):
    early = run_dibs("serve", "--listen", "127.0.0.1:0", "--ledger", roles.url(SERVE))
    assert early.returncode == 1 and "denied" in early.stderr, early
    assert run_dibs("migrate", "--ledger", roles.url(SERVE)).returncode == 1


def test_roles__who_serves_has_the_rights_to(migrated, tmp_path):
    checked = run_dibs("migrate", "--ledger", migrated.url(SERVE))
    assert checked.returncode == 0 and checked.stdout.startswith("nothing to do"), checked
    with serving(migrated, tmp_path) as server:
        use_everything(server)
        server.restart()
        use_everything(server)


def test_roles__who_serves_has_no_other_rights(migrated):
    for statement in ("DROP TABLE coupon", "DELETE FROM coupon", "DELETE FROM policy",
                      "CREATE TABLE mine (id INT)", "ALTER TABLE coupon ADD mine INT",
                      "DELETE FROM secret", "TRUNCATE TABLE claim_key",
                      "INSERT INTO schema_migration (number, name) VALUES (99, 'x')"):
        words = migrated.refusal(statement)
        assert "denied" in words or "must be owner" in words, words


def test_schema__a_strangers_table_is_known_by_every_name_of_ours():
    statement = ledger.statements_of("mysql")["schema_stranger"]
    known = set(re.findall(r"'(\w+)'", statement)) - {"schema_migration"}
    made = {table for path in (ROOT / "src" / "ledger" / "mysql" / "migrations").iterdir()
            for table in re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)",
                                    path.read_text("utf-8"))}
    assert known == made - {"schema_migration"}


def test_schema__has_the_tables_and_columns_of_the_page(migrated):
    page = (ROOT / "docs" / "ledgers.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)` \| .* \| (`[^|]+`) \|$", page)
    named = {table: sorted(re.findall(r"`(\w+)`", columns)) for table, columns in rows}
    found = {}
    schema = {"postgres": "'dibs'", "mysql": "DATABASE()"}[migrated.kind]
    for row in migrated.server.query(
            migrated.name, "SELECT table_name AS t, column_name AS c"
                           f" FROM information_schema.columns WHERE table_schema = {schema}"):
        found.setdefault(row["t"], []).append(row["c"])
    assert named == {table: sorted(columns) for table, columns in found.items()}


def test_partitions__hold_the_same_ledger(migrated, tmp_path):
    with serving(migrated, tmp_path) as server:
        server.win(server.create(id=1)["id"], "u1")
        server.stop()
        migrated.run_file(f"{migrated.kind}_partitions.sql", OWNER, migrated.name)
        migrated.run_file(f"{migrated.kind}_grants.sql", OWNER, migrated.name)
        server.start()
        assert server.claim(1, "u1").status == 200
        for policy_id in (2, 1500, 2999, 7000):
            server.create(total=3, limit=2, id=policy_id)
            server.win(policy_id, "u1", key="k1")
            assert server.claim(policy_id, "u1", key="k1").status == 200
            expect(server.cancel(f"{policy_id}-1"), 200)
        use_everything(server)
        server.restart()
        assert len(server.get("/v1/users/u1/coupons").json["items"]) >= 5
        assert server.status(7000, "u1").json["coupon_state"] == "CANCELLED"


def test_remove_policy__leaves_nothing_of_it_and_all_of_the_others(migrated, tmp_path):
    with serving(migrated, tmp_path) as server:
        for policy_id in (42, 43):
            server.create(total=5, id=policy_id)
            server.win(policy_id, "u1")
            assert server.claim(policy_id, "u1", key="bound").status == 200
        expect(server.request("DELETE", "/v1/policies/42"), 200)
        server.stop()
        migrated.run_file("remove_policy.sql", OWNER, migrated.name)
        server.start()
        assert server.get("/v1/policies/42").status == 404
        assert server.status(43, "u1").status == 200
        coupons = server.get("/v1/users/u1/coupons").json["items"]
        assert [coupon["coupon_id"] for coupon in coupons] == ["43-1"]
        assert server.create()["id"] == 44


def use_everything(server):
    """Every kind of write that a server does."""
    policy = server.create(total=50, limit=2)["id"]
    server.win(policy, "u1", key="first")
    assert server.claim(policy, "u1", key="first").status == 200
    won = server.win(policy, "u1", key="second")
    server.claims(policy, [f"v{number}" for number in range(9)])
    expect(server.post(f"/v1/coupons/{policy}-1/redeem", {"order_id": "o1"}), 200)
    expect(server.cancel(won["coupon_id"]), 200)
    single = server.create(total=2)["id"]
    server.win(single, "u1")
    assert server.claim(single, "u1", key="bound").status == 200
    expect(server.patch(single, total=1), 200)
    expect(server.request("DELETE", f"/v1/policies/{single}"), 200)
    for blocked, status in ((True, 403), (False, 201)):
        expect(server.request("PUT", "/v1/users/u9", {"blocked": blocked}), 200)
        assert server.claim(policy, "u9").status == status
    expect(server.status(policy, "u1"), 200)
    expect(server.get("/v1/users/u1/coupons"), 200)
    expect(server.request("PUT", "/v1/products/p1", {"name": "Socks"}), 200)
    expect(server.post("/v1/orders", {"order_id": f"order-{policy}",
                                      "items": [{"product_id": "p1", "quantity": 2}]}), 201)
    expect(server.post(f"/v1/orders/order-{policy}/refund", {}), 200)
    expect(server.get("/v1/audit"), 200)
    expect(server.get("/v1/audit/repairs"), 200)


def rights_granted(kind):
    """{table: rights} of the file of grants."""
    granted = {}
    text = (SQL / f"{kind}_grants.sql").read_text("utf-8")
    for rights, tables in re.findall(r"(?m)^GRANT (.*?) ON (.*?) TO dibs_serve;$", text):
        for table in tables.split(", "):
            granted[table] = set(rights.split(", "))
    return granted


def rights_needed(kind):
    """{table: rights} of the statements that a server runs; noting a migration is not its work."""
    tables = {table for path in (ROOT / "src" / "ledger" / kind / "migrations").iterdir()
              for table in re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", path.read_text("utf-8"))}
    tables.add("schema_migration")
    needed = {}
    for name, statement in ledger.statements_of(kind).items():
        if name == "schema_note":
            continue
        if "setval(" in statement:
            needed["SEQUENCE lease_id_seq"] = {"UPDATE"}
        for pattern, right in ((r"INSERT (?:IGNORE )?INTO (\w+)", "INSERT"),
                               (r"UPDATE (\w+) SET", "UPDATE"),
                               (r"DELETE FROM (\w+)", "DELETE"),
                               (r"(?:FROM|JOIN) (\w+)", "SELECT")):
            for table in re.findall(pattern, statement):
                if table in tables:
                    needed.setdefault(table, set()).add(right)
        for table in re.findall(r"FROM (\w+)[^;]*(?:FOR (?:NO KEY )?UPDATE|FOR SHARE|LOCK IN)",
                                statement):
            needed.setdefault(table, set()).add("UPDATE")
        if "ON CONFLICT" in statement or "ON DUPLICATE" in statement:
            table = re.search(r"INSERT INTO (\w+)", statement)[1]
            needed.setdefault(table, set()).add("SELECT")
            if re.search(r"\b(KEY|DO) UPDATE\b", statement):
                needed[table].add("UPDATE")
    return needed


@pytest.mark.parametrize("kind", sorted(servers.KINDS))
def test_roles__grants_are_what_the_statements_need(kind):
    assert rights_granted(kind) == rights_needed(kind)
