"""What a run breaks and when: drawn from its seed alone, so that a seed names a schedule.

A change of this file changes what the seeds in `seeds` mean.
"""

import collections
import random

SERVERS, WORKERS = ("server-0", "server-1"), ("worker-0", "worker-1")
MEMBERS = SERVERS + WORKERS
VARIANTS = ("plain", "fallback", "ack", "kafka", "sentinel", "cluster")
LEDGERS = ("postgres", "mysql")
CLUSTER_SIZE = 3
POLICY_COUNT = 4

# `uses` is what no other step may touch at the same time.
Step = collections.namedtuple("Step", "at_s length_s kind target detail uses")


def show(step):
    detail = f" {step.detail}" if step.detail != "" else ""
    return f"{step.at_s:6.2f} s  {step.kind} {step.target}{detail}, for {step.length_s:.2f} s"


class Schedule:
    """All that a seed decides before a run begins."""

    def __init__(self, variant, ledger, seed, span_s=None):
        self.chance = random.Random(f"{variant}/{ledger}/{seed}")
        self.variant = variant
        self.span_s = self.chance.uniform(7, 12)
        if span_s:
            self.span_s = span_s
        # libfaketime moves the clock by which librdkafka's waits are set, and not the waits
        # themselves (timespec_get, cnd_timedwait): with Kafka they would end at once, or in an hour.
        self.has_clocks = self.chance.random() < 0.25 and variant != "kafka"
        self.settings = self._settings()
        self.totals = [self.chance.randint(*span) for span in
                       ((40, 120), (60, 200), (150, 500), (20, 80))]
        self.steps = self._steps(self.chance.randint(4, 9))
        self.people_seed = self.chance.getrandbits(32)

    def _settings(self):
        pick = self.chance.choice
        settings = {
            "gate_timeout": pick(["300ms", "500ms", "1s"]),
            "ledger_timeout": pick(["1s", "2s", "5s"]),
            "ack_timeout": pick(["500ms", "1s", "2s"]),
            "sync_interval": pick(["500ms", "2s", "10s"]),
            "audit_interval": pick(["0s", "2s", "5s"]),
            "threads": pick([1, 2]),
        }
        if self.variant == "fallback":
            settings["fallback"] = "ledger"
        if self.variant == "ack":
            settings["ack"] = "ledger"
        if self.variant == "sentinel":
            settings["replicas"] = 1
        return settings

    # --- steps ---

    def _steps(self, count):
        steps = []
        names, weights = zip(*self._kinds())
        for _ in range(count * 6):
            if len(steps) == count:
                break
            kind = self.chance.choices(names, weights)[0]
            step = getattr(self, f"_{kind}")(self.chance.uniform(0.3, self.span_s - 1))
            if not any(overlap(step, other) for other in steps):
                steps.append(step)
        return sorted(steps)

    def _kinds(self):
        kinds = {"kill": 4, "stop": 4, "rolling": 2, "kill_workers": 1, "gate_kill": 2,
                 "gate_stop": 3, "gate_and_workers": 1, "client_kill": 2, "client_pause": 2,
                 "function_flush": 1, "oom": 2, "ledger_kill": 2, "ledger_stop": 2,
                 "ledger_sessions": 2, "ledger_lock": 3, "ledger_link": 3}
        if self.variant not in ("sentinel", "cluster"):
            kinds["gate_link"] = 5  # Sentinels and clusters tell clients where to go themselves.
        if self.variant == "kafka":
            kinds |= {"kafka_kill": 2, "kafka_stop": 3}
        if self.variant == "sentinel":
            kinds |= {"failover": 4, "failover_back": 3}
        if self.variant == "cluster":
            kinds |= {"slot_move": 7}
        if self.has_clocks:
            kinds |= {"clock": 5}
        return sorted(kinds.items())

    def _length(self, most_s, least_s=0.0):
        """Mostly short; at times longer than any term or timeout."""
        if self.chance.random() < 0.15:
            return self.chance.uniform(most_s, most_s + 4)
        return self.chance.uniform(least_s, most_s)

    def _node(self):
        """Which Redis; of a sentinel's two, whichever is the master then."""
        if self.variant == "cluster":
            return f"redis-{self.chance.randrange(CLUSTER_SIZE)}"
        return "redis"

    def _member_step(self, at_s, kind, most_s):
        target = self.chance.choice(MEMBERS)
        return Step(at_s, self._length(most_s), kind, target, "", {target})

    def _kill(self, at_s):
        return self._member_step(at_s, "kill", 2)

    def _stop(self, at_s):
        return self._member_step(at_s, "stop", 4)

    def _rolling(self, at_s):
        order = self.chance.sample(MEMBERS, len(MEMBERS))
        return Step(at_s, 2.0, "rolling", "members", " ".join(order), set(MEMBERS))

    def _kill_workers(self, at_s):
        return Step(at_s, self._length(2), "kill_workers", "workers", "", set(WORKERS))

    def _gate_kill(self, at_s):
        node = self._node()
        return Step(at_s, self._length(2), "gate_kill", node, "", {node})

    def _gate_stop(self, at_s):
        node = self._node()
        return Step(at_s, self._length(4), "gate_stop", node, "", {node})

    def _gate_and_workers(self, at_s):
        node = self._node()
        return Step(at_s, self._length(2), "gate_and_workers", node, "", {node, *WORKERS})

    def _client_kill(self, at_s):
        node = self._node()
        return Step(at_s, 0.0, "client_kill", node, "", {node})

    def _client_pause(self, at_s):
        node = self._node()
        return Step(at_s, self._length(2, 0.1), "client_pause", node,
                    self.chance.choice(["ALL", "WRITE"]), {node})

    def _function_flush(self, at_s):
        node = self._node()
        return Step(at_s, 0.0, "function_flush", node, "", {node})

    def _oom(self, at_s):
        node = self._node()
        return Step(at_s, self._length(3, 0.2), "oom", node, "", {node})

    def _ledger_kill(self, at_s):
        return Step(at_s, self._length(1.5), "ledger_kill", "ledger", "", {"ledger"})

    def _ledger_stop(self, at_s):
        return Step(at_s, self._length(4), "ledger_stop", "ledger", "", {"ledger"})

    def _ledger_sessions(self, at_s):
        return Step(at_s, 0.0, "ledger_sessions", "ledger", "", {"ledger"})

    def _ledger_lock(self, at_s):
        what = self.chance.choice(["policy", "lease", "coupon"])
        return Step(at_s, self._length(3, 0.3), "ledger_lock", what,
                    self.chance.randrange(POLICY_COUNT), {"ledger"})

    def _link(self, at_s, kind):
        whose = self.chance.choice([*MEMBERS, "servers", "workers", "all"])
        how = self.chance.choice(["requests", "answers", "both", "slow", "cut", "refused"])
        delay_ms = self.chance.choice([5, 20, 60, 250]) if how == "slow" else ""
        members = {"servers": SERVERS, "workers": WORKERS, "all": MEMBERS}.get(whose, (whose,))
        return Step(at_s, self._length(3, 0.2), kind, whose, f"{how} {delay_ms}".strip(),
                    {f"{kind} {member}" for member in members})

    def _gate_link(self, at_s):
        return self._link(at_s, "gate_link")

    def _ledger_link(self, at_s):
        return self._link(at_s, "ledger_link")

    def _kafka_kill(self, at_s):
        return Step(at_s, self._length(1), "kafka_kill", "kafka", "", {"kafka"})

    def _kafka_stop(self, at_s):
        return Step(at_s, self._length(3, 0.3), "kafka_stop", "kafka", "", {"kafka"})

    def _failover(self, at_s):
        return Step(at_s, self._length(2, 0.5), "failover", "redis",
                    self.chance.choice(["asked", "stopped", "killed"]), {"redis"})

    def _failover_back(self, at_s):
        return Step(at_s, self._length(2, 0.5), "failover_back", "redis",
                    self.chance.choice(["stopped", "killed"]), {"redis"})

    def _slot_move(self, at_s):
        return Step(at_s, 0.0, "slot_move", f"redis-{self.chance.randrange(CLUSTER_SIZE)}",
                    self.chance.randrange(POLICY_COUNT),
                    {f"redis-{number}" for number in range(CLUSTER_SIZE)})

    def _clock(self, at_s):
        target = self.chance.choice([*MEMBERS, "all"])
        jump_s = self.chance.choice([-86400, -3600, -30, -3, 3, 30, 3600, 86400 * 2])
        members = MEMBERS if target == "all" else (target,)
        return Step(at_s, self._length(4, 0.5), "clock", target, jump_s,
                    {f"clock {member}" for member in members})


def overlap(one, other):
    """Whether both touch the same thing at the same time, or nearly."""
    return bool(one.uses & other.uses) and (one.at_s < other.at_s + other.length_s + 0.2
                                            and other.at_s < one.at_s + one.length_s + 0.2)
