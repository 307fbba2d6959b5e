"""What a request costs whoever sends it: `dibs rush`, which checks every answer, against wrk and hey."""

import json
import os
import shutil
import statistics
import subprocess
from pathlib import Path

from harness import GENERATOR_CORE, BenchError, pin_to
from report import Figure, spread

HERE = Path(__file__).resolve().parent
USERS = 200_000
TOTAL = 1000
CONNECTIONS = 256


def run_pinned(command):
    """Runs a program on the generator's core: its output and its CPU seconds."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, preexec_fn=pin_to(GENERATOR_CORE))
    with process.stdout, process.stderr:
        output, errors = process.stdout.read(), process.stderr.read()
    _, code, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode != 0:
        raise BenchError(f"{command[0]} ended with {process.returncode}: {errors.decode()}")
    return output.decode(), usage.ru_utime + usage.ru_stime


def storm_by_rush(bench, server, users, number):
    """Makes the policy, storms it, looks every winner up and judges: all of it counts."""
    output, cpu = run_pinned([bench.build / "dibs", "rush", "--url", f"http://{server.address}",
                              "--policy", number, "--users", users, "--connections", CONNECTIONS,
                              "--json"])
    found = json.loads(output)
    if not found["exact"]:
        raise BenchError(f"dibs rush found something broken: {output}")
    return 1e6 * cpu / users


def storm_by_wrk(server, users, number):
    """wrk ends by the clock; it is given as long as it takes to ask about as often as the others."""
    output, cpu = run_pinned(["wrk", "-t1", f"-c{CONNECTIONS}", "-d3s", "-s", HERE / "storm.lua",
                              f"http://{server.address}/v1/policies/{number}/claims"])
    asked = next(line.split()[0] for line in output.splitlines() if "requests in" in line)
    return 1e6 * cpu / int(asked)


def storm_by_hey(server, users, number):
    """hey cannot change the body from request to request: one user asks all the time."""
    _, cpu = run_pinned(["hey", "-n", users, "-c", CONNECTIONS, "-cpus", "1", "-m", "POST",
                         "-T", "application/json", "-d", '{"user":"hey"}',
                         f"http://{server.address}/v1/policies/{number}/claims"])
    return 1e6 * cpu / users


def measure_rush(bench, report, quick):
    rounds = 3 if quick else 9
    users = USERS // 4 if quick else USERS
    peers = {"wrk": storm_by_wrk, "hey": storm_by_hey}
    missing = [name for name in peers if shutil.which(name) is None]
    if missing:
        raise BenchError(f"not installed: {', '.join(missing)} (scripts/setup bench)")
    costs = {name: [] for name in ("rush", *peers)}
    with bench.dibs(bench.folder / "rush.db") as server:
        number = 0
        for turn in range(rounds):
            for name in costs if turn % 2 == 0 else reversed(costs):
                number += 1
                server.create_policy(number, TOTAL)
                costs[name].append(storm_by_rush(bench, server, users, number) if name == "rush"
                                   else peers[name](server, users, number))
    for name in peers:
        report.add("rush", Figure(
            f"rush : {name}", spread([a / b for a, b in zip(costs["rush"], costs[name])]),
            target=1.0, most=True, rush=statistics.median(costs["rush"]),
            peer=statistics.median(costs[name])))
