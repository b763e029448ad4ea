"""A MySQL or MariaDB as one side of a comparison: rows as its own text, in one snapshot."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

from headgate.records.identifiers import split_table
from headgate.sinks.relational.mysql.connection import MysqlSession, quoted
from headgate.sinks.relational.mysql.values import BYTES, NUMBERS_SENT
from headgate.verify.comparing import Nature, Row, Shape

__all__ = ["MysqlSide"]

_COLUMNS: Final = """
SELECT c.column_name, LOWER(c.data_type), k.constraint_name IS NOT NULL
FROM information_schema.columns c
LEFT JOIN information_schema.check_constraints k
    ON k.constraint_schema = c.table_schema AND k.table_name = c.table_name AND k.constraint_name = c.column_name
    AND k.check_clause LIKE 'json_valid%%'
WHERE c.table_schema = COALESCE(%s, DATABASE()) AND c.table_name = %s ORDER BY c.ordinal_position
"""
_COLUMNS_MYSQL: Final = """
SELECT column_name, LOWER(data_type), FALSE FROM information_schema.columns
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s ORDER BY ordinal_position
"""

_KEY: Final = """
SELECT column_name FROM information_schema.statistics
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index
"""

_NATURES: Final = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year"), Nature.NUMBER
    ),
    **dict.fromkeys(("time", "datetime", "timestamp"), Nature.INSTANT),
    "json": Nature.JSON,
}


class MysqlSide:
    """Reads over a session of its own. ``close`` closes it."""

    kind = "mysql"

    def __init__(self, session: MysqlSession) -> None:
        self._session = session
        self._types: dict[str, dict[str, str]] = {}
        session.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SET SESSION TRANSACTION READ ONLY")

    def shape(self, table: str) -> Shape | None:
        """See Side."""
        place = split_table(table)
        # MariaDB's JSON is a text with a check.
        described = self._session.execute(_COLUMNS if self._session.is_mariadb else _COLUMNS_MYSQL, place)
        types = {str(name): "json" if checked else str(kind) for name, kind, checked in described}
        if not types:
            return None
        self._types[table] = types
        key = tuple(str(row[0]) for row in self._session.execute(_KEY, place))
        return Shape({name: _NATURES.get(kind, Nature.OTHER) for name, kind in types.items()}, key)

    def snapshot(self) -> AbstractContextManager[object]:
        """See Side. It begins with the first row read, and nobody writes meanwhile."""
        return self._session.transaction()

    def rows(self, table: str, key: Sequence[str], values: Sequence[str]) -> Iterator[Row]:
        """See Side."""
        texts = {column: _text(quoted(column), self._types[table][column]) for column in (*key, *values)}
        database, relation = split_table(table)
        name = quoted(relation) if database is None else quoted(database, relation)
        order = ", ".join(f"CAST({texts[column]} AS BINARY)" for column in key)
        return self._session.stream(f"SELECT {', '.join(texts.values())} FROM {name} ORDER BY {order}")  # noqa: S608

    def close(self) -> None:
        """See Side."""
        self._session.close()


def _text(column: str, kind: str) -> str:
    if kind in BYTES:
        return f"LOWER(HEX({column}))"
    if kind in NUMBERS_SENT:
        return f"BIN({column})"
    if kind == "float":
        column = f"CAST({column} AS DOUBLE)"  # a float's own text has six digits
    return f"CONVERT(CAST({column} AS CHAR) USING utf8mb4)"
