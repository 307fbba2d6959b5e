"""Live best sellers: the answer is that of a straightforward reference, at every moment."""

import collections
import datetime
import itertools
import random

import pytest

from harness import expect, expect_problem, wait_until

UTC = datetime.timezone.utc
NUMBER = itertools.count(1)


def order(server, items, paid_at=None, order_id=None, status=201):
    body = {"order_id": order_id or f"o-{next(NUMBER)}",
            "items": [{"product_id": product, "quantity": quantity}
                      for product, quantity in items.items()]}
    if paid_at is not None:
        body["paid_at"] = paid_at.isoformat().replace("+00:00", "Z")
    return expect(server.post("/v1/orders", body), status)


def top(server, **query):
    text = "&".join(f"{name}={str(value).lower()}" for name, value in query.items())
    return expect(server.get("/v1/products/top" + ("?" + text if text else "")), 200)


def ids(answer):
    return [item["product_id"] for item in answer["items"]]


class Reference:
    """What was sold, by day and product."""

    def __init__(self):
        self.sold = collections.defaultdict(collections.Counter)

    def add(self, day, items, sign=1):
        for product, quantity in items.items():
            self.sold[day][product] += sign * quantity

    def ranking(self, last, days):
        window = [last - datetime.timedelta(days=back) for back in range(days)]
        sums = collections.Counter()
        for day in window:
            sums.update(self.sold[day])
        sold = [(-count, -self.sold[last][product], product.encode(), product)
                for product, count in sums.items() if count > 0]
        return [(product, -count) for count, _, _, product in sorted(sold)]

    def answer(self, last, days, limit):
        before = {product: rank for rank, (product, _) in
                  enumerate(self.ranking(last - datetime.timedelta(days=1), days), 1)}
        return [(rank, product, sold, before[product] - rank if product in before else None)
                for rank, (product, sold) in enumerate(self.ranking(last, days)[:limit], 1)]


def seen(answer):
    return [(item["rank"], item["product_id"], item["sold"], item["change"])
            for item in answer["items"]]


def test_ranking__nothing_sold(serve):
    server = serve()
    answer = top(server)
    assert answer["items"] == [] and answer["code"] == "INSUFFICIENT_SALES_DATA"
    assert answer["days"] == 3 and answer["as_of"]
    rank = expect(server.get("/v1/products/mug/rank"), 200)
    assert rank["rank"] is None and rank["sold"] == 0 and rank["neighbours"] == []


def test_ranking__names_prices_and_ties(serve):
    server = serve()
    expect(server.request("PUT", "/v1/products/mug", {"name": "Mug", "price": 1990}), 200)
    now = datetime.datetime.now(UTC)
    yesterday = now - datetime.timedelta(days=1)
    order(server, {"mug": 5, "cup": 5, "Cup": 5, "pen": 1}, paid_at=yesterday)
    order(server, {"jar": 5})
    answer = top(server, fresh=True)
    # More on the last day first, then the id in byte order: capitals before small letters.
    assert ids(answer) == ["jar", "Cup", "cup", "mug", "pen"]
    assert answer["items"][3] == {"rank": 4, "product_id": "mug", "name": "Mug", "price": 1990,
                                  "sold": 5, "change": -1}
    assert answer["items"][0]["name"] is None and answer["items"][0]["price"] is None
    assert answer["items"][0]["change"] is None
    assert ids(top(server, fresh=True, limit=2)) == ["jar", "Cup"]
    assert ids(top(server, fresh=True, days=1)) == ["jar"]
    rank = expect(server.get("/v1/products/cup/rank?days=3"), 200)
    assert (rank["rank"], rank["sold"], rank["change"]) == (3, 5, -1)
    assert ids({"items": rank["neighbours"]}) == ["jar", "Cup", "cup", "mug", "pen"]


@pytest.mark.parametrize("query", ["days=0", "days=31", "limit=0", "limit=101", "fresh=yes",
                                   "days=x", "nonsense=1", "days=1&days=2"])
def test_ranking__wrong_questions(shared, query):
    expect_problem(shared.get(f"/v1/products/top?{query}"), 400, "INVALID_REQUEST")


def test_ranking__random_orders_and_refunds_as_the_reference(serve):
    server = serve()
    random.seed(11)
    reference = Reference()
    now = datetime.datetime.now(UTC)
    placed = []
    for step in range(300):
        if placed and random.random() < 0.15:
            name, day, items = placed.pop(random.randrange(len(placed)))
            expect(server.post(f"/v1/orders/{name}/refund"), 200)
            reference.add(day, items, -1)
        else:
            paid_at = now - datetime.timedelta(days=random.randrange(6))
            items = {f"p{random.randrange(25)}": random.randint(1, 3)
                     for _ in range(random.randint(1, 4))}
            name = order(server, items, paid_at=paid_at)["order_id"]
            placed.append((name, paid_at.date(), items))
            reference.add(paid_at.date(), items)
        if step % 30 == 29:
            for days, limit in ((1, 5), (3, 5), (6, 100), (30, 100)):
                # At most a second behind.
                wait_until(lambda: seen(top(server, days=days, limit=limit, fresh=True)) ==
                           reference.answer(now.date(), days, limit), (step, days), timeout_s=3)
    for product in ("p1", "p7", "p24"):
        ranks = {name: rank for rank, (name, _) in enumerate(reference.ranking(now.date(), 3), 1)}
        shown = expect(server.get(f"/v1/products/{product}/rank"), 200)
        assert shown["rank"] == ranks.get(product)


def test_ranking__every_window_and_limit_as_the_reference(serve):
    """Few quantities make many ties, which the last day and the ids have to tell apart."""
    server = serve()
    random.seed(12)
    reference = Reference()
    now = datetime.datetime.now(UTC)
    for _ in range(10):
        orders = []
        for _ in range(60):
            paid_at = now - datetime.timedelta(days=random.randrange(33))
            items = {f"p{random.randrange(130)}": random.randint(1, 2)}
            reference.add(paid_at.date(), items)
            orders.append({"order_id": f"o-{next(NUMBER)}",
                           "paid_at": paid_at.isoformat().replace("+00:00", "Z"),
                           "items": [{"product_id": product, "quantity": quantity}
                                     for product, quantity in items.items()]})
        expect(server.post("/v1/orders", {"orders": orders}), 200)
    today = now.date()
    wait_until(lambda: seen(top(server, days=30, limit=100, fresh=True)) ==
               reference.answer(today, 30, 100), "all orders")
    limits = random.sample(range(1, 101), 30)
    for days, limit in zip(range(1, 31), limits):
        answer = top(server, days=days, limit=limit)
        assert answer["days"] == days
        assert seen(answer) == reference.answer(today, days, limit), (days, limit)
    for days in (1, 3, 30):
        lines = reference.answer(today, days, 1000)
        at = {line[1]: place for place, line in enumerate(lines)}
        for product in [*random.sample(sorted(at), min(12, len(at))), lines[0][1], lines[-1][1]]:
            shown = expect(server.get(f"/v1/products/{product}/rank?days={days}"), 200)
            place = at[product]
            assert (shown["rank"], product, shown["sold"], shown["change"]) == lines[place]
            assert seen({"items": shown["neighbours"]}) == lines[max(0, place - 2):place + 3]


def test_ranking__is_there_after_a_restart(serve):
    server = serve()
    order(server, {"mug": 3, "pen": 1})
    before = seen(top(server, fresh=True))
    server.kill()
    server.start()
    wait_until(lambda: top(server, fresh=True)["source"] == "board", "the board")
    assert seen(top(server, fresh=True)) == before == [(1, "mug", 3, None), (2, "pen", 1, None)]


@pytest.mark.one_server("what is at hand is at hand of one server")
def test_ranking__a_question_without_fresh_is_answered_from_what_is_at_hand(serve):
    server = serve()
    order(server, {"mug": 3})
    wait_until(lambda: ids(top(server, fresh=True)) == ["mug"], "the order")
    answer = top(server)
    assert answer["source"] == "cache" and ids(answer) == ["mug"]
    order(server, {"pen": 9})
    # It is kept up to date while people ask.
    wait_until(lambda: ids(top(server)) == ["pen", "mug"], "the order")
