"""Claims that nobody writes are seen from a server, as no worker is there to tell of them."""

import re

from harness import wait_until
from servers import Redis
from sharing import Sharing


def stuck_s(server):
    page = server.get("/metrics?fresh=true").body.decode()
    return float(re.search(r"(?m)^dibs_pending_stuck_seconds (.*)$", page)[1])


def test_redis_stuck__shown_while_no_worker_lives_and_over_when_one_does(tmp_path):
    with Redis() as redis, Sharing(tmp_path, redis) as shop:
        worker = shop.work()
        server = shop.serve()
        policy = server.create(total=9)["id"]
        server.claim(policy, "u0")
        shop.await_drained(policy)
        wait_until(lambda: stuck_s(server) == 0, "nothing waits")
        worker.stop()
        server.claim(policy, "u1")
        # More claims do not make it look as if something moved.
        wait_until(lambda: stuck_s(server) > 1, "it is stuck")
        server.claim(policy, "u2")
        before = stuck_s(server)
        wait_until(lambda: stuck_s(server) > before + 1, "it still is")
        worker.start()
        shop.await_drained(policy)
        wait_until(lambda: stuck_s(server) == 0, "it is not any more")
