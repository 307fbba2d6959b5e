"""A browser's session: logging in, what the cookie opens and for whom, and how it ends."""

import hmac
import re
import time

import pytest

from harness import expect, expect_problem, write_secret

ADMIN = "admin-token-0123456789abcdef"
POLICY = {"name": "p", "discount": {"type": "percent", "value": 10}, "total": 10}
COOKIE = re.compile(r"(?:__Host-)?dibs_session=(\d+)\.([0-9a-f]{64}); HttpOnly; SameSite=Strict; Path=/; "
                    r"Max-Age=43200(; Secure)?")


def guarded(serve, folder, token=ADMIN, **config):
    config["admin_token_file"] = write_secret(folder, "admin", token)
    server = serve(config=config)
    server.admin_token = False  # no Authorization header unless a test sends one
    return server


@pytest.fixture
def server(serve, tmp_path):
    return guarded(serve, tmp_path)


def origin_of(server, scheme="http"):
    return "{}://{}:{}".format(scheme, *server.address)


def host_of(server):
    return "{}:{}".format(*server.address)


def login(server, token=ADMIN, **headers):
    return server.post("/v1/session", {"token": token}, token=False, headers=headers)


def cookie_of(answer):
    return answer.headers["set-cookie"].split(";")[0]


def own_page(server, cookie, **more):
    """What a browser sends for a page of this server."""
    return {"Host": host_of(server), "Cookie": cookie, "Origin": origin_of(server),
            "Sec-Fetch-Site": "same-origin", **more}


def expect_401(answer):
    return expect_problem(answer, 401, "UNAUTHORIZED")


def test_session__login_gives_a_strict_cookie(server):
    before = int(time.time())
    answer = login(server)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["cache-control"] == "no-store"
    expiry, _, secure = COOKIE.fullmatch(answer.headers["set-cookie"]).groups()
    assert before + 43200 <= int(expiry) <= int(time.time()) + 43200
    assert secure is None
    assert ADMIN not in answer.headers["set-cookie"]
    assert COOKIE.fullmatch(login(server, Origin=origin_of(server), Host=host_of(server))
                            .headers["set-cookie"])[3] is None


def test_session__over_tls_the_cookie_is_of_this_host_alone(server):
    """As a proxy with TLS in front sends it: the browser's own Origin tells."""
    over_tls = {"Origin": origin_of(server, "https"), "Host": host_of(server)}
    answer = login(server, **over_tls)
    assert answer.headers["set-cookie"].startswith("__Host-dibs_session=")
    assert COOKIE.fullmatch(answer.headers["set-cookie"])[3] == "; Secure"
    headers = {**over_tls, "Cookie": cookie_of(answer), "Sec-Fetch-Site": "same-origin"}
    assert expect(server.get("/v1/session", token=False, headers=headers), 200)["admin"]
    ended = server.request("DELETE", "/v1/session", token=False, headers=headers)
    assert ended.headers["set-cookie"].startswith("__Host-dibs_session=;")


def test_session__cookie_is_as_good_as_the_token_on_our_own_page(server):
    headers = own_page(server, cookie_of(login(server)))
    policy = expect(server.post("/v1/policies", POLICY, headers=headers), 201)["id"]
    expect(server.request("PATCH", f"/v1/policies/{policy}", {"paused": True}, headers=headers), 200)
    expect(server.get("/v1/audit", headers=headers), 200)
    expect(server.get("/v1/audit", headers={"Cookie": headers["Cookie"]}), 200)
    expect(server.get("/v1/users/u1/coupons", headers=headers), 200)
    expect(server.request("DELETE", f"/v1/policies/{policy}", headers=headers), 200)


FOREIGN = {
    "another origin": {"Origin": "http://evil.example", "Sec-Fetch-Site": None},
    "another port": {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": None},
    "another origin, modern": {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
    "no origin, cross-site": {"Origin": None, "Sec-Fetch-Site": "cross-site"},
    "no origin, same-site": {"Origin": None, "Sec-Fetch-Site": "same-site"},
    "opaque origin": {"Origin": "null", "Sec-Fetch-Site": None},
    "nothing said": {"Origin": None, "Sec-Fetch-Site": None},
    "typed in": {"Origin": None, "Sec-Fetch-Site": "none"},
}


@pytest.mark.parametrize("what", FOREIGN)
def test_session__another_page_changes_nothing(server, what):
    headers = own_page(server, cookie_of(login(server)))
    policy = expect(server.post("/v1/policies", POLICY, headers=headers), 201)["id"]
    forged = {name: value for name, value in {**headers, **FOREIGN[what]}.items()
              if value is not None}
    for method, path, body in (("POST", "/v1/policies", POLICY),
                               ("PATCH", f"/v1/policies/{policy}", {"paused": True}),
                               ("DELETE", f"/v1/policies/{policy}", None),
                               ("PUT", "/v1/users/u1", {"blocked": True}),
                               ("POST", "/v1/audit/repair", {})):
        expect_401(server.request(method, path, body, headers=forged))
    shown = expect(server.get(f"/v1/policies/{policy}"), 200)
    assert shown["state"] == "OPEN"
    # The token itself is not what a browser sends by itself: who has it may call from anywhere.
    expect(server.request("PATCH", f"/v1/policies/{policy}", {"paused": True}, token=ADMIN,
                          headers=forged), 200)


def test_session__another_allowed_origin_is_still_not_our_page(serve, tmp_path):
    """cors_origin lets a page read with a token of its own, never with the operator's cookie."""
    server = guarded(serve, tmp_path, cors_origin="http://shop.example")
    headers = own_page(server, cookie_of(login(server)), Origin="http://shop.example")
    headers["Sec-Fetch-Site"] = "cross-site"
    expect_401(server.post("/v1/policies", POLICY, headers=headers))
    answer = server.get("/v1/audit", headers=headers)
    expect_401(answer)
    assert "access-control-allow-credentials" not in answer.headers


def test_session__a_cookie_that_is_not_ours_opens_nothing(serve, server, tmp_path):
    cookie = cookie_of(login(server))
    other = guarded(serve, tmp_path, token=ADMIN + "2")
    name, value = cookie.split("=")
    expiry, mac = value.split(".")
    for bad in (f"{name}={int(expiry) + 1}.{mac}", f"{name}={expiry}.{mac[:-1]}0",
                f"{name}={expiry}.{mac[:-1]}1", f"{name}={expiry}.{mac.upper()}",
                f"{name}={expiry}.{'0' * 64}", f"{name}={expiry}", f"{name}=", f"{name}={ADMIN}",
                f"x{cookie}", cookie_of(login(other, ADMIN + "2")), "garbage", "=;=;=" * 200):
        if bad == cookie:
            continue
        headers = own_page(server, bad)
        expect_401(server.get("/v1/audit", headers=headers))
        expect_401(server.post("/v1/policies", POLICY, headers=headers))
        shown = expect(server.get("/v1/session", headers=headers), 200)
        assert shown["admin"] is False


def make_cookie(expiry, token=ADMIN):
    """The cookie as a server with this token makes it."""
    key = hmac.digest(token.encode(), b"dibs session cookie, version 1", "sha256")
    mac = hmac.new(key, f"{expiry}.".encode(), "sha256").hexdigest()
    return f"dibs_session={expiry}.{mac}"


def test_session__ends_after_its_time(server):
    cookie = cookie_of(login(server))
    assert cookie == make_cookie(int(re.search(r"=(\d+)", cookie)[1]))
    now = int(time.time())
    expect(server.get("/v1/audit", headers={"Cookie": make_cookie(now + 60)}), 200)
    answer = server.get("/v1/audit", headers={"Cookie": make_cookie(now - 1)})
    assert "ended" in expect_401(answer)["detail"]
    expect_401(server.get("/v1/audit", headers={"Cookie": make_cookie(now + 60, ADMIN + "2")}))


def test_session__a_restart_keeps_it_and_a_new_token_ends_it(serve, tmp_path):
    server = guarded(serve, tmp_path)
    cookie = cookie_of(login(server))
    server.stop()
    server.start()
    expect(server.get("/v1/audit", headers={"Cookie": cookie}), 200)
    server.stop()
    server.config["admin_token_file"] = write_secret(tmp_path, "newer", "another-token-0123456789")
    server.start()
    expect_401(server.get("/v1/audit", headers={"Cookie": cookie}))


def test_session__logout_removes_the_cookie(server):
    for headers in ({}, own_page(server, cookie_of(login(server)))):
        answer = server.request("DELETE", "/v1/session", headers=headers)
        assert answer.status == 204
        assert answer.headers["set-cookie"] == (
            "dibs_session=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0")


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_session__another_page_logs_nobody_in_or_out(server, method):
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"},
                    {"Origin": origin_of(server), "Sec-Fetch-Site": "same-site"}):
        answer = server.request(method, "/v1/session", {"token": ADMIN} if method == "POST" else None,
                                headers={"Host": host_of(server), **headers})
        expect_401(answer)
        assert "set-cookie" not in answer.headers


def test_session__guessing_is_slow(serve, tmp_path):
    """Whatever the other limits are; and who knows the token is never kept out."""
    server = guarded(serve, tmp_path)
    verdicts = [login(server, f"guess-{n}").status for n in range(14)]
    assert verdicts[:10] == [401] * 10
    assert 429 in verdicts[10:]
    for _ in range(30):
        assert login(server).status == 204
    expect(server.get("/v1/audit", token=ADMIN), 200)
    lines = server.await_events("wrong_token", 10)
    assert all(line["address"] == "127.0.0.1" for line in lines)
    assert not any("guess-" in line or ADMIN in line for line in server.log)


def test_session__says_how_one_may_log_in_and_claim(serve, tmp_path):
    key = write_secret(tmp_path, "key", b"0123456789abcdef0123456789abcdef")
    service = write_secret(tmp_path, "service", "service-token-0123456789")
    admin = write_secret(tmp_path, "admin", ADMIN)
    for config, login_kind, claims in (
            ({}, "none", "open"),
            ({"service_token_file": service}, "none", "service"),
            ({"user_key_file": key}, "none", "token"),
            ({"admin_token_file": admin}, "token", "service"),
            ({"admin_token_file": admin, "claims": "open"}, "token", "open"),
            ({"admin_token_file": admin, "service_token_file": service}, "token", "service"),
            ({"admin_token_file": admin, "user_key_file": key}, "token", "token")):
        server = serve(config=config)
        shown = expect(server.get("/v1/session", token=False), 200)
        assert shown == {"admin": login_kind == "none", "login": login_kind,
                         "role": "admin" if login_kind == "none" else "none",
                         "user_tokens": "user_key_file" in config, "claims": claims, "shop": None}
        if login_kind == "token":
            assert expect(server.get("/v1/session", token=ADMIN), 200)["admin"] is True
        else:
            away = server.get("/v1/session", headers={"Host": "shop.example"})
            expect_problem(away, 401, "UNAUTHORIZED")
            expect_problem(login(server), 409, "CONFLICT")
        server.stop()
