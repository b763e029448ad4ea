"""Values of a table as the server writes them: SQL literals that give the same value again, whatever the type.

A row is one such text, ``(1,'text',x'ff',NULL)``: an INSERT takes it as it is, and two rows are equal where their texts
are. Sessions that read or write them have ``TEXT_SETTINGS``.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.contract import DescribedColumn, DescribedTable, RefusedError
from headgate.migration.strategies.mariadb.sessions import Session

__all__ = [
    "TEXT_SETTINGS",
    "inserts",
    "kind_of",
    "literal",
    "literal_of",
    "literals",
    "one",
    "row_text",
    "settings",
    "texts",
]

_SQL_MODE: Final = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""0 is a value in a column that counts; dates that a laxer mode has let in are taken as they are."""

TEXT_SETTINGS: Final = f"SET SESSION sql_mode = 'STRICT_ALL_TABLES,{_SQL_MODE}'"

INSERT_CHARACTERS: Final = 1 << 20
"""Of one INSERT: far below the smallest max_allowed_packet that MariaDB comes with (16 MiB)."""

_TOO_LONG: Final = "the table has a row that is longer, as text, than the server's max_allowed_packet: enlarge that"

_BYTES: Final = frozenset(
    {
        "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "linestring",
        "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    }
)  # fmt: skip


_NUMBERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double", "year"})
"""Written without quotes: a number of more than 53 bits that is compared with a text is compared as a DOUBLE."""


def settings(*, strict: bool) -> str:
    """The statement that sets a session up; ``strict``: what a column cannot hold is an error, not cut off."""
    return TEXT_SETTINGS if strict else f"SET SESSION sql_mode = '{_SQL_MODE}'"


def kind_of(column: DescribedColumn) -> str:
    """The bare name of a column's type: ``int`` of ``int(11) unsigned``."""
    return column.type.split("(")[0].split(" ")[0].lower()


def literal(column: DescribedColumn, table: str = "") -> str:
    """An expression that gives the column's value as a literal, NULL if that is too long; ``table`` is an alias.

    FLOAT is written with as many digits as it has; the server's own text of it has six.
    """
    name = f"{table}.{quoted(column.name)}" if table else quoted(column.name)
    match kind_of(column):
        case kind if kind in _BYTES:
            text = f"CONCAT('x''', HEX({name}), '''')"
        case "bit":
            text = f"CAST({name} + 0 AS CHAR)"
        case "float":
            text = f"CAST(CAST({name} AS DOUBLE) AS CHAR)"
        case kind if kind in _NUMBERS:
            text = f"CAST({name} AS CHAR)"
        case _:
            text = f"QUOTE(CONVERT({name} USING utf8mb4))"
    return f"IF({name} IS NULL, 'NULL', {text})"


def literal_of(kind: str, text: str) -> str:
    """The literal of a value that is not NULL, given as a sink sends it to a column of that kind."""
    if kind in _BYTES:
        return f"x'{text}'"
    if kind in _NUMBERS or kind in ("float", "bit"):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def literals(table: DescribedTable, names: list[str], alias: str = "") -> str:
    """Expressions for columns, with commas between."""
    return ", ".join(literal(_column(table, name), alias) for name in names)


def row_text(table: DescribedTable, names: list[str]) -> str:
    """An expression that gives a row as text, NULL if that would be longer than ``max_allowed_packet``."""
    return "CONCAT('(', " + ", ',', ".join(literal(_column(table, name)) for name in names) + ", ')')"


def one(session: Session, statement: str) -> tuple[str, ...] | None:
    """The first row of a statement that gives literals; None if there is none. RefusedError if one is too long."""
    rows = session.run(statement)
    if not rows:
        return None
    if None in rows[0]:
        raise RefusedError(_TOO_LONG)
    return tuple(map(str, rows[0]))


def inserts(table: str, columns: list[str], lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """INSERT statements for rows as text, and how many are in each."""
    head = f"INSERT INTO {table} ({', '.join(map(quoted, columns))}) VALUES "
    part: list[str] = []
    size = 0
    for line in lines:
        if part and size + len(line) > INSERT_CHARACTERS:
            yield head + ", ".join(part), len(part)
            part, size = [], 0
        part.append(line)
        size += len(line)
    if part:
        yield head + ", ".join(part), len(part)


def texts(rows: Iterable[tuple[str | None, ...]]) -> Iterator[str]:
    """The one column of ``rows``, which are texts of rows. Raises RefusedError for one that is too long."""
    for (row,) in rows:
        if row is None:
            raise RefusedError(_TOO_LONG)
        yield row


def _column(table: DescribedTable, name: str) -> DescribedColumn:
    found = table.column(name)
    assert found is not None, name  # noqa: S101 - names are of this table's description
    return found
