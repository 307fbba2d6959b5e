"""A way to a server on this machine that is slow, silent or cut on demand.

    with Proxy(database.port) as proxy:
        url = proxy.url(database.url("shop"))   # the same server, by this way
        proxy.delay_s = 0.2                     # every packet, in both directions
        proxy.pause(); proxy.resume()           # nothing is lost, nothing moves
        proxy.pause(REQUESTS)                   # one way only; ANSWERS: the other
        proxy.cut()                             # all connections break
        proxy.refuse(); proxy.admit()           # new ones are refused
        trap = proxy.trap(b"COMMIT", LOSE_ANSWER, shuts=True)   # ... and then refuses
        trap.wait()                             # until it has snapped
"""

import contextlib
import re
import socket
import struct
import threading
import time

# What a trap does with the request that it waits for and with its answer. A connection that is
# held stays open for the server even when the client has given up, as when a network fails.
LOSE_REQUEST = "the connection breaks before the request reaches the server"
LOSE_ANSWER = "the server has answered, and the connection breaks before the client hears"
HOLD_REQUEST = "the request waits on the way, and so does all that follows, until released"
HOLD_ANSWER = "the request arrives, and its answer waits on the way until released"

REQUESTS, ANSWERS = "requests", "answers"

CHUNK_SIZE = 65536
TAIL_SIZE = 64
WAIT_S = 60


class Trap:
    """Waits for one request that contains a pattern, on any connection."""

    def __init__(self, pattern, action, shuts):
        self.pattern = pattern
        self.action = action
        self.shuts = shuts
        self.snapped = threading.Event()
        self.released = threading.Event()

    def wait(self, timeout_s=WAIT_S):
        assert self.snapped.wait(timeout_s), f"no {self.pattern!r} came"

    def release(self):
        """Lets go what is held."""
        self.released.set()


class _Link:
    """One connection: a thread for each direction."""

    def __init__(self, proxy, client):
        self.proxy = proxy
        self.client = client
        self.server = socket.create_connection(("127.0.0.1", proxy.target_port))
        self.tail = b""     # The end of what was sent before; a pattern may lie across it.
        self.trap = None    # The one that snapped here.
        self.lock = threading.Lock()
        for end in (self.client, self.server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.threads = [threading.Thread(target=self._pump, args=arguments, daemon=True)
                        for arguments in (
                            (REQUESTS, self.client, self.server, self._send_request),
                            (ANSWERS, self.server, self.client, self._send_answer))]

    def start(self):
        for thread in self.threads:
            thread.start()

    def _pump(self, way, source, target, send):
        try:
            while True:
                data = source.recv(CHUNK_SIZE)
                if not data:
                    break
                if self.proxy.delay_s:
                    time.sleep(self.proxy.delay_s)
                self.proxy.moving[way].wait()
                if not send(target, data):
                    return
            self._hold()
            target.shutdown(socket.SHUT_WR)
        except OSError:
            self._hold()
            self.cut()

    def _hold(self):
        """The server does not learn of a client that gave up before what is held is released."""
        if self.trap is not None and self.trap.action in (HOLD_REQUEST, HOLD_ANSWER):
            self.trap.released.wait()

    def _send_request(self, target, data):
        if self.trap is None:
            self.trap = self.proxy.spring(self.tail, data)
            self.tail = (self.tail + data)[-TAIL_SIZE:]
            if self.trap is not None and self.trap.action == LOSE_REQUEST:
                self._break()
                return False
            if self.trap is not None and self.trap.action == HOLD_REQUEST:
                self.trap.snapped.set()
        if self.trap is not None and self.trap.action == HOLD_REQUEST:
            self.trap.released.wait()
        target.sendall(data)
        return True

    def _send_answer(self, target, data):
        if self.trap is not None and self.trap.action == LOSE_ANSWER:
            self._break()
            return False
        if self.trap is not None and self.trap.action == HOLD_ANSWER:
            self.trap.snapped.set()
            self.trap.released.wait()
        target.sendall(data)
        return True

    def _break(self):
        if self.trap.shuts:
            self.proxy.refuse()
        self.cut()
        self.trap.snapped.set()

    def cut(self):
        """Both ends see the connection break, at once and with whatever was under way lost."""
        with self.lock:
            for end in (self.client, self.server):
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


class Proxy:
    """A port that leads to another one of this machine."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.delay_s = 0
        self.moving = {way: threading.Event() for way in (REQUESTS, ANSWERS)}
        self.resume()
        self.listener = None
        self.links = []
        self.traps = []
        self.lock = threading.Lock()
        # Bound and never listening: the port stays ours while nobody is let in.
        self.place = self._bound(0)
        self.port = self.place.getsockname()[1]
        self.admit()

    @staticmethod
    def _bound(port):
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(("127.0.0.1", port))
        return found

    def url(self, url):
        """The same URL by this way."""
        ours, count = re.subn(rf"(?<=:){self.target_port}(?=/)", str(self.port), url)
        assert count == 1, url
        return ours

    # --- new connections ---

    def admit(self):
        """Lets new connections in, which refuse() had stopped."""
        if self.listener is not None:
            return
        listener = self.listener = self._bound(self.port)
        listener.listen(64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                link = _Link(self, client)
            except OSError:  # The server is not there: neither are we.
                client.close()
                continue
            with self.lock:
                self.links = [old for old in self.links
                              if any(thread.is_alive() for thread in old.threads)]
                self.links.append(link)
                link.start()

    def refuse(self):
        """New connections are refused, as by a machine on which nothing listens."""
        listener, self.listener = self.listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # Wakes whoever accepts.
            listener.close()

    # --- those that stand ---

    def cut(self):
        """Breaks all connections."""
        with self.lock:
            links, self.links = self.links, []
        for link in links:
            if link.trap is not None:
                link.trap.release()
            link.cut()

    def pause(self, *ways):
        """Nothing moves, in either direction or in those named; new connections stand, and say
        nothing."""
        for way in ways or (REQUESTS, ANSWERS):
            self.moving[way].clear()

    def resume(self):
        for moving in self.moving.values():
            moving.set()

    def trap(self, pattern, action, shuts=False):
        """Sets a trap for the next request with this pattern; one that shuts also refuses new
        connections from the moment it breaks one."""
        trap = Trap(pattern, action, shuts)
        with self.lock:
            self.traps.append(trap)
        return trap

    def spring(self, tail, data):
        """The trap that these bytes, behind those before, set off; it does not snap again."""
        with self.lock:
            for trap in self.traps:
                if (tail + data).find(trap.pattern, max(0, len(tail) - len(trap.pattern) + 1)) >= 0:
                    self.traps.remove(trap)
                    return trap
        return None

    def close(self):
        self.refuse()
        self.place.close()
        self.resume()
        self.cut()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
