"""What a table is, asked of the server in ways that the product does not use: for comparing it with a twin."""

import re
from collections.abc import Callable
from typing import Any, Final

from headgate.migration.statements.clauses import DialectName

__all__ = ["Ask", "outcome_of"]

_COPY: Final = re.compile(r"_hg[0-9a-f]{8}(_old)?$")
"""Names of tables that a migration leaves for a while; they are left out."""

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Runs a query in a session whose default schema is the tables' own."""

_POSTGRESQL: Final = """
SELECT column_name, data_type, character_maximum_length, numeric_precision, numeric_scale, datetime_precision,
  column_default, is_nullable, collation_name, is_identity, identity_generation, identity_increment, is_generated,
  generation_expression
FROM information_schema.columns WHERE table_schema = '{schema}' AND table_name = '{table}' ORDER BY ordinal_position;
SELECT conname, contype, convalidated, condeferrable, condeferred, pg_get_constraintdef(oid)
FROM pg_constraint WHERE conrelid = '{schema}.{table}'::regclass ORDER BY conname;
SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = '{schema}' AND tablename = '{table}' ORDER BY 1;
SELECT relkind, relpersistence, relreplident, relrowsecurity, relforcerowsecurity, pg_get_userbyid(relowner),
  relacl::text, reloptions::text, obj_description(oid)
FROM pg_class WHERE oid = '{schema}.{table}'::regclass;
SELECT attname, attstorage, attcompression, coalesce(attstattarget, -1), attoptions::text, attacl::text
FROM pg_attribute WHERE attrelid = '{schema}.{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY 1;
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = '{schema}.{table}'::regclass AND NOT tgisinternal ORDER BY 1;
SELECT rulename, ev_enabled FROM pg_rewrite WHERE ev_class = '{schema}.{table}'::regclass ORDER BY 1;
SELECT c.relname, i.indisclustered, i.indisreplident, i.indisvalid, i.indisprimary, i.indisunique
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = '{schema}.{table}'::regclass ORDER BY 1;
SELECT pubname FROM pg_publication_tables WHERE schemaname = '{schema}' AND tablename = '{table}' ORDER BY 1;
SELECT c.relname, seqtypid::regtype::text, seqstart, seqincrement, seqmin, seqmax, seqcycle,
  pg_sequence_last_value(seqrelid)
FROM pg_depend d JOIN pg_sequence ON seqrelid = d.objid JOIN pg_class c ON c.oid = seqrelid
WHERE d.refobjid = '{schema}.{table}'::regclass AND d.deptype IN ('a', 'i') ORDER BY 1
"""

_MARIADB: Final = """
SHOW CREATE TABLE {table};
SELECT column_name, ordinal_position, column_default, is_nullable, column_type, character_set_name, collation_name,
  column_key, extra, column_comment, generation_expression
FROM information_schema.columns WHERE table_schema = '{schema}' AND table_name = '{table}' ORDER BY ordinal_position;
SELECT index_name, seq_in_index, column_name, non_unique, collation, sub_part, nullable, index_type, index_comment,
  ignored
FROM information_schema.statistics WHERE table_schema = '{schema}' AND table_name = '{table}' ORDER BY 1, 2;
SELECT constraint_name, check_clause FROM information_schema.check_constraints
WHERE constraint_schema = '{schema}' AND table_name = '{table}' ORDER BY 1;
SELECT constraint_name, referenced_table_name, update_rule, delete_rule
FROM information_schema.referential_constraints WHERE constraint_schema = '{schema}' ORDER BY 1;
SELECT partition_name, partition_method, partition_expression, partition_description
FROM information_schema.partitions WHERE table_schema = '{schema}' AND table_name = '{table}' ORDER BY 1;
SELECT table_type, engine, row_format, table_collation, create_options, table_comment, auto_increment
FROM information_schema.tables WHERE table_schema = '{schema}' AND table_name = '{table}'
"""

_TABLES: Final = "SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}' ORDER BY 1"


def outcome_of(ask: Ask, dialect: DialectName, schema: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every table of the schema: its rows in order, and its catalogue entries without the schema."""
    names = [str(name) for (name,) in ask(_TABLES.format(schema=schema))]
    tables = [name for name in names if not _COPY.search(name)]
    queries = _MARIADB if dialect == "mysql" else _POSTGRESQL
    found: dict[str, list[tuple[Any, ...]]] = {"tables": [(name,) for name in tables]}
    for table in tables:
        found[f"rows of {table}"] = sorted(ask(f"SELECT * FROM {table}"), key=repr)
        for number, query in enumerate(queries.split(";")):
            rows = ask(query.format(schema=schema, table=table))
            found[f"catalogue {number} of {table}"] = [tuple(_plain(value, schema) for value in row) for row in rows]
    return found


def _plain(value: Any, schema: str) -> Any:
    if not isinstance(value, str):
        return value
    for name in (schema, "public"):
        value = value.replace(f"{name}.", "").replace(f"`{name}`.", "")
    return value
