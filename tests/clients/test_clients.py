"""Clients that others' generators make of /openapi.json, used against a running server. They come with
the network: `make clients`."""

import pathlib
import subprocess
import venv

HERE = pathlib.Path(__file__).parent
OPENAPI_PYTHON_CLIENT = "openapi-python-client==0.29.1"


def run(*command):
    ended = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_client__of_openapi_python_client(server, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", OPENAPI_PYTHON_CLIENT)
    (tmp_path / "openapi.json").write_bytes(server.get("/openapi.json").body)
    said = run(tmp_path / "venv/bin/openapi-python-client", "generate",
               "--path", tmp_path / "openapi.json", "--output-path", tmp_path / "client")
    # What it leaves out it only warns of.
    assert "omitted" not in said and "Unable" not in said, said
    url = "http://{}:{}".format(*server.address)
    assert run("env", f"PYTHONPATH={tmp_path}/client", python, HERE / "use_python_client.py",
               url).split() == ["OPEN", "1", "ISSUED", "ISSUED", "REDEEMED", "CANCELLED", "NO_CLAIM"]
