"""The ranking: a question against the floor, the board against SQL, and what an order costs."""

import datetime
import json
import sqlite3
import statistics
import subprocess

from harness import BenchError
from report import Figure, spread

CONNECTIONS = 64
WARMUP_SECONDS = 0.05
DAYS, LIMIT = 3, 5
ORDERS_PER_REQUEST = 64
PLAIN_ORDERS = 2000
# What one asks who has nothing but the orders, and what the ledger is asked while there is no board.
OF_ORDERS = """SELECT product_id, SUM(quantity) AS sold FROM sale_order JOIN sale_item USING (order_id)
    WHERE day BETWEEN {first} AND {last} AND refunded_at IS NULL
    GROUP BY product_id ORDER BY sold DESC, product_id LIMIT {limit}"""
OF_TOTALS = """SELECT product_id, SUM(quantity) AS sold FROM sale_day WHERE day BETWEEN {first} AND {last}
    GROUP BY product_id ORDER BY sold DESC, product_id LIMIT {limit}"""


def run_json(bench, name, *arguments):
    done = subprocess.run([bench.program(name), *map(str, arguments)], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise BenchError(done.stderr.strip())
    return json.loads(done.stdout)


# --- a question over HTTP ---

def sell(server, number, count):
    day = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=number % DAYS)
    server.call("POST", "/v1/orders", {"orders": [
        {"order_id": f"o-{number}-{product}", "paid_at": day.strftime("%Y-%m-%dT%H:%M:%SZ"),
         "items": [{"product_id": f"p{product:07}", "quantity": 1 + product}]}
        for product in range(count)]})


def measure_question(bench, report):
    """The same answer again and again, as when nothing is sold for a moment."""
    with bench.dibs(bench.folder / "question.db") as server:
        for number in range(LIMIT + 1):
            server.call("PUT", f"/v1/products/p{number:07}",
                        {"name": f"Product {number}", "price": 1000 + number})
        for number in range(DAYS):
            sell(server, number, 20)
        server.call("GET", "/v1/products/top?days=3&limit=5&fresh=true")
        settings = {"connections": CONNECTIONS, "warmup": WARMUP_SECONDS}
        probe = bench.round(server, "top", 200, **settings)
        floors, speeds = [], []
        with bench.floor(probe["reply_bytes"]) as floor:
            for number in range(bench.rounds):
                turns = [(floors, floor), (speeds, server)]
                for column, asked in turns if number % 2 == 0 else turns[::-1]:
                    column.append(bench.round(asked, "top", 200, **settings)["per_cpu_second"])
    report.add("claims", Figure(
        "best sellers", spread([a / b for a, b in zip(speeds, floors)]), target=0.85,
        floor=spread(floors), speed=spread(speeds), reply_bytes=probe["reply_bytes"]))


# --- the board against SQL ---

def fill_ledger(bench, path, products, sales):
    """Orders of one item, on the last DAYS + 1 days, written as rows: some sell much more."""
    with bench.dibs(path):
        pass  # makes the tables
    today = int(datetime.datetime.now(datetime.timezone.utc).timestamp()) // 86400
    database = sqlite3.connect(path)
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA cache_size = -400000")
    database.execute(f"""
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {sales})
        INSERT INTO sale_order (order_id, digest, paid_at, received_at, day)
        SELECT printf('o%09d', i), '', ({today} - i % {DAYS + 1}) * 86400000,
            ({today} - i % {DAYS + 1}) * 86400000, {today} - i % {DAYS + 1} FROM n""")
    # Every product sells; half of what is sold is of a tenth of them.
    database.execute(f"""
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {sales})
        INSERT INTO sale_item (order_id, product_id, quantity)
        SELECT printf('o%09d', i),
            printf('p%07d', i * 7919 % (CASE WHEN i / {products} % 2 = 0 THEN {products}
                                             ELSE {max(products // 10, 1)} END)),
            1 + i % 3
        FROM n""")
    database.execute("""INSERT INTO sale_day (day, product_id, quantity)
        SELECT day, product_id, SUM(quantity) FROM sale_order JOIN sale_item USING (order_id)
        GROUP BY day, product_id""")
    database.commit()
    database.close()


def measure_board(bench, report, say, products, sales, rounds):
    path = bench.folder / "sales.db"
    say(f"  writing {sales:,} sales of {products:,} products …")
    fill_ledger(bench, path, products, sales)
    say("  asking board and SQL …")
    boards, orders, totals = [], [], []
    for _ in range(rounds):
        board = run_json(bench, "sales", "board", path, DAYS, LIMIT, 20)
        window = {"first": board["last_day"] - DAYS + 1, "last": board["last_day"],
                  "limit": LIMIT}
        boards.append(board)
        orders.append(run_json(bench, "scan", path, OF_ORDERS.format(**window))["cpu_seconds"])
        totals.append(run_json(bench, "scan", path, OF_TOTALS.format(**window))["cpu_seconds"])
    answer = statistics.median(b["answer_seconds"] for b in boards)
    for name, column, target in (
            (f"best {LIMIT} of {DAYS} days, {products:,} products, {sales:,} sales", orders, 1000),
            ("the same from the totals per day", totals, None)):
        report.add("ranking", Figure(
            name, spread([c / b["answer_seconds"] for c, b in zip(column, boards)]), target=target,
            board=answer, sql=statistics.median(column),
            build_seconds=statistics.median(b["build_seconds"] for b in boards)))


# --- orders ---

def measure_orders(bench, report, products, rounds):
    """Orders per second of the process's CPU: the server, HTTP and board and all, against a program
    that does nothing but a transaction per order."""
    singles, batches, plains = [], [], []
    plain_path = bench.folder / "plain.db"
    with bench.dibs(plain_path):
        pass
    with bench.dibs(bench.folder / "orders.db") as server:
        settings = {"connections": CONNECTIONS, "warmup": WARMUP_SECONDS, "held": products,
                    "stretch": 3}
        for number in range(rounds):
            first = (number + 1) * 10**10
            turns = [
                (singles, lambda: bench.round(server, "order", 201, first=first,
                                              **settings)["per_cpu_second"]),
                (batches, lambda: bench.round(server, "orders", 200, first=first + 10**9,
                                              **settings)["per_cpu_second"] * ORDERS_PER_REQUEST),
                (plains, lambda: PLAIN_ORDERS / run_json(
                    bench, "sales", "orders", plain_path, first, PLAIN_ORDERS,
                    products)["cpu_seconds"])]
            for column, turn in turns if number % 2 == 0 else turns[::-1]:
                column.append(turn())
    for name, column in (("orders, one a request", singles),
                         (f"orders, {ORDERS_PER_REQUEST} a request", batches)):
        report.add("orders", Figure(
            name, spread([a / b for a, b in zip(column, plains)]),
            drained=statistics.median(column), against=statistics.median(plains)))


def measure_ranking(bench, report, say, quick):
    measure_question(bench, report)
    measure_orders(bench, report, 10_000, 3 if quick else 7)
    products, sales = (50_000, 500_000) if quick else (1_000_000, 10_000_000)
    measure_board(bench, report, say, products, sales, 1 if quick else 3)
