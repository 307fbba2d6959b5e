"""kill -9 at random moments: nothing said is lost, nothing is given twice, every start is clean."""

import itertools
import threading
import time

import pytest

from harness import claim_bytes, expect, expect_problem, tally
from history import ROUNDS, Claim, History, endless, seeded
from ledger import audit, coupons
from wire import Closed


def test_kill__random_moments_under_load(server):
    """Trap 5: taken from the queue, then crash: request gone.
    Trap 28: a repeat was told "you have 17" while 17 was not committed.

    Every user asks twice at once, so repeats rest on claims that are still being committed."""
    chance = seeded()
    history = History()
    big = server.create(total=10 ** 7)["id"]
    unheard = 0
    for round_number in range(ROUNDS):
        total = chance.choice([50, 300, 1000])
        small = server.create(total=total)["id"]
        claims = endless([big, small], f"r{round_number}", repeats=chance.choice([1, 2, 3]),
                         keyed=chance.random() < 0.5)
        history.rush(server, claims, connections=chance.choice([1, 8, 64]),
                     pipeline=chance.choice([1, 4]), on_answer=history.survive(server, chance))
        server.restart()
        history.check_rows(server)
        history.check_sold_out(server, small, total)
        history.check_answers(server)
        unheard += len(history.unknown)
        history.retry_unknown(server)
        history.check_rows(server)
    assert len(history.wins) > ROUNDS
    assert unheard > 0, "no kill ever struck a claim in flight"


def test_kill__between_any_two_instants(server):
    """Trap 1: decided, then crash before the write: stock gone, nobody has it.

    The killer does not wait for an answer, so it also strikes between decision and commit. After
    the restart exactly `total` can be won in all."""
    chance = seeded()
    for round_number in range(ROUNDS):
        history = History()
        total = 400
        policy = server.create(total=total)["id"]
        killer = threading.Timer(chance.uniform(0.0, 0.12), server.process.kill)
        killer.start()
        try:
            history.rush(server, endless([policy], f"k{round_number}", keyed=True),
                         connections=48)
        except OSError:
            pass  # Killed before the connections stood.
        killer.join()
        server.restart()
        history.check_rows(server)
        history.check_sold_out(server, policy, total)
        history.retry_unknown(server)
        late = (Claim(policy, f"late-{i}", None) for i in range(total + 50))
        history.rush(server, late)
        rows = coupons(server.database, policy)
        assert len(rows) == total
        assert [row["seq"] for row in rows] == list(range(1, total + 1))
        history.check_rows(server)


def test_kill__with_limits_keys_and_cancels_in_flight(server):
    chance = seeded()
    history = History()
    policy = server.create(total=10 ** 6, limit=3)["id"]
    for round_number in range(ROUNDS):
        wishes = (Claim(policy, f"w{round_number}-{i // 6}", f"k{round_number}-{i // 2}")
                  for i in itertools.count())
        left = [chance.randint(20, 300)]

        def on_answer(outcome, left=left):
            left[0] -= 1
            if left[0] == 0:
                server.process.kill()
            elif left[0] > 0 and left[0] % 10 == 0 and outcome.answer.status == 201:
                try:
                    history.cancel(server, policy, outcome.answer.json["seq"])
                except (Closed, OSError):
                    pass

        history.rush(server, wishes, connections=16, on_answer=on_answer)
        server.restart()
        history.check_rows(server)
        history.check_answers(server)
        history.retry_unknown(server)
        history.check_rows(server)
    keys = set(history.seqs)
    by_key = {claim.key: seq for claim, seq in history.seqs.items()}
    assert len(by_key) == len(keys)


def test_kill__during_changes_of_a_policy(server):
    """What was answered holds; what was not is either done or not, never half."""
    chance = seeded()
    for _ in range(ROUNDS):
        policy = server.create(total=100)
        answered, sent = policy["total"], policy["total"]
        killer = threading.Timer(chance.uniform(0.0, 0.08), server.process.kill)
        killer.start()
        try:
            for step in itertools.count():
                sent = 50 + step % 100
                body = expect(server.patch(policy["id"], total=sent), 200)
                answered = body["total"]
        except (Closed, OSError):
            pass
        killer.join()
        server.restart()
        shown = server.policy(policy["id"])
        assert shown["total"] in (answered, sent)
        assert shown["remaining"] == shown["total"]
        outcomes = server.claims(policy["id"], [f"u{i}" for i in range(160)])
        assert tally(outcomes).get((201, "ISSUED")) == shown["total"]
        audit(server.database)


def test_kill__during_creates(server):
    """A policy that was answered is there and can be claimed to its last unit."""
    chance = seeded()
    for _ in range(ROUNDS):
        known = []
        killer = threading.Timer(chance.uniform(0.0, 0.08), server.process.kill)
        killer.start()
        try:
            while True:
                known.append(server.create(total=2)["id"])
        except (Closed, OSError):
            pass
        killer.join()
        server.restart()
        for policy in known[-5:]:
            outcomes = server.claims(policy, ["a", "b", "c"])
            assert tally(outcomes) == {(201, "ISSUED"): 2, (409, "SOLD_OUT"): 1}
        audit(server.database)


def test_kill__while_it_starts(server):
    """A crash during recovery must leave a ledger that recovers."""
    chance = seeded()
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    history.rush(server, (Claim(policy, f"u{i}", None) for i in range(2000)))
    server.kill()
    for _ in range(2 * ROUNDS):
        server.spawn()
        time.sleep(chance.uniform(0.0, 0.05))  # The moment is the thing under test.
        server.kill()
    server.start()
    history.check_rows(server)
    history.check_answers(server)


def test_kill__a_lost_answer_is_found_by_its_key(server):
    """The only thing a client keeps is its key; whatever happened, it names one claim."""
    chance = seeded()
    policy = server.create(total=10 ** 6, limit=1000)["id"]
    for round_number in range(ROUNDS):
        user = f"one{round_number}"  # A fresh allowance each round.
        keys = [f"round{round_number}-{i}" for i in range(300)]
        killer = threading.Timer(chance.uniform(0.0, 0.05), server.process.kill)
        killer.start()
        try:
            server.storm([claim_bytes(policy, user, key) for key in keys], connections=32)
        except OSError:
            pass
        killer.join()
        server.restart()
        before = {row["request_id"] for row in coupons(server.database, policy)}
        outcomes = server.storm([claim_bytes(policy, user, key) for key in keys],
                                connections=32)
        counts = tally(outcomes)
        again = server.storm([claim_bytes(policy, user, key) for key in keys], connections=32)
        first = [o.answer.json.get("seq") for o in outcomes]
        assert [o.answer.json.get("seq") for o in again if o.answer.status == 200] == [
            seq for seq in first if seq is not None]
        rows = coupons(server.database, policy)
        assert len({row["request_id"] for row in rows}) == len(rows)
        assert len(rows) == len(before) + counts.get((201, "ISSUED"), 0)
        assert set(counts) <= {(201, "ISSUED"), (200, "ALREADY_ISSUED")}


def test_kill__sold_out_stays_sold_out(server):
    policy = server.create(total=100)["id"]
    history = History()
    history.rush(server, (Claim(policy, f"u{i}", None) for i in range(150)))
    assert policy in history.sold_out
    for _ in range(2):
        server.restart()
        assert server.policy(policy)["state"] == "SOLD_OUT"
        expect_problem(server.claim(policy, "new"), 409, "SOLD_OUT")
        history.check_answers(server)


@pytest.mark.parametrize("threads", [1, 4])
def test_kill__with_other_numbers_of_loops(serve, threads):
    chance = seeded()
    server = serve(config={"threads": threads})
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    for round_number in range(max(1, ROUNDS // 4)):
        history.rush(server, endless([policy], f"t{round_number}"), connections=32,
                     on_answer=history.survive(server, chance))
        server.restart()
        history.check_rows(server)
        history.retry_unknown(server)
        history.check_rows(server)
