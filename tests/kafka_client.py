"""What the tests ask of a Kafka broker, through librdkafka itself: what is in a topic, what a group
has committed, and messages of their own.

    topics = KafkaClient("127.0.0.1:9092")
    topics.messages("coupon-pended")            # all that is in it now, by partition and offset
    topics.produce("coupon-pended", b"poison", key=b"42", headers={"ce_id": "42-1"})
    topics.create("order-completed", partitions=3)
    topics.committed("dibs-issuer", "coupon-pended")         # {partition: next offset}

Every call has a client of its own, so none remembers a broker that is gone.
"""
import collections
import contextlib
import ctypes
import time

Message = collections.namedtuple("Message", "partition offset key value headers")

TIMEOUT_S = 60
# A broker that was busy for its session's time gives the groups up and takes them back: it loads
# them, they are nowhere, or elsewhere.
COORDINATOR_MOVES = (14, 15, 16)
CONSUMER, PRODUCER = 1, 0
PARTITION_EOF = -191
OFFSET_FIRST = 0  # Nothing is ever deleted, and asking where a partition begins takes a while.
TOPIC_EXISTS = 36


class KafkaError(Exception):
    """What the broker or librdkafka says."""


class _Message(ctypes.Structure):  # rd_kafka_message_t
    _fields_ = [("err", ctypes.c_int), ("topic", ctypes.c_void_p), ("partition", ctypes.c_int32),
                ("payload", ctypes.c_void_p), ("length", ctypes.c_size_t),
                ("key", ctypes.c_void_p), ("key_length", ctypes.c_size_t),
                ("offset", ctypes.c_int64), ("private", ctypes.c_void_p)]


class _Partition(ctypes.Structure):  # rd_kafka_topic_partition_t
    _fields_ = [("topic", ctypes.c_char_p), ("partition", ctypes.c_int32),
                ("offset", ctypes.c_int64), ("metadata", ctypes.c_void_p),
                ("metadata_size", ctypes.c_size_t), ("opaque", ctypes.c_void_p),
                ("err", ctypes.c_int), ("private", ctypes.c_void_p)]


class _Partitions(ctypes.Structure):  # rd_kafka_topic_partition_list_t
    _fields_ = [("count", ctypes.c_int), ("size", ctypes.c_int),
                ("elements", ctypes.POINTER(_Partition))]


class _MetadataPartition(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int32), ("err", ctypes.c_int), ("leader", ctypes.c_int32),
                ("replica_count", ctypes.c_int), ("replicas", ctypes.c_void_p),
                ("isr_count", ctypes.c_int), ("isrs", ctypes.c_void_p)]


class _MetadataTopic(ctypes.Structure):
    _fields_ = [("topic", ctypes.c_char_p), ("partition_count", ctypes.c_int),
                ("partitions", ctypes.POINTER(_MetadataPartition)), ("err", ctypes.c_int)]


class _Metadata(ctypes.Structure):  # rd_kafka_metadata_t
    _fields_ = [("broker_count", ctypes.c_int), ("brokers", ctypes.c_void_p),
                ("topic_count", ctypes.c_int), ("topics", ctypes.POINTER(_MetadataTopic))]


class _Library:
    """librdkafka with the types of what is called."""

    POINTERS = ("conf_new", "new", "topic_partition_list_new", "topic_partition_list_add",
                "consumer_poll", "NewTopic_new", "queue_new", "queue_poll",
                "event_CreateTopics_result", "CreateTopics_result_topics", "topic_result_error_string",
                "headers_new")

    def __init__(self):
        self.library = ctypes.CDLL("librdkafka.so.1")
        for name in self.POINTERS:
            self(name).restype = ctypes.c_void_p
        for name in ("err2str", "topic_result_error_string"):
            self(name).restype = ctypes.c_char_p
        self("topic_partition_list_add").restype = ctypes.POINTER(_Partition)
        self("topic_partition_list_new").restype = ctypes.POINTER(_Partitions)
        self("consumer_poll").restype = ctypes.POINTER(_Message)

    def __call__(self, name):
        return getattr(self.library, f"rd_kafka_{name}")

    def check(self, code):
        if code != 0:
            raise KafkaError(self("err2str")(code).decode())


_library = None


def library():
    global _library
    if _library is None:
        _library = _Library()
    return _library


class KafkaClient:
    """Asks the brokers named "host:port,…"."""

    def __init__(self, brokers):
        self.brokers = brokers

    @contextlib.contextmanager
    def _handle(self, kind, **settings):
        call = library()
        conf = ctypes.c_void_p(call("conf_new")())
        words = ctypes.create_string_buffer(512)
        for name, value in {"bootstrap.servers": self.brokers, "log_level": 0,
                            "socket.timeout.ms": 10000, **settings}.items():
            if call("conf_set")(conf, name.encode(), str(value).encode(), words, 512) != 0:
                raise KafkaError(words.value.decode())
        handle = call("new")(kind, conf, words, 512)
        if not handle:
            raise KafkaError(words.value.decode())
        handle = ctypes.c_void_p(handle)
        try:
            yield handle
        finally:
            if kind == CONSUMER:
                call("consumer_close")(handle)
            call("destroy")(handle)

    def _partitions(self, handle, topic, timeout_s=TIMEOUT_S):
        """The partitions of a topic; none when there is no such topic."""
        call = library()
        metadata = ctypes.POINTER(_Metadata)()
        call.check(call("metadata")(handle, 1, None, ctypes.byref(metadata),
                                    int(timeout_s * 1000)))
        try:
            found = [topic_.partition_count for topic_ in
                     metadata.contents.topics[:metadata.contents.topic_count]
                     if topic_.topic == topic.encode() and topic_.err == 0]
        finally:
            call("metadata_destroy")(metadata)
        return range(found[0]) if found else range(0)

    def answers(self):
        """Whether a broker answers within a moment."""
        with contextlib.suppress(KafkaError), self._handle(PRODUCER) as handle:
            self._partitions(handle, "", 1)
            return True
        return False

    def partition_count(self, topic):
        with self._handle(PRODUCER) as handle:
            return len(self._partitions(handle, topic))

    # --- reading ---

    def messages(self, topic):
        """All messages that are in the topic by now, by partition and offset."""
        found = []
        with self._handle(CONSUMER, **{"group.id": "tests", "enable.auto.commit": "false",
                                       "enable.partition.eof": "true",
                                       "fetch.wait.max.ms": 10,  # The end shows when it is over.
                                       "auto.offset.reset": "earliest"}) as handle:
            call = library()
            waiting = set(self._partitions(handle, topic))
            if not waiting:
                return found
            wanted = call("topic_partition_list_new")(len(waiting))
            for partition in waiting:
                added = call("topic_partition_list_add")(wanted, topic.encode(), partition)
                added.contents.offset = OFFSET_FIRST
            call.check(call("assign")(handle, wanted))
            call("topic_partition_list_destroy")(wanted)
            deadline = time.monotonic() + TIMEOUT_S
            while waiting:
                if time.monotonic() > deadline:
                    raise KafkaError(f"no end of {topic}: {waiting}")
                message = call("consumer_poll")(handle, 100)
                if not message:
                    continue
                if message.contents.err == PARTITION_EOF:
                    waiting.discard(message.contents.partition)
                elif message.contents.err == 0:
                    found.append(self._read(message))
                call("message_destroy")(message)
        return sorted(found, key=lambda one: (one.partition, one.offset))

    @staticmethod
    def _read(message):
        call, one = library(), message.contents
        headers = {}
        list_ = ctypes.c_void_p()
        if call("message_headers")(message, ctypes.byref(list_)) == 0:
            name, value, size = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
            index = 0
            while call("header_get_all")(list_, ctypes.c_size_t(index), ctypes.byref(name),
                                         ctypes.byref(value), ctypes.byref(size)) == 0:
                headers[name.value.decode()] = ctypes.string_at(value, size.value).decode(
                    errors="backslashreplace") if value else None
                index += 1
        return Message(one.partition, one.offset,
                       ctypes.string_at(one.key, one.key_length) if one.key else None,
                       ctypes.string_at(one.payload, one.length) if one.payload else None,
                       headers)

    def committed(self, group, topic):
        """{partition: the next offset} that the group has committed."""
        call = library()
        with self._handle(CONSUMER, **{"group.id": group}) as handle:
            partitions = self._partitions(handle, topic)
            wanted = call("topic_partition_list_new")(len(partitions))
            for partition in partitions:
                call("topic_partition_list_add")(wanted, topic.encode(), partition)
            deadline = time.monotonic() + TIMEOUT_S
            code = call("committed")(handle, wanted, TIMEOUT_S * 1000)
            while code in COORDINATOR_MOVES and time.monotonic() < deadline:
                time.sleep(0.1)
                code = call("committed")(handle, wanted, TIMEOUT_S * 1000)
            call.check(code)
            found = {one.partition: one.offset
                     for one in wanted.contents.elements[:wanted.contents.count] if one.offset >= 0}
            call("topic_partition_list_destroy")(wanted)
        return found

    # --- writing ---

    def create(self, topic, partitions=3):
        """Makes a topic, unless it is there."""
        call = library()
        with self._handle(PRODUCER) as handle:
            words = ctypes.create_string_buffer(512)
            new = ctypes.c_void_p(call("NewTopic_new")(topic.encode(), partitions, 1, words, 512))
            queue = ctypes.c_void_p(call("queue_new")(handle))
            topics = (ctypes.c_void_p * 1)(new)
            call("CreateTopics")(handle, topics, ctypes.c_size_t(1), None, queue)
            event = ctypes.c_void_p(call("queue_poll")(queue, TIMEOUT_S * 1000))
            call("event_destroy")(event)
            call("NewTopic_destroy")(new)
            call("queue_destroy")(queue)
            deadline = time.monotonic() + TIMEOUT_S
            while not self._partitions(handle, topic):
                if time.monotonic() > deadline:
                    raise KafkaError(f"{topic} is not there")
                time.sleep(0.02)

    def produce(self, topic, value, key=None, headers=None, partition=-1):
        """Writes one message and waits until the broker has it."""
        call = library()
        with self._handle(PRODUCER, **{"acks": "all", "message.timeout.ms": TIMEOUT_S * 1000}
                          ) as handle:
            list_ = ctypes.c_void_p(call("headers_new")(ctypes.c_size_t(len(headers or {}))))
            for name, text in (headers or {}).items():
                raw = text.encode() if isinstance(text, str) else text
                call("header_add")(list_, name.encode(), ctypes.c_ssize_t(len(name)), raw,
                                   ctypes.c_ssize_t(len(raw)))
            # RD_KAFKA_VTYPE_TOPIC, _PARTITION, _MSGFLAGS (copy), _VALUE, _KEY, _HEADERS, _END
            call.check(call("producev")(
                handle, 1, ctypes.c_char_p(topic.encode()), 3, ctypes.c_int32(partition), 7, 2,
                4, ctypes.c_char_p(value), ctypes.c_size_t(len(value or b"")),
                5, ctypes.c_char_p(key), ctypes.c_size_t(len(key or b"")), 10, list_, 0))
            call.check(call("flush")(handle, TIMEOUT_S * 1000))
