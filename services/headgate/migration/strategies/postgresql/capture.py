"""Whether a table of PostgreSQL can be changed by strategy online: all changes of its rows are published.

The cut-over asks the server for the table's last changes by one of its publications, and a connector sends those of
the publication that it reads. Which one that is, is not known here. So none that has the table may leave changes out:
they would be missing in the copy if they came last, or on the topic at any time. Whether a connector reads one at all
is not asked here: a mark shows it, once the migration runs.
"""

from collections.abc import Sequence
from typing import Final

from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.publications import publications_of
from headgate.databases.postgresql.session import PostgresSession
from headgate.migration.strategies.contract import DescribedTable, RefusedError

__all__ = ["check_capture", "check_published", "pick_publication"]

# What names a row in the event of its update or deletion: the primary key (d), an index (i), or the whole row (f).
_IDENTITY: Final = """
SELECT CASE WHEN relreplident = 'i' AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisreplident)
THEN 'n' ELSE relreplident::text END FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE nspname = %s AND relname = %s
"""


def check_capture(session: BoundedConnection, table: DescribedTable, markable: Sequence[str]) -> str:
    """See ``pick_publication``. RefusedError: changes name no row, as well.

    ``markable``: columns that can be updated.
    """
    where = f"table {table.schema}.{table.name}"
    name = pick_publication(session, table)
    if not markable:
        raise RefusedError(f"{where} has no column that can be updated, so no mark can be set: use strategy direct")
    found = session.execute(_IDENTITY, (table.schema, table.name)).fetchone()
    kind = "n" if found is None else found[0]
    if kind == "n" or (kind == "d" and not table.primary):
        lacks = "" if table.primary else "no primary key, and "
        wanted = "DEFAULT" if table.primary else f"USING INDEX {next(iter(table.keys), '…')}"
        raise RefusedError(
            f"{where} has {lacks}a replica identity that names no row, so changes of its rows cannot be followed: "
            f"ALTER TABLE … REPLICA IDENTITY {wanted}, or FULL"
        )
    return name


def pick_publication(session: BoundedConnection, table: DescribedTable) -> str:
    """A publication that has the table. RefusedError: there is none, or one of them leaves changes out."""
    published = _published(session, table)
    if not published:
        raise RefusedError(
            f"table {table.schema}.{table.name} is in no publication, so no connector captures its changes: capture it "
            "with Debezium (plugin.name=pgoutput), or use strategy direct"
        )
    return published[0]


def check_published(session: BoundedConnection, table: DescribedTable, publication: str) -> None:
    """Raise RefusedError unless the publication still has all changes of the table, and no other leaves some out."""
    if publication not in _published(session, table):
        raise RefusedError(
            f"table {table.schema}.{table.name} was taken out of publication {publication} during the cut-over, so its "
            "last changes cannot be seen. The table is untouched: submit the change again"
        )


def _published(session: BoundedConnection, table: DescribedTable) -> list[str]:
    """Publications that have the table. RefusedError: one of them leaves changes out."""
    ask, version = PostgresSession(session).execute, session.info.server_version
    found = publications_of(ask, version, table.schema, table.name)
    for name, lacks in found:
        if lacks:
            raise RefusedError(
                f"table {table.schema}.{table.name}: publication {name} leaves out {lacks}. If the connector reads it, "
                "changes are missing on the topic, and the copy would lack them. Make it publish all changes, take "
                "the table out of it, or use strategy direct"
            )
    return [name for name, _ in found]
