"""The ranking around midnight, in zones whose days are not all of a length (trap 25)."""

import datetime
import itertools
import zoneinfo

import pytest

from harness import expect, expect_problem, wait_until
from shop import rfc3339
from test_ranking import Reference, ids, seen, top
from virtual_clock import Clock

UTC = datetime.timezone.utc
MINUTE = datetime.timedelta(minutes=1)
SECOND = datetime.timedelta(seconds=1)
DAY = datetime.timedelta(days=1)

# The last days before the midnights that are looked at, in rising order.
MIDNIGHTS = {
    # 23 hours, 25 hours
    "America/New_York": ["2026-03-08", "2026-11-01"],
    # 24½ hours, 23½ hours
    "Australia/Lord_Howe": ["2026-04-05", "2026-10-04"],
    # a year's end, a leap day, far from midnight in UTC
    "Asia/Seoul": ["2026-12-31", "2028-02-28", "2028-02-29"],
    "UTC": ["2026-11-30", "2027-02-28"],
}
HOURS = {"2026-03-08": 23, "2026-11-01": 25, "2026-04-05": 24.5, "2026-10-04": 23.5}

pytestmark = pytest.mark.heavy


class Shop:
    """A server under a clock that is moved, and what it was told, by the days of its zone."""

    def __init__(self, server, clock, zone):
        self.server = server
        self.clock = clock
        self.zone = zoneinfo.ZoneInfo(zone)
        self.reference = Reference()
        self.numbers = itertools.count(1)
        self.day = None

    def name(self, product):
        """Each midnight has products of its own."""
        return f"{product}-{self.day}"

    def start_of(self, day):
        """The first instant of a day, in UTC."""
        midnight = datetime.datetime.combine(day, datetime.time(), self.zone)
        return midnight.astimezone(UTC)

    def sell(self, product, quantity, paid_at=None, day=None):
        product = self.name(product)
        body = {"order_id": f"o{next(self.numbers)}",
                "items": [{"product_id": product, "quantity": quantity}]}
        if paid_at is not None:
            body["paid_at"] = rfc3339(paid_at)
            day = paid_at.astimezone(self.zone).date()
        added = expect(self.server.post("/v1/orders", body), 201)
        assert added["day"] == str(day)
        self.reference.add(day, {product: quantity})
        return added["order_id"]

    def refund(self, order_id, day, product, quantity):
        expect(self.server.post(f"/v1/orders/{order_id}/refund"), 200)
        self.reference.add(day, {self.name(product): quantity}, -1)

    def check(self, last, days, fresh):
        should = self.reference.answer(last, days, 100)
        wait_until(lambda: seen(top(self.server, days=days, limit=100, fresh=fresh)) == should,
                   (last, days, should))


def day_before_midnight(shop, day):
    """Orders of that day, up to its last instant, and late ones of the days before."""
    midnight = shop.start_of(day + DAY)
    hours = (midnight - shop.start_of(day)) / datetime.timedelta(hours=1)
    assert hours == HOURS.get(str(day), 24)
    shop.day = day
    shop.clock.set_to(midnight - MINUTE / 2)
    shop.sell("now", 3, day=day)
    shop.sell("last", 5, midnight - datetime.timedelta(milliseconds=1))
    shop.sell("first", 2, shop.start_of(day))
    shop.sell("before", 7, shop.start_of(day) - datetime.timedelta(milliseconds=1))
    shop.sell("third", 4, shop.start_of(day - 2 * DAY))
    shop.sell("fourth", 11, shop.start_of(day - 2 * DAY) - datetime.timedelta(milliseconds=1))
    # Clocks differ by less than a minute; what is further ahead is a mistake.
    shop.sell("ahead", 6, midnight + 15 * SECOND)
    late = {"order_id": "tomorrow", "paid_at": rfc3339(midnight + 2 * MINUTE),
            "items": [{"product_id": "ahead", "quantity": 1}]}
    expect_problem(shop.server.post("/v1/orders", late), 400, "INVALID_REQUEST", field="paid_at")
    for days in (1, 3, 30):
        shop.check(day, days, fresh=True)
    three = ids(top(shop.server, days=3, limit=100))
    assert [shop.name(product) in three for product in ("third", "fourth", "ahead")] == [
        True, False, False]


def midnight_passes(shop, day):
    """The windows move by a day at once, also for those who take what is at hand."""
    shop.clock.set_to(shop.start_of(day + DAY) + SECOND / 2)
    for days in (1, 3, 30):
        answer = top(shop.server, days=days, limit=100)
        assert seen(answer) == shop.reference.answer(day + DAY, days, 100), (day, days)
    assert ids(top(shop.server, days=1)) == [shop.name("ahead")]
    assert shop.name("third") not in ids(top(shop.server, days=3, limit=100))


def next_day(shop, day):
    """A late order and a refund count on the day of the payment."""
    refunded = shop.sell("now", 100, shop.start_of(day + DAY) - SECOND)
    shop.check(day + DAY, 3, fresh=True)
    shop.refund(refunded, day, "now", 100)
    for days in (1, 2, 30):
        shop.check(day + DAY, days, fresh=True)
    ranks = {name: rank for rank, (name, _) in enumerate(shop.reference.ranking(day + DAY, 3), 1)}
    for product in map(shop.name, ("now", "ahead", "third")):
        assert expect(shop.server.get(f"/v1/products/{product}/rank"), 200)["rank"] == \
            ranks.get(product)


@pytest.mark.parametrize("zone", MIDNIGHTS)
def test_time__midnights(serve, tmp_path, zone):
    clock = Clock(tmp_path)
    days = [datetime.date.fromisoformat(text) for text in MIDNIGHTS[zone]]
    start = datetime.datetime.combine(days[0], datetime.time(12), zoneinfo.ZoneInfo(zone))
    clock.set_to(start)
    shop = Shop(serve(config={"timezone": zone}, env=clock.environment()), clock, zone)
    for day in days:
        day_before_midnight(shop, day)
        midnight_passes(shop, day)
        next_day(shop, day)
    # What was restored from the ledger is what was there.
    before = seen(top(shop.server, days=30, limit=100, fresh=True))
    shop.server.kill()
    shop.server.start()
    assert seen(top(shop.server, days=30, limit=100, fresh=True)) == before


def test_ranking_time__a_clock_that_jumps_and_comes_back(serve, tmp_path):
    """What was forgotten while the clock was ahead is there again when it is right, without a
    restart; also what was sold in that future, once it comes."""
    clock = Clock(tmp_path)
    server = serve(env=clock.environment())
    sell = {"items": [{"product_id": "now", "quantity": 3}]}
    expect(server.post("/v1/orders", {"order_id": "o1", **sell}), 201)

    def shows(should, days):
        wait_until(lambda: ids(top(server, days=days, fresh=True)) == should, (should, days), 30)

    shows(["now"], 3)
    clock.forward(45 * 86400)
    shows([], 30)
    sell["items"][0]["product_id"] = "ahead"
    expect(server.post("/v1/orders", {"order_id": "o2", **sell}), 201)
    shows(["ahead"], 3)
    clock.forward(0)
    shows(["now"], 3)
    shows(["now"], 30)
    clock.forward(45 * 86400)
    shows(["ahead"], 30)
    clock.forward(0)
    shows(["now"], 2)
    report = expect(server.get("/v1/audit"), 200)
    assert report["board"]["differences"] == 0, report["board"]
