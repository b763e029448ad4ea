"""Which database a session is at: the same however its address is spelled, so that its migrations form one queue."""

from hashlib import sha256
from typing import Final

from headgate.databases.postgresql.bounded_connection import BoundedConnection

_MAY_ASK: Final = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_IDENTITY: Final = """
SELECT format('postgresql/%s/%s', s.system_identifier, d.oid)
FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()
"""

_DIGEST_CHARACTERS: Final = 16
"""Of the address: 64 bits distinguish more databases than exist."""


def database_id(session: BoundedConnection, address: str) -> str:
    """Cluster and database. Without the timeline: a standby that was promoted has the same tables.

    A server that restricts its identifier to administrators shows other users nothing that is its own and lasts, so it
    is known by a digest of ``address`` (a URL). Records of migrations have the identity, and must not contain an
    address.
    """
    ((may_ask,),) = session.execute(_MAY_ASK).fetchall()
    if not may_ask:
        return f"postgresql/at/{address_digest(address)}"
    ((found,),) = session.execute(_IDENTITY).fetchall()
    return str(found)


def address_digest(address: str) -> str:
    """Of hosts, ports and database: neither the user nor an option, such as one of TLS, makes another database."""
    place = address.partition("://")[2].partition("?")[0].rpartition("@")[2]
    return sha256(place.encode()).hexdigest()[:_DIGEST_CHARACTERS]
