"""A wall clock that tests move; the monotonic clock stays true."""

import os
import pathlib
import time

from harness import ROOT

FAKETIME = next((str(path) for pattern in ("lib/*/faketime/libfaketimeMT.so.1",
                                           "lib/faketime/libfaketimeMT.so.1")
                 for path in pathlib.Path("/usr").glob(pattern)), None)


class Clock:
    """The wall clock of a server under libfaketime."""

    def __init__(self, folder):
        self.file = pathlib.Path(folder) / "clock"
        self.set("+0")

    def environment(self):
        assert FAKETIME, f"libfaketime is missing: {ROOT}/scripts/setup test installs it"
        preload = os.environ.get("LD_PRELOAD", "")
        return {
            "LD_PRELOAD": f"{preload} {FAKETIME}".strip(),
            "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            # Else who waits for a time of the monotonic clock waits for one of the wall's.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    def set(self, text):
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text + "\n")
        fresh.rename(self.file)

    def forward(self, seconds):
        self.set(f"+{seconds}")

    def set_to(self, moment):
        """It goes on from that datetime."""
        self.set(f"{moment.timestamp() - time.time():+.3f}")
