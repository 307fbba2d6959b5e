"""Looks at the ledger and the gate again and again while a run goes on: oversold is never, and what
was free when tells whether SOLD_OUT was true."""

import bisect
import collections
import contextlib
import threading
import time

from servers import rows_of

PAUSE_S = 0.15
WIDE_S = 0.7   # A look that took longer says too little.

# Free units of each policy at some moment: those that are not in the ledger as active and not
# pending in the gate. `began` and `ended` are when it was looked at.
Sample = collections.namedtuple("Sample", "began ended free")

QUERY = """SELECT p.id AS id, p.total AS total, p.per_user_limit AS per_user_limit,
 (SELECT count(*) FROM coupon c WHERE c.policy_id = p.id AND c.state IN ('ISSUED', 'REDEEMED'))
 AS active,
 (SELECT coalesce(max(held), 0) FROM (SELECT policy_id, count(*) AS held FROM coupon
  WHERE state IN ('ISSUED', 'REDEEMED') GROUP BY policy_id, user_id) AS h
  WHERE h.policy_id = p.id) AS most
 FROM policy p"""


class Sampler:
    def __init__(self, rig):
        self.rig = rig
        self.samples = []  # None: a gap, in which nothing is known
        self.over = threading.Event()
        self.connection = None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.oversold = set()

    def start(self):
        self.thread.start()

    def stop(self):
        self.over.set()
        self.thread.join()

    def _work(self):
        while not self.over.wait(PAUSE_S):
            try:
                self.samples.append(self.look())
            except Exception:  # pylint: disable=broad-except
                # Something is away, which is what a run is about.
                self.samples.append(None)
                self._drop()
        self._drop()

    def _drop(self):
        if self.connection is not None:
            with contextlib.suppress(Exception):
                self.connection.close()
            self.connection = None

    def look(self):
        began = time.monotonic() - self.rig.began
        if self.connection is None:
            self.connection = self.rig.database_server.connect(self.rig.database.name)
        # The gate first: a claim on its way between both is counted twice and not left out.
        try:
            pending = {policy: self.rig.pending(policy) for policy in self.rig.policies}
        except Exception:  # pylint: disable=broad-except
            pending = None
        rows = {row["id"]: row for row in rows_of(self.connection, QUERY)}
        ended = time.monotonic() - self.rig.began
        for policy, row in rows.items():
            if row["active"] > row["total"] and ("total", policy) not in self.oversold:
                self.oversold.add(("total", policy))
                self.rig.violation(f"policy {policy} is oversold: {row}")
            if row["most"] > row["per_user_limit"] and ("limit", policy) not in self.oversold:
                self.oversold.add(("limit", policy))
                self.rig.violation(f"somebody holds too many of {policy}: {row}")
        if pending is None or ended - began > WIDE_S:
            return None
        return Sample(began, ended, {
            policy: rows[policy]["total"] - rows[policy]["active"] - pending[policy]
            for policy in self.rig.policies})

    def is_known(self, since, until):
        """Whether there is no gap between both."""
        inside = [sample for sample in self.samples
                  if sample is not None and sample.ended > since and sample.began < until]
        first = next((i for i, sample in enumerate(self.samples)
                      if inside and sample is inside[0]), None)
        return bool(inside) and None not in self.samples[first:first + len(inside)]

    def free_all_along(self, policy, since, until, wins):
        """The fewest units that can have been free from `since` to `until`: what each look saw, less
        what was told to be won (`wins`, sorted) before the next look, when a higher total may hide
        it. 0 when there was none at some moment or it is not known."""
        before, fewest = None, None
        for sample in self.samples:
            if sample is None:
                before, fewest = None, None
                continue
            if sample.ended <= since:
                before, fewest = sample, sample.free[policy]
                continue
            if before is None:
                return 0
            won = bisect.bisect(wins, sample.ended) - bisect.bisect_left(wins, before.began)
            fewest = min(fewest, before.free[policy] - won, sample.free[policy])
            if fewest <= 0:
                return 0
            if sample.began >= until:
                return fewest
            before = sample
        return 0
