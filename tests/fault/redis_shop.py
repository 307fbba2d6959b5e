"""A shop with a gate in Redis that tests break: its servers and workers, its crowd, and what the
crowd was told.

    with shop_on(redis) as shop:            # the fixture: two servers and two workers
        policy = shop.create(total=500)
        told = Told()
        with shop.crowd(told, [policy]) as crowd:
            crowd.await_wins(100)
            shop.redis.kill()
            ...
        shop.settle([policy])
        told.check(shop.database, policy)

With SQLite, which one process can use, there is one server, and it works as well.
"""

import itertools

from crowd import Crowd
from harness import wait_until
from history import History
from ledger import audit, coupons, rows
from sharing import Sharing

SETTLE_S = 60


class Doors:
    """Every connection goes to the next server."""

    def __init__(self, servers):
        self._turns = itertools.cycle(servers)

    @property
    def address(self):
        return next(self._turns).address


class SharedCrowd(Crowd):
    """A crowd before all servers of a shop, for which 202 is a win."""

    def __init__(self, servers, told, policies, **options):
        super().__init__(Doors(servers), told, policies, **options)

    def wins(self):
        return self.counts[201] + self.counts[202]

    def await_wins(self, count, timeout_s=SETTLE_S, since=None):
        """Waits for so many more 201s and 202s, than there are now or than `since`: while a test
        does something that takes long, all may be sold."""
        with self.changed:
            wanted = (self.wins() if since is None else since) + count
        wait_until(lambda: self.errors or self.wins() >= wanted,
                   f"{count} more wins of {dict(self.counts)}, {dict(self.words)}", timeout_s)
        self.raise_errors()

    def await_sold_out(self, policies, timeout_s=SETTLE_S):
        """Waits until someone was told so of each."""
        wait_until(lambda: self.errors or self.history.sold_out.issuperset(policies),
                   f"SOLD_OUT of {policies}: {dict(self.counts)}, {dict(self.words)}", timeout_s)
        self.raise_errors()


class Told(History):
    """What clients of a shared gate were told. Where the settings allow that Redis forgets
    (`may_lose`), a winner may be told of another seq later; nobody may ever be told of a seq that
    someone else was told of."""

    def __init__(self, may_lose=False):
        super().__init__()
        self.may_lose = may_lose
        self.issued = set()    # (policy, seq) that were told as being in the ledger
        self.replaced = set()  # (policy, seq) after which the same claim was told of another

    def saw(self, claim, answer):
        if answer is None or answer.status not in (200, 201, 202):
            super().saw(claim, answer)
            return
        body = answer.json
        seq = body["seq"]
        place = (claim.policy, seq)
        holder = self.wins.setdefault(place, claim.user)
        assert holder == claim.user, f"seq {seq} was given to {holder} and {claim.user}"
        known = self.seqs.setdefault(claim, seq)
        if known != seq:
            assert self.may_lose, f"{claim} was told {known} and {seq}"
            self.replaced.add((claim.policy, known))
            self.seqs[claim] = seq
        code = self.codes.setdefault(place, body["code"])
        assert code == body["code"], f"{claim.policy}-{seq} had the code {code}: {body}"
        if body["state"] == "ISSUED":
            self.issued.add(place)

    def check(self, database, policy, states=("ISSUED",)):
        """Every win is in the ledger, once, with its seq and user. Returns the seqs that Redis
        forgot, which none of those told as issued may be among."""
        audit(database)
        found = {row["seq"]: row for row in coupons(database, policy)}
        lost = set()
        for (owner, seq), user in self.wins.items():
            if owner != policy:
                continue
            if seq not in found:
                lost.add(seq)
                continue
            row = found[seq]
            assert row["user_id"] == user, f"{policy}-{seq} went from {user} to {row}"
            assert row["state"] in states, f"{user} was told {policy}-{seq}: {row}"
        assert self.may_lose or not lost, f"told of {policy}, and gone: {sorted(lost)}"
        told_for_good = {seq for seq in lost if (policy, seq) in self.issued}
        assert not told_for_good, f"told as issued, and gone: {told_for_good}"
        still_there = {seq for owner, seq in self.replaced if owner == policy and seq in found}
        assert not still_there, f"told of another though they were there: {still_there}"
        return lost


class Shop(Sharing):
    """Servers and workers on a Redis and a ledger that others made."""

    def __init__(self, folder, redis, database, servers=2, workers=2, gate=None, gates=(),
                 **config):
        super().__init__(folder, redis)
        self.gate = gate          # the way of everyone to Redis, where it is not the direct one
        self.database = database
        self.counts = (1, 0) if database.kind == "sqlite" else (servers, workers)
        self.gates = list(gates)  # the ways of the servers to Redis, where they differ
        self.config = config
        self.servers = []
        self.workers = []

    def __enter__(self):
        for number in range(self.counts[0]):
            self.servers.append(self.serve(self.gates[number] if self.gates else None))
        for _ in range(self.counts[1]):
            self.workers.append(self.work())
        return self

    def _spawn(self, kind, gate, env=None, **config):
        return super()._spawn(kind, gate or self.gate, env,
                              **{"ledger_timeout": "5s", "ack_timeout": "500ms",
                                 "gate_timeout": "500ms", **self.config, **config})

    def create(self, total, **fields):
        return self.servers[0].create(total=total, **fields)["id"]

    def crowd(self, told, policies, servers=None, **options):
        return SharedCrowd(servers or self.servers, told, policies, **options)

    # --- breaking ---

    def end_terms(self):
        """As if all stewards were dead, and whoever tells of coupons: of one that was killed nobody
        need wait. Those that live say so again in a moment."""
        self.database.execute("DELETE FROM steward_holder")
        self.database.execute("UPDATE duty SET until = 0")

    def holder(self, policy):
        """Who looks after a policy, by the name that the ledger has; "": nobody."""
        found = rows(self.database, "SELECT holder FROM steward WHERE policy_id = ?", policy)
        return found[0]["holder"] if found else ""

    def steward(self, policy):
        """The worker that looks after a policy."""
        def find():
            holder = self.holder(policy)
            return next((worker for worker in self.workers if worker.alive and
                         holder.startswith(f"worker-{worker.pid}-")), None)

        return wait_until(find, f"a steward of {policy}", 30)

    # --- judging ---

    def numbers(self, policy):
        """Whether Redis answers for the policy, and how many claims are pending; None: it is away,
        or does not know."""
        with self.redis.client() as client:
            try:
                counted = client.fcall_ro("dibs_count", 7, *keys_of(policy))
            except (*self.redis.connection_errors(), response_error()):
                return None
        return counted[0] == 1, counted[2]

    def is_armed(self, policy):
        return (self.numbers(policy) or [False])[0]

    def settle(self, policies):
        """Waits until everything that was won is written."""
        for policy in policies:
            wait_until(lambda policy=policy: self.numbers(policy) == (True, 0),
                       f"what is pending of {policy} is written", SETTLE_S)

    def await_sold(self, policy, total):
        """Waits until every unit has its coupon."""
        wait_until(lambda: len(self.holders(policy)) >= total,
                   f"all {total} of {policy} are issued", SETTLE_S)
        assert len(self.holders(policy)) == audit(self.database)[policy] == total

    def missing_seqs(self, policy):
        """Seqs of closed leases that no coupon has: lost by Redis, or never given out."""
        known = {row["seq"] for row in coupons(self.database, policy)}
        return {seq for lease in rows(self.database, "SELECT * FROM lease WHERE policy_id = ?"
                                      " AND state = 'CLOSED'", policy)
                for seq in range(lease["first_seq"], lease["first_seq"] + lease["count"])
                if seq not in known}


def response_error():
    import redis
    return redis.ResponseError


def keys_of(policy):
    """The keys of a policy in the order in which the functions take them."""
    return [f"COUPON:POLICY:{{{policy}}}:{name}"
            for name in ("REMAINING", "PENDING", "ISSUED", "LEASE", "META", "KEYS", "BOUND")]
