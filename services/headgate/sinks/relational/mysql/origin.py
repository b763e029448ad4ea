"""The identity of a MySQL or MariaDB, and which of its tables have their changes captured.

Both are asked before a feed is accepted: two addresses may name one server, and a feed must not write into the very
tables its changes come from, where each would come back as a new one, without end.
"""

from collections.abc import Sequence
from typing import Final

from headgate.databases.mysql.errors import MysqlError, errno
from headgate.databases.mysql.session import MysqlSession
from headgate.records.identifiers import show_identifier
from headgate.sinks.relational.mysql.catalog import load_table
from headgate.sinks.relational.mysql.connection import MysqlSinkSession

__all__ = ["read_own_id", "read_published"]

_UNKNOWN_VARIABLE: Final = 1193
_READS_THE_LOG: Final = "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"


def read_own_id(session: MysqlSession) -> str | None:
    """Server and the address's database, by which bare table names are found; None from servers without identity."""
    try:
        ((server,),) = session.execute(f"SELECT @@{'server_uid' if session.is_mariadb else 'server_uuid'}")
    except MysqlError as error:
        if errno(error) != _UNKNOWN_VARIABLE:  # MariaDB has one since 10.5.26 and 10.11.9
            raise
        return None
    ((database,),) = session.execute("SELECT DATABASE()")
    return f"mysql/{server}/{database or ''}"


def read_published(session: MysqlSinkSession, database: str, tables: Sequence[str]) -> list[str]:
    """Those of ``tables`` that are in ``database``, as its events name them, if a client reads the server's log.

    Another user's reader is seen only with the PROCESS privilege.
    """
    ((readers,),) = session.execute(_READS_THE_LOG)
    if not readers:
        return []
    found = [load_table(session, name, keyless=True) for name in tables]
    return sorted({show_identifier([table.relation]) for table in found if table.schema == database})
