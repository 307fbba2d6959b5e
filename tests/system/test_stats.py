"""Totals per policy: they survive restarts, add up over servers, and are kept off the way of a claim."""

import contextlib
import datetime

import pytest

from harness import expect, expect_problem, wait_until
from ledger import rows
from servers import Redis
from sharing import Sharing


def stats(server, policy):
    return expect(server.get(f"/v1/policies/{policy}/stats"), 200)


def sums(found):
    return {name: found[name] for name in ("asked", "won", "asked_again", "sold_out", "refused")}


def await_sums(server, policy, **wanted):
    """A loop counts its answers together a few times a second."""
    wait_until(lambda: sums(stats(server, policy)) == wanted, f"{wanted}", 30)
    found = stats(server, policy)
    parts = found["minutes"] + found["hours"]
    for name, value in wanted.items():
        assert sum(part[name] for part in parts) == value, found
    assert sum(found["refused_by"].values()) == found["refused"], found
    for series in (found["minutes"], found["hours"]):
        times = [part["at"] for part in series]
        assert times == sorted(set(times)), found
    return found


def some_of_each(server):
    """A policy with 3 won, 2 asked again, 4 sold out, and 3 refused for two reasons."""
    policy = server.create(total=3)["id"]
    for user in ("a", "b", "c", "a", "b", "d", "e", "f", "d"):
        server.claim(policy, user)
    expect(server.request("PUT", "/v1/users/bad", {"blocked": True}), 200)
    server.claim(policy, "bad")
    expect(server.patch(policy, paused=True), 200)
    server.claim(policy, "g")
    server.claim(policy, "g")
    return policy


EACH = {"asked": 12, "won": 3, "asked_again": 2, "sold_out": 4, "refused": 3}


def test_stats__count_what_became_of_each_claim(server):
    policy = some_of_each(server)
    other = server.create(total=1)["id"]
    server.claim(other, "a")
    server.claim(987654321, "a")
    found = await_sums(server, policy, **EACH)
    assert found["refused_by"] == {"blocked": 1, "paused": 2}
    assert not found["hours"] and found["minutes"]
    await_sums(server, other, asked=1, won=1, asked_again=0, sold_out=0, refused=0)
    untouched = server.create(total=1)["id"]
    assert sums(stats(server, untouched)) == dict.fromkeys(EACH, 0)
    assert rows(server.database, "SELECT * FROM claim_total WHERE policy_id = 987654321") == []


def test_stats__survive_a_restart(server):
    policy = some_of_each(server)
    server.stop()
    server.start()
    # All of it was written at the stop.
    assert sums(stats(server, policy)) == EACH
    assert rows(server.database, "SELECT * FROM claim_total_batch") == []
    server.claim(policy, "g")
    await_sums(server, policy, **{**EACH, "asked": 13, "refused": 4})


def test_stats__are_written_without_being_asked_for(server):
    policy = server.create(total=5)["id"]
    server.claims(policy, [f"u{i}" for i in range(8)])

    def written():
        return {row["result"]: int(row["count"]) for row in rows(
            server.database, "SELECT result, SUM(count) AS count FROM claim_total"
            " WHERE policy_id = ? GROUP BY result", policy)}
    wait_until(lambda: written() == {"issued": 5, "sold_out": 3}, "they are written", 60)
    server.kill()
    server.start()
    assert sums(stats(server, policy)) == {"asked": 8, "won": 5, "asked_again": 0, "sold_out": 3,
                                           "refused": 0}


def test_stats__minutes_for_an_hour_after_the_opening_and_hours_else(server):
    """A drop that opened three hours ago, and one that opens in a year."""
    now = datetime.datetime.now(datetime.timezone.utc)
    old = server.create(total=5, opens_at=(now - datetime.timedelta(hours=3)).isoformat())["id"]
    new = server.create(total=5, opens_at="2099-01-01T00:00:00Z")["id"]
    recent = server.create(total=5, opens_at=(now - datetime.timedelta(minutes=20)).isoformat())["id"]
    for policy in (old, new, recent):
        server.claim(policy, "u1")
    one = {"asked": 1, "won": 1, "asked_again": 0, "sold_out": 0, "refused": 0}
    found = await_sums(server, old, **one)
    assert not found["minutes"] and found["hours"][0]["at"].endswith(":00:00.000Z")
    found = await_sums(server, new, **{**one, "won": 0, "refused": 1})
    assert not found["minutes"] and found["refused_by"] == {"not_open": 1}
    found = await_sums(server, recent, **one)
    assert not found["hours"] and found["minutes"][0]["at"].endswith(":00.000Z")


@pytest.mark.refused("nobody is asked")
def test_stats__of_no_policy_and_with_wrong_words(shared):
    expect_problem(shared.get("/v1/policies/987654321/stats"), 404, "POLICY_NOT_FOUND")
    policy = shared.create(total=1)["id"]
    expect_problem(shared.get(f"/v1/policies/{policy}/stats?days=1"), 400, "INVALID_REQUEST")


@pytest.mark.gate_local("it has its own Redis")
@pytest.mark.parametrize("ledger", ["postgres", "mysql"])
def test_stats__add_up_over_servers(tmp_path, ledger):
    """Two count at once, a kill -9 loses no more than what was not written, and a batch whose commit
    was not answered is added once."""
    with Redis() as redis, Sharing(tmp_path, redis, ledger=ledger) as shop:
        shop.work()
        one, two = shop.serve(), shop.serve()
        policy = one.create(total=40)["id"]
        one.claims(policy, [f"u{i}" for i in range(60)])
        two.claims(policy, [f"u{i}" for i in range(30, 90)])
        wait_until(lambda: stats(one, policy)["asked"] == stats(two, policy)["asked"] == 120,
                   "both are in", 60)
        found = stats(one, policy)
        assert found["won"] == 40 and found["won"] + found["asked_again"] + found["sold_out"] == 120
        # Whoever asks is told of all that the others have written; what waits comes when it can.
        shop.database.server.pause()
        with contextlib.suppress(OSError):
            two.claims(policy, [f"late{i}" for i in range(10)])
        shop.database.server.resume()
        wait_until(lambda: stats(one, policy)["asked"] == 130, "they are added", 60)
        two.kill()
        assert stats(one, policy)["asked"] == 130
        two.start()
        assert stats(two, policy)["asked"] == 130
