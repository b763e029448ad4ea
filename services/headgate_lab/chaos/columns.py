"""Columns that the source's tables get during a campaign, and that become wider: the feed has to do the same.

A statement, the triggers that capture the table's changes and what writers write change together, as a deployment of
an application does it: from one transaction on the events have the new column.
"""

from random import Random
from threading import Lock
from typing import Final

import msgspec
from psycopg.sql import SQL

from headgate_lab.chaos.capture import capture_columns
from headgate_lab.demo.load import ShopLoad
from headgate_lab.demo.schema import TABLES, Make, ShopColumn, ShopTable, with_altered
from headgate_lab.embedded.clients import postgres_client

__all__ = ["SourceColumns"]

ADDED_MAX: Final = 3
"""In one table: each costs every later event some bytes, and the comparison a column."""

_TEXTS: Final = ("", "neu", "Größe", "新しい", "a\\b")


def _number(bits: int) -> Make:
    return lambda random, _serial: random.randint(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _word(random: Random, _serial: int) -> str:
    return random.choice(_TEXTS)


_ADDED: Final[tuple[tuple[str, Make], ...]] = (
    ("integer", _number(32)),
    ("integer NOT NULL DEFAULT 7", _number(32)),
    ("text", _word),
    ("text DEFAULT 'vörher'", _word),
    ("boolean", lambda random, _serial: random.random() < 0.5),
)
"""Types whose events and whose columns in either database the campaign knows, with and without values of old rows."""

_WIDER: Final = {"integer": "bigint"}


class SourceColumns:
    """The source's tables as they are by now, and statements about them. May be used from any thread."""

    def __init__(self, source_dsn: str, load: ShopLoad) -> None:
        self._dsn = source_dsn
        self._load = load
        self._mutex = Lock()
        self.tables: tuple[ShopTable, ...] = TABLES

    def alter(self, random: Random) -> str | None:
        """Add a column to a table drawn, or widen one that was added; the statement, None if the table has enough."""
        with self._mutex:
            table = random.choice(self.tables)
            added = table.columns[len(_before(table).columns) :]
            narrow = [column for column in added if column.sql_type.split()[0] in _WIDER]
            if narrow and random.random() < 0.5:
                return self._widen(table, random.choice(narrow))
            if len(added) < ADDED_MAX:
                return self._add(table, random, len(added) + 1)
            return None

    def _add(self, table: ShopTable, random: Random, number: int) -> str:
        sql_type, make = random.choice(_ADDED)
        column = ShopColumn(f"added_{number}", sql_type, make, share=0.5)
        altered = msgspec.structs.replace(table, columns=(*table.columns, column))
        return self._do(altered, f"ADD COLUMN {column.name} {sql_type}")

    def _widen(self, table: ShopTable, column: ShopColumn) -> str:
        kind, *rest = column.sql_type.split(" ", 1)
        wide = msgspec.structs.replace(column, sql_type=" ".join((_WIDER[kind], *rest)), make=_number(64))
        columns = tuple(wide if one is column else one for one in table.columns)
        return self._do(
            msgspec.structs.replace(table, columns=columns), f"ALTER COLUMN {column.name} TYPE {_WIDER[kind]}"
        )

    def _do(self, altered: ShopTable, action: str) -> str:
        with postgres_client(self._dsn) as source, source.transaction():
            source.execute(SQL("ALTER TABLE {} ").format(altered.identifier) + SQL(action))
            capture_columns(source, altered)
        self.tables = with_altered(self.tables, altered)
        self._load.use(altered)
        return f"ALTER TABLE {altered.full_name} {action}"


def _before(table: ShopTable) -> ShopTable:
    return next(one for one in TABLES if one.name == table.name)
