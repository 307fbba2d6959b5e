"""A ranking by score: weights for views, carts and orders, and a half-life."""

import datetime
import random

import pytest

from harness import expect, expect_problem, run_serve, wait_until
from ledger import rows
from shop import order, refund, rfc3339
from test_ranking import UTC, Reference, ids, seen, top

HALF_LIFE_S = 6 * 3600
WEIGHTS = {"view": 1, "cart": 5, "order": 20}
DECAY = {"ranking_half_life": "6h", "ranking_weights": "view:1,cart:5,order:20"}


class Scores:
    """Everything that counts: (kind, product, quantity, time), by id."""

    def __init__(self, half_life_s=HALF_LIFE_S, weights=None):
        self.half_life_s = half_life_s
        self.weights = weights or WEIGHTS
        self.moments = {}

    def add(self, name, kind, product, quantity, at):
        self.moments[name] = (kind, product, quantity, at)

    def ranking(self, last, days, as_of):
        """[(product, score, sold)], best first."""
        scores, sold = {}, {}
        first = last - datetime.timedelta(days=days - 1)
        for kind, product, quantity, at in self.moments.values():
            if not first <= at.date() <= last:
                continue
            age_s = (as_of - at.replace(microsecond=0)).total_seconds()
            fade = 2 ** (-age_s / self.half_life_s) if self.half_life_s else 1
            scores[product] = scores.get(product, 0) + self.weights[kind] * quantity * fade
            sold[product] = sold.get(product, 0) + (quantity if kind == "order" else 0)
        ranked = [(product, score, sold[product]) for product, score in scores.items() if score > 0]
        return sorted(ranked, key=lambda line: (-line[1], -line[2], line[0]))

    def check(self, server, today, days, source=None):
        """At most a second behind."""
        answer = {}

        def is_right():
            answer.update(top(server, days=days, limit=100, fresh=True))
            as_of = datetime.datetime.fromisoformat(answer["as_of"].replace("Z", "+00:00"))
            should = self.ranking(today, days, as_of)[:100]
            shown = [(item["product_id"], item["score"], item["sold"]) for item in answer["items"]]
            return [(product, sold) for product, _, sold in shown] == \
                [(product, sold) for product, _, sold in should] and all(
                    abs(a[1] - b[1]) <= 1e-5 * b[1] for a, b in zip(shown, should))

        wait_until(is_right, ("scores", days))
        assert answer["ranking"] == ("decay" if self.half_life_s else "weights")
        before = {line[0]: rank for rank, line in enumerate(self.ranking(
            today - datetime.timedelta(days=1), days, datetime.datetime.now(UTC)), 1)}
        for item in answer["items"]:
            product = item["product_id"]
            assert item["change"] == (before[product] - item["rank"] if product in before else None)
        assert source is None or answer["source"] == source
        return answer


def fill(server, scores, count, chance):
    """Orders, carts and views of the last four days; some orders are refunded."""
    now = datetime.datetime.now(UTC)
    for number in range(count):
        at = now - datetime.timedelta(seconds=chance.uniform(1, 4 * 86400))
        at = at.replace(microsecond=at.microsecond // 1000 * 1000)
        product, quantity = f"p{chance.randrange(30)}", chance.randint(1, 9)
        kind = chance.choice(["order", "view", "cart"])
        if kind == "order":
            expect(server.post("/v1/orders", order(f"o{number}", (product, quantity),
                                                   paid_at=rfc3339(at))), 201)
        else:
            signal = {"signal_id": f"s{number}", "kind": kind, "product_id": product,
                      "quantity": quantity, "at": rfc3339(at)}
            answer = expect(server.post("/v1/signals", {"signals": [signal, signal]}), 200)
            assert answer == {"added": 1, "known": 1, "conflicts": []}
        scores.add(number, kind, product, quantity, at)
        if kind == "order" and chance.random() < 0.3:
            refund(server, f"o{number}")
            del scores.moments[number]


def test_scores__decay_as_the_reference(serve):
    server = serve(config=DECAY)
    scores, chance = Scores(), random.Random(5)
    today = datetime.datetime.now(UTC).date()
    fill(server, scores, 150, chance)
    for days in (1, 3, 30):
        scores.check(server, today, days)
    lines = scores.ranking(today, 3, datetime.datetime.now(UTC))
    shown = expect(server.get(f"/v1/products/{lines[4][0]}/rank"), 200)
    assert shown["rank"] == 5 and shown["ranking"] == "decay"
    assert ids({"items": shown["neighbours"]}) == [line[0] for line in lines[2:7]]
    assert abs(shown["score"] / lines[4][1] - 1) < 1e-2
    # What a board that followed the feed says, one that is built of the ledger says too.
    server.kill()
    server.start()
    for days in (1, 3):
        scores.check(server, today, days, source="board")
    # And without decay it is what was sold, as if nothing had been.
    server.stop()
    server.config = {}
    server.start()
    sold = Reference()
    for kind, product, quantity, at in scores.moments.values():
        if kind == "order":
            sold.add(at.date(), {product: quantity})
    answer = top(server, days=3, limit=100, fresh=True)
    assert seen(answer) == sold.answer(today, 3, 100)
    assert "ranking" not in answer and "score" not in answer["items"][0]


def test_scores__an_old_crowd_gives_way_to_a_recent_order(serve):
    server = serve(config={"ranking_half_life": "1h"})
    now = datetime.datetime.now(UTC)
    expect(server.post("/v1/orders", order("old", ("old", 1000), paid_at=rfc3339(
        now - datetime.timedelta(hours=12)))), 201)
    expect(server.post("/v1/orders", order("new", ("new", 1))), 201)
    wait_until(lambda: ids(top(server, fresh=True)) == ["new", "old"], "both orders")
    assert [item["sold"] for item in top(server, fresh=True)["items"]] == [1, 1000]
    # Taking back what is large and recent leaves what is small and old as it was.
    expect(server.post("/v1/orders", order("huge", ("old", 1000000))), 201)
    wait_until(lambda: ids(top(server, fresh=True)) == ["old", "new"], "the large order")
    refund(server, "huge")
    wait_until(lambda: ids(top(server, fresh=True)) == ["new", "old"], "the refund")
    line = top(server, fresh=True)["items"][1]
    assert line["sold"] == 1000 and abs(line["score"] / (1000 * 2 ** -12) - 1) < 1e-2


def test_scores__weights_alone(serve):
    server = serve(config={"ranking_weights": "view:1,order:3"})
    expect(server.post("/v1/orders", order("o1", ("mug", 1), ("pen", 1))), 201)
    signals = [{"signal_id": 1, "kind": "view", "product_id": "mug"},
               {"signal_id": 2, "kind": "view", "product_id": "jar", "quantity": 4},
               {"signal_id": 3, "kind": "view", "product_id": "cup", "quantity": 3},
               {"signal_id": 4, "kind": "cart", "product_id": "bag", "quantity": 9}]
    expect(server.post("/v1/signals", {"signals": signals}), 200)

    def lines():
        return [(item["product_id"], item["score"], item["sold"])
                for item in top(server, fresh=True)["items"]]

    # A cart counts nothing here; of equal scores the one that was sold comes first.
    wait_until(lambda: lines() == [("mug", 4, 1), ("jar", 4, 0), ("pen", 3, 1), ("cup", 3, 0)],
               "orders and views")
    assert top(server)["ranking"] == "weights"
    server.kill()
    server.start()
    assert lines() == [("mug", 4, 1), ("jar", 4, 0), ("pen", 3, 1), ("cup", 3, 0)]


def test_scores__what_was_sold_before_they_were_set_counts(serve):
    server = serve()
    expect(server.post("/v1/orders", order("o1", ("mug", 2))), 201)
    server.stop()
    server.config = {"ranking_half_life": "24h"}
    server.start()
    expect(server.post("/v1/orders", order("o2", ("pen", 1))), 201)
    wait_until(lambda: ids(top(server, fresh=True)) == ["mug", "pen"], "both orders")
    refund(server, "o1")
    wait_until(lambda: ids(top(server, fresh=True)) == ["pen"], "the refund")


def test_signals__count_once_and_are_forgotten_in_time(serve):
    server = serve(config=DECAY)
    old = datetime.datetime.now(UTC) - datetime.timedelta(days=30)
    signal = {"signal_id": "v1", "kind": "view", "product_id": "mug"}
    late = {"signal_id": "v2", "kind": "cart", "product_id": "mug", "at": rfc3339(old)}
    assert expect(server.post("/v1/signals", {"signals": [signal, late]}), 200)["added"] == 2
    changed = [{**signal, "quantity": 2}, {**signal, "kind": "cart"}, {**late, "product_id": "x"},
               {**late, "at": rfc3339(old - datetime.timedelta(seconds=1))}, signal, late]
    assert expect(server.post("/v1/signals", {"signals": changed}), 200) == {
        "added": 0, "known": 2, "conflicts": ["v1", "v1", "v2", "v2"]}
    kept = "SELECT signal_id FROM product_signal ORDER BY signal_id"
    assert [row["signal_id"] for row in rows(server.database, kept)] == ["v1", "v2"]
    server.database.execute("UPDATE product_signal SET day = day - 5 WHERE signal_id = 'v2'")
    expect(server.post("/v1/signals", {"signals": [{**signal, "signal_id": "v3"}]}), 200)
    assert [row["signal_id"] for row in rows(server.database, kept)] == ["v1", "v3"]
    assert rows(server.database, "SELECT day FROM sale_day") == []
    for at in (old - datetime.timedelta(days=2), old + datetime.timedelta(days=31)):
        expect_problem(server.post("/v1/signals", {"signals": [signal, {**late, "at": rfc3339(at)}]}),
                       400, "INVALID_REQUEST", field="signals.2.at")


@pytest.mark.parametrize("setting, value", [
    ("ranking_half_life", "59m"), ("ranking_half_life", "721h"), ("ranking_weights", "view"),
    ("ranking_weights", "view:1001"), ("ranking_weights", "view:1,view:2"),
    ("ranking_weights", "sale:1"), ("ranking_weights", "view:0,order:0"),
    ("ranking_weights", "view:1,"), ("ranking_weights", "view:-1")])
def test_scores__wrong_settings_are_refused(tmp_path, setting, value):
    refused = run_serve(f"sqlite:{tmp_path / 'dibs.db'}", config={setting: value})
    assert refused.returncode in (1, 2) and f"{setting}: ".upper() in refused.stderr.upper()
