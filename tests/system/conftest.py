"""The fixtures of fixtures.py, for pytest to find."""

# pylint: disable=unused-import
from fixtures import (_shared_server, pytest_collection_modifyitems, pytest_configure,
                      pytest_sessionstart, serve, server, shared)
