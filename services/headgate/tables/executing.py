"""Statements that create or alter tables of a sink, executed in a session of their own: the one place that does.

PostgreSQL executes all of them in one transaction, MySQL and MariaDB each by itself.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from headgate.databases.address import Target
from headgate.databases.mysql.errors import MysqlError
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.databases.postgresql.errors import PostgresError, is_taken
from headgate.databases.postgresql.session import PostgresSession, open_connection
from headgate.sinks.relational.session import as_sink_errors
from headgate.tables.plan import Sink, session_settings

__all__ = ["TRIES", "TakenError", "execute_at_mysql", "execute_at_postgresql"]

TRIES: Final = 5
"""Others may create or alter the same schema, enum or table at the same moment. One of them succeeds each time."""

LOCK_SECONDS: Final = 10
"""A statement waits that long for another session that drops the schema, or creates or alters the table."""


class TakenError(Exception):
    """Another session has done the same at the same time."""


def execute_at_postgresql(
    target: Target, statements: Sequence[str], sink: Sink, refused: Callable[[PostgresError], Exception]
) -> None:
    """Execute all of them, or none. Raises TakenError, SinkError, and what ``refused`` makes of another error."""
    with as_sink_errors():
        connection = open_connection(target, application_name="headgate tables", lock_seconds=LOCK_SECONDS)
    with closing(PostgresSession(connection)) as session:
        try:
            for setting in session_settings(sink.product):
                session.execute(setting)
            with session.transaction():
                for statement in statements:
                    session.execute(statement)
        except PostgresError as error:
            if is_taken(error):
                raise TakenError from error
            raise refused(error) from error


def execute_at_mysql(
    target: Target, statements: Sequence[str], sink: Sink, refused: Callable[[MysqlSession, MysqlError], Exception]
) -> None:
    """Execute one after the other. Raises SinkError, and what ``refused`` makes of an error of a statement."""
    waits = f"SET SESSION lock_wait_timeout = {LOCK_SECONDS}"
    with as_sink_errors():
        opened = open_session(target, MysqlSession, settings=(*session_settings(sink.product), waits))
    with closing(opened) as session:
        try:
            for statement in statements:
                session.execute(statement)
        except MysqlError as error:
            raise refused(session, error) from error
