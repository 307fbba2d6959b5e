"""Programs of other languages: run to their end, or beside a test."""

import contextlib
import os
import re
import subprocess
import venv

GO = "/usr/local/go/bin:/usr/lib/go/bin"


def environment(more=()):
    return {**os.environ, "PATH": f"{os.environ['PATH']}:{GO}", **dict(more)}


def run(*command, cwd=None):
    """What it prints; what fails, fails with all it said."""
    ended = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1200, check=False,
                           cwd=cwd, env=environment())
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def maven(*words, cwd=None):
    """What it prints; maven puts colours around it, told not to or not."""
    return re.sub(r"\x1b\[\w+", "", run("mvn", "--batch-mode", "--quiet", *words, cwd=cwd))


def python_in(folder, *packages):
    venv.create(folder, with_pip=True)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", *packages)
    return folder / "bin/python"


@contextlib.contextmanager
def running(*command, cwd, env, log):
    with open(log, "wb") as output:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=output, cwd=cwd, env=environment(env))
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)
        print(log.read_text())
