"""Which owner a migration has at its PostgreSQL: a row that only roles with a right on our own table can write.

Advisory locks and application names are open to every role of a database (ADR 0099). The row contains the last owner,
and sessions count as a migration's only if their role may write the row.
"""

from typing import Final

from headgate.databases.faults import Fault
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.errors import PostgresError, fault_of
from headgate.migration.strategies.contract import DatabaseUnavailableError, SupersededError

__all__ = ["create", "end_sessions", "forget", "is_taken", "take"]

_CREATE_SCHEMA: Final = "CREATE SCHEMA IF NOT EXISTS headgate"
_CREATE_OWNERS: Final = """
CREATE TABLE IF NOT EXISTS headgate.migration_owner (id text PRIMARY KEY, owner_rev bigint NOT NULL,
taken bigint NOT NULL)
"""
_UNIQUE_VIOLATION: Final = "23505"

_ADD: Final = "INSERT INTO headgate.migration_owner VALUES (%s, -1, 0) ON CONFLICT DO NOTHING"
_FIND: Final = "SELECT owner_rev, taken FROM headgate.migration_owner WHERE id = %s"
_TAKE: Final = (
    "UPDATE headgate.migration_owner SET owner_rev = %s, taken = taken + 1 WHERE id = %s AND taken = %s RETURNING taken"
)
_IS_TAKEN: Final = "SELECT 1 FROM headgate.migration_owner WHERE id = %s AND taken = %s"
_FORGET: Final = "DELETE FROM headgate.migration_owner WHERE id = %s"

_SESSIONS: Final = """
SELECT a.pid, r.rolname FROM pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid
WHERE a.application_name = %s AND a.datname = current_database() AND a.pid <> pg_backend_pid()
AND has_table_privilege(r.oid, 'headgate.migration_owner', 'UPDATE') ORDER BY a.pid
"""
_END: Final = "SELECT pg_terminate_backend(%s, 5000)"


def take(session: BoundedConnection, name: str, migration: str, owner_rev: int) -> int:
    """End the sessions of earlier owners and write the row; the number of this taking over.

    No lock is held between statements, so an owner that is frozen in the middle blocks no other. Of two owners that
    take over at once one writes the row, and ends what the other has opened by then. Raises SupersededError,
    DatabaseUnavailableError.
    """
    create(session, _CREATE_SCHEMA)
    create(session, _CREATE_OWNERS)
    session.execute(_ADD, (migration,))
    ((last_rev, seen),) = session.execute(_FIND, (migration,)).fetchall()
    if last_rev > owner_rev:
        raise SupersededError(f"owner {last_rev} has the migration")
    end_sessions(session, name)
    written = session.execute(_TAKE, (owner_rev, migration, seen)).fetchone()
    if written is None:
        raise DatabaseUnavailableError("another owner takes the migration over at this moment")
    end_sessions(session, name)
    return int(written[0])


def is_taken(session: BoundedConnection, migration: str, number: int) -> bool:
    """Whether that taking over is the last one."""
    return session.execute(_IS_TAKEN, (migration, number)).fetchone() is not None


def forget(session: BoundedConnection, migration: str) -> None:
    """Delete the row: nothing of the migration is left."""
    session.execute(_FORGET, (migration,))


def end_sessions(session: BoundedConnection, name: str) -> None:
    """End every other session of that application name whose role may write the row.

    Raises DatabaseUnavailableError for one that does not end.
    """
    for pid, _ in session.execute(_SESSIONS, (name,)).fetchall():
        try:
            session.execute(_END, (pid,))
        except PostgresError as error:
            if fault_of(error) is not Fault.PERMISSION:
                raise
    if left := session.execute(_SESSIONS, (name,)).fetchall():
        who = ", ".join(f"pid {pid} (user {user})" for pid, user in left)
        raise DatabaseUnavailableError(
            f"sessions of an earlier owner of this migration do not end: {who}. End them with pg_terminate_backend, or "
            "GRANT pg_signal_backend to the migrations' user"
        )


def create(session: BoundedConnection, statement: str) -> None:
    """Run a CREATE … IF NOT EXISTS. Of two sessions that do so at once the later one finds the name taken after all."""
    try:
        session.execute(statement)
    except PostgresError as error:
        if error.sqlstate != _UNIQUE_VIOLATION:
            raise
