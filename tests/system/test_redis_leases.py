"""The leases of a gate in Redis and the ledger's: what was cut short between them is found, and the
stock in the gate is never set from the ledger's numbers."""

import pytest

from harness import expect, expect_problem, tally, wait_until
from ledger import rows
from servers import Redis
from sharing import Sharing

KEYS = ("REMAINING", "PENDING", "ISSUED", "LEASE", "META", "KEYS", "BOUND")


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


def recall(redis, policy, count, name):
    """Takes units out of the gate, as a server does that dies before the ledger hears of it."""
    with redis.client() as client:
        return client.fcall("dibs_recall", 7, *(f"COUPON:POLICY:{{{policy}}}:{key}"
                                                for key in KEYS), str(count), name)


def open_leases(shop, policy):
    return rows(shop.database, "SELECT * FROM lease WHERE policy_id = ? AND state = 'OPEN'"
                " ORDER BY id", policy)


def win_all(server, policy, count, name="u"):
    """Claims until so many have won."""
    won = set()

    def go_on():
        for number in range(count):
            user = f"{name}{number}"
            if user not in won and server.claim(policy, user).status in (200, 202):
                won.add(user)
        return len(won) == count

    wait_until(go_on, f"{count} win", 60)


@pytest.mark.parametrize("count", ["3", "all"])
def test_redis_leases__units_that_the_ledger_never_heard_of_return(tmp_path, redis, count):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(sync_interval="100ms")
        policy = server.create(total=10)["id"]
        win_all(server, policy, 2, "early")
        shop.await_drained(policy)
        assert recall(redis, policy, count, "cut-short")
        if count != "all":  # The lease is still being sold.
            assert server.await_log("units_found")["units"] == count
        win_all(server, policy, 8)
        shop.await_drained(policy)
        wait_until(lambda: len(shop.holders(policy)) == 10, "every unit is issued")
        shop.await_sold_out(server, policy)


def test_redis_leases__what_was_recalled_is_not_sold_out(tmp_path, redis):
    """A server takes units out of Redis for a lower total and dies, and no worker is there to give
    them back: they are neither in Redis nor unleased, and nobody is told that there are none."""
    with Sharing(tmp_path, redis) as shop:
        first = shop.serve(ack_timeout="300ms")
        worker = shop.work()
        policy = first.create(total=10)["id"]
        win_all(first, policy, 2, "early")
        shop.await_drained(policy)
        shop.processes.remove(worker)
        worker.stop()
        assert recall(redis, policy, 8, "cut-short")
        # One that starts, and every change, brings the ledger's row.
        second = shop.serve(ack_timeout="300ms")
        for paused in (True, False):
            expect(second.patch(policy, paused=paused), 200)
        for server in (first, second):
            for user in ("late", "later"):
                expect_problem(server.claim(policy, user), 503, "UNAVAILABLE")
            assert server.policy(policy)["state"] == "OPEN"
        shop.work()
        win_all(first, policy, 8)
        shop.await_drained(policy)
        assert len(shop.holders(policy)) == 10
        shop.await_sold_out(first, policy)


def test_redis_leases__a_total_lowered_to_what_is_sold_is_sold_out(tmp_path, redis):
    """At once: nothing is on its way any more when the change is answered."""
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        shop.work()
        policy = server.create(total=10)["id"]
        win_all(server, policy, 2)
        shop.await_drained(policy)
        expect(server.patch(policy, total=2), 200)
        expect_problem(server.claim(policy, "late"), 409, "SOLD_OUT")
        assert server.policy(policy)["remaining"] == 0
        expect(server.patch(policy, total=3), 200)
        win_all(server, policy, 1, "later")


def test_redis_leases__a_lease_that_never_reached_the_gate_does(tmp_path, redis):
    """As when a worker dies between taking it and lending it."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(sync_interval="100ms")
        policy = server.create(total=10, reserve=4)["id"]
        for statement in (
                "INSERT INTO lease (policy_id, first_seq, count, state)"
                f" SELECT {policy}, next_seq, 4, 'OPEN' FROM policy WHERE id = {policy}",
                "UPDATE policy SET unleased = unleased - 4, next_seq = next_seq + 4,"
                f" version = version + 1 WHERE id = {policy}"):
            shop.database.execute(statement)
        win_all(server, policy, 10)
        shop.await_drained(policy)
        wait_until(lambda: len(shop.holders(policy)) == 10, "every unit is issued")


def lend_by_hand(redis, policy, leases):
    """Puts leases that the ledger has given into Redis, as their steward would."""
    keys = {name: f"COUPON:POLICY:{{{policy}}}:{name}" for name in KEYS}
    with redis.client() as client, client.pipeline() as pipeline:
        for lease in leases:
            first = lease["first_seq"]
            pipeline.rpush(keys["LEASE"], f"{lease['id']}:{first}:{first}:{first + lease['count']}")
            pipeline.incrby(keys["REMAINING"], lease["count"])
        last = leases[-1]
        pipeline.hset(keys["META"], mapping={
            "lease_top": last["id"], "seq_top": last["first_seq"] + last["count"] - 1})
        pipeline.execute()


def test_redis_leases__hundreds_of_them(tmp_path, redis):
    """As many as the ledger may have given while a claim of the first was not written."""
    with Sharing(tmp_path, redis) as shop:
        server = shop.serve()
        policy = server.create(total=310, reserve=300)["id"]
        for statement in (
                "WITH RECURSIVE number (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number"
                " WHERE n < 299) INSERT INTO lease (policy_id, first_seq, count, state)"
                f" SELECT {policy}, next_seq + n, 1, 'OPEN' FROM number, policy"
                f" WHERE id = {policy} ORDER BY n",
                "UPDATE policy SET unleased = unleased - 300, next_seq = next_seq + 300,"
                f" version = version + 1 WHERE id = {policy}"):
            shop.database.execute(statement)
        lend_by_hand(redis, policy, open_leases(shop, policy)[1:])
        assert recall(redis, policy, 3, "cut-short")
        # Only now: a steward would have lent these leases itself.
        shop.work(sync_interval="1s")
        win_all(server, policy, 310)
        shop.await_drained(policy)
        wait_until(lambda: not open_leases(shop, policy), "all of them are closed", 30)
        assert len(shop.holders(policy)) == 310
        shop.await_sold_out(server, policy)


def test_redis_leases__what_is_sold_and_written_is_closed(tmp_path, redis):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(sync_interval="100ms")
        policy = server.create(total=5)["id"]
        win_all(server, policy, 4)
        shop.await_drained(policy)
        (lease,) = open_leases(shop, policy)
        win_all(server, policy, 5)
        wait_until(lambda: not open_leases(shop, policy), "the lease is closed")
        # A cancelled unit comes back in a lease of its own.
        seq = shop.holders(policy)["u0"]
        expect(server.cancel(f"{policy}-{seq}"), 200)
        wait_until(lambda: server.claim(policy, "next").status in (200, 202), "it is won again")
        wait_until(lambda: "next" in shop.holders(policy), "it is issued")
        assert all(row["id"] > lease["id"] for row in open_leases(shop, policy))


def test_redis_leases__syncing_all_the_time_oversells_nothing(tmp_path, redis):
    """Trap 2: the sync runs every 10 ms while claims are pending."""
    users = [f"u{i}" for i in range(1000)]
    with Sharing(tmp_path, redis) as shop:
        servers = [shop.serve(sync_interval="10ms") for _ in range(2)]
        for _ in range(2):
            shop.work(sync_interval="10ms")
        policies = [servers[0].create(total=200, reserve=20)["id"] for _ in range(2)]
        for policy in policies:
            wait_until(lambda: servers[1].claim(policy, users[0]).status in (200, 202),  # noqa: B023
                       "both know it")
        told = []
        for policy in policies:
            for server in servers:
                outcomes = server.claims(policy, users)
                assert set(tally(outcomes)) <= {(202, "ACCEPTED"), (200, "ACCEPTED"),
                                                (200, "ALREADY_ISSUED"), (409, "SOLD_OUT"),
                                                (503, "UNAVAILABLE")}
                told += [(policy, o.answer.json["user"]) for o in outcomes
                         if o.answer.status == 202]
                # A change of the total in the middle moves units both ways.
                expect(server.patch(policy, total=210), 200)
        for policy in policies:
            # Those who were told 503 while stock was on its way come again.
            def sell_out():
                servers[0].claims(policy, users)  # noqa: B023
                return servers[0].claim(policy, "late").status == 409  # noqa: B023

            wait_until(sell_out, "it sells out", 30)
            shop.await_drained(policy)
            wait_until(lambda: len(shop.holders(policy)) == 210, "all are issued", 30)  # noqa: B023
            assert len(set(told)) == len(told), "someone was told twice that they won"
            assert {user for won, user in told if won == policy} <= shop.holders(policy).keys()


def test_redis_leases__a_sold_lease_stays_open_while_a_claim_of_it_waits(tmp_path, redis):
    """Its unit is not sold to another before the ledger has made up its mind."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(sync_interval="10ms")
        policy = server.create(total=3)["id"]
        shop.database.execute(
            "CREATE TRIGGER refuse_bad BEFORE INSERT ON coupon WHEN NEW.user_id LIKE 'bad%'"
            " BEGIN SELECT RAISE(ABORT, 'not yet'); END")
        for user in ("bad-luck", "u1", "u2"):
            expect(server.claim(policy, user), 202)
        wait_until(lambda: len(server.events("claim_refused")) >= 3, "it is tried again")
        expect_problem(server.claim(policy, "late"), 409, "SOLD_OUT")
        (lease,) = open_leases(shop, policy)
        assert lease["count"] == 3
        shop.database.execute("DROP TRIGGER refuse_bad")
        wait_until(lambda: shop.holders(policy).keys() == {"bad-luck", "u1", "u2"}, "all have it")
        wait_until(lambda: not open_leases(shop, policy), "the lease is closed")
