"""Others work in the ledger's database: locks, deadlocks, and a trigger that does not like a row."""

import concurrent.futures
import threading
import time

import pytest

from crowd import Crowd, await_ready, expect_one_life
from harness import claim_bytes, expect, expect_problem, tally, wait_until
from history import Claim, History
from ledger import KIND, audit, coupons
from wire import SLOW

# What somebody else locks, whether claims have to wait for it, and how it is let go.
TABLE = {"postgres": "LOCK TABLE coupon IN ACCESS EXCLUSIVE MODE",
         "mysql": "LOCK TABLES coupon WRITE"}[KIND]
LOCKS = {
    "leases": ("SELECT * FROM lease FOR UPDATE", True),
    "mark": ("SELECT * FROM writer FOR UPDATE", True),
    "table": (TABLE, True),
    "coupons": ("SELECT * FROM coupon FOR UPDATE", False),
    "policies": ("SELECT * FROM policy FOR UPDATE", False),
}


def let_go(session):
    session.execute("UNLOCK TABLES" if KIND == "mysql" else "ROLLBACK")
    session.rollback()


@pytest.mark.parametrize("what", LOCKS)
def test_database_locks__held_by_somebody_else(on_victim, foreign, what):
    """Claims wait, or are told 503 and wait behind it: all of them are there in the end."""
    statement, holds_claims_up = LOCKS[what]
    server = on_victim(ledger_timeout="1s")
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    with foreign(server.database) as session, Crowd(server, history, [policy]) as crowd:
        crowd.await_wins(50)
        session.execute(statement)
        if holds_claims_up:
            crowd.await_refusals(20)
            assert server.get("/healthz").status == 200
            expect_problem(server.patch(policy, paused=True), 503, "UNAVAILABLE")
        let_go(session)
        crowd.await_wins(50)
    history.check_rows(server)
    history.check_answers(server)
    expect_one_life(server)
    await_ready(server)


def test_database_locks__a_coupon_that_somebody_holds(on_victim, foreign):
    """A cancel waits for the row and gives up; claims that share its transaction are not lost."""
    server = on_victim(ledger_timeout="1s")
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    seq = server.win(policy, "first")["seq"]
    with Crowd(server, history, [policy]) as crowd:
        crowd.await_wins(20)
        with foreign(server.database) as session:
            session.execute("SELECT * FROM coupon WHERE policy_id = ? AND seq = ? FOR UPDATE",
                            policy, seq)
            started = time.monotonic()
            expect_problem(server.cancel(f"{policy}-{seq}"), 503, "UNAVAILABLE")
            assert time.monotonic() - started < 10 * SLOW, "it waited for the lock again and again"
            session.rollback()
        crowd.await_wins(20)
        answer = wait_until(lambda: next((a for a in [server.cancel(f"{policy}-{seq}")]
                                          if a.status != 503), None), "an answer")
        expect(answer, 200)
    history.check_rows(server)


def test_database_locks__a_locked_coupon_holds_up_nobody_else(on_victim, foreign):
    """Redeeming and cancelling wait for the row by themselves: claims of every policy go on."""
    server = on_victim(ledger_timeout="20s", ack_timeout="10s")
    policy, other = (server.create(total=10 ** 6)["id"] for _ in range(2))
    coupons_held = [f"{policy}-{server.win(policy, user)['seq']}" for user in ("u1", "u2")]
    history = History()
    calls = [lambda: server.cancel(coupons_held[0]),
             lambda: server.post(f"/v1/coupons/{coupons_held[1]}/redeem", {"order_id": "o1"})]
    with foreign(server.database) as session, \
            concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        for coupon in coupons_held:
            session.execute("SELECT * FROM coupon WHERE policy_id = ? AND seq = ? FOR UPDATE",
                            *map(int, coupon.split("-")))
        waiting = [pool.submit(call) for call in calls]
        rounds = 0
        while not all(call.done() for call in waiting):
            started = time.monotonic()
            history.rush(server, [Claim(p, f"r{rounds}-{p}-{i}", None)
                                  for p in (policy, other) for i in range(5)])
            assert time.monotonic() - started < 5 * SLOW, "claims waited for the row"
            rounds += 1
        assert rounds > 1 and len(history.wins) == 10 * rounds
        for call in waiting:
            expect_problem(call.result(), 503, "UNAVAILABLE")
        session.rollback()
    for call in calls:
        expect(call(), 200)
    history.check_rows(server)
    assert not server.events("ledger_refuses"), server.log_text()


def deadlocks(victim):
    if KIND == "postgres":
        return victim.log_path.read_text(errors="replace").count("deadlock detected")
    row, = victim.query("mysql", "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
    return int(row["Value"])


def test_database_locks__deadlocks(on_victim, victim, foreign):
    """Somebody else takes the same locks in another order: whoever of the two is chosen, everybody
    gets what they are owed."""
    server = on_victim(ledger_timeout="4s", ack_timeout="3s")
    history = History()
    policy = server.create(total=10 ** 6)["id"]
    before = deadlocks(victim)
    with foreign(server.database) as session, Crowd(server, history, [policy]) as crowd:
        for _ in range(10):
            crowd.await_wins(20)
            session.execute("SELECT * FROM lease WHERE policy_id = ? FOR UPDATE", policy)
            session.await_waiter()
            try:
                session.execute("SELECT * FROM writer FOR UPDATE")
            except Exception as error:  # pylint: disable=broad-except
                assert "deadlock" in str(error).lower(), error
            session.rollback()
            session.begin()
            if deadlocks(victim) >= before + 2:
                break  # Where the machine stood still, somebody's patience may have ended first.
        crowd.await_wins(20)
    assert deadlocks(victim) >= before + 2
    history.check_rows(server)
    history.check_answers(server)
    expect_one_life(server)


def test_database_locks__somebody_else_is_busy_all_the_time(on_victim, foreign):
    server = on_victim()
    history = History()
    policy = server.create(total=400)["id"]
    stopped = threading.Event()
    errors = []

    def work():
        try:
            with foreign(server.database) as session:
                while not stopped.is_set():
                    session.execute("UPDATE policy SET name = 'sale' WHERE id = ?", policy)
                    session.execute("UPDATE coupon SET reason = NULL WHERE policy_id = ?"
                                    " AND seq < 20", policy)
                    session.commit()
                    session.begin()
        except Exception as error:  # pylint: disable=broad-except
            if "deadlock" not in str(error).lower():
                errors.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        with Crowd(server, history, [policy], people=500) as crowd:
            crowd.await_wins(100)
            for seq in range(1, 30):
                history.cancel(server, policy, seq)
            crowd.join()
    finally:
        stopped.set()
        worker.join()
    assert not errors, errors
    history.check_rows(server)
    audit(server.database)


# --- a row that the database does not take ---

# How a trigger may be against a row; PostgreSQL lets it choose the code of its error, and drop it.
WAYS = {
    "postgres": {"raises": "RAISE EXCEPTION 'not this one'",
                 "raises_its_own": "RAISE EXCEPTION 'not this one' USING ERRCODE = 'SHOP1'",
                 "drops": "RETURN NULL"},
    "mysql": {"raises": "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'"},
}[KIND]
TRIGGER = {
    "postgres": [
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN"
        " IF NEW.user_id = 'poison' THEN {way}; END IF; RETURN NEW; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER refuse BEFORE INSERT ON coupon FOR EACH ROW EXECUTE FUNCTION refuse()"],
    "mysql": [
        "CREATE TRIGGER refuse BEFORE INSERT ON coupon FOR EACH ROW"
        " IF NEW.user_id = 'poison' THEN {way}; END IF"],
}[KIND]


@pytest.fixture(params=WAYS)
def with_trigger(on_victim, request):
    """A server whose ledger has a trigger of the shop's own."""
    server = on_victim(ack_timeout="10s")
    for statement in TRIGGER:
        server.database.execute(statement.format(way=WAYS[request.param]))
    return server


def test_database_trigger__one_bad_row_among_500(with_trigger):
    """Trap 22: one failing batch poisons everyone in it."""
    server = with_trigger
    policy = server.create(total=1000)["id"]
    users = [f"u{i}" for i in range(250)] + ["poison"] + [f"v{i}" for i in range(249)]
    outcomes = server.claims(policy, users)
    others = [o for user, o in zip(users, outcomes) if user != "poison"]
    assert tally(others) == {(201, "ISSUED"): 499}
    assert len({o.answer.json["seq"] for o in others}) == 499
    expect_problem(outcomes[250].answer, 503, "UNAVAILABLE")
    server.await_log("claim_refused")
    assert all("poison" in line for line in server.log if "claim_refused" in line)
    assert "poison" not in {row["user_id"] for row in coupons(server.database, policy)}
    await_ready(server)


def test_database_trigger__costs_nobody_a_unit(with_trigger):
    """However often it is tried, what the refused one did not get can be won by others."""
    server = with_trigger
    policy = server.create(total=20)["id"]
    for i in range(5):
        expect_problem(server.claim(policy, "poison"), 503, "UNAVAILABLE")
        answer = server.claim(policy, "poison", key=f"k{i}")
        if answer.status == 200:  # The key names its claim, and the answer says what it came to.
            assert (answer.json["state"], answer.json["coupon_state"]) == ("VOID", None)
        else:
            expect_problem(answer, 503, "UNAVAILABLE")
    with server.connect() as connection:
        connection.send(claim_bytes(policy, "poison"), "POST")
        outcomes = server.claims(policy, [f"u{i}" for i in range(10)])
        assert tally(outcomes) == {(201, "ISSUED"): 10}
        expect_problem(connection.receive(), 503, "UNAVAILABLE")
    won = [server.claim(policy, f"v{i}").status for i in range(10)]
    assert won == [201] * 10
    expect_problem(server.claim(policy, "late"), 409, "SOLD_OUT")
    server.restart()
    expect_problem(server.claim(policy, "late"), 409, "SOLD_OUT")
    audit(server.database)
