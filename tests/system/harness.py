"""Starts, watches, kills and questions the real binary.

DIBS_BINARY names it, DIBS_BUILD_DIR the Meson folder it came from, and DIBS_TEST_SLOW says how
many times slower than a plain build it may be (sanitizers).
"""

import base64
import hashlib
import hmac
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from urllib.parse import quote

from ledger import new_database
from openapi import Document
from wire import SLOW, Connection, EventStream, encode, storm

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD_DIR = pathlib.Path(os.environ.get("DIBS_BUILD_DIR", ROOT / "build")).resolve()
BINARY = pathlib.Path(os.environ.get("DIBS_BINARY", BUILD_DIR / "dibs")).resolve()
# Only what fails takes so long: a machine that stands still for seconds fails nothing.
AWAIT_TIMEOUT_S = 30
START_TIMEOUT_S = 30 * SLOW
STOP_TIMEOUT_S = 30 * SLOW
FILES_WANTED = 24000
# A claim waits for its commit nearly as long as the client does, unless a test is about that.
PATIENT = {"ack_timeout": "20s"}
OPENAPI = Document((ROOT / "src/http/pages/openapi.json").read_text("utf-8"))

# What a sanitizer or a failed assertion leaves behind.
ALARMS = re.compile(
    r"(ERROR: (Address|Leak|Thread|Memory)Sanitizer|WARNING: ThreadSanitizer|"
    r"AddressSanitizer:|: runtime error: |SUMMARY: \w+Sanitizer|[Aa]ssertion .*failed|"
    r"stack smashing|corrupted size|free\(\): )")
LOGFMT = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^ "]*)(?: |$)')


def raise_file_limit():
    """Enough descriptors for ten thousand connections, in us and in the servers we start."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def wait_until(condition, what, timeout_s=AWAIT_TIMEOUT_S):
    """Waits for a condition that only polling can see; its value when it holds. Looking costs a
    core when it means a session in a database, so what takes long is looked at less often."""
    start = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited_s = time.monotonic() - start
        if waited_s > timeout_s * SLOW:
            raise AssertionError(f"not within {timeout_s * SLOW:.0f} s: {what}")
        time.sleep(min(max(waited_s / 10, 0.005), 0.1))


def parse_logfmt(line):
    """The fields of one log line, or None when it is not one."""
    fields, at = {}, 0
    line = line.rstrip("\n")
    while at < len(line):
        match = LOGFMT.match(line, at)
        if not match:
            return None
        value = match[2]
        fields[match[1]] = json.loads(value) if value.startswith('"') else value
        at = match.end()
    return fields if "event" in fields else None


def clean_environment(config=None, extra=None):
    """Our own environment without any DIBS_ setting, plus `config` as DIBS_ variables."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DIBS_")}
    env["NO_COLOR"] = "1"
    env["TZ"] = "UTC"
    for name, value in (config or {}).items():
        env["DIBS_" + name.upper()] = str(value)
    env.update(extra or {})
    return env


def run_dibs(*arguments, config=None, env=None, folder=None, stdin=None, timeout_s=30):
    """Runs one command of the binary to its end; stdout and stderr as text."""
    return subprocess.run([str(BINARY), *map(str, arguments)], env=clean_environment(config, env),
                          cwd=folder, input=stdin, capture_output=True, text=True,
                          timeout=timeout_s * SLOW, check=False,
                          stdin=None if stdin is not None else subprocess.DEVNULL)


def run_serve(url, *arguments, folder=None, config=None, listen="127.0.0.1:0"):
    """Runs a `dibs serve` that must refuse to start; fails at once when it serves after all."""
    process = subprocess.Popen(
        [str(BINARY), "serve", "--listen", listen, "--ledger", url,
         *map(str, arguments)],
        env=clean_environment(config), cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            assert "event=listening" not in line, f"it serves {url}: {''.join(said)}"
        code = process.wait(30 * SLOW)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    return subprocess.CompletedProcess(process.args, code, "", "".join(said))


class Server:
    """One `dibs serve` on a ledger of its own; can be killed and started again. `database` is one
    of ledger.py when the ledger is shared or special; whoever made it discards it."""

    def __init__(self, folder=None, config=None, arguments=(), env=None, binary=None,
                 files_max=None, wrapper=(), listen="127.0.0.1:0", database=None):
        self.owns_folder = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="dibs-test-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.owns_database = database is None
        self.database = database or new_database(self.folder)
        self.config = dict(config or {})
        if "gate" not in self.config:  # With another gate they wait for stock, too.
            self.config = PATIENT | self.config
        self.arguments = list(arguments)
        self.env = dict(env or {})
        self.binary = pathlib.Path(binary or BINARY)
        self.files_max = files_max
        self.wrapper = list(wrapper)
        self.listen = listen
        self.admin_token = None
        self.process = None
        self.address = None
        self.log = []
        self._start_line = 0
        self._log_ended = False
        self._log_changed = threading.Condition()

    # --- life ---

    def command(self):
        return [*self.wrapper, str(self.binary), "serve", "--listen", self.listen,
                "--ledger", self.database.url, *self.arguments]

    def spawn(self):
        """Starts the process without waiting for it to listen."""
        assert self.process is None, "already started"
        raise_file_limit()
        limit = None
        if self.files_max:
            def limit():
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.files_max, self.files_max))
        self.address = None
        self.process = subprocess.Popen(
            self.command(), env=clean_environment(self.config, self.env), cwd=self.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            preexec_fn=limit)
        self._start_line = len(self.log)
        self._log_ended = False
        self._reader = threading.Thread(target=self._read_log, args=(self.process.stderr,),
                                        daemon=True)
        self._reader.start()
        return self

    def start(self):
        """Starts the process and waits until it says where it listens."""
        return self.spawn().await_start()

    def await_start(self):
        """Waits until a process that was spawned says where it listens, and that its policies are
        open."""
        self.await_listening()
        if self.config.get("gate", "local") == "local" and "--gate" not in self.arguments:
            self.await_log("gate_restored", START_TIMEOUT_S)
        return self

    def await_listening(self):
        """The same while policies may still be to come."""
        fields = self.await_log("listening", START_TIMEOUT_S)
        host, port = fields["address"].rsplit(":", 1)
        self.address = ("127.0.0.1" if host == "0.0.0.0" else host, int(port))
        return self

    def _read_log(self, pipe):
        for raw in pipe:
            line = raw.decode("utf-8", "backslashreplace")
            with self._log_changed:
                self.log.append(line)
                self._log_changed.notify_all()
        pipe.close()
        with self._log_changed:
            self._log_ended = True
            self._log_changed.notify_all()

    def await_log(self, event, timeout_s=None, since=None):
        """Waits for a log line with this event since the last start and returns its fields."""
        deadline = time.monotonic() + (timeout_s or AWAIT_TIMEOUT_S * SLOW)
        at = self._start_line if since is None else since
        with self._log_changed:
            while True:
                while at < len(self.log):
                    fields = parse_logfmt(self.log[at])
                    at += 1
                    if fields and fields["event"] == event:
                        return fields
                if self._log_ended:
                    raise AssertionError(f"ended without event={event}\n{self.log_text()}")
                if not self._log_changed.wait(deadline - time.monotonic()):
                    raise AssertionError(f"no event={event} in time\n{self.log_text()}")

    def await_events(self, event, count):
        """The same as events(), when there are so many: a line may come after what it tells of."""
        wait_until(lambda: len(self.events(event)) >= count, f"{count} lines with event={event}")
        return self.events(event)

    def events(self, event):
        """The fields of all log lines of one event that have come by now."""
        lines = (parse_logfmt(line) for line in list(self.log))
        return [fields for fields in lines if fields and fields["event"] == event]

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        return self.process.pid

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """kill -9, and waits for the end."""
        self.process.kill()
        self.wait()

    def wait(self, timeout_s=STOP_TIMEOUT_S):
        """Waits for the end and returns the exit code; negative for a signal."""
        code = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        self.process = None
        return code

    def stop(self):
        """SIGTERM, and the promise that comes with it: an orderly end with exit code 0."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        self.process.send_signal(signal.SIGCONT)  # A test may have left it stopped.
        try:
            code = self.wait()
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.wait()
            raise AssertionError(f"did not stop on SIGTERM\n{self.log_text()}") from None
        assert code == 0, f"exit code {code} after SIGTERM\n{self.log_text()}"
        self.check_log()

    def restart(self):
        """kill -9 and a start on the same ledger."""
        if self.process is not None:
            self.kill()
        return self.start()

    def dispose(self):
        """Ends it whatever its state, without judging it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.wait()
        if self.owns_database:
            self.database.discard()
        if self.owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self.start() if self.process is None else self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                if self.process is not None:
                    assert self.alive, f"died with {self.process.returncode}\n{self.log_text()}"
                    self.stop()
                self.check_log()
            else:
                print(self.log_text())
        finally:
            self.dispose()

    # --- judging ---

    def log_text(self, lines_max=200):
        return f"--- log of the server in {self.folder} ---\n" + "".join(self.log[-lines_max:])

    def check_log(self):
        """Fails when a sanitizer or an assertion has spoken."""
        for line in self.log:
            assert not ALARMS.search(line), f"alarm: {line}\n{self.log_text(400)}"

    def memory_bytes(self):
        """Resident memory now."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    # --- asking ---

    def connect(self, **options):
        return Connection(self.address, **options)

    def request(self, method, path, body=None, headers=None, token=None, source=None):
        """One request on a connection of its own; the answer is held against /openapi.json.
        `token` becomes the Authorization header; None sends the server's admin token, if it has
        one, and False sends none."""
        fields = dict(headers or {})
        if token is None:
            token = self.admin_token
        if token:
            fields.setdefault("Authorization", f"Bearer {token}")
        with self.connect(source=source) as connection:
            answer = connection.request(method, path, body, fields)
        OPENAPI.check(method, path, answer)
        return answer

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.request("POST", path, body, **options)

    def events_of(self, path, **options):
        return EventStream(self.address, path, **options)

    def create(self, total=10, limit=None, **fields):
        """Creates a policy and returns it."""
        body = {"name": "test", "discount": {"type": "percent", "value": 10}, "total": total}
        if limit is not None:
            body["per_user_limit"] = limit
        body.update(fields)
        return expect(self.post("/v1/policies", body), 201)

    def policy(self, policy_id):
        return expect(self.get(f"/v1/policies/{policy_id}"), 200)

    def patch(self, policy_id, **fields):
        return self.request("PATCH", f"/v1/policies/{policy_id}", fields)

    def claim(self, policy_id, user, key=None, **options):
        headers = dict(options.pop("headers", None) or {})
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.post(f"/v1/policies/{policy_id}/claims", {"user": user}, headers=headers,
                         **options)

    def win(self, policy_id, user, key=None, **options):
        """A claim that must win; its body."""
        return expect(self.claim(policy_id, user, key, **options), 201)

    def cancel(self, coupon, **options):
        return self.post(f"/v1/coupons/{coupon}/cancel", {}, **options)

    def status(self, policy_id, user, query="", **options):
        return self.get(f"/v1/policies/{policy_id}/claims/{quote(user, safe='')}{query}",
                        **options)

    def storm(self, requests, **options):
        return storm(self.address, requests, **options)

    def claims(self, policy_id, users, **options):
        """All users claim at once, each on a connection of its own."""
        return self.storm([claim_bytes(policy_id, user) for user in users], **options)

    def metrics(self):
        """{"name{labels}": value} of /metrics, as it is now."""
        answer = self.get("/metrics?fresh=true")
        assert answer.status == 200, answer
        samples = {}
        for line in answer.body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                assert name not in samples, f"sample twice: {line}"
                samples[name] = float(value)
        return samples


def claim_bytes(policy_id, user, key=None, token=None):
    headers = {}
    if key is not None:
        headers["Idempotency-Key"] = key
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return encode("POST", f"/v1/policies/{policy_id}/claims", {"user": user}, headers)


def expect(answer, status):
    """Asserts the status of a JSON answer and returns its body."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/json", answer
    return answer.json


def expect_problem(answer, status, code, **fields):
    """Asserts an RFC 9457 problem and returns it."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json", answer
    problem = answer.json
    assert problem["code"] == code, answer
    assert problem["status"] == status, answer
    assert problem["type"].endswith(f"/problems/{code}"), answer
    assert isinstance(problem["title"], str) and problem["title"], answer
    for name, value in fields.items():
        assert problem.get(name) == value, answer
    if status == 503 or status == 429:
        assert int(answer.headers["retry-after"]) >= 0, answer
    return problem


def tally(outcomes):
    """How many of each (status, result or code); a broken connection counts as None."""
    counts = {}
    for outcome in outcomes:
        answer = outcome.answer
        if answer is None:
            key = None
        else:
            body = answer.json
            key = (answer.status, body.get("result") or body.get("code"))
        counts[key] = counts.get(key, 0) + 1
    return counts


def check_first_come_first_served(outcomes):
    """Who was answered before another asked has the smaller seq; nobody was sold out before."""
    wins = [(o.sent_at, o.answered_at, o.answer.json["seq"]) for o in outcomes
            if o.answer is not None and o.answer.status == 201]
    answered = sorted((at, seq) for _, at, seq in wins)
    highest, index = 0, 0
    for sent_at, _, seq in sorted(wins):
        while index < len(answered) and answered[index][0] < sent_at:
            highest = max(highest, answered[index][1])
            index += 1
        assert seq > highest, f"seq {seq} was asked for after {highest} had been answered"


def _segment(value):
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def make_token(key, claims, header=None, digest=hashlib.sha256):
    """A compact JWS; the signature is always an HMAC, whatever the header says."""
    signed = _segment(header or {"alg": "HS256", "typ": "JWT"}) + b"." + _segment(claims)
    signature = hmac.new(key, signed, digest).digest()
    return (signed + b"." + _segment(signature)).decode()


def now_rfc3339(offset_s=0):
    """The wall clock's time, moved by some seconds, as the API writes it."""
    moment = time.time() + offset_s
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{text}.{int(moment % 1 * 1000):03d}Z"


def write_secret(folder, name, content):
    path = pathlib.Path(folder) / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o600)
    return path


