"""Workers and servers that die, or stand still, between any two of their steps while others go on."""

import concurrent.futures
import contextlib
import pathlib
import re
import signal

import pytest

from harness import BINARY, ROOT, expect, wait_until
from history import ROUNDS
from ledger import coupons, rows
from redis_shop import Told
from servers import Redis
from wire import Closed

SOURCES = [*(ROOT / "src/claim").rglob("*.c"), *(ROOT / "src/gate/redis").glob("*.c")]
POINTS = sorted({name for path in SOURCES
                 for name in re.findall(r'FAULT_POINT\("([a-z_.]+)"\)', path.read_text())})
WORKER_POINTS = [point for point in POINTS if point.startswith("worker.")]
COUNTS = [1, 2, 5] if ROUNDS > 4 else [1]
TOTAL = 400

# As a trigger of the shop's own would: users named bad… get no coupon.
REFUSE_BAD = [
    "CREATE FUNCTION refuse_bad() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN IF NEW.user_id LIKE ''bad%%'' AND NEW.state <> ''VOID'' THEN RAISE check_violation"
    " USING MESSAGE = ''not this one''; END IF; RETURN NEW; END'",
    "CREATE TRIGGER refuse_bad BEFORE INSERT ON coupon FOR EACH ROW"
    " EXECUTE FUNCTION refuse_bad()"]


def test_redis_points__this_binary_has_them():
    """Without -Dfault_points=true every test below would wait for nothing."""
    assert len(WORKER_POINTS) >= 7
    names = BINARY.read_bytes()
    missing = [point for point in POINTS if point.encode() not in names]
    assert not missing, f"{BINARY} was built without fault points: {missing}"


def disarm(redis):
    """Redis keeps its keys, and answers for no policy before a worker has compared it."""
    with redis.client() as client:
        client.function_flush("SYNC")


def await_death(process):
    wait_until(lambda: process.process.poll() is not None, "it dies at its point", 30)
    assert process.wait() == -signal.SIGKILL


def await_stop(process):
    def is_stopped():
        stat = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    wait_until(is_stopped, "it stands still at its point", 30)


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_redis_points__a_worker_dies(shop_on, redis, point):
    """Traps 1 and 5: while it drains, and while it builds a policy anew."""
    told = Told()
    with shop_on(redis, servers=1, workers=0) as shop:
        for count in COUNTS:
            policy = shop.create(TOTAL)
            doomed = shop.work(fault=f"{point}:{count}:kill")
            with shop.crowd(told, [policy], prefix=f"c{count}") as crowd:
                crowd.await_wins(50)
                while doomed.process.poll() is None:
                    disarm(redis)
                    wait_until(lambda: doomed.process.poll() is not None or shop.is_armed(policy),
                               "it builds the policy anew or dies", 30)
                await_death(doomed)
                shop.end_terms()
                heir = shop.work()
                crowd.await_sold_out([policy])
            shop.settle([policy])
            told.check(shop.database, policy)
            shop.await_sold(policy, TOTAL)
            told.check_answers(shop.servers[0])
            heir.stop()


@pytest.mark.parametrize("count", [1, 7, 30][:1 if ROUNDS <= 4 else 3])
def test_redis_points__a_server_dies_with_decisions(shop_on, redis, count):
    """Trap 1: decided and not answered; another server tells whoever asks again."""
    told = Told()
    with shop_on(redis, servers=1, workers=1) as shop:
        policy = shop.create(TOTAL)
        doomed = shop.serve(fault=f"gate.after_decision:{count}:kill")
        with shop.crowd(told, [policy], servers=[doomed, shop.servers[0]]) as crowd:
            await_death(doomed)
            del doomed.config["fault"]
            doomed.start()
            crowd.await_sold_out([policy])
        shop.settle([policy])
        told.check(shop.database, policy)
        shop.await_sold(policy, TOTAL)
        told.check_answers(doomed)


@pytest.mark.parametrize("point", ["ledger.while_reissuing", "claim.after_reissue"])
def test_redis_points__a_server_dies_in_a_reissue(shop_on, redis, point):
    """Its user holds the old coupon or the new one, and the gate knows which; nobody else wins."""
    with shop_on(redis, servers=1, workers=1) as shop:
        server = shop.servers[0]
        policy = shop.create(2)
        won = [server.claim(policy, f"u{i}").json for i in range(2)]
        shop.settle([policy])
        doomed = shop.serve(fault=f"{point}:1:kill")
        with pytest.raises((Closed, OSError)):
            doomed.post(f"/v1/coupons/{won[0]['coupon_id']}/reissue", {})
        await_death(doomed)
        active = [row["seq"] for row in coupons(shop.database, policy)
                  if row["user_id"] == "u0" and row["state"] == "ISSUED"]
        assert len(active) == 1
        assert (active == [won[0]["seq"]]) == (point == "ledger.while_reissuing")
        wait_until(lambda: expect(server.claim(policy, "u0"), 200)["seq"] == active[0],
                   "the gate to know", 60)
        anew = expect(server.post(f"/v1/coupons/{won[0]['coupon_id']}/reissue", {}), 200)
        assert anew["seq"] != won[0]["seq"] and active in ([won[0]["seq"]], [anew["seq"]])
        assert expect(server.claim(policy, "u0"), 200)["seq"] == anew["seq"]
        assert server.claim(policy, "u2").code == "SOLD_OUT"
        shop.await_sold(policy, 2)


# Points at which a policy is being built anew, which another has done by the time that the late one
# goes on; and those at which it drains.
BUILDING = ["worker.before_reset", "worker.after_reset", "worker.after_lease", "worker.before_arm"]
DRAINING = ["worker.before_issue", "worker.before_acknowledge"]


def stand_still(shop, point):
    """The late one stands still for longer than its term and its heir works; then the heir stands
    still, so that nobody puts right what the late one does."""
    told = Told()
    policy = shop.create(TOTAL)
    late = shop.work(fault=f"{point}:1:stop")
    with shop.crowd(told, [policy], people=60, prefix="before", workers=4) as crowd:
        if point in BUILDING:
            crowd.await_wins(20)
            disarm(shop.redis)
        await_stop(late)
        heir = shop.work()
        heir.await_log("policy_armed", 60) if point in BUILDING else None
        crowd.join()
    shop.settle([policy])
    # A moment of rest, in which a reset would find nothing that is pending.
    heir.signal(signal.SIGSTOP)
    shop.end_terms()
    late.signal(signal.SIGCONT)
    # It looks for its term when it is through with what it was at.
    wait_until(lambda: shop.holder(policy).startswith(f"worker-{late.pid}-"), "it is steward", 30)
    with shop.crowd(told, [policy], people=60, prefix="after", workers=4) as crowd:
        crowd.join()
    assert policy not in told.sold_out, f"{point}: there is stock left"
    heir.signal(signal.SIGCONT)
    # The heir hands over, and the late one is steward again.
    heir.stop()
    gone = coupons(shop.database, policy)[:5]
    for row in gone:
        assert shop.servers[0].cancel(f"{policy}-{row['seq']}").status == 200
        told.wins.pop((policy, row["seq"]))
    with shop.crowd(told, [policy], prefix="rest", workers=4) as crowd:
        crowd.await_sold_out([policy])
    shop.settle([policy])
    told.check(shop.database, policy)
    shop.await_sold(policy, TOTAL)
    assert not rows(shop.database, "SELECT * FROM dead_letter")


def test_redis_points__a_worker_stands_still(shop_on):
    """Trap 33: a steward that was replaced while it stood still goes on with what it was at. All
    points at once: most of it is waiting until a term is over."""
    points = BUILDING + DRAINING
    assert set(points) <= set(WORKER_POINTS)
    with contextlib.ExitStack() as stack:
        shops = [stack.enter_context(shop_on(stack.enter_context(Redis()), servers=1, workers=0))
                 for _ in points]
        with concurrent.futures.ThreadPoolExecutor(len(points)) as pool:
            done = [pool.submit(stand_still, *each) for each in zip(shops, points)]
        for one, point in zip(done, points):
            print(point, one.exception())
        for one in done:
            one.result()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_redis_points__returned_stock_between_ledger_and_gate(shop_on, redis, how):
    """Traps 1 and 33: units that came back are leased in the ledger, and the gate has not heard."""
    told = Told()
    with shop_on(redis, servers=1, workers=1) as shop:
        policy = shop.create(20)
        with shop.crowd(told, [policy], people=30, prefix="first") as crowd:
            crowd.join()
        shop.settle([policy])
        shop.workers.pop().stop()
        late = shop.work(fault=f"worker.after_lease:1:{how}")
        for row in coupons(shop.database, policy)[:5]:
            assert shop.servers[0].cancel(f"{policy}-{row['seq']}").status == 200
            told.wins.pop((policy, row["seq"]))
        await_death(late) if how == "kill" else await_stop(late)
        shop.end_terms()
        heir = shop.work()
        wait_until(lambda: shop.servers[0].claim(policy, "quick", key="quick").status in (200, 202),
                   "the units are there", 30)
        if how == "stop":
            late.signal(signal.SIGCONT)
        told.sold_out.clear()
        with shop.crowd(told, [policy], people=30, prefix="second") as crowd:
            crowd.join()
        shop.settle([policy])
        told.check(shop.database, policy)
        shop.await_sold(policy, 20)
        assert heir.alive
        assert not rows(shop.database, "SELECT * FROM dead_letter")


def test_redis_points__poison_at_the_head_and_nobody_stops(shop_on, redis):
    """Trap 6, with everything that could make it wait for the poison: a worker that dies while it
    tries, and a Redis that has to be built anew meanwhile."""
    told = Told()
    with shop_on(redis, servers=1, workers=0, gate_timeout="10s") as shop:
        policy = shop.create(TOTAL)
        for statement in REFUSE_BAD:
            shop.database.execute(statement)
        bad = expect(shop.servers[0].claim(policy, "bad-one"), 202)
        first = shop.work()
        with shop.crowd(told, [policy], people=100, prefix="behind") as crowd:
            crowd.join()
        wait_until(lambda: len(shop.holders(policy)) == 100, "those behind it are issued", 30)
        first.kill()
        shop.end_terms()
        disarm(redis)
        shop.work()
        with shop.crowd(told, [policy], prefix="rest") as crowd:
            crowd.await_sold_out([policy])
        shop.settle([policy])
        told.check(shop.database, policy)
        shop.await_sold(policy, TOTAL)
        (letter,) = rows(shop.database, "SELECT * FROM dead_letter")
        assert (letter["user_id"], letter["seq"]) == ("bad-one", bad["seq"])
        status = expect(shop.servers[0].status(policy, "bad-one"), 200)
        assert status["state"] == "VOID"
