"""Reads the facts from PostgreSQL's catalogue, in a session that cannot write."""

from collections import defaultdict
from typing import Any, Final

from headgate.capture.postgresql.facts import Partition, PostgresFacts, PostgresTable, Publication, Slot
from headgate.capture.tables import CapturedColumn
from headgate.databases.address import Target
from headgate.databases.postgresql.catalogue import NEEDED
from headgate.databases.postgresql.publications import published_tables
from headgate.databases.postgresql.reading import reading
from headgate.databases.postgresql.replication_right import replication_grant
from headgate.databases.postgresql.session import PostgresSession
from headgate.sinks.relational.postgresql.origin import read_own_id

__all__ = ["read_postgresql"]

_NAME: Final = "headgate source check"
"""What the session is called at the server."""

_SERVER: Final = """
SELECT current_database(), current_user::text, current_setting('server_version_num')::int,
  current_setting('wal_level'), pg_is_in_recovery(),
  current_setting('max_replication_slots')::int, current_setting('max_wal_senders')::int,
  (SELECT count(*) FROM pg_stat_replication)
"""

_SLOTS: Final = """
SELECT slot_name, plugin, database, active, to_jsonb(s) ->> 'wal_status',
  CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint END
FROM pg_replication_slots s ORDER BY slot_name
"""

# Converted through JSON, because older versions do not have some of the columns.
_PUBLICATIONS: Final = """
SELECT pubname, puballtables, pubinsert, pubupdate, pubdelete,
  coalesce((to_jsonb(p) ->> 'pubviaroot')::boolean, false)
FROM pg_publication p ORDER BY pubname
"""

# Of unique indexes over whole columns that are NOT NULL, valid and immediate, the replica identity, else the first.
_TABLES: Final = """
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relreplident, c.relpersistence = 'u',
  has_schema_privilege(n.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),
  ARRAY(SELECT a.attname::text FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
    WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place),
  u.name, u.columns
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
  SELECT x.relname::text AS name,
    ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
      WHERE k.place <= i.indnkeyatts ORDER BY k.place) AS columns
  FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
  WHERE i.indrelid = c.oid AND i.indisunique AND NOT i.indisprimary AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
    AND NOT EXISTS (SELECT FROM unnest(i.indkey::int2[]) AS k (number)
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number WHERE NOT a.attnotnull)
  ORDER BY i.indisreplident DESC, x.relname LIMIT 1
) u ON true
WHERE c.relkind = ANY ('{r,p,v,m,f}') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'headgate')
ORDER BY n.nspname, c.relname
"""

# Partitions that have rows, with the table that they are of.
_PARTITIONS: Final = """
SELECT r.oid, n.nspname, c.relname, c.relreplident, c.relpersistence = 'u' FROM pg_class r
CROSS JOIN LATERAL pg_partition_tree(r.oid) AS t JOIN pg_class c ON c.oid = t.relid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.oid = ANY (%s) AND r.relkind = 'p' AND t.isleaf AND c.relkind = 'r' ORDER BY n.nspname, c.relname
"""
_PARTITIONS_SINCE: Final = 120_000

_COLUMNS: Final = """
SELECT attrelid, attname, format_type(atttypid, atttypmod), false, false FROM pg_attribute
WHERE attrelid = ANY (%s) AND attnum > 0 AND NOT attisdropped ORDER BY attrelid, attnum
"""
_COLUMNS_COMPUTED: Final = f"""
SELECT a.attrelid, a.attname, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '', ({NEEDED}) IS NOT NULL
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY (%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum
"""  # noqa: S608 - a text of our own
_COMPUTED_SINCE: Final = 120_000


def read_postgresql(target: Target) -> PostgresFacts:
    """Everything the rules ask for. Writes nothing. Raises DatabaseError."""
    with reading(target, _NAME) as session:
        return _facts(session)


def _facts(session: PostgresSession) -> PostgresFacts:
    ((database, user, version, level, standby, slots, senders_max, senders),) = session.execute(_SERVER)
    return PostgresFacts(
        database=database,
        user=user,
        version=version,
        wal_level=level,
        is_standby=standby,
        slots_max=slots,
        senders_max=senders_max,
        senders=senders,
        replication_grant=replication_grant(session.connection),
        slots=tuple(Slot(*row) for row in session.execute(_SLOTS)),
        publications=_publications(session, version),
        tables=_tables(session, version),
        own_id=read_own_id(session),
    )


def _publications(session: PostgresSession, version: int) -> tuple[Publication, ...]:
    published: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    filtered: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for name, schema, table, has_filter in published_tables(session.execute, version):
        published[name].add((schema, table))
        if has_filter:
            filtered[name].add((schema, table))
    return tuple(
        Publication(
            name,
            all_tables,
            frozenset(word for word, is_in in (("insert", insert), ("update", update), ("delete", delete)) if is_in),
            via_root,
            frozenset(published[name]),
            frozenset(filtered[name]),
        )
        for name, all_tables, insert, update, delete, via_root in session.execute(_PUBLICATIONS)
    )


def _tables(session: PostgresSession, version: int) -> tuple[PostgresTable, ...]:
    rows: list[tuple[Any, ...]] = session.execute(_TABLES)
    columns: defaultdict[int, list[CapturedColumn]] = defaultdict(list)
    statement = _COLUMNS if version < _COMPUTED_SINCE else _COLUMNS_COMPUTED
    for oid, *column in session.execute(statement, ([row[0] for row in rows],)):
        columns[oid].append(CapturedColumn(*column))
    partitions: defaultdict[int, list[Partition]] = defaultdict(list)
    if version >= _PARTITIONS_SINCE:
        for oid, *partition in session.execute(_PARTITIONS, ([row[0] for row in rows],)):
            partitions[oid].append(Partition(*partition))
    return tuple(
        PostgresTable(
            schema=schema,
            table=table,
            columns=tuple(columns[oid]),
            key=tuple(key),
            unique_index=index,
            unique_columns=tuple(index_columns or ()),
            kind=kind,
            identity=identity,
            is_unlogged=unlogged,
            partitions=tuple(partitions[oid]),
            may_use_schema=usage,
            may_select=usage and select,
        )
        for oid, schema, table, kind, identity, unlogged, usage, select, key, index, index_columns in rows
    )
