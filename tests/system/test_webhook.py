"""What a shop's webhook hears of coupons: every change at least once, in order per policy, whoever
fails on the way."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from harness import ROOT, Server, expect, expect_problem, run_dibs, run_serve, wait_until
from ledger import coupons, rows
from receiver import SECRET, Receiver, free_port_receiver
from servers import Redis
from sharing import Sharing
from virtual_clock import Clock

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SUFFIXES = {"ISSUED": "issued", "REDEEMED": "redeemed", "CANCELLED": "cancelled", "VOID": "voided",
            "MERGED": "merged"}


@pytest.fixture(name="receiver")
def _receiver():
    with Receiver() as receiver:
        yield receiver


def waiting(database):
    return rows(database, "SELECT COUNT(*) AS n FROM outbox")[0]["n"]


def await_empty(database):
    wait_until(lambda: waiting(database) == 0, "the outbox is empty", 60)


def expected(database, policy):
    """The ids of the events that the ledger's rows stand for."""
    return {f"{policy}-{row['seq']}-{SUFFIXES[state]}" for row in coupons(database, policy)
            for state in {row["state"] if row["state"] in ("VOID", "MERGED") else "ISSUED",
                          row["state"]}}


def check_told(receiver, database, policy):
    """Every change of the policy's coupons was told, each after what came before it."""
    ids = receiver.ids(policy)
    assert set(ids) == expected(database, policy)
    issued = [int(id_.split("-")[1]) for id_ in ids if id_.endswith("-issued")]
    assert issued == sorted(issued)
    place = {id_: at for at, id_ in enumerate(ids)}
    for id_ in ids:
        coupon, _, kind = id_.rpartition("-")
        if kind in ("redeemed", "cancelled"):
            assert place[f"{coupon}-issued"] < place[id_], ids


def change_some(server, policy, seqs):
    for seq in seqs[::5]:
        expect(server.post(f"/v1/coupons/{policy}-{seq}/redeem", {"order_id": f"o{seq}"}), 200)
    for seq in seqs[1::5]:
        expect(server.cancel(f"{policy}-{seq}"), 200)


def url_of(server):
    return "http://{}:{}".format(*server.address)


def state_of(server):
    return expect(server.get("/v1/webhook"), 200)


# --- what is told ---

def test_webhook__what_it_says(receiver):
    with Server(config=receiver.config()) as server:
        policy = server.create(total=3, limit=2)["id"]
        first = expect(server.claim(policy, "u1", key="a", headers={"traceparent": TRACE}), 201)
        expect(server.claim(policy, "u1", key="b"), 201)
        expect(server.post(f"/v1/coupons/{policy}-1/redeem", {"order_id": "o1"}), 200)
        expect(server.cancel(f"{policy}-2"), 200)
        await_empty(server.database)
        check_told(receiver, server.database, policy)
        metrics = server.metrics()
        assert metrics['dibs_webhook_requests_total{result="delivered"}'] == 4
        assert metrics['dibs_events_disabled{sink="webhook"}'] == 0
        assert state_of(server) == {
            "url": receiver.url, "state": "OK", "failing_since": None, "reason": None, "waiting": 0,
            "oldest_at": None}
        assert SECRET not in server.log_text()
    assert receiver.ids(policy) == [f"{policy}-1-issued", f"{policy}-2-issued",
                                    f"{policy}-1-redeemed", f"{policy}-2-cancelled"]
    issued, _, redeemed, _ = receiver.told()[policy]
    assert issued["type"] == "dibs.coupon.issued" and issued["specversion"] == "1.0"
    assert issued["source"] == f"/dibs/policies/{policy}" and issued["traceparent"] == TRACE
    assert issued["datacontenttype"] == "application/json"
    assert issued["data"]["user"] == "u1" and issued["data"]["coupon_id"] == first["coupon_id"]
    assert redeemed["data"]["order_id"] == "o1" and redeemed["data"]["state"] == "REDEEMED"
    assert first["code"] not in json.dumps(receiver.events)


def test_webhook__wrong_settings_are_refused(tmp_path):
    url = f"sqlite:{tmp_path / 'dibs.db'}"
    for config, words in (
            ({"webhook": "https://shop.example/h"}, "webhook_secret: is missing"),
            ({"webhook": "https://shop.example/h", "webhook_secret": "x" * 40}, "openssl rand"),
            ({"webhook": "ftp://shop.example/h", "webhook_secret": SECRET}, "https://")):
        refused = run_serve(url, config=config)
        assert refused.returncode != 0 and words in refused.stderr, refused.stderr
        assert SECRET not in refused.stderr


def test_webhook__without_one_it_says_so(shared):
    for method, path, body in (("GET", "", None), ("POST", "/test", {}), ("POST", "/enable", {}),
                               ("POST", "/redeliver", {"since": "2026-11-15T12:00:00Z"})):
        problem = expect_problem(shared.request(method, "/v1/webhook" + path, body), 409, "CONFLICT")
        assert "webhook_secret_file" in problem["detail"]
    for body in ({}, {"since": "yesterday"}, {"since": "2026-11-15T12:00:00Z", "policy_id": 0}):
        expect_problem(shared.post("/v1/webhook/redeliver", body), 400, "INVALID_REQUEST")


def test_webhook__the_documented_receiver_verifies(tmp_path):
    """The few lines of docs/webhooks.md, as they stand there."""
    text = (ROOT / "docs/webhooks.md").read_text("utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    script = tmp_path / "hooks.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, "-u", str(script)], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.PIPE,
                          env={**os.environ, "WEBHOOK_SECRET": SECRET, "PORT": "0"}) as shop:
        try:
            port = int(re.search(r":(\d+)", shop.stdout.readline())[1])
            config = Receiver().config(webhook=f"http://127.0.0.1:{port}/hooks")
            with Server(config=config) as server:
                policy = server.create(total=3)["id"]
                server.win(policy, "u1")
                assert f"{policy}-1-issued" in shop.stdout.readline()
                await_empty(server.database)
            # Signed with another secret it is refused, and waits.
            other = "whsec_" + "A" * 32
            with Server(config=config | {"webhook_secret": other}) as server:
                policy = server.create(total=3)["id"]
                server.win(policy, "u1")
                wait_until(lambda: state_of(server)["state"] == "FAILING", "it is refused")
                assert "401" in state_of(server)["reason"] and waiting(server.database) == 1
        finally:
            shop.kill()


# --- whoever fails ---

def fails_in_every_way(server, receiver, clock, policies):
    """Claims and changes while the receiver fails, hangs, answers 500 for an hour and is killed, and
    the server is killed, too."""
    def some(turn):
        for policy in policies:
            won = [outcome.answer.json["seq"]
                   for outcome in server.claims(policy, [f"{turn}-{i}" for i in range(10)])]
            change_some(server, policy, sorted(won))

    some("calm")
    receiver.answers = 500
    some("500")
    wait_until(lambda: state_of(server)["state"] == "FAILING", "it is seen to fail")
    since = state_of(server)["failing_since"]
    for minutes in (20, 40, 60):
        tries = len(receiver.tries)
        clock.forward(minutes * 60)
        wait_until(lambda before=tries: len(receiver.tries) > before, "it is tried again")
    failing = state_of(server)
    assert failing["failing_since"] == since and failing["state"] == "FAILING"
    assert "500" in failing["reason"]
    receiver.answers = "hang"
    some("hang")
    wait_until(lambda: "no answer" in state_of(server)["reason"], "it hangs, and is not waited for")
    server.kill()
    server.start()
    receiver.stop()
    some("away")
    wait_until(lambda: "connect" in (state_of(server)["reason"] or ""), "nobody is there")
    receiver.answers = 204
    receiver.start()


# The other clock and a sanitizer do not get along.
@pytest.mark.heavy
def test_webhook__a_receiver_that_fails_loses_nothing(tmp_path):
    """For an hour, by the server's clock, and in order per policy."""
    clock = Clock(tmp_path)
    with Receiver() as receiver, \
            Server(config=receiver.config(webhook_timeout="1s"), env=clock.environment()) as server:
        policies = [server.create(total=1000)["id"] for _ in range(3)]
        fails_in_every_way(server, receiver, clock, policies)
        await_empty(server.database)
        for policy in policies:
            check_told(receiver, server.database, policy)
            assert len(receiver.ids(policy)) == 4 * 14
        wait_until(lambda: state_of(server)["state"] == "OK", "all is well again")
        assert {event["event"] for event in map(dict, server.events("events_go_on"))}


def test_webhook__a_refused_event_holds_up_only_its_policy(receiver):
    with Server(config=receiver.config()) as server:
        refused, other = (server.create(total=10)["id"] for _ in range(2))
        receiver.answers = lambda event: 422 if event["data"]["policy_id"] == refused else 204
        for user in ("a", "b"):
            server.win(refused, user)
            server.win(other, user)
        wait_until(lambda: len(receiver.ids(other)) == 2, "the other's are told")
        wait_until(lambda: state_of(server)["state"] == "FAILING", "it is told")
        assert f"{refused}-1-issued: it answers 422" in state_of(server)["reason"]
        server.win(other, "c")
        wait_until(lambda: len(receiver.ids(other)) == 3, "the other's go on")
        assert f"{refused}-2-issued" not in receiver.tries
        receiver.answers = 204
        await_empty(server.database)
        assert receiver.ids(refused) == [f"{refused}-1-issued", f"{refused}-2-issued"]


@pytest.mark.heavy
def test_webhook__what_fails_for_a_day_is_disabled_until_somebody_asks(tmp_path):
    clock = Clock(tmp_path)
    receiver = free_port_receiver()
    with Server(config=receiver.config(), env=clock.environment()) as server:
        policy = server.create(total=10)["id"]
        server.win(policy, "a")
        wait_until(lambda: state_of(server)["state"] == "FAILING", "it fails")
        clock.forward(25 * 3600)
        wait_until(lambda: server.metrics()['dibs_events_disabled{sink="webhook"}'] == 1,
                   "it is given up")
        state = state_of(server)
        assert state["state"] == "DISABLED" and "no answer" in state["reason"]
        assert state["waiting"] == 1
        ready = server.get("/readyz")
        part = next(part for part in ready.json["parts"] if part["name"] == "webhook")
        assert ready.status == 200 and not part["ready"] and "disabled" in part["detail"]
        url = url_of(server)
        failed = run_dibs("webhook", "test", "--url", url)
        assert failed.returncode == 1 and "no answer" in failed.stdout
        shown = run_dibs("webhook", "show", "--url", url)
        assert shown.returncode == 0 and "DISABLED" in shown.stdout
        with receiver:
            assert not receiver.ids(policy)
            tested = run_dibs("webhook", "test", "--url", url)
            assert tested.returncode == 0, tested
            assert any(id_.startswith("test-") for id_ in receiver.tries)
            await_empty(server.database)
            assert receiver.ids(policy) == [f"{policy}-1-issued"]
            wait_until(lambda: state_of(server)["state"] == "OK", "it goes on")


def test_webhook__all_secrets_sign(receiver):
    """While a shop changes from one to the other, it takes either."""
    fresh = "whsec_" + "B" * 40
    with Server(config=receiver.config(webhook_secret=f"{fresh} {SECRET}")) as server:
        policy = server.create(total=3)["id"]
        server.win(policy, "a")
        wait_until(lambda: len(receiver.ids(policy)) == 1, "it is told")
        receiver.secret = fresh
        server.win(policy, "b")
        wait_until(lambda: len(receiver.ids(policy)) == 2, "it is told")


# --- once more ---

def test_webhook__redelivers_by_time(receiver):
    with Server(config=receiver.config()) as server:
        kept, policy = (server.create(total=20)["id"] for _ in range(2))
        server.win(kept, "x")
        won = [server.win(policy, f"a{i}")["seq"] for i in range(10)]
        change_some(server, policy, won)
        await_empty(server.database)
        before = receiver.ids(policy)
        at = rows(server.database, f"SELECT MAX(issued_at) AS t FROM coupon "
                                   f"WHERE policy_id = {policy}")[0]["t"]
        receiver.events.clear()
        done = run_dibs("webhook", "redeliver", "--since", "2020-01-01T00:00:00Z", "--policy",
                        policy, "--url", url_of(server), "--json")
        assert done.returncode == 0 and json.loads(done.stdout) == {"events": len(before)}, done
        await_empty(server.database)
        check_told(receiver, server.database, policy)
        times = [event["time"] for event in receiver.told()[policy]]
        assert times == sorted(times) and not receiver.ids(kept)
        receiver.events.clear()
        # Of all policies, and only what came later.
        later = server.win(kept, "y")["coupon_id"]
        await_empty(server.database)
        receiver.events.clear()
        stamp = rows(server.database, f"SELECT issued_at AS t FROM coupon WHERE policy_id = {kept} "
                                      "AND seq = 2")[0]["t"]
        assert stamp >= at
        text = server.get(f"/v1/coupons/{later}").json["issued_at"]
        told = expect(server.post("/v1/webhook/redeliver", {"since": text}), 200)["events"]
        await_empty(server.database)
        ids = {event["id"] for event in receiver.events}
        assert f"{later}-issued" in ids and f"{kept}-1-issued" not in ids and told == len(ids)


# --- every gate and ledger ---

@pytest.mark.parametrize("ledger", ("postgres", "mysql", "sqlite"))
def test_webhook__a_shared_gate(tmp_path, ledger):
    """The workers deliver; one of them dies, and a server enables and redelivers."""
    with Redis() as redis, Receiver() as receiver, \
            Sharing(tmp_path, redis, ledger=ledger) as shop:
        config = receiver.config()
        server = shop.serve(**config)
        workers = [shop.work(**config) for _ in range(2)] if ledger != "sqlite" else []
        policy = server.create(total=200)["id"]
        receiver.answers = 500
        seqs = sorted(outcome.answer.json["seq"]
                      for outcome in server.claims(policy, [f"a{i}" for i in range(50)]))
        wait_until(lambda: len(coupons(shop.database, policy)) == 50, "they are issued")
        change_some(server, policy, seqs)
        wait_until(lambda: state_of(server)["state"] == "FAILING", "the server tells of it")
        for worker in workers[:1]:
            worker.signal(signal.SIGKILL)
            worker.wait()
        receiver.answers = 204
        expect(server.post("/v1/webhook/enable", {}), 200)
        await_empty(shop.database)
        check_told(receiver, shop.database, policy)
        receiver.events.clear()
        assert expect(server.post("/v1/webhook/redeliver", {"since": "2020-01-01T00:00:00Z"}),
                      200)["events"] == 70
        await_empty(shop.database)
        check_told(receiver, shop.database, policy)
