"""No statement reads a whole table of coupons on PostgreSQL, however much the planner knows."""

import contextlib
import json
import re

import pytest

from harness import Server, expect
from ledger import ServedDatabase, statements_of
from servers import Postgres, rows_of

# It shows a sanitizer nothing that the other tests do not.
pytestmark = pytest.mark.heavy

POLICIES = 12
COUPONS = 10_000    # of each
REPEATS = 40        # The planner settles on a plan after a few runs, on each connection.

# Arguments that stand for what is asked for: one policy, one lease, one user. A page of one tempts
# the planner to walk until it comes.
ARGUMENTS = {
    "lease_balance": "3",
    "lease_rows": "3, 1, 900",
    "coupon_insert": "ARRAY[3], ARRAY[20000], ARRAY['u'], ARRAY[1], ARRAY[1], ARRAY['ISSUED'],"
                     " ARRAY['x'::bytea], ARRAY[3], ARRAY[1], ARRAY[1], NULL, NULL, NULL",
    "coupon_by_seq": "3, 17",
    "coupon_for_update": "3, 17",
    "coupon_by_slot": "3, 'user-17', 1",
    "coupon_list_of_user": "'user-17', 0, 0, 1",
    "coupon_list_of_claimant": "3, 'user-17', 1",
    "coupon_list_of_policy": "3, 0, 500",
    "coupon_redeem": "3, 17, 1, 'order'",
    "coupon_cancel": "3, 17, 1",
    "coupon_scan": "3, 5",
    "coupon_range": "3, 0, 500, 500",
    "coupon_sums": "3",
    "coupon_stray": "3",
    "coupon_adopt": "3",
    "user_over_limit": "3, 1",
    "coupon_crowded": "3, 1",
    "coupon_free_slots": "3",
    "coupon_unplace": "3, 17",
    "coupon_place": "3, 17, 1",
    "coupon_keep": "3, 17, 'kept'",
    "coupon_scan_of_policy": "3",
    "key_scan_of_policy": "3",
    "entering_list": "3, 100",
    "entering_keys": "3, 900",
    "entering_delete": "3, 17, 1, 'ISSUED'",
    "entering_left": "3, 17, 'ISSUED'",
    "reserve_among": "3, '[\"user-17\"]'",
    "erase_open": "'user-17', 1, 5",
    "erase_keys": "'user-17', 3",
    "erase_coupons": "'user-17', 'erased-1', 'gone'",
}
OF_A_USER = ("coupon_by_slot", "coupon_list_of_user", "coupon_list_of_claimant", "erase_open",
             "erase_keys", "erase_coupons")


@pytest.fixture(name="database", params=["with statistics", "without statistics"])
def fixture_database(request):
    """A ledger with many coupons, of which the planner knows or does not."""
    settings = {"autovacuum": "off", "session_preload_libraries": "auto_explain",
                "auto_explain.log_min_duration": 0}
    with Postgres(settings=settings) as server:
        database = ServedDatabase(server)
        with Server(database=database) as dibs:
            for _ in range(POLICIES):
                dibs.create(total=COUPONS, limit=3)
        database.execute(f"""
            INSERT INTO coupon (policy_id, seq, lease_id, requested_at, issued_at, nth, slot,
                request_id, user_id, state)
            SELECT l.policy_id, seq, l.id, 1, 1, 1, 1, decode(md5(seq::text), 'hex'),
                'user-' || seq, 'ISSUED'
            FROM generate_series(1, {COUPONS - 1000}) seq, lease l""")
        if request.param == "with statistics":
            database.execute("VACUUM ANALYZE")
        yield database


def nodes_of(plan):
    """All nodes of a plan."""
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes_of(child)


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_explain__every_statement_finds_coupons_by_an_index(database, mode):
    texts = {name: text for name, text in statements_of("postgres").items()
             if re.search(r"\bcoupon\b", text)}
    assert texts.keys() == ARGUMENTS.keys()
    with contextlib.closing(database.server.connect(database.name)) as connection:
        rows_of(connection, f"SET plan_cache_mode = {mode}")
        rows_of(connection, "SET enable_sort = off")  # As in the snapshot that a gate is made from.
        for name, text in texts.items():
            if name != "coupon_scan":
                rows_of(connection, "RESET enable_sort")
            rows_of(connection, f"PREPARE {name} AS {text}")
            arguments = f"({ARGUMENTS[name]})" if ARGUMENTS[name] else ""
            (row,) = rows_of(connection, f"EXPLAIN (FORMAT JSON) EXECUTE {name}{arguments}")
            (answer,) = row.values()
            plan = answer[0]["Plan"]
            kinds = [(node["Node Type"], node.get("Relation Name")) for node in nodes_of(plan)]
            assert ("Seq Scan", "coupon") not in kinds, (name, json.dumps(plan, indent=1))
            indexes = {node["Index Name"] for node in nodes_of(plan) if "Index Name" in node}
            wanted = "coupon_user_slot" if name in OF_A_USER else "coupon_pkey"
            if name == "coupon_crowded":  # Users of a policy, and then the coupons of each.
                indexes.discard("coupon_user_slot")
            assert name == "coupon_insert" or \
                {index for index in indexes if index.startswith("coupon")} == {wanted}, (name, plan)
            if name == "coupon_insert":
                assert plan["Conflict Arbiter Indexes"] == ["coupon_pkey"], plan
            if name == "coupon_scan":
                assert kinds == [("Index Scan", "coupon")], plan
            rows_of(connection, "SET enable_sort = off")


def test_explain__leases_of_a_policy_and_orders_of_a_day_by_an_index(database):
    database.execute("""INSERT INTO lease (policy_id, first_seq, count, state)
        SELECT 1 + n % 12, 1000000 + n, 0, 'CLOSED' FROM generate_series(1, 20000) n""")
    database.execute("""INSERT INTO sale_order (paid_at, received_at, day, order_id, digest)
        SELECT 1, 1, n / 100, 'o' || n, '' FROM generate_series(1, 20000) n""")
    database.execute("""INSERT INTO sale_item (quantity, order_id, product_id)
        SELECT 1, 'o' || n, 'p' FROM generate_series(1, 20000) n""")
    database.execute("ANALYZE lease, sale_order, sale_item")
    with contextlib.closing(database.server.connect(database.name)) as connection:
        for name, arguments in (("lease_all_of_policy", "3"), ("moment_scan", "7, 8")):
            rows_of(connection, f"PREPARE {name} AS {statements_of('postgres')[name]}")
            (row,) = rows_of(connection, f"EXPLAIN (FORMAT JSON) EXECUTE {name}({arguments})")
            (answer,) = row.values()
            indexes = {node.get("Index Name") for node in nodes_of(answer[0]["Plan"])}
            wanted = "lease_policy" if name == "lease_all_of_policy" else "sale_order_day"
            assert wanted in indexes, (name, answer)


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


def test_explain__what_a_server_really_asks(database):
    """As the server itself logs it, from the restoring of the gate to its end."""
    start = database.server.log_path.stat().st_size
    with Server(database=database) as dibs:
        use_everything(dibs)
    log = database.server.log_path.read_text()[start:]
    plans = re.findall(r"duration: \S+ ms  plan:\n\tQuery Text: (.*?)(?=\n\S)", log, flags=re.S)
    for plan in plans:
        assert "Seq Scan on coupon" not in plan, plan
    used = {name for name, text in statements_of("postgres").items()
            if any(plan.replace("\n\t", "\n").startswith(text.strip()) for plan in plans)}
    assert used >= {"coupon_insert", "coupon_by_seq", "coupon_for_update", "coupon_list_of_user",
                    "coupon_redeem", "coupon_cancel", "coupon_scan", "lease_list_open"}, used
