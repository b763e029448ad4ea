"""Conditions and statements for rows of a range of a key, or of some keys, at MySQL and MariaDB.

Keys are compared column by column, since MariaDB does not use an index for (a, b) > (x, y).
"""

from collections.abc import Sequence

from headgate.databases.key_ranges import Chunk
from headgate.databases.mysql.sql import literal, quoted
from headgate.records.identifiers import split_table
from headgate.records.slices import slice_of

__all__ = ["among", "bound_query", "last_query", "ours", "place_of", "within"]


def place_of(table: str) -> str:
    """What FROM needs. Of a slice it has all rows of the table: see ``ours``."""
    database, relation = split_table(table)
    return quoted(relation) if database is None else quoted(database, relation)


def ours(table: str) -> str:
    """The condition that a row of ``place_of(table)`` is one of ``table``, which may be a slice. Without parameters."""
    part = slice_of(table)
    return "TRUE" if part is None else f"{quoted(part.column)} = {literal(part.value)}"


def within(columns: Sequence[str], chunk: Chunk, prefix: str = "") -> tuple[str, tuple[object, ...]]:
    """The condition that a row is in the range, by these columns, and its parameters, for a statement that has some."""
    above, first = _beyond(columns, chunk.above, ">", ">", prefix)
    upto, second = _beyond(columns, chunk.upto, "<", "<=", prefix)
    return f"{above} AND {upto}", first + second


def _beyond(
    columns: Sequence[str], bound: tuple[object, ...] | None, strict: str, last: str, prefix: str = ""
) -> tuple[str, tuple[object, ...]]:
    """(a, b) > (x, y) as (a > x OR (a = x AND b > y)), behind a condition on a alone that an index can use."""
    if bound is None:
        return "TRUE", ()
    names = [prefix + _doubled(quoted(column)) for column in columns]
    cases: list[str] = []
    parameters: list[object] = []
    for index, name in enumerate(names):
        is_last = index == len(names) - 1
        equal = [f"{before} = %s" for before in names[:index]]
        cases.append(" AND ".join([*equal, f"{name} {last if is_last else strict} %s"]))
        parameters += [*bound[:index], bound[index]]
    if len(names) == 1:
        return cases[0], tuple(parameters)
    return f"{names[0]} {strict}= %s AND ({' OR '.join(cases)})", (bound[0], *parameters)


def among(columns: Sequence[str], keys: Sequence[tuple[str, ...]], prefix: str = "") -> str:
    """The condition that a row has one of these keys, which are literals."""
    names = ", ".join(prefix + quoted(column) for column in columns)
    rows = ", ".join(f"({', '.join(key)})" for key in keys)
    return f"({names}) IN ({rows})"


def bound_query(
    table: str,
    columns: Sequence[str],
    above: tuple[object, ...] | None,
    rows: int,
    last: tuple[object, ...] | None = None,
) -> tuple[str, tuple[object, ...]]:
    """The query for the key that ends a range of so many rows above a key, and not above ``last``; its parameters.

    It finds nothing if fewer rows are left.
    """
    where, parameters = within(columns, Chunk(above, last))
    names = ", ".join(_doubled(quoted(column)) for column in columns)
    query = f"SELECT {names} FROM {_doubled(table)} WHERE {where} ORDER BY {names} LIMIT 1 OFFSET {int(rows) - 1}"  # noqa: S608
    return query, parameters


def last_query(table: str, columns: Sequence[str]) -> str:
    """The query for a table's last key, without parameters."""
    names = [quoted(column) for column in columns]
    order = ", ".join(f"{name} DESC" for name in names)
    return f"SELECT {', '.join(names)} FROM {table} ORDER BY {order} LIMIT 1"  # noqa: S608 - quoted names


def _doubled(name: str) -> str:
    """A name in a statement with parameters, where ``%`` stands for one."""
    return name.replace("%", "%%")
