"""Properties of librdkafka are tried before anything connects, and each error names where they were given."""

from collections.abc import Mapping

import pytest

from headgate.config.kafka_properties import KNOWN, property_problems
from headgate.config.settings import SettingsError, load_settings


def problems(properties: Mapping[str, str]) -> list[str]:
    return list(property_problems(properties, lambda name: f"<{name}>"))


@pytest.mark.parametrize("name", KNOWN)
def test_every_name_of_a_hint_is_one_of_librdkafkas(name: str) -> None:
    assert not any("does not exist. " in each for each in problems({name: "\x01"}))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"sasl.mechanim": "PLAIN"}, ["<sasl.mechanim>: Kafka property sasl.mechanim does not exist. Did you mean"]),
        ({"zzz": "1"}, ["<zzz>: Kafka property zzz does not exist. librdkafka's CONFIGURATION.md lists all"]),
        ({"socket.timeout.ms": "abc"}, ['<socket.timeout.ms>: Invalid value for configuration property "socket.']),
        ({"socket.timeout.ms": "1"}, ["<socket.timeout.ms>: Configuration property"]),
        ({"security.protocol": "SASL_SSLL"}, ['<security.protocol>: Invalid value "SASL_SSLL"']),
        (
            {"sock.timeout": "1", "client.rack": "a", "socket.keepalive.enable": "yes"},
            ["<sock.timeout>: Kafka property", '<socket.keepalive.enable>: Expected bool value for "socket'],
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT"},
            ["<security.protocol>: a security.protocol with SASL needs sasl.mech"],
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLANE"},
            ["<sasl.mechanism>: Unsupported SASL mechanism: PLANE. Did you mean 'PLAIN'? sasl.mechanism is one of"],
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "shop"},
            ["<sasl.username>: sasl.username and sasl.password must be set. Correct or complete"],
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/nope/ca.pem"},
            ["<ssl.ca.location>: ssl.ca.location: /nope/ca.pem does not exist on this machine"],
        ),
        ({"error_cb": "x"}, ["<error_cb>: error_cb is not a property of librdkafka"]),
        ({"client.rack": "a", "security.protocol": "SSL"}, []),
    ],
)
def test_what_is_wrong_is_named_with_its_place(properties: Mapping[str, str], expected: list[str]) -> None:
    found = "\n".join(problems(properties))
    assert found.count("<") >= bool(expected)
    for each in expected:
        assert each in found
    assert bool(found) == bool(expected)


def test_the_place_is_the_variable_or_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"^--kafka-property: Kafka property sasl.mechanim does not exist"):
        load_settings({"kafka": {"sasl.mechanim": "PLAIN"}})
    monkeypatch.setenv("HEADGATE_KAFKA__SOCKET_TIMEOUT_MS", "abc")
    with pytest.raises(SettingsError, match=r"^HEADGATE_KAFKA__SOCKET_TIMEOUT_MS: Invalid value"):
        load_settings()
    monkeypatch.delenv("HEADGATE_KAFKA__SOCKET_TIMEOUT_MS")
    monkeypatch.setenv("HEADGATE_KAFKA_SASL_USERNAME", "shop")
    with pytest.raises(SettingsError, match="did you mean 'HEADGATE_KAFKA__SASL_USERNAME'"):
        load_settings()
