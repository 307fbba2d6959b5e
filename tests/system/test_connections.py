"""Clients that are slow, idle, gone or too many."""

import selectors
import socket
import struct
import threading
import time

import pytest

from harness import claim_bytes, expect, expect_problem, tally, wait_until
from wire import SLOW, Closed, Connection, encode

CUT_OFF_S = 8
GIVE_UP_S = 25 * SLOW


def drip(server, raw, pace_s=0.2):
    """Sends byte by byte until the server ends it: (seconds it lived, bytes that came back)."""
    begin = time.monotonic()
    with server.connect() as connection:
        connection.socket.settimeout(pace_s)
        back = b""
        for byte in raw:
            if time.monotonic() - begin > GIVE_UP_S:
                break
            try:
                connection.socket.send(bytes([byte]))
                # The pace is the wait for an answer: nothing sleeps.
                data = connection.socket.recv(65536)
                if not data:
                    break
                back += data
            except socket.timeout:
                continue
            except ConnectionError:
                break
    return time.monotonic() - begin, back


def run_all(*jobs):
    """Runs the jobs in parallel and returns their results; an error in one is raised."""
    results = [None] * len(jobs)

    def run(index, job):
        try:
            results[index] = job()
        except BaseException as error:  # pylint: disable=broad-except
            results[index] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def idle_time(server, raw=None):
    """How long the server keeps a connection that says nothing (more)."""
    with server.connect(timeout_s=60) as connection:
        if raw:
            connection.send(raw, "GET")
            assert connection.receive().status == 200
        begin = time.monotonic()
        data = connection.socket.recv(65536)
        assert data == b"" or data.startswith(b"HTTP/1.1 408"), data
        return time.monotonic() - begin


def unread_time(server):
    """How long the server keeps a client that asks for much and reads nothing."""
    with server.connect(timeout_s=60, receive_buffer_size=4096) as connection:
        connection.socket.setblocking(False)
        raw = encode("GET", "/openapi.json")
        begin = time.monotonic()
        while True:
            assert time.monotonic() - begin < GIVE_UP_S
            try:
                connection.socket.send(raw)
            except BlockingIOError:
                # Full in both directions: now only the server can end it.
                if connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    break
                state = connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
                if state != 1:  # No longer established.
                    break
                time.sleep(0.02)
            except ConnectionError:
                break
        return time.monotonic() - begin


def test_slow_clients__are_cut_off_in_time(server):
    """All kinds at once, with the limits of the contract: headers 5 s in all, body 5 s, idle
    15 s, write 10 s. A drip-feeding client is cut off in 8 s. Claims go on meanwhile."""
    policy = server.create(total=100000)
    claim = claim_bytes(policy["id"], "drip")
    long_line = b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\n\r\n"
    long_head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Drip: " + b"v" * 2000
    head, body = claim.split(b"\r\n\r\n")
    slow_body = head.replace(b"Content-Length: %d" % len(body), b"Content-Length: 2000")

    def drip_body():
        begin = time.monotonic()
        with server.connect() as connection:
            connection.socket.sendall(slow_body + b"\r\n\r\n")
            connection.socket.settimeout(0.2)
            back = b""
            while time.monotonic() - begin < GIVE_UP_S:
                try:
                    connection.socket.send(b" ")
                    data = connection.socket.recv(65536)
                except socket.timeout:
                    continue
                except ConnectionError:
                    break
                if not data:
                    break
                back += data
        return time.monotonic() - begin, back

    def claims():
        won = 0
        deadline = time.monotonic() + 8
        with server.connect() as connection:
            while time.monotonic() < deadline:
                connection.send(claim_bytes(policy["id"], f"busy{won}"), "POST")
                assert connection.receive().status in (200, 201)
                won += 1
                time.sleep(0.01)  # One after the other, without a core of their own.
        return won

    slack = 3.5 * SLOW
    for _ in range(3):  # A machine that stands still for seconds holds them up, too.
        line, header, dripped, silent, idle, unread, won = run_all(
            lambda: drip(server, long_line), lambda: drip(server, long_head), drip_body,
            lambda: idle_time(server), lambda: idle_time(server, encode("GET", "/healthz")),
            lambda: unread_time(server), claims)
        for lived_s, back in (line, header, dripped):
            assert lived_s >= 3 and (back == b"" or back.startswith(b"HTTP/1.1 408 ")), back
        assert silent >= 4 and idle >= 13 and unread >= 8, (silent, idle, unread)
        dripped_s = max(line[0], header[0], dripped[0])
        if dripped_s <= CUT_OFF_S + slack - 1.5 and max(silent, idle) <= 15 + 1.5 + slack \
                and unread <= 10 + 3 + slack and won > 10:
            break
    else:
        raise AssertionError(f"not in time: {(dripped_s, silent, idle, unread, won)}")
    assert expect(server.status(policy["id"], "busy0"), 200)["state"] == "ISSUED"
    expect_problem(server.status(policy["id"], "drip"), 404, "NO_CLAIM")


def test_slow_clients__limits_can_be_set(serve):
    server = serve(config={"header_timeout": "300ms", "body_timeout": "300ms",
                           "idle_timeout": "400ms"})
    for raw in (b"GET /healthz HTTP/1.1\r\nHost: x", encode("POST", "/v1/policies", b"").replace(
            b"Content-Length: 0", b"Content-Length: 9")):
        with server.connect() as connection:
            connection.send(raw, "GET")
            expect_problem(connection.receive(), 408, "TIMEOUT")
            assert connection.is_closed_by_peer()
    with server.connect() as connection:
        assert connection.request("GET", "/healthz").status == 200
        assert connection.is_closed_by_peer()


@pytest.mark.heavy
def test_ten_thousand_idle_connections__do_not_disturb_claims(serve):
    # Opening them may take a while, and one address has too few ports.
    server = serve(config={"idle_timeout": "5m", "connections_per_address": 0})
    policy = server.create(total=2000)
    idle = []
    raw = encode("GET", "/healthz")
    try:
        # Each says something once, so that the idle limit counts, not the one for headers.
        for i in range(10000):
            connection = Connection(server.address, source=f"127.0.0.{1 + i % 8}")
            connection.send(raw, "GET")
            idle.append(connection)
        for connection in idle:
            assert connection.receive().status == 200
        wait_until(lambda: server.metrics()["dibs_http_connections"] >= 10000, "all accepted")
        outcomes = server.claims(policy["id"], [f"u{i}" for i in range(500)])
        assert tally(outcomes) == {(201, "ISSUED"): 500}
        assert server.metrics()["dibs_http_connections"] >= 10000
        for connection in idle[::100]:
            assert connection.request("GET", "/healthz").status == 200
        assert server.memory_bytes() < 1024 ** 3
    finally:
        for connection in idle:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                         struct.pack("ii", 1, 0))
            connection.close()
    wait_until(lambda: server.metrics()["dibs_http_connections"] < 100, "all gone")


@pytest.mark.parametrize("files_max", [96, 256])
def test_file_descriptors__running_out_is_survived(serve, files_max):
    """More clients than descriptors: some are served, and all are once the crowd has gone."""
    server = serve(files_max=files_max)
    policy = server.create(total=100)
    crowd = []
    try:
        for _ in range(2 * files_max):
            try:
                connection = Connection(server.address)
                connection.send(encode("GET", "/healthz"), "GET")
                crowd.append(connection)
            except OSError:
                break
        assert len(crowd) > files_max
        served, refused = await_answers(crowd, files_max // 4)
        assert served >= files_max // 4, (served, refused)
    finally:
        for connection in crowd:
            connection.close()

    def serves(user):
        try:
            return server.claim(policy["id"], user).status in (200, 201)
        except (Closed, OSError):
            return False

    for i in range(20):
        wait_until(lambda i=i: serves(f"u{i}"), "an answer after the crowd has gone")
    assert server.alive


def await_answers(crowd, wanted):
    """Reads until so many were served: how many were, and how many were turned away."""
    selector = selectors.DefaultSelector()
    for connection in crowd:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    served = refused = 0
    deadline = time.monotonic() + 30 * SLOW
    while served < wanted and time.monotonic() < deadline:
        for key, _ in selector.select(1):
            try:
                answer = key.data.receive()
                served += answer.status == 200
                refused += answer.status == 503
            except (Closed, OSError):
                refused += 1
            selector.unregister(key.fileobj)
    selector.close()
    return served, refused


def test_connections__over_the_cap_get_503(serve):
    server = serve(config={"connections_max": 10, "threads": 1})
    held = []
    try:
        for _ in range(10):
            connection = server.connect()
            assert connection.request("GET", "/healthz").status == 200
            held.append(connection)
        with server.connect() as extra:
            try:
                extra.send(encode("GET", "/healthz"), "GET")
                expect_problem(extra.receive(), 503, "UNAVAILABLE")
                assert extra.is_closed_by_peer()
            except (Closed, ConnectionError):
                pass  # Cut off without words is allowed too.
        for connection in held:
            assert connection.request("GET", "/healthz").status == 200
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: server.get("/healthz").status == 200, "room again")


def test_clients_that_reset__leave_nothing_behind(server):
    policy = server.create(total=1000)
    for i in range(300):
        connection = server.connect()
        connection.send(claim_bytes(policy["id"], f"u{i}"), "POST")
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    wait_until(lambda: server.metrics()["dibs_http_connections"] <= 2, "no open connections")
    issued = server.policy(policy["id"])["issued"]
    for i in range(0, 300, 29):
        answer = server.claim(policy["id"], f"u{i}")
        assert answer.status in (200, 201), answer
    assert server.policy(policy["id"])["issued"] >= issued


def test_memory__of_many_large_requests_is_given_back_or_bounded(server):
    """Bounded memory per connection: a hundred connections in the middle of a large request."""
    before = server.memory_bytes()
    crowd = []
    try:
        for _ in range(300):
            connection = server.connect()
            head = encode("POST", "/v1/policies", b"").replace(b"Content-Length: 0",
                                                               b"Content-Length: 16384")
            connection.socket.sendall(head + b" " * 16000)
            crowd.append(connection)
        assert server.get("/healthz").status == 200
        grown = server.memory_bytes() - before
        assert grown < 300 * 128 * 1024 * SLOW, f"{grown} bytes for 300 connections"
    finally:
        for connection in crowd:
            connection.close()
