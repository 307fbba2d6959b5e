"""Bare Debian roots: made once by debootstrap, then used through an overlay that is thrown away.

They are kept in DIBS_TEST_ROOTS (~/.cache/dibs-roots), with the packages that apt has downloaded. All
of it needs root and the network.
"""

import configparser
import contextlib
import hashlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("DIBS_TEST_ROOTS", pathlib.Path.home() / ".cache/dibs-roots"))
PACKAGES = ROOT / "build-package"
RELEASES = ("bookworm", "trixie")
# What the host's settings are is not a bare root's business.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
               "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
TIMEOUT_S = 1800


def run(command, **options):
    """Its output; what fails, fails with all it said."""
    options = {"timeout": TIMEOUT_S, "stdin": subprocess.DEVNULL, **options}
    ended = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, check=False, **options)
    assert ended.returncode == 0, f"{command}: exit code {ended.returncode}\n{ended.stdout}"
    return ended.stdout


def base(release):
    folder = CACHE / release
    if not (folder / "etc/debian_version").exists():
        shutil.rmtree(folder, ignore_errors=True)
        unfinished = CACHE / f"{release}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        run(["debootstrap", "--variant=minbase", release, unfinished])
        unfinished.rename(folder)
    return folder


class Root:
    """A root in which commands run. `layers` are folders over the base; `upper` takes what is
    written, and is kept if it is given."""

    def __init__(self, release, layers=(), upper=None):
        self.release = release
        self.layers = layers
        self.upper = upper
        self.path = None
        self._ends = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as ends:
            scratch = pathlib.Path(ends.enter_context(tempfile.TemporaryDirectory(
                prefix="dibs-root-", dir=CACHE, ignore_cleanup_errors=True)))
            self.path = scratch / "root"
            upper = self.upper or scratch / "upper"
            for folder in (self.path, upper, scratch / "work", CACHE / f"{self.release}-apt"):
                folder.mkdir(parents=True, exist_ok=True)
            work = scratch / "work"
            if self.upper:  # the two have to be on one file system, and nothing else is asked of it
                work = pathlib.Path(f"{upper}.work")
                work.mkdir(exist_ok=True)
            lower = ":".join(map(str, [*self.layers, base(self.release)]))
            self._mount(ends, "overlay", self.path, "-t", "overlay", "-o",
                        f"lowerdir={lower},upperdir={upper},workdir={work}")
            self._mount(ends, "proc", self.path / "proc", "-t", "proc")
            self._mount(ends, "/dev", self.path / "dev", "--bind")
            self._mount(ends, CACHE / f"{self.release}-apt", self.path / "var/cache/apt/archives",
                        "--bind")
            shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")
            # Whom this machine trusts besides, as a proxy's authority: ca-certificates takes it up.
            trusted = pathlib.Path("usr/local/share/ca-certificates")
            if (pathlib.Path("/") / trusted).is_dir():
                shutil.copytree(pathlib.Path("/") / trusted, self.path / trusted, dirs_exist_ok=True)
            # minbase's hook empties the cache that the next root is filled from.
            (self.path / "etc/apt/apt.conf.d/docker-clean").unlink(missing_ok=True)
            self._ends = ends.pop_all()
        return self

    @staticmethod
    def _mount(ends, what, where, *options):
        where.mkdir(exist_ok=True)
        run(["mount", *options, what, where])
        ends.callback(run, ["umount", "--lazy", where])

    def __exit__(self, *_):
        self._ends.close()

    def command(self, *words, user=None):
        return ["chroot", *([f"--userspec={user}"] if user else []), str(self.path), *map(str, words)]

    def run(self, *words, user=None, env=None):
        return run(self.command(*words, user=user), env={**ENVIRONMENT, **(env or {})})

    def apt(self, *words):
        return self.run("apt-get", "--yes", "--no-install-recommends", *words)

    def put(self, *files):
        """Copies them to where apt finds them."""
        for file in files:
            shutil.copy(file, self.path / "root")
        return [f"/root/{pathlib.Path(file).name}" for file in files]


# --- building ---


def checkout(root, revision):
    """A clone of that revision as /src, with what this clone has fetched and bundled already."""
    source = root.path / "src"
    shutil.rmtree(source, ignore_errors=True)
    run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, source])
    run(["git", "-C", source, "checkout", "--quiet", revision])
    for archive in (ROOT / "subprojects/packagefiles").glob("*.tar.gz"):
        shutil.copy(archive, source / "subprojects/packagefiles")
    if (ROOT / "web/dist").is_dir():
        shutil.copytree(ROOT / "web/dist", source / "web/dist")
    return source


@contextlib.contextmanager
def build_root(release):
    """One with all that `make package` installs, which is kept for the next time."""
    state = hashlib.sha256((ROOT / "scripts/setup").read_bytes()).hexdigest()[:12]
    layer = CACHE / f"{release}-build-{state}"
    if not layer.exists():
        unfinished = CACHE / f"{release}-build.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        with Root(release, upper=unfinished) as root:
            root.apt("update")
            root.apt("install", "make", "git", "ca-certificates")
            source = checkout(root, "HEAD")
            root.run("make", "-C", "/src", "setup-package")
            shutil.rmtree(source)
        unfinished.rename(layer)
    with Root(release, layers=[layer]) as root:
        yield root


def packages(release, revision):
    """What `make package` makes of that revision on that release, by name: the program's package and
    its symbols'. Made once per commit."""
    commit = run(["git", "-C", ROOT, "rev-parse", "--short=12", revision]).strip()
    folder = PACKAGES / f"{release}-{commit}"
    if not folder.is_dir():
        with build_root(release) as root:
            source = checkout(root, revision)
            root.run("git", "config", "--global", "safe.directory", "/src")
            root.run("make", "-C", "/src", "package")
            unfinished = PACKAGES / f"{release}-{commit}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            for file in (source / "build-package").glob("*.*"):
                shutil.copy(file, unfinished)
            unfinished.rename(folder)
    return {file.name.split("_")[0]: file for file in folder.glob("*.*")
            if file.suffix in (".deb", ".log")}


# --- running ---


class Service:
    """What a unit says, run as it says, in a network of its own; no systemd is there to do it."""

    def __init__(self, root, unit="dibs"):
        self.root = root
        file = root.path / f"usr/lib/systemd/system/{unit}.service"
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
        parser.optionxform = str
        parser.read(file)
        self.unit = parser["Service"]
        self.process = None
        self.log = root.path / f"root/{unit}.log"

    def __enter__(self):
        notify = self.root.path / "run/dibs-notify"
        notify.unlink(missing_ok=True)
        unit = self.unit
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, open(self.log, "ab") as log:
            manager.bind(str(notify))
            notify.chmod(0o777)
            manager.settimeout(120)
            script = (f"ip link set lo up && exec chroot --userspec={unit['User']}:{unit['Group']} "
                      f"{self.root.path} /bin/sh -c 'cd {unit['WorkingDirectory']} && "
                      f"umask {unit['UMask']} && exec {unit['ExecStart']}'")
            self.process = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**ENVIRONMENT, "NOTIFY_SOCKET": "/run/dibs-notify"})
            try:
                assert manager.recv(100) == b"READY=1"
            except BaseException:
                self.process.kill()
                self.process.wait()
                print(self.log.read_text())
                raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(60) == 0, self.log.read_text()

    def ask(self, path, body=None):
        """curl's answer, from beside it: nobody else reaches its network."""
        more = ["-H", "Content-Type: application/json", "-d", body] if body else []
        return run(["nsenter", f"--target={self.process.pid}", "--net", "curl", "--silent",
                    "--show-error", "--fail-with-body", *more, f"http://127.0.0.1:8080{path}"])
