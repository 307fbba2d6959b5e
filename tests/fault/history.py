"""What clients were told, and whether it is still true after a crash."""

import collections
import os
import random

from harness import claim_bytes, expect, wait_until
from ledger import audit, coupons

ROUNDS = int(os.environ.get("DIBS_TEST_ROUNDS") or os.environ.get("ROUNDS") or 4)

Claim = collections.namedtuple("Claim", "policy user key")


def seeded():
    """A source of chance whose seed is in the output of a failing test."""
    seed = int(os.environ.get("DIBS_TEST_SEED") or random.randrange(2 ** 32))
    print(f"DIBS_TEST_SEED={seed}")
    return random.Random(seed)


class History:
    """Everything that was said to a client, by policy."""

    def __init__(self):
        self.wins = {}        # (policy, seq) → user
        self.seqs = {}        # (policy, user, key) → seq
        self.codes = {}       # (policy, seq) → code
        self.unknown = []     # claims whose answer never came
        self.sold_out = set()  # policies of which SOLD_OUT was said
        self.cancelled = set()  # (policy, seq) that were answered
        self.cancel_tried = set()  # (policy, seq) whose cancel was sent
        self.reissued = {}  # (policy, seq) whose reissue was sent → the seq in its place, if told

    def saw(self, claim, answer):
        """Notes one answer; contradictions fail at once."""
        if answer is None:
            self.unknown.append(claim)
            return
        if answer.status in (200, 201):
            body = answer.json
            seq = body["seq"]
            holder = self.wins.setdefault((claim.policy, seq), claim.user)
            assert holder == claim.user, f"seq {seq} was given to {holder} and {claim.user}"
            known = self.seqs.setdefault(claim, seq)
            assert known == seq, f"{claim} was told {known} and {seq}"
            code = self.codes.setdefault((claim.policy, seq), body["code"])
            assert code == body["code"], f"{claim.policy}-{seq} had the code {code}: {body}"
        elif answer.code == "SOLD_OUT":
            self.sold_out.add(claim.policy)
        else:
            assert answer.status == 503, answer
            self.unknown.append(claim)

    def rush(self, server, claims, connections=24, pipeline=1, on_answer=None):
        """Sends the claims (an iterator, possibly endless) and notes every answer."""
        sent = []

        def requests():
            for claim in claims:
                sent.append(claim)
                yield claim_bytes(claim.policy, claim.user, claim.key)

        outcomes = server.storm(requests(), connections=connections, pipeline=pipeline,
                                on_answer=on_answer)
        for outcome in outcomes:
            self.saw(sent[outcome.index], outcome.answer)
        return outcomes

    def cancel(self, server, policy, seq):
        self.cancel_tried.add((policy, seq))
        if server.cancel(f"{policy}-{seq}").status == 200:
            self.cancelled.add((policy, seq))

    def reissue(self, server, policy, seq):
        self.cancel_tried.add((policy, seq))
        self.reissued.setdefault((policy, seq))
        anew = expect(server.post(f"/v1/coupons/{policy}-{seq}/reissue", {}), 200)
        assert self.reissued[policy, seq] in (None, anew["seq"]), anew
        self.reissued[policy, seq] = anew["seq"]
        self.cancelled.add((policy, seq))
        self.wins[policy, anew["seq"]] = anew["user"]

    def check_reissued(self, server):
        """Of a limit of one: whoever's coupon was to be given anew holds the old one or the new one,
        and asked again it is the same."""
        for (policy, seq), told in list(self.reissued.items()):
            rows = coupons(server.database, policy)
            user = next(row["user_id"] for row in rows if row["seq"] == seq)
            active = [row["seq"] for row in rows
                      if row["user_id"] == user and row["state"] == "ISSUED"]
            assert len(active) == 1 and told in (None, *active), (user, told, rows)
            assert expect(server.claim(policy, user), 200)["seq"] == active[0]
            self.reissue(server, policy, seq)
            assert self.reissued[policy, seq] in (told, *active) or active == [seq]

    def check_rows(self, server):
        """Every win is in the ledger, once, with its seq and user; the sums are right."""
        audit(server.database)
        for policy in {policy for policy, _ in self.wins}:
            rows = {row["seq"]: row for row in coupons(server.database, policy)}
            for (owner, seq), user in self.wins.items():
                if owner != policy:
                    continue
                assert seq in rows, f"{user} was told {policy}-{seq}, and it is gone"
                row = rows[seq]
                assert row["user_id"] == user, f"{policy}-{seq} went from {user} to {row}"
                if (policy, seq) in self.cancelled:
                    assert row["state"] == "CANCELLED", row
                elif (policy, seq) not in self.cancel_tried:
                    assert row["state"] in ("ISSUED", "REDEEMED"), row

    def check_sold_out(self, server, policy, total):
        """Guarantee 8: whoever said SOLD_OUT had all units in the ledger."""
        if policy in self.sold_out:
            assert len(coupons(server.database, policy)) >= total

    def check_answers(self, server, sample=50):
        """The restarted server tells the winners the same as before."""
        known = [(claim, seq) for claim, seq in self.seqs.items()
                 if (claim.policy, seq) not in self.cancel_tried]
        for claim, seq in random.Random(1).sample(known, min(sample, len(known))):
            body = expect(server.claim(claim.policy, claim.user, key=claim.key), 200)
            assert body["seq"] == seq, (claim, seq, body)
            assert body["code"] == self.codes[claim.policy, seq], (claim, body)

    def retry_unknown(self, server):
        """Whoever never heard asks again with the same key and gets one claim, or SOLD_OUT."""
        retries, self.unknown = self.unknown, []
        if retries:
            self.rush(server, iter(retries), connections=min(24, len(retries)))
        assert not self.unknown, "an answer is missing though nothing was killed"

    def survive(self, server, chance, kill_after_max=400):
        """An on_answer for rush() that kills the server at a random answer."""
        left = [chance.randint(1, kill_after_max)]

        def on_answer(_outcome):
            left[0] -= 1
            if left[0] == 0:
                server.process.kill()

        return on_answer


def endless(policies, prefix, repeats=2, keyed=False):
    """Users who all ask more than once, on different connections, again and again."""
    number = 0
    while True:
        for policy in policies:
            for _ in range(repeats):
                user = f"{prefix}-{number}"
                yield Claim(policy, user, f"key-{user}" if keyed else None)
        number += 1


def await_death(server):
    wait_until(lambda: server.process.poll() is not None, "the end of the process", timeout_s=30)
    return server.wait()
