"""HTTP itself: methods, paths, heads, request ids, CORS, keep-alive, pipelining, limits."""

import re
import socket

import pytest

from harness import claim_bytes, expect, expect_problem
from wire import Closed, encode

ORIGIN = "https://shop.example"


# --- methods and paths ---

ROUTES = {
    "/v1/policies": {"GET", "HEAD", "POST"},
    "/v1/policies/1": {"GET", "HEAD", "PATCH", "DELETE"},
    "/v1/policies/1/claims": {"POST"},
    "/v1/policies/1/claims/u1": {"GET", "HEAD"},
    "/v1/policies/1/events": {"GET"},
    "/v1/policies/1/claims/u1/events": {"GET"},
    "/v1/policies/1/preflight": {"GET", "HEAD"}, "/v1/policies/1/winners.csv": {"GET", "HEAD"},
    "/v1/users/u1": {"PUT"},
    "/v1/users/u1/coupons": {"GET", "HEAD"},
    "/v1/coupons/1-1": {"GET", "HEAD"},
    "/v1/coupons/1-1/redeem": {"POST"},
    "/v1/coupons/1-1/cancel": {"POST"},
    "/v1/session": {"GET", "HEAD", "POST", "DELETE"},
    "/healthz": {"GET", "HEAD"}, "/readyz": {"GET", "HEAD"}, "/metrics": {"GET", "HEAD"},
    "/openapi.json": {"GET", "HEAD"}, "/problems/SOLD_OUT": {"GET", "HEAD"},
    "/": {"GET", "HEAD"}, "/drop/1": {"GET", "HEAD"}, "/assets/app.js": {"GET", "HEAD"},
}


@pytest.mark.parametrize("path,methods", ROUTES.items(), ids=ROUTES.keys())
def test_http__other_methods_are_405_with_allow(shared, path, methods):
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - methods:
        answer = shared.request(method, path, {} if method != "GET" else None)
        expect_problem(answer, 405, "METHOD_NOT_ALLOWED")
        allowed = {name.strip() for name in answer.headers["allow"].split(",")}
        assert methods <= allowed <= methods | {"OPTIONS", "HEAD"}, answer


@pytest.mark.parametrize("path", [
    "//", "/v1", "/v1/", "/v2/policies", "/v1/policy", "/v1/policies/", "/v1/policies/1/",
    "/v1/policies/1/claim", "/v1/policies/1/claims/", "/v1/policies/1/claims/u1/x", "/V1/policies",
    "/v1//policies", "/healthz/", "/problems", "/problems/", "/problems/NOPE", "/problems/sold_out",
    "/v1/users/u1/coupons/", "/v1/coupons/", "/.", "/..", "/v1/../healthz", "/%2e%2e/healthz",
    "/healthz%00", "/favicon.ico", "/drop", "/drop/", "/drop/0", "/drop/x", "/drop/1/", "/assets",
    "/assets/", "/assets/index.html", "/assets/nothing.js", "/assets/..%2fopenapi.json",
    "/index.html",
])
def test_http__unknown_paths_are_404(shared, path):
    answer = shared.get(path)
    assert (answer.status, answer.code) in [(404, "NOT_FOUND"), (400, "INVALID_REQUEST")], answer


@pytest.mark.parametrize("path", ["/v1/policies", "/healthz", "/readyz", "/openapi.json",
                                  "/problems/SOLD_OUT", "/v1/policies/123456789"])
def test_http__head_is_get_without_the_body(shared, path):
    with shared.connect() as connection:
        full = connection.request("GET", path)
        head = connection.request("HEAD", path)
        after = connection.request("GET", path)
    assert head.status == full.status
    assert head.body == b""
    for name in ("content-type", "content-length"):
        assert head.headers[name] == full.headers[name]
    assert after.status == full.status


def test_http__head_never_claims(shared):
    policy = shared.create(total=1)
    answer = shared.request("HEAD", f"/v1/policies/{policy['id']}/claims")
    assert answer.status == 405
    assert shared.policy(policy["id"])["remaining"] == 1


# --- request ids ---


@pytest.mark.parametrize("request_id", ["abc", "A-1_b.c:d@e", "0" * 64, '<a"b>'])
def test_http__request_id_is_taken(shared, request_id):
    answer = shared.get("/healthz", headers={"X-Request-Id": request_id})
    assert answer.headers["x-request-id"] == request_id


@pytest.mark.parametrize("request_id", ["", "0" * 65, "a b", "a\tb", "\u00e9", "a\x7f"])
def test_http__bad_request_id_is_replaced(shared, request_id):
    answer = shared.get("/healthz", headers={"X-Request-Id": request_id})
    assert answer.status in (200, 400)
    made = answer.headers["x-request-id"]
    assert made != request_id
    assert re.fullmatch(r"[!-~]{1,64}", made)


def test_http__made_request_ids_differ(shared):
    with shared.connect() as connection:
        made = {connection.request("GET", "/healthz").headers["x-request-id"] for _ in range(50)}
    assert len(made) == 50


def test_http__request_id_is_in_refusals_and_problems(shared):
    answer = shared.get("/nowhere", headers={"X-Request-Id": "find-me"})
    assert answer.headers["x-request-id"] == "find-me"
    policy = shared.create(total=1)
    for user in ("u1", "u1", "u2"):
        answer = shared.claim(policy["id"], user, headers={"X-Request-Id": f"claim-{user}"})
        assert answer.headers["x-request-id"] == f"claim-{user}"


# --- keep-alive and pipelining ---


def test_http__a_thousand_requests_on_one_connection(shared):
    with shared.connect() as connection:
        for _ in range(1000):
            assert connection.request("GET", "/healthz").status == 200


def test_http__pipelined_answers_come_in_order(shared):
    """Fast and slow answers mixed: what waits for a commit must not be overtaken."""
    policy = shared.create(total=10)
    requests, ids = [], []
    for i in range(60):
        raw = [
            claim_bytes(policy["id"], f"u{i}"),
            encode("GET", "/healthz"), encode("GET", f"/v1/policies/{policy['id']}"),
            encode("GET", "/nowhere"), encode("GET", f"/v1/policies/{policy['id']}/claims/u{i}"),
        ][i % 5]
        ids.append(f"order-{i}")
        requests.append(raw.replace(b"\r\n", f"\r\nX-Request-Id: order-{i}\r\n".encode(), 1))
    with shared.connect() as connection:
        connection.send(b"".join(requests), *["POST" if i % 5 == 0 else "GET" for i in range(60)])
        answers = [connection.receive() for _ in range(60)]
    assert [a.headers["x-request-id"] for a in answers] == ids


def test_http__a_pipelined_read_sees_the_claim_before_it(shared):
    policy = shared.create(total=10)
    raw = claim_bytes(policy["id"], "u1") + encode(
        "GET", f"/v1/policies/{policy['id']}/claims/u1?wait=10")
    with shared.connect() as connection:
        connection.send(raw, "POST", "GET")
        won, status = connection.receive(), connection.receive()
    assert won.status == 201
    if status.status == 200:  # It may also have been judged before the claim was decided.
        assert status.json["seq"] == won.json["seq"]
    else:
        expect_problem(status, 404, "NO_CLAIM")


def test_http__more_than_the_pipeline_holds(shared):
    """Hundreds of requests in one write: reading pauses, nothing is lost, the order stays."""
    policy = shared.create(total=1000, limit=1000)
    count = 500
    raw = b"".join(claim_bytes(policy["id"], "u1") for _ in range(count))
    with shared.connect() as connection:
        connection.send(raw, *["POST"] * count)
        seqs = [connection.receive().json["seq"] for _ in range(count)]
    assert seqs == list(range(1, count + 1))


def test_http__requests_cut_into_single_bytes(shared):
    policy = shared.create(total=2)
    raw = claim_bytes(policy["id"], "u1") + encode("GET", "/healthz")
    with shared.connect() as connection:
        connection.parser.expect("POST")
        connection.parser.expect("GET")
        for byte in raw:
            connection.socket.send(bytes([byte]))
        assert connection.receive().status == 201
        assert connection.receive().status == 200


def test_http__connection_close_is_honoured(shared):
    with shared.connect() as connection:
        answer = connection.request("GET", "/healthz", headers={"Connection": "close"})
        assert answer.status == 200 and answer.closes
        assert connection.is_closed_by_peer()


def test_http__http_1_0_closes_unless_asked(shared):
    with shared.connect() as connection:
        connection.send(b"GET /healthz HTTP/1.0\r\nHost: x\r\n\r\n", "GET")
        assert connection.receive().status == 200
        assert connection.is_closed_by_peer()


def test_http__expect_100_continue(shared):
    """Either an interim 100 or the final answer, but never a hang."""
    policy = shared.create(total=2)
    raw = claim_bytes(policy["id"], "u1")
    head, body = raw.split(b"\r\n\r\n", 1)
    with shared.connect() as connection:
        connection.socket.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        connection.socket.sendall(body)
        data = connection.socket.recv(65536)
        while b"HTTP/1.1 201" not in data and b"HTTP/1.1 4" not in data:
            more = connection.socket.recv(65536)
            assert more, data
            data += more


def test_http__half_closed_client_still_gets_its_answer(shared):
    policy = shared.create(total=2)
    with shared.connect() as connection:
        connection.send(claim_bytes(policy["id"], "u1"), "POST")
        connection.socket.shutdown(socket.SHUT_WR)
        try:
            assert connection.receive().status == 201
        except Closed:
            pass  # Gone is allowed; the claim is found by the retry all the same.
    body = shared.claim(policy["id"], "u1")
    assert body.status in (200, 201) and body.json["seq"] == 1


def ask_target(server, target, method="GET", host="127.0.0.1"):
    with server.connect() as connection:
        connection.send(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(), method)
        return connection.receive()


def test_http__absolute_form_is_the_path_and_the_host(shared):
    policy_id = shared.create(total=1)["id"]
    for start in ("http://127.0.0.1", "HTTP://localhost:8080", "https://[::1]"):
        expect(ask_target(shared, f"{start}/v1/policies/{policy_id}"), 200)
        assert len(expect(ask_target(shared, f"{start}/v1/policies?limit=1"), 200)["items"]) == 1
        assert ask_target(shared, start).status == 200
    # Its host is the one that counts, as Host would.
    for host in ("127.0.0.1", "shop.example"):
        answer = ask_target(shared, f"http://shop.example/v1/policies/{policy_id}", host=host)
        expect_problem(answer, 401, "UNAUTHORIZED")
        expect(ask_target(shared, f"http://127.0.0.1/v1/policies/{policy_id}", host=host), 200)


def test_http__fixed_words_are_compared_as_they_came(shared):
    """What a proxy forbids by its path must not be reached by another spelling."""
    policy_id = shared.create(total=1)["id"]
    for path in ("/%6detrics", "/%76%31/policies", f"/v1/%70olicies/{policy_id}",
                 f"/v1/policies/{policy_id}/winners%2ecsv", f"/v1/policies/{policy_id}/%63laims"):
        expect_problem(ask_target(shared, path), 404, "NOT_FOUND")
    encoded = "".join(f"%{ord(digit):x}" for digit in str(policy_id))
    expect(ask_target(shared, f"/v1/policies/{encoded}"), 200)


def test_http__trace_is_not_allowed_where_there_is_something(shared):
    for path, allow in (("/healthz", "GET"), ("/v1/orders", "POST")):
        answer = ask_target(shared, path, "TRACE")
        expect_problem(answer, 405, "METHOD_NOT_ALLOWED")
        assert allow in answer.headers["allow"].split(", ")
    expect_problem(ask_target(shared, "/nothing", "TRACE"), 404, "NOT_FOUND")


# --- limits ---


def test_http__request_line_limit(shared):
    path = "/v1/policies?after="
    fits = path + "a" * (2048 - len(f"GET {path} HTTP/1.1"))
    answer = shared.get(fits)
    assert answer.status == 400, answer  # Understood, and no cursor.
    with shared.connect() as connection:
        connection.send(encode("GET", fits + "aa"), "GET")
        expect_problem(connection.receive(), 414, "URI_TOO_LONG")
        assert connection.is_closed_by_peer()


def test_http__header_count_limit(shared):
    fits = {f"X-{i}": "v" for i in range(62)}
    assert shared.get("/healthz", headers=fits).status == 200
    with shared.connect() as connection:
        connection.send(encode("GET", "/healthz", headers={f"X-{i}": "v" for i in range(64)}),
                        "GET")
        expect_problem(connection.receive(), 431, "HEADERS_TOO_LARGE")
        assert connection.is_closed_by_peer()


def test_http__header_bytes_limit(shared):
    assert shared.get("/healthz", headers={"X-Big": "v" * 8000}).status == 200
    with shared.connect() as connection:
        connection.send(encode("GET", "/healthz", headers={"X-Big": "v" * 8200}), "GET")
        expect_problem(connection.receive(), 431, "HEADERS_TOO_LARGE")
        assert connection.is_closed_by_peer()


def test_http__endless_header_is_cut_off(shared):
    with shared.connect() as connection:
        connection.parser.expect("GET")
        connection.socket.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Endless: ")
        try:
            for _ in range(200):
                connection.socket.sendall(b"v" * 65536)
        except ConnectionError:
            pass
        else:
            expect_problem(connection.receive(), 431, "HEADERS_TOO_LARGE")


def test_http__endless_request_line_is_cut_off(shared):
    with shared.connect() as connection:
        connection.parser.expect("GET")
        connection.socket.sendall(b"GET /")
        try:
            for _ in range(200):
                connection.socket.sendall(b"v" * 65536)
        except ConnectionError:
            pass
        else:
            expect_problem(connection.receive(), 414, "URI_TOO_LONG")


def test_http__too_large_is_refused_before_the_body_comes(shared):
    policy = shared.create(total=1)
    for path, size in ((f"/v1/policies/{policy['id']}/claims", 4097), ("/v1/policies", 16385)):
        with shared.connect() as connection:
            head = encode("POST", path, b"").replace(b"Content-Length: 0",
                                                     b"Content-Length: %d" % size)
            connection.send(head, "POST")
            answer = connection.receive()
            expect_problem(answer, 413, "TOO_LARGE")
            assert answer.closes
            assert connection.is_closed_by_peer()


def test_http__refusals_say_connection_close(shared):
    with shared.connect() as connection:
        connection.send(b"GET /healthz HTTP/1.1\r\n\r\n", "GET")
        answer = connection.receive()
        expect_problem(answer, 400, "INVALID_REQUEST")
        assert answer.closes
        assert connection.is_closed_by_peer()


# --- CORS ---


def cors_headers(answer):
    return {name for name in answer.headers if name.startswith("access-control-")}


def ask_raw(server, method, path, **headers):
    with server.connect() as connection:
        return connection.request(method, path, headers={
            name.replace("_", "-"): value for name, value in headers.items()})


def test_cors__off_by_default(shared):
    answer = ask_raw(shared, "GET", "/v1/policies", Origin=ORIGIN)
    assert answer.status == 200 and not cors_headers(answer)
    answer = ask_raw(shared, "OPTIONS", "/v1/policies", Origin=ORIGIN,
                     Access_Control_Request_Method="POST")
    assert not cors_headers(answer), answer


@pytest.mark.parametrize("setting,origin,allowed", [
    (ORIGIN, ORIGIN, True), (f"https://other.example, {ORIGIN}", ORIGIN, True),
    (ORIGIN, "https://evil.example", False), (ORIGIN, ORIGIN + ".evil.example", False),
    (ORIGIN, "null", False), (ORIGIN, "http://shop.example", False), ("*", ORIGIN, True),
])
def test_cors__only_for_listed_origins(serve, setting, origin, allowed):
    token = "an-admin-token-of-some-length"
    server = serve(config={"cors_origin": setting, "admin_token": token})
    server.admin_token = token
    policy = server.create(total=3)
    path = f"/v1/policies/{policy['id']}/claims"
    preflight = ask_raw(server, "OPTIONS", path, Origin=origin,
                        Access_Control_Request_Method="POST",
                        Access_Control_Request_Headers="content-type, idempotency-key, "
                                                       "authorization")
    with server.connect() as connection:
        answer = connection.request("POST", path, {"user": "u1"}, {"Origin": origin})
    if not allowed:
        assert "access-control-allow-origin" not in answer.headers, answer
        assert "access-control-allow-origin" not in preflight.headers, preflight
        return
    for one in (preflight, answer):
        assert one.headers["access-control-allow-origin"] in (origin, "*"), one
        if one.headers["access-control-allow-origin"] != "*":
            assert "origin" in one.headers["vary"].lower(), one
    assert preflight.status in (200, 204), preflight
    assert "POST" in preflight.headers["access-control-allow-methods"]
    allowed_headers = preflight.headers["access-control-allow-headers"].lower()
    for name in ("content-type", "idempotency-key", "authorization"):
        assert name in allowed_headers
    exposed = answer.headers["access-control-expose-headers"].lower()
    for name in ("location", "retry-after", "x-request-id"):
        assert name in exposed, answer
    # Without an Origin there is nothing to say.
    assert "access-control-allow-origin" not in server.get("/healthz").headers or setting == "*"


def test_cors__problems_carry_it_too(serve):
    server = serve(config={"cors_origin": ORIGIN})
    with server.connect() as connection:
        answer = connection.request("POST", "/v1/policies/999/claims", {"user": "u1"},
                                    {"Origin": ORIGIN})
    assert answer.status == 404
    assert answer.headers["access-control-allow-origin"] == ORIGIN


# --- problem pages ---


def test_problems__every_code_has_a_page(shared):
    for code in ["SOLD_OUT", "LIMIT_REACHED", "BLOCKED", "NO_CLAIM", "POLICY_NOT_FOUND",
                  "NOT_OPEN", "PAUSED", "CLOSED", "RATE_LIMITED",
                 "UNAVAILABLE", "INVALID_REQUEST", "UNAUTHORIZED", "NOT_FOUND",
                 "METHOD_NOT_ALLOWED", "CONFLICT", "TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE",
                 "URI_TOO_LONG", "HEADERS_TOO_LARGE", "TIMEOUT", "NOT_IMPLEMENTED",
                 "VERSION_NOT_SUPPORTED"]:
        page = shared.get(f"/problems/{code}", headers={"Accept": "text/html"})
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert code in page.body.decode()
        machine = shared.get(f"/problems/{code}", headers={"Accept": "application/json"})
        assert expect(machine, 200)["code"] == code


def test_problems__the_type_of_a_problem_leads_to_its_page(shared):
    problem = expect_problem(shared.get("/nowhere"), 404, "NOT_FOUND")
    assert shared.get(problem["type"]).status == 200
