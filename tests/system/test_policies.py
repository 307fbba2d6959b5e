"""Policies: create, list, show, change live, pause, close; every range of the contract."""

import pytest

from harness import claim_bytes, expect, expect_problem, now_rfc3339, tally, wait_until
from ledger import coupons, rows

BASE = {"name": "p", "discount": {"type": "percent", "value": 10}, "total": 10}


def without_version(policy):
    """Taking or returning a lease may count as a change, so the version may have risen."""
    return {name: value for name, value in policy.items() if name != "version"}


def test_policy__created_as_asked_and_shown(shared):
    asked = {
        "id": 4242, "name": "Launch “day” 🎉", "discount": {"type": "fixed", "value": 1000},
        "total": 500, "per_user_limit": 3, "opens_at": "2020-01-01T09:00:00+09:00",
        "closes_at": "2099-12-31T23:59:59.5Z", "coupon_valid_days": 30, "reserve": 0,
    }
    answer = shared.post("/v1/policies", asked)
    policy = expect(answer, 201)
    assert answer.headers["location"] == "/v1/policies/4242"
    for name in ("id", "name", "discount", "total", "per_user_limit", "coupon_valid_days",
                 "reserve"):
        assert policy[name] == asked[name]
    assert policy["opens_at"] == "2020-01-01T00:00:00.000Z"
    assert policy["closes_at"] == "2099-12-31T23:59:59.500Z"
    assert policy["state"] == "OPEN"
    assert (policy["remaining"], policy["pending"], policy["issued"]) == (500, 0, 0)
    assert shared.policy(4242) == policy
    assert shared.win(4242, "u1")["seq"] == 1


def test_policy__defaults(shared):
    policy = shared.create()
    assert policy["per_user_limit"] == 1
    for name in ("opens_at", "closes_at", "coupon_valid_days", "closed_at"):
        assert policy[name] is None
    assert policy["reserve"] == 0
    assert policy["paused"] is False
    assert policy["state"] == "OPEN"


def test_policy__ids_made_by_the_server_are_free(shared):
    ids = [shared.create()["id"] for _ in range(5)]
    assert len(set(ids)) == 5 and min(ids) >= 1
    taken = max(ids) + 1
    shared.create(id=taken)
    assert shared.create()["id"] not in [*ids, taken]


def test_policy__the_largest_id_does_not_use_up_the_others(server):
    server.create(id=2 ** 53 - 1)
    server.win(2 ** 53 - 1, "u1")
    made = server.create()["id"]
    assert 1 <= made < 2 ** 53 - 1
    server.win(made, "u1")


def test_policy__taken_id_is_a_conflict_and_changes_nothing(shared):
    policy = shared.create(id=777, total=5)
    shared.win(777, "u1")
    answer = shared.post("/v1/policies", {**BASE, "id": 777, "total": 99})
    expect_problem(answer, 409, "CONFLICT")
    shown = shared.policy(777)
    assert (shown["total"], shown["issued"], shown["name"]) == (5, 1, policy["name"])
    # Also after it was closed: ids are never given twice.
    expect(shared.request("DELETE", "/v1/policies/777"), 200)
    expect_problem(shared.post("/v1/policies", {**BASE, "id": 777}), 409, "CONFLICT")


GOOD = {
    "id 2^40": {"id": 2 ** 40}, "one character": {"name": "x"},
    "200 characters": {"name": "é" * 200}, "200 emoji": {"name": "🎉" * 200},
    "percent 1": {"discount": {"type": "percent", "value": 1}},
    "percent 100": {"discount": {"type": "percent", "value": 100}},
    "fixed 1": {"discount": {"type": "fixed", "value": 1}},
    "fixed 10^12": {"discount": {"type": "fixed", "value": 10 ** 12}},
    "total 1": {"total": 1}, "total 10^8": {"total": 10 ** 8},
    "limit 1": {"per_user_limit": 1}, "limit 1000": {"per_user_limit": 1000},
    "reserve 0": {"reserve": 0}, "reserve all": {"reserve": 10},
    "valid 1": {"coupon_valid_days": 1}, "valid 3650": {"coupon_valid_days": 3650},
    "lower-case t and z": {"opens_at": "2020-01-01t00:00:00z"},
    "leap day": {"opens_at": "2024-02-29T00:00:00Z"},
}


@pytest.mark.parametrize("fields", GOOD.values(), ids=GOOD.keys())
def test_policy__edges_of_the_ranges_are_taken(shared, fields):
    policy = expect(shared.post("/v1/policies", {**BASE, **fields}), 201)
    for name, value in fields.items():
        if name != "opens_at":
            assert policy[name] == value


BAD = {
    "id 0": ("id", 0), "id -1": ("id", -1), "id 2^53": ("id", 2 ** 53), "id text": ("id", "7"),
    "id fraction": ("id", 1.5), "id null": ("id", None), "id 2^64+1": ("id", 2 ** 64 + 1),
    "name empty": ("name", ""), "name 201": ("name", "x" * 201), "name number": ("name", 5),
    "name 201 emoji": ("name", "🎉" * 201), "name null": ("name", None),
    "discount text": ("discount", "10%"), "discount null": ("discount", None),
    "discount empty": ("discount", {}), "discount list": ("discount", []),
    "discount no type": ("discount", {"value": 5}),
    "discount no value": ("discount", {"type": "percent"}),
    "discount other type": ("discount", {"type": "Percent", "value": 5}),
    "discount unknown": ("discount", {"type": "percent", "value": 5, "x": 1}),
    "percent 0": ("discount", {"type": "percent", "value": 0}),
    "percent 101": ("discount", {"type": "percent", "value": 101}),
    "percent 1.5": ("discount", {"type": "percent", "value": 1.5}),
    "fixed 0": ("discount", {"type": "fixed", "value": 0}),
    "fixed 10^12+1": ("discount", {"type": "fixed", "value": 10 ** 12 + 1}),
    "total 0": ("total", 0), "total -1": ("total", -1), "total 10^8+1": ("total", 10 ** 8 + 1),
    "total text": ("total", "10"), "total null": ("total", None), "total true": ("total", True),
    "total 2^64": ("total", 2 ** 64), "total 10.5": ("total", 10.5),
    "limit 0": ("per_user_limit", 0), "limit 1001": ("per_user_limit", 1001),
    "limit text": ("per_user_limit", "1"), "reserve -1": ("reserve", -1),
    "reserve above total": ("reserve", 11), "valid 0": ("coupon_valid_days", 0),
    "valid 3651": ("coupon_valid_days", 3651), "valid text": ("coupon_valid_days", "30"),
    "opens_at number": ("opens_at", 1700000000), "opens_at empty": ("opens_at", ""),
    "opens_at date": ("opens_at", "2026-01-01"),
    "opens_at no zone": ("opens_at", "2026-01-01T00:00:00"),
    "opens_at no day": ("opens_at", "2026-02-30T00:00:00Z"),
    "opens_at 24 h": ("opens_at", "2026-02-01T24:00:00Z"),
    "opens_at month 13": ("opens_at", "2026-13-01T00:00:00Z"),
    "opens_at blank": ("opens_at", "2026-01-01 00:00:00Z"),
    "opens_at words": ("opens_at", "tomorrow"),
    "opens_at trailing": ("opens_at", "2026-01-01T00:00:00Zx"),
    "closes_at no day": ("closes_at", "2025-02-29T00:00:00Z"),
    "closes_at bool": ("closes_at", False),
    "expires no zone": ("coupon_expires_at", "2026-01-01T00:00:00"),
    "currency lower": ("currency", "krw"), "currency long": ("currency", "KRWX"),
    "currency unknown": ("currency", "ZZZ"), "currency number": ("currency", 410),
    "unknown field": ("colour", "red"), "field of the answer": ("state", "OPEN"),
    "field of a change": ("paused", True), "version": ("version", 1),
}


def as_made(server):
    """All policies, without the numbers that the claims of earlier tests may still move."""
    moving = {"state", "remaining", "pending", "issued", "version"}
    return [{name: value for name, value in policy.items() if name not in moving}
            for policy in expect(server.get("/v1/policies?limit=1000"), 200)["items"]]


@pytest.mark.refused("by the fields of the request alone")
@pytest.mark.parametrize("name,value", BAD.values(), ids=BAD.keys())
def test_policy__out_of_range_is_400_and_named(shared, name, value):
    before = as_made(shared)
    problem = expect_problem(shared.post("/v1/policies", {**BASE, name: value}), 400,
                             "INVALID_REQUEST")
    assert problem["field"].split(".")[0] == name
    assert as_made(shared) == before


@pytest.mark.refused("by the fields of the request alone")
@pytest.mark.parametrize("name", ["name", "discount", "total"])
def test_policy__missing_field_is_400_and_named(shared, name):
    body = {key: value for key, value in BASE.items() if key != name}
    problem = expect_problem(shared.post("/v1/policies", body), 400, "INVALID_REQUEST")
    assert problem["field"] == name


@pytest.mark.parametrize("opens_at,closes_at", [
    ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"),
    ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    ("2026-01-01T09:00:00+09:00", "2026-01-01T00:00:00Z"),
])
def test_policy__window_must_end_after_it_begins(shared, opens_at, closes_at):
    body = {**BASE, "opens_at": opens_at, "closes_at": closes_at}
    expect_problem(shared.post("/v1/policies", body), 400, "INVALID_REQUEST")


RAW = {
    "duplicate": b'{"name":"a","name":"b","discount":{"type":"percent","value":1},"total":1}',
    "duplicate inside": b'{"name":"a","discount":{"type":"percent","value":1,"value":2},"total":1}',
    "bad utf-8": b'{"name":"\xff","discount":{"type":"percent","value":1},"total":1}',
    "surrogate": b'{"name":"\\udc00","discount":{"type":"percent","value":1},"total":1}',
    "cut off": b'{"name":"a","discount":{"type":"percent","value":1},"total":1',
    "array": b"[]", "empty": b"", "exponent": b'{"total":1e2}', "deep": b'{"name":' * 12 + b"1" +
    b"}" * 12,
}


@pytest.mark.refused("by the fields of the request alone")
@pytest.mark.parametrize("body", RAW.values(), ids=RAW.keys())
def test_policy__broken_json_is_400(shared, body):
    before = as_made(shared)
    expect_problem(shared.post("/v1/policies", body), 400, "INVALID_REQUEST")
    assert as_made(shared) == before


def test_policy__body_limit_is_16_kib(shared):
    body = b'{"name":"a","discount":{"type":"percent","value":1},"total":1}'
    fits = body + b" " * (16384 - len(body))
    expect(shared.post("/v1/policies", fits), 201)
    expect_problem(shared.post("/v1/policies", fits + b" "), 413, "TOO_LARGE")


def test_policy__list_pages_through_all(server):
    created = [server.create(id=policy_id)["id"] for policy_id in (5, 3, 900, 7, 11, 4)]
    seen, after, pages = [], "", 0
    while True:
        page = expect(server.get(f"/v1/policies?limit=2{after}"), 200)
        assert set(page) == {"items", "next"} and len(page["items"]) <= 2
        seen += [policy["id"] for policy in page["items"]]
        pages += 1
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert seen == sorted(created)
    assert pages in (3, 4)
    assert expect(server.get("/v1/policies"), 200)["next"] is None
    assert expect(server.get("/v1/policies?limit=6"), 200)["items"][0] == server.policy(3)


def test_policy__empty_list(server):
    assert expect(server.get("/v1/policies"), 200) == {"items": [], "next": None}


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=",
                                   "limit=1&limit=2", "after=", "after=%00", "after=zz!", "nope=1",
                                   "limit=5&nope=1"])
def test_policy__bad_query_is_400(shared, query):
    expect_problem(shared.get(f"/v1/policies?{query}"), 400, "INVALID_REQUEST")


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_policy__unknown_id_is_404(shared, method):
    body = {"paused": True} if method == "PATCH" else None
    answer = shared.request(method, "/v1/policies/123456789", body)
    expect_problem(answer, 404, "POLICY_NOT_FOUND")


# --- changes while it lives ---


def test_policy__pause_and_resume(shared):
    policy = shared.create(total=5)
    paused = expect(shared.patch(policy["id"], paused=True), 200)
    assert (paused["state"], paused["paused"]) == ("PAUSED", True)
    assert expect(shared.patch(policy["id"], paused=True), 200)["state"] == "PAUSED"
    expect_problem(shared.claim(policy["id"], "u1"), 403, "PAUSED")
    resumed = expect(shared.patch(policy["id"], paused=False), 200)
    assert (resumed["state"], resumed["paused"]) == ("OPEN", False)
    assert shared.win(policy["id"], "u1")["seq"] == 1


def test_policy__total_raised_after_sold_out(shared):
    policy = shared.create(total=2)
    outcomes = shared.claims(policy["id"], [f"a{i}" for i in range(10)])
    assert tally(outcomes) == {(201, "ISSUED"): 2, (409, "SOLD_OUT"): 8}
    raised = expect(shared.patch(policy["id"], total=5), 200)
    assert (raised["total"], raised["remaining"], raised["state"]) == (5, 3, "OPEN")
    outcomes = shared.claims(policy["id"], [f"b{i}" for i in range(10)])
    assert tally(outcomes) == {(201, "ISSUED"): 3, (409, "SOLD_OUT"): 7}
    seqs = [row["seq"] for row in coupons(shared.database, policy["id"])]
    assert len(seqs) == len(set(seqs)) == 5


def test_policy__total_lowered_to_what_is_issued_and_not_below(shared):
    policy = shared.create(total=100)
    shared.claims(policy["id"], [f"u{i}" for i in range(10)])
    expect_problem(shared.patch(policy["id"], total=9), 409, "CONFLICT")
    assert shared.policy(policy["id"])["total"] == 100
    lowered = expect(shared.patch(policy["id"], total=12), 200)
    assert (lowered["total"], lowered["remaining"], lowered["issued"]) == (12, 2, 10)
    outcomes = shared.claims(policy["id"], [f"v{i}" for i in range(10)])
    assert tally(outcomes) == {(201, "ISSUED"): 2, (409, "SOLD_OUT"): 8}
    same = expect(shared.patch(policy["id"], total=12), 200)
    assert same["state"] == "SOLD_OUT"
    expect_problem(shared.patch(policy["id"], total=11), 409, "CONFLICT")


def test_policy__total_down_and_up_and_down_again(shared):
    policy = shared.create(total=10)
    shared.claims(policy["id"], ["a", "b", "c"])
    for total in (3, 8, 4, 9, 5, 5, 3, 6):
        shown = expect(shared.patch(policy["id"], total=total), 200)
        assert (shown["total"], shown["remaining"]) == (total, total - 3)
    outcomes = shared.claims(policy["id"], [f"x{i}" for i in range(20)])
    assert tally(outcomes) == {(201, "ISSUED"): 3, (409, "SOLD_OUT"): 17}


def test_policy__many_changes_keep_the_leases_few_enough(shared):
    """Every raise adds a lease; what is given back must still be found at the end of them."""
    policy = shared.create(total=1)
    for total in range(2, 150):
        expect(shared.patch(policy["id"], total=total), 200)
    for total in range(148, 0, -7):
        assert expect(shared.patch(policy["id"], total=total), 200)["remaining"] == total
    outcomes = shared.claims(policy["id"], [f"x{i}" for i in range(10)])
    assert tally(outcomes) == {(201, "ISSUED"): 1, (409, "SOLD_OUT"): 9}


def test_policy__total_lowered_at_once_over_many_leases(shared):
    """Stock that came back unit by unit, or was added so, can be taken away in one step."""
    policy = shared.create(total=1)
    for total in range(2, 102):
        expect(shared.patch(policy["id"], total=total), 200)
    assert expect(shared.patch(policy["id"], total=2), 200)["remaining"] == 2
    outcomes = shared.claims(policy["id"], [f"x{i}" for i in range(10)])
    assert tally(outcomes) == {(201, "ISSUED"): 2, (409, "SOLD_OUT"): 8}


def test_policy__total_lowered_after_many_cancels(shared):
    policy = shared.create(total=150)
    wins = [o.answer.json for o in shared.claims(policy["id"], [f"u{i}" for i in range(150)])]
    for index, won in enumerate(wins[:100]):
        expect(shared.cancel(won["coupon_id"]), 200)
        if index % 10 == 0:  # Somebody asks, so that the unit is leased by itself.
            wait_until(lambda: shared.claim(policy["id"], "asker").status != 409, "a unit")
            expect(shared.cancel(shared.claim(policy["id"], "asker").json["coupon_id"]), 200)
    wait_until(lambda: shared.policy(policy["id"])["remaining"] == 100, "all units back")
    assert expect(shared.patch(policy["id"], total=50), 200)["remaining"] == 0
    expect_problem(shared.claim(policy["id"], "late"), 409, "SOLD_OUT")


def test_policy__total_changed_during_a_rush_is_never_oversold(server):
    """Trap 2: changing and syncing stock while claims are pending makes more winners than stock."""
    policy = server.create(total=200)
    totals = iter([600, 300, 500, 260, 450, 1000, 400] * 20)
    answered = [0]
    last = [200]

    def on_answer(_outcome):
        answered[0] += 1
        if answered[0] % 100 == 0:
            total = next(totals)
            answer = server.patch(policy["id"], total=total)
            assert answer.status in (200, 409), answer
            if answer.status == 200:
                last[0] = total

    outcomes = server.storm((claim_bytes(policy["id"], f"u{i}") for i in range(3000)),
                            connections=64, on_answer=on_answer)
    wins = [o.answer.json["seq"] for o in outcomes if o.answer.status == 201]
    shown = server.policy(policy["id"])
    assert len(set(wins)) == len(wins) == shown["issued"] == len(
        coupons(server.database, policy["id"]))
    assert shown["total"] == last[0]
    assert shown["issued"] <= shown["total"]


@pytest.mark.parametrize("fields", [
    {"name": ""}, {"id": 5}, {"per_user_limit": 0}, {"discount": {"type": "fixed", "value": 0}},
    {"discount": {"type": "percent", "value": 101}}, {"discount": {"value": 1}},
    {"reserve": -1}, {"reserve": 11}, {"reserve": None}, {"total": 4, "reserve": 5},
    {"coupon_valid_days": 0}, {"state": "OPEN"}, {"total": 0},
    {"currency": "won"}, {"currency": "QQQ"}, {"coupon_expires_at": "soon"},
    {"total": 10 ** 8 + 1}, {"total": "5"}, {"total": None}, {"paused": 1}, {"paused": None},
    {"paused": "true"}, {"opens_at": "soon"}, {"closes_at": 5}, {"total": 20, "nope": 1},
    {"opens_at": "2030-01-02T00:00:00Z", "closes_at": "2030-01-01T00:00:00Z"},
])
def test_policy__bad_change_is_400_and_changes_nothing(shared, fields):
    policy = shared.create(total=10)
    expect_problem(shared.patch(policy["id"], **fields), 400, "INVALID_REQUEST")
    assert shared.policy(policy["id"]) == policy


def test_policy__everything_may_change_before_the_opening(shared):
    policy = shared.create(total=10, opens_at="2098-01-01T00:00:00Z")
    fields = {"name": "김하늘의 \"쿠폰\"", "discount": {"type": "fixed", "value": 5000},
              "per_user_limit": 3, "coupon_valid_days": 5, "currency": "KRW",
              "coupon_expires_at": "2098-02-01T00:00:00.000Z"}
    changed = expect(shared.patch(policy["id"], **fields), 200)
    assert {name: changed[name] for name in fields} == fields
    assert shared.policy(policy["id"]) == changed
    gone = {"coupon_valid_days": None, "currency": None, "coupon_expires_at": None}
    assert gone.items() <= expect(shared.patch(policy["id"], **gone), 200).items()
    expect_problem(shared.patch(policy["id"], coupon_expires_at="2097-01-01T00:00:00Z"), 400,
                   "INVALID_REQUEST")
    # The new limit holds from the opening on.
    expect(shared.patch(policy["id"], opens_at=None), 200)
    assert [shared.win(policy["id"], "u1")["nth"] for _ in range(3)] == [1, 2, 3]
    expect_problem(shared.claim(policy["id"], "u1"), 409, "LIMIT_REACHED")


@pytest.mark.parametrize("fields", [
    {"name": "x"}, {"discount": {"type": "fixed", "value": 5}}, {"per_user_limit": 2},
    {"coupon_valid_days": 5}, {"coupon_expires_at": "2099-01-01T00:00:00Z"}, {"currency": "USD"},
])
def test_policy__what_was_promised_stays_once_it_is_open(shared, fields):
    policy = shared.create(total=10)
    problem = expect_problem(shared.patch(policy["id"], **fields), 409, "CONFLICT")
    assert next(iter(fields)) in problem["detail"]
    assert shared.policy(policy["id"]) == policy
    # Nor when the opening is put off after somebody has won; only the name is nobody's coupon.
    shared.win(policy["id"], "u1")
    expect(shared.patch(policy["id"], opens_at="2098-01-01T00:00:00Z"), 200)
    answer = shared.patch(policy["id"], **fields)
    if "name" in fields:
        assert expect(answer, 200)["name"] == "x"
    else:
        expect_problem(answer, 409, "CONFLICT")


def test_policy__window_changed_live(shared):
    policy = shared.create(total=10)
    later = expect(shared.patch(policy["id"], opens_at="2098-01-01T00:00:00Z"), 200)
    assert later["state"] == "SCHEDULED"
    expect_problem(shared.patch(policy["id"], closes_at="2097-01-01T00:00:00Z"), 400,
                   "INVALID_REQUEST")
    both = expect(shared.patch(policy["id"], opens_at="2020-01-01T00:00:00Z",
                               closes_at="2021-01-01T00:00:00Z"), 200)
    assert both["state"] == "CLOSED"
    expect_problem(shared.claim(policy["id"], "u1"), 410, "CLOSED")
    # A window that has passed can be opened again: only DELETE is for good.
    again = expect(shared.patch(policy["id"], opens_at=None, closes_at=None), 200)
    assert (again["state"], again["opens_at"], again["closes_at"]) == ("OPEN", None, None)
    shared.win(policy["id"], "u1")


def test_policy__delete_closes_for_good_and_is_idempotent(shared):
    policy = shared.create(total=5)
    won = shared.win(policy["id"], "u1")
    first = expect(shared.request("DELETE", f"/v1/policies/{policy['id']}"), 200)
    assert first["state"] == "CLOSED" and first["closed_at"]
    second = expect(shared.request("DELETE", f"/v1/policies/{policy['id']}"), 200)
    assert without_version(second) == without_version(first)
    expect_problem(shared.claim(policy["id"], "u2"), 410, "CLOSED")
    for change in ({"paused": False}, {"total": 50}, {"closes_at": None}):
        expect_problem(shared.patch(policy["id"], **change), 409, "CONFLICT")
    # What was won stays.
    coupon = expect(shared.get(f"/v1/coupons/{won['coupon_id']}"), 200)
    assert coupon["state"] == "ISSUED"
    expect(shared.post(f"/v1/coupons/{won['coupon_id']}/redeem", {"order_id": "o"}), 200)


def test_policy__version_rises_with_changes_only(shared):
    policy = shared.create(total=5)
    raised = expect(shared.patch(policy["id"], total=6), 200)["version"]
    assert raised > policy["version"]
    shared.win(policy["id"], "u1")
    assert shared.policy(policy["id"])["version"] == raised


def test_policy__everything_survives_kill_9(server):
    made = [
        server.create(total=5, opens_at="2098-01-01T00:00:00Z"),
        server.create(total=5, limit=4, coupon_valid_days=9, closes_at="2099-01-01T00:00:00Z"),
        server.create(total=3, reserve=0, discount={"type": "fixed", "value": 5}),
    ]
    server.claims(made[2]["id"], ["a", "b", "c", "d"])
    expect(server.patch(made[0]["id"], paused=True), 200)
    expect(server.patch(made[1]["id"], total=9), 200)
    closed = server.create(total=2)
    expect(server.request("DELETE", f"/v1/policies/{closed['id']}"), 200)

    def listed():
        items = expect(server.get("/v1/policies"), 200)["items"]
        states = [item["state"] for item in items]
        are_written = not any(item["pending"] for item in items)
        return states == ["PAUSED", "OPEN", "SOLD_OUT", "CLOSED"] and are_written and items

    # A list may have the numbers of a moment ago.
    before = wait_until(listed, "every state")
    server.restart()
    after = wait_until(listed, "every state")
    assert [without_version(policy) for policy in after] == [
        without_version(policy) for policy in before]


def test_policy__is_durable_when_it_answers(server):
    for i in range(3):
        policy = server.create(total=5, name=f"round {i}")
        server.restart()
        assert server.policy(policy["id"])["name"] == f"round {i}"
        assert expect(server.patch(policy["id"], total=7), 200)["total"] == 7
        server.restart()
        assert server.policy(policy["id"])["total"] == 7


@pytest.mark.gate_local("a gate in Redis outlives its servers, and its leases with it")
def test_policy__goes_on_in_the_same_lease_after_a_restart(server):
    policy = server.create(total=10)
    assert [server.win(policy["id"], f"a{i}")["seq"] for i in range(3)] == [1, 2, 3]
    for start in (4, 6):
        server.restart()
        assert server.win(policy["id"], f"b{start}")["seq"] == start
        assert server.win(policy["id"], f"c{start}")["seq"] == start + 1
    assert len(rows(server.database, "SELECT * FROM lease")) == 1


def test_policy__reserve_is_leased_when_the_gate_has_sold_its_lease(shared):
    policy = shared.create(total=10, reserve=4)
    assert policy["remaining"] == 10
    won = set()

    def all_won():
        for outcome in shared.claims(policy["id"], [f"u{i}" for i in range(10)]):
            assert outcome.answer.status in (200, 201, 503), outcome.answer
            if outcome.answer.status != 503:
                won.add(outcome.answer.json["user"])
        return len(won) == 10

    wait_until(all_won, "the reserve")
    expect_problem(shared.claim(policy["id"], "late"), 409, "SOLD_OUT")


def unleased(server, policy):
    (row,) = rows(server.database, f"SELECT unleased FROM policy WHERE id = {policy['id']}")
    return row["unleased"]


def claim_all(server, policy, count):
    """Claims until so many more have won; what is kept back is on its way when the rest is sold."""
    won = set()

    def have_won():
        for outcome in server.claims(policy["id"], [f"all{i}" for i in range(count)]):
            assert outcome.answer.status in (200, 201, 202, 503), outcome.answer
            if outcome.answer.status != 503:
                won.add(outcome.answer.json["seq"])
        return len(won) == count

    wait_until(have_won, "every unit is won")
    wait_until(lambda: server.claim(policy["id"], "late").code == "SOLD_OUT", "it is sold out")


def test_policy__reserve_is_raised_and_lowered(shared):
    policy = shared.create(total=10)
    # Twice each: what is there already stays.
    for reserve, kept in ((4, 4), (4, 4), (7, 7), (1, 7), (1, 7), (0, 7), (5, 7)):
        changed = expect(shared.patch(policy["id"], reserve=reserve), 200)
        assert (changed["reserve"], changed["remaining"]) == (reserve, 10)
        assert unleased(shared, policy) == kept
    # With the total: new units are kept first, and what goes is not what is to be kept.
    for total, reserve, kept in ((14, 10, 11), (12, 9, 9), (9, 9, 9), (12, 2, 12), (12, 1, 12)):
        changed = expect(shared.patch(policy["id"], total=total, reserve=reserve), 200)
        assert (changed["total"], changed["reserve"], changed["remaining"]) == (total, reserve, total)
    assert expect(shared.patch(policy["id"], total=8), 200)["reserve"] == 1
    claim_all(shared, policy, 8)
    # The reserve is sold, too: saying once more what it is asks for nothing.
    assert expect(shared.patch(policy["id"], reserve=1), 200)["remaining"] == 0
    expect_problem(shared.patch(policy["id"], reserve=2), 409, "CONFLICT")
    assert expect(shared.patch(policy["id"], reserve=0), 200)["issued"] == 8


def test_policy__reserve_beyond_what_is_left_is_409_and_changes_nothing(shared):
    policy = shared.create(total=10, reserve=1)
    for user in range(6):
        shared.win(policy["id"], f"u{user}")
    wait_until(lambda: shared.policy(policy["id"])["issued"] == 6, "all are written")
    before = shared.policy(policy["id"])
    for fields, words in (
            ({"reserve": 5}, "reserve: 6 of 10 coupons are issued or pending; it cannot be 5"),
            ({"total": 8, "reserve": 3}, "reserve: 6 of 8 coupons"),
            ({"total": 5, "reserve": 3}, "total: 6 coupons are issued or pending")):
        problem = expect_problem(shared.patch(policy["id"], **fields), 409, "CONFLICT")
        assert problem["detail"].startswith(words)
        assert shared.policy(policy["id"]) == before
        assert unleased(shared, policy) == 1
    assert expect(shared.patch(policy["id"], reserve=3), 200)["remaining"] == 4
    assert unleased(shared, policy) == 3
    claim_all(shared, policy, 4)
    expect(shared.request("DELETE", f"/v1/policies/{policy['id']}"), 200)
    expect_problem(shared.patch(policy["id"], reserve=0), 409, "CONFLICT")


def test_policy__reserve_changed_during_a_rush_loses_and_adds_no_unit(shared):
    policy = shared.create(total=1000)
    changes = iter([{"reserve": 300}, {"reserve": 100}, {"total": 1200, "reserve": 600},
                    {"total": 1100, "reserve": 500}, {"reserve": 0}, {"total": 1000}] * 20)
    answered = [0]
    last = {"total": 1000}

    def on_answer(_outcome):
        answered[0] += 1
        if answered[0] % 50 == 0:
            change = next(changes)
            answer = shared.patch(policy["id"], **change)
            assert answer.status in (200, 409), answer
            if answer.status == 200:
                last.update(change)

    shared.storm((claim_bytes(policy["id"], f"u{i}") for i in range(900)), connections=32,
                 on_answer=on_answer)
    shown = shared.policy(policy["id"])
    assert "reserve" in last and last.items() <= shown.items()
    claim_all(shared, policy, shown["remaining"])
    wait_until(lambda: shared.policy(policy["id"])["issued"] == last["total"], "all are written")
    seqs = [row["seq"] for row in coupons(shared.database, policy["id"])]
    assert len(set(seqs)) == len(seqs) == last["total"]


def test_policy__sold_out_at_is_a_time_in_the_past(shared):
    policy = shared.create(total=1)
    before = now_rfc3339(-1)
    shared.win(policy["id"], "u1")
    problem = expect_problem(shared.status(policy["id"], "u2"), 404, "NO_CLAIM")
    assert problem["policy_state"] == "SOLD_OUT"
    assert before <= problem["sold_out_at"] <= now_rfc3339(1)


def test_policy__says_the_range_of_its_own_discount(shared):
    for kind, values, words in (("percent", (0, 101, -1), "from 1 to 100"),
                                ("fixed", (0, 10 ** 12 + 1), "from 1 to 1000000000000")):
        for value in values:
            answer = shared.post("/v1/policies", {**BASE, "discount": {"type": kind,
                                                                        "value": value}})
            problem = expect_problem(answer, 400, "INVALID_REQUEST")
            assert problem["detail"].endswith(words), problem


def errors_of(answer):
    """{field: message}; the first is the detail."""
    problem = expect_problem(answer, 400, "INVALID_REQUEST")
    first = problem["errors"][0]
    assert problem["field"] == first["field"]
    assert problem["detail"] == f"{first['field']}: {first['message']}"
    return {error["field"]: error["message"] for error in problem["errors"]}


def test_policies__all_wrong_fields_are_told_at_once(shared):
    """Of all kinds, and in the order in which they came."""
    bad = {"name": "", "discount": {"type": "gift", "value": "ten"}, "total": 0, "stranger": 1,
           "currency": "won", "opens_at": "soon"}
    errors = errors_of(shared.post("/v1/policies", bad))
    assert set(errors) == {"name", "discount.value", "discount.type", "total", "stranger",
                           "currency", "opens_at"}
    assert errors["total"].startswith("must be an integer from 1")
    # Rules between fields, together.
    good = {"name": "n", "discount": {"type": "percent", "value": 10}, "total": 5}
    late = {"opens_at": "2030-01-02T00:00:00Z", "closes_at": "2030-01-01T00:00:00Z",
            "coupon_expires_at": "2030-01-01T00:00:00Z", "reserve": 6}
    assert set(errors_of(shared.post("/v1/policies", {**good, **late}))) == {
        "closes_at", "coupon_expires_at", "reserve"}
    policy = shared.create(total=5)["id"]
    errors = errors_of(shared.request("PATCH", f"/v1/policies/{policy}",
                                      {"total": "many", "paused": 1}))
    assert set(errors) == {"total", "paused"}
    assert set(errors_of(shared.post(f"/v1/policies/{policy}/claims", {"who": "u", "user": ""}))) == {
        "who", "user"}
    # No more than can be read.
    many = {f"f{i}": 1 for i in range(100)}
    assert len(errors_of(shared.post("/v1/policies", many))) == 16
