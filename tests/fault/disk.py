"""The failing disk (preload.c) as a switch."""

import pathlib

from harness import BUILD_DIR

LIBRARY = BUILD_DIR / "tests/fault/dibs_fault_preload.so"


class Disk:
    """What preload.c does to the files of the ledger, changed while the server runs."""

    def __init__(self, folder):
        self.control = pathlib.Path(folder) / "disk"
        self.set("ok")

    def environment(self):
        assert LIBRARY.is_file(), f"{LIBRARY} is not there: build it with meson"
        return {"LD_PRELOAD": str(LIBRARY), "DIBS_TEST_PRELOAD_MATCH": "dibs.db",
                "DIBS_TEST_PRELOAD_CONTROL": str(self.control)}

    def set(self, word):
        fresh = self.control.with_suffix(".new")
        fresh.write_text(word + "\n")
        fresh.rename(self.control)
