"""What must hold when all is well again: everything that was told against everything that is there."""

import collections
import itertools
import json
import random
import threading
import time

from harness import run_dibs, wait_until
from ledger import audit, coupons

from .people import KEY, WON, Caller, Wish

SETTLE_S = 60
RETURN_S = 2      # Returned stock is claimable within a second; a busy machine takes another.
FREE_LEAST = 4    # Between two looks a few units may go and come back.
BUSY_S = 15
NEW_UNITS = 4     # of a policy that was sold out, in the end: one for each who asks
SHOW_MAX = 8
SELLERS = 6


class Checks:
    def __init__(self, rig, book, people, sampler):
        self.rig, self.book, self.people, self.sampler = rig, book, people, sampler
        self.specs = people.specs
        self.rows = {}  # policy → seq → row

    def violations(self, title, found):
        """Says once what was found of a kind, with the first few."""
        found = list(found)
        if found:
            self.rig.violation(f"{title} ({len(found)}): "
                               + "; ".join(map(str, found[:SHOW_MAX])))

    def run(self, is_ready):
        """`is_ready`: else nobody waits for anything any more."""
        self.sold_out_was_true()
        if not is_ready or not self.reserve_is_left() or not self.drained():
            self.read_rows()
            self.told_winners()
            return
        self.told_winners()
        self.keys()
        self.order()
        self.limits()
        self.gate_knows_winners()
        self.all_is_sold()
        self.stock_returns()
        if self.drained():
            self.told_winners()
            self.sums()
            self.audit()

    # --- waiting ---

    def reserve_is_left(self):
        """Waits until no server gives from the reserve any more: what one gives, the other has to
        hear of first."""
        def is_left():
            return all(server.process.metrics()['dibs_gate_breakers{state="open"}'] == 0
                       for server in self.rig.servers)

        try:
            wait_until(is_left, "all claims go to the gate", SETTLE_S)
        except AssertionError:
            self.rig.violation(f"a breaker is open {SETTLE_S} s after all is well")
            return False
        return True

    def drained(self):
        """Waits until everything that was won is written."""
        def is_drained():
            try:
                return all(self.rig.pending(policy) == 0 for policy in self.rig.policies)
            except Exception:  # pylint: disable=broad-except
                return False

        try:
            wait_until(is_drained, "drained", SETTLE_S)
        except AssertionError:
            left = {policy: self.rig.pending(policy) for policy in self.rig.policies}
            self.rig.violation(f"still pending {SETTLE_S} s after all is well: {left}")
            return False
        self.read_rows()
        return True

    def read_rows(self):
        self.rows = {policy: {row["seq"]: row for row in coupons(self.rig.database, policy)}
                     for policy in self.rig.policies}

    # --- what was told ---

    def told_winners(self):
        """Guarantee 4: each told winner has the one row with the seq they were told."""
        wrong = collections.defaultdict(list)
        for win in self.book.wins.values():
            row = self.rows[win.policy].get(win.seq)
            if row is None:
                wrong["told, and no row"].append(win)
            elif row["user_id"] != win.user:
                wrong["told, and somebody else has it"].append((win, row["user_id"]))
            elif row["state"] not in self.states(win, row):
                wrong[f"told, and {row['state']}"].append((win, row["reason"], row["merged_into"]))
        for title, found in wrong.items():
            self.violations(title, found)

    def states(self, win, row):
        """The states that a told winner's row may have."""
        if self.rig.variant == "fallback" and row["state"] == "MERGED":
            kept = self.rows[win.policy].get(row["merged_into"])
            if kept is not None and kept["user_id"] == win.user and kept["state"] not in (
                    "VOID", "MERGED") and self.merging_was_due(win, row):
                return {"MERGED"}
        if "cancel" in win.done:
            return {"CANCELLED"}
        if "redeem" in win.done:
            return {"REDEEMED"}
        return {"ISSUED"} | {{"cancel": "CANCELLED", "redeem": "REDEEMED"}[verb]
                             for verb in win.tried}

    def merging_was_due(self, win, row):
        """One who may have two is merged only when both were one wish, or there was no room."""
        if self.specs[win.policy]["limit"] == 1:
            return True
        kept = self.rows[win.policy][row["merged_into"]]
        # What was cancelled since may have been in the way.
        held = [other for other in self.rows[win.policy].values()
                if other["user_id"] == win.user and other["state"] not in ("VOID", "MERGED")]
        is_same_wish = any({row["seq"], kept["seq"]} <= set(seqs)
                           for wish, seqs in self.book.seqs.items()
                           if wish.policy == win.policy and wish.user == win.user)
        return is_same_wish or len(held) >= self.specs[win.policy]["limit"]

    def keys(self):
        """Guarantee 5: the same key is the same claim, for ever; without a key the one that is
        held. What was merged counts as what it was merged into."""
        wrong = []
        for wish, seqs in self.book.seqs.items():
            final = {self.final(wish.policy, seq) for seq in seqs}
            if wish.key is None and self.specs[wish.policy]["limit"] > 1:
                continue
            if wish.key is None:  # One who cancelled may win again.
                final -= {seq for seq in final if self.may_be_cancelled(wish.policy, seq)}
            if len(final) > 1:
                wrong.append((wish, seqs))
        self.violations("one wish, several claims", wrong)

    def final(self, policy, seq):
        row = self.rows[policy].get(seq)
        return row["merged_into"] if row is not None and row["state"] == "MERGED" else seq

    def may_be_cancelled(self, policy, seq):
        win = self.book.wins.get((policy, seq))
        return win is not None and "cancel" in win.tried

    def order(self):
        """Guarantee 3: who was answered before another asked has the smaller seq."""
        if self.rig.variant == "fallback":
            return  # A reserve is handed out beside the gate.
        wrong = []
        for policy in self.rig.policies:
            wins = sorted(first[1:] for first in self.book.firsts if first[0] == policy)
            answered = sorted((at, seq) for _, at, seq in wins)
            highest, index = 0, 0
            for sent, _, seq in wins:
                while index < len(answered) and answered[index][0] < sent:
                    highest = max(highest, answered[index][1])
                    index += 1
                if seq < highest:
                    wrong.append(f"{policy}-{seq} was asked for at {sent:.2f} s, after {highest}"
                                 " had been answered")
        self.violations("not first come, first served", wrong)

    def limits(self):
        """LIMIT_REACHED is told only to somebody who has, or had, as many as the limit."""
        counts = collections.Counter((policy, row["user_id"]) for policy, rows in self.rows.items()
                                     for row in rows.values())
        self.violations("LIMIT_REACHED of somebody who never had so many", (
            (wish, counts[wish.policy, wish.user]) for wish, _ in self.book.limited
            if counts[wish.policy, wish.user] < self.specs[wish.policy]["limit"]))

    def sold_out_was_true(self):
        """SOLD_OUT is told only when nothing was free at some moment from a second before the
        question until the answer."""
        wrong = []
        wins = {policy: sorted(win.told_at for win in self.book.wins.values()
                               if win.policy == policy) for policy in self.rig.policies}
        for policy, sent, answered, user, server in self.book.sold_out:
            if self.sampler.is_known(sent - RETURN_S, answered):
                self.book.counts["SOLD_OUT judged"] += 1
            free = self.sampler.free_all_along(policy, sent - RETURN_S, answered,
                                               wins[policy])
            if free >= FREE_LEAST:
                wrong.append(f"{policy} to {user} by {server} at {sent:.2f}-{answered:.2f} s:"
                             f" {free} were free all along")
        self.violations("SOLD_OUT with stock free", wrong)

    # --- what is there ---

    def gate_knows_winners(self):
        """The gate answers told winners with the claim that the ledger has."""
        chance = random.Random(2)
        known = [(wish, seqs[-1]) for wish, seqs in self.book.seqs.items()
                 if wish.key or self.specs[wish.policy]["limit"] == 1]
        caller = Caller(self.rig, self.book)
        wrong = []
        for wish, seq in chance.sample(known, min(200, len(known))):
            server = chance.choice(self.rig.servers)
            answer = caller.claim(wish, server)
            win = self.book.wins[wish.policy, seq]
            final = self.final(wish.policy, seq)
            if wish.key is None and self.may_be_cancelled(wish.policy, final):
                continue  # They may have won another one.
            if answer is None or answer.status != 200 \
                    or answer.json["seq"] not in (seq, final):
                wrong.append((wish, seq, server.name, answer))
                continue
            row = self.rows[wish.policy].get(answer.json["seq"])
            state = "PENDING" if row is None else row["state"]
            if answer.json["coupon_state"] != state and not win.tried:
                wrong.append((wish, state, server.name, answer.json))
        caller.close()
        self.violations("told winners who hear something else now", wrong)

    def all_is_sold(self):
        """All stock that is left can be claimed, and is; only then it is SOLD_OUT."""
        policies = [policy for policy in self.rig.policies if self.policy(policy)["state"]
                    not in ("CLOSED", "PAUSED")]
        for policy in policies:
            self.sell(policy)
        deadline = time.monotonic() + 10
        while True:
            # What was on its way is sold, too.
            if not self.drained():
                return
            left = {policy: self.total(policy) - self.active(policy) for policy in policies}
            left = {policy: count for policy, count in left.items() if count}
            if not left or time.monotonic() > deadline:
                break
            time.sleep(0.2)
            for policy in left:
                self.sell(policy)
        self.violations("SOLD_OUT, and stock is left for good", left.items())

    def stock_returns(self):
        """Guarantee 3: new stock of what was sold out is claimable at every server in a moment,
        with and without a key."""
        policies = self.rig.policies[:2]
        caller = Caller(self.rig, self.book)
        for policy in policies:
            wait_until(lambda p=policy: self.rig.servers[0].process.patch(
                p, total=self.total(p) + NEW_UNITS).status == 200, "a higher total", SETTLE_S)
        time.sleep(RETURN_S)
        wrong = []
        for policy, server, keyed in itertools.product(policies, self.rig.servers, (True, False)):
            user = f"new-{policy}-{server.name}-{keyed}"
            wish = Wish(policy, user, KEY if keyed else None)
            # A busy machine may answer 503 for a moment; SOLD_OUT is wrong at once.
            deadline = time.monotonic() + BUSY_S
            while (answer := caller.claim(wish, server)) is not None and answer.status == 503 \
                    and time.monotonic() < deadline:
                time.sleep(0.1)
            if answer is None or answer.status not in WON:
                wrong.append((wish, server.name, answer))
        caller.close()
        self.violations(f"cannot be won {RETURN_S} s after it came", wrong)

    def sell(self, policy):
        """New people claim until each of some sellers hears SOLD_OUT."""
        numbers = itertools.count()
        refusals = []

        def work(seller):
            caller = Caller(self.rig, self.book)
            deadline = time.monotonic() + SETTLE_S
            while time.monotonic() < deadline:
                user = f"late-{policy}-{seller}-{next(numbers)}-{time.monotonic_ns()}"
                wish = Wish(policy, user, KEY)
                while True:
                    answer = caller.claim(wish, self.rig.servers[seller % 2])
                    if answer is not None and answer.status != 503:
                        break
                    if time.monotonic() > deadline:
                        refusals.append(answer)
                        break
                    time.sleep(0.05)
                if answer is None or answer.status not in WON:
                    break
            caller.close()

        threads = [threading.Thread(target=work, args=(seller,)) for seller in range(SELLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.violations(f"policy {policy} cannot be sold any more", refusals)

    def policy(self, policy):
        server = self.rig.servers[0].process
        answer = wait_until(lambda: (got := server.get(f"/v1/policies/{policy}")).status == 200
                            and got, f"policy {policy}", SETTLE_S)
        return answer.json

    def total(self, policy):
        return self.rig.database_server.query(
            self.rig.database.name, "SELECT total FROM policy WHERE id = %s", policy)[0]["total"]

    def active(self, policy):
        return sum(row["state"] in ("ISSUED", "REDEEMED") for row in self.rows[policy].values())

    def sums(self):
        """Guarantees 1, 2 and 6 in one snapshot, by our own arithmetic."""
        try:
            audit(self.rig.database)
        except AssertionError as error:
            self.rig.violation(f"the ledger does not add up: {error}")

    def audit(self):
        """What dibs itself says of gate and ledger."""
        ended = run_dibs("audit", "--json", timeout_s=SETTLE_S, config={
            "gate": self.rig.topology.url(), "ledger": self.rig.database.url})
        if ended.returncode != 0:
            try:
                items = [item for item in json.loads(ended.stdout)["items"] if not item["ok"]]
            except (ValueError, KeyError):
                items = ended.stdout[-500:]
            self.rig.violation(f"dibs audit ends with {ended.returncode}: {items}"
                               f" {ended.stderr[-500:]}")
