#!/usr/bin/python3
"""Starts private PostgreSQL and MariaDB servers for the tests.

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

Connections of `dibs`, the user of the URLs, are those of an ordinary application: it may create
databases, and the limit of connections holds for it. query() and connect() use the administrator,
who has connections in reserve. Commits are durable as in production (fsync on); only memory is
small. A port is kept for life, and is none that the kernel gives to others.

From a shell, for programs that are not Python:

    tests/servers.py run postgres|mysql -- COMMAND...

runs the command with DIBS_TEST_POSTGRES_URL or DIBS_TEST_MYSQL_URL set to a database in which
`dibs` may create others, and ends with the command's exit code.

The first server of a kind makes the files of an empty one, which later ones copy. All is stopped
and removed when the process ends, however it ends: a guard in a session of its own sees to it.
"""
import atexit
import contextlib
import glob
import os
import pathlib
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120
PROGRAMS = ("postgres", "mariadbd")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
USER = "dibs"


def processes_of(name):
    """The database processes that carry the name in their command line: {pid: its parent}."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # It may end while we look.
            stat = pathlib.Path(entry.path, "stat").read_text(errors="replace")
            program, _, fields = stat.partition("(")[2].rpartition(")")
            state, parent = fields.split()[:2]
            command = pathlib.Path(entry.path, "cmdline").read_bytes()
            if program in PROGRAMS and state != "Z" and name.encode() in command:
                found[int(entry.name)] = int(parent)
    return found


def signal_all(name, number):
    """Signals every process of that name; the parents first, so that they make no new ones."""
    signalled = set()
    while True:
        processes = processes_of(name)
        new = sorted((pid for pid in processes if pid not in signalled),
                     key=lambda pid: processes[pid] in processes)
        if not new:
            return
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        signalled.update(new)


class House:
    """The folder of this process's servers, with a guard that empties it when we are gone."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dibs-servers-"))
        self.folder.chmod(0o711)  # The servers run as somebody else when we are root.
        self.account = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        self.templates = {}
        self.server_count = 0
        self.guard = subprocess.Popen(
            [sys.executable, "-S", __file__, "guard", str(self.folder)], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        atexit.register(self.close)

    def close(self):
        """The guard notices and does the work; it goes by the same way when we are killed."""
        self.guard.stdin.close()
        self.guard.wait()

    def as_account(self):
        """Who runs the servers, in the words of subprocess."""
        if self.account is None:
            return {}
        return {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}

    def own(self, path):
        """Gives a folder to whom the servers run as."""
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        if self.account is not None:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)
        return path

    def template(self, kind):
        """The files of an empty server of that class."""
        if kind not in self.templates:
            folder = self.own(self.folder / f"template-{kind.KIND}")
            kind.initialize(folder, self)
            self.templates[kind] = folder
        return self.templates[kind]


class _Houses:
    """The house of this process, made when it is first needed, and again after a fork."""

    house = None
    pid = None

    @classmethod
    def get(cls):
        if cls.pid != os.getpid():
            cls.house, cls.pid = House(), os.getpid()
        return cls.house


def guard(folder):
    """Waits until whoever holds our stdin is gone, then ends its servers and removes the folder."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    name = pathlib.Path(folder).name
    while processes_of(name):
        signal_all(name, signal.SIGKILL)
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def run_quietly(command, **options):
    """Runs a command that has to work; what it said only matters when it does not."""
    ended = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, **options)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}({ended.returncode})"


def copy_folder(source, target):
    subprocess.run(["cp", "-a", "--reflink=auto", f"{source}/.", str(target)], check=True)


def free_port():
    """A loopback port below those that the kernel gives to connections and to servers on port 0."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10000, first) if first > 11000 else 0
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]


class DatabaseServer:
    """One private server; the subclasses know how theirs is made, started and asked."""

    KIND = None          # how dibs calls it
    SCHEME = None        # of its URLs
    MAINTENANCE = None   # the database that is always there
    STOP_SIGNAL = None   # an orderly end that waits for no client

    def __init__(self, settings=None, folder=None, env=None):
        self.house = _Houses.get()
        self.house.server_count += 1
        # In the command line of each of its processes, which is how they are found.
        self.name = f"{self.house.folder.name}-{self.house.server_count}"
        self.folder = self.house.own(self.house.folder / self.name)
        self.data = self.house.own(pathlib.Path(folder) / self.name if folder
                                   else self.folder / "data")
        self.settings = dict(settings or {})
        self.env = dict(env or {})
        self.port = free_port()
        self.process = None
        self.backup_count = 0
        copy_folder(self.house.template(type(self)), self.data)

    # --- life ---

    def start(self):
        """Starts it and waits until it answers."""
        assert self.process is None, "it runs already"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.data,
                env={"PATH": PATH, "HOME": str(self.folder), "TZ": "UTC",
                     **self.env},
                start_new_session=True, **self.house.as_account())
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if self.process.poll() is not None:
                self._ended()
                raise AssertionError(f"{self.KIND} did not start\n{self.log_text()}")
            with contextlib.suppress(*self.connection_errors()):
                self.query(self.MAINTENANCE, "SELECT 1")
                return self
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{self.KIND} does not answer\n{self.log_text()}")
            time.sleep(0.02)

    def stop(self):
        """An orderly end: sessions are cut off, what was committed is written out."""
        if self.process is None:
            return
        self.resume()
        self.process.send_signal(self.STOP_SIGNAL)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.KIND} did not stop\n{self.log_text()}") from None
        self._ended()

    def kill(self):
        """SIGKILL of all its processes; it can be started again."""
        if self.process is not None:
            signal_all(self.name, signal.SIGSTOP)  # So that none sees another die and acts on it.
            signal_all(self.name, signal.SIGKILL)
            self.process.kill()
            self._ended()

    def _ended(self):
        """Waits for the last process, which the kernel may still be taking down."""
        self.process.wait()
        self.process = None
        while processes_of(self.name):
            time.sleep(0.005)

    def restart(self):
        self.stop()
        return self.start()

    def pause(self):
        """SIGSTOP: connections are accepted by the kernel, and nothing answers."""
        signal_all(self.name, signal.SIGSTOP)

    def resume(self):
        signal_all(self.name, signal.SIGCONT)

    def dispose(self):
        """Ends it whatever its state, and removes its files."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self.start() if self.process is None else self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            print(self.log_text())
        self.dispose()

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None

    # --- its files ---

    def backup(self):
        """A copy of its files as after an orderly stop, for restore(); it runs again if it did."""
        return self._while_stopped(self._backup)

    def _backup(self):
        self.backup_count += 1
        saved = self.folder / f"backup-{self.backup_count}"
        copy_folder(self.data, self.house.own(saved))
        return saved

    def restore(self, saved):
        """Puts the files of a backup back; it runs again if it did."""
        def put_back():
            for path in self.data.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            copy_folder(saved, self.data)
        self._while_stopped(put_back)

    def _while_stopped(self, action):
        was_alive = self.process is not None
        self.stop()
        result = action()
        if was_alive:
            self.start()
        return result

    @property
    def log_path(self):
        return self.folder / "log"

    def log_text(self, lines_max=100):
        lines = self.log_path.read_text(errors="replace").splitlines(keepends=True)
        return f"--- log of {self.KIND} ---\n" + "".join(lines[-lines_max:])

    # --- asking ---

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
            input="", cwd=folder, env={"PATH": PATH, "HOME": str(folder)}, **house.as_account())
        # Bootstrap mode reads statements from stdin, and reads the accounts only when told to.
        run_quietly(
            ["/usr/sbin/mariadbd", "--no-defaults", f"--datadir={folder}", "--bootstrap", *sizes],
            input=f"USE mysql;\nFLUSH PRIVILEGES;\nCREATE USER {USER}@'127.0.0.1';\n"
                  f"GRANT {cls.PRIVILEGES} ON *.* TO {USER}@'127.0.0.1';\n",
            cwd=folder, **house.as_account())

    def command(self):
        settings = {**self.SETTINGS, "port": self.port, "datadir": self.data,
                    "socket": self.folder / "socket", "pid-file": self.folder / "pid",
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


def run(kind, command):
    """Runs a command beside a server; the command's exit code."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with KINDS[kind]() as database:
        url = database.create_database(USER)
        ended = subprocess.run(
            command, check=False, env={**os.environ, f"DIBS_TEST_{kind.upper()}_URL": url})
        if ended.returncode != 0:
            print(database.log_text(), file=sys.stderr)
        database.stop()
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "guard":
        guard(arguments[1])
        return 0
    if len(arguments) > 3 and arguments[0] == "run" and arguments[1] in KINDS \
            and arguments[2] == "--":
        return run(arguments[1], arguments[3:])
    print("usage: tests/servers.py run postgres|mysql -- COMMAND...", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
