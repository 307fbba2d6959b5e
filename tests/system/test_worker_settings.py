"""Settings of the worker: how much it reads at once, how long it rests, how often it tries."""

import time

import pytest

from harness import expect, wait_until
from ledger import rows
from servers import Redis
from sharing import Sharing
from test_redis_dead import letters, refuse_bad

pytestmark = pytest.mark.gate_local("it has its own Redis")


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


def looks(client, policy):
    """The calls that read what is pending of a policy since the log was emptied: their page sizes."""
    found = []
    for entry in client.slowlog_get(10000):
        words = entry["command"].split()
        if b"dibs_pending" in words and b"{%d}" % policy in entry["command"]:
            found.append(int(words[-1]))
    return found


def note_all(client):
    client.config_set("slowlog-max-len", 20000)
    client.config_set("slowlog-log-slower-than", 0)
    client.slowlog_reset()


@pytest.mark.parametrize("batch", [7, 500])
def test_worker_batch__is_what_is_read_at_once(tmp_path, redis, batch):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop, redis.client() as client:
        server = shop.serve(worker_batch=batch)
        policy = server.create(total=50)["id"]
        note_all(client)
        server.claims(policy, [f"u{i}" for i in range(50)])
        shop.await_drained(policy)
        assert len(shop.holders(policy)) == 50
        assert set(looks(client, policy)) == {batch}


def test_worker_pause__is_how_often_a_quiet_policy_is_looked_at(tmp_path, redis):
    """With 1s no more than once a second, but for the one before; nothing keeps it from being less on
    a slow machine."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop, redis.client() as client:
        server = shop.serve(worker_pause="1s")
        policy = server.create(total=5)["id"]

        def looks_of_three_seconds():
            note_all(client)
            began = time.monotonic()
            time.sleep(3)
            return len(looks(client, policy)) - (time.monotonic() - began)
        wait_until(lambda: looks_of_three_seconds() <= 1.5, "it rests", 60)
        # And yet what is won is written.
        assert server.claim(policy, "u").status == 202
        wait_until(lambda: shop.holders(policy), "it is written", 30)


def test_issue_attempts__is_how_often_a_refused_claim_is_tried(tmp_path, redis):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(issue_attempts=2)
        policy = server.create(total=3)["id"]
        refuse_bad(shop)
        assert server.claim(policy, "bad-one").status == 202
        wait_until(lambda: letters(shop), "it is given up", 30)
        assert [letter["attempts"] for letter in letters(shop)] == [2]


def test_ranking_refresh__keeps_the_answer_for_so_long(serve):
    server = serve(config={"ranking_refresh": "10m"})

    def sell(order):
        expect(server.post("/v1/orders", {"order_id": order, "items": [
            {"product_id": "sku", "quantity": 1}]}), 201)

    def sold(query=""):
        items = expect(server.get(f"/v1/products/top?days=1{query}"), 200)["items"]
        return [item["sold"] for item in items]
    sell("first")
    wait_until(lambda: sold() == [1] or sold("&fresh=true") and False, "it is told", 30)
    sell("second")
    wait_until(lambda: server.metrics()["dibs_board_applied_total"] == 2, "the board has it", 30)
    # Two refreshes of the usual length.
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        assert sold() == [1]
    assert sold("&fresh=true") == [2]
    assert rows(server.database, "SELECT * FROM sale_order") and sold() == [2]
