"""dibs top: a snapshot as text and JSON, and the live view driven in a real terminal."""

import json
import os
import shlex
import subprocess
import uuid

import pytest

from double import Double
from harness import BINARY, expect, run_dibs, wait_until


def url_of(server):
    return f"http://127.0.0.1:{server.address[1]}"


def test_top__once_as_json(serve):
    server = serve()
    policy = server.create(total=4, name="Noon")["id"]
    for user in ("a", "b", "c"):
        server.win(policy, user)

    def look():
        ended = run_dibs("top", "--json", "--url", url_of(server))
        assert ended.returncode == 0, ended
        shown = json.loads(ended.stdout)
        return shown if shown["policies"][0]["issued"] == 3 else None

    shown = wait_until(look, "the numbers, which may be those of a moment ago")
    assert shown["reachable"] and shown["ready"]
    assert shown["policies"] == [{"id": policy, "name": "Noon", "state": "OPEN", "total": 4,
                                  "remaining": 1, "pending": 0, "issued": 3}]
    assert [part["name"] for part in shown["parts"]] == ["gate", "ledger", "relay", "steward"]


def test_top__once_as_text(serve):
    server = serve()
    policy = server.create(total=4, name="Noon")["id"]
    server.win(policy, "a")

    def look():
        shown = run_dibs("top", "--once", "--url", url_of(server))
        return shown if "1 of 4 issued  Noon" in shown.stdout else None

    ended = wait_until(look, "the numbers, which may be those of a moment ago")
    assert ended.returncode == 0 and "ready" in ended.stdout, ended
    assert "######.................." in ended.stdout
    assert "\x1b" not in ended.stdout


def test_top__a_server_that_cannot_list_its_policies(serve):
    server = serve()
    server.create(total=4, name="Noon")

    def lie(request, reply):
        if b"/v1/policies" in request.line:
            reply.status, reply.body = 503, b'{"code":"UNAVAILABLE","detail":"away"}'
    with Double(server, lie) as double:
        ended = run_dibs("top", "--once", "--url", double.url)
        assert "cannot be told right now" in ended.stdout and "no policies" not in ended.stdout
        assert json.loads(run_dibs("top", "--json", "--url", double.url).stdout)["policies"] is None


def test_top__nobody_there():
    ended = run_dibs("top", "--once", "--url", "http://127.0.0.1:1")
    assert ended.returncode == 1 and "is `dibs serve` running?" in ended.stderr, ended


def test_top__off_a_terminal_it_says_what_to_use():
    ended = run_dibs("top", "--url", "http://127.0.0.1:1")
    assert ended.returncode == 1 and "--once" in ended.stderr, ended


class Terminal:
    """A program in a terminal of its own, by tmux."""

    def __init__(self, folder, *command):
        self.socket = f"{folder}/tmux-{uuid.uuid4().hex[:8]}"
        env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        env.pop("TMUX", None)
        line = " ".join(map(shlex.quote, map(str, command)))
        self.run("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "30",
                 f"{line}; echo ended with $?; read", env=env)

    def run(self, *arguments, **options):
        return subprocess.run(["tmux", "-S", self.socket, *arguments], check=True,
                              capture_output=True, text=True, **options).stdout

    def screen(self):
        return self.run("capture-pane", "-p")

    def press(self, *keys):
        self.run("send-keys", *keys)

    def shows(self, *texts):
        """Waits until all of these are on the screen."""
        try:
            wait_until(lambda: all(text in self.screen() for text in texts), texts)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.screen()}") from None

    def end(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], check=False,
                       capture_output=True)


@pytest.fixture
def terminal(tmp_path):
    ended = []

    def start(*command):
        ended.append(Terminal(tmp_path, *command))
        return ended[-1]
    yield start
    for one in ended:
        one.end()


def test_top__live(serve, terminal):
    """A drop is seen as it goes; pausing asks first; q leaves the terminal as it was."""
    server = serve()
    policy = server.create(total=3, name="Live drop")["id"]
    screen = terminal(BINARY, "top", "--url", url_of(server), "--interval", "100ms")
    screen.shows("dibs top", "ready", "Live drop", "OPEN", "o ledger sqlite", "q quit")
    server.win(policy, "a")
    screen.shows("won ")
    screen.press("p")
    screen.shows(f"Pause policy {policy} (Live drop)? y/N")
    screen.press("n")
    screen.shows("q quit")
    assert expect(server.get(f"/v1/policies/{policy}"), 200)["state"] == "OPEN"
    screen.press("p", "y")
    screen.shows("PAUSED", f"policy {policy} is PAUSED, it was OPEN")
    assert expect(server.get(f"/v1/policies/{policy}"), 200)["state"] == "PAUSED"
    screen.press("r", "y")
    screen.shows(f"policy {policy} is OPEN, it was PAUSED")
    for user in ("b", "c"):
        server.win(policy, user)
    screen.shows(f"policy {policy} is SOLD_OUT, it was OPEN")
    screen.press("q")
    screen.shows("ended with 0")


def test_top__a_question_is_about_its_policy_wherever_that_moves(serve, terminal):
    server = serve()
    first, second = (server.create(total=3, name=name)["id"] for name in ("First", "Second"))
    screen = terminal(BINARY, "top", "--url", url_of(server), "--interval", "100ms")
    screen.shows("First", "Second")
    screen.press("Down", "p")
    screen.shows(f"Pause policy {second} (Second)? y/N")
    for user in ("a", "b", "c"):
        server.win(first, user)
    screen.shows(f"policy {first} is SOLD_OUT, it was OPEN")
    screen.press("y")
    screen.shows(f"policy {second} is PAUSED, it was OPEN")
    assert not expect(server.get(f"/v1/policies/{first}"), 200)["paused"]
    wait_until(lambda: any(line.startswith(">") and "Second" in line
                           for line in screen.screen().splitlines()), "it is still selected")


def test_top__a_server_that_goes_away(serve, terminal):
    server = serve()
    server.create(total=3, name="Live drop")
    screen = terminal(BINARY, "top", "--url", url_of(server), "--interval", "100ms")
    screen.shows("Live drop", "ready")
    server.stop()
    screen.shows("the server does not answer", "nothing answers at", "Live drop")
    screen.press("q")
    screen.shows("ended with 0")
