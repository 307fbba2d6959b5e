"""Claims that are wrong in themselves: 400 with the field's name, and nothing changed."""

import pytest

from harness import expect, expect_problem
from ledger import coupons
from wire import encode

BAD_USERS = {
    "empty": "", "blank": " ", "slash": "a/b", "129 bytes": "a" * 129, "dot": ".", "dots": "..",
    "newline": "a\nb", "nul": "a\0b", "blank at the start": " a", "blank at the end": "a ",
    "wide blank at the end": "a\u3000", "hard blank at the start": "\u00a0a", "delete": "a\x7fb",
    "c1 control": "a\u0085b", "right to left": "a\u202eb", "isolate": "a\u2066b",
    "line separator": "a\u2028b", "43 of three bytes": "김" * 43,
    "null": None, "true": True, "negative": -1, "fraction": 1.5, "list": ["u"],
    "object": {"id": "u"},
}


@pytest.mark.parametrize("user", BAD_USERS.values(), ids=BAD_USERS.keys())
def test_claim__bad_user_is_400_and_named(shared, user):
    policy = shared.create(total=1)
    problem = expect_problem(shared.claim(policy["id"], user), 400, "INVALID_REQUEST")
    assert problem["field"] == "user"
    assert coupons(shared.database, policy["id"]) == []


BAD_BODIES = {
    "empty": b"", "blank": b"  ", "not json": b"user=u1", "cut off": b'{"user":"u1"',
    "array": b'["u1"]', "text": b'"u1"', "null": b"null", "no user": b"{}",
    "unknown field": b'{"user":"u1","nth":2}', "duplicate": b'{"user":"u1","user":"u2"}',
    "duplicate escaped": b'{"user":"u1","\\u0075ser":"u2"}',
    "bad utf-8": b'{"user":"\xff"}', "overlong utf-8": b'{"user":"\xc1\xb5"}',
    "surrogate": b'{"user":"\\ud800"}', "trailing": b'{"user":"u1"} x',
    "two values": b'{"user":"u1"}{"user":"u2"}', "comment": b'{"user":"u1"/* */}',
    "trailing comma": b'{"user":"u1",}', "single quotes": b"{'user':'u1'}",
    "bom": b'\xef\xbb\xbf{"user":"u1"}', "nan": b'{"user":NaN}', "infinity": b'{"user":Infinity}',
    "leading zero": b'{"user":01}', "plus": b'{"user":+1}', "exponent": b'{"user":1e400}',
    "huge integer": b'{"user":' + b"9" * 70 + b"}", "control": b'{"user":"a\x01"}',
    "nul byte": b'{"user":"u1"}\0', "deep": b'{"user":' + b"[" * 20 + b"]" * 20 + b"}",
    "deeper": b"[" * 4000,
}


@pytest.mark.refused("by the fields of the request alone")
@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_claim__bad_body_is_400(shared, body):
    policy = shared.create(total=1)
    answer = shared.request("POST", f"/v1/policies/{policy['id']}/claims", body)
    expect_problem(answer, 400, "INVALID_REQUEST")
    assert coupons(shared.database, policy["id"]) == []


def test_claim__body_limit_is_4_kib(shared):
    policy = shared.create(total=3)
    path = f"/v1/policies/{policy['id']}/claims"
    base = b'{"user":"u1"}'
    fits = base + b" " * (4096 - len(base))
    assert shared.request("POST", path, fits).status == 201
    expect_problem(shared.request("POST", path, fits + b" "), 413, "TOO_LARGE")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded",
                                        "application/jsonp", "application/json; charset=latin1",
                                        None])
def test_claim__other_media_types_are_415(shared, media_type):
    policy = shared.create(total=1)
    answer = shared.post(f"/v1/policies/{policy['id']}/claims", {"user": "u1"},
                         headers={"Content-Type": media_type})
    expect_problem(answer, 415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("media_type", ["application/json", "application/json; charset=utf-8",
                                        "Application/JSON;charset=UTF-8"])
def test_claim__json_media_types_are_taken(shared, media_type):
    policy = shared.create(total=1)
    answer = shared.post(f"/v1/policies/{policy['id']}/claims", {"user": "u1"},
                         headers={"Content-Type": media_type})
    assert answer.status == 201, answer


@pytest.mark.parametrize("policy_id", ["0", "-1", "abc", "1.5", "9007199254740992", "1e3", "%00",
                                       "01", "99999999999999999999999", "+1"])
def test_claim__impossible_policy_ids_are_no_policy(shared, policy_id):
    answer = shared.claim(policy_id, "u1")
    assert (answer.status, answer.code) in [(404, "POLICY_NOT_FOUND"), (400, "INVALID_REQUEST"),
                                            (404, "NOT_FOUND")], answer


def test_claim__unknown_policy_is_404(shared):
    expect_problem(shared.claim(9007199254740991, "u1"), 404, "POLICY_NOT_FOUND")


def test_claim__escaped_path_and_escaped_json_mean_the_same_user(shared):
    policy = shared.create(total=3)
    path = f"/v1/policies/{policy['id']}/claims"
    first = expect(shared.request("POST", path, b'{"user":"\\u0061b"}'), 201)
    assert first["user"] == "ab"
    assert expect(shared.get(f"{path}/%61b"), 200)["seq"] == first["seq"]


def test_claim__query_on_a_claim_is_not_misread(shared):
    policy = shared.create(total=3)
    with shared.connect() as connection:
        connection.send(encode("POST", f"/v1/policies/{policy['id']}/claims?user=evil",
                               {"user": "u1"}), "POST")
        answer = connection.receive()
    if answer.status == 201:
        assert answer.json["user"] == "u1"
    else:
        expect_problem(answer, 400, "INVALID_REQUEST")
