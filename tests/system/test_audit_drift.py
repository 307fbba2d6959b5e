"""Drift that was made by hand, of every kind that `dibs audit` knows, in a shop with a gate in Redis:
found by its name, repaired while the shop is open, nothing oversold, nobody without their coupon.
What an audit finds where nothing is wrong is in test_audit_crowd.py."""

import contextlib
import json
import signal
import time

import pytest

from harness import SLOW, expect, expect_problem, run_dibs, wait_until
from ledger import coupons, rows
from servers import Redis
from sharing import Sharing

TOTAL, RESERVE, WINNERS = 20, 2, 8
REQUEST = b"0123456789abcdef"


class Shop(Sharing):
    """One policy for every test, in one shop."""

    def __init__(self, folder, redis, ledger="postgres"):
        super().__init__(folder, redis, ledger)
        self.server = self.worker = None

    def open(self):
        # No sync: what a steward puts right by itself would come before the audit. Redis is never
        # away here, only slow on a busy machine.
        config = {"sync_interval": "10m", "audit_interval": "0s", "gate_timeout": "10s"}
        self.server = self.serve(**config)
        self.worker = self.server if self.ledger == "sqlite" else self.work(**config)
        return self

    def fill(self):
        """Coupons of all kinds: u1 redeemed, u2 cancelled, the others issued."""
        policy = self.server.create(total=TOTAL, reserve=RESERVE)["id"]
        for number in range(WINNERS):
            expect(self.server.claim(policy, f"u{number}"), 202)
        self.await_drained(policy)
        wait_until(lambda: len(coupons(self.database, policy)) == WINNERS, "all are written")
        expect(self.server.post(f"/v1/coupons/{policy}-2/redeem", {"order_id": "o1"}), 200)
        expect(self.server.cancel(f"{policy}-3"), 200)
        assert self.findings(policy) == {}
        return policy

    def key(self, policy, name):
        return f"COUPON:POLICY:{{{policy}}}:{name}"

    def redis_do(self, *words):
        with self.redis.client() as client:
            return client.execute_command(*words)

    def sql(self, text, *values):
        self.database.execute(text, *values)

    def lease(self, policy):
        (lease,) = rows(self.database, "SELECT * FROM lease WHERE policy_id = ?"
                        " AND state = 'OPEN'", policy)
        return lease

    def audit(self, policy):
        (item,) = expect(self.server.get(f"/v1/audit?policy={policy}"), 200)["items"]
        assert item["ok"] == (item["findings"] == [])
        return item

    def findings(self, policy):
        return {finding["check"]: finding["count"] for finding in self.audit(policy)["findings"]}

    def repair(self, policy):
        return expect(self.server.post(f"/v1/audit/repair?policy={policy}"), 200)

    @contextlib.contextmanager
    def stalled(self):
        """While the worker stands still, what is pending stays so."""
        self.worker.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.worker.signal(signal.SIGCONT)

    def insert_coupon(self, policy, seq, lease_id, user="added"):
        self.sql("INSERT INTO coupon (policy_id, seq, lease_id, requested_at, issued_at, nth, slot,"
                 " request_id, user_id, state) VALUES (?, ?, ?, 1, 1, 1, 1, ?, ?, 'ISSUED')",
                 policy, seq, lease_id, REQUEST, user)

    def hold(self, policy, user, seq, lease=0, state=b"I0,"):
        """A claim in Redis that nobody won."""
        self.redis_do("HSET", self.key(policy, "ISSUED"), user,
                      REQUEST + f"1:{lease}:1:{seq}".encode() + state)


@pytest.fixture(name="shop", scope="module")
def fixture_shop(tmp_path_factory):
    with Redis() as redis, Shop(tmp_path_factory.mktemp("drift"), redis) as shop:
        yield shop.open()


# --- drift, by name ---


def row_deleted(shop, policy):
    shop.sql("DELETE FROM coupon WHERE policy_id = ? AND seq = 5", policy)


def redeemed_row_deleted(shop, policy):
    shop.sql("DELETE FROM coupon WHERE policy_id = ? AND seq = 2", policy)


def coupon_added_in_the_lease(shop, policy):
    shop.insert_coupon(policy, WINNERS + 1, shop.lease(policy)["id"])


def coupon_added_without_lease(shop, policy):
    shop.insert_coupon(policy, 5000, 999999)


def lease_grown(shop, policy):
    shop.sql("UPDATE lease SET count = count + 3 WHERE id = ?", shop.lease(policy)["id"])


def lease_shrunk(shop, policy):
    shop.sql("UPDATE lease SET count = count - 3 WHERE id = ?", shop.lease(policy)["id"])


def lease_closed(shop, policy):
    shop.sql("UPDATE lease SET state = 'CLOSED' WHERE id = ?", shop.lease(policy)["id"])


def unleased_raised(shop, policy):
    shop.sql("UPDATE policy SET unleased = unleased + 2 WHERE id = ?", policy)


def unleased_lowered(shop, policy):
    shop.sql("UPDATE policy SET unleased = unleased - 1 WHERE id = ?", policy)


def total_raised(shop, policy):
    shop.sql("UPDATE policy SET total = total + 5 WHERE id = ?", policy)


def total_below_what_is_issued(shop, policy):
    shop.sql("UPDATE policy SET total = 4 WHERE id = ?", policy)


def remaining_raised(shop, policy):
    shop.redis_do("INCRBY", shop.key(policy, "REMAINING"), 3)


def remaining_lowered(shop, policy):
    shop.redis_do("DECRBY", shop.key(policy, "REMAINING"), 3)


def remaining_lost(shop, policy):
    shop.redis_do("DEL", shop.key(policy, "REMAINING"))


def gate_lease_grown(shop, policy):
    lease = shop.lease(policy)
    end = lease["first_seq"] + lease["count"]
    shop.redis_do("LSET", shop.key(policy, "LEASE"), 0,
                  f"{lease['id']}:{lease['first_seq']}:{WINNERS + 1}:{end + 5}")


def user_removed(shop, policy):
    shop.redis_do("HDEL", shop.key(policy, "ISSUED"), "u4")


def users_lost(shop, policy):
    shop.redis_do("DEL", shop.key(policy, "ISSUED"))


def user_added(shop, policy):
    shop.hold(policy, "added", 7000)


def user_with_anothers_seq(shop, policy):
    shop.hold(policy, "zz-added", 5)


def state_put_back(shop, policy):
    shop.sql("UPDATE coupon SET state = 'ISSUED' WHERE policy_id = ? AND seq = 2", policy)


def mark_too_high(shop, policy):
    shop.redis_do("HSET", shop.key(policy, "META"), "published", 1000000)


def pending_entry_added(shop, policy):
    shop.redis_do("ZADD", shop.key(policy, "PENDING"), 7000, "added")


def slot_lost(shop, policy):
    shop.sql("UPDATE coupon SET slot = NULL WHERE policy_id = ? AND seq = 5", policy)


def slot_of_a_cancelled_coupon(shop, policy):
    shop.sql("UPDATE coupon SET slot = 1 WHERE policy_id = ? AND seq = 3", policy)


def won_again_beside_a_lost_slot(shop, policy):
    slot_lost(shop, policy)
    shop.insert_coupon(policy, WINNERS + 1, shop.lease(policy)["id"], user="u4")


ALL_LEASED = TOTAL - RESERVE - WINNERS
DRIFTS = {
    row_deleted: {"missing": 1, "adrift": 1},
    redeemed_row_deleted: {"missing": 1, "adrift": 1},
    coupon_added_in_the_lease: {"unknown": 1, "adrift": 1},
    coupon_added_without_lease: {"stray": 2, "unknown": 1, "stock": 1},
    lease_grown: {"stock": 3, "adrift": 3},
    lease_shrunk: {"stock": 3, "adrift": 3, "lease": 1},
    lease_closed: {"stock": ALL_LEASED, "adrift": ALL_LEASED, "lease": 1},
    unleased_raised: {"stock": 2},
    unleased_lowered: {"stock": 1},
    total_raised: {"stock": 5},
    total_below_what_is_issued: {"oversold": WINNERS - 1 - 4, "stock": TOTAL - 4},
    remaining_raised: {"remaining": 3},
    remaining_lowered: {"remaining": 3},
    remaining_lost: {"remaining": ALL_LEASED},
    gate_lease_grown: {"remaining": 5, "lease": 1, "adrift": 5},
    user_removed: {"unknown": 1},
    users_lost: {"unknown": WINNERS - 1},
    user_added: {"missing": 1},
    user_with_anothers_seq: {"repeated": 1, "missing": 1},
    state_put_back: {"outdated": 1},
    mark_too_high: {"mark": 1000000 - (TOTAL - RESERVE)},
    pending_entry_added: {"pending": 1},
    slot_lost: {"slot": 1},
    slot_of_a_cancelled_coupon: {"slot": 1},
}


@pytest.mark.parametrize("plant", DRIFTS, ids=lambda plant: plant.__name__)
def test_drift__found_by_name_and_repaired(shop, plant):
    policy = shop.fill()
    before = shop.holders(policy)
    plant(shop, policy)
    assert shop.findings(policy) == DRIFTS[plant]
    done = shop.repair(policy)
    assert done["repaired"] and done["policies"] == 1 and done["detail"] == "", done
    assert shop.findings(policy) == {}
    # Nobody has lost a coupon, and whoever the ledger gave one has it.
    after = shop.holders(policy)
    assert before.items() <= after.items() and set(after) - set(before) <= {"added"}, after
    if plant != state_put_back:
        assert {row["seq"]: row["state"] for row in coupons(shop.database, policy)}[2] == "REDEEMED"
    # A second repair changes nothing.
    assert not shop.repair(policy)["repaired"]
    assert shop.findings(policy) == {}
    # The rest can be claimed, by so many and no more.
    sell_out(shop, policy, before)


def sell_out(shop, policy, before):
    """Everybody who holds a coupon is told so, and the rest is won by others, exactly."""
    for user, seq in before.items():
        assert expect(shop.server.claim(policy, user), 200)["seq"] == seq
    total = expect(shop.server.get(f"/v1/policies/{policy}"), 200)["total"]
    left = total - len(shop.holders(policy))
    won = set()

    def all_are_sold():
        for number in range(left + 3):
            user = f"new{number}"
            if user not in won and shop.server.claim(policy, user).status in (200, 202):
                won.add(user)
        return len(won) >= left

    wait_until(all_are_sold, "the rest is sold", 60)
    shop.await_drained(policy)
    wait_until(lambda: len(shop.holders(policy)) == total, "all of it is written", 60)
    assert len(won) == left
    # Stock that is on its way is waited for.
    wait_until(lambda: shop.server.claim(policy, "late").status == 409, "it is sold out", 60)
    expect_problem(shop.server.claim(policy, "late"), 409, "SOLD_OUT")
    assert shop.findings(policy) == {}


# --- what is pending ---


def test_drift__pending_claim_taken_out_is_put_back(shop):
    policy = shop.fill()
    with shop.stalled():
        expect(shop.server.claim(policy, "robbed"), 202)
        shop.redis_do("ZREM", shop.key(policy, "PENDING"), "robbed")
        assert shop.findings(policy) == {"missing": 1, "adrift": 1}
    before = shop.holders(policy)
    assert "robbed" not in before
    assert shop.repair(policy)["claims_repaired"] == 1
    assert shop.findings(policy) == {}
    assert shop.holders(policy) == {**before, "robbed": WINNERS + 1}
    sell_out(shop, policy, shop.holders(policy))


def test_drift__user_of_a_pending_claim_is_brought_back(shop):
    policy = shop.fill()
    with shop.stalled():
        expect(shop.server.claim(policy, "robbed"), 202)
        shop.redis_do("HDEL", shop.key(policy, "ISSUED"), "robbed")
        assert shop.findings(policy) == {"pending": 1}
    assert shop.repair(policy)["claims_repaired"] == 1
    assert shop.findings(policy) == {}
    assert shop.holders(policy)["robbed"] == WINNERS + 1
    sell_out(shop, policy, shop.holders(policy))


def test_drift__pending_claim_of_no_lease_is_removed(shop):
    policy = shop.fill()
    before = shop.holders(policy)
    with shop.stalled():
        shop.hold(policy, "forged", 9000, lease=888888, state=b"P0,")
        shop.redis_do("ZADD", shop.key(policy, "PENDING"), 9000, "forged")
        assert shop.findings(policy) == {"unleased_claim": 1}
        assert shop.repair(policy)["claims_repaired"] == 1
        assert shop.findings(policy) == {}
    assert shop.holders(policy) == before
    sell_out(shop, policy, before)


# --- more than the limit ---


def check_above_the_limit(shop):
    """Kept, each with a number of its own, and named; people decide, and the limit holds."""
    policy = shop.fill()
    won_again_beside_a_lost_slot(shop, policy)
    item = shop.audit(policy)
    assert shop.findings(policy) == {"over_limit": 1, "slot": 1, "unknown": 1, "adrift": 1}
    plans = {finding["check"]: finding["repair"] for finding in item["findings"]}
    assert "none is taken from anyone" in plans["over_limit"] and "none" in plans["slot"], plans
    done = shop.repair(policy)
    assert done["repaired"] and f"{policy}-{WINNERS + 1} of u4" in done["detail"], done
    assert shop.findings(policy) == {}
    places = {row["seq"]: (row["nth"], row["slot"], row["state"])
              for row in coupons(shop.database, policy) if row["user_id"] == "u4"}
    assert places == {5: (1, 1, "ISSUED"), WINNERS + 1: (2, 2, "ISSUED")}, places
    assert not shop.repair(policy)["repaired"]
    shown = expect(shop.server.get(f"/v1/policies/{policy}/claims/u4"), 200)
    assert {claim["seq"] for claim in shown["claims"]} == {5, WINNERS + 1}
    expect(shop.server.claim(policy, "u4"), 200)
    expect(shop.server.cancel(f"{policy}-{WINNERS + 1}"), 200)
    assert shop.findings(policy) == {}
    return policy


def test_drift__above_the_limit_is_kept_and_named(shop):
    policy = check_above_the_limit(shop)
    sell_out(shop, policy, shop.holders(policy))


def test_drift__score_of_the_board(shop):
    """Of the one in Redis: a server, or whoever looks at Redis, finds it; a server builds it anew."""
    for number in range(8):
        expect(shop.server.post("/v1/orders", {"order_id": f"o{number}", "items": [
            {"product_id": f"p{number % 4}", "quantity": number + 1}]}), 201)

    def board(*arguments):
        ended = run_dibs("audit", "--json", *arguments, timeout_s=60)
        report = json.loads(ended.stdout)
        assert (ended.returncode == 3) == (report["board"]["state"] == "DRIFT"), ended
        return report["board"]

    server = ["--url", f"http://127.0.0.1:{shop.server.address[1]}"]
    alone = ["--gate", shop.redis.url(), "--ledger", shop.database.url]
    wait_until(lambda: board(*server)["counters"] == 4, "the board is built")
    assert board(*alone) == {"kind": "redis", "state": "OK", "counters": 4, "differences": 0}
    day = time.strftime("%Y-%m-%d", time.gmtime())
    for source in (alone, server):
        shop.redis_do("ZINCRBY", f"zs:product:{{rank}}:{day}", 5, "p2")
        assert board(*server)["differences"] == board(*alone)["differences"] == 1
        ended = run_dibs("audit", "--repair", "--yes", *source, timeout_s=60)
        assert ended.returncode == 0 and "board built anew" in ended.stdout, ended
        assert board(*alone)["state"] == "OK"


@pytest.mark.parametrize("key, words, named", [
    ("ISSUED", ["HSET", "u4", "nonsense"], "u4"),
    ("LEASE", ["LSET", "0", "nonsense"], "LEASE"),
    ("META", ["HSET", "issued", "nonsense"], "issued"),
    ("PENDING", ["SET", "nonsense"], "PENDING"),
    ("ISSUED", ["SET", "nonsense"], "ISSUED"),
    ("META", ["SET", "nonsense"], "META"),
])
def test_drift__unreadable_value_is_a_finding(shop, key, words, named):
    """It is told by its name, and keeps nobody from the others: no audit, no start."""
    policy, other = shop.fill(), shop.fill()
    name = shop.key(policy, key)
    saved = shop.redis_do("DUMP", name) or shop.redis_do("DUMP", shop.key(policy, "META"))
    command, *rest = words
    if command == "SET":
        shop.redis_do("DEL", name)
    shop.redis_do(command, name, *rest)
    try:
        items = {item["policy_id"]: item for item in expect(
            shop.server.get("/v1/audit?limit=1000"), 200)["items"]}
        (finding,) = [finding for finding in items[policy]["findings"]
                      if finding["check"] == "corrupt"]
        assert name in finding["meaning"] and named in finding["meaning"], finding
        assert items[other]["ok"], items[other]
        shop.serve(sync_interval="10m", audit_interval="0s").stop()
    finally:
        if key == "PENDING":
            shop.redis_do("DEL", name)
        else:
            shop.redis_do("RESTORE", name, 0, saved, "REPLACE")
    wait_until(lambda: shop.findings(policy) == {}, "it is whole again", 30)


def test_drift__much_that_is_wrong_takes_no_longer(shop):
    """All that looks wrong is looked at again together."""
    policies = [shop.server.create(total=3)["id"] for _ in range(80)]
    for policy in policies:
        shop.sql("UPDATE policy SET unleased = unleased + 1 WHERE id = ?", policy)
    began = time.monotonic()
    with shop.server.connect(timeout_s=60 * SLOW) as connection:
        items = expect(connection.request("GET", "/v1/audit?limit=1000"), 200)["items"]
    assert {item["policy_id"] for item in items if not item["ok"]} == set(policies)
    assert time.monotonic() - began < 40 * SLOW  # A second for each would be 80.
    for policy in policies:
        shop.sql("UPDATE policy SET unleased = unleased - 1 WHERE id = ?", policy)


def test_drift__older_row_is_written_back(shop):
    """Nothing of the database tells what else is older than in Redis: nobody is answered until it is
    repaired, also when the row catches up."""
    policy = shop.fill()
    shop.sql("UPDATE policy SET version = version - 1 WHERE id = ?", policy)
    assert shop.findings(policy) == {"policy": 1}
    wait_until(lambda: shop.server.claim(policy, "u4").status == 503, "it is suspended", 30)
    shop.sql("UPDATE policy SET version = version + 5 WHERE id = ?", policy)
    assert shop.findings(policy) == {"policy": 1}
    expect_problem(shop.server.claim(policy, "u4"), 503, "UNAVAILABLE")
    before = shop.holders(policy)
    assert shop.repair(policy)["policies_built"] == 1
    assert shop.findings(policy) == {} and shop.holders(policy) == before
    expect(shop.server.claim(policy, "u4"), 200)


@pytest.mark.parametrize("ledger", ["mysql", "sqlite"])
def test_drift__on_the_other_ledgers(tmp_path, ledger):
    """A few of each kind; with SQLite the server works as well."""
    with Redis() as redis, Shop(tmp_path, redis, ledger) as shop:
        shop.open()
        for plant in (row_deleted, coupon_added_without_lease, lease_grown, unleased_lowered,
                      total_below_what_is_issued, remaining_raised, users_lost, slot_lost):
            policy = shop.fill()
            before = shop.holders(policy)
            plant(shop, policy)
            assert shop.findings(policy) == DRIFTS[plant], plant
            assert shop.repair(policy)["repaired"], plant
            assert shop.findings(policy) == {}, plant
            assert before.items() <= shop.holders(policy).items(), plant
        check_above_the_limit(shop)


# --- in the background of a worker ---


def test_background__one_worker_counts_drift_and_pauses_what_is_oversold(tmp_path):
    with Redis() as redis, Shop(tmp_path, redis) as shop:
        shop.open()
        workers = [shop.work(audit_interval="200ms", worker_listen="127.0.0.1:0")
                   for _ in range(2)]
        before = shop.server.create(total=5)["id"]  # audited first
        policy = shop.fill()

        def drift(check):
            """As the one that audits counts it; the other has nothing to tell."""
            told = [worker.metrics().get(f'dibs_audit_drift{{check="{check}"}}')
                    for worker in workers]
            return [count for count in told if count is not None]

        wait_until(lambda: drift("remaining") == [0], "one of them audits")
        shop.redis_do("INCRBY", shop.key(policy, "REMAINING"), 3)
        wait_until(lambda: drift("remaining") == [3], "it is counted")
        assert shop.repair(policy)["repaired"]
        wait_until(lambda: drift("remaining") == [0], "it is repaired")
        # More winners in Redis than there are coupons, before anybody writes them.
        with shop.stalled(), contextlib.ExitStack() as ends:
            for worker in workers:
                worker.signal(signal.SIGSTOP)
                ends.callback(worker.signal, signal.SIGCONT)
            for number in range(TOTAL):
                shop.hold(policy, f"forged{number}", 9000 + number, lease=888888, state=b"P0,")
                shop.redis_do("ZADD", shop.key(policy, "PENDING"), 9000 + number,
                              f"forged{number}")
            assert shop.findings(policy) == {"oversold": WINNERS - 1, "unleased_claim": TOTAL}
            for number in range(TOTAL):
                shop.redis_do("ZREM", shop.key(policy, "PENDING"), f"forged{number}")
                shop.redis_do("HDEL", shop.key(policy, "ISSUED"), f"forged{number}")
        # A policy that cannot be audited keeps no other one from it.
        (lease,) = shop.redis_do("LRANGE", shop.key(before, "LEASE"), 0, -1)
        shop.redis_do("LSET", shop.key(before, "LEASE"), 0, "nonsense")
        shop.sql("UPDATE policy SET total = 4 WHERE id = ?", policy)
        wait_until(lambda: any(worker.events("guarantee_broken") for worker in workers),
                   "it is noticed", 30)
        shop.redis_do("LSET", shop.key(before, "LEASE"), 0, lease)
        wait_until(lambda: shop.server.claim(policy, "late").status == 403, "it is paused")
        expect_problem(shop.server.claim(policy, "late"), 403, "PAUSED")
        wait_until(lambda: any(f"paused policy {policy}" in str(worker.get("/readyz").json)
                               for worker in workers), "it is told")
        # The way back: repair, then resume.
        assert shop.repair(policy)["repaired"] and shop.findings(policy) == {}
        assert expect(shop.server.patch(policy, paused=False), 200)["total"] == WINNERS - 1
        wait_until(lambda: shop.server.claim(policy, "late").status == 409, "it is sold out")
