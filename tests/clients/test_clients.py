"""Clients that others' generators make of /openapi.json, compiled and used against a running server.
They come with the network, and take minutes: `make clients`. docs/clients.md has the commands."""

import os
import pathlib
import re
import shutil

import pytest

from harness import ROOT
from programs import maven, python_in, run

HERE = pathlib.Path(__file__).parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "dibs"
OPENAPI_PYTHON_CLIENT = "openapi-python-client==0.29.1"
OPENAPI_GENERATOR = "7.14.0"
TYPESCRIPT = "typescript@5.8.3"
EXEC = "org.codehaus.mojo:exec-maven-plugin:3.5.0:java"
# What is printed for: create, list, claim, status, redeem, cancel, and a problem.
WORDS = ["OPEN", "1", "ISSUED", "ISSUED", "REDEEMED", "CANCELLED", "NO_CLAIM"]


@pytest.fixture(name="url")
def _url(server, tmp_path):
    """A server, and its document beside the test."""
    (tmp_path / "openapi.json").write_bytes(server.get("/openapi.json").body)
    return "http://{}:{}".format(*server.address)


@pytest.fixture(name="generate")
def _generate(tmp_path):
    """generate(generator): a client as docs/clients.md says to make one."""
    commands = re.findall(r"(?m)^openapi-generator (generate .*)$", (ROOT / "docs/clients.md").read_text())
    jar = CACHE / f"openapi-generator-cli-{OPENAPI_GENERATOR}.jar"
    if not jar.exists():
        maven("dependency:copy", f"-DoutputDirectory={CACHE}",
              f"-Dartifact=org.openapitools:openapi-generator-cli:{OPENAPI_GENERATOR}", cwd=tmp_path)

    def generate(generator):
        command = next(line for line in commands if f" -g {generator} " in line)
        said = run("java", "-jar", jar, *command.split(), cwd=tmp_path)
        assert "ERROR" not in said, said
        return tmp_path / "client"
    return generate


def test_client__of_openapi_python_client(url, tmp_path):
    python = python_in(tmp_path / "venv", OPENAPI_PYTHON_CLIENT)
    said = run(tmp_path / "venv/bin/openapi-python-client", "generate",
               "--path", tmp_path / "openapi.json", "--output-path", tmp_path / "client")
    # What it leaves out it only warns of.
    assert "omitted" not in said and "Unable" not in said, said
    assert run("env", f"PYTHONPATH={tmp_path}/client", python, HERE / "use_python_client.py",
               url).split() == WORDS


def test_client__of_openapi_generator_for_python(url, generate, tmp_path):
    python = python_in(tmp_path / "venv", generate("python"))
    run(python, "-m", "compileall", "-q", tmp_path / "client/dibs_client")
    assert run(python, HERE / "use.py", url).split() == WORDS


def test_client__of_openapi_generator_for_java(url, generate):
    client = generate("java")
    shutil.copy(HERE / "Use.java", client / "src/main/java")
    assert maven("compile", EXEC, "-Dexec.mainClass=Use", f"-Dexec.args={url}",
                 "-Dexec.cleanupDaemonThreads=false", cwd=client).split() == WORDS


def test_client__of_openapi_generator_for_kotlin(url, generate):
    client = generate("kotlin")
    shutil.copy(HERE / "Use.kt", client / "src/main/kotlin")
    shutil.copy(HERE / "kotlin.pom.xml", client / "pom.xml")
    assert maven("compile", EXEC, "-Dexec.mainClass=UseKt", f"-Dexec.args={url}",
                 "-Dexec.cleanupDaemonThreads=false", cwd=client).split() == WORDS


def test_client__of_openapi_generator_for_go(url, generate):
    client = generate("go")
    # Its tests call a server that is not there, and want a library for it.
    shutil.rmtree(client / "test")
    (client / "use").mkdir()
    shutil.copy(HERE / "use.go", client / "use/main.go")
    run("go", "mod", "tidy", cwd=client)
    run("go", "vet", ".", cwd=client)
    assert run("go", "run", "./use", url, cwd=client).split() == WORDS


def test_client__of_openapi_generator_for_typescript(url, generate):
    client = generate("typescript-fetch")
    shutil.copy(HERE / "use.ts", client)
    run("npx", "--yes", f"--package={TYPESCRIPT}", "tsc", "--strict", "--target", "es2022",
        "--module", "commonjs", "--lib", "es2022,dom,dom.iterable", "--outDir", "out", "use.ts", cwd=client)
    assert run("node", "out/use.js", url, cwd=client).split() == WORDS
