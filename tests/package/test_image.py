"""The image and the Compose file. No engine runs here: the image's root is made by the script that
the Containerfile runs, and dibs runs in it as the Containerfile says."""

import json
import os
import re
import shutil
import socket
import subprocess

import pytest
import yaml

from harness import BINARY, ROOT, run_dibs, wait_until

CONTAINERFILE = (ROOT / "Containerfile").read_text()
COMPOSE = ROOT / "deploy/compose"
TOKEN = "the-admin-token-of-the-image"


def instruction(word):
    return re.findall(rf"(?m)^{word} (.*)$", CONTAINERFILE)


def settings_of(*texts):
    return {name: value for text in texts for name, value in (pair.split("=", 1) for pair in text.split())}


def known_settings():
    return set(re.findall(r"(?m)^\| `(\w+)` \|", (ROOT / "docs/configuration.md").read_text()))


def check_settings(environment, folder):
    """dibs knows each, and takes them together."""
    names = {name.removeprefix("DIBS_").lower() for name in environment}
    assert {name if name in known_settings() else f"{name}_file" for name in names} <= known_settings()
    shown = run_dibs("config", folder=folder, env=environment)
    # The network of a Compose file is its own: its database needs no TLS.
    assert shown.returncode == 0 and not re.sub(r".*sslmode=verify-full\n", "", shown.stderr), shown


@pytest.fixture(name="image", scope="module")
def _image(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("only root may run in a root of its own")
    made = re.search(r"scripts/image build/dibs (/\w+)", CONTAINERFILE)
    assert f"COPY --from=build {made[1]} /" in CONTAINERFILE
    root = tmp_path_factory.mktemp("image")
    subprocess.run([ROOT / "scripts/image", BINARY, root], check=True, timeout=60)
    return root


def start(image, *words, **environment):
    user = instruction("USER")[0]
    return subprocess.Popen(
        [shutil.which("chroot"), f"--userspec={user}", image, *words],
        env={**settings_of(*instruction("ENV")), **environment},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_image__has_dibs_and_nothing_to_run_besides(image):
    programs = [path.relative_to(image) for path in image.rglob("*") if path.is_file()
                and os.access(path, os.X_OK) and ".so" not in path.name]
    assert [str(path) for path in programs] == ["usr/bin/dibs"]
    assert ".debug_info" not in subprocess.run(
        ["readelf", "--sections", "--wide", image / "usr/bin/dibs"], capture_output=True, text=True,
        check=True).stdout


def test_image__gives_a_coupon_as_nobody_and_says_that_it_is_well(image):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{}".format(listener.getsockname()[1])
    program, command = (json.loads(instruction(word)[0]) for word in ("ENTRYPOINT", "CMD"))
    health = json.loads(instruction("HEALTHCHECK")[0].split(" CMD ")[1])
    env = {"DIBS_LISTEN": address, "DIBS_ADMIN_TOKEN": TOKEN, "DIBS_URL": f"http://{address}"}

    def ended(*words):
        process = start(image, *words, **env)
        return process.wait(60), process.stdout.read()

    process = start(image, *program, *command, **env)
    try:
        assert process.poll() is None
        wait_until(lambda: ended(*health)[0] == 0 or process.poll() is not None, "a healthy dibs")
        code, said = ended(*program, "policy", "create", "--name", "First",
                           "--discount", "10%", "--total", "3", "--json")
        assert code == 0, said
        code, said = ended(*program, "claim", str(json.loads(said)["id"]), "u1", "--json")
        assert code == 0 and json.loads(said)["result"] == "ISSUED", said
    finally:
        process.terminate()
        code, said = process.wait(60), process.stdout.read()
    assert code == 0 and "running_as_root" not in said and "level=error" not in said, said
    assert (image / "var/lib/dibs/dibs.db").stat().st_uid == int(instruction("USER")[0].split(":")[0])
    assert ended(*health)[0] == 1


def test_image__its_settings_are_known(tmp_path):
    check_settings(settings_of(*instruction("ENV")) | {"DIBS_ADMIN_TOKEN": TOKEN}, tmp_path)


# --- compose ---


@pytest.fixture(name="compose", scope="module")
def _compose():
    return yaml.safe_load((COMPOSE / "compose.yaml").read_text())


def test_compose__its_settings_are_known_and_name_its_services(compose, tmp_path):
    services = compose["services"]
    assert set(services) == {"dibs", "worker", "redis", "postgres", "prometheus", "grafana"}
    for name in ("dibs", "worker"):
        environment = {key: re.sub(r"\$\{\w+:\?[^}]*\}", TOKEN, value)
                       for key, value in services[name]["environment"].items()}
        check_settings(environment, tmp_path)
        for url in ("DIBS_GATE", "DIBS_LEDGER"):
            assert re.search(r"//(?:\w+@)?(\w+)", environment[url])[1] in services
        assert services[name]["command"] == [{"dibs": "serve"}.get(name, name)]
    # Else dibs refuses that Redis, or loses what it said.
    redis = services["redis"]["command"]
    assert redis[redis.index("--maxmemory-policy") + 1] == "noeviction"
    assert redis[redis.index("--appendfsync") + 1] == "always"


def test_compose__files_and_volumes_that_it_names_are_there(compose):
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (COMPOSE / source).is_file() if source.startswith(".") else source in compose["volumes"]
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")
    build = compose["services"]["dibs"]["build"]
    assert (COMPOSE / build["context"] / build["dockerfile"]).samefile(ROOT / "Containerfile")


def test_compose__prometheus_asks_the_metrics_and_grafana_asks_it(compose):
    services = compose["services"]
    asked = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text())
    job, = asked["scrape_configs"]
    ports = {name: services[name]["environment"][setting].split(":")[1]
             for name, setting in (("dibs", "DIBS_METRICS_LISTEN"), ("worker", "DIBS_WORKER_LISTEN"))}
    assert job["static_configs"][0]["targets"] == [f"{name}:{port}" for name, port in ports.items()]
    assert job["job_name"].startswith("dibs")  # as the alerts want it
    mounted = [volume.split(":")[1] for volume in services["prometheus"]["volumes"]]
    assert f"/etc/prometheus/{asked['rule_files'][0]}" in mounted
    source, = yaml.safe_load((COMPOSE / "grafana.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    shown, = yaml.safe_load((COMPOSE / "dashboards.yaml").read_text())["providers"]
    assert f"{shown['options']['path']}/dibs.json" in [
        volume.split(":")[1] for volume in services["grafana"]["volumes"]]
