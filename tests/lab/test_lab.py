"""The lab: each design is what its page says, in a small storm.

What needs a race is provoked: by the seeded pauses between two commands, by one connection that
presses in a known order, by clocks that are set, or by a kill at a certain step.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from servers import Postgres, Redis  # noqa: E402  pylint: disable=wrong-import-position

LAB = pathlib.Path(os.environ["DIBS_BUILD_DIR"]) / "lab/dibs-lab"
ROUNDS = max(1, int(os.environ.get("DIBS_TEST_ROUNDS") or 1))
SMALL = ("--total", "60", "--users", "120", "--connections", "60", "--burst", "60")
# Press by press, in an order that the seed decides.
IN_ORDER = ("--total", "60", "--users", "120", "--connections", "1", "--burst", "0", "--duplicates", "100")
ANOMALIES = re.findall(r"(?m)^    X\((\w+), ", (ROOT / "lab/anomalies.h").read_text("utf-8"))
DIBS = ("dibs", "dibs-redis", "dibs-redis-ledger")


@pytest.fixture(name="database", scope="module")
def _database():
    with Postgres(settings={"max_connections": 200}) as server:
        yield server.create_database("lab")


def run_lab(*flags):
    return subprocess.run([LAB, *flags], capture_output=True, text=True, timeout=600, check=False)


def runs(database, *flags, only):
    """Each run, as the lab prints it."""
    ended = run_lab("--json", "--postgres", database, "--only", ",".join(only), *flags)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def lab(database, *flags, only):
    """The figures of each design, by its name, or by scenario and name where there are more."""
    found = runs(database, *flags, only=only)
    if len({one["scenario"] for one in found}) > 1:
        return {(one["scenario"], one["design"]): one for one in found}
    assert {one["design"] for one in found} == set(only)
    return {one["design"]: one for one in found}


def wrong(figures):
    return {name: figures[name] for name in ANOMALIES if figures[name]}


def assert_right(found, *keys):
    for key in keys:
        assert not wrong(found[key]), (key, wrong(found[key]))


def test_lab__designs_that_are_right_are_reported_right(tmp_path):
    """With servers of its own, all in one table, picture and page."""
    right = ["update-where", "for-update", "optimistic-0", "redis-lock", "optimistic+lock", "lua", *DIBS]
    page, picture = tmp_path / "page.html", tmp_path / "picture.svg"
    ended = run_lab(*SMALL, "--duplicates", "30", "--lock-lease", "60000", "--lock-wait", "60000",
                    "--retries", "1000", "--only", ",".join([*right, "decr-zset"]),
                    "--report", page, "--picture", picture)
    assert ended.returncode == 0, ended.stderr
    table, whole = ended.stdout.split("All of it")
    verdicts = dict(re.findall(r"(?m)^(\S+) .* \d+  ([a-z].*)$", table))
    assert verdicts == dict.fromkeys(right, "right") | {"decr-zset": verdicts["decr-zset"]}
    assert "burnt" in verdicts["decr-zset"]
    assert re.findall(r"(?m)^(\S+) .* right$", whole) == right
    text = page.read_text("utf-8")
    assert set(re.findall(r"<h3>(\S+) ", text)) == {*right, "decr-zset"}
    assert "DECR takes a unit before anything looks at the user" in text
    assert "color-scheme:dark" in text
    assert not re.search(r"(?i)<script|<link|\bsrc=|https?://|url\(|@import", text), "it loads something"
    drawn = xml.etree.ElementTree.parse(picture).getroot()
    words = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {*right, "decr-zset"} <= set(words) and words.count("✓") == len(right)


def test_lab__a_second_press_burns_stock(database):
    for name, figures in lab(database, *IN_ORDER, "--worker-pause", "2000",
                             only=["decr-zset", "list-rpoplpush"]).items():
        assert figures["burnt"] > 0 and figures["unsold"] == 0, (name, figures)
        assert figures["rows"] == 60 - figures["burnt"], (name, figures)


def test_lab__losers_hear_that_they_have_one(database):
    found = lab(database, *IN_ORDER, only=["set-list", "hash-zset-nx", "zset-rank", "update-where", "lua"])
    for name in ("set-list", "hash-zset-nx", "zset-rank"):
        assert found[name]["already_with_nothing"] > 0, found[name]
    # Where nobody else presses, they are right in all else; so are these.
    assert wrong(found["set-list"]).keys() == {"already_with_nothing"}
    assert_right(found, "update-where", "lua")


def test_lab__held_up_between_two_commands(database):
    """Races, provoked by pauses; the right ones are slower, and right."""
    found = lab(database, "--scenario", "held-up", *SMALL, "--burst", "120", "--connections", "120",
                "--duplicates", "0", "--people-retry", "0",
                only=["update-where", "optimistic-0", "redis-lock", "set-list", "lua"])
    assert found["set-list"]["unsold"] > 0
    assert found["optimistic-0"]["sent_away"] > 0 and found["optimistic-0"]["oversold"] == 0
    assert found["redis-lock"]["oversold"] > 0 or found["redis-lock"]["sent_away"] > 0
    assert_right(found, "update-where", "lua")


def test_lab__a_lock_that_runs_out_lets_two_in(database):
    """Everybody waits long enough, but no one is done within the lease."""
    found = lab(database, *SMALL, "--duplicates", "0", "--pause", "20", "--lock-lease", "1",
                "--lock-wait", "60000", "--retries", "1000", only=["redis-lock", "optimistic+lock"])
    assert found["redis-lock"]["oversold"] > 0, found
    assert found["optimistic+lock"]["retries"] > 0, "the version was never needed"
    assert_right(found, "optimistic+lock")


def test_lab__a_lock_that_is_not_waited_for(database):
    (figures,) = runs(database, *SMALL, "--duplicates", "0", "--pause", "20", "--lock-wait", "0",
                      "--people-retry", "0", only=["redis-lock"])
    assert figures["lock_timeouts"] == figures["sent_away"] > 0, figures


def test_lab__clocks_apart_make_winners_too_many(database):
    """Who is asked by the server whose clock is behind comes before those who have won."""
    found = lab(database, "--scenario", "clocks", "--total", "100", "--users", "200", "--connections", "60",
                "--burst", "50", only=["hash-zset-nx", "zset-rank", "lua", "dibs-redis"])
    assert found["zset-rank"]["oversold"] > 0
    assert found["zset-rank"]["rows"] == 100 + found["zset-rank"]["oversold"]
    assert found["hash-zset-nx"]["overtold"] > 0 and found["hash-zset-nx"]["oversold"] == 0
    assert_right(found, "lua", "dibs-redis")


def test_lab__a_sync_sells_what_is_pending_again(database):
    """It comes while winners are pending, as it may; without it there is nothing to say."""
    found = lab(database, "--scenario", "sync", *SMALL, "--users", "200", "--burst", "20",
                "--every", "300", "--worker-pause", "10000", only=["decr-zset+sync"])
    assert found["decr-zset+sync"]["overtold"] > 0
    (figures,) = runs(database, "--fault", "none", *SMALL, "--duplicates", "0", "--connections", "1",
                      only=["decr-zset"])
    assert not wrong(figures), figures


def test_lab__keys_that_expire_let_the_same_user_win_again(database):
    found = lab(database, "--scenario", "later", "--total", "40", "--users", "80", "--burst", "80",
                only=["hash-zset-nx", "lua"])
    assert found["hash-zset-nx"]["won_twice"] > 0
    assert_right(found, "lua")


def test_lab__one_whom_the_database_refuses(database):
    found = lab(database, "--scenario", "poison", *IN_ORDER, "--duplicates", "0",
                only=["decr-zset", "set-list", "list-rpoplpush", "lua", *DIBS])
    for name in ("set-list", "list-rpoplpush", "lua"):
        assert found[name]["yes_without_row"] == 1, found[name]
    # It comes back to the head of the line again and again, and nobody behind it gets a row.
    assert found["decr-zset"]["yes_without_row"] > 1
    # Whoever is told after the row hears of the refusal; told before, they are told why, and either way the
    # unit is somebody else's.
    assert_right(found, "dibs", "dibs-redis-ledger")
    dibs = found["dibs-redis"]
    assert dibs["taken_back"] == 1 and dibs["yes_without_row"] == 0 and dibs["oversold"] == 0, dibs


def test_lab__processes_that_die_between_two_commands(database):
    found = lab(database, "--scenario", "worker,server", *SMALL,
                only=["update-where", "redis-lock", "decr-zset", "set-list", "list-rpoplpush"])
    for name in ("set-list", "list-rpoplpush"):
        assert found["worker", name]["yes_without_row"] > 0, found["worker", name]
    # INSERT, then ZREM: whatever is done twice is refused once.
    assert_right(found, ("worker", "decr-zset"), ("server", "update-where"))
    for name in ("redis-lock", "decr-zset", "list-rpoplpush"):
        figures = found["server", name]
        assert figures["rows"] < 60 and figures["unsold"] + figures["burnt"] > 0, figures


def test_lab__a_promise_that_is_not_kept_is_said(database, tmp_path):
    """By a dibs that answers sooner than it was told to."""
    hasty = tmp_path / "dibs"
    hasty.write_text('#!/bin/bash\nfor word; do\n  [ "$before" = --ack ] && word=gate\n  words+=("$word")\n'
                     f'  before=$word\ndone\nexec {LAB.parent.parent / "dibs"} "${{words[@]}}"\n', "utf-8")
    hasty.chmod(0o755)
    flags = ("--promised", "--scenario", "poison", "--rounds", "1", "--postgres", database, *SMALL,
             "--only", "dibs-redis-ledger")
    kept = run_lab(*flags)
    assert kept.returncode == 0 and "1 runs with faults: every promise is kept" in kept.stderr, kept.stderr
    broken = run_lab(*flags, "--dibs", hasty)
    assert broken.returncode == 3, broken.stderr
    assert "broken: dibs-redis-ledger, --scenario poison --seed 1: " in broken.stderr
    assert "a promise is BROKEN" in broken.stderr
    shutil.rmtree(re.search(r"what the servers wrote is in (\S+)", broken.stderr)[1])


def test_lab__references_keep_what_their_settings_promise(database):
    """A fault in each round, and of everybody only those that they promise to survive. Fifty seeds of it:
    scripts/test --rounds 50 lab."""
    found = runs(database, "--promised", "--rounds", str(4 * ROUNDS), "--seed", "3", *SMALL,
                 only=["update-where", "lua", *DIBS])
    assert {one["seed"] for one in found} == set(range(3, 3 + 4 * ROUNDS))
    for figures in found:
        assert not wrong(figures), (figures, wrong(figures))
        assert figures["rows"] == 60, figures
    survived = {name: {one["scenario"] for one in found if one["design"] == name}
                for name in ("update-where", "lua", *DIBS)}
    if ROUNDS == 1:
        assert survived == {"update-where": set(), "dibs": {"server", "poison"},
                            "lua": {"worker", "server", "redis-always", "clocks"},
                            "dibs-redis": {"worker", "server", "redis-always", "clocks"},
                            "dibs-redis-ledger": {"worker", "server", "redis", "redis-always"}}


def test_lab__a_redis_that_has_answered_what_it_had_not_written(database):
    """Up to two seconds of it; with ack=ledger nobody was told before it was in the database."""
    found = lab(database, "--scenario", "redis", *SMALL, only=["lua", "list-rpoplpush", "dibs-redis-ledger"])
    for name in ("lua", "list-rpoplpush"):
        assert found[name]["yes_without_row"] + found[name]["overtold"] + found[name]["burnt"] + \
            found[name]["won_twice"] > 0, found[name]
    assert_right(found, "dibs-redis-ledger")


def test_lab__four_policies_at_once(database):
    found = lab(database, "--shape", "four", "--total", "20", "--users", "60", "--duplicates", "0",
                only=["update-where", "lua", "dibs"])
    assert_right(found, *found)
    for figures in found.values():
        assert (figures["presses"], figures["yes"], figures["rows"]) == (240, 80, 80), figures


def test_lab__a_database_that_is_far_away(database):
    """Each of the four statements of a claim waits for it."""
    (figures,) = runs(database, "--total", "8", "--users", "10", "--db-latency", "20", "--duplicates", "0",
                      only=["for-update"])
    assert not wrong(figures) and figures["p50_ms"] >= 4 * 20, figures


def test_lab__a_broker_that_is_away(database):
    """What was handed to it is forgotten where errors are only logged; dibs sends it again."""
    found = lab(database, "--scenario", "broker", "--total", "100", "--users", "200", "--burst", "20",
                "--every", "250", only=["decr-kafka", "dibs-kafka"])
    # How much the broker had taken before it was killed, the machine decides.
    assert found["decr-kafka"]["yes_without_row"] > 0, found
    assert_right(found, "dibs-kafka")
    assert found["dibs-kafka"]["rows"] == 100, found


def test_lab__somebody_elses_redis_has_to_be_empty(database):
    with Redis() as redis:
        address = redis.url().removeprefix("redis://")
        flags = ("--redis", address, "--postgres", database, *SMALL, "--only", "lua", "--json")
        with redis.client() as client:
            client.set("theirs", "1")
            ended = run_lab(*flags)
            assert ended.returncode == 1 and "not empty" in ended.stderr
            assert client.get("theirs") == b"1"
            client.delete("theirs")
            ended = run_lab(*flags)
            assert ended.returncode == 0 and not wrong(json.loads(ended.stdout)), ended.stderr
            assert client.dbsize() == 0


@pytest.mark.parametrize("flags", [["--only", "nobody"], ["--scenario", "rush,none"], ["--total", "0"],
                                   ["--fault", "earthquake"], ["--report"], ["--total"], ["words"]])
def test_lab__what_it_does_not_know_is_refused(flags):
    ended = run_lab(*flags)
    assert ended.returncode == 2 and f"value that it takes: {flags[0]}" in ended.stderr


def test_lab__each_design_is_a_page_that_begins_with_its_commands():
    files = [file for file in (ROOT / "lab/strategies").glob("*.c") if file.name != "strategies.c"]
    assert len(files) >= 12
    for file in files:
        lines = file.read_text("utf-8").splitlines()
        assert len(lines) <= 150, file
        assert re.match(rf"/\* {file.name}: .*(;|:)", lines[0]), (file, lines[0])
        assert '.commands' in "\n".join(lines), file
