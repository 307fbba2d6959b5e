"""The nemesis: a few of its runs, one of each variant; in a soak, as many as there are rounds, those
that failed once first. tests/fault/nemesis/README.md tells how to run it by hand."""

import os
import pathlib
import subprocess
import sys

from harness import BINARY, BUILD_DIR

RUN = pathlib.Path(__file__).parent / "nemesis" / "run"
JOBS = ["plain/postgres/100", "fallback/mysql/101", "ack/postgres/102", "kafka/mysql/33",
        "sentinel/postgres/104", "cluster/mysql/105"]
ROUNDS = int(os.environ.get("DIBS_TEST_ROUNDS") or 0)


def test_nemesis__random_faults_break_no_promise():
    which = ["--runs", str(6 * ROUNDS)] if ROUNDS else JOBS
    ended = subprocess.run(
        [sys.executable, str(RUN), "--at-once", "3", "--ready", "30", *which], check=False,
        env={**os.environ, "DIBS_BINARY": str(BINARY), "DIBS_BUILD_DIR": str(BUILD_DIR)})
    assert ended.returncode == 0, "a promise was broken: see above"
