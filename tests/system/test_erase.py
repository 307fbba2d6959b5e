"""A person is erased: their id goes, their coupons, sums and limits stay."""

import pytest

from harness import expect, expect_problem, run_dibs, wait_until
from ledger import rows
from servers import Redis
from sharing import Sharing

TABLES = ("coupon", "refused_claim", "dead_letter", "outbox", "reserve_coupon", "blocked_user",
          "action", "repair", "claim_key")


def erase(server, user, body=None):
    return server.post(f"/v1/users/{user}/erase", body)


def everything(server):
    """All that the ledger has, as one text."""
    return "\n".join(str(row) for table in TABLES
                     for row in rows(server.database, f"SELECT * FROM {table}"))


def won(server, policy, user, key=None):
    """A coupon that is in the ledger. Another server hears within a second that they are no longer
    blocked."""
    answer = wait_until(lambda: next((answer for answer in [server.claim(policy, user, key)]
                                      if answer.code != "BLOCKED"), None), "they may claim")
    assert answer.status in (201, 202), answer
    coupon = answer.json

    def issued():
        return server.status(policy, user).json["claims"][0]["state"] == "ISSUED"
    wait_until(issued, "it is written")
    return coupon


def audit_is_fine(server, policy):
    """Gate and ledger agree on every claim."""
    (item,) = expect(server.get(f"/v1/audit?policy={policy}"), 200)["items"]
    assert item["findings"] == [], item


def coupons_of(server, user):
    return expect(server.get(f"/v1/users/{user}/coupons"), 200)["items"]


def test_erase__the_id_is_nowhere(serve):
    """Coupons of all states, keys, blocks and what operators did."""
    server = serve()
    user = "person-of-interest-17"
    policy = server.create(total=10, limit=3)["id"]
    coupons = [won(server, policy, user, f"key-{i}") for i in range(3)]
    expect(server.cancel(coupons[0]["coupon_id"]), 200)
    expect(server.post(f"/v1/coupons/{coupons[1]['coupon_id']}/redeem", {"order_id": "o1"}), 200)
    for blocked in (True, False):
        expect(server.request("PUT", f"/v1/users/{user}", {"blocked": blocked}), 200)
    other = won(server, policy, "somebody-else")
    expect(server.request("DELETE", f"/v1/policies/{policy}"), 200)
    assert user in everything(server)

    first_line = len(server.log)
    erased = expect(erase(server, user), 200)
    assert erased["coupons"] == 3 and erased["pseudonym"].startswith("erased-")
    assert user not in everything(server)
    assert not any(user in line for line in server.log[first_line:] if "user_erased" in line)
    assert coupons_of(server, user) == []
    assert {c["coupon_id"]: c["state"] for c in coupons_of(server, erased["pseudonym"])} == {
        coupons[0]["coupon_id"]: "CANCELLED", coupons[1]["coupon_id"]: "REDEEMED",
        coupons[2]["coupon_id"]: "ISSUED"}
    held = expect(server.status(policy, erased["pseudonym"]), 200)["claims"]
    assert {c["seq"] for c in held} == {c["seq"] for c in coupons}
    assert coupons_of(server, "somebody-else")[0]["coupon_id"] == other["coupon_id"]
    (note,) = [a for a in expect(server.get("/v1/actions"), 200)["items"]
               if a["what"] == "user_erased"]
    assert note["target"] == f"users/{erased['pseudonym']}"
    # A second time nothing is left to do.
    assert expect(erase(server, user), 200)["pseudonym"] == erased["pseudonym"]
    audit_is_fine(server, policy)


def test_erase__who_could_claim_again_is_not_erased_by_accident(shared):
    """An active coupon of a policy that is not over, or a block."""
    policy = shared.create(total=5)["id"]
    won(shared, policy, "keeper-1")
    problem = expect_problem(erase(shared, "keeper-1"), 409, "CONFLICT")
    assert f"policy {policy}" in problem["detail"]
    assert len(coupons_of(shared, "keeper-1")) == 1
    assert expect(shared.claim(policy, "keeper-1"), 200)["result"] == "ALREADY_ISSUED"
    expect(shared.request("PUT", "/v1/users/blocked-1", {"blocked": True}), 200)
    assert "blocked" in expect_problem(erase(shared, "blocked-1"), 409, "CONFLICT")["detail"]
    expect_problem(shared.claim(policy, "blocked-1"), 403, "BLOCKED")


def test_erase__a_cancelled_coupon_is_no_reason_to_refuse(shared):
    """Whoever holds nothing may claim anyway."""
    policy = shared.create(total=5)["id"]
    expect(shared.cancel(won(shared, policy, "canceller-1")["coupon_id"]), 200)
    assert expect(erase(shared, "canceller-1"), 200)["coupons"] == 1
    won(shared, policy, "canceller-1")


def test_erase__anyway_makes_them_new(serve):
    """They win once more, and stock and limits count both."""
    server = serve()
    policy = server.create(total=4)["id"]
    won(server, policy, "again-1")
    names = []
    for _ in range(2):
        names.append(expect(erase(server, "again-1", {"anyway": True}), 200)["pseudonym"])
        won(server, policy, "again-1")
        assert expect(server.claim(policy, "again-1"), 200)["result"] == "ALREADY_ISSUED"
    assert len(set(names)) == 2
    assert {len(coupons_of(server, name)) for name in names} == {1}
    assert len(coupons_of(server, "again-1")) == 1
    server.win(policy, "last-one")
    expect_problem(server.claim(policy, "too-late"), 409, "SOLD_OUT")
    expect_problem(erase(server, names[0], {"anyway": True}), 409, "CONFLICT")
    audit_is_fine(server, policy)


@pytest.mark.gate_local("one in Redis stays as it is while the server restarts")
def test_erase__a_restart_finds_the_pseudonym(serve):
    """The gate is built from the ledger: with the name that it had before."""
    server = serve()
    policy = server.create(total=4)["id"]
    won(server, policy, "again-2")
    name = expect(erase(server, "again-2", {"anyway": True}), 200)["pseudonym"]
    won(server, policy, "again-2")
    server.restart()
    assert len(expect(server.status(policy, name), 200)["claims"]) == 1
    assert expect(server.claim(policy, "again-2"), 200)["result"] == "ALREADY_ISSUED"


def test_erase__many_coupons_of_one_person(serve):
    """More than fit on a page, of two policies; their keys answer as before, also after a restart."""
    server = serve()
    policies = [server.create(total=300, limit=300)["id"] for _ in range(2)]
    for policy in policies:
        for i in range(230):
            server.claim(policy, "collector", f"key-{i}")
    won(server, policies[1], "collector", "last")
    last = server.claim(policies[1], "collector", "last").json
    erased = expect(erase(server, "collector", {"anyway": True}), 200)
    assert erased["coupons"] == 461 and "collector" not in everything(server)
    won(server, policies[1], "collector", "fresh")
    for _ in range(2):
        for policy in policies:
            audit_is_fine(server, policy)
            assert len(coupons_of(server, "collector")) == 1
        assert server.claim(policies[1], "collector", "last").json["seq"] == last["seq"]
        assert server.claim(policies[1], "collector", "fresh").json["seq"] == 232
        server.restart()


@pytest.mark.one_server("another server hears of a block within a second")
def test_erase__command(shared):
    """From a shell, with a name that a URL does not take as it is."""
    url = "http://{}:{}".format(*shared.address)
    user = "zoë & co"
    policy = shared.create(total=5)["id"]
    shared.win(policy, user)
    wait_until(lambda: run_dibs("user", "erase", user, "--url", url).stderr.count("policy"),
               "the coupon is there")
    done = run_dibs("user", "erase", user, "--anyway", "--url", url)
    assert done.returncode == 0 and "erased-" in done.stdout, done.stderr
    assert run_dibs("user", "block", user, "--url", url).returncode == 0
    expect_problem(shared.request("POST", f"/v1/policies/{policy}/claims", {"user": user}), 403,
                   "BLOCKED")
    assert run_dibs("user", "unblock", user, "--url", url).returncode == 0


def redis_text(redis):
    """All that a Redis has, as one text."""
    with redis.client() as client:
        read = {"string": client.get, "hash": client.hgetall,
                "list": lambda key: client.lrange(key, 0, -1),
                "zset": lambda key: client.zrange(key, 0, -1)}
        return "\n".join(f"{key} {read[client.type(key).decode()](key)}" for key in client.keys())


@pytest.mark.refused("brings a Redis and a ledger of its own")
def test_erase__redis_forgets_the_id(tmp_path):
    """Also in the keys of their requests; what is not in the ledger yet is left alone."""
    user = "person-of-interest-18"
    with Redis() as redis, Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        policy = server.create(total=10, limit=3)["id"]
        won = [server.claim(policy, user, f"key-{i}").json for i in range(2)]
        problem = expect_problem(erase(server, user), 409, "CONFLICT")
        assert "not in the ledger yet" in problem["detail"]
        shop.work()
        shop.await_drained(policy)
        expect(server.cancel(f"{policy}-{won[0]['seq']}"), 200)
        assert user in redis_text(redis)
        name = expect(erase(server, user, {"anyway": True}), 200)["pseudonym"]
        text = redis_text(redis)
        assert user not in text and name in text
        assert user not in everything(server)
        audit_is_fine(server, policy)
        # They are new, and the sums count both.
        assert server.claim(policy, user).json["nth"] == 1
        shop.await_drained(policy)


@pytest.mark.refused("brings a Redis and a ledger of its own")
def test_erase__what_is_not_in_the_ledger_yet_is_waited_for(tmp_path):
    """Also anyway, and of a policy of which the ledger has nothing: else its row would have the id."""
    user = "person-of-interest-20"
    with Redis() as redis, Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        policy, other = (server.create(total=1)["id"] for _ in range(2))
        assert server.claim(policy, user).status == 202
        problem = expect_problem(erase(server, user, {"anyway": True}), 409, "CONFLICT")
        assert f"policy {policy}" in problem["detail"] and "blocked" in problem["detail"]
        expect_problem(server.claim(other, user), 403, "BLOCKED")
        shop.work()
        shop.await_drained(policy)
        expect(erase(server, user, {"anyway": True}), 200)
        assert user not in redis_text(redis) and user not in everything(server)
        # It came to nothing, and the next one has the unit.
        wait_until(lambda: server.claim(policy, "next-one").status in (200, 201, 202), "it is back")
        shop.await_drained(policy)
        assert server.claim(other, user).status in (201, 202)
        audit_is_fine(server, policy)
