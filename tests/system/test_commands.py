"""The command line: every command, exit codes, --json, configuration."""

import json
import re

import pytest

from harness import run_dibs, write_secret
from ledger import KIND, new_database


def url(server):
    return f"http://127.0.0.1:{server.address[1]}"


def dibs(server, *arguments, **options):
    return run_dibs(*arguments, "--url", url(server), **options)


def as_json(ended, code=0):
    assert ended.returncode == code, ended
    return json.loads(ended.stdout)


@pytest.mark.refused("no ledger is asked")
def test_version():
    for arguments in (["version"], ["--version"]):
        ended = run_dibs(*arguments)
        assert ended.returncode == 0, ended
        assert re.search(r"dibs \d+\.\d+\.\d+", ended.stdout)
        assert ended.stderr == ""
    assert "version" in as_json(run_dibs("version", "--json"))


@pytest.mark.refused("no ledger is asked")
def test_help__exists_for_every_command():
    top = run_dibs("--help")
    assert top.returncode == 0 and top.stdout and not top.stderr
    for command in ("serve", "policy", "claim", "status", "dead", "rush", "audit", "top", "migrate",
                    "config", "version"):
        assert command in top.stdout
        ended = run_dibs(command, "--help")
        assert ended.stdout.startswith("Examples:\n  dibs"), ended
        assert ended.returncode == 0, ended
        assert "dibs " + command in ended.stdout
        assert "\x1b" not in ended.stdout


@pytest.mark.refused("no ledger is asked")
@pytest.mark.parametrize("arguments", [
    [], ["nonsense"], ["serv"], ["serve", "--nonsense"], ["serve", "--listen"], ["claim"],
    ["policy"], ["policy", "nonsense"], ["policy", "show"], ["status", "1", "--wait", "5"], ["serve", "extra"],
    ["claim", "x", "u1"], ["serve", "--threads", "many"], ["serve", "--listen", "nowhere"],
    ["serve", "--ledger", "oracle:x"], ["policy", "create"], ["serve", "--threads=-1"],
    ["serve", "--ledger", "mysql://db/"], ["serve", "--ledger", "postgres://db/shop?nonsense=1"],
    ["migrate", "--ledger", "mysql://db/shop?nonsense=1"], ["migrate", "now"],
])
def test_usage__errors_exit_2_and_say_so_on_stderr(arguments, tmp_path):
    ended = run_dibs(*arguments, folder=tmp_path)
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.refused("no ledger is asked")
@pytest.mark.parametrize("arguments,word", [
    (["srve"], "serve"), (["polcy"], "policy"), (["serve", "--lisen", "x"], "listen"),
    (["policy", "crate"], "create"), (["config", "--treads", "1"], "threads"),
])
def test_usage__did_you_mean(arguments, word):
    ended = run_dibs(*arguments)
    assert ended.returncode == 2
    assert "did you mean" in ended.stderr.lower() and word in ended.stderr, ended.stderr


def test_status__of_one_policy(server):
    policy = str(server.create(total=2, name="Launch")["id"])
    shown = dibs(server, "status", policy)
    assert shown.returncode == 0 and "Launch" in shown.stdout and "OPEN" in shown.stdout, shown
    assert as_json(dibs(server, "status", policy, "--json"))["remaining"] == 2
    assert dibs(server, "status", "999").returncode == 1


def test_status__ready_needs_no_token(serve):
    server = serve(config={"admin_token": "command-line-token-0123456789"})
    shown = dibs(server, "status", "--ready")
    assert shown.returncode == 0 and "ready" in shown.stdout, shown
    assert dibs(server, "status").returncode == 1
    asked = dibs(server, "status", "7", "--ready")
    assert asked.returncode == 2 and "--ready" in asked.stderr
    server.stop()
    assert dibs(server, "status", "--ready").returncode == 1


# ESC, CSI in one character, DEL, text that runs backwards, a line that ends where none should.
DECEPTIVE = "a\x1b[31mb\u009b31mc\x7fd\u202ee\u2028f\x07"


@pytest.mark.parametrize("arguments", [
    ["status"], ["policy", "list"], ["policy", "show", "ID"], ["policy", "pause", "ID"],
    ["top", "--once"], ["audit"]], ids=" ".join)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["words", "json"])
def test_names__cannot_drive_a_terminal(shared, arguments, form):
    policy = str(shared.create(total=2, name=DECEPTIVE)["id"])
    words = [policy if word == "ID" else word for word in arguments]
    ended = dibs(shared, *words, *form)
    assert ended.returncode == 0, ended
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", ended.stdout), ended.stdout
    if form and arguments[0] == "policy":
        shown = json.loads(ended.stdout)
        names = [item["name"] for item in shown.get("items", [shown])]
        assert DECEPTIVE in names


def test_policy_and_claim__round_trip(server):
    created = as_json(dibs(server, "policy", "create", "--name", "Launch", "--discount", "20%",
                           "--total", "2", "--json"))
    policy = str(created["id"])
    assert (created["name"], created["total"], created["state"]) == ("Launch", 2, "OPEN")
    won = as_json(dibs(server, "claim", policy, "u1", "--json"))
    assert (won["result"], won["seq"]) == ("ISSUED", 1)
    again = as_json(dibs(server, "claim", policy, "u1", "--json"))
    assert (again["result"], again["seq"]) == ("ALREADY_ISSUED", 1)
    as_json(dibs(server, "claim", policy, "u2", "--json"))
    sold_out = dibs(server, "claim", policy, "u3", "--json")
    assert sold_out.returncode == 1
    assert json.loads(sold_out.stdout or sold_out.stderr)["code"] == "SOLD_OUT"
    status = as_json(dibs(server, "status", policy, "u1", "--json"))
    assert (status["seq"], status["state"]) == (1, "ISSUED")
    none = dibs(server, "status", policy, "u3", "--json")
    assert none.returncode == 1
    shown = as_json(dibs(server, "policy", "show", policy, "--json"))
    assert (shown["state"], shown["issued"]) == ("SOLD_OUT", 2)
    listed = as_json(dibs(server, "policy", "list", "--json"))
    assert [item["id"] for item in listed["items"]] == [created["id"]]


def test_policy__pause_resume_close(server):
    policy = str(server.create(total=5)["id"])
    assert as_json(dibs(server, "policy", "pause", policy, "--json"))["state"] == "PAUSED"
    assert as_json(dibs(server, "policy", "resume", policy, "--json"))["state"] == "OPEN"
    assert as_json(dibs(server, "policy", "close", policy, "--json"))["state"] == "CLOSED"
    assert as_json(dibs(server, "policy", "close", policy, "--json"))["state"] == "CLOSED"
    failed = dibs(server, "policy", "pause", policy)
    assert failed.returncode == 1 and failed.stderr


def test_commands__words_for_people(server):
    policy = str(server.create(total=1, name="Words")["id"])
    for arguments in (["policy", "list"], ["policy", "show", policy], ["claim", policy, "u1"],
                      ["status", policy, "u1"]):
        ended = dibs(server, *arguments)
        assert ended.returncode == 0, ended
        assert ended.stdout.strip()
        assert "\x1b" not in ended.stdout + ended.stderr
    refused = dibs(server, "claim", policy, "u2")
    assert refused.returncode == 1
    assert "sold out" in (refused.stdout + refused.stderr).lower()


@pytest.mark.refused("no ledger is asked")
def test_commands__server_away_exits_1_with_words():
    for arguments in (["policy", "list"], ["claim", "1", "u1"], ["status", "1", "u1"]):
        ended = run_dibs(*arguments, "--url", "http://127.0.0.1:1")
        assert ended.returncode == 1, ended
        assert ended.stdout == "" and "127.0.0.1:1" in ended.stderr


def test_commands__unknown_policy_exits_1(server):
    for arguments in (["policy", "show", "999"], ["claim", "999", "u1"], ["status", "999", "u1"]):
        assert dibs(server, *arguments).returncode == 1


def test_commands__admin_token_from_file_or_environment(serve, tmp_path):
    token = "command-line-token-0123456789"
    path = write_secret(tmp_path, "token", token)
    server = serve(config={"admin_token_file": path})
    refused = dibs(server, "policy", "list", "--json")
    assert refused.returncode == 1
    create = ["policy", "create", "--name", "x", "--discount", "5%", "--total", "1", "--json"]
    assert dibs(server, *create).returncode == 1
    as_json(dibs(server, *create, config={"admin_token_file": path}))
    as_json(dibs(server, *create, config={"admin_token": token}))
    ended = dibs(server, *create, "--admin-token", token)
    assert ended.returncode == 2  # Secrets never come from flags.
    assert token not in ended.stderr


# --- config ---


def settings(ended):
    assert ended.returncode == 0, ended
    shown = json.loads(ended.stdout)
    rows = shown.get("settings", shown) if isinstance(shown, dict) else shown
    if isinstance(rows, dict):
        return {name: (row["value"], row.get("origin", row.get("source")))
                for name, row in rows.items()}
    return {row.get("name", row.get("key")): (row["value"], row.get("origin", row.get("source")))
            for row in rows}


@pytest.mark.refused("no ledger is asked")
def test_config__defaults(tmp_path):
    shown = settings(run_dibs("config", "--json", folder=tmp_path))
    assert shown["listen"][0] == "127.0.0.1:8080"
    assert shown["ledger"][0] == "sqlite:dibs.db"
    assert shown["gate"][0] == "local"
    assert shown["relay"][0] == "direct"
    assert all(origin == "default" for _, origin in shown.values())
    assert run_dibs("config", folder=tmp_path).stdout.count("\n") >= len(shown)


@pytest.mark.refused("no ledger is asked")
def test_config__flag_beats_environment_beats_file(tmp_path):
    (tmp_path / "dibs.conf").write_text("threads = 3\nlisten = 127.0.0.1:1111\n"
                                        "ack_timeout = 2s\n")
    ended = run_dibs("config", "--json", "--listen", "127.0.0.1:3333", folder=tmp_path,
                     config={"listen": "127.0.0.1:2222", "threads": 4})
    shown = settings(ended)
    assert shown["listen"] == ("127.0.0.1:3333", "--listen")
    assert str(shown["threads"][0]) == "4" and "DIBS_THREADS" in shown["threads"][1]
    assert shown["ack_timeout"][0] == "2s" and "dibs.conf:3" in shown["ack_timeout"][1]
    assert shown["relay"][1] == "default"


@pytest.mark.refused("no ledger is asked")
def test_config__secrets_are_masked(tmp_path):
    secret = "very-secret-token-0123456789"
    (tmp_path / "token").write_text(secret)
    for options in ({"config": {"admin_token": secret}},
                    {"config": {"admin_token_file": tmp_path / "token"}}):
        for arguments in (["config"], ["config", "--json"]):
            ended = run_dibs(*arguments, folder=tmp_path, **options)
            assert ended.returncode == 0, ended
            assert secret not in ended.stdout + ended.stderr


@pytest.mark.refused("no ledger is asked")
@pytest.mark.parametrize("text,word", [
    ("treads = 3\n", "threads"), ("listn = 127.0.0.1:1\n", "listen"),
    ("nonsense = 1\n", "nonsense"), ("threads = x\n", "threads"), ("threads\n", "dibs.conf"),
    ("threads = 999999\n", "threads"), ("admin_token = abcdefghijklmnopqrst\n", "admin_token"),
    ("threads = 1\nthreads = 2\n", "threads"),
])
def test_config__bad_files_are_refused(tmp_path, text, word):
    (tmp_path / "dibs.conf").write_text(text)
    for arguments in (["config"], ["serve", "--listen", "127.0.0.1:0"]):
        ended = run_dibs(*arguments, folder=tmp_path)
        assert ended.returncode in (1, 2), ended
        assert word in ended.stderr, ended.stderr
        assert "abcdefghijklmnopqrst" not in ended.stderr


@pytest.mark.refused("no ledger is asked")
def test_config__unknown_variable_is_refused(tmp_path):
    ended = run_dibs("config", folder=tmp_path, config={"treads": "3"})
    assert ended.returncode == 2, ended
    assert "DIBS_THREADS" in ended.stderr or "threads" in ended.stderr


@pytest.mark.refused("no ledger is asked")
@pytest.mark.parametrize("name,value", [
    ("threads", "-1"), ("threads", "257"), ("threads", ""), ("listen", "localhost"),
    ("listen", "127.0.0.1:99999"), ("ack_timeout", "5"), ("ack_timeout", "-1s"),
    ("ack_timeout", "1ms"), ("gate", "magic"), ("ledger", "sqlite:"), ("timezone", "Mars/Base"),
    ("log_level", "loud"), ("admin_token", "short"), ("cors_origin", "shop.example/path"),
    ("rate_limit_user", "fast"), ("pending_max", "0"), ("ledger", "oracle://db/shop"),
    ("ledger", "postgres://shop:a/b@db/shop"), ("ledger", "mysql://db:port/shop"),
    ("ledger_timeout", "99ms"), ("ledger_password", ""),
])
def test_config__bad_values_are_refused(tmp_path, name, value):
    ended = run_dibs("config", folder=tmp_path, config={name: value})
    assert ended.returncode == 2, ended
    assert name.upper() in ended.stderr.upper(), ended.stderr


@pytest.mark.refused("no ledger is asked")
def test_config__the_password_of_a_ledger_is_never_shown(tmp_path):
    ledger = "postgres://shop:hunter2@db.example/shop?sslmode=verify-full"
    for arguments in (["config"], ["config", "--json"]):
        ended = run_dibs(*arguments, folder=tmp_path, config={"ledger": ledger})
        assert ended.returncode == 0 and not ended.stderr, ended
        assert "postgres://shop:***@db.example/shop?sslmode=verify-full" in ended.stdout
        assert "hunter2" not in ended.stdout
    for command in ("config", "serve", "migrate"):
        ended = run_dibs(command, "--ledger", ledger, folder=tmp_path)
        assert ended.returncode == 2 and not ended.stdout, ended
        assert "DIBS_LEDGER" in ended.stderr and "ledger_password_file" in ended.stderr
        assert "hunter2" not in ended.stderr


@pytest.mark.refused("no ledger is asked")
def test_config__a_file_with_a_password_is_for_its_owner(tmp_path):
    path = tmp_path / "dibs.conf"
    path.write_text("ledger = mysql://shop:hunter2@db.example/shop\n")
    for mode, warned in ((0o600, False), (0o640, True), (0o604, True)):
        path.chmod(mode)
        ended = run_dibs("config", folder=tmp_path)
        assert ended.returncode == 0, ended
        assert ("chmod 600 dibs.conf" in ended.stderr) == warned, ended.stderr
        assert "hunter2" not in ended.stdout + ended.stderr


@pytest.mark.refused("no ledger is asked")
def test_config__a_ledger_password_needs_a_database(tmp_path):
    path = write_secret(tmp_path, "password", "hunter2")
    for command in ("config", "serve", "migrate"):
        ended = run_dibs(command, folder=tmp_path, config={"ledger_password_file": path})
        assert ended.returncode in (1, 2), ended
        assert "ledger_password" in ended.stderr and "hunter2" not in ended.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["password"]


@pytest.mark.refused("no ledger is asked")
def test_config__missing_secret_file_is_said(tmp_path):
    ended = run_dibs("serve", "--listen", "127.0.0.1:0", "--admin-token-file", "no-such-file",
                     folder=tmp_path)
    assert ended.returncode in (1, 2)
    assert "no-such-file" in ended.stderr


@pytest.fixture
def database(tmp_path):
    """An empty ledger that nobody serves yet."""
    made = new_database(tmp_path)
    yield made
    made.discard()


def migrate(database, *arguments, code=0):
    ended = run_dibs("migrate", *arguments, "--ledger", database.url)
    assert ended.returncode == code, ended
    return ended


def test_migrate__dry_run_shows_the_sql_and_changes_nothing(database):
    first = migrate(database, "--dry-run")
    assert re.search(r"CREATE TABLE (IF NOT EXISTS )?coupon \(", first.stdout)
    assert not first.stderr
    assert migrate(database, "--dry-run").stdout == first.stdout
    shown = as_json(migrate(database, "--dry-run", "--json"))
    assert shown["dry_run"] is True
    numbers = [migration["number"] for migration in shown["migrations"]]
    assert numbers == sorted(set(numbers)) and numbers[0] == 1 and numbers[-1] == shown["schema"]
    for migration in shown["migrations"]:
        assert migration["name"].endswith(f".{KIND}.sql")
        assert migration["sql"] in first.stdout
        assert migration["name"] in first.stdout


def test_migrate__brings_the_schema_up_to_date_once(database):
    planned = as_json(migrate(database, "--dry-run", "--json"))
    applied = as_json(migrate(database, "--json"))
    assert applied["dry_run"] is False and applied["schema"] == planned["schema"]
    assert applied["migrations"] == [{"number": one["number"], "name": one["name"]}
                                     for one in planned["migrations"]]
    for arguments in ([], ["--dry-run"]):
        ended = migrate(database, *arguments)
        assert ended.stdout == f"nothing to do, schema {planned['schema']}\n" and not ended.stderr
        assert as_json(migrate(database, *arguments, "--json"))["migrations"] == []


def test_migrate__says_what_it_applied(database):
    names = [one["name"] for one in
             as_json(migrate(database, "--dry-run", "--json"))["migrations"]]
    lines = migrate(database).stdout.splitlines()
    assert lines[:-1] == [f"applied {name}" for name in names]
    assert re.fullmatch(r"schema \d+", lines[-1])


def test_migrate__leaves_nothing_for_serve_to_do(database, serve):
    migrate(database)
    server = serve(database=database)
    assert not list(server.events("migrated"))
    policy = server.create(total=1)
    assert server.claim(policy["id"], "u1").status == 201


def test_migrate__looks_while_the_ledger_is_served(server):
    ended = migrate(server.database, "--dry-run")
    assert re.fullmatch(r"nothing to do, schema \d+\n", ended.stdout)
    assert server.claim(server.create(total=1)["id"], "u1").status == 201


@pytest.mark.refused("no ledger is asked")
def test_migrate__a_database_that_is_not_there_exits_1(tmp_path):
    for ledger in ("postgres://dibs@127.0.0.1:1/shop", "mysql://dibs@127.0.0.1:1/shop",
                   f"sqlite:{tmp_path}/none/dibs.db"):
        for arguments in (["migrate"], ["serve", "--listen", "127.0.0.1:0", "--start-timeout", "0s"]):
            ended = run_dibs(*arguments, "--ledger", ledger, "--ledger-timeout", "2s",
                             config={"ledger_password": "hunter2"} if "@" in ledger else None)
            assert ended.returncode == 1 and not ended.stdout, ended
            assert ended.stderr and "hunter2" not in ended.stderr
