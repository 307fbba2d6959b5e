"""Servers whose clocks are an hour apart: order and window come from the gate's clock alone."""

import itertools
import time

from harness import expect_problem, now_rfc3339, wait_until
from ledger import coupons
from redis_shop import Told
from virtual_clock import Clock

HOUR_S = 3600


def test_redis_clocks__an_hour_apart(shop_on, redis, tmp_path):
    """Trap 7: time as the score: clocks differ, and a late smaller score shifts ranks."""
    told = Told()
    with shop_on(redis, servers=1, workers=0) as shop:
        servers = []
        for name, offset in (("ahead", f"+{HOUR_S}"), ("behind", f"-{HOUR_S}")):
            folder = tmp_path / name
            folder.mkdir()
            clock = Clock(folder)
            clock.set(offset)
            servers.append(shop.serve(env=clock.environment()))
            shop.work(env=clock.environment())
        ahead, behind = servers
        opens_at = time.time() + 2
        policy = shop.create(300, opens_at=now_rfc3339(2), closes_at=now_rfc3339(HOUR_S / 2))
        wait_until(lambda: {server.get(f"/v1/policies/{policy}").status for server in servers}
                   == {200}, "both know it")
        # One would have opened an hour ago, the other would open in an hour.
        early = [server.claim(policy, "early") for server in servers]
        if time.time() < opens_at:
            for answer in early:
                expect_problem(answer, 403, "NOT_OPEN")
        for server in servers:
            wait_until(lambda server=server: server.claim(policy, "first").status in (200, 202),
                       "it opens", 30)
            assert time.time() >= opens_at - 0.001
        # Whoever is answered before another asks has the smaller seq, whichever server it was.
        seqs = [server.claim(policy, f"u{number}-{place}").json["seq"]
                for number in range(20) for place, server in enumerate(servers)]
        assert seqs == sorted(set(seqs))
        with shop.crowd(told, [policy], servers=servers) as crowd:
            crowd.await_sold_out([policy])
        shop.settle([policy])
        told.check(shop.database, policy)
        shop.await_sold(policy, 300)
        rows = coupons(shop.database, policy)
        asked = [row["requested_at"] for row in rows]
        assert asked == sorted(asked), "the order of seqs is not that of time"
        now_ms = time.time() * 1000
        assert all(abs(now_ms - at) < 600_000 for at in asked), (now_ms, asked[0], asked[-1])
        # Stock is left, and it closes for both at once.
        other, users = shop.create(10 ** 6), itertools.count()
        closes_at = time.time() + 1.5
        assert shop.servers[0].patch(other, closes_at=now_rfc3339(1.5)).status == 200
        for server in (behind, ahead):
            wait_until(lambda server=server: server.claim(other, "one").status in (200, 202)
                       or time.time() > closes_at, "it is open", 30)
        for server in (behind, ahead):
            wait_until(lambda server=server: server.claim(other, f"u{next(users)}").code == "CLOSED",
                       "it closes", 30)
            assert time.time() >= closes_at - 0.001
