"""Rate limits per user and per address: off by default, exact when on."""

from harness import claim_bytes, expect_problem, tally

SLOWEST = "0.001"  # One in a thousand seconds: during a test the bucket does not refill.


def check_429(answer, limit):
    expect_problem(answer, 429, "RATE_LIMITED")
    assert int(answer.headers["retry-after"]) >= 1
    assert int(answer.headers["ratelimit-limit"]) == limit
    assert int(answer.headers["ratelimit-remaining"]) == 0
    assert int(answer.headers["ratelimit-reset"]) >= 1


def test_rate_limit__off_by_default(shared):
    policy = shared.create(total=1000, limit=1000)
    outcomes = shared.claims(policy["id"], ["u1"] * 300)
    assert tally(outcomes) == {(201, "ISSUED"): 300}
    assert "ratelimit-limit" not in outcomes[0].answer.headers


def test_rate_limit__per_user(serve):
    server = serve(config={"rate_limit_user": SLOWEST, "rate_limit_user_burst": 5})
    policy = server.create(total=100, limit=50)
    outcomes = server.claims(policy["id"], ["u1"] * 40)
    assert tally(outcomes) == {(201, "ISSUED"): 5, (429, "RATE_LIMITED"): 35}
    for outcome in outcomes:
        if outcome.answer.status == 429:
            check_429(outcome.answer, 5)
    # Another user is not touched by it, and what was refused took no stock.
    assert server.win(policy["id"], "u2")["seq"] == 6
    assert server.policy(policy["id"])["remaining"] == 94


def test_rate_limit__headers_count_down(serve):
    server = serve(config={"rate_limit_user": SLOWEST, "rate_limit_user_burst": 3})
    policy = server.create(total=100, limit=50)
    remaining = []
    for _ in range(3):
        answer = server.claim(policy["id"], "u1")
        assert answer.status == 201
        assert int(answer.headers["ratelimit-limit"]) == 3
        remaining.append(int(answer.headers["ratelimit-remaining"]))
    assert remaining == [2, 1, 0]
    check_429(server.claim(policy["id"], "u1"), 3)


def test_rate_limit__refills(serve):
    server = serve(config={"rate_limit_user": "50", "rate_limit_user_burst": 1})
    policy = server.create(total=100000, limit=1000)
    answers = [server.claim(policy["id"], "u1").status]
    while answers.count(201) < 5:
        answers.append(server.claim(policy["id"], "u1").status)
        assert len(answers) < 100000
    assert set(answers) <= {201, 429}


def test_rate_limit__per_address(serve):
    server = serve(config={"rate_limit_address": SLOWEST, "rate_limit_address_burst": 20})
    policy = server.create(total=100)
    outcomes = server.storm([claim_bytes(policy["id"], f"u{i}") for i in range(40)],
                            source="127.0.0.7")
    assert tally(outcomes) == {(201, "ISSUED"): 20, (429, "RATE_LIMITED"): 20}
    for outcome in outcomes:
        if outcome.answer.status == 429:
            check_429(outcome.answer, 20)
    # Another address has a bucket of its own.
    assert server.claim(policy["id"], "other", source="127.0.0.8").status == 201


def test_rate_limit__watching_over_the_server_is_never_limited(serve):
    server = serve(config={"rate_limit_address": SLOWEST, "rate_limit_address_burst": 2})
    for _ in range(5):
        assert server.get("/healthz").status == 200
        assert server.get("/readyz").status == 200
        assert server.get("/metrics").status == 200
