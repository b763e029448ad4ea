"""A mark at MariaDB: one row of the table is given another value and its own again, in one transaction.

An UPDATE that sets a row to what it is does not come into MariaDB's row log. So a column outside of the key is changed
there and back: two events, and the row is what it was before any other session sees it. (Deleting the row and putting
it back would be two events as well; but readers of the topic whose foreign keys cascade would lose other rows.)
"""

from typing import Final

from headgate.databases.mysql.key_ranges import among
from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.contract import DescribedColumn, DescribedTable, RefusedError
from headgate.migration.strategies.mariadb.sessions import Session
from headgate.migration.strategies.mariadb.text import kind_of, literal, literals, one, row_text
from headgate.migration.strategies.online.lane import LastChange, Mark, Row

__all__ = ["markable", "set_mark"]

MARK_EVENTS: Final = 2

_NUMBER: Final = "IF({0} <=> 0, 1, 0)"
_TEXT: Final = "IF({0} <=> '0', '1', '0')"
_DAY: Final = "IF({0} <=> '2000-01-01', '2000-01-02', '2000-01-01')"
_WORD: Final = "IF({0} <=> 1, 2, 1)"
"""By its number: the first or the second of the type's words."""

_OTHERS: Final = (
    dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year", "bit"), _NUMBER
    )
    | dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _TEXT)
    | dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _TEXT)
    | dict.fromkeys(("date", "datetime", "timestamp"), _DAY)
    | {"time": "IF({0} <=> '00:00:00', '00:00:01', '00:00:00')", "enum": _WORD, "set": _WORD}
)
"""Kind of a column → a value that it has not now."""

_BY_ITSELF: Final = (
    "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND extra LIKE "
    "'%%on update%%'"
)


def markable(table: DescribedTable) -> list[DescribedColumn]:
    """Columns by which a mark can be tried."""
    kept = {name for keys in (table.keys, table.weak_keys) for columns in keys.values() for name in columns}
    return [
        column
        for column in table.columns
        if column.name not in kept and not column.is_generated and kind_of(column) in _OTHERS
    ]


def set_mark(session: Session, table: DescribedTable, key: list[str], row: Row | None = None) -> Mark | None:
    """Set it on that row, or on any, unless a client has locked it; None: there is none.

    The session must not be autocommit. Raises RefusedError if no column can be changed there and back; the row is as it
    was then.
    """
    full = quoted(table.schema, table.name)
    which = "TRUE" if row is None else among(key, [row])
    found = one(session, f"SELECT {literals(table, key)} FROM {full} WHERE {which} LIMIT 1 FOR UPDATE SKIP LOCKED")
    if found is None:
        return None
    ((before,),) = session.run("SELECT @@last_gtid")
    where = among(key, [found])
    updated = [name for (name,) in session.run(_BY_ITSELF, (table.schema, table.name))]
    whole = row_text(table, [column.name for column in table.columns if not column.is_generated])
    as_it_was = one(session, f"SELECT {whole} FROM {full} WHERE {where}")
    for column in markable(table):
        kept = "".join(f", {quoted(name)} = {quoted(name)}" for name in updated if name != column.name)
        value = one(session, f"SELECT {literal(column)} FROM {full} WHERE {where}")
        if value is None or not _changed(session, f"UPDATE {full} SET {_other(column)}{kept} WHERE {where}"):
            continue
        session.run(f"UPDATE {full} SET {quoted(column.name)} = {value[0]}{kept} WHERE {where}")
        if one(session, f"SELECT {whole} FROM {full} WHERE {where}") != as_it_was:
            session.run("ROLLBACK")
            raise RefusedError(f"column {column.name} of {full} does not take its own value again: no mark can be set")
        session.run("COMMIT")
        return Mark(found, LastChange((("u",),), gtid=_logged(session, before), places=MARK_EVENTS))
    session.run("ROLLBACK")
    raise RefusedError(f"table {full} has no column that can be changed there and back, so no mark can be set")


def _other(column: DescribedColumn) -> str:
    name = quoted(column.name)
    return f"{name} = {_OTHERS[kind_of(column)].format(name)}"


def _changed(session: Session, statement: str) -> bool:
    """Whether one row was; not where the column does not take the value (a CHECK, a width)."""
    try:
        return session.count(statement) == 1
    except RefusedError:
        return False


def _logged(session: Session, before: str) -> str:
    """The GTID of the transaction that was just committed."""
    ((gtid,),) = session.run("SELECT @@last_gtid")
    if not gtid or gtid == before:
        raise RefusedError(
            "the server does not log changes of this session (binlog_do_db, binlog_ignore_db, or sql_log_bin): its log "
            "must have all changes of the table"
        )
    return str(gtid)
