"""librdkafka's security properties in Java's names."""

import pytest

from headgate.config.security import java_properties
from headgate.config.settings import SettingsError


def test_sasl_over_tls() -> None:
    java = java_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": 'a"b\\c',
            "ssl.ca.location": "/ca.pem",
            "socket.keepalive.enable": "true",
        }
    )
    assert java == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="a\\"b\\\\c";',
    }


def test_nothing_to_translate() -> None:
    assert java_properties({"queued.min.messages": "10"}) == {}


@pytest.mark.parametrize(
    "kafka",
    [{"ssl.keystore.location": "/k"}, {"sasl.mechanism": "GSSAPI"}, {"enable.ssl.certificate.verification": "false"}],
)
def test_what_cannot_be_translated_is_refused(kafka: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="HEADGATE_KAFKA__"):
        java_properties(kafka)
