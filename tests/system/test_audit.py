"""`dibs audit` and its calls for a gate in the server's memory: what is where it should be, what is
not, and what a repair does about it. A gate in Redis is in test_audit_drift.py, a ledger that is
really older in tests/fault/test_database_restore.py."""

import itertools
import json
import os
import pty
import signal
import subprocess
import threading

import pytest

from harness import (BINARY, clean_environment, expect, expect_problem, run_dibs, wait_until,
                     write_secret)

FINE = {"ok": True, "in_ledger": True, "is_outdated": False, "imbalance": 0, "missing": 0,
        "outdated": 0, "unknown": 0, "unaccounted": 0, "gate": "ARMED", "findings": []}
NOTHING = {"repaired": False, "policies": 0, "coupons_written": 0, "coupons_redeemed": 0,
           "coupons_cancelled": 0, "keys_written": 0, "users_blocked": 0, "users_unblocked": 0,
           "stock_set": 0, "claims_repaired": 0, "policies_built": 0, "letters_written": 0,
           "board_built": False,
           "detail": ""}


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
    assert whole["board"] is None or whole["board"]["differences"] == 0


def test_audit__table_for_people(server):
    policy, _ = fill(server)
    other = server.create(total=7)["id"]
    ended = dibs_audit(server)
    assert ended.returncode == 0 and ended.stderr == "", ended
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["ledger", server.database.kind] in lines and ["state", "OK"] in lines
    assert [str(policy), "ARMED", "10", "3", "3", "4", "0", "0", "ok"] in lines
    assert [str(other), "ARMED", "7", "0", "7", "0", "0", "0", "ok"] in lines


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
        wait_until(lambda: len(seen) > 3, "some audits")
    finally:
        done.set()
        watcher.join()
    for page in seen:
        for item in page["items"]:
            assert {name: item[name] for name in FINE} == FINE, item


# --- something is wrong ---


# What is done to the ledger, what heals it again, and what is found.
DRIFTS = {
    "unleased raised": (
        "UPDATE policy SET unleased = unleased + 1 WHERE id = ?",
        "UPDATE policy SET unleased = unleased - 1 WHERE id = ?", {"stock": 1}),
    "unleased lowered": (
        "UPDATE policy SET unleased = unleased - 1 WHERE id = ?",
        "UPDATE policy SET unleased = unleased + 1 WHERE id = ?", {"stock": 1}),
    "total raised": (
        "UPDATE policy SET total = total + 1 WHERE id = ?",
        "UPDATE policy SET total = total - 1 WHERE id = ?", {"stock": 1}),
    "lease shrunk": (
        "UPDATE lease SET count = count - 1 WHERE policy_id = ? AND first_seq = 1",
        "UPDATE lease SET count = count + 1 WHERE policy_id = ? AND first_seq = 1",
        {"stock": 1, "lease": 1, "adrift": 1}),
    "lease grown": (
        "UPDATE lease SET count = count + 2 WHERE policy_id = ? AND first_seq = 1",
        "UPDATE lease SET count = count - 2 WHERE policy_id = ? AND first_seq = 1",
        {"stock": 2, "adrift": 2}),
    "lease closed": (
        "UPDATE lease SET state = 'CLOSED' WHERE policy_id = ? AND first_seq = 1",
        "UPDATE lease SET state = 'OPEN' WHERE policy_id = ? AND first_seq = 1",
        {"stock": 3, "lease": 1, "adrift": 3}),
    "coupon taken away": (
        "UPDATE coupon SET policy_id = -policy_id WHERE policy_id = ? AND seq = 3",
        "UPDATE coupon SET policy_id = -policy_id WHERE policy_id = -1 * ? AND seq = 3",
        {"missing": 1, "adrift": 1}),
    "redeemed coupon issued again": (
        "UPDATE coupon SET state = 'ISSUED' WHERE policy_id = ? AND seq = 1",
        "UPDATE coupon SET state = 'REDEEMED' WHERE policy_id = ? AND seq = 1", {"outdated": 1}),
    "older row": (
        "UPDATE policy SET version = version - 1 WHERE id = ?",
        "UPDATE policy SET version = version + 1 WHERE id = ?", {"policy": 1}),
    "no slot": (
        "UPDATE coupon SET slot = NULL WHERE policy_id = ? AND seq = 3",
        "UPDATE coupon SET slot = nth WHERE policy_id = ? AND seq = 3", {"slot": 1}),
    "slot of a cancelled coupon": (
        "UPDATE coupon SET slot = nth WHERE policy_id = ? AND seq = 2",
        "UPDATE coupon SET slot = NULL WHERE policy_id = ? AND seq = 2", {"slot": 1}),
}
# What the ledger has and the gate never gave: nobody writes over that.
STRANGE = {
    "coupon without effect": (
        "UPDATE coupon SET state = 'VOID', slot = NULL WHERE policy_id = ? AND seq = 3",
        "UPDATE coupon SET state = 'ISSUED', slot = nth WHERE policy_id = ? AND seq = 3",
        {"stock": 1}),
    "coupon of a stranger": (
        "UPDATE coupon SET user_id = 'stranger' WHERE policy_id = ? AND seq = 3",
        "UPDATE coupon SET user_id = 'u2' WHERE policy_id = ? AND seq = 3", {"unknown": 1}),
}


def findings_of(item):
    return {finding["check"]: finding["count"] for finding in item["findings"]}


@pytest.mark.parametrize("name", [*DRIFTS, *STRANGE])
def test_audit__says_what_is_wrong_and_exits_3(server, name):
    spoil, heal, found = (DRIFTS | STRANGE)[name]
    policy, _ = fill(server)
    server.database.execute(spoil, policy)
    try:
        ended = dibs_audit(server)
        assert ended.returncode == 3
        lines = [line.split() for line in ended.stdout.splitlines()]
        verdict = "BEHIND" if found.keys() <= {"missing", "outdated", "policy"} else "BROKEN"
        assert [line[-1] for line in lines if line[:2] == [str(policy), "ARMED"]] == [verdict]
        shown = {line[1]: int(line[2]) for line in lines if line[:1] == [str(policy)]}
        shown.pop("ARMED")
        assert shown == found
    finally:
        server.database.execute(heal, policy)
    assert item_of(server, policy)["ok"]


# --- repairs ---


def test_repair__has_nothing_to_do(server):
    fill(server)
    assert expect(server.post("/v1/audit/repair"), 200) == NOTHING
    ended = dibs_audit(server, "--repair", "--yes")
    assert ended.returncode == 0 and "nothing to repair" in ended.stderr, ended
    assert "repair" not in audit_json(server, "--repair", "--yes")
    ended = dibs_audit(server, "--history")
    assert ended.returncode == 0 and "Nothing has been repaired" in ended.stderr


def test_repair__puts_right_what_was_done_to_the_ledger(server):
    """All of it, one after the other; nobody has lost a coupon, and what was done is kept."""
    policy, claims = fill(server)
    held = {claim["coupon_id"]: server.get(f"/v1/coupons/{claim['coupon_id']}").json["state"]
            for claim in claims}
    for number, (spoil, _, found) in enumerate(DRIFTS.values()):
        server.database.execute(spoil, policy)
        report = audit_json(server, "--repair", "--yes")
        assert report["repair"]["repaired"] and report["items"][0]["findings"] == [], report
        kept = expect(server.get("/v1/audit/repairs"), 200)["items"]
        assert len(kept) == number + 1 and kept[0]["policy_id"] == policy
        assert all(check in kept[0]["found"] for check in found) and kept[0]["done_at"]
        assert {claim["coupon_id"]: server.get(f"/v1/coupons/{claim['coupon_id']}").json["state"]
                for claim in claims} == held
    server.database.execute("DELETE FROM coupon WHERE policy_id < 0")
    assert expect(server.post("/v1/audit/repair"), 200) == NOTHING
    total = item_of(server, policy)["total"]
    won = [outcome.answer.status for outcome in
           server.claims(policy, [f"new{n}" for n in range(20)])]
    assert won.count(201) == total - 4 and won.count(409) == 20 - won.count(201)
    ended = dibs_audit(server, "--history")
    assert ended.returncode == 0 and len(ended.stdout.splitlines()) == len(DRIFTS) + 1


@pytest.mark.parametrize("name", STRANGE)
def test_repair__writes_over_no_coupon(server, name):
    spoil, heal, found = STRANGE[name]
    policy, _ = fill(server)
    server.database.execute(spoil, policy)
    try:
        ended = dibs_audit(server, "--repair", "--yes", "--json")
        assert ended.returncode in (1, 3), ended
        assert findings_of(item_of(server, policy, code=3)) == found
    finally:
        server.database.execute(heal, policy)


def test_repair__coupon_added_by_hand_is_taken_over_by_a_restart(server):
    policy, _ = fill(server)
    with server.database.snapshot() as snapshot:
        lease = snapshot.one("SELECT id FROM lease WHERE policy_id = ? AND state = 'OPEN'", policy)
    server.database.execute(
        "INSERT INTO coupon (policy_id, seq, lease_id, requested_at, issued_at, nth, slot,"
        " request_id, user_id, state) VALUES (?, 6, ?, 1, 1, 1, 1, ?, 'added', 'ISSUED')",
        policy, lease, b"0123456789abcdef")
    assert findings_of(item_of(server, policy, code=3)) == {"unknown": 1, "adrift": 1}
    ended = dibs_audit(server, "--repair", "--yes")
    assert ended.returncode == 1 and "never gave" in ended.stderr, ended
    server.stop()
    server.start()
    assert item_of(server, policy)["ok"]
    assert expect(server.claim(policy, "added", key="again"), 201)["nth"] == 2


def test_repair__above_the_limit_is_kept_and_named(server):
    policy, _ = fill(server)
    server.database.execute("UPDATE coupon SET user_id = 'u0', nth = 3, slot = 3"
                            " WHERE policy_id = ? AND seq = 3", policy)
    item = item_of(server, policy, code=3)
    assert findings_of(item) == {"over_limit": 1, "unknown": 1}
    assert "none is taken from anyone" in item["findings"][0]["repair"], item
    done = expect(server.post(f"/v1/audit/repair?policy={policy}"), 200)
    assert done["repaired"] and f"{policy}-4 of u0" in done["detail"], done
    assert findings_of(item_of(server, policy, code=3)) == {"unknown": 1}
    server.stop()
    server.start()
    assert item_of(server, policy)["ok"]
    # Nobody has lost one; whoever is not to keep theirs is up to people.
    for seq in (1, 3, 4):
        assert expect(server.get(f"/v1/coupons/{policy}-{seq}"), 200)["user"] == "u0"
    expect_problem(server.claim(policy, "u0"), 409, "LIMIT_REACHED")
    expect(server.cancel(f"{policy}-4"), 200)
    assert item_of(server, policy)["ok"]


def test_repair__while_people_claim(server):
    """What is wrong is found and put right beside a crowd, and nobody notices."""
    policy = server.create(total=2000)["id"]
    won = {outcome.answer.json["user"]: outcome.answer.json["seq"]
           for outcome in server.claims(policy, [f"a{n}" for n in range(100)])}
    done = threading.Event()

    def crowd():
        number = 0
        while not done.is_set():
            users = [f"c{number}-{n}" for n in range(20)]
            won.update((outcome.answer.json["user"], outcome.answer.json["seq"])
                       for outcome in server.claims(policy, users)
                       if outcome.answer.status == 201)
            number += 1

    people = threading.Thread(target=crowd)
    people.start()
    try:
        server.database.execute("DELETE FROM coupon WHERE policy_id = ? AND seq = 50", policy)
        server.database.execute("UPDATE policy SET unleased = unleased + 7 WHERE id = ?", policy)
        item = item_of(server, policy, code=3)
        assert {"missing", "stock"} <= findings_of(item).keys(), item
        report = audit_json(server, "--repair", "--yes")
        assert report["repair"]["coupons_written"] >= 1
    finally:
        done.set()
        people.join()
    assert item_of(server, policy)["ok"]
    with server.database.snapshot() as snapshot:
        rows = snapshot.rows("SELECT user_id, seq FROM coupon WHERE policy_id = ?", policy)
    assert {row["user_id"]: row["seq"] for row in rows} == won


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
    for ended, goes_on in ((dibs_audit(server, "--repair"), False),
                           (on_terminal(server, "n\n"), False),
                           (on_terminal(server, "\n"), False),
                           (on_terminal(server, "y\n"), True)):
        assert ended.returncode == (0 if goes_on else 3), ended
        assert "A repair would do this" in ended.stderr
        assert "set what is unleased by what is issued and lent" in ended.stderr
        assert ("Nothing was written" in ended.stderr) != goes_on, ended
    server.await_log("repair_asked")
    assert len(server.events("repair_asked")) == 1
    assert audit_json(server, "--repair")["items"][0]["imbalance"] == 0


# --- the board of the ranking ---


def test_audit__holds_the_board_against_the_ledger(server):
    for number in range(20):
        expect(server.post("/v1/orders", {"order_id": f"o{number}", "items": [
            {"product_id": f"p{number % 4}", "quantity": number + 1}]}), 201)
    expect(server.get("/v1/products/top?fresh=true"), 200)
    board = wait_until(lambda: (found := audit_json(server)["board"])["counters"] == 4 and found,
                       "all orders")
    assert (board["state"], board["differences"]) == ("OK", 0), board
    server.database.execute("UPDATE sale_day SET quantity = quantity + 3 WHERE product_id = 'p1'")
    ended = dibs_audit(server)
    assert ended.returncode == 3 and "DRIFT" in ended.stdout, ended
    ended = dibs_audit(server, "--repair")
    assert ended.returncode == 3 and "board: build it anew" in ended.stderr, ended
    report = audit_json(server, "--repair", "--yes")
    assert report["repair"]["board_built"] and report["board"]["differences"] == 0, report
    top = expect(server.get("/v1/products/top?fresh=true"), 200)["items"]
    assert {item["product_id"]: item["sold"] for item in top}["p1"] == 2 + 6 + 10 + 14 + 18 + 3
    (note,) = expect(server.get("/v1/audit/repairs"), 200)["items"]
    assert (note["policy_id"], note["found"]) == (0, "board 1")
    server.database.execute("UPDATE sale_day SET quantity = quantity - 3 WHERE product_id = 'p1'")
    assert audit_json(server, "--repair", "--yes")["repair"]["board_built"]


def test_audit__who_asks_after_a_repair_sees_the_board_that_was_built(server):
    """However soon, and although an answer from before is still good enough for anybody else."""
    expect(server.post("/v1/orders", {"order_id": "o", "items": [
        {"product_id": "p", "quantity": 1}]}), 201)
    for more in (1, 2, 3, 4, 5, -15):
        before = expect(server.get("/v1/products/top?fresh=true"), 200)["items"][0]["sold"]
        server.database.execute("UPDATE sale_day SET quantity = quantity + ?", more)
        assert expect(server.post("/v1/audit/repair"), 200)["board_built"]
        (item,) = expect(server.get("/v1/products/top?fresh=true"), 200)["items"]
        assert item["sold"] == before + more


# --- watching ---


def watch(server, *arguments):
    # pylint: disable-next=consider-using-with
    return subprocess.Popen(
        [str(BINARY), "audit", "--watch", "--interval", "100ms", "--url",
         f"http://127.0.0.1:{server.address[1]}", *arguments],
        env=clean_environment(), stdout=subprocess.PIPE, text=True)


def test_watch__a_line_each_and_the_worst_is_the_verdict(server):
    policy, _ = fill(server)
    with watch(server) as fine:
        assert " ok, 1 policies, ledger OK" in fine.stdout.readline()
        fine.send_signal(signal.SIGINT)
        assert fine.wait(30) == 0
    with watch(server, "--json") as worse:
        assert json.loads(worse.stdout.readline())["items"][0]["ok"]
        server.database.execute("UPDATE policy SET unleased = unleased + 1 WHERE id = ?", policy)
        while json.loads(worse.stdout.readline())["items"][0]["ok"]:
            pass
        server.database.execute("UPDATE policy SET unleased = unleased - 1 WHERE id = ?", policy)
        while not json.loads(worse.stdout.readline())["items"][0]["ok"]:
            pass
        worse.send_signal(signal.SIGINT)
        assert worse.wait(30) == 3


# --- in the background ---


def test_background__counts_drift_and_pauses_what_is_oversold(serve):
    server = serve(config={"audit_interval": "200ms"})
    policy, _ = fill(server)
    fine = server.create(total=3)["id"]
    wait_until(lambda: server.metrics().get("dibs_audit_last_seconds", -1) >= 0, "the first audit")
    assert server.metrics()['dibs_audit_drift{check="stock"}'] == 0
    server.database.execute("UPDATE policy SET unleased = unleased + 2 WHERE id = ?", policy)
    wait_until(lambda: server.metrics()['dibs_audit_drift{check="stock"}'] == 2, "it is counted")
    assert server.await_log("audit_drift")["check"] == "stock"
    server.database.execute("UPDATE policy SET unleased = unleased - 2 WHERE id = ?", policy)
    server.database.execute("UPDATE policy SET total = 2 WHERE id = ?", policy)
    broken = server.await_log("guarantee_broken", 30)
    assert (broken["policy"], broken["active"], broken["total"]) == (str(policy), "4", "2")
    late = (f"late-{number}" for number in itertools.count())
    wait_until(lambda: server.claim(policy, next(late)).code == "PAUSED", "it is paused")
    expect_problem(server.claim(policy, next(late)), 403, "PAUSED")
    wait_until(lambda: f"paused policy {policy}: 4 active" in str(server.get("/readyz").json),
               "it tells")
    assert server.get("/readyz").status == 200
    server.win(fine, "u1")
    (note,) = wait_until(lambda: expect(server.get("/v1/audit/repairs"), 200)["items"], "a note")
    assert note["policy_id"] == policy and note["outcome"] == "paused by the audit"
    server.database.execute("UPDATE policy SET total = 10 WHERE id = ?", policy)
    wait_until(lambda: "paused" not in str(server.get("/readyz").json), "all is well again")


def test_background__may_be_switched_off(serve):
    server = serve(config={"audit_interval": "0s"})
    assert not any(name.startswith("dibs_audit") for name in server.metrics())


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
    for arguments in (["--policy", "x"], ["--policy", "0"], ["--yes"], ["--repair=no"], ["now"],
                      ["--interval", "1s"], ["--watch", "--interval", "x"],
                      ["--watch", "--repair"], ["--history", "--watch"],
                      ["--gate", "redis://127.0.0.1"]):
        ended = dibs_audit(server, *arguments)
        assert ended.returncode == 2 and ended.stdout == "", ended
    ended = run_dibs("audit", "--url", "http://127.0.0.1:1")
    assert ended.returncode == 1, ended
    ended = run_dibs("audit", "--gate", "local")
    assert ended.returncode == 2 and "--url" in ended.stderr, ended
