"""What a server holds in memory of each of very many small policies."""

import pytest

import many
from harness import Server, expect
from ledger import KIND

# Memory that a sanitizer takes is not the server's.
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(KIND != "sqlite", reason="is filled as a file")]

POLICIES = 20_000
UNITS = 10


# Of a policy of ten coupons.
@pytest.mark.parametrize("sold,bytes_max", [(0, 1024), (UNITS, 2048)])
def test_memory__of_many_small_policies(tmp_path, sold, bytes_max):
    with Server(tmp_path) as server:
        empty = server.memory_bytes()
        server.stop()
        many.fill_sqlite(server.database.path, POLICIES, UNITS, sold)
        server.start()
        each = (server.memory_bytes() - empty) / POLICIES
        print(f"{each:.0f} bytes each")
        assert each <= bytes_max
        if sold == 0:
            for user in range(UNITS):
                server.win(POLICIES, f"u{user}")
        assert server.claim(POLICIES, "late").status == 409
        assert expect(server.get(f"/v1/policies/{POLICIES}"), 200)["state"] == "SOLD_OUT"
