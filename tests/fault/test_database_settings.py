"""A database server whose defaults are odd, or a database with tables of somebody else: dibs sets in
its sessions what it depends on, and refuses at the start what it cannot set."""

import itertools
import re

import pytest

from harness import ROOT, expect, run_serve, tally, wait_until
from ledger import KIND, ServedDatabase, audit, rows
from servers import KINDS

# What an administrator may have set for everybody, and what would be wrong for a ledger: answers
# that are cut off, connections that end with a commit, keys that are not checked, other strings.
ODD = {
    "mysql": {
        "init-connect": "SET NAMES latin1, SESSION sql_select_limit = 100, SESSION completion_type = 2,"
                        " SESSION unique_checks = 0, SESSION foreign_key_checks = 0",
        "sql-mode": "ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
        "default-storage-engine": "MyISAM",
        "transaction-isolation": "SERIALIZABLE",
        "lower-case-table-names": 1,
        "autocommit": 0,
        "auto-increment-increment": 10,
        "auto-increment-offset": 7,
        "innodb-flush-log-at-trx-commit": 2,
    },
    "postgres": {
        "default_transaction_isolation": "serializable",
        "default_transaction_deferrable": "on",
        "array_nulls": "off",
        "bytea_output": "escape",
        "standard_conforming_strings": "off",
        "transform_null_equals": "on",
        "session_replication_role": "replica",
        "row_security": "off",
        "timezone": "Asia/Kathmandu",
        "DateStyle": "German",
        "track_activities": "off",
        "fsync": "off",
    },
}
NAME = "\U0001F600 é \"quoted\" 'twice' \\ NULL {} % _ ` " + "\U0001F680" * 40


@pytest.fixture
def odd():
    with KINDS[KIND](settings=ODD[KIND]) as database_server:
        yield database_server


def test_database_settings__odd_defaults(odd, on_database):
    server = on_database(odd, ack_timeout="10s")
    # What no session can set for itself is said instead.
    assert re.search("fsync is off|innodb_flush_log_at_trx_commit",
                     str(server.await_log("ledger_may_lose_commits")))
    database = server.database
    policy_id = server.create(total=400, limit=2, name=NAME)["id"]
    spare_id = server.create(total=100_000)["id"]
    documented = int(re.search(r"opens (\d+):", (ROOT / "docs/ledgers.md").read_text("utf-8"))[1])
    # MariaDB does not say in which database a session is that is busy just then; one more asks here,
    # and who asked before may still be listed.
    wait_until(lambda: len(database.holders(server)) == documented + 1, "all sessions are open")
    assert tally(server.claims(policy_id, [f"u{i}" for i in range(300)])) == {
        (201, "ISSUED"): 300}
    redeemed = server.win(policy_id, "NULL", key="a'b\\")["coupon_id"]
    expect(server.post(f"/v1/coupons/{redeemed}/redeem", {"order_id": "NULL"}), 200)
    cancelled = server.win(policy_id, "null")["coupon_id"]
    expect(server.cancel(cancelled), 200)
    (row,) = rows(database, f"SELECT name FROM policy WHERE id = {policy_id}")
    assert row["name"] == NAME, "others read it as it was written"
    users = (f"w{i}" for i in itertools.count())

    def ended_by_commits():
        seen = set(database.holders(server))
        won = tally(server.claims(spare_id, list(itertools.islice(users, 20))))
        assert won == {(201, "ISSUED"): 20}
        return seen - set(database.holders(server))

    wait_until(lambda: len(ended_by_commits()) <= 1,
               "only the session of whoever asked is gone: no commit ends a connection")

    before = server.policy(policy_id)
    assert before["name"] == NAME and before["issued"] == 301
    server.restart()
    after = server.policy(policy_id)
    assert {**after, "version": 0} == {**before, "version": 0}
    assert server.claim(policy_id, "NULL", key="a'b\\").status == 200
    assert expect(server.get(f"/v1/coupons/{redeemed}"), 200)["order_id"] == "NULL"
    won = tally(server.claims(policy_id, [f"v{i}" for i in range(150)]))
    assert won == {(201, "ISSUED"): 99, (409, "SOLD_OUT"): 51}
    assert audit(database)[policy_id] == 400


def test_database_settings__tables_of_somebody_else(victim, databases):
    """A shop may have coupons of its own: they are not taken for ours, and nothing is left there."""
    database = ServedDatabase(victim)
    databases.append(database)
    victim.query(database.name, "CREATE TABLE coupon (id int PRIMARY KEY, code varchar(20))")
    for _ in range(2):
        ended = run_serve(database.url)
        assert ended.returncode == 1, ended
        assert "coupon" in ended.stderr and "already" in ended.stderr, ended
    with pytest.raises(Exception, match="policy"):
        victim.query(database.name, "SELECT * FROM policy")


if KIND == "mysql":
    def test_database_settings__too_small_a_packet():
        """A batch that never fits would be tried for ever."""
        with KINDS[KIND](settings={"max-allowed-packet": 16384}) as database_server:
            ended = run_serve(database_server.create_database("shop"))
        assert ended.returncode == 1, ended
        assert "max_allowed_packet" in ended.stderr and "1048576" in ended.stderr, ended
