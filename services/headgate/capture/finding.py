"""The result of one check: what was checked, its state, and the commands that fix it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

__all__ = ["KEYLESS", "CaptureFinding", "FixIn", "State", "is_wrong"]


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    """It works, but not for everything."""
    PENDING = "pending"
    """It is done by itself when it is needed; the fix does it now."""
    WRONG = "wrong"


class FixIn(StrEnum):
    """Where the lines of a fix are typed."""

    SQL = "sql"
    """Statements, as an administrator of the database."""
    OPTION_FILE = "option file"
    """The server's option file, below ``[mysqld]``."""
    SHELL = "shell"


class CaptureFinding(msgspec.Struct, frozen=True):
    """One line of a report. ``subject`` is a table, or another part that the check is about."""

    check: str
    state: State
    says: str
    subject: str = ""
    fix: tuple[str, ...] = ()
    fix_in: FixIn = FixIn.SQL
    then: str = ""
    """What to do after the fix, or instead of one."""


KEYLESS: Final = "Add a primary key, or set keyless: append for it in the feed, which applies inserts only"
"""What to do about a table whose rows nothing identifies."""


def is_wrong(findings: Iterable[CaptureFinding]) -> bool:
    """Whether any check failed. Warnings and what is pending do not count."""
    return any(finding.state is State.WRONG for finding in findings)
