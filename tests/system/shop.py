"""A shop whose backend tells dibs what it sells, and a straightforward reference of what was sold."""

import collections
import datetime
import zoneinfo

from harness import expect
from ledger import rows

EPOCH = datetime.date(1970, 1, 1)


def rfc3339(moment):
    """A datetime in UTC as the API takes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def day_of(text, zone="UTC"):
    """The calendar day of an RFC 3339 time in a zone."""
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment.astimezone(zoneinfo.ZoneInfo(zone)).date()


def order(order_id, *items, paid_at=None):
    """order("o1", ("a", 2), ("b", 1))"""
    body = {"order_id": order_id,
            "items": [{"product_id": product, "quantity": quantity}
                      for product, quantity in items]}
    if paid_at is not None:
        body["paid_at"] = paid_at
    return body


class Reference:
    """What was sold, kept in the plainest way."""

    def __init__(self, zone="UTC"):
        self.zone = zone
        self.orders = {}     # order id → body, with paid_at
        self.refunded = set()

    def totals(self):
        """{(day, product): quantity}, without what is 0."""
        sums = collections.Counter()
        for order_id, body in self.orders.items():
            if order_id in self.refunded:
                continue
            day = day_of(body["paid_at"], self.zone)
            for item in body["items"]:
                sums[day, str(item["product_id"])] += item["quantity"]
        return dict(sums)

    def check(self, database):
        assert totals(database) == self.totals()


def totals(database):
    """{(day, product): quantity} as the ledger has it, without what is 0."""
    found = rows(database, "SELECT day, product_id, quantity FROM sale_day WHERE quantity <> 0")
    return {(EPOCH + datetime.timedelta(row["day"]), row["product_id"]): row["quantity"]
            for row in found}


def feed(database):
    """The feed's entries in their order: (id, day, product, quantity)."""
    found = rows(database, "SELECT id, day, product_id, quantity FROM sale_feed ORDER BY id")
    return [(row["id"], EPOCH + datetime.timedelta(row["day"]), row["product_id"],
             row["quantity"]) for row in found]


def refund(server, order_id):
    return expect(server.post(f"/v1/orders/{order_id}/refund"), 200)
