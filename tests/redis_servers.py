"""Private Redis servers, clusters and sentinels for the tests; servers.py tells how they live.

    with Redis() as redis:                      # appendonly yes, appendfsync always
        redis.url(), redis.url(database=2), redis.socket_url()
        redis.client(database=0)                # redis-py, with bytes for texts
        redis.kill(), .start(), .pause(), .resume(), .stop(), .restart()
        redis.restart_empty()                   # kill -9, and back without its files
        redis.wipe()                            # FLUSHALL: the same process without its keys
        replica = redis.replica()               # started, and in step with its primary
        replica.promote()                       # REPLICAOF NO ONE

    Redis(appendfsync="everysec"), Redis(appendonly="no"), Redis(password="secret")
    Redis(settings={"maxmemory-policy": "allkeys-lru"})          # any directive of redis.conf

    with RedisCluster(primaries=3, replicas=0) as cluster:
        cluster.url()                           # redis+cluster://127.0.0.1:port,…
        cluster.owner(42)                       # the primary that has policy 42
        cluster.move(42, cluster.nodes[0])      # its slot goes there, keys and all
        cluster.fail(node)                      # kill -9; returns who took over

    with RedisSentinel() as sentinel:           # a primary, a replica and one sentinel
        sentinel.url()                          # redis+sentinel://127.0.0.1:port/dibs
"""
import contextlib
import shutil
import signal
import time

from server_house import Server, free_port

AWAIT_TIMEOUT_S = 60
PATIENT_MS = 600_000  # longer than any disk makes a server wait


def await_that(condition, words):
    deadline = time.monotonic() + AWAIT_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, words
        time.sleep(0.02)


def hash_slot(policy_id):
    """The slot of a policy's keys: that of its tag, by CRC-16/XMODEM."""
    crc = 0
    for byte in str(policy_id).encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return crc % 16384


class Redis(Server):
    """redis-server, whichever release is installed."""

    KIND = "redis"
    STOP_SIGNAL = signal.SIGTERM
    MODE = []  # what its command line says besides the settings

    def __init__(self, appendonly="yes", appendfsync="always", password=None, settings=None,
                 folder=None, env=None):
        super().__init__(settings, folder, env)
        self.password = password
        self.socket = self.folder / "socket"
        self.settings = {"appendonly": appendonly, "appendfsync": appendfsync, **self.settings}

    def directives(self):
        own = {
            "bind": "127.0.0.1",
            "port": self.port,
            "unixsocket": self.socket,
            "dir": self.data,
            "save": '""',
            "maxmemory-policy": "noeviction",
            "set-proc-title": "no",  # The command line is how it is found.
            "enable-debug-command": "yes",
            "repl-diskless-sync-delay": 0,
        }
        if self.password is not None:
            own |= {"requirepass": self.password, "masterauth": self.password}
        return own | self.settings

    def command(self):
        # A file that stays: REPLICAOF and sentinels have it rewritten.
        config = self.folder / "redis.conf"
        if not config.exists():
            config.write_text("".join(f"{name} {value}\n"
                                      for name, value in self.directives().items()))
            if self.house.account is not None:
                shutil.chown(config, self.house.account.pw_uid, self.house.account.pw_gid)
        return ["redis-server", str(config), *self.MODE]

    def connection_errors(self):
        import redis
        return (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError)

    def answers(self):
        return self.client().ping()

    # --- asking ---

    def url(self, database=0):
        secret = "" if self.password is None else f":{self.password}@"
        return f"redis://{secret}127.0.0.1:{self.port}" + (f"/{database}" if database else "")

    def socket_url(self, database=0):
        return f"redis:///{database}?socket={self.socket}"

    def client(self, database=0, **options):
        import redis
        return redis.Redis(host="127.0.0.1", port=self.port, db=database, password=self.password,
                           **{"socket_timeout": 30, **options})

    def info(self, section="everything"):
        with self.client() as client:
            return client.info(section)

    # --- losing ---

    def restart_empty(self):
        """As on a new disk: nothing is left, and nobody waits for it to be written."""
        self.kill()
        for path in self.data.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return self.start()

    def wipe(self):
        with self.client() as client:
            client.flushall()

    # --- following ---

    def replica(self, **options):
        """A server that follows this one, as soon as it has caught up."""
        other = type(self)(password=self.password, **options).start()
        other.follow(self)
        return other

    def follow(self, primary):
        with self.client() as client:
            client.replicaof("127.0.0.1", primary.port)
        await_that(lambda: self.is_in_step_with(primary), "the replica does not catch up")

    def is_in_step_with(self, primary):
        """Whether it has everything that its primary has by now."""
        mine, theirs = self.info("replication"), primary.info("replication")
        return (mine["role"] == "slave" and mine["master_link_status"] == "up"
                and mine["master_replid"] == theirs["master_replid"]
                and mine["slave_repl_offset"] >= theirs["master_repl_offset"])

    def promote(self):
        with self.client() as client:
            client.replicaof("NO", "ONE")


class RedisCluster:
    """Some primaries that share the slots, each with as many replicas."""

    KIND = "redis-cluster"
    TIMEOUT_MS = 1000  # after which a node has failed, while it starts and where a death is meant

    def __init__(self, primaries=3, replicas=0, settings=None, **options):
        self.primary_count = primaries
        self.nodes = [
            Redis(settings={"cluster-enabled": "yes", "cluster-port": free_port(),
                            "cluster-node-timeout": self.TIMEOUT_MS,
                            "cluster-replica-validity-factor": 0, **(settings or {})}, **options)
            for _ in range(primaries * (1 + replicas))]

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, trace):
        for node in self.nodes:
            node.__exit__(kind, error, trace)

    def start(self):
        """Starts the nodes and makes them one; the first ones are the primaries."""
        for node in self.nodes:
            node.start()
        first, *others = self.nodes
        for number, node in enumerate(self.nodes):
            with node.client() as client:
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                if number < self.primary_count:
                    client.execute_command("CLUSTER", "ADDSLOTSRANGE", *self._share(number))
        with first.client() as client:
            for node in others:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port,
                                       node.settings["cluster-port"])
        await_that(lambda: all(self.known_count(node) == len(self.nodes) for node in self.nodes),
                   "the nodes do not meet")
        for number, node in enumerate(self.nodes[self.primary_count:]):
            with node.client() as client:
                client.execute_command("CLUSTER", "REPLICATE",
                                       self.id_of(self.nodes[number % self.primary_count]))
        await_that(self.is_well, "the cluster does not come up")
        self._set_timeout(PATIENT_MS)
        return self

    def _set_timeout(self, timeout_ms):
        for node in self.living():
            with node.client() as client:
                client.config_set("cluster-node-timeout", timeout_ms)

    def _share(self, number):
        """The first and the last slot of a primary."""
        return (16384 * number // self.primary_count,
                16384 * (number + 1) // self.primary_count - 1)

    def stop(self):
        for node in self.nodes:
            node.stop()

    def dispose(self):
        for node in self.nodes:
            node.dispose()

    def log_text(self):
        return "\n".join(node.log_text(30) for node in self.nodes)

    def url(self):
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    # --- asking ---

    @staticmethod
    def known_count(node):
        """How many nodes it has met, itself among them."""
        with node.client() as client:
            rows = client.execute_command("CLUSTER", "NODES").decode().splitlines()
        return sum("handshake" not in row for row in rows)

    @staticmethod
    def id_of(node):
        with node.client() as client:
            return client.execute_command("CLUSTER", "MYID").decode()

    def living(self):
        return [node for node in self.nodes if node.alive]

    def is_well(self):
        """Whether every living node says that all slots are served, and replicas follow."""
        for node in self.living():
            with contextlib.suppress(*node.connection_errors()), node.client() as client:
                replication = client.info("replication")
                if client.cluster("INFO")["cluster_state"] == "ok" and (
                        replication["role"] == "master"
                        or replication["master_link_status"] == "up"):
                    continue
            return False
        return True

    def primaries(self):
        return [node for node in self.living() if node.info("replication")["role"] == "master"]

    def owner(self, policy_id):
        """The living primary that has the policy."""
        slot = hash_slot(policy_id)
        with self.living()[0].client() as client:
            for first, last, primary, *_ in client.execute_command("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(node for node in self.nodes if node.port == primary[1])
        raise AssertionError(f"nobody has slot {slot}")

    # --- changing ---

    def move(self, policy_id, target, pause=lambda: None):
        """Moves the policy's slot to another primary while clients go on; `pause` is called while
        the slot is half on its way."""
        slot, source = hash_slot(policy_id), self.owner(policy_id)
        if source is target:
            return
        with source.client() as leaving, target.client() as arriving:
            arriving.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
            leaving.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))
            pause()
            while keys := leaving.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
                leaving.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 30000,
                                        "KEYS", *keys)
        for node in (target, source, *self.living()):
            if node in self.primaries():
                with node.client() as client:
                    client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))
        await_that(lambda: self.owner(policy_id) is target, "the slot does not move")

    def fail(self, node):
        """Kills a primary that has a replica, and returns the replica that took its place."""
        before = self.primaries()
        self._set_timeout(self.TIMEOUT_MS)
        node.kill()
        await_that(lambda: len(self.primaries()) == len(before) and self.is_well(),
                   "nobody takes over")
        self._set_timeout(PATIENT_MS)
        return next(other for other in self.primaries() if other not in before)


class _SentinelServer(Redis):
    MODE = ["--sentinel"]

    def __init__(self, primary, name):
        super().__init__()
        self.primary, self.master_name = primary, name

    def directives(self):
        return {
            "bind": "127.0.0.1", "port": self.port, "dir": self.data,
            f"sentinel monitor {self.master_name}": f"127.0.0.1 {self.primary.port} 1",
            f"sentinel down-after-milliseconds {self.master_name}": PATIENT_MS,
            f"sentinel failover-timeout {self.master_name}": 5000,
        }


class RedisSentinel:
    """A primary with a replica, watched by a sentinel that fails over when the primary dies."""

    def __init__(self, **options):
        self.primary, self.replica = Redis(**options), Redis(**options)
        self.sentinel = _SentinelServer(self.primary, "dibs")

    def __enter__(self):
        self.primary.start()
        self.replica.start().follow(self.primary)
        self.sentinel.start()
        await_that(self.sees_replica, "the sentinel does not find the replica")
        return self

    def __exit__(self, kind, error, trace):
        for server in (self.sentinel, self.replica, self.primary):
            server.__exit__(kind, error, trace)

    def sees_replica(self):
        with self.sentinel.client() as client:
            return len(client.sentinel_slaves("dibs")) == 1

    def url(self):
        return f"redis+sentinel://127.0.0.1:{self.sentinel.port}/dibs"

    @contextlib.contextmanager
    def hasty(self):
        """Within it the sentinel takes half a second of silence for a death; outside it is patient,
        for a server that waits for its disk is not to be failed over."""
        with self.sentinel.client() as client:
            client.sentinel_set("dibs", "down-after-milliseconds", 500)
            yield
            client.sentinel_set("dibs", "down-after-milliseconds", PATIENT_MS)

    def master(self):
        """Whom the sentinel calls the master."""
        with self.sentinel.client() as client:
            _, port = client.sentinel_get_master_addr_by_name("dibs")
        return self.primary if port == self.primary.port else self.replica
