"""A log that nobody reads, or that cannot be written, stops nothing."""

import os
import resource
import signal
import subprocess

import pytest

from harness import BINARY, Server, clean_environment, wait_until
from server_house import free_port
from wire import Connection

# What a pipe and the ring hold together, and more.
LINES = 16_000


def ask_on(connection, count):
    """So many requests on one connection, each of which leaves two lines at debug."""
    for _ in range(count):
        assert connection.request("GET", "/healthz").status == 200


class Unread:
    """A server whose stderr is a pipe that is read up to where it listens, and then no more."""

    def __init__(self, folder, **config):
        folder.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [str(BINARY), "serve", "--listen", "127.0.0.1:0", "--ledger",
             f"sqlite:{folder}/dibs.db"],
            env=clean_environment(config), cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0)
        said = b""
        while b"event=listening" not in said:
            said += os.read(self.process.stderr.fileno(), 1)
        while b"\n" not in said[said.index(b"event=listening"):]:
            said += os.read(self.process.stderr.fileno(), 1)
        self.address = ("127.0.0.1", int(said.decode().split("address=127.0.0.1:")[1].split()[0]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


@pytest.mark.heavy
def test_log__a_reader_that_does_not_read_holds_up_nothing(tmp_path):
    with Unread(tmp_path, log_level="debug") as server, Connection(server.address) as connection:
        ask_on(connection, LINES // 2)
        shown = connection.request("GET", "/metrics").body.decode()
        dropped = next(line for line in shown.splitlines()
                       if line.startswith("dibs_log_dropped_total "))
        assert float(dropped.split()[1]) > 0
        # Neither does a stop wait for it.
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def test_log__lines_that_were_dropped_are_told_of(tmp_path):
    with Unread(tmp_path, log_level="debug") as server, Connection(server.address) as connection:
        ask_on(connection, LINES // 2)
        lines, rest = [], b""
        while not any("event=log_dropped" in line for line in lines):
            rest += os.read(server.process.stderr.fileno(), 65536)
            *whole, rest = rest.split(b"\n")
            lines += [line.decode() for line in whole]
        told = int(next(line for line in lines if "event=log_dropped" in line).split("lines=")[1])
        assert told > 0 and all(line.startswith("ts=") for line in lines)


def test_log__closed_descriptors_are_not_taken_by_the_ledger(tmp_path):
    """With 2>&- the database got descriptor 2, and the log's lines with it."""
    port = free_port()

    def close_all():
        for number in range(3):
            os.close(number)

    process = subprocess.Popen(
        [str(BINARY), "serve", "--listen", f"127.0.0.1:{port}", "--ledger",
         f"sqlite:{tmp_path}/dibs.db"], env=clean_environment({"log_level": "debug"}),
        cwd=tmp_path, preexec_fn=close_all)

    def answers():
        assert process.poll() is None
        try:
            with Connection(("127.0.0.1", port)) as connection:
                return connection.request("GET", "/healthz").status == 200
        except ConnectionError:
            return False

    try:
        wait_until(answers, "it listens")
        held = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]
        assert held == ["/dev/null"] * 3
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_log__a_file_that_may_not_grow_is_an_error_and_not_the_end(tmp_path):
    """RLIMIT_FSIZE: the ledger cannot commit, so claims get 503, and the rest goes on."""
    server = Server(folder=tmp_path / "server", config={"ack_timeout": "1s"})
    server.start()
    try:
        policy = server.create(total=100_000)
        server.win(policy["id"], "first")
        largest = max(path.stat().st_size for path in server.folder.iterdir())
        limit = largest + 4096
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

        def is_refused():
            outcomes = server.claims(policy["id"], [f"u{is_refused.at + n}" for n in range(200)])
            is_refused.at += 200
            assert server.alive, server.log_text()
            return any(outcome.answer.status == 503 for outcome in outcomes)

        is_refused.at = 0
        wait_until(is_refused, "the ledger cannot grow")
        assert server.get("/healthz").status == 200
        limit = resource.RLIM_INFINITY
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        wait_until(lambda: server.claim(policy["id"], "last").status in (200, 201), "it goes on")
        server.stop()
    finally:
        server.dispose()


def test_log__a_limit_on_files_does_not_end_it_when_the_log_is_one(tmp_path):
    """The log itself may be the file that may not grow."""
    log = tmp_path / "log"
    with open(log, "wb") as file:
        port = free_port()
        process = subprocess.Popen(
            [str(BINARY), "serve", "--listen", f"127.0.0.1:{port}", "--ledger",
             f"sqlite:{tmp_path}/dibs.db"], env=clean_environment({"log_level": "debug"}),
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file)
        try:
            wait_until(lambda: b"event=listening" in log.read_bytes(), "it listens")
            largest = max(path.stat().st_size for path in tmp_path.iterdir())
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest, largest))
            with Connection(("127.0.0.1", port)) as connection:
                ask_on(connection, 2000)
            assert process.poll() is None
        finally:
            process.terminate()
            assert process.wait(30) == 0
