"""A database that is there and refuses: nobody listens, no connection is free, it is read-only, the
password is another one, a right is missing. At the start that is said and ends it (what may pass by
itself when it was waited for, see test_database_start.py); later claims get
503 until it takes them again, and nobody's claim is lost or void for it."""

import contextlib
import subprocess

import pytest

from crowd import Crowd, await_ready, expect_away, expect_one_life
from harness import expect_problem, run_serve, wait_until
from history import Claim, History
from ledger import KIND, ServedDatabase, coupons
from server_house import free_port
from servers import KINDS, USER

PORT = {"postgres": 5432, "mysql": 3306}
SCHEME = KINDS[KIND].SCHEME
AT_ONCE = {"start_timeout": "1h"}  # It does not pass by itself, and is not waited for.


def refused(url, **config):
    """The words of a start that must not work; never a password among them."""
    ended = run_serve(url, config={"ledger_timeout": "2s", "start_timeout": "0s", **config})
    assert ended.returncode == 1, ended
    assert "sesame" not in ended.stderr
    return ended.stderr


# --- at the start ---


def test_database_start__nobody_listens():
    port = free_port()
    words = refused(f"{SCHEME}://{USER}@127.0.0.1:{port}/shop")
    assert "127.0.0.1" in words and str(port) in words and "see that the server runs" in words


def test_database_start__no_such_machine():
    words = refused(f"{SCHEME}://{USER}@nowhere.invalid/shop")
    assert "nowhere.invalid" in words, words


def test_database_start__no_such_database(victim):
    words = refused(victim.url("absent"), **AT_ONCE)
    assert "absent" in words, words


def test_database_start__silent_server(victim, proxy):
    """It stands and says nothing: that takes the timeout, not for ever."""
    proxy.pause()
    words = refused(proxy.url(victim.url("any")))
    assert "127.0.0.1" in words, words


def test_database_start__wrong_password(guarded):
    words = refused(guarded.url, ledger_password="open-sesame", **AT_ONCE)
    assert USER_WITH_PASSWORD in words and "127.0.0.1" in words, words
    words = refused(guarded.url, **AT_ONCE)
    assert "127.0.0.1" in words and "password" in words, words


# --- no connection is free ---


@contextlib.contextmanager
def eaten_up(database_server):
    """All connections that an ordinary user may have are taken by somebody else."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(*database_server.connection_errors()):
            while True:
                stack.enter_context(contextlib.closing(database_server.connect(
                    database_server.MAINTENANCE if KIND == "postgres" else None, user=USER)))
        yield


def is_about_connections(words):
    return any(word in words.lower() for word in ("too many", "connection slots"))


def test_database_connections__none_is_free(victim, proxy, on_victim):
    server = on_victim(proxy=proxy)
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    with Crowd(server, history, [policy]) as crowd:
        crowd.await_wins(50)
        proxy.refuse()
        victim.restart()
        with eaten_up(victim):
            proxy.admit()
            words = refused(server.database.url)
            assert is_about_connections(words), words
            crowd.await_refusals(20)
            wait_until(lambda: is_about_connections(expect_away(server)), "the right words")
        crowd.await_wins(50)
    history.check_rows(server)
    history.check_answers(server)
    expect_one_life(server)


# --- read-only ---


@pytest.fixture
def standby(victim):
    """A replica of the victim, which is read-only."""
    replica = KINDS[KIND](settings=victim.settings)
    subprocess.run(["find", str(replica.data), "-mindepth", "1", "-delete"], check=True)
    subprocess.run([replica.program("pg_basebackup"), "-h", "127.0.0.1", "-p", str(victim.port),
                    "-U", "postgres", "-D", str(replica.data), "-R", "--checkpoint=fast",
                    "--no-sync"],
                   check=True, cwd=replica.folder, **replica.house.as_account())
    with replica:
        yield replica


if KIND == "postgres":
    def test_database_read_only__a_standby_is_refused(victim, standby, on_victim):
        server = on_victim()
        server.create(total=1)
        name = server.database.name
        wait_until(lambda: standby.query(
            "postgres", "SELECT 1 FROM pg_database WHERE datname = %s", name), "it has arrived")
        words = refused(standby.url(name))
        assert "replica" in words and "127.0.0.1" in words, words

    @contextlib.contextmanager
    def read_only(victim):
        """Demoted: it comes back as the replica of nobody, and is promoted in the end."""
        victim.stop()
        signal_file = victim.data / "standby.signal"
        signal_file.touch()
        victim.start()
        yield "replica"
        victim.query("postgres", "SELECT pg_promote()")

    def test_database_read_only__for_its_user(on_victim, victim):
        """A DBA who wants quiet for a while, in the usual way."""
        server = on_victim()
        policy = server.create(total=10)["id"]
        server.win(policy, "u1")
        name = server.database.name
        victim.query("postgres", f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        victim.query(name, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                           " WHERE datname = %s AND pid <> pg_backend_pid()", name)
        wait_until(lambda: "read" in expect_away(server), "it says what it is refused", 30)
        expect_problem(server.claim(policy, "u2"), 503, "UNAVAILABLE")
        assert "read" in refused(server.database.url)
        victim.query("postgres", f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await_ready(server)
        assert server.win(policy, "u2")["seq"] == 2
else:
    @contextlib.contextmanager
    def read_only(victim):
        victim.query("mysql", "SET GLOBAL read_only = 1")
        try:
            yield "read"
        finally:
            victim.query("mysql", "SET GLOBAL read_only = 0")

    def test_database_read_only__is_refused(victim, on_victim):
        server = on_victim()
        server.stop()
        with read_only(victim):
            words = refused(server.database.url)
            assert "read" in words and "127.0.0.1" in words, words
        server.start()


def test_database_read_only__for_a_while(on_victim, victim):
    server = on_victim()
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    with Crowd(server, history, [policy]) as crowd:
        crowd.await_wins(50)
        with read_only(victim) as word:
            crowd.await_refusals(20)
            # While it restarts, the words are about that.
            wait_until(lambda: word in expect_away(server), f"words about a {word}")
            expect_problem(server.patch(policy, paused=True), 503, "UNAVAILABLE")
        crowd.await_wins(50)
    history.check_rows(server)
    history.check_answers(server)
    expect_one_life(server)


# --- passwords and rights ---

USER_WITH_PASSWORD = "shop"
PASSWORD = "open sesame's"


class GuardedDatabase(ServedDatabase):
    """A ledger whose user needs a password, and has the rights that it has been granted."""

    ALL = {"postgres": "ALL ON ALL TABLES IN SCHEMA public",
           "mysql": "ALL ON {name}.*"}

    def __init__(self, server):
        super().__init__(server)
        self.url = self.url.replace(f"{USER}@", f"{USER_WITH_PASSWORD}@")
        if self.kind == "postgres":
            self.admin("DROP ROLE IF EXISTS shop")
            self.admin("CREATE ROLE shop LOGIN")
            self.admin(f'ALTER DATABASE "{self.name}" OWNER TO shop')
            self.admin("ALTER SCHEMA public OWNER TO shop")
        else:
            self.admin("DROP USER IF EXISTS shop@'127.0.0.1'")
            self.admin("CREATE USER shop@'127.0.0.1'")
            self.admin(f"GRANT ALL ON {self.name}.* TO shop@'127.0.0.1'")
        self.set_password(PASSWORD)
        if self.kind == "postgres":
            server.demand_password(USER_WITH_PASSWORD, self.name)

    def admin(self, text, *arguments):
        return self.server.query(self.name, text, *arguments)

    def set_password(self, password):
        if self.kind == "postgres":
            self.admin("ALTER ROLE shop PASSWORD %s", password)
        else:
            self.admin("SET PASSWORD FOR shop@'127.0.0.1' = PASSWORD(%s)", password)

    def revoke(self, right, table):
        if self.kind == "postgres":
            self.admin(f"REVOKE {right} ON {table} FROM shop")
        else:  # Rights on a whole database cannot be narrowed by table.
            self.admin(f"REVOKE {right} ON {self.name}.* FROM shop@'127.0.0.1'")

    def grant(self, right, table):
        if self.kind == "postgres":
            self.admin(f"GRANT {right} ON {table} TO shop")
        else:
            self.admin(f"GRANT {right} ON {self.name}.* TO shop@'127.0.0.1'")

    def end_sessions(self):
        if self.kind == "postgres":
            self.admin("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                       " WHERE usename = 'shop'")
            return
        for row in self.admin("SELECT id FROM information_schema.processlist WHERE user = 'shop'"):
            with contextlib.suppress(Exception):  # It may have ended by itself.
                self.admin(f"KILL {row['id']}")


@pytest.fixture
def guarded(victim, databases):
    database = GuardedDatabase(victim)
    databases.append(database)
    yield database
    database.end_sessions()


@pytest.fixture
def on_guarded(guarded, serve):
    return serve(database=guarded, config={"ledger_timeout": "2s", "ack_timeout": "500ms",
                                           "ledger_password": PASSWORD})


def test_database_password__changed_while_it_runs(on_guarded, guarded):
    server, history = on_guarded, History()
    policy = server.create(total=10 ** 6)["id"]
    with Crowd(server, history, [policy]) as crowd:
        crowd.await_wins(50)
        guarded.set_password("another")
        guarded.end_sessions()
        crowd.await_refusals(20)
        wait_until(lambda: USER_WITH_PASSWORD in expect_away(server), "it says who is refused", 30)
        guarded.set_password(PASSWORD)
        crowd.await_wins(50)
    history.check_rows(server)
    history.check_answers(server)
    expect_one_life(server)
    assert PASSWORD not in server.log_text(10 ** 6) and "sesame" not in server.log_text(10 ** 6)


@pytest.mark.parametrize("right,table", [("INSERT", "coupon"), ("UPDATE", "writer"),
                                         ("SELECT", "lease")])
def test_database_rights__revoked_and_granted_again(on_guarded, guarded, right, table):
    """A missing right is no verdict on anyone's claim: they wait, and none of them is void."""
    server, history = on_guarded, History()
    policy = server.create(total=10 ** 6)["id"]
    with Crowd(server, history, [policy]) as crowd:
        crowd.await_wins(50)
        guarded.revoke(right, table)
        if KIND == "mysql":
            guarded.end_sessions()  # Rights on a database count from the next connection on.
        crowd.await_refusals(20)
        # The first word may be of the connections that were ended.
        wait_until(lambda: "denied" in expect_away(server), "it says what is missing")
        guarded.grant(right, table)
        if KIND == "mysql":
            guarded.end_sessions()
        crowd.await_wins(50)
    history.check_rows(server)
    assert {row["state"] for row in coupons(server.database, policy)} == {"ISSUED"}
    history.check_answers(server)
    expect_one_life(server)


def test_database_user__locked_out_at_the_start_of_a_drop(on_guarded, guarded):
    """Claims that were decided before and never answered are issued when it is let in again."""
    server, history = on_guarded, History()
    policy = server.create(total=100)["id"]
    guarded.set_password("another")
    guarded.end_sessions()
    history.rush(server, (Claim(policy, f"u{i}", f"k{i}") for i in range(150)), connections=50)
    assert not history.wins and not history.sold_out
    guarded.set_password(PASSWORD)
    await_ready(server)
    history.retry_unknown(server)
    assert len(history.wins) == 100 == len(coupons(server.database, policy))
    history.check_rows(server)
