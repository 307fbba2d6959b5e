"""Users who claim, ask again, cancel and redeem, operators who change policies, and a book of every
word that they were told."""

import collections
import itertools
import random
import threading
import time

from harness import claim_bytes
from wire import Closed, Connection, encode

USER_THREADS = 8
TRIES = 3            # before a user gives up for a while
ANSWER_S = 45        # no request may take longer, whatever is broken
WON = (200, 201, 202)
UNKNOWN = (None, 503)
KEY, OTHER_KEY = "first", "second"  # Everybody's: another user's same key is another key.

Wish = collections.namedtuple("Wish", "policy user key")


class Win:
    """A claim that somebody was told of."""

    def __init__(self, policy, seq, user, told_at):
        self.policy, self.seq, self.user, self.told_at = policy, seq, user, told_at
        self.code = None
        self.keys = set()
        self.nths = set()
        self.statuses = set()
        self.tried = set()  # "cancel" or "redeem": one of them, at most
        self.done = set()

    def __repr__(self):
        return (f"{self.policy}-{self.seq} of {self.user} (told {sorted(self.statuses)}"
                f" at {self.told_at:.2f} s, keys {sorted(map(str, self.keys))},"
                f" tried {sorted(self.tried)}, done {sorted(self.done)})")


class Book:
    """Everything that was said to anyone."""

    def __init__(self, rig):
        self.rig = rig
        self.lock = threading.Lock()
        self.wins = {}                             # (policy, seq) → Win
        self.seqs = collections.defaultdict(list)  # wish → the different seqs told, in order
        self.firsts = []     # (policy, sent, answered, seq) of claims that won at the first try
        self.sold_out = []   # (policy, sent, answered, user, server)
        self.limited = []    # (wish, answered)
        self.open = []       # wishes without an answer that stands
        self.counts = collections.Counter()
        self.slowest_s = 0
        self.last_win_at = 0

    def now(self):
        return time.monotonic() - self.rig.began

    def note(self, wish, answer, sent, answered, is_first, server):
        """Notes the answer to a claim."""
        with self.lock:
            status = answer.status if answer is not None else None
            code = answer.code if answer is not None and status not in WON else None
            self.counts[code or status] += 1
            self.slowest_s = max(self.slowest_s, answered - sent)
            if status in WON:
                self._note_win(wish, answer, sent, answered, is_first)
            elif code == "SOLD_OUT":
                self.sold_out.append((wish.policy, sent, answered, wish.user, server))
            elif code == "LIMIT_REACHED":
                self.limited.append((wish, answered))
            elif status not in UNKNOWN and code not in ("PAUSED", "CLOSED"):
                self.rig.violation(f"{wish} was told {answer} by {server}")

    def _note_win(self, wish, answer, sent, answered, is_first):
        body = answer.json
        place = (wish.policy, body["seq"])
        win = self.wins.get(place)
        if win is None:
            win = self.wins[place] = Win(*place, wish.user, answered)
        if win.user != wish.user or body["user"] != wish.user:
            self.rig.violation(f"{wish} was told of {win}: {body}")
        if win.code not in (None, body["code"]):
            self.rig.violation(f"{win} had the code {win.code}: {body}")
        win.code = body["code"]
        win.keys.add(wish.key)
        win.nths.add(body["nth"])
        win.statuses.add(answer.status)
        self.last_win_at = answered
        seqs = self.seqs[wish]
        if body["seq"] not in seqs:
            seqs.append(body["seq"])
        if is_first and answer.status != 200:
            self.firsts.append((wish.policy, sent, answered, body["seq"]))

    def some_win(self, chance):
        with self.lock:
            if not self.wins:
                return None
            return self.wins[chance.choice(list(itertools.islice(self.wins, 4000)))]

    def take_open(self, chance):
        with self.lock:
            return self.open.pop(chance.randrange(len(self.open))) if self.open else None

    def leave_open(self, wish):
        with self.lock:
            self.open.append(wish)


class Caller:
    """One person's connections, one to each server."""

    def __init__(self, rig, book):
        self.rig, self.book = rig, book
        self.connections = {}

    def close(self):
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()

    def send(self, member, raw, method="POST"):
        """The answer and when it was asked for and came; None: there is none."""
        sent = self.book.now()
        address = member.address
        if address is None:
            return None, sent, sent
        try:
            connection = self.connections.get(address)
            if connection is None:
                connection = self.connections[address] = Connection(address, timeout_s=ANSWER_S)
            connection.send(raw, method)
            answer = connection.receive()
        except (OSError, Closed) as error:
            stale = self.connections.pop(address, None)
            if stale is not None:
                stale.close()
            if isinstance(error, TimeoutError) and member.address == address:
                self.rig.violation(f"{member.name} did not answer within {ANSWER_S} s: {raw[:90]}")
            return None, sent, self.book.now()
        if answer.closes:
            self.connections.pop(address).close()
        return answer, sent, self.book.now()

    def claim(self, wish, member, is_first=False):
        answer, sent, answered = self.send(member, claim_bytes(*wish))
        self.book.note(wish, answer, sent, answered, is_first, member.name)
        return answer

    def coupon(self, win, verb, member, order=None):
        """Cancels or redeems; whether it was done."""
        with self.book.lock:
            if win.tried - {verb}:
                return False
            win.tried.add(verb)
        body = {"order_id": order} if order else {}
        answer, _, _ = self.send(
            member, encode("POST", f"/v1/coupons/{win.policy}-{win.seq}/{verb}", body))
        with self.book.lock:
            status = answer.status if answer is not None else None
            self.book.counts[f"{verb} {status}"] += 1
            if status == 200:
                win.done.add(verb)
            elif status not in (*UNKNOWN, 404, 409):
                self.rig.violation(f"{verb} of {win}: {answer}")
        return status == 200

    def status(self, win, member):
        answer, _, _ = self.send(member, encode(
            "GET", f"/v1/policies/{win.policy}/claims/{win.user}"), "GET")
        with self.book.lock:
            self.book.counts[f"status {answer.status if answer is not None else None}"] += 1
        return answer


class People:
    """Users and operators in the background of the faults."""

    def __init__(self, rig, book, specs):
        self.rig, self.book, self.specs = rig, book, specs
        self.over = threading.Event()
        self.numbers = itertools.count(1)
        self.open_policies = set(specs)
        seed = rig.schedule.people_seed
        self.threads = [threading.Thread(target=self._guarded, daemon=True,
                                         args=(self._use, random.Random(f"{seed}-{number}")))
                        for number in range(USER_THREADS)]
        self.threads.append(threading.Thread(target=self._guarded, daemon=True,
                                             args=(self._operate, random.Random(f"{seed}-o"))))

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _guarded(self, work, chance):
        caller = Caller(self.rig, self.book)
        try:
            work(caller, chance)
        except Exception as error:  # pylint: disable=broad-except
            self.rig.violation(f"an answer that nobody can read: {error!r}")
        finally:
            caller.close()

    # --- users ---

    def _use(self, caller, chance):
        actions, weights = zip((self._new, 60), (self._again, 12), (self._more, 8),
                               (self._resume, 16), (self._cancel, 8), (self._redeem, 5),
                               (self._status, 5))
        while not self.over.is_set():
            chance.choices(actions, weights)[0](caller, chance)
            self.over.wait(chance.uniform(0, 0.04))

    def _new(self, caller, chance):
        policy = chance.choice(list(self.specs))
        user = f"u{next(self.numbers)}"
        key = KEY if chance.random() < 0.6 else None
        self._settle(caller, chance, Wish(policy, user, key), is_first=True)

    def _settle(self, caller, chance, wish, is_first=False):
        """Asks a few times; what stays without an answer is left for later. Without a key nobody
        with a limit above 1 asks again: it would be another wish."""
        for number in range(TRIES):
            answer = caller.claim(wish, chance.choice(self.rig.servers), is_first and number == 0)
            if answer is not None and answer.status != 503:
                return
            if self.over.wait(chance.choice([0.02, 0.1, 0.3])):
                break
        if wish.key or self.specs[wish.policy]["limit"] == 1:
            self.book.leave_open(wish)

    def _resume(self, caller, chance):
        wish = self.book.take_open(chance)
        if wish:
            self._settle(caller, chance, wish)

    def _again(self, caller, chance):
        win = self.book.some_win(chance)
        if not win:
            return
        with self.book.lock:
            key = chance.choice(sorted(win.keys, key=str))
        if key or self.specs[win.policy]["limit"] == 1:
            caller.claim(Wish(win.policy, win.user, key), chance.choice(self.rig.servers))

    def _more(self, caller, chance):
        """The same user once more, with another key: the one they hold, or their second."""
        win = self.book.some_win(chance)
        if win:
            self._settle(caller, chance, Wish(win.policy, win.user, OTHER_KEY))

    def _cancel(self, caller, chance):
        win = self.book.some_win(chance)
        if win:
            caller.coupon(win, "cancel", chance.choice(self.rig.servers))

    def _redeem(self, caller, chance):
        win = self.book.some_win(chance)
        if win:
            caller.coupon(win, "redeem", chance.choice(self.rig.servers), f"order-{win.user}")

    def _status(self, caller, chance):
        win = self.book.some_win(chance)
        if not win:
            return
        answer = caller.status(win, chance.choice(self.rig.servers))
        if answer is not None and answer.status not in (200, 503):
            self.rig.violation(f"the status of {win}: {answer}")

    # --- operators ---

    def _operate(self, caller, chance):
        policies = list(self.specs)
        closes_at = self.book.now() + chance.uniform(2, 12) if chance.random() < 0.7 else None
        while not self.over.wait(chance.uniform(0.3, 1.2)):
            if closes_at and self.book.now() > closes_at:
                self._patch(caller, chance, policies[3], None)
            elif chance.random() < 0.6:
                policy = chance.choice(policies[1:3])
                total = max(20, self.specs[policy]["total"] + chance.randint(-60, 60))
                self._patch(caller, chance, policy, {"total": total})
            else:
                self._patch(caller, chance, policies[2], {"paused": True})
                self.over.wait(chance.uniform(0.1, 0.6))
                self._patch(caller, chance, policies[2], {"paused": False})

    def _patch(self, caller, chance, policy, fields):
        member = chance.choice(self.rig.servers)
        method = "PATCH" if fields else "DELETE"
        answer, _, _ = caller.send(member, encode(method, f"/v1/policies/{policy}", fields), method)
        status = answer.status if answer is not None else None
        with self.book.lock:
            self.book.counts[f"{method} {status}"] += 1
        if status not in (*UNKNOWN, 200, 409):
            self.rig.violation(f"{method} {policy} {fields}: {answer}")
        return status == 200

    # --- after the faults ---

    def settle_all(self, timeout_s):
        """Everyone who has no answer gets one, and nothing stays paused; who is left is told of."""
        caller, chance = Caller(self.rig, self.book), random.Random(1)
        deadline = time.monotonic() + timeout_s
        paused = list(self.specs)[2]
        while not self._patch(caller, chance, paused, {"paused": False}):
            if time.monotonic() > deadline:
                self.rig.violation(f"policy {paused} cannot be changed {timeout_s} s after all is well")
                break
            time.sleep(0.1)
        while (wish := self.book.take_open(chance)) is not None:
            answer = caller.claim(wish, chance.choice(self.rig.servers))
            if answer is None or answer.status == 503:
                self.book.leave_open(wish)
                if time.monotonic() > deadline:
                    words = answer.body if answer is not None else "nothing"
                    self.rig.violation(f"{len(self.book.open)} wishes without an answer"
                                       f" {timeout_s} s after all is well, such as {wish}: {words}")
                    break
                time.sleep(0.05)
        caller.close()
