"""Why a session at a database was not opened: the error of a driver, as what failed, why, and what to do about it.

Each kind of database has its own reasons. Those of the network are the same for all.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headgate.databases.address import Address, Target
from headgate.databases.errors import (
    DatabaseError,
    DatabaseRefusedError,
    DatabaseSilentError,
    DatabaseUnavailableError,
    PasswordMissingError,
)

__all__ = ["OF_THE_NETWORK", "UNCLEAR", "Reason", "password_missing", "reason_in", "unopened"]


class Reason(msgspec.Struct, frozen=True):
    """Words by which a driver's error is recognised, what it means to callers, and what a user can do about it.

    ``advice`` and ``why`` may name {address}, {password_file} and {way_of_secrets} (where the user gives them), and
    {said}, the driver's words. ``statement`` is what an administrator can run; it may name {database} and {user}, as
    statements spell them, and is left out if one of these is not known.
    """

    words: tuple[str, ...]
    error: type[DatabaseError]
    advice: str = ""
    why: str = "{said}"
    statement: str = ""


OF_THE_NETWORK: Final = (
    Reason(
        ("failed to resolve host", "could not translate host name", "Name or service not known", "name resolution",
         "No address associated"),
        DatabaseSilentError,
        "Correct the host in {address}, or make the name known to this machine (DNS or /etc/hosts)",
        "this machine cannot find the host ({said})",
    ),
    Reason(
        ("on socket", "such file or directory"),
        DatabaseSilentError,
        "Start the server, or name the host of another one in {address}",
        "no server answers here ({said})",
    ),
    Reason(
        ("Connection refused",),
        DatabaseSilentError,
        "Start the server, or correct host and port in {address}",
        "no server listens there ({said})",
    ),
    Reason(
        ("Network is unreachable", "No route to host", "timeout expired", "timed out"),
        DatabaseSilentError,
        "Correct host and port in {address}, or let firewalls pass connections from this machine",
        "the host does not answer ({said})",
    ),
)  # fmt: skip
"""Their words are this machine's own. They are retried as a server that does not answer."""


def reason_in(said: str, reasons: Iterable[Reason]) -> Reason | None:
    """The first whose words are in ``said``."""
    return next((reason for reason in reasons if any(words in said for words in reason.words)), None)


def unopened(target: Target, address: Address, reason: Reason, said: str, names: Mapping[str, str]) -> DatabaseError:
    """The error to raise. ``address`` is the target's.

    ``names``: ``database`` and ``user``, as statements spell them, as far as they are known.
    """
    given = target.options
    known = {
        "address": given.address,
        "password_file": given.password_file,
        "way_of_secrets": given.way_of_secrets,
        "said": said,
    }
    why, advice = (text.format_map(known) for text in (reason.why, reason.advice))
    todo = ", or ".join(filter(None, (advice, _statement(reason, names))))
    return reason.error(
        f"cannot open a session at the {given.place} ({_place(address)}): {why}. {todo[0].upper()}{todo[1:]}"
    )


def _statement(reason: Reason, names: Mapping[str, str]) -> str:
    needed = [name for name in ("database", "user") if f"{{{name}}}" in reason.statement]
    if not reason.statement or not all(names.get(name) for name in needed):
        return ""
    return f"run as an administrator: {reason.statement.format_map(names)}"


def _place(address: Address) -> str:
    """``database shop at db.example:5432, user headgate``, as far as the address names them."""
    database = f"database {address.database} at " if address.database else ""
    user = f", user {address.user}" if address.user else ""
    server = "libpq's default host" if "" in address.hosts else address.server
    return f"{database}{server}{user}"


def password_missing(*words: str) -> Reason:
    """The server asks for a password, and none was given."""
    return Reason(words, PasswordMissingError, "{way_of_secrets}", "the server asks for a password ({said})")


UNCLEAR: Final = {
    DatabaseRefusedError: Reason((), DatabaseRefusedError, "Correct {address}, or ask who administers the server"),
    DatabaseUnavailableError: Reason((), DatabaseUnavailableError, "Read the server's log, and check {address}"),
    DatabaseSilentError: Reason((), DatabaseSilentError, "Check host and port in {address}, and read the server's log"),
}
"""For words that no reason has."""
