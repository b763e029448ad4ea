"""Whether a table of PostgreSQL can be changed by strategy online: all changes of its rows are published.

The cut-over asks the server for the table's last changes by one of its publications. One that leaves changes out would
hide them: they would be missing in the copy if they came last. Whether a connector reads a publication is not asked
here: a mark shows it, once the migration runs.
"""

from collections.abc import Sequence
from typing import Final

from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.migration.strategies.contract import RefusedError, Table
from headgate.migration.strategies.postgresql.handover import published_parts

__all__ = ["check_capture", "check_published"]

# Those that publish every change of every row come first. The columns that one publishes do not matter here.
_PUBLICATIONS: Final = """
SELECT pubname, lacks FROM (SELECT p.pubname, concat_ws(', ', CASE WHEN NOT p.pubinsert THEN 'insert' END,
  CASE WHEN NOT p.pubupdate THEN 'update' END, CASE WHEN NOT p.pubdelete THEN 'delete' END,
  'rows that are not (' || {rows} || ')') AS lacks
FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname
JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
WHERE t.schemaname = %s AND t.tablename = %s) found ORDER BY lacks <> '', pubname
"""

# What names a row in the event of its update or deletion: the primary key (d), an index (i), or the whole row (f).
_IDENTITY: Final = """
SELECT CASE WHEN relreplident = 'i' AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisreplident)
THEN 'n' ELSE relreplident::text END FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE nspname = %s AND relname = %s
"""


def check_capture(session: BoundedConnection, table: Table, markable: Sequence[str]) -> str:
    """A publication that has all changes of the table. RefusedError: there is none, or changes name no row.

    ``markable``: columns that can be updated.
    """
    where = f"table {table.schema}.{table.name}"
    if not (published := _published(session, table)):
        raise RefusedError(
            f"{where} is in no publication, so no connector captures its changes: capture it with Debezium "
            "(plugin.name=pgoutput), or use strategy direct"
        )
    name, lacks = next(iter(published.items()))
    if lacks:
        raise _partial(table, name, lacks)
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


def check_published(session: BoundedConnection, table: Table, publication: str) -> None:
    """Raise RefusedError unless the publication has all changes of the table, now that clients wait."""
    if lacks := _published(session, table).get(publication, "all of it"):
        raise _partial(table, publication, lacks)


def _published(session: BoundedConnection, table: Table) -> dict[str, str]:
    """Publications that have the table → which of its changes they leave out."""
    _, rows = published_parts(session)
    query = _PUBLICATIONS.replace("{rows}", rows)
    return {str(name): str(lacks) for name, lacks in session.execute(query, (table.schema, table.name))}


def _partial(table: Table, name: str, lacks: str) -> RefusedError:
    return RefusedError(
        f"table {table.schema}.{table.name}: publication {name} leaves out {lacks}, so the last changes before a "
        "cut-over could not be seen. Put the table into a publication of all its changes, or use strategy direct"
    )
