"""The schema ``headgate`` of a PostgreSQL (see databases/own_schema.py)."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.own_schema import LOCK_SECONDS, Contents, SchemaInUseError, contents_now, refuse_others
from headgate.databases.postgresql.errors import PostgresError, message
from headgate.databases.postgresql.progress import HOLD_SCHEMA
from headgate.databases.postgresql.session import PostgresSession, open_connection

__all__ = ["opened_postgresql"]

_EXISTS: Final = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'headgate'"

_RELATIONS: Final = """
SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace('headgate')
AND relkind NOT IN ('i', 'I', 't', 'c')
"""

_NOT_EMPTY: Final = "2BP01"


class PostgresOwnSchema:
    """See OwnSchema."""

    def __init__(self, session: PostgresSession, cluster_id: str, mark: str) -> None:
        self._session = session
        self._cluster_id = cluster_id
        self._mark = mark

    def read(self) -> Contents:
        """See OwnSchema."""
        with _translated("read"):
            return self._read()

    def drop(self) -> None:
        """See OwnSchema. In one transaction, and under locks for which claims of other clusters wait."""
        with _translated("dropped"), self._session.transaction():
            self._session.execute(HOLD_SCHEMA)
            tables = self._read().tables
            for table in tables:
                self._session.execute(f"LOCK TABLE headgate.{table} IN ACCESS EXCLUSIVE MODE")
            refuse_others(self._read())
            for table in tables:
                self._session.execute(f"DROP TABLE headgate.{table}")
            self._session.execute("DROP SCHEMA headgate")

    def _read(self) -> Contents:
        return contents_now(self._session.execute, _EXISTS, _RELATIONS, self._cluster_id, self._mark)


@contextmanager
def opened_postgresql(target: Target, cluster_id: str, mark: str) -> Iterator[PostgresOwnSchema]:
    """The schema at that database, for as long as the block lasts. Raises DatabaseError."""
    connection = open_connection(target, application_name="headgate", lock_seconds=LOCK_SECONDS)
    with closing(PostgresSession(connection)) as session:
        yield PostgresOwnSchema(session, cluster_id, mark)


@contextmanager
def _translated(done: str) -> Iterator[None]:
    try:
        yield
    except PostgresError as error:
        if error.sqlstate == _NOT_EMPTY:
            raise SchemaInUseError(f"it is used by what Headgate did not make: {message(error)}") from error
        raise DatabaseRefusedError(f"schema headgate cannot be {done}: {message(error)}") from error
