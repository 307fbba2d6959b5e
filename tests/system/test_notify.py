"""What systemd hears: ready, alive, stopping."""

import os
import socket

import pytest

from harness import AWAIT_TIMEOUT_S, Server
from servers import Redis
from sharing import Sharing
from wire import SLOW


class Listener:
    """The socket of a service manager; a name that begins with @ is in no folder."""

    def __init__(self, name):
        self.name = name
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + name[1:] if name.startswith("@") else name)

    def hear(self):
        self.socket.settimeout(AWAIT_TIMEOUT_S * SLOW)
        return self.socket.recv(4096).decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


@pytest.mark.parametrize("where", ["a file", "no file"])
def test_notify__ready_when_it_listens_and_stopping_when_it_stops(tmp_path, where):
    name = f"{tmp_path}/notify" if where == "a file" else f"@dibs-test-{os.getpid()}"
    with Listener(name) as manager, Server(tmp_path, env={"NOTIFY_SOCKET": name}).spawn() as server:
        assert manager.hear() == "READY=1"
        server.await_start()
        server.stop()
        assert manager.hear() == "STOPPING=1"


def test_notify__beats_for_a_watchdog(tmp_path):
    name = f"{tmp_path}/notify"
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000"}
    with Listener(name) as manager, Server(tmp_path, env=environment) as server:
        heard = [manager.hear() for _ in range(10)]
        assert heard.count("WATCHDOG=1") == 9 and heard.count("READY=1") == 1


def test_notify__does_not_beat_for_a_watchdog_of_another(tmp_path):
    name = f"{tmp_path}/notify"
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "3000", "WATCHDOG_PID": str(os.getpid())}
    with Listener(name) as manager, Server(tmp_path, env=environment) as server:
        server.get("/readyz")
        server.stop()
        assert [manager.hear(), manager.hear()] == ["READY=1", "STOPPING=1"]


def test_notify__a_worker_does_the_same(tmp_path):
    name = f"{tmp_path}/notify"
    with Listener(name) as manager, Redis() as redis, Sharing(tmp_path, redis) as shop:
        worker = shop.work(env={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000"})
        heard = {manager.hear() for _ in range(5)}
        assert heard == {"READY=1", "WATCHDOG=1"}
        worker.stop()
        while (last := manager.hear()) == "WATCHDOG=1":
            pass
        assert last == "STOPPING=1"


def test_notify__a_manager_that_is_not_there_is_said(tmp_path):
    with Server(tmp_path, env={"NOTIFY_SOCKET": f"{tmp_path}/nobody"}) as server:
        assert server.await_log("notify_failed")["words"] == "READY=1"
