"""What one decision of the local gate costs, in instructions: the same however busy the machine is."""

import re
import subprocess

import pytest

from harness import BUILD_DIR

DECISIONS = 12800
# Mode of bench/gate, claims held before, instructions a decision may take: an eighth more than it
# does, as compilers and the C library of another machine differ by so much. Of 1,000 claims the
# table of users grows to fourteen times as many, and who wins pays for that.
LIMITS = [("win", 100_000, 280), ("repeat", 100_000, 250), ("sold_out", 100_000, 150),
          ("win", 1000, 340)]


@pytest.fixture(scope="module", name="program")
def built_program():
    """Linked with the gate as it is installed, which is not made by default."""
    subprocess.run(["ninja", "-C", BUILD_DIR, "bench/gate"], check=True, timeout=300,
                   stdout=subprocess.DEVNULL)
    return BUILD_DIR / "bench" / "gate"


@pytest.mark.parametrize("mode, held, limit", LIMITS)
def test_gate_cost__instructions_of_a_decision(mode, held, limit, program, tmp_path):
    out = tmp_path / "callgrind.out"
    subprocess.run(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}",
                    "--toggle-collect=gate_bench_decide*", program, mode, str(held),
                    str(DECISIONS)], check=True, timeout=300, stdout=subprocess.DEVNULL)
    total = int(re.search(r"^totals: (\d+)$", out.read_text(), re.M)[1])
    assert 50 < total / DECISIONS <= limit
