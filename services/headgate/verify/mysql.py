"""A MySQL or MariaDB as one side of a comparison: rows as its own text, in one snapshot."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from headgate.databases.address import Target
from headgate.databases.faults import Fault
from headgate.databases.mysql.catalogue import read_form
from headgate.databases.mysql.errors import MysqlError, fault_of, message
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.databases.mysql.sql import quoted
from headgate.records.identifiers import split_table
from headgate.sinks.relational.mysql.values import BYTES, NUMBERS_SENT
from headgate.verify.comparing import Row, Shape, SideError, UncomparableError
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
}


_SETTINGS: Final = (
    "SET SESSION time_zone = '+00:00', sql_notes = 0, sql_mode = '', lock_wait_timeout = 10",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION TRANSACTION READ ONLY",
)
"""One snapshot per table, and no way to change anything."""


class MysqlSide:
    """Reads over a session of its own. ``close`` closes it."""

    kind = "mysql"

    def __init__(self, target: Target) -> None:
        """Raises DatabaseError."""
        session = self._session = open_session(target, MysqlSession, settings=_SETTINGS)
        self._types: dict[str, dict[str, str]] = {}
        ((user, self._database, port),) = session.execute("SELECT CURRENT_USER(), DATABASE(), @@port")
        self.name = f"database {self._database or '(none)'} at port {port}, user {user}"

    def shape(self, table: str) -> Shape | None:
        """See Side."""
        database, relation = split_table(table)
        with self._reading():
            form = read_form(
                self._session.execute, database or self._database, relation, is_mariadb=self._session.is_mariadb
            )
        types = self._types[table] = {column.name: column.kind for column in form.columns}
        if not types:
            return None
        key = () if form.primary is None else form.primary.columns
        return Shape({name: _NATURES.get(kind, Nature.OTHER) for name, kind in types.items()}, key)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """See Side. It begins with the first row read. Until then nobody may write."""
        with self._reading(), self._session.transaction():
            yield

    def rows(self, table: str, key: Sequence[str], values: Sequence[str]) -> Iterator[Row]:
        """See Side."""
        texts = {column: _text(quoted(column), self._types[table][column]) for column in (*key, *values)}
        database, relation = split_table(table)
        name = quoted(relation) if database is None else quoted(database, relation)
        order = ", ".join(f"CAST(COALESCE({texts[column]}, '') AS BINARY)" for column in key)
        with self._reading():
            yield from self._session.stream(f"SELECT {', '.join(texts.values())} FROM {name} ORDER BY {order}")  # noqa: S608

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


def _text(column: str, kind: str) -> str:
    if kind in BYTES:
        return f"LOWER(HEX({column}))"
    if kind in NUMBERS_SENT:
        return f"BIN({column})"
    if kind == "decimal":  # 22.0000 is 22, also as a part of a key
        text = f"CAST({column} AS CHAR)"
        trimmed = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
        return f"CONVERT(IF(LOCATE('.', {text}), {trimmed}, {text}) USING utf8mb4)"
    if kind == "float":
        column = f"CAST({column} AS DOUBLE)"  # a float's own text has six digits
    return f"CONVERT(CAST({column} AS CHAR) USING utf8mb4)"
