"""What the binary writes about itself: completion, man page, the page about settings."""

import re
import subprocess

import pytest

from harness import ROOT, clean_environment, run_dibs


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


def complete_in_fish(folder, line):
    """What fish would offer at the end of a line, and what it says about each."""
    script = folder / "dibs.fish"
    script.write_text(run_dibs("completion", "fish").stdout)
    ended = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], text=True,
        env=clean_environment(extra={"HOME": str(folder)}), stdin=subprocess.DEVNULL,
        capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0 and not ended.stderr, ended
    return dict(offer.partition("\t")[::2] for offer in ended.stdout.splitlines())


def complete_in_zsh(folder, line):
    """The same of zsh: its own line editor, in a terminal, is asked by the Tab key; each offer is
    a line of its list."""
    script = folder / "_dibs"
    script.write_text(run_dibs("completion", "zsh").stdout)
    asking = f"""
        zmodload zsh/zpty
        zpty -b shell zsh -f -i
        zpty -w shell 'PS1=; stty columns 200 rows 200; autoload -U compinit; compinit -u -d {folder}/dump
          source {script}; zstyle ":completion:*" list-separator "~"
          setopt list_rows_first no_auto_menu no_list_beep; LISTMAX=0
          comppostfuncs=(ended); ended() {{ compstate[insert]=; compstate[list]="list force" }}
          after() {{ print -r "<END>" }}; zle -N after; bindkey "^X" after; print "<BE""GIN>"'
        until [[ $all == *"<BEGIN>"* ]]; do zpty -r shell part && all+=$part; done; all=
        zpty -n -w shell $'{line}\t\x18'
        until [[ $all == *"<END>"* ]]; do zpty -r shell part && all+=$part; sleep 0.01; done
        print -r -- $all"""
    ended = subprocess.run(["zsh", "-f", "-c", asking], text=True, stdin=subprocess.DEVNULL,
                           env=clean_environment(extra={"HOME": str(folder), "TERM": "dumb"}),
                           capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0 and not ended.stderr, ended
    listed = ended.stdout.replace("\r", "").splitlines()
    return {name.strip(): help.strip() for name, between, help in
            (offer.partition("~") for offer in listed) if between}


@pytest.mark.parametrize("ask", [complete_in_fish, complete_in_zsh], ids=["fish", "zsh"])
def test_completion__other_shells_offer_the_same_and_say_what_it_is_for(tmp_path, ask):
    assert ask(tmp_path, "dibs po") == {"policy": "Creates, lists and changes what is handed out"}
    assert ask(tmp_path, "dibs policy cr")["create"]
    assert ask(tmp_path, "dibs policy create --op")["--opens-at"]
    assert {"--log-level", "--log-format"} == set(ask(tmp_path, "dibs serve --log-"))
    assert set(ask(tmp_path, "dibs policy ")) >= {"create", "list", "close"}
    assert not ask(tmp_path, "dibs claim --lis")


def test_completion__is_for_bash_fish_and_zsh():
    ended = run_dibs("completion", "tcsh")
    assert ended.returncode == 2 and "known: bash, fish, zsh" in ended.stderr


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
