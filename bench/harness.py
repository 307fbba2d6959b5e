"""Starts the servers, drives them with the generator, and reads their clocks."""

import contextlib
import http.client
import json
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

SERVER_CORE = 0
GENERATOR_CORE = 1
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60


class BenchError(Exception):
    """The run cannot go on; the words are for the person who started it."""


def pin_to(core):
    """A preexec function that keeps a child on one core, where there are two."""
    def pin():
        if core in os.sched_getaffinity(0) and len(os.sched_getaffinity(0)) > 1:
            os.sched_setaffinity(0, {core})
    return pin


def process_cpu_seconds(pid):
    """CPU time of all threads of a process, from its clock: nanoseconds, not ticks."""
    return time.clock_gettime((~pid << 3) | 2)


def resident_bytes(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", text, re.M)[1]) * 1024


def machine_busy_seconds():
    """CPU time that the whole machine has spent, and what the hypervisor took from it."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / tick, steal / tick


class Server:
    """A server process on its own core, known by the address it says it listens on."""

    def __init__(self, command, folder, restores=False):
        self.command = [str(part) for part in command]
        self.log_path = Path(folder) / f"server-{id(self):x}.log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DIBS_")}
        started = time.monotonic()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                self.command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=log, preexec_fn=pin_to(SERVER_CORE))
        self.address = re.search(r'\baddress="?([^"\s]+)', self._await_line("listening"))[1]
        self.listening_seconds = time.monotonic() - started
        if restores:
            self._await_line("gate_restored")
        self.start_seconds = time.monotonic() - started
        self.start_cpu_seconds = process_cpu_seconds(self.process.pid)

    @property
    def pid(self):
        return self.process.pid

    def _await_line(self, event):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            for line in self.log_path.read_text(errors="replace").splitlines():
                if f"event={event} " in line:
                    return line
            if self.process.poll() is not None:
                break
            time.sleep(0.002)
        self.stop(check=False)
        raise BenchError(f"{' '.join(self.command)} did not start:\n{self.log_path.read_text()}")

    def call(self, method, path, body=None):
        """One API call; anything but success ends the run."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        with contextlib.closing(connection):
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            text = reply.read().decode()
        if reply.status not in (200, 201, 202):
            raise BenchError(f"{method} {path} was answered {reply.status}: {text}")
        return json.loads(text)

    def metric(self, name):
        """The value of a metric without labels."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics?fresh=true")
            text = connection.getresponse().read().decode()
        found = re.search(rf"^{name} (\S+)$", text, re.M)
        if found is None:
            raise BenchError(f"/metrics has no {name}")
        return float(found[1])

    def create_policy(self, policy_id, total):
        return self.call("POST", "/v1/policies", {
            "id": policy_id, "name": "bench", "discount": {"type": "percent", "value": 10},
            "total": total, "per_user_limit": 1})

    def stop(self, check=True):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if check and self.process.returncode != 0:
            raise BenchError(f"{self.command[0]} ended with {self.process.returncode}:\n"
                             f"{self.log_path.read_text()[-2000:]}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop(check=kind is None)


class Bench:
    """The programs of one build folder and the settings of one run."""

    def __init__(self, build, folder, rounds, seconds):
        self.build = Path(build).resolve()
        self.folder = Path(folder)
        self.rounds = rounds
        self.seconds = seconds
        self.others_seconds = 0.0
        self.steal_seconds = 0.0
        self.loaded_seconds = 0.0

    def program(self, name):
        return self.build / "bench" / name

    def floor(self, reply_bytes):
        return Server([self.program("floor"), reply_bytes], self.folder)

    def dibs(self, ledger):
        return self.dibs_on(f"sqlite:{ledger}")

    def dibs_on(self, url, gate="local", relay="direct", restores=True):
        """With a gate of its own it has restored its policies, unless that is what is measured."""
        return Server([self.build / "dibs", "serve", "--listen", "127.0.0.1:0", "--threads", "1",
                       "--ledger", url, "--gate", gate, "--relay", relay], self.folder,
                      restores=restores and gate == "local")

    @contextlib.contextmanager
    def worker(self, url, gate, relay="direct"):
        process = subprocess.Popen(
            [str(self.build / "dibs"), "worker", "--ledger", url, "--gate", gate,
             "--relay", relay],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)

    @staticmethod
    def _clocks(server):
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (*machine_busy_seconds(), process_cpu_seconds(server.pid),
                children.ru_utime + children.ru_stime, time.monotonic())

    def load(self, server, mode, **settings):
        """Runs the generator once and gives back what it counted."""
        command = [self.program("load"), "--address", server.address, "--mode", mode,
                   "--pid", server.pid]
        for name, value in settings.items():
            command += [f"--{name}", value]
        before = self._clocks(server)
        done = subprocess.run([str(x) for x in command], capture_output=True, text=True,
                              check=False, preexec_fn=pin_to(GENERATOR_CORE))
        if done.returncode != 0:
            raise BenchError(done.stderr.strip() + "\n" + server.log_path.read_text()[-2000:])
        spent = [after - was for after, was in zip(self._clocks(server), before)]
        self.others_seconds += max(0.0, spent[0] - spent[2] - spent[3])
        self.steal_seconds += spent[1]
        self.loaded_seconds += spent[4]
        counted = json.loads(done.stdout)
        counted["per_cpu_second"] = counted["requests"] / max(1e-9, counted["server_cpu_seconds"])
        return counted

    def round(self, server, mode, expect, stretch=1, **settings):
        """One measured round; every reply must have the expected status."""
        counted = self.load(server, mode, seconds=self.seconds * stretch, **settings)
        if expect is not None and set(counted["statuses"]) != {str(expect)}:
            raise BenchError(f"{mode}: expected only {expect}, got {counted['statuses']}")
        return counted

    def preload(self, server, policy_id, count):
        """Makes `count` users win, through the API."""
        counted = self.load(server, "issued", policy=policy_id, requests=count,
                            connections=min(256, count))
        if counted["statuses"] != {"201": count}:
            raise BenchError(f"preloading {count} claims: {counted['statuses']}")
        return counted
