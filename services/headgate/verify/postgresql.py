"""A PostgreSQL as one side of a comparison: rows as its own text, in one snapshot."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from headgate.databases.address import Target
from headgate.databases.faults import Fault
from headgate.databases.postgresql.catalogue import read_form
from headgate.databases.postgresql.errors import PostgresError, fault_of, message
from headgate.databases.postgresql.key_ranges import (
    IN_ORDER,
    Index,
    among,
    bound_query,
    for_keys,
    planned,
    possible,
    read_indexes,
    rows_of_slice,
    within,
)
from headgate.databases.postgresql.printed import PRINTED
from headgate.databases.postgresql.progress import feed_rows
from headgate.databases.postgresql.search_path import find_table
from headgate.databases.postgresql.session import PostgresSession, open_connection
from headgate.databases.postgresql.sql import SQL, Composable, Composed, Identifier
from headgate.records.control import Positions
from headgate.records.slices import slice_of
from headgate.verify.contract import (
    WHOLE,
    Checksum,
    ComparedShape,
    KeyKind,
    KeyRange,
    Part,
    Row,
    SideError,
    UncomparableError,
    check_slice,
)
from headgate.verify.forms import Nature

__all__ = ["PostgresSide"]

_SETTINGS: Final = (
    "SET LOCAL TimeZone TO 'UTC'; SET LOCAL DateStyle TO 'ISO'; SET LOCAL IntervalStyle TO 'postgres'; "
    "SET LOCAL extra_float_digits TO 3; SET LOCAL bytea_output TO 'hex'"
)
"""One statement: it is sent with every range."""

_NATURES: Final = {
    **dict.fromkeys(("bool", "int2", "int4", "int8", "oid", "numeric", "money"), Nature.NUMBER),
    **dict.fromkeys(("timestamp", "timestamptz"), Nature.INSTANT),
    "time": Nature.TIME,
    "interval": Nature.INTERVAL,
    "timetz": Nature.ZONED,
    **dict.fromkeys(("bit", "varbit"), Nature.BITS),
    "float4": Nature.SINGLE,
    "float8": Nature.DOUBLE,
    "json": Nature.JSON,
    "jsonb": Nature.JSON_VALUE,
    "bpchar": Nature.PADDED,
    **dict.fromkeys(("text", "varchar", "citext", "name"), Nature.TEXT),
    "bytea": Nature.BYTES,
    "hstore": Nature.MAP,
}

_ARRAY: Final = "_"
"""The first character of the names of all types of arrays."""

_KEY_KINDS: Final = {
    **dict.fromkeys(("int2", "int4", "int8"), KeyKind.INTEGER),
    **dict.fromkeys(("text", "varchar", "bpchar"), KeyKind.TEXT),
    "uuid": KeyKind.UUID,
}

# What another database writes in another way, and no form of both can be made of it afterwards.
_TEXTS: Final = {
    "bool": SQL("({}::int)::text"),
    "timestamptz": SQL("({} AT TIME ZONE 'UTC')::text"),
    "bytea": SQL("encode({}, 'hex')"),
    "inet": SQL(PRINTED["inet"]),
    "numeric": SQL("trim_scale({})::text"),
    "money": SQL("trim_scale({}::numeric)::text"),
}


ROWS_PER_FETCH: Final = 1_000
"""Rows a cursor holds at a time."""

_TOO_LONG: Final = ("54000", "53200", "XX000")
"""What PostgreSQL answers where a text would be larger than a gigabyte, or than its memory."""

LOCK_SECONDS: Final = 10
"""A comparison waits no longer for a session that alters a table, because others queue behind it."""

_SLOTS: Final = """
SELECT string_agg(slot_name, ', ' ORDER BY slot_name), NOT bool_or(active)
FROM pg_replication_slots WHERE slot_type = 'logical' AND database = current_database()
"""

_GRANT: Final = "Grant the user SELECT on the table and USAGE on its schema"


class _Table(msgspec.Struct, frozen=True):
    """A table as it was found: ``name`` with what FROM needs before it, its columns' types, its indexes.

    ``fixed``: the slice's column, which ``types`` lacks.
    """

    name: Composed
    types: dict[str, str]
    indexes: tuple[Index, ...]
    fixed: tuple[str, ...]


class PostgresSide:
    """Reads over a session of its own. ``close`` closes it."""

    kind = "postgresql"

    def __init__(self, target: Target) -> None:
        """Raises DatabaseError."""
        connection = open_connection(
            target, application_name="headgate verify", lock_seconds=LOCK_SECONDS, reads_snapshots=True
        )
        self._session = PostgresSession(connection)
        info = connection.info
        self.name = f"database {info.dbname} at {info.host}:{info.port}, user {info.user}"
        self._tables: dict[str, _Table] = {}

    def shape(self, table: str) -> ComparedShape | None:
        """See Side."""
        with self._reading():
            found = find_table(self._session.execute, self._session.path, table)
            if found is None:
                return None
            number, schema, name = found
            form = read_form(self._session.execute, number)
            is_partitioned = self._session.execute("SELECT 1 FROM pg_partitioned_table WHERE partrelid = %s", (number,))
            indexes = read_indexes(self._session.execute, number)
        types = {column.name: column.kind for column in form.columns}
        if not types:
            return None
        # Rows of tables that inherit from this one are not its own. Those of partitions are.
        only = SQL("" if is_partitioned else "ONLY ")
        place, key = (
            SQL("{}{}").format(only, Identifier(schema, name)),
            () if form.primary is None else form.primary.columns,
        )
        if (part := slice_of(table)) is not None:
            check_slice(part, types)
            place, key = rows_of_slice(place, part), tuple(column for column in key if column != part.column)
            del types[part.column]
        fixed = () if part is None else (part.column,)
        self._tables[table] = _Table(SQL("{} AS compared").format(place), types, indexes, fixed)
        return ComparedShape(
            {name: _nature(kind) for name, kind in types.items()},
            key,
            {name: _KEY_KINDS[kind] for name, kind in types.items() if kind in _KEY_KINDS},
            types,
        )

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """See Side."""
        with self._reading(), self._session.transaction():
            self._session.execute(_SETTINGS)
            yield

    def rows(self, table: str, key: Sequence[str], values: Sequence[str], part: Part = WHOLE) -> Iterator[Row]:
        """See Side."""
        found = self._tables[table]
        texts = {column: _text(found, column) for column in (*key, *values)}
        ordered = [SQL("COALESCE({}, '') COLLATE \"C\"").format(texts[column]) for column in key]
        query = SQL("SELECT {} FROM {} WHERE {} ORDER BY {}").format(
            SQL(", ").join(texts.values()),
            found.name,
            _condition(found, key, ordered, part),
            SQL(", ").join(ordered),
        )
        with self._reading():
            if (settings := _settings(found, key, part)) is not None:
                self._session.execute(settings)
            yield from self._session.stream(query, ROWS_PER_FETCH)

    def checksum(self, table: str, columns: Sequence[str], part: KeyRange) -> Checksum | None:
        """See Side. None for rows that are longer as one text than PostgreSQL can hold."""
        found = self._tables[table]
        texts = [_text(found, column) for column in columns]
        row = SQL(" || ").join(SQL("COALESCE(length({0}) || ':' || {0}, 'N')").format(text) for text in texts)
        query = SQL(
            "SELECT count(*), COALESCE(sum(('x' || left(encode(sha256(convert_to({}, 'UTF8')), 'hex'), 15))"
            "::bit(60)::bigint), 0) FROM {} WHERE {}"
        ).format(row, found.name, within(part.columns, part.chunk))
        with self._reading():
            try:
                with self._session.transaction():
                    self._session.execute(f"{_SETTINGS}; {IN_ORDER}")
                    ((rows, total),) = self._session.execute(query)
            except PostgresError as error:
                if error.sqlstate in _TOO_LONG:
                    return None
                raise
        return Checksum(int(rows), int(total))

    def next_bound(
        self, table: str, columns: Sequence[str], above: tuple[Any, ...] | None, rows: int
    ) -> tuple[Any, ...] | None:
        """See Side."""
        query = bound_query(self._tables[table].name, columns, above, rows)
        with self._reading(), self._session.transaction(), planned(self._session.execute, IN_ORDER):
            found = self._session.execute(query)
        return found[0] if found else None

    def applied(self, feed_id: str, table: str) -> Positions:
        """See Side."""
        with self._reading():
            return {row.partition: row.next_offset for row in feed_rows(self._session.execute, feed_id, table)}

    def clock_ms(self) -> int:
        """See Side."""
        with self._reading():
            ((ms,),) = self._session.execute("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        return int(ms)

    def why_log_unread(self) -> str:
        """See Side. Without a logical slot it is not known: the connector may read another server than this replica."""
        with self._reading():
            ((names, is_idle),) = self._session.execute(_SLOTS)
        return f"no replication slot of the source is read ({names}): is the connector running?" if is_idle else ""

    def close(self) -> None:
        """See Side."""
        self._session.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except PostgresError as error:
            if fault_of(error) is Fault.PERMISSION:
                raise UncomparableError(f"{self.name}: {message(error)}. {_GRANT}") from error
            raise SideError(f"{self.name}: {error}".rstrip()) from error


def _nature(kind: str) -> Nature:
    return Nature.ARRAY if kind.startswith(_ARRAY) else _NATURES.get(kind, Nature.OTHER)


def _text(table: _Table, column: str) -> Composed:
    return _TEXTS.get(table.types[column], SQL("{}::text")).format(Identifier(column))


def _settings(table: _Table, key: Sequence[str], part: Part) -> str | None:
    """How the rows are found; None for the planner's own way: a scan for all rows."""
    if part is None:
        return None
    if isinstance(part, KeyRange):
        return IN_ORDER
    natives = (column for column, is_native in zip(key, part.natives, strict=True) if is_native)
    return for_keys(table.indexes, key, {*natives, *table.fixed})


def _condition(table: _Table, key: Sequence[str], ordered: Sequence[Composable], part: Part) -> Composable:
    """``ordered``: the key's columns as text, as rows are ordered by them."""
    if part is None:
        return SQL("TRUE")
    if isinstance(part, KeyRange):
        return within(part.columns, part.chunk)
    natives = list(zip(key, ordered, part.natives, strict=True))
    columns = [Identifier(column) if is_native else text for column, text, is_native in natives]
    types = [table.types[column] if is_native else None for column, _, is_native in natives]
    return among(table.name, columns, possible(types, part.keys))
