"""Seeing inside: metrics, health, readiness."""

import re

import pytest

from crew import GATE
from harness import expect, expect_problem, wait_until, write_secret
from wire import Connection, encode

pytestmark = pytest.mark.one_server("a process tells of itself")

RESULTS = ["issued", "already_issued", "sold_out", "limit_reached", "blocked", "closed", "paused",
           "not_open"]


def claims_total(metrics, result):
    return metrics[f'dibs_claims_total{{result="{result}"}}']


def test_metrics__zeros_from_the_start(server):
    metrics = server.metrics()
    for result in RESULTS:
        assert claims_total(metrics, result) == 0, result
    assert metrics["dibs_http_connections"] >= 0
    assert any(name.startswith("dibs_build_info{") and value == 1
               for name, value in metrics.items())


@pytest.mark.gate_local("no gate is asked")
def test_metrics__format(server):
    policy = server.create(total=3)
    server.claims(policy["id"], ["a", "b", "c", "d"])
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    assert text.endswith("\n")
    helped, typed, current = set(), {}, None
    sample = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? '
                        r"([-+0-9.eE]+|\+Inf|NaN)")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in helped
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "histogram")
            typed[name] = kind
            current = name
        else:
            match = sample.fullmatch(line)
            assert match, line
            base = re.sub(r"_(bucket|sum|count)$", "", match[1]) \
                if typed.get(current) == "histogram" else match[1]
            assert base == current, f"{line} under {current}"
            if typed[current] == "counter":
                assert current.endswith("_total")
    assert helped == set(typed)


def test_metrics__count_each_result(server):
    policy = server.create(total=2, limit=1)["id"]
    server.win(policy, "u1")
    server.win(policy, "u2")
    server.claim(policy, "u1")
    server.claim(policy, "u3")
    limited = server.create(total=5, limit=2)["id"]
    for _ in range(3):
        server.claim(limited, "u1")
    expect(server.request("PUT", "/v1/users/bad", {"blocked": True}), 200)
    server.claim(limited, "bad")
    expect(server.patch(limited, paused=True), 200)
    server.claim(limited, "u2")
    expect(server.patch(limited, paused=False, opens_at="2099-01-01T00:00:00Z"), 200)
    server.claim(limited, "u2")
    expect(server.request("DELETE", f"/v1/policies/{limited}"), 200)
    server.claim(limited, "u2")
    wanted = {"issued": 4, "already_issued": 1, "sold_out": 1, "limit_reached": 1, "blocked": 1,
              "closed": 1, "paused": 1, "not_open": 1}
    wait_until(lambda: {result: claims_total(server.metrics(), result) for result in RESULTS}
               == wanted, "each is counted")


def test_metrics__policy_gauges(server):
    policy = server.create(total=10)["id"]
    server.claims(policy, ["a", "b", "c"])
    wanted = {f'dibs_policy_{name}{{policy="{policy}"}}': value for name, value in
              {"total": 10, "remaining": 7, "pending": 0, "issued": 3}.items()}
    # They may be those of a moment ago.
    wait_until(lambda: wanted.items() <= server.metrics().items(), "the numbers")


@pytest.mark.gate_local("no gate is asked")
def test_metrics__histograms_count_what_happened(server):
    policy = server.create(total=100)["id"]
    server.claims(policy, [f"u{i}" for i in range(50)])
    metrics = server.metrics()
    histograms = {name[:-6] for name in metrics if name.endswith("_count")} | {
        re.sub(r"_count\{.*", "", name) for name in metrics if "_count{" in name}
    for wanted in ("claim", "batch", "commit"):
        assert any(wanted in name for name in histograms), (wanted, histograms)
    for name, value in metrics.items():
        if name.endswith('_bucket{le="+Inf"}'):
            assert value == metrics[name.replace('_bucket{le="+Inf"}', "_count")]


@pytest.mark.gate_local("workers write the rows, and tell of them: test_redis_worker__is_watched")
def test_metrics__time_from_accept_to_row_is_of_each_row(server):
    policy = server.create(total=40)["id"]
    server.claims(policy, [f"u{i}" for i in range(50)])
    server.claims(policy, [f"u{i}" for i in range(10)])
    wait_until(lambda: server.metrics()["dibs_issue_lag_seconds_count"] == 40, "one per row")
    samples = server.metrics()
    counts = [samples[f'dibs_issue_lag_seconds_bucket{{le="{limit}"}}']
              for limit in ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "+Inf")]
    assert counts == sorted(counts) and counts[-1] == 40
    assert 0 <= samples["dibs_issue_lag_seconds_sum"] < 40 * 60


@pytest.mark.gate_local("no gate is asked")
def test_metrics__never_name_a_user(server):
    policy = server.create(total=10)["id"]
    server.claim(policy, "very-particular-user")
    server.claim(policy, "very-particular-user", key="very-particular-key")
    text = server.get("/metrics").body.decode()
    assert "very-particular" not in text
    labels = set(re.findall(r'[{,]([a-z_]+)="', text))
    assert not labels & {"user", "user_id", "key", "address", "coupon"}


@pytest.mark.gate_local("no gate is asked")
def test_metrics__are_made_once_a_second(server):
    """The count of requests would tell two texts from each other."""
    def scrape():
        return server.get("/metrics").body

    wait_until(lambda: scrape() == scrape(), "two scrapes within a second")
    before = server.metrics()["dibs_http_requests_total"]
    assert server.metrics()["dibs_http_requests_total"] == before + 1
    wait_until(lambda: f"dibs_http_requests_total {before:.0f}" not in scrape().decode(), "the next")


@pytest.mark.gate_local("no gate is asked")
def test_metrics__a_crowd_of_scrapes_is_answered(server):
    """On every loop, also those who come while a text is being made."""
    for path in ("/metrics", "/metrics?fresh=true"):
        outcomes = server.storm([encode("GET", path)] * 200)
        assert {outcome.answer.status for outcome in outcomes} == {200}
        assert all(b"dibs_up 1" in outcome.answer.body for outcome in outcomes)


@pytest.mark.gate_local("no gate is asked")
def test_metrics__on_a_listener_of_their_own(serve, tmp_path):
    token = "admin-token-0123456789abcdef"
    server = serve(config={"metrics_listen": "127.0.0.1:0",
                           "admin_token_file": write_secret(tmp_path, "admin", token)})
    server.admin_token = token
    aside = server.await_events("listening", 2)[1]["address"].rsplit(":", 1)
    with Connection((aside[0], int(aside[1]))) as connection:
        policy = server.create(total=3)["id"]
        assert server.claim(policy, "u1").status in (201, 202)

        def shows_it():
            shown = connection.request("GET", "/metrics").body.decode()
            return f'dibs_policy_total{{policy="{policy}"}} 3' in shown and re.search(
                r'(?m)^dibs_claims_total{result="(issued|accepted)"} 1$', shown)

        wait_until(shows_it, "the policy and its claim")
        assert connection.request("GET", "/readyz").json == {"ready": True}
        assert connection.request("GET", "/healthz").status == 200
        assert connection.request("GET", f"/v1/policies/{policy}").status == 404
    expect_problem(server.get("/metrics", token=False), 401, "UNAUTHORIZED")
    assert server.metrics()["dibs_up"] == 1


@pytest.mark.gate_local("no gate is asked")
def test_metrics__survive_many_policies(server):
    for _ in range(200):
        server.create(total=1)
    # They may be those of a moment ago.
    wait_until(lambda: sum(name.startswith("dibs_policy_total{") for name in server.metrics())
               == 200, "all of them")


def test_healthz(shared):
    assert expect(shared.get("/healthz"), 200) == {"status": "ok"}


def test_readyz__names_each_part(shared):
    body = expect(shared.get("/readyz"), 200)
    assert body["ready"] is True
    parts = {part["name"]: part for part in body["parts"]}
    assert parts["gate"]["kind"] == GATE
    assert parts["ledger"]["kind"] == shared.database.kind
    assert {"gate", "ledger", "relay"} <= set(parts)
    # A server may have come before the workers.
    wait_until(lambda: all(part["ready"] for part in shared.get("/readyz").json["parts"]), "all")


@pytest.mark.gate_local("no gate is asked")
def test_caching__live_answers_are_not_stored(shared):
    policy = shared.create(total=1)["id"]
    for answer in (shared.get("/healthz"), shared.get(f"/v1/policies/{policy}"),
                   shared.claim(policy, "u1"), shared.claim(policy, "u2"),
                   shared.status(policy, "u1")):
        assert "no-store" in answer.headers.get("cache-control", ""), answer


@pytest.mark.gate_local("no gate is asked")
def test_problem__details_are_sentences(shared):
    problem = expect_problem(shared.claim(123456789, "u1"), 404, "POLICY_NOT_FOUND")
    assert problem["detail"].endswith(".")
