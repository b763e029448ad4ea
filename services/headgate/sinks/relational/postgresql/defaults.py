"""Which of a table's columns may be NULL and have a default, as the source's, which a connector may write for NULL."""

from typing import Final

from headgate.sinks.relational.postgresql.catalog import Column
from headgate.sinks.relational.postgresql.connection import PostgresSession
from headgate.sinks.relational.table import Table

__all__ = ["nullable_defaults"]

_DEFAULTS: Final = """
SELECT a.attname FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
WHERE n.nspname OPERATOR(pg_catalog.=) %(schema)s::pg_catalog.name
  AND c.relname OPERATOR(pg_catalog.=) %(relation)s::pg_catalog.name
  AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped AND NOT a.attnotnull
  AND a.atthasdef AND a.attgenerated::pg_catalog.text OPERATOR(pg_catalog.=) ''
ORDER BY a.attnum
"""


def nullable_defaults(session: PostgresSession, table: Table[Column]) -> tuple[str, ...]:
    """The columns' names, in the table's order."""
    rows = session.execute(_DEFAULTS, {"schema": table.schema, "relation": table.relation})
    return tuple(str(name) for (name,) in rows)
