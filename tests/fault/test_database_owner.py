"""One dibs with a gate of its own per ledger: a second one is refused, the next one starts as soon
as the first is gone, and one whose ledger was taken over ends itself."""

import contextlib
import os
import signal
import time

import pytest

from crowd import Crowd, await_ready, expect_away
from harness import Server, claim_bytes, expect, run_serve, tally, wait_until
from history import ROUNDS, Claim, History, seeded
from ledger import audit, coupons, rows
from proxy import LOSE_ANSWER, LOSE_REQUEST

TAKE_OVER_S = 20  # "Within seconds" for a start on a ledger whose owner has just been killed.


@pytest.fixture
def successor(tmp_path):
    """Makes a second dibs for the ledger of another, by a way of its own."""
    made = []

    def make(server, url=None, **config):
        # The old session may need a moment to see that its client is gone.
        other = Server(folder=tmp_path / f"successor-{len(made)}", database=server.database,
                       config={**server.config, "ledger_timeout": "20s", **config})
        if url:
            command = other.command
            other.command = lambda: [url if word == server.database.url else word
                                     for word in command()]
        made.append(other)
        return other

    yield make
    for other in made:
        print(other.log_text())
        other.check_log()
        other.dispose()


def test_database_owner__a_second_serve_refuses_and_names_the_first(on_victim):
    server = on_victim()
    policy = server.create(total=5)["id"]
    refused = run_serve(server.database.url, config={"ledger_timeout": "1s"})
    assert refused.returncode == 1
    assert f"process {server.pid} on" in refused.stderr, refused.stderr
    assert "stop" in refused.stderr and "127.0.0.1" in refused.stderr, refused.stderr
    assert server.win(policy, "u1")["seq"] == 1


def test_database_owner__two_starts_at_once_one_serves(on_victim, successor):
    server = on_victim(ledger_timeout="1s")
    server.stop()
    others = [successor(server, ledger_timeout="1s").spawn() for _ in range(3)]
    wait_until(lambda: sum(not other.alive for other in others) == 2, "two that refuse",
               timeout_s=30)
    one, = [other for other in others if other.alive]
    one.await_log("listening")
    for other in others:
        if other is not one:
            assert other.wait() == 1
            assert any("stop" in line for line in other.log), other.log_text()
    one.stop()
    server.start()


def test_database_owner__starts_soon_after_a_kill_under_load(on_victim):
    chance = seeded()
    server = on_victim()
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    for round_number in range(ROUNDS):
        with Crowd(server, history, [policy], prefix=f"r{round_number}") as crowd:
            crowd.await_wins(chance.randint(20, 200))
            server.kill()
            killed = time.monotonic()
            server.start()
            assert time.monotonic() - killed < TAKE_OVER_S
            crowd.await_wins(20)
        history.check_rows(server)
        history.check_answers(server)


def test_database_owner__starts_soon_though_the_old_session_hangs(on_victim, foreign):
    """The session of the one that was killed waits for a lock, so the database server does not see
    that its client is gone; it still owns the ledger until that wait ends."""
    server = on_victim(ack_timeout="10s", ledger_timeout="3s")
    policy = server.create(total=10)["id"]
    with foreign(server.database) as session:
        session.execute("SELECT * FROM lease WHERE policy_id = ? FOR UPDATE", policy)
        with server.connect() as connection:
            connection.send(claim_bytes(policy, "u1"), "POST")
            session.await_waiter()
            server.kill()
        killed = time.monotonic()
        server.start()
        assert time.monotonic() - killed < TAKE_OVER_S
        session.rollback()
    assert server.win(policy, "u2")["seq"] == 1
    assert server.win(policy, "u1")["seq"] == 2


def test_database_owner__taken_over_while_it_was_cut_off(on_victim, victim, proxy, successor):
    """The first comes back to a ledger that another has written to: it ends, and nothing is sold
    twice."""
    server = on_victim(proxy=proxy, ledger_timeout="1s", ack_timeout="10s")
    history = History()
    policy = server.create(total=300)["id"]
    history.rush(server, (Claim(policy, f"first{i}", f"f{i}") for i in range(100)))
    proxy.refuse()
    proxy.cut()
    expect_away(server)
    history.rush(server, (Claim(policy, f"lost{i}", f"l{i}") for i in range(50)))
    assert len(history.wins) == 100

    second = successor(server, url=victim.url(server.database.name)).start()
    history.check_rows(second)
    history.check_answers(second)
    history.rush(second, (Claim(policy, f"second{i}", f"s{i}") for i in range(50)))
    proxy.admit()
    wait_until(lambda: not server.alive, "the end of the first", timeout_s=30)
    assert server.wait() == 1
    assert server.events("ledger_taken_over"), server.log_text()

    history.retry_unknown(second)
    history.rush(second, (Claim(policy, f"rest{i}", f"r{i}") for i in range(300)))
    assert len(history.wins) == 300 == len(coupons(second.database, policy))
    history.check_rows(second)
    second.stop()


@pytest.mark.parametrize("way", [LOSE_REQUEST, LOSE_ANSWER], ids=["request_lost", "answer_lost"])
def test_database_owner__taken_over_in_doubt(on_victim, victim, proxy, successor, way):
    """The mark moves by one with our own commit, and it moves when another enters: the two must not
    be taken for each other, also when the other one is gone again."""
    # With a key of its own for codes the other one writes nothing when it starts.
    server = on_victim(proxy=proxy, ack_timeout="20s", code_key="k" * 32)
    policy = server.create(total=10)["id"]
    proxy.trap(b"COMMIT", way, shuts=True)
    with server.connect() as connection:
        connection.send(claim_bytes(policy, "u1", "k1"), "POST")
        server.await_log("commit_looked_up")
        proxy.cut()
        second = successor(server, url=victim.url(server.database.name)).start()
        second.stop()
        proxy.admit()
        wait_until(lambda: not server.alive, "the end of the first", timeout_s=30)
        answer = None
        with contextlib.suppress(Exception):
            answer = connection.receive()
    assert answer is None or answer.status != 201, f"{answer} and then it ended"
    assert server.wait() == 1
    assert server.events("ledger_taken_over"), server.log_text()
    server.start()
    expect(server.claim(policy, "u1", "k1"), 201 if way == LOSE_REQUEST else 200)
    audit(server.database)


def test_database_owner__stopped_long_and_taken_over(on_victim, victim, successor):
    """When the database server has ended the session of a dibs that was stopped (SIGSTOP), another
    may start, and the first ends when it goes on."""
    server = on_victim(ledger_timeout="1s", ack_timeout="10s")
    policy = server.create(total=100)["id"]
    history = History()
    history.rush(server, (Claim(policy, f"a{i}", None) for i in range(20)))
    os.kill(server.pid, signal.SIGSTOP)
    second = successor(server)
    victim.restart()
    second.start()
    history.rush(second, (Claim(policy, f"b{i}", None) for i in range(20)))
    with server.connect() as connection:
        connection.send(claim_bytes(policy, "late"), "POST")
        os.kill(server.pid, signal.SIGCONT)
        wait_until(lambda: not server.alive, "the end of the first", timeout_s=30)
        with contextlib.suppress(Exception):
            assert connection.receive().status == 503
    assert server.wait() == 1
    history.check_rows(second)
    assert len(coupons(second.database, policy)) == 40
    assert tally(second.claims(policy, [f"c{i}" for i in range(70)]))[201, "ISSUED"] == 60
    second.stop()


def test_database_owner__taken_over_it_answers_nothing_from_memory(on_victim, victim, successor):
    """From when it sees that its session is gone until it ends: what it remembers may be wrong."""
    server = on_victim()
    policy = server.create(total=1)["id"]
    seq = server.win(policy, "u1")["seq"]
    os.kill(server.pid, signal.SIGSTOP)
    victim.restart()
    second = successor(server).start()
    expect(second.cancel(f"{policy}-{seq}"), 200)
    wait_until(lambda: second.claim(policy, "u2").status in (200, 201), "its unit returns")
    os.kill(server.pid, signal.SIGCONT)
    told = []

    def has_ended():
        with contextlib.suppress(Exception):  # It ends in the middle of one.
            told.append(server.claim(policy, "u1").status)
            time.sleep(0.05)
        return not server.alive

    wait_until(has_ended, "the end of the first", timeout_s=60)
    assert server.wait() == 1 and server.events("ledger_taken_over"), server.log_text()
    assert 503 in told, "it went on as if nothing had happened"
    assert set(told[told.index(503):]) == {503}, told
    assert told.count(503) > len(told) - told.count(503), told
    second.stop()


def test_database_owner__cut_off_for_a_moment(on_victim, proxy):
    """Whoever comes back to a ledger that nobody has touched goes on."""
    server = on_victim(proxy=proxy)
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    with Crowd(server, history, [policy]) as crowd:
        for _ in range(5):
            crowd.await_wins(30)
            proxy.cut()
        crowd.await_wins(30)
    await_ready(server)
    history.check_rows(server)
    assert not server.events("ledger_taken_over")
    holder, = rows(server.database, "SELECT holder FROM writer")
    assert str(server.pid) in holder["holder"]
