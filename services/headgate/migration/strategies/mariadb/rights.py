"""Which rights a schema change's user lacks at MariaDB, with the statements that give them. Nothing is changed.

Asked before anything is changed. The server judges, as rights come from patterns and roles, too: it checks them before
it finds that the table of a statement does not exist. A session that only reads is refused before the server checks
ALTER and DROP, so these are judged when the change is submitted.
"""

from collections.abc import Iterable
from secrets import token_hex
from typing import Final

from headgate.databases.faults import Fault
from headgate.databases.mysql.errors import MysqlError, errno, fault_of
from headgate.databases.mysql.session import MysqlSession
from headgate.databases.mysql.sql import quoted
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import RefusedError
from headgate.sinks.relational.mysql.catalog import account
from headgate.sinks.relational.rights import RightsMissingError
from headgate.tables.mysql_rights import grant_on, missing_listed

__all__ = ["check_rehearsal", "check_rights"]

_TRIES: Final = {
    "SELECT": "SELECT 1 FROM {} LIMIT 0",
    "INSERT": "INSERT INTO {} VALUES (1)",
    "UPDATE": "UPDATE {} SET i = 1",
    "DELETE": "DELETE FROM {}",
    "CREATE": "PREPARE headgate_try FROM 'CREATE TABLE {} (i int)'",
    "ALTER": "ALTER TABLE {} ADD COLUMN i int",
    "DROP": "DROP TABLE {}",
    "LOCK TABLES": "LOCK TABLES {} WRITE",
    "CREATE TEMPORARY TABLES": "PREPARE headgate_try FROM 'CREATE TEMPORARY TABLE {} (i int)'",
}
"""Statements about a table that does not exist: each fails, or is only prepared."""

_RANDOM_BYTES: Final = 16
"""Of the name of that table, so that no table can be called so."""

_OWN: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP")
"""In Headgate's own database: what is remembered of a migration, and copies on which statements are tried."""

_COPIED: Final = (*_OWN, "LOCK TABLES")
"""In the table's database: the copy, which a feed writes, and the rename of both."""

_PROCESS: Final = "SELECT 1 FROM information_schema.innodb_sys_tables LIMIT 1"
"""InnoDB's numbers of tables, by which a cut-over is recognised."""

_OF_ACTION: Final = {"alter": "ALTER", "create": "CREATE", "drop": "DROP"}
_DATABASE_DENIED: Final = 1044
_NO_ANSWER: Final = frozenset({Fault.ENDED, Fault.LOST})


def check_rights(session: MysqlSession, statement: Statement, schema: str, own: str, *, is_copied: bool) -> None:
    """Raise RefusedError with all rights that the statement lacks. ``own`` is Headgate's own database there.

    ``is_copied``: it is done by strategy online. Raises MysqlError.
    """
    lacking = [(own, right) for right in _denied(session, own, (*_OWN, *_TEMPORARY[is_copied]))]
    if is_copied:
        lacking += [(schema, right) for right in _denied(session, schema, _COPIED)]
    else:
        lacking += [(schema, right) for right in _denied_directly(session, statement, schema)]
    needs_process = is_copied and _is_denied(session, _PROCESS)
    _refuse(session, f"{schema}.{statement.table}", lacking, needs_process=needs_process)


_TEMPORARY: Final[dict[bool, tuple[str, ...]]] = {True: ("CREATE TEMPORARY TABLES",), False: ()}
"""The feed into a copy stages rows; the cut-over compares some."""


def check_rehearsal(session: MysqlSession, table: str, database: str, databases: str) -> None:
    """Raise RefusedError unless a table may be made and dropped in that database, which is for one migration.

    ``databases`` is the quoted pattern of what such a database is called. Raises MysqlError.
    """
    if rights := ", ".join(_denied(session, database, ("SELECT", "CREATE", "ALTER", "DROP"))):
        user = account(session)
        lacks = f"table {table}: database user {user} has no right {rights} in databases {databases}"
        raise RefusedError(str(RightsMissingError(lacks, [f"GRANT {rights} ON {databases}.* TO {user}"])))


def _denied_directly(session: MysqlSession, statement: Statement, schema: str) -> list[str]:
    """Rights to the table itself, which may have been given for this table alone."""
    wanted = [_OF_ACTION[statement.action]]
    if statement.having("drop-partition") is not None:
        wanted.append("DROP")
    place = (schema, statement.table)
    found = [right for right in _denied(session, schema, wanted) if missing_listed(session, [place], right)]
    if statement.action == "alter" and _is_denied(session, _TRIES["SELECT"].format(quoted(*place))):
        found.insert(0, "SELECT")  # a copy on which it is tried is made LIKE the table
    return found


def _denied(session: MysqlSession, database: str, rights: Iterable[str]) -> list[str]:
    target = quoted(database, f"headgate_{token_hex(_RANDOM_BYTES)}")
    return [
        right
        for right in rights
        if _is_denied(session, _TRIES[right].replace("{}", target), of_database=right == "LOCK TABLES")
    ]


def _is_denied(session: MysqlSession, statement: str, *, of_database: bool = False) -> bool:
    """Whether the user may not execute it. Any other error is of a statement that it may.

    ``of_database``: for want of a right that databases have; the statement needs one of tables, too.
    """
    try:
        session.execute(statement)
    except MysqlError as error:
        fault = fault_of(error)
        if fault in _NO_ANSWER:
            raise
        return errno(error) == _DATABASE_DENIED if of_database else fault is Fault.PERMISSION
    return False


def _refuse(session: MysqlSession, table: str, lacking: list[tuple[str, str]], *, needs_process: bool) -> None:
    rights: dict[str, list[str]] = {}
    for database, right in lacking:
        rights.setdefault(database, []).append(right)
    grants = [grant_on(session, database, found) for database, found in rights.items()]
    lacks = [f"{', '.join(found)} in database {database}" for database, found in rights.items()]
    if needs_process:
        lacks.append("PROCESS")
        grants.append(f"GRANT PROCESS ON *.* TO {account(session)}")
    if grants:
        said = f"table {table}: database user {account(session)} has no right {', '.join(lacks)}"
        raise RefusedError(str(RightsMissingError(said, grants)))
