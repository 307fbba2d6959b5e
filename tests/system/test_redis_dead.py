"""Claims of a shared gate that the ledger cannot issue: tried again, given up, written down."""

import concurrent.futures
import json

import pytest

from harness import expect, expect_problem, run_dibs, wait_until
from ledger import coupons, rows
from servers import Redis
from sharing import Sharing

TRIGGERS = {
    "sqlite": ["CREATE TRIGGER refuse_bad BEFORE INSERT ON coupon WHEN NEW.user_id LIKE 'bad%'"
               " BEGIN SELECT RAISE(ABORT, 'not this one'); END"],
    "postgres": ["CREATE FUNCTION refuse_bad() RETURNS trigger LANGUAGE plpgsql AS"
                 " 'BEGIN IF NEW.user_id LIKE ''bad%%'' THEN RAISE check_violation"
                 " USING MESSAGE = ''not this one''; END IF; RETURN NEW; END'",
                 "CREATE TRIGGER refuse_bad BEFORE INSERT ON coupon FOR EACH ROW"
                 " EXECUTE FUNCTION refuse_bad()"],
}


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


def refuse_bad(shop):
    """As a trigger of the shop's own would: users named bad… get no coupon."""
    for statement in TRIGGERS[shop.database.kind]:
        shop.database.execute(statement)


def letters(shop):
    return rows(shop.database, "SELECT * FROM dead_letter ORDER BY policy_id, seq")


def test_redis_dead__a_poisoned_claim_holds_nobody_up(tmp_path, redis):
    """Traps 6 and 22: it is tried a few times, then it is VOID and its unit returns."""
    users = ["bad-one", *(f"u{i}" for i in range(30))]
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve()
        policy = server.create(total=31)["id"]
        refuse_bad(shop)
        told = {user: server.claim(policy, user) for user in users}
        assert {answer.status for answer in told.values()} == {202}
        wait_until(lambda: len(shop.holders(policy)) == 30, "the others are issued")
        wait_until(lambda: letters(shop), "it is given up", 30)
        (letter,) = letters(shop)
        assert (letter["user_id"], letter["seq"]) == ("bad-one", told["bad-one"].json["seq"])
        assert letter["attempts"] > 3 and "not this one" in letter["reason"]
        refusals = server.await_events("claim_refused", letter["attempts"])
        assert {event["user"] for event in refusals} == {"bad-one"}
        assert len(refusals) == letter["attempts"]
        shop.await_drained(policy)
        # Operators see it.
        def on_board():
            with server.events_of("/v1/live") as stream:
                return stream.next()[1]["dead_letters"]

        wait_until(lambda: on_board() == 1, "the board counts it", 30)

        def on_policy():
            with server.events_of(f"/v1/policies/{policy}/live") as stream:
                history = stream.next()[1]
            return ("dead_letters" in [entry["event"] for entry in history["log"]]
                    and sum(second["accepted"] for second in history["seconds"]) == 31)

        wait_until(on_policy, "the policy's page tells of it")
        # Its unit is somebody else's now, and the user may try again.
        wait_until(lambda: server.claim(policy, "next").status in (200, 202), "its unit returns")
        wait_until(lambda: "next" in shop.holders(policy), "it is issued")
        shop.await_sold_out(server, policy)
        assert len(shop.holders(policy)) == 31


def test_redis_dead__who_waits_for_the_ledger_hears_of_the_refusal(tmp_path, redis):
    """Nobody has been told yes, so nobody waits for it to be tried again."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(ack="ledger", ack_timeout="30s")
        policy = server.create(total=1)["id"]
        refuse_bad(shop)
        expect_problem(server.claim(policy, "bad-one"), 503, "UNAVAILABLE")
        assert expect(server.status(policy, "bad-one"), 200)["state"] == "VOID"
        (letter,) = letters(shop)
        assert letter["attempts"] == 1 and "not this one" in letter["reason"]
        wait_until(lambda: server.claim(policy, "next").status == 201, "its unit returns")


# Refuses whatever is written for somebody whom the shop does not know: also a VOID row.
CUSTOMERS = {
    "sqlite": ["CREATE TABLE customer (id TEXT PRIMARY KEY)",
               "CREATE TRIGGER known BEFORE INSERT ON coupon WHEN NOT EXISTS"
               " (SELECT 1 FROM customer WHERE id = NEW.user_id)"
               " BEGIN SELECT RAISE(ABORT, 'no such customer'); END"],
    "postgres": ["CREATE TABLE customer (id text PRIMARY KEY)",
                 "ALTER TABLE coupon ADD FOREIGN KEY (user_id)"
                 " REFERENCES customer (id)"],
}


@pytest.mark.parametrize("ledger", CUSTOMERS)
def test_redis_dead__a_rule_of_the_shops_burns_no_unit(tmp_path, redis, ledger):
    """Trap 37: the claim is VOID in a table of our own, and its unit can be won by others."""
    with Sharing(tmp_path, redis, ledger=ledger) as shop:
        server = shop.serve()
        if ledger == "postgres":
            shop.work()
        policy = server.create(total=4)["id"]
        for statement in CUSTOMERS[ledger]:
            shop.database.execute(statement)
        for i in range(4):
            shop.database.execute(f"INSERT INTO customer (id) VALUES ('u{i}')")
        unknown = ["stranger-1", "stranger-2"]
        for user in (*unknown, "u0"):
            expect(server.claim(policy, user), 202)
        wait_until(lambda: len(letters(shop)) == 2, "they are given up", 60)
        shop.await_drained(policy)
        for user in unknown:
            status = expect(server.status(policy, user), 200)
            assert (status["state"], status["reason"]) == ("VOID", "the database refused it")
        for i in range(1, 4):
            wait_until(lambda i=i: server.claim(policy, f"u{i}").status in (200, 202),
                       "their units return", 60)
        wait_until(lambda: len(shop.holders(policy)) == 4, "all of it is issued")
        shop.await_sold_out(server, policy)
        report = run_dibs("audit", "--json", "--url", "http://%s:%d" % server.address)
        assert report.returncode == 0, report.stdout


def test_redis_dead__a_passing_refusal_costs_nothing(tmp_path, redis):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve()
        policy = server.create(total=5)["id"]
        refuse_bad(shop)
        seq = expect(server.claim(policy, "bad-luck"), 202)["seq"]
        server.await_log("claim_refused")
        shop.database.execute("DROP TRIGGER refuse_bad")
        wait_until(lambda: shop.holders(policy) == {"bad-luck": seq}, "it is issued after all")
        assert not letters(shop)


def test_redis_dead__the_blocked_leave_a_letter(tmp_path, redis):
    """On PostgreSQL, with a worker that was away when it happened."""
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        policy = server.create(total=5)["id"]
        won = expect(server.claim(policy, "villain"), 202)
        expect(server.claim(policy, "friend"), 202)
        expect(server.request("PUT", "/v1/users/villain", {"blocked": True}), 200)
        shop.work()
        wait_until(lambda: letters(shop), "it is given up", 30)
        (letter,) = letters(shop)
        assert (letter["user_id"], letter["seq"]) == ("villain", won["seq"])
        assert "blocked" in letter["reason"]
        shop.await_drained(policy)
        states = {row["user_id"]: row["state"] for row in coupons(shop.database, policy)}
        assert states == {"villain": "VOID", "friend": "ISSUED"}
        status = expect(server.status(policy, "villain"), 200)
        assert status["state"] == "VOID" and "blocked" in status["reason"]
        assert status["issued_at"] is None and status["claims"][0]["issued_at"] is None
        assert expect(server.get(f"/v1/coupons/{won['coupon_id']}"), 200)["issued_at"] is None


def win(server, policy, user):
    """What the user wins; the units may still be on their way back."""
    return wait_until(lambda: next((a for a in [server.claim(policy, user)] if a.status == 202), None),
                      f"{user} wins", 30).json


def dibs_dead(server, *arguments):
    host, port = server.address
    return run_dibs("dead", *arguments, "--url", f"http://{host}:{port}")


def test_redis_dead__listed_retried_and_dropped(tmp_path, redis):
    """By `dibs dead`: a retry takes a fresh unit and seq, or says why not."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve()
        policy = server.create(total=4)["id"]
        assert "no dead letters" in dibs_dead(server, "list").stderr
        refuse_bad(shop)
        dead = {user: expect(server.claim(policy, user), 202)["coupon_id"]
                for user in ("bad-1", "bad-2", "bad-3")}
        wait_until(lambda: len(letters(shop)) == 3, "they are given up", 30)
        shop.database.execute("DROP TRIGGER refuse_bad")
        shop.await_drained(policy)
        listed = dibs_dead(server, "list")
        assert listed.returncode == 0 and all(letter in listed.stdout for letter in dead.values())
        page = json.loads(dibs_dead(server, "list", "--json", "--limit", "2").stdout)
        assert [item["user"] for item in page["items"]] == ["bad-1", "bad-2"]
        rest = json.loads(dibs_dead(server, "list", "--json", "--after", page["next"]).stdout)
        assert [item["user"] for item in rest["items"]] == ["bad-3"]
        # A fresh unit and seq; the letter is gone, and the coupon is issued.
        retried = json.loads(dibs_dead(server, "retry", dead["bad-1"], "--json").stdout)
        assert retried["result"] == "ACCEPTED" and retried["coupon_id"] != dead["bad-1"]
        wait_until(lambda: shop.holders(policy).get("bad-1") == retried["seq"], "it is issued")
        assert dibs_dead(server, "retry", dead["bad-1"]).returncode == 1
        # Someone who has won again meanwhile does not win twice.
        won = win(server, policy, "bad-2")["coupon_id"]
        refused = dibs_dead(server, "retry", dead["bad-2"])
        assert refused.returncode == 1 and won in refused.stderr
        # Nor does anyone when nothing is left.
        for number in range(2):
            win(server, policy, f"u{number}")
        shop.await_sold_out(server, policy)
        refused = dibs_dead(server, "retry", dead["bad-3"])
        assert refused.returncode == 1 and "No stock" in refused.stderr
        dropped = dibs_dead(server, "drop", dead["bad-3"])
        assert dropped.returncode == 0 and "bad-3" in dropped.stdout
        assert dibs_dead(server, "drop", dead["bad-3"]).returncode == 1
        assert dibs_dead(server, "drop", "nonsense").returncode == 2
        assert [row["user_id"] for row in letters(shop)] == ["bad-2"]
        shop.await_drained(policy)
        assert len(shop.holders(policy)) == 4


@pytest.mark.parametrize("key", [None, "k"])
def test_redis_dead__one_letter_is_retried_once(tmp_path, redis, key):
    """At two servers at once, and again after one that ended before it put the letter away."""
    with Sharing(tmp_path, redis) as shop:
        servers = [shop.serve(), shop.serve()]
        shop.work()
        policy = servers[0].create(total=20, limit=10)["id"]
        refuse_bad(shop)
        dead = expect(servers[0].claim(policy, "bad-1", key=key), 202)["coupon_id"]
        wait_until(lambda: letters(shop), "it is given up", 60)
        (letter,) = letters(shop)
        shop.database.execute("DROP TRIGGER refuse_bad ON coupon")
        shop.await_drained(policy)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(
                lambda i: servers[i % 2].post(f"/v1/dead/{dead}/retry"), range(8)))
        won = {answer.json["seq"] for answer in answers if answer.status in (201, 202)}
        assert len(won) == 1 and {a.status for a in answers} <= {201, 202, 404}, answers
        shop.await_drained(policy)
        assert {row["seq"] for row in coupons(shop.database, policy)
                if row["state"] == "ISSUED"} == won
        # As if the server had been killed before it dropped the letter.
        assert not letters(shop)
        shop.database.execute(
            "INSERT INTO dead_letter (policy_id, seq, user_id, nth, request_id, requested_at,"
            f" attempts, died_at, reason) VALUES ({policy}, {letter['seq']}, 'bad-1', 1,"
            f" decode('{bytes(letter['request_id']).hex()}', 'hex'), 1, 1, 1, 'again')")
        again = expect(servers[1].post(f"/v1/dead/{dead}/retry"), 201)
        assert {again["seq"]} == won and not letters(shop)
        if key:  # It is still the client's attempt.
            assert {expect(servers[0].claim(policy, "bad-1", key=key), 200)["seq"]} == won
        shop.await_drained(policy)
        assert len(shop.holders(policy)) == 1
