"""A shop's endpoint for webhooks, which checks every signature, and fails in every way."""

import base64
import collections
import contextlib
import hashlib
import hmac
import http.server
import json
import threading
import time

SECRET = "whsec_" + base64.b64encode(b"a shop's secret of 32 bytes here").decode()


class Receiver:
    """Listens on a port of its own, which it keeps when it is away. `answers` is what it does with
    an event: a status, "hang", or a function of the event that gives either."""

    def __init__(self, answers=204, secret=SECRET):
        self.answers = answers
        self.secret = secret
        self.events = []  # as they were taken, with those that came again
        self.tries = []   # ids, whatever became of them
        self.port = 0
        self._lock = threading.Lock()
        self._server = None
        self._let_go = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/hooks"

    def config(self, **more):
        """Settings of a server that tells it."""
        return {"webhook": self.url, "webhook_secret": self.secret, "webhook_timeout": "5s",
                "webhook_retry_max": "50ms"} | more

    # --- life ---

    def start(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):  # pylint: disable=invalid-name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with contextlib.suppress(OSError):
                    receiver._answer(self, body)

            def log_message(self, *_arguments):  # pylint: disable=arguments-differ
                pass

        self._let_go.clear()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self):
        """Nobody listens any more; who hangs is let go."""
        self._let_go.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    # --- what it does ---

    def check(self, headers, body):
        """As https://www.standardwebhooks.com has it."""
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        key = base64.b64decode(self.secret.removeprefix("whsec_"))
        mac = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert f"v1,{mac}" in headers["webhook-signature"].split(), headers

    def _answer(self, request, body):
        self.check(request.headers, body)
        event = json.loads(body)
        assert event["id"] == request.headers["webhook-id"]
        assert request.headers["content-type"] == "application/cloudevents+json"
        with self._lock:
            self.tries.append(event["id"])
            answer = self.answers(event) if callable(self.answers) else self.answers
        if answer == "hang":
            self._let_go.wait(60)
            request.close_connection = True
            return
        # It counts when it is answered.
        request.send_response(answer)
        request.send_header("Content-Length", "0")
        with self._lock:
            if 200 <= answer < 300:
                self.events.append(dict(event, at=request.headers["webhook-timestamp"]))
        request.end_headers()

    # --- what came ---

    def told(self):
        """The events by policy, in their order: each the first time that it came."""
        seen, found = set(), collections.defaultdict(list)
        with self._lock:
            for event in self.events:
                if event["id"] not in seen:
                    seen.add(event["id"])
                    found[event["data"].get("policy_id")].append(event)
        return found

    def ids(self, policy):
        return [event["id"] for event in self.told()[policy]]


def free_port_receiver(**options):
    """One that is away, with a port to come back to."""
    receiver = Receiver(**options).start()
    receiver.stop()
    return receiver


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
