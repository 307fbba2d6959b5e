"""One run: a rig, its people, its faults, and the judgement; and several at once."""

import json
import pathlib
import shutil
import tempfile
import time
import traceback

from harness import BUILD_DIR, wait_until

from .checks import Checks
from .faults import Faults
from .people import KEY, Book, People
from .rig import Rig
from .samples import Sampler
from .schedule import Schedule, show

READY_S = 10       # everything is ready so long after the last fault
GIVE_UP_S = 60     # when it will not be any more
AFTER_S = 1        # people go on for a moment after that
WORDS_MAX = 2500   # of one violation
KEPT = BUILD_DIR / "nemesis"

# limit, and how much of the total is kept as a reserve with fallback=ledger.
SHAPES = ((1, 0.3), (2, 0.3), (1, 0.2), (2, 0.5))


class Run:
    """Carries one seed out; `result` tells what came of it."""

    def __init__(self, bench, variant, ledger, seed, span_s=None, ready_s=READY_S):
        self.bench, self.variant, self.ledger, self.seed = bench, variant, ledger, seed
        self.ready_limit_s = ready_s
        self.schedule = Schedule(variant, ledger, seed, span_s)
        self.result = {"variant": variant, "ledger": ledger, "seed": seed, "violations": [],
                       "steps": len(self.schedule.steps)}
        self.faults = None
        self.book = self.sampler = None

    def carry_out(self):
        began = time.monotonic()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="dibs-nemesis-"))
        rig = Rig(self.bench, self.schedule, self.ledger, folder)
        try:
            try:
                self._carry_out(rig.start())
            except Exception:  # pylint: disable=broad-except
                rig.violation(f"the run broke off: {traceback.format_exc()}")
            rig.end()
            self.result["violations"] = rig.found()
            self.result["stop_s"] = max(rig.stops_s, default=0)
            if rig.violations:
                self._keep(rig)
        finally:
            rig.dispose()
            shutil.rmtree(folder, ignore_errors=True)
        self.result["seconds"] = time.monotonic() - began
        return self.result

    def _carry_out(self, rig):
        specs = self._create(rig)
        self.book = book = Book(rig)
        self.sampler = sampler = Sampler(rig)
        people, self.faults = People(rig, book, specs), Faults(rig)
        rig.began = time.monotonic()  # All times are counted from here.
        sampler.start()
        people.start()
        self.faults.start()
        time.sleep(self.schedule.span_s)
        well_at = self.faults.stop()
        self.result["ready_s"] = self._await_ready(rig, well_at)
        time.sleep(AFTER_S)
        people.stop()
        if self.result["ready_s"] < GIVE_UP_S:
            people.settle_all(GIVE_UP_S)
        sampler.stop()
        Checks(rig, book, people, sampler).run(is_ready=self.result["ready_s"] < GIVE_UP_S)
        self.result |= {"wins": len(book.wins), "slowest_s": book.slowest_s,
                        "asked": sum(book.counts.values()),
                        "counts": {str(name): count for name, count in book.counts.items()}}

    def _create(self, rig):
        """{policy id: its limit and total}; every server knows them."""
        specs = {}
        for (limit, reserve), total in zip(SHAPES, self.schedule.totals):
            fields = {"reserve": int(total * reserve)} if self.variant == "fallback" else {}
            policy = rig.servers[0].process.create(total=total, limit=limit, **fields)["id"]
            specs[policy] = {"limit": limit, "total": total}
        rig.policies = list(specs)
        for server in rig.servers:
            for policy in specs:
                wait_until(lambda s=server, p=policy: s.process.get(
                    f"/v1/policies/{p}").status == 200, "every server knows every policy", 30)
        return specs

    def _await_ready(self, rig, well_at):
        """How long it took until every part says so and every policy answers at every server."""
        left = {(server, policy) for server in rig.servers for policy in rig.policies}

        def is_ready():
            for server, policy in sorted(left, key=str):
                try:
                    answer = server.process.claim(policy, f"probe-{policy}", key=KEY)
                except Exception:  # pylint: disable=broad-except
                    continue  # not listening yet
                if answer.status != 503:
                    left.discard((server, policy))
            return not left and all(member.ready() for member in rig.members.values())

        try:
            wait_until(is_ready, "all is ready", GIVE_UP_S)
        except AssertionError:
            rig.violation(f"not ready {GIVE_UP_S} s after the last fault:"
                          f" {sorted((server.name, policy) for server, policy in left)}, not ready"
                          f" {[m.name for m in rig.members.values() if not m.ready()]}")
        seconds = time.monotonic() - well_at
        if seconds > self.ready_limit_s:
            rig.violation(f"ready only {seconds:.1f} s after the last fault")
        return seconds

    # --- telling ---

    def _keep(self, rig):
        folder = KEPT / f"{self.variant}-{self.ledger}-{self.seed}"
        shutil.rmtree(folder, ignore_errors=True)
        rig.keep_logs(folder)
        self.result["kept"] = str(folder)
        (folder / "report").write_text(report(self.result, self) + "\n")
        (folder / "result.json").write_text(json.dumps(self.result, indent=1))
        if self.book is not None:
            lines = [repr(win) for win in self.book.wins.values()]
            lines += [f"SOLD_OUT {told}" for told in self.book.sold_out]
            lines += [f"seen {sample}" for sample in self.sampler.samples]
            (folder / "told").write_text("\n".join(lines) + "\n")


def report(result, run=None):
    """What a person needs to know of a run that found something."""
    lines = [f"VIOLATION {result['variant']} {result['ledger']} {result['seed']}"]
    lines += [f"  {words.rstrip()}"[:WORDS_MAX] for words in result["violations"]]
    if run is not None:
        lines.append(f"  settings {run.schedule.settings}, totals {run.schedule.totals}")
        lines += [f"  {show(step)}" for step in run.schedule.steps]
        lines.append("  as it happened:")
        lines += [f"  {line}" for line in (run.faults.done if run.faults else [])]
    lines.append("  again: tests/fault/nemesis/run"
                 f" {result['variant']}/{result['ledger']}/{result['seed']}")
    return "\n".join(lines)
