"""The lab: each design is what its page says, in a small storm."""

import json
import os
import pathlib
import subprocess

import pytest

LAB = pathlib.Path(os.environ["DIBS_BUILD_DIR"]) / "lab/dibs-lab"
ANOMALIES = ("oversold", "overtold", "unsold", "yes_without_row", "row_without_yes", "won_twice",
             "already_with_nothing", "overtaken")


def lab(*flags, only):
    """The figures of each design, by its name."""
    ended = subprocess.run([LAB, "--json", "--rounds", "1", "--only", ",".join(only), *flags],
                           capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    figures = {line["design"]: line for line in map(json.loads, ended.stdout.splitlines())}
    assert figures.keys() == set(only)
    return figures


def wrong(figures):
    return {name: figures[name] for name in ANOMALIES if figures[name]}


SMALL = ("--total", "60", "--users", "120", "--connections", "60", "--burst", "60")


def test_lab__designs_that_are_right():
    """Not how fast they are: only that nobody was told anything that is not so."""
    for name, figures in lab(*SMALL, "--duplicates", "30", "--lock-lease", "60000", "--lock-wait",
                             "60000", "--retries", "1000", only=[
            "update-where", "for-update", "optimistic", "redis-lock", "optimistic+lock", "lua",
            "dibs", "dibs-redis", "dibs-redis-ledger"]).items():
        assert not wrong(figures), (name, figures)
        assert figures["yes"] == figures["rows"] == 60, (name, figures)


def test_lab__a_second_press_burns_stock():
    for name, figures in lab(*SMALL, "--duplicates", "100", only=["decr-zset", "list-rpoplpush"]).items():
        assert figures["unsold"] > 0 and figures["rows"] == 60 - figures["unsold"], (name, figures)


def test_lab__losers_hear_that_they_have_one():
    for name, figures in lab(*SMALL, "--duplicates", "100",
                             only=["set-list", "hash-zset-nx", "zset-rank"]).items():
        assert figures["already_with_nothing"] > 0, (name, figures)


def test_lab__clocks_apart_make_winners_too_many():
    """Who is asked by the server whose clock is behind comes before those who have won."""
    figures = lab("--total", "300", "--users", "600", "--connections", "60", "--burst", "60", "--every",
                  "200", "--fronts", "2", "--clocks-apart", "-5000", only=["zset-rank"])["zset-rank"]
    assert figures["oversold"] > 0 and figures["rows"] == 300 + figures["oversold"], figures


def test_lab__a_sync_sells_what_is_pending_again():
    figures = lab("--total", "200", "--users", "1000", "--burst", "50", "--every", "100", "--duplicates",
                  "0", "--sync", "100", "--worker-pause", "300", "--worker-batch", "50",
                  only=["decr-zset"])["decr-zset"]
    assert figures["overtold"] > 0, figures


def test_lab__one_whom_the_database_refuses():
    found = lab(*SMALL, "--fault", "poison", "--total", "119", "--duplicates", "0",
                only=["decr-zset", "set-list", "lua"])
    assert found["set-list"]["yes_without_row"] == 1, found
    # It comes back to the head of the line again and again, and nobody behind it gets a row.
    assert found["decr-zset"]["yes_without_row"] > 1, found


@pytest.mark.parametrize("name", ["list-rpoplpush", "set-list"])
def test_lab__a_worker_that_dies_with_what_it_took(name):
    """With this seed it dies with the first that it has taken."""
    figures = lab(*SMALL, "--fault", "worker", "--seed", "300", "--duplicates", "0", only=[name])[name]
    assert figures["yes_without_row"] > 0, figures


def test_lab__a_broker_that_is_away():
    """What was handed to it is forgotten where errors are only logged; dibs sends it again."""
    found = lab("--total", "100", "--users", "200", "--burst", "20", "--every", "50", "--duplicates", "0",
                "--fault", "broker", only=["decr-kafka", "dibs-kafka"])
    assert found["decr-kafka"]["yes_without_row"] > 0, found
    assert not wrong(found["dibs-kafka"]) and found["dibs-kafka"]["rows"] == 100, found
