"""The passwords of the two databases: from files, from what their own clients read, or typed.

Services and the connector read passwords from files. So what is found elsewhere is written into one folder, which only
this user may read, and which is removed in the end.
"""

import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from headgate.config.secrets import SECRETS_DIR
from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError, PasswordMissingError
from headgate.databases.kinds import kind_of
from headgate.databases.postgresql.session import open_connection

__all__ = ["password_of", "secrets_in", "write_secret"]

_MYSQL_VARIABLE: Final = "MYSQL_PWD"
"""What MariaDB's and MySQL's own clients read. libpq reads PGPASSWORD, PGPASSFILE and ~/.pgpass by itself."""

_LOCK_SECONDS: Final = 10
"""The session only signs in."""


def password_of(target: Target) -> str:
    """The password that signs in at ``target``. Raises DatabaseError; asks on a terminal where there is none."""
    kind = kind_of(target.dsn, target.options)
    address = kind.address(target.dsn, target.options)
    if address.has_password:
        raise DatabaseRefusedError(
            f"{target.options.address} has a password in it, where other users of this machine can see it. "
            f"{_ways(target, kind.name)}"
        )
    if target.password_file is not None:
        return target.password(address) or ""
    if kind.name != "postgresql":
        given = os.environ.get(_MYSQL_VARIABLE)
        return _typed(target, kind.name) if given is None else given
    try:
        with closing(open_connection(target, application_name="headgate up", lock_seconds=_LOCK_SECONDS)) as connection:
            return connection.info.password
    except PasswordMissingError:
        pass  # asked for below
    return _typed(target, kind.name)


def _typed(target: Target, kind: str) -> str:
    if not sys.stdin.isatty():
        raise DatabaseRefusedError(f"the {target.options.place} needs a password. {_ways(target, kind)}")
    return getpass.getpass(f"Password of {target.dsn}: ")


def _ways(target: Target, kind: str) -> str:
    own = "in ~/.pgpass, PGPASSFILE or PGPASSWORD" if kind == "postgresql" else f"in {_MYSQL_VARIABLE}"
    return (
        f"Give it in a file of HEADGATE_SECRETS_DIR that {target.options.password_file} names, {own}, or start the "
        "command on a terminal, where it asks"
    )


@contextmanager
def secrets_in(folder: Path) -> Iterator[None]:
    """Within, ``folder`` is this process's folder for secrets."""
    former = os.environ.get(SECRETS_DIR)
    os.environ[SECRETS_DIR] = str(folder)
    try:
        yield
    finally:
        if former is None:
            del os.environ[SECRETS_DIR]
        else:
            os.environ[SECRETS_DIR] = former


def write_secret(file: Path, password: str) -> None:
    """Write a file that only this user can read."""
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(password, encoding="utf-8")
