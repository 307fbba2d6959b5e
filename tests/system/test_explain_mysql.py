"""No statement reads a whole table of coupons on MariaDB, however much the optimizer knows."""

import contextlib
import re

import pytest

from harness import Server, expect
from ledger import ServedDatabase, statements_of
from servers import MariaDB, rows_of

# It shows a sanitizer nothing that the other tests do not.
pytestmark = pytest.mark.heavy

POLICIES = 12
COUPONS = 10_000    # of each
REPEATS = 20

# Values that stand for what is asked for: one policy, one lease, one user.
VALUES = {
    "lease_rows": [3, 1, 900],
    "coupon_by_seq": [3, 17],
    "coupon_for_update": [3, 17],
    "coupon_by_slot": [3, "user-17", 1],
    "coupon_list_of_user": ["user-17", 0, 0, 100],
    "coupon_list_of_claimant": [3, "user-17", 10],
    "coupon_list_of_policy": [3, 9500, 500],  # the last page; LIMIT is not in the estimate
    "coupon_redeem": [3, 17, 1, "order"],
    "coupon_cancel": [3, 17, 1],
    "coupon_scan": [3, 5],
    "coupon_scan_of_policy": [3],
    "coupon_range": [3, 0, 500, 500],
    "coupon_sums": [3],
    "coupon_stray": [3],
    "coupon_adopt": [3],
    "user_over_limit": [3, 1],
    "coupon_crowded": [3, 1],
    "coupon_free_slots": [3],
    "coupon_unplace": [3, 17],
    "coupon_place": [3, 17, 1],
    "coupon_keep": [3, 17, "kept"],
    "key_scan_of_policy": [3],
    "entering_list": [3, 100],
    "entering_keys": [3, 900],
    "entering_delete": [3, 17, 1, "ISSUED"],
    "entering_left": [3, 17, "ISSUED"],
    "reserve_among": [3, '["user-17"]'],
    "erase_open": ["user-17", 1, 5],
    "erase_keys": ["user-17", 3],
    "erase_coupons": ["user-17", "erased-1", "gone"],
    "coupon_conflicting": ['[[3, 17, "user-17", 1], [3, 18, "user-18"]]'],
}
# Those that are for all coupons of a policy.
WHOLE_POLICY = ("coupon_scan_of_policy", "coupon_sums", "coupon_stray", "coupon_adopt",
                "user_over_limit", "coupon_crowded", "coupon_free_slots",
                "key_scan_of_policy")


def explain(connection, text, values):
    """The rows of EXPLAIN, of a statement that is prepared as the driver prepares it."""
    order = [int(number) for number in re.findall(r"\?(\d+)", text)]
    for number, value in enumerate(values, 1):
        rows_of(connection, f"SET @v{number} = %s", value)
    rows_of(connection, "PREPARE asked FROM %s", "EXPLAIN " + re.sub(r"\?\d+", "?", text))
    using = ", ".join(f"@v{number}" for number in order)
    return rows_of(connection, "EXECUTE asked" + (f" USING {using}" if using else ""))


@pytest.fixture(name="database", params=["with statistics", "without statistics"])
def fixture_database(request):
    """A ledger with many coupons, of which the optimizer knows or does not."""
    settings = {"innodb-stats-auto-recalc": 0, "slow-query-log": 1, "long-query-time": 0,
                "log-slow-verbosity": "query_plan", "slow-query-log-file": "slow.log"}
    with MariaDB(settings=settings) as server:
        database = ServedDatabase(server)
        with Server(database=database) as dibs:
            for _ in range(POLICIES):
                dibs.create(total=COUPONS, limit=3)
        database.execute(f"""
            INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id,
                requested_at, issued_at)
            SELECT l.policy_id, s.seq, CONCAT('user-', s.seq), 1, 1, 'ISSUED', UNHEX(MD5(s.seq)),
                l.id, 1, 1
            FROM lease l JOIN seq_1_to_{COUPONS - 1000} s""")
        if request.param == "with statistics":
            database.execute("ANALYZE TABLE policy, lease, coupon, blocked_user")
        yield database


def test_explain__every_statement_finds_coupons_by_an_index(database):
    texts = {name: text for name, text in statements_of("mysql").items()
             if re.search(r"\b(FROM|\w*JOIN|UPDATE) coupon\b", text)}
    assert texts.keys() == VALUES.keys()
    with contextlib.closing(database.server.connect(database.name)) as connection:
        for name, text in texts.items():
            rows = explain(connection, text, VALUES[name])
            coupons = [row for row in rows if row["table"] in ("c", "coupon")]
            assert coupons, (name, rows)
            if name == "coupon_scan":
                # In the order of the key, not sorted afterwards.
                assert [(row["type"], row["key"]) for row in coupons] == [("range", "PRIMARY")], rows
                assert "filesort" not in coupons[0]["Extra"], rows
                continue
            for row in coupons:
                assert row["type"] in ("const", "eq_ref", "ref", "range"), (name, rows)
                assert name in WHOLE_POLICY or int(row["rows"]) <= 1000, (name, rows)


def test_explain__leases_of_a_policy_and_orders_of_a_day_by_an_index(database):
    database.execute("""INSERT INTO lease (policy_id, first_seq, count, state)
        SELECT 1 + seq MOD 12, 1000000 + seq, 0, 'CLOSED' FROM seq_1_to_20000""")
    database.execute("""INSERT INTO sale_order (paid_at, received_at, day, order_id, digest)
        SELECT 1, 1, seq DIV 100, CONCAT('o', seq), '' FROM seq_1_to_20000""")
    database.execute("""INSERT INTO sale_item (quantity, order_id, product_id)
        SELECT 1, CONCAT('o', seq), 'p' FROM seq_1_to_20000""")
    database.execute("ANALYZE TABLE lease, sale_order, sale_item")
    with contextlib.closing(database.server.connect(database.name)) as connection:
        for name, values, table, key in (
                ("lease_all_of_policy", [3], "lease", "lease_policy"),
                ("moment_scan", [7, 8], "o", "sale_order_day")):
            rows = explain(connection, statements_of("mysql")[name], values)
            assert [row["key"] for row in rows if row["table"] == table] == [key], (name, rows)


def use_everything(dibs):
    """A bit of every call that asks for coupons, each many times."""
    policies = [policy["id"] for policy in expect(dibs.get("/v1/policies"), 200)["items"]]
    assert len(policies) == POLICIES
    for i in range(REPEATS):
        policy = policies[i % 3]
        user = f"user-{i + 1}"
        seq = dibs.win(policy, user)["seq"]
        expect(dibs.claim(policy, f"new-{i}", key=f"key-{i}"), 201)
        expect(dibs.claim(policy, f"new-{i}", key=f"key-{i}"), 200)
        expect(dibs.status(policy, user), 200)
        expect(dibs.get(f"/v1/users/{user}/coupons"), 200)
        expect(dibs.get(f"/v1/coupons/{policy}-{seq}"), 200)
        expect(dibs.post(f"/v1/coupons/{policy}-{seq}/redeem", {"order_id": f"o{i}"}), 200)
        expect(dibs.cancel(f"{policy}-{i + 1}"), 200)
        expect(dibs.patch(policies[4 + i % 3], total=COUPONS - i), 200)
        expect(dibs.request("PUT", f"/v1/users/bad-{i}", {"blocked": True}), 200)
    for policy in policies[8:]:
        expect(dibs.request("DELETE", f"/v1/policies/{policy}"), 200)


def logged(log):
    """(text, rows examined, whether a table was read in full) of what dibs asked."""
    for entry in re.split(r"^# User@Host: ", log, flags=re.M)[1:]:
        if not entry.startswith("dibs["):
            continue
        lines = entry.splitlines()
        text = " ".join(line for line in lines[1:]
                        if not re.match(r"#|SET timestamp|use |--", line))
        examined = re.search(r"Rows_examined: (\d+)", entry)
        yield " ".join(text.split()), int(examined[1]), "Full_scan: Yes" in entry


def test_explain__what_a_server_really_asks(database):
    """As the database logs it, from the restoring of the gate to the server's end."""
    path = database.server.data / "slow.log"
    start = path.stat().st_size
    with Server(database=database) as dibs:
        use_everything(dibs)
    entries = [entry for entry in logged(path.read_text("utf-8", errors="replace")[start:])
               if re.search(r"\bcoupon\b", entry[0])]
    scans = [entry for entry in entries if "FORCE INDEX (PRIMARY)" in entry[0]]
    assert len(scans) == 1 and scans[0][1] >= POLICIES * (COUPONS - 1000), scans
    for text, examined, is_full in entries:
        if "FORCE INDEX (PRIMARY)" not in text:
            # The table that a sorted union makes is read in full; what was examined for it counts.
            assert not is_full or "UNION ALL" in text, text
            # Only counting what a lease has given out takes its whole range.
            assert examined <= (COUPONS if "COUNT(*)" in text else 100), (examined, text)
    for part in ("INSERT INTO coupon", "UPDATE coupon SET state = 'REDEEMED'",
                 "UPDATE coupon SET state = 'CANCELLED'", "FOR UPDATE",
                 "FORCE INDEX (coupon_user_slot)"):
        assert any(part in text for text, _, _ in entries), part
