"""The look before a drop: what it says when all is well, and of each thing that is not."""

import re

import pytest

from harness import expect, expect_problem, now_rfc3339, wait_until, write_secret
from servers import Redis
from sharing import Sharing
from test_expiry import Clock

NAMES = ["gate", "stock", "window", "ledger", "disk", "relay", "steward", "clock", "loss"]


def look(server, policy):
    """The whole answer, and its checks by name."""
    answer = expect(server.get(f"/v1/policies/{policy}/preflight"), 200)
    checks = {check["name"]: check for check in answer["checks"]}
    assert answer["ready"] == all(check["state"] != "fail" for check in checks.values())
    return answer, checks


def states(checks):
    return {name: check["state"] for name, check in checks.items()}


def test_preflight__all_is_well(shared):
    policy = shared.create(total=1000, opens_at=now_rfc3339(3600))["id"]
    answer, checks = look(shared, policy)
    assert answer["ready"] is True
    assert list(checks) == NAMES
    # Whether a time service keeps the clock is the machine's affair.
    assert checks.pop("clock")["state"] in ("ok", "warn")
    assert set(states(checks).values()) == {"ok"}, answer
    assert re.fullmatch(r"Opens in (1 h 0 min|59 min \d+ s)\.", checks["window"]["words"]), answer
    assert checks["stock"]["words"] == "1000 of 1000 coupons can be claimed."
    assert checks["loss"]["words"].startswith("Nothing:")
    assert "free under the ledger" in checks["disk"]["words"]


def test_preflight__says_what_keeps_people_from_claiming(shared):
    policy = shared.create(total=1)["id"]
    assert look(shared, policy)[1]["window"]["state"] == "ok"
    expect(shared.request("PATCH", f"/v1/policies/{policy}", {"paused": True}), 200)
    answer, checks = look(shared, policy)
    assert (answer["ready"], checks["window"]["state"]) == (True, "warn")
    expect(shared.request("PATCH", f"/v1/policies/{policy}", {"paused": False}), 200)
    shared.win(policy, "u1")
    answer, checks = look(shared, policy)
    assert (answer["ready"], checks["stock"]["state"]) == (False, "fail")
    expect(shared.request("DELETE", f"/v1/policies/{policy}"), 200)
    answer, checks = look(shared, policy)
    assert (answer["ready"], checks["window"]["state"]) == (False, "fail")


def test_preflight__is_for_admins_and_of_a_policy(serve, tmp_path):
    server = serve(config={"admin_token_file": write_secret(tmp_path, "admin", "a" * 32)})
    server.admin_token = "a" * 32
    policy = server.create(total=1)["id"]
    expect_problem(server.get(f"/v1/policies/{policy}/preflight", token=False), 401, "UNAUTHORIZED")
    expect_problem(server.get("/v1/policies/999/preflight"), 404, "POLICY_NOT_FOUND")
    look(server, policy)


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


@pytest.mark.heavy
def test_preflight__of_a_gate_in_redis(tmp_path, redis):
    """What it can lose is asked of Redis now, and so is the time."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve()
        policy = server.create(total=10)["id"]
        assert look(server, policy)[0]["ready"] is True
        with redis.client() as client:
            for settings, state, word in (
                    ({"appendonly": "yes", "appendfsync": "always"}, "ok", "failover"),
                    ({"appendonly": "yes", "appendfsync": "everysec"}, "warn", "2 s"),
                    ({"appendonly": "no"}, "fail", "every 202"),
                    ({"appendonly": "yes", "appendfsync": "always"}, "ok", "failover")):
                for name, value in settings.items():
                    client.config_set(name, value)
                loss = look(server, policy)[1]["loss"]
                assert loss["state"] == state and word in loss["words"], loss
        redis.kill()
        answer, checks = wait_until(
            lambda: (seen := look(server, policy))[1]["gate"]["state"] == "fail" and seen,
            "the gate is seen to be away")
        assert answer["ready"] is False
        assert checks["clock"]["state"] == "fail" and checks["ledger"]["state"] == "ok"
        redis.start()
        wait_until(lambda: look(server, policy)[0]["ready"], "it is ready again", 30)


def test_preflight__warns_of_a_fallback_without_a_reserve(tmp_path, redis):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(fallback="ledger")
        bare = server.create(total=10)["id"]
        kept = server.create(total=10, reserve=4)["id"]
        answer, checks = look(server, bare)
        assert answer["ready"] is True and checks["reserve"]["state"] == "warn"
        assert "has none" in checks["reserve"]["words"]
        checks = look(server, kept)[1]
        assert checks["reserve"]["state"] == "ok" and "4 coupons" in checks["reserve"]["words"]
        shop.processes[0].stop()
        shop.processes[0].config["fallback"] = "reject"
        server.start()
        assert "reserve" not in look(server, bare)[1]


@pytest.mark.heavy
def test_preflight__of_a_gate_that_nobody_arms(tmp_path, redis):
    """Redis is there and well, and would still refuse every claim."""
    with Sharing(tmp_path, redis) as shop:
        server, worker = shop.serve(), shop.work()
        policy = server.create(total=10)["id"]
        wait_until(lambda: look(server, policy)[0]["ready"], "it is ready", 30)
        worker.stop()
        redis.kill()
        redis.start()
        gate = wait_until(
            lambda: "armed" in (seen := look(server, policy)[1]["gate"])["words"] and seen,
            "it is seen that nobody has armed it", 30)
        assert gate["state"] == "fail"
        shop.work()
        wait_until(lambda: look(server, policy)[0]["ready"], "it is ready again", 30)


@pytest.mark.heavy
def test_preflight__of_clocks_that_differ(tmp_path, redis):
    clock = Clock(tmp_path)
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(env=clock.environment())
        policy = server.create(total=10)["id"]
        assert look(server, policy)[1]["clock"]["state"] in ("ok", "warn")
        clock.forward(3600)
        answer, checks = wait_until(
            lambda: (seen := look(server, policy))[1]["clock"]["state"] == "fail" and seen,
            "the clocks are seen to differ")
        assert answer["ready"] is False
        assert re.search(r"its clock is 3(60|59)\d{4} ms behind this server's",
                         checks["clock"]["words"]), checks
        clock.set("+0")
