"""Fixtures and hooks of the system and the fault tests."""

import os

import pytest

from crew import GATE, new_server
from harness import BINARY, raise_file_limit
from ledger import KIND, audit


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "heavy: costs much and shows a sanitizer nothing new; not repeated there")
    config.addinivalue_line(
        "markers", "gate_local(reason): holds, or has a meaning, for a gate of one's own only")
    config.addinivalue_line(
        "markers", "refused(reason): neither gate nor ledger is asked; not repeated on others")
    config.addinivalue_line(
        "markers", "one_server(reason): about one process; not asked by turns when there are two")


def pytest_collection_modifyitems(config, items):
    """Under a sanitizer the heavy ones stay out, and elsewhere those that it watches; with a shared
    gate, those that cannot hold; on any other gate or ledger than the first, those that ask
    neither."""
    watched = {f"test_{name}" for name in os.environ.get("DIBS_TEST_WATCHED", "").split()}
    out = [item for item in items
           if item.path.stem in watched and not item.get_closest_marker("heavy")]
    if os.environ.get("DIBS_TEST_SANITIZER"):
        out += [item for item in items if item.get_closest_marker("heavy")]
    if GATE != "local":
        out += [item for item in items if item.get_closest_marker("gate_local")]
    if GATE != "local" or KIND != "sqlite":
        out += [item for item in items if item.get_closest_marker("refused")]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
    items[:] = part_of(items, os.environ.get("DIBS_TEST_PART") or "1/1")


def part_of(items, part):
    """The tests of this run out of several that share a suite, "1/2" the first of two: by turns a
    file for each, so that every test is in one of them."""
    number, count = map(int, part.split("/"))
    assert 1 <= number <= count, f"DIBS_TEST_PART={part}"
    files = sorted({item.path for item in items})
    mine = set(files[number - 1::count])
    return [item for item in items if item.path in mine]


def pytest_sessionstart(session):
    raise_file_limit()
    if not BINARY.is_file():
        raise pytest.UsageError(f"{BINARY} is not there: set DIBS_BINARY or build it")


@pytest.fixture(scope="session")
def _shared_server():
    """One server for all tests that only need policies of their own."""
    server = new_server()
    yield server
    try:
        server.stop()
    finally:
        server.dispose()


@pytest.fixture
def shared(_shared_server, request):
    """The shared server, up; judged after the test."""
    server = _shared_server
    server.is_alone = request.node.get_closest_marker("one_server") is not None
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
def serve(tmp_path, request):
    """Starts servers of one's own: serve(config={...}, ...). Each is stopped in good order,
    judged and audited after the test."""
    servers = []

    def start(**options):
        options.setdefault("folder", tmp_path / f"server-{len(servers)}")
        options.setdefault("is_alone", request.node.get_closest_marker("one_server") is not None)
        server = new_server(**options)
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
