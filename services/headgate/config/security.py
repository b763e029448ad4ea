"""One security block for two Kafka clients: librdkafka's properties, and the same in the Java client's names.

Spark's connector is a Java client, our own services use librdkafka. Only what says how to connect is translated; what
cannot be is refused, because a lane that falls back to plain text would be worse than one that does not start.
"""

from collections.abc import Mapping
from typing import Final

from headgate.config.settings import SettingsError

__all__ = ["java_properties"]

_SAME: Final = frozenset({"security.protocol", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm"})
_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "https.")
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_LOGIN: Final = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"})


def java_properties(kafka: Mapping[str, str]) -> dict[str, str]:
    """The security part of ``kafka`` (librdkafka's names) in Java's; other properties are librdkafka's alone.

    Raises SettingsError for one that has no translation.
    """
    java: dict[str, str] = {}
    for name, value in sorted(kafka.items()):
        if not name.startswith(_SECURITY) or name in _LOGIN:
            continue
        if name in _SAME:
            java[name] = value
        elif name == "ssl.ca.location":
            java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": value}
        else:
            raise SettingsError(
                f"HEADGATE_KAFKA__{name.upper().replace('.', '_')}: agents cannot translate {name} for Spark's Java "
                f"client yet; they can {', '.join(sorted(_SAME | _LOGIN | {'ssl.ca.location'}))}"
            )
    return java | _login(kafka)


def _login(kafka: Mapping[str, str]) -> dict[str, str]:
    mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms"))
    if mechanism is None:
        return {}
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise SettingsError(f"HEADGATE_KAFKA__SASL_MECHANISM: agents know {', '.join(_LOGIN_MODULES)}, not {mechanism}")
    user, password = _quoted(kafka.get("sasl.username", "")), _quoted(kafka.get("sasl.password", ""))
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
