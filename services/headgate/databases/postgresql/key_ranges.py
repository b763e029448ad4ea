"""Conditions and statements for rows of a range of a key, or of some keys, at PostgreSQL."""

from collections.abc import Sequence

from headgate.databases.key_ranges import Chunk
from headgate.databases.postgresql.sql import SQL, Composable, Composed, Identifier, Literal
from headgate.records.slices import Slice

__all__ = ["bound_query", "last_query", "listed", "rows_of_slice", "within"]


def listed(columns: Sequence[str]) -> Composed:
    """Names with commas between."""
    return SQL(", ").join(map(Identifier, columns))


def rows_of_slice(table: Composable, part: Slice) -> Composed:
    """What FROM needs, before an alias, so that a statement finds only the slice's rows of ``table``."""
    return SQL("(SELECT * FROM {} WHERE {} = {})").format(table, Identifier(part.column), Literal(part.value))


def within(columns: Sequence[str], chunk: Chunk) -> Composable:
    """The condition that a row is in the range, by these columns."""
    row = SQL("({})").format(listed(columns))
    conditions: list[Composable] = []
    for sign, bound in ((">", chunk.above), ("<=", chunk.upto)):
        if bound is not None:
            values = SQL(", ").join(map(Literal, bound))
            conditions.append(SQL("{} {} ({})").format(row, SQL(sign), values))
    return SQL(" AND ").join(conditions) if conditions else SQL("TRUE")


def bound_query(
    table: Composable,
    columns: Sequence[str],
    above: tuple[object, ...] | None,
    rows: int,
    last: tuple[object, ...] | None = None,
) -> Composed:
    """The query for the key that ends a range of so many rows above a key, and not above ``last``.

    It finds nothing if fewer rows are left.
    """
    names = listed(columns)
    return SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT 1 OFFSET {}").format(
        names, table, within(columns, Chunk(above, last)), names, Literal(rows - 1)
    )


def last_query(table: Composable, columns: Sequence[str]) -> Composed:
    """The query for a table's last key."""
    names = SQL(", ").join(SQL("{} DESC").format(Identifier(column)) for column in columns)
    return SQL("SELECT {} FROM {} ORDER BY {} LIMIT 1").format(listed(columns), table, names)
