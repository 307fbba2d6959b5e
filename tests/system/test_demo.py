"""`dibs serve --demo`: a newcomer sees a drop happen, and it is as exact as any other."""

import time

from harness import expect, run_dibs, run_serve, wait_until
from wire import SLOW

TOTAL = 500


def drops(server):
    return [policy for policy in expect(server.get("/v1/policies"), 200)["items"]
            if policy["name"] == "Demo drop"]


def test_demo__a_drop_that_people_can_watch(serve):
    began = time.time()
    server = serve(arguments=["--demo"])
    (drop,) = wait_until(lambda: drops(server), "a drop")
    opens_at = time.mktime(time.strptime(drop["opens_at"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    assert drop["state"] == "SCHEDULED" and drop["total"] == TOTAL
    assert began + 3 < opens_at <= time.time() + 6
    assert len(server.await_events("demo", 1)) == 1
    top = wait_until(lambda: expect(server.get("/v1/products/top"), 200)["items"], "sales")
    assert top[0]["name"]

    # What people make beside it is theirs.
    mine = server.create(id=1, total=2)
    assert server.win(mine["id"], "u1")["seq"] == 1

    with server.events_of(f"/v1/policies/{drop['id']}/live") as stream:
        assert stream.next()[0] == "history"
        counts = {}
        deadline = time.monotonic() + 60 * SLOW
        while True:
            numbers = stream.next()[1]
            counts.update({second["t"]: second for second in numbers["last"]})
            sold_out = sum(second["sold_out"] for second in counts.values())
            # Too early, in time, again, too late: all of them have come.
            if numbers["policy"]["state"] == "SOLD_OUT" and sold_out > 0:
                break
            assert time.monotonic() < deadline, numbers
    assert sum(second["other"] for second in counts.values()) > 0
    assert sum(second["already_issued"] for second in counts.values()) > 0
    wait_until(lambda: server.policy(drop["id"])["issued"] == TOTAL, "all issued")
    with server.events_of(f"/v1/policies/{drop['id']}/events") as stream:
        numbers = stream.next()[1]
        assert (numbers["remaining"], numbers["pending"], numbers["issued"]) == (0, 0, TOTAL)
    assert run_dibs("audit", "--url", f"http://127.0.0.1:{server.address[1]}").returncode == 0

    # It ends with the server, and the next run tidies up.
    begin = time.monotonic()
    server.stop()
    assert time.monotonic() - begin < 30 * SLOW
    server.start()
    wait_until(lambda: [policy["state"] for policy in drops(server)] == ["CLOSED", "SCHEDULED"],
               "a new drop")
    assert server.policy(drop["id"])["issued"] == TOTAL


def test_demo__only_on_loopback(tmp_path):
    done = run_serve(f"sqlite:{tmp_path}/dibs.db", "--demo", listen="0.0.0.0:0",
                     config={"admin_token": "a-token-that-is-long-enough"})
    assert done.returncode == 2
    assert "demo: makes policies" in done.stderr
