"""A MySQL or MariaDB as one side of a comparison: rows as its own text, in one snapshot."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from headgate.databases.address import Target
from headgate.databases.faults import Fault
from headgate.databases.mysql.catalogue import MysqlColumn, read_form
from headgate.databases.mysql.errors import MysqlError, fault_of, message
from headgate.databases.mysql.key_ranges import bound_query, ours, place_of, within
from headgate.databases.mysql.progress import feed_rows
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.databases.mysql.sql import quoted
from headgate.records.control import Positions
from headgate.records.identifiers import split_table
from headgate.records.slices import slice_of
from headgate.sinks.relational.mysql.values import NUMBERS_SENT, SENT_AS_HEX
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

__all__ = ["MysqlSide"]

_NATURES: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"), Nature.NUMBER),
    **dict.fromkeys(("datetime", "timestamp"), Nature.INSTANT),
    "float": Nature.SINGLE,
    "double": Nature.DOUBLE,
    "bit": Nature.BITS,
    "time": Nature.TIME,
    "json": Nature.JSON,
    **dict.fromkeys(SENT_AS_HEX, Nature.BYTES),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), Nature.TEXT),
}


_KEY_KINDS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), KeyKind.INTEGER),
    **dict.fromkeys(("char", "varchar"), KeyKind.TEXT),
    "uuid": KeyKind.UUID,
}

_LONG: Final = SENT_AS_HEX | {"tinytext", "text", "mediumtext", "longtext", "json"}
"""Types whose values may be longer than a text that the server returns."""

_FRACTIONS: Final = frozenset({"decimal", "datetime", "timestamp", "time"})
"""Types whose texts have as many digits behind the point as the column: PostgreSQL leaves zeros at the end out."""

_ZEROFILL: Final = " zerofill"
"""The end of the type of a number that is printed with zeros in front."""

_SETTINGS: Final = (
    "SET SESSION time_zone = '+00:00', sql_notes = 0, sql_mode = '', lock_wait_timeout = 10",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION TRANSACTION READ ONLY",
    "SET SESSION net_write_timeout = 3600",
)
"""One snapshot at a time, no way to change anything, and a comparison may be slower than the server sends rows."""


class MysqlSide:
    """Reads over a session of its own. ``close`` closes it."""

    kind = "mysql"

    def __init__(self, target: Target) -> None:
        """Raises DatabaseError."""
        session = self._session = open_session(target, MysqlSession, settings=_SETTINGS)
        self._types: dict[str, dict[str, str]] = {}
        self._texts: dict[str, dict[str, str]] = {}
        """Table → column → its text, as SQL."""
        ((user, self._database, port),) = session.execute("SELECT CURRENT_USER(), DATABASE(), @@port")
        self.name = f"database {self._database or '(none)'} at port {port}, user {user}"

    def shape(self, table: str) -> ComparedShape | None:
        """See Side."""
        database, relation = split_table(table)
        with self._reading():
            form = read_form(
                self._session.execute, database or self._database, relation, is_mariadb=self._session.is_mariadb
            )
        types = self._types[table] = {column.name: column.kind for column in form.columns}
        self._texts[table] = {column.name: _text(column) for column in form.columns}
        if not types:
            return None
        key = () if form.primary is None else form.primary.columns
        if (part := slice_of(table)) is not None:
            check_slice(part, types)
            key = tuple(column for column in key if column != part.column)
            del types[part.column]
        return ComparedShape(
            {name: _NATURES.get(kind, Nature.OTHER) for name, kind in types.items()},
            key,
            {name: _KEY_KINDS[kind] for name, kind in types.items() if kind in _KEY_KINDS},
            types,
        )

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """See Side. It begins with the first row read. No client may write until then."""
        with self._reading(), self._session.transaction():
            yield

    def rows(self, table: str, key: Sequence[str], values: Sequence[str], part: Part = WHOLE) -> Iterator[Row]:
        """See Side."""
        types, written = self._types[table], self._texts[table]
        texts = {column: written[column] for column in (*key, *values)}
        order = ", ".join(f"CAST(COALESCE({texts[column]}, '') AS BINARY)" for column in key)
        columns = ", ".join(texts.values())
        condition, parameters = _condition(key, [texts[column] for column in key], types, part)
        # Names of columns may have a %, which stands for a parameter.
        columns, order, name = (text.replace("%", "%%") for text in (columns, order, place_of(table)))
        query = f"SELECT {columns} FROM {name} WHERE {ours(table)} AND ({condition}) ORDER BY {order}"  # noqa: S608
        with self._reading():
            yield from self._session.stream(query, parameters)

    def checksum(self, table: str, columns: Sequence[str], part: KeyRange) -> Checksum | None:
        """See Side. None where a text is longer than max_allowed_packet: the server gives NULL for it."""
        types, written = self._types[table], self._texts[table]
        texts = {column: written[column] for column in columns}
        row = ", ".join(f"COALESCE(CONCAT(CHAR_LENGTH({text}), ':', {text}), 'N')" for text in texts.values())
        lost = [
            f"({quoted(column)} IS NOT NULL AND {text} IS NULL)"
            for column, text in texts.items()
            if types[column] in _LONG
        ]
        # The limit keeps the server from putting the expression in the place of each of its names.
        query = (
            "SELECT COUNT(*), COALESCE(SUM(d.number), 0), COUNT(d.number), COALESCE(SUM(d.lost), 0) FROM ("  # noqa: S608
            f"SELECT CAST(CONV(LEFT(SHA2(CONCAT({row}), 256), 15), 16, 10) AS UNSIGNED) AS number, "
            f"{' OR '.join(lost) or '0'} AS lost FROM {place_of(table)}"
        ).replace("%", "%%")
        condition, parameters = within(part.columns, part.chunk)
        with self._reading():
            ((rows, total, hashed, lost_texts),) = self._session.execute(
                f"{query} WHERE {ours(table)} AND ({condition}) LIMIT 1000000000) d", parameters
            )
        return Checksum(int(rows), int(total)) if rows == hashed and not lost_texts else None

    def next_bound(
        self, table: str, columns: Sequence[str], above: tuple[Any, ...] | None, rows: int
    ) -> tuple[Any, ...] | None:
        """See Side."""
        with self._reading():
            found = self._session.execute(*bound_query(place_of(table), columns, above, rows))
        return found[0] if found else None

    def applied(self, feed_id: str, table: str) -> Positions:
        """See Side."""
        with self._reading():
            return {row.partition: row.next_offset for row in feed_rows(self._session.execute, feed_id, table)}

    def clock_ms(self) -> int:
        """See Side."""
        with self._reading():
            ((ms,),) = self._session.execute("SELECT FLOOR(UNIX_TIMESTAMP(SYSDATE(3)) * 1000)")
        return int(ms)

    def why_log_unread(self) -> str:
        """See Side. Who reads the binary log is shown to administrators only."""
        return ""

    def close(self) -> None:
        """See Side."""
        self._session.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except MysqlError as error:
            text = f"{self.name}: {message(error)}"
            if fault_of(error) is Fault.PERMISSION:
                raise UncomparableError(f"{text}. Grant the user SELECT on the table") from error
            raise SideError(text) from error


def _condition(
    key: Sequence[str], texts: Sequence[str], types: Mapping[str, str], part: Part
) -> tuple[str, tuple[object, ...]]:
    """``texts``: the key's columns as text. With parameters, so that ``%`` is doubled elsewhere."""
    if part is None:
        return "TRUE", ()
    if isinstance(part, KeyRange):
        return within(part.columns, part.chunk)
    columns = [
        quoted(column) if is_native else f"COALESCE({text}, '')"
        for column, text, is_native in zip(key, texts, part.natives, strict=True)
    ]
    is_number = [
        is_native and _KEY_KINDS[types[column]] is KeyKind.INTEGER
        for column, is_native in zip(key, part.natives, strict=True)
    ]
    # A number is compared without quotes: with a text it is compared as a DOUBLE, which has 53 bits.
    place = f"({', '.join('%s' for _ in key)})"
    condition = f"({', '.join(columns).replace('%', '%%')}) IN ({', '.join(place for _ in part.keys)})"
    return condition, tuple(
        int(text) if number else text for one in part.keys for text, number in zip(one, is_number, strict=True)
    )


def _text(described: MysqlColumn) -> str:
    column, kind = quoted(described.name), described.kind
    if described.type.endswith(_ZEROFILL):
        column = f"({column} + 0)"  # 00042 is 42, also as a part of a key
    if kind in SENT_AS_HEX:
        return f"LOWER(HEX({column}))"
    if kind in NUMBERS_SENT:
        return f"BIN({column})"
    if kind in _FRACTIONS:  # 22.0000 is 22, also as a part of a key
        text = f"CAST({column} AS CHAR)"
        trimmed = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
        return f"CONVERT(IF(LOCATE('.', {text}), {trimmed}, {text}) USING utf8mb4)"
    if kind == "float":
        column = f"CAST({column} AS DOUBLE)"  # a float's own text has six digits
    return f"CONVERT(CAST({column} AS CHAR) USING utf8mb4)"
