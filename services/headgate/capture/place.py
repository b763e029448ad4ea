"""Where a database is, in the parts that a connector's configuration has."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.kinds import kind_of
from headgate.databases.mysql.address import parse_address
from headgate.databases.postgresql.address import url_of

__all__ = ["DatabaseEndpoint", "place_of"]

_POSTGRES_TLS: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey")


class DatabaseEndpoint(msgspec.Struct, frozen=True):
    """One database on one host. ``options`` are those of TLS, by the names that the address has for them."""

    kind: str
    host: str
    port: int
    user: str
    database: str
    options: Mapping[str, str] = {}


def place_of(target: Target) -> DatabaseEndpoint:
    """The parts of the address. Raises DatabaseRefusedError where it does not name one host, a user and a database."""
    options = target.options
    if kind_of(target.dsn, options).name == "mysql":
        parsed = parse_address(target.dsn, options)
        if parsed.database is None:
            raise DatabaseRefusedError(f"{options.address} names no database. Write mysql://user@host:port/database")
        tls = {name: value for name, value in parsed.options.items() if name.startswith("ssl_")}
        return DatabaseEndpoint("mysql", parsed.host, parsed.port, parsed.user, parsed.database, tls)
    url, database = url_of(target.dsn, options)
    parts = urlsplit(url)
    if "," in parts.netloc:
        raise DatabaseRefusedError(
            f"{options.address} names several hosts, but a connector connects to one. Name the primary"
        )
    given = dict(parse_qsl(parts.query))
    tls = {name: given[name] for name in _POSTGRES_TLS if name in given}
    return DatabaseEndpoint(
        "postgresql", unquote(parts.hostname or ""), parts.port or 5432, unquote(parts.username or ""), database, tls
    )
