"""The identity of a PostgreSQL, and the tables that it publishes.

Both are asked before a feed is accepted: two addresses may name one database, and a feed must not write into the very
tables its changes come from, where each would come back as a new one, without end.
"""

from collections.abc import Sequence
from typing import Final

from headgate.databases.faults import Fault
from headgate.databases.postgresql.errors import PostgresError, fault_of
from headgate.databases.postgresql.publications import published_among
from headgate.databases.postgresql.session import PostgresSession
from headgate.records.identifiers import show_identifier
from headgate.sinks.relational.postgresql.catalog import load_table
from headgate.sinks.relational.postgresql.connection import PostgresSinkSession

__all__ = ["read_own_id", "read_published"]

_OWN_ID: Final = """
SELECT format('postgresql/%s/%s/%s', s.system_identifier, c.timeline_id, d.oid)
FROM pg_control_system() s, pg_control_checkpoint() c, pg_database d WHERE d.datname = current_database()
"""

_IS_READ: Final = """
SELECT current_database() = %s
  AND EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'logical' AND database = current_database())
"""


def read_own_id(session: PostgresSession) -> str | None:
    """Cluster, timeline and database; None where the server keeps it to its administrators."""
    try:
        ((own_id,),) = session.execute(_OWN_ID)
    except PostgresError as error:
        if fault_of(error) is not Fault.PERMISSION:
            raise
        return None
    return str(own_id)


def read_published(session: PostgresSinkSession, database: str, tables: Sequence[str]) -> list[str]:
    """Those of ``tables`` whose changes a client may be reading, if this is ``database``, named as their events do."""
    # What is published has nothing to do with keys: whether a table may do without one is decided elsewhere.
    found = [load_table(session, table, keyless=True) for table in tables]
    ((is_read,),) = session.execute(_IS_READ, (database,))
    if not is_read:
        return []
    among = published_among(session.execute, [(table.schema, table.relation) for table in found])
    return [show_identifier(table) for table in among]
