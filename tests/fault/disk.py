"""The failing disk (preload.c) as a switch."""

import pathlib
import shutil

from harness import BUILD_DIR

LIBRARY = BUILD_DIR / "tests/fault/dibs_fault_preload.so"


class Disk:
    """What preload.c does to files whose paths contain `match`, changed while their process runs:
    those of the ledger, unless told otherwise."""

    def __init__(self, folder, match="dibs.db", room=None):
        self.room = room
        self.control = pathlib.Path(folder) / "disk"
        self.match = match
        self.set("ok")

    def environment(self):
        assert LIBRARY.is_file(), f"{LIBRARY} is not there: build it with meson"
        room = {} if self.room is None else {"DIBS_TEST_PRELOAD_ROOM": str(self.room)}
        return {"LD_PRELOAD": str(LIBRARY), "DIBS_TEST_PRELOAD_MATCH": self.match,
                "DIBS_TEST_PRELOAD_CONTROL": str(self.control), **room}

    def environment_of_another(self):
        """For a process of a user who may not enter our folders."""
        copy = shutil.copy(LIBRARY, self.control.parent)
        return self.environment() | {"LD_PRELOAD": str(copy)}

    def set(self, word):
        fresh = self.control.with_suffix(".new")
        fresh.write_text(word + "\n")
        fresh.rename(self.control)
