"""Conditions and statements for rows of a range of a key, or of some keys, at PostgreSQL.

Its planner estimates a range of a composite key by the first column alone, and knows nothing of a table without
statistics. It then scans the whole table for each small range. So every statement here is run within ``planned``.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Final, NamedTuple

from headgate.databases.catalogue import Ask
from headgate.databases.key_ranges import Chunk
from headgate.databases.postgresql.sql import SQL, Composable, Composed, Identifier, Literal
from headgate.records.slices import Slice

__all__ = [
    "BY_KEYS", "IN_ORDER", "Index", "among", "bound_query", "for_keys", "last_query", "listed", "planned", "possible",
    "read_indexes", "rows_of_slice", "within",
]  # fmt: skip

_ALONG_THE_INDEX: Final = ("enable_sort", "enable_seqscan", "max_parallel_workers_per_gather", "jit")
"""Off, a range's rows are read by the key's index, and in its order. What is unavoidable is done all the same, at a
cost for which the server would compile the statement: hence ``jit``."""

_ONE_BY_ONE: Final = ("enable_hashjoin", "enable_mergejoin")
"""Off, each key is looked up by the index. A join of another kind reads all of the table for them."""


def _set(names: Sequence[str], value: str) -> str:
    return "; ".join(f"SET LOCAL {name} = {value}" for name in names)


IN_ORDER: Final = _set(_ALONG_THE_INDEX, "0")
"""For a range of a key (``within``, ``bound_query``); in a transaction."""

BY_KEYS: Final = _set((*_ALONG_THE_INDEX, *_ONE_BY_ONE), "0")
"""For some keys (``among``) of a table whose index finds the rows of each (``for_keys``); in a transaction. Without one
each key walks the whole table."""

_BY_THE_PLANNER: Final = _set((*_ALONG_THE_INDEX, *_ONE_BY_ONE), "DEFAULT")

# Those that an equality can use. An index with an expression has fewer columns that are found here.
_INDEXES: Final = """
SELECT array_agg(a.attname::text ORDER BY k.place), i.indisunique
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam AND m.amname = 'btree'
CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1], i.indclass::oid[], i.indcollation::oid[])
  WITH ORDINALITY k(number, operators, sorted, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number AND a.attcollation = k.sorted
JOIN pg_opclass o ON o.oid = k.operators AND o.opcnamespace = 'pg_catalog'::regnamespace
WHERE i.indrelid = %s AND i.indisvalid AND i.indpred IS NULL
GROUP BY i.indexrelid, i.indisunique, i.indnkeyatts HAVING count(*) = i.indnkeyatts
"""

_INTEGERS: Final = {"int2": 1 << 15, "int4": 1 << 31, "int8": 1 << 63}
"""Type → the first number above it."""


class Index(NamedTuple):
    """A valid index of all rows by columns."""

    columns: tuple[str, ...]
    is_unique: bool


def read_indexes(ask: Ask, number: object) -> tuple[Index, ...]:
    """The indexes of the table with this oid."""
    return tuple(Index(tuple(columns), is_unique) for columns, is_unique in ask(_INDEXES, (number,)))


def for_keys(indexes: Sequence[Index], key: Sequence[str], known: AbstractSet[str]) -> str:
    """The settings for ``among``: BY_KEYS if an index finds the rows of a key, and no others; else the planner's own.

    ``known``: the columns that are compared with values of their own types, the key's and the slice's.
    """
    is_whole = known >= set(key)
    are_found = any(
        (index.is_unique and known >= set(index.columns)) or (is_whole and known == set(index.columns[: len(known)]))
        for index in indexes
    )
    return BY_KEYS if are_found else _BY_THE_PLANNER


@contextmanager
def planned(execute: Callable[[str], object], settings: str) -> Iterator[None]:
    """While it lasts, statements are planned by these settings. In a transaction, which may last longer."""
    execute(settings)
    yield
    execute(_BY_THE_PLANNER)


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


def possible(types: Sequence[str | None], keys: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The keys that columns of these types can have; ``types``: bare, None for an expression that is a text.

    No text has the character NUL. A text that is not an integer where one is needed is a ValueError.
    """
    return [key for key in keys if all(map(_can_be, types, key))]


def _can_be(kind: str | None, text: str) -> bool:
    limit = _INTEGERS.get(kind or "")
    return "\0" not in text and (limit is None or -limit <= int(text) < limit)


def among(table: Composable, columns: Sequence[Composable], keys: Sequence[Sequence[str]]) -> Composable:
    """The condition that a row has one of these keys, which are ``possible``. ``table``: what FROM has.

    Several columns are joined with a list of the keys: of a list behind IN the planner makes an OR, which may be a
    filter over the whole table. The list begins with a row of NULLs from the table, which gives the texts their types.
    """
    if not keys:
        return SQL("FALSE")
    row, comma = SQL("({})").format(SQL(", ").join(columns)), SQL(", ")
    rows = [SQL("({})").format(comma.join(map(Literal, key))) for key in keys]
    if len(columns) == 1:
        return SQL("{} IN ({})").format(row, comma.join(rows))
    nulls = comma.join(SQL("(SELECT {} FROM {} WHERE FALSE)").format(column, table) for column in columns)
    return SQL("{} IN (VALUES ({}), {})").format(row, nulls, comma.join(rows))


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
