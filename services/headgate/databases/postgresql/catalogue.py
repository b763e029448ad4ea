"""PostgreSQL's catalogue."""

from collections.abc import Mapping
from typing import Final

import msgspec

from headgate.databases.catalogue import Ask, CatalogueColumn, Key, Product, TableDefinition, TableForm
from headgate.databases.postgresql.search_path import find_table
from headgate.databases.postgresql.session import PostgresSession
from headgate.records.identifiers import table_spelling

__all__ = [
    "EnumType",
    "PostgresColumn",
    "PostgresDefinition",
    "PostgresForm",
    "PostgresKey",
    "read_definition",
    "read_enums",
    "read_form",
]

# The columns that an expression (pg_attrdef d) of a column (pg_attribute a) names; NULL if it needs more than these and
# what is PostgreSQL's own, which is not recorded.
NEEDED: Final = """
  CASE WHEN NOT EXISTS (SELECT FROM pg_depend x WHERE x.classid = 'pg_attrdef'::regclass AND x.objid = d.oid
                        AND (x.refclassid <> 'pg_class'::regclass OR x.refobjid <> a.attrelid))
  THEN ARRAY(SELECT u.attname::text FROM pg_depend x
             JOIN pg_attribute u ON u.attrelid = x.refobjid AND u.attnum = x.refobjsubid
             WHERE x.classid = 'pg_attrdef'::regclass AND x.objid = d.oid AND u.attnum <> a.attnum) END"""

# A domain, or one in an array, is followed down to the type that it is made of.
_COLUMNS: Final = f"""
WITH RECURSIVE base AS (
    SELECT a.attnum, COALESCE(e.oid, t.oid) AS oid, COALESCE(e.typtype, t.typtype) AS typtype,
           COALESCE(e.typbasetype, t.typbasetype) AS typbasetype, COALESCE(e.typtypmod, t.typtypmod) AS typtypmod,
           format_type(a.atttypid, a.atttypmod) AS declared, CASE WHEN e.oid IS NULL THEN '' ELSE '[]' END AS array_of
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A' AND e.typtype = 'd'
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT b.attnum, t.oid, t.typtype, t.typbasetype, t.typtypmod,
           format_type(b.typbasetype, b.typtypmod) || b.array_of, b.array_of
    FROM base b JOIN pg_type t ON t.oid = b.typbasetype
    WHERE b.typtype = 'd'
)
SELECT a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), own.typname, NOT a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid), a.attidentity::text, a.attgenerated::text,
       CASE WHEN a.attcollation <> own.typcollation
            THEN quote_ident(cn.nspname) || '.' || quote_ident(c.collname) END,
       a.attcollation::bigint, COALESCE(c.collisdeterministic, true), b.declared, b.typtype = 'e',
       CASE WHEN is_theirs THEN quote_ident(n.nspname) || '.' ELSE '' END AS qualifier,
       {NEEDED}
FROM pg_attribute a JOIN pg_type own ON own.oid = a.atttypid
JOIN base b ON b.attnum = a.attnum AND b.typtype <> 'd'
JOIN pg_type t ON t.oid = b.oid JOIN pg_namespace n ON n.oid = t.typnamespace
CROSS JOIN LATERAL (SELECT NOT EXISTS (SELECT FROM pg_type std WHERE std.typname = t.typname
                                       AND std.typnamespace = 'pg_catalog'::regnamespace) AS is_theirs) AS x
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_collation c ON c.oid = a.attcollation LEFT JOIN pg_namespace cn ON cn.oid = c.collnamespace
WHERE a.attrelid = %s ORDER BY a.attnum
"""  # noqa: S608 - a text of our own

_KEYS: Final = """
SELECT c.relname,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number ORDER BY k.place),
       i.indisprimary, i.indpred IS NULL AND i.indexprs IS NULL, i.indimmediate, i.indisvalid,
       EXISTS (SELECT FROM unnest(i.indclass::oid[]) u JOIN pg_opclass o ON o.oid = u
               WHERE o.opcnamespace <> 'pg_catalog'::regnamespace)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = %s AND i.indisunique ORDER BY NOT i.indisprimary, c.relname
"""

# A row without a column's name is the table's own.
_COMMENTS: Final = """
SELECT a.attname, d.description FROM pg_description d
LEFT JOIN pg_attribute a ON a.attrelid = d.objoid AND a.attnum = d.objsubid AND d.objsubid > 0
WHERE d.objoid = %s AND d.classoid = 'pg_class'::regclass AND d.description <> ''
"""

_LABELS: Final = "ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)"

_ENUMS: Final = f"""
SELECT a.attname, n.nspname, t.typname, {_LABELS}
FROM pg_attribute a JOIN pg_type own ON own.oid = a.atttypid
JOIN pg_type t ON t.oid = CASE WHEN own.typcategory = 'A' THEN own.typelem ELSE own.oid END AND t.typtype = 'e'
JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""  # noqa: S608 - a text of our own

_ALL_ENUMS: Final = f"""
SELECT n.nspname, t.typname, {_LABELS}
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.typtype = 'e'
"""  # noqa: S608


class PostgresColumn(CatalogueColumn, frozen=True, kw_only=True):
    """A column. ``base`` is its type, or the one that its domain is made of, types of extensions without schema."""

    base: str
    is_enum: bool
    identity: str
    """``a`` (always), ``d`` (by default), or empty."""
    generation: str
    """``s`` (stored), ``v`` (virtual), or empty."""
    collation_number: int
    is_deterministic: bool
    """Whether its collation distinguishes all texts."""
    needs: tuple[str, ...] | None = None
    """Columns that ``generated`` names; None if it needs anything else besides PostgreSQL itself."""


class PostgresKey(Key, frozen=True, kw_only=True):
    """A unique index."""

    is_valid: bool
    """Whether it was built to the end."""
    is_immediate: bool
    """Whether it is checked at each row, and not only at a transaction's end."""
    has_own_operators: bool
    """Whether it is ordered by an extension's operators, which are not on our sessions' search path."""


PostgresForm = TableForm[PostgresColumn, PostgresKey]


class EnumType(msgspec.Struct, frozen=True):
    """An enum, which is an object of its own beside the tables that use it."""

    schema: str
    name: str
    labels: tuple[str, ...]


class PostgresDefinition(TableDefinition[PostgresColumn, PostgresKey], frozen=True, kw_only=True):
    """A table. ``enums``: column → the enum that its values, or the elements of its arrays, are of."""

    enums: Mapping[str, EnumType] = {}


def read_definition(session: PostgresSession, schema: str, table: str) -> PostgresDefinition | None:
    """The table of that name; None if it does not exist. Raises PostgresError."""
    found = find_table(session.execute, (), table_spelling(schema, table))
    if found is None:
        return None
    oid = found[0]
    comments = dict(session.execute(_COMMENTS, (oid,)))
    return PostgresDefinition(
        product=Product.POSTGRESQL,
        schema=schema,
        table=table,
        form=read_form(session.execute, oid),
        comment=comments.pop(None, None),
        comments=comments,
        enums={
            column: EnumType(space, name, tuple(labels))
            for column, space, name, labels in session.execute(_ENUMS, (oid,))
        },
    )


def read_enums(session: PostgresSession) -> frozenset[EnumType]:
    """Every enum of the database. Raises PostgresError."""
    return frozenset(EnumType(space, name, tuple(labels)) for space, name, labels in session.execute(_ALL_ENUMS))


def read_form(ask: Ask, oid: object) -> PostgresForm:
    """The table of that number. Raises PostgresError."""
    return PostgresForm(
        tuple(_column(*row) for row in ask(_COLUMNS, (oid, oid))),
        tuple(
            PostgresKey(
                name=str(name),
                columns=tuple(columns),
                is_primary=is_primary,
                finds_rows=is_whole and is_immediate and is_valid,
                is_immediate=is_immediate,
                is_valid=is_valid,
                has_own_operators=has_own,
            )
            for name, columns, is_primary, is_whole, is_immediate, is_valid, has_own in ask(_KEYS, (oid,))
        ),
    )


def _column(  # noqa: PLR0917 - one row of _COLUMNS
    number: int,
    name: str,
    declared: str,
    kind: str,
    is_nullable: bool,
    expression: str | None,
    identity: str,
    generation: str,
    collation: str | None,
    collation_number: int,
    is_deterministic: bool,
    base: str,
    is_enum: bool,
    qualifier: str,
    needed: list[str] | None,
) -> PostgresColumn:
    return PostgresColumn(
        number=number,
        name=name,
        type=declared,
        kind=kind,
        is_nullable=is_nullable,
        default=None if generation else expression,
        generated=expression if generation else None,
        is_identity=bool(identity),
        collation=collation,
        base=base.removeprefix(qualifier),
        is_enum=is_enum,
        identity=identity,
        generation=generation,
        collation_number=collation_number,
        is_deterministic=is_deterministic,
        needs=None if needed is None or not generation else tuple(needed),
    )
