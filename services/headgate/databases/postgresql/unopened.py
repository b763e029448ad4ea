"""Why a session at a PostgreSQL was not opened, by the words of the server (in English) and of libpq.

Neither gives an SQLSTATE for it. In another language an error of the server counts as one that passes: it is retried,
and the server's own words are shown.
"""

import re
from typing import Final

from headgate.databases.address import Address, Target
from headgate.databases.errors import (
    DatabaseError,
    DatabaseRefusedError,
    DatabaseSilentError,
    DatabaseUnavailableError,
)
from headgate.databases.postgresql.errors import PostgresError, message
from headgate.databases.postgresql.sql import quoted
from headgate.databases.unopened import (
    OF_THE_NETWORK,
    UNCLEAR,
    Reason,
    password_missing,
    reason_in,
    unopened,
)

__all__ = ["unopened_postgresql"]

_FROM_SERVER: Final = "FATAL"

_REASONS: Final = (
    password_missing("no password supplied"),
    Reason(
        ("password authentication failed",),
        DatabaseRefusedError,
        "Correct the user in {address}, or the password ({password_file})",
    ),
    Reason(
        ("authentication failed",),
        DatabaseRefusedError,
        "Correct the user in {address}, or change its method in the server's pg_hba.conf",
    ),
    Reason(
        ("pg_hba.conf",),
        DatabaseRefusedError,
        "Add a line for this host, database and user to the server's pg_hba.conf and run SELECT pg_reload_conf(), or "
        "change {address} to what the file allows; its lines `hostssl` need sslmode=require",
    ),
    Reason(
        ("does not support SSL",),
        DatabaseRefusedError,
        "Turn TLS on at the server (ssl = on), or take sslmode out of {address}",
    ),
    Reason(
        ("certificate verify failed", "does not match host name", "root certificate file"),
        DatabaseRefusedError,
        "Name the certificate of the CA that has signed the server's own in sslrootcert of {address}, and the host by "
        "the name that the server's certificate has, or renew one that has expired",
    ),
    Reason(
        ("group or world access",),
        DatabaseRefusedError,
        "Run chmod 600 on this file, so that no other user can read it",
    ),
    Reason(
        ("valid client certificate", "certificate file", "private key file"),
        DatabaseRefusedError,
        "Name the client's certificate and its key in sslcert and sslkey of {address}",
    ),
    Reason(
        ("SSL error",),
        DatabaseSilentError,
        "Compare the TLS options of {address} (ssl…) with the server's settings, and read the server's log",
    ),
    Reason(
        ("is not permitted to log in",),
        DatabaseRefusedError,
        "Correct the user in {address}",
        statement="ALTER ROLE {user} LOGIN",
    ),
    Reason(
        ("too many clients", "remaining connection slots", "too many connections"),
        DatabaseUnavailableError,
        "Close other sessions, or raise the limit (max_connections, or CONNECTION LIMIT of the role or database)",
    ),
    Reason(
        ('role "',),
        DatabaseRefusedError,
        "Correct the user in {address}",
        statement="CREATE ROLE {user} LOGIN PASSWORD '…'",
    ),
    Reason(
        ("permission denied for database",),
        DatabaseRefusedError,
        "Name another user in {address}",
        statement="GRANT CONNECT ON DATABASE {database} TO {user}",
    ),
    Reason(
        ("does not exist",),
        DatabaseRefusedError,
        "Correct the database in {address}",
        statement="CREATE DATABASE {database}",
    ),
    Reason(
        ("starting up", "shutting down", "recovery mode", "not yet accepting connections"),
        DatabaseUnavailableError,
        "Wait until the server has started",
    ),
    Reason(
        ("invalid response to SSL negotiation", "server closed the connection", "expected authentication request"),
        DatabaseSilentError,
        "Check that host and port in {address} are those of a PostgreSQL, and read the server's log",
    ),
    Reason(
        ("is read-only", "is not read-only", "hot standby mode"),
        DatabaseSilentError,
        "Name a server of that kind in {address}, or change target_session_attrs",
    ),
    Reason(
        ("connection is bad: invalid", "connection option", "Servname not supported"),
        DatabaseRefusedError,
        "Correct this value in {address}",
    ),
    *OF_THE_NETWORK,
)
"""The first one that fits counts. A certificate's file and a socket's may be missing in the same words."""

_BEFORE: Final = re.compile(r'^(connection failed: )?connection to server (at|on) ("[^"]*"(, port \d+)?|.*?) failed: ')
_NAMED: Final = re.compile(r'\b(role|user|database) "([^"]+)"')
_MARKS: Final = ("connection is bad: ", "connection failed: ", "FATAL:  ", "fe_sendauth: ")


def unopened_postgresql(error: PostgresError, target: Target, address: Address) -> DatabaseError:
    """What an error of the driver means while a session is being opened. ``address`` is the target's."""
    line, *_ = message(error).splitlines() or [""]  # about the last host that was tried
    reason = reason_in(line, _REASONS)
    if reason is None:
        reason = UNCLEAR[DatabaseUnavailableError if _FROM_SERVER in line else DatabaseSilentError]
    given = {"database": address.database, "user": address.user}
    named = {"user" if what in ("role", "user") else what: name for what, name in _NAMED.findall(line)}
    names = {what: quoted(name) for what, name in (given | named).items() if name}
    return unopened(target, address, reason, _said(line), names)


def _said(line: str) -> str:
    """The words without what only repeats the address."""
    said = line if "on socket" in line else _BEFORE.sub("", line)
    for mark in _MARKS:
        said = said.removeprefix(mark)
    return said.rstrip(".")
