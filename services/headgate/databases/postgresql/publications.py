"""Which tables a PostgreSQL's publications have: three questions, each asked in the way that its place needs.

- Of one table, while clients wait for its lock: ``publications_of`` reads the catalogue by the table's number. The
  server's view pg_publication_tables expands every publication to all of its tables, which takes long where there are
  many tables.
- Of some tables, before their rows are copied: ``published_whole`` and ``published_among``, by the view. It knows
  publications of whole schemas, column lists and publish_via_partition_root, whatever the version.
- Of all tables, at servers from version 10 on: ``published_tables``, by the view and by what it leaves out.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from headgate.databases.catalogue import Ask

__all__ = [
    "has_parts",
    "publications_of",
    "published_among",
    "published_parts",
    "published_tables",
    "published_whole",
]

_PARTS_SINCE: Final = 150_000
"""The first version whose publications may have columns and rows of a table, or all tables of a schema."""

# The rows that a publication names for a table do not matter if it has the table's schema as well.
_OF_TABLE: Final = """
SELECT p.pubname::text, concat_ws(', ', CASE WHEN NOT p.pubinsert THEN 'insert' END,
  CASE WHEN NOT p.pubupdate THEN 'update' END, CASE WHEN NOT p.pubdelete THEN 'delete' END,
  CASE WHEN {rows} IS NOT NULL AND NOT p.puballtables AND NOT {in_schema} THEN 'rows (it has a WHERE)' END)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN pg_publication p
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
WHERE n.nspname = %s AND c.relname = %s AND c.relpersistence = 'p'
AND (p.puballtables OR r.oid IS NOT NULL OR {in_schema}) ORDER BY p.pubname
"""

_IN_SCHEMA: Final = "EXISTS (SELECT FROM pg_publication_namespace WHERE pnpubid = p.oid AND pnnspid = c.relnamespace)"
"""Whether publication ``p`` has the schema of table ``c``."""

# A publication lists a partitioned table or its partitions, by publish_via_partition_root; so may the feed's topics.
_WHOLE: Final = """
SELECT c.oid FROM pg_class c WHERE c.oid = ANY (%s) AND EXISTS (
  SELECT FROM pg_publication p
  JOIN pg_publication_tables t ON t.pubname = p.pubname
  JOIN pg_namespace n ON n.nspname = t.schemaname
  JOIN pg_class r ON r.relnamespace = n.oid AND r.relname = t.tablename
  WHERE p.pubinsert AND p.pubupdate AND p.pubdelete
    AND (r.oid = c.oid OR r.oid IN (SELECT relid FROM pg_partition_tree(c.oid))
         OR c.oid IN (SELECT relid FROM pg_partition_tree(r.oid))))
"""

_AMONG: Final = """
SELECT DISTINCT t.schema, t.name FROM unnest(%s::text[], %s::text[]) AS t (schema, name)
JOIN pg_publication_tables p ON p.schemaname = t.schema AND p.tablename = t.name ORDER BY t.schema, t.name
"""

# A partitioned table that is published by its partitions is in the second part only. Filters are converted through
# JSON, because older versions do not have the column.
_TABLES: Final = """
SELECT pubname, schemaname, tablename, to_jsonb(t) ->> 'rowfilter' IS NOT NULL FROM pg_publication_tables t
UNION
SELECT p.pubname, n.nspname, c.relname, false FROM pg_publication_rel r
JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_class c ON c.oid = r.prrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
"""

_PARTITIONED_OF_SCHEMAS: Final = """
SELECT p.pubname, n.nspname, c.relname, false FROM pg_publication_namespace s
JOIN pg_publication p ON p.oid = s.pnpubid JOIN pg_namespace n ON n.oid = s.pnnspid
JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind = 'p'
"""


def has_parts(version: int) -> bool:
    """Whether publications may have parts of tables, and whole schemas, in that version (server_version_num)."""
    return version >= _PARTS_SINCE


def published_parts(version: int) -> tuple[str, str]:
    """Expressions of pg_publication_rel ``r``: numbers of the columns that are published, and which rows are."""
    if has_parts(version):
        return "r.prattrs::int2[]", "pg_get_expr(r.prqual, r.prrelid)"
    return "ARRAY[]::int2[]", "NULL"


def publications_of(ask: Ask, version: int, schema: str, table: str) -> list[tuple[str, str]]:
    """Publications that have a table, by name, each with what it leaves out of its changes; empty if nothing."""
    _, rows = published_parts(version)
    query = _OF_TABLE.replace("{rows}", rows).replace("{in_schema}", _IN_SCHEMA if has_parts(version) else "false")
    return [(str(name), str(lacks)) for name, lacks in ask(query, (schema, table))]


def published_whole(ask: Ask, numbers: Iterable[object]) -> set[object]:
    """The numbers of the tables whose inserts, updates and deletes a publication has."""
    return {number for (number,) in ask(_WHOLE, ([*numbers],))}


def published_among(ask: Ask, tables: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of the tables (schema, name) that any publication has."""
    schemas, names = ([table[part] for table in tables] for part in (0, 1))
    return [(str(schema), str(name)) for schema, name in ask(_AMONG, (schemas, names))]


def published_tables(ask: Ask, version: int) -> list[tuple[str, str, str, bool]]:
    """Publication, schema, table, and whether only some of the rows are published."""
    queries = (_TABLES, _PARTITIONED_OF_SCHEMAS) if has_parts(version) else (_TABLES,)
    return [
        (str(name), str(schema), str(table), bool(is_part))
        for query in queries
        for name, schema, table, is_part in ask(query, ())
    ]
