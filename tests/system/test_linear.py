"""First come, first served, over several servers: recorded histories, and the judge itself."""

import math
import threading
import time

import pytest

from harness import claim_bytes, expect
from linear import CANCEL, CLAIM, DONE, HELD, SOLD_OUT, UNKNOWN, WON, Op, violations
from wire import Closed, Connection, encode


def won(user, seq, asked_s, answered_s):
    return Op(CLAIM, user, seq, WON, asked_s, answered_s)


def held(user, seq, asked_s, answered_s):
    return Op(CLAIM, user, seq, HELD, asked_s, answered_s)


def sold_out(user, asked_s, answered_s):
    return Op(CLAIM, user, None, SOLD_OUT, asked_s, answered_s)


def unknown(user, asked_s):
    return Op(CLAIM, user, None, UNKNOWN, asked_s, asked_s)


def cancelled(seq, asked_s, answered_s):
    return Op(CANCEL, None, seq, DONE, asked_s, answered_s)


# Each of two units, and what is wrong with it.
WRONG = {
    "a later one gets a smaller seq":
        ("order", [won("a", 2, 0, 1), won("b", 1, 2, 3)]),
    "a repeat has told of a larger seq before":
        ("order", [won("a", 2, 0, 9), held("a", 2, 1, 2), won("b", 1, 3, 4)]),
    "two have the same seq":
        ("twice", [won("a", 1, 0, 1), won("b", 1, 0, 1)]),
    "a repeat is told of another's seq":
        ("twice", [won("a", 1, 0, 1), unknown("b", 0), held("b", 1, 2, 3)]),
    "one user wins both":
        ("twice", [won("a", 1, 0, 1), won("a", 2, 0, 1)]),
    "one user wins the same twice":
        ("twice", [won("a", 1, 0, 1), won("a", 1, 0, 1)]),
    "one user wins again before the cancel":
        ("twice", [won("a", 1, 0, 1), won("a", 2, 0, 1), cancelled(1, 2, 3)]),
    "a winner is told SOLD_OUT":
        ("forgotten", [won("a", 1, 0, 1), won("b", 2, 0, 1), sold_out("a", 2, 3)]),
    "a winner is told of another claim":
        ("forgotten", [won("a", 1, 0, 1), cancelled(1, 2, 3), won("a", 2, 4, 5),
                       held("a", 1, 6, 7)]),
    "a winner who only heard of it by a repeat is forgotten":
        ("forgotten", [unknown("a", 0), held("a", 1, 1, 2), won("b", 2, 1, 2),
                       sold_out("a", 3, 4)]),
    "SOLD_OUT before the last unit is asked for":
        ("sold out", [won("a", 1, 0, 1), sold_out("c", 2, 3), won("b", 2, 4, 5)]),
    "SOLD_OUT though one never was":
        ("sold out", [won("a", 1, 0, 1), sold_out("c", 0, 3)]),
    "SOLD_OUT a second after a unit came back":
        ("sold out", [won("a", 1, 0, 1), won("b", 2, 0, 1), cancelled(1, 2, 3),
                      sold_out("c", 4.1, 4.2)]),
    "three hold two":
        ("oversold", [won("a", 1, 0, 1), won("b", 2, 0, 1), won("c", 3, 0, 1)]),
    "a unit is sold again before its cancel":
        ("oversold", [won("a", 1, 0, 1), won("b", 2, 0, 1), won("c", 3, 2, 3),
                      cancelled(1, 4, 5)]),
    "a repeat of what nobody won":
        ("invented", [held("a", 1, 0, 1)]),
    "a claim told before it was asked for":
        ("invented", [held("a", 1, 0, 1), unknown("a", 2)]),
}

RIGHT = {
    "one after the other": [won("a", 1, 0, 1), won("b", 2, 2, 3), sold_out("c", 4, 5),
                            held("a", 1, 6, 7)],
    "at the same time in any order": [won("a", 2, 0, 3), won("b", 1, 1, 2), sold_out("c", 0, 3)],
    "the last unit may be taken by someone who never heard":
        [won("a", 1, 0, 1), unknown("b", 0), sold_out("c", 2, 3), held("b", 2, 4, 5)],
    "a unit comes back within its second": [won("a", 1, 0, 1), won("b", 2, 0, 1),
                                            cancelled(1, 2, 3), sold_out("c", 3.9, 4.2),
                                            won("c", 3, 4.3, 4.4), sold_out("d", 5, 6)],
    "cancelled twice, returned once": [won("a", 1, 0, 1), won("b", 2, 0, 1), cancelled(1, 2, 3),
                                       cancelled(1, 2, 4), won("c", 3, 5, 6), sold_out("d", 7, 8)],
    "won again after the cancel": [won("a", 1, 0, 1), won("b", 2, 0, 1), cancelled(1, 2, 5),
                                   won("a", 3, 3, 4), held("a", 3, 6, 7)],
}


@pytest.mark.parametrize("kind,ops", WRONG.values(), ids=WRONG.keys())
def test_linear__finds_what_no_order_explains(kind, ops):
    found = violations(ops, 2)
    assert found and all(words.startswith(kind) for words in found), found


@pytest.mark.parametrize("ops", RIGHT.values(), ids=RIGHT.keys())
def test_linear__takes_what_some_order_explains(ops):
    assert violations(ops, 2) == []


class Recorder(threading.Thread):
    """One client with a connection to one server, who claims for a few users and cancels."""

    RESULTS = {201: WON, 202: WON, 200: HELD, 409: SOLD_OUT, 503: UNKNOWN}

    def __init__(self, address, policy, users, until_s):
        super().__init__(daemon=True)
        self.connection = Connection(address)
        self.policy = policy
        self.users = users
        self.until_s = until_s
        self.ops = []
        self.error = None

    def _ask(self, raw):
        asked_s = time.monotonic()
        self.connection.send(raw, "POST")
        return asked_s, self.connection.receive(), time.monotonic()

    def _claim(self, user):
        asked_s, answer, answered_s = self._ask(claim_bytes(self.policy, user))
        result = self.RESULTS[answer.status]
        assert result != SOLD_OUT or answer.code == "SOLD_OUT", answer
        seq = answer.json["seq"] if result in (WON, HELD) else None
        self.ops.append(Op(CLAIM, user, seq, result, asked_s, answered_s))
        return seq

    def _cancel(self, seq):
        path = f"/v1/coupons/{self.policy}-{seq}/cancel"
        asked_s, answer, answered_s = self._ask(encode("POST", path, {}))
        if answer.status == 404:  # It is still pending.
            return
        assert answer.status in (200, 503), answer
        self.ops.append(Op(CANCEL, None, seq, DONE if answer.status == 200 else UNKNOWN, asked_s,
                           answered_s))

    def run(self):
        try:
            with self.connection:
                turn = 0
                while time.monotonic() < self.until_s:
                    for user in self.users:
                        seq = self._claim(user)
                        turn += 1
                        if seq and turn % 3 == 0:
                            self._cancel(seq)
        except (AssertionError, Closed, OSError, KeyError) as error:
            self.error = error


def record(server, total, seconds):
    """Fewer units than people, who come again and again, and give back some of what they won."""
    policy = server.create(total=total)["id"]
    until_s = time.monotonic() + seconds
    # Some users are shared by two clients, which may be on different servers.
    clients = [Recorder(server.address, policy, [f"u{n}", f"u{(n + 1) % 16}"], until_s)
               for n in range(16)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        assert client.error is None, client.error
    ops = sorted((op for client in clients for op in client.ops), key=lambda op: op.asked_s)
    results = {op.result for op in ops}
    print(f"{len(ops)} calls: {results}")
    assert {WON, HELD, SOLD_OUT, DONE} <= results, results
    assert violations(ops, total, math.inf) == []
    # What was told is what is there.
    for op in ops[-40:]:
        if op.result == WON and not any(o.kind == CANCEL and o.seq == op.seq for o in ops):
            assert expect(server.claim(policy, op.user), 200)["seq"] == op.seq
    return violations(ops, total)


def test_linear__claims_and_cancels_of_many(server):
    """What came back can be had a second later, in one of several histories: on a busy machine
    whoever sees to it may have to wait for longer in the others."""
    late = []
    for _ in range(4):
        late = record(server, 12, 4)
        if not late:
            return
    raise AssertionError(late)
