"""A start that listens while it restores its policies: what is told and done meanwhile, at each step."""

import signal
import time

import pytest

from harness import START_TIMEOUT_S, Server, claim_bytes, expect, expect_problem, run_dibs, wait_until
from ledger import audit, coupons

# Has so many seqs that it is a stretch of its own, with all newer ones.
LARGE = 10 ** 6


class Held:
    """A server that was sold from, and starts again with its restore held at a point."""

    def __init__(self, folder):
        self.held = folder / "held"
        self.server = Server(folder / "server")

    def __enter__(self):
        self.server.start()
        server = self.server
        self.old = server.create(total=5, limit=1)["id"]
        self.large = server.create(total=LARGE)["id"]
        self.newest = server.create(total=5)["id"]
        for policy in (self.old, self.large, self.newest):
            server.win(policy, "winner", key="once")
            server.win(policy, "second")
        return self

    def start(self, point, count=1):
        """Returns when it listens; it stands at the point, or will."""
        self.server.stop()
        self.held.touch()
        self.server.env = {"DIBS_FAULT": f"{point}:{count}:hold", "DIBS_FAULT_HOLD": str(self.held)}
        self.server.spawn().await_listening()
        return self.server

    def let_go(self):
        self.held.unlink()
        self.server.await_log("gate_restored", START_TIMEOUT_S)

    def __exit__(self, kind, *_):
        if kind:
            print(self.server.log_text())
        self.server.dispose()


@pytest.fixture(name="held")
def fixture_held(tmp_path):
    with Held(tmp_path) as held:
        yield held


def is_unavailable(answer):
    expect_problem(answer, 503, "UNAVAILABLE")
    assert int(answer.headers["retry-after"]) > 0


def test_restore__listens_at_once_and_says_what_it_does(held):
    server = held.start("restore.before_stretch")
    assert expect(server.get("/healthz"), 200) == {"status": "ok"}
    ready = server.get("/readyz")
    assert ready.status == 503 and not ready.json["ready"]
    gate = next(part for part in ready.json["parts"] if part["name"] == "gate")
    assert not gate["ready"] and "restoring the policies, the newest first" in gate["detail"]
    url = f"http://{server.address[0]}:{server.address[1]}"
    assert run_dibs("status", "--ready", "--url", url).returncode == 1
    held.let_go()
    assert server.get("/readyz").status == 200
    assert run_dibs("status", "--ready", "--url", url).returncode == 0


@pytest.mark.parametrize("point", ["restore.before_stretch", "restore.before_open"])
def test_restore__what_is_still_to_come_is_neither_gone_nor_sold_out(held, point):
    """Nobody is told anything of a policy before all that belongs to it is there."""
    server = held.start(point)
    for policy in (held.old, held.large, held.newest):
        for user, key in (("winner", "once"), ("winner", None), ("second", None), ("new", None)):
            is_unavailable(server.claim(policy, user, key))
        is_unavailable(server.get(f"/v1/policies/{policy}"))
        is_unavailable(server.status(policy, "winner"))
        is_unavailable(server.get(f"/v1/policies/{policy}/events"))
        is_unavailable(server.patch(policy, total=LARGE + 10))
        is_unavailable(server.request("DELETE", f"/v1/policies/{policy}"))
        is_unavailable(server.cancel(f"{policy}-1"))
        is_unavailable(server.get(f"/v1/audit?policy={policy}"))
    is_unavailable(server.get("/v1/policies"))
    is_unavailable(server.post("/v1/audit/repair", {}))
    is_unavailable(server.post("/v1/users/winner/erase", {}))
    held.let_go()
    for policy in (held.old, held.large, held.newest):
        assert expect(server.claim(policy, "winner", "once"), 200)["seq"] == 1
        assert expect(server.claim(policy, "second"), 200)["seq"] == 2
        assert server.win(policy, "new")["seq"] == 3
        assert server.policy(policy)["issued"] == 3
    audit(server.database)
    server.stop()


def test_restore__the_newest_open_first(held):
    """With two stretches: one is open while the other is still to come."""
    server = held.start("restore.before_stretch", 2)
    wait_until(lambda: server.claim(held.newest, "winner").status == 200, "the newest is open")
    assert expect(server.claim(held.large, "winner"), 200)["result"] == "ALREADY_ISSUED"
    assert server.win(held.newest, "new")["seq"] == 3
    is_unavailable(server.claim(held.old, "new"))
    is_unavailable(server.get("/v1/policies"))
    is_unavailable(server.get("/v1/audit"))
    detail = server.get("/readyz").json["parts"][0]["detail"]
    assert f"2 are open, those below {held.large} follow" in detail
    held.let_go()
    assert server.win(held.old, "new")["seq"] == 3
    assert len(expect(server.get("/v1/policies"), 200)["items"]) == 3
    server.stop()


def test_restore__what_is_written_meanwhile_is_not_lost(held):
    """A coupon is redeemed between the snapshot and the opening, a policy is made, a user blocked."""
    server = held.start("restore.before_open")
    expect(server.request("PUT", "/v1/users/bad", {"blocked": True}), 200)
    expect(server.post(f"/v1/coupons/{held.newest}-1/redeem", {"order_id": "o"}), 200)
    made = server.create(total=3)["id"]
    expect_problem(server.claim(made, "bad"), 403, "BLOCKED")
    assert server.win(made, "u")["seq"] == 1
    held.let_go()
    wait_until(lambda: expect(server.claim(held.newest, "winner"), 200)["coupon_state"] == "REDEEMED",
               "the gate hears of it")
    expect_problem(server.claim(held.old, "bad"), 403, "BLOCKED")
    assert server.win(made, "v")["seq"] == 2
    assert server.policy(made)["issued"] == 2
    assert len(expect(server.get("/v1/policies"), 200)["items"]) == 4
    audit(server.database)
    server.stop()


def test_restore__what_waits_for_it_does_not_hold_up_the_rest(held):
    """A coupon of a policy that is still to come is redeemed; stock of the open ones returns as before."""
    pause_s = 0.2  # of the steward, after what it could not do
    policies = [held.server.create(total=1)["id"] for _ in range(40)]
    for policy in policies:
        held.server.win(policy, "first")
    server = held.start("restore.before_stretch", 2)
    wait_until(lambda: server.claim(held.newest, "winner").status == 200, "the newest is open")
    took_s = []
    for seq in (1, 2):
        for policy in policies:
            expect(server.cancel(f"{policy}-{seq}"), 200)
        if seq == 2:
            expect(server.post(f"/v1/coupons/{held.old}-1/redeem", {"order_id": "o"}), 200)
        started = time.monotonic()
        outcomes = server.storm([claim_bytes(policy, f"user-{seq}") for policy in policies])
        assert [outcome.answer.status for outcome in outcomes] == [201] * len(policies)
        took_s.append(time.monotonic() - started)
    assert took_s[1] < took_s[0] + len(policies) * pause_s / 2, took_s
    held.let_go()
    wait_until(lambda: expect(server.claim(held.old, "winner"), 200)["coupon_state"] == "REDEEMED",
               "the gate hears of it")
    audit(server.database)
    server.stop()


@pytest.mark.parametrize("point,count", [("restore.before_stretch", 1), ("restore.before_stretch", 2),
                                         ("restore.before_open", 1), ("restore.before_open", 2)])
def test_restore__kill(held, point, count):
    """Whatever was open is sold from, then the process dies: the next start has all of it."""
    server = held.start(point, count)
    won = 0
    if count == 2:
        wait_until(lambda: server.claim(held.newest, "winner").status == 200, "the newest is open")
        won = sum(server.claim(held.newest, f"more-{i}").status == 201 for i in range(2))
    server.kill()
    held.held.unlink()
    server.env = {}
    server.start()
    assert server.policy(held.newest)["issued"] == 2 + won == 2 * count
    for policy in (held.old, held.newest):
        left = 5 - server.policy(policy)["issued"]
        answers = [server.claim(policy, f"rest-{i}").status for i in range(6)]
        assert answers == [201] * left + [409] * (6 - left)
        assert [row["seq"] for row in coupons(server.database, policy)] == [1, 2, 3, 4, 5]
    audit(server.database)
    server.stop()


def test_restore__a_stop_does_not_wait_for_it(tmp_path):
    """A policy of many claims is being read when the signal comes."""
    with Server(tmp_path) as server:
        policy = server.create(total=LARGE)["id"]
        server.claims(policy, [f"u{i}" for i in range(2000)])
        server.stop()
        # A stop is looked for at each claim: it stands at the first when it is told to go on.
        held = tmp_path / "held"
        held.touch()
        server.env = {"DIBS_FAULT": "restore.at_claim:1:hold", "DIBS_FAULT_HOLD": str(held)}
        server.spawn().await_listening()
        server.signal(signal.SIGTERM)
        server.await_log("restore_stops")
        held.unlink()
        assert server.wait() == 0
        assert len(server.events("gate_restored")) == 1  # of the start before
        server.env = {}
        server.start()
        assert server.policy(policy)["issued"] == 2000
