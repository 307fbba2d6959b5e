"""Behind a proxy: who counts as local, and whose address counts."""

import http.client
import json
import pathlib
import tempfile

import pytest

from authority import Authority
from harness import expect, expect_problem, run_dibs
from servers import Nginx
from wire import Response

# What proxies add; any of them says that the request came from somewhere else.
MARKS = [
    ("Forwarded", "for=192.0.2.7"), ("X-Forwarded-For", "192.0.2.7"),
    ("X-Forwarded-Host", "shop.example"), ("X-Forwarded-Proto", "https"),
    ("x-forwarded-anything", "1"), ("Via", "1.1 proxy"), ("VIA", "1.1 proxy"),
    ("X-Real-IP", "192.0.2.7"), ("X-Forwarded-For", ""),
]


def calls(policy_id):
    """Every kind of call that shows or changes something."""
    return [
        ("GET", f"/v1/policies/{policy_id}/winners.csv", None),
        ("GET", f"/v1/coupons/{policy_id}-1", None),
        ("GET", "/v1/policies", None),
        ("GET", f"/v1/policies/{policy_id}/claims/ann", None),
        ("GET", "/metrics", None),
        ("PATCH", f"/v1/policies/{policy_id}", {"paused": True}),
        ("POST", f"/v1/policies/{policy_id}/claims", {"user": "eve"}),
    ]


def ask_through(nginx, method, path, body=None, headers=None, source="127.0.0.1"):
    """One request to the proxy, as a stranger sends it to the shop's name."""
    connection = http.client.HTTPConnection(*nginx.address, timeout=30, source_address=(source, 0))
    fields = {"Host": "shop.example", **(headers or {})}
    if body is not None:
        fields["Content-Type"] = "application/json"
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, fields)
        answer = connection.getresponse()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, fields, answer.read())
    finally:
        connection.close()


def expect_refused(answer):
    problem = expect_problem(answer, 401, "UNAUTHORIZED")
    assert "admin_token_file" in problem["detail"], problem


@pytest.fixture
def sold(server):
    """A server without tokens, and the policy of which ann holds a coupon."""
    policy = server.create(total=5)
    server.win(policy["id"], "ann")
    yield server, policy["id"]
    shown = server.policy(policy["id"])
    assert (shown["state"], shown["issued"]) == ("OPEN", 1)


def test_proxy__strangers_behind_nginx_are_not_local(sold):
    """With nothing but proxy_pass, nginx speaks HTTP/1.0 and sends our own address as Host."""
    server, policy_id = sold
    for directives in ("", "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
                       "proxy_http_version 1.1; proxy_set_header X-Real-IP $remote_addr;",
                       "proxy_set_header Host $http_host;"):
        with Nginx(server.address, directives) as nginx:
            for method, path, body in calls(policy_id):
                expect_refused(ask_through(nginx, method, path, body))


@pytest.mark.parametrize("name,value", MARKS)
def test_proxy__a_forwarded_request_is_not_local(sold, name, value):
    server, policy_id = sold
    for method, path, body in calls(policy_id):
        expect_refused(server.request(method, path, body, headers={name: value}))


@pytest.mark.parametrize("host", ["shop.example", "127.0.0.1.shop.example", "192.0.2.1:8080"])
def test_proxy__another_name_is_not_local(sold, host):
    """A page whose name resolves to 127.0.0.1 (DNS rebinding) reads nothing either."""
    server, policy_id = sold
    for method, path, body in calls(policy_id):
        expect_refused(server.request(method, path, body, headers={"Host": host}))
    assert server.get("/healthz", headers={"Host": host}).status == 200


def test_proxy__http_1_0_without_a_proxy_is_local(server):
    with server.connect() as connection:
        connection.send(b"GET /v1/policies HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", "GET")
        expect(connection.receive(), 200)


def test_proxy__with_an_admin_token_the_token_decides(serve):
    server = serve(config={"admin_token": "admin-token-0123456789abcdef"})
    server.admin_token = "admin-token-0123456789abcdef"
    policy = server.create(total=5)
    for name, value in MARKS:
        headers = {name: value, "Host": "shop.example"}
        expect(server.request("PATCH", f"/v1/policies/{policy['id']}", {"paused": False},
                              headers=headers), 200)
        expect_problem(server.request("PATCH", f"/v1/policies/{policy['id']}", {"paused": True},
                                      headers=headers, token=False), 401, "UNAUTHORIZED")


# --- whose address counts ---

ADMIN = "admin-token-0123456789abcdef"
APPEND = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"


def ask_from(nginx, source, path="/v1/session", headers=None):
    return ask_through(nginx, "GET", path, None, headers, source=source)


@pytest.fixture
def limited(serve):
    """Starts a server with three requests per address, and nginx in front of it."""
    def start(**config):
        server = serve(config={"admin_token": ADMIN, "rate_limit_address": "0.001",
                               "rate_limit_address_burst": 3, **config})
        server.admin_token = ADMIN
        return server
    return start


def test_proxy__clients_of_a_trusted_proxy_have_their_own_allowance(limited):
    server = limited(trusted_proxies="192.0.2.0/24, 127.0.0.1")
    with Nginx(server.address, APPEND) as nginx:
        for source in ("127.0.0.2", "127.0.0.3"):
            statuses = [ask_from(nginx, source).status for _ in range(4)]
            assert statuses == [200, 200, 200, 429], source
        # What a client claims about itself does not give it another one.
        for forged in ("203.0.113.9", "127.0.0.1", "192.0.2.4, 203.0.113.9"):
            headers = {"X-Forwarded-For": forged, "Forwarded": f"for={forged}"}
            assert ask_from(nginx, "127.0.0.2", headers=headers).status == 429


def test_proxy__an_untrusted_proxy_is_one_client(limited):
    server = limited()
    with Nginx(server.address, APPEND) as nginx:
        statuses = [ask_from(nginx, f"127.0.0.{n}").status for n in range(2, 6)]
    assert statuses == [200, 200, 200, 429]


def test_proxy__logs_say_who_asked(serve):
    server = serve(config={"admin_token": ADMIN, "trusted_proxies": "127.0.0.1"})
    with Nginx(server.address, APPEND) as nginx:
        answer = ask_through(nginx, "POST", "/v1/session", {"token": "not-the-token"},
                             source="127.0.0.7")
    expect_problem(answer, 401, "UNAUTHORIZED")
    assert server.await_log("wrong_token")["address"] == "127.0.0.7"


def test_proxy__the_commands_speak_tls_to_it(serve):
    server = serve(config={"admin_token": ADMIN, "trusted_proxies": "127.0.0.1"})
    with tempfile.TemporaryDirectory(prefix="dibs-tls-") as folder:
        pathlib.Path(folder).chmod(0o755)  # nginx may run as somebody else
        authority = Authority(pathlib.Path(folder), "shop")
        with Nginx(server.address,
                   certificate=authority.sign("localhost", "IP:127.0.0.1")) as nginx:
            url = "https://{}:{}".format(*nginx.address)
            trusting = {"SSL_CERT_FILE": str(authority.certificate), "DIBS_ADMIN_TOKEN": ADMIN}
            made = run_dibs("policy", "create", "--url", url, "--name", "Drop", "--total", 5,
                            "--discount", "10%", "--json", env=trusting)
            assert made.returncode == 0, made
            assert json.loads(made.stdout)["total"] == 5
            stranger = run_dibs("status", "--url", url, env={"DIBS_ADMIN_TOKEN": ADMIN})
            assert stranger.returncode == 1 and "SSL_CERT_FILE" in stranger.stderr, stranger
            rush = run_dibs("rush", "--url", url, "--total", 200, "--users", 500, "--connections",
                            16, "--json", env=trusting)
            assert rush.returncode == 0 and json.loads(rush.stdout)["exact"], rush
            assert json.loads(rush.stdout)["winners"] == 200
            for other in (url, "https://localhost:{}".format(nginx.address[1])):
                wrong = run_dibs("rush", "--url", other, env={"DIBS_ADMIN_TOKEN": ADMIN} | (
                    trusting if other != url else {}))
                assert wrong.returncode == 1 and "certificate" in wrong.stderr, wrong
