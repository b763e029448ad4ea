"""Names of what belongs to a table of PostgreSQL's: what the server's own ALTER would leave, and how a copy gets them.

A copy's indexes, constraints, extended statistics and identity sequences are called after the copy. What they would be
called is learned on an empty copy of the table's own name. In the cut-over those of the table before are put aside, and
the copy's get their names.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from headgate.databases.postgresql import sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.migration.strategies.fingerprint import Named
from headgate.migration.strategies.postgresql.sessions import named

__all__ = ["RELATIONS", "called_alike", "names_of", "renames", "sequence_positions", "step_sequences"]

RELATIONS: Final = frozenset({"index", "sequence"})
"""Kinds whose names are among those of a schema's tables."""

OF_TABLE: Final = "constraint"
"""Names of constraints are a table's own."""

# A constraint that has an index is called as that is.
_NAMES: Final = """
SELECT 'index', concat_ws(' ', (SELECT contype::text FROM pg_constraint WHERE conindid = i.indexrelid AND conrelid =
    i.indrelid AND contype IN ('p', 'u', 'x')), CASE WHEN indisunique THEN 'UNIQUE' END,
  regexp_replace(pg_get_indexdef(i.indexrelid), '^.*? USING ', '')), c.relname
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %(oid)s
UNION ALL SELECT 'constraint', pg_get_constraintdef(oid), conname FROM pg_constraint
WHERE conrelid = %(oid)s AND contype IN ('c', 'n')
UNION ALL SELECT 'statistics', regexp_replace(regexp_replace(pg_get_statisticsobjdef(oid), '^CREATE STATISTICS \\S+ ',
  ''), ' FROM [^)]*$', ''), stxname FROM pg_statistic_ext WHERE stxrelid = %(oid)s
UNION ALL SELECT 'sequence', a.attname, s.relname FROM pg_depend d
JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'i'
AND d.refobjid = %(oid)s
ORDER BY 1, 2, 3
"""

_TAKEN: Final = "SELECT to_regclass(%s) IS NOT NULL"


def names_of(session: BoundedConnection, table: sql.Identifier) -> tuple[Named, ...]:
    """What the table's objects are called now."""
    ((oid,),) = session.execute("SELECT to_regclass(%s)::oid", (table.as_string(),)).fetchall()
    return tuple(Named(*map(str, row)) for row in session.execute(_NAMES, {"oid": oid}).fetchall())


def step_sequences(session: BoundedConnection, table: sql.Identifier) -> None:
    """Have each identity sequence give its first number, so that one that begins again shows it by its position."""
    schema = table.as_string(session).rpartition(".")[0]
    for one in names_of(session, table):
        if one.kind == "sequence":
            name = sql.SQL("{}.{}").format(sql.SQL(schema), sql.Identifier(one.name))
            session.execute("SELECT nextval(%s)", (name.as_string(session),))


def sequence_positions(session: BoundedConnection, table: sql.Identifier) -> dict[str, str]:
    """Where the sequences of identity columns are: column → the next number, as the server would give it."""
    found = {}
    for one in names_of(session, table):
        if one.kind == "sequence":
            schema = table.as_string(session).rpartition(".")[0]
            query = sql.SQL("SELECT last_value || ' ' || is_called FROM {}.{}")
            ((position,),) = session.execute(query.format(sql.SQL(schema), sql.Identifier(one.name))).fetchall()
            found[one.definition] = str(position)
    return found


def called_alike(session: BoundedConnection, schema: str, name: str, wanted: Iterable[Named]) -> None:
    """Call what belongs to an empty copy as ``wanted`` has it, in a schema that has no other table."""
    found = paired(names_of(session, named(schema, name)), wanted)
    for number, (one, _) in enumerate(found):
        session.execute(_renamed(schema, name, one, f"_hg_{number}"))
    for number, (one, new) in enumerate(found):
        session.execute(_renamed(schema, name, Named(one.kind, one.definition, f"_hg_{number}"), new))


def renames(
    session: BoundedConnection, schema: str, table: str, shadow: str, *, wanted: Sequence[Named], mark: str
) -> tuple[list[sql.Composed], set[str]]:
    """Statements by which the copy's objects are called as ``wanted`` has it; names of indexes that it then has.

    Names that are taken by now get a number behind them, as the server does it.
    """
    before, copy = names_of(session, named(schema, table)), names_of(session, named(schema, shadow))
    found = [(one, new) for one, new in paired(copy, wanted) if one.name != new]
    given = {(_space(one.kind), new) for one, new in found}
    aside: list[sql.Composed] = []
    for number, one in enumerate(before):
        if one.kind != OF_TABLE and (_space(one.kind), one.name) in given:
            aside.append(_renamed(schema, table, one, f"_hg{mark}_{number}"))
    theirs = {one.name for one in before}
    statements = [
        _renamed(schema, shadow, one, _free(session, schema, new, theirs) if one.kind in RELATIONS else new)
        for one, new in found
    ]
    return [*aside, *statements], {new for one, new in paired(copy, wanted) if one.kind == "index"}


def paired(copy: Iterable[Named], wanted: Iterable[Named]) -> list[tuple[Named, str]]:
    """The copy's present and future names, paired by kind and definition; several of one definition in order."""
    names = defaultdict(list)
    for one in wanted:
        names[one.kind, one.definition].append(one.name)
    return [(one, names[one.kind, one.definition].pop(0)) for one in copy if names[one.kind, one.definition]]


def _space(kind: str) -> str:
    return "relation" if kind in RELATIONS else kind


def _free(session: BoundedConnection, schema: str, name: str, theirs: set[str]) -> str:
    for number in range(1, 100):
        ((is_taken,),) = session.execute(_TAKEN, (named(schema, name).as_string(session),)).fetchall()
        if not is_taken or name in theirs:
            return name
        name = f"{name.rstrip('0123456789') if number > 1 else name}{number}"
    return name


def _renamed(schema: str, table: str, one: Named, name: str) -> sql.Composed:
    if one.kind == OF_TABLE:
        rename = sql.SQL("ALTER TABLE {} RENAME CONSTRAINT {} TO {}")
        return rename.format(named(schema, table), sql.Identifier(one.name), sql.Identifier(name))
    rename = sql.SQL(f"ALTER {one.kind.upper()} {{}} RENAME TO {{}}")
    return rename.format(named(schema, one.name), sql.Identifier(name))
