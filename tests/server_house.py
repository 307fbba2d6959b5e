"""A house for private servers: their folder, their life, and a guard that ends them all.

Everything is stopped and removed when the process that started it ends, however it ends: a guard in
a session of its own sees to it. servers.py tells what there is.
"""
import atexit
import contextlib
import fcntl
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
PROGRAMS = ("postgres", "mariadbd", "redis-server", "java", "nginx")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def processes_of(name):
    """The server processes that carry the name in their command line: {pid: its parent}."""
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
        self.shared = pathlib.Path(os.environ.get("DIBS_TEST_TEMPLATES") or self.folder)
        self.templates = {}
        self.server_count = 0
        self.guard = subprocess.Popen(
            [sys.executable, "-S", __file__, str(self.folder)], stdin=subprocess.PIPE,
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
        """The files of an empty server of that class, made by whoever needs them first: us, or
        any process of the run when DIBS_TEST_TEMPLATES names a folder that all of them share."""
        if kind not in self.templates:
            folder = self.shared / f"template-{kind.KIND}"
            with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                is_whole = pathlib.Path(f"{folder}.whole")
                if not is_whole.exists():
                    shutil.rmtree(folder, ignore_errors=True)  # of one that was killed meanwhile
                    kind.initialize(self.own(folder), self)
                    is_whole.touch()
            self.templates[kind] = folder
        return self.templates[kind]


class Houses:
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


_held_ports = []  # sockets whose names keep others from our ports, until this process ends


def free_port():
    """A loopback port below those that the kernel gives to connections and to servers on port 0. No
    other process of the tests gets it while we live, also while whoever uses it is down."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10000, first) if first > 11000 else 0
        hold = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            port = probe.getsockname()[1]
            hold.bind(f"\0dibs-test-port-{port}")
            _held_ports.append(hold)
            return port
        hold.close()


class Server:
    """One private server; the subclasses know how theirs is made, started and asked."""

    KIND = None         # how dibs calls it
    STOP_SIGNAL = None  # an orderly end that waits for no client

    def __init__(self, settings=None, folder=None, env=None):
        self.house = Houses.get()
        self.house.server_count += 1
        # In the command line of each of its processes, which is how they are found.
        self.name = f"{self.house.folder.name}-{self.house.server_count:04}"
        self.folder = self.house.own(self.house.folder / self.name)
        self.data = self.house.own(pathlib.Path(folder) / self.name if folder
                                   else self.folder / "data")
        self.settings = dict(settings or {})
        self.env = dict(env or {})
        self.port = free_port()
        self.process = None
        self.backup_count = 0

    def command(self):
        """What starts it, in the foreground."""
        raise NotImplementedError

    def answers(self):
        """Whether it takes work; the errors of a connection also mean that it does not yet."""
        raise NotImplementedError

    def connection_errors(self):
        """The exceptions with which its driver says that it cannot be reached."""
        raise NotImplementedError

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
                if self.answers():
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


if __name__ == "__main__":
    guard(sys.argv[1])
