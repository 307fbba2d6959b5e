"""The harness of the system tests."""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / name) for name in ("system", ".")]
