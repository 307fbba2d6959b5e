"""What an attacker meets who got past everything else, and what an operator is told."""

import json
import os

import pytest

from harness import BUILD_DIR, run_dibs

HARDENING = {"-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection",
             "-ftrivial-auto-var-init=zero", "-D_FORTIFY_SOURCE=3"}


def test_hardening__the_parsers_have_what_our_own_files_have():
    """They read what strangers send. Of what is built to be installed: with the optimizer."""
    commands = json.loads((BUILD_DIR / "compile_commands.json").read_text())
    flags = {entry["file"]: set(entry["command"].split()) for entry in commands}
    ours = [found for file, found in flags.items() if file.startswith("../src/")]
    assert {"-O2", "-O3"} & ours[0], "this is about what is installed: run it on build/"
    # Whatever this compiler knows of them; gcc of Debian 12 knows all.
    wanted = HARDENING & ours[0]
    assert len(wanted) >= 3
    for file, found in flags.items():
        if file.startswith("../src/") or "subprojects" in file:
            assert wanted <= found, (file, wanted - found)


EXPOSED = {
    "ledger postgres prefer": {"ledger": "postgres://dibs:secret-pw@db.example/shop"},
    "ledger postgres require": {"ledger": "postgres://dibs:secret-pw@db.example/s?sslmode=require"},
    "ledger second host": {"ledger": "postgres://dibs:secret-pw@127.0.0.1,db.example/shop"},
    "ledger mysql preferred": {"ledger": "mysql://dibs@192.0.2.1/shop",
                               "ledger_password": "secret-pw"},
    "relay kafka": {"relay": "kafka://u:secret-pw@kafka.example:9092?security=sasl_plaintext"},
    "relay kafka default": {"relay": "kafka://u:secret-pw@kafka.example:9092"},
    "gate redis": {"gate": "redis://:secret-pw@cache.example"},
}
SAFE = {
    "loopback": {"ledger": "postgres://dibs:secret-pw@127.0.0.1/shop"},
    "name of loopback": {"ledger": "mysql://dibs:secret-pw@localhost/shop"},
    "IPv6 loopback": {"gate": "redis://:secret-pw@[::1]:6379"},
    "no password": {"ledger": "postgres://dibs@db.example/shop"},
    "verified": {"ledger": "postgres://dibs:secret-pw@db.example/shop?sslmode=verify-full"},
    "mysql verified": {"ledger": "mysql://d:secret-pw@db.example/shop?ssl_mode=verify-full&ssl_ca=/c"},
    "sasl_ssl": {"relay": "kafka://u:secret-pw@kafka.example:9092?security=sasl_ssl"},
    "rediss": {"gate": "rediss://:secret-pw@cache.example"},
    "sqlite": {"ledger": "sqlite:dibs.db"},
}


@pytest.mark.parametrize("name", EXPOSED)
def test_hardening__a_password_that_travels_unverified_is_warned_of(tmp_path, name):
    shown = run_dibs("config", config=EXPOSED[name], folder=tmp_path)
    assert "poses as that host" in shown.stderr, shown
    assert f"warning: {name.split()[0]}:" in shown.stderr
    assert "secret-pw" not in shown.stderr + shown.stdout


@pytest.mark.parametrize("name", SAFE)
def test_hardening__a_password_that_stays_or_is_verified_is_not(tmp_path, name):
    shown = run_dibs("config", config=SAFE[name], folder=tmp_path)
    assert shown.returncode == 0 and "warning" not in shown.stderr, shown


def test_hardening__says_that_it_runs_as_root(server):
    lines = [line for line in server.log if "event=running_as_root" in line]
    assert len(lines) == (os.geteuid() == 0)
