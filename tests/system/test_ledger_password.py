"""The password of a ledger's database: from a file, the environment or the URL, and never shown."""

import pytest

import servers
from harness import Server, run_dibs, write_secret

PASSWORD = "it's 100% s3cret/@:?#&"
ENCODED = "it%27s%20100%25%20s3cret%2F%40%3A%3F%23%26"

# It shows a sanitizer nothing that the other tests do not.
pytestmark = pytest.mark.heavy


@pytest.fixture(name="database", params=sorted(servers.KINDS))
def guarded_database(request):
    """A server that asks its user `shop` for the password; the URL of a database of that user."""
    with servers.KINDS[request.param]() as server:
        if request.param == "postgres":
            server.query(server.MAINTENANCE, "CREATE ROLE shop LOGIN PASSWORD %s", PASSWORD)
            server.query(server.MAINTENANCE, "CREATE DATABASE shop OWNER shop")
            server.demand_password("shop", "shop")
        else:
            server.query(server.MAINTENANCE, "CREATE DATABASE shop")
            server.query(server.MAINTENANCE, "CREATE USER shop IDENTIFIED BY %s", PASSWORD)
            server.query(server.MAINTENANCE, "GRANT ALL ON shop.* TO shop")
        yield server


def url_of(server, password=""):
    return f"{server.SCHEME}://shop{password}@127.0.0.1:{server.port}/shop"


def test_ledger_password__opens_the_database(database, tmp_path):
    url = url_of(database)
    path = write_secret(tmp_path, "password", PASSWORD + "\n")
    (tmp_path / "dibs.conf").write_text(f"ledger = {url_of(database, ':' + ENCODED)}\n")
    (tmp_path / "dibs.conf").chmod(0o600)
    for arguments, options in (
            (["--ledger", url, "--ledger-password-file", path], {}),
            (["--ledger", url], {"config": {"ledger_password": PASSWORD}}),
            ([], {"config": {"ledger": url_of(database, f":{ENCODED}")}}),
            (["--config", str(tmp_path / "dibs.conf")], {})):
        ended = run_dibs("migrate", *arguments, **options)
        assert ended.returncode == 0 and not ended.stderr, ended


@pytest.mark.parametrize("password", ["", "wr0ng"])
def test_ledger_password__that_is_wrong_is_said_and_not_shown(database, password):
    for command in (["migrate"], ["serve", "--listen", "127.0.0.1:0"]):
        for config in ({"ledger": url_of(database), "ledger_password": password},
                       {"ledger": url_of(database, f":{password}")}):
            given = {name: value for name, value in config.items() if value}
            ended = run_dibs(*command, config=given)
            assert ended.returncode == 1 and not ended.stdout, ended
            assert "password" in ended.stderr.lower() or "denied" in ended.stderr, ended
            assert "wr0ng" not in ended.stderr


class ServerWithoutFlags(Server):
    """Its ledger comes from the environment, where the URL may have a password."""

    def command(self):
        return [str(self.binary), "serve", "--listen", self.listen]


@pytest.mark.parametrize("place", ["url", "variable"])
def test_ledger_password__is_in_no_log_and_no_answer(database, tmp_path, place):
    config = {"url": {"ledger": url_of(database, f":{ENCODED}")},
              "variable": {"ledger": url_of(database), "ledger_password": PASSWORD}}[place]
    server = ServerWithoutFlags(folder=tmp_path, database=database, config={
        **config, "log_level": "debug", "ledger_timeout": "2s"})
    try:
        server.start()
        policy = server.create()["id"]
        server.win(policy, "u1")
        database.stop()
        server.await_log("ledger_refuses", 30)
        assert server.claim(policy, "u2").status == 503
        ready = server.get("/readyz")
        assert ready.status == 503
        database.start()
        server.await_log("ledger_recovered", 30)
        shown = server.log_text(10000) + ready.body.decode() + server.get("/metrics").body.decode()
        assert "s3cret" not in shown
        server.stop()
    finally:
        server.dispose()
