"""What operators see of a drop while it happens: the streams of /v1/live and of one policy."""

import contextlib
import json
import re
import socket
import time

import pytest

from harness import (expect, expect_problem, make_token, now_rfc3339, raise_file_limit, tally,
                     wait_until, write_secret)
from wire import SLOW, Closed, Connection, encode

ADMIN = "admin-token-0123456789abcdef"
SERVICE = "service-token-0123456789abcdef"
OUTCOMES = ("issued", "accepted", "already_issued", "sold_out", "other")
MASKED = re.compile(r"^[A-Za-z0-9._:@-]{0,2}•••[A-Za-z0-9._:@-]?$")


class Watcher:
    """Follows a policy's live stream and keeps what a page would keep."""

    def __init__(self, server, policy_id):
        self.stream = server.events_of(f"/v1/policies/{policy_id}/live")
        assert self.stream.status == 200, self.stream.headers
        self.heard = []
        name, self.history = self.next()
        assert name == "history"
        self.policy = self.history["policy"]
        self.seconds = {second["t"]: second for second in self.history["seconds"]}
        self.tenths = list(self.history["first"]["tenths"])
        self.feed = list(self.history["feed"])
        self.log = list(self.history["log"])
        self.latest = self.history

    def next(self):
        name, event = self.stream.next()
        self.heard.append(json.dumps(event, ensure_ascii=False))
        return name, event

    def follow(self):
        name, numbers = self.next()
        assert name == "numbers"
        self.latest = numbers
        self.policy = {**self.policy, **numbers["policy"]}
        for second in numbers["last"]:
            self.seconds[second["t"]] = second
        del self.tenths[numbers["tenths_from"]:]
        self.tenths += numbers["tenths"]
        self.feed += numbers["feed"]
        self.log += numbers["log"]
        return numbers

    def follow_until(self, condition, what):
        deadline = time.monotonic() + 60 * SLOW
        while not condition(self):
            assert time.monotonic() < deadline, f"{what}: {self.heard[-1]}"
            self.follow()
        return self

    def counts(self):
        return {name: sum(second[name] for second in self.seconds.values()) for name in OUTCOMES}

    def total(self):
        return sum(self.counts().values())

    def events(self):
        return [entry["event"] for entry in self.log]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.connection.close()


def test_live__tells_what_became_of_a_crowd(serve):
    """Sums over seconds and tenths are the replies, whichever loop gave them and whoever watches
    where; users are masked everywhere."""
    server = serve(config={"threads": 2})
    policy = server.create(total=300)["id"]
    watchers = [Watcher(server, policy) for _ in range(6)]
    assert set(watchers[0].latest["latency_ms"].values()) == {None}
    before = now_rfc3339()
    replies = tally(server.claims(policy, [f"visitor-{i}" for i in range(1000)]))
    again = tally(server.claims(policy, [f"visitor-{i}" for i in range(1000)]))
    assert replies == {(201, "ISSUED"): 300, (409, "SOLD_OUT"): 700}
    assert again == {(200, "ALREADY_ISSUED"): 300, (409, "SOLD_OUT"): 700}
    expected = {"issued": 300, "accepted": 0, "already_issued": 300, "sold_out": 1400, "other": 0}
    for watcher in watchers:
        watcher.follow_until(lambda it: it.total() == 2000 and it.policy["issued"] == 300, "all")
    watchers.append(Watcher(server, policy))
    for watcher in watchers:
        assert watcher.counts() == expected
        assert watcher.latest["funnel"] == {"received": 2000, "won": 300, "pending": 0,
                                            "issued": 300}
        assert watcher.tenths == watchers[-1].tenths
        assert watcher.policy["state"] == "SOLD_OUT" and watcher.policy["remaining"] == 0
        assert before <= watcher.latest["sold_out_at"] <= now_rfc3339()
        assert watcher.events()[-1] == "sold_out"
        assert watcher.log[-1]["at"] == watcher.latest["sold_out_at"]
        latency = watcher.latest["latency_ms"]
        assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p999"]
        assert watcher.feed and all(MASKED.match(claim["user"]) for claim in watcher.feed)
        assert all((claim["seq"] is not None) == (claim["result"] != "sold_out")
                   for claim in watcher.feed)
        assert not any("visitor" in text for text in watcher.heard)
    first = watchers[-1].history["first"]
    assert before[:-4] <= first["at"] <= watchers[-1].latest["sold_out_at"]
    # All of it was within the first half minute, or some of it was on a machine that slow.
    in_tenths = [sum(tenth[part] for tenth in first["tenths"]) for part in range(3)]
    assert in_tenths[0] == 300
    assert in_tenths[1:] == [1400, 300] or len(first["tenths"]) == 300
    problem = expect_problem(server.status(policy, "nobody"), 404, "NO_CLAIM")
    assert problem["sold_out_at"] == watchers[-1].latest["sold_out_at"]
    for watcher in watchers:
        watcher.stream.connection.close()


def test_live__masks_whole_characters(server):
    policy = server.create(total=3)["id"]
    watcher = Watcher(server, policy)
    for user in ("김하늘", 'say "hi"', "김하늘과바람과별"):
        server.win(policy, user)
    watcher.follow_until(lambda self: len(self.feed) == 3, "the claims")
    assert {claim["user"] for claim in watcher.feed} == {"김•••", 'sa•••"', "김하•••별"}


def test_live__begins_with_the_first_claim_after_the_opening(shared):
    policy = shared.create(total=5, opens_at=now_rfc3339(3600))["id"]
    with Watcher(shared, policy) as watcher:
        expect_problem(shared.claim(policy, "early"), 403, "NOT_OPEN")
        watcher.follow_until(lambda it: it.total() == 1, "the early one")
        assert watcher.counts()["other"] == 1
        assert watcher.latest["first_at"] is None and watcher.tenths == []
        opens_at = now_rfc3339()
        expect(shared.patch(policy, opens_at=opens_at), 200)
        shared.win(policy, "in-time")
        watcher.follow_until(lambda it: it.total() == 2 and it.tenths, "the first")
        assert watcher.tenths[0] == [1, 0, 0]
        assert watcher.latest["first_at"] >= opens_at[:-3]
        assert watcher.feed[-1]["user"] == "in•••e" and watcher.feed[-1]["seq"] == 1


def test_live__log_tells_what_was_done(shared):
    policy = shared.create(total=1)["id"]
    with Watcher(shared, policy) as watcher:
        expect(shared.patch(policy, paused=True), 200)
        expect(shared.patch(policy, paused=False), 200)
        won = shared.win(policy, "u1")
        watcher.follow_until(lambda it: "sold_out" in it.events(), "sold out")
        expect(shared.patch(policy, total=2), 200)
        shared.win(policy, "u2")
        watcher.follow_until(lambda it: it.events().count("sold_out") == 2, "sold out again")
        expect(shared.cancel(won["coupon_id"]), 200)
        watcher.follow_until(lambda it: it.events().count("restocked") == 2, "stock again")
        expect(shared.request("DELETE", f"/v1/policies/{policy}"), 200)
        watcher.follow_until(lambda it: it.policy["state"] == "CLOSED", "closed")
        watcher.follow_until(lambda it: "closed" in it.events(), "told so")
    with Watcher(shared, policy) as late:
        assert late.events() == watcher.events()
        assert late.events() == ["created", "paused", "resumed", "sold_out", "changed",
                                 "restocked", "sold_out", "restocked", "closed"]
        assert all(entry["words"] for entry in late.log)


def test_live__feed_of_a_newcomer_goes_on_without_a_gap_or_a_double(serve):
    server = serve(config={"threads": 1})
    policy = server.create(total=1000)["id"]
    with Watcher(server, policy):
        for round_number in range(8):
            # They are counted, and with luck not yet told, when the newcomer comes.
            server.claims(policy, [f"user-{round_number}-{i}" for i in range(4)])
            time.sleep(0.06)
            with Watcher(server, policy) as newcomer:
                last = server.win(policy, f"last-{round_number}")["seq"]
                newcomer.follow_until(
                    lambda it, n=last: n in [claim["seq"] for claim in it.feed], "the feed")
                seqs = [claim["seq"] for claim in newcomer.feed]
                assert sorted(seqs) == list(range(1, last + 1))


def test_live__only_for_admins(serve, tmp_path):
    key = b"a key of the live streams' test, 32 bytes and more"
    server = serve(config={
        "admin_token_file": write_secret(tmp_path, "admin", "the-admin-token-of-this-test"),
        "service_token_file": write_secret(tmp_path, "service", "the-service-token-of-this-test"),
        "user_key_file": write_secret(tmp_path, "key", key),
    })
    server.admin_token = "the-admin-token-of-this-test"
    policy = server.create(total=5)["id"]
    user = make_token(key, {"sub": "u1", "exp": 4102444800})
    for path in ("/v1/live", f"/v1/policies/{policy}/live"):
        for token in (None, "wrong", "the-service-token-of-this-test", user):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            with server.events_of(path, headers=headers) as stream:
                assert stream.status == 401
        headers = {"Authorization": f"Bearer {server.admin_token}"}
        with server.events_of(path, headers=headers) as stream:
            assert stream.status == 200
            assert stream.next()[0] in ("snapshot", "history")


# --- the board ---


def of_policy(event, policy_id):
    return next((entry for entry in event["policies"] if entry["id"] == policy_id), None)


def follow_board(stream, policy_id, condition, what):
    deadline = time.monotonic() + 60 * SLOW
    while True:
        name, event = stream.next()
        assert name == "numbers"
        entry = of_policy(event, policy_id)
        if condition(event, entry):
            return event, entry
        assert time.monotonic() < deadline, f"{what}: {event}"


def test_live_board__shows_the_server_and_its_policies(shared):
    old = shared.create(total=5, name="Old")["id"]
    with shared.events_of("/v1/live") as stream:
        name, snapshot = stream.next()
        assert name == "snapshot"
        assert of_policy(snapshot, old)["name"] == "Old"
        assert {part["name"]: part["state"] for part in snapshot["parts"]} == {
            "gate": "ok", "ledger": "ok", "relay": "ok", "reconciliation": "ok"}
        assert snapshot["server"]["gate"] == "local" and snapshot["server"]["ledger"] == "sqlite"
        assert snapshot["dead_letters"] == 0
        new = shared.create(total=7, name="New \"one\"")["id"]
        _, entry = follow_board(stream, new, lambda _, entry: entry, "the new policy")
        assert entry == {"id": new, "name": "New \"one\"", "state": "OPEN", "total": 7,
                         "remaining": 7, "pending": 0, "issued": 0, "paused": False,
                         "opens_at": None, "closes_at": None, "sold_out_at": None}
        shared.claims(new, [f"u{i}" for i in range(20)])
        follow_board(stream, new,
                     lambda _, entry: entry and entry["state"] == "SOLD_OUT" and
                     entry["issued"] == 7, "sold out")
        expect(shared.patch(new, paused=True), 200)
        follow_board(stream, new, lambda _, entry: entry and entry["paused"], "paused")
        # What does not change is not told again.
        assert not any(of_policy(stream.next()[1], old) for _ in range(3))


def test_live_board__rates_are_of_the_last_second(shared):
    policy = shared.create(total=5)["id"]
    with shared.events_of("/v1/live") as stream:
        stream.next()
        shared.claims(policy, [f"u{i}" for i in range(25)])
        event, _ = follow_board(stream, policy,
                                lambda event, _: sum(event["claims_per_s"].values()) > 0, "rates")
        assert event["claims_per_s"]["issued"] <= 5
        event, _ = follow_board(stream, policy,
                                lambda event, _: sum(event["claims_per_s"].values()) == 0, "rest")


def test_live_board__knows_the_newest(serve):
    """More policies than are shown: the newest of them, and one that is over gives way to older
    ones that are not."""
    server = serve()
    ids = [server.create(total=1, name=f"n{i}")["id"] for i in range(205)]
    expect(server.request("DELETE", f"/v1/policies/{ids[204]}"), 200)
    with server.events_of("/v1/live") as stream:
        shown = [entry["id"] for entry in stream.next()[1]["policies"]]
    assert shown == sorted(ids[:204], reverse=True)[:200]


# --- many, and those who do not read ---


def test_live__a_thousand_on_one_loop(serve):
    raise_file_limit()
    server = serve(config={"threads": 1})
    policy = server.create(total=10)["id"]
    paths = ("/v1/live", f"/v1/policies/{policy}/live", f"/v1/policies/{policy}/events")
    streams = [server.events_of(paths[i % 3]) for i in range(1002)]
    try:
        for stream in streams:
            assert stream.status == 200
            stream.next()
        server.win(policy, "u1")
        for i, stream in enumerate(streams):
            issued = 0
            while issued != 1:
                event = stream.next()[1]
                if i % 3 == 0:
                    entry = of_policy(event, policy)
                    issued = entry["issued"] if entry else 0
                else:
                    issued = (event["policy"] if i % 3 == 1 else event)["issued"]
        assert server.metrics()["dibs_http_streams"] == 1002
    finally:
        for stream in streams:
            stream.connection.close()
    wait_until(lambda: server.metrics()["dibs_http_streams"] == 0, "streams gone")


def guarded(serve, folder, **config):
    """A server with an admin's and a service's token; without one they are strangers."""
    server = serve(config={"admin_token_file": write_secret(folder, "admin", ADMIN),
                           "service_token_file": write_secret(folder, "service", SERVICE),
                           **config})
    server.admin_token = ADMIN
    return server


def open_stream(server, path, token=None, client=None):
    headers = {"X-Forwarded-For": client} if client else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return server.events_of(path, headers=headers)


def fill(server, stack, path, most, **options):
    """Opens streams until one is refused; those that were not."""
    streams = []
    while len(streams) <= most:
        stream = stack.enter_context(open_stream(server, path, **options))
        if stream.status != 200:
            assert stream.status == 503
            return streams
        streams.append(stream)
    raise AssertionError(f"more than {most} streams")


def reopens(server, path, **options):
    with open_stream(server, path, **options) as stream:
        return stream.status == 200


def test_live__strangers_leave_places_to_operators_and_winners(serve, tmp_path):
    raise_file_limit()
    server = guarded(serve, tmp_path, threads=1)
    policy = server.create(total=10)["id"]
    server.win(policy, "u1", token=SERVICE)
    events = f"/v1/policies/{policy}/events"
    with contextlib.ExitStack() as stack:
        streams = fill(server, stack, events, 2000)
        for path, token in (("/v1/live", ADMIN), (f"/v1/policies/{policy}/live", ADMIN),
                            (f"/v1/policies/{policy}/claims/u1/events", SERVICE)):
            with open_stream(server, path, token=token) as stream:
                assert stream.status == 200, path
                stream.next()
        wait_until(lambda: server.metrics()["dibs_http_streams"] == len(streams), "they have gone")
        assert server.metrics()["dibs_http_streams_refused_total"] == 1
        streams[0].connection.close()
        wait_until(lambda: reopens(server, events), "a place that is free again")
    wait_until(lambda: server.metrics()["dibs_http_streams"] == 0, "all places are given back")


def test_live__one_address_has_so_many_streams(serve, tmp_path):
    """The address behind trusted proxies. Whoever has a token of the shop's is not counted."""
    server = guarded(serve, tmp_path, streams_per_address=3, trusted_proxies="127.0.0.1")
    policy = server.create(total=10)["id"]
    server.win(policy, "u1", token=SERVICE)
    events, client = f"/v1/policies/{policy}/events", "198.51.100.7"
    with contextlib.ExitStack() as stack:
        streams = fill(server, stack, events, 3, client=client)
        assert len(streams) == 3
        assert reopens(server, events, client="198.51.100.8")
        assert reopens(server, events, client=client, token=ADMIN)
        assert reopens(server, f"/v1/policies/{policy}/claims/u1/events", client=client,
                       token=SERVICE)
        streams[1].connection.close()
        wait_until(lambda: reopens(server, events, client=client), "a place that is free again")
        # Each of them is given back, or the fourth would find none.
        for _ in range(3):
            wait_until(lambda: reopens(server, events, client=client), "the place")


def test_live__who_never_reads_is_cut_off(serve):
    """A snapshot that the kernel does not take whole is the last that they get."""
    server = serve()
    name = "\U0001F381" * 200
    for _ in range(200):
        server.create(total=1, name=name)
    before = server.memory_bytes()
    silent = [Connection(server.address, receive_buffer_size=4096) for _ in range(40)]
    for connection in silent:
        connection.socket.sendall(encode("GET", "/v1/live"))
    for connection in silent:
        connection.socket.recv(1, socket.MSG_PEEK)
    wait_until(lambda: server.metrics()["dibs_http_streams"] == 0, "streams gone")
    wait_until(lambda: server.metrics()["dibs_http_connections"] <= 2, "connections gone")
    # What each of them was sent last, and what the kernel did not take of it; sanitizers keep what
    # was freed for a while.
    assert server.memory_bytes() - before < 160 * 1024 * 1024
    for connection in silent:
        connection.close()


def test_live__ends_with_a_graceful_stop(server):
    policy = server.create(total=10)["id"]
    streams = [server.events_of(path) for path in ("/v1/live", f"/v1/policies/{policy}/live")]
    for stream in streams:
        stream.next()
    server.stop()
    for stream in streams:
        with pytest.raises((Closed, ConnectionError)):
            while True:
                stream.next()
