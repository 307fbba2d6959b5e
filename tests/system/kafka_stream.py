"""What a shop has in Kafka: one broker for all tests, topics of their own for each.

    stream = Stream()                           # a prefix that nobody else has
    Sharing(folder, redis, relay=…) or serve(config={"relay": stream.url})
    stream.pended(), stream.issued(), stream.dead()          # what is in the topics now
    check_pended(stream.pended(), {policy: 200})             # all that must hold of them
"""

import collections
import itertools
import json
import re
import threading

from harness import wait_until
from ledger import coupons
from servers import KafkaBroker

PENDED, ISSUED = "coupon-pended", "coupon-issued"
DEAD, ORDERS = "coupon-pended-dlq", "order-completed"
GROUP = "dibs-issuer"
SESSION_MS = 2000  # Nobody waits longer than needed for a worker that was killed.
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
CLAIM_FIELDS = ["policy_id", "user", "seq", "nth", "lease", "request_id", "requested_at"]

Event = collections.namedtuple("Event", "partition offset headers body")


def url_of(broker, prefix):
    return broker.url(prefix=prefix, session_timeout_ms=SESSION_MS)


class _Shared:
    """The broker of all tests, started when the first needs it; the guard of the house ends it."""

    broker = None
    lock = threading.Lock()  # A test may start several shops at once.
    numbers = itertools.count(1)

    @classmethod
    def get(cls):
        with cls.lock:
            if cls.broker is None:
                cls.broker = KafkaBroker().start()
            return cls.broker


class Stream:
    """The topics of one shop; `broker` when it is not the one that all share."""

    def __init__(self, broker=None):
        self.broker = broker or _Shared.get()
        self.prefix = f"t{next(_Shared.numbers)}-"
        self.url = url_of(self.broker, self.prefix)
        self.direct_url = self.url + "&claims=direct"

    def revive(self):
        """Puts the broker right, whatever a test did to it."""
        self.broker.resume()
        if not self.broker.alive:
            self.broker.kill()
            self.broker.start()

    def name(self, topic):
        return self.prefix + topic

    def messages(self, topic):
        return self.broker.topics.messages(self.name(topic))

    def events(self, topic):
        return [Event(one.partition, one.offset, one.headers, json.loads(one.value))
                for one in self.messages(topic)]

    def pended(self):
        return self.messages(PENDED)

    def issued(self):
        return self.events(ISSUED)

    def dead(self):
        return self.messages(DEAD)

    def await_issued(self, count, kind="dibs.coupon.issued", timeout_s=30):
        """The events, once there are so many different ones of that type."""
        def enough():
            events = self.issued()
            ids = {event.headers["ce_id"] for event in events
                   if event.headers["ce_type"] == kind}
            return events if len(ids) >= count else None

        return wait_until(enough, f"{count} events {kind}", timeout_s)

    def lag(self):
        """How many messages the group has not committed, of partitions with any."""
        committed = self.broker.topics.committed(self.name(GROUP), self.name(PENDED))
        ends = {}
        for one in self.pended():
            ends[one.partition] = one.offset + 1
        return sum(end - committed.get(partition, 0) for partition, end in ends.items())

    def await_no_lag(self, timeout_s=30):
        wait_until(lambda: self.lag() == 0, "every offset is committed", timeout_s)


def check_claim(message):
    """A claim's message is as the contract has it; its body."""
    body = json.loads(message.value)
    assert list(body) == CLAIM_FIELDS, message
    assert message.key == str(body["policy_id"]).encode(), message
    headers = dict(message.headers)
    headers.pop("traceparent", None)
    assert TIME.fullmatch(headers.pop("ce_time")), message
    assert headers == {
        "ce_specversion": "1.0",
        "ce_id": f"{body['policy_id']}-{body['seq']}",
        "ce_source": f"/dibs/policies/{body['policy_id']}",
        "ce_type": "dibs.coupon.pended",
        "content-type": "application/json",
    }, message
    assert TIME.fullmatch(body["requested_at"]) and len(body["request_id"]) == 32, message
    return body


def check_pended(messages, totals, skip=()):
    """Each of the policies has as many different claims, all in one partition, and their first occurrences
    rise by seq. Repeats are the same claim. {policy: {seq: user}}"""
    found = {policy: {} for policy in totals}
    partitions = collections.defaultdict(set)
    for message in messages:
        if message.value in skip:
            continue
        body = check_claim(message)
        if body["policy_id"] not in found:
            continue
        seqs = found[body["policy_id"]]
        partitions[body["policy_id"]].add(message.partition)
        if body["seq"] in seqs:
            assert seqs[body["seq"]] == body["user"], f"two claims with one seq: {message}"
            continue
        assert not seqs or body["seq"] > max(seqs), \
            f"{body['seq']} came for the first time behind {max(seqs)}: {message}"
        seqs[body["seq"]] = body["user"]
    for policy, total in totals.items():
        assert len(found[policy]) == total, (policy, len(found[policy]))
        assert len(partitions[policy]) == 1, f"policy {policy} is in {partitions[policy]}"
    return found


def check_issued(events):
    """Of every coupon the states come in an order that can be; repeats are allowed, and those of a
    policy lie in one partition. {coupon_id: its event types, each once}"""
    seen = collections.defaultdict(list)
    partitions = collections.defaultdict(set)
    for event in events:
        kind = event.headers["ce_type"].rpartition(".")[2]
        assert event.headers["ce_id"] == f"{event.body['coupon_id']}-{kind}", event
        assert event.headers["ce_source"] == f"/dibs/policies/{event.body['policy_id']}", event
        assert "code" not in event.body, "a coupon's code is nobody else's business"
        partitions[event.body["policy_id"]].add(event.partition)
        kinds = seen[event.body["coupon_id"]]
        if kind not in kinds:
            kinds.append(kind)
    for policy, places in partitions.items():
        assert len(places) == 1, f"events of {policy} are in {places}"
    for coupon, kinds in seen.items():
        assert kinds[0] in ("issued", "voided", "merged"), (coupon, kinds)
    return seen


def check_told(stream, database, policies):
    """Sooner or later other services hear of every coupon, and only of those that are there."""
    wanted = {f"{policy}-{row['seq']}" for policy in policies
              for row in coupons(database, policy) if row["state"] == "ISSUED"}

    def told():
        return {coupon for coupon, kinds in check_issued(stream.issued()).items()
                if "issued" in kinds and int(coupon.partition("-")[0]) in policies}

    wait_until(lambda: told() >= wanted, "other services hear of every coupon", 60)
    assert told() == wanted


def check_committed(stream, database):
    """No offset is committed of a claim that is not in the ledger."""
    committed = stream.broker.topics.committed(stream.name(GROUP), stream.name(PENDED))
    known = {}
    for message in stream.pended():
        if message.offset < committed.get(message.partition, 0):
            body = json.loads(message.value)
            policy = body["policy_id"]
            if policy not in known:
                known[policy] = {row["seq"] for row in coupons(database, policy)}
            assert body["seq"] in known[policy], f"committed, and not in the ledger: {message}"
