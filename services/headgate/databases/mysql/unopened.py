"""Why a session at a MySQL or MariaDB was not opened, by the number of the error."""

import re
import ssl
from collections.abc import Mapping
from typing import Final

from headgate.databases.address import Address, Target
from headgate.databases.errors import (
    DatabaseError,
    DatabaseRefusedError,
    DatabaseSilentError,
    DatabaseUnavailableError,
)
from headgate.databases.mysql.errors import UNAVAILABLE, MysqlError, errno, is_clients, message
from headgate.databases.mysql.sql import literal, quoted
from headgate.databases.unopened import OF_THE_NETWORK, UNCLEAR, Reason, password_missing, reason_in, unopened

__all__ = ["unopened_mysql"]

_LOGIN: Final = 1045
_NO_PASSWORD: Final = password_missing("using password: NO")

_TLS: Final = Reason(
    (),
    DatabaseRefusedError,
    "Name the certificate of the CA that has signed the server's own in ssl_ca of {address} and the host by the name "
    "that the server's certificate has, renew one that has expired, or take the ssl_… options out if the server has "
    "no TLS",
)
_TLS_NUMBERS: Final = (2026,)

_FULL: Final = Reason(
    (),
    DatabaseUnavailableError,
    "Close other sessions, or raise the limit (max_connections, or MAX_USER_CONNECTIONS of the user)",
)

_NEW_LOGIN: Final = "ALTER USER {user} IDENTIFIED BY '…'"

_LOCKED: Final = Reason(
    (),
    DatabaseRefusedError,
    "Let an administrator unlock this user's account",
    statement="ALTER USER {user} ACCOUNT UNLOCK",
)

_NO_RIGHTS: Final = 1044
_OF_MIGRATIONS: Final = "docs/migrations.md, Rights at the database"
_RIGHTS: Final = {
    "sink": "docs/target-tables.md, Rights at the sink",
    "database": _OF_MIGRATIONS,
    "migration": _OF_MIGRATIONS,
}
"""By what the database is to the user: the page with the rights that are needed. Of a source, rows are read only."""

_REASONS: Final[Mapping[int, Reason]] = {
    _LOGIN: Reason(
        (),
        DatabaseRefusedError,
        "Correct the user in {address}, or the password ({password_file}); a user that requires TLS also needs ssl_ca",
    ),
    1698: Reason((), DatabaseRefusedError, "Name another user in {address}", statement=_NEW_LOGIN),
    _NO_RIGHTS: Reason(
        (),
        DatabaseRefusedError,
        "Correct the database in {address}",
        statement="GRANT SELECT ON {database}.* TO {user}",
    ),
    1049: Reason((), DatabaseRefusedError, "Correct the database in {address}", statement="CREATE DATABASE {database}"),
    1130: Reason(
        (),
        DatabaseRefusedError,
        "Name another user in {address}",
        statement="CREATE USER {user} IDENTIFIED BY '…'",
    ),
    1129: Reason((), DatabaseUnavailableError, statement="FLUSH HOSTS"),
    1040: _FULL,
    1203: _FULL,
    1226: _FULL,
    1053: Reason((), DatabaseUnavailableError, "Wait until the server has started"),
    1820: Reason((), DatabaseRefusedError, "Run as this user: ALTER USER CURRENT_USER() IDENTIFIED BY '…'"),
    1862: Reason((), DatabaseRefusedError, "Let an administrator give this user a new password", statement=_NEW_LOGIN),
    3118: _LOCKED,
    4151: _LOCKED,
    3159: Reason((), DatabaseRefusedError, "Name the certificate of the server's CA in ssl_ca of {address}"),
    2013: Reason(
        (),
        DatabaseSilentError,
        "Check that host and port in {address} are those of a MySQL or MariaDB, and read the server's log",
    ),
}


_ACCOUNT: Final = re.compile(r"'([^']*)'@'([^']*)'")
_HOST: Final = re.compile(r"Host '([^']+)' is not allowed")


def unopened_mysql(error: MysqlError, target: Target, address: Address) -> DatabaseError:
    """What an error of the driver means while a session is being opened. ``address`` is the target's."""
    number, said, rights = errno(error), message(error), _RIGHTS.get(target.options.place)
    reason = _reason(error)
    if number == _NO_RIGHTS and rights is not None:
        reason = Reason((), reason.error, f"{reason.advice}, or grant the user its rights ({rights})")
    names = {"database": quoted(address.database) if address.database else "", "user": _account(said, address)}
    return unopened(target, address, reason, _said(error), names)


def _account(said: str, address: Address) -> str:
    """The account that the server names, as statements spell it; empty if it names none."""
    if (account := _ACCOUNT.search(said)) is not None:
        return f"{literal(account[1])}@{literal(account[2])}"
    host = _HOST.search(said)
    return "" if host is None else f"{literal(address.user)}@{literal(host[1])}"


def _reason(error: MysqlError) -> Reason:
    number, said = errno(error), message(error)
    cause = getattr(error, "original_exception", None)
    if number in _TLS_NUMBERS or isinstance(cause, ssl.SSLCertVerificationError):
        return _TLS
    if number == _LOGIN and reason_in(said, (_NO_PASSWORD,)):
        return _NO_PASSWORD
    of_network = reason_in(said, OF_THE_NETWORK) if is_clients(number) else None
    return _REASONS.get(number) or of_network or UNCLEAR[_unclear(number)]


def _unclear(number: int) -> type[DatabaseError]:
    if number in UNAVAILABLE or number == 0:
        return DatabaseSilentError if is_clients(number) else DatabaseUnavailableError
    return DatabaseRefusedError


def _said(error: MysqlError) -> str:
    """The words of the system, the server or the driver; with the number of the server's error, which has its page."""
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    number, said = errno(error), " ".join(message(error).split()).rstrip(".")
    return said if is_clients(number) else f"{said}; error {number}"
