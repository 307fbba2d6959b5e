"""Live best sellers: the answer is that of a straightforward reference, at every moment."""

import collections
import datetime
import itertools
import json
import random

import pytest

from harness import expect, expect_problem, run_dibs, wait_until

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


def test_ranking__a_fresh_one_has_every_order_that_was_answered(serve):
    """At once, not within a second; also the refunds, and of any window."""
    server = serve()
    for number in range(1, 41):
        order(server, {"mug": 1}, order_id=f"mug-{number}")
        days = 1 + number % 5
        assert [item["sold"] for item in top(server, fresh=True, days=days)["items"]] == [number]
    expect(server.post("/v1/orders/mug-1/refund"), 200)
    assert [item["sold"] for item in top(server, fresh=True)["items"]] == [39]
    # Nothing sold meanwhile: the same, and no older than the question.
    assert seen(top(server, fresh=True)) == seen(top(server, fresh=True)) == [(1, "mug", 39, None)]


def test_ranking__names_prices_and_ties(serve):
    server = serve()
    expect(server.request("PUT", "/v1/products/mug", {"name": "Mug", "price": 1990}), 200)
    now = datetime.datetime.now(UTC)
    yesterday = now - datetime.timedelta(days=1)
    order(server, {"mug": 5, "cup": 5, "Cup": 5, "pen": 1}, paid_at=yesterday)
    order(server, {"jar": 5})
    wait_until(lambda: len(top(server, fresh=True)["items"]) == 5, "both orders")
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
                           reference.answer(now.date(), days, limit), (step, days))
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
    before = wait_until(lambda: seen(top(server, fresh=True)), "the order")
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


def test_ranking__questions_that_look_alike_get_their_own_answers(serve):
    server = serve()
    order(server, {"mug": 3})
    wait_until(lambda: ids(top(server, fresh=True)) == ["mug"], "the order")
    for _ in range(3):
        for days in range(1, 31):
            assert top(server, days=days)["days"] == days
    for limit in (1, 9, 1):
        assert top(server, limit=limit)["days"] == 3


def test_ranking__on_the_command_line(serve):
    server = serve()
    url = ("--url", f"http://127.0.0.1:{server.address[1]}")
    nothing = run_dibs("product", "top", *url)
    assert nothing.returncode == 0 and nothing.stdout == "" and "Nothing was sold" in nothing.stderr
    expect(server.request("PUT", "/v1/products/mug", {"name": "Mug", "price": 1990}), 200)
    yesterday = datetime.datetime.now(UTC) - datetime.timedelta(days=1)
    order(server, {"mug": 3, "cup": 1}, paid_at=yesterday)
    order(server, {"cup": 4})
    wait_until(lambda: ids(top(server, fresh=True)) == ["cup", "mug"], "the orders")
    shown = run_dibs("product", "top", "--days", 2, "--limit", 10, "--fresh", *url)
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["RANK", "CHANGE", "PRODUCT", "NAME", "PRICE", "SOLD"],
        ["1", "+1", "cup", "-", "-", "5"], ["2", "-1", "mug", "Mug", "1990", "3"]]
    assert "Of 2 days, as of 20" in shown.stderr
    same = json.loads(run_dibs("product", "top", "--json", *url).stdout)
    assert seen(same) == seen(top(server))
    rank = run_dibs("product", "rank", "mug", *url)
    assert [line.split()[2] for line in rank.stdout.splitlines()[1:]] == ["cup", "mug"]
    assert "Nothing of it" in run_dibs("product", "rank", "jar", *url).stderr
    assert run_dibs("product", "top", "--days", "x", *url).returncode == 2
    assert run_dibs("product", "rank", "a ", *url).returncode == 2
    refused = run_dibs("product", "top", "--days", 31, *url)
    assert refused.returncode == 1 and "days" in refused.stderr


def test_ranking__numbers_for_operators(serve):
    server = serve(config={"ranking_weights": "view:1,order:2"})
    placed = order(server, {"mug": 1})["order_id"]
    changed = {"order_id": placed, "items": [{"product_id": "mug", "quantity": 2}]}
    expect_problem(server.post("/v1/orders", changed), 409, "CONFLICT", field="order_id")
    order(server, {"pen": 1}, order_id="p1")
    order(server, {"pen": 1}, order_id="p1", status=200)
    for _ in range(2):
        expect(server.post(f"/v1/orders/{placed}/refund"), 200)
        expect(server.post("/v1/signals", {"signals": [
            {"signal_id": 1, "kind": "view", "product_id": "pen"}]}), 200)
    wait_until(lambda: ids(top(server, fresh=True)) == ["pen"], "the refund")
    metrics = server.metrics()
    questions = metrics["dibs_ranking_questions_total"]
    assert questions >= 1
    top(server)
    metrics = server.metrics()
    assert metrics["dibs_ranking_questions_total"] == questions + 1
    assert [metrics[f'dibs_orders_total{{result="{result}"}}'] for result in
            ("added", "known", "conflict", "unavailable")] == [2, 1, 1, 0]
    assert metrics["dibs_refunds_total"] == 1
    assert [metrics[f'dibs_signals_total{{result="{result}"}}'] for result in
            ("added", "known", "conflict")] == [1, 1, 0]
    assert metrics['dibs_rankings_total{source="board"}'] >= 1
    assert metrics['dibs_rankings_total{source="ledger"}'] >= 0
