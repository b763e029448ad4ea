"""Rows of a PostgreSQL's table by their keys, once everything that was committed is visible."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import msgspec

from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.postgresql.capturing import why_not_captured
from headgate.databases.postgresql.catalogue import read_form
from headgate.databases.postgresql.errors import PostgresError, message
from headgate.databases.postgresql.key_ranges import (
    IN_ORDER,
    Index,
    among,
    bound_query,
    for_keys,
    last_query,
    planned,
    possible,
    read_indexes,
    rows_of_slice,
    within,
)
from headgate.databases.postgresql.printed import PRINTED
from headgate.databases.postgresql.search_path import find_table
from headgate.databases.postgresql.session import PostgresSession, open_connection
from headgate.databases.postgresql.sql import SQL, Composable, Composed, Identifier
from headgate.databases.row_source import (
    COMMITS_SECONDS_MAX,
    KeyForm,
    RowSourceError,
    Value,
    forms_of_key,
    typed_bound,
)
from headgate.records.slices import slice_of

__all__ = ["PostgresRows", "open_rows"]

_LOCK_SECONDS: Final = 10
"""For a session that alters the table. Others that need the table wait behind this one until then."""

_SETTINGS: Final = "SET default_transaction_read_only = on; SET extra_float_digits TO 3"
"""Floats are written with all of their digits."""

_POLL_SECONDS: Final = 0.05

_ROWS_PER_FETCH: Final = 1_000

# Every transaction with an xid holds a lock on it until it is visible. One that is idle commits later than now.
_COMMITTING: Final = """
SELECT l.transactionid::text, l.pid, a.usename, a.state, a.wait_event
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid AND l.pid IS NULL
WHERE l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock'
  AND COALESCE(a.datname, p.database, current_database()) = current_database()
  AND COALESCE(a.state, '') NOT LIKE 'idle in transaction%'
"""

# Of a table or its partitions, by their statistics. One that was never analysed has -1 rows.
_ROWS_ABOUT: Final = """
SELECT sum(CASE WHEN reltuples < 0 THEN NULL ELSE reltuples END)::bigint FROM pg_class
WHERE relkind <> 'p' AND (oid = %s OR oid IN (SELECT relid FROM pg_partition_tree(%s)))
"""

_KEY_FORMS: Final = {
    **dict.fromkeys(("int2", "int4", "int8"), KeyForm.INTEGER),
    **dict.fromkeys(("text", "varchar"), KeyForm.TEXT),
    "uuid": KeyForm.UUID,
}

_ALIAS: Final = Identifier("copied")

_BYTES: Final = "bytea"
"""Is read as bytes; everything else as its own text, which the same type reads again."""

_AS_TEXT: Final = {
    "money": "{}::numeric::text",
    "bool": "{}::int::text",
    **PRINTED,
}
"""Type → how it is read. The text of money has the currency of the session's locale; other databases have no ``t``."""


class _Table(msgspec.Struct, frozen=True):
    """``number`` is its oid, ``name`` is what FROM needs, before an alias. A slice is a table without its column.

    ``types``: column → bare type, if it is not generated, ``declared``: its type in full.
    ``folding``: column → collation, where that takes some texts that differ for one. ``primary``: the key's columns.
    """

    number: object
    name: Composed
    types: dict[str, str]
    declared: dict[str, str]
    folding: dict[str, str]
    primary: tuple[str, ...]
    indexes: tuple[Index, ...]


class PostgresRows:
    """See RowSource."""

    sink_type = "postgresql"

    def __init__(self, session: PostgresSession) -> None:
        self._session = session
        self._tables: dict[str, _Table | None] = {}

    def check_server(self) -> None:
        """See RowSource."""
        ((is_standby,),) = self._session.execute("SELECT pg_is_in_recovery()")
        if is_standby:
            raise RowSourceError(
                "source.database is a standby, which may not have all changes of the change log. Name the primary"
            )

    def why_not_captured(self, tables: Sequence[str]) -> list[str]:
        """See RowSource."""
        return why_not_captured(self._session.execute, {self._existing(table).number: table for table in tables})

    def await_commits(self, is_over: Callable[[], bool]) -> None:
        """See RowSource."""
        self.check_server()
        awaited = self._committing()
        deadline = time.monotonic() + COMMITS_SECONDS_MAX
        left = awaited
        while left:
            if is_over() or time.monotonic() >= deadline:
                raise RowSourceError(
                    "transactions that were committing when the table stopped have not ended: "
                    f"{'; '.join(sorted(left.values()))}. Their changes may be in the change log, but a SELECT does "
                    "not see them yet. End them, or try again later"
                )
            time.sleep(_POLL_SECONDS)
            now = self._committing()
            left = {number: now[number] for number in left if number in now}

    def _committing(self) -> dict[str, str]:
        """Transactions that a SELECT does not see, and that may be committing: number → who, for people."""
        return {
            str(number): "a prepared transaction" if pid is None else _shown(pid, user, state, wait)
            for number, pid, user, state, wait in self._session.execute(_COMMITTING)
        }

    def columns(self, table: str) -> dict[str, str]:
        """See RowSource."""
        found = self._table(table)
        return {} if found is None else dict(found.types)

    def logged(self, table: str) -> dict[str, str]:
        """See RowSource. The log does not have computed values: the sink computes them."""
        return self.columns(table)

    def primary_key(self, table: str) -> tuple[str, ...]:
        """See RowSource."""
        return self._existing(table).primary

    def key_forms(self, table: str, key: Sequence[str]) -> tuple[KeyForm, ...]:
        """See RowSource."""
        return forms_of_key(table, key, self._existing(table).types, _KEY_FORMS)

    def rows(
        self, table: str, columns: Sequence[str], key: Sequence[str], keys: Sequence[Sequence[str]]
    ) -> Iterator[tuple[Value, ...]]:
        """See RowSource."""
        self.key_forms(table, key)
        found = self._existing(table)
        named = possible([found.types[column] for column in key], keys)
        place = SQL("{} AS {}").format(found.name, _ALIAS)
        part = slice_of(table)
        settings = for_keys(found.indexes, key, {*key, *(() if part is None else (part.column,))})
        return self._select(table, columns, key, among(place, list(map(Identifier, key)), named), settings)

    def next_bound(
        self,
        table: str,
        key: Sequence[str],
        above: Sequence[str] | None,
        rows: int,
        last: Sequence[str] | None = None,
    ) -> tuple[str, ...] | None:
        """See RowSource."""
        forms = self.key_forms(table, key)
        name = self._existing(table).name
        place = SQL("{} AS {}").format(name, _ALIAS)
        query = bound_query(place, key, typed_bound(forms, above), rows, typed_bound(forms, last))
        with self._session.transaction(), planned(self._session.execute, IN_ORDER):
            found = self._session.execute(query)
        return tuple(map(str, found[0])) if found else None

    def last_key(self, table: str, key: Sequence[str]) -> tuple[str, ...] | None:
        """See RowSource."""
        place = SQL("{} AS {}").format(self._existing(table).name, _ALIAS)
        found = self._session.execute(last_query(place, key))
        return tuple(map(str, found[0])) if found else None

    def rows_within(
        self, table: str, columns: Sequence[str], key: Sequence[str], chunk: Chunk
    ) -> Iterator[tuple[Value, ...]]:
        """See RowSource."""
        return self._select(table, columns, key, self._in_order(table, key, chunk), IN_ORDER)

    def declared(self, table: str) -> dict[str, str]:
        """See LineReader."""
        return dict(self._existing(table).declared)

    def lines_within(self, table: str, columns: Sequence[str], key: Sequence[str], chunk: Chunk) -> Iterator[bytes]:
        """See LineReader."""
        with self._session.transaction(), planned(self._session.execute, IN_ORDER):
            yield from self._session.copied(self._query(table, columns, (), self._in_order(table, key, chunk)))

    def has_rows(self, table: str) -> bool:
        """See RowSource."""
        name = self._existing(table).name
        return bool(self._session.execute(SQL("SELECT 1 FROM {} AS {} LIMIT 1").format(name, _ALIAS)))

    def rows_about(self, table: str) -> int | None:
        """See RowSource."""
        number = self._existing(table).number
        ((rows,),) = self._session.execute(_ROWS_ABOUT, (number, number))
        return None if rows is None else int(rows)

    def equality(self, table: str, key: Sequence[str]) -> tuple[str | None, ...]:
        """See RowSource."""
        return tuple(map(self._existing(table).folding.get, key))

    def _in_order(self, table: str, key: Sequence[str], chunk: Chunk) -> Composed:
        """The condition for the rows of a range, and their order."""
        forms = self.key_forms(table, key)
        typed = Chunk(typed_bound(forms, chunk.above), typed_bound(forms, chunk.upto))
        # A column's name alone would stand for the text that is selected, which has the same name.
        order = SQL(", ").join(SQL("{}.{}").format(_ALIAS, Identifier(column)) for column in key)
        return SQL("{} ORDER BY {}").format(within(key, typed), order)

    def _select(
        self, table: str, columns: Sequence[str], key: Sequence[str], condition: Composable, settings: str
    ) -> Iterator[tuple[Value, ...]]:
        with self._session.transaction(), planned(self._session.execute, settings):
            yield from self._session.stream(self._query(table, columns, key, condition), _ROWS_PER_FETCH)

    def _query(self, table: str, columns: Sequence[str], key: Sequence[str], condition: Composable) -> Composed:
        found = self._existing(table)
        texts = [SQL("{}::text").format(Identifier(column)) for column in key]
        read = SQL(", ").join([*texts, *(_read(column, found.types[column]) for column in columns)])
        return SQL("SELECT {} FROM {} AS {} WHERE {}").format(read, found.name, _ALIAS, condition)

    def _existing(self, table: str) -> _Table:
        found = self._table(table)
        if found is None:
            raise RowSourceError(
                f"the source has no table {table}, or its user may not see it. Grant SELECT on it and USAGE on its "
                "schema"
            )
        return found

    def _table(self, table: str) -> _Table | None:
        if table not in self._tables:
            self._tables[table] = self._look_up(table)
        return self._tables[table]

    def _look_up(self, table: str) -> _Table | None:
        found = find_table(self._session.execute, self._session.path, table)
        if found is None:
            return None
        number, schema, name = found
        form = read_form(self._session.execute, number)
        is_divided = self._session.execute("SELECT 1 FROM pg_partitioned_table WHERE partrelid = %s", (number,))
        # Rows of tables that inherit from this one are not its own. Those of partitions are.
        place = SQL("{}{}").format(SQL("" if is_divided else "ONLY "), Identifier(schema, name))
        types = {column.name: column.kind for column in form.columns if column.generated is None}
        primary = () if form.primary is None else tuple(form.primary.columns)
        if (part := slice_of(table)) is not None:
            place = rows_of_slice(place, part)
            types.pop(part.column, None)
            primary = tuple(column for column in primary if column != part.column)
        folding = {column.name: str(column.collation) for column in form.columns if not column.is_deterministic}
        declared = {column.name: column.base for column in form.columns if column.name in types}
        indexes = read_indexes(self._session.execute, number)
        return _Table(number, place, types, declared, folding, primary, indexes) if types else None


def _shown(pid: int, user: str | None, state: str | None, wait: str | None) -> str:
    """A session, for people."""
    doing = state or "in a state that only pg_read_all_stats may see"
    return f"pid {pid} of {user or 'another user'}, {doing}" + (f", waits for {wait}" if wait else "")


def _read(column: str, kind: str) -> Composed:
    if kind == _BYTES:
        return SQL("{}").format(Identifier(column))
    return SQL(_AS_TEXT.get(kind, "{}::text")).format(Identifier(column))


@contextmanager
def open_rows(target: Target) -> Iterator[PostgresRows]:
    """The source's rows, for as long as the block lasts. Raises DatabaseError, RowSourceError."""
    connection = open_connection(target, application_name="headgate copy", lock_seconds=_LOCK_SECONDS)
    with closing(PostgresSession(connection)) as session:
        try:
            session.execute(_SETTINGS)
            yield PostgresRows(session)
        except PostgresError as error:
            raise RowSourceError(f"the {target.options.place} refused to give the rows: {message(error)}") from error
