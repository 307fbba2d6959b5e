"""The winners as a file: who is in it, what a spreadsheet makes of it, and what it costs."""

import csv
import io
import re
import signal
import socket

import pytest

from harness import expect, expect_problem, wait_until, write_secret
from wire import encode

COLUMNS = ["seq", "user", "nth", "coupon_id", "code", "state", "requested_at", "issued_at"]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def path_of(policy):
    return f"/v1/policies/{policy}/winners.csv"


def rows_of(answer):
    assert answer.status == 200, answer
    rows = list(csv.reader(io.StringIO(answer.body.decode("utf-8"), newline="")))
    assert rows[0] == COLUMNS
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows[1:]]


def test_winners__has_every_coupon_as_the_api_shows_it(shared):
    policy = shared.create(total=10, limit=2)["id"]
    won = [shared.win(policy, user) for user in ("u1", "u2", "u1", "u3")]
    answer = shared.get(path_of(policy))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="winners-{policy}.csv"'
    assert answer.headers["cache-control"] == "no-store"
    assert answer.body.endswith(b"\r\n") and b"\n" not in answer.body.replace(b"\r\n", b"")
    rows = rows_of(answer)
    for claim, row in zip(won, rows, strict=True):
        for name in ("seq", "user", "nth", "coupon_id", "code"):
            assert row[name] == str(claim[name])
        assert row["state"] == "ISSUED"
        assert TIME.fullmatch(row["requested_at"]) and TIME.fullmatch(row["issued_at"])


def test_winners__tells_what_became_of_a_coupon(shared):
    policy = shared.create(total=10)["id"]
    codes = [shared.win(policy, f"u{n}")["code"] for n in range(3)]
    expect(shared.post(f"/v1/coupons/{codes[0]}/redeem", {}), 200)
    expect(shared.post(f"/v1/coupons/{codes[1]}/cancel", {}), 200)
    assert [row["state"] for row in rows_of(shared.get(path_of(policy)))] == [
        "REDEEMED", "CANCELLED", "ISSUED"]


def test_winners__of_nobody_is_a_file_with_a_head(shared):
    policy = shared.create(total=1)["id"]
    assert rows_of(shared.get(path_of(policy))) == []
    head = shared.request("HEAD", path_of(policy))
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-type"] == "text/csv; charset=utf-8"


def test_winners__no_user_becomes_a_formula(shared):
    policy = shared.create(total=10)["id"]
    users = ["-1:2", "@SUM", "a-b", "a@b", "1-1"]
    for user in users:
        shared.win(policy, user)
    body = shared.get(path_of(policy)).body.decode()
    assert [row["user"] for row in rows_of(shared.get(path_of(policy)))] == [
        "'-1:2", "'@SUM", "a-b", "a@b", "1-1"]
    for line in body.splitlines():
        for cell in line.split(","):
            assert not cell.startswith(("=", "+", "-", "@", "\t"))


def test_winners__is_for_admins(serve, tmp_path):
    service = "service-token-0123456789"
    server = serve(config={"admin_token_file": write_secret(tmp_path, "admin", "a" * 32),
                           "service_token_file": write_secret(tmp_path, "service", service)})
    server.admin_token = "a" * 32
    policy = server.create(total=1)["id"]
    for token in (False, "wrong", service):
        expect_problem(server.get(path_of(policy), token=token), 401, "UNAUTHORIZED")
    assert rows_of(server.get(path_of(policy))) == []


def many(server, count):
    """A policy with so many winners, who came to the ledger and not through the gate."""
    policy = server.create(total=count)["id"]
    server.stop()
    server.database.execute(
        "INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id,"
        " requested_at, issued_at)"
        " WITH RECURSIVE number(seq) AS"
        " (SELECT 1 UNION ALL SELECT seq + 1 FROM number WHERE seq < ?)"
        " SELECT lease.policy_id, number.seq, printf('user-%06d-%s', number.seq, ?), 1, 1,"
        " 'ISSUED', randomblob(16), lease.id, 1763200000000, 1763200000001"
        " FROM lease, number WHERE lease.policy_id = ?", count, "x" * 50, policy)
    server.start()
    return policy


def test_winners__ten_thousand_are_all_there(server):
    count = 10_000
    policy = many(server, count)
    rows = rows_of(server.get(path_of(policy)))
    assert [int(row["seq"]) for row in rows] == list(range(1, count + 1))
    assert len({row["code"] for row in rows}) == count


@pytest.mark.heavy
def test_winners__a_client_that_does_not_read_costs_little(serve):
    """Eight megabytes for whoever reads; for whoever does not, a few pages."""
    server = serve(config={"threads": 1, "write_timeout": "60s"})
    policy = many(server, 60_000)
    before = server.memory_bytes()
    idle = []
    for _ in range(4):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        client.sendall(encode("GET", path_of(policy)))
        idle.append(client)
    heads = [client.recv(15) for client in idle]
    assert heads == [b"HTTP/1.1 200 OK"] * 4
    # Others are served meanwhile, whole downloads too.
    body = server.get(path_of(policy)).body
    assert len(body) > 8_000_000
    grown = server.memory_bytes() - before
    print(f"{len(body)} bytes each, {grown} bytes of memory for four that do not read")
    assert grown < 16_000_000
    # And whoever begins to read late gets all of it.
    late = bytearray()
    while piece := idle[0].recv(1 << 20):
        late += piece
    assert late.endswith(b"\r\n0\r\n\r\n") and late.count(b",ISSUED,") == 60_000
    for client in idle:
        client.close()
    wait_until(lambda: rows_of(server.get(path_of(server.create(total=1)["id"]))) == [],
               "a download after those who went away")


def test_winners__a_download_that_is_cut_off_does_not_look_whole(serve):
    server = serve(config={"threads": 1})
    policy = many(server, 60_000)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        client.sendall(encode("GET", path_of(policy)))
        got = bytearray(client.recv(1000))
        assert got.startswith(b"HTTP/1.1 200 OK")
        server.signal(signal.SIGTERM)
        server.await_log("stopping")
        try:
            while piece := client.recv(1 << 20):
                got += piece
        except ConnectionResetError:
            pass
    assert b"\r\n0\r\n\r\n" not in got and got.count(b",ISSUED,") < 60_000
    assert server.wait() == 0
