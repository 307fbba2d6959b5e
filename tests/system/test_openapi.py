"""The OpenAPI document and the server say the same, in both directions."""

import copy
import threading

import pytest

from harness import ROOT, expect, make_token, now_rfc3339, wait_until, write_secret
from ledger import standing_still
from openapi import Mismatch
from openapi_check import Spec
from receiver import Receiver
from wire import encode

FILE = ROOT / "src/http/pages/openapi.json"
ADMIN_TOKEN = "admin-token-of-the-openapi-test"
USER_KEY = b"a key of the openapi test, 32 bytes and more"

# What this build cannot be made to say from outside, and why.
NOT_PROVOKED = {
    ("repairLedger", "409"): "only a database that was exchanged under the server is refused",
    ("retryDeadLetter", "202"): "only a gate outside the process has dead letters of its own",
    ("claim", "202"): "only a gate outside the process answers before the ledger has the claim",
}
# What is refused on whatever path, before any operation is chosen.
PROTOCOL_STATUSES = {"400", "401", "405", "408", "413", "414", "431", "501", "503", "505"}

# One good request per operation; {id} and {coupon} are filled in.
REQUESTS = {
    "createPolicy": ("POST", "/v1/policies",
                     {"name": "n", "discount": {"type": "fixed", "value": 5}, "total": 3}),
    "listPolicies": ("GET", "/v1/policies", None),
    "getPolicy": ("GET", "/v1/policies/{id}", None),
    "changePolicy": ("PATCH", "/v1/policies/{id}", {"paused": False}),
    "closePolicy": ("DELETE", "/v1/policies/{id}", None),
    "watchPolicy": ("GET", "/v1/policies/{id}/events", None),
    "watchServer": ("GET", "/v1/live", None),
    "watchDrop": ("GET", "/v1/policies/{id}/live", None),
    "preflight": ("GET", "/v1/policies/{id}/preflight", None),
    "listPending": ("GET", "/v1/policies/{id}/pending", None),
    "policyStats": ("GET", "/v1/policies/{id}/stats", None),
    "downloadWinners": ("GET", "/v1/policies/{id}/winners.csv", None),
    "claim": ("POST", "/v1/policies/{id}/claims", {"user": "u1"}),
    "getClaim": ("GET", "/v1/policies/{id}/claims/u1", None),
    "watchClaim": ("GET", "/v1/policies/{id}/claims/u1/events", None),
    "listUserCoupons": ("GET", "/v1/users/u1/coupons", None),
    "putUser": ("PUT", "/v1/users/u9", {"blocked": True}),
    "eraseUser": ("POST", "/v1/users/u8/erase", {"anyway": False}),
    "getCoupon": ("GET", "/v1/coupons/{coupon}", None),
    "redeemCoupon": ("POST", "/v1/coupons/{coupon}/redeem", {"order_id": "o1"}),
    "cancelCoupon": ("POST", "/v1/coupons/{coupon}/cancel", {}),
    "reissueCoupon": ("POST", "/v1/coupons/{coupon}/reissue", {}),
    "addOrders": ("POST", "/v1/orders",
                  {"order_id": "o1", "items": [{"product_id": "p1", "quantity": 1}]}),
    "getOrder": ("GET", "/v1/orders/o1", None),
    "refundOrder": ("POST", "/v1/orders/o1/refund", {}),
    "addSignals": ("POST", "/v1/signals",
                   {"signals": [{"signal_id": "v1", "kind": "view", "product_id": "p1"}]}),
    "importProducts": ("POST", "/v1/products", {"products": [{"product_id": 1, "name": "n"}]}),
    "putProduct": ("PUT", "/v1/products/p1", {"name": "n", "price": 5}),
    "getProduct": ("GET", "/v1/products/p1", None),
    "topProducts": ("GET", "/v1/products/top", None),
    "getProductRank": ("GET", "/v1/products/p1/rank", None),
    "listDeadLetters": ("GET", "/v1/dead", None),
    "dropDeadLetter": ("DELETE", "/v1/dead/{coupon}", None),
    "retryDeadLetter": ("POST", "/v1/dead/{coupon}/retry", {}),
    "audit": ("GET", "/v1/audit", None),
    "repairLedger": ("POST", "/v1/audit/repair", {}),
    "listActions": ("GET", "/v1/actions", None),
    "showWebhook": ("GET", "/v1/webhook", None),
    "testWebhook": ("POST", "/v1/webhook/test", {}),
    "enableWebhook": ("POST", "/v1/webhook/enable", {}),
    "redeliverWebhook": ("POST", "/v1/webhook/redeliver", {"since": "2026-11-15T12:00:00Z"}),
    "showSession": ("GET", "/v1/session", None),
    "login": ("POST", "/v1/session", {"token": "not-the-admin-token"}),
    "logout": ("DELETE", "/v1/session", None),
    "listRepairs": ("GET", "/v1/audit/repairs", None),
    "health": ("GET", "/healthz", None),
    "readiness": ("GET", "/readyz", None),
    "metrics": ("GET", "/metrics", None),
    "openapi": ("GET", "/openapi.json", None),
    "problemPage": ("GET", "/problems/SOLD_OUT", None),
}


@pytest.fixture
def spec():
    return Spec(FILE.read_text("utf-8"))


class Tour:
    """Asks a server and holds every answer against the document."""

    def __init__(self, spec, server):
        self.spec = spec
        self.server = server

    def ask(self, status, method, path, body=None, code=None, **options):
        answer = self.server.request(method, path, body, **options)
        self.spec.check(method, path, answer)
        assert answer.status == status, f"{method} {path}: {answer}"
        if code is not None:
            assert answer.code == code, f"{method} {path}: {answer}"
        return answer

    def listen(self, path, *names):
        """Opens a stream and checks its head and its first events."""
        with self.server.events_of(path) as stream:
            for name in names:
                event, _ = self.spec.check_stream(path, stream)
                assert event == name

    def operation(self, name, status, **options):
        """The good request of REQUESTS, which this server answers with `status`."""
        method, path, body = REQUESTS[name]
        path = path.format(id=options.pop("id", 1), coupon=options.pop("coupon", "1-1"))
        return self.ask(status, method, path, body, **options)


# --- the document by itself ---


def test_openapi__is_served_as_it_is(shared):
    assert shared.get("/openapi.json").body == FILE.read_bytes()


def walk(node, path=()):
    yield path, node
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for name, child in children:
        if isinstance(child, (dict, list)) and name not in ("example", "examples", "x-events"):
            yield from walk(child, (*path, name))


def test_openapi__references_lead_somewhere_and_parts_are_used(spec):
    used = set()
    for _, node in walk(spec.root):
        if isinstance(node, dict) and "$ref" in node:
            spec.resolve(node)
            used.add(node["$ref"])
        if isinstance(node, dict) and "x-events" in node:
            used.update(event["$ref"] for event in node["x-events"].values())
    parts = {f"#/components/{kind}/{name}" for kind, entries in spec.root["components"].items()
             if kind != "securitySchemes" for name in entries}
    assert used == parts


def test_openapi__names_every_path_parameter(spec):
    for template, item in spec.root["paths"].items():
        named = {spec.resolve(parameter)["name"] for parameter in item["parameters"]
                 if spec.resolve(parameter)["in"] == "path"}
        assert named == {part[1:-1] for part in template.split("/") if part.startswith("{")}
    assert set(REQUESTS) == set(spec.named)


def test_openapi__examples_fit_their_schemas(spec):
    count = 0
    for path, node in walk(spec.root):
        schema = node.get("schema", node) if isinstance(node, dict) else {}
        examples = [] if not isinstance(node, dict) else node.get("examples", [])
        if isinstance(node, dict) and "example" in node:
            examples = [*examples, node["example"]]
        for example in examples:
            spec.validate(example, schema, ".".join(map(str, path)))
            count += 1
    assert count > 20


def test_openapi__every_operation_lists_what_it_may_refuse(spec):
    for name, (method, path) in spec.named.items():
        operation = spec.operation(method, path)
        statuses = set(operation["responses"])
        assert "default" in statuses, name
        if "requestBody" in operation:
            assert {"400", "413", "415"} <= statuses, name
        if {} not in operation["security"] and operation["security"]:
            assert "401" in statuses, name


def test_openapi__names_that_generators_make_do_not_collide(spec):
    """A property's own enum gets the name of its schema and its own, as CouponState of Coupon's state:
    another schema of that name, with other words, ends the generating. Go makes a NewClaim for each
    Claim."""
    schemas = spec.root["components"]["schemas"]
    for path, node in walk(schemas):
        if len(path) == 3 and path[1] == "properties" and "enum" in node:
            name = path[0] + "".join(word.title() for word in path[2].split("_"))
            assert schemas.get(name, node).get("enum") == node["enum"], name
    assert not {name for name in schemas if name.removeprefix("New") in schemas and "New" in name}


def test_openapi__says_nothing_that_generators_stumble_over(spec):
    """Each was seen to end the generating, or to make code that does not compile or fails later."""
    for path, node in walk(spec.root):
        if not isinstance(node, dict) or "properties" in path[-1:]:
            continue
        assert "$ref" not in node or set(node) <= {"$ref", "description"}, path
        assert node.get("type") != "null" or path[-2] == "oneOf", path
        # What may be null is a type of two words; only an enum, which is a schema, is one of two.
        if {"type": "null"} in node.get("oneOf", []):
            assert "enum" in spec.resolve(node["oneOf"][0]), path
        elif "oneOf" in node:
            assert all(set(choice) == {"$ref"} for choice in node["oneOf"]), path
        if "integer" in node.get("type", ""):  # else 32 bits are enough for it
            assert node.get("format") == "int64" or node["maximum"] < 2**31, path
        # It is matched with a time of the language, not with the text.
        assert "format" not in node or "pattern" not in node or node["format"] != "date-time", path
        assert "enum" not in node or path[-1] == "not" or node["type"] == "string", path
        assert "allOf" not in node and "anyOf" not in node, path


# --- the validator can fail ---


def spoiled(value):
    """The value with one thing wrong, in every way that a strict schema must notice."""
    for name in value:
        without = copy.deepcopy(value)
        del without[name]
        yield f"without {name}", without
        wrong = copy.deepcopy(value)
        wrong[name] = {"wrong": []}
        yield f"wrong {name}", wrong
    yield "with a stranger", {**value, "stranger": 1}


@pytest.mark.parametrize("name", ["Policy", "Claim", "ClaimStatus", "Coupon", "User", "Problem",
                                  "PolicyAudit", "Repair", "Order", "Product", "Session",
                                  "Preflight"])
def test_openapi__validator_refuses_spoiled_answers(spec, name):
    schema = spec.root["components"]["schemas"][name]
    good = schema["examples"][0]
    spec.validate(good, schema, name)
    optional = set(schema["properties"]) - set(schema["required"])
    for what, bad in spoiled(good):
        if what.removeprefix("without ") in optional:
            continue
        with pytest.raises(Mismatch):
            spec.validate(bad, schema, f"{name} {what}")


@pytest.mark.parametrize("name, bad", [
    ("PolicyId", 0), ("PolicyId", 2**53), ("PolicyId", True), ("PolicyId", "42"),
    ("UserId", ""), ("UserId", "."), ("UserId", "a" * 129), ("UserId", "a/b"), ("UserId", "a\n"),
    ("Time", "2026-11-15T12:00:00Z"), ("Time", "2026-02-30T12:00:00.000Z"), ("Time", None),
    ("CouponCode", "42-17-K7Q2M9XU"), ("CouponId", "42-0"), ("CouponState", "VOID"),
    ("Discount", {"type": "percent", "value": 101}), ("Discount", {"type": "gift", "value": 1}),
    ("Problem", {"type": "/problems/NOT_OPEN", "title": "t", "status": 403, "code": "NOT_OPEN",
                 "detail": "d"}),
])
def test_openapi__validator_refuses_bad_values(spec, name, bad):
    with pytest.raises(Mismatch):
        spec.validate(bad, {"$ref": f"#/components/schemas/{name}"}, name)


def test_openapi__validator_refuses_keywords_it_does_not_know(spec):
    with pytest.raises(Mismatch):
        spec.validate(4, {"multipleOf": 2}, "number")


# --- the server against the document ---


def tour_policies(tour):
    created = tour.operation("createPolicy", 201)
    policy = created.json["id"]
    path = f"/v1/policies/{policy}"
    assert created.headers["location"] == path
    body = REQUESTS["createPolicy"][2]
    tour.ask(409, "POST", "/v1/policies", {**body, "id": policy})
    refuse_bodies(tour, "POST", "/v1/policies", {**body, "total": 0})

    tour.ask(200, "GET", path)
    for bad in ("0", "abc", "9007199254740992"):
        tour.ask(400, "GET", f"/v1/policies/{bad}")
    tour.ask(404, "GET", "/v1/policies/987654321", code="POLICY_NOT_FOUND")

    tour.operation("createPolicy", 201)
    page = tour.ask(200, "GET", "/v1/policies?limit=1").json
    assert len(page["items"]) == 1
    tour.ask(200, "GET", f"/v1/policies?limit=1&after={page['next']}")
    tour.ask(400, "GET", "/v1/policies?limit=0")
    tour.ask(400, "GET", "/v1/policies?after=!")

    tour.ask(200, "PATCH", path, {"total": 4, "closes_at": now_rfc3339(3600)})
    tour.ask(200, "PATCH", path, {"closes_at": None})
    tour.ask(404, "PATCH", "/v1/policies/987654321", {"paused": True})
    refuse_bodies(tour, "PATCH", path, {"paused": 1})
    tour.ask(201, "POST", f"{path}/claims", {"user": "a"})
    tour.ask(201, "POST", f"{path}/claims", {"user": "b"})
    tour.ask(409, "PATCH", path, {"total": 1}, code="CONFLICT")

    tour.ask(200, "GET", f"{path}/preflight")
    tour.ask(404, "GET", "/v1/policies/987654321/preflight", code="POLICY_NOT_FOUND")
    tour.ask(400, "GET", "/v1/policies/0/preflight")
    for what in ("pending", "stats"):
        tour.ask(200, "GET", f"{path}/{what}")
        tour.ask(404, "GET", f"/v1/policies/987654321/{what}", code="POLICY_NOT_FOUND")
        tour.ask(400, "GET", f"/v1/policies/0/{what}")
    tour.ask(200, "GET", f"{path}/winners.csv")
    tour.ask(404, "GET", "/v1/policies/987654321/winners.csv", code="POLICY_NOT_FOUND")
    tour.ask(400, "GET", "/v1/policies/0/winners.csv")
    tour.listen(f"{path}/events", "numbers")
    tour.ask(404, "GET", "/v1/policies/987654321/events")
    tour.ask(400, "GET", "/v1/policies/0/events")
    tour.listen(f"{path}/live", "history", "numbers")
    tour.ask(404, "GET", "/v1/policies/987654321/live")
    tour.ask(400, "GET", "/v1/policies/0/live")
    tour.listen("/v1/live", "snapshot", "numbers")
    tour.ask(400, "GET", "/v1/live?stranger=1")

    tour.ask(200, "DELETE", path)
    tour.ask(200, "DELETE", path)
    tour.ask(404, "DELETE", "/v1/policies/987654321")
    tour.ask(400, "DELETE", "/v1/policies/0")


def refuse_bodies(tour, method, path, invalid):
    """What any call with a body refuses."""
    tour.ask(400, method, path, invalid, code="INVALID_REQUEST")
    tour.ask(400, method, path, b'{"a":')
    tour.ask(400, method, path, b'{"stranger":1}')
    tour.ask(413, method, path, b'{"name":"' + b"a" * 17000 + b'"}')
    tour.ask(415, method, path, b"total=3", headers={"Content-Type": "text/plain"})


def tour_claims(tour):
    policy = tour.server.create(total=2)["id"]
    path = f"/v1/policies/{policy}/claims"
    tour.ask(404, "GET", f"{path}/u1", code="NO_CLAIM")
    won = tour.ask(201, "POST", path, {"user": "u1"}, headers={"Idempotency-Key": "key-1"})
    assert won.headers["location"] == f"{path}/u1"
    tour.ask(200, "POST", path, {"user": "u1"})
    for key in range(2, 33):
        tour.ask(200, "POST", path, {"user": "u1"}, headers={"Idempotency-Key": f"key-{key}"})
    tour.ask(400, "POST", path, {"user": "u1"}, headers={"Idempotency-Key": "key-33"},
             code="INVALID_REQUEST")
    tour.ask(201, "POST", path, {"user": 7})
    tour.ask(409, "POST", path, {"user": "u3"}, code="SOLD_OUT")
    lost = tour.ask(404, "GET", f"{path}/u3", code="NO_CLAIM").json
    assert lost["policy_state"] == "SOLD_OUT" and "sold_out_at" in lost
    tour.ask(404, "POST", "/v1/policies/987654321/claims", {"user": "u1"},
             code="POLICY_NOT_FOUND")
    tour.ask(400, "POST", "/v1/policies/0/claims", {"user": "u1"})
    tour.ask(400, "POST", path, {"user": "u1"}, headers={"Idempotency-Key": "a" * 200})
    refuse_bodies(tour, "POST", path, {"user": "not valid "})

    tour.ask(200, "GET", f"{path}/u1")
    tour.ask(200, "GET", f"{path}/u1?wait=1")
    tour.ask(400, "GET", f"{path}/u1?wait=61")
    tour.ask(404, "GET", "/v1/policies/987654321/claims/u1", code="POLICY_NOT_FOUND")
    tour.listen(f"{path}/u1/events", "status")
    tour.ask(404, "GET", f"{path}/u3/events", code="NO_CLAIM")
    tour.ask(400, "GET", "/v1/policies/0/claims/u1/events")
    tour_refused_claims(tour)


def tour_refused_claims(tour):
    server = tour.server

    def path_of(**fields):
        return f"/v1/policies/{server.create(**fields)['id']}/claims"

    several = path_of(limit=2)
    for status in (201, 201):
        tour.ask(status, "POST", several, {"user": "u1"})
    tour.ask(409, "POST", several, {"user": "u1"}, code="LIMIT_REACHED")
    early = tour.ask(403, "POST", path_of(opens_at=now_rfc3339(3600)), {"user": "u1"},
                     code="NOT_OPEN")
    assert int(early.headers["retry-after"]) > 3000
    paused = path_of()
    tour.ask(200, "PATCH", paused.removesuffix("/claims"), {"paused": True})
    tour.ask(403, "POST", paused, {"user": "u1"}, code="PAUSED")
    closed = path_of()
    tour.ask(200, "DELETE", closed.removesuffix("/claims"))
    tour.ask(410, "POST", closed, {"user": "u1"}, code="CLOSED")
    tour.ask(200, "PUT", "/v1/users/mallory", {"blocked": True})
    tour.ask(403, "POST", path_of(), {"user": "mallory"}, code="BLOCKED")
    refuse_bodies(tour, "PUT", "/v1/users/mallory", {"blocked": "yes"})
    tour.ask(400, "PUT", "/v1/users/mallory%20", {"blocked": True})
    tour.ask(409, "POST", "/v1/users/mallory/erase", {"anyway": False}, code="CONFLICT")
    tour.ask(200, "POST", "/v1/users/mallory/erase", {"anyway": True})
    refuse_bodies(tour, "POST", "/v1/users/mallory/erase", {"anyway": "yes"})


def tour_coupons(tour):
    policy = tour.server.create(total=10, coupon_valid_days=30)["id"]
    claims = [tour.server.win(policy, f"holder-{index}") for index in range(3)]
    redeemed, cancelled, kept = (f"/v1/coupons/{claim['code']}" for claim in claims)

    tour.ask(200, "GET", f"/v1/coupons/{claims[0]['coupon_id']}")
    tour.ask(200, "GET", kept)
    tour.ask(404, "GET", f"/v1/coupons/{policy}-99999")
    tour.ask(404, "GET", "/v1/coupons/what")
    tour.ask(400, "GET", f"{kept}?what=1")

    for _ in range(2):
        tour.ask(200, "POST", f"{redeemed}/redeem", {"order_id": "o1"})
        tour.ask(200, "POST", f"{cancelled}/cancel")
    tour.ask(409, "POST", f"{redeemed}/redeem", {"order_id": "o2"}, code="CONFLICT")
    tour.ask(409, "POST", f"{cancelled}/redeem", {"order_id": "o1"}, code="CONFLICT")
    tour.ask(409, "POST", f"{redeemed}/cancel", code="CONFLICT")
    tour.ask(409, "POST", f"{redeemed}/reissue", code="CONFLICT")
    tour.ask(200, "POST", f"{kept}/reissue")
    for verb in ("redeem", "cancel", "reissue"):
        tour.ask(404, "POST", f"/v1/coupons/{policy}-99999/{verb}", {})
        refuse_bodies(tour, "POST", f"{kept}/{verb}", {"order_id": ""})
    for user in ("holder-0", "holder-1", "nobody"):
        tour.ask(200, "GET", f"/v1/users/{user}/coupons")
    tour.ask(400, "GET", "/v1/users/holder-0/coupons?limit=1001")
    two = tour.server.create(total=10, limit=2)["id"]
    for _ in range(2):
        tour.server.win(two, "holder-0")
    first = tour.ask(200, "GET", "/v1/users/holder-0/coupons?limit=1").json
    tour.ask(200, "GET", f"/v1/users/holder-0/coupons?limit=1&after={first['next']}")


def tour_sales(tour):
    assert tour.operation("addOrders", 201).headers["location"] == "/v1/orders/o1"
    tour.operation("addOrders", 200)
    body = REQUESTS["addOrders"][2]
    tour.ask(409, "POST", "/v1/orders", {**body, "paid_at": now_rfc3339(-60)}, code="CONFLICT")
    other = {"order_id": 2, "paid_at": now_rfc3339(-86400), "items": body["items"]}
    batch = {"orders": [body, other, {**other, "items": body["items"] * 2}]}
    results = tour.ask(200, "POST", "/v1/orders", batch).json["items"]
    assert [result["result"] for result in results] == ["KNOWN", "ADDED", "CONFLICT"]
    refuse_bodies(tour, "POST", "/v1/orders", {"order_id": "o3", "items": []})
    tour.ask(200, "GET", "/v1/orders/2")
    tour.ask(404, "GET", "/v1/orders/3")
    tour.ask(400, "GET", "/v1/orders/%20")
    tour.operation("refundOrder", 200)
    tour.ask(200, "POST", "/v1/orders/o1/refund")
    tour.ask(404, "POST", "/v1/orders/3/refund")
    refuse_bodies(tour, "POST", "/v1/orders/2/refund", {"reason": "none"})

    tour.operation("addSignals", 409, code="CONFLICT")
    refuse_bodies(tour, "POST", "/v1/signals", {"signals": [{"signal_id": 1, "kind": "look"}]})

    tour.operation("putProduct", 200)
    tour.ask(200, "PUT", "/v1/products/p2", {"name": "m", "price": None})
    refuse_bodies(tour, "PUT", "/v1/products/p1", {"name": ""})
    tour.ask(200, "GET", "/v1/products/top?days=30&limit=100&fresh=true")
    tour.ask(400, "GET", "/v1/products/top?days=31")
    tour.ask(200, "GET", "/v1/products/p1/rank?days=1")
    tour.ask(400, "GET", "/v1/products/p1/rank?days=0")
    tour.operation("importProducts", 200)
    refuse_bodies(tour, "POST", "/v1/products", {"products": [{"product_id": 1}]})
    for product in ("p1", "p2", "1"):
        tour.ask(200, "GET", f"/v1/products/{product}")
    tour.ask(404, "GET", "/v1/products/p3")
    tour.ask(400, "GET", "/v1/products/p1?x=1")


def tour_scores(spec, serve):
    """A server that ranks by score."""
    tour = Tour(spec, serve(config={"ranking_half_life": "6h",
                                    "ranking_weights": "view:1,order:20"}))
    tour.ask(200, "GET", "/v1/products/p1/rank")
    tour.operation("addSignals", 200)
    signals = REQUESTS["addSignals"][2]["signals"]
    changed = {"signals": [*signals, {**signals[0], "quantity": 2}]}
    assert tour.ask(200, "POST", "/v1/signals", changed).json == {
        "added": 0, "known": 1, "conflicts": ["v1"]}
    wait_until(lambda: tour.ask(200, "GET", "/v1/products/top?fresh=true").json["items"],
               "the view")
    assert tour.ask(200, "GET", "/v1/products/p1/rank").json["score"] > 0.9


def tour_expiry(tour):
    """A coupon whose time has passed shows as EXPIRED wherever it is shown."""
    for left_s in (1, 2, 4, 8, 16):  # until it is won in time, on whichever machine
        policy = tour.server.create(total=1, coupon_expires_at=now_rfc3339(left_s))["id"]
        won = tour.server.claim(policy, "late")
        if won.status == 201:
            break
    code = expect(won, 201)["code"]
    path = f"/v1/coupons/{code}"
    wait_until(lambda: tour.ask(200, "GET", path).json["state"] == "EXPIRED", "expiry")
    tour.ask(409, "POST", f"{path}/redeem", {}, code="CONFLICT")
    status = tour.ask(200, "GET", f"/v1/policies/{policy}/claims/late").json
    assert status["state"] == "ISSUED" and status["coupon_state"] == "EXPIRED"
    tour.ask(200, "POST", f"/v1/policies/{policy}/claims", {"user": "late"})


def tour_operations(tour):
    for name in ("health", "readiness", "metrics", "openapi"):
        tour.operation(name, 200)
    etag = tour.operation("openapi", 200).headers["etag"]
    tour.ask(304, "GET", "/openapi.json", headers={"If-None-Match": etag})
    for code in tour.spec.root["components"]["schemas"]["ProblemCode"]["enum"]:
        html = tour.ask(200, "GET", f"/problems/{code}")
        assert html.headers["content-type"].startswith("text/html")
        page = tour.ask(200, "GET", f"/problems/{code}", headers={"Accept": "application/json"})
        assert page.json["code"] == code
    tour.ask(404, "GET", "/problems/NOTHING")


def tour_pending(tour):
    """With something in it, which waits for the ledger."""
    policy = tour.server.create(total=5)["id"]
    path = f"/v1/policies/{policy}"
    with standing_still(tour.server.database):
        crowd = threading.Thread(target=tour.server.claims, args=(policy, ["u1", "u2"]))
        crowd.start()
        wait_until(lambda: len(tour.ask(200, "GET", f"{path}/pending").json["items"]) == 2,
                   "they are pending", 30)
        page = tour.ask(200, "GET", f"{path}/pending?limit=1").json
        tour.ask(200, "GET", f"{path}/pending?limit=1&after={page['next']}")
        tour.ask(400, "GET", f"{path}/pending?after=x")
    crowd.join()
    expect(tour.server.request("PUT", "/v1/users/u3", {"blocked": True}), 200)
    tour.server.claim(policy, "u3")
    wait_until(lambda: tour.ask(200, "GET", f"{path}/stats").json["refused_by"], "it is counted")


def tour_session(tour):
    """Without an admin token; tour_tokens() logs in."""
    tour.operation("showSession", 200)
    tour.ask(400, "GET", "/v1/session?x=1")
    tour.operation("login", 409)
    refuse_bodies(tour, "POST", "/v1/session", {"token": ""})
    tour.operation("logout", 204)
    tour.ask(400, "DELETE", "/v1/session?x=1")


def tour_audit(tour):
    policy = tour.server.create(total=5)["id"]
    tour.server.create(total=5)
    tour.server.win(policy, "u1")
    page = tour.ask(200, "GET", "/v1/audit?limit=1").json
    assert len(page["items"]) == 1
    tour.ask(200, "GET", f"/v1/audit?limit=1&after={page['next']}")
    tour.ask(200, "GET", f"/v1/audit?policy={policy}")
    tour.ask(404, "GET", "/v1/audit?policy=987654321", code="POLICY_NOT_FOUND")
    for bad in ("limit=0", "after=!", "policy=0", "policy=abc", "what=1"):
        tour.ask(400, "GET", f"/v1/audit?{bad}")
    tour.ask(200, "POST", "/v1/audit/repair")
    tour.operation("repairLedger", 200)
    refuse_bodies(tour, "POST", "/v1/audit/repair", {"policy": 1})
    tour.ask(200, "POST", f"/v1/audit/repair?policy={policy}")
    for bad in ("policy=0", "policy=abc", "what=1"):
        tour.ask(400, "POST", f"/v1/audit/repair?{bad}")
    tour.ask(404, "POST", "/v1/audit/repair?policy=987654321", code="POLICY_NOT_FOUND")
    tour.ask(200, "GET", "/v1/audit/repairs")
    tour.operation("listRepairs", 200)
    tour.ask(400, "GET", "/v1/audit/repairs?limit=1")


def tour_dead(tour):
    """A gate in memory leaves no letters: these are put there by hand."""
    policy = tour.server.create(total=5)["id"]
    tour.server.win(policy, "holder")
    for seq, user in ((901, "dead"), (902, "holder"), (903, "dropped")):
        tour.server.database.execute(
            "INSERT INTO dead_letter (policy_id, seq, user_id, nth, request_id, requested_at,"
            " attempts, died_at, reason) VALUES (?, ?, ?, 1, ?, 1763200000000, 6, 1763200000001,"
            " 'why')", policy, seq, user, b"\x01" * 16)
    page = tour.ask(200, "GET", "/v1/dead?limit=1").json
    assert len(page["items"]) == 1 and page["items"][0]["reason"] == "why"
    tour.ask(200, "GET", f"/v1/dead?limit=1&after={page['next']}")
    for bad in ("limit=0", "after=!", "what=1"):
        tour.ask(400, "GET", f"/v1/dead?{bad}")
    won = tour.ask(201, "POST", f"/v1/dead/{policy}-901/retry").json
    assert (won["result"], won["user"]) == ("ISSUED", "dead")
    tour.ask(404, "POST", f"/v1/dead/{policy}-901/retry", {})
    tour.ask(409, "POST", f"/v1/dead/{policy}-902/retry", {})
    refuse_bodies(tour, "POST", f"/v1/dead/{policy}-902/retry", {"policy": 1})
    tour.ask(400, "POST", f"/v1/dead/{policy}-902/retry?x=1")
    assert tour.ask(200, "DELETE", f"/v1/dead/{policy}-903").json["user"] == "dropped"
    tour.ask(404, "DELETE", f"/v1/dead/{policy}-903")
    tour.ask(404, "DELETE", "/v1/dead/nonsense")
    tour.ask(400, "DELETE", f"/v1/dead/{policy}-902?x=1")
    tour.ask(200, "DELETE", f"/v1/dead/{policy}-902")


def tour_actions(tour):
    policy = tour.operation("createPolicy", 201).json["id"]
    for paused in (True, False):
        tour.ask(200, "PATCH", f"/v1/policies/{policy}", {"paused": paused})
    page = tour.ask(200, "GET", f"/v1/actions?limit=2&target=policies/{policy}").json
    assert [action["what"] for action in page["items"]] == ["policy_changed"] * 2
    rest = tour.ask(200, "GET", f"/v1/actions?target=policies/{policy}&after={page['next']}").json
    assert [action["what"] for action in rest["items"]] == ["policy_created"]
    for bad in ("limit=0", "after=!", "what=1"):
        tour.ask(400, "GET", f"/v1/actions?{bad}")


def tour_webhook(tour, without):
    for name in ("showWebhook", "testWebhook", "enableWebhook", "redeliverWebhook"):
        tour.operation(name, 200)
        without.operation(name, 409, code="CONFLICT")
    tour.ask(400, "GET", "/v1/webhook?x=1")
    body = REQUESTS["redeliverWebhook"][2]
    tour.ask(404, "POST", "/v1/webhook/redeliver", {**body, "policy_id": 987654321},
             code="POLICY_NOT_FOUND")
    refuse_bodies(tour, "POST", "/v1/webhook/redeliver", {"since": "soon"})
    for call in ("test", "enable"):
        refuse_bodies(tour, "POST", f"/v1/webhook/{call}", {"since": "soon"})


def tour_heads(tour):
    """Every GET answers HEAD with the same head and no body."""
    policy = tour.server.create(total=5)["id"]
    coupon = tour.server.win(policy, "u1")["coupon_id"]
    for method, path, _ in REQUESTS.values():
        if method == "GET" and not path.endswith(("/events", "/live")):
            tour.ask(200, "HEAD", path.format(id=policy, coupon=coupon))


def tour_tokens(spec, serve, folder):
    """What needs a token says 401 without one and does its work with one."""
    server = serve(config={
        "admin_token_file": write_secret(folder, "admin", ADMIN_TOKEN),
        "user_key_file": write_secret(folder, "key", USER_KEY),
    })
    server.admin_token = ADMIN_TOKEN
    tour = Tour(spec, server)
    policy = server.create(total=5)["id"]
    mine = make_token(USER_KEY, {"sub": "u1", "exp": 4102444800})
    path = f"/v1/policies/{policy}/claims"
    won = tour.ask(201, "POST", path, {}, token=mine).json
    assert won["user"] == "u1" and "code" in won
    for index, name in enumerate(spec.named):
        source = f"127.0.1.{index + 1}"  # Each of its own: so many wrong tokens from one are 429.
        if name == "logout":  # anyone may, but for another's page
            tour.operation(name, 401, headers={"Origin": "http://elsewhere.example"})
        elif "401" in spec.responses(name):
            for token in (False, "wrong-token"):
                tour.operation(name, 401, id=policy, coupon=won["coupon_id"], token=token,
                               source=source)
    assert "code" in tour.ask(200, "GET", f"{path}/u1", token=mine).json
    cookie = tour.ask(204, "POST", "/v1/session", {"token": ADMIN_TOKEN}, token=False).headers[
        "set-cookie"].split(";")[0]
    assert tour.ask(200, "GET", "/v1/session", token=False, headers={"Cookie": cookie}).json["admin"]
    tour.ask(200, "GET", "/v1/users/u1/coupons", token=mine)


def tour_limits(spec, serve):
    """Over the rate, and over the connections, every call gives way."""
    slow = Tour(spec, serve(config={"rate_limit_address": "0.001", "rate_limit_address_burst": 1}))
    slow.server.request("GET", "/v1/policies")
    for name in spec.named:
        if "429" in spec.responses(name):
            slow.operation(name, 429)
    full = Tour(spec, serve(config={"connections_max": 1, "threads": 1}))
    with full.server.connect() as held:
        held.request("GET", "/healthz")
        for name in spec.named:
            full.operation(name, 503, code="UNAVAILABLE")


def tour_protocol(spec, server):
    """What HTTP refuses before any operation is chosen."""
    path = "/v1/policies"
    long = "a" * 3000
    refusals = [
        (400, encode("GET", path, headers={"Host": None})),
        (401, encode("GET", path, headers={"X-Forwarded-For": "192.0.2.7"})),
        (405, encode("PUT", path, {})),
        (408, b"GET /v1/policies HTTP/1.1\r\nHost: dibs.test\r\n"),
        (413, encode("GET", path, b"a" * 20000)),
        (414, encode("GET", f"{path}?after={long}")),
        (431, encode("GET", path, headers={f"X-{n}": "1" for n in range(70)})),
        (501, encode("POST", path, {}, {"Transfer-Encoding": "chunked", "Content-Length": None})),
        (505, encode("GET", path).replace(b"HTTP/1.1", b"HTTP/3.7")),
    ]
    operation = spec.operation(*spec.named["listPolicies"])
    described = spec.resolve(operation["responses"]["default"])
    schema = described["content"]["application/problem+json"]["schema"]
    for status, raw in refusals:
        with server.connect() as connection:
            connection.send(raw, "GET")
            answer = connection.receive()
            assert answer.status == status, answer
            spec.validate(answer.json, schema, f"refusal {status}")
            spec.check_refusal(operation, answer, "default")
            if status == 405:
                assert set(answer.headers["allow"].replace(" ", "").split(",")) >= {"GET", "POST"}


def test_openapi__real_answers_are_documented_and_documented_answers_are_real(spec, serve,
                                                                              tmp_path, request):
    receiver = Receiver()
    receiver.start()
    request.addfinalizer(receiver.stop)
    server = serve(config=receiver.config())
    for visit in (tour_policies, tour_claims, tour_coupons, tour_sales, tour_expiry,
                  tour_operations, tour_pending, tour_session, tour_audit, tour_dead, tour_actions, tour_heads):
        visit(Tour(spec, server))
    tour_webhook(Tour(spec, server), Tour(spec, serve()))
    tour_scores(spec, serve)
    tour_tokens(spec, serve, tmp_path)
    tour_limits(spec, serve)
    tour_protocol(spec, serve(config={"header_timeout": "200ms"}))

    missing = spec.documented() - spec.answers - set(NOT_PROVOKED)
    assert not missing, f"documented, never seen: {sorted(missing)}"
    assert not set(NOT_PROVOKED) & spec.answers, "can be provoked after all"
    assert PROTOCOL_STATUSES == {status for name, status in spec.answers if name == "default"}
