"""Whether a session's user may open replication slots, asked of the server.

The attribute REPLICATION gives the right, and so does being a superuser. Some managed servers also give it by
membership in a role of their own, which neither sets the attribute nor shows in any catalogue. So for a user without
the attribute it is tried: the server checks the right before it searches for the slot to drop.
"""

from typing import Final

from headgate.databases.postgresql.bounded_connection import BoundedConnection

__all__ = ["replication_grant"]

_HAS_ATTRIBUTE: Final = "SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user"

_TRY: Final = """
DO $$ BEGIN
  PERFORM pg_catalog.set_config('headgate.may_replicate', 'yes', true);
  BEGIN
    PERFORM pg_catalog.pg_drop_replication_slot('No Slot Of Headgate');
  EXCEPTION
    WHEN insufficient_privilege THEN PERFORM pg_catalog.set_config('headgate.may_replicate', 'no', true);
    WHEN undefined_object OR object_not_in_prerequisite_state THEN NULL;
  END;
END $$
"""
"""No slot can have this name: names of slots are of lower-case letters, digits and underscores. That the slot does not
exist, or that the server has none, is found behind the check of the right.

The block catches the error, because an error that reaches the session is written to the server's log.
"""

_IS_ALLOWED: Final = "SELECT pg_catalog.current_setting('headgate.may_replicate')"

_GRANT: Final = """
SELECT coalesce(
  (SELECT format('GRANT %I TO %I', rolname, current_user) FROM pg_roles
   WHERE rolname IN ('rds_replication', 'mdb_replication')
   AND NOT pg_has_role(current_user, oid, 'member') ORDER BY rolname LIMIT 1),
  format('ALTER ROLE %I REPLICATION', current_user))
"""
"""The roles of Amazon RDS and Aurora, and of Yandex Cloud, where no user may set the attribute. Cloud SQL and Azure let
their administrators set it.

A member that has no right is at another server, into which the roles of a managed one were copied (pg_dumpall).
"""


def replication_grant(connection: BoundedConnection) -> str | None:
    """The statement that gives the session's user the right to replicate, None if it has the right.

    Changes nothing, and may be asked within a transaction, also one that only reads. Raises PostgresError.
    """
    ((has_attribute,),) = connection.execute(_HAS_ATTRIBUTE).fetchall()
    if has_attribute or _is_allowed(connection):
        return None
    ((grant,),) = connection.execute(_GRANT).fetchall()
    return str(grant)


def _is_allowed(connection: BoundedConnection) -> bool:
    with connection.transaction():
        connection.execute(_TRY)
        ((answer,),) = connection.execute(_IS_ALLOWED).fetchall()
    return bool(answer == "yes")
