"""Which database a session is at: the same however its address is spelled, so that its migrations form one queue."""

from typing import Final

from headgate.databases.postgresql.bounded_connection import BoundedConnection

_MAY_ASK: Final = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_IDENTITY: Final = """
SELECT format('postgresql/%s/%s', s.system_identifier, d.oid)
FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()
"""


def database_id(session: BoundedConnection, address: str) -> str:
    """Cluster and database. Without the timeline: a standby that was promoted has the same tables.

    A server that keeps its identifier to administrators is known by ``address`` alone, as it is normalised.
    """
    ((may_ask,),) = session.execute(_MAY_ASK).fetchall()
    if not may_ask:
        return f"postgresql/at/{address.rpartition('@')[2]}"
    ((found,),) = session.execute(_IDENTITY).fetchall()
    return str(found)
