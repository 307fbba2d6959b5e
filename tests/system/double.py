"""A double of the server that tells lies: passes everything on, and changes some of the answers.

    with Double(server, lie) as double:      # double.url

`lie(request, reply)` gets both as Message and may change the reply; DROP as its result closes the
connection instead. It is called under a lock, one reply at a time.
"""
import socket
import threading

DROP = object()


class Message:
    """One request or reply: its first line, its headers as they came, its body."""

    def __init__(self, head, body):
        lines = head.split(b"\r\n")
        self.line = lines[0]
        self.headers = [line for line in lines[1:] if not line.lower().startswith(b"content-length")]
        self.body = body

    @property
    def status(self):
        return int(self.line.split()[1])

    @status.setter
    def status(self, status):
        self.line = b"HTTP/1.1 %d Changed" % status

    def encode(self):
        length = [b"Content-Length: %d" % len(self.body)]
        if self.line.startswith(b"GET") and not self.body:
            length = []
        return b"\r\n".join([self.line, *self.headers, *length]) + b"\r\n\r\n" + self.body


def read_message(stream):
    """The next message, or None at the end."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return None
        head += line
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return Message(head[:-4], stream.read(length))


class Double:
    def __init__(self, server, lie):
        self.address = server.address
        self.lie = lie
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=[client], daemon=True).start()

    def serve(self, client):
        with client, client.makefile("rb") as requests, \
                socket.create_connection(self.address) as server, \
                server.makefile("rb") as replies:
            try:
                while (request := read_message(requests)) is not None:
                    server.sendall(request.encode())
                    reply = read_message(replies)
                    if reply is None:
                        return
                    with self.lock:
                        if self.lie(request, reply) is DROP:
                            return
                    client.sendall(reply.encode())
            except OSError:
                return
