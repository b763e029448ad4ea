"""librdkafka's security properties, translated for a Kafka client written in Python (aiokafka, which Faust uses, too).

What cannot be translated is refused: a client that falls back to plain text would be worse than none.
"""

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from headgate.eventlog.connection import KafkaProperty

__all__ = ["Security", "UntranslatableError", "security_of"]

_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "https.")
_KNOWN: Final = frozenset(
    {"security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"}
    | {"ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem"}
    | {"ssl.key.location", "ssl.key.pem", "ssl.key.password"}
)
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class UntranslatableError(Exception):
    """Property ``name`` cannot be used, because of ``why``."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


class Security(msgspec.Struct, frozen=True):
    """How a client secures its connections. ``mechanism`` is None without a user, ``context`` without encryption."""

    protocol: str
    context: ssl.SSLContext | None
    mechanism: str | None
    username: str
    password: str


def security_of(properties: Mapping[str, KafkaProperty], who: str) -> Security:
    """The security of a client that ``who`` uses. Raises UntranslatableError."""
    kafka = {name: str(value) for name, value in properties.items()}
    for name in sorted(kafka):
        if name.startswith(_SECURITY) and name not in _KNOWN:
            raise UntranslatableError(
                name, f"{who} cannot translate {name} for a client in Python; they can {', '.join(sorted(_KNOWN))}"
            )
    protocol = kafka.get("security.protocol", "plaintext").upper()
    context = _context(kafka) if protocol.endswith("SSL") else None
    mechanism = None
    if protocol.startswith("SASL"):
        mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "PLAIN"))
        if mechanism not in _MECHANISMS:
            raise UntranslatableError("sasl.mechanism", f"{who} know {', '.join(_MECHANISMS)}, not {mechanism}")
    return Security(protocol, context, mechanism, kafka.get("sasl.username", ""), kafka.get("sasl.password", ""))


def _context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    """Checks the broker's certificate and name, and shows ours if we have one."""
    try:
        context = ssl.create_default_context(cafile=kafka.get("ssl.ca.location"), cadata=kafka.get("ssl.ca.pem"))
        given = {what: _file_or_text(kafka, what) for what in ("certificate", "key")}
        if given["certificate"] is not None or given["key"] is not None:
            _show_certificate(context, given, kafka.get("ssl.key.password"))
    except (OSError, ValueError) as error:
        raise UntranslatableError("ssl.*", str(error)) from error
    return context


def _show_certificate(context: ssl.SSLContext, given: Mapping[str, str | None], password: str | None) -> None:
    """Python reads certificates from files only."""
    with tempfile.TemporaryDirectory(prefix="headgate-kafka-") as folder:
        files = {}
        for what, text in given.items():
            if text is None:
                raise UntranslatableError(f"ssl.{what}.location", "it is missing beside the other of the pair")
            files[what] = Path(folder, what)
            files[what].touch(mode=0o600)
            files[what].write_text(text, encoding="utf-8")
        context.load_cert_chain(files["certificate"], files["key"], password or "")


def _file_or_text(kafka: Mapping[str, str], what: str) -> str | None:
    location = kafka.get(f"ssl.{what}.location")
    if location is None:
        return kafka.get(f"ssl.{what}.pem")
    return Path(location).read_text(encoding="utf-8")
