"""Orders, refunds and products: each counts once, on its day, whoever sends it how often."""

import concurrent.futures
import datetime
import json
import random

import pytest

from harness import expect, expect_problem, now_rfc3339, run_dibs, run_serve
from ledger import KIND, rows
from shop import Reference, day_of, feed, order, refund, rfc3339, totals

ZONES = ["UTC", "Asia/Seoul", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"]


def add(server, body, status=201):
    return expect(server.post("/v1/orders", body), status)


# --- one order ---


def test_order__counts_once(server):
    body = order("o1", ("a", 2), ("b", 1), ("a", 3), paid_at=now_rfc3339(-5))
    added = add(server, body)
    assert added["result"] == "ADDED" and added["paid_at"] == body["paid_at"]
    assert added["refunded_at"] is None and added["day"] == str(day_of(body["paid_at"]))
    again = add(server, body, 200)
    assert again == {**added, "result": "KNOWN"}
    turned = {**body, "items": [{"quantity": 1, "product_id": "b"},
                                {"quantity": 5, "product_id": "a"}]}
    assert add(server, turned, 200)["result"] == "KNOWN"
    day = day_of(body["paid_at"])
    assert totals(server.database) == {(day, "a"): 5, (day, "b"): 1}
    assert [entry[2:] for entry in feed(server.database)] == [("a", 5), ("b", 1)]
    shown = expect(server.get("/v1/orders/o1"), 200)
    assert shown["items"] == [{"product_id": "a", "quantity": 5}, {"product_id": "b", "quantity": 1}]


def test_order__another_body_is_a_conflict(server):
    paid_at = now_rfc3339(-5)
    body = order("o1", ("a", 2), paid_at=paid_at)
    add(server, body)
    for other in (order("o1", ("a", 3), paid_at=paid_at), order("o1", ("b", 2), paid_at=paid_at),
                  order("o1", ("a", 2), ("b", 1), paid_at=paid_at), order("o1", ("a", 2)),
                  order("o1", ("a", 2), paid_at=now_rfc3339(-4000))):
        expect_problem(server.post("/v1/orders", other), 409, "CONFLICT", field="order_id")
    assert totals(server.database) == {(day_of(paid_at), "a"): 2}


def test_order__without_a_time_is_paid_when_it_comes(server):
    body = order(17, (42, 1))
    added = add(server, body)
    assert added["order_id"] == "17" and added["paid_at"] == added["received_at"]
    assert add(server, body, 200)["paid_at"] == added["paid_at"]
    assert add(server, {**body, "paid_at": None}, 200)["result"] == "KNOWN"
    assert add(server, {**body, "order_id": "17"}, 200)["result"] == "KNOWN"
    assert totals(server.database) == {(day_of(added["paid_at"]), "42"): 1}


def test_order__late_is_fine_and_future_is_refused(server):
    add(server, order("yesterday", ("a", 1), paid_at=now_rfc3339(-86400)))
    add(server, order("long-ago", ("a", 1), paid_at="1970-01-02T00:00:00Z"))
    add(server, order("ahead", ("a", 1), paid_at=now_rfc3339(30)))
    late = order("tomorrow", ("a", 1), paid_at=now_rfc3339(120))
    expect_problem(server.post("/v1/orders", late), 400, "INVALID_REQUEST", field="paid_at")
    batch = {"orders": [order("fine", ("a", 1)), late]}
    expect_problem(server.post("/v1/orders", batch), 400, "INVALID_REQUEST",
                   field="orders.2.paid_at")
    assert server.get("/v1/orders/fine").status == 404
    assert len(rows(server.database, "SELECT order_id FROM sale_order")) == 3


GOOD = order("o", ("p", 1))
SHORT = b'{"order_id":1,"items":[{"product_id":1,"quantity":1}]}'


@pytest.mark.parametrize("body, field", [
    ({}, "order_id"),
    ({"order_id": "o"}, "items"),
    ({"items": GOOD["items"]}, "order_id"),
    ({**GOOD, "items": []}, "items"),
    ({**GOOD, "items": {}}, "items"),
    ({**GOOD, "items": [1]}, "items.1"),
    ({**GOOD, "items": [{"product_id": "p"}]}, "items.1.quantity"),
    ({**GOOD, "items": [{"quantity": 1}]}, "items.1.product_id"),
    (order("o", ("p", 0)), "items.1.quantity"),
    (order("o", ("p", 1000001)), "items.1.quantity"),
    (order("o", ("p", 1), ("p", -1)), "items.2.quantity"),
    (order("o", ("p", 1.5)), "items.1.quantity"),
    (order("o", ("p", True)), "items.1.quantity"),
    (order("o", ("p ", 1)), "items.1.product_id"),
    (order("o", ("", 1)), "items.1.product_id"),
    (order("o", ("..", 1)), "items.1.product_id"),
    (order("o", ("p" * 129, 1)), "items.1.product_id"),
    (order("o" * 129, ("p", 1)), "order_id"),
    (order(-1, ("p", 1)), "order_id"),
    (order("o", ("p", 1), paid_at="yesterday"), "paid_at"),
    (order("o", ("p", 1), paid_at=0), "paid_at"),
    ({**GOOD, "total": 5}, "total"),
    ({**GOOD, "items": [{**GOOD["items"][0], "price": 5}]}, "items.1.price"),
    ({"orders": []}, "orders"),
    ({"orders": [GOOD], "order_id": "o"}, "orders"),
    ({"orders": [GOOD, {**GOOD, "order_id": None}]}, "orders.2.order_id"),
    ({"orders": [GOOD, {"order_id": "o2"}]}, "orders.2.items"),
    ({"orders": [{"orders": [GOOD]}]}, "orders.1.orders"),
])
def test_order__bad_ones_change_nothing(shared, body, field):
    before = rows(shared.database, "SELECT last_id FROM sale_counter")
    expect_problem(shared.post("/v1/orders", body), 400, "INVALID_REQUEST", field=field)
    assert rows(shared.database, "SELECT last_id FROM sale_counter") == before


def test_order__most_that_fit(server):
    many = b'{"orders":[' + b",".join([SHORT] * 297) + b"]}"
    results = [result["result"] for result in add(server, many, 200)["items"]]
    assert results == ["ADDED"] + ["KNOWN"] * 296
    large = order("large", *((n, 1000000) for n in range(350)))
    add(server, large)
    assert sum(totals(server.database).values()) == 1 + 350 * 1000000


# --- batches ---


def test_orders__each_of_a_batch_has_its_result(server):
    paid_at = now_rfc3339(-3600)
    old = order("old", ("a", 1), paid_at=paid_at)
    add(server, old)
    batch = [order("new", ("a", 2), paid_at=paid_at), old, {**old, "items": GOOD["items"]},
             order("twice", ("b", 4), paid_at=paid_at), order("twice", ("b", 4), paid_at=paid_at),
             order("twice", ("b", 5), paid_at=paid_at)]
    results = add(server, {"orders": batch}, 200)["items"]
    assert [(result["order_id"], result["result"]) for result in results] == [
        ("new", "ADDED"), ("old", "KNOWN"), ("old", "CONFLICT"),
        ("twice", "ADDED"), ("twice", "KNOWN"), ("twice", "CONFLICT")]
    day = day_of(paid_at)
    assert totals(server.database) == {(day, "a"): 3, (day, "b"): 4}


# --- refunds ---


def test_refund__takes_back_once_from_the_day_of_the_sale(server):
    paid_at = now_rfc3339(-3 * 86400)
    add(server, order("o1", ("a", 2), ("b", 3), paid_at=paid_at))
    add(server, order("o2", ("a", 5), paid_at=paid_at))
    first = refund(server, "o1")
    assert first["refunded_at"] is not None
    assert refund(server, "o1") == first
    assert totals(server.database) == {(day_of(paid_at), "a"): 5}
    # The order that was taken back is known, and does not come back.
    again = add(server, order("o1", ("a", 2), ("b", 3), paid_at=paid_at), 200)
    assert again["result"] == "KNOWN" and again["refunded_at"] == first["refunded_at"]
    assert totals(server.database) == {(day_of(paid_at), "a"): 5}
    expect_problem(server.post("/v1/orders/nobody/refund"), 404, "NOT_FOUND")
    assert [entry[2:] for entry in feed(server.database)] == [
        ("a", 2), ("b", 3), ("a", 5), ("a", -2), ("b", -3)]


# --- many at once ---


def in_parallel(count, act):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(act, range(count)))


def test_orders__the_same_from_many_counts_once(server):
    body = order("o1", ("a", 7))
    answers = in_parallel(24, lambda _: server.post("/v1/orders", body).status)
    assert sorted(answers) == [200] * 23 + [201]
    refunds = in_parallel(24, lambda _: refund(server, "o1")["refunded_at"])
    assert len(set(refunds)) == 1
    assert [entry[3] for entry in feed(server.database)] == [7, -7]


def test_orders__an_order_and_its_refund_race(server):
    """Whoever comes first, the order ends as refunded or not, and the totals say the same."""
    def act(number):
        body = order(f"o{number // 2}", ("a", 1), ("b", number // 2 + 1))
        if number % 2 == 0:
            return server.post("/v1/orders", body).status
        return server.post(f"/v1/orders/o{number // 2}/refund").status

    answers = in_parallel(40, act)
    assert set(answers[::2]) == {201} and set(answers[1::2]) <= {200, 404}
    refunded = {f"o{i}" for i, status in enumerate(answers[1::2]) if status == 200}
    found = rows(server.database, "SELECT order_id, refunded_at FROM sale_order")
    assert {row["order_id"] for row in found if row["refunded_at"] is not None} == refunded
    kept = [i for i in range(20) if f"o{i}" not in refunded]
    by_product = {product: sold for (_, product), sold in totals(server.database).items()}
    assert by_product.get("a", 0) == len(kept)
    assert by_product.get("b", 0) == sum(i + 1 for i in kept)


# --- days ---


def random_moment(chance, now):
    """Some time in the last 400 days, often within a minute of a midnight somewhere."""
    moment = now - datetime.timedelta(seconds=chance.randrange(1, 400 * 86400))
    if chance.random() < 0.6:
        minute = chance.choice([0, 15, 30, 45])
        moment = moment.replace(minute=minute, second=0, microsecond=0)
        moment += datetime.timedelta(milliseconds=chance.choice([-1, 0, 1]))
    return moment


@pytest.mark.parametrize("zone", ZONES)
def test_orders__random_ones_against_the_reference(serve, zone):
    """Trap 25: midnight in the wrong zone."""
    seed = random.randrange(2 ** 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    server = serve(config={"timezone": zone})
    reference = Reference(zone)
    now = datetime.datetime.now(datetime.timezone.utc)
    for _ in range(6):
        batch = []
        for _ in range(40):
            order_id = f"o{chance.randrange(150)}"
            body = reference.orders.get(order_id) or order(
                order_id, *((f"p{chance.randrange(12)}", chance.randrange(1, 9))
                            for _ in range(chance.randrange(1, 5))),
                paid_at=rfc3339(random_moment(chance, now)))
            expected = "KNOWN" if order_id in reference.orders else "ADDED"
            if expected == "KNOWN" and chance.random() < 0.2:
                body = {**body, "items": body["items"] + [{"product_id": "x", "quantity": 1}]}
                expected = "CONFLICT"
            else:
                reference.orders[order_id] = body
            batch.append((body, expected))
        results = add(server, {"orders": [body for body, _ in batch]}, 200)["items"]
        assert [result["result"] for result in results] == [expected for _, expected in batch]
        for (body, _), result in zip(batch, results):
            stored = reference.orders[body["order_id"]]
            assert result["day"] == str(day_of(stored["paid_at"], zone))
        for order_id in chance.sample(sorted(reference.orders), 8):
            refund(server, order_id)
            reference.refunded.add(order_id)
    reference.check(server.database)
    server.restart()
    reference.check(server.database)


def test_orders__days_stay_in_the_zone_they_were_counted_in(serve):
    server = serve(config={"timezone": "Asia/Seoul"})
    server.stop()
    server.config["timezone"] = "Europe/Berlin"  # no order yet
    server.start()
    add(server, order("o", ("a", 1)))
    server.stop()
    if KIND == "sqlite":
        ended = run_serve(server.database.url, "--timezone", "UTC")
        assert ended.returncode == 1 and "set timezone to Europe/Berlin" in ended.stderr
    server.start()
    assert add(server, order("o", ("a", 1)), 200)["result"] == "KNOWN"


# --- products ---


def test_product__comes_back_as_it_went_in(server):
    put = expect(server.request("PUT", "/v1/products/p1", {"name": "K\u00e4se \U0001f9c0 \"a\\b\"",
                                                           "price": 0}), 200)
    assert put["price"] == 0
    assert expect(server.get("/v1/products/p1"), 200) == put
    expect(server.request("PUT", "/v1/products/p1", {"name": "n" * 200}), 200)
    shown = expect(server.get("/v1/products/p1"), 200)
    assert shown["name"] == "n" * 200 and shown["price"] is None
    expect_problem(server.get("/v1/products/P1"), 404, "NOT_FOUND")


def test_product__many_at_once(server):
    products = [{"product_id": n, "name": f"name {n}", "price": n} for n in range(250)]
    products.append({"product_id": "0", "name": "the last counts"})
    assert expect(server.post("/v1/products", {"products": products}), 200) == {"count": 251}
    assert expect(server.get("/v1/products/0"), 200)["name"] == "the last counts"
    assert expect(server.get("/v1/products/249"), 200)["price"] == 249


@pytest.mark.parametrize("body, field", [
    ({}, "name"), ({"name": ""}, "name"), ({"name": "n" * 201}, "name"), ({"name": 5}, "name"),
    ({"name": "n", "price": -1}, "price"), ({"name": "n", "price": 10 ** 12 + 1}, "price"),
    ({"name": "n", "price": "5"}, "price"), ({"name": "n", "product_id": "p"}, "product_id"),
])
def test_product__bad_ones_change_nothing(shared, body, field):
    answer = shared.request("PUT", "/v1/products/bad", body)
    expect_problem(answer, 400, "INVALID_REQUEST", field=field)
    one = {"product_id": "bad", **body}
    if field == "product_id":
        one["product_id"] = "a "
    expect_problem(shared.post("/v1/products", {"products": [
        {"product_id": "bad", "name": "good"}, one]}), 400, "INVALID_REQUEST",
        field=f"products.2.{field}")
    assert shared.get("/v1/products/bad").status == 404


# --- the command ---


def run_import(server, text, *arguments):
    return run_dibs("product", "import", "-", "--url", "http://%s:%d" % server.address, *arguments,
                    stdin=text)


def lines_of(products):
    return "".join(json.dumps(product, ensure_ascii=False) + "\n" for product in products)


def test_import__many_lines(server, tmp_path):
    products = [{"product_id": f"sku-{n}", "name": "\u00e4" * (n % 200 + 1), "price": n}
                for n in range(1200)]
    file = tmp_path / "products.jsonl"
    file.write_text(lines_of(products) + "\n  \n", "utf-8")
    ended = run_dibs("product", "import", file, "--url", "http://%s:%d" % server.address)
    assert (ended.returncode, ended.stdout) == (0, "1200 products imported\n"), ended
    found = rows(server.database, "SELECT product_id, name, price FROM product")
    assert {row["product_id"]: (row["name"], row["price"]) for row in found} == {
        product["product_id"]: (product["name"], product["price"]) for product in products}
    ended = run_import(server, lines_of(products[:1]), "--json")
    assert (ended.returncode, json.loads(ended.stdout)) == (0, {"count": 1}), ended
    assert run_import(server, "").stdout == "0 products imported\n"


@pytest.mark.parametrize("line, words", [
    ("no json", "line 3 of the input is not a JSON object"),
    ('{"product_id":1,"name":"a"},{"product_id":2,"name":"b"}', "line 3 of the input"),
    ("[]", "line 3 of the input"),
    ('{"product_id":1}', "products.3.name: is missing"),
    (json.dumps({"product_id": 1, "name": "n" * 17000}), "line 3 has more than"),
])
def test_import__a_bad_line_is_named(server, line, words):
    good = lines_of({"product_id": n, "name": "n"} for n in range(2))
    ended = run_import(server, good + line + "\n")
    assert ended.returncode == 1 and words in ended.stderr, ended


def test_import__no_such_file(server, tmp_path):
    ended = run_dibs("product", "import", tmp_path / "none", "--url",
                     "http://%s:%d" % server.address)
    assert ended.returncode == 1 and "cannot open" in ended.stderr


def test_orders__all_wrong_fields_are_told_at_once(shared):
    """Also those of many orders, each at its place."""
    item = {"product_id": "p1", "quantity": 1}
    orders = [{"order_id": "all-1", "items": [{**item, "quantity": 0}]},
              {"order_id": "all-2", "items": [item]},
              {"items": [item, {"product_id": "p2"}]}]
    problem = expect_problem(shared.post("/v1/orders", {"orders": orders}), 400, "INVALID_REQUEST")
    assert [error["field"] for error in problem["errors"]] == [
        "orders.1.items.1.quantity", "orders.3.items.2.quantity", "orders.3.order_id"]
    problem = expect_problem(shared.post("/v1/orders", {"paid_at": "2026-01-01T00:00:00Z"}), 400,
                             "INVALID_REQUEST")
    assert [error["field"] for error in problem["errors"]] == ["order_id", "items"]
    late = [{"order_id": f"late-{i}", "paid_at": "2999-01-01T00:00:00Z", "items": [item]}
            for i in range(2)]
    problem = expect_problem(shared.post("/v1/orders", {"orders": late}), 400, "INVALID_REQUEST")
    assert [error["field"] for error in problem["errors"]] == ["orders.1.paid_at",
                                                               "orders.2.paid_at"]
    assert shared.get("/v1/orders/all-2").status == 404
