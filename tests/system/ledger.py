"""Reads the SQLite ledger beside the running server, read-only, and proves its sums."""

import contextlib
import sqlite3

ACTIVE = "('ISSUED', 'REDEEMED')"


@contextlib.contextmanager
def snapshot(database):
    """A read-only connection inside one read transaction."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30,
                                 isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        yield connection
    finally:
        connection.close()


def rows(database, query, *arguments):
    with snapshot(database) as connection:
        return [dict(row) for row in connection.execute(query, arguments)]


def coupons(database, policy_id):
    """All coupon rows of a policy by rising seq."""
    return rows(database, "SELECT * FROM coupon WHERE policy_id = ? ORDER BY seq", policy_id)


def audit(database):
    """Guarantees 1, 2 and 6 in one snapshot; returns {policy id: active coupons}."""
    with snapshot(database) as connection:
        assert connection.execute("PRAGMA quick_check").fetchone()[0] == "ok"
        return {policy["id"]: _audit_policy(connection, policy)
                for policy in connection.execute("SELECT * FROM policy").fetchall()}


def _audit_policy(connection, policy):
    def one(query, *arguments):
        return connection.execute(query, (policy["id"], *arguments)).fetchone()[0]

    name = f"policy {policy['id']}"
    active = one(f"SELECT count(*) FROM coupon WHERE policy_id = ? AND state IN {ACTIVE}")
    lent = one(
        "SELECT coalesce(sum(lease.count - (SELECT count(*) FROM coupon"
        " WHERE coupon.policy_id = lease.policy_id AND coupon.seq >= lease.first_seq"
        " AND coupon.seq < lease.first_seq + lease.count)), 0)"
        " FROM lease WHERE policy_id = ? AND state = 'OPEN'")
    total, unleased = policy["total"], policy["unleased"]
    assert active <= total, f"{name} is oversold: {active} of {total}"
    assert unleased >= 0 and lent >= 0, f"{name}: {unleased} unleased, {lent} lent"
    assert total == unleased + lent + active, (
        f"{name} does not add up: total {total} != {unleased} unleased + {lent} lent"
        f" + {active} active")

    seqs, distinct, highest = connection.execute(
        "SELECT count(seq), count(DISTINCT seq), coalesce(max(seq), 0) FROM coupon"
        " WHERE policy_id = ?", (policy["id"],)).fetchone()
    assert seqs == distinct, f"{name}: a seq was given twice"
    assert highest < policy["next_seq"], f"{name}: seq {highest} from outside every lease"

    most = one(f"SELECT coalesce(max(held), 0) FROM (SELECT count(*) AS held FROM coupon"
               f" WHERE policy_id = ? AND state IN {ACTIVE} GROUP BY user_id)")
    assert most <= policy["per_user_limit"], f"{name}: a user holds {most}"
    slots = one(f"SELECT count(*) FROM coupon WHERE policy_id = ?"
                f" AND slot IS NOT (CASE WHEN state IN {ACTIVE} THEN nth END)")
    assert slots == 0, f"{name}: {slots} coupons whose slot does not fit their state"

    overlap = one("SELECT count(*) FROM lease a JOIN lease b ON a.policy_id = b.policy_id"
                  " AND a.id < b.id AND a.first_seq < b.first_seq + b.count"
                  " AND b.first_seq < a.first_seq + a.count WHERE a.policy_id = ?")
    assert overlap == 0, f"{name}: {overlap} leases overlap"
    return active
