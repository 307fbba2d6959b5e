"""The Debian packages, in bare roots of the releases they are for: installed, started, upgraded and
removed. Long and with the network: `make package-test`."""

import json
import re

import pytest

from roots import RELEASES, Root, Service, build_root, checkout, packages, run

POLICY = json.dumps({"id": 7, "name": "First", "total": 100,
                     "discount": {"type": "percent", "value": 20}})


@pytest.fixture(name="release", params=RELEASES)
def _release(request):
    return request.param


@pytest.fixture(name="root")
def _root(release):
    with Root(release) as root:
        root.apt("update")
        yield root


def install(root, revision="HEAD", *more):
    made = packages(root.release, revision)
    return root.apt("install", *root.put(made["dibs"]), *more)


def holders(service):
    """Who has which code."""
    return {user: json.loads(service.ask(f"/v1/policies/7/claims/{user}"))["code"]
            for user in (f"u{number}" for number in range(20))}


def test_package__gives_a_coupon_once_it_is_installed(root):
    install(root)
    with Service(root) as service:
        service.ask("/v1/policies", POLICY)
        answer = json.loads(service.ask("/v1/policies/7/claims", '{"user":"u1"}'))
        assert answer["result"] == "ISSUED" and answer["coupon_id"] == "7-1"
    looks = root.run("stat", "--format=%n %a %U %G", "/var/lib/dibs", "/var/lib/dibs/dibs.db",
                     "/etc/dibs", "/etc/dibs/dibs.conf").splitlines()
    assert looks == ["/var/lib/dibs 700 dibs dibs", "/var/lib/dibs/dibs.db 600 dibs dibs",
                     "/etc/dibs 750 root dibs", "/etc/dibs/dibs.conf 640 root dibs"]
    log = service.log.read_text()
    assert "running_as_root" not in log and "level=error" not in log


def test_package__brings_the_manual_and_completions(root):
    made = packages(root.release, "HEAD")
    there = run(["dpkg-deb", "--contents", made["dibs"]])
    for path in ("usr/share/man/man1/dibs.1.gz", "usr/share/man/man5/dibs.conf.5.gz",
                 "usr/share/bash-completion/completions/dibs.bash",
                 "usr/share/fish/vendor_completions.d/dibs.fish",
                 "usr/share/zsh/vendor-completions/_dibs"):
        assert f"./{path}" in there, there


def test_package__has_its_symbols_apart(root):
    install(root)
    made = packages(root.release, "HEAD")
    program = root.path / "usr/bin/dibs"
    assert ".debug_info" not in run(["readelf", "--sections", "--wide", program])
    notes = run(["readelf", "--notes", program])
    build = re.search(r"Build ID: (..)(\w+)", notes)
    symbols = run(["dpkg-deb", "--contents", made["dibs-dbgsym"]])
    assert f"/usr/lib/debug/.build-id/{build[1]}/{build[2]}.debug" in symbols


def test_package__is_optimized_and_hardened_as_what_make_builds(release):
    log = packages(release, "HEAD")["package.log"].read_text()
    ours = [line for line in log.splitlines() if re.search(r"-o (src|subprojects)/\S+\.o ", line)]
    assert len(ours) > 200
    for line in ours:
        assert re.findall(r" -O\w+", line)[-1] == " -O3", line
        for flag in (" -D_FORTIFY_SOURCE=3", " -ftrivial-auto-var-init=zero", " -flto",
                     " -fstack-clash-protection", " -g "):
            assert flag in line, (flag, line)


@pytest.mark.parametrize("word", ["remove", "purge"])
def test_package__removal_leaves_the_coupons_and_says_so(root, word):
    install(root)
    with Service(root) as service:
        service.ask("/v1/policies", POLICY)
        service.ask("/v1/policies/7/claims", '{"user":"u1"}')
    before = (root.path / "var/lib/dibs/dibs.db").read_bytes()
    said = root.apt(word, "dibs")
    assert "the coupons stay in /var/lib/dibs" in said
    assert (root.path / "var/lib/dibs/dibs.db").read_bytes() == before
    assert (root.path / "etc/dibs/dibs.conf").exists() == (word == "remove")
    assert not (root.path / "usr/bin/dibs").exists()
    install(root)  # and there they are again
    with Service(root) as service:
        assert json.loads(service.ask("/v1/policies/7/claims/u1"))["coupon_id"] == "7-1"


def test_package__an_upgrade_keeps_every_coupon(root):
    """From the package of the commit before, with settings of one's own."""
    install(root, "HEAD~1")
    settings = root.path / "etc/dibs/dibs.conf"
    settings.write_text(settings.read_text() + "timezone = Asia/Seoul\n")
    with Service(root) as service:
        service.ask("/v1/policies", POLICY)
        for number in range(20):
            service.ask("/v1/policies/7/claims", json.dumps({"user": f"u{number}"}))
        before = holders(service)
        was = service.ask("/metrics")
    said = install(root, "HEAD")
    assert "Unpacking dibs" in said and " over (" in said, said
    assert "Asia/Seoul" in settings.read_text()
    with Service(root) as service:
        assert holders(service) == before
        assert json.loads(service.ask("/v1/policies/7"))["issued"] == 20
        now = service.ask("/metrics")
    revision = re.compile(r'dibs_build_info\{.*revision="(.*?)"')
    assert revision.search(was)[1] != revision.search(now)[1]


def test_install__goes_where_it_is_told_after_any_build(release):
    with build_root(release) as root:
        checkout(root, "HEAD")
        root.run("git", "config", "--global", "safe.directory", "/src")
        # Quick ones: what is tested is where they go.
        root.run("meson", "setup", "/src/build", "/src", "-Doptimization=0", "-Db_lto=false",
                 "-Dweb=false", "--prefix=/opt/first")
        for prefix, destination in (("/opt/second", "/tmp/stage"), ("/usr/local", "")):
            root.run("make", "-C", "/src", "install", "WEB=false",
                     *([f"PREFIX={prefix}"] if destination else []), f"DESTDIR={destination}")
            assert (root.path / f"{destination}{prefix}/bin/dibs".lstrip("/")).is_file()
            assert (root.path / f"{destination}{prefix}/share/man/man1/dibs.1".lstrip("/")).is_file()
        assert not (root.path / "opt/first").exists() and not (root.path / "opt/second").exists()
