"""kill -9 at every named point between two steps, and a look at the half-done state there."""

import random
import re
import signal
import socket
import subprocess

import pytest

from harness import (BINARY, ROOT, START_TIMEOUT_S, STOP_TIMEOUT_S, Server, claim_bytes, expect, tally,
                     wait_until)
from history import ROUNDS, Claim, History, endless
from ledger import KIND, audit, coupons
from wire import Closed

# Those in the drivers of other databases are never passed, nor are a worker's and Kafka's with
# nothing configured; those of sales and the board are in test_sales.py and test_redis_board.py,
# Kafka's in test_kafka_points.py, those of a start in test_restore.py, of an erasure in
# test_erase_points.py.
OTHERS = {"sqlite", "postgres", "mysql"} - {KIND}
POINTS = sorted({name for path in (ROOT / "src").rglob("*.c")
                 if path.parent.name not in OTHERS
                 for name in re.findall(r'FAULT_POINT\("([a-z_.]+)"\)', path.read_text())
                 if not name.startswith(("worker.", "kafka.", "announcer.", "orders.", "sales.",
                                          "board.", "restore.", "erase."))})
# Passed when the log is moved into the database.
FILLED = ("ledger.before_checkpoint", "ledger.before_main_sync", "ledger.after_main_sync")
# Servers take their time, and what happens at a point is the same: fewer of them but in a soak.
IS_THOROUGH = KIND == "sqlite" or ROUNDS > 4
COUNTS = [1, 2, 3, 7] if IS_THOROUGH else [1, 3]
LOAD_COUNTS = [1, 5, 20] if IS_THOROUGH else [5]


def test_points__this_binary_has_them():
    """Without -Dfault_points=true every test below would pass for nothing."""
    assert POINTS
    names = BINARY.read_bytes()
    missing = [point for point in POINTS if point.encode() not in names]
    assert not missing, f"{BINARY} was built without fault points: {missing}"


def exercise(server, history, point):
    """A bit of everything that writes; raises when the server goes away."""
    if point in FILLED:
        fill_the_log(server, history)
    policy = server.create(total=40)["id"]
    several = server.create(total=60, limit=3)["id"]
    history.policies.update({policy: 40, several: 60})
    claims = [Claim(policy, f"u{i // 2}", f"key-u{i // 2}") for i in range(60)]
    history.rush(server, iter(claims), connections=12)
    history.rush(server, (Claim(several, f"v{i // 4}", f"k{i // 2}") for i in range(60)),
                 connections=12)
    for i in range(4):
        # A key that comes with a claim already held is bound to it.
        history.rush(server, iter([Claim(policy, f"u{i}", f"bound-{i}")]), connections=1)
    for seq in (1, 2, 3):
        history.cancel(server, policy, seq)
    expect(server.post(f"/v1/coupons/{policy}-5/redeem", {"order_id": "o"}), 200)
    history.reissue(server, policy, 4)
    history.reissue(server, policy, 6)
    expect(server.patch(policy, total=45), 200)
    history.policies[policy] = 45
    expect(server.patch(policy, total=42), 200)
    history.policies[policy] = 42
    expect(server.request("PUT", "/v1/users/bad", {"blocked": True}), 200)
    expect(server.patch(several, paused=True), 200)
    expect(server.patch(several, paused=False), 200)
    history.rush(server, (Claim(policy, f"late{i}", None) for i in range(60)), connections=12)
    expect(server.request("DELETE", f"/v1/policies/{several}"), 200)


def fill_the_log(server, history):
    """Claims of users all over the index, until the log is long enough for its pages to be moved and
    synced a few times, which is when the process is to die."""
    policy = server.create(total=10 ** 6)["id"]
    history.policies[policy] = 10 ** 6
    for _ in range(60):
        users = (Claim(policy, f"{random.getrandbits(64):x}", None) for _ in range(2000))
        history.rush(server, users, connections=48)
        if server.metrics()["dibs_ledger_checkpoints_total"] > 0:
            return
    assert False, "no checkpoint after 120,000 claims"


def try_exercise(server, history, point):
    """Goes on until it is through or the server is gone; any other failure is one."""
    try:
        exercise(server, history, point)
    except (Closed, OSError):
        pass
    except AssertionError:
        # An answer that was missing because the server died is no finding.
        if not is_dying(server):
            raise


def is_dying(server):
    try:
        server.process.wait(STOP_TIMEOUT_S)
        return True
    except subprocess.TimeoutExpired:
        return False


def start_or_die(server):
    """Starts it; False when it died on the way."""
    server.spawn()
    try:
        fields = server.await_log("listening", START_TIMEOUT_S)
    except AssertionError:
        if not is_dying(server):
            raise
        return False
    server.address = ("127.0.0.1", int(fields["address"].rsplit(":", 1)[1]))
    return True


@pytest.mark.parametrize("point,count", [
    (point, count) for point in POINTS for count in COUNTS
    if count == 1 or point not in FILLED])
def test_points__kill(tmp_path, point, count):
    """Trap 1: crash between any two steps: stock gone, nobody has it."""
    history = History()
    history.policies = {}
    server = Server(tmp_path / "server", env={"DIBS_FAULT": f"{point}:{count}:kill"})
    try:
        if start_or_die(server):
            try_exercise(server, history, point)
            if server.alive:
                server.signal(signal.SIGTERM)
        code = server.wait()
        assert code in (-signal.SIGKILL, 0), f"{code}\n{server.log_text()}"
        assert code != 0 or count > 1, f"{point} is never passed"

        server.env = {}
        server.start()
        history.check_rows(server)
        history.check_answers(server)
        history.check_reissued(server)
        for policy, total in history.policies.items():
            if total < 1000 and server.get(f"/v1/policies/{policy}").status == 200:
                claim_the_rest(server, history, policy)
        server.stop()
        server.start()
        history.check_rows(server)
        server.stop()
    finally:
        print(server.log_text())
        server.dispose()


def claim_the_rest(server, history, policy):
    """What is left can be won to the last unit: nothing was lost with the crash."""
    shown = server.policy(policy)
    if shown["state"] == "CLOSED":
        return
    history.unknown = [claim for claim in history.unknown if claim.policy != policy]
    before = shown["issued"]
    users = [f"rest{i}" for i in range(shown["total"] - before + 10)]
    outcomes = server.claims(policy, users)
    assert tally(outcomes).get((201, "ISSUED"), 0) == shown["total"] - before
    audit(server.database)


# --- looking at the half-done state ---


def is_stopped(server):
    with open(f"/proc/{server.pid}/stat", encoding="ascii") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "T"


def await_stop(server, point):
    wait_until(lambda: is_stopped(server), f"the stop at {point}")


def stop_at(serve, point, users, rows_wanted):
    """A server that has been stopped at a point by these claims, and their open connections.

    The point is also passed by other writes, at the start for one; those are let through."""
    server = serve()
    policy = server.create(total=50)["id"]
    server.stop()
    server.env = {"DIBS_FAULT": ",".join(f"{point}:{count}:stop" for count in range(1, 16))}
    server.spawn()
    wait_until(lambda: is_stopped(server) and server.signal(signal.SIGCONT)
               or server.events("listening")[1:], "the start")
    host, port = server.events("listening")[-1]["address"].rsplit(":", 1)
    server.address = (host, int(port))
    server.env = {}
    connections = []
    for user in users:
        connection = server.connect()
        connection.send(claim_bytes(policy, user), "POST")
        connections.append(connection)
    await_stop(server, point)
    for _ in range(10):
        if len(coupons(server.database, policy)) >= rows_wanted:
            break
        server.signal(signal.SIGCONT)
        await_stop(server, point)
    return server, policy, connections


def nothing_heard(connections):
    for connection in connections:
        connection.socket.setblocking(False)
        try:
            data = connection.socket.recv(65536)
        except BlockingIOError:
            continue
        assert False, f"answered before the commit: {data!r}"


@pytest.mark.parametrize("point", ["ledger.before_insert", "ledger.after_insert",
                                   "ledger.before_commit"])
def test_points__no_answer_before_the_commit(serve, point):
    """Trap 28: stopped before the commit, nobody has been told anything; killed there, the unit
    goes to whoever asks next, and that is no contradiction."""
    server, policy, connections = stop_at(serve, point, ["a", "a", "a", "b"], 0)
    try:
        nothing_heard(connections)
        assert coupons(server.database, policy) == []
        server.restart()
        assert coupons(server.database, policy) == []
        assert server.win(policy, "c")["seq"] == 1
        assert server.win(policy, "a")["seq"] == 2
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("point", ["ledger.after_commit", "ledger.after_acknowledge"])
def test_points__committed_and_unheard_is_found(serve, point):
    """Trap 27: the commit is done, the answer never came; the retry finds the same claim."""
    server, policy, connections = stop_at(serve, point, ["a"], 1)
    try:
        nothing_heard(connections)
        row, = coupons(server.database, policy)
        server.restart()
        assert expect(server.claim(policy, "a"), 200)["seq"] == row["seq"] == 1
        assert server.win(policy, "b")["seq"] == 2
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("point", ["ledger.before_commit", "ledger.after_commit"])
def test_points__a_process_that_was_stopped_goes_on(serve, point):
    server, policy, connections = stop_at(serve, point, ["a", "b"], 0)
    try:
        answers = []
        for connection in connections:
            connection.socket.setblocking(True)
            connection.socket.settimeout(0.05)
            while len(answers) < 2:
                if is_stopped(server):
                    server.signal(signal.SIGCONT)
                try:
                    answers.append(connection.receive())
                    break
                except socket.timeout:
                    continue
        assert sorted(answer.json["seq"] for answer in answers) == [1, 2]
        assert len(coupons(server.database, policy)) == 2
        server.kill()
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("count", LOAD_COUNTS)
@pytest.mark.parametrize("point", [p for p in POINTS if p not in FILLED])
def test_points__kill_under_load(tmp_path, point, count):
    """The same points in the middle of a rush, with repeats in flight."""
    history = History()
    server = Server(tmp_path / "server")
    try:
        server.start()
        policy = server.create(total=10 ** 6)["id"]
        server.stop()
        server.env = {"DIBS_FAULT": f"{point}:{count}:kill"}
        if start_or_die(server):
            claims = endless([policy], f"{count}", keyed=True)
            try:
                history.rush(server, (next(claims) for _ in range(3000)), connections=32)
            except OSError:
                pass  # Gone before the connections stood.
            if server.alive:
                server.signal(signal.SIGTERM)
        assert server.wait() in (0, -signal.SIGKILL)
        server.env = {}
        server.start()
        history.check_rows(server)
        history.retry_unknown(server)
        history.check_rows(server)
        history.check_answers(server)
        server.stop()
    finally:
        print(server.log_text())
        server.dispose()
