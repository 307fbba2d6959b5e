"""Starting, stopping, restarting, owning the ledger."""

import json
import os
import signal
import socket
import sqlite3
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


def test_stop__leaves_one_clean_file(server):
    """After a graceful stop the database is whole by itself: the log has been folded in."""
    policy = server.create(total=2)
    server.win(policy["id"], "u1")
    server.stop()
    wal = server.folder / "dibs.db-wal"
    assert not wal.exists() or wal.stat().st_size == 0
    copy = sqlite3.connect(f"file:{server.database}?mode=ro&immutable=1", uri=True)
    assert copy.execute("SELECT count(*) FROM coupon").fetchone() == (1,)
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    copy.close()


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


def test_owner__a_second_serve_refuses_and_says_who_holds_it(server, tmp_path):
    """Trap 18: two writing processes on one SQLite file."""
    policy = server.create(total=2)
    ended = run_serve(server.database, folder=tmp_path)
    assert ended.returncode == 1, ended
    assert str(server.pid) in ended.stderr, ended.stderr
    assert "dibs.db" in ended.stderr
    assert server.win(policy["id"], "u1")["seq"] == 1


def test_owner__also_through_another_name_of_the_file(server, tmp_path):
    """Trap 18: the same file through a symbolic link, a hard link and a relative path."""
    link = tmp_path / "link.db"
    link.symlink_to(server.database)
    relative = os.path.relpath(server.database, tmp_path)
    hard = tmp_path / "hard.db"
    os.link(server.database, hard)
    for name in (link, relative, hard):
        ended = run_serve(name, folder=tmp_path)
        assert ended.returncode == 1, (name, ended)
        assert str(server.pid) in ended.stderr, (name, ended.stderr)


def test_owner__lock_dies_with_its_holder(server):
    server.create(total=2)
    for _ in range(3):
        server.restart()


def test_owner__two_starts_at_once_one_serves(tmp_path):
    servers = [Server(tmp_path / "both") for _ in range(2)]
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
        for server in servers:
            server.dispose()


def test_ledger__one_writer_connection_that_alone_checkpoints(server):
    """Trap 18: asserted on the running process: WAL, one descriptor open for writing."""
    policy = server.create(total=500)
    server.claims(policy["id"], [f"u{i}" for i in range(100)])
    with sqlite3.connect(f"file:{server.database}?mode=ro", uri=True) as reader:
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    writing = 0
    for entry in os.listdir(f"/proc/{server.pid}/fd"):
        try:
            target = os.readlink(f"/proc/{server.pid}/fd/{entry}")
            with open(f"/proc/{server.pid}/fdinfo/{entry}", encoding="ascii") as info:
                flags = int(info.read().split("flags:")[1].split()[0], 8)
        except OSError:
            continue
        if target == str(server.database) and flags & os.O_ACCMODE != os.O_RDONLY:
            writing += 1
    assert writing == 1


def test_ledger__of_a_newer_dibs_is_refused(server, tmp_path):
    """A file whose schema this binary does not know must not be touched."""
    server.create(total=1)
    server.stop()
    database = sqlite3.connect(server.database)
    version = database.execute("PRAGMA user_version").fetchone()[0]
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    if version:
        database.execute(f"PRAGMA user_version = {version + 1000}")
    else:
        name = next(table for table in tables if "migration" in table or "schema" in table)
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
        database.execute(
            f"INSERT INTO {name} SELECT 9999{''.join(', ' + c for c in columns[1:])} FROM {name} "
            "LIMIT 1")
    database.commit()
    database.close()
    ended = run_serve(server.database, folder=tmp_path)
    assert ended.returncode == 1, ended
    assert "newer" in ended.stderr or "version" in ended.stderr, ended.stderr


def test_ledger__a_corrupt_file_is_refused_at_start(server, tmp_path):
    policy = server.create(total=3000)
    server.storm((claim_bytes(policy["id"], f"u{i}") for i in range(3000)), connections=50)
    server.stop()
    size = server.database.stat().st_size
    damaged = tmp_path / "damaged.db"
    raw = bytearray(server.database.read_bytes())
    for page in range(2, size // 4096, 3):
        raw[page * 4096:page * 4096 + 64] = b"\xa5" * 64
    damaged.write_bytes(raw)
    ended = run_serve(damaged, folder=tmp_path)
    assert ended.returncode == 1, ended
    assert "damaged.db" in ended.stderr


def test_ledger__a_file_that_is_no_database_is_refused(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("these are my notes\n" * 1000)
    ended = run_serve(text, folder=tmp_path)
    assert ended.returncode == 1, ended
    assert "notes.txt" in ended.stderr
    assert text.read_text().startswith("these are my notes")


def test_ledger__a_folder_that_is_not_there(tmp_path):
    ended = run_serve(f"{tmp_path}/no/such/dibs.db", folder=tmp_path)
    assert ended.returncode == 1, ended
    assert "no/such" in ended.stderr


def test_listen__a_taken_port_is_said(server, tmp_path):
    ended = run_serve(tmp_path / "dibs.db", folder=tmp_path,
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
