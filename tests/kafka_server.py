"""A private Kafka broker for the tests; servers.py tells how servers live.

    with KafkaBroker() as broker:
        broker.url()                            # kafka://127.0.0.1:port
        broker.url(prefix="t1-", claims="direct")                # any parameters
        broker.secure_url("PLAIN", prefix="t2-")                 # through TLS, with a user
        broker.topics.messages("coupon-pended") # kafka_client.py tells the rest
        broker.kill(), .start(), .pause(), .resume(), .stop(), .restart()

One node that is broker and controller, from the jars that tests/kafka/fetch puts into the user's
cache; starting it takes some seconds, so tests share one and tell their topics apart by a prefix.
"""
import pathlib
import shutil
import signal
import subprocess

from authority import Authority
from kafka_client import KafkaClient, KafkaError
from server_house import PATH, Server, copy_folder, free_port, run_quietly

USER, PASSWORD = "dibs", "secret"  # of the listener that asks for them
CLUSTER_ID = "dibsdibsdibsdibsdibsdA"
FETCH = pathlib.Path(__file__).resolve().parent / "kafka" / "fetch"


class KafkaBroker(Server):
    """Kafka 3.9 on whichever Java is installed."""

    KIND = "kafka"
    STOP_SIGNAL = signal.SIGTERM
    # Small, and quick to start: it lives for a minute.
    JAVA = ["-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
            "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    SETTINGS = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map":
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config":
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f" user_{USER}=\"{PASSWORD}\";",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config":
            "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "ssl.keystore.type": "PEM",
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "auto.create.topics.enable": "false",
        "log.cleaner.enable": "false",
        "num.network.threads": 2,
        "num.io.threads": 2,
        # One that was killed is taken back when its old session is over.
        "broker.session.timeout.ms": 1000,
        "broker.heartbeat.interval.ms": 200,
    }

    def __init__(self, settings=None, folder=None, env=None):
        super().__init__(settings, folder, env)
        template = self.house.template(type(self))
        self.jars = template / "jars"
        self.controller_port = free_port()
        self.secure_port = free_port()
        self.authority = Authority(self.folder, "authority")
        certificate, key = self.authority.sign("broker", "IP:127.0.0.1")
        store = self.folder / "broker.pem"
        store.write_text(pathlib.Path(key).read_text() + pathlib.Path(certificate).read_text())
        store.chmod(0o644)
        self.topics = KafkaClient(f"127.0.0.1:{self.port}")
        self.properties = self.folder / "server.properties"
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},"
                         f"SASL_SSL://127.0.0.1:{self.secure_port},"
                         f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port},"
                                    f"SASL_SSL://127.0.0.1:{self.secure_port}",
            "ssl.keystore.location": store,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "log.dirs": self.data,
        }
        self.write_properties(self.properties, {**listeners, **self.settings})
        copy_folder(template / "data", self.data)

    @classmethod
    def initialize(cls, folder, house):
        """The jars, where those may read them who run the servers, and the files of an empty
        broker, which are the same whatever its ports."""
        fetched = subprocess.run([str(FETCH)], stdout=subprocess.PIPE, text=True, check=True)
        jars, data = house.own(folder / "jars"), house.own(folder / "data")
        copy_folder(fetched.stdout.strip(), jars)
        properties = folder / "format.properties"
        cls.write_properties(properties, {"listeners": "CONTROLLER://127.0.0.1:1",
                                          "process.roles": "controller",
                                          "controller.quorum.voters": "1@127.0.0.1:1",
                                          "log.dirs": data})
        run_quietly(cls.java(jars, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c",
                             str(properties), "--add-scram",
                             f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"),
                    cwd=data, env={"PATH": PATH}, **house.as_account())

    @classmethod
    def write_properties(cls, path, settings):
        path.write_text("".join(f"{name}={value}\n"
                                for name, value in {**cls.SETTINGS, **settings}.items()))
        path.chmod(0o644)

    @classmethod
    def java(cls, jars, main, *arguments):
        return [shutil.which("java", path=PATH) or "java", *cls.JAVA, "-cp", f"{jars}/*",
                main, *arguments]

    def command(self):
        return self.java(self.jars, "kafka.Kafka", str(self.properties))

    def connection_errors(self):
        return (KafkaError,)

    def answers(self):
        return self.topics.answers()

    def url(self, **parameters):
        said = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"kafka://127.0.0.1:{self.port}" + (f"?{said}" if said else "")

    def secure_url(self, mechanism, prefix, authority=None):
        """Through TLS, as the user that the broker knows; the password is asked for apart."""
        return (f"kafka://{USER}@127.0.0.1:{self.secure_port}?security=sasl_ssl&sasl={mechanism}"
                f"&ssl_ca={authority or self.authority.certificate}&prefix={prefix}")
