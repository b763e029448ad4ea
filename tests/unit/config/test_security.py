"""librdkafka's security properties in Java's names."""

import re
from pathlib import Path

import pytest

from headgate.config.security import java_properties
from headgate.config.settings import SettingsError


def test_sasl_over_tls(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.touch()
    java = java_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": 'a"b\\c',
            "ssl.ca.location": str(authorities),
            "socket.keepalive.enable": "true",
        }
    )
    assert java == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authorities),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="a\\"b\\\\c";',
    }


def test_nothing_to_translate() -> None:
    assert java_properties({"queued.min.messages": "10"}) == {}


def test_a_certificate_of_the_clients_own_is_handed_over_with_its_key(tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text("a chain", encoding="utf-8")
    key.write_text("-----BEGIN PRIVATE KEY-----\n", encoding="utf-8")
    named = {"ssl.certificate.location": str(chain), "ssl.key.location": str(key), "ssl.key.password": "not needed"}
    wanted = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "a chain",
        "ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\n",
    }
    assert java_properties(named) == wanted
    given = {"ssl.ca.pem": "cas", "ssl.certificate.pem": "a chain", "ssl.key.pem": wanted["ssl.keystore.key"]}
    assert java_properties(given) == wanted | {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "cas",
    }


@pytest.mark.parametrize(
    ("kafka", "message"),
    [
        ({"ssl.ca.location": "/"}, "HEADGATE_KAFKA__SSL_CA_LOCATION or --kafka-property): / is not a file"),
        (
            {"ssl.key.location": "/nowhere/key.pem", "ssl.certificate.pem": ""},
            "SSL_KEY_LOCATION or --kafka-property): /nowhere/key.pem is not",
        ),
        ({"ssl.key.pem": "-----BEGIN PRIVATE KEY-----"}, "--kafka-property) needs Kafka property ssl.certificate.loc"),
        ({"ssl.certificate.pem": ""}, "--kafka-property) needs Kafka property ssl.key.location"),
        ({"ssl.certificate.pem": "", "ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----"}, "openssl pkcs8 -topk8"),
        ({"ssl.certificate.pem": "", "ssl.key.pem": "-----BEGIN ENCRYPTED PRIVATE KEY-----"}, "not encrypted"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_refused_with_the_way_out(kafka: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        java_properties(kafka)


@pytest.mark.parametrize(
    "kafka",
    [{"ssl.keystore.location": "/k"}, {"sasl.mechanism": "GSSAPI"}, {"enable.ssl.certificate.verification": "false"}],
)
def test_what_cannot_be_translated_is_refused(kafka: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="Kafka property "):
        java_properties(kafka)
