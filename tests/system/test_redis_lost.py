"""Policies that Redis knows and the database has lost, wholly or in part: nothing more is given out,
nothing is dropped, the audit tells, and an operator decides (trap 36)."""

import json

import pytest

from harness import expect, expect_problem, run_dibs, wait_until
from ledger import coupons, rows
from servers import Postgres, Redis, RedisCluster
from sharing import Sharing

PATIENT = {"gate_timeout": "10s"}


@pytest.fixture(name="redis")
def fixture_redis():
    with Redis() as server:
        yield server


def dibs_audit(server, *arguments, code):
    ended = run_dibs("audit", "--url", f"http://127.0.0.1:{server.address[1]}", "--json",
                     *arguments, timeout_s=120)
    assert ended.returncode == code, ended
    return {item["policy_id"]: item for item in json.loads(ended.stdout)["items"]}


def await_suspended(server, policy, holder):
    """Within a second or two nobody wins, nobody is told that nothing is left, and it is told why."""
    wait_until(lambda: server.claim(policy, holder).status == 503, "nobody is answered", 30)
    wait_until(lambda: f"policy {policy}" in json.dumps(expect(server.get("/readyz"), 200)),
               "readiness tells", 30)
    expect_problem(server.claim(policy, "late"), 503, "UNAVAILABLE")


def repair(server):
    """Written, and built anew: by a worker whose time it may not be just then."""
    dibs_audit(server, "--repair", "--yes", code=0)
    wait_until(lambda: all(item["gate"] == "ARMED" for item in dibs_audit(server, code=0).values()),
               "all are armed", 60)


def delete_policy(database, policy):
    """As somebody does by hand, or a restore from before its creation."""
    for table in ("claim_key", "coupon", "lease"):
        database.execute(f"DELETE FROM {table} WHERE policy_id = ?", policy)

    def deleted():
        database.execute("DELETE FROM steward WHERE policy_id = ?", policy)
        try:
            database.execute("DELETE FROM policy WHERE id = ?", policy)
        except Exception:  # pylint: disable=broad-except
            return False  # Its steward was faster.
        return True

    wait_until(deleted, "it is deleted", 30)


def test_redis_lost__restored_from_a_dump(tmp_path, redis):
    """One policy is newer than the dump, one was changed since: both wait for the repair, which
    writes them as Redis knows them. Nobody who was told that they won has lost anything."""
    with Postgres() as database_server, \
            Sharing(tmp_path, redis, database_server=database_server) as shop:
        server, worker = shop.serve(**PATIENT), shop.work(**PATIENT)
        changed = server.create(total=6, limit=2)["id"]
        old = [expect(server.claim(changed, f"old{number}"), 202) for number in range(3)]
        shop.await_drained(changed)
        wait_until(lambda: len(shop.holders(changed)) == 3, "all are written")
        dump = shop.database.server.backup()
        wait_until(lambda: server.get("/readyz").status == 200, "the database is back", 30)

        expect(server.patch(changed, total=9), 200)
        expect(server.cancel(old[0]["coupon_id"]), 200)
        expect(server.post(f"/v1/coupons/{old[1]['coupon_id']}/redeem", {"order_id": "o"}), 200)
        told = {(changed, "old0"): expect(server.claim(changed, "old0"), 202),
                (changed, "new0"): expect(server.claim(changed, "new0", key="k"), 202)}
        since = server.create(total=5, name="made since the dump", coupon_valid_days=7)["id"]
        told |= {(since, f"u{number}"): expect(server.claim(since, f"u{number}", key=f"k{number}"),
                                               202) for number in range(3)}
        for policy in (changed, since):
            shop.await_drained(policy)
        worker.stop()
        told[since, "u3"] = expect(server.claim(since, "u3"), 202)
        server.stop()
        shop.database.server.restore(dump)
        server.start()
        worker.start()

        await_suspended(server, changed, "new0")
        await_suspended(server, since, "u1")
        found = dibs_audit(server, code=3)
        assert found[since]["in_ledger"] is False and found[changed]["is_outdated"] is True
        assert (found[since]["missing"], found[since]["pending"]) == (3, 1), found[since]
        assert found[changed]["missing"] == 2 and found[changed]["outdated"] == 1, found[changed]
        assert not coupons(shop.database, since)

        repair(server)
        for (policy, user), claim in told.items():
            shown = expect(server.get(f"/v1/coupons/{claim['coupon_id']}"), 200)
            assert (shown["user"], shown["code"], shown["state"]) == (user, claim["code"], "ISSUED")
        assert server.policy(changed)["total"] == 9
        assert server.policy(since)["name"] == "made since the dump"
        states = {row["seq"]: row["state"] for row in coupons(shop.database, changed)}
        assert [states[claim["seq"]] for claim in old] == ["CANCELLED", "REDEEMED", "ISSUED"]
        again = expect(server.claim(since, "u1", key="k1"), 200)
        assert again["seq"] == told[since, "u1"]["seq"]
        for policy, left in ((changed, 5), (since, 1)):
            seqs = {row["seq"] for row in coupons(shop.database, policy)}
            for number in range(left):
                assert expect(server.claim(policy, f"more{number}"), 202)["seq"] not in seqs
            expect_problem(server.claim(policy, "too-late"), 409, "SOLD_OUT")
            shop.await_drained(policy)
        assert all(item["ok"] for item in dibs_audit(server, code=0).values())
        wait_until(lambda: "policy" not in json.dumps(expect(server.get("/readyz"), 200)),
                   "all policies are well", 30)


@pytest.mark.parametrize("ledger", ["postgres", "mysql"])
def test_redis_lost__let_go(tmp_path, redis, ledger):
    """Rows deleted under running servers. Whoever lets the policy go gets a letter for each winner,
    and then there is no such policy."""
    with Sharing(tmp_path, redis, ledger=ledger) as shop:
        server, worker = shop.serve(**PATIENT), shop.work(**PATIENT)
        policy, other = server.create(total=9)["id"], server.create(total=9)["id"]
        won = {f"u{number}": expect(server.claim(policy, f"u{number}"), 202)["seq"]
               for number in range(3)}
        shop.await_drained(policy)
        worker.stop()
        won["u3"] = expect(server.claim(policy, "u3"), 202)["seq"]
        delete_policy(shop.database, policy)
        await_suspended(server, policy, "u1")
        expect(server.claim(other, "u1"), 202)
        worker.start()
        # What is pending waits, too.
        shop.await_drained(other)
        assert not shop.drained(policy) and not coupons(shop.database, policy)
        found = dibs_audit(server, code=3)
        assert (found[policy]["missing"], found[policy]["pending"]) == (3, 1) and found[other]["ok"]

        ended = run_dibs("audit", "--forget", "--repair", "--yes", timeout_s=60)
        assert ended.returncode == 2 and "--policy" in ended.stderr, ended
        dibs_audit(server, "--repair", "--forget", "--policy", str(other), "--yes", code=0)
        ended = run_dibs("audit", "--url", f"http://127.0.0.1:{server.address[1]}", "--repair",
                         "--forget", "--policy", str(policy), "--yes", timeout_s=60)
        assert ended.returncode == 0, ended
        letters = rows(shop.database, "SELECT * FROM dead_letter")
        assert {row["user_id"]: row["seq"] for row in letters} == won
        wait_until(lambda: server.claim(policy, "late").status == 404, "it is gone", 30)
        with redis.client() as client:
            assert not client.keys(f"COUPON:POLICY:{{{policy}}}:*")
        assert list(dibs_audit(server, code=0)) == [other]


@pytest.mark.parametrize("ledger", ["postgres", "mysql"])
def test_redis_lost__coupons_alone_survive_a_rebuild(tmp_path, redis, ledger):
    """A database from before some coupons, whose policy has not changed since. Redis restarts, and
    the policy is built anew: whoever was told that they won is in the database again."""
    with Sharing(tmp_path, redis, ledger=ledger) as shop:
        server, worker = shop.serve(**PATIENT), shop.work(**PATIENT)
        policy = server.create(total=9, coupon_valid_days=7)["id"]
        won = [expect(server.claim(policy, f"u{number}"), 202) for number in range(6)]
        shop.await_drained(policy)
        wait_until(lambda: len(coupons(shop.database, policy)) == 6, "all are written", 30)
        expect(server.post(f"/v1/coupons/{won[1]['coupon_id']}/redeem", {"order_id": "o"}), 200)
        expect(server.cancel(won[2]["coupon_id"]), 200)
        worker.stop()
        shop.database.execute("DELETE FROM coupon WHERE policy_id = ? AND seq IN (?, ?, ?)", policy,
                              won[1]["seq"], won[3]["seq"], won[5]["seq"])
        assert dibs_audit(server, code=3)[policy]["missing"] == 3
        redis.kill()
        redis.start()
        worker.start()
        worker.await_log("policy_armed", 60)
        states = {row["seq"]: (row["user_id"], row["state"])
                  for row in coupons(shop.database, policy)}
        ends = {1: "REDEEMED", 2: "CANCELLED"}
        assert states == {claim["seq"]: (claim["user"], ends.get(number, "ISSUED"))
                          for number, claim in enumerate(won)}
        wait_until(lambda: server.claim(policy, "u3").status == 200, "it answers again", 30)
        for number in (3, 5):
            shown = expect(server.get(f"/v1/coupons/{won[number]['coupon_id']}"), 200)
            assert (shown["user"], shown["code"]) == (f"u{number}", won[number]["code"])
        for number in range(4):
            expect(server.claim(policy, f"more{number}"), 202)
        expect_problem(server.claim(policy, "too-late"), 409, "SOLD_OUT")
        shop.await_drained(policy)
        assert dibs_audit(server, code=0)[policy]["ok"]


def test_redis_lost__on_every_primary(tmp_path):
    """Each primary is asked what it has, by whoever starts."""
    with RedisCluster() as cluster, Sharing(tmp_path, cluster) as shop:
        server = shop.serve(**PATIENT)
        shop.work(**PATIENT)
        policies = [server.create(total=3)["id"] for _ in range(6)]
        assert len({cluster.owner(policy).port for policy in policies}) == 3
        server.stop()
        for policy in policies:
            delete_policy(shop.database, policy)
        server.start()
        for policy in policies:
            wait_until(lambda: server.claim(policy, "u").status == 503, "it is suspended", 30)
        assert set(dibs_audit(server, code=3)) == set(policies)
        repair(server)
        for policy in policies:
            expect(server.claim(policy, "u"), 202)


def test_redis_lost__an_impossible_number_stops_its_policy_only(tmp_path, redis):
    """A policy's row that only a hand or a disk can have written is a finding. The others are listed,
    built and drained, also after all have started again; put right, it goes on by itself."""
    with Sharing(tmp_path, redis) as shop:
        server, worker = shop.serve(**PATIENT), shop.work(**PATIENT)
        damaged, other = server.create(total=9)["id"], server.create(total=9)["id"]
        for policy in (damaged, other):
            expect(server.claim(policy, "u1"), 202)
            shop.await_drained(policy)
        shop.database.execute("UPDATE policy SET total = 100000001 WHERE id = ?", damaged)
        redis.client().flushall()
        server.restart()
        worker.restart()
        made = server.create(total=9)["id"]
        wait_until(lambda: server.claim(other, "u2").status == 202, "it is armed again", 60)
        expect(server.claim(made, "u1"), 202)
        for policy in (other, made):
            shop.await_drained(policy)
        assert [item["id"] for item in expect(server.get("/v1/policies"), 200)["items"]] == \
            [other, made]
        expect_problem(server.claim(damaged, "u2"), 503, "UNAVAILABLE")
        found = dibs_audit(server, code=3)
        assert [finding["check"] for finding in found[damaged]["findings"]] == ["damaged"]
        assert found[other]["ok"] and found[made]["ok"]
        shop.database.execute("UPDATE policy SET total = 9 WHERE id = ?", damaged)
        wait_until(lambda: server.claim(damaged, "u2").status == 202, "it is armed again", 60)
        assert expect(server.claim(damaged, "u1"), 200)["seq"] == 1
        shop.await_drained(damaged)
