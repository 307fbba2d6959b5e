"""The disk of the database server is full: clear 503s, everything goes on when there is room, and
nothing that was answered 201 is lost.

The disk is a small tmpfs where one may be mounted; elsewhere a preloaded library says that it is
full (preload.c). DIBS_TEST_DISK=preload asks for the latter."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from crowd import Crowd, await_ready, expect_away, expect_one_life
from disk import LIBRARY
from harness import expect_problem, wait_until
from history import History
from ledger import KIND, coupons
from servers import KINDS

# Room for the files of an empty server and its logs of changes, and little more.
SIZE = {"postgres": "96m", "mysql": "192m"}[KIND]
SETTINGS = {"postgres": {"max_wal_size": "32MB", "min_wal_size": "32MB"}, "mysql": {}}[KIND]
# Where rows go; a server whose logs of changes have no room ends itself, which is another test.
ROWS = {"postgres": "/base/", "mysql": "coupon.ibd"}[KIND]


class Tmpfs:
    """A small disk of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.filler = folder / "filler"
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=711", "tmpfs",
                        str(folder)], check=True, stderr=subprocess.DEVNULL)

    env = {}

    def fill(self):
        with contextlib.suppress(OSError), open(self.filler, "ab", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def empty(self):
        self.filler.unlink(missing_ok=True)

    def close(self):
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


class Preloaded:
    """A disk that is said to be full, for the files of the rows."""

    def __init__(self, folder):
        self.folder = folder
        self.control = folder / "control"
        self.env = {"LD_PRELOAD": str(LIBRARY), "DIBS_TEST_PRELOAD_MATCH": ROWS,
                    "DIBS_TEST_PRELOAD_CONTROL": str(self.control)}
        self.empty()

    def _set(self, word):
        fresh = self.control.with_suffix(".new")
        fresh.write_text(word + "\n")
        fresh.rename(self.control)

    def fill(self):
        self._set("enospc")

    def empty(self):
        self._set("ok")

    def close(self):
        self.empty()


@pytest.fixture
def small_disk():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dibs-disk-"))
    folder.chmod(0o711)
    try:
        if os.environ.get("DIBS_TEST_DISK") == "preload":
            raise OSError
        disk = Tmpfs(folder)
    except (OSError, subprocess.CalledProcessError):
        disk = Preloaded(folder)
    yield disk
    disk.empty()
    disk.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cramped(small_disk):
    """A database server on the small disk."""
    database_server = KINDS[KIND](folder=small_disk.folder, settings=SETTINGS, env=small_disk.env)
    with database_server:
        yield database_server
        small_disk.empty()


def test_database_disk__full_for_a_while(cramped, small_disk, on_database):
    server = on_database(cramped, ledger_timeout="2s")
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    with Crowd(server, history, [policy], workers=32) as crowd:
        crowd.await_wins(100)
        small_disk.fill()
        crowd.await_refusals(100)
        words = expect_away(server)
        expect_problem(server.claim(policy, "new", key="new"), 503, "UNAVAILABLE")
        small_disk.empty()
        if not wait_until_alive(cramped):
            words = None  # It gave up altogether, as it may, and was started again.
        crowd.await_wins(100, timeout_s=60)
    assert words is None or is_about_space(words), words
    history.check_rows(server)
    history.check_answers(server)
    assert {row["state"] for row in coupons(server.database, policy)} == {"ISSUED"}
    await_ready(server)
    expect_one_life(server)


def is_about_space(words):
    return any(word in words.lower() for word in ("space", "full", "disk", "connect", "recovery"))


def wait_until_alive(database_server):
    """False: it had ended, and had to be started again."""
    if database_server.alive:
        return True
    database_server.kill()
    database_server.start()
    return False


def test_database_disk__full_when_it_is_killed(cramped, small_disk, on_database):
    """kill -9 of both while there is no room: what was said is there when they are back."""
    server = on_database(cramped)
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    with Crowd(server, history, [policy]) as crowd:
        crowd.await_wins(100)
        small_disk.fill()
        crowd.await_refusals(20)
        cramped.kill()
        server.kill()
        small_disk.empty()
        cramped.start()
        server.start()
        crowd.await_wins(50)
    history.check_rows(server)
    history.check_answers(server)


if KIND == "postgres":
    def test_database_disk__no_room_for_the_log(cramped, small_disk, on_database):
        """PostgreSQL ends itself when it cannot write ahead (PANIC): it may only come back by hand,
        and dibs waits for that."""
        server = on_database(cramped)
        history = History()
        policy = server.create(total=10 ** 6)["id"]
        with Crowd(server, history, [policy]) as crowd:
            crowd.await_wins(100)
            small_disk.fill()
            if not isinstance(small_disk, Tmpfs):
                cramped.kill()  # What it would do to itself.
            with contextlib.suppress(Exception):
                cramped.query("postgres", "SELECT pg_switch_wal()")
                cramped.query("postgres", "CHECKPOINT")
                cramped.query("postgres", "SELECT pg_switch_wal()")
            crowd.await_refusals(20)
            small_disk.empty()
            wait_until(lambda: not cramped.alive or is_up(cramped), "an end, or a recovery")
            wait_until_alive(cramped)
            crowd.await_wins(50, timeout_s=60)
        history.check_rows(server)
        history.check_answers(server)

    def is_up(database_server):
        with contextlib.suppress(*database_server.connection_errors()):
            database_server.query("postgres", "SELECT 1")
            return True
        return False
