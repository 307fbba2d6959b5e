"""Guessing codes and tokens has a price; who has the right one does not pay it."""

import time

import pytest

from harness import expect, expect_problem, wait_until, write_secret
from wire import Connection, encode

ADMIN = "admin-token-0123456789abcdef"
SERVICE = "service-token-0123456789abcdef"
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
TRIES = 10  # of one address, before it has to wait
NEXT_TRY_S = 5


@pytest.fixture
def shop(serve, tmp_path):
    server = serve(config={"admin_token_file": write_secret(tmp_path, "admin", ADMIN),
                           "service_token_file": write_secret(tmp_path, "service", SERVICE)})
    server.admin_token = ADMIN
    return server


def wrong_codes(code):
    """Codes of the same coupon with another last character."""
    return [code[:-1] + letter for letter in ALPHABET if letter != code[-1]]


def check_throttled(answer):
    expect_problem(answer, 429, "RATE_LIMITED")
    assert answer.closes and int(answer.headers["retry-after"]) >= 1, answer


def in_time(act):
    """What an address saw before it had another try: on a slow machine the next one begins anew."""
    for number in range(1, 20):
        began = time.monotonic()
        seen = act(f"127.0.0.{number}")
        if time.monotonic() - began < NEXT_TRY_S:
            return seen
    raise AssertionError(f"it always took more than {NEXT_TRY_S} s")


def test_guessing__wrong_codes_are_slow(shop):
    def guess(source):
        won = shop.win(shop.create(total=5)["id"], "ann")
        answers = [shop.get(f"/v1/coupons/{code}", token=False, source=source)
                   for code in wrong_codes(won["code"])]
        # The right one, by any call.
        return source, won, answers, [
            shop.request(method, f"/v1/coupons/{won['code']}{at}", body, token=False, source=source)
            for method, at, body in (("GET", "", None), ("POST", "/redeem", {}),
                                     ("POST", "/cancel", {}))]

    source, won, answers, right = in_time(guess)
    path = f"/v1/coupons/{won['coupon_id']}"
    assert [answer.status for answer in answers[:TRIES]] == [404] * TRIES
    throttled = answers[TRIES:]
    # From there the right one cannot be told from a wrong one; from elsewhere it can.
    for answer in throttled + right:
        check_throttled(answer)
    expect(shop.get(f"/v1/coupons/{won['code']}", token=False, source="127.0.0.99"), 200)
    # Who has a token is not kept from anything.
    expect(shop.get(path, token=SERVICE), 200)
    expect(shop.post(f"/v1/coupons/{won['code']}/redeem", {}, token=ADMIN), 200)
    assert shop.await_log("guessing")["address"] == "127.0.0.1"  # the first to guess
    assert len(shop.events("guessing")) == 1 or source != "127.0.0.1"
    wait_until(lambda: [event["address"] for event in shop.events("wrong_code")].count(source)
               == TRIES, "each of them is logged")
    assert not any(won["code"][-8:-1] in line for line in shop.log)
    metrics = shop.metrics()
    assert metrics['dibs_wrong_guesses_total{kind="code"}'] >= TRIES
    assert metrics["dibs_guesses_throttled_total"] >= len(throttled)


@pytest.mark.parametrize("method,path,body", [
    ("GET", "/v1/audit", None), ("POST", "/v1/policies/1/claims", {"user": "u1"}),
    ("GET", "/v1/session", None), ("GET", "/v1/users/u1/coupons", None),
    ("GET", "/v1/coupons/1-1", None),
], ids=["admin", "claim", "session", "coupons", "coupon"])
def test_guessing__wrong_tokens_are_slow(shop, method, path, body):
    shop.win(shop.create(id=1, total=5)["id"], "u1")

    def guess(source):
        return source, [*(shop.request(method, path, body, token=f"wrong-token-{n:020}",
                                       source=source) for n in range(14)),
                        # One limiter: also for codes and for the login.
                        shop.post("/v1/session", {"token": "x" * 20}, token=False, source=source)]

    source, answers = in_time(guess)
    assert 429 not in [answer.status for answer in answers[:TRIES]]
    for answer in answers[TRIES:]:
        check_throttled(answer)
    # The right one always counts, from the same address.
    assert shop.request(method, path, body, token=ADMIN, source=source).status == 200
    assert shop.metrics()['dibs_wrong_guesses_total{kind="token"}'] >= 14
    assert not any("wrong-token-0" in line for line in shop.log)


def test_guessing__many_addresses_share_a_limit(shop):
    """Whoever has an address for each guess is stopped by the limit of all together."""
    won = shop.win(shop.create(total=5)["id"], "ann")
    raw = encode("GET", f"/v1/coupons/{wrong_codes(won['code'])[0]}") * TRIES

    def guess(number):
        """All that one address may, at once: there are more of them than come back meanwhile."""
        with Connection(shop.address, source=f"127.{number // 250 + 1}.1.{number % 250 + 1}") as one:
            one.send(raw, *["GET"] * TRIES)
            for _ in range(TRIES):
                yield (answer := one.receive()).status
                if answer.closes:
                    return

    statuses = (status for number in range(2000) for status in guess(number))
    assert next(statuses) == 404 and 429 in statuses
    # Those who have not guessed are not kept from their code.
    expect(shop.get(f"/v1/coupons/{won['code']}", token=False, source="127.9.9.9"), 200)


def test_guessing__a_token_of_ours_that_has_run_out_is_no_guess(serve):
    from test_auth import KEY, user_token
    server = serve(config={"admin_token": ADMIN, "user_key": KEY.decode()})
    server.admin_token = ADMIN
    policy_id = server.create(total=5)["id"]
    late = user_token("ann", exp=1)
    for _ in range(TRIES + 5):
        answer = server.claim(policy_id, "ann", token=late)
        expect_problem(answer, 401, "UNAUTHORIZED")
