"""The fixtures of the system tests, and a disk that fails on demand."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

# pylint: disable=unused-import,wrong-import-position
from disk import Disk  # noqa: E402
from fixtures import (_shared_server, pytest_collection_modifyitems,  # noqa: E402,F401
                      pytest_configure, pytest_sessionstart, serve, server, shared)


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
