"""The worker: what it tells of itself, and how it ends."""

import signal
import time

import pytest

from harness import expect, run_dibs, wait_until
from ledger import rows
from servers import Redis
from sharing import Sharing


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


def check_size(redis, process):
    """What it tells of Redis is what Redis tells, of a few seconds ago."""
    def told():
        samples = process.metrics()
        return {name: samples.get(f'dibs_redis_{name}{{server="127.0.0.1:{redis.port}"}}')
                for name in ("keys", "memory_limit_bytes")}
    with redis.client() as client:
        client.config_set("maxmemory", 1 << 30)
        client.set(f"strange-{process.pid}", "x")
        wait_until(lambda: told() == {"keys": client.dbsize(), "memory_limit_bytes": 1 << 30},
                   "its keys and limit", 60)
        used = process.metrics()[f'dibs_redis_memory_bytes{{server="127.0.0.1:{redis.port}"}}']
        assert 0.3 < used / client.info("memory")["used_memory"] < 3
        client.config_set("maxmemory", 0)


def test_redis_worker__is_watched(tmp_path, redis):
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        policy = server.create(total=500)["id"]
        won = server.claims(policy, [f"u{i}" for i in range(200)])
        assert {o.answer.status for o in won} == {202}
        won_at = time.monotonic()
        # Nobody works yet: the server tells how much waits.
        wait_until(lambda: server.metrics()["dibs_pending"] == 200, "the server sees them")
        assert "dibs_drained_total" not in server.metrics()
        waited_s = time.monotonic() - won_at
        worker = shop.work(worker_listen="127.0.0.1:0")
        assert expect(worker.get("/healthz"), 200) == {"status": "ok"}
        wait_until(lambda: worker.metrics()["dibs_drained_total"] == 200, "they are drained", 30)
        samples = worker.metrics()
        # From accept to row, in the process that writes it.
        assert samples["dibs_issue_lag_seconds_count"] == 200
        assert samples["dibs_issue_lag_seconds_sum"] >= 200 * (waited_s - 0.002)
        assert server.metrics()["dibs_issue_lag_seconds_count"] == 0
        assert samples["dibs_dead_letters"] == samples["dibs_drain_refused_total"] == 0
        assert samples['dibs_gate_breakers{state="open"}'] == 0
        assert samples["dibs_drained_per_second"] >= 0
        wait_until(lambda: worker.metrics()["dibs_pending"] == 0, "none is left")
        wait_until(lambda: worker.metrics()["dibs_pending_oldest_seconds"] == 0, "none waits")
        expect(worker.get("/readyz"), 200)
        # It serves nobody else.
        with worker.connect() as connection:
            for method, path in (("GET", "/v1/policies"), ("GET", "/openapi.json"),
                                 ("POST", f"/v1/policies/{policy}/claims")):
                answer = connection.request(method, path, {"user": "u"} if method == "POST"
                                            else None)
                assert answer.status == 404, answer
        check_size(redis, server)
        check_size(redis, worker)
        progress = worker.await_log("draining", 30)
        assert int(progress["claims"]) > 0
        # A Redis that was emptied is built anew, and counted.
        redis.wipe()
        wait_until(lambda: worker.metrics()["dibs_reconciled_total"] >= 1, "it is armed again")
        wait_until(lambda: server.claim(policy, "after").status == 202, "and answers")
        # While the database is away, what waits grows old.
        shop.database.server.pause()
        assert server.claim(policy, "patient").status == 202
        # A worker that was just asking the database sees what waits when it has given up on that.
        wait_until(lambda: worker.metrics()["dibs_pending_oldest_seconds"] > 0.3, "it waits", 60)
        shop.database.server.resume()
        wait_until(lambda: worker.metrics()["dibs_pending_oldest_seconds"] == 0, "it is written",
                   60)


def workers_part(server):
    """What /readyz says of the workers, and that it takes nobody out of service."""
    body = expect(server.get("/readyz"), 200)
    assert body["ready"] is True
    return next(part for part in body["parts"] if part["name"] == "workers")


def workers_on_board(server):
    with server.events_of("/v1/live") as stream:
        return next(part["state"] for part in stream.next()[1]["parts"]
                    if part["name"] == "workers")


def test_redis_worker__that_is_missing_is_said(tmp_path, redis):
    """Within ten seconds, by everyone who could be asked, and nobody is turned away for it."""
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        policy = server.create(total=5)["id"]

        def check(state):
            is_there = state == "ok"
            wait_until(lambda: workers_part(server)["ready"] == is_there, f"readyz: {state}", 10)
            wait_until(lambda: (server.metrics()["dibs_workers"] > 0) == is_there, "a number", 10)
            wait_until(lambda: workers_on_board(server) == state, "the board", 10)

            def is_shown():
                shown = run_dibs("status", "--url", "http://%s:%d" % server.address)
                assert shown.returncode == 0
                return ("none is alive" in shown.stdout) != is_there

            def is_checked():
                checks = expect(server.get(f"/v1/policies/{policy}/preflight"), 200)["checks"]
                found = {check["name"]: check["state"] for check in checks}
                return found["workers"] == ("ok" if is_there else "fail")

            wait_until(is_shown, "the command")
            wait_until(is_checked, "the look before a drop")

        check("degraded")
        assert server.claim(policy, "u1").status == 202
        worker = shop.work()
        check("ok")
        worker.kill()
        check("degraded")
        server.await_log("no_worker")
        shop.work().stop()
        check("degraded")


def test_redis_worker__what_is_pending_is_not_called_issued(tmp_path, redis):
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        policy = server.create(total=1)["id"]
        won = expect(server.claim(policy, "u1", key="k"), 202)
        for key in (None, "k"):
            again = expect(server.claim(policy, "u1", key=key), 200)
            assert again == won and (again["result"], again["state"]) == ("ACCEPTED", "PENDING")
        shop.work()
        shop.await_drained(policy)
        again = expect(server.claim(policy, "u1"), 200)
        assert (again["result"], again["state"]) == ("ALREADY_ISSUED", "ISSUED")


def test_redis_worker__drains_everything_before_it_ends(tmp_path, redis):
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        policies = [server.create(total=1000)["id"] for _ in range(2)]
        worker = shop.work(stop_timeout="2m")
        worker.signal(signal.SIGSTOP)
        for policy in policies:
            won = server.claims(policy, [f"u{i}" for i in range(1000)])
            assert {o.answer.status for o in won} == {202}
        assert not shop.drained(policies[0])
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGCONT)
        assert worker.wait(150) == 0
        for policy in policies:
            assert shop.drained(policy)
            assert len(shop.holders(policy)) == 1000
        # The next one need not wait until it counts as dead.
        assert {row["holder"] for row in rows(shop.database, "SELECT holder FROM steward")} == {""}


def test_redis_worker__ends_in_time_when_the_database_does_not_answer(tmp_path, redis):
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        policy = server.create(total=100)["id"]
        worker = shop.work(stop_timeout="1s", ledger_timeout="1s")
        shop.database.server.pause()
        assert server.claim(policy, "u1").status == 202
        worker.signal(signal.SIGTERM)
        worker.wait(30)
        shop.database.server.resume()
        # What it could not write is the next one's.
        shop.work()
        wait_until(lambda: "u1" in shop.holders(policy), "it is issued", 30)


def test_redis_worker__no_more_than_so_many_wait(tmp_path, redis):
    """Of all policies together, also when a crowd comes at once: `pending_max` before the gate."""
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve(pending_max=50)
        policies = [server.create(total=500)["id"] for _ in range(2)]

        def pending():
            with redis.client() as client:
                return sum(client.zcard(f"COUPON:POLICY:{{{policy}}}:PENDING")
                           for policy in policies)

        for crowd in range(3):
            for policy in policies:
                outcomes = server.claims(policy, [f"{crowd}-{i}" for i in range(150)])
                assert {o.answer.status for o in outcomes} <= {202, 503}
                assert pending() <= 50
        wait_until(lambda: server.claim(policies[0], "next").status == 503 or pending() == 50,
                   "it is full")
        wait_until(lambda: server.claim(policies[1], "next").status == 503, "it is full", 30)
        assert pending() == 50
        shop.work()
        for policy in policies:
            shop.await_drained(policy)
        wait_until(lambda: server.claim(policies[0], "after").status in (200, 202), "it wins", 30)
        shop.await_drained(policies[0])
