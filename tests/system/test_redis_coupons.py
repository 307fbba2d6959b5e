"""Coupons that change in the ledger while Redis does not hear of it."""

import pytest

from harness import expect, wait_until
from servers import Redis
from sharing import Sharing


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


def win(shop, server, policy, user):
    won = expect(server.claim(policy, user), 202)
    shop.await_drained(policy)
    return won


def test_redis_coupons__changed_while_redis_is_away(tmp_path, redis):
    """Nobody asks a second time: what Redis missed it hears when it is back."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(gate_timeout="2s")
        policy = server.create(total=10)["id"]
        coupons = {user: win(shop, server, policy, user) for user in ("leaver", "buyer")}
        redis.pause()
        assert expect(server.cancel(coupons["leaver"]["coupon_id"]), 200)["state"] == "CANCELLED"
        redeemed = server.post(f"/v1/coupons/{coupons['buyer']['coupon_id']}/redeem",
                               {"order_id": "o1"})
        assert expect(redeemed, 200)["state"] == "REDEEMED"
        redis.resume()
        wait_until(lambda: server.get("/readyz").status == 200, "Redis has heard", 30)
        won = wait_until(lambda: next((a for a in [server.claim(policy, "leaver")]
                                       if a.status == 202), None), "they may win again")
        assert won.json["seq"] != coupons["leaver"]["seq"]
        wait_until(lambda: expect(server.claim(policy, "buyer"), 200)["coupon_state"] == "REDEEMED",
                   "what they did with it")
        shop.await_drained(policy)


def test_redis_coupons__cancelled_by_someone_who_died(tmp_path, redis):
    """The ledger has the cancel, and whoever made it was killed before Redis heard of it."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(sync_interval="100ms")
        policy = server.create(total=10)["id"]
        won = win(shop, server, policy, "leaver")
        kept = win(shop, server, policy, "stayer")
        for statement in (
                "UPDATE coupon SET state = 'CANCELLED', slot = NULL, cancelled_at = 1"
                f" WHERE policy_id = {policy} AND seq = {won['seq']}",
                "UPDATE policy SET unleased = unleased + 1, version = version + 1"
                f" WHERE id = {policy}"):
            shop.database.execute(statement)
        fields = server.await_log("holders_found", 30)
        assert (fields["policy"], fields["coupons"]) == (str(policy), "1")
        wait_until(lambda: server.claim(policy, "leaver").status == 202, "they win again")
        shop.await_drained(policy)
        assert shop.holders(policy)["leaver"] != won["seq"]
        assert expect(server.claim(policy, "stayer"), 200)["seq"] == kept["seq"]
