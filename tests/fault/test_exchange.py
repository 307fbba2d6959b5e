"""The file of the ledger is replaced or deleted under the running server: noticed before anything is
committed to what nobody can open any more, and repaired from what the gate remembers."""

import contextlib
import json
import os
import shutil
import sqlite3

import pytest

from harness import expect, expect_problem, run_dibs, run_serve, wait_until
from ledger import audit, coupons


def copy(database, path):
    """A backup as docs/operations/backup.md has it."""
    with contextlib.closing(sqlite3.connect(f"file:{database.path}?mode=ro", uri=True)) as source:
        source.execute("VACUUM INTO ?", (str(path),))


def dibs_audit(server, *arguments, code):
    ended = run_dibs("audit", "--url", f"http://127.0.0.1:{server.address[1]}", "--json",
                     *arguments, timeout_s=120)
    assert ended.returncode == code, ended
    return json.loads(ended.stdout)


def away(server):
    answer = server.get("/readyz")
    return answer.status == 503 and "replaced or deleted" in str(answer.json)


def expect_stopped(server, policy):
    """503 with the reason, also when nobody asks; nothing is taken for absent, nothing is given."""
    wait_until(lambda: away(server), "it is noticed", timeout_s=30)
    for n in range(3):
        expect_problem(server.claim(policy, f"meanwhile-{n}"), 503, "UNAVAILABLE")
    for path in (f"/v1/policies/{policy}", "/v1/coupons/4711-1", "/v1/users/nobody/coupons"):
        expect_problem(server.get(path), 503, "UNAVAILABLE")
    assert dibs_audit(server, code=3)["ledger"]["state"] == "BEHIND"
    # Nor does anybody else give them out: the name is locked as well as the file.
    ended = run_serve(server.database.url)
    assert ended.returncode == 1 and "in use" in ended.stderr, ended


@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_exchange__noticed_refused_repaired(serve, tmp_path, how):
    server = serve()
    database = server.database
    policy = server.create(total=20)["id"]
    told = {f"u{i}": server.win(policy, f"u{i}")["seq"] for i in range(3)}
    copy(database, tmp_path / "backup.db")
    told |= {f"u{i}": server.win(policy, f"u{i}")["seq"] for i in range(3, 6)}
    expect(server.cancel(f"{policy}-1"), 200)
    if how == "replaced":
        os.rename(tmp_path / "backup.db", database.path)
    else:
        database.path.unlink()
    # The first to ask: no 201 for a row in a file that has no name.
    expect_problem(server.claim(policy, "first"), 503, "UNAVAILABLE")
    expect_stopped(server, policy)
    report = dibs_audit(server, "--repair", "--yes", code=0)
    assert report["ledger"]["state"] == "OK" and report["repair"]["repaired"] is True
    rows = {row["user_id"]: row for row in coupons(database, policy)}
    assert {user: rows[user]["seq"] for user in told} == told
    assert rows["u0"]["state"] == "CANCELLED" and rows["u5"]["state"] == "ISSUED"
    for user in ("u1", "u5"):
        assert expect(server.claim(policy, user), 200)["seq"] == told[user]
    wait_until(lambda: server.claim(policy, "first").status in (200, 201), "claims go on")
    audit(database)
    server.restart()
    assert expect(server.claim(policy, "u4"), 200)["seq"] == told["u4"]
    assert server.win(policy, "new")["seq"] not in told.values()
    audit(database)


def test_exchange__the_same_file_is_brought_back(serve, tmp_path):
    """Nothing is lost then, and nothing has to be repaired."""
    server = serve()
    policy = server.create(total=10)["id"]
    seq = server.win(policy, "u1")["seq"]
    os.rename(server.database.path, tmp_path / "aside.db")
    expect_stopped(server, policy)
    os.rename(tmp_path / "aside.db", server.database.path)
    wait_until(lambda: server.get("/readyz").status == 200, "it is noticed", timeout_s=30)
    assert expect(server.claim(policy, "u1"), 200)["seq"] == seq
    server.win(policy, "u2")
    audit(server.database)


def test_exchange__another_ledger_is_not_written_to(serve, tmp_path):
    """It is not an older copy: refused, and not a byte of it is changed."""
    other = serve(database=type(serve().database)(tmp_path / "other.db"))
    strange = other.create(total=5, id=4711)["id"]
    other.win(strange, "stranger")
    other.stop()
    server = serve()
    policy = server.create(total=10)["id"]
    server.win(policy, "u1")
    shutil.copy(tmp_path / "other.db", tmp_path / "copy.db")
    os.rename(tmp_path / "copy.db", server.database.path)
    wait_until(lambda: away(server), "it is noticed", timeout_s=30)
    ended = run_dibs("audit", "--url", f"http://127.0.0.1:{server.address[1]}", "--repair", "--yes",
                     timeout_s=60)
    assert ended.returncode != 0 and "not an older copy" in ended.stdout + ended.stderr, ended
    expect_problem(server.claim(policy, "u2"), 503, "UNAVAILABLE")
    assert away(server)
    server.kill()
    assert [row["user_id"] for row in coupons(server.database, strange)] == ["stranger"]
    assert not coupons(server.database, policy)
