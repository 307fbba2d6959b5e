"""Fills a ledger with many policies by a few statements, as years of selling would."""

import contextlib
import sqlite3

POLICY_ROWS = """INSERT INTO policy (id, name, discount_type, discount_value, total, per_user_limit,
    reserve, paused, created_at, version, unleased, next_seq)
SELECT n, 'one of many', 'percent', 10, {total}, 1, 0, 0, 1, 1, 0, {total} + 1 FROM {policies}"""
LEASE_ROWS = """INSERT INTO lease (policy_id, first_seq, count, state)
SELECT n, 1, {total}, 'OPEN' FROM {policies}"""
COUPON_ROWS = """INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id,
    requested_at, issued_at)
SELECT n / {claims} + 1, n % {claims} + 1, 'user-' || (1000000000 + n), 1, 1, 'ISSUED', {request_id},
    n / {claims} + 1, 1700000000000, 1700000000000 FROM {all}"""


def _statements(policies, total, claims, numbers, request_id):
    """`numbers` gives a table of so many numbers n from a first one."""
    words = {"total": total, "claims": claims, "policies": numbers(1, policies),
             "all": numbers(0, policies * claims), "request_id": request_id}
    texts = [POLICY_ROWS, LEASE_ROWS] + ([COUPON_ROWS] if claims > 0 else [])
    return [text.format(**words) for text in texts]


def fill_sqlite(path, policies, total, claims):
    """Policies 1, 2, … with so many units each, of which so many are sold; the ledger is empty."""
    def numbers(first, count):
        return (f"(WITH RECURSIVE r(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM r"
                f" WHERE n + 1 < {first + count}) SELECT n FROM r)")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        for text in _statements(policies, total, claims, numbers,
                                "CAST(printf('%016d', n) AS BLOB)"):
            connection.execute(text)


def fill_postgres(database, policies, total, claims):
    """The same."""
    def numbers(first, count):
        return f"generate_series({first}, {first + count - 1}) n"
    for text in _statements(policies, total, claims, numbers,
                            "decode(lpad(to_hex(n), 32, '0'), 'hex')"):
        database.execute(text)
    database.execute("VACUUM ANALYZE")
