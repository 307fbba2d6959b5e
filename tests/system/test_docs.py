"""What the documents say is still so: their commands, replies, links, names of tests and metrics."""

import os
import re
import subprocess

import pytest

from harness import ROOT, wait_until
from servers import Redis
from sharing import Sharing

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLE = re.compile(r"```sh\n([^`]+)\n```\s*```(?:json|http|text)\n(.*?)\n```", re.DOTALL)
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


def text_of(name):
    return (ROOT / name).read_text("utf-8")


def run_example(command, environment):
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True,
                          timeout=60, check=False).stdout


@pytest.mark.parametrize("name", ["README.md", "docs/api.md"])
def test_docs__commands_give_the_replies_shown(server, name):
    address = "{}:{}".format(*server.address)
    environment = {**os.environ, "API": f"http://{address}"}
    codes = {}
    examples = EXAMPLE.findall(text_of(name))
    assert len(examples) >= 2
    for command, shown in examples:
        command = command.replace("localhost:8080", address)
        command = CODE.sub(lambda match: codes[match[0]], command)
        reply = run_example(command, environment)
        if "fresh=true" in command:  # may be a second behind, and its order counts once
            wait_until(lambda asked=command, wanted=shown:
                       steady(run_example(asked, environment)) == steady(wanted), command)
        else:
            assert steady(reply) == steady(shown), command
        codes.update(zip(CODE.findall(shown), CODE.findall(reply)))


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


def test_docs__tests_named_as_proof_exist():
    sources = [path.read_text("utf-8") for kind in ("*.py", "*.c")
               for path in (ROOT / "tests").rglob(kind)]
    defined = set(re.findall(r"\b(?:def|static void) (test_\w+)\(", "\n".join(sources)))
    named = set(re.findall(r"`(test_\w+)`", text_of("docs/guarantees.md")))
    assert len(named) > 20
    assert named <= defined, f"named, not there: {sorted(named - defined)}"


def test_docs__planted_bugs_name_tests_that_exist():
    """A name may be that of a file of tests; "…rest" goes on as the name before it, and "test_a__b…"
    is the beginning of one."""
    known = set()
    for path in (path for kind in ("*.py", "*.c") for path in (ROOT / "tests").rglob(kind)):
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
    # With a gate in Redis, a worker inside and a Kafka, though that is away, it shows all there are.
    with Redis() as redis, Sharing(tmp_path, redis, ledger="sqlite") as shop:
        page = shop.serve(relay="kafka://127.0.0.1:1").get("/metrics").body.decode()
    shown = re.findall(r"(?m)^# TYPE (\w+) ", page)
    table = re.findall(r"(?m)^\| (`(?:dibs|process)_.*?) \|", text_of("docs/operations.md"))
    named = re.findall(r"`(\w+)(?:\{[^`]*)?`", " ".join(table))
    assert sorted(named) == sorted(set(shown))


def test_docs__name_only_events_that_are_logged():
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.c"))
    logged = set(re.findall(r'\b(?:LOG_[A-Z]+|duty_say\(duty), "(\w+)"', sources))
    named = re.findall(r"(?m)^\| `(\w+)` \| (?:error|warn|info) \|", text_of("docs/operations.md"))
    assert named and set(named) <= logged


def test_docs__name_only_settings_that_exist():
    known = set(re.findall(r"(?m)^### `?(\w+)`?|\| `(\w+)` \|", text_of("docs/configuration.md")))
    known = {name for pair in known for name in pair if name}
    blocks = re.findall(r"```ini\n(.*?)```", text_of("docs/operations.md"), re.DOTALL)
    named = set(re.findall(r"(?m)^([a-z_]+) = ", "\n".join(blocks)))
    named |= {name.lower() for name in re.findall(r"\bDIBS_([A-Z_]+)=", "\n".join(blocks))}
    assert named and named <= known
