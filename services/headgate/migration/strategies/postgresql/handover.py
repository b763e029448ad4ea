"""What hangs on a table of PostgreSQL and not on its definition, and how the copy gets it within the cut-over.

Owner, privileges, row security, publications, replica identity, sequences, index names: what is left behind is missed
later, by another user. Debezium reads the changes of a publication: without it the table's topic would fall silent.
"""

from collections.abc import Container, Sequence
from typing import Final

from headgate.databases.postgresql import sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.publications import published_parts
from headgate.migration.strategies.contract import CopyPlan, RefusedError
from headgate.migration.strategies.fingerprint import Named
from headgate.migration.strategies.postgresql.names import names_of, renames
from headgate.migration.strategies.postgresql.sessions import named

__all__ = ["hand_over"]

_OWNER: Final = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = %s::regclass"

_STATISTICS: Final = """
SELECT nspname, stxname FROM pg_statistic_ext JOIN pg_namespace n ON n.oid = stxnamespace WHERE stxrelid = %s::regclass
"""

_RIGHTS: Final = """
SELECT CASE grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(grantee) END, privilege_type, is_grantable
FROM pg_class, aclexplode(coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner)))
WHERE oid = %s::regclass
"""

_IS_GIVEN: Final = "SELECT relacl IS NOT NULL FROM pg_class WHERE oid = %s::regclass"
"""Whether rights were ever given or taken; else the owner has all."""

_RIGHTS_OF_OTHERS: Final = """
SELECT CASE grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(grantee) END, privilege_type, is_grantable
FROM pg_class, aclexplode(relacl) WHERE oid = %s::regclass AND grantee <> relowner
"""

_COLUMN_RIGHTS: Final = """
SELECT attname, CASE grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(grantee) END, privilege_type, is_grantable
FROM pg_attribute, aclexplode(attacl) WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""

_MARKS: Final = """
SELECT relrowsecurity, relforcerowsecurity, (SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indrelid = c.oid AND x.indisclustered) FROM pg_class c WHERE oid = %s::regclass
"""

_PUBLICATIONS: Final = """
SELECT p.pubname, ARRAY(SELECT a.attname::text FROM unnest({columns}) WITH ORDINALITY k(number, place)
JOIN pg_attribute a ON a.attrelid = r.prrelid AND a.attnum = k.number ORDER BY k.place), {rows}
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = %s::regclass ORDER BY 1
"""

_MEMBERSHIPS: Final = """
SELECT p.pubname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = %s::regclass
"""

_IDENTITY: Final = """
SELECT relreplident::text, (SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indrelid = c.oid AND x.indisreplident) FROM pg_class c WHERE oid = %s::regclass
"""

_SAME_POSITION: Final = """
SELECT (o.last_value, o.is_called) = (n.last_value, n.is_called) FROM {old} o, {new} n
"""

_SEQUENCES: Final = """
SELECT attname, attidentity::text, pg_get_serial_sequence(%s, attname) FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""


def hand_over(
    session: BoundedConnection, plan: CopyPlan, mark: str, wanted: Sequence[Named], restarted: Container[str] = ()
) -> None:
    """Give the copy what hangs on the table; ``mark`` makes names of the migration. Raises RefusedError.

    ``wanted``: what objects of the copy are called then; as those of the table before, if that is not known.
    ``restarted``: columns whose sequence is where the statement has put it.
    """
    schema = plan.before.schema
    table, shadow = named(schema, plan.before.name), named(schema, plan.shadow)
    full = table.as_string(session)
    ((owner,),) = session.execute(_OWNER, (full,)).fetchall()
    # At once, because rights that the copy has are its owner's and its owner's grants.
    session.execute(sql.SQL("ALTER TABLE {} OWNER TO {}").format(shadow, sql.Identifier(owner)))
    found: list[sql.Composed] = []
    for name in session.execute(_STATISTICS, (shadow.as_string(session),)).fetchall():
        words = sql.SQL("ALTER STATISTICS {} OWNER TO {}")
        found.append(words.format(sql.Identifier(*name), sql.Identifier(owner)))
    found += _rights(session, plan, full)
    found += _publications(session, plan, full)
    names = wanted or names_of(session, table)
    renamed, indexes = renames(session, schema, plan.before.name, plan.shadow, wanted=names, mark=mark)
    found += renamed
    found += _marks(session, shadow, full, indexes)
    found += _identity(session, shadow, full, indexes)
    for statement in found:
        session.execute(statement)
    _sequences(session, plan, full, restarted)


def _publications(session: BoundedConnection, plan: CopyPlan, full: str) -> list[sql.Composed]:
    """With the columns and the rows that are published, where not all are; columns that are new are not among them.

    The copy may be in one of them: a connector that captures a schema puts all tables there when it begins again.
    """
    schema, new_name = plan.before.schema, dict(plan.pairs)
    table, shadow = named(schema, plan.before.name), named(schema, plan.shadow)
    columns, rows = published_parts(session.info.server_version)
    of_copy = {name for (name,) in session.execute(_MEMBERSHIPS, (shadow.as_string(session),)).fetchall()}
    found: list[sql.Composed] = []
    query = _PUBLICATIONS.format(columns=columns, rows=rows)
    for publication, names, condition in session.execute(query, (full,)).fetchall():
        name = sql.Identifier(publication)
        member: sql.Composable = shadow
        kept = [new_name[column] for column in names if column in new_name]
        if names and not kept:
            raise RefusedError(
                f"publication {publication} lists columns of {full}, and none of them is left after the change: with "
                "no list it would publish all columns. Change the publication first"
            )
        if kept:
            member = sql.SQL("{} ({})").format(member, sql.SQL(", ").join(map(sql.Identifier, kept)))
        if condition is not None:
            member = sql.SQL("{} WHERE ({})").format(member, sql.SQL(condition))
        if publication in of_copy:
            found.append(sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(name, shadow))
        found.append(sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(name, table))
        found.append(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, member))
    return found


def _rights(session: BoundedConnection, plan: CopyPlan, full: str) -> list[sql.Composed]:
    """Those of the table and of its columns, and no more: default privileges may have given the copy others."""
    shadow, new_name = named(plan.before.schema, plan.shadow), dict(plan.pairs)
    found = _same_rights(session, sql.SQL("TABLE {}").format(shadow), shadow.as_string(session), full)
    for column, grantee, right, grantable in session.execute(_COLUMN_RIGHTS, (full,)).fetchall():
        if column in new_name:
            option = sql.SQL(" WITH GRANT OPTION" if grantable else "")
            name = sql.Identifier(new_name[column])
            grant = sql.SQL("GRANT {} ({}) ON {} TO {}{}")
            found.append(grant.format(sql.SQL(right), name, shadow, _role(grantee), option))
    return found


def _same_rights(session: BoundedConnection, thing: sql.Composed, copy: str, full: str) -> list[sql.Composed]:
    """Statements that give ``thing``, a table or a sequence that is called ``copy``, the rights on ``full``."""
    ((is_given,),) = session.execute(_IS_GIVEN, (full,)).fetchall()
    query = _RIGHTS if is_given else _RIGHTS_OF_OTHERS
    found = [
        sql.SQL("REVOKE ALL ON {} FROM {}").format(thing, _role(grantee))
        for grantee in {row[0] for row in session.execute(query, (copy,)).fetchall()}
    ]
    for grantee, right, grantable in session.execute(query, (full,)).fetchall():
        option = sql.SQL(" WITH GRANT OPTION" if grantable else "")
        found.append(sql.SQL("GRANT {} ON {} TO {}{}").format(sql.SQL(right), thing, _role(grantee), option))
    return found


def _role(name: str | None) -> sql.Composable:
    return sql.SQL("PUBLIC") if name is None else sql.Identifier(name)


def _marks(session: BoundedConnection, shadow: sql.Composable, full: str, indexes: set[str]) -> list[sql.Composed]:
    """Row security, and the index by which the table was clustered, which is called by its name already."""
    ((is_enabled, is_forced, clustered),) = session.execute(_MARKS, (full,)).fetchall()
    words: list[sql.Composable] = []
    if is_enabled:
        words.append(sql.SQL("ENABLE ROW LEVEL SECURITY"))
    if is_forced:
        words.append(sql.SQL("FORCE ROW LEVEL SECURITY"))
    if clustered in indexes:
        words.append(sql.SQL("CLUSTER ON {}").format(sql.Identifier(clustered)))
    return [sql.SQL("ALTER TABLE {} {}").format(shadow, word) for word in words]


def _identity(session: BoundedConnection, shadow: sql.Composable, full: str, indexes: set[str]) -> list[sql.Composed]:
    """What the event of a deleted row contains of it. The index that determines this has its final name already."""
    ((kind, index),) = session.execute(_IDENTITY, (full,)).fetchall()
    mode: sql.Composable | None = {"f": sql.SQL("FULL"), "n": sql.SQL("NOTHING")}.get(kind)
    if kind == "i" and index is not None:
        if index not in indexes:
            raise RefusedError(
                f"index {index} is the replica identity of {full}, and the new form has none like it: set another "
                "identity first (ALTER TABLE … REPLICA IDENTITY DEFAULT, or FULL)"
            )
        mode = sql.SQL("USING INDEX {}").format(sql.Identifier(index))
    return [] if mode is None else [sql.SQL("ALTER TABLE {} REPLICA IDENTITY {}").format(shadow, mode)]


def _sequences(session: BoundedConnection, plan: CopyPlan, full: str, restarted: Container[str]) -> None:
    """A serial's sequence goes to the new column; an identity's new sequence continues where the old one is.

    The old one was renamed in this transaction, so no other session advances it until the end. RefusedError: they
    differ.
    """
    shadow, new_name = named(plan.before.schema, plan.shadow), dict(plan.pairs)
    of_copy = {row[0]: row[2] for row in session.execute(_SEQUENCES, (shadow.as_string(session),) * 2).fetchall()}
    for column, kind, sequence in session.execute(_SEQUENCES, (full, full)).fetchall():
        new = new_name.get(column)
        if sequence is None or new is None:
            continue
        if kind == "":
            owned = sql.SQL("ALTER SEQUENCE {} OWNED BY {}.{}")
            session.execute(owned.format(sql.SQL(sequence), shadow, sql.Identifier(new)))
            continue
        if of_copy.get(new) is None:
            continue
        thing = sql.SQL("SEQUENCE {}").format(sql.SQL(of_copy[new]))
        for statement in _same_rights(session, thing, of_copy[new], sequence):
            session.execute(statement)
        if new not in restarted:
            places = {"old": sql.SQL(sequence), "new": sql.SQL(of_copy[new]), "name": sql.Literal(of_copy[new])}
            session.execute(sql.SQL("SELECT setval({name}, last_value, is_called) FROM {old}").format(**places))
            ((is_equal,),) = session.execute(sql.SQL(_SAME_POSITION).format(**places)).fetchall()
            if not is_equal:
                raise RefusedError(
                    f"the sequence of column {new} would not continue at its position, so nothing was changed"
                )
