"""A crew in the place of one server: two servers and two workers around a gate in Redis.

DIBS_TEST_GATE says which gate the servers under test have: local (the default) or redis. With redis,
the fixtures hand out a Crew wherever a test asks for a server; it is asked like one, and each
request goes to its two servers in turn. Winners wait for the ledger (`ack=ledger`), so that all
answers are those of a server that decides by itself.
"""

import itertools
import os

from harness import Server
from servers import Redis
from sharing import Worker
from wire import storm

GATE = os.environ.get("DIBS_TEST_GATE") or "local"
# Redis is never away here, only slow on a busy machine.
CONFIG = {"ack": "ledger", "ack_timeout": "30s", "gate_timeout": "10s"}


class _Shared:
    """The Redis of all crews; each has a database of its own."""

    redis = None
    numbers = itertools.count(1)

    @classmethod
    def url(cls):
        if cls.redis is None:
            # Nobody kills this one: nothing has to be on its disk.
            cls.redis = Redis(appendonly="no", settings={"databases": 4096}).start()
        return cls.redis.url(next(cls.numbers))


class Crew(Server):
    """Two servers, one of them in front, and their workers. What is about one process (its log, its
    signals) is about the one in front; `is_alone` sends all requests there, too."""

    def __init__(self, worker_count=2, is_alone=False, **options):
        options["config"] = {"gate": _Shared.url(), **CONFIG, **(options.get("config") or {})}
        super().__init__(**options)
        self.is_alone = is_alone
        others = {"config": self.config, "env": self.env, "binary": self.binary,
                  "database": self.database}
        # SQLite has one process only, which works as well.
        is_served = self.database.kind != "sqlite"
        self.second = None
        if is_served and not is_alone:
            self.second = Server(folder=self.folder / "second", arguments=self.arguments, **others)
        self.workers = [Worker(folder=self.folder / f"worker-{number}", **others)
                        for number in range(worker_count if is_served else 0)]
        self._turns = itertools.count()

    @property
    def others(self):
        return [*([self.second] if self.second else []), *self.workers]

    @property
    def address(self):
        """Where the next request goes."""
        if self.second and not self.is_alone and self.second.address and next(self._turns) % 2:
            return self.second.address
        return self._address

    @address.setter
    def address(self, address):
        self._address = address

    def storm(self, requests, **options):
        """Half of the connections go to each server."""
        addresses = [self._address]
        if self.second and not self.is_alone:
            addresses.append(self.second.address)
        return storm(addresses, requests, **options)

    def start(self):
        super().start()
        for other in self.others:
            other.spawn()
        for other in self.others:
            other.await_start()
        return self

    def kill(self):
        """kill -9 of all of them."""
        super().kill()
        for other in self.others:
            if other.process is not None:
                other.kill()

    def stop(self):
        super().stop()
        for other in self.others:
            other.stop()

    def check_log(self):
        super().check_log()
        for other in self.others:
            other.check_log()

    def log_text(self, lines_max=200):
        return super().log_text(lines_max) + "".join(
            other.log_text(lines_max) for other in self.others)

    def dispose(self):
        for other in self.others:
            other.dispose()
        super().dispose()


def new_server(**options):
    """A server of the kind that is under test."""
    if GATE == "redis":
        return Crew(**options)
    options.pop("is_alone", None)
    return Server(**options)
