"""The databases that rows can be copied from."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from headgate.databases.address import Target
from headgate.databases.kinds import kind_of
from headgate.databases.mysql.row_source import open_rows as open_mysql
from headgate.databases.postgresql.row_source import open_rows as open_postgresql
from headgate.databases.row_source import RowSource

__all__ = ["connector_of", "open_row_source"]

_SOURCES: Final[dict[str, Callable[[Target], AbstractContextManager[RowSource]]]] = {
    "postgresql": open_postgresql,
    "mysql": open_mysql,
}


def open_row_source(target: Target) -> AbstractContextManager[RowSource]:
    """The database's rows, for as long as the block lasts. Raises DatabaseError, RowSourceError."""
    return _SOURCES[connector_of(target)](target)


def connector_of(target: Target) -> str:
    """What change events call a database of that kind. Raises DatabaseError."""
    return kind_of(target.dsn, target.options).name
