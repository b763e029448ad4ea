"""Numbers for the columns of MySQL and MariaDB tables, by the statements that altered them. Pure.

Neither database identifies a column by anything but its name and its place. So each column gets the number of the
statement that added it, and keeps it under every name. ``mariadb_columns.origins`` follows the server's own rules.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headgate.formats.schema_changes import TableChange, keeps_columns
from headgate.migration.statements.mariadb import read_mariadb
from headgate.migration.statements.mariadb_columns import origins
from headgate.migration.statements.statement import StatementError

__all__ = ["first_numbers", "numbers_after"]

_COLUMNS_MAX: Final = 4096
"""Columns of a table, at both databases: so many numbers belong to each statement."""


def first_numbers(columns: Sequence[str]) -> dict[str, int]:
    """For the columns of a table of which no statement is known. No statement's numbers are below zero."""
    return {name: -place for place, name in enumerate(columns, start=1)}


def numbers_after(
    numbers: Mapping[str, int], changes: Iterable[tuple[int, TableChange]]
) -> tuple[dict[str, int], list[tuple[int, str]]]:
    """The numbers after these changes of the table, and the offsets of statements that were not understood, with why.

    ``changes``: with their offsets, in order. A statement that is not understood, and one of a connector's snapshot,
    leaves each name to the column that had it.
    """
    unread: list[tuple[int, str]] = []
    for offset, change in changes:
        added = {name: offset * _COLUMNS_MAX + place for place, name in enumerate(change.columns, start=1)}
        try:
            known = _by_origin(numbers, change.statement)
        except StatementError as error:
            unread.append((offset, str(error)))
            known = dict(numbers)
        folded = {name.lower(): number for name, number in reversed(known.items())}
        numbers = {name: folded.get(name.lower(), number) for name, number in added.items()}
    return dict(numbers), unread


def _by_origin(numbers: Mapping[str, int], statement: str) -> dict[str, int]:
    """The numbers by the names that the columns have after the statement. Raises StatementError.

    A column that exists and is added was known from the catalogue before its statement was read.
    """
    if not numbers or keeps_columns(statement):
        return dict(numbers)
    before = list(numbers)
    found = origins(read_mariadb(statement), before)
    return {each.name: numbers[before[each.before]] for each in found if each.before is not None}
