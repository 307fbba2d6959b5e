"""No memory is never a verdict: whoever asks meanwhile is told 503, and what was asked for is done when
there is memory again."""

import contextlib
import pathlib
import re
import resource

import pytest

from harness import expect, expect_problem, wait_until
from ledger import audit

UNITS = 10 ** 6  # Their places take more than what is left.
LEFT = 48 << 20


@contextlib.contextmanager
def no_memory(server):
    """The process may have a little more than it has."""
    status = pathlib.Path(f"/proc/{server.pid}/status").read_text("ascii")
    size = int(re.search(r"VmSize:\s+(\d+) kB", status)[1]) << 10
    before = resource.prlimit(server.pid, resource.RLIMIT_AS)
    resource.prlimit(server.pid, resource.RLIMIT_AS, (size + LEFT, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_AS, before)


@pytest.fixture(name="server")
def fixture_server(serve):
    return serve(config={"ack_timeout": "500ms"})


def expect_no_verdict(server, policy):
    """Not SOLD_OUT, neither to those who claim nor to those who look."""
    for n in range(5):
        answer = server.claim(policy, f"early{n}")
        assert answer.status in (404, 503), answer
        shown = server.get(f"/v1/policies/{policy}")
        assert shown.status in (404, 503) or shown.json["state"] == "OPEN", shown


def test_memory__none_for_a_new_policy(server):
    """It is whole, or not to be found."""
    small = server.create(total=10)["id"]
    body = {"id": 77, "name": "large", "discount": {"type": "percent", "value": 10},
            "total": UNITS}
    with no_memory(server):
        expect_problem(server.post("/v1/policies", body), 503, "UNAVAILABLE")
        expect_no_verdict(server, 77)
        server.win(small, "u1")  # The others go on.
        expect_no_verdict(server, 77)
    wait_until(lambda: server.claim(77, "u1").status in (200, 201), "it is loaded", timeout_s=30)
    assert expect(server.get("/v1/policies/77"), 200)["remaining"] == UNITS - 1
    audit(server.database)


def test_memory__none_for_more_stock(server):
    """Sold out, then raised: the units are there, and nobody is told otherwise."""
    policy = server.create(total=1)["id"]
    server.win(policy, "u1")
    expect_problem(server.claim(policy, "u2"), 409, "SOLD_OUT")
    with no_memory(server):
        server.patch(policy, total=UNITS)
        expect_no_verdict(server, policy)
    wait_until(lambda: server.claim(policy, "u2").status in (200, 201), "it is lent", timeout_s=30)
    audit(server.database)
