#!/usr/bin/python3
"""Starts private PostgreSQL, MariaDB, Redis and Kafka servers for the tests.

In Python, with tests/ on sys.path:

    from servers import Postgres, MariaDB       # or servers.KINDS["postgres" | "mysql"]

    with Postgres() as database:                # or .start() and, at the end, .dispose()
        url = database.create_database("shop")  # postgres://dibs@127.0.0.1:port/shop
        database.query("shop", "SELECT 1 AS one")            # [{"one": 1}], by the administrator
        connection = database.connect("shop")                # DB-API, for transactions and locks
        database.kill()                         # SIGKILL of all its processes at once
        database.start()                        # the same data, the same port
        database.pause()                        # SIGSTOP of all its processes: it hangs
        database.resume()
        database.stop()                         # in good order; restart() is stop() and start()
        saved = database.backup()               # a copy of its files
        database.restore(saved)                 # as if no time had passed since

    Postgres(settings={"max_connections": 12})  # any setting of the server, by its own name
    MariaDB(folder=mounted, env={...})          # its files elsewhere, such as on a small disk, in a
                                                # folder that every user may enter (mode 711)

    from servers import Redis, RedisCluster, RedisSentinel       # redis_servers.py tells the rest

    with Redis(appendfsync="everysec") as redis:                 # AOF with `always` unless told
        redis.url()                             # redis://127.0.0.1:port
        redis.client().fcall("dibs_version", 0)                  # redis-py
        replica = redis.replica()               # another server that follows it
        redis.restart_empty()                   # killed, and back without its files

    from servers import KafkaBroker                              # kafka_server.py tells the rest

    with KafkaBroker() as broker:
        broker.url()                            # kafka://127.0.0.1:port
        broker.topics.messages("coupon-pended") # what is in a topic

    from servers import Nginx                                    # nginx_server.py tells the rest

    with Nginx(server.address) as nginx:        # a proxy in front of a server
        nginx.address                           # where it listens

Connections of `dibs`, the user of the URLs, are those of an ordinary application: it may create
databases, and the limit of connections holds for it. query() and connect() use the administrator,
who has connections in reserve. Commits are durable as in production (fsync on); only memory is
small. A port is kept for life, and is none that the kernel gives to others.

From a shell, for programs that are not Python:

    tests/servers.py run postgres|mysql|redis|redis-cluster|kafka -- COMMAND...

runs the command with DIBS_TEST_POSTGRES_URL or DIBS_TEST_MYSQL_URL set to a database in which
`dibs` may create others, or with DIBS_TEST_REDIS_URL or DIBS_TEST_KAFKA_URL, and ends with the
command's exit code.

The first server of a kind makes the files of an empty one, which later ones copy, also those of
other processes with the same DIBS_TEST_TEMPLATES. All else is stopped and removed when the process
ends, however it ends: a guard in a session of its own sees to it.
"""
import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import time

from kafka_server import KafkaBroker
from nginx_server import Nginx  # noqa: F401
from redis_servers import Redis, RedisCluster, RedisSentinel  # noqa: F401
from server_house import PATH, START_TIMEOUT_S, Server, copy_folder, run_quietly

USER = "dibs"


class DatabaseServer(Server):
    """A server of a ledger."""

    SCHEME = None        # of its URLs
    MAINTENANCE = None   # the database that is always there

    def __init__(self, settings=None, folder=None, env=None):
        super().__init__(settings, folder, env)
        copy_folder(self.house.template(type(self)), self.data)

    def answers(self):
        return bool(self.query(self.MAINTENANCE, "SELECT 1"))

    def url(self, database):
        return f"{self.SCHEME}://{USER}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name):
        """Makes an empty database of the user `dibs` and returns its URL."""
        self.query(self.MAINTENANCE, self.create_text(name))
        return self.url(name)

    def query(self, database, text, *arguments):
        """Runs one statement in a session and a transaction of its own; its rows as dicts."""
        with contextlib.closing(self.connect(database)) as connection:
            return rows_of(connection, text, *arguments)


def rows_of(connection, text, *arguments):
    """Runs a statement, with %s for each argument; its rows as dicts."""
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(text, arguments or None)
        if cursor.description is None:
            return []
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, map(_plain, row))) for row in cursor.fetchall()]


def _plain(value):
    """The drivers differ in how they show bytes."""
    return bytes(value) if isinstance(value, memoryview) else value


class Postgres(DatabaseServer):
    """PostgreSQL, whichever release is installed."""

    KIND = "postgres"
    SCHEME = "postgres"
    MAINTENANCE = "postgres"
    STOP_SIGNAL = signal.SIGINT
    SETTINGS = {
        "listen_addresses": "127.0.0.1",
        "max_connections": 60,
        "shared_buffers": "16MB",
        "fsync": "on",
        "synchronous_commit": "on",
        "autovacuum": "off",  # It would make plans differ from run to run.
        # In its own folder: what one that is killed leaves in /dev/shm stays there.
        "dynamic_shared_memory_type": "mmap",
        "log_line_prefix": "%m [%p] ",
        "timezone": "UTC",
    }

    @staticmethod
    def program(name):
        folders = glob.glob("/usr/lib/postgresql/*/bin")
        newest = max(folders, key=lambda folder: int(folder.split("/")[4]), default=None)
        return f"{newest}/{name}" if newest else shutil.which(name) or name

    @classmethod
    def initialize(cls, folder, house):
        run_quietly(
            [cls.program("initdb"), "--no-sync", "--pgdata", str(folder), "--username=postgres",
             "--auth=trust", "--encoding=UTF8", "--locale=C"],
            input="", cwd=folder, env={"PATH": PATH}, **house.as_account())
        # Single-user mode reads statements from stdin.
        run_quietly(
            [cls.program("postgres"), "--single", "-F", "-D", str(folder), "postgres"],
            input=f"CREATE ROLE {USER} LOGIN CREATEDB\n", cwd=folder,
            env={"PATH": PATH}, **house.as_account())

    def command(self):
        settings = {**self.SETTINGS, "port": self.port, "cluster_name": self.name,
                    "unix_socket_directories": self.folder, **self.settings}
        return [self.program("postgres"), "-D", str(self.data)] + [
            f"--{name}={value}" for name, value in settings.items()]

    def connection_errors(self):
        import psycopg2
        return (psycopg2.OperationalError,)

    def connect(self, database, user="postgres"):
        """A DB-API connection in autocommit mode (set .autocommit = False for transactions)."""
        import psycopg2
        connection = psycopg2.connect(host="127.0.0.1", port=self.port, user=user,
                                      dbname=database, connect_timeout=30)
        connection.autocommit = True
        return connection

    def demand_password(self, user, database):
        """The user, who has a password and that database, is let in with it only, from now on."""
        rules = self.data / "pg_hba.conf"
        rule = f"host all {user} 127.0.0.1/32 scram-sha-256\n"
        if not rules.read_text().startswith(rule):
            rules.write_text(rule + rules.read_text())
            self.query(self.MAINTENANCE, "SELECT pg_reload_conf()")
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._lets_in(user, database):  # It reads its rules when it comes to that.
            assert time.monotonic() < deadline, f"{user} needs no password"
            time.sleep(0.02)

    def _lets_in(self, user, database):
        with contextlib.suppress(*self.connection_errors()):
            self.connect(database, user).close()
            return True
        return False

    @staticmethod
    def create_text(name):
        return f'CREATE DATABASE "{name}" OWNER {USER}'

    def drop_database(self, name):
        """Drops it, and whoever is connected to it."""
        self.query(self.MAINTENANCE, f'DROP DATABASE "{name}" WITH (FORCE)')


class MariaDB(DatabaseServer):
    """MariaDB, whichever release is installed; it stands for MySQL too."""

    KIND = "mysql"
    SCHEME = "mysql"
    MAINTENANCE = "mysql"
    STOP_SIGNAL = signal.SIGTERM
    SETTINGS = {
        "bind-address": "127.0.0.1",
        "skip-name-resolve": 1,
        "max-connections": 60,
        "innodb-buffer-pool-size": "32M",
        "innodb-log-file-size": "32M",
        "innodb-flush-log-at-trx-commit": 1,
        "key-buffer-size": "1M",
        "aria-pagecache-buffer-size": "2M",
        "character-set-server": "utf8mb4",
        "ssl": 0,  # The tests look at what goes over the wire.
    }
    PRIVILEGES = ("SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES,"
                  " LOCK TABLES, CREATE TEMPORARY TABLES")

    @classmethod
    def initialize(cls, folder, house):
        sizes = [f"--{name}={value}" for name, value in cls.SETTINGS.items()
                 if name.startswith("innodb-log")]
        run_quietly(
            ["mariadb-install-db", "--no-defaults", f"--datadir={folder}", "--skip-test-db",
             "--auth-root-authentication-method=normal", "--skip-name-resolve", *sizes],
            input="", cwd=folder, env={"PATH": PATH, "HOME": str(folder), "TMPDIR": str(folder)},
            **house.as_account())
        # Bootstrap mode reads statements from stdin, and reads the accounts only when told to.
        run_quietly(
            ["/usr/sbin/mariadbd", "--no-defaults", f"--datadir={folder}",
             f"--tmpdir={folder}", "--bootstrap", *sizes],
            input=f"USE mysql;\nFLUSH PRIVILEGES;\nCREATE USER {USER}@'127.0.0.1';\n"
                  f"GRANT {cls.PRIVILEGES} ON *.* TO {USER}@'127.0.0.1';\n",
            cwd=folder, **house.as_account())

    def command(self):
        settings = {**self.SETTINGS, "port": self.port, "datadir": self.data,
                    "socket": self.folder / "socket", "pid-file": self.folder / "pid",
                    # Each server empties its folder of temporary files when it starts.
                    "tmpdir": self.folder,
                    **self.settings}
        return ["/usr/sbin/mariadbd", "--no-defaults"] + [
            f"--{name}={value}" for name, value in settings.items()]

    def connection_errors(self):
        import pymysql
        return (pymysql.err.OperationalError,)

    def connect(self, database, user="root"):
        """A DB-API connection in autocommit mode (.begin() starts a transaction)."""
        import pymysql
        return pymysql.connect(host="127.0.0.1", port=self.port, user=user, database=database,
                               charset="utf8mb4", connect_timeout=30, autocommit=True)

    @staticmethod
    def create_text(name):
        return f"CREATE DATABASE `{name}`"

    def drop_database(self, name):
        self.query(self.MAINTENANCE, f"DROP DATABASE `{name}`")


KINDS = {kind.KIND: kind for kind in (Postgres, MariaDB)}


def run_beside(server, name, url, command):
    """Runs a command with that URL in its environment; the command's exit code."""
    ended = subprocess.run(command, check=False, env={**os.environ, name: url})
    if ended.returncode != 0:
        print(server.log_text(), file=sys.stderr)
    server.stop()
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode


def run(kind, command):
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if kind in KINDS:
        with KINDS[kind]() as database:
            url = database.create_database(USER)
            return run_beside(database, f"DIBS_TEST_{kind.upper()}_URL", url, command)
    with RUN_OTHERS[kind]() as server:
        name = f"DIBS_TEST_{kind.partition('-')[0].upper()}_URL"
        return run_beside(server, name, server.url(), command)


RUN_OTHERS = {"redis": Redis, "redis-cluster": RedisCluster, "kafka": KafkaBroker}


def main(arguments):
    if len(arguments) > 3 and arguments[0] == "run" and arguments[2] == "--" \
            and arguments[1] in (*KINDS, *RUN_OTHERS):
        return run(arguments[1], arguments[3:])
    print(f"usage: tests/servers.py run {'|'.join((*KINDS, *RUN_OTHERS))} -- COMMAND...",
          file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
