"""Guessing codes and tokens has a price; who has the right one does not pay it."""

import pytest

from harness import expect, expect_problem, write_secret

ADMIN = "admin-token-0123456789abcdef"
SERVICE = "service-token-0123456789abcdef"
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
TRIES = 10  # of one address, before it has to wait


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


def test_guessing__wrong_codes_are_slow(shop):
    won = shop.win(shop.create(total=5)["id"], "ann")
    path = f"/v1/coupons/{won['coupon_id']}"
    answers = [shop.get(f"/v1/coupons/{code}", token=False) for code in wrong_codes(won["code"])]
    assert [answer.status for answer in answers[:TRIES]] == [404] * TRIES
    throttled = [answer for answer in answers if answer.status == 429]
    assert len(throttled) >= len(answers) - TRIES - 2
    check_throttled(throttled[0])
    # From there the right one cannot be told from a wrong one, by any call; from elsewhere it can.
    for method, at, body in (("GET", "", None), ("POST", "/redeem", {}), ("POST", "/cancel", {})):
        answer = shop.request(method, f"/v1/coupons/{won['code']}{at}", body, token=False)
        check_throttled(answer)
    expect(shop.get(f"/v1/coupons/{won['code']}", token=False, source="127.0.0.9"), 200)
    # Who has a token is not kept from anything.
    expect(shop.get(path, token=SERVICE), 200)
    expect(shop.post(f"/v1/coupons/{won['code']}/redeem", {}, token=ADMIN), 200)
    assert shop.await_log("guessing")["address"] == "127.0.0.1"
    assert len(shop.events("guessing")) == 1
    assert len(shop.await_events("wrong_code", TRIES)) <= TRIES + 2
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
    answers = [shop.request(method, path, body, token=f"wrong-token-{n:020}") for n in range(14)]
    assert 429 not in [answer.status for answer in answers[:TRIES]]
    check_throttled(answers[-1])
    # One limiter: also for codes and for the login.
    check_throttled(shop.post("/v1/session", {"token": "x" * 20}, token=False))
    # The right one always counts, from the same address.
    assert shop.request(method, path, body, token=ADMIN).status == 200
    assert shop.metrics()['dibs_wrong_guesses_total{kind="token"}'] >= 14
    assert not any("wrong-token-0" in line for line in shop.log)


def test_guessing__many_addresses_share_a_limit(shop):
    """Whoever has an address for each guess is stopped by the limit of all together."""
    won = shop.win(shop.create(total=5)["id"], "ann")
    code = wrong_codes(won["code"])[0]
    sources = (f"127.{net}.{part}.{host}" for net in range(1, 9) for part in range(250)
               for host in range(1, 250))
    statuses = (shop.get(f"/v1/coupons/{code}", token=False, source=source).status
                for source in sources)
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
