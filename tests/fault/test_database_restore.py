"""The database is exchanged for an older copy under the running server: noticed before anything is
written, refused in words, and repaired from what the gate remembers."""

import json

from crowd import Crowd, await_ready, expect_away, expect_one_life
from harness import expect, expect_problem, run_dibs, wait_until
from history import History
from ledger import audit, coupons, rows

TABLES = {"policy": "id", "lease": "id", "coupon": "policy_id, seq", "claim_key": "policy_id, seq",
          "blocked_user": "user_id", "secret": "name", "writer": "name"}


def dibs_audit(server, *arguments, code):
    ended = run_dibs("audit", "--url", f"http://127.0.0.1:{server.address[1]}", "--json",
                     *arguments, timeout_s=120)
    assert ended.returncode == code, ended
    return json.loads(ended.stdout) if ended.stdout else ended.stderr


def tables(database):
    """Everything the ledger has."""
    return {name: rows(database, f"SELECT * FROM {name} ORDER BY {order}")
            for name, order in TABLES.items()}


def expect_older(server, policy):
    """What the server says while its ledger is older: clear words, 503, and not a byte written."""
    words = wait_until(lambda: next((w for w in [expect_away(server)] if "older" in w), None),
                       "the words about an older ledger", timeout_s=30)
    assert "dibs audit --repair" in words, words
    before = tables(server.database)
    for n in range(3):
        expect_problem(server.claim(policy, f"meanwhile-{n}", key=f"meanwhile-{n}"), 503,
                       "UNAVAILABLE")
    # What is not there may have been: nobody is told that there is no such thing.
    for path in (f"/v1/policies/{policy}", "/v1/policies", "/v1/coupons/4711-1",
                 f"/v1/policies/{policy}/claims/nobody", "/v1/users/nobody/coupons"):
        expect_problem(server.get(path), 503, "UNAVAILABLE")
    expect_problem(server.patch(policy, paused=True), 503, "UNAVAILABLE")
    expect_problem(server.post("/v1/coupons/4711-1/redeem"), 503, "UNAVAILABLE")
    assert server.get("/healthz").status == 200
    assert tables(server.database) == before
    report = dibs_audit(server, code=3)
    assert report["ledger"]["state"] == "BEHIND" and "older" in report["ledger"]["detail"]
    # Off a terminal the plan is shown, and that is all.
    assert dibs_audit(server, "--repair", code=3)["ledger"]["state"] == "BEHIND"
    assert tables(server.database) == before
    return {item["policy_id"]: item for item in report["items"]}


def repair(server):
    report = dibs_audit(server, "--repair", "--yes", code=0)
    assert report["ledger"]["state"] == "OK" and all(item["ok"] for item in report["items"])
    done = report["repair"]
    assert done["repaired"] is True
    await_ready(server)
    audit(server.database)
    return done


def expect_repaired_for_good(server):
    """A second repair has nothing to do."""
    before = tables(server.database)
    assert expect(server.post("/v1/audit/repair"), 200)["repaired"] is False
    assert tables(server.database) == before


# --- everything that can have happened since the backup ---


class Story:
    """Things done before and after a backup, and what has to be so in the end."""

    def __init__(self, server):
        self.server = server
        self.held = {}    # (policy, user, key) → the claim as it was told
        self.states = {}  # coupon_id → what became of it, when not ISSUED

    def win(self, policy, user, key=None):
        claim = self.server.win(policy, user, key=key)
        self.held[policy, user, key] = claim
        return claim

    def settle(self, claim, verb, state):
        expect(self.server.post(f"/v1/coupons/{claim['coupon_id']}/{verb}"), 200)
        self.states[claim["coupon_id"]] = state

    def redeem(self, claim):
        self.settle(claim, "redeem", "REDEEMED")

    def cancel(self, claim):
        self.settle(claim, "cancel", "CANCELLED")

    def block(self, user, blocked=True):
        expect(self.server.request("PUT", f"/v1/users/{user}", {"blocked": blocked}), 200)

    def before(self):
        server = self.server
        self.many = server.create(total=40, limit=2)["id"]
        self.single = server.create(total=30, coupon_valid_days=9)["id"]
        self.shrinking = server.create(total=20)["id"]
        self.old = [self.win(self.many, f"old-{n}", key=f"old-{n}") for n in range(6)]
        self.win(self.single, "ann")
        self.win(self.shrinking, "ann")
        self.block("lifted")
        self.block("mallory")

    def since(self):
        """Nothing of this is in the backup."""
        server = self.server
        self.redeem(self.old[0])
        self.cancel(self.old[1])
        self.win(self.many, "old-1", key="once-more")
        new = [self.win(self.many, f"new-{n}", key=f"new-{n}") for n in range(12)]
        self.redeem(new[0])
        self.cancel(new[1])
        self.win(self.many, "new-2", key="second")
        for n in range(8):
            self.win(self.single, f"one-{n}")
        self.held[self.single, "one-3", "bound"] = self.held[self.single, "one-3", None]
        bound = expect(server.claim(self.single, "one-3", key="bound"), 200)
        assert bound["seq"] == self.held[self.single, "one-3", None]["seq"]
        expect(server.patch(self.shrinking, total=5), 200)
        expect(server.patch(self.shrinking, total=9), 200)
        self.win(self.shrinking, "bob")
        self.later = server.create(total=3, name="made since the backup")["id"]
        self.win(self.later, "ann")
        self.paused = server.create(total=3)["id"]
        expect(server.patch(self.paused, paused=True), 200)
        self.closed = server.create(total=4)["id"]
        self.win(self.closed, "ann")
        expect(server.request("DELETE", f"/v1/policies/{self.closed}"), 200)
        self.sold_out = server.create(total=2)["id"]
        self.last_buyer = "bob"
        for user in ("ann", self.last_buyer):
            self.win(self.sold_out, user)
        self.block("lifted", blocked=False)
        self.block("eve")

    def check(self):
        """All that was said is still true."""
        server = self.server
        # Before its owner asks with it, which would bind it again.
        assert [row["seq"] for row in rows(server.database, "SELECT seq FROM claim_key")] == [
            self.held[self.single, "one-3", "bound"]["seq"]]
        for (policy, user, key), told in self.held.items():
            shown = expect(server.get(f"/v1/coupons/{told['coupon_id']}"), 200)
            assert (shown["user"], shown["code"], shown["nth"]) == (
                user, told["code"], told["nth"]), (told, shown)
            assert shown["state"] == self.states.get(told["coupon_id"], "ISSUED"), shown
            if key is not None:
                again = expect(server.claim(policy, user, key=key), 200)
                assert (again["seq"], again["code"]) == (told["seq"], told["code"]), (again, told)
        assert server.policy(self.shrinking)["total"] == 9
        assert server.policy(self.later)["name"] == "made since the backup"
        for policy, state in ((self.paused, "PAUSED"), (self.closed, "CLOSED"),
                              (self.sold_out, "SOLD_OUT"), (self.many, "OPEN")):
            assert server.policy(policy)["state"] == state
        for user in ("eve", "mallory"):
            expect_problem(server.claim(self.single, user), 403, "BLOCKED")
        expect_problem(server.claim(self.many, "new-2", key="third"), 409, "LIMIT_REACHED")
        expect_problem(server.claim(self.sold_out, "cid"), 409, "SOLD_OUT")

    def go_on(self, name):
        """New claims get seqs that nobody has had, until each policy is sold out exactly."""
        # The first lease that is taken: the gate has seen a higher one that was sold.
        last = self.held.pop((self.sold_out, self.last_buyer, None))
        self.cancel(last)
        self.last_buyer = f"buyer-{name.replace(' ', '-')}"
        assert self.win(self.sold_out, self.last_buyer)["seq"] > last["seq"]
        assert not [event for event in self.server.events("steward_failed")
                    if "has seen" in event["error"]], self.server.log_text()
        for policy in (self.many, self.single, self.shrinking, self.later):
            total = self.server.policy(policy)["total"]
            had = {row["seq"]: row["user_id"] for row in coupons(self.server.database, policy)}
            left = self.server.policy(policy)["remaining"]
            half = (left + 1) // 2 if name == "after the repair" else left
            for n in range(half):
                user = f"{name.replace(' ', '-')}-{n}"
                assert self.win(policy, user)["seq"] not in had
            active = [row for row in coupons(self.server.database, policy)
                      if row["state"] in ("ISSUED", "REDEEMED")]
            assert len(active) == total - left + half
            if half == left:
                expect_problem(self.server.claim(policy, "too-late"), 409, "SOLD_OUT")


def test_restore__noticed_refused_repaired(on_victim, victim):
    server = on_victim(ack_timeout="10s")
    story = Story(server)
    story.before()
    saved = victim.backup()
    await_ready(server)
    story.since()
    assert audit(server.database)
    victim.restore(saved)

    found = expect_older(server, story.many)
    assert found[story.many]["missing"] == 14 and found[story.many]["outdated"] == 2
    assert found[story.single]["missing"] == 8
    assert found[story.shrinking]["is_outdated"] is True
    for policy in (story.later, story.paused, story.closed, story.sold_out):
        assert found[policy]["in_ledger"] is False

    done = repair(server)
    assert done == {"repaired": True, "policies": 7, "coupons_written": 27, "coupons_redeemed": 1,
                    "coupons_cancelled": 1, "keys_written": 1, "users_blocked": 1,
                    "users_unblocked": 1, "stock_set": 0, "claims_repaired": 0, "policies_built": 0,
                    "letters_written": 0, "board_built": False, "detail": ""}
    (note,) = expect(server.get("/v1/audit/repairs"), 200)["items"]
    assert note["found"] == "the ledger is older than the server" and note["done_at"]
    assert len(server.await_events("policy_repaired", 7)) == 7
    story.check()
    expect_repaired_for_good(server)
    story.go_on("after the repair")
    expect_one_life(server)
    server.restart()
    story.check()
    story.go_on("after a restart")


def test_restore__from_before_the_first_policy(on_victim, victim):
    """The whole ledger comes from the gate, on a database that has nothing but its tables."""
    server = on_victim(ack_timeout="10s")
    saved = victim.backup()
    await_ready(server)
    story = Story(server)
    story.before()
    story.since()
    victim.restore(saved)
    expect_older(server, story.many)
    done = repair(server)
    assert done["coupons_written"] == len(story.held) - 1 and done["users_blocked"] == 2
    story.check()
    story.go_on("after the repair")
    expect_one_life(server)
    server.restart()
    story.check()
    story.go_on("after a restart")


def tables_of(database):
    """The names of its tables, those that others refer to last."""
    here = {"postgres": "current_schema()", "mysql": "database()"}[database.kind]
    names = [row["name"] for row in rows(
        database, "SELECT table_name AS name FROM information_schema.tables"
                  f" WHERE table_schema = {here}")]
    return sorted(names, key=lambda name: (name == "policy", name))


def test_restore__into_an_empty_database(on_victim):
    """Even the tables are gone: they are made again, and then filled."""
    server = on_victim(ack_timeout="10s")
    story = Story(server)
    story.before()
    story.since()
    for name in tables_of(server.database):
        server.database.execute(f"DROP TABLE {name}")
    expect_away(server)
    ended = run_dibs("migrate", "--ledger", server.database.url)
    assert ended.returncode == 0, ended
    expect_older(server, story.many)
    repair(server)
    story.check()
    story.go_on("after the repair")
    server.restart()
    story.check()


# --- while people claim ---


def test_restore__in_the_middle_of_a_drop(on_victim, victim):
    """Claims are pending when the database goes, and are answered once it is repaired."""
    server = on_victim()
    history = History()
    total = 1200
    policy = server.create(total=total)["id"]
    other = server.create(total=10 ** 6)["id"]
    with Crowd(server, history, [policy, other]) as crowd:
        crowd.await_wins(300)
        saved = victim.backup()
        crowd.await_wins(600)
        victim.restore(saved)
        wait_until(lambda: "older" in expect_away(server), "the words", timeout_s=30)
        crowd.await_refusals(50)
        before = tables(server.database)
        crowd.await_refusals(50)
        assert tables(server.database) == before
        done = repair(server)
        assert done["coupons_written"] >= 500
        crowd.await_wins(600)
        wait_until(lambda: server.policy(policy)["state"] == "SOLD_OUT", "the end of the drop",
                   timeout_s=60)
    history.check_rows(server)
    history.check_sold_out(server, policy, total)
    history.check_answers(server, sample=200)
    assert len(coupons(server.database, policy)) == total
    expect_one_life(server)
    server.restart()
    history.check_answers(server)


def test_restore__again_and_again(on_victim, victim):
    """Every repaired ledger is one that can be lost again."""
    server = on_victim(ack_timeout="10s")
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    saved = victim.backup()
    await_ready(server)
    for round_number in range(3):
        with Crowd(server, history, [policy], prefix=f"r{round_number}", people=150):
            pass
        victim.restore(saved)
        expect_older(server, policy)
        repair(server)
        history.check_rows(server)
    history.check_answers(server)


# --- what is not repaired ---


def test_restore__newer_database_comes_back(on_victim, victim):
    """Whoever puts the right files back needs no repair."""
    server = on_victim(ack_timeout="10s")
    story = Story(server)
    story.before()
    older = victim.backup()
    await_ready(server)
    story.since()
    newer = victim.backup()
    await_ready(server)
    victim.restore(older)
    expect_older(server, story.many)
    victim.restore(newer)
    await_ready(server)
    story.check()
    assert dibs_audit(server, code=0)["ledger"]["state"] == "OK"
    expect_one_life(server)


def test_restore__another_history_is_refused(on_victim, victim):
    """A ledger that has something the gate never gave is not an older copy of its own."""
    server = on_victim(ack_timeout="10s")
    story = Story(server)
    story.before()
    saved = victim.backup()
    await_ready(server)
    story.since()
    victim.restore(saved)
    expect_older(server, story.many)
    copy_of = ("INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id,"
               " lease_id, requested_at, issued_at) SELECT policy_id, {seq}, {user}, nth, slot,"
               " state, request_id, lease_id, requested_at, issued_at FROM coupon"
               " WHERE policy_id = ? AND seq = 1")
    spoils = [
        (copy_of.format(seq=9, user="'stranger'"), story.single,
         "DELETE FROM coupon WHERE user_id = 'stranger' AND policy_id = ?", "stranger"),
        (copy_of.format(seq=10 ** 6, user="'stranger'"), story.single,
         "DELETE FROM coupon WHERE user_id = 'stranger' AND policy_id = ?", "stranger"),
        ("UPDATE coupon SET user_id = 'thief' WHERE policy_id = ? AND seq = 1", story.single,
         "UPDATE coupon SET user_id = 'ann' WHERE policy_id = ? AND seq = 1", "thief"),
        ("INSERT INTO policy (id, name, discount_type, discount_value, total, per_user_limit,"
         " reserve, paused, created_at, version, unleased, next_seq)"
         " VALUES (?, 'foreign', 'fixed', 1, 1, 1, 0, 0, 1, 1, 1, 1)", 777,
         "DELETE FROM policy WHERE id = ?", "policy 777"),
    ]
    for spoil, policy, heal, word in spoils:
        server.database.execute(spoil, policy)
        before = tables(server.database)
        problem = expect_problem(server.post("/v1/audit/repair"), 409, "CONFLICT")
        assert word in problem["detail"] and "nothing was written" in problem["detail"], problem
        ended = run_dibs("audit", "--repair", "--yes", "--url",
                         f"http://127.0.0.1:{server.address[1]}")
        assert ended.returncode == 1 and word in ended.stderr, ended
        assert tables(server.database) == before
        expect_problem(server.claim(story.many, "x"), 503, "UNAVAILABLE")
        server.database.execute(heal, policy)
    repair(server)
    story.check()
    story.go_on("after the repair")
