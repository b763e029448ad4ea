"""Properties of librdkafka in the settings: tried before anything connects, so that errors name where they were given.

librdkafka itself decides what is valid. A client that connects to nothing is made of all of them, which takes
milliseconds. If it is refused, each property is tried alone, so that every bad one is named.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headgate.config.wording import did_you_mean, nearest
from headgate.eventlog.connection import KafkaConnection, PropertyRefusedError

__all__ = ["KNOWN", "property_problems"]

KNOWN: Final = (
    "broker.address.family", "broker.address.ttl", "client.dns.lookup", "client.rack", "connections.max.idle.ms",
    "debug", "enable.sasl.oauthbearer.unsecure.jwt", "enable.ssl.certificate.verification", "fetch.error.backoff.ms",
    "fetch.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms",
    "max.in.flight.requests.per.connection", "max.partition.fetch.bytes", "message.max.bytes", "metadata.max.age.ms",
    "queue.buffering.max.kbytes", "queue.buffering.max.messages", "queue.buffering.max.ms",
    "queued.max.messages.kbytes", "queued.min.messages", "receive.message.max.bytes", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.kerberos.keytab",
    "sasl.kerberos.principal", "sasl.kerberos.service.name", "sasl.mechanism", "sasl.mechanisms",
    "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config",
    "sasl.oauthbearer.extensions", "sasl.oauthbearer.grant.type", "sasl.oauthbearer.method", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url", "sasl.password", "sasl.username", "security.protocol",
    "socket.connection.setup.timeout.ms", "socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable",
    "socket.receive.buffer.bytes", "socket.send.buffer.bytes", "socket.timeout.ms", "ssl.ca.location", "ssl.ca.pem",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites", "ssl.crl.location", "ssl.curves.list",
    "ssl.endpoint.identification.algorithm", "ssl.key.location", "ssl.key.password", "ssl.key.pem",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.sigalgs.list", "statistics.interval.ms",
    "topic.metadata.refresh.interval.ms",
)  # fmt: skip
"""Those that operators set, for the hint to a name that librdkafka does not know. Others are accepted, too."""

_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl.mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
}
"""What librdkafka takes and does not list in its errors."""

_UNKNOWN: Final = "such configuration property"

_OF_ALL: Final = "Failed to create admin client: "
"""How errors begin that are about properties together, and not about the name or value of one."""

_NO_MECHANISM: Final = "GSSAPI"
"""librdkafka's default for sasl.mechanism, which its packages for Python do not have."""

_OTHERWISE: Final = "Correct it, or remove it to use the default"

_NAME: Final = re.compile(r"[a-z]+(?:[._][a-z]+)+")


def property_problems(properties: Mapping[str, str], place: Callable[[str], str]) -> Iterator[str]:
    """What is wrong with them. ``place``: a property's name → the variable or option that has set it."""
    together = _refusal(frozenset(properties.items()))
    if together is None:
        return
    each = {name: _refusal(frozenset({(name, value)})) for name, value in sorted(properties.items())}
    alone = {name: why for name, why in each.items() if why is not None and not why.startswith(_OF_ALL)}
    for name, why in alone.items():
        yield f"{place(name)}: {_unknown(name) if _UNKNOWN in why else _advised(why, {name: properties[name]})}"
    if not alone:
        why = together.removeprefix(_OF_ALL)
        yield f"{_places(why, properties, place)}: {_advised(why, properties, 'Correct or complete the properties')}"


@lru_cache(maxsize=64)
def _refusal(properties: frozenset[tuple[str, str]]) -> str | None:
    """Why librdkafka does not take these, None if it does. Kept, because a command loads its settings several times."""
    try:
        KafkaConnection("", dict(properties)).client(AdminClient)
    except PropertyRefusedError as error:
        why = error.__cause__
        text = why.args[0].str() if isinstance(why, KafkaException) else str(error)
        return " ".join(text.split())
    return None


def _unknown(name: str) -> str:
    near = nearest(name, KNOWN)
    hint = did_you_mean(near, begins=True) or "librdkafka's CONFIGURATION.md lists all"
    return f"Kafka property {name} does not exist. {hint}"


def _advised(why: str, properties: Mapping[str, str], otherwise: str = _OTHERWISE) -> str:
    """The reason, and what to do where librdkafka's words do not show it."""
    if _NO_MECHANISM in why and "sasl.mechanism" not in properties:
        return f"a security.protocol with SASL needs sasl.mechanism: {', '.join(_VALUES['sasl.mechanism'])}"
    for name, value in sorted(properties.items()):
        if name in why and name.endswith(".location") and not Path(value).exists():
            return f"{name}: {value} does not exist on this machine. Correct the path"
        values = _VALUES.get(name, ())
        if values and value.upper() not in values and (name in why or value in why):
            question = did_you_mean(nearest(value, values), begins=True)
            return f"{why}. {question}{' ' if question else ''}{name} is one of {', '.join(values)}"
    return f"{why}. {otherwise}"


def _places(why: str, properties: Mapping[str, str], place: Callable[[str], str]) -> str:
    """Where the properties were set that the reason names; all of them if it names none."""
    words = {*_NAME.findall(why), *why.split()}
    named = [name for name, value in sorted(properties.items()) if name in words or value in words]
    return ", ".join(dict.fromkeys(map(place, named or sorted(properties))))
