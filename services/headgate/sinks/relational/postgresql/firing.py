"""Which of a table's triggers and rules fire on the sink's writes: they may change rows, or write elsewhere."""

from typing import Final

from headgate.sinks.relational.postgresql.catalog import PostgresSinkColumn
from headgate.sinks.relational.postgresql.connection import PostgresSinkSession
from headgate.sinks.relational.table import RelationalTable

__all__ = ["firing"]

# "tgenabled" and "ev_enabled": O fires unless the session is a replica, R only then, A always, D never. Constraints'
# own triggers are internal. Triggers of a partition may be its own; those cloned from the parent have its name.
_FIRING: Final = """
WITH RECURSIVE target AS (
    SELECT c.oid FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    WHERE n.nspname OPERATOR(pg_catalog.=) %(schema)s::pg_catalog.name
      AND c.relname OPERATOR(pg_catalog.=) %(relation)s::pg_catalog.name
), written AS (
    SELECT oid FROM target
  UNION
    SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN written w ON i.inhparent OPERATOR(pg_catalog.=) w.oid
    JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.inhrelid
    WHERE c.relispartition
), found AS (
    SELECT 'trigger ' AS kind, t.tgname AS name, t.tgenabled AS enabled
    FROM pg_catalog.pg_trigger t JOIN written w ON t.tgrelid OPERATOR(pg_catalog.=) w.oid WHERE NOT t.tgisinternal
  UNION
    SELECT 'rule ', r.rulename, r.ev_enabled
    FROM pg_catalog.pg_rewrite r JOIN written w ON r.ev_class OPERATOR(pg_catalog.=) w.oid
)
SELECT DISTINCT kind, name FROM found
WHERE enabled::pg_catalog.text OPERATOR(pg_catalog.=) ANY (
    CASE pg_catalog.current_setting('session_replication_role') WHEN 'replica' THEN ARRAY['A', 'R']
    ELSE ARRAY['A', 'O'] END)
ORDER BY kind DESC, name
"""


def firing(session: PostgresSinkSession, table: RelationalTable[PostgresSinkColumn]) -> tuple[str, ...]:
    """Each as ``trigger NAME`` or ``rule NAME``, as this session would fire them."""
    rows = session.execute(_FIRING, {"schema": table.schema, "relation": table.relation})
    return tuple(f"{kind}{name}" for kind, name in rows)
