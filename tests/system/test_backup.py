"""A copy of a SQLite ledger, taken while people claim, and put in place elsewhere."""

import json
import os
import sqlite3
import stat
import threading

from harness import Server, claim_bytes, expect, run_dibs, wait_until
from ledger import SqliteDatabase, audit


def backup(database, to, *more):
    return run_dibs("backup", to, "--ledger", database.url, "--json", *more)


def databases(folder):
    """Also what was only begun."""
    return sorted(path.name for path in folder.glob("*.db*"))


def restore(path, url, *more):
    return run_dibs("restore", path, "--ledger", url, "--json", *more)


def test_backup__under_load_lacks_no_coupon_answered_before_it(tmp_path):
    """Restored elsewhere, the audit is clean, and who had a coupon before the backup has it."""
    copies = [tmp_path / f"copy-{at}.db" for at in range(3)]
    with Server(folder=tmp_path / "one", database=SqliteDatabase(tmp_path / "dibs.db")) as server:
        policies = [server.create(total=100000)["id"] for _ in range(2)]
        stop, held = threading.Event(), [0]

        def press():
            round_ = 0
            while not stop.is_set():
                round_ += 1
                won = server.storm((claim_bytes(policies[i % 2], f"u{round_}-{i}")
                                    for i in range(200)), connections=20)
                held[0] += sum(outcome.answer.status == 201 for outcome in won)

        crowd = threading.Thread(target=press)
        crowd.start()
        try:
            answered = []
            for copy in copies:
                before = held[0]
                wait_until(lambda least=before: held[0] > least, "people win")
                answered.append(held[0])
                done = backup(server.database, copy)
                assert done.returncode == 0, done
                assert json.loads(done.stdout)["coupons"] >= answered[-1]
                assert stat.S_IMODE(os.stat(copy).st_mode) == 0o600
        finally:
            stop.set()
            crowd.join()
        # The one writer is still the only one: the copy took nothing from it.
        expect(server.claim(policies[0], "afterwards"), 201)
    assert sorted(path.name for path in tmp_path.glob("copy-*")) == [c.name for c in copies]
    for copy, count in zip(copies, answered):
        with sqlite3.connect(f"file:{copy}?mode=ro&immutable=1", uri=True) as connection:
            rows = connection.execute("SELECT policy_id, user_id, seq FROM coupon").fetchall()
        assert len(rows) >= count
        elsewhere = SqliteDatabase(tmp_path / f"{copy.stem}-elsewhere" / "dibs.db")
        elsewhere.path.parent.mkdir()
        done = restore(copy, elsewhere.url)
        assert done.returncode == 0, done
        assert stat.S_IMODE(os.stat(elsewhere.path).st_mode) == 0o600
        with Server(folder=elsewhere.path.parent, database=elsewhere) as server:
            audit(elsewhere)
            looked = run_dibs("audit", "--url", "http://{}:{}".format(*server.address))
            assert looked.returncode == 0, looked
            policy, user, seq = rows[-1]
            assert expect(server.claim(policy, user), 200)["seq"] == seq
            assert expect(server.claim(policy, "somebody-new"), 201)["seq"] > 0


def test_backup__also_of_a_ledger_that_nobody_serves(server, tmp_path):
    """Also when it was killed, and its last commits are in the log beside it."""
    policy = server.create(total=5)["id"]
    server.win(policy, "a")
    server.kill()
    assert json.loads(backup(server.database, tmp_path / "killed.db").stdout)["coupons"] == 1
    server.start()
    server.win(policy, "b")
    server.stop()
    assert json.loads(backup(server.database, tmp_path / "stopped.db").stdout)["coupons"] == 2
    server.start()


def test_backup__refuses_what_it_would_spoil(server, tmp_path):
    server.create(total=5)
    there = tmp_path / "there.db"
    there.write_text("mine")
    for target, words in ((there, "is there already"), (tmp_path / "no" / "x.db", "cannot create")):
        done = backup(server.database, target)
        assert done.returncode == 1 and words in done.stderr, done
    assert there.read_text() == "mine" and databases(tmp_path) == ["there.db"]
    remote = run_dibs("backup", tmp_path / "x.db", "--ledger", "postgres://dibs@127.0.0.1/shop")
    assert remote.returncode == 2 and "own tools" in remote.stderr, remote
    missing = run_dibs("backup", tmp_path / "x.db", "--ledger", f"sqlite:{tmp_path}/none.db")
    assert missing.returncode == 1 and "none.db" in missing.stderr
    assert databases(tmp_path) == ["there.db"]


def test_backup__what_does_not_add_up_is_none(server, tmp_path):
    """The audit's balance, and damage."""
    policy = server.create(total=5)["id"]
    server.win(policy, "a")
    server.stop()
    server.database.execute("UPDATE policy SET unleased = unleased + 1")
    done = backup(server.database, tmp_path / "x.db")
    assert done.returncode == 1 and "does not add up" in done.stderr, done
    server.database.execute("UPDATE policy SET unleased = unleased - 1")
    assert not databases(tmp_path)
    good = tmp_path / "good.db"
    assert backup(server.database, good).returncode == 0
    data = bytearray(good.read_bytes())
    for page in range(2, len(data) // 2048):
        data[page * 2048:page * 2048 + 64] = b"\xff" * 64
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(data)
    text = tmp_path / "text.db"
    text.write_text("no database at all, but long enough to look into\n" * 100)
    with sqlite3.connect(tmp_path / "strange.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    for file in (damaged, text, tmp_path / "strange.db", tmp_path / "none.db"):
        done = restore(file, f"sqlite:{tmp_path}/new.db")
        assert done.returncode == 1 and done.stderr, done
        assert not (tmp_path / "new.db").exists() and not (tmp_path / "new.db.part").exists()
    server.start()


def test_restore__in_the_place_of_another(server, tmp_path):
    policy = server.create(total=5)["id"]
    server.win(policy, "before")
    copy = tmp_path / "copy.db"
    assert backup(server.database, copy).returncode == 0
    server.win(policy, "after")
    url = server.database.url
    running = restore(copy, url, "--yes")
    assert running.returncode == 1 and str(server.pid) in running.stderr, running
    expect(server.status(policy, "after"), 200)
    server.kill()  # with a log beside it, which belongs to the file that goes
    asked = restore(copy, url)
    assert asked.returncode == 1 and "--yes" in asked.stderr, asked
    done = restore(copy, url, "--yes")
    assert done.returncode == 0, done
    aside = json.loads(done.stdout)["moved_aside"]
    server.start()
    expect(server.status(policy, "before"), 200)
    assert server.status(policy, "after").status == 404
    server.stop()
    kept = SqliteDatabase(aside)
    with kept.snapshot() as snapshot:
        assert snapshot.one("SELECT COUNT(*) FROM coupon") == 2
    server.start()
