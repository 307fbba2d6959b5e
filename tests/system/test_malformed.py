"""Bytes that are no proper request: refused or cut off, never a 2xx, never a crash or a hang."""

import random

import pytest

from harness import claim_bytes, expect
from wire import Closed

H = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"

# Name → (bytes, the statuses allowed; an end without an answer is always allowed).
CORPUS = {
    # request line
    "no version": (b"GET /healthz\r\n" + H + b"\r\n", {400, 505}),
    "http 0.9": (b"GET /healthz\r\n\r\n", {400, 505}),
    "http 2.0": (b"GET /healthz HTTP/2.0\r\n" + H + b"\r\n", {400, 505}),
    "http 1.2": (b"GET /healthz HTTP/1.2\r\n" + H + b"\r\n", {400, 505}),
    "http 9.9": (b"GET /healthz HTTP/9.9\r\n" + H + b"\r\n", {400, 505}),
    "http lower case": (b"GET /healthz http/1.1\r\n" + H + b"\r\n", {400, 505}),
    "http/1.10": (b"GET /healthz HTTP/1.10\r\n" + H + b"\r\n", {400, 505}),
    "http/01.1": (b"GET /healthz HTTP/01.1\r\n" + H + b"\r\n", {400, 505}),
    "icy": (b"GET /healthz ICE/1.0\r\n" + H + b"\r\n", {400, 505}),
    "rtsp": (b"GET /healthz RTSP/1.0\r\n" + H + b"\r\n", {400, 505}),
    "http/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 501, 505}),
    "unknown method": (b"FROB /healthz HTTP/1.1\r\n" + H + b"\r\n", {400, 405, 501}),
    "lower-case method": (b"get /healthz HTTP/1.1\r\n" + H + b"\r\n", {400, 405, 501}),
    "connect": (b"CONNECT example.com:443 HTTP/1.1\r\n" + H + b"\r\n", {400, 404, 405, 501}),
    "webdav": (b"MKCOL /healthz HTTP/1.1\r\n" + H + b"\r\n", {400, 405, 501}),
    "asterisk": (b"GET * HTTP/1.1\r\n" + H + b"\r\n", {400, 404}),
    "no slash": (b"GET healthz HTTP/1.1\r\n" + H + b"\r\n", {400, 404}),
    "no path": (b"GET HTTP/1.1\r\n" + H + b"\r\n", {400}),
    "two blanks": (b"GET  /healthz HTTP/1.1\r\n" + H + b"\r\n", {400}),
    "tab": (b"GET\t/healthz HTTP/1.1\r\n" + H + b"\r\n", {400, 501}),
    "blank in the path": (b"GET /heal thz HTTP/1.1\r\n" + H + b"\r\n", {400, 505}),
    "nul in the path": (b"GET /heal\0thz HTTP/1.1\r\n" + H + b"\r\n", {400}),
    "control in the path": (b"GET /heal\x01thz HTTP/1.1\r\n" + H + b"\r\n", {400, 404}),
    "del in the path": (b"GET /heal\x7fthz HTTP/1.1\r\n" + H + b"\r\n", {400, 404}),
    "high bytes in the path": (b"GET /heal\xff\xfethz HTTP/1.1\r\n" + H + b"\r\n", {400, 404}),
    "fragment": (b"GET /healthz#x HTTP/1.1\r\n" + H + b"\r\n", {400, 404}),
    "leading blank": (b" GET /healthz HTTP/1.1\r\n" + H + b"\r\n", {400, 501}),
    "trailing blank": (b"GET /healthz HTTP/1.1 \r\n" + H + b"\r\n", {400, 505}),
    "bare lf line": (b"GET /healthz HTTP/1.1\n" + H + b"\r\n", {400}),
    "bare lf everywhere": (b"GET /healthz HTTP/1.1\nHost: x\n\n", {400}),
    "bare cr line": (b"GET /healthz HTTP/1.1\r" + H + b"\r\n", {400}),
    "cr cr lf": (b"GET /healthz HTTP/1.1\r\r\n" + H + b"\r\n", {400}),
    # host
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", {400}),
    "two hosts": (b"GET /healthz HTTP/1.1\r\n" + H + H + b"\r\n", {400}),
    "two hosts that differ": (b"GET /healthz HTTP/1.1\r\n" + H + b"Host: y\r\n\r\n", {400}),
    "two hosts in other case": (b"GET /healthz HTTP/1.1\r\n" + H + b"hOsT: y\r\n\r\n", {400}),
    # headers
    "obs-fold": (b"GET /healthz HTTP/1.1\r\n" + H + b"X: a\r\n b\r\n\r\n", {400}),
    "obs-fold tab": (b"GET /healthz HTTP/1.1\r\n" + H + b"X: a\r\n\tb\r\n\r\n", {400}),
    "obs-fold first": (b"GET /healthz HTTP/1.1\r\n X: a\r\n" + H + b"\r\n", {400}),
    "blank before colon": (b"GET /healthz HTTP/1.1\r\n" + H + b"X : a\r\n\r\n", {400}),
    "host blank colon": (b"GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n", {400}),
    "no colon": (b"GET /healthz HTTP/1.1\r\n" + H + b"Xa\r\n\r\n", {400}),
    "no name": (b"GET /healthz HTTP/1.1\r\n" + H + b": a\r\n\r\n", {400}),
    "blank in the name": (b"GET /healthz HTTP/1.1\r\n" + H + b"X Y: a\r\n\r\n", {400}),
    "nul in the name": (b"GET /healthz HTTP/1.1\r\n" + H + b"X\0Y: a\r\n\r\n", {400}),
    "nul in a value": (b"GET /healthz HTTP/1.1\r\n" + H + b"X: a\0b\r\n\r\n", {400}),
    "control in a value": (b"GET /healthz HTTP/1.1\r\n" + H + b"X: a\x01b\r\n\r\n", {400}),
    "bare cr in a value": (b"GET /healthz HTTP/1.1\r\n" + H + b"X: a\rb\r\n\r\n", {400}),
    "bare lf in headers": (b"GET /healthz HTTP/1.1\r\n" + H + b"X: a\nY: b\r\n\r\n", {400}),
    "bare lf at the end": (b"GET /healthz HTTP/1.1\r\n" + H + b"\n", {400}),
    "bare cr at the end": (b"GET /healthz HTTP/1.1\r\n" + H + b"\rX", {400}),
    "parenthesis in the name": (b"GET /healthz HTTP/1.1\r\n" + H + b"X(Y): a\r\n\r\n", {400}),
    "high byte in the name": (b"GET /healthz HTTP/1.1\r\n" + H + b"X\xffY: a\r\n\r\n", {400}),
    # lengths
    "two lengths": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                    b"Content-Length: 12\r\nContent-Length: 12\r\n\r\n{\"user\":\"x\"}", {400}),
    "two lengths that differ": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                                b"Content-Length: 12\r\nContent-Length: 13\r\n\r\n"
                                b"{\"user\":\"x\"}", {400}),
    "length list": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                    b"Content-Length: 12, 12\r\n\r\n{\"user\":\"x\"}", {400}),
    "length plus": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                    b"Content-Length: +12\r\n\r\n{\"user\":\"x\"}", {400}),
    "length minus": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                     b"Content-Length: -1\r\n\r\n{\"user\":\"x\"}", {400}),
    "length hex": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                   b"Content-Length: 0xC\r\n\r\n{\"user\":\"x\"}", {400}),
    "length blank inside": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                            b"Content-Length: 1 2\r\n\r\n{\"user\":\"x\"}", {400}),
    "length empty": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                     b"Content-Length: \r\n\r\n{\"user\":\"x\"}", {400, 411}),
    "length words": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                     b"Content-Length: twelve\r\n\r\n{\"user\":\"x\"}", {400}),
    "length 2^64+12": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                       b"Content-Length: 18446744073709551628\r\n\r\n{\"user\":\"x\"}",
                       {400, 413}),
    "length 2^63": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                    b"Content-Length: 9223372036854775808\r\n\r\n{\"user\":\"x\"}", {400, 413}),
    "no length": (b"POST {claims} HTTP/1.1\r\n" + H + JSON + b"\r\n{\"user\":\"x\"}",
                  {400, 411, 415}),
    "huge length": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                    b"Content-Length: 99999999\r\n\r\n{\"user\":\"x\"}", {413}),
    # transfer encodings
    "chunked": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                b"Transfer-Encoding: chunked\r\n\r\nC\r\n{\"user\":\"x\"}\r\n0\r\n\r\n", {501}),
    "chunked and length": (b"POST {claims} HTTP/1.1\r\n" + H + JSON + b"Content-Length: 12\r\n"
                           b"Transfer-Encoding: chunked\r\n\r\nC\r\n{\"user\":\"x\"}\r\n0\r\n\r\n",
                           {400, 501}),
    "length and chunked": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                           b"Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\n"
                           b"{\"user\":\"x\"}", {400, 501}),
    "identity": (b"POST {claims} HTTP/1.1\r\n" + H + JSON + b"Content-Length: 12\r\n"
                 b"Transfer-Encoding: identity\r\n\r\n{\"user\":\"x\"}", {400, 501}),
    "gzip, chunked": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                      b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "chunked twice": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                      b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"
                      b"0\r\n\r\n", {400, 501}),
    "chunked in disguise": (b"POST {claims} HTTP/1.1\r\n" + H + JSON +
                            b"Transfer-Encoding: xchunked\r\nContent-Length: 12\r\n\r\n"
                            b"{\"user\":\"x\"}", {400, 501}),
    "empty encoding": (b"POST {claims} HTTP/1.1\r\n" + H + JSON + b"Content-Length: 12\r\n"
                       b"Transfer-Encoding:\r\n\r\n{\"user\":\"x\"}", {400, 501}),
    "encoding of a get": (b"GET /healthz HTTP/1.1\r\n" + H +
                          b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "encoding of http/1.0": (b"POST {claims} HTTP/1.0\r\n" + H + JSON +
                             b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    # other worlds
    "tls hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)), {400, 501}),
    "ssh": (b"SSH-2.0-OpenSSH_9.2\r\n", {400, 501}),
    "smtp": (b"EHLO example.com\r\nMAIL FROM:<a@b>\r\n", {400, 501}),
    "redis": (b"*1\r\n$4\r\nPING\r\n", {400, 501}),
    "nuls": (b"\0" * 1000, {400, 501}),
    "high bytes": (b"\xff" * 1000, {400, 501}),
    "proxy protocol": (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET /healthz HTTP/1.1\r\n" + H +
                       b"\r\n", {400, 501}),
    "json only": (b'{"user":"x"}\r\n\r\n', {400, 501}),
    "response": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", {400, 501}),
    "upgrade to h2c body": (b"GET /nowhere HTTP/1.1\r\n" + H + b"Connection: Upgrade, "
                            b"HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n",
                            {400, 404, 426, 501}),
}


def exchange(server, raw):
    """All answers to these bytes until the server ends the connection or has nothing to add."""
    with server.connect() as connection:
        connection.send(raw, *["GET"] * 4)
        # A complete request behind the bad bytes shows whether the server went on reading.
        answers = []
        try:
            connection.socket.shutdown(1)
            while True:
                answers.append(connection.receive())
        except (Closed, ConnectionError, OSError) as end:
            rest = getattr(end, "rest", b"")
            assert rest == b"", f"half an answer: {rest!r}"
        return answers


@pytest.mark.parametrize("name", CORPUS)
def test_malformed__is_refused_or_cut_off(shared, name):
    raw, allowed = CORPUS[name]
    policy = shared.create(total=10)
    raw = raw.replace(b"{claims}", f"/v1/policies/{policy['id']}/claims".encode())
    answers = exchange(shared, raw)
    assert all(answer.status >= 400 for answer in answers), answers
    if answers:
        assert answers[0].status in allowed, answers
        assert answers[0].code is not None
    assert shared.policy(policy["id"])["remaining"] == 10
    assert expect(shared.get("/healthz"), 200)["status"] == "ok"


SMUGGLING = [name for name in CORPUS if "length" in name or "encoding" in name
             or "chunk" in name or "obs-fold" in name or "bare" in name or "host" in name]


@pytest.mark.parametrize("name", SMUGGLING)
def test_malformed__nothing_behind_it_is_taken_for_a_request(shared, name):
    """After an unclear message the connection is closed: what follows must not be obeyed."""
    policy = shared.create(total=10)
    claims = f"/v1/policies/{policy['id']}/claims".encode()
    raw = CORPUS[name][0].replace(b"{claims}", claims) + claim_bytes(policy["id"], "smuggled")
    for answer in exchange(shared, raw):
        assert answer.status >= 400, answer
    assert shared.policy(policy["id"])["remaining"] == 10


def test_malformed__every_prefix_of_a_request_then_the_end(shared):
    policy = shared.create(total=10)
    raw = claim_bytes(policy["id"], "u1", key="k")
    for length in range(len(raw)):
        answers = exchange(shared, raw[:length])
        assert all(answer.status >= 400 for answer in answers), (length, answers)
    assert shared.policy(policy["id"])["remaining"] == 10
    shared.win(policy["id"], "u1")


@pytest.mark.parametrize("seed", range(4))
def test_malformed__random_changes_never_hurt(shared, seed):
    """A valid claim with random bytes changed: any answer will do, but it stays up."""
    policy = shared.create(total=1000, limit=1000)
    chance = random.Random(seed)
    valid = claim_bytes(policy["id"], "u1", key="k")
    for _ in range(150):
        raw = bytearray(valid)
        for _ in range(chance.randint(1, 4)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        with shared.connect() as connection:
            try:
                connection.socket.sendall(bytes(raw))
                connection.socket.shutdown(1)
                while connection.socket.recv(65536):
                    pass
            except OSError:
                pass
    assert expect(shared.get("/healthz"), 200)["status"] == "ok"


def test_malformed__random_bytes_never_hurt(shared):
    chance = random.Random(99)
    for _ in range(200):
        raw = bytes(chance.randrange(256) for _ in range(chance.randint(1, 600)))
        with shared.connect() as connection:
            try:
                connection.socket.sendall(raw)
                connection.socket.shutdown(1)
                data = b""
                while True:
                    more = connection.socket.recv(65536)
                    if not more:
                        break
                    data += more
            except OSError:
                continue
            assert not data or data.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), data
    assert expect(shared.get("/healthz"), 200)["status"] == "ok"
