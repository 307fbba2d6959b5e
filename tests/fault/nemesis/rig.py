"""What is broken in a run: two servers and two workers around a Redis and a database, each with ways
of its own to both. The database servers and the broker live as long as this process."""

import collections
import copy
import itertools
import re
import shutil
import signal
import subprocess
import threading
import time

from harness import Server, wait_until
from kafka_stream import Stream
from ledger import ServedDatabase
from proxy import Proxy
from servers import KINDS, KafkaBroker, Redis, RedisCluster, RedisSentinel
from sharing import Worker
from virtual_clock import Clock

from .schedule import MEMBERS

ROOM = {"postgres": {"max_connections": 240}, "mysql": {"max-connections": 240}}
STOP_S = 60  # how long a process may take from SIGTERM to its end
START_S = 60
RESPAWN_S = 0.5
FOLLOW_S = 60
YOUNG_S = 0.5  # Before it has said what a signal means, a signal ends a process.


class Bench:
    """The servers that runs of this process share, one run at a time."""

    def __init__(self):
        self.databases = {}
        self.broker = None

    def database_server(self, kind):
        if kind not in self.databases:
            self.databases[kind] = KINDS[kind](settings=ROOM[kind]).start()
        return self.databases[kind]

    def kafka(self):
        if self.broker is None:
            self.broker = KafkaBroker().start()
        return self.broker

    def close(self):
        for server in [*self.databases.values(), *([self.broker] if self.broker else [])]:
            server.dispose()


class Member:
    """One process of ours: it is killed and started again, and must not end by itself."""

    def __init__(self, rig, name, process, gate_way, ledger_way, clock):
        self.rig, self.name, self.process = rig, name, process
        self.gate_way, self.ledger_way, self.clock = gate_way, ledger_way, clock
        self.is_wanted = False
        self.spawned_at = 0
        self.respawn_at = None
        self.lock = threading.RLock()

    @property
    def address(self):
        return self.process.address

    def spawn(self):
        with self.lock:
            self.respawn_at = None
            if self.process.process is None:
                self.process.spawn()
                self.is_wanted, self.spawned_at = True, time.monotonic()
                threading.Thread(target=self._await_start, args=(self.process.process,),
                                 daemon=True).start()

    def _await_start(self, mine):
        try:
            self.process.await_start()
        except AssertionError as error:
            if "in time" in str(error) and self.is_wanted and mine is self.process.process:
                self.rig.violation(f"{self.name} does not start")
        except (AttributeError, OSError):
            pass  # It was killed meanwhile.

    def kill(self):
        with self.lock:
            self.is_wanted, self.respawn_at = False, None
            if self.process.process is not None:
                self.process.process.send_signal(signal.SIGCONT)
                self.process.address = None
                self.process.kill()

    def terminate(self):
        """An orderly end, as in a rolling restart; one that stands still goes on for it, as systemd
        sees to."""
        with self.lock:
            self.is_wanted, self.respawn_at = False, None
            if self.process.process is None:
                return
            began = time.monotonic()
            is_young = began - self.spawned_at < YOUNG_S
            self.process.signal(signal.SIGTERM)
            self.process.signal(signal.SIGCONT)
            try:
                code = self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.rig.violation(f"{self.name} did not end within {STOP_S} s of SIGTERM")
                self.rig.stacks[self.name] = stacks_of(self.process.pid)
                self.process.signal(signal.SIGABRT)
                code = self.process.wait(STOP_S)
            self.process.address = None
            took_s = time.monotonic() - began
            self.rig.stops_s.append(took_s)
            if code != 0 and not (is_young and code == -signal.SIGTERM):
                self.rig.violation(f"{self.name} ended with {code} {took_s:.1f} s after SIGTERM")

    def pause(self):
        with self.lock:
            if self.process.process is not None:
                self.process.signal(signal.SIGSTOP)

    def resume(self):
        with self.lock:
            if self.process.process is not None:
                self.process.signal(signal.SIGCONT)

    def look(self):
        """Notes an end that nobody asked for, and starts it again after a moment, as systemd
        would, so that the run goes on."""
        with self.lock:
            process = self.process.process
            if self.respawn_at and time.monotonic() > self.respawn_at:
                self.spawn()
            elif self.is_wanted and process is not None and process.poll() is not None:
                code = self.process.wait()
                self.process.address = None
                self.rig.violation(f"{self.name} ended by itself with {code}:"
                                   f" {''.join(self.process.log[-2:])}")
                self.respawn_at = time.monotonic() + RESPAWN_S

    def ready(self):
        """Whether it says so of itself."""
        if self.address is None:
            return False
        try:
            with self.process.connect(timeout_s=5) as connection:
                return connection.request("GET", "/readyz").status == 200
        except Exception:  # pylint: disable=broad-except
            return False


class Rig:
    """One run's servers, workers, Redis, database and ways between them."""

    def __init__(self, bench, schedule, ledger, folder):
        self.bench, self.schedule, self.folder = bench, schedule, folder
        self.variant = schedule.variant
        self.violations = []
        self.stops_s = []
        self.stacks = {}  # of those that hung, by their names
        self.began = time.monotonic()
        self.members = {}
        self.policies = []
        self.moves = {}  # policy → the primary that its slot is on the way to
        self.stream = None
        self.over = threading.Event()
        self.noting = threading.Lock()
        self.database_server = bench.database_server(ledger)
        self.database = ServedDatabase(self.database_server)
        self.topology = {"sentinel": RedisSentinel, "cluster": RedisCluster}.get(
            self.variant, Redis)()
        self.topology.__enter__()
        if self.variant == "kafka":
            self.stream = Stream(bench.kafka())

    def violation(self, words):
        with self.noting:
            self.violations.append((time.monotonic() - self.began, words))

    def found(self):
        """The violations, each with when it was first seen; what was seen again is counted."""
        with self.noting:
            firsts, counts = {}, collections.Counter()
            for at_s, words in self.violations:
                kind = re.sub(r"\d+", "0", words)
                firsts.setdefault(kind, (at_s, words))
                counts[kind] += 1
        return [f"{at_s:.2f} s: {words.strip()}"
                + (f" ({counts[kind]} times)" if counts[kind] > 1 else "")
                for kind, (at_s, words) in firsts.items()]

    # --- life ---

    def start(self):
        for name in MEMBERS:
            self.members[name] = self._member(name)
        threading.Thread(target=self._watch, daemon=True).start()
        for member in self.members.values():
            member.spawn()
        wait_until(lambda: all(member.ready() for member in self.members.values()),
                   "everyone is ready", START_S)
        return self

    def _member(self, name):
        folder = self.folder / name
        gate, gate_way = self.topology.url(), None
        if self.variant not in ("sentinel", "cluster"):
            gate_way = Proxy(self.topology.port)
            gate = f"redis://127.0.0.1:{gate_way.port}"
        ledger_way = Proxy(self.database_server.port)
        database = copy.copy(self.database)
        database.url = ledger_way.url(self.database.url)
        config = {**self.schedule.settings, "gate": gate, "log_level": "info"}
        if self.stream:
            config["relay"] = self.stream.url
        kind = Server if name.startswith("server") else Worker
        if kind is Worker:
            config["worker_listen"] = "127.0.0.1:0"
        folder.mkdir(parents=True)
        clock = Clock(folder) if self.schedule.has_clocks else None
        process = kind(folder=folder, config=config, database=database,
                       env=clock.environment() if clock else None)
        return Member(self, name, process, gate_way, ledger_way, clock)

    def _watch(self):
        while not self.over.wait(0.05):
            for member in self.members.values():
                member.look()

    @property
    def servers(self):
        return [self.members[name] for name in ("server-0", "server-1")]

    @property
    def workers(self):
        return [self.members[name] for name in ("worker-0", "worker-1")]

    # --- Redis ---

    def nodes(self):
        """Every Redis that holds claims."""
        if self.variant == "sentinel":
            return [self.topology.primary, self.topology.replica]
        return self.topology.nodes if self.variant == "cluster" else [self.topology]

    def node(self, target):
        """The Redis that a step names."""
        if self.variant == "sentinel":
            return self.topology.master()
        return self.topology.nodes[int(target[-1])] if self.variant == "cluster" else self.topology

    def gate_value(self, policy, ask):
        """Asks the Redis that has the policy: ask(client, key prefix). Raises when it is away."""
        import redis
        prefix = f"COUPON:POLICY:{{{policy}}}:"
        options = {"socket_timeout": 1, "socket_connect_timeout": 1}
        if self.variant == "sentinel":
            master = self.topology.master()
            with master.client(**options) as client:
                if client.role()[0] != b"master":
                    raise redis.ConnectionError("no master")
                return ask(client, prefix)
        for node in self.nodes():
            with node.client(**options) as client:
                try:
                    return ask(client, prefix)
                except redis.ResponseError as error:
                    # Some versions of the client have a class for it, without the word in the text.
                    if not (isinstance(error, redis.exceptions.AskError)
                            or str(error).startswith(("MOVED", "ASK"))):
                        raise
        raise redis.ConnectionError("nobody has it")

    def move_slots(self):
        """Moves the slots that are to be moved, or ends moves that were cut short."""
        for policy, target in list(self.moves.items()):
            self.topology.move(policy, target)
            del self.moves[policy]

    def pending(self, policy):
        return self.gate_value(policy, lambda client, prefix: client.zcard(prefix + "PENDING"))

    # --- the end of all faults ---

    def heal(self):
        """Whatever was done is undone; nothing waits for our processes."""
        for node in self.nodes():
            node.resume()
        self.database_server.resume()
        if self.bench.broker is not None:
            self.bench.broker.resume()
        for member in self.members.values():
            for way in (member.gate_way, member.ledger_way):
                if way is not None:
                    heal_way(way)
            if member.clock:
                member.clock.set("+0")
            member.resume()
        for node in [*self.nodes(), self.database_server,
                     *([self.bench.broker] if self.bench.broker else [])]:
            if not node.alive:
                node.kill()
                node.start()
        if self.stream:
            # One that was killed comes up, and at times ends again when it finds its port taken.
            wait_until(self._has_broker, "a broker", FOLLOW_S)
        for node in self.nodes():
            with node.client() as client:
                client.config_set("maxmemory", 0)
                client.execute_command("CLIENT", "UNPAUSE")
        for member in self.members.values():
            member.spawn()
        if self.variant == "cluster":
            wait_until(self.topology.is_well, "the cluster is well", FOLLOW_S)
            self.move_slots()
        if self.variant == "sentinel":
            # A sentinel takes ten seconds to make a replica of one that came back as a master.
            wait_until(self._is_followed, "the replica follows", FOLLOW_S)

    def _has_broker(self):
        broker = self.bench.broker
        if not broker.alive:
            broker.kill()
            broker.start()
        return broker.answers()

    def _is_followed(self):
        master = self.topology.master()
        (other,) = (node for node in self.nodes() if node is not master)
        replication = other.info("replication")
        return replication["role"] == "slave" and replication["master_link_status"] == "up" \
            and replication["master_port"] == master.port

    def end(self):
        """Stops everything in good order and lets the database go."""
        self.over.set()
        threads = [threading.Thread(target=member.terminate) for member in self.members.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for member in self.members.values():
            try:
                member.process.check_log()
            except AssertionError as error:
                self.violation(f"{member.name}: {str(error).splitlines()[0]}")

    def dispose(self):
        self.over.set()
        for member in self.members.values():
            member.kill()
            for way in (member.gate_way, member.ledger_way):
                if way is not None:
                    way.close()
        self.topology.__exit__(None, None, None)
        self.database_server.resume()
        if not self.database_server.alive:
            self.database_server.kill()
            self.database_server.start()
        self.database.discard()

    def keep_logs(self, folder):
        """Copies what everyone said to where a person finds it."""
        folder.mkdir(parents=True, exist_ok=True)
        for member in self.members.values():
            (folder / f"{member.name}.log").write_text("".join(member.process.log))
        for name, text in self.stacks.items():
            (folder / f"{name}.stacks").write_text(text)
        nodes = itertools.chain(self.nodes(), [self.database_server],
                                [self.topology.sentinel] if self.variant == "sentinel" else [],
                                [self.bench.broker] if self.stream else [])
        for number, node in enumerate(nodes):
            shutil.copyfile(node.log_path, folder / f"{node.KIND}-{number}.log")


def stacks_of(pid):
    """Where the threads of a process are, if there is a debugger."""
    try:
        return subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 20"],
                              check=False, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def heal_way(way):
    way.delay_s = 0
    way.admit()
    way.resume()
