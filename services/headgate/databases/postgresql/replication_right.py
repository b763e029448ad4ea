"""Whether a session's user may open replication slots, asked of the server.

The attribute REPLICATION gives the right, and so does being a superuser. Some managed servers also give it by
membership in a role of their own, which neither sets the attribute nor shows in any catalogue. So for a user without
the attribute it is tried: the server checks the right before it searches for the slot to drop.
"""

from typing import Final

from psycopg import errors

from headgate.databases.postgresql.bounded_connection import BoundedConnection

__all__ = ["replication_grant"]

_HAS_ATTRIBUTE: Final = "SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user"

_TRY: Final = "SELECT pg_drop_replication_slot('No Slot Of Headgate')"
"""No slot can have this name: names of slots are of lower-case letters, digits and underscores."""

_GRANT: Final = """
SELECT coalesce(
  (SELECT format('GRANT %I TO %I', rolname, current_user) FROM pg_roles
   WHERE rolname IN ('rds_replication', 'mdb_replication') ORDER BY rolname LIMIT 1),
  format('ALTER ROLE %I REPLICATION', current_user))
"""
"""The roles of Amazon RDS and Aurora, and of Yandex Cloud, where no user may set the attribute. Cloud SQL and Azure let
their administrators set it."""


def replication_grant(connection: BoundedConnection) -> str | None:
    """The statement that gives the session's user the right to replicate, None if it has the right.

    Changes nothing, and may be asked within a transaction. Raises PostgresError.
    """
    ((has_attribute,),) = connection.execute(_HAS_ATTRIBUTE).fetchall()
    if has_attribute or _is_allowed(connection):
        return None
    ((grant,),) = connection.execute(_GRANT).fetchall()
    return str(grant)


def _is_allowed(connection: BoundedConnection) -> bool:
    try:
        with connection.transaction():
            connection.execute(_TRY)
    except errors.InsufficientPrivilege:
        return False
    except (errors.UndefinedObject, errors.ObjectNotInPrerequisiteState):
        pass  # the slot does not exist, or the server has none: both are found behind the check of the right
    return True
