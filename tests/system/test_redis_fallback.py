"""While Redis is away: turned away at once, or served from the reserve; and the way back."""

import itertools
import pathlib
import sys
import time

import pytest

from harness import claim_bytes, expect, expect_problem, wait_until
from ledger import coupons
from servers import Redis
from sharing import Sharing

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "fault"))
from proxy import Proxy  # noqa: E402 pylint: disable=wrong-import-position


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


def breakers(server):
    """The states that breakers went into, in their order."""
    return [event["state"] for event in server.events("gate_breaker")]


def open_breaker(server, policy):
    """Claims until the way to the gate counts as cut; nobody wins or loses by it."""
    def is_open():
        server.claim(policy, "knocker")
        return breakers(server)[-1:] == ["open"]

    wait_until(is_open, "the breaker opens")


def await_closed(server, policy):
    """Claims until the way to the gate is free again."""
    def is_closed():
        server.claim(policy, "knocker")
        return breakers(server)[-1:] == ["closed"]

    wait_until(is_closed, "the breaker closes", 30)


def switches(server):
    return {state: server.metrics()[f'dibs_gate_breaker_switches_total{{state="{state}"}}']
            for state in ("open", "half_open", "closed")}


def gate_on_board(server):
    with server.events_of("/v1/live") as stream:
        return next(part["state"] for part in stream.next()[1]["parts"] if part["name"] == "gate")


def test_redis_fallback__reject_answers_at_once_and_recovers(tmp_path, redis):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(gate_timeout="2s")
        policy = server.create(total=100, reserve=50)["id"]
        assert server.claim(policy, "before").status == 202
        redis.pause()
        open_breaker(server, policy)
        # It hangs: without a breaker each of these would wait for the timeout.
        began = time.monotonic()
        answers = [server.claim(policy, f"u{i}") for i in range(60)]
        assert time.monotonic() - began < 60  # not 120
        for answer in answers:
            expect_problem(answer, 503, "UNAVAILABLE")
        # Those who are told to come back do not come at once, and not together.
        waits = {int(answer.headers["retry-after"]) for answer in answers}
        assert min(waits) >= 1 and len(waits) > 1, waits
        # It is tried now and then.
        wait_until(lambda: server.metrics()['dibs_gate_breakers{state="open"}'] == 1, "it is open")
        wait_until(lambda: gate_on_board(server) == "down", "operators see it")
        redis.resume()
        await_closed(server, policy)
        wait_until(lambda: gate_on_board(server) == "ok", "operators see it too")

        def notices():
            with server.events_of(f"/v1/policies/{policy}/live") as stream:
                log = stream.next()[1]["log"]
            return [entry["words"] for entry in log if entry["event"] == "gate_breaker"]

        wait_until(lambda: notices()[-1:] == ["The gate answers again."], "the page tells of it")
        assert notices()[0] == "The gate is away: claims are refused with 503."
        # Each loop connects by itself, and one of them may still pause before it does.
        wait_until(lambda: server.claim(policy, "after").status in (200, 202), "it wins")
        shop.await_drained(policy)
        # Nobody was served from the reserve.
        assert set(shop.holders(policy)) <= {"before", "after", "knocker"}
        wait_until(lambda: switches(server) == {state: breakers(server).count(state) for state in
                                                ("open", "half_open", "closed")}, "all is logged")
        states = breakers(server)
        assert states[0] == "open" and states[-2:] == ["half_open", "closed"]


def test_redis_fallback__serves_the_reserve_and_no_more(tmp_path, redis):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(fallback="ledger")
        policy = server.create(total=20, reserve=5)["id"]
        assert server.claim(policy, "early").status == 202
        shop.await_drained(policy)
        redis.kill()
        open_breaker(server, policy)  # The knocker may have won one unit of the reserve.
        told = {}
        for number in range(10):
            answer = server.claim(policy, f"u{number}", key=f"key-{number}")
            if answer.status == 201:
                assert answer.json["result"] == "ISSUED" and answer.json["state"] == "ISSUED"
                told[f"u{number}"] = answer.json
            else:
                expect_problem(answer, 503, "UNAVAILABLE")  # used up, which is not sold out
        assert len(told) == 5 - ("knocker" in shop.holders(policy))
        user, won = next(iter(told.items()))
        # A retry finds its claim, with its key and without.
        for again in (server.claim(policy, user), server.claim(policy, user, key="key-0")):
            assert expect(again, 200)["seq"] == won["seq"]
        assert expect(server.claim(policy, "early"), 200)["result"] == "ALREADY_ISSUED"
        # With their key another user finds nothing, not even that the reserve is used up for them.
        expect_problem(server.claim(policy, "thief", key="key-0"), 503, "UNAVAILABLE")
        assert expect(server.status(policy, user), 200)["state"] == "ISSUED"
        redis.start()
        await_closed(server, policy)
        # They are known in Redis now.
        for user, won in told.items():
            assert expect(server.claim(policy, user), 200)["seq"] == won["seq"]
        assert expect(server.claim(policy, "u0", key="key-0"), 200)["seq"] == told["u0"]["seq"]
        wait_until(lambda: server.metrics()["dibs_fallback_entering"] == 0, "all have entered")
        # And the rest is won as ever, to the last unit.
        for number in range(100, 120):
            server.claim(policy, f"u{number}")
        shop.await_drained(policy)
        wait_until(lambda: len(shop.holders(policy)) == 20, "all are issued")
        shop.await_sold_out(server, policy)
        wait_until(lambda: server.policy(policy)["issued"] == 20, "the numbers follow")


def test_redis_fallback__serves_the_raised_reserve(tmp_path, redis):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(fallback="ledger")
        policy = server.create(total=20, reserve=2)["id"]
        expect(server.patch(policy, reserve=8), 200)
        redis.kill()
        # Nothing is taken back from a gate that is away, and nothing is said to be.
        expect_problem(server.patch(policy, reserve=12), 503, "UNAVAILABLE")
        assert [server.claim(policy, f"u{number}").status for number in range(10)] == (
            [201] * 8 + [503] * 2)
        redis.start()
        await_closed(server, policy)
        assert server.policy(policy)["reserve"] == 8
        others = itertools.count()

        def all_won():
            server.claim(policy, f"v{next(others)}")
            return len(shop.holders(policy)) == 20

        wait_until(all_won, "the rest is won", 30)
        # What the gate gave back was sold elsewhere: it does not wait for it for ever.
        wait_until(lambda: server.claim(policy, "late").code == "SOLD_OUT", "it is sold out", 30)


def test_redis_fallback__ids_that_somebody_made_up_take_nobodys_place(tmp_path, redis):
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(fallback="ledger")
        policy = server.create(total=20, reserve=5)["id"]
        assert server.claim(policy, "early").status == 202
        shop.await_drained(policy)
        redis.kill()
        # More than there are breakers, and than policies whose past is kept.
        told = server.storm([claim_bytes(number, "x") for number in range(1000000, 1010100)],
                            connections=4, pipeline=50)
        assert {outcome.answer.status for outcome in told} == {503}
        with server.events_of(f"/v1/policies/{policy}/live") as stream:
            history = stream.next()[1]
        assert sum(second["accepted"] for second in history["seconds"]) == 1, history["seconds"]
        wait_until(lambda: server.claim(policy, "later").status in (200, 201), "the reserve serves")
        server.await_log("gate_breaker")
        assert {event["policy"] for event in server.events("gate_breaker")} == {str(policy)}


def test_redis_fallback__a_winner_who_cancels_may_win_again(tmp_path, redis):
    """What was cancelled while Redis was away does not enter it, and what entered it leaves."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(fallback="ledger")
        policy = server.create(total=20, reserve=10)["id"]
        redis.kill()
        open_breaker(server, policy)
        gone = expect(server.claim(policy, "gone", key="k"), 201)
        kept = expect(server.claim(policy, "kept"), 201)
        assert expect(server.cancel(gone["coupon_id"]), 200)["state"] == "CANCELLED"
        redis.start()
        await_closed(server, policy)
        # The key answers with its claim, cancelled as it is; the user is free.
        again = expect(server.claim(policy, "gone", key="k"), 200)
        assert (again["seq"], again["coupon_state"]) == (gone["seq"], "CANCELLED")
        fresh = server.claim(policy, "gone")
        assert fresh.status == 202 and fresh.json["seq"] != gone["seq"]
        assert expect(server.cancel(kept["coupon_id"]), 200)["state"] == "CANCELLED"
        assert server.claim(policy, "kept").status == 202
        shop.await_drained(policy)


def test_redis_fallback__one_of_two_servers_is_cut_off(tmp_path, redis):
    """Traps 19 and 31: the same users on both sides of the cut."""
    users = [f"u{i}" for i in range(150)]
    with Sharing(tmp_path, redis) as shop, Proxy(redis.port) as way:
        near = shop.serve(ack_timeout="1s")
        far = shop.serve(gate=f"redis://127.0.0.1:{way.port}", fallback="ledger")
        worker = shop.work()
        policy = near.create(total=100, reserve=30)["id"]
        wait_until(lambda: far.claim(policy, "probe").status in (200, 202), "both know it")
        worker.signal(19)  # SIGSTOP: what is won in Redis stays pending.
        way.refuse()
        way.cut()
        open_breaker(far, policy)
        # The gate's lease is sold, and nobody brings it the reserve: those who come too late wait
        # for it, and are told to come again.
        outcomes = near.claims(policy, users)
        assert {o.answer.status for o in outcomes} == {202, 503}
        by_near = {o.answer.json["user"]: o.answer.json
                   for o in outcomes if o.answer.status == 202}
        by_far = {user: expect(far.claim(policy, user), 201) for user in list(by_near)[:10]}
        by_far |= {o.answer.json["user"]: o.answer.json
                   for o in far.claims(policy, users) if o.answer.status == 201}
        way.admit()
        worker.signal(18)  # SIGCONT
        await_closed(far, policy)
        shop.await_drained(policy)
        rows = {row["seq"]: row for row in coupons(shop.database, policy)}
        active = [row for row in rows.values() if row["state"] == "ISSUED"]
        assert len(active) <= 100
        assert len({row["user_id"] for row in active}) == len(active)
        for claim in [*by_near.values(), *by_far.values()]:
            row = rows[claim["seq"]]
            assert row["user_id"] == claim["user"]
            assert row["state"] in ("ISSUED", "MERGED")
            if row["state"] == "MERGED":
                other = rows[row["merged_into"]]
                assert (other["user_id"], other["state"]) == (row["user_id"], "ISSUED")
        merged = [row for row in rows.values() if row["state"] == "MERGED"]
        assert len(merged) >= 10
        status = expect(near.status(policy, merged[0]["user_id"]), 200)
        assert status["state"] == "ISSUED" or status["merged_into"]
        # Both servers tell them of the same coupon from now on.
        user = merged[0]["user_id"]
        assert (expect(near.claim(policy, user), 200)["seq"]
                == expect(far.claim(policy, user), 200)["seq"] == merged[0]["merged_into"])
        # The units of the merged are won by others as soon as both have heard of them, and no more
        # than there are.
        others = itertools.count()

        def are_issued():
            near.claim(policy, f"v{next(others)}")
            return len(shop.holders(policy)) == 100

        wait_until(are_issued, "every unit is issued", 30)
        for _ in range(100):
            near.claim(policy, f"v{next(others)}")
        shop.await_drained(policy)
        assert len(shop.holders(policy)) == 100


def test_redis_fallback__nobody_is_turned_away_at_first(tmp_path, redis):
    """The very first claims of an outage are served as those after them."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(fallback="ledger")
        policy = server.create(total=20, reserve=10)["id"]
        redis.kill()
        assert [server.claim(policy, f"u{number}").status for number in range(10)] == [201] * 10
        redis.start()
        await_closed(server, policy)
        assert len(shop.holders(policy)) >= 10


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_redis_fallback__winners_are_known_after_a_restart(tmp_path, redis, end):
    """Redis has not heard of them when their server ends, and was never gone itself."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop, Proxy(redis.port) as way:
        server = shop.serve(gate=f"redis://127.0.0.1:{way.port}", fallback="ledger")
        policy = server.create(total=8, reserve=4)["id"]
        way.refuse()
        way.cut()
        open_breaker(server, policy)
        won = expect(server.claim(policy, "ann", key="k"), 201)
        plain = expect(server.claim(policy, "bob"), 201)
        assert expect(server.claim(policy, "bob", key="later"), 200)["seq"] == plain["seq"]
        gone = expect(server.claim(policy, "cyd", key="k"), 201)
        expect(server.cancel(gone["coupon_id"]), 200)
        getattr(server, end)()
        way.admit()
        server.start()

        def expect_known():
            assert expect(server.claim(policy, "ann"), 200)["seq"] == won["seq"]
            assert expect(server.claim(policy, "ann", key="k"), 200)["seq"] == won["seq"]
            assert expect(server.claim(policy, "bob", key="later"), 200)["seq"] == plain["seq"]
            again = expect(server.claim(policy, "cyd", key="k"), 200)
            assert (again["seq"], again["coupon_state"]) == (gone["seq"], "CANCELLED")

        expect_known()
        others = itertools.count()
        wait_until(lambda: server.claim(policy, f"u{next(others)}").code == "SOLD_OUT", "sold out")
        expect_known()
        shop.await_drained(policy)
        assert not [row for row in coupons(shop.database, policy) if row["state"] == "MERGED"]
        with shop.database.snapshot() as snapshot:
            assert snapshot.one("SELECT count(*) FROM entering_coupon") == 0


def test_redis_fallback__a_worker_enters_what_a_dead_server_gave(tmp_path, redis):
    """The other servers were never cut off, and nobody starts again."""
    with Sharing(tmp_path, redis) as shop, Proxy(redis.port) as way:
        near = shop.serve(gate_timeout="10s")  # Redis is never away for it, only slow at times.
        far = shop.serve(gate=f"redis://127.0.0.1:{way.port}", fallback="ledger")
        shop.work()
        policy = near.create(total=20, reserve=5)["id"]
        wait_until(lambda: far.claim(policy, "probe").status in (200, 202), "both know it")
        way.refuse()
        way.cut()
        open_breaker(far, policy)
        won = expect(far.claim(policy, "ann", key="k"), 201)
        far.kill()
        # By its status, which asks for nothing new.
        wait_until(lambda: near.status(policy, "ann").status == 200, "Redis has heard of it", 30)

        def is_entered():
            with shop.database.snapshot() as snapshot:
                return snapshot.one("SELECT count(*) FROM entering_coupon") == 0

        wait_until(is_entered, "all have entered", 30)
        assert expect(near.claim(policy, "ann"), 200)["seq"] == won["seq"]
        assert expect(near.claim(policy, "ann", key="k"), 200)["seq"] == won["seq"]


def test_redis_fallback__where_the_order_ends(tmp_path, redis):
    """Seqs of the reserve lie above all that was lent before, rise, and every later lease lies above
    them; between the two kinds there is no order."""
    with Sharing(tmp_path, redis, ledger="sqlite") as shop, Proxy(redis.port) as way:
        server = shop.serve(gate=f"redis://127.0.0.1:{way.port}", fallback="ledger")
        policy = server.create(total=8, reserve=5)["id"]
        before = expect(server.claim(policy, "before"), 202)["seq"]
        shop.await_drained(policy)
        way.refuse()
        way.cut()
        open_breaker(server, policy)
        reserved = [expect(server.claim(policy, f"u{i}"), 201)["seq"] for i in range(3)]
        way.admit()
        await_closed(server, policy)
        lent = [expect(server.claim(policy, f"v{i}"), 202)["seq"] for i in range(2)]
        later = wait_until(lambda: next((answer.json["seq"] for answer in
                                         [server.claim(policy, "w")] if answer.status == 202), None),
                           "the rest is lent")
        assert [before, *lent] == [1, 2, 3]
        assert reserved == sorted(reserved) and reserved[0] > 3 and later > reserved[-1]


def test_redis_fallback__a_second_wish_is_not_merged_where_there_is_room(tmp_path, redis):
    """Limit 2: one wish is served by Redis and one from the reserve, and both took the first place.
    The same wish on both sides is one coupon."""
    with Sharing(tmp_path, redis) as shop, Proxy(redis.port) as way:
        near = shop.serve(gate_timeout="10s")  # Redis is never away for it, only slow at times.
        far = shop.serve(gate=f"redis://127.0.0.1:{way.port}", fallback="ledger")
        worker = shop.work()
        policy = near.create(total=20, limit=2, reserve=8)["id"]
        wait_until(lambda: far.claim(policy, "probe", key="p").status in (200, 202), "both know it")
        shop.await_drained(policy)
        worker.signal(19)  # SIGSTOP: what is won in Redis stays pending.
        way.refuse()
        way.cut()
        open_breaker(far, policy)
        by_near = {user: expect(near.claim(policy, user, key="one"), 202)
                   for user in ("ann", "bob", "cyd")}
        by_far = {user: expect(far.claim(policy, user, key=key), 201)
                  for user, key in (("ann", "two"), ("bob", "one"), ("cyd", "two"))}
        # Full already, so that there is no room for the one of Redis.
        third = expect(far.claim(policy, "cyd", key="three"), 201)
        way.admit()
        worker.signal(18)  # SIGCONT
        await_closed(far, policy)
        shop.await_drained(policy)

        def held(user):
            return {row["seq"]: row["nth"] for row in coupons(shop.database, policy)
                    if row["user_id"] == user and row["state"] == "ISSUED"}

        one, two = by_near["ann"]["seq"], by_far["ann"]["seq"]
        assert held("ann") == {one: 2, two: 1}
        assert held("bob") == {by_far["bob"]["seq"]: 1}
        assert held("cyd") == {by_far["cyd"]["seq"]: 1, third["seq"]: 2}

        def is_entered():
            with shop.database.snapshot() as snapshot:
                return snapshot.one("SELECT count(*) FROM entering_coupon") == 0

        wait_until(is_entered, "Redis has heard of it", 30)
        for server in (near, far):
            for key, seq, nth in (("one", one, 2), ("two", two, 1)):
                again = expect(server.claim(policy, "ann", key=key), 200)
                assert (again["seq"], again["nth"]) == (seq, nth)
            expect_problem(server.claim(policy, "ann"), 409, "LIMIT_REACHED")
            assert expect(server.claim(policy, "bob", key="one"), 200)["seq"] == by_far["bob"]["seq"]
            # What was merged answers with what they hold instead.
            assert expect(server.claim(policy, "cyd", key="one"), 200)["seq"] == by_far["cyd"]["seq"]
        assert expect(near.claim(policy, "bob"), 202)["nth"] == 2
        shop.await_drained(policy)
        assert len(held("bob")) == 2


def test_redis_fallback__one_key_on_both_sides_is_one_coupon(tmp_path, redis):
    """Limit 2: what the reserve gave to a key is the coupon of that key, though the claims of Redis
    have other places, and the user's other key has the room that is left."""
    with Sharing(tmp_path, redis) as shop, Proxy(redis.port) as way:
        near = shop.serve(gate_timeout="10s")  # Redis is never away for it, only slow at times.
        far = shop.serve(gate=f"redis://127.0.0.1:{way.port}", fallback="ledger")
        worker = shop.work()
        policy = near.create(total=20, limit=2, reserve=8)["id"]
        wait_until(lambda: far.claim(policy, "probe", key="p").status in (200, 202), "both know it")
        shop.await_drained(policy)
        worker.signal(19)  # SIGSTOP: what is won in Redis stays pending.
        way.refuse()
        way.cut()
        open_breaker(far, policy)
        first, second = (expect(near.claim(policy, "ann", key=key), 202)
                         for key in ("first", "second"))
        again = expect(far.claim(policy, "ann", key="second"), 201)
        before = expect(near.claim(policy, "bob", key="k"), 202)
        gone = expect(far.claim(policy, "bob", key="k"), 201)
        expect(far.cancel(gone["coupon_id"]), 200)
        way.admit()
        worker.signal(18)  # SIGCONT
        await_closed(far, policy)
        shop.await_drained(policy)
        rows = {row["seq"]: row for row in coupons(shop.database, policy)}

        def look(claim):
            row = rows[claim["seq"]]
            return row["state"], row["nth"], row["merged_into"]

        assert look(first) == ("ISSUED", 2, None)
        assert look(again) == ("ISSUED", 1, None)
        assert look(second) == ("MERGED", 2, again["seq"])
        # The key's claim was cancelled, on whichever side.
        assert look(before) == ("MERGED", 1, gone["seq"])

        def is_entered():
            with shop.database.snapshot() as snapshot:
                return snapshot.one("SELECT count(*) FROM entering_coupon") == 0

        wait_until(is_entered, "Redis has heard of it", 30)
        for server in (near, far):
            for key, seq in (("first", first["seq"]), ("second", again["seq"])):
                assert expect(server.claim(policy, "ann", key=key), 200)["seq"] == seq
            expect_problem(server.claim(policy, "ann"), 409, "LIMIT_REACHED")
            kept = expect(server.claim(policy, "bob", key="k"), 200)
            assert (kept["seq"], kept["coupon_state"]) == (gone["seq"], "CANCELLED")


def test_redis_fallback__a_key_answered_on_both_sides_is_one_claim(tmp_path, redis):
    """Limit 1, and two keys of each user. What the reserve gave was cancelled while the claim was still
    pending in Redis, so that its place is free: yet no key names two claims, nor does it in a Redis that
    was built anew."""
    with Sharing(tmp_path, redis) as shop, Proxy(redis.port) as way:
        near = shop.serve(gate_timeout="10s")  # Redis is never away for it, only slow at times.
        far = shop.serve(gate=f"redis://127.0.0.1:{way.port}", fallback="ledger")
        worker = shop.work()
        policy = near.create(total=20, reserve=8)["id"]
        wait_until(lambda: far.claim(policy, "probe", key="p").status in (200, 202), "both know it")
        shop.await_drained(policy)
        worker.signal(19)  # SIGSTOP: what is won in Redis stays pending.
        way.refuse()
        way.cut()
        open_breaker(far, policy)
        # The reserve serves ann's second key, and answers the first with that coupon.
        pending = {"ann": expect(near.claim(policy, "ann", key="first"), 202)["seq"]}
        kept = {"ann": expect(far.claim(policy, "ann", key="second"), 201)["seq"]}
        assert expect(far.claim(policy, "ann", key="first"), 200)["seq"] == kept["ann"]
        # Redis answers bob's second key with his claim, and the reserve serves it.
        pending["bob"] = expect(near.claim(policy, "bob", key="first"), 202)["seq"]
        assert expect(near.claim(policy, "bob", key="second"), 200)["seq"] == pending["bob"]
        kept["bob"] = expect(far.claim(policy, "bob", key="second"), 201)["seq"]
        # Redis answers cyd's second key with her claim, and the reserve serves the first.
        pending["cyd"] = expect(near.claim(policy, "cyd", key="first"), 202)["seq"]
        assert expect(near.claim(policy, "cyd", key="second"), 200)["seq"] == pending["cyd"]
        kept["cyd"] = expect(far.claim(policy, "cyd", key="first"), 201)["seq"]
        for seq in kept.values():
            expect(far.cancel(f"{policy}-{seq}"), 200)
        way.admit()
        worker.signal(18)  # SIGCONT
        await_closed(far, policy)
        shop.await_drained(policy)
        rows = {row["seq"]: row for row in coupons(shop.database, policy)}
        for user, seq in pending.items():
            assert (rows[seq]["state"], rows[seq]["merged_into"]) == ("MERGED", kept[user]), user

        def is_entered():
            with shop.database.snapshot() as snapshot:
                return snapshot.one("SELECT count(*) FROM entering_coupon") == 0

        wait_until(is_entered, "Redis has heard of it", 30)

        def expect_kept():
            for server, user, key in itertools.product((near, far), kept, ("first", "second")):
                answer = expect(server.claim(policy, user, key=key), 200)
                assert (answer["seq"], answer["coupon_state"]) == (kept[user], "CANCELLED"), (user, key)

        expect_kept()
        armed = len(worker.events("policy_armed"))
        redis.kill()
        redis.start()
        wait_until(lambda: len(worker.events("policy_armed")) > armed, "it is built anew", 60)
        wait_until(lambda: near.claim(policy, "knocker").status == 200, "Redis answers", 30)
        await_closed(far, policy)
        expect_kept()
