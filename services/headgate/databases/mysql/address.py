"""Addresses of MySQL and MariaDB: ``mysql://user@host:port/database?option=value``.

Options: ``bulk`` (how rows are staged: ``load``, the default, by LOAD DATA LOCAL; ``insert`` where a server refuses
that), ``ssl_ca``, ``ssl_cert``, ``ssl_key`` (files; with ``ssl_ca`` the server must prove its name), ``unix_socket``.
"""

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from headgate.config.wording import unknown_option
from headgate.databases.address import SINK, Address, AddressOptions, check_password, tls_refused
from headgate.databases.errors import DatabaseRefusedError

DEFAULT_PORT: Final = 3306
_SCHEMES: Final = ("mysql", "mariadb")
SCHEMES: Final = tuple(f"{scheme}://" for scheme in _SCHEMES)
"""How an address of this kind begins."""
TLS_FILES: Final = ("ssl_ca", "ssl_cert", "ssl_key")
_OF_FILES: Final = dict(zip(("ca_file", "certificate_file", "key_file"), TLS_FILES, strict=True))
_OPTIONS: Final = ("bulk", *TLS_FILES, "unix_socket")
_REFUSED: Final = {
    "ssl_key_password": "it is a secret: let ssl_key name a key without one, which only the service may read",
    "ssl_passphrase": "it is a secret: let ssl_key name a key without one, which only the service may read",
    "read_default_file": "it would read the address from a file: write its values into the address",
}
_PASSWORDS: Final = frozenset({"password", "passwd", "pwd"})
"""Options of other clients that must not be stored on a topic."""

_FORM: Final = "mysql://user@host:port/database?option=value"

Bulk = Literal["load", "insert"]


class MysqlAddress(msgspec.Struct, frozen=True):
    """A parsed address. ``database`` is where table names without a database are looked for."""

    user: str
    password: str | None
    host: str
    port: int
    database: str | None
    options: dict[str, str]

    @property
    def bulk(self) -> Bulk:
        """How rows get to the sink."""
        return "insert" if self.options.get("bulk") == "insert" else "load"

    def __str__(self) -> str:
        """The one spelling, without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = urlencode(sorted(self.options.items()), safe="/")
        path = quote(self.database or "", safe="")
        return f"mysql://{quote(self.user, safe='')}@{host}:{self.port}/{path}{'?' if query else ''}{query}"


def address_of(dsn: str, options: AddressOptions = SINK) -> Address:
    """See Address. Raises DatabaseRefusedError."""
    parsed = parse_address(dsn, options)
    socket = parsed.options.get("unix_socket")
    return Address(
        str(parsed),
        (socket or parsed.host,),
        parsed.options.get("ssl_key"),
        has_password=parsed.password is not None,
        server=socket or f"{parsed.host}:{parsed.port}",
        database=parsed.database or "",
        user=parsed.user,
    )


def with_tls(dsn: str, files: Mapping[str, str], options: AddressOptions) -> str:
    """See Kind."""
    parsed = parse_address(dsn, options)
    if twice := sorted(set(parsed.options) & set(TLS_FILES)):
        raise tls_refused(options, twice)
    tls = {_OF_FILES[name]: file for name, file in files.items()}
    return str(replace(parsed, options=parsed.options | tls))


def parse_address(dsn: str, given_in: AddressOptions = SINK) -> MysqlAddress:
    """The parts of ``dsn``; DatabaseRefusedError names the error, and never quotes it: it may hold a password."""
    where = given_in.address
    check_password(dsn, given_in)
    try:
        parts = urlsplit(dsn)
        port = parts.port
    except ValueError:  # it quotes what it takes for the port
        raise DatabaseRefusedError(
            f"{where} is not of the form {_FORM}. Correct host and port, or percent-encode the password"
        ) from None
    if parts.scheme not in _SCHEMES or not parts.hostname or not parts.username:
        raise DatabaseRefusedError(f"{where} is not of the form {_FORM}")
    if parts.fragment or "/" in parts.path.strip("/"):
        raise DatabaseRefusedError(f"{where} has more than a database behind the host: {_FORM}")
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            if name in _PASSWORDS:
                raise DatabaseRefusedError(f"{where}: {name} is refused: it is a secret. {given_in.way_of_secrets}")
            if name in _REFUSED:
                raise DatabaseRefusedError(f"{where}: {name} is refused: {_REFUSED[name]}")
            raise DatabaseRefusedError(f"{where} has an {unknown_option(name, _OPTIONS)}")
        options[name] = value
    if options.get("bulk", "load") not in ("load", "insert"):
        raise DatabaseRefusedError(f"{where}: bulk must be load or insert")
    if options.get("bulk") == "load":
        del options["bulk"]
    return MysqlAddress(
        user=unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        host=parts.hostname.lower(),
        port=port or DEFAULT_PORT,
        database=unquote(parts.path.strip("/")) or None,
        options=options,
    )
