"""Ids that shops have: mail addresses, other systems' names, base64, any script, told apart byte for
byte and brought back as they were, by every way in and out."""

import csv
import io
import json
import random
import unicodedata
from urllib.parse import quote

import pytest

from harness import claim_bytes, expect, run_dibs, tally, wait_until
from ledger import coupons


NAME = "김하늘"
IDS = [
    "a+b@x.com", "auth0|123", "dGVzdA+x==", NAME, NAME * 14 + "ab", "x" * 128,
    "kim", "KIM", "Kim", "kim.", ".kim", "k im", "k  im", "kim…", "...", "-", "0", "00", "null",
    'say "hi"', "back\\slash", "it's", "a,b;c", "=1+1", "@sum", "%41", "a%2Fb", "?q=1&r=2", "#top",
    "{}", "[1]", "<b>", "user:1:2", "1:2:3,I4,", "*", "🎟️", "straße", "strasse", "ﬁ", "fi",
    unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é"), "ａ", "I", "ı", "$1", "\\u0041",
]


def coupons_of(server, user):
    return expect(server.get(f"/v1/users/{quote(user, safe='')}/coupons"), 200)["items"]


def test_ids__a_storm_of_them_is_exact(server):
    """Each presses five times, all at once: one coupon each, and all ids stay apart."""
    assert len(set(IDS)) == len(IDS) and all(len(one.encode()) <= 128 for one in IDS)
    policy = server.create(total=len(IDS))["id"]
    crowd = IDS * 5
    random.Random(7).shuffle(crowd)
    outcomes = server.storm([claim_bytes(policy, user) for user in crowd], connections=32)
    assert tally(outcomes) == {(201, "ISSUED"): len(IDS), (200, "ALREADY_ISSUED"): 4 * len(IDS)}
    seqs = {}
    for user, outcome in zip(crowd, outcomes, strict=True):
        body = outcome.answer.json
        assert body["user"] == user
        assert seqs.setdefault(user, body["seq"]) == body["seq"]
        location = outcome.answer.headers["location"]
        assert location.isascii() and " " not in location
        assert location == f"/v1/policies/{policy}/claims/{quote(user, safe='-._~:@')}"
    assert sorted(seqs.values()) == list(range(1, len(IDS) + 1))
    rows = wait_until(lambda: len(found := coupons(server.database, policy)) == len(IDS) and found,
                      "all rows")
    assert {row["user_id"]: row["seq"] for row in rows} == seqs
    server.restart()
    for user in IDS:
        assert expect(server.status(policy, user), 200)["seq"] == seqs[user]
    assert {one["seq"] for one in (expect(server.claim(policy, user), 200) for user in IDS)} == \
        set(seqs.values())


def test_ids__come_back_by_every_way(shared):
    policy = shared.create(total=len(IDS))["id"]
    won = {user: shared.win(policy, user, key="same-key") for user in IDS}
    for user, claim in won.items():
        assert expect(shared.claim(policy, user, key="same-key"), 200)["seq"] == claim["seq"]
        assert [coupon["coupon_id"] for coupon in coupons_of(shared, user)
                if coupon["policy_id"] == policy] == [claim["coupon_id"]]
        redeemed = expect(shared.post(f"/v1/coupons/{claim['code']}/redeem", {"order_id": user}), 200)
        assert (redeemed["user"], redeemed["order_id"]) == (user, user)
    table = list(csv.reader(io.StringIO(shared.get(
        f"/v1/policies/{policy}/winners.csv").body.decode("utf-8"), newline="")))[1:]
    # What a spreadsheet would take for a formula stands behind an apostrophe.
    assert [row[1] for row in table] == [
        f"'{user}" if user[0] in "=+-@" else user for user in IDS]


def test_ids__a_cancelled_coupon_is_won_again(shared):
    for user in ("a+b@x.com", NAME, 'say "hi"'):
        policy = shared.create(total=1)["id"]
        expect(shared.cancel(shared.win(policy, user)["code"]), 200)
        again = wait_until(lambda: (answer := shared.claim(policy, user)).status == 201 and answer,
                           "the unit to come back").json
        assert (again["user"], again["seq"]) == (user, 2)


def test_ids__only_who_is_blocked_is_blocked(shared):
    policy = shared.create(total=9)["id"]
    not_open = shared.create(total=9, opens_at="2099-01-01T00:00:00Z")["id"]
    for user, others in (("Kim+1", ["kim+1", "Kim 1"]), (NAME + "2", [NAME + "1"])):
        path = f"/v1/users/{quote(user, safe='')}"
        assert expect(shared.request("PUT", path, {"blocked": True}), 200)["user"] == user
        # Each server hears of it, and of its end, in a moment: until then nothing may be won.
        wait_until(lambda: shared.claim(not_open, user).code == "BLOCKED", "the block")
        for other in others:
            shared.win(policy, other)
        expect(shared.request("PUT", path, {"blocked": False}), 200)
        wait_until(lambda: shared.claim(not_open, user).code == "NOT_OPEN", "the end of the block")


def test_ids__of_orders_and_products(shared):
    for one in IDS:
        path = quote(one, safe="")
        product = expect(shared.request("PUT", f"/v1/products/{path}", {"name": one}), 200)
        assert (product["product_id"], product["name"]) == (one, one)
        answer = shared.post("/v1/orders", {"order_id": one, "items": [
            {"product_id": one, "quantity": 1}]})
        assert expect(answer, 201)["order_id"] == one
        assert answer.headers["location"] == f"/v1/orders/{quote(one, safe='-._~:@')}"
        refunded = expect(shared.post(f"/v1/orders/{path}/refund", {}), 200)
        assert refunded["order_id"] == one


@pytest.mark.parametrize("user", ["a+b@x.com", "k im", NAME, 'say "hi"', "%41", "=x"])
def test_ids__on_the_command_line(shared, user):
    policy = shared.create(total=1)["id"]
    for command in ("claim", "status"):
        ended = run_dibs(command, str(policy), user, "--json", "--url",
                         "http://{}:{}".format(*shared.address))
        assert ended.returncode == 0, ended
        body = json.loads(ended.stdout)
        assert (body["user"], body["seq"]) == (user, 1)


def test_coupons__on_the_command_line(shared):
    """A shop's help desk: look, take back, note as used, give anew."""
    policy = shared.create(total=3, discount={"type": "fixed", "value": 500}, currency="USD")["id"]
    won = shared.win(policy, NAME)

    def coupon(*words, code=0):
        ended = run_dibs("coupon", *words, "--json", "--url", "http://{}:{}".format(*shared.address))
        assert ended.returncode == code, ended
        return json.loads(ended.stdout) if ended.stdout else ended.stderr

    shown = coupon("show", won["code"])
    assert (shown["user"], shown["state"]) == (NAME, "ISSUED")
    anew = coupon("reissue", won["coupon_id"])
    assert (anew["user"], anew["seq"] > won["seq"], anew["code"] != won["code"]) == (NAME, True, True)
    # Asked again, it is the same wish.
    assert coupon("reissue", won["coupon_id"])["seq"] == anew["seq"]
    assert coupon("show", won["code"])["state"] == "CANCELLED"
    used = coupon("redeem", anew["code"], "--order", "김 9001")
    assert (used["state"], used["order_id"]) == ("REDEEMED", "김 9001")
    assert coupon("reissue", anew["code"], code=1)["code"] == "CONFLICT"
    other = shared.win(policy, "other")
    assert coupon("cancel", other["coupon_id"])["state"] == "CANCELLED"
    assert "is not a coupon's id" in coupon("show", "42", code=2)
