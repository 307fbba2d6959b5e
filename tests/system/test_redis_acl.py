"""The rights in Redis that the documents ask for are enough, and no fewer would be."""

import re

import pytest

from harness import ROOT, expect, run_dibs, wait_until
from servers import Redis
from sharing import Sharing

# It shows a sanitizer nothing that the other tests do not.
pytestmark = pytest.mark.heavy


def documented_user():
    """The line of a Redis configuration that docs/redis.md has, without the word "user"."""
    (line,) = re.findall(r"(?m)^user (dibs on .*)$", (ROOT / "docs/redis.md").read_text("utf-8"))
    return line


def top(server):
    return expect(server.get("/v1/products/top?fresh=true"), 200)


def test_redis_acl__the_documented_user_can_do_everything(tmp_path):
    with Redis(settings={"user": documented_user()}) as redis, Sharing(tmp_path, redis) as shop:
        redis_url = f"redis://dibs:secret@127.0.0.1:{redis.port}"
        server = shop.serve(redis_url, fallback="ledger")
        worker = shop.work(redis_url, audit_interval="1s", worker_listen="127.0.0.1:0")
        policy = server.create(total=5, reserve=1)["id"]
        won = expect(server.claim(policy, "u1", key="k1"), 202)
        shop.await_drained(policy)
        expect(server.cancel(won["coupon_id"]), 200)
        expect(server.request("PUT", "/v1/users/u2", {"blocked": True}), 200)
        expect(server.patch(policy, total=6), 200)
        # The clock and the settings of Redis.
        checks = expect(server.get(f"/v1/policies/{policy}/preflight"), 200)["checks"]
        found = {check["name"]: check for check in checks}
        assert not [check for check in checks if "NOPERM" in check["words"]], checks
        assert found["gate"]["state"] == found["loss"]["state"] == "ok", checks
        # The board.
        expect(server.post("/v1/orders", {"order_id": "o1", "items": [
            {"product_id": "mug", "quantity": 2}]}), 201)
        wait_until(lambda: top(server)["source"] == "board" and top(server)["items"], "the board")
        # A Redis that was emptied is built anew.
        redis.wipe()
        wait_until(lambda: server.claim(policy, "u3").status in (200, 202), "it is armed again")
        wait_until(lambda: worker.metrics().get("dibs_audit_last_seconds", -1) >= 0, "an audit")
        ended = run_dibs("audit", "--url", "http://%s:%d" % server.address)
        assert ended.returncode == 0, ended
        expect(server.request("DELETE", f"/v1/policies/{policy}"), 200)
        shop.await_drained(policy)
        for process in (server, worker):
            assert not [line for line in process.log if "NOPERM" in line], process.log_text()
