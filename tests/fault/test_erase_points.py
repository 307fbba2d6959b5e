"""An erasure that is cut short at every named point is finished by a second call."""

import re

import pytest

from harness import ROOT, expect, wait_until
from ledger import rows
from wire import Closed

POINTS = sorted(re.findall(r'FAULT_POINT\("([a-z_.]+)"\)',
                           (ROOT / "src/claim/erase.c").read_text()))
USER = "person-of-interest-19"


def ids_in(database):
    """Who is named in the ledger."""
    found = [row["user_id"] for table in ("coupon", "refused_claim", "outbox", "blocked_user")
             for row in rows(database, f"SELECT user_id FROM {table}")]
    return found + [row["target"] for row in rows(database, "SELECT target FROM action")]


@pytest.mark.parametrize("point", POINTS)
def test_erase_points__kill(serve, point):
    """Nobody is blocked for good, and what they held is there with its key."""
    server = serve()
    over, other = (server.create(total=4)["id"] for _ in range(2))
    coupon = server.win(over, USER, "key-1")
    server.win(over, "somebody-else")
    expect(server.request("DELETE", f"/v1/policies/{over}"), 200)
    server.stop()
    server.env = {"DIBS_FAULT": f"{point}:1:kill"}
    server.start()
    wait_until(lambda: server.get("/readyz").status == 200, "it is ready")
    with pytest.raises((Closed, OSError)):
        server.post(f"/v1/users/{USER}/erase")
    server.wait()
    server.env = {}
    server.start()

    name = expect(server.post(f"/v1/users/{USER}/erase"), 200)["pseudonym"]
    assert not [id_ for id_ in ids_in(server.database) if USER in id_]
    assert not rows(server.database, "SELECT user_id FROM blocked_user")
    (held,) = expect(server.status(over, name), 200)["claims"]
    assert held["seq"] == coupon["seq"]
    assert server.win(other, USER)["nth"] == 1
    assert all(item["ok"] for item in expect(server.get("/v1/audit"), 200)["items"])
    server.restart()
    assert len(expect(server.status(over, name), 200)["claims"]) == 1
    assert expect(server.claim(other, USER), 200)["result"] == "ALREADY_ISSUED"
