"""What a crowd may hold of the server: memory, time and connections."""

import contextlib
import os
import time

from harness import expect, expect_problem, wait_until, write_secret
from wire import SLOW, Connection, encode

# Else the sanitizer keeps what was freed, and memory says nothing.
FREES = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=0"}
TOKEN = "an-admin-token-of-some-length"


def policies_of(server, count):
    """So many policies with long names."""
    told = server.storm([encode("POST", "/v1/policies", {
        "name": f"{number:03} " + "n" * 90, "total": 1,
        "discount": {"type": "percent", "value": 5}}) for number in range(count)],
        connections=4, pipeline=16)
    assert {outcome.answer.status for outcome in told} == {201}


def small_reader(server, source=None):
    """A connection whose kernel takes little by itself."""
    return Connection(server.address, receive_buffer_size=4096, source=source)


def test_bounds__pipelined_lists_are_made_one_at_a_time(serve):
    server = serve(env=FREES)
    policies_of(server, 200)
    before = server.memory_bytes()
    lists = encode("GET", "/v1/policies?limit=1000") * 64
    size = len(server.get("/v1/policies?limit=1000").body)
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(small_reader(server)) for _ in range(20)]
        for connection in crowd:
            connection.send(lists, *["GET"] * 64)
        # Whoever asks now is answered behind all that is being made.
        expect(server.get("/v1/policies?limit=1"), 200)
        grown = server.memory_bytes() - before
        assert grown < 20 * 64 * size / 4, f"{grown} bytes for lists of {size}"
        # And all of them come, one after the other.
        for _ in range(64):
            assert len(crowd[0].receive().body) == size


def test_bounds__a_full_server_turns_large_reads_away_before_it_makes_them(serve, tmp_path):
    server = serve(config={"unsent_max": 1, "write_timeout": "1m", "claims": "open",
                           "admin_token_file": write_secret(tmp_path, "admin", TOKEN)})
    server.admin_token = TOKEN
    policy = server.create(total=10)["id"]

    def is_full():
        answer = server.get("/openapi.json", token=False)
        if answer.status == 503:
            expect_problem(answer, 503, "UNAVAILABLE")
            assert int(answer.headers["retry-after"]) >= 1
        return answer.status == 503

    with contextlib.ExitStack() as stack:
        def fills_it():
            # One more each time: what the kernel has room for by and by is not held here any more.
            connection = stack.enter_context(small_reader(server))
            connection.socket.sendall(encode("GET", "/openapi.json") * 60)
            return is_full()

        wait_until(fills_it, "what nobody takes fills it", 45)
        # Claims are small, and whoever has the admin token is not kept out by strangers.
        expect(server.claim(policy, "ann", token=False), 201)
        expect(server.get("/openapi.json"), 200)
        expect(server.get("/v1/policies"), 200)
        expect(server.patch(policy, paused=True), 200)
    wait_until(lambda: not is_full(), "there is room again", 45)


def test_bounds__who_reads_too_slowly_is_cut_off(serve):
    """A little now and then is not enough."""
    server = serve(config={"write_timeout": "3s"})
    with small_reader(server) as connection:
        connection.socket.sendall(encode("GET", "/openapi.json") * 60)
        connection.socket.settimeout(30 * SLOW)
        began = time.monotonic()
        try:
            while connection.socket.recv(300):
                time.sleep(0.1)  # Its pace: less than 3 KiB per second.
                assert time.monotonic() - began < 120 * SLOW, "it is still served"
        except ConnectionError:
            pass
    wait_until(lambda: server.metrics()["dibs_http_timeouts_total"] >= 1, "it was cut off", 45)


def is_served(connection, headers=None):
    answer = connection.request("GET", "/healthz", headers=headers)
    if answer.status != 200:
        expect_problem(answer, 503, "UNAVAILABLE")
    return answer.status == 200


def test_bounds__an_address_has_so_many_connections(serve):
    server = serve(config={"connections_per_address": 3})
    with contextlib.ExitStack() as stack:
        def connect(source):
            return stack.enter_context(Connection(server.address, source=source))

        first = [connect("127.0.0.2") for _ in range(3)]
        assert all(is_served(connection) for connection in first)
        assert not is_served(connect("127.0.0.2"))
        # Another address has its own, and this machine as many as it likes.
        assert is_served(connect("127.0.0.3"))
        assert all(is_served(connect("127.0.0.1")) for _ in range(10))
        assert all(is_served(connection) for connection in first)
        first[0].close()
        wait_until(lambda: is_served(connect("127.0.0.2")), "its place is free again")


def test_bounds__clients_of_a_proxy_are_counted_and_the_proxy_is_not(serve, tmp_path):
    server = serve(config={"connections_per_address": 2, "trusted_proxies": "127.0.0.2",
                           "admin_token_file": write_secret(tmp_path, "admin", TOKEN)})
    server.admin_token = TOKEN
    policy = server.create(total=10)["id"]
    ours = {"X-Forwarded-For": "192.0.2.1"}
    with contextlib.ExitStack() as stack:
        def connect():
            return stack.enter_context(Connection(server.address, source="127.0.0.2"))

        # Those who wait for something are under way.
        for _ in range(2):
            connect().socket.sendall(encode("GET", f"/v1/policies/{policy}/events", headers=ours))
        wait_until(lambda: not is_served(connect(), ours), "the client has as many as it may")
        assert is_served(connect(), {"X-Forwarded-For": "192.0.2.2"})
        assert all(is_served(connect()) for _ in range(5))
