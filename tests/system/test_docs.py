"""What the documents say is still so: their commands, replies, links, names of tests and metrics."""

import importlib.machinery
import os
import pathlib
import re
import subprocess
import types

import pytest

from harness import ROOT, expect, wait_until
from receiver import free_port_receiver
from servers import Redis
from sharing import Sharing

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLE = re.compile(r"```sh\n([^`]+)\n```(?:\s*```(?:json|http|text)\n(.*?)\n```)?", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"\b\d+-\d+-[0-9A-Z]{13}\b")
# What differs from run to run.
CHANGING = [
    (re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z"), "TIME"),
    (re.compile(r"\b\d{4}-\d{2}-\d{2}\b"), "DAY"),
    (re.compile(r"(?m)^Date: .*$"), "Date: DATE"),
    (re.compile(r"(?m)^X-Request-Id: .*$"), "X-Request-Id: ID"),
    (re.compile(r"(?m)^:.*$"), ""),
    (re.compile(r'"kind":"(?:sqlite|postgres|mysql)"'), "LEDGER"),
    (CODE, "CODE"),
    # An order of a day that is named counts only while a window reaches back to that day.
    (re.compile(r'"counters":\d+'), '"counters":COUNTERS'),
]


def steady(text):
    """A reply without line breaks added for reading and without what changes from run to run."""
    text = text.replace("\r", "").replace("\n ", "")
    for pattern, word in CHANGING:
        text = pattern.sub(word, text)
    return text.strip()


def is_shown(reply, shown):
    """Whether that is the reply; "…" stands for members that are left out."""
    parts = (re.escape(part) for part in steady(shown).split("…"))
    return re.fullmatch(".*?".join(parts), steady(reply)) is not None


def text_of(name):
    return (ROOT / name).read_text("utf-8")


def run_example(command, environment):
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True,
                          timeout=60, check=False).stdout


@pytest.mark.parametrize("name", ["README.md", "docs/api.md", "docs/ko/README.md", "docs/ko/api.md"])
def test_docs__commands_give_the_replies_shown(server, name):
    address = "{}:{}".format(*server.address)
    environment = {**os.environ, "API": f"http://{address}"}
    codes = {}
    examples = [(command, shown) for command, shown in EXAMPLE.findall(text_of(name))
                if shown or command.startswith("curl")]
    assert len(examples) >= 2
    for command, shown in examples:
        command = command.replace("localhost:8080", address)
        command = CODE.sub(lambda match: codes[match[0]], command)
        reply = run_example(command, environment)
        if not shown:
            assert reply and "/problems/" not in reply, (command, reply)
        elif "fresh=true" in command:  # may be a second behind, and its order counts once
            wait_until(lambda asked=command, wanted=shown:
                       is_shown(run_example(asked, environment), wanted), command)
        else:
            assert is_shown(reply, shown), (command, steady(reply))
        codes.update(zip(CODE.findall(shown), CODE.findall(reply)))


@pytest.mark.parametrize("name", ["docs/coming-from.md", "docs/ko/coming-from.md"])
def test_docs__scenarios_of_other_designs_are_exact(server, tmp_path, name):
    address = "{}:{}".format(*server.address)
    (tmp_path / "dibs").symlink_to(os.environ["DIBS_BINARY"])
    environment = {**os.environ, "DIBS_URL": f"http://{address}",
                   "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    commands = re.findall(r"```sh\n([^`]+)\n```", text_of(name))
    assert len(commands) == 6
    for command in commands:
        # The bursts follow each other sooner: what is shown does not depend on it.
        printed = run_example(command.replace("localhost:8080", address)
                              .replace("--every 1s", "--every 100ms"), environment)
        rushes = 4 if "--policies 4" in command else command.count("dibs rush")
        assert printed.count("\nEXACT\n") == rushes and (rushes or "mug" in printed), printed
        shown = re.search(re.escape(command) + r"\n```\s*```\n([^`]+)\n```", text_of(name))
        for line in shown[1].splitlines() if shown else []:
            # Times are the machine's.
            assert re.sub(r" (the first after|in) .*", "", line) in printed, line


def test_docs__commands_of_the_korean_operations_are_so(server, tmp_path):
    """On a policy of that number; with a crowd that is through sooner."""
    (tmp_path / "dibs").symlink_to(os.environ["DIBS_BINARY"])
    address = "http://{}:{}".format(*server.address)
    ledger = {} if server.database.kind != "sqlite" else {"DIBS_LEDGER": f"sqlite:{tmp_path}/new.db"}
    environment = {**os.environ, "DIBS_URL": address, "PATH": f"{tmp_path}:{os.environ['PATH']}", **ledger}
    server.create(id=42, total=50)
    text = text_of("docs/ko/operations.md")
    blocks = "\n".join(re.findall(r"```sh\n([^`]+)```", text)).splitlines()
    commands = [line.split("  ")[0] for line in blocks if line.startswith("dibs ")]
    commands += re.findall(r"`(dibs [^`]+)`", text)
    assert len(commands) >= 10
    for command in sorted(set(commands) - {"dibs serve", "dibs top", "dibs worker"}):
        ended = subprocess.run(
            ["bash", "-c", command.replace("50000", "100").replace("--repair", "--repair --yes")],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        # There is no dead letter to retry or drop.
        is_done = ended.returncode == 0 or ("42-17" in command and "Not found" in ended.stderr)
        assert is_done, (command, ended)
    assert (tmp_path / "rehearsal.html").is_file()
    assert expect(server.get(re.search(r"`GET (/v1/policies/42/preflight)`", text)[1]), 200)["ready"]


def test_docs__redis_keys_are_named(tmp_path):
    with Redis() as redis, Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve()
        policy = server.create(total=9)["id"]
        for key in ("first", "second"):
            server.claim(policy, "u1", key=key)
        expect(server.post("/v1/orders", {"order_id": "o", "items": [
            {"product_id": "mug", "quantity": 1}]}), 201)

        def types():
            with redis.client() as client:
                return {re.sub(r"\{\d+\}", "{42}", re.sub(r"\d{4}-\d{2}-\d{2}", "DAY", key.decode())):
                        client.type(key).decode() for key in client.keys()}

        def has_all():
            server.get("/v1/products/top?days=3")
            found = types()
            return {"cache:product:{rank}:top_selling", "zs:product:{rank}:sum:DAY_DAY"} <= found.keys() \
                and found

        there = wait_until(has_all, "the board and its answer are there", 30)
    named = dict(re.findall(r"(?m)^\| `([^`]+)` \| (\w+) \|",
                            re.sub(r"\d{4}-\d{2}-\d{2}", "DAY", text_of("docs/redis.md"))))
    assert len(there) >= 9 and {key: named.get(key) for key in there} == there


def anchor_of(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_docs__links_lead_somewhere(page):
    for link in LINK.findall(page.read_text("utf-8")):
        if link.startswith(("http:", "https:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            headings = re.findall(r"(?m)^#+ (.*)$", target.read_text("utf-8"))
            assert anchor in map(anchor_of, headings), f"{page.name}: {link}"


def test_docs__files_on_the_way_of_a_claim_exist():
    """A cell names files by their whole path, or a folder and a colon, and then those in it."""
    named = []
    for row in re.findall(r"(?m)^\| \d+ \|.*\| (.*) \|$", text_of("ARCHITECTURE.md")):
        for folder, names in re.findall(r"(?:`([\w/]+/)`: )?((?:`[\w/.]+\.(?:c|lua)`(?:, )?)+)", row):
            named += [folder + name for name in re.findall(r"`([^`]+)`", names)]
    missing = [name for name in named if not (ROOT / "src" / name).is_file()]
    assert len(named) > 30 and not missing, f"named, not there: {missing}"


def test_docs__tests_named_as_proof_exist():
    sources = [path.read_text("utf-8") for kind in ("*.py", "*.c")
               for path in (ROOT / "tests").rglob(kind)]
    defined = set(re.findall(r"\b(?:def|static void) (test_\w+)\(", "\n".join(sources)))
    named = set(re.findall(r"`(test_\w+)`", text_of("docs/guarantees.md")))
    assert len(named) > 20
    assert named <= defined, f"named, not there: {sorted(named - defined)}"


def files_of_suite(suite):
    """The files of which a suite of scripts/test runs every test."""
    out = {path for option in suite.what if option.startswith("--ignore")
           for path in ROOT.glob(str(pathlib.Path(option.split("=")[1]).relative_to(ROOT)))}
    paths = [ROOT / word for word in suite.what if "::" not in word and not word.startswith("--")]
    files = {file for path in paths
             for file in (path.glob("test_*.py") if path.is_dir() else [path])}
    # As tests/fault/conftest.py has it.
    kinds = r"test_(database|kafka|nemesis)" if suite.ledger == "sqlite" else "test_disk"
    return {file for file in files - out
            if not (file.parent.name == "fault" and re.match(kinds, file.name))}


def scripts_test():
    """scripts/test as a module."""
    loader = importlib.machinery.SourceFileLoader("scripts_test", str(ROOT / "scripts/test"))
    module = types.ModuleType("scripts_test")
    module.__file__ = loader.path
    exec(loader.get_code("scripts_test"), module.__dict__)  # pylint: disable=exec-used
    return module


def files_that_run():
    """The files whose tests `make test` runs, by its own lists."""
    files = set()
    lists = scripts_test()
    for suite in lists.SUITES:
        if suite.kind == "pytest" and suite.name not in lists.ONLY_BY_NAME:
            files |= files_of_suite(suite) - {ROOT / f"tests/system/test_{name}.py"
                                              for name in suite.watched}
    modules = re.findall(r"(?m)^  '([\w/]+)',$", text_of("tests/unit/meson.build"))
    files |= {ROOT / "tests/unit" / re.sub(r"(\w+)$", r"test_\1.c", module) for module in modules}
    files |= {ROOT / "tests/contract" / f"{name.removesuffix('.c')}.c" for name in re.findall(
        r"'(\w+(?:\.c)?)'[,:]", text_of("tests/contract/meson.build"))}
    return {file for file in files if file.is_file()}


def test_docs__every_test_is_run():
    """A file of tests that no list names would be forgotten without a word."""
    there = {file for folder in ("system", "fault") for file in ROOT.glob(f"tests/{folder}/test_*.py")}
    there |= {*ROOT.glob("tests/unit/**/test_*.c"), *ROOT.glob("tests/contract/*.c")}
    forgotten = sorted(str(file.relative_to(ROOT)) for file in there - files_that_run())
    assert not forgotten, f"no suite runs {forgotten}"


def test_docs__every_system_test_is_under_a_sanitizer():
    """What scripts/test leaves out under one of them runs under the other, but for words."""
    lists = scripts_test()
    named = [*lists.WORDS, *lists.ONE_AT_A_TIME, *lists.CROWDS]
    assert len(set(named)) == len(named), "a file is left out under both"
    assert [name for name in named if not (ROOT / f"tests/system/test_{name}.py").is_file()] == []


def test_docs__planted_bugs_name_tests_that_exist():
    """A name may be that of a file of tests; "…rest" goes on as the name before it, and "test_a__b…"
    is the beginning of one. Those that no suite runs do not count."""
    known = set()
    for path in files_that_run():
        known |= set(re.findall(r"\btest_\w+__\w+", path.read_text("utf-8")))
        known |= {path.stem, path.stem.replace("test_", f"test_{path.parent.name}_", 1)}
    missing, module, count = [], "", 0
    for line in text_of("tests/fault/PLANTED.md").splitlines():
        for name, more in re.findall(r"(\btest_\w+|…\w+)(…?)",
                                     line.split("|")[-2] if line.startswith("|") else ""):
            name = f"{module}__{name[1:]}" if name.startswith("…") else name
            module = name.split("__")[0]
            is_begun = more or name.endswith("__")
            if name not in known and not (is_begun and any(one.startswith(name) for one in known)):
                missing.append(name)
            count += 1
    assert count > 400 and not missing, f"named, not there: {missing}"


def test_docs__name_all_metrics_and_no_others(tmp_path):
    # With a gate in Redis, a worker inside, a Kafka and a webhook, though those are away, it shows
    # all there are.
    with Redis() as redis, Sharing(tmp_path, redis, ledger="sqlite") as shop:
        server = shop.serve(relay="kafka://127.0.0.1:1", **free_port_receiver().config())
        page = server.get("/metrics").body.decode()
    shown = re.findall(r"(?m)^# TYPE (\w+) ", page)
    table = re.findall(r"(?m)^\| (`(?:dibs|process)_.*?) \|", text_of("docs/operations/watch.md"))
    named = re.findall(r"`(\w+)(?:\{[^`]*)?`", " ".join(table))
    assert sorted(named) == sorted(set(shown))


def test_docs__name_all_warnings_and_errors_and_no_other_events():
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.c"))
    words = set(re.findall(r'"(\w+)"', sources))
    urgent = set(re.findall(r'\bLOG_(?:WARN|ERROR), "(\w+)"', sources))
    page = text_of("docs/operations/log.md")
    rows = re.findall(r"(?m)^\| (`\w+`(?:, `\w+`)*)", page)
    named = set(re.findall(r"\w+", " ".join(rows)))
    assert named and named <= words, f"named, not logged: {sorted(named - words)}"
    mentioned = set(re.findall(r"`(\w+)`", page))
    assert urgent <= mentioned, f"logged, not named: {sorted(urgent - mentioned)}"


def test_docs__name_only_settings_that_exist():
    known = set(re.findall(r"(?m)^### `?(\w+)`?|\| `(\w+)` \|", text_of("docs/configuration.md")))
    known = {name for pair in known for name in pair if name}
    blocks = re.findall(r"```ini\n(.*?)```", text_of("docs/operations/start.md"), re.DOTALL)
    named = set(re.findall(r"(?m)^([a-z_]+) = ", "\n".join(blocks)))
    named |= {name.lower() for name in re.findall(r"\bDIBS_([A-Z_]+)=", "\n".join(blocks))}
    assert named and named <= known
