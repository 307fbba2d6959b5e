"""The database server dies in the middle of a drop: clear 503s while it is away, and everything
goes on when it is back, without a restart of dibs."""

import math
import os
import time

from crowd import Crowd, await_ready, expect_away, expect_one_life
from harness import expect_problem
from history import ROUNDS, History
from ledger import coupons

# How long a database is down in the middle of a drop: longer in a soak.
DOWN_S = float(os.environ.get("DIBS_TEST_DOWN_S") or (30 if ROUNDS > 4 else 3))


def test_database_crash__killed_again_and_again(on_victim, victim):
    server = on_victim()
    history = History()
    big = server.create(total=10 ** 6)["id"]
    for round_number in range(ROUNDS):
        small = server.create(total=150)["id"]
        with Crowd(server, history, [big, small], prefix=f"r{round_number}") as crowd:
            crowd.await_wins(100)
            victim.kill()
            crowd.await_refusals(20)
            assert expect_away(server)
            victim.start()
            crowd.await_wins(100)
        history.check_rows(server)
        history.check_sold_out(server, small, 150)
    history.check_answers(server)
    expect_one_life(server)


def test_database_crash__down_in_the_middle_of_a_drop(on_victim, victim):
    server = on_victim()
    history = History()
    total = 1500
    policy = server.create(total=total)["id"]
    with Crowd(server, history, [policy], people=total + 300) as crowd:
        crowd.await_wins(total // 3)
        victim.kill()
        down_until = time.monotonic() + DOWN_S
        words = expect_away(server)
        assert "127.0.0.1" in words, words
        quickest_s = math.inf  # Any of them may meet a busy machine.
        while time.monotonic() < down_until or (quickest_s >= 2 and
                                                time.monotonic() < down_until + 30):
            # Whoever comes meanwhile is told at once, and so is an admin.
            asked = time.monotonic()
            expect_problem(server.claim(policy, "meanwhile", key="meanwhile"), 503, "UNAVAILABLE")
            expect_problem(server.patch(policy, paused=True), 503, "UNAVAILABLE")
            quickest_s = min(quickest_s, time.monotonic() - asked)
            crowd.await_refusals(10)
        assert quickest_s < 2, "503 has to be said at once"
        victim.start()
        crowd.join()
    winners = {user for (_, seq), user in history.wins.items()}
    assert len(winners) == len(history.wins) == len(coupons(server.database, policy)) == total
    assert crowd.counts[409] > 0 and crowd.counts[None] == 0
    history.check_rows(server)
    history.check_answers(server)
    expect_one_life(server)
    await_ready(server)
