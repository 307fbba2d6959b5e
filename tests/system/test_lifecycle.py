"""Starting, stopping, restarting, owning the ledger."""

import json
import re
import signal
import socket
import threading

import pytest

from harness import (Server, claim_bytes, expect, expect_problem, parse_logfmt, run_serve,
                     tally)
from ledger import audit, coupons
from wire import Closed, encode


def test_start__says_where_it_listens_in_logfmt(server):
    fields = server.events("listening")[0]
    assert fields["level"] == "info"
    assert fields["address"] == f"127.0.0.1:{server.address[1]}"
    assert fields["ts"].endswith("Z")


def test_start__every_log_line_is_structured(serve):
    server = serve(config={"log_level": "debug"})
    policy = server.create(total=2)
    server.claims(policy["id"], ["a", "b", "c"])
    server.get("/nowhere", headers={"X-Request-Id": "log-me"})
    server.stop()
    for line in server.log:
        if line:
            fields = parse_logfmt(line)
            assert fields and fields["ts"] and fields["level"] in ("debug", "info", "warn",
                                                                   "error"), line


def test_start__json_log(tmp_path):
    server = Server(tmp_path, config={"log_format": "json"})
    server.spawn()
    try:
        deadline_lines = []
        while not any("listening" in line for line in deadline_lines):
            with server._log_changed:  # pylint: disable=protected-access
                server._log_changed.wait_for(lambda: len(server.log) > len(deadline_lines), 30)
                deadline_lines = list(server.log)
        line = next(line for line in deadline_lines if "listening" in line)
        assert json.loads(line)["event"] == "listening"
        server.stop()
        for line in server.log:
            if line:
                json.loads(line)
    finally:
        server.dispose()


def test_start__user_input_cannot_forge_log_lines(serve):
    server = serve(config={"log_level": "debug"})
    forged = 'x"\nts=2026-01-01T00:00:00.000Z level=error event=forged'
    server.post("/v1/policies", {"name": forged, "total": 1,
                                 "discount": {"type": "percent", "value": 1}})
    server.get("/nowhere?x=%0aevent=forged", headers={"X-Request-Id": "a event=forged"})
    server.stop()
    assert not server.events("forged")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop__signals_end_it_in_order(server, number):
    policy = server.create(total=2)
    server.win(policy["id"], "u1")
    server.signal(number)
    assert server.wait() == 0
    server.start()
    assert server.policy(policy["id"])["issued"] == 1


def test_stop__idle_keep_alive_connections_do_not_hold_it_up(server):
    idle = [server.connect() for _ in range(50)]
    try:
        for connection in idle:
            assert connection.request("GET", "/healthz").status == 200
        server.stop()
        for connection in idle:
            assert connection.is_closed_by_peer()
    finally:
        for connection in idle:
            connection.close()


def test_stop__refuses_new_connections(server):
    address = server.address
    server.stop()
    with pytest.raises(ConnectionError):
        socket.create_connection(address, timeout=5)


def test_stop__under_load_answers_everything_it_took(server):
    """Nothing is committed and left unanswered, nothing answered and not committed."""
    policy = server.create(total=100000)
    answered = [0]

    def on_answer(_outcome):
        answered[0] += 1
        if answered[0] == 500:
            server.signal(signal.SIGTERM)

    users = (f"u{i}" for i in range(10 ** 9))
    outcomes = server.storm((claim_bytes(policy["id"], user) for user in users), connections=64,
                            pipeline=4, on_answer=on_answer)
    assert server.wait() == 0
    wins = {o.answer.json["user"]: o.answer.json["seq"] for o in outcomes
            if o.answer is not None and o.answer.status == 201}
    rows = {row["user_id"]: row["seq"] for row in coupons(server.database, policy["id"])}
    assert len(wins) >= 500
    assert wins == rows
    refused = [o.answer for o in outcomes if o.answer is not None and o.answer.status != 201]
    for answer in refused:
        expect_problem(answer, 503, "UNAVAILABLE")
    server.start()


def test_stop__answers_a_pipelined_burst_it_had_received(server):
    """Claims already read are all answered, in order, and the last answer says close."""
    policy = server.create(total=1000)
    raw = b"".join(claim_bytes(policy["id"], f"u{i}") for i in range(60))
    with server.connect() as connection:
        connection.send(raw, *["POST"] * 60)
        first = connection.receive()
        server.signal(signal.SIGTERM)
        answers = [first]
        try:
            while len(answers) < 60:
                answers.append(connection.receive())
        except Closed:
            pass
    assert server.wait() == 0
    wins = [a.json["seq"] for a in answers if a.status == 201]
    assert wins == list(range(1, len(wins) + 1))
    assert len(coupons(server.database, policy["id"])) == len(wins)
    server.start()


@pytest.mark.one_server("one process is stopped")
def test_stop__a_waiting_status_is_answered(server):
    """A long poll does not hold up the stop."""
    policy = server.create(total=5)
    with server.connect() as connection:
        connection.send(encode("GET", f"/v1/policies/{policy['id']}/claims/u1?wait=60"), "GET")
        try:
            connection.socket.settimeout(0.3)
            answer = connection.receive()
        except socket.timeout:
            server.signal(signal.SIGTERM)
            connection.socket.settimeout(30)
            answer = connection.receive()
            assert server.wait() == 0
            server.start()
        assert answer.status in (404, 503), answer


def test_stop__a_second_signal_does_no_harm(server):
    policy = server.create(total=5)
    server.win(policy["id"], "u1")
    server.signal(signal.SIGTERM)
    try:
        server.signal(signal.SIGTERM)
    except ProcessLookupError:
        pass
    assert server.wait() in (0, 1)  # In good order, or at once.
    server.start()
    assert server.policy(policy["id"])["issued"] == 1


def test_restart__restores_everything_after_kill_9(server):
    policies = [server.create(total=50, limit=2)["id"] for _ in range(3)]
    for policy in policies:
        server.claims(policy, [f"u{i}" for i in range(30)])
    wins = {(policy, row["user_id"]): row["seq"] for policy in policies
            for row in coupons(server.database, policy)}
    gone = server.win(policies[0], "gone")
    expect(server.cancel(gone["coupon_id"]), 200)
    for _ in range(3):
        server.restart()
        for policy in policies:
            for row in coupons(server.database, policy):
                if row["user_id"] != "gone":
                    assert wins[policy, row["user_id"]] == row["seq"]
    outcomes = server.claims(policies[1], [f"v{i}" for i in range(40)])
    assert tally(outcomes) == {(201, "ISSUED"): 20, (409, "SOLD_OUT"): 20}
    seqs = [o.answer.json["seq"] for o in outcomes if o.answer.status == 201]
    assert sorted(seqs) == list(range(31, 51))


def test_restart__closes_used_up_leases_in_one_transaction(server):
    """A policy that was sold unit by unit leaves a lease per coupon: a start does not commit for
    each of them."""
    total = 40
    policy = server.create(total=total)["id"]
    server.claims(policy, [f"u{i}" for i in range(total)])
    server.restart()
    commits = server.metrics()["dibs_ledger_commits_total"]
    server.stop()
    server.database.execute("UPDATE lease SET state = 'OPEN', count = 1 WHERE policy_id = ?", policy)
    for seq in range(2, total + 1):
        server.database.execute("INSERT INTO lease (policy_id, first_seq, count, state)"
                                " VALUES (?, ?, 1, 'OPEN')", policy, seq)
    server.start()
    assert server.metrics()["dibs_ledger_commits_total"] < commits + total / 2
    with server.database.snapshot() as snapshot:
        assert snapshot.one("SELECT COUNT(*) FROM lease WHERE state = 'OPEN'") == 0
    expect_problem(server.claim(policy, "late"), 409, "SOLD_OUT")
    audit(server.database)


def test_owner__a_second_serve_refuses_and_says_who_holds_it(server, tmp_path):
    """Trap 18: two writing processes on one ledger, each with a gate of its own."""
    policy = server.create(total=2)
    holders = server.database.holders(server)
    ended = run_serve(server.database.url, folder=tmp_path)
    assert ended.returncode == 1, ended
    assert any(re.search(rf"\b{holder}\b", ended.stderr) for holder in holders), ended.stderr
    assert server.win(policy["id"], "u1")["seq"] == 1


def test_owner__lock_dies_with_its_holder(server):
    server.create(total=2)
    for _ in range(3):
        server.restart()


def test_owner__two_starts_at_once_one_serves(tmp_path):
    first = Server(tmp_path / "first")
    servers = [first, Server(tmp_path / "second", database=first.database)]
    results = [None, None]

    def start(index):
        try:
            servers[index].start()
            results[index] = True
        except AssertionError:
            results[index] = False

    threads = [threading.Thread(target=start, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert sorted(results) == [False, True], [s.log_text() for s in servers]
        winner = servers[results.index(True)]
        policy = winner.create(total=1)
        winner.win(policy["id"], "u1")
        winner.stop()
        audit(winner.database)
    finally:
        for server in reversed(servers):
            server.dispose()


def test_ledger__of_a_newer_dibs_is_refused(server, tmp_path):
    """A ledger whose schema this binary does not know must not be touched."""
    server.create(total=1)
    server.stop()
    server.database.set_schema_version(1000)
    ended = run_serve(server.database.url, folder=tmp_path)
    assert ended.returncode == 1, ended
    assert "newer" in ended.stderr and "1000" in ended.stderr, ended.stderr


def test_listen__a_taken_port_is_said(server, tmp_path):
    ended = run_serve(f"sqlite:{tmp_path}/dibs.db", folder=tmp_path,
                      listen=f"127.0.0.1:{server.address[1]}")
    assert ended.returncode == 1, ended
    assert str(server.address[1]) in ended.stderr


def test_listen__ipv6_loopback(tmp_path):
    server = Server(tmp_path, listen="[::1]:0")
    server.spawn()
    try:
        fields = server.await_log("listening")
        port = int(fields["address"].rsplit(":", 1)[1])
        with socket.create_connection(("::1", port), timeout=30) as connection:
            connection.sendall(encode("GET", "/healthz", headers={"Connection": "close"},
                                      host=f"[::1]:{port}"))
            data = b""
            while more := connection.recv(65536):
                data += more
        assert data.startswith(b"HTTP/1.1 200 ")
        server.stop()
    finally:
        server.dispose()
