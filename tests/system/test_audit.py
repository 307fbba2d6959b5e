"""`dibs audit` and its calls: what is where it should be, what is not, and what a repair does not
touch. A ledger that is really older is in tests/fault/test_database_restore.py."""

import json
import os
import pty
import subprocess
import threading

import pytest

from harness import BINARY, clean_environment, expect, expect_problem, run_dibs, write_secret

FINE = {"ok": True, "in_ledger": True, "is_outdated": False, "imbalance": 0, "missing": 0,
        "outdated": 0, "unknown": 0}
NOTHING = {"repaired": False, "policies": 0, "coupons_written": 0, "coupons_redeemed": 0,
           "coupons_cancelled": 0, "keys_written": 0, "users_blocked": 0, "users_unblocked": 0}


def dibs_audit(server, *arguments, **options):
    return run_dibs("audit", "--url", f"http://127.0.0.1:{server.address[1]}", *arguments,
                    **options)


def audit_json(server, *arguments, code=0):
    ended = dibs_audit(server, "--json", *arguments)
    assert ended.returncode == code, ended
    return json.loads(ended.stdout)


def item_of(server, policy, code=0):
    (item,) = audit_json(server, "--policy", str(policy), code=code)["items"]
    assert item["policy_id"] == policy
    return item


def fill(server):
    """A policy with three active coupons, one of them redeemed, and one that was cancelled."""
    policy = server.create(total=10, limit=2, reserve=2)["id"]
    claims = [server.win(policy, f"u{n % 3}", key=f"key-{n}") for n in range(4)]
    expect(server.post(f"/v1/coupons/{claims[0]['coupon_id']}/redeem", {"order_id": "o1"}), 200)
    expect(server.cancel(claims[1]["coupon_id"]), 200)
    expect(server.claim(policy, "u2", key="another"), 201)
    return policy, claims


# --- nothing is wrong ---


def test_audit__counts_the_units(server):
    policy, _ = fill(server)
    item = item_of(server, policy)
    assert item == {"policy_id": policy, **FINE, "total": 10, "unleased": 3, "leased": 3,
                    "active": 4, "pending": 0}
    whole = audit_json(server)
    assert whole["ledger"] == {"kind": server.database.kind, "state": "OK", "detail": "ok"}
    assert whole["items"] == [item] and whole["next"] is None


def test_audit__table_for_people(server):
    policy, _ = fill(server)
    other = server.create(total=7)["id"]
    ended = dibs_audit(server)
    assert ended.returncode == 0 and ended.stderr == "", ended
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["ledger", server.database.kind] in lines and ["state", "OK"] in lines
    assert [str(policy), "10", "3", "3", "4", "0", "0", "0", "0", "0", "ok"] in lines
    assert [str(other), "7", "0", "7", "0", "0", "0", "0", "0", "0", "ok"] in lines


def test_audit__goes_through_all_pages(server):
    ids = [server.create(total=1)["id"] for _ in range(103)]
    assert [item["policy_id"] for item in audit_json(server)["items"]] == ids
    assert len(server.get("/v1/audit").json["items"]) == 100


def test_audit__no_policy_yet(server):
    assert audit_json(server)["items"] == []
    assert dibs_audit(server).returncode == 0


def test_audit__finds_nothing_wrong_while_people_claim(server):
    policies = [server.create(total=3000)["id"] for _ in range(2)]
    done = threading.Event()
    seen = []

    def look():
        while not done.is_set():
            seen.append(expect(server.get("/v1/audit"), 200))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for round_number in range(6):
            users = [f"r{round_number}-{n}" for n in range(300)]
            won = [outcome for policy in policies for outcome in server.claims(policy, users)]
            for n, outcome in enumerate(won[::10]):
                coupon = outcome.answer.json["coupon_id"]
                verb = ("cancel", "redeem")[n % 2]
                expect(server.post(f"/v1/coupons/{coupon}/{verb}"), 200)
    finally:
        done.set()
        watcher.join()
    assert len(seen) > 3
    for page in seen:
        for item in page["items"]:
            assert {name: item[name] for name in FINE} == FINE, item


# --- something is wrong ---


@pytest.mark.parametrize("spoil, heal, finding", [
    ("UPDATE policy SET unleased = unleased + 1 WHERE id = ?",
     "UPDATE policy SET unleased = unleased - 1 WHERE id = ?", {"imbalance": -1}),
    ("UPDATE lease SET count = count - 1 WHERE policy_id = ? AND first_seq = 1",
     "UPDATE lease SET count = count + 1 WHERE policy_id = ? AND first_seq = 1", {"imbalance": 1}),
    ("UPDATE coupon SET state = 'VOID', slot = NULL WHERE policy_id = ? AND seq = 3",
     "UPDATE coupon SET state = 'ISSUED', slot = nth WHERE policy_id = ? AND seq = 3",
     {"imbalance": 1}),
    ("UPDATE coupon SET user_id = 'stranger' WHERE policy_id = ? AND seq = 3",
     "UPDATE coupon SET user_id = 'u2' WHERE policy_id = ? AND seq = 3", {"unknown": 1}),
    ("UPDATE coupon SET policy_id = -policy_id WHERE policy_id = ? AND seq = 3",
     "UPDATE coupon SET policy_id = -policy_id WHERE policy_id = -1 * ? AND seq = 3",
     {"missing": 1}),
    ("UPDATE coupon SET state = 'ISSUED' WHERE policy_id = ? AND seq = 1",
     "UPDATE coupon SET state = 'REDEEMED' WHERE policy_id = ? AND seq = 1", {"outdated": 1}),
    ("UPDATE policy SET version = version - 1 WHERE id = ?",
     "UPDATE policy SET version = version + 1 WHERE id = ?", {"is_outdated": True}),
])
def test_audit__says_what_is_wrong_and_exits_3(server, spoil, heal, finding):
    policy, _ = fill(server)
    server.database.execute(spoil, policy)
    try:
        item = item_of(server, policy, code=3)
        assert item["ok"] is False
        assert {name: item[name] for name in FINE if name != "ok"} == {
            **{name: value for name, value in FINE.items() if name != "ok"}, **finding}
        ended = dibs_audit(server)
        assert ended.returncode == 3
        assert ended.stdout.rstrip().endswith(
            "BROKEN" if finding.keys() & {"imbalance", "unknown"} else "BEHIND")
    finally:
        server.database.execute(heal, policy)
    assert item_of(server, policy)["ok"]


# --- what a repair leaves alone ---


def test_repair__has_nothing_to_do(server):
    fill(server)
    assert expect(server.post("/v1/audit/repair"), 200) == NOTHING
    ended = dibs_audit(server, "--repair", "--yes")
    assert ended.returncode == 0 and "nothing to repair" in ended.stderr, ended
    assert "repair" not in audit_json(server, "--repair", "--yes")


def test_repair__is_only_for_an_older_ledger(server):
    """A ledger that is broken in another way is not made right by overwriting it."""
    policy, _ = fill(server)
    server.database.execute("UPDATE policy SET unleased = unleased + 1 WHERE id = ?", policy)
    try:
        report = audit_json(server, "--repair", "--yes", code=3)
        assert report["repair"] == NOTHING
        assert report["items"][0]["imbalance"] == -1
        ended = dibs_audit(server, "--repair", "--yes")
        assert ended.returncode == 3 and ["repaired", "no"] in [
            line.split() for line in ended.stdout.splitlines()], ended
    finally:
        server.database.execute("UPDATE policy SET unleased = unleased - 1 WHERE id = ?", policy)


def on_terminal(server, typed):
    """Runs `dibs audit --repair` with a terminal as its stdin."""
    controller, terminal = pty.openpty()
    try:
        os.write(controller, typed.encode())
        return subprocess.run(
            [str(BINARY), "audit", "--repair", "--url", f"http://127.0.0.1:{server.address[1]}"],
            env=clean_environment(), stdin=terminal, capture_output=True, text=True, timeout=60,
            check=False)
    finally:
        os.close(terminal)
        os.close(controller)


def test_repair__asks_first(server):
    policy, _ = fill(server)
    server.database.execute("UPDATE policy SET unleased = unleased + 1 WHERE id = ?", policy)
    try:
        for ended, goes_on in ((dibs_audit(server, "--repair"), False),
                               (on_terminal(server, "n\n"), False),
                               (on_terminal(server, "\n"), False),
                               (on_terminal(server, "y\n"), True)):
            assert ended.returncode == 3, ended
            assert "A repair writes what the ledger lacks" in ended.stderr
            assert ("Nothing was written" in ended.stderr) != goes_on, ended
        server.await_log("repair_asked")
        assert len(server.events("repair_asked")) == 1
        assert audit_json(server, "--repair", code=3)["items"][0]["imbalance"] == -1
    finally:
        server.database.execute("UPDATE policy SET unleased = unleased - 1 WHERE id = ?", policy)


# --- who may, and what is refused ---


def test_audit__is_for_admins(serve, tmp_path):
    token = write_secret(tmp_path, "admin", "the-token-of-the-audit-test")
    server = serve(config={"admin_token_file": token})
    expect_problem(server.get("/v1/audit", token=False), 401, "UNAUTHORIZED")
    expect_problem(server.post("/v1/audit/repair", token=False), 401, "UNAUTHORIZED")
    assert dibs_audit(server).returncode == 1
    assert dibs_audit(server, "--token-file", token).returncode == 0


def test_audit__failures_and_usage(server):
    ended = dibs_audit(server, "--policy", "4711")
    assert ended.returncode == 1 and "policy" in ended.stderr.lower(), ended
    for arguments in (["--policy", "x"], ["--policy", "0"], ["--yes"], ["--repair=no"], ["now"]):
        ended = dibs_audit(server, *arguments)
        assert ended.returncode == 2 and ended.stdout == "", ended
    ended = run_dibs("audit", "--url", "http://127.0.0.1:1")
    assert ended.returncode == 1, ended
