"""A shop whose servers share a gate in Redis: servers, workers and the ledger between them.

    with Sharing(tmp_path, redis) as shop:          # on PostgreSQL
        one, two = shop.serve(), shop.serve(fallback="ledger")
        shop.work()

    with Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve()                       # which works as well
"""

import contextlib
import pathlib

from harness import START_TIMEOUT_S, Server, expect_problem, wait_until
from ledger import ServedDatabase, SqliteDatabase, audit, coupons, shared_database


class Worker(Server):
    """One `dibs worker`."""

    def command(self):
        return [*self.wrapper, str(self.binary), "worker", "--ledger", self.database.url,
                *self.arguments]

    def await_start(self):
        self.await_log("working", START_TIMEOUT_S)
        if "worker_listen" in self.config:
            host, port = self.await_log("listening")["address"].rsplit(":", 1)
            self.address = (host, int(port))
        return self


class Sharing:
    """Everything around one Redis and one ledger; stopped, judged and audited at its end."""

    def __init__(self, folder, redis, ledger="postgres", database_server=None):
        self.folder = pathlib.Path(folder)
        self.redis = redis
        self.ledger = ledger
        self.database_server = database_server  # None: that of all tests
        self.database = None
        self.processes = []
        self._ends = contextlib.ExitStack()

    def __enter__(self):
        if self.ledger == "sqlite":
            self.database = SqliteDatabase(self.folder / "dibs.db")
        else:
            self.database = (ServedDatabase(self.database_server) if self.database_server
                             else shared_database(self.ledger))
            self._ends.callback(self.database.discard)
            # A test that failed may have left it standing still.
            self._ends.callback(self.database.server.resume)
        return self

    def _spawn(self, kind, gate, env=None, **config):
        # Where a test does not break Redis, it is only slow at times.
        config = {"gate": gate or self.redis.url(), "gate_timeout": "10s", **config}
        process = kind(folder=self.folder / f"process-{len(self.processes)}", config=config,
                       database=self.database, env=env)
        self.processes.append(process)
        return process.spawn()

    def serve(self, gate=None, **config):
        """A server; `gate` when it reaches Redis by another way."""
        return self._spawn(Server, gate, **config).await_start()

    def spawn_server(self, **config):
        """One that may be gone or stand still before it listens."""
        return self._spawn(Server, None, **config)

    def spawn_worker(self, **config):
        """The same of a worker."""
        return self._spawn(Worker, None, **config)

    def work(self, gate=None, **config):
        """A worker; one with a fault point may be there before it says that it works."""
        worker = self._spawn(Worker, gate, **config)
        return worker if "fault" in config else worker.await_start()

    def drained(self, policy_id):
        """Whether nothing is pending in Redis."""
        with self.redis.client() as client:
            return client.zcard(f"COUPON:POLICY:{{{policy_id}}}:PENDING") == 0

    def await_drained(self, policy_id):
        wait_until(lambda: self.drained(policy_id), "what is pending is written", 30)

    def await_sold_out(self, server, policy_id):
        """Waits until whoever comes is told so; stock may be on its way as long as that is not known."""
        answer = wait_until(lambda: next((a for a in [server.claim(policy_id, "late")]
                                          if a.status != 503), None), "an answer", 30)
        expect_problem(answer, 409, "SOLD_OUT")

    def holders(self, policy_id):
        """Who has which seq in the ledger, of the coupons that count."""
        return {row["user_id"]: row["seq"] for row in coupons(self.database, policy_id)
                if row["state"] in ("ISSUED", "REDEEMED")}

    def __exit__(self, kind, error, trace):
        try:
            for process in self.processes:
                if kind is not None:
                    print(process.log_text())
                elif process.process is not None:
                    assert process.alive, f"it died\n{process.log_text()}"
                    process.stop()
                    process.check_log()
            if kind is None:
                audit(self.database)
        finally:
            for process in self.processes:
                process.dispose()
            self._ends.close()
