"""Addresses of Kafka clusters: ``kafka://host:port,host:port?option=value``.

Options are librdkafka's security properties by their own names, but none that holds a secret: passwords are in a file,
and a private key is a file in the folder for secrets.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from headgate.config.wording import unknown_option
from headgate.databases.address import SINK, Address, AddressOptions, tls_refused
from headgate.databases.errors import DatabaseRefusedError

SCHEME: Final = "kafka://"
SCHEMES: Final = (SCHEME,)
"""How an address of this kind begins."""

_FORM: Final = f"{SCHEME}host:port,host:port"

_PROTOCOL: Final = "security.protocol"
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISM: Final = "sasl.mechanism"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_USER: Final = "sasl.username"
_OF_FILES: Final = {
    "ca_file": "ssl.ca.location",
    "certificate_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
}
_CHOICES: Final = {_PROTOCOL: _PROTOCOLS, _MECHANISM: _MECHANISMS}
_ALLOWED: Final = (*_CHOICES, _USER, *_OF_FILES.values())

_SECRETS: Final = frozenset({"sasl.password", "password"})
_REFUSED: Final = {
    "ssl.key.password": "it is a secret. Let ssl.key.location name a key without one, which only the service may read",
    "ssl.key.pem": "it is a secret. Put the key into a file, and name that in ssl.key.location",
    "enable.ssl.certificate.verification": "without it nothing proves which cluster receives the records",
    "ssl.endpoint.identification.algorithm": "without it nothing proves which cluster receives the records",
}


class ClusterAddress(msgspec.Struct, frozen=True):
    """A parsed address. ``properties`` are librdkafka's, without secrets."""

    brokers: tuple[tuple[str, int], ...]
    properties: dict[str, str]

    @property
    def bootstrap(self) -> str:
        """As Kafka's clients take it."""
        return ",".join(f"{host}:{port}" for host, port in self.brokers)

    @property
    def user(self) -> str | None:
        """The user that logs in by password, None without one."""
        return self.properties.get(_USER)

    @property
    def files(self) -> dict[str, str]:
        """Property → file that it names."""
        return {name: self.properties[name] for name in _OF_FILES.values() if name in self.properties}

    def __str__(self) -> str:
        """The one spelling."""
        query = urlencode(sorted(self.properties.items()), safe="/")
        return f"{SCHEME}{self.bootstrap}{'?' if query else ''}{query}"


def address_of(dsn: str, options: AddressOptions = SINK) -> Address:
    """See Address. Raises DatabaseRefusedError, which never quotes the address."""
    parsed = parse_address(dsn, options)
    return Address(
        str(parsed),
        tuple(host.strip("[]") for host, _ in parsed.brokers),
        parsed.properties.get(_OF_FILES["key_file"]),
        server=parsed.bootstrap,
    )


def with_tls(dsn: str, files: Mapping[str, str], options: AddressOptions) -> str:
    """See Kind. The protocol becomes the encrypted one, if the address names none."""
    brokers, given = _split(dsn, options)
    if twice := sorted(given.keys() & {*_OF_FILES.values()}):
        raise tls_refused(options, twice)
    protocol = "SASL_SSL" if _USER in given else "SSL"
    tls = {_OF_FILES[name]: file for name, file in files.items()}
    return str(ClusterAddress(brokers, {_PROTOCOL: protocol} | given | tls))


def parse_address(dsn: str, given_in: AddressOptions = SINK) -> ClusterAddress:
    """The parts of ``dsn``. Raises DatabaseRefusedError, which names the error and never quotes a value."""
    brokers, given = _split(dsn, given_in)
    where, protocol = given_in.address, given.get(_PROTOCOL, "PLAINTEXT")
    is_by_password = protocol.startswith("SASL_")
    lacking = [name for name in (_MECHANISM, _USER) if name not in given]
    if is_by_password and lacking:
        raise DatabaseRefusedError(f"{where}: {_PROTOCOL}={protocol} needs {' and '.join(lacking)}. Add it")
    unused: list[str] = [] if is_by_password else [name for name in (_MECHANISM, _USER) if name in given]
    unused += [] if protocol.endswith("SSL") else sorted(given.keys() & {*_OF_FILES.values()})
    if unused:
        needed = "SASL_SSL" if _USER in given else "SSL"
        raise DatabaseRefusedError(
            f"{where}: {', '.join(unused)} would not be used with {_PROTOCOL}={protocol}. Add {_PROTOCOL}={needed}"
        )
    if (_OF_FILES["certificate_file"] in given) != (_OF_FILES["key_file"] in given):
        raise DatabaseRefusedError(f"{where}: ssl.certificate.location and ssl.key.location: give both or neither")
    return ClusterAddress(brokers, given)


def _split(dsn: str, given_in: AddressOptions) -> tuple[tuple[tuple[str, int], ...], dict[str, str]]:
    where = given_in.address
    if not dsn.startswith(SCHEME):
        raise DatabaseRefusedError(f"{where} is not of the form {_FORM}")
    brokers, _, query = dsn.removeprefix(SCHEME).partition("?")
    if "@" in brokers:
        raise DatabaseRefusedError(
            f"{where} has a user before its brokers. Write it as {_FORM}?{_PROTOCOL}=SASL_SSL&{_MECHANISM}="
            f"SCRAM-SHA-512&{_USER}=USER. {given_in.way_of_secrets}"
        )
    found = {_broker(each, where) for each in brokers.removesuffix("/").split(",")}
    return tuple(sorted(found)), _properties(query, given_in)


def _properties(query: str, given_in: AddressOptions) -> dict[str, str]:
    where, given = given_in.address, dict[str, str]()
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in _SECRETS:
            raise DatabaseRefusedError(f"{where}: {name} is refused: it is a secret. {given_in.way_of_secrets}")
        if name in _REFUSED:
            raise DatabaseRefusedError(f"{where}: {name} is refused: {_REFUSED[name]}")
        if name not in _ALLOWED:
            raise DatabaseRefusedError(f"{where} has an {unknown_option(name, _ALLOWED)}")
        choices = _CHOICES.get(name)
        if choices is not None:
            value = value.upper()  # noqa: PLW2901 - as librdkafka compares it
            if value not in choices:
                raise DatabaseRefusedError(f"{where}: {name} must be one of {', '.join(choices)}")
        if not value:
            raise DatabaseRefusedError(f"{where}: {name} is empty. Give a value, or leave it out")
        given[name] = value
    return given


def _broker(text: str, where: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    is_host = bool(host) and "/" not in host and (":" not in host or (host[0] == "[" and host[-1] == "]"))
    if not is_host or not (port.isascii() and port.isdigit() and 0 < int(port) <= 65_535):
        raise DatabaseRefusedError(f"{where} names a broker that is not host:port. Write it as {_FORM}")
    return host.lower(), int(port)
