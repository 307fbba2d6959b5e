"""A server that starts before its database: it waits and says so, up to start_timeout. What will not
pass by itself ends it at once."""

import pytest

from harness import Server, run_serve, wait_until
from ledger import ServedDatabase
from proxy import LOSE_REQUEST

# Requests of a start, in the order in which they are made, and what is logged when they fail: the
# schema, the mark of the writer, the key of the codes, what the gate is restored from. While that
# waits, the server listens.
STEPS = [(b"schema_migration", "start_waits"), (b"writer", "start_waits"),
         (b"secret", "start_waits"), (b"coupon", "restore_waits")]


@pytest.fixture
def starting(victim, proxy, databases, tmp_path):
    """A server that is not started yet, on a database whose way the test can cut."""
    database = ServedDatabase(victim)
    databases.append(database)
    database.url = proxy.url(database.url)
    server = Server(tmp_path, database=database, config={"ledger_timeout": "2s"})
    yield server
    server.dispose()


def test_database_start__waits_for_one_that_is_not_there_yet(starting, proxy):
    proxy.refuse()
    starting.spawn()
    waits = starting.await_log("start_waits")
    assert waits["level"] == "warn" and waits["start_timeout_s"] == "60", waits
    assert "connect" in waits["for"], waits
    proxy.admit()
    starting.await_start()
    assert starting.win(starting.create(total=1)["id"], "u1")["seq"] == 1
    starting.stop()


@pytest.mark.parametrize("step, event", STEPS)
def test_database_start__one_that_goes_away_in_between(starting, proxy, step, event):
    """A connection that breaks at any request of the start, and cannot be made again for a while."""
    starting.start()
    policy = starting.create(total=3)["id"]
    first = starting.win(policy, "u1")
    starting.stop()
    trap = proxy.trap(step, LOSE_REQUEST, shuts=True)
    at = len(starting.log)
    starting.spawn()
    trap.wait()
    starting.await_log(event, since=at)
    proxy.admit()
    starting.await_start()
    assert starting.claim(policy, "u1").json["code"] == first["code"]
    assert starting.win(policy, "u2")["seq"] == 2
    starting.stop()


def test_database_start__gives_up_after_start_timeout(starting, proxy, tmp_path):
    proxy.refuse()
    ended = run_serve(starting.database.url, "--start-timeout", "1s", folder=tmp_path)
    assert ended.returncode == 1, ended
    assert ended.stderr.count("event=start_waits") == 1, ended.stderr
    assert "given up after 1 s (start_timeout)" in ended.stderr.splitlines()[-1], ended.stderr
    ended = run_serve(starting.database.url, "--start-timeout", "0s", folder=tmp_path)
    assert ended.returncode == 1 and "start_waits" not in ended.stderr, ended


def test_database_start__a_signal_ends_the_wait_at_once(starting, proxy):
    """Also while a connection stands that says nothing."""
    starting.config["ledger_timeout"] = "60s"
    proxy.pause()
    starting.spawn()
    wait_until(lambda: proxy.links, "it connects")
    starting.stop()  # Which waits for 30 seconds.


def test_database_start__what_does_not_pass_ends_it_at_once(starting, tmp_path):
    missing = starting.database.url.replace(starting.database.name, "no_such_database")
    ended = run_serve(missing, folder=tmp_path)
    assert ended.returncode == 1 and "no_such_database" in ended.stderr, ended
    assert "start_waits" not in ended.stderr, ended.stderr
    starting.start()
    ended = run_serve(starting.database.url, "--ledger-timeout", "1s", folder=tmp_path)
    assert ended.returncode == 1 and "start_waits" not in ended.stderr, ended
    starting.stop()
