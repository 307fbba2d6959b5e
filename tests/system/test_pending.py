"""What is won and not yet in the ledger: listed page by page, the oldest first, on every gate."""

import json
import threading

import pytest

from harness import expect, expect_problem, run_dibs, wait_until
from ledger import standing_still
from servers import Redis
from sharing import Sharing


def pages(server, policy, limit):
    """All pages; each but the last is full."""
    found, after = [], ""
    while True:
        page = expect(server.get(f"/v1/policies/{policy}/pending?limit={limit}{after}"), 200)
        found.append(page["items"])
        if page["next"] is None:
            assert all(len(items) == limit for items in found[:-1]) and len(found[-1]) <= limit
            return found
        after = f"&after={page['next']}"


def check(server, policy, users):
    items = [item for page in pages(server, policy, 7) for item in page]
    assert [item["seq"] for item in items] == sorted({item["seq"] for item in items})
    assert {item["user"] for item in items} == set(users)
    assert len(items) == len(users)
    for item in items:
        assert item["coupon_id"] == f"{policy}-{item['seq']}" and item["nth"] == 1
        shown = expect(server.status(policy, item["user"]), 200)
        assert shown["state"] == "PENDING" and shown["requested_at"] == item["requested_at"]
    ended = run_dibs("policy", "pending", str(policy), "--url",
                     f"http://127.0.0.1:{server.address[1]}")
    assert ended.returncode == 0, ended
    lines = ended.stdout.splitlines()
    assert [int(line.split()[0]) for line in lines[1:]] == [item["seq"] for item in items]


def pending(server, policy):
    return expect(server.get(f"/v1/policies/{policy}/pending?limit=1000"), 200)["items"]


@pytest.mark.gate_local("its ledger stands still for a moment; the shared gate's is below")
def test_pending__of_a_local_gate(server):
    policy = server.create(total=100)["id"]
    before = [f"before{i}" for i in range(5)]
    users = [f"u{i}" for i in range(20)]
    server.claims(policy, before)
    assert pending(server, policy) == []
    with standing_still(server.database):
        crowd = threading.Thread(target=server.claims, args=(policy, users))
        crowd.start()
        wait_until(lambda: len(pending(server, policy)) == len(users), "all are pending", 30)
        check(server, policy, users)
    crowd.join()
    wait_until(lambda: pending(server, policy) == [], "they are issued", 30)
    for user in users:
        assert expect(server.status(policy, user), 200)["state"] == "ISSUED"


@pytest.mark.refused("nothing is pending of it")
def test_pending__of_no_policy_and_with_wrong_words(shared):
    expect_problem(shared.get("/v1/policies/987654321/pending"), 404, "POLICY_NOT_FOUND")
    policy = shared.create(total=1)["id"]
    assert pending(shared, policy) == []
    for query in ("limit=0", "limit=1001", "after=x", "before=1"):
        expect_problem(shared.get(f"/v1/policies/{policy}/pending?{query}"), 400,
                       "INVALID_REQUEST")
    ended = run_dibs("policy", "pending", str(policy), "--url",
                     f"http://127.0.0.1:{shared.address[1]}")
    assert ended.returncode == 0 and "Nothing is pending." in ended.stdout + ended.stderr


@pytest.mark.gate_local("it has its own Redis")
def test_pending__of_a_shared_gate(tmp_path):
    """Without a worker, while the database is away, until the rows are there."""
    users = [f"u{i:03}" for i in range(1100)]
    with Redis() as redis, Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        policy = server.create(total=2000)["id"]
        assert pending(server, policy) == []
        won = server.claims(policy, users[:20])
        assert {outcome.answer.status for outcome in won} == {202}
        check(server, policy, users[:20])
        # More than the gate tells at once.
        server.claims(policy, users[20:])
        assert len(pending(server, policy)) == 1000
        assert sum(len(page) for page in pages(server, policy, 300)) == 1100
        shop.database.server.pause()
        assert len(pending(server, policy)) == 1000
        shop.database.server.resume()
        shop.work()
        shop.await_drained(policy)
        wait_until(lambda: pending(server, policy) == [], "nothing is pending")
        assert len(shop.holders(policy)) == 1100
        redis.pause()
        expect_problem(server.get(f"/v1/policies/{policy}/pending"), 503, "UNAVAILABLE")
        redis.resume()


def test_pending__json_of_the_command_is_a_page(shared):
    policy = shared.create(total=1)["id"]
    ended = run_dibs("policy", "pending", str(policy), "--json", "--url",
                     f"http://127.0.0.1:{shared.address[1]}")
    assert json.loads(ended.stdout) == {"items": [], "next": None}
