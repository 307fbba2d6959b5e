"""Audits beside a crowd, in a shop with a gate in Redis: no alarm where nothing is wrong, and what is
wrong is put right while people go on."""

import itertools
import os
import threading

import pytest

from harness import expect, wait_until
from ledger import coupons
from servers import Redis
from test_audit_drift import Shop

ROUNDS = int(os.environ.get("DIBS_TEST_ROUNDS") or 1)
AUDITS = 100


@pytest.fixture(name="shop")
def fixture_shop(tmp_path):
    with Redis() as redis, Shop(tmp_path, redis) as shop:
        yield shop.open()


class Crowd(threading.Thread):
    """Claims, cancels and redeems without a pause, until it is told to go home. With `turns` it
    goes on when it is given some: what an audit has to read grows by what was won, however slow the
    machine is."""

    def __init__(self, shop, policies, turns=None):
        super().__init__()
        self.shop = shop
        self.policies = policies
        self.turns = turns
        self.won = {}
        self.over = threading.Event()
        self.error = None

    def run(self):
        try:
            for number in itertools.count():
                if self.turns is not None:
                    self.turns.acquire()
                if self.over.is_set():
                    return
                self.one_round(number)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            self.error = error

    def one_round(self, number):
        policy = self.policies[number % len(self.policies)]
        server = self.shop.server
        answers = [outcome.answer for outcome in
                   server.claims(policy, [f"c{number}-{n}" for n in range(15)])]
        for answer in answers:
            assert answer.status in (202, 409, 503), answer
        wins = [answer.json for answer in answers if answer.status == 202]
        self.won.update(((policy, win["user"]), win["seq"]) for win in wins)
        for win, verb in zip(wins, ("cancel", "redeem")):
            answer = server.post(f"/v1/coupons/{win['coupon_id']}/{verb}")
            assert answer.status in (200, 404, 409, 503), answer  # It may still be pending.
            if verb == "cancel" and answer.status in (200, 503):
                self.won.pop((policy, win["user"]))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, error, trace):
        self.over.set()
        if self.turns is not None:
            self.turns.release()
        self.join()
        if self.error is not None and kind is None:
            raise self.error

    def check(self):
        """Everybody who was told so has their coupon."""
        for policy in self.policies:
            self.shop.await_drained(policy)
        for policy in self.policies:
            holders = self.shop.holders(policy)
            lost = {user: seq for (of, user), seq in self.won.items()
                    if of == policy and holders.get(user) != seq}
            assert not lost, lost


def whole_audit(server):
    """None: Redis was too slow for it, which is no alarm either."""
    answer = server.get("/v1/audit")
    return None if answer.status == 503 else expect(answer, 200)


def test_crowd__a_hundred_audits_and_no_alarm(shop):
    """Stock is given out, returned, lent again and changed all the while."""
    policies = [shop.server.create(total=30, reserve=5)["id"] for _ in range(2)]
    policies.append(shop.server.create(total=100000)["id"])
    seen = 0
    turns = threading.Semaphore(4)
    with Crowd(shop, policies, turns) as crowd:
        for number in range(AUDITS * ROUNDS):
            turns.release(2)
            page = wait_until(lambda: whole_audit(shop.server), "Redis answers in time")
            alarms = [item for item in page["items"] if not item["ok"]]
            assert not alarms, alarms
            seen += len(page["items"])
            if number % 10 == 5:  # Not below what people hold by then.
                answer = shop.server.patch(policies[0], total=30 + number % 7)
                assert answer.status in (200, 409), answer
            if crowd.error is not None:
                break
    assert seen == 3 * AUDITS * ROUNDS and len(crowd.won) > 30
    crowd.check()


def test_crowd__repaired_in_the_middle_of_a_drop(shop):
    policy = shop.server.create(total=100000)["id"]
    with Crowd(shop, [policy]) as crowd:
        wait_until(lambda: len(coupons(shop.database, policy)) > 60, "people come", 30)
        shop.sql("DELETE FROM coupon WHERE policy_id = ? AND seq IN (8, 9)", policy)
        shop.sql("UPDATE policy SET unleased = unleased + 3 WHERE id = ?", policy)
        shop.redis_do("DECRBY", shop.key(policy, "REMAINING"), 7)
        assert shop.findings(policy).items() >= {"missing": 2, "stock": 3, "remaining": 7}.items()
        done = shop.repair(policy)
        assert done["policies_built"] == 1 and done["claims_repaired"] == 2, done
        before = len(crowd.won)
        wait_until(lambda: len(crowd.won) > before + 20, "people go on winning", 30)
        assert shop.findings(policy) == {}
        assert not shop.repair(policy)["repaired"]
    crowd.check()
    assert shop.findings(policy) == {}
