"""The cluster's security block for Faust's client, which is neither librdkafka nor Java.

What cannot be translated is refused: a client that falls back to plain text would be worse than none.
"""

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from faust.auth import SASLCredentials, SSLCredentials

from headgate.config.settings import SettingsError

_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "https.")
_KNOWN: Final = frozenset(
    {"security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"}
    | {"ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem"}
    | {"ssl.key.location", "ssl.key.pem", "ssl.key.password"}
)
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def credentials_of(kafka: Mapping[str, str]) -> SASLCredentials | SSLCredentials | None:
    """Faust's credentials from librdkafka's properties; None for plain text. Raises SettingsError."""
    for name in sorted(kafka):
        if name.startswith(_SECURITY) and name not in _KNOWN:
            raise SettingsError(
                f"{_variable(name)}: views cannot translate {name} for Faust's client; they can "
                f"{', '.join(sorted(_KNOWN))}"
            )
    protocol = kafka.get("security.protocol", "plaintext").upper()
    encrypted = _context(kafka) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return None if encrypted is None else SSLCredentials(encrypted)
    mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "PLAIN"))
    if mechanism not in _MECHANISMS:
        raise SettingsError(f"{_variable('sasl.mechanism')}: views know {', '.join(_MECHANISMS)}, not {mechanism}")
    return SASLCredentials(
        username=kafka.get("sasl.username", ""),
        password=kafka.get("sasl.password", ""),
        ssl_context=encrypted,
        mechanism=mechanism,
    )


def _context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    """Checks the broker's certificate and name, and shows ours if we have one."""
    try:
        context = ssl.create_default_context(cafile=kafka.get("ssl.ca.location"), cadata=kafka.get("ssl.ca.pem"))
        given: dict[str, Any] = {what: _file_or_text(kafka, what) for what in ("certificate", "key")}
        if given["certificate"] is not None or given["key"] is not None:
            _show_certificate(context, given, kafka.get("ssl.key.password"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{_variable('ssl.*')}: {error}") from error
    return context


def _show_certificate(context: ssl.SSLContext, given: Mapping[str, Any], password: str | None) -> None:
    """Python reads certificates from files only."""
    with tempfile.TemporaryDirectory(prefix="headgate-views-") as folder:
        files = {}
        for what, text in given.items():
            if text is None:
                raise SettingsError(f"{_variable(f'ssl.{what}.location')} is missing beside the other of the pair")
            files[what] = Path(folder, what)
            files[what].touch(mode=0o600)
            files[what].write_text(text, encoding="utf-8")
        context.load_cert_chain(files["certificate"], files["key"], password or "")


def _file_or_text(kafka: Mapping[str, str], what: str) -> str | None:
    location = kafka.get(f"ssl.{what}.location")
    if location is None:
        return kafka.get(f"ssl.{what}.pem")
    return Path(location).read_text(encoding="utf-8")


def _variable(name: str) -> str:
    return f"HEADGATE_KAFKA__{name.upper().replace('.', '_')}"
