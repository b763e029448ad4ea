"""Unique keys of a source's table beside the primary one, as far as the sink can have the same. Pure.

Values that differ at the source also differ at the sink, whose collations distinguish more texts. So a key of the sink
never refuses a row that the source has.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from headgate.databases.mysql.catalogue import MysqlDefinition
from headgate.databases.mysql.types import MysqlType
from headgate.databases.postgresql.catalogue import PostgresDefinition
from headgate.tables.mapped import Mapped

__all__ = ["KEY_BYTES_MAX", "NO_INDEX", "creatable_keys", "key_bytes", "left_out_keys"]

KEY_BYTES_MAX: Final = 3_072
"""Of an index of InnoDB."""

NO_INDEX: Final = frozenset({"tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob",
                             "longblob", "json"})  # fmt: skip

_CHARACTER_BYTES: Final = 4


def key_bytes(types: Sequence[object]) -> int:
    """How many bytes the texts of these types take in a key of MySQL or MariaDB, at most."""
    return sum(
        _CHARACTER_BYTES * each.numbers[0]
        for each in types
        if isinstance(each, MysqlType) and each.is_text and each.numbers
    )


def creatable_keys(table: PostgresDefinition | MysqlDefinition, columns: Mapping[str, Mapped]) -> list[tuple[str, ...]]:
    """The columns of each key that the sink can have. ``columns``: those of the sink's table."""
    return [key for key, why_not in _judged(table, columns).items() if not why_not]


def left_out_keys(table: PostgresDefinition | MysqlDefinition, columns: Mapping[str, Mapped]) -> list[str]:
    """A line for each of the other keys, with the reason."""
    return [
        f"unique key ({', '.join(key)}) is left out: {why_not}"
        for key, why_not in _judged(table, columns).items()
        if why_not
    ]


def _judged(table: PostgresDefinition | MysqlDefinition, columns: Mapping[str, Mapped]) -> dict[tuple[str, ...], str]:
    """Columns of a key → why the sink does not get it, empty if it does."""
    found: dict[tuple[str, ...], str] = {}
    for key in table.form.keys:
        if not key.is_primary and key.columns:
            why_not = "" if key.finds_rows else "it is deferrable, or of expressions or parts of the rows or values"
            why_not = why_not or _why_not(key.columns, columns)
            found[key.columns] = found.get(key.columns, why_not) and why_not
    return found


def _why_not(key: Sequence[str], columns: Mapping[str, Mapped]) -> str:
    for name in key:
        if name not in columns:
            return f"the table does not have column {name}"
        found = columns[name].type
        if isinstance(found, MysqlType) and found.name in NO_INDEX:
            return f"a {found.name} ({name}) cannot be in a key"
    size = key_bytes([columns[name].type for name in key])
    return f"its texts have up to {size} bytes, and a key has at most {KEY_BYTES_MAX}" if size > KEY_BYTES_MAX else ""
