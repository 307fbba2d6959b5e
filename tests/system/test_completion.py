"""What the binary writes about itself: completion, man page, the page about settings."""

import re
import subprocess


from harness import ROOT, run_dibs


def complete(*words):
    """What bash would offer for the last of these words."""
    script = run_dibs("completion", "bash")
    assert script.returncode == 0, script
    ask = ('COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _dibs; '
           'printf "%s\\n" "${COMPREPLY[@]}"')
    ended = subprocess.run(["bash", "-u", "-c", script.stdout + ask, "bash", "dibs", *words],
                           capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0 and not ended.stderr, ended
    return [line for line in ended.stdout.splitlines() if line]


def test_completion__offers_commands():
    assert {"serve", "policy", "claim", "status", "migrate", "config"} <= set(complete(""))
    assert complete("po") == ["policy"]
    assert complete("policy", "c") == ["create", "close"]
    assert complete("help", "cl") == ["claim"]


def test_completion__offers_the_flags_of_that_command():
    assert complete("policy", "create", "--o") == ["--opens-at"]
    assert complete("claim", "42", "u1", "--json", "--k") == ["--key"]
    assert complete("serve", "--log-") == ["--log-level", "--log-format"]
    assert complete("migrate", "--dr") == ["--dry-run"]
    assert complete("migrate", "--ledger-p") == ["--ledger-password-file"]
    assert complete("claim", "--lis") == []


def test_completion__offers_values_where_there_are_few():
    assert complete("serve", "--log-format", "") == ["logfmt", "json"]
    assert complete("serve", "--log-format", "=", "j") == ["json"]
    assert complete("serve", "--threads", "") == []


def test_completion__offers_files(tmp_path):
    (tmp_path / "a token").write_text("x")
    assert complete("serve", "--admin-token-file", f"{tmp_path}/a") == [f"{tmp_path}/a token"]


def test_completion__knows_only_bash():
    ended = run_dibs("completion", "tcsh")
    assert ended.returncode == 2 and "known: bash" in ended.stderr


def flags_of_help(*command):
    return set(re.findall(r"^  (--[a-z-]+)", run_dibs(*command, "--help").stdout, re.M))


def test_manual__names_every_flag_of_every_command():
    page = run_dibs("manual").stdout.replace("\\-", "-")
    for command in (["serve"], ["migrate"], ["config"], ["claim"], ["status"], ["policy", "create"],
                    ["policy", "list"], ["policy", "update"]):
        assert "\n.SS dibs " + " ".join(command) in page
        flags = flags_of_help(*command)
        assert flags
        for flag in flags:
            assert flag in page, flag


def test_manual__is_roff_without_warnings():
    page = run_dibs("manual").stdout
    ended = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z"], input=page, text=True,
                           capture_output=True, timeout=30, check=False)
    assert ended.returncode == 0 and ended.stderr == "", ended.stderr


def test_manual__has_the_page_about_settings_that_is_committed():
    written = run_dibs("manual", "configuration").stdout
    assert written == (ROOT / "docs/configuration.md").read_text("utf-8")


def test_output__that_cannot_be_written_is_a_failure():
    with open("/dev/full", "w", encoding="utf-8") as full:
        for arguments in (["version"], ["config"], ["manual"]):
            ended = subprocess.run([run_dibs("version").args[0], *arguments], stdout=full,
                                   stderr=subprocess.PIPE, timeout=30, check=False)
            assert ended.returncode == 1, arguments
