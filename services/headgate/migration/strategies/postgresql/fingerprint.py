"""A table's facts in PostgreSQL's catalogue. Its own name, and names of its indexes, are not among them."""

from collections.abc import Mapping, Sequence
from typing import Final

from headgate.databases.postgresql import sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.publications import published_parts
from headgate.migration.strategies.contract import DescribedTable, RefusedError
from headgate.migration.strategies.fingerprint import CatalogueFact, Facts, FormChange, check_became, wanted
from headgate.migration.strategies.postgresql.sessions import named

__all__ = [
    "CARRIED",
    "FORMED",
    "SEQUENCE_GRANT",
    "check_changed",
    "check_numbers",
    "facts_of",
    "hanging_on",
    "identities",
    "needing_column",
]

FORMED: Final = frozenset(
    {"columns", "column", "identity", "constraint", "index", "statistics", "storage parameters", "table comment"}
)
"""Aspects that an empty copy has of itself (``server.make_like``), so that a statement may change them there."""

CARRIED: Final = FORMED | {"kind", "tablespace"}
"""Aspects that an empty copy must have of itself: nothing gives them to it later."""

SEQUENCE_GRANT: Final = "sequence grant"
"""A right on the sequence of an identity column. The owner of the sequence is called "its owner"."""

_FACTS: Final = """
SELECT 'columns', '', string_agg(attname, ', ' ORDER BY attnum), '' FROM pg_attribute
WHERE attrelid = %(oid)s AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT 'column', attname, concat_ws(' ', format_type(atttypid, atttypmod),
  CASE WHEN attnotnull THEN 'NOT NULL' END, 'DEFAULT ' || pg_get_expr(adbin, adrelid),
  'IDENTITY ' || nullif(attidentity::text, ''), 'GENERATED ' || nullif(attgenerated::text, ''),
  'COLLATE ' || (SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l
    JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = attcollation),
  'STORAGE ' || attstorage::text, 'COMPRESSION ' || nullif(to_jsonb(a) ->> 'attcompression', ''),
  'STATISTICS ' || nullif(coalesce(attstattarget, -1), -1)::text, 'OPTIONS ' || attoptions::text,
  'COMMENT ' || quote_literal(col_description(attrelid, attnum))), ''
FROM pg_attribute a LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = %(oid)s AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT 'identity', a.attname, concat_ws(' ', seqtypid::regtype, 'START', seqstart, 'INCREMENT', seqincrement,
  'FROM', seqmin, 'TO', seqmax, 'CACHE', seqcache, CASE WHEN seqcycle THEN 'CYCLE' END,
  'COMMENT ' || quote_literal(obj_description(seqrelid, 'pg_class'))), ''
FROM pg_depend d JOIN pg_sequence ON seqrelid = d.objid
JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'i'
AND d.refobjid = %(oid)s
UNION ALL SELECT 'constraint', CASE WHEN contype = 'c' THEN conname::text ELSE '' END,
  concat_ws(' ', pg_get_constraintdef(oid), 'COMMENT ' || quote_literal(obj_description(oid, 'pg_constraint'))), ''
FROM pg_constraint WHERE conrelid = %(oid)s AND contype <> 'n'
UNION ALL SELECT 'index', '', concat_ws(' ', CASE WHEN indisunique THEN 'UNIQUE' END,
  regexp_replace(pg_get_indexdef(indexrelid), '^.*? USING ', ''), CASE WHEN NOT indisvalid THEN 'INVALID' END,
  'STATISTICS ' || (SELECT string_agg(attnum || ' ' || attstattarget, ', ' ORDER BY attnum) FROM pg_attribute
    WHERE attrelid = indexrelid AND attstattarget >= 0),
  'COMMENT ' || quote_literal(obj_description(indexrelid, 'pg_class'))), ''
FROM pg_index WHERE indrelid = %(oid)s
UNION ALL SELECT 'statistics', '', concat_ws(' ', regexp_replace(regexp_replace(pg_get_statisticsobjdef(oid),
  '^CREATE STATISTICS \\S+ ', ''), ' FROM [^)]*$', ''), 'TARGET ' || nullif(coalesce(stxstattarget, -1), -1)::text,
  'SCHEMA ' || (SELECT quote_ident(nspname) FROM pg_namespace n JOIN pg_class c ON c.oid = stxrelid
    WHERE n.oid = stxnamespace AND stxnamespace <> c.relnamespace)), ''
FROM pg_statistic_ext WHERE stxrelid = %(oid)s
UNION ALL SELECT 'statistics owner', stxname, pg_get_userbyid(stxowner), '' FROM pg_statistic_ext
JOIN pg_class c ON c.oid = stxrelid WHERE stxrelid = %(oid)s AND stxowner <> relowner
UNION ALL SELECT 'storage parameters', '', unnest(reloptions), '' FROM pg_class WHERE oid = %(oid)s
UNION ALL SELECT 'storage parameters', 'toast', unnest(t.reloptions), '' FROM pg_class c JOIN pg_class t
  ON t.oid = c.reltoastrelid WHERE c.oid = %(oid)s
UNION ALL SELECT 'table comment', '', obj_description(oid, 'pg_class'), '' FROM pg_class
WHERE oid = %(oid)s AND obj_description(oid, 'pg_class') IS NOT NULL
UNION ALL SELECT 'owner', '', pg_get_userbyid(relowner), '' FROM pg_class WHERE oid = %(oid)s
UNION ALL SELECT 'kind', '', concat_ws(' ', relkind::text, relpersistence::text,
  (SELECT amname FROM pg_am WHERE oid = relam)), '' FROM pg_class WHERE oid = %(oid)s
UNION ALL SELECT 'tablespace', '', spcname, '' FROM pg_class c JOIN pg_tablespace s ON s.oid = c.reltablespace
WHERE c.oid = %(oid)s
UNION ALL SELECT 'grant', CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee) END,
  privilege_type || CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END, ''
FROM pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner))) WHERE oid = %(oid)s
UNION ALL SELECT 'column grant', CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee) END,
  privilege_type || CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END, attname
FROM pg_attribute, aclexplode(attacl) WHERE attrelid = %(oid)s AND NOT attisdropped
UNION ALL SELECT 'sequence grant',
  CASE grantee WHEN 0 THEN 'PUBLIC' WHEN s.relowner THEN 'its owner' ELSE pg_get_userbyid(grantee) END,
  privilege_type || CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END, a.attname
FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid,
  aclexplode(coalesce(s.relacl, acldefault('s', s.relowner)))
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'i'
AND d.refobjid = %(oid)s
UNION ALL SELECT 'row security', '', concat_ws(' ', 'enabled', CASE WHEN relforcerowsecurity THEN 'forced' END), ''
FROM pg_class WHERE oid = %(oid)s AND (relrowsecurity OR relforcerowsecurity)
UNION ALL SELECT 'replica identity', '', concat_ws(' ', relreplident::text, (SELECT i.relname FROM pg_index x
  JOIN pg_class i ON i.oid = x.indexrelid WHERE x.indrelid = c.oid AND x.indisreplident)), ''
FROM pg_class c WHERE oid = %(oid)s
UNION ALL SELECT 'cluster mark', i.relname, '', '' FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indrelid = %(oid)s AND x.indisclustered
UNION ALL SELECT 'publication', p.pubname, coalesce({rows}, ''), '' FROM pg_publication_rel r
JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = %(oid)s
UNION ALL SELECT 'published column', p.pubname, '', a.attname FROM pg_publication_rel r
JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_attribute a ON a.attrelid = r.prrelid AND a.attnum = ANY ({columns})
WHERE r.prrelid = %(oid)s
UNION ALL SELECT 'policy', polname, '', '' FROM pg_policy WHERE polrelid = %(oid)s
UNION ALL SELECT 'rule', rulename, '', '' FROM pg_rewrite WHERE ev_class = %(oid)s
UNION ALL SELECT 'trigger', tgname, tgenabled::text, '' FROM pg_trigger WHERE tgrelid = %(oid)s AND NOT tgisinternal
UNION ALL SELECT 'security label', provider, label, '' FROM pg_seclabel
WHERE classoid = 'pg_class'::regclass AND objoid = %(oid)s
"""

# Whatever refers to the table, its columns or its row type from elsewhere, and would still mean the old table.
_HANGING: Final = """
SELECT DISTINCT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d
WHERE d.deptype IN ('n', 'a') AND ((d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s)
  OR (d.refclassid = 'pg_type'::regclass AND d.refobjid IN (SELECT t.oid FROM pg_type t WHERE t.typrelid = %(oid)s
    UNION SELECT t.typarray FROM pg_type t WHERE t.typrelid = %(oid)s)))
AND CASE d.classid
  WHEN 'pg_attrdef'::regclass THEN NOT EXISTS (SELECT FROM pg_attrdef WHERE oid = d.objid AND adrelid = %(oid)s)
  WHEN 'pg_constraint'::regclass THEN NOT EXISTS (SELECT FROM pg_constraint WHERE oid = d.objid AND
    (conrelid = %(oid)s OR contype = 'f'))
  WHEN 'pg_trigger'::regclass THEN NOT EXISTS (SELECT FROM pg_trigger WHERE oid = d.objid AND tgrelid = %(oid)s)
  WHEN 'pg_rewrite'::regclass THEN NOT EXISTS (SELECT FROM pg_rewrite r WHERE r.oid = d.objid AND (r.ev_class =
    %(oid)s OR EXISTS (SELECT FROM pg_class v WHERE v.oid = r.ev_class AND v.relkind IN ('v', 'm'))))
  WHEN 'pg_policy'::regclass THEN NOT EXISTS (SELECT FROM pg_policy WHERE oid = d.objid AND polrelid = %(oid)s)
  WHEN 'pg_statistic_ext'::regclass THEN NOT EXISTS (SELECT FROM pg_statistic_ext WHERE oid = d.objid AND
    stxrelid = %(oid)s)
  WHEN 'pg_publication_rel'::regclass THEN false
  WHEN 'pg_class'::regclass THEN NOT EXISTS (SELECT FROM pg_index WHERE indexrelid = d.objid AND indrelid = %(oid)s)
    AND NOT EXISTS (SELECT FROM pg_class WHERE oid = d.objid AND relkind = 'S')
    AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = d.objid AND inhparent = %(oid)s)
  ELSE true END
UNION SELECT pg_describe_object('pg_subscription'::regclass, srsubid, 0) FROM pg_subscription_rel
WHERE srrelid = %(oid)s
UNION SELECT 'extension ' || e.extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
WHERE d.classid = 'pg_class'::regclass AND d.objid = %(oid)s AND d.refclassid = 'pg_extension'::regclass
AND d.deptype = 'e'
ORDER BY 1
"""

# Whatever keeps the server from dropping a column, and an empty copy does not have: what publishes it, and what takes
# numbers of its sequence. A condition on rows is a text with the column's name, for values of its type, so a rename or
# another type is in its way as well. The server records a publication's need of a column once for its list and once for
# its condition.
_NEEDING: Final = """
WITH lost AS (SELECT attnum, attname, attname = ANY (%(changed)s) AS is_changed FROM pg_attribute
  WHERE attrelid = %(oid)s AND attname = ANY (%(dropped)s || %(changed)s) AND NOT attisdropped),
numbers AS (SELECT d.objid, attname FROM pg_depend d JOIN lost ON attnum = d.refobjsubid AND NOT is_changed
  JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
  WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s)
SELECT attname, pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d JOIN lost ON attnum = d.refobjsubid
JOIN pg_publication_rel r ON r.oid = d.objid
WHERE d.classid = 'pg_publication_rel'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s
AND (NOT is_changed OR (SELECT count(*) FROM pg_depend e WHERE (e.classid, e.objid, e.refclassid, e.refobjid,
  e.refobjsubid) = (d.classid, d.objid, d.refclassid, d.refobjid, d.refobjsubid)) >
  CASE WHEN attnum = ANY ({columns}) THEN 1 ELSE 0 END)
UNION SELECT attname, pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d JOIN numbers n ON n.objid = d.refobjid
WHERE d.refclassid = 'pg_class'::regclass AND d.deptype = 'n' AND NOT EXISTS (SELECT FROM pg_attrdef f
  JOIN lost ON attnum = f.adnum WHERE d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid AND f.adrelid = %(oid)s)
ORDER BY 1, 2
"""

# Of sequences that an altered copy takes numbers of: the column, if a default does; whether the sequence is in the
# copy's schema; whether it goes with the table, whose identity it is, or whose column does not stay.
_NUMBERS: Final = """
SELECT coalesce(a.attname, ''), s.relname, s.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = %(copy)s),
EXISTS (SELECT FROM pg_depend o WHERE o.classid = 'pg_class'::regclass AND o.objid = s.oid
  AND o.refclassid = 'pg_class'::regclass AND o.refobjid = %(table)s
  AND (o.deptype = 'i' OR (o.deptype = 'a' AND o.refobjsubid <> ALL (%(kept)s))))
FROM pg_depend d JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
LEFT JOIN pg_attrdef f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
LEFT JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum
WHERE d.refclassid = 'pg_class'::regclass AND (f.adrelid = %(copy)s OR (d.classid = 'pg_constraint'::regclass
  AND EXISTS (SELECT FROM pg_constraint c WHERE c.oid = d.objid AND c.conrelid = %(copy)s))) ORDER BY 1, 2
"""


def facts_of(session: BoundedConnection, table: sql.Identifier) -> Facts:
    """The table's facts, as this session sees them now."""
    ((oid,),) = session.execute("SELECT to_regclass(%s)::oid", (table.as_string(),))
    columns, rows = published_parts(session.info.server_version)
    query = _FACTS.replace("{columns}", columns).replace("{rows}", rows)
    return frozenset(CatalogueFact(*map(str, row)) for row in session.execute(query, {"oid": oid}))


def hanging_on(session: BoundedConnection, oid: int) -> list[str]:
    """What refers to the table from elsewhere, as the server describes it."""
    return [str(found) for (found,) in session.execute(_HANGING, {"oid": oid})]


def needing_column(
    session: BoundedConnection, table: sql.Identifier, dropped: Sequence[str], changed: Sequence[str]
) -> list[tuple[str, str]]:
    """Columns that cannot be dropped, or changed in a copy, and what needs them, as the server describes it."""
    ((oid,),) = session.execute("SELECT to_regclass(%s)::oid", (table.as_string(),))
    query = _NEEDING.replace("{columns}", published_parts(session.info.server_version)[0])
    found = session.execute(query, {"oid": oid, "dropped": [*dropped], "changed": [*changed]})
    return [(str(column), str(what)) for column, what in found]


def check_numbers(session: BoundedConnection, table: DescribedTable, copy: sql.Identifier, kept: Sequence[int]) -> None:
    """RefusedError: an altered copy takes numbers of a sequence that is new, or that goes with the old table.

    ``kept``: numbers of the table's columns that stay.
    """
    query = "SELECT to_regclass(%s)::oid, to_regclass(%s)::oid"
    full, where = named(table.schema, table.name), f"{table.schema}.{table.name}"
    ((old, new),) = session.execute(query, (full.as_string(session), copy.as_string(session))).fetchall()
    for column, sequence, is_new, is_lost in session.execute(_NUMBERS, {"table": old, "copy": new, "kept": [*kept]}):
        what = f"column {column}" if column else "a constraint"
        if is_new:
            raise RefusedError(
                f"table {where}: {what} takes numbers of a sequence that the statement creates, which would be called "
                "after the copy. Use GENERATED BY DEFAULT AS IDENTITY, or strategy direct"
            )
        if is_lost:
            raise RefusedError(
                f"table {where}: {what} takes numbers of sequence {sequence}, which belongs to the old table, so that "
                "could never be dropped. Use a sequence of its own, or strategy direct"
            )


def identities(facts: Facts) -> frozenset[str]:
    """Columns that have a sequence as their identity."""
    return frozenset(fact.subject for fact in facts if fact.aspect == "identity")


def check_changed(before: Facts, after: Facts, change: FormChange | None, pairs: Mapping[str, str]) -> None:
    """Raise RefusedError unless the table is what the change makes of it. ``pairs``: column before → after.

    In a revert, without a ``change``, columns that only the old table has are as they were. Rights on a sequence
    are compared where there is one before and after the change: a new one has those of the statement.
    """
    expected = wanted(before, change, pairs, FORMED)
    if change is None:
        kept = set(pairs.values())
        after = frozenset(fact for fact in after if not fact.column or fact.column in kept)
        numbered = identities(after) & {pairs.get(column, "") for column in identities(before)}
    else:
        numbered = identities(expected) if change.knows_sequences else frozenset()
    expected, after = (
        frozenset(fact for fact in facts if fact.aspect != SEQUENCE_GRANT or fact.column in numbered)
        for facts in (expected, after)
    )
    check_became(expected, after, FORMED if change is None else frozenset())
