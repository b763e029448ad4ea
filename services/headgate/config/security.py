"""One security block for two Kafka clients: librdkafka's properties, and the same in the Java client's names.

Spark's connector is a Java client, Headgate's own services use librdkafka. Only properties of the connection are
translated; what cannot be is refused, because a lane that falls back to plain text would be worse than one that does
not start.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.config.settings import SettingsError, kafka_property

_SAME: Final = frozenset({"security.protocol", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm"})
_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "https.")
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_LOGIN: Final = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"})
_KEY_PASSWORD: Final = "ssl.key.password"  # noqa: S105 - its name
_PEM: Final = frozenset({f"ssl.{what}.{how}" for what in ("ca", "certificate", "key") for how in ("location", "pem")})
_PLAIN_KEY: Final = "-----BEGIN PRIVATE KEY-----"


def java_properties(kafka: Mapping[str, str]) -> dict[str, str]:
    """The security part of ``kafka`` (librdkafka's names) in Java's; other properties are librdkafka's alone.

    Reads the files that it names. Raises SettingsError for what has no translation, or is not there.
    """
    java: dict[str, str] = {}
    for name, value in sorted(kafka.items()):
        if not name.startswith(_SECURITY) or name in _LOGIN | _PEM | {_KEY_PASSWORD}:
            continue
        if name not in _SAME:
            raise SettingsError(
                f"{kafka_property(name)}: agents cannot translate {name} for Spark's Java client yet; they can "
                f"{', '.join(sorted(_SAME | _LOGIN | _PEM | {_KEY_PASSWORD}))}"
            )
        java[name] = value
    return java | _authorities(kafka) | _certificate(kafka) | _login(kafka)


def _authorities(kafka: Mapping[str, str]) -> dict[str, str]:
    given, location = kafka.get("ssl.ca.pem"), kafka.get("ssl.ca.location")
    if given is not None:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": given}
    if location is None:
        return {}
    if not Path(location).is_file():
        raise SettingsError(
            f"{kafka_property('ssl.ca.location')}: {location} is not a file. Spark's Java client needs a PEM file"
        )
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}


def _certificate(kafka: Mapping[str, str]) -> dict[str, str]:
    """The client's own, by which brokers know it."""
    chain, key = _text(kafka, "certificate"), _text(kafka, "key")
    if chain is None and key is None:
        return {}
    if chain is None or key is None:
        there, missing = ("key", "certificate") if chain is None else ("certificate", "key")
        raise SettingsError(
            f"{kafka_property(f'ssl.{there}.location')} needs {kafka_property(f'ssl.{missing}.location')} as well"
        )
    if _PLAIN_KEY not in key:
        # Encrypted ones neither: Java 17 has no SecretKeyFactory by the name that Kafka asks for, PBES2.
        raise SettingsError(
            f"{kafka_property('ssl.key.location')}: Spark's Java client reads keys of the form PKCS #8 only, not "
            "encrypted. Convert it: openssl pkcs8 -topk8 -nocrypt -in KEY -out KEY8"
        )
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}


def _text(kafka: Mapping[str, str], what: str) -> str | None:
    """The value itself, or the content of the named file."""
    given, location = kafka.get(f"ssl.{what}.pem"), kafka.get(f"ssl.{what}.location")
    if given is not None or location is None:
        return given
    try:
        return Path(location).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{kafka_property(f'ssl.{what}.location')}: {location} is not a PEM file: {error}"
        ) from error


def _login(kafka: Mapping[str, str]) -> dict[str, str]:
    mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms"))
    if mechanism is None:
        return {}
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise SettingsError(
            f"{kafka_property('sasl.mechanism')}: agents know {', '.join(_LOGIN_MODULES)}, not {mechanism}"
        )
    user, password = _quoted(kafka.get("sasl.username", "")), _quoted(kafka.get("sasl.password", ""))
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
