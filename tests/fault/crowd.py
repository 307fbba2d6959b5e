"""People who want a coupon and do not give up, in the background of whatever a test breaks."""

import collections
import contextlib
import itertools
import threading
import time

from harness import claim_bytes, expect_problem, wait_until
from history import endless
from wire import SLOW, Closed, Connection

SETTLE_TIMEOUT_S = 40
RETRY_PAUSE_S = 0.03


class Crowd:
    """Workers who claim on connections of their own, each claim with its key, and again after
    every 503 and every lost answer until they have won or are told why not. What they hear is
    noted in the history, which fails on contradictions; a 503 must be a clear one.

        with Crowd(server, history, [policy]) as crowd:
            crowd.await_wins(100)       # more than there were
            ...
        # Everyone who asked has been answered, or the test has failed.

    With `pause_s` each worker takes a breath between two claims: for tests that wait long for
    something else, and only need that people claim meanwhile.
    """

    def __init__(self, server, history, policies, people=None, prefix="crowd", workers=16,
                 repeats=2, pause_s=0):
        self.server = server
        self.history = history
        claims = endless(policies, prefix, repeats=repeats, keyed=True)
        self.claims = iter(claims if people is None
                           else itertools.islice(claims, people * repeats * len(policies)))
        self.pause_s = pause_s
        self.counts = collections.Counter()  # of statuses; None: the connection broke
        self.refused = set()                 # the threads that were told 503 since it was emptied
        self.words = collections.Counter()   # of the details of 503s
        self.slowest_s = 0
        self.errors = []
        self.changed = threading.Condition()
        self.ending = threading.Event()
        self.give_up_at = None
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self.stop(wants_answers=kind is None)
        print(f"crowd: {dict(self.counts)}, slowest {self.slowest_s:.2f} s, {dict(self.words)}")
        if kind is None:
            self.raise_errors()

    def stop(self, wants_answers=True):
        """Lets nobody new in, and waits until everyone inside is settled."""
        self.give_up_at = time.monotonic() + (SETTLE_TIMEOUT_S * SLOW if wants_answers else 0)
        self.ending.set()
        self.join()

    def join(self):
        for thread in self.threads:
            thread.join()

    def raise_errors(self):
        if self.errors:
            raise self.errors[0]

    # --- one worker ---

    def _work(self):
        connection = None
        try:
            while not self.ending.is_set():
                with self.changed:
                    claim = next(self.claims, None)
                if claim is None:
                    break
                connection = self._settle(claim, connection)
                if self.pause_s:
                    self.ending.wait(self.pause_s)
        except Exception as error:  # pylint: disable=broad-except
            with self.changed:
                self.errors.append(error)
                self.changed.notify_all()
            self.ending.set()
            self.give_up_at = time.monotonic()
        finally:
            if connection is not None:
                connection.close()

    def _settle(self, claim, connection):
        """Asks until there is an answer that stands; the connection to go on with."""
        while True:
            answer, connection = self._ask(claim, connection)
            self._note(claim, answer)
            if answer is not None and answer.status != 503:
                return connection
            if self.ending.is_set() and time.monotonic() >= self.give_up_at:
                assert self.errors, f"{claim} never got an answer"
                return connection
            time.sleep(RETRY_PAUSE_S)

    def _ask(self, claim, connection):
        started = time.monotonic()
        try:
            if connection is None:
                connection = Connection(self.server.address)
            connection.send(claim_bytes(claim.policy, claim.user, claim.key), "POST")
            answer = connection.receive()
        except (OSError, Closed, TypeError) as error:
            # TypeError: a server that is being started again has no address yet.
            if isinstance(error, TimeoutError):
                raise AssertionError(f"no answer to {claim}") from error
            if connection is not None:
                connection.close()
            return None, None
        with self.changed:
            self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        if answer.closes:
            connection.close()
            connection = None
        return answer, connection

    def _note(self, claim, answer):
        with self.changed:
            if answer is None:
                self.counts[None] += 1
            elif answer.status == 503:
                problem = expect_problem(answer, 503, "UNAVAILABLE")
                self.counts[503] += 1
                self.refused.add(threading.get_ident())
                self.words[problem.get("detail")] += 1
            else:
                self.history.saw(claim, answer)
                self.counts[answer.status] += 1
            self.changed.notify_all()

    # --- watching ---

    def _await(self, status, count, timeout_s):
        deadline = time.monotonic() + timeout_s * SLOW
        with self.changed:
            wanted = self.counts[status] + count
            while self.counts[status] < wanted:
                self.raise_errors()
                left = deadline - time.monotonic()
                assert left > 0, (f"{status} came {count + self.counts[status] - wanted} of"
                                  f" {count} times: {dict(self.counts)}")
                self.changed.wait(left)

    def await_wins(self, count, timeout_s=30):
        """Waits for so many more 201s."""
        self._await(201, count, timeout_s)

    def await_refusals(self, count=1, timeout_s=30):
        """Waits for so many more 503s."""
        self._await(503, count, timeout_s)

    def await_each_refused(self):
        """Waits until every worker has been told 503."""
        with self.changed:
            self.refused.clear()
        wait_until(lambda: self.errors or len(self.refused) == len(self.threads),
                   f"all are refused: {dict(self.counts)}", 60)
        self.raise_errors()

    def await_silence(self, count=1, timeout_s=30):
        """Waits for so many more connections that broke."""
        self._await(None, count, timeout_s)


# --- the server meanwhile ---


def await_ready(server):
    """Waits until every part of it is."""
    wait_until(lambda: server.get("/readyz").status == 200, "readiness", timeout_s=30)


def expect_away(server):
    """What a server says while it cannot use its database: its own words about that."""
    assert server.get("/healthz").status == 200
    answer = wait_until(lambda: next((a for a in [server.get("/readyz")] if a.status == 503), None),
                        "a server that is not ready", timeout_s=30)
    part = next(part for part in answer.json["parts"] if part["name"] == "ledger")
    assert part["ready"] is False, answer
    server.await_log("ledger_refuses")
    return part["detail"]


def expect_one_life(server):
    assert len(server.events("listening")) == 1, "it was started again"


@contextlib.contextmanager
def pester(ask):
    """Calls `ask` again and again in the background until it answers something else than 503; the
    block gets a list with that answer in the end."""
    answers = []
    errors = []
    stopped = threading.Event()

    def work():
        try:
            while not stopped.is_set():
                try:
                    answer = ask()
                except (OSError, Closed, TypeError):
                    answer = None
                if answer is not None and answer.status != 503:
                    answers.append(answer)
                    return
                time.sleep(RETRY_PAUSE_S)
        except Exception as error:  # pylint: disable=broad-except
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield answers
    except BaseException:
        stopped.set()
        raise
    finally:
        thread.join(SETTLE_TIMEOUT_S * SLOW)
        stopped.set()
    if errors:
        raise errors[0]
    assert answers, "it never got an answer"
