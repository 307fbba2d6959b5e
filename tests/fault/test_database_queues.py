"""Strangers whose reads the database holds up: operators and users do not wait behind them."""

import contextlib
import select

import pytest

from harness import expect, expect_problem, wait_until, write_secret
from ledger import KIND
from wire import TIMEOUT_S, encode

ADMIN = "admin-token-0123456789abcdef"
SERVICE = "service-token-0123456789abcdef"
# Nothing but these reads needs it, and whoever reads waits until it is let go.
LOCK = {"postgres": "LOCK TABLE product IN ACCESS EXCLUSIVE MODE",
        "mysql": "LOCK TABLES product WRITE"}[KIND]
READ = encode("GET", "/v1/products/p1")
PIPELINED, CONNECTIONS, CLERKS = 64, 12, 8


@pytest.fixture
def server(on_victim, tmp_path):
    one = on_victim(ledger_timeout="5m", admin_token_file=write_secret(tmp_path, "admin", ADMIN),
                    service_token_file=write_secret(tmp_path, "service", SERVICE))
    one.admin_token = ADMIN
    return one


def sum_of(server, name):
    return sum(value for sample, value in server.metrics().items() if sample.startswith(name))


def test_database_queues__strangers_hold_up_no_operator(server, foreign):
    """More reads of strangers than find room wait for a lock: an operator pauses, a user is told
    how their claim stands, and the next stranger hears at once that there is no room."""
    policy = server.create(total=10)["id"]
    server.win(policy, "u1", token=SERVICE)
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(foreign(server.database))
        session.execute(LOCK)
        crowd = [stack.enter_context(server.connect()) for _ in range(CONNECTIONS)]
        for connection in crowd:
            connection.send(READ * PIPELINED, *["GET"] * PIPELINED)
        wait_until(lambda: sum_of(server, "dibs_pool_tasks_waiting") >= 400, "strangers wait")
        assert expect(server.patch(policy, paused=True), 200)["state"] == "PAUSED"
        assert server.policy(policy)["state"] == "PAUSED"
        assert expect(server.status(policy, "u1", token=SERVICE), 200)["state"] == "ISSUED"
        wait_until(lambda: server.metrics()['dibs_pool_tasks_refused_total{queue="strangers"}'],
                   "some found no room")
        # Clerks that woke late have made room for a few.
        probes = [stack.enter_context(server.connect()) for _ in range(CLERKS + 1)]
        for probe in probes:
            probe.send(encode("GET", f"/v1/policies/{policy}"), "GET")
        answered, _, _ = select.select([probe.socket for probe in probes], [], [], TIMEOUT_S)
        refused = next(probe for probe in probes if probe.socket in answered)
        expect_problem(refused.receive(), 503, "UNAVAILABLE")
        assert server.metrics()['dibs_pool_tasks_waiting{queue="strangers"}'] >= 400
        session.execute("UNLOCK TABLES" if KIND == "mysql" else "ROLLBACK")
        session.rollback()
        answers = [connection.receive().status for connection in crowd for _ in range(PIPELINED)]
    assert set(answers) == {404, 503} and answers.count(404) >= 400, answers
