"""HTTP/1.1 over raw sockets, strict about every byte that comes back.

Nothing here retries, guesses or forgives: an answer that breaks the contract's shape raises
ProtocolError, so every test checks the shape for free.
"""

import email.utils
import json
import os
import re
import selectors
import socket
import time

# How many times slower than a plain build the binary may be.
SLOW = float(os.environ.get("DIBS_TEST_SLOW") or
             {"address": 4, "thread": 8}.get(os.environ.get("DIBS_TEST_SANITIZER", ""), 1))
TIMEOUT_S = 30 * SLOW

STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) ([A-Za-z' -]*)")
HEADER_LINE = re.compile(rb"([A-Za-z0-9-]+): ([\x20-\x7e]*)")


class ProtocolError(AssertionError):
    """The server sent something that a strict client refuses."""


class Closed(Exception):
    """The connection ended before a whole answer came; `rest` is what had arrived."""

    def __init__(self, rest=b""):
        super().__init__(f"connection closed after {rest[:200]!r}")
        self.rest = rest


class Response:
    """One answer. `headers` has lower-case names; a repeated name is refused while parsing."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        if not self.body:
            raise ProtocolError(f"{self} has no body")
        return json.loads(self.body.decode("utf-8"), object_pairs_hook=_no_duplicates)

    @property
    def code(self):
        """The problem's code, or None."""
        if self.headers.get("content-type") != "application/problem+json":
            return None
        return self.json["code"]

    @property
    def closes(self):
        return self.headers.get("connection", "").lower() == "close"

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:400]!r}>"


def _no_duplicates(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ProtocolError(f"the answer repeats a field: {names}")
    return dict(pairs)


class Parser:
    """Cuts a stream of bytes into answers. `expect()` is called once per request, in order."""

    def __init__(self):
        self.buffer = bytearray()
        self._heads = []

    def expect(self, method):
        self._heads.append(method == "HEAD")

    @property
    def awaited(self):
        return len(self._heads)

    def feed(self, data):
        """Takes bytes and returns the answers that they complete."""
        self.buffer += data
        answers = []
        while self._heads or self.buffer:
            answer = self._next()
            if answer is None:
                break
            answers.append(answer)
        return answers

    def _next(self):
        head = parse_head(self.buffer)
        if head is None:
            return None
        if not self._heads:
            raise ProtocolError(f"an answer nobody asked for: {bytes(self.buffer[:300])!r}")
        status, headers, size = head
        if headers.get("transfer-encoding") == "chunked" and not self._heads[0]:
            return self._next_chunked(status, headers, size)
        if "content-length" not in headers:
            if self._heads[0] and headers.get("connection") == "close":
                pass  # of what GET would send without a length
            elif status not in (204, 304):
                raise ProtocolError(f"no Content-Length: {status} {headers}")
            length = 0
        else:
            if not headers["content-length"].isdigit():
                raise ProtocolError(f"Content-Length {headers['content-length']!r}")
            length = int(headers["content-length"])
        if self._heads[0] or status in (204, 304):
            length = 0
        if len(self.buffer) < size + length:
            return None
        body = bytes(self.buffer[size:size + length])
        del self.buffer[:size + length]
        self._heads.pop(0)
        return Response(status, headers, body)

    def _next_chunked(self, status, headers, at):
        """An answer in chunks without extensions or trailers, once the last one is there."""
        if not self.buffer.endswith(b"\r\n0\r\n\r\n"):
            return None
        pieces = []
        while True:
            line = self.buffer.index(b"\r\n", at)
            length = int(self.buffer[at:line], 16)
            at = line + 2 + length
            if self.buffer[at:at + 2] != b"\r\n":
                raise ProtocolError(f"a chunk of {length} bytes does not end there")
            pieces.append(bytes(self.buffer[line + 2:at]))
            at += 2
            if length == 0:
                break
        del self.buffer[:at]
        self._heads.pop(0)
        return Response(status, headers, b"".join(pieces))


def parse_head(buffer):
    """(status, headers, size of the head) or None while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > 65536:
            raise ProtocolError("a head of more than 64 KiB")
        return None
    lines = bytes(buffer[:end]).split(b"\r\n")
    match = STATUS_LINE.fullmatch(lines[0])
    if not match:
        raise ProtocolError(f"status line {lines[0]!r}")
    headers = {}
    for line in lines[1:]:
        field = HEADER_LINE.fullmatch(line)
        if not field:
            raise ProtocolError(f"header line {line!r}")
        name = field[1].decode().lower()
        if name in headers:
            raise ProtocolError(f"header {name} came twice")
        headers[name] = field[2].decode()
    status = int(match[1])
    check_headers(status, headers)
    return status, headers, end + 4


def check_headers(status, headers):
    """What every answer owes: a Date, a request id, no Server, a type for its body, and that no
    browser takes it for something else or shows it in a frame."""
    if "date" not in headers:
        raise ProtocolError(f"{status} without Date: {headers}")
    if email.utils.parsedate_to_datetime(headers["date"]).tzinfo is None:
        raise ProtocolError(f"Date {headers['date']!r} is not GMT")
    if headers.get("x-content-type-options") != "nosniff" or \
            headers.get("x-frame-options") != "DENY" or \
            "frame-ancestors 'none'" not in headers.get("content-security-policy", "") or \
            "default-src 'none'" not in headers["content-security-policy"]:
        raise ProtocolError(f"{status} without what keeps browsers safe: {headers}")
    if "server" in headers:
        raise ProtocolError(f"Server: {headers['server']}")
    if not headers.get("x-request-id"):
        raise ProtocolError(f"{status} without X-Request-Id: {headers}")
    if headers.get("content-length", "0") != "0" and "content-type" not in headers:
        raise ProtocolError(f"{status} with a body but no Content-Type: {headers}")


def encode(method, path, body=None, headers=None, host="127.0.0.1"):
    """The bytes of one request. `body` is bytes as they are, or anything JSON can say. A header
    whose value is None is left out."""
    fields = {"Host": host}
    if body is not None:
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        fields["Content-Type"] = "application/json"
        fields["Content-Length"] = str(len(body))
    elif method in ("POST", "PUT", "PATCH"):
        fields["Content-Length"] = "0"
    fields.update(headers or {})
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


class Connection:
    """One blocking connection."""

    def __init__(self, address, timeout_s=TIMEOUT_S, receive_buffer_size=None, source=None):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer_size:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_size)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source:
            self.socket.bind((source, 0))
        self.socket.settimeout(timeout_s)
        self.socket.connect(address)
        self.parser = Parser()
        self.ready = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, raw, *methods):
        """Sends bytes as they are; `methods` are those of the requests they contain."""
        for method in methods:
            self.parser.expect(method)
        self.socket.sendall(raw)

    def receive(self):
        """The next answer, or Closed."""
        while not self.ready:
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                raise Closed(bytes(self.parser.buffer))
            self.ready += self.parser.feed(data)
        return self.ready.pop(0)

    def request(self, method, path, body=None, headers=None):
        self.send(encode(method, path, body, headers), method)
        return self.receive()

    def is_closed_by_peer(self):
        """Waits for the end of the stream; anything else than the end is an error."""
        try:
            rest = self.socket.recv(65536)
        except ConnectionError:
            return True
        if rest:
            raise ProtocolError(f"bytes instead of the end: {rest[:200]!r}")
        return True


class EventStream:
    """A server-sent-events answer, read event by event."""

    def __init__(self, address, path, headers=None, timeout_s=TIMEOUT_S):
        self.connection = Connection(address, timeout_s)
        fields = {"Accept": "text/event-stream", **(headers or {})}
        self.connection.socket.sendall(encode("GET", path, headers=fields))
        self.raw = bytearray()
        self.text = bytearray()
        self.ended = False  # The last chunk came; what is in `text` can still be read.
        while True:
            self._read()
            head = parse_head(self.raw)
            if head:
                break
        self.status, self.headers, size = head
        del self.raw[:size]
        self.chunked = self.headers.get("transfer-encoding") == "chunked"
        self._decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def _read(self):
        data = self.connection.socket.recv(65536)
        if not data:
            raise Closed(bytes(self.raw))
        self.raw += data

    def _decode(self):
        if not self.chunked:
            self.text += self.raw
            self.raw.clear()
            return
        while True:
            line = self.raw.find(b"\r\n")
            if line < 0:
                return
            size = int(bytes(self.raw[:line]), 16)
            if len(self.raw) < line + 2 + size + 2:
                return
            self.text += self.raw[line + 2:line + 2 + size]
            del self.raw[:line + 2 + size + 2]
            if size == 0:
                self.ended = True
                return

    def next(self):
        """The next event as (name, parsed data); comments and retry lines are passed over."""
        while True:
            end = self.text.find(b"\n\n")
            if end < 0:
                if self.ended:
                    raise Closed()
                self._read()
                self._decode()
                continue
            block = bytes(self.text[:end]).decode("utf-8")
            del self.text[:end + 2]
            name, data = "message", []
            for line in block.split("\n"):
                if line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    data.append(line[5:].strip())
            if data:
                return name, json.loads("\n".join(data))


class Outcome:
    """What became of one request of a storm. `answer` is None when the connection broke first."""

    __slots__ = ("index", "answer", "sent_at", "answered_at")

    def __init__(self, index):
        self.index = index
        self.answer = None
        self.sent_at = None
        self.answered_at = None


class _Lane:
    """One connection of a storm."""

    def __init__(self, address, source):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source:
            self.socket.bind((source, 0))
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(address)
        self.socket.setblocking(False)
        self.parser = Parser()
        self.waiting = []
        self.unsent = bytearray()


def storm(address, requests, connections=None, pipeline=1, on_answer=None, source=None):
    """Sends all requests as fast as they are taken and returns their Outcomes in order.

    Every connection stands before the first byte is sent; with `connections` equal to the number
    of requests (the default) all of them are in the air at once. Each connection keeps `pipeline`
    requests unanswered. `requests` may be an endless iterator: then the storm ends when every
    connection is broken or `on_answer(outcome)` returned False. `address` may be a list: the
    connections are spread over it."""
    if connections is None:
        requests = list(requests)
        connections = len(requests)
    return _Storm(address, iter(requests), connections, pipeline, on_answer, source).run()


class _Storm:
    def __init__(self, address, source_of_requests, connections, pipeline, on_answer, source):
        self.requests = source_of_requests
        self.pipeline = pipeline
        self.on_answer = on_answer
        self.outcomes = []
        self.going = True
        self.lanes = []
        addresses = address if isinstance(address, list) else [address]
        for number in range(connections):
            try:
                self.lanes.append(_Lane(addresses[number % len(addresses)], source))
            except OSError:
                if not self.lanes:
                    raise
                break
        self.selector = selectors.EpollSelector()

    def run(self):
        # One request each first, so that all are in the air before the first answer is read.
        for lane in self.lanes:
            self.selector.register(lane.socket, selectors.EVENT_READ, lane)
            self.push(lane)
        for lane in self.lanes:
            for _ in range(1, self.pipeline):
                self.push(lane)
        try:
            while any(lane.waiting for lane in self.lanes):
                events = self.selector.select(TIMEOUT_S)
                if not events:
                    raise ProtocolError(f"no answer within {TIMEOUT_S:.0f} s")
                for key, mask in events:
                    if mask & selectors.EVENT_WRITE:
                        self.flush(key.data)
                    if mask & selectors.EVENT_READ:
                        self.pull(key.data)
        finally:
            for lane in self.lanes:
                lane.socket.close()
            self.selector.close()
        return self.outcomes

    def push(self, lane):
        if not self.going or lane.socket.fileno() < 0:
            return
        raw = next(self.requests, None)
        if raw is None:
            return
        outcome = Outcome(len(self.outcomes))
        self.outcomes.append(outcome)
        lane.waiting.append(outcome)
        lane.parser.expect("POST")
        lane.unsent += raw
        outcome.sent_at = time.monotonic()
        self.flush(lane)

    def flush(self, lane):
        try:
            sent = lane.socket.send(lane.unsent)
            del lane.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            return  # The read side says how far the server came.
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if lane.unsent else 0)
        if self.selector.get_key(lane.socket).events != wanted:
            self.selector.modify(lane.socket, wanted, lane)

    def pull(self, lane):
        if lane.socket.fileno() < 0:
            return
        try:
            data = lane.socket.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(lane.socket)
            lane.socket.close()
            lane.waiting.clear()
            return
        now = time.monotonic()
        for answer in lane.parser.feed(data):
            outcome = lane.waiting.pop(0)
            outcome.answer = answer
            outcome.answered_at = now
            if self.on_answer and self.on_answer(outcome) is False:
                self.going = False
            self.push(lane)
