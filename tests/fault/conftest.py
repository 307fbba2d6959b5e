"""The fixtures of the system tests, a disk that fails on demand, and a database server to break."""

import contextlib
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

# pylint: disable=unused-import,wrong-import-position
from disk import Disk  # noqa: E402
from fixtures import (_shared_server, pytest_collection_modifyitems,  # noqa: E402,F401
                      pytest_configure, pytest_sessionstart, serve, server, shared)
from harness import wait_until  # noqa: E402
from kafka_stream import Stream  # noqa: E402
from ledger import KIND, ServedDatabase, SqliteDatabase  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis_shop import Shop  # noqa: E402
from servers import KINDS, Redis, rows_of  # noqa: E402

# What breaks a database server needs one, and what breaks a disk breaks the file of SQLite.
collect_ignore_glob = (["test_database_*.py", "test_kafka_*.py", "test_nemesis.py"]
                       if KIND == "sqlite"
                       else ["test_disk.py"])


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path)


@pytest.fixture
def on_disk(serve, disk):
    """A server whose ledger lies on a disk that the test can break."""
    def start(**config):
        return serve(env=disk.environment(), config=config)

    yield start
    disk.set("ok")


# Several shops of several processes at once.
ROOM = {"postgres": {"max_connections": 240}, "mysql": {"max-connections": 240}}


@pytest.fixture(scope="session")
def _victim():
    with KINDS[KIND](settings=ROOM[KIND]) as database_server:
        yield database_server


@pytest.fixture
def victim(_victim):
    """A database server that the test may kill, stop and bend; put right after it."""
    yield _victim
    revive(_victim)


def revive(database_server):
    database_server.resume()
    if database_server.alive:
        return
    database_server.kill()
    database_server.start()


@pytest.fixture
def databases():
    """Databases of this test, dropped when its servers have ended."""
    made = []
    yield made
    for database in made:
        database.discard()


@pytest.fixture
def on_database(databases, serve):
    """Starts a dibs on a database of its own: on_database(database_server, proxy=…, settings…)."""
    used = []

    def start(database_server, proxy=None, **config):
        database = ServedDatabase(database_server)
        databases.append(database)
        used.append(database_server)
        if proxy is not None:
            database.url = proxy.url(database.url)
        config = {"ledger_timeout": "2s", "ack_timeout": "500ms", **config}
        return serve(database=database, config=config)

    yield start
    for database_server in used:
        revive(database_server)


@pytest.fixture
def on_victim(victim, on_database):
    """The same on the victim."""
    def start(**options):
        return on_database(victim, **options)

    return start


@pytest.fixture
def proxy(victim):
    """A way to the victim that can be cut."""
    with Proxy(victim.port) as way:
        yield way


@pytest.fixture
def redis():
    """A Redis that loses nothing it has answered."""
    with Redis() as redis_server:
        yield redis_server


@pytest.fixture
def stream():
    """Topics of one's own, on a broker that the test may break."""
    one = Stream()
    yield one
    one.revive()


@pytest.fixture
def shop_on(tmp_path, request):
    """Opens a shop on a Redis: with shop_on(redis, settings…) as shop. The test may also
    break its database server."""
    made = []

    def open_shop(redis_server, **options):
        number = len(made)
        if KIND == "sqlite":
            database = SqliteDatabase(tmp_path / f"shop-{number}.db")
        else:
            database = ServedDatabase(request.getfixturevalue("victim"))
        made.append(database)
        return Shop(tmp_path / f"shop-{number}", redis_server, database, **options)

    yield open_shop
    for database in made:
        database.discard()


class ForeignSession:
    """A session of somebody else in the ledger's database, with an open transaction."""

    # InnoDB's own table of transactions shows an old picture to whoever looks often.
    WAITERS = {
        "postgres": "SELECT count(*) AS waiters FROM pg_stat_activity"
                    " WHERE datname = current_database() AND wait_event_type = 'Lock'",
        "mysql": "SELECT variable_value + 0 AS waiters FROM information_schema.global_status"
                 " WHERE variable_name = 'Innodb_row_lock_current_waits'",
    }

    def __init__(self, database):
        self.database = database
        self.connection = database.server.connect(database.name)
        self.begin()

    def begin(self):
        self.execute("BEGIN")

    def execute(self, text, *arguments):
        return rows_of(self.connection, text.replace("?", "%s"), *arguments)

    def await_waiter(self):
        """Waits until someone else waits for a lock in this database."""
        text = self.WAITERS[self.database.kind]
        wait_until(lambda: self.database.server.query(self.database.name, text)[0]["waiters"] > 0,
                   "someone who waits for a lock")

    def rollback(self):
        self.execute("ROLLBACK")

    def commit(self):
        self.execute("COMMIT")


@pytest.fixture
def foreign():
    """Opens sessions of somebody else: with foreign(database) as session."""
    @contextlib.contextmanager
    def open_session(database):
        session = ForeignSession(database)
        with contextlib.closing(session.connection):
            yield session

    return open_session
