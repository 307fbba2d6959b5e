"""Operators' tokens with names and roles, read again on SIGHUP, and what they did."""

import os
import signal

import pytest

from harness import (claim_bytes, expect, expect_problem, make_token, run_dibs, run_serve,
                     wait_until, write_secret)

VERA, OTTO, ANNA = "viewer-token-0123456", "operator-token-01234", "anna-token-0123456789"
ADMIN = "admin-token-0123456789abcdef"
TOKENS = f"# who\nvera viewer {VERA}\notto operator {OTTO}\nanna admin {ANNA}\n"
KEY = b"0123456789abcdef0123456789abcdef"
POLICY = {"name": "p", "discount": {"type": "percent", "value": 10}, "total": 10}


@pytest.fixture(name="named")
def _named(serve, tmp_path):
    server = serve(config={"admin_tokens_file": write_secret(tmp_path, "tokens", TOKENS),
                           "audit_interval": "0s"})
    server.admin_token = ANNA
    return server


def url_of(server):
    return "http://{}:{}".format(*server.address)


def hangup(server, event="reloaded"):
    """SIGHUP, and waits for what came of it."""
    since = len(server.log)
    server.signal(signal.SIGHUP)
    return server.await_log(event, since=since)


# --- roles ---

def test_roles__each_may_do_what_it_is_for(named):
    """The lowest that may; all above it may, too."""
    policy = named.create(total=10)["id"]
    won = [named.win(policy, f"u{i}") for i in range(8)]
    calls = [
        (VERA, 200, "GET", "/v1/policies", None),
        (VERA, 200, "GET", f"/v1/policies/{policy}/preflight", None),
        (VERA, 200, "GET", "/v1/audit", None),
        (VERA, 200, "GET", "/v1/dead", None),
        (VERA, 200, "GET", "/v1/actions", None),
        (OTTO, 200, "GET", f"/v1/policies/{policy}/winners.csv", None),
        (OTTO, 200, "PATCH", f"/v1/policies/{policy}", {"paused": False}),
        (OTTO, 200, "PUT", "/v1/users/bad", {"blocked": True}),
        (OTTO, 200, "GET", "/v1/users/u1/coupons", None),
        (OTTO, 200, "GET", f"/v1/policies/{policy}/claims/u1", None),
        (OTTO, 200, "POST", f"/v1/policies/{policy}/claims", {"user": "u1"}),
        (OTTO, 200, "GET", f"/v1/coupons/{won[0]['coupon_id']}", None),
        (OTTO, 200, "POST", f"/v1/coupons/{won[0]['coupon_id']}/redeem", {"order_id": "o"}),
        (OTTO, 200, "POST", f"/v1/coupons/{won[1]['coupon_id']}/cancel", {}),
        (ANNA, 200, "POST", "/v1/audit/repair", {}),
        (ANNA, 201, "POST", "/v1/policies", POLICY),
        (ANNA, 200, "DELETE", f"/v1/policies/{policy}", None),
    ]
    order = [VERA, OTTO, ANNA]
    for lowest, status, method, path, body in calls:
        for token in order[:order.index(lowest)]:
            refused = named.request(method, path, body, token=token)
            expect_problem(refused, 401, "UNAUTHORIZED")
        for token in order[order.index(lowest):] if method != "DELETE" else [ANNA]:
            answer = named.request(method, path, body, token=token)
            assert answer.status == status, (token, answer)
        expect_problem(named.request(method, path, body, token=False), 401, "UNAUTHORIZED")


def test_roles__are_told_and_logged(named):
    for token, role in ((VERA, "viewer"), (OTTO, "operator"), (ANNA, "admin"), (False, "none")):
        session = expect(named.get("/v1/session", token=token), 200)
        assert session["role"] == role and session["admin"] == (token is not False)
    login = named.post("/v1/session", {"token": OTTO}, token=False)
    cookie = {"Cookie": login.headers["set-cookie"].split(";")[0], "Sec-Fetch-Site": "same-origin"}
    assert expect(named.get("/v1/session", token=False, headers=cookie), 200)["role"] == "operator"
    expect_problem(named.post("/v1/policies", POLICY, token=False, headers=cookie), 401,
                   "UNAUTHORIZED")
    policy = named.create(total=5)["id"]
    expect(named.request("PATCH", f"/v1/policies/{policy}", {"paused": True}, token=False,
                         headers=cookie), 200)
    assert named.await_log("policy_changed")["token"] == "otto"
    assert named.await_log("policy_created")["token"] == "anna"
    assert ANNA not in named.log_text() and OTTO not in named.log_text()


def test_roles__wrong_files_are_refused(tmp_path):
    for text, words in (("vera viewer short\n", "line 1"), ("# nobody\n", "names nobody"),
                        (f"vera boss {VERA}\n", "viewer, operator, admin")):
        refused = run_serve(f"sqlite:{tmp_path}/dibs.db", listen="0.0.0.0:0", config={
            "admin_tokens_file": write_secret(tmp_path, "tokens", text)})
        assert refused.returncode != 0 and words in refused.stderr, refused.stderr
        assert VERA not in refused.stderr


# --- read again ---

def test_reload__takes_new_tokens_and_ends_old_ones(serve, tmp_path):
    files = {"admin_token_file": write_secret(tmp_path, "admin", ADMIN),
             "admin_tokens_file": write_secret(tmp_path, "tokens", TOKENS),
             "user_key_file": write_secret(tmp_path, "key", KEY)}
    server = serve(config={**files, "metrics_listen": "127.0.0.1:0"})
    server.admin_token = ADMIN
    policy = server.create(total=9)["id"]
    login = server.post("/v1/session", {"token": VERA}, token=False)
    cookie = {"Cookie": login.headers["set-cookie"].split(";")[0]}

    def claim(key, user):
        return server.claim(policy, user, token=make_token(key, {"sub": user, "exp": 4102444800}))

    expect(claim(KEY, "u1"), 201)
    fresh_key, fresh_admin = b"another key of 32 bytes, at least", ADMIN[::-1]
    write_secret(tmp_path, "key", fresh_key)
    write_secret(tmp_path, "admin", fresh_admin)
    write_secret(tmp_path, "tokens", f"otto admin {OTTO}\n")
    expect(claim(KEY, "u2"), 201)  # not yet
    hangup(server)
    assert claim(KEY, "u3").status == 401
    expect(claim(fresh_key, "u3"), 201)
    for gone in (ADMIN, VERA, ANNA):
        assert server.get("/v1/policies", token=gone, source="127.0.3.1").status == 401
    assert server.get("/v1/policies", token=False, headers=cookie).status == 401
    expect(server.post("/v1/policies", POLICY, token=OTTO), 201)
    expect(server.get("/v1/policies", token=fresh_admin), 200)
    server.admin_token = fresh_admin


def test_reload__what_is_wrong_changes_nothing(serve, tmp_path):
    tokens = write_secret(tmp_path, "tokens", TOKENS)
    server = serve(config={"admin_tokens_file": tokens})
    server.admin_token = ANNA
    write_secret(tmp_path, "tokens", "anna admin short\n")
    assert "line 1" in hangup(server, "reload_refused")["error"]
    os.unlink(tokens)
    hangup(server, "reload_refused")
    expect(server.get("/v1/policies"), 200)
    write_secret(tmp_path, "tokens", TOKENS)
    hangup(server)
    expect(server.get("/v1/policies"), 200)


def test_reload__while_people_claim(serve, tmp_path):
    """Nobody who has the right token is ever refused."""
    server = serve(config={"admin_token_file": write_secret(tmp_path, "admin", ADMIN),
                           "service_token_file": write_secret(tmp_path, "service", OTTO)})
    server.admin_token = ADMIN
    policy = server.create(total=10000)["id"]
    for round_ in range(5):
        server.signal(signal.SIGHUP)
        outcomes = server.storm((claim_bytes(policy, f"u{round_}-{i}", token=OTTO)
                                 for i in range(300)), connections=20)
        assert {outcome.answer.status for outcome in outcomes} == {201}
    wait_until(lambda: server.events("reloaded"), "it was read")


# --- what they did ---

def test_actions__who_did_what(named):
    policy = named.create(total=10)["id"]
    expect(named.request("PATCH", f"/v1/policies/{policy}", {"total": 12, "paused": True},
                         token=OTTO), 200)
    expect(named.request("PATCH", f"/v1/policies/{policy}", {"paused": True}, token=OTTO), 200)
    for _ in range(2):
        expect(named.request("PUT", "/v1/users/mallory", {"blocked": True}, token=OTTO), 200)
    assert named.request("PATCH", f"/v1/policies/{policy}", {"total": 1}, token=VERA).status == 401
    expect(named.request("DELETE", f"/v1/policies/{policy}"), 200)
    items = expect(named.get("/v1/actions", token=VERA), 200)["items"]
    told = [(item["who"], item["what"], item["target"]) for item in items]
    assert told == [("anna", "policy_closed", f"policies/{policy}"),
                    ("otto", "user_blocked", "users/mallory"),
                    ("otto", "policy_changed", f"policies/{policy}"),
                    ("anna", "policy_created", f"policies/{policy}")]
    closed, blocked, changed, created = items
    assert (changed["before"]["total"], changed["after"]["total"]) == (10, 12)
    assert (changed["before"]["paused"], changed["after"]["paused"]) == (False, True)
    assert created["before"] is None and created["after"]["name"] == "test"
    assert closed["before"]["closed_at"] is None and closed["after"]["closed_at"] is not None
    assert blocked["before"] == {"blocked": False} and blocked["after"] == {"blocked": True}
    shown = run_dibs("actions", "--url", url_of(named), env={"DIBS_ADMIN_TOKEN": VERA})
    assert shown.returncode == 0 and "user_blocked" in shown.stdout, shown
    named.kill()
    named.start()
    assert expect(named.get("/v1/actions"), 200)["items"] == items


def test_actions__a_name_of_any_length_is_kept_whole(named):
    policy = named.create(total=1, name="\U0001f3ab" * 200)["id"]
    (created,) = expect(named.get(f"/v1/actions?target=policies/{policy}"), 200)["items"]
    assert created["after"]["name"] == "\U0001f3ab" * 200
