"""Judges what clients heard: whether one line of decisions can explain a recorded history.

A history is a list of Ops of one policy with `per_user_limit` 1, from any number of threads and
servers, each with the moments at which it was asked and answered. A decision was made at some
moment between the two. The claims and cancels of a history that is right could have been decided
one after the other, at such moments; violations() finds what no order explains:

    order      who was answered before another asked has the larger seq
    twice      a seq has two holders, or a user holds two coupons
    forgotten  someone who holds a coupon is not told of it when they ask again
    sold out   SOLD_OUT is said though a unit must have been there, or back for longer than GRACE_S
    oversold   more coupons are certainly held than there are
    invented   an answer names a claim that nobody can have won
"""

import bisect
import collections
import itertools

CLAIM, CANCEL = "claim", "cancel"
WON, HELD, SOLD_OUT, DONE, UNKNOWN = "won", "held", "sold out", "done", "unknown"
GRACE_S = 1.0  # in which returned stock has to be claimable again

# `seq` is that of the claim told, or of the coupon to cancel; None when there is none. UNKNOWN: no
# answer came, or a 503: it may have been decided either way, at any moment since.
Op = collections.namedtuple("Op", "kind user seq result asked_s answered_s")


def _wins(ops):
    return [op for op in ops if op.kind == CLAIM and op.result == WON]


def _find_order(ops):
    """A claim that is told, by whichever answer, was decided before that answer."""
    told = sorted((op.answered_s, op.seq) for op in ops
                  if op.kind == CLAIM and op.result in (WON, HELD))
    highest, at = 0, 0
    for op in sorted(_wins(ops), key=lambda op: op.asked_s):
        while at < len(told) and told[at][0] < op.asked_s:
            highest = max(highest, told[at][1])
            at += 1
        if op.seq <= highest:
            yield f"order: {op} was asked for after {highest} had been told"


def _find_twice(ops, cancels):
    holder = {}
    by_user = collections.defaultdict(list)
    for op in ops:
        if op.kind != CLAIM or op.result not in (WON, HELD):
            continue
        if holder.setdefault(op.seq, op.user) != op.user:
            yield f"twice: {op} has the seq of {holder[op.seq]}"
    for op in _wins(ops):
        by_user[op.user].append(op)
    for wins in by_user.values():
        wins.sort(key=lambda op: op.seq)
        for before, after in zip(wins, wins[1:]):
            if before.seq == after.seq:
                yield f"twice: {after} was won before"
            elif not any(cancel.asked_s < after.answered_s for cancel in cancels[before.seq]):
                yield f"twice: {after} was won though {before} is held"


def _find_forgotten(ops, cancels):
    by_user = collections.defaultdict(list)
    for op in ops:
        if op.kind == CLAIM:
            by_user[op.user].append(op)
    for claims in by_user.values():
        claims.sort(key=lambda op: op.asked_s)
        # Who was told of a claim first of all was told of it to every later one, too.
        first_told = {}
        for op in claims:
            if op.result in (WON, HELD):
                first_told[op.seq] = min(first_told.get(op.seq, op), op,
                                         key=lambda op: op.answered_s)
        for known in first_told.values():
            gone_s = min((cancel.asked_s for cancel in cancels[known.seq]), default=float("inf"))
            later = bisect.bisect_right(claims, known.answered_s, key=lambda op: op.asked_s)
            for op in itertools.islice(claims, later, None):
                if op.asked_s >= gone_s:
                    break
                if (op.answered_s < gone_s
                        and op.result != UNKNOWN and (op.result, op.seq) != (HELD, known.seq)):
                    yield f"forgotten: {op} though {known}"


def _find_invented(ops):
    won = {op.seq for op in _wins(ops)}
    for op in ops:
        if op.result == HELD and op.seq not in won and not any(
                other.user == op.user and other.result == UNKNOWN and other.kind == CLAIM
                and other.asked_s < op.answered_s for other in ops):
            yield f"invented: {op}"


def _find_sold_out(ops, total, grace_s):
    """Counts against itself: whoever may have won by then has, and only a cancel that was answered
    `grace_s` before has returned its unit."""
    won = {op.seq for op in _wins(ops)}
    taken_s = sorted([op.asked_s for op in ops if op.kind == CLAIM and op.result in (WON, UNKNOWN)]
                     + [op.asked_s for op in ops if op.result == HELD and op.seq not in won])
    # A coupon that is cancelled again returns nothing more.
    first_done = {}
    for op in ops:
        if op.kind == CANCEL and op.result == DONE:
            first_done[op.seq] = min(first_done.get(op.seq, op.answered_s), op.answered_s)
    returned_s = sorted(at + grace_s for at in first_done.values())
    for op in ops:
        if op.result == SOLD_OUT:
            left = (total - bisect.bisect_left(taken_s, op.answered_s)
                    + bisect.bisect_left(returned_s, op.asked_s))
            if left > 0:
                yield f"sold out: {op} though {left} must have been there"


def _find_oversold(ops, total):
    moments = [(op.answered_s, 1) for op in _wins(ops)]
    asked_s = {}
    for op in ops:
        if op.kind == CANCEL:
            asked_s[op.seq] = min(asked_s.get(op.seq, op.asked_s), op.asked_s)
    moments += [(at, -1) for at in asked_s.values()]
    held = 0
    for at, change in sorted(moments):
        held += change
        if held > total:
            yield f"oversold: {held} of {total} are held at {at}"
            return


def violations(ops, total, grace_s=GRACE_S):
    """What is wrong with a history, one sentence each; none: it is linearizable as far as seen."""
    cancels = collections.defaultdict(list)
    for op in ops:
        if op.kind == CANCEL:
            cancels[op.seq].append(op)
    return [*_find_order(ops), *_find_twice(ops, cancels), *_find_forgotten(ops, cancels),
            *_find_invented(ops), *_find_sold_out(ops, total, grace_s), *_find_oversold(ops, total)]
