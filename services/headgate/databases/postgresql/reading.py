"""Sessions that read a PostgreSQL's catalogue, and cannot write."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from headgate.databases.address import Target
from headgate.databases.errors import DatabaseUnavailableError
from headgate.databases.postgresql.errors import PostgresError, message
from headgate.databases.postgresql.session import PostgresSession, open_connection

__all__ = ["reading"]

_LOCK_SECONDS: Final = 10
"""The catalogue is read without locks that others wait for; this is for a session that holds one on it."""

_READ_ONLY: Final = "SET default_transaction_read_only = on"


@contextmanager
def reading(target: Target, application_name: str) -> Iterator[PostgresSession]:
    """A session that cannot write. Raises DatabaseError, also for an error of the server inside."""
    connection = open_connection(target, application_name=application_name, lock_seconds=_LOCK_SECONDS)
    with closing(PostgresSession(connection)) as session:
        try:
            session.execute(_READ_ONLY)
            yield session
        except PostgresError as error:
            raise DatabaseUnavailableError(
                f"the {target.options.place} did not answer a query of its catalogue: {message(error)}"
            ) from error
