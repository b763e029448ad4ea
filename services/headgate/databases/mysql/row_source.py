"""Rows of a MariaDB's table by their keys, once everything that was committed is visible."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from headgate.databases.address import Target
from headgate.databases.faults import Fault
from headgate.databases.key_ranges import Chunk
from headgate.databases.mysql.catalogue import MysqlColumn, read_form
from headgate.databases.mysql.errors import MysqlError, fault_of, message
from headgate.databases.mysql.key_ranges import bound_query, last_query, ours, place_of, within
from headgate.databases.mysql.reading import READ_ONLY
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.databases.mysql.sql import quoted
from headgate.databases.mysql.types import declared_in_full, line_octets
from headgate.databases.row_source import (
    COMMITS_SECONDS_MAX,
    KeyForm,
    RowSourceError,
    Value,
    forms_of_key,
    typed_bound,
)
from headgate.records.identifiers import split_table
from headgate.records.name_lists import shown_names
from headgate.records.slices import slice_of

__all__ = ["MysqlRows", "open_rows"]

_SETTINGS: Final = (
    READ_ONLY,
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET time_zone = '+00:00'",
    "SET NAMES utf8mb4",
)
"""At another isolation level a snapshot is not consistent, or a SELECT sees what is not committed. Timestamps are texts
in UTC, as sinks take them."""

_POLL_SECONDS: Final = 0.05

_ROWS_ABOUT: Final = """
SELECT table_rows FROM information_schema.tables
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s
"""

_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_KEY_FORMS: Final = {
    **dict.fromkeys(_INTEGERS, KeyForm.INTEGER),
    **dict.fromkeys(_TEXTS, KeyForm.TEXT),
}

_AS_TEXT: Final = frozenset({"decimal", "date", "time", "datetime", "timestamp", "year", "double"})
"""The driver would make values of Python's of these, which have fewer of them."""

_NULL: Final = "_utf8mb4 x'5C4E'"
_TAB: Final = "_utf8mb4 x'09'"
_ESCAPES: Final = (("5C", "5C5C"), ("09", "5C74"), ("0A", "5C6E"))
"""Character → what a line has for it, in hexadecimal digits: a session's mode may take a backslash for itself."""

_BITS: Final = "bit"
_SINGLE: Final = "float"


class MysqlRows:
    """See RowSource."""

    sink_type = "mysql"

    def __init__(self, session: MysqlSession) -> None:
        self._session = session
        self._tables: dict[str, dict[str, MysqlColumn]] = {}
        self._primary: dict[str, tuple[str, ...]] = {}

    def check_server(self) -> None:
        """See RowSource."""
        if not self._session.is_mariadb:
            raise RowSourceError(
                "source.database is a MySQL server, which does not report the binary log position of a SELECT "
                "(MariaDB does, by binlog_snapshot_position). Rows can be copied from PostgreSQL and MariaDB "
                "only"
            )
        self._check_primary()
        self._end()

    def why_not_captured(self, tables: Sequence[str]) -> list[str]:
        """See RowSource. Only what the binary log leaves out is known: a reader of it may come at any time."""
        (_, _, only, without, *_), *_ = self._status()
        ((current,),) = self._session.execute("SELECT DATABASE()")
        left_out = [
            table
            for table in tables
            if _is_left_out(str(split_table(table)[0] or current), _databases(only), _databases(without))
        ]
        why = (
            f"the source's binary log leaves out the database of {shown_names(left_out)} (binlog_do_db or "
            "binlog_ignore_db), so nothing captures its changes, and the copied rows never change. Correct these "
            "options of the server"
        )
        return [why] if left_out else []

    def await_commits(self, is_over: Callable[[], bool]) -> None:
        """See RowSource."""
        self.check_server()
        end, transactions = self._end(), self._transactions()
        deadline = time.monotonic() + COMMITS_SECONDS_MAX
        while (seen := self._seen())[1] < end and self._transactions_below(*seen) != transactions:
            if is_over() or time.monotonic() >= deadline:
                raise RowSourceError(
                    f"transactions up to position {end[1]} of the server's binary log have been written to it, but a "
                    f"SELECT sees them only up to {seen[1][1]}: a commit waits, perhaps for a replica "
                    "(semi-synchronous replication). Try again later"
                )
            time.sleep(_POLL_SECONDS)

    def _check_primary(self) -> None:
        """Raise RowSourceError unless it is known that the server follows no other one, and so has all of the log."""
        try:
            followed = self._session.execute("SHOW ALL SLAVES STATUS")
        except MysqlError as error:
            if fault_of(error) is not Fault.PERMISSION:
                raise
            ((followed_to,),) = self._session.execute("SELECT @@gtid_slave_pos")
            if not followed_to:
                return
            raise RowSourceError(
                "source.database has followed another server, and its user may not see whether it still does: a "
                "replica may not have all changes of the change log. GRANT REPLICA MONITOR ON *.* (before "
                "MariaDB "
                "10.5: REPLICATION CLIENT) to its user, or name the primary"
            ) from error
        if followed:
            raise RowSourceError(
                "source.database is a replica, which may not have all changes of the change log. Name the primary"
            )

    def _end(self) -> tuple[int, int]:
        """Where the binary log ends: number of the file, and position."""
        (file, position, *_), *_ = self._status()
        return _place(file, position)

    def _status(self) -> Sequence[tuple[Any, ...]]:
        """One row: the binary log's file and position, and the databases that alone are in it, and that are not."""
        try:
            found = self._session.execute("SHOW MASTER STATUS")
        except MysqlError as error:
            if fault_of(error) is not Fault.PERMISSION:
                raise
            raise RowSourceError(
                f"source.database does not report the end of its binary log: {message(error)}. GRANT BINLOG MONITOR ON "
                "*.* (before MariaDB 10.5: REPLICATION CLIENT) to its user"
            ) from error
        if not found:
            raise RowSourceError(
                "source.database writes no binary log, so it is not the server that the connector reads. Name that one"
            )
        return found

    def _transactions(self) -> frozenset[str]:
        """The last transaction of each domain in the binary log."""
        ((numbers,),) = self._session.execute("SELECT @@gtid_binlog_pos")
        return frozenset(str(numbers).split(","))

    def _transactions_below(self, file: str, place: tuple[int, int]) -> frozenset[str] | None:
        """The last ones below a place. The server writes events of its own behind them, which no SELECT has to see."""
        try:
            ((numbers,),) = self._session.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, place[1]))
        except MysqlError:
            return None  # without a right to ask, only the place is known
        return None if numbers is None else frozenset(str(numbers).split(","))

    def _seen(self) -> tuple[str, tuple[int, int]]:
        """Up to where of the binary log a transaction that begins now sees: the file, and the place."""
        self._session.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        try:
            found: dict[str, Any] = {
                str(name).lower(): value
                for name, value in self._session.execute("SHOW SESSION STATUS LIKE 'binlog_snapshot_%'", None)
            }
        finally:
            self._session.execute("ROLLBACK")
        file = str(found["binlog_snapshot_file"])
        return file, _place(file, found["binlog_snapshot_position"])

    def columns(self, table: str) -> dict[str, str]:
        """See RowSource."""
        return {name: column.kind for name, column in self._table(table).items() if column.generated is None}

    def logged(self, table: str) -> dict[str, str]:
        """See RowSource. The binary log has computed values like others."""
        return {name: column.kind for name, column in self._table(table).items()}

    def primary_key(self, table: str) -> tuple[str, ...]:
        """See RowSource."""
        self._table(table)
        return self._primary[table]

    def key_forms(self, table: str, key: Sequence[str]) -> tuple[KeyForm, ...]:
        """See RowSource."""
        return forms_of_key(table, key, self.logged(table), _KEY_FORMS)

    def rows(
        self, table: str, columns: Sequence[str], key: Sequence[str], keys: Sequence[Sequence[str]]
    ) -> Iterator[tuple[Value, ...]]:
        """See RowSource. A collation may find more rows than were named; their keys show it."""
        forms = self.key_forms(table, key)
        place, names = f"({', '.join('%s' for _ in key)})", ", ".join(map(quoted, key)).replace("%", "%%")
        condition = f"({names}) IN ({', '.join(place for _ in keys)})"
        # A number is compared without quotes: with a text it is compared as a DOUBLE, which has 53 bits.
        parameters = tuple(
            int(text) if form is KeyForm.INTEGER else text
            for one in keys
            for form, text in zip(forms, one, strict=True)
        )
        return self._select(table, columns, key, condition, parameters)

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
        place, bounds = place_of(table), (typed_bound(forms, above), typed_bound(forms, last))
        query, parameters = bound_query(place, key, bounds[0], rows, bounds[1])
        found = self._session.execute(query, parameters)
        return tuple(map(str, found[0])) if found else None

    def last_key(self, table: str, key: Sequence[str]) -> tuple[str, ...] | None:
        """See RowSource."""
        found = self._session.execute(last_query(place_of(table), key))
        return tuple(map(str, found[0])) if found else None

    def rows_within(
        self, table: str, columns: Sequence[str], key: Sequence[str], chunk: Chunk
    ) -> Iterator[tuple[Value, ...]]:
        """See RowSource."""
        return self._ordered(table, self._values(table, columns, key), key, chunk)

    def declared(self, table: str) -> dict[str, str]:
        """See LineReader. Empty if a line may be longer than a text of the server's, which would be NULL."""
        columns = {name: column for name, column in self._table(table).items() if column.generated is None}
        octets = {name: line_octets(column.kind, column.type) for name, column in columns.items()}
        ((packet,),) = self._session.execute("SELECT @@max_allowed_packet")
        if sum(each or 0 for each in octets.values()) >= int(packet):
            return {}
        return {
            name: declared_in_full(column.type, column.charset, column.collation)
            for name, column in columns.items()
            if octets[name] is not None
        }

    def lines_within(self, table: str, columns: Sequence[str], key: Sequence[str], chunk: Chunk) -> Iterator[bytes]:
        """See LineReader."""
        kinds = self.logged(table)
        # Not by CONCAT_WS: it leaves out what is NULL, and so is a field that is longer than a text of the server's.
        fields = f", {_TAB}, ".join(_field(column, kinds[column]) for column in columns)
        for (line,) in self._ordered(table, f"CAST(CONCAT({fields}) AS BINARY)", key, chunk):
            if line is None:
                raise RowSourceError(
                    f"a row of {table} cannot be read as one text: the source's server makes it NULL, because it is "
                    "longer than max_allowed_packet. Increase max_allowed_packet there, and start the copy again"
                )
            yield line + b"\n"

    def has_rows(self, table: str) -> bool:
        """See RowSource."""
        return bool(self._session.execute(f"SELECT 1 FROM {place_of(table)} WHERE {ours(table)} LIMIT 1"))  # noqa: S608 - quoted names

    def rows_about(self, table: str) -> int | None:
        """See RowSource."""
        database, relation = split_table(table)
        found = self._session.execute(_ROWS_ABOUT, (database, relation))
        return int(found[0][0]) if found and found[0][0] is not None else None

    def equality(self, table: str, key: Sequence[str]) -> tuple[str | None, ...]:
        """See RowSource."""
        found = self._table(table)
        collations = (found[column].collation for column in key)
        return tuple(None if collation is None or "nopad_bin" in collation else collation for collation in collations)

    def _select(
        self,
        table: str,
        columns: Sequence[str],
        key: Sequence[str],
        condition: str,
        parameters: tuple[object, ...],
    ) -> Iterator[tuple[Value, ...]]:
        query = self._query(table, self._values(table, columns, key), condition)
        return self._session.stream_or_close(query, parameters)

    def _ordered(self, table: str, values: str, key: Sequence[str], chunk: Chunk) -> Iterator[tuple[Any, ...]]:
        """Of a range of the key, in its order."""
        forms = self.key_forms(table, key)
        condition, parameters = within(key, Chunk(typed_bound(forms, chunk.above), typed_bound(forms, chunk.upto)))
        order = ", ".join(map(quoted, key)).replace("%", "%%")
        query = f"{self._query(table, values, condition)} ORDER BY {order}"
        return self._session.stream_or_close(query, parameters)  # a range may end early

    def _values(self, table: str, columns: Sequence[str], key: Sequence[str]) -> str:
        types = self.logged(table)
        return ", ".join([*map(_text, key), *(_read(column, types[column]) for column in columns)])

    def _query(self, table: str, values: str, condition: str) -> str:
        """With parameters."""
        name = place_of(table).replace("%", "%%")
        return f"SELECT {values.replace('%', '%%')} FROM {name} WHERE {ours(table)} AND ({condition})"  # noqa: S608 - quoted names

    def _table(self, table: str) -> dict[str, MysqlColumn]:
        if table not in self._tables:
            database, relation = split_table(table)
            if database is None:
                ((database,),) = self._session.execute("SELECT DATABASE()")
            form = read_form(self._session.execute, database, relation, is_mariadb=self._session.is_mariadb)
            part = slice_of(table)
            hidden = None if part is None else part.column
            primary = () if form.primary is None else form.primary.columns
            self._tables[table] = {column.name: column for column in form.columns if column.name != hidden}
            self._primary[table] = tuple(column for column in primary if column != hidden)
        return self._tables[table]


def _place(file: object, position: object) -> tuple[int, int]:
    """A place in the binary log, as something that can be compared."""
    return int(str(file).rpartition(".")[2]), int(str(position))


def _databases(listed: object) -> list[str]:
    return [name for name in str(listed or "").split(",") if name]


def _is_left_out(database: str, only: Sequence[str], without: Sequence[str]) -> bool:
    """By the server's own rule: where it logs some databases only, the others are not looked at."""
    return database not in only if only else database in without


def _text(column: str) -> str:
    return f"CONVERT(CAST({quoted(column)} AS CHAR) USING utf8mb4)"


def _field(column: str, kind: str) -> str:
    """A value as a line has it."""
    text = _text(column)
    if kind in _TEXTS:
        for character, escape in _ESCAPES:
            text = f"REPLACE({text}, _utf8mb4 x'{character}', _utf8mb4 x'{escape}')"
    return f"IF({quoted(column)} IS NULL, {_NULL}, {text})"


def _read(column: str, kind: str) -> str:
    name = quoted(column)
    if kind in _AS_TEXT:
        return _text(column)
    if kind == _BITS:
        return f"CAST({name} AS UNSIGNED)"
    if kind == _SINGLE:
        return f"CAST({name} AS DOUBLE)"  # a float's own text has six digits
    return name


@contextmanager
def open_rows(target: Target) -> Iterator[MysqlRows]:
    """The source's rows, for as long as the block lasts. Raises DatabaseError, RowSourceError."""
    with closing(open_session(target, MysqlSession, settings=_SETTINGS)) as session:
        try:
            yield MysqlRows(session)
        except MysqlError as error:
            raise RowSourceError(f"the {target.options.place} refused to give the rows: {message(error)}") from error
