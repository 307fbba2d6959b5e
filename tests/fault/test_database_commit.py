"""The connection breaks while a COMMIT is on its way: it is looked up, never guessed (guarantee 7).

Whether it arrived is known to the test and not to dibs: either the request is lost on the way, or
the answer; or one of them is held, and comes after dibs has given up waiting."""

import pytest

from crowd import Crowd, await_ready, expect_one_life
from harness import expect, expect_problem, tally, wait_until
from history import Claim, History
from ledger import coupons, rows
from proxy import HOLD_ANSWER, HOLD_REQUEST, LOSE_ANSWER, LOSE_REQUEST
from wire import encode

ACTIONS = {"request_lost": LOSE_REQUEST, "answer_lost": LOSE_ANSWER,
           "request_held": HOLD_REQUEST, "answer_held": HOLD_ANSWER}
COMMITTED = {"request_lost": False, "answer_lost": True, "answer_held": True}


def await_look(server, looks):
    """The next outcome of a look that says something, after so many looks."""
    def outcome():
        found = [fields["outcome"] for fields in server.events("commit_looked_up")[looks:]]
        return next((words for words in found if words != "not known yet"), None)

    return wait_until(outcome, "the outcome of a commit", timeout_s=30)


@pytest.mark.parametrize("way", ACTIONS)
def test_database_commit__under_load(on_victim, proxy, way):
    server = on_victim(proxy=proxy, ledger_timeout="1s")
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    with Crowd(server, history, [policy]) as crowd:
        for _ in range(2 if way in ("request_lost", "answer_lost") else 1):
            crowd.await_wins(50)
            looks = len(server.events("commit_looked_up"))
            trap = proxy.trap(b"COMMIT", ACTIONS[way])
            trap.wait()
            outcome = await_look(server, looks)
            if way in COMMITTED:
                assert (outcome == "committed") == COMMITTED[way], outcome
            crowd.await_wins(50)
            trap.release()  # What was held arrives now, long after it was settled without it.
            crowd.await_wins(50)
    history.check_rows(server)
    history.check_answers(server)
    expect_one_life(server)
    # Nobody got a second unit: the rows are those who won.
    assert len(coupons(server.database, policy)) == len(history.wins)


@pytest.mark.parametrize("way", ["request_lost", "answer_lost"])
def test_database_commit__in_doubt_for_a_while(on_victim, proxy, way):
    """Nothing can be asked right after: the doubt is kept, nobody is told anything, and the claims
    are neither lost nor written twice when the database can be asked again."""
    server = on_victim(proxy=proxy)
    history = History()
    policy = server.create(total=200)["id"]
    with Crowd(server, history, [policy], people=250) as crowd:
        crowd.await_wins(50)
        looks = len(server.events("commit_looked_up"))
        proxy.trap(b"COMMIT", ACTIONS[way], shuts=True).wait()
        proxy.cut()
        crowd.await_refusals(40)
        proxy.admit()
        assert (await_look(server, looks) == "committed") == COMMITTED[way]
        crowd.join()
    assert len(history.wins) == 200 == len(coupons(server.database, policy))
    history.check_rows(server)
    history.check_answers(server)


@pytest.mark.parametrize("way", ["request_lost", "answer_lost"])
def test_database_commit__killed_in_doubt(on_victim, proxy, way):
    """kill -9 of dibs before it could look: the start looks, by reading the ledger."""
    server = on_victim(proxy=proxy)
    history = History()
    policy = server.create(total=100)["id"]
    history.rush(server, (Claim(policy, f"before{i}", f"k{i}") for i in range(20)))
    proxy.trap(b"COMMIT", ACTIONS[way], shuts=True)
    history.rush(server, (Claim(policy, f"during{i}", f"d{i}") for i in range(20)))
    assert len(history.wins) == 20 and len(history.unknown) == 20
    proxy.cut()
    proxy.admit()
    server.restart()
    history.check_rows(server)
    history.retry_unknown(server)
    assert len(history.wins) == 40 == len(coupons(server.database, policy))
    history.check_rows(server)


# --- the writes of those who wait: the gate must hear of what was done without them ---


def lose(server, proxy, way, ask, shuts):
    """Asks while the COMMIT is lost; the answer, once dibs can reach its database again. Where it
    can at once, nobody notices: it looks, and does again what was not done."""
    trap = proxy.trap(b"COMMIT", ACTIONS[way], shuts=shuts)
    answer = ask()
    trap.wait()
    if shuts:
        expect_problem(answer, 503, "UNAVAILABLE")
        proxy.cut()
        proxy.admit()
    else:
        assert answer.status in (200, 201), answer
    await_ready(server)
    return answer


def in_the_end(ask, statuses):
    """Asks again until it is not 503; the answer has one of the statuses."""
    answer = wait_until(lambda: next((a for a in [ask()] if a.status != 503), None), "an answer")
    assert answer.status in statuses, answer
    return answer


WAYS = [pytest.param(way, shuts, id=f"{way}-{'shut' if shuts else 'open'}")
        for way, shuts in (("request_lost", True), ("answer_lost", True), ("answer_lost", False))]


@pytest.mark.parametrize("way,shuts", WAYS)
def test_database_commit__of_a_policy(on_victim, proxy, way, shuts):
    server = on_victim(proxy=proxy)
    body = {"id": 77, "name": "x", "discount": {"type": "fixed", "value": 5}, "total": 5}

    def create():
        return server.post("/v1/policies", body)

    first = lose(server, proxy, way, create, shuts)
    if shuts:  # It was done, or it is done now.
        in_the_end(create, {409} if way == "answer_lost" else {201})
    else:
        expect(first, 201)
    assert server.policy(77)["remaining"] == 5
    outcomes = server.claims(77, [f"u{i}" for i in range(8)])
    assert tally(outcomes) == {(201, "ISSUED"): 5, (409, "SOLD_OUT"): 3}


def test_database_commit__arrives_while_it_is_in_doubt(on_victim, proxy):
    """Whoever looks before the transaction has ended sees nothing of it, and must not believe
    that."""
    server = on_victim(proxy=proxy, ledger_timeout="1s")
    body = {"id": 77, "name": "x", "discount": {"type": "fixed", "value": 5}, "total": 2}
    trap = proxy.trap(b"COMMIT", HOLD_REQUEST)
    with server.connect() as connection:
        connection.send(encode("POST", "/v1/policies", body), "POST")
        trap.wait()
        proxy.refuse()  # Connections that stand, those of readers, can still be used.
        expect_problem(connection.receive(), 503, "UNAVAILABLE")
    assert server.get("/v1/policies/77").status in (404, 503)
    trap.release()
    wait_until(lambda: rows(server.database, "SELECT id FROM policy"), "the policy's row")
    proxy.admit()
    await_ready(server)
    assert tally(server.claims(77, ["a", "b", "c"])) == {(201, "ISSUED"): 2, (409, "SOLD_OUT"): 1}


@pytest.mark.parametrize("way,shuts", WAYS)
def test_database_commit__of_a_cancel(on_victim, proxy, way, shuts):
    server = on_victim(proxy=proxy)
    policy = server.create(total=1)["id"]
    seq = server.win(policy, "u1")["seq"]

    def cancel():
        return server.cancel(f"{policy}-{seq}")

    lose(server, proxy, way, cancel, shuts)
    if way == "request_lost" and shuts:
        expect(in_the_end(cancel, {200}), 200)
    # The unit is back in play, and so is the user, whether or not anyone was told.
    assert in_the_end(lambda: server.claim(policy, "u2"), {201, 409}).status == 201
    assert expect(server.status(policy, "u1"), 200)["coupon_state"] == "CANCELLED"
    expect(in_the_end(cancel, {200}), 200)
    expect_problem(server.claim(policy, "u1"), 409, "SOLD_OUT")
    expect(server.cancel(f"{policy}-{seq + 1}"), 200)
    assert in_the_end(lambda: server.claim(policy, "u1"), {201, 409}).status == 201


@pytest.mark.parametrize("way,shuts", WAYS)
def test_database_commit__of_a_redeem(on_victim, proxy, way, shuts):
    server = on_victim(proxy=proxy)
    policy = server.create(total=3)["id"]
    seq = server.win(policy, "u1")["seq"]

    def redeem(order="o1"):
        return server.post(f"/v1/coupons/{policy}-{seq}/redeem", {"order_id": order})

    lose(server, proxy, way, redeem, shuts)
    if way == "answer_lost" or not shuts:
        assert in_the_end(lambda: redeem("o2"), {409, 200}).status == 409
        held = expect(server.claim(policy, "u1"), 200)
        assert held["coupon_state"] == "REDEEMED"
    expect(in_the_end(redeem, {200}), 200)
    assert expect(server.claim(policy, "u1"), 200)["coupon_state"] == "REDEEMED"


@pytest.mark.parametrize("way,shuts", WAYS)
def test_database_commit__of_changes(on_victim, proxy, way, shuts):
    server = on_victim(proxy=proxy)
    done = way == "answer_lost" or not shuts
    policy = server.create(total=10)["id"]

    lose(server, proxy, way, lambda: server.patch(policy, total=12), shuts)
    shown = server.policy(policy)
    assert shown["total"] == shown["remaining"] == (12 if done else 10)
    lose(server, proxy, way, lambda: server.patch(policy, total=4), shuts)
    wanted = 4 if done else 10
    wait_until(lambda: server.policy(policy)["remaining"] == wanted, "the units that are left")
    assert server.policy(policy)["total"] == wanted

    lose(server, proxy, way, lambda: server.patch(policy, paused=True), shuts)
    if done:
        expect_problem(server.claim(policy, "u0"), 403, "PAUSED")
        expect(server.patch(policy, paused=False), 200)
    lose(server, proxy, way,
         lambda: server.request("PUT", "/v1/users/bad", {"blocked": True}), shuts)
    if done:
        expect_problem(server.claim(policy, "bad"), 403, "BLOCKED")
        lose(server, proxy, way,
             lambda: server.request("PUT", "/v1/users/bad", {"blocked": False}), shuts)
    assert server.claim(policy, "bad").status == 201
    outcomes = server.claims(policy, [f"u{i}" for i in range(14)])
    assert tally(outcomes)[201, "ISSUED"] == wanted - 1

    lose(server, proxy, way, lambda: server.request("DELETE", f"/v1/policies/{policy}"), shuts)
    if done:
        expect_problem(server.claim(policy, "late"), 410, "CLOSED")
    expect(server.request("DELETE", f"/v1/policies/{policy}"), 200)


@pytest.mark.parametrize("way,shuts", WAYS)
def test_database_commit__of_a_lease(on_victim, proxy, way, shuts):
    """A unit that came back is leased to the gate; nobody waits for that but a claim."""
    server = on_victim(proxy=proxy, ack_timeout="300ms")
    policy = server.create(total=3)["id"]
    for i in range(3):
        server.win(policy, f"u{i}")
    for i in range(3):
        expect(server.cancel(f"{policy}-{i + 1}"), 200)
    trap = proxy.trap(b"COMMIT", ACTIONS[way], shuts=shuts)
    first = server.claim(policy, "v0", key="v0")
    trap.wait()
    if shuts:
        expect_problem(first, 503, "UNAVAILABLE")
        proxy.cut()
        proxy.admit()
        await_ready(server)
    for i in range(3):
        answer = in_the_end(lambda i=i: server.claim(policy, f"v{i}", key=f"v{i}"),
                            {201, 200, 409})
        assert answer.status in (201, 200), answer
    expect_problem(server.claim(policy, "v3"), 409, "SOLD_OUT")
