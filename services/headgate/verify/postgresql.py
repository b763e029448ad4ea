"""A PostgreSQL as one side of a comparison: rows as its own text, in one snapshot."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from headgate.databases.address import Target
from headgate.databases.faults import Fault
from headgate.databases.postgresql.catalogue import read_form
from headgate.databases.postgresql.errors import PostgresError, fault_of, message
from headgate.databases.postgresql.search_path import find_table
from headgate.databases.postgresql.session import PostgresSession, open_connection
from headgate.databases.postgresql.sql import SQL, Composed, Identifier
from headgate.records.identifiers import split_table
from headgate.verify.comparing import ROWS_PER_FETCH, Row, Shape, SideError, UncomparableError
from headgate.verify.forms import Nature

__all__ = ["PostgresSide"]

_SETTINGS: Final = (
    "SET LOCAL TimeZone TO 'UTC'",
    "SET LOCAL DateStyle TO 'ISO'",
    "SET LOCAL IntervalStyle TO 'postgres'",
    "SET LOCAL extra_float_digits TO 3",
    "SET LOCAL bytea_output TO 'hex'",
)

_NATURES: Final = {
    **dict.fromkeys(("bool", "int2", "int4", "int8", "oid", "numeric"), Nature.NUMBER),
    **dict.fromkeys(("timestamp", "timestamptz"), Nature.INSTANT),
    **dict.fromkeys(("time", "interval"), Nature.TIME),
    **dict.fromkeys(("bit", "varbit"), Nature.BITS),
    "float4": Nature.SINGLE,
    "float8": Nature.DOUBLE,
    **dict.fromkeys(("json", "jsonb"), Nature.JSON),
}

# What another database writes in another way, and no form of both can be made of it afterwards.
_TEXTS: Final = {
    "bool": SQL("({}::int)::text"),
    "timestamptz": SQL("({} AT TIME ZONE 'UTC')::text"),
    "bytea": SQL("encode({}, 'hex')"),
    "numeric": SQL("trim_scale({})::text"),
}


LOCK_SECONDS: Final = 10
"""A comparison waits no longer for whoever alters a table. Others who need the table then wait behind it."""

_GRANT: Final = "Grant the user SELECT on the table and USAGE on its schema"


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
        self._types: dict[str, dict[str, str]] = {}

    def shape(self, table: str) -> Shape | None:
        """See Side."""
        with self._reading():
            found = self._find(table)
            if found is None:
                return None
            form = read_form(self._session.execute, found[0])
        types = self._types[table] = {column.name: column.kind for column in form.columns}
        if not types:
            return None
        key = () if form.primary is None else form.primary.columns
        return Shape({name: _NATURES.get(kind, Nature.OTHER) for name, kind in types.items()}, key)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """See Side."""
        with self._reading(), self._session.transaction():
            yield

    def rows(self, table: str, key: Sequence[str], values: Sequence[str]) -> Iterator[Row]:
        """See Side."""
        with self._reading():
            for setting in _SETTINGS:
                self._session.execute(setting)
            texts = {column: self._text(table, column) for column in (*key, *values)}
            # Rows of tables that inherit from this one are not its own. Those of partitions are.
            query = SQL("SELECT {columns} FROM {only}{table} ORDER BY {order}").format(
                only=SQL("" if self._is_partitioned(table) else "ONLY "),
                columns=SQL(", ").join(texts.values()),
                table=self._identifier(table),
                order=SQL(", ").join(SQL("COALESCE({}, '') COLLATE \"C\"").format(texts[column]) for column in key),
            )
            yield from self._session.stream(query, ROWS_PER_FETCH)

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

    def _text(self, table: str, column: str) -> Composed:
        return _TEXTS.get(self._types[table][column], SQL("{}::text")).format(Identifier(column))

    def _is_partitioned(self, table: str) -> bool:
        found = self._find(table)
        query = "SELECT 1 FROM pg_partitioned_table WHERE partrelid = %s"
        return bool(self._session.execute(query, (None if found is None else found[0],)))

    def _identifier(self, table: str) -> Identifier:
        found = self._find(table)
        schema, name = split_table(table) if found is None else found[1:]
        return Identifier(name) if schema is None else Identifier(schema, name)

    def _find(self, table: str) -> tuple[object, str, str] | None:
        return find_table(self._session.execute, self._session.path, table)
