#!/usr/bin/python3
"""What a thousand open streams cost the server during a rush, per claim.

Run with an address and paths it is the watchers themselves: it opens streams, says so, and reads
until it is told to stop.
"""

import contextlib
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

STREAMS = 1000
CONNECTIONS = 64
# Streams are written two to four times a second: a round has to have its share of them.
ROUND_SECONDS = 2
RUN_IN_SECONDS = 0.3
SEEN_SECONDS = 1.0  # servers look at Redis four times a second


# --- the watchers ---

def watch(address, count, paths):
    host, port = address.rsplit(":", 1)
    selector = selectors.EpollSelector()
    for index in range(count):
        stream = socket.create_connection((host, int(port)))
        path = paths[index % len(paths)].format(index=index)
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        head = stream.recv(65536)
        if not head.startswith(b"HTTP/1.1 200 "):
            sys.exit(f"{path} was answered {head.decode(errors='replace')}")
        stream.setblocking(False)
        selector.register(stream, selectors.EVENT_READ)
    print("open", flush=True)
    received = 0
    signal.signal(signal.SIGTERM, lambda *_: (print(received, flush=True), os._exit(0)))
    while True:
        for key, _ in selector.select():
            data = key.fileobj.recv(1 << 20)
            if not data:
                sys.exit("the server has ended a stream")
            received += len(data)


if __name__ == "__main__":
    watch(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
    sys.exit(0)

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from harness import GENERATOR_CORE, BenchError, pin_to  # noqa: E402
from report import Figure, spread  # noqa: E402


@contextlib.contextmanager
def watchers(server, count, paths, told):
    """So many streams, open and read meanwhile; what they were sent is added to `told`."""
    process = subprocess.Popen([sys.executable, __file__, server.address, str(count), *paths],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=pin_to(GENERATOR_CORE))
    with process.stdout, process.stderr:
        if process.stdout.readline() != "open\n":
            raise BenchError(f"streams: {process.stderr.read()}")
        try:
            yield
        finally:
            process.terminate()
            said = process.stdout.readline()
            process.wait()
    if not said:
        raise BenchError("streams: some of them were ended")
    told.append(int(said))


# --- rounds ---

class Rush:
    """A server whose policy is claimed as fast as it answers."""

    def __init__(self, bench, server, mode, expect):
        self.bench = bench
        self.server = server
        self.mode = mode
        self.expect = expect
        self.turns = 0
        self.told = []

    def round(self, streams, paths):
        self.turns += 1
        settings = {"policy": 1, "connections": CONNECTIONS, "warmup": RUN_IN_SECONDS,
                    "stretch": ROUND_SECONDS / self.bench.seconds}
        if self.mode == "issued":
            settings["first"] = self.turns * 10**9
        with contextlib.ExitStack() as stack:
            if streams > 0:
                stack.enter_context(watchers(self.server, streams, paths, self.told))
            return self.bench.round(self.server, self.mode, self.expect, **settings)


def cost(counted):
    """CPU microseconds of the server per claim."""
    return 1e6 / counted["per_cpu_second"]


def share(watched, alone):
    """What the streams took of a core: what the claims of the round do not account for."""
    claims_seconds = watched["requests"] * cost(alone) / 1e6
    return (watched["server_cpu_seconds"] - claims_seconds) / watched["seconds"]


def measure_row(bench, report, name, rush, paths, rounds):
    rush.round(0, paths)
    alone, watched = [], []
    for turn in range(rounds):
        order = ((alone, 0), (watched, STREAMS))
        for column, streams in order if turn % 2 == 0 else reversed(order):
            column.append(rush.round(streams, paths))
    report.add("streams", Figure(
        name, spread([cost(a) / cost(b) for a, b in zip(watched, alone)]), target=1.10, most=True,
        alone=statistics.median(map(cost, alone)), watched=statistics.median(map(cost, watched)),
        share=statistics.median(map(share, watched, alone)),
        busy=statistics.median(counted["server_busy"] for counted in watched),
        told_bytes=statistics.median(rush.told)))


def measure_streams(bench, report, say, quick):
    rounds = 5 if quick else 11
    paths = ["/v1/live", "/v1/policies/1/live", "/v1/policies/1/events"]
    for name, mode, expect, total in (("SOLD_OUT", "sold_out", 409, 1000),
                                      ("ISSUED (durable)", "issued", 201, 100_000_000)):
        say(f"  streams: {name} …")
        with bench.dibs(bench.folder / f"streams-{mode}.db") as server:
            server.create_policy(1, total)
            if mode == "sold_out":
                bench.preload(server, 1, total)
            measure_row(bench, report, name, Rush(bench, server, mode, expect), paths, rounds)
    say("  streams: with those who wait for their coupon …")
    measure_pending(bench, report, paths, rounds)


def measure_pending(bench, report, paths, rounds):
    """A quarter of the streams are of claims that stay pending: the worker is held up."""
    import servers  # only here: the others need no Redis
    with servers.Redis(appendfsync="no") as redis, servers.Postgres() as database:
        url = database.create_database("bench")
        with bench.dibs_on(url, gate=redis.url()) as server, \
                bench.worker(url, redis.url()) as worker:
            server.create_policy(1, 1)
            server.create_policy(2, STREAMS)
            server.call("POST", "/v1/policies/1/claims", {"user": "first"})
            time.sleep(SEEN_SECONDS)
            worker.send_signal(signal.SIGSTOP)
            try:
                for index in range(STREAMS):
                    server.call("POST", "/v1/policies/2/claims", {"user": f"u{index}"})
                measure_row(bench, report, "SOLD_OUT, gate in Redis, claims pending",
                            Rush(bench, server, "sold_out", 409),
                            [*paths, "/v1/policies/2/claims/u{index}/events"], rounds)
            finally:
                worker.send_signal(signal.SIGCONT)
