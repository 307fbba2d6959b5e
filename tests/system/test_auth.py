"""Who may: admin, service and user tokens, codes, and loopback without any of them."""

import base64
import hashlib
import itertools
import json
import time

import pytest

from harness import (
    expect,
    expect_problem,
    make_token,
    run_dibs,
    run_serve,
    wait_until,
    write_secret,
)
from ledger import coupons

ADMIN = "admin-token-0123456789abcdef"
SERVICE = "service-token-0123456789abcdef"
KEY = b"0123456789abcdef0123456789abcdef"
POLICY = {"name": "p", "discount": {"type": "percent", "value": 10}, "total": 10}


@pytest.fixture
def admin(serve, tmp_path):
    """A server with an admin token, and nothing else."""
    return guarded(serve, tmp_path)


@pytest.fixture
def users(serve, tmp_path):
    """A server on which the user is the sub of a signed token."""
    return guarded(serve, tmp_path, user_key_file=write_secret(tmp_path, "key", KEY),
                   user_audience="shop")


@pytest.fixture
def service(serve, tmp_path):
    """A server with a service token for the shop's backend."""
    return guarded(serve, tmp_path,
                   service_token_file=write_secret(tmp_path, "service", SERVICE + "\n"))


def guarded(serve, folder, **config):
    config["admin_token_file"] = write_secret(folder, "admin", ADMIN + "\n")
    server = serve(config=config)
    server.admin_token = ADMIN
    return server


def user_token(sub="u1", key=KEY, header=None, **claims):
    body = {"sub": sub, "exp": int(time.time()) + 600, "aud": "shop", **claims}
    return make_token(key, {k: v for k, v in body.items() if v is not None}, header)


def sources():
    """Addresses to guess from: each has some tries before it gets 429."""
    for number in itertools.count(2):
        yield f"127.0.{number // 250}.{number % 250}"


SOURCES = sources()


def expect_401(answer):
    expect_problem(answer, 401, "UNAUTHORIZED")
    assert answer.headers["www-authenticate"].startswith("Bearer"), answer


# --- admin ---

ADMIN_CALLS = [
    ("POST", "/v1/policies", POLICY), ("PATCH", "/v1/policies/{id}", {"paused": True}),
    ("DELETE", "/v1/policies/{id}", None), ("PUT", "/v1/users/u1", {"blocked": True}),
    ("POST", "/v1/coupons/{id}-1/redeem", {"order_id": "o"}),
    ("POST", "/v1/coupons/{id}-1/cancel", {}),
]


def test_admin__calls_need_the_token(admin):
    policy = admin.create(total=5)
    admin.win(policy["id"], "u1")
    wrong = ["", "x", ADMIN[:-1], ADMIN + "x", ADMIN.upper(), ADMIN[:-1] + "g", "a" * 4000]
    for method, path, body in ADMIN_CALLS:
        path = path.format(id=policy["id"])
        expect_401(admin.request(method, path, body, token=False))
        for token in wrong:
            headers = {"Authorization": f"Bearer {token}"}
            expect_401(admin.request(method, path, body, headers=headers, token=False,
                                     source=next(SOURCES)))
        for value in (ADMIN, f"Basic {ADMIN}", f"Bearer  {ADMIN} x", "Bearer", f"Bearer\t{ADMIN}x"):
            expect_401(admin.request(method, path, body, headers={"Authorization": value},
                                     token=False))
    shown = admin.policy(policy["id"])
    assert (shown["state"], shown["issued"]) == ("OPEN", 1)
    assert len(expect(admin.get("/v1/policies"), 200)["items"]) == 1


def test_admin__scheme_is_not_case_sensitive(admin):
    answer = admin.post("/v1/policies", POLICY, headers={"Authorization": f"bearer {ADMIN}"},
                        token=False)
    expect(answer, 201)


def test_admin__401_comes_before_the_body_is_judged(admin):
    expect_401(admin.post("/v1/policies", {"nope": 1}, token=False))
    expect_401(admin.request("PATCH", "/v1/policies/1", {"nope": 1}, token=False))


def test_admin__changes_are_logged_with_who_made_them(admin):
    policy_id = admin.create(total=5)["id"]
    won = admin.win(policy_id, "u1")
    admin.patch(policy_id, paused=True)
    login = admin.post("/v1/session", {"token": ADMIN}, token=False)
    admin.request("PUT", "/v1/users/u1", {"blocked": True}, token=False, headers={
        "Cookie": login.headers["set-cookie"].split(";")[0], "Sec-Fetch-Site": "same-origin"})
    admin.cancel(won["code"], token=False, source="127.0.0.8")
    admin.get(f"/v1/policies/{policy_id}/winners.csv")
    for event, token, address in (
            ("policy_created", "admin_token", "127.0.0.1"),
            ("policy_changed", "admin_token", "127.0.0.1"),
            ("user_blocked", "session", "127.0.0.1"), ("coupon_cancelled", "none", "127.0.0.8"),
            ("winners_downloaded", "admin_token", "127.0.0.1")):
        fields = admin.await_log(event)
        assert (fields["token"], fields["address"]) == (token, address), fields
    assert not any(ADMIN in line for line in admin.log)


def test_admin__the_list_of_policies_is_for_admins_and_one_is_for_all(admin):
    policy = admin.create(total=5)
    expect_401(admin.get("/v1/policies", token=False))
    assert len(expect(admin.get("/v1/policies"), 200)["items"]) == 1
    expect(admin.get(f"/v1/policies/{policy['id']}", token=False), 200)
    for path in ("/healthz", "/readyz", "/openapi.json", "/problems/SOLD_OUT"):
        assert admin.get(path, token=False).status == 200


def test_admin__token_from_the_environment(serve):
    server = serve(config={"admin_token": ADMIN})
    expect_401(server.post("/v1/policies", POLICY))
    expect(server.post("/v1/policies", POLICY, token=ADMIN), 201)


def test_admin__token_never_shows(serve, tmp_path):
    server = serve(config={"admin_token": ADMIN, "log_level": "debug"})
    server.post("/v1/policies", POLICY, token=ADMIN)
    server.post("/v1/policies", POLICY, token="wrong-" + ADMIN)
    assert ADMIN not in server.get("/metrics").body.decode()
    server.stop()
    assert ADMIN not in "".join(server.log)
    shown = run_dibs("config", config={"admin_token": ADMIN}, folder=tmp_path)
    assert shown.returncode == 0
    assert ADMIN not in shown.stdout + shown.stderr


# --- loopback ---


def test_loopback__without_a_token_everything_is_open(server):
    policy = server.create(total=5)
    won = server.win(policy["id"], "u1")
    assert won["code"]
    expect(server.cancel(won["coupon_id"]), 200)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example",
                                  "localhost.evil.example", "192.0.2.1", ""])
def test_loopback__a_name_that_resolves_to_us_is_not_trusted(server, host):
    """A page of another site whose name points to 127.0.0.1 (DNS rebinding) is no admin."""
    answer = server.post("/v1/policies", POLICY, headers={"Host": host})
    assert answer.status in (400, 401), answer
    assert expect(server.get("/v1/policies"), 200)["items"] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:8080", "[::1]:8080"])
def test_loopback__our_own_names_are(server, host):
    expect(server.post("/v1/policies", POLICY, headers={"Host": host}), 201)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_loopback__pages_of_other_origins_change_nothing(server, origin):
    """A browser lets any page send a simple POST; the Origin gives it away."""
    policy = server.create(total=5)
    for answer in (
            server.claim(policy["id"], "u1", headers={"Origin": origin}),
            server.post("/v1/policies", POLICY, headers={"Origin": origin}),
            server.request("DELETE", f"/v1/policies/{policy['id']}", headers={"Origin": origin})):
        assert answer.status in (401, 403), answer
    shown = server.policy(policy["id"])
    assert (shown["state"], shown["remaining"]) == ("OPEN", 5)
    assert len(expect(server.get("/v1/policies"), 200)["items"]) == 1


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_loopback__other_addresses_are_refused_without_a_token(tmp_path, address):
    ended = run_serve(f"sqlite:{tmp_path}/dibs.db", listen=address, folder=tmp_path)
    assert ended.returncode == 2 or ended.returncode == 1
    assert "admin" in ended.stderr and "token" in ended.stderr
    assert not (tmp_path / "dibs.db").exists()


# --- who may claim ---


def test_claims__any_token_closes_them(admin):
    """On loopback, too: with only an admin token, a stranger got the code of whoever had won."""
    policy = admin.create(total=5)
    won = admin.win(policy["id"], "ann")
    assert won["code"]
    expect_401(admin.claim(policy["id"], "ann", token=False))
    expect_401(admin.claim(policy["id"], "eve", token=False))
    assert admin.policy(policy["id"])["issued"] == 1


def held(answer):
    body = expect(answer, 200)
    assert body["result"] == "ALREADY_ISSUED"
    return body


def test_claims__open_shows_a_code_only_to_whom_it_was_made_for(serve, tmp_path):
    server = guarded(serve, tmp_path, claims="open",
                     service_token_file=write_secret(tmp_path, "service", SERVICE))
    policy_id = server.create(total=5)["id"]
    won = server.win(policy_id, "ann", key="ann-1", token=False)
    assert won["code"]
    # A stranger learns that ann has one, and not its code; a key of their own proves nothing.
    for key in (None, "eve-1", "eve-1"):
        again = held(server.claim(policy_id, "ann", key=key, token=False))
        assert again["seq"] == won["seq"] and "code" not in again, again
    # Who made it has its key; the shop's backend and admins see every code.
    wait_until(lambda: server.get(f"/v1/coupons/{won['coupon_id']}").status == 200, "written")
    shown = server.claim(policy_id, "ann", key="ann-1", token=False)
    assert held(shown)["code"] == won["code"]
    assert shown.headers["location"] == f"/v1/policies/{policy_id}/claims/ann"
    for token in (SERVICE, ADMIN):
        assert held(server.claim(policy_id, "ann", token=token))["code"] == won["code"]
    # A wrong token is no better than none.
    expect_401(server.claim(policy_id, "ann", token="wrong-token-0123456789"))


def test_claims__open_contradicts_users_tokens(tmp_path):
    ended = run_serve(f"sqlite:{tmp_path}/dibs.db", folder=tmp_path, config={
        "claims": "open", "user_key": KEY.decode(), "admin_token": ADMIN})
    assert ended.returncode == 2 and "claims" in ended.stderr, ended


def test_off_loopback__a_claim_needs_a_token(serve, tmp_path):
    """Listening on all addresses, with an admin and a service token."""
    server = serve(listen="0.0.0.0:0", config={
        "admin_token_file": write_secret(tmp_path, "admin", ADMIN),
        "service_token_file": write_secret(tmp_path, "service", SERVICE)})
    server.admin_token = ADMIN
    policy = server.create(total=5)
    expect_401(server.claim(policy["id"], "u1", token=False))
    expect_401(server.claim(policy["id"], "u1", token="wrong-token-0123456789"))
    expect(server.claim(policy["id"], "u1", token=SERVICE), 201)


# --- service ---


def test_service__claims_for_users_and_nothing_more(service):
    policy = service.create(total=5)
    won = expect(service.claim(policy["id"], "u1", token=SERVICE), 201)
    assert expect(service.status(policy["id"], "u1", token=SERVICE), 200)["seq"] == 1
    expect(service.get("/v1/users/u1/coupons", token=SERVICE), 200)
    for method, path, body in ADMIN_CALLS:
        path = path.format(id=policy["id"])
        expect_401(service.request(method, path, body, token=SERVICE))
    assert won["user"] == "u1"
    assert len(coupons(service.database, policy["id"])) == 1


def test_service__a_wrong_token_is_refused(service):
    policy = service.create(total=5)
    expect_401(service.claim(policy["id"], "u1", token=SERVICE + "x"))
    expect_401(service.claim(policy["id"], "u1", token=SERVICE[:-1]))


# --- users ---


def test_user__is_the_sub_of_the_token(users):
    policy = users.create(total=5)
    path = f"/v1/policies/{policy['id']}/claims"
    won = expect(users.post(path, {}, token=user_token("alice")), 201)
    assert won["user"] == "alice"
    assert won["code"]
    same = expect(users.post(path, {"user": "alice"}, token=user_token("alice")), 200)
    assert same["seq"] == won["seq"]


def test_user__cannot_claim_for_another(users):
    policy = users.create(total=5)
    answer = users.claim(policy["id"], "bob", token=user_token("alice"))
    assert answer.status in (400, 401, 403), answer
    assert coupons(users.database, policy["id"]) == []


def test_user__without_a_token_nobody_claims(users):
    policy = users.create(total=5)
    expect_401(users.claim(policy["id"], "alice", token=False))
    assert coupons(users.database, policy["id"]) == []


def segment(value):
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def bad_tokens():
    now = int(time.time())
    good = user_token()
    head, body, signature = good.split(".")
    hs512 = make_token(KEY, {"sub": "u1", "exp": now + 600, "aud": "shop"},
                       {"alg": "HS512", "typ": "JWT"}, hashlib.sha512)
    return {
        "wrong key": user_token(key=b"x" * 32),
        "key with a newline": user_token(key=KEY + b"\n"),
        "alg none": user_token(header={"alg": "none"}),
        "alg none unsigned": f"{segment({'alg': 'none'})}.{body}.",
        "alg None": f"{segment({'alg': 'None'})}.{body}.",
        "alg RS256": user_token(header={"alg": "RS256"}),
        "alg HS384": user_token(header={"alg": "HS384"}),
        "alg HS512": hs512,
        "alg hs256": user_token(header={"alg": "hs256"}),
        "alg ES256": user_token(header={"alg": "ES256"}),
        "no alg": user_token(header={"typ": "JWT"}),
        "alg number": user_token(header={"alg": 256}),
        "alg twice": make_token(KEY, {"sub": "u1", "exp": now + 600, "aud": "shop"},
                                b'{"alg":"none","alg":"HS256"}'),
        "crit": user_token(header={"alg": "HS256", "crit": ["x"], "x": 1}),
        "expired": user_token(exp=now - 61),
        "expired long ago": user_token(exp=1),
        "exp text": user_token(exp=str(now + 600)),
        "exp negative": user_token(exp=-5),
        "no exp": user_token(exp=None),
        "not yet": user_token(nbf=now + 120),
        "nbf text": user_token(nbf="0"),
        "wrong aud": user_token(aud="other"),
        "aud prefix": user_token(aud="shopping"),
        "wrong auds": user_token(aud=["a", "b"]),
        "empty auds": user_token(aud=[]),
        "no aud": user_token(aud=None),
        "no sub": user_token(sub=None),
        "empty sub": user_token(sub=""),
        "number sub": user_token(sub=5.5),
        "bad sub": user_token(sub="a "),
        "long sub": user_token(sub="a" * 129),
        "dots sub": user_token(sub=".."),
        "sub twice": make_token(
            KEY, b'{"sub":"u1","sub":"u2","aud":"shop","exp":%d}' % (now + 600)),
        "body of another": f"{head}.{segment({'sub': 'u2', 'exp': now + 600, 'aud': 'shop'})}."
                           f"{signature}",
        "cut signature": good[:-1],
        "no signature": f"{head}.{body}.",
        "two parts": f"{head}.{body}",
        "four parts": good + ".x",
        "padding": good + "=",
        "standard base64": good.replace("-", "+").replace("_", "/") + "+/",
        "body is a list": make_token(KEY, []),
        "body is no json": make_token(KEY, b"sub=u1"),
        "empty": "",
        "dots": "..",
        "long": good + "A" * 5000,
        "admin look-alike": ADMIN[:-1] + "0",
    }


def test_user__bad_tokens_are_refused(users):
    policy = users.create(total=5)
    path = f"/v1/policies/{policy['id']}/claims"
    for name, token in bad_tokens().items():
        answer = users.post(path, {"user": "u1"}, headers={"Authorization": f"Bearer {token}"},
                            token=False, source=next(SOURCES))
        assert answer.status in (401, 431), (name, answer)
        if answer.status == 401:
            expect_401(answer)
    assert coupons(users.database, policy["id"]) == []


def test_user__signature_bits_all_count(users):
    policy = users.create(total=5)
    head, body, signature = user_token().split(".")
    raw = bytearray(base64.urlsafe_b64decode(signature + "="))
    for index in range(0, len(raw) * 8, 11):
        changed = bytearray(raw)
        changed[index // 8] ^= 1 << index % 8
        token = f"{head}.{body}.{segment(bytes(changed))}"
        expect_401(users.claim(policy["id"], "u1", token=token, source=next(SOURCES)))


@pytest.mark.parametrize("claims", [
    {"exp": -30}, {"nbf": 30}, {"exp": 600, "nbf": -600, "iat": 0}, {"aud": ["x", "shop"]},
    {"roles": ["x"], "name": "Ü"},
], ids=["expired within skew", "nbf within skew", "usual", "aud list", "other claims"])
def test_user__good_tokens_are_taken(users, claims):
    now = int(time.time())
    claims = {name: now + value if name in ("exp", "nbf", "iat") else value
              for name, value in claims.items()}
    policy = users.create(total=5)
    expect(users.claim(policy["id"], "u1", token=user_token(**claims)), 201)


def test_user__sees_own_claims_and_coupons_only(users):
    policy = users.create(total=5)
    expect(users.post(f"/v1/policies/{policy['id']}/claims", {}, token=user_token("alice")), 201)
    alice, bob = user_token("alice"), user_token("bob")
    own = expect(users.status(policy["id"], "alice", token=alice), 200)
    assert own["code"]
    listed = expect(users.get("/v1/users/alice/coupons", token=alice), 200)["items"]
    assert listed[0]["code"] == own["code"]
    for path in (f"/v1/policies/{policy['id']}/claims/alice", "/v1/users/alice/coupons",
                 f"/v1/coupons/{own['coupon_id']}"):
        answer = users.get(path, token=bob)
        assert own["code"].encode() not in answer.body, answer
        answer = users.get(path, token=False)
        assert own["code"].encode() not in answer.body, answer


def test_user__is_no_admin(users):
    policy = users.create(total=5)
    expect(users.post(f"/v1/policies/{policy['id']}/claims", {}, token=user_token("alice")), 201)
    for method, path, body in ADMIN_CALLS:
        path = path.format(id=policy["id"])
        expect_401(users.request(method, path, body, token=user_token("alice")))


def test_user__key_must_have_32_bytes(tmp_path):
    key = write_secret(tmp_path, "key", b"x" * 31)
    ended = run_serve(f"sqlite:{tmp_path}/dibs.db", "--user-key-file", key, folder=tmp_path)
    assert ended.returncode in (1, 2)
    assert "32" in ended.stderr
    assert "x" * 31 not in ended.stderr


# --- codes ---


def test_code__whoever_has_it_may_redeem_and_cancel(admin):
    policy = admin.create(total=5)
    one, two = admin.win(policy["id"], "u1"), admin.win(policy["id"], "u2")
    expect_401(admin.post(f"/v1/coupons/{one['coupon_id']}/redeem", {"order_id": "o"},
                          token=False))
    done = expect(admin.post(f"/v1/coupons/{one['code']}/redeem", {"order_id": "o"},
                             token=False), 200)
    assert done["state"] == "REDEEMED"
    expect_401(admin.cancel(two["coupon_id"], token=False))
    assert expect(admin.cancel(two["code"], token=False), 200)["state"] == "CANCELLED"


def test_code__shown_to_admins_and_owners_only(service):
    policy = service.create(total=5)
    won = service.win(policy["id"], "u1")
    assert won["code"]
    code = won["code"].encode()
    paths = [f"/v1/policies/{policy['id']}/claims/u1", "/v1/users/u1/coupons",
             f"/v1/coupons/{won['coupon_id']}"]
    for path in paths:
        assert code in service.get(path).body, path
        assert code not in service.get(path, token=False).body, path
    for path in (f"/v1/policies/{policy['id']}", "/v1/policies", "/metrics"):
        assert code not in service.get(path, token=False).body, path


def test_code__a_wrong_one_with_an_admin_token_is_still_wrong(admin):
    policy = admin.create(total=5)
    won = admin.win(policy["id"], "u1")
    wrong = won["code"][:-1] + ("A" if won["code"][-1] != "A" else "B")
    answer = admin.post(f"/v1/coupons/{wrong}/redeem", {"order_id": "o"})
    assert answer.status in (401, 404), answer
    answer = admin.post(f"/v1/coupons/{wrong}/redeem", {"order_id": "o"}, token=False)
    assert answer.status in (401, 404), answer
    assert expect(admin.get(f"/v1/coupons/{won['coupon_id']}"), 200)["state"] == "ISSUED"


# --- readiness ---


def test_readyz__its_parts_are_for_admins(admin):
    """Strangers and probes learn whether it can serve. A wrong token never makes a probe fail, but
    it counts as a guess."""
    assert {part["name"] for part in expect(admin.get("/readyz"), 200)["parts"]} >= {"gate", "ledger"}
    assert expect(admin.get("/readyz", token=False), 200) == {"ready": True}
    for _ in range(30):
        assert expect(admin.get("/readyz", token="not-the-admin-token"), 200) == {"ready": True}
    assert admin.metrics()['dibs_wrong_guesses_total{kind="token"}'] == 30
    url = f"http://{admin.address[0]}:{admin.address[1]}"
    shown = run_dibs("status", "--url", url, env={"DIBS_ADMIN_TOKEN": ADMIN})
    assert shown.returncode == 0 and "gate" in shown.stdout and "sqlite" in shown.stdout, shown
    refused = run_dibs("status", "--url", url)
    assert refused.returncode == 1 and "server  ready" in refused.stdout, refused
    assert "sqlite" not in refused.stdout and "admin token" in refused.stderr, refused
