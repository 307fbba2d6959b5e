"""`dibs audit` with a gate that servers share, through a server and by itself; and an older database
under it. Every kind of drift is in test_audit_drift.py."""

import json

import pytest

from harness import expect, run_dibs, wait_until
from servers import Postgres, Redis
from sharing import Sharing

PATIENT = {"ack": "ledger", "ack_timeout": "30s", "gate_timeout": "10s"}


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


def dibs_audit(server, *arguments):
    return run_dibs("audit", "--url", f"http://127.0.0.1:{server.address[1]}", *arguments)


def audit_json(server, code=0):
    ended = dibs_audit(server, "--json")
    assert ended.returncode == code, ended
    return json.loads(ended.stdout)["items"]


def fill(one, two):
    """Coupons of all kinds, by both servers; many are cancelled, and some of these had keys."""
    policy = one.create(total=60, limit=2, reserve=5)["id"]
    won = [expect((one, two)[number % 2].claim(policy, f"u{number}",
                                               key=f"k{number}" if number % 3 else None), 201)
           for number in range(30)]
    for number in range(0, 24, 2):
        expect((two, one)[number % 4 // 2].cancel(won[number]["coupon_id"]), 200)
    for number in (25, 27):
        expect(one.post(f"/v1/coupons/{won[number]['coupon_id']}/redeem", {"order_id": "o"}), 200)
    return policy


def test_redis_audit__finds_nothing_where_nothing_is_wrong(tmp_path, redis):
    with Sharing(tmp_path, redis) as shop:
        one, two = (shop.serve(**PATIENT) for _ in range(2))
        shop.work()
        policy = fill(one, two)
        for server in (one, two):
            (item,) = audit_json(server)
            assert item["ok"] and item["policy_id"] == policy, item
            assert (item["total"], item["active"], item["imbalance"]) == (60, 18, 0), item
            assert item["missing"] == item["outdated"] == item["unknown"] == 0, item
        # A coupon that Redis never gave is found all the same, active as it is.
        shop.database.execute("UPDATE coupon SET user_id = 'thief' WHERE policy_id = ? AND seq ="
                              " (SELECT max(seq) FROM coupon WHERE policy_id = ?)", policy, policy)
        assert audit_json(one, code=3)[0]["unknown"] == 1


def test_redis_audit__by_itself(tmp_path, redis):
    """With the settings of a worker, no server is needed."""
    with Sharing(tmp_path, redis) as shop:
        one = shop.serve(**PATIENT)
        shop.work()
        policy = fill(one, one)
        settings = ["--gate", redis.url(), "--ledger", shop.database.url]
        ended = run_dibs("audit", *settings, "--json")
        assert ended.returncode == 0, ended
        assert json.loads(ended.stdout)["items"] == audit_json(one)
        shop.database.execute("UPDATE policy SET unleased = unleased + 2 WHERE id = ?", policy)
        with redis.client() as client:
            client.decrby(f"COUPON:POLICY:{{{policy}}}:REMAINING", 2)
        ended = run_dibs("audit", *settings)
        assert ended.returncode == 3 and "remaining" in ended.stdout, ended
        ended = run_dibs("audit", *settings, "--repair", "--yes", "--json", timeout_s=90)
        assert ended.returncode == 0, ended
        done = json.loads(ended.stdout)["repair"]
        assert (done["policies"], done["stock_set"], done["policies_built"]) == (1, 1, 1), done
        ended = run_dibs("audit", "--history", env={"DIBS_GATE": redis.url(),
                                                    "DIBS_LEDGER": shop.database.url})
        assert ended.returncode == 0 and "stock 2, remaining 2" in ended.stdout, ended
        ended = run_dibs("audit", "--gate", redis.url(), "--ledger", "postgres://127.0.0.1:1/no")
        assert ended.returncode == 1, ended


def test_redis_audit__brings_back_what_an_older_database_lacks(tmp_path, redis):
    """Redis still has the claims. They are put back among the pending ones, whoever writes them: a
    worker that wrote to the newer database waits for that, and finds them there."""
    with Postgres() as database_server, \
            Sharing(tmp_path, redis, database_server=database_server) as shop:
        one, two = (shop.serve(**PATIENT) for _ in range(2))
        worker = shop.work(ledger_timeout="2s")
        policy = fill(one, two)
        older = shop.database.server.backup()
        for number in range(5):
            expect(one.claim(policy, f"later-{number}"), 201)
        newer = shop.database.server.backup()
        shop.database.server.restore(older)
        (refused, *_) = wait_until(
            lambda: [e for e in worker.events("ledger_refuses") if "older" in e["error"]],
            "the worker sees how old it is", 60)
        assert "bring the newer database back" in refused["error"]
        wait_until(lambda: one.get("/readyz").status == 200, "the server has connected", 60)
        # Whoever refuses the ledger is soon nobody who works. The claims are put back all the same.
        wait_until(lambda: one.metrics()["dibs_workers"] == 0, "nobody works", 60)
        before = shop.holders(policy)
        (item,) = audit_json(one, code=3)
        assert item["missing"] == 5, item
        done = expect(one.post("/v1/audit/repair"), 200)
        assert done["claims_repaired"] == 5 and "no worker has written them" in done["detail"], done
        assert shop.holders(policy) == before
        (item,) = audit_json(one)
        assert item["pending"] == 5, item
        # Nobody's claim is lost meanwhile, and all is well when the newer one is back.
        shop.database.server.restore(newer)
        wait_until(lambda: one.claim(policy, "after").status in (200, 201), "it goes on", 60)
        shop.await_drained(policy)
        wait_until(lambda: two.get("/readyz").status == 200, "the other server has connected", 60)
        (item,) = audit_json(two)
        assert item["ok"] and item["active"] == 24, item


def test_redis_audit__a_board_that_drifts_is_built_anew_by_itself(tmp_path, redis):
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve(gate_timeout="10s")
        worker = shop.work(audit_interval="500ms")
        expect(server.post("/v1/orders", {"order_id": "o1", "items": [
            {"product_id": "mug", "quantity": 3}]}), 201)

        def sold():
            answer = expect(server.get("/v1/products/top?fresh=true"), 200)
            return [(item["product_id"], item["sold"]) for item in answer["items"]]

        wait_until(lambda: sold() == [("mug", 3)], "the board has it", 30)
        with redis.client() as client:
            for key in client.keys("zs:product:{rank}:2*"):
                client.zincrby(key, 5, "mug")
        worker.await_log("repair_done", 60)
        wait_until(lambda: sold() == [("mug", 3)], "it is right again", 30)
        (note,) = expect(server.get("/v1/audit/repairs"), 200)["items"]
        assert (note["policy_id"], note["found"]) == (0, "board 1"), note


def test_redis_audit__a_repair_says_at_once_that_it_needs_a_worker(tmp_path, redis):
    with Sharing(tmp_path, redis) as shop:
        server, worker = shop.serve(gate_timeout="10s"), shop.work()
        policy = server.create(total=5)["id"]
        for user in ("u", "v"):
            expect(server.claim(policy, user), 202)
        wait_until(lambda: len(shop.holders(policy)) == 2, "both are written", 30)
        worker.stop()
        shop.database.execute("UPDATE policy SET total = 1 WHERE id = ?", policy)
        refused = wait_until(lambda: next((ended for ended in [dibs_audit(server, "--repair", "--yes")]
                                           if "a worker that runs" in ended.stderr), None),
                             "it says what is missing", 60)
        assert refused.returncode == 1 and "dibs worker" in refused.stderr, refused
        worker.start()
        wait_until(lambda: dibs_audit(server, "--repair", "--yes").returncode == 0, "repaired", 60)
