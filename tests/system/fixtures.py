"""Fixtures and hooks of the system and the fault tests."""

import os

import pytest

from harness import BINARY, Server, raise_file_limit
from ledger import audit


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "heavy: costs much and shows a sanitizer nothing new; not repeated there")


def pytest_collection_modifyitems(config, items):
    """Under a sanitizer the heavy ones stay out."""
    if os.environ.get("DIBS_TEST_SANITIZER"):
        heavy = [item for item in items if item.get_closest_marker("heavy")]
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if item not in heavy]


def pytest_sessionstart(session):
    raise_file_limit()
    if not BINARY.is_file():
        raise pytest.UsageError(f"{BINARY} is not there: set DIBS_BINARY or build it")


@pytest.fixture(scope="session")
def _shared_server():
    """One server for all tests that only need policies of their own."""
    server = Server()
    yield server
    try:
        server.stop()
    finally:
        server.dispose()


@pytest.fixture
def shared(_shared_server):
    """The shared server, up; judged after the test."""
    server = _shared_server
    if not server.alive:
        server.process = None
        server.start()
    first_line = len(server.log)
    yield server
    assert server.alive, f"the server died\n{server.log_text()}"
    for line in server.log[first_line:]:
        print(line, end="")
    server.check_log()
    audit(server.database)


@pytest.fixture
def serve(tmp_path):
    """Starts servers of one's own: serve(config={...}, ...). Each is stopped in good order,
    judged and audited after the test."""
    servers = []

    def start(**options):
        options.setdefault("folder", tmp_path / f"server-{len(servers)}")
        server = Server(**options)
        servers.append(server)
        return server.start()

    yield start
    try:
        for server in servers:
            print(server.log_text(), server.database.log_text())
            if server.process is not None:
                code = server.process.poll()
                assert code is None, f"the server died with {code}"
                server.stop()
            server.check_log()
            audit(server.database)
    finally:
        for server in servers:
            server.dispose()


@pytest.fixture
def server(serve):
    """A server of one's own with nothing configured."""
    return serve()
