"""What can be done to a rig: for each kind of step how it begins and how it ends."""

import contextlib
import threading
import time

from harness import wait_until
from proxy import ANSWERS, REQUESTS

from .rig import heal_way
from .schedule import show

SESSIONS = {
    "postgres": "SELECT pid AS id FROM pg_stat_activity WHERE datname = %s"
                " AND pid <> pg_backend_pid()",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = %s"
             " AND id <> connection_id()",
}
LOCKS = {
    "policy": "SELECT id FROM policy WHERE id = %s FOR UPDATE",
    "lease": "SELECT id FROM lease WHERE policy_id = %s FOR UPDATE",
    "coupon": "SELECT seq FROM coupon WHERE policy_id = %s ORDER BY seq DESC LIMIT 3 FOR UPDATE",
}


class Faults:
    """Carries a schedule out: each step in a thread of its own, until it has ended or is cut short."""

    def __init__(self, rig):
        self.rig = rig
        self.over = threading.Event()
        self.done = []  # lines: what was really done, and when
        self.noting = threading.Lock()
        self.threads = [threading.Thread(target=self._carry_out, args=(step,), daemon=True)
                        for step in rig.schedule.steps]

    def start(self):
        self.began = time.monotonic()
        for thread in self.threads:
            thread.start()

    def stop(self):
        """Ends all steps early, and heals what they leave; the moment from which all is well."""
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.rig.heal()
        return time.monotonic()

    def _note(self, words):
        with self.noting:
            self.done.append(f"{time.monotonic() - self.began:6.2f} s  {words}")

    def _wait(self, seconds):
        return self.over.wait(max(0, seconds))

    def _carry_out(self, step):
        if self._wait(self.began + step.at_s - time.monotonic()):
            return
        self._note(f"begins: {show(step).strip()}")
        try:
            getattr(self, f"do_{step.kind}")(step)
        except Exception as error:  # pylint: disable=broad-except
            # Steps meet each other: a lock in a database that is killed, say.
            self._note(f"cut short: {step.kind} {step.target}: {type(error).__name__}"
                       f" {str(error).splitlines()[:1]}")
        else:
            self._note(f"ended: {step.kind} {step.target}")

    # --- our processes ---

    def _members(self, target):
        groups = {"servers": self.rig.servers, "workers": self.rig.workers,
                  "all": list(self.rig.members.values())}
        return groups.get(target) or [self.rig.members[target]]

    def do_kill(self, step):
        for member in self._members(step.target):
            member.kill()
        self._wait(step.length_s)
        for member in self._members(step.target):
            member.spawn()

    do_kill_workers = do_kill

    def do_stop(self, step):
        (member,) = self._members(step.target)
        member.pause()
        self._wait(step.length_s)
        member.resume()

    def do_rolling(self, step):
        for name in step.detail.split():
            member = self.rig.members[name]
            member.terminate()
            member.spawn()
            if self._wait(0.3):
                return

    def do_clock(self, step):
        for member in self._members(step.target):
            member.clock.set(f"{step.detail:+d}")
        self._wait(step.length_s)
        for member in self._members(step.target):
            member.clock.set("+0")

    # --- Redis ---

    def do_gate_kill(self, step):
        node = self.rig.node(step.target)
        node.kill()
        self._wait(step.length_s)
        node.start()

    def do_gate_and_workers(self, step):
        node = self.rig.node(step.target)
        node.kill()
        for worker in self.rig.workers:
            worker.kill()
        self._wait(step.length_s)
        node.start()
        for worker in self.rig.workers:
            worker.spawn()

    def do_gate_stop(self, step):
        node = self.rig.node(step.target)
        node.pause()
        self._wait(step.length_s)
        node.resume()

    def do_client_kill(self, step):
        with self.rig.node(step.target).client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def do_client_pause(self, step):
        with self.rig.node(step.target).client() as client:
            client.execute_command("CLIENT", "PAUSE", int(step.length_s * 1000), step.detail)
        self._wait(step.length_s)

    def do_function_flush(self, step):
        with self.rig.node(step.target).client() as client:
            client.execute_command("FUNCTION", "FLUSH")

    def do_oom(self, step):
        node = self.rig.node(step.target)
        with node.client() as client:
            client.config_set("maxmemory", 100_000)  # below what an empty one uses
            self._wait(step.length_s)
            client.config_set("maxmemory", 0)

    def do_failover(self, step):
        topology = self.rig.topology
        if step.detail == "asked":
            old = topology.master()
            with topology.sentinel.client() as client:
                client.execute_command("SENTINEL", "FAILOVER", "dibs")
            wait_until(lambda: topology.master() is not old, "a failover", 15)
            return
        old = topology.master()
        self._break(old, step.detail)
        self._fail_over_from(old)
        self._wait(step.length_s)
        self._mend(old, step.detail)

    def do_failover_back(self, step):
        """A stands still or is killed, B takes over; A comes back as B dies."""
        topology = self.rig.topology
        first = topology.master()
        self._break(first, step.detail)
        self._fail_over_from(first)
        second = topology.master()
        self._wait(step.length_s)
        self._mend(first, step.detail)
        wait_until(lambda: self._is_known_replica(first), "the old master is seen again", 15)
        second.kill()
        self._fail_over_from(second)
        self._wait(step.length_s)
        second.start()

    def _is_known_replica(self, node):
        with self.rig.topology.sentinel.client() as client:
            return any(replica["port"] == node.port and not replica["is_odown"]
                       and not replica["is_sdown"] and not replica["is_disconnected"]
                       for replica in client.sentinel_slaves("dibs"))

    @staticmethod
    def _break(node, how):
        node.pause() if how == "stopped" else node.kill()

    @staticmethod
    def _mend(node, how):
        node.resume() if how == "stopped" else node.start()

    def _fail_over_from(self, old):
        topology = self.rig.topology
        with topology.hasty():
            wait_until(lambda: topology.master() is not old
                       and topology.master().info("replication")["role"] == "master",
                       "a new master", 20)

    def do_slot_move(self, step):
        self.rig.moves[self.rig.policies[step.detail]] = self.rig.node(step.target)
        self.rig.move_slots()

    # --- the database ---

    def do_ledger_kill(self, step):
        self.rig.database_server.kill()
        self._wait(step.length_s)
        self.rig.database_server.start()

    def do_ledger_stop(self, step):
        self.rig.database_server.pause()
        self._wait(step.length_s)
        self.rig.database_server.resume()

    def do_ledger_sessions(self, _step):
        server, name = self.rig.database_server, self.rig.database.name
        for row in server.query(name, SESSIONS[server.KIND], name):
            with contextlib.suppress(Exception):
                server.query(name, f"SELECT pg_terminate_backend({row['id']})"
                             if server.KIND == "postgres" else f"KILL {row['id']}")

    def do_ledger_lock(self, step):
        with contextlib.closing(self.rig.database_server.connect(self.rig.database.name)) as one:
            cursor = one.cursor()
            cursor.execute("BEGIN")
            cursor.execute(LOCKS[step.target], (self.rig.policies[step.detail],))
            self._wait(step.length_s)
            cursor.execute("ROLLBACK")

    # --- the ways ---

    def do_gate_link(self, step):
        self._bend([member.gate_way for member in self._members(step.target)], step)

    def do_ledger_link(self, step):
        self._bend([member.ledger_way for member in self._members(step.target)], step)

    def _bend(self, ways, step):
        how, _, delay_ms = step.detail.partition(" ")
        for way in ways:
            if how == "slow":
                way.delay_s = int(delay_ms) / 1000
            elif how == "requests":
                way.pause(REQUESTS)
            elif how == "answers":
                way.pause(ANSWERS)
            elif how == "both":
                way.pause()
            elif how == "refused":
                way.refuse()
            if how in ("cut", "refused"):
                way.cut()
        self._wait(step.length_s if how != "cut" else 0)
        for way in ways:
            heal_way(way)

    # --- Kafka ---

    def do_kafka_kill(self, step):
        self.rig.bench.broker.kill()
        self._wait(step.length_s)
        self.rig.bench.broker.start()

    def do_kafka_stop(self, step):
        self.rig.bench.broker.pause()
        self._wait(step.length_s)
        self.rig.bench.broker.resume()
