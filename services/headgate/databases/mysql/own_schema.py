"""The database ``headgate`` of a MySQL or MariaDB server (see databases/own_schema.py)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pymysql

from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.mysql.errors import message
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.databases.own_schema import LOCK_SECONDS, Contents, contents_now, refuse_others

__all__ = ["opened_mysql"]

_EXISTS: Final = "SELECT 1 FROM information_schema.schemata WHERE schema_name = 'headgate'"
_TABLES: Final = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'headgate'"


class MysqlOwnSchema:
    """See OwnSchema."""

    def __init__(self, session: MysqlSession, cluster_id: str, mark: str) -> None:
        self._session = session
        self._cluster_id = cluster_id
        self._mark = mark

    def read(self) -> Contents:
        """See OwnSchema."""
        with _translated("read"):
            return self._read()

    def drop(self) -> None:
        """See OwnSchema. Statements that drop commit, so the tables are locked until they are gone.

        The database itself is dropped last, and only once it is empty.
        """
        with _translated("dropped"):
            tables = self._read().tables
            if tables:
                self._session.execute(f"LOCK TABLES {', '.join(f'headgate.{table} WRITE' for table in tables)}")
                try:
                    refuse_others(self._read())
                    self._session.execute(f"DROP TABLE {', '.join(f'headgate.{table}' for table in tables)}")
                finally:
                    self._session.execute("UNLOCK TABLES")
            refuse_others(self._read())
            self._session.execute("DROP DATABASE headgate")

    def _read(self) -> Contents:
        return contents_now(self._session.execute, _EXISTS, _TABLES, self._cluster_id, self._mark)


@contextmanager
def opened_mysql(target: Target, cluster_id: str, mark: str) -> Iterator[MysqlOwnSchema]:
    """The database at that server, for as long as the block lasts. Raises DatabaseError."""
    settings = (f"SET SESSION lock_wait_timeout = {LOCK_SECONDS}",)
    with open_session(target, MysqlSession, settings=settings) as session:
        yield MysqlOwnSchema(session, cluster_id, mark)


@contextmanager
def _translated(done: str) -> Iterator[None]:
    try:
        yield
    except pymysql.Error as error:
        raise DatabaseRefusedError(f"database headgate cannot be {done}: {message(error)}") from error
