"""The look before a drop, while the database is away."""

from harness import expect, wait_until


def look(server, policy):
    answer = expect(server.get(f"/v1/policies/{policy}/preflight"), 200)
    return answer["ready"], {check["name"]: check["state"] for check in answer["checks"]}


def test_preflight__says_that_the_ledger_is_away(on_victim, proxy):
    server = on_victim(proxy=proxy)
    policy = server.create(total=10)["id"]
    assert look(server, policy)[0] is True
    proxy.refuse()
    proxy.cut()
    ready, checks = wait_until(
        lambda: (seen := look(server, policy))[1]["ledger"] == "fail" and seen,
        "the ledger is seen to be away")
    assert ready is False and checks["gate"] == "ok"
    proxy.admit()
    wait_until(lambda: look(server, policy)[0], "the ledger is seen to be back", 30)
