"""The harness of the system tests."""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / name) for name in ("system", ".")]

# pylint: disable=unused-import,wrong-import-position
from fixtures import _shared_server, pytest_configure, serve, server, shared  # noqa: E402,F401
