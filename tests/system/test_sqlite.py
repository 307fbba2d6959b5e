"""What holds of a ledger in a SQLite file only."""

import contextlib
import os
import sqlite3

from harness import Server, claim_bytes, run_serve


def test_stop__leaves_one_clean_file(server):
    """After a graceful stop the database is whole by itself: the log has been folded in."""
    policy = server.create(total=2)
    server.win(policy["id"], "u1")
    server.stop()
    wal = server.folder / "dibs.db-wal"
    assert not wal.exists() or wal.stat().st_size == 0
    copy = sqlite3.connect(f"file:{server.database.path}?mode=ro&immutable=1", uri=True)
    assert copy.execute("SELECT count(*) FROM coupon").fetchone() == (1,)
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    copy.close()


def test_owner__also_through_another_name_of_the_file(server, tmp_path):
    """Trap 18: the same file through a symbolic link, a hard link and a relative path."""
    link = tmp_path / "link.db"
    link.symlink_to(server.database.path)
    relative = os.path.relpath(server.database.path, tmp_path)
    hard = tmp_path / "hard.db"
    os.link(server.database.path, hard)
    for name in (link, relative, hard):
        ended = run_serve(f"sqlite:{name}", folder=tmp_path)
        assert ended.returncode == 1, (name, ended)
        assert str(server.pid) in ended.stderr, (name, ended.stderr)
        assert os.path.basename(name) in ended.stderr, (name, ended.stderr)


def test_ledger__one_writer_connection_that_alone_checkpoints(server):
    """Trap 18: asserted on the running process: WAL, one descriptor open for writing."""
    policy = server.create(total=500)
    server.claims(policy["id"], [f"u{i}" for i in range(100)])
    with sqlite3.connect(f"file:{server.database.path}?mode=ro", uri=True) as reader:
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    writing = 0
    for entry in os.listdir(f"/proc/{server.pid}/fd"):
        try:
            target = os.readlink(f"/proc/{server.pid}/fd/{entry}")
            with open(f"/proc/{server.pid}/fdinfo/{entry}", encoding="ascii") as info:
                flags = int(info.read().split("flags:")[1].split()[0], 8)
        except OSError:
            continue
        if target == str(server.database.path) and flags & os.O_ACCMODE != os.O_RDONLY:
            writing += 1
    assert writing == 1


def test_ledger__a_corrupt_file_is_refused_at_start(server, tmp_path):
    policy = server.create(total=3000)
    server.storm((claim_bytes(policy["id"], f"u{i}") for i in range(3000)), connections=50)
    server.stop()
    size = server.database.path.stat().st_size
    damaged = tmp_path / "damaged.db"
    raw = bytearray(server.database.path.read_bytes())
    for page in range(2, size // 4096, 3):
        raw[page * 4096:page * 4096 + 64] = b"\xa5" * 64
    damaged.write_bytes(raw)
    ended = run_serve(f"sqlite:{damaged}", folder=tmp_path)
    assert ended.returncode == 1, ended
    assert "damaged.db" in ended.stderr


def test_ledger__a_large_file_is_checked_while_it_works(tmp_path):
    """Damage in a part that nothing reads at the start ends the server as soon as it is found."""
    server = Server(tmp_path / "server").start()
    server.stop()
    path = server.database.path
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("""INSERT INTO product (product_id, name, updated_at)
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
            SELECT 'p' || i, printf('%0200d', i), 0 FROM n""")
    server.start()
    assert server.await_log("database_checked")["words"] == "ok"
    server.create()
    server.stop()
    wal = server.folder / "dibs.db-wal"
    assert not wal.exists() or wal.stat().st_size == 0
    size = path.stat().st_size
    assert size > 16 * 2 ** 20
    with open(path, "r+b") as file:
        for page in range(size // 4096, size // 2048 - 100, 50):  # of the rows that were added
            file.seek(page * 2048)
            file.write(b"\xa5" * 64)
    server.spawn()
    assert "dibs.db is damaged" in server.await_log("database_damaged")["error"]
    assert server.wait() == 1
    server.dispose()


def test_ledger__a_file_that_is_no_database_is_refused(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("these are my notes\n" * 1000)
    ended = run_serve(f"sqlite:{text}", folder=tmp_path)
    assert ended.returncode == 1, ended
    assert "notes.txt" in ended.stderr
    assert text.read_text().startswith("these are my notes")


def test_ledger__a_folder_that_is_not_there(tmp_path):
    ended = run_serve(f"sqlite:{tmp_path}/no/such/dibs.db", folder=tmp_path)
    assert ended.returncode == 1, ended
    assert "no/such" in ended.stderr
