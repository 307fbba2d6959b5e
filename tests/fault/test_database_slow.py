"""A slow database makes dibs say 503 before the gate, not grow; one that hangs holds up nobody."""

import signal
import threading
import time

import pytest

from crowd import Crowd, await_ready, expect_away, expect_one_life
from harness import STOP_TIMEOUT_S, expect_problem, tally, wait_until
from history import Claim, History
from ledger import audit, coupons
from wire import SLOW, encode

AT_ONCE_S = 10 * SLOW  # Less than the database is away; far more than an answer from memory takes.
MEMORY_MORE_MAX = 64 << 20


class Watch:
    """Looks at the metrics in the background of a test."""

    def __init__(self, server):
        self.server = server
        self.pending_max = 0
        self.memory_max = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self.over.wait(0.05):
            self.pending_max = max(self.pending_max, self.server.metrics()["dibs_pending"])
            self.memory_max = max(self.memory_max, self.server.memory_bytes())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def at_once(ask):
    """The answer, which must not have had to wait for the database."""
    started = time.monotonic()
    answer = ask()
    assert time.monotonic() - started < AT_ONCE_S, f"{time.monotonic() - started:.1f} s: {answer}"
    return answer


def test_database_slow__back_pressure(on_victim, proxy):
    """Pending claims grow to their cap, and who comes then is refused before the gate: no seq is
    used up, and no memory."""
    cap, workers = 40, 64
    server = on_victim(proxy=proxy, pending_max=cap, ack_timeout="1m", ledger_timeout="20s")
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    history.rush(server, (Claim(policy, f"warm{i}", None) for i in range(500)), connections=32)
    before = server.memory_bytes()
    proxy.delay_s = 0.1
    with Watch(server) as watch, Crowd(server, history, [policy], workers=workers,
                                       repeats=1) as crowd:
        crowd.await_refusals(200)
        crowd.await_wins(cap)
        wait_until(lambda: watch.pending_max >= cap / 2, "it is slow enough to see")
        at_once(lambda: server.get("/healthz"))
        proxy.delay_s = 0
    # The cap is looked at once per tick, so a tick's claims may come on top.
    assert watch.pending_max <= cap + workers
    assert watch.memory_max < before + MEMORY_MORE_MAX
    rows = coupons(server.database, policy)
    assert len(rows) == len(history.wins) == rows[-1]["seq"], "a refused claim has used up a seq"
    history.check_rows(server)
    expect_one_life(server)


def test_database_slow__slower_than_the_timeout(on_victim, proxy):
    """Every answer of the database comes too late: clear 503s, and all is well when it is fast."""
    server = on_victim(proxy=proxy, ledger_timeout="1s", ack_timeout="300ms")
    history = History()
    policy = server.create(total=300)["id"]
    with Crowd(server, history, [policy], people=350) as crowd:
        crowd.await_wins(50)
        proxy.delay_s = 2
        crowd.await_refusals(100)
        expect_away(server)
        at_once(lambda: server.get("/healthz"))
        expect_problem(at_once(lambda: server.claim(policy, "new", key="new")), 503, "UNAVAILABLE")
        proxy.delay_s = 0
        crowd.join()
    assert len(history.wins) == 300 == len(coupons(server.database, policy))
    history.check_rows(server)
    history.check_answers(server)
    expect_one_life(server)


def test_database_hangs__longer_than_the_timeout(on_victim, victim):
    """SIGSTOP: connections stand, and nothing is said. Threads do not hang with it."""
    server = on_victim(ledger_timeout="1s", ack_timeout="300ms")
    history = History()
    policy = server.create(total=400)["id"]
    with Crowd(server, history, [policy], people=450) as crowd:
        crowd.await_wins(50)
        victim.pause()
        crowd.await_refusals(100)
        expect_away(server)
        at_once(lambda: server.get("/healthz"))
        at_once(lambda: server.get("/metrics"))
        expect_problem(at_once(lambda: server.claim(policy, "new", key="new")), 503, "UNAVAILABLE")
        expect_problem(at_once(lambda: server.cancel(f"{policy}-1")), 503, "UNAVAILABLE")
        # A read has to find out by itself, and does within the timeout.
        expect_problem(server.get(f"/v1/coupons/{policy}-1"), 503, "UNAVAILABLE")
        victim.resume()
        crowd.join()
    assert len(history.wins) == 400 == len(coupons(server.database, policy))
    history.check_rows(server)
    history.check_answers(server)
    expect_one_life(server)


def test_database_hangs__with_many_calls_waiting(on_victim, victim):
    """More calls than there are threads for them: not each of them waits for the timeout."""
    server = on_victim(ledger_timeout="1s", ack_timeout="300ms")
    policy = server.create(total=10)["id"]
    seq = server.win(policy, "u1")["seq"]
    victim.pause()
    started = time.monotonic()
    outcomes = server.storm(320 * [encode("GET", f"/v1/policies/{policy}"),
                                   encode("POST", f"/v1/coupons/{policy}-{seq}/redeem")])
    assert set(tally(outcomes)) == {(503, "UNAVAILABLE")}
    assert time.monotonic() - started < 40 * SLOW  # not the timeout for each, one after the other
    victim.resume()
    await_ready(server)
    assert server.policy(policy)["issued"] == 1
    assert server.win(policy, "u2")["seq"] == 2


@pytest.mark.parametrize("fate", ["hangs", "is_gone"])
def test_database_hangs__stop_in_good_order(on_victim, victim, fate):
    """SIGTERM while claims are pending and the database does not take them: it ends in time, and
    nobody was told that they had won."""
    server = on_victim(ledger_timeout="1s", ack_timeout="2m", stop_timeout="1s")
    history = History()
    policy = server.create(total=100)["id"]
    history.rush(server, (Claim(policy, f"before{i}", f"b{i}") for i in range(20)))
    if fate == "hangs":
        victim.pause()
    else:
        victim.kill()
    claims = [Claim(policy, f"during{i}", f"d{i}") for i in range(20)]
    sender = threading.Thread(target=history.rush, args=(server, iter(claims)))
    sender.start()
    expect_away(server)
    server.signal(signal.SIGTERM)
    started = time.monotonic()
    code = server.wait(STOP_TIMEOUT_S)
    assert code in (0, 1), f"{code}\n{server.log_text()}"
    assert time.monotonic() - started < 15 * SLOW
    sender.join()
    assert len(history.wins) == 20
    if fate == "hangs":
        victim.resume()
    else:
        victim.start()
    # The old session may need a moment to see that its client is gone.
    server.config["ledger_timeout"] = "20s"
    server.start()
    history.retry_unknown(server)
    history.rush(server, iter(claims))  # Some may not have been sent before it ended.
    assert len(history.wins) == 40 == len(coupons(server.database, policy))
    history.check_rows(server)


def test_database_slow__reads_do_not_hold_up_claims(on_victim, victim, foreign):
    """Readers have connections of their own: somebody's table lock that stops them from reading
    policies does not stop claims."""
    server = on_victim(ledger_timeout="2s")
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    with foreign(server.database) as session, Crowd(server, history, [policy]) as crowd:
        crowd.await_wins(20)
        session.execute("SELECT * FROM policy FOR UPDATE")
        for _ in range(5):
            assert server.policy(policy)["total"] == 10 ** 6
        crowd.await_wins(50)
        session.rollback()
    history.check_rows(server)
    wait_until(lambda: server.metrics()["dibs_pending"] == 0, "nothing pending")
    audit(server.database)
