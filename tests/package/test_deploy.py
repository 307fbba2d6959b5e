"""What an operator is given beside the program: units, settings, versions, alerts, the dashboard."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from harness import BINARY, BUILD_DIR, ROOT, run_dibs
from servers import Redis
from sharing import Sharing

DEBIAN = ROOT / "debian"
UNITS = {"dibs": DEBIAN / "dibs.service", "dibs-worker": DEBIAN / "dibs.dibs-worker.service"}
ALERTS = ROOT / "deploy/prometheus/dibs.rules.yaml"
DASHBOARD = ROOT / "deploy/grafana/dibs.json"
EXPOSURE_MAX = 20  # tenths


def run(command, **options):
    return subprocess.run([str(word) for word in command], text=True, timeout=120, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options)


# --- units ---


@pytest.mark.parametrize("name", UNITS)
def test_unit__is_little_exposed(tmp_path, name):
    unit = tmp_path / f"{name}.service"
    shutil.copy(UNITS[name], unit)
    looked = run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                  f"--threshold={EXPOSURE_MAX}", unit])
    assert looked.returncode == 0, looked.stdout
    # Too small a threshold is noticed, so this one can be, too.
    assert run(["systemd-analyze", "security", "--offline=true", "--threshold=1", unit]).returncode


def test_unit__the_two_differ_in_what_they_run_only():
    one, other = (unit.read_text().splitlines() for unit in UNITS.values())
    differ = [pair for pair in zip(one, other) if pair[0] != pair[1]]
    assert len(one) == len(other)
    assert [pair[0].split("=")[0] for pair in differ] == ["Description", "ExecStart"]


def test_unit__says_nothing_that_systemd_does_not_know(tmp_path):
    for name, unit in UNITS.items():
        # The program has to be there, and so has its user.
        text = unit.read_text().replace("/usr/bin/dibs", shutil.which("true"))
        (tmp_path / f"{name}.service").write_text(re.sub("(User|Group)=dibs", r"\1=root", text))
    looked = run(["systemd-analyze", "verify", "--man=no", *tmp_path.glob("*.service")],
                 env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"})
    assert "Unknown" not in looked.stdout and "dibs" not in looked.stdout, looked.stdout


def test_unit__its_settings_are_accepted_and_all_that_it_names_exist(tmp_path):
    shown = run_dibs("config", "--config", DEBIAN / "dibs.conf", folder=tmp_path)
    assert shown.returncode == 0 and not shown.stderr, shown
    named = set(re.findall(r"(?m)^#?([a-z_]+) = ", (DEBIAN / "dibs.conf").read_text()))
    known = set(re.findall(r"(?m)^\| `(\w+)` \|", (ROOT / "docs/configuration.md").read_text()))
    assert len(named) > 5 and named <= known, named - known


# --- the package ---


def test_package__is_built_with_what_setup_installs():
    wanted = re.search(r"BUILD_PACKAGES=\((.*?)\)", (ROOT / "scripts/setup").read_text(), re.DOTALL)
    named = re.search(r"(?ms)^Build-Depends:(.*?)^$", (DEBIAN / "control").read_text())[1]
    assert set(wanted[1].split()) <= set(re.findall(r"[a-z0-9.+-]+", named))


def test_version__sorts_below_its_release_before_it_and_above_after_it(tmp_path):
    """Of a clone with two commits and a tag in between, or none."""
    def git(*words):
        done = run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=tmp_path)
        assert done.returncode == 0, done.stdout

    def version():
        return run([tmp_path / "scripts/version"]).stdout.strip()

    def is_less(one, other):
        return run(["dpkg", "--compare-versions", one, "lt", other]).returncode == 0

    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/version", tmp_path / "scripts")
    (tmp_path / "meson.build").write_text("project('dibs', 'c',\n  version: '1.2.0',\n)\n")
    assert version() == "1.2.0"  # an archive, without git
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=one")
    first = version()
    git("commit", "--quiet", "--allow-empty", "--message=two")
    second = version()
    git("tag", "v1.2.0")
    assert version() == "1.2.0"
    git("commit", "--quiet", "--allow-empty", "--message=three")
    third = version()
    ordered = ["1.1.9", first, second, "1.2.0", third, "1.2.1"]
    assert all(is_less(*pair) for pair in zip(ordered, ordered[1:])), ordered


def test_version__is_that_of_meson_build_everywhere():
    version = re.search(r"version: '(.*)'", (ROOT / "meson.build").read_text())[1]
    chart = (ROOT / "deploy/helm/dibs/Chart.yaml").read_text()
    assert re.findall(r"(?m)^(?:appV|v)ersion: (.*)$", chart) == [version, version]
    document = json.loads((ROOT / "src/http/pages/openapi.json").read_text())
    assert document["info"]["version"] == version
    assert re.search(r"(?m)^## (.*)$", (ROOT / "CHANGELOG.md").read_text())[1] == version
    assert run_dibs("--version").stdout.split()[1] == version
    assert run([ROOT / "scripts/version"]).stdout.startswith(version)


def test_release__is_the_source_the_sbom_and_their_checksums(tmp_path):
    clone = tmp_path / "clone"
    assert run(["git", "clone", "--quiet", ROOT, clone]).returncode == 0
    shutil.copy(ROOT / "scripts/release", clone / "scripts")  # as it is here
    (clone / "build").symlink_to(BUILD_DIR)
    git = ["git", "-C", clone, "-c", "user.name=t", "-c", "user.email=t@example.org"]
    run([*git, "commit", "--quiet", "--all", "--message=release"])
    package = tmp_path / "dibs_1_all.deb"
    package.write_text("a package")
    sums = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        made = run([clone / "scripts/release", folder, package])
        assert made.returncode == 0, made.stdout
        sums.append((folder / "SHA256SUMS").read_text())
    assert sums[0] == sums[1]
    folder, version = tmp_path / "one", run([clone / "scripts/version"]).stdout.strip()
    assert sorted(line.split()[1] for line in sums[0].splitlines()) == sorted(
        ["dibs_1_all.deb", f"dibs-{version}.tar.gz", f"dibs-{version}.cdx.json"])
    assert run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder).returncode == 0
    listed = json.loads((folder / f"dibs-{version}.cdx.json").read_text())
    assert listed["metadata"]["component"]["version"] == version
    named = run(["tar", "-tzf", folder / f"dibs-{version}.tar.gz"]).stdout.splitlines()
    assert f"dibs-{version}/meson.build" in named and f"dibs-{version}/debian/control" in named
    (clone / "LICENSE").write_text("another")
    assert run([clone / "scripts/release", tmp_path / "three"]).returncode == 1


# CycloneDX 1.5 asks for these of a component.
def test_sbom__names_what_is_linked_in_and_what_the_pages_have():
    listed = json.loads(run([ROOT / "scripts/sbom", "1.2.3", BUILD_DIR]).stdout)
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.5")
    assert listed["metadata"]["component"]["version"] == "1.2.3"
    parts = {part["name"]: part for part in listed["components"]}
    assert all(part["type"] == "library" and part["version"] and part["purl"].startswith("pkg:")
               for part in parts.values())
    linked = run(["ldd", BINARY]).stdout
    for name, file in {"libuv": "libuv", "libpq": "libpq", "rdkafka": "librdkafka",
                       "openssl": "libssl", "sqlite3": "libsqlite3"}.items():
        assert name in parts and file in linked, name
    # What no library is loaded for is linked in.
    for name, file in {"llhttp": "libllhttp", "yyjson": "libyyjson", "hiredis": "libhiredis"}.items():
        assert file in linked or "hashes" in parts[name], name
    lock = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    uplot = lock["node_modules/uplot"]
    assert parts["uplot"]["version"] == uplot["version"]
    assert len(parts["uplot"]["hashes"][0]["content"]) == 128


# --- watching ---


def test_alerts__fire_at_what_they_are_for_and_at_nothing_else():
    tested = run(["promtool", "test", "rules", pathlib.Path(__file__).parent / "alerts.yaml"])
    assert tested.returncode == 0, tested.stdout
    rules = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    named = (pathlib.Path(__file__).parent / "alerts.yaml").read_text()
    for rule in rules:  # once where all is well, and once where nothing is
        assert len(re.findall(rf"\b{rule}\b", named)) == 2, rule


def expressions():
    yield from re.findall(r"expr: (.*)", ALERTS.read_text())
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_alerts__and_dashboard_name_metrics_that_are_there(tmp_path):
    """With a gate in Redis and a worker inside, a server tells all there are."""
    with Redis() as redis, Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve()
        policy = server.create(total=3)["id"]
        server.claim(policy, "u1")
        page = server.get("/metrics?fresh=true").body.decode()
    shown = set(re.findall(r"(?m)^(\w+)(?:\{| )", page))
    values = set(re.findall(r'(\w+="[^"]*")', page))
    named, labels = set(), set()
    for expression in expressions():
        named |= set(re.findall(r"\b(?:dibs|probe|up)_?\w*", re.sub(r'"[^"]*"', "", expression)))
        labels |= set(re.findall(r'(\w+="[^"]*")', expression))
    # Prometheus's own, and its exporter's.
    assert named >= {"up", "probe_ssl_earliest_cert_expiry", "dibs_pending_stuck_seconds"}
    missing = named - shown - {"up", "probe_ssl_earliest_cert_expiry"}
    assert not missing, f"no server tells {missing}"
    assert labels <= values, f"no server has {labels - values}"


def test_metrics__tell_the_time_and_the_room_on_the_disk(tmp_path):
    with Redis() as redis, Sharing(tmp_path, redis, ledger="sqlite") as shop:
        page = shop.serve().get("/metrics?fresh=true").body.decode()
    date = int(run(["date", "+%s"]).stdout)
    assert abs(float(re.search(r"(?m)^dibs_clock_seconds (.*)$", page)[1]) - date) < 60
    free = shutil.disk_usage(tmp_path).free
    assert abs(int(re.search(r"(?m)^dibs_ledger_room_bytes (.*)$", page)[1]) - free) < 10 << 30
