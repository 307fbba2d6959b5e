"""What ssl_mode of a MySQL ledger's URL promises: TLS or none, and who the server is."""

import pathlib
import tempfile

import pytest

from authority import Authority
from harness import run_dibs
from servers import MariaDB

# It shows a sanitizer nothing that the other tests do not.
pytestmark = pytest.mark.heavy


@pytest.fixture(name="authority", scope="module")
def fixture_authority():
    with tempfile.TemporaryDirectory(prefix="dibs-tls-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)  # The servers run as somebody else when we are root.
        yield Authority(folder, "ours")


# To 127.0.0.1 newer client libraries connect whatever the name in the certificate is.
OTHER_ADDRESS = "127.0.0.2"


def start(authority, alternatives):
    certificate, key = authority.sign("server", alternatives)
    server = MariaDB(settings={"bind-address": f"127.0.0.1,{OTHER_ADDRESS}", "ssl-cert": certificate,
                               "ssl-key": key, "ssl-ca": authority.certificate}).start()
    server.query(server.MAINTENANCE, "CREATE DATABASE shop")
    for user, requires in (("plain", "NONE"), ("secure", "SSL"), ("known", "X509")):
        server.query(server.MAINTENANCE, f"CREATE USER {user}@'127.0.0.1' REQUIRE {requires}")
        server.query(server.MAINTENANCE, f"GRANT ALL ON shop.* TO {user}@'127.0.0.1'")
    return server


@pytest.fixture(name="server", scope="module")
def fixture_server(authority):
    """Its certificate stands for the address that it has."""
    with start(authority, "IP:127.0.0.1") as server:
        yield server


def migrate(server, user, parameters, host):
    url = f"mysql://{user}@{host}:{server.port}/shop{parameters}"
    return run_dibs("migrate", "--ledger", url)


def expect_ok(server, user, parameters="", host="127.0.0.1"):
    ended = migrate(server, user, parameters, host)
    assert ended.returncode == 0, ended


def expect_refused(server, user, parameters, words, host="127.0.0.1"):
    ended = migrate(server, user, parameters, host)
    assert ended.returncode == 1 and words in ended.stderr, ended


def test_mysql_tls__is_used_when_the_server_offers_it(server):
    expect_ok(server, "secure")
    expect_ok(server, "secure", "?ssl_mode=preferred")
    expect_ok(server, "secure", "?ssl_mode=required")
    expect_refused(server, "secure", "?ssl_mode=disabled", "denied")
    expect_ok(server, "plain", "?ssl_mode=disabled")


@pytest.mark.parametrize("mode", ["verify-full", "verify-ca"])
def test_mysql_tls__a_verified_server_is_ours(server, authority, mode):
    expect_ok(server, "secure", f"?ssl_mode={mode}&ssl_ca={authority.certificate}")
    others = Authority(authority.folder, "others")
    expect_refused(server, "plain", f"?ssl_mode={mode}&ssl_ca={others.certificate}", "certificate")


def test_mysql_tls__a_verified_server_has_the_name_we_asked_for(authority):
    with start(authority, "DNS:elsewhere.example") as server:
        expect_ok(server, "plain", f"?ssl_mode=required&ssl_ca={authority.certificate}",
                  OTHER_ADDRESS)
        expect_refused(server, "plain", f"?ssl_mode=verify-full&ssl_ca={authority.certificate}",
                       "(2026)", OTHER_ADDRESS)


def test_mysql_tls__a_certificate_of_our_own(server, authority):
    certificate, key = authority.sign("client")
    expect_ok(server, "known", f"?ssl_mode=required&ssl_cert={certificate}&ssl_key={key}")
    expect_refused(server, "known", "?ssl_mode=required", "denied")


@pytest.mark.parametrize("mode", ["required", "verify-full"])
def test_mysql_tls__no_connection_without_it(authority, mode):
    """One who stands between may claim that the server has no TLS."""
    with MariaDB(settings={"ssl": 0}) as server:
        url = server.create_database("shop")
        assert run_dibs("migrate", "--ledger", url).returncode == 0
        ended = run_dibs("migrate", "--ledger",
                         f"{url}?ssl_mode={mode}&ssl_ca={authority.certificate}")
        assert ended.returncode == 1 and ("TLS" in ended.stderr or "SSL" in ended.stderr), ended
