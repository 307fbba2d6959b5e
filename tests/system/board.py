"""The ranking's board in Redis, read beside the servers, and held against the ledger."""

import datetime

from harness import wait_until
from ledger import rows
from shop import totals

PREFIX = "zs:product:{rank}:"
META = PREFIX + "meta"
BUILDER = PREFIX + "builder"
CACHE = "cache:product:{rank}:top_selling"
REFRESHER = "cache:product:{rank}:refresher"
UNIT = 2 ** 25  # by which a window's score tells what was sold on its last day


def today():
    return datetime.datetime.now(datetime.timezone.utc).date()


def day_key(back=0):
    return f"{PREFIX}{today() - datetime.timedelta(back)}"


def window_key(days, back=0):
    last = today() - datetime.timedelta(back)
    return f"{PREFIX}sum:{last - datetime.timedelta(days - 1)}_{last}"


def scores(client, key):
    return {product.decode(): score for product, score in client.zrange(key, 0, -1, withscores=True)}


def differences(redis, database):
    """What board and ledger say otherwise; None while the board is missing. Only of a shop that
    has come to rest."""
    sold = totals(database)
    wrong = []

    def expect(client, key, should):
        found = scores(client, key)
        wrong.extend((key, product, found.get(product), should.get(product))
                     for product in {*found, *should} if found.get(product) != should.get(product))

    def sums(first, last):
        days = {first + datetime.timedelta(number) for number in range((last - first).days + 1)}
        found = {}
        for (day, product), quantity in sold.items():
            if day in days:
                found[product] = found.get(product, 0) + quantity + (
                    quantity / UNIT if first != last and day == last else 0)
        return found

    with redis.client() as client:
        meta = client.hgetall(META)
        if not meta:
            return None
        counter = rows(database, "SELECT last_id FROM sale_counter")
        if int(meta[b"feed_id"]) != (counter[0]["last_id"] if counter else 0):
            wrong.append(("place", meta[b"feed_id"], counter))
        for back in range(2):
            last = today() - datetime.timedelta(back)
            for days in (1, 2, 3):
                first = last - datetime.timedelta(days - 1)
                expect(client, window_key(days, back) if days > 1 else day_key(back),
                       sums(first, last))
    return wrong


def await_agreement(redis, database, timeout_s=30):
    """Waits until the board says what the ledger says, in every counter."""
    last = []

    def agree():
        last[:] = [differences(redis, database)]
        return last == [[]]

    try:
        wait_until(agree, "board and ledger agree", timeout_s)
    except AssertionError as error:
        raise AssertionError(f"{error}: {last}") from None
