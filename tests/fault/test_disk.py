"""A full disk, a broken disk, a failing sync, a slow sync."""

import itertools

import pytest

from harness import claim_bytes, expect, expect_problem, tally, wait_until
from history import Claim, History, await_death, endless
from ledger import audit, coupons
from wire import Closed, encode


def is_ready(server):
    return server.get("/readyz").status == 200


@pytest.mark.parametrize("trouble", ["enospc", "short", "eio"])
def test_disk__full_or_broken_claims_get_503_and_it_recovers(on_disk, disk, trouble):
    """Nothing acknowledged is lost, nothing is oversold, and no restart is needed."""
    server = on_disk(ack_timeout="500ms")
    history = History()
    policy = server.create(total=300)["id"]
    history.rush(server, (Claim(policy, f"before{i}", None) for i in range(100)))
    assert len(history.wins) == 100

    disk.set(trouble)
    outcomes = history.rush(server, (Claim(policy, f"during{i}", f"k{i}") for i in range(80)))
    for outcome in outcomes:
        expect_problem(outcome.answer, 503, "UNAVAILABLE")
    # Whoever holds a claim may be told so, or asked to wait, but is never refused.
    assert server.claim(policy, "before0").status in (200, 503)
    # They may have given up before the writer has found out.
    answer = wait_until(lambda: next((a for a in [server.get("/readyz")] if a.status == 503), None),
                        "it is not ready")
    parts = {part["name"]: part for part in answer.json["parts"]}
    assert parts["ledger"]["ready"] is False and parts["gate"]["name"] == "gate"
    assert server.get("/healthz").status == 200
    expect_problem(server.post("/v1/policies", {
        "name": "x", "discount": {"type": "percent", "value": 1}, "total": 1}), 503, "UNAVAILABLE")
    audit(server.database)

    disk.set("ok")
    wait_until(lambda: is_ready(server), "readiness after the disk came back")
    history.retry_unknown(server)
    history.rush(server, (Claim(policy, f"after{i}", None) for i in range(300)))
    assert len(coupons(server.database, policy)) == 300
    assert len({user for (owner, _), user in history.wins.items() if owner == policy}) == 300
    history.check_rows(server)
    server.restart()
    history.check_rows(server)
    history.check_answers(server)


def test_disk__preflight_says_that_it_is_full(on_disk, disk):
    """Before anyone has tried to write, by what the disk says; then by what became of that."""
    server = on_disk(ack_timeout="500ms")
    policy = server.create(total=10)["id"]

    def look():
        answer = expect(server.get(f"/v1/policies/{policy}/preflight"), 200)
        return answer["ready"], {check["name"]: check["state"] for check in answer["checks"]}

    assert look()[0] is True
    disk.set("enospc")
    ready, checks = look()
    assert (ready, checks["disk"], checks["ledger"]) == (False, "fail", "ok")
    expect_problem(server.claim(policy, "u1"), 503, "UNAVAILABLE")
    ready, checks = wait_until(lambda: (seen := look())[1]["ledger"] == "fail" and seen,
                               "it is known what became of it")
    assert (ready, checks["disk"]) == (False, "fail")
    disk.set("ok")
    wait_until(lambda: look()[0], "readiness after the disk came back")


@pytest.mark.parametrize("trouble", ["enospc", "short", "eio"])
def test_disk__trouble_in_the_middle_of_a_rush(on_disk, disk, trouble):
    """Trap 22: a failing batch must not poison what comes after it."""
    server = on_disk(ack_timeout="300ms")
    history = History()
    policy = server.create(total=1500)["id"]
    answered = [0]

    def on_answer(_outcome):
        answered[0] += 1
        if answered[0] == 300:
            disk.set(trouble)
        elif answered[0] == 600:
            disk.set("ok")

    claims = endless([policy], "rush", repeats=2, keyed=True)
    history.rush(server, (next(claims) for _ in range(3000)), connections=48,
                 on_answer=on_answer)
    disk.set("ok")
    wait_until(lambda: is_ready(server), "readiness")
    history.retry_unknown(server)
    history.check_rows(server)
    server.restart()
    history.check_rows(server)
    history.rush(server, (Claim(policy, f"rest{i}", None) for i in range(1600)))
    assert len(coupons(server.database, policy)) == 1500


def test_disk__full_then_killed(on_disk, disk):
    """Killed while the disk is full: what was acknowledged is there, the rest never was."""
    server = on_disk(ack_timeout="300ms")
    history = History()
    policy = server.create(total=100)["id"]
    history.rush(server, (Claim(policy, f"u{i}", None) for i in range(50)))
    disk.set("enospc")
    history.rush(server, (Claim(policy, f"v{i}", None) for i in range(30)))
    server.kill()
    disk.set("ok")
    server.start()
    history.check_rows(server)
    assert len(coupons(server.database, policy)) == 50
    history.retry_unknown(server)
    assert len(coupons(server.database, policy)) == 80


def test_disk__full_at_the_stop_still_ends_in_order(on_disk, disk):
    server = on_disk(ack_timeout="300ms")
    policy = server.create(total=100)["id"]
    server.win(policy, "u1")
    disk.set("enospc")
    server.claim(policy, "u2")
    server.process.terminate()
    code = server.wait()
    assert code in (0, 1)  # It may say that it could not write everything; it must not hang.
    disk.set("ok")
    server.start()
    assert expect(server.claim(policy, "u1"), 200)["seq"] == 1
    audit(server.database)


def test_disk__full_at_the_start_is_said(on_disk, disk, tmp_path):
    server = on_disk()
    server.create(total=1)
    server.kill()
    disk.set("enospc")
    server.spawn()
    try:
        server.await_log("listening")
        expect_problem(server.post("/v1/policies", {"name": "x"}), 400, "INVALID_REQUEST")
    except AssertionError:
        code = server.wait()
        assert code == 1, f"exit code {code}\n{server.log_text()}"
    finally:
        disk.set("ok")
    if server.process is not None:
        server.kill()
    server.start()


def test_fsync__failing_ends_the_process_and_the_restart_recovers(on_disk, disk):
    """Trap 21: fsync failed, retried, reported fine."""
    server = on_disk()
    history = History()
    policy = server.create(total=500)["id"]
    history.rush(server, (Claim(policy, f"u{i}", None) for i in range(100)))
    disk.set("fsync")
    history.rush(server, (Claim(policy, f"v{i}", f"k{i}") for i in range(100)))
    assert len(history.wins) == 100, "acknowledged on a failed sync"
    code = await_death(server)
    assert code > 0, f"exit code {code}\n{server.log_text()}"
    assert any("sync" in line for line in server.log), server.log_text()
    disk.set("ok")
    server.start()
    history.check_rows(server)
    history.check_answers(server)
    history.retry_unknown(server)
    history.check_rows(server)
    assert len(coupons(server.database, policy)) == len(history.wins) > 100


def test_fsync__failing_in_an_admin_call_ends_it_too(on_disk, disk):
    server = on_disk()
    policy = server.create(total=5)["id"]
    disk.set("fsync")
    try:
        answer = server.patch(policy, total=7)
        assert answer.status == 503, answer
    except (Closed, ConnectionError):
        pass
    assert await_death(server) > 0
    disk.set("ok")
    server.start()
    assert server.policy(policy)["total"] in (5, 7)


# --- the log is moved into the database beside the claims ---


def log_frames(server):
    return server.metrics()["dibs_ledger_log_bytes"] // 2072


def test_checkpoint__claims_go_on_while_the_database_cannot_be_synced(serve, disk):
    """Trap 38: for as long as the disk likes. What was answered is in the log, whatever happens."""
    disk.room = 30_000_000  # A disk with little room left starts the log over sooner.
    server = serve(env=disk.environment(), config={"ack_timeout": "1m"})
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    users = itertools.count()

    def rush():
        outcomes = history.rush(server, [Claim(policy, f"{next(users) * 0x9E3779B97F4A7C15 % 2 ** 64:x}",
                                               None) for _ in range(1000)], connections=48)
        assert tally(outcomes) == {(201, "ISSUED"): 1000}

    disk.set("hold")
    while log_frames(server) < 10_000:
        rush()
    metrics = server.metrics()
    assert metrics["dibs_ledger_checkpoints_total"] == 0
    server.kill()
    disk.set("ok")
    server.start()
    history.check_rows(server)
    # And when it can be, the log starts over.
    while server.metrics()["dibs_ledger_checkpoints_total"] == 0:
        rush()
    server.restart()
    history.check_rows(server)


# --- a sync that takes its time: decided, not yet durable ---


def pending(server, policy, count):
    wait_until(lambda: server.policy(policy)["pending"] == count, f"{count} pending claims")


def open_claims(server, policy, users, key=None):
    connections = []
    for user in users:
        connection = server.connect()
        connection.send(claim_bytes(policy, user, key), "POST")
        connections.append(connection)
    return connections


def silent(connections):
    """Not one of them has heard anything."""
    for connection in connections:
        connection.socket.setblocking(False)
        try:
            data = connection.socket.recv(65536)
            assert False, f"answered before the commit: {data!r}"
        except BlockingIOError:
            connection.socket.setblocking(True)


def test_stall__verdicts_wait_for_what_they_rest_on(on_disk, disk):
    """Trap 28: ALREADY_ISSUED and SOLD_OUT wait for the commit of the claim they rest on."""
    server = on_disk(ack_timeout="1m")
    policy = server.create(total=2)["id"]
    held = server.win(policy, "held")
    disk.set("stall")
    winner = open_claims(server, policy, ["winner"])
    pending(server, policy, 1)
    repeats = open_claims(server, policy, ["winner"] * 3)
    losers = open_claims(server, policy, ["loser1", "loser2"])
    # One who rests on nothing new is answered meanwhile, and so are reads; each of these goes
    # through the loops, so when they are back, so would a hasty verdict be.
    for _ in range(20):
        assert expect(server.claim(policy, "held"), 200)["seq"] == held["seq"]
        shown = server.policy(policy)
    assert (shown["pending"], shown["issued"], shown["remaining"]) == (1, 1, 0)
    silent(winner + repeats + losers)
    assert len(coupons(server.database, policy)) == 1
    disk.set("ok")
    assert expect(winner[0].receive(), 201)["seq"] == 2
    for connection in repeats:
        assert expect(connection.receive(), 200)["seq"] == 2
    for connection in losers:
        expect_problem(connection.receive(), 409, "SOLD_OUT")
    assert len(coupons(server.database, policy)) == 2


def test_stall__killed_between_decision_and_commit_with_repeats_in_flight(on_disk, disk):
    """Trap 28: kill -9 between decision and commit: nobody was told, so nothing is broken."""
    server = on_disk(ack_timeout="1m")
    policy = server.create(total=1)["id"]
    disk.set("stall")
    waiting = open_claims(server, policy, ["a"])
    pending(server, policy, 1)
    waiting += open_claims(server, policy, ["a", "a", "b", "c"])
    for _ in range(20):
        server.policy(policy)
    silent(waiting)
    server.process.kill()
    disk.set("ok")
    server.wait()
    server.start()
    rows = coupons(server.database, policy)
    if rows:  # The bytes had reached the file: then the claim is a's, and is found.
        assert rows[0]["user_id"] == "a"
        assert expect(server.claim(policy, "a"), 200)["seq"] == 1
        expect_problem(server.claim(policy, "b"), 409, "SOLD_OUT")
    else:
        assert server.win(policy, "b")["seq"] == 1


def test_stall__a_key_of_a_held_claim_waits_for_its_binding(on_disk, disk):
    """Guarantee 8: a 200 that binds a key and its repeat rest on a binding that a crash could still
    take back. On one loop, so that they are decided in order."""
    server = on_disk(ack_timeout="1m", threads=1)
    policy = server.create(total=5)["id"]
    seq = server.win(policy, "u1")["seq"]
    disk.set("stall")
    waiting = open_claims(server, policy, ["u1", "u1"], key="fresh")
    for _ in range(20):
        server.policy(policy)
    silent(waiting)
    disk.set("ok")
    for connection in waiting:
        assert expect(connection.receive(), 200)["seq"] == seq


def test_stall__a_pending_claim_shows_as_pending(on_disk, disk):
    server = on_disk(ack_timeout="1m")
    policy = server.create(total=10)["id"]
    disk.set("stall")
    waiting = open_claims(server, policy, ["a"])
    pending(server, policy, 1)
    waiting += open_claims(server, policy, ["b"])
    pending(server, policy, 2)
    status = expect(server.status(policy, "b"), 200)
    assert (status["state"], status["coupon_state"], status["seq"]) == ("PENDING", None, 2)
    assert status["ahead"] == 1
    assert status["issued_at"] is None
    assert expect(server.status(policy, "a"), 200)["ahead"] == 0
    # ?wait= answers after its time with what is so far, and at once when it becomes final.
    assert expect(server.status(policy, "b", "?wait=1"), 200)["state"] == "PENDING"
    with server.connect() as poller, server.events_of(
            f"/v1/policies/{policy}/claims/b/events") as stream:
        poller.send(encode("GET", f"/v1/policies/{policy}/claims/b?wait=60"), "GET")
        name, event = stream.next()
        assert (name, event["state"]) == ("status", "PENDING")
        disk.set("ok")
        assert expect(poller.receive(), 200)["state"] == "ISSUED"
        while event["state"] == "PENDING":
            name, event = stream.next()
        assert (name, event["state"], event["coupon_state"]) == ("status", "ISSUED", "ISSUED")
    for connection in waiting:
        assert connection.receive().status == 201


def test_stall__after_ack_timeout_503_and_the_retry_finds_the_claim(on_disk, disk):
    """An unknown outcome is never called a failure."""
    server = on_disk(ack_timeout="300ms")
    policy = server.create(total=1)["id"]
    disk.set("stall")
    expect_problem(server.claim(policy, "a", key="k"), 503, "UNAVAILABLE")
    expect_problem(server.claim(policy, "a", key="k"), 503, "UNAVAILABLE")
    expect_problem(server.claim(policy, "b"), 503, "UNAVAILABLE")
    disk.set("ok")
    answer = wait_until(lambda: next((a for a in [server.claim(policy, "a", key="k")]
                                      if a.status != 503), None), "the claim")
    assert expect(answer, 200)["seq"] == 1
    expect_problem(server.claim(policy, "b"), 409, "SOLD_OUT")
    assert len(coupons(server.database, policy)) == 1


def test_stall__over_the_pending_cap_is_503_before_the_gate(on_disk, disk):
    server = on_disk(ack_timeout="1m", pending_max=5)
    policy = server.create(total=100)["id"]
    disk.set("stall")
    waiting = []
    for i in range(5):
        waiting += open_claims(server, policy, [f"u{i}"])
        pending(server, policy, i + 1)
    outcomes = server.claims(policy, [f"v{i}" for i in range(20)])
    assert tally(outcomes) == {(503, "UNAVAILABLE"): 20}
    shown = server.policy(policy)
    assert (shown["pending"], shown["remaining"]) == (5, 95)
    disk.set("ok")
    assert sorted(connection.receive().json["seq"] for connection in waiting) == [1, 2, 3, 4, 5]
    # Those who were refused left no trace.
    assert server.win(policy, "v0")["seq"] == 6


def test_stall__graceful_stop_waits_for_the_commit(on_disk, disk):
    server = on_disk(ack_timeout="1m")
    policy = server.create(total=100)["id"]
    disk.set("stall")
    waiting = open_claims(server, policy, [f"u{i}" for i in range(10)])
    pending(server, policy, 10)
    server.process.terminate()
    wait_until(lambda: not can_connect(server), "closed listeners")
    silent(waiting)
    disk.set("ok")
    assert sorted(connection.receive().json["seq"] for connection in waiting) == list(range(1, 11))
    assert server.wait() == 0
    assert len(coupons(server.database, policy)) == 10
    server.start()


def can_connect(server):
    try:
        server.connect(timeout_s=5).close()
        return True
    except OSError:
        return False


def test_stall__the_next_batch_gathers_meanwhile(on_disk, disk):
    """Group commit: what comes while one batch syncs goes in one commit after it."""
    server = on_disk(ack_timeout="1m")
    policy = server.create(total=1000)["id"]
    disk.set("stall")
    waiting = open_claims(server, policy, ["first"])
    pending(server, policy, 1)
    waiting += open_claims(server, policy, [f"u{i}" for i in range(200)])
    pending(server, policy, 201)
    before = server.metrics()
    disk.set("ok")
    assert all(connection.receive().status == 201 for connection in waiting)
    after = server.metrics()
    name = next(name for name in after if "commit" in name and name.endswith("_count"))
    assert after[name] - before[name] <= 4, (before[name], after[name])
