"""A broker that speaks TLS only, and only with whom it knows by a certificate: both Kafka clients get in."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
import yaml
from confluent_kafka import Producer
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from headgate.cli.exit_codes import ExitCode
from headgate.embedded.broker import EmbeddedKafka
from headgate.embedded.ports import HOST, free_ports
from integration.cli.conftest import ROWS, Service, change, eventually, headgate

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.usefixtures("one_core_spark")]


class Papers:
    """Certificates as files: of the authority, of the broker, of a client whose key has a password."""

    password = "a word"

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca, self.stranger_ca = folder / "ca.pem", folder / "stranger.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        trustme.CA().cert_pem.write_to_path(str(self.stranger_ca))
        self.broker = folder / "broker.pem"
        certificate = authority.issue_cert(HOST)
        self.broker.write_bytes(_pkcs8(certificate, "") + certificate.cert_chain_pems[0].bytes())
        client = authority.issue_cert("headgate@example.org")
        self.chain, self.key, self.old_key = folder / "chain.pem", folder / "key.pem", folder / "old-key.pem"
        client.cert_chain_pems[0].write_to_path(str(self.chain))
        client.private_key_pem.write_to_path(str(self.old_key))
        self.key.write_bytes(_pkcs8(client, self.password))


def _pkcs8(certificate: trustme.LeafCert, password: str) -> bytes:
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    sealed = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def secured(papers: Papers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, str]]:
    """The broker, and its address for those with a certificate."""
    (port,) = free_ports(1)
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SSL",
        "listener.name.secured.ssl.client.auth": "required",
        "listener.name.secured.ssl.keystore.type": "PEM",
        "listener.name.secured.ssl.keystore.location": str(papers.broker),
        "listener.name.secured.ssl.truststore.type": "PEM",
        "listener.name.secured.ssl.truststore.location": str(papers.ca),
    }
    folder = tmp_path_factory.mktemp("secured") / "kafka"
    with EmbeddedKafka(folder, settings=settings, further_listeners={"SECURED": (port, port)}) as kafka:
        yield kafka, f"{HOST}:{port}"


@pytest.fixture
def kafka_bootstrap(secured: tuple[EmbeddedKafka, str]) -> str:
    return secured[0].bootstrap


def test_a_feed_runs_over_tls_with_certificates(
    secured: tuple[EmbeddedKafka, str],
    papers: Papers,
    *,
    shop_file: Path,
    serve: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", secured[1])
    monkeypatch.setenv("HEADGATE_KAFKA__SECURITY_PROTOCOL", "SSL")
    monkeypatch.setenv("HEADGATE_KAFKA__SSL_CA_LOCATION", str(papers.stranger_ca))
    unknown = headgate("feed", "list")
    assert (unknown.exit_code, "certificate verify failed" in unknown.stderr) == (ExitCode.BROKER_UNREACHABLE, True)
    monkeypatch.setenv("HEADGATE_KAFKA__SSL_CA_LOCATION", str(papers.ca))
    nameless = headgate("feed", "list")
    assert nameless.exit_code == ExitCode.BROKER_UNREACHABLE
    monkeypatch.setenv("HEADGATE_KAFKA__SSL_CERTIFICATE_LOCATION", str(papers.chain))
    monkeypatch.setenv("HEADGATE_KAFKA__SSL_KEY_LOCATION", str(papers.old_key))
    refused = serve("refused", "agent", "--name", "n1")
    assert refused.process.wait(60) == ExitCode.SETTING
    assert "openssl pkcs8" in refused.log_file.read_text(encoding="utf-8")
    monkeypatch.setenv("HEADGATE_KAFKA__SSL_KEY_LOCATION", str(papers.key))
    monkeypatch.setenv("HEADGATE_KAFKA__SSL_KEY_PASSWORD", papers.password)

    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready", seconds=120)
    created = headgate("feed", "create", str(shop_file))
    assert created.exit_code == 0, created.stderr

    def is_applied(rows: int) -> bool:
        assert node.process.poll() is None, node.log_file.read_text(encoding="utf-8")
        (row,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
        return bool((row["state"], row["rows"], row["error"]) == ("replicating", rows, None))

    eventually(lambda: is_applied(ROWS), "all rows are applied", seconds=120)
    # The lane is at rest now, and it is Spark's Java client that hears of the next row.
    producer = Producer({"bootstrap.servers": secured[0].bootstrap})
    key, value = change(ROWS + 1)
    producer.produce(yaml.safe_load(shop_file.read_text(encoding="utf-8"))["source"]["topics"][0], value, key)
    assert producer.flush(30) == 0
    eventually(lambda: is_applied(ROWS + 1), "the row is applied")
    assert papers.password not in node.log_file.read_text(encoding="utf-8")
