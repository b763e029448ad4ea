"""Sessions that read the catalogue of a MySQL or MariaDB, and cannot write."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from headgate.databases.address import Target
from headgate.databases.errors import DatabaseUnavailableError
from headgate.databases.mysql.errors import MysqlError, message
from headgate.databases.mysql.session import MysqlSession, open_session

__all__ = ["READ_ONLY", "reading"]

READ_ONLY: Final = "SET SESSION TRANSACTION READ ONLY"


@contextmanager
def reading(target: Target) -> Iterator[MysqlSession]:
    """A session that cannot write. Raises DatabaseError, also for an error of the server inside."""
    with closing(open_session(target, MysqlSession, settings=(READ_ONLY,))) as session:
        try:
            yield session
        except MysqlError as error:
            raise DatabaseUnavailableError(
                f"the {target.options.place} did not answer a query of its catalogue: {message(error)}"
            ) from error
