"""Kafka through TLS and with a user: who is let in, and what those read who are not."""

import pytest

from authority import Authority
from harness import wait_until, write_secret
from kafka_server import PASSWORD
from kafka_stream import ISSUED, Stream


@pytest.fixture(name="stream")
def _stream():
    stream = Stream()
    yield stream
    stream.revive()


def secure(stream, folder, mechanism, password=PASSWORD, authority=None):
    return {"relay": stream.broker.secure_url(mechanism, stream.prefix, authority),
            "relay_password_file": str(write_secret(folder, "password", password))}


def await_refusal(server):
    """What the log says of brokers that refuse; it may have said before that they are away."""
    def told():
        return [fields["error"] for fields in server.events("brokers_away")
                if fields["error"].startswith("the brokers refuse: ")]

    return wait_until(told, "the refusal is told", 30)[0]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_kafka_security__a_user_who_is_known(serve, stream, tmp_path, mechanism):
    """Topics are made, events sent and the group asked about, all through TLS."""
    server = serve(config=secure(stream, tmp_path, mechanism))
    policy = server.create(total=5)["id"]
    server.win(policy, "u1")
    (event,) = stream.await_issued(1)
    assert event.body["user"] == "u1"
    server.stop()
    server.check_log()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_kafka_security__a_wrong_password(serve, stream, tmp_path, mechanism):
    """It is told as what it is, not as brokers that are away, and claims go on."""
    server = serve(config=secure(stream, tmp_path, mechanism, password="wr0ng"))
    words = await_refusal(server)
    assert "authentication" in words.lower() and "wr0ng" not in server.log_text(), words
    wait_until(lambda: any(part["name"] == "relay" and "the brokers refuse" in part["detail"]
                           for part in server.get("/readyz").json["parts"]), "readiness tells")
    policy = server.create(total=5)["id"]
    server.win(policy, "u1")
    assert not stream.messages(ISSUED)


def test_kafka_security__an_authority_that_is_not_theirs(serve, stream, tmp_path):
    other = Authority(tmp_path, "other").certificate
    server = serve(config=secure(stream, tmp_path, "PLAIN", authority=other))
    assert "certificate" in await_refusal(server)
