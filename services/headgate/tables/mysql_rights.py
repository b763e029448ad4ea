"""Which rights the user of a MySQL or MariaDB lacks to create tables there and to write them. Nothing is executed.

The server checks rights when it prepares a statement, also for a table that does not exist. Rights come from patterns
and roles, too, so a list of grants would have to be judged as the server judges it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from headgate.databases.faults import Fault
from headgate.databases.mysql.errors import MysqlError, fault_of
from headgate.databases.mysql.session import MysqlSession
from headgate.databases.mysql.sql import literal, quoted
from headgate.records.identifiers import parse_identifier
from headgate.sinks.relational.mysql.catalog import account
from headgate.tables.statement import CreateTable

__all__ = ["all_rights", "every_table", "grant_on", "missing_alter", "missing_listed", "missing_rights"]

_STATEMENTS: Final = {
    "CREATE": "CREATE TABLE {} (i int)",
    "SELECT": "SELECT 1 FROM {}",
    "INSERT": "INSERT INTO {} VALUES (1)",
    "UPDATE": "UPDATE {} SET i = 1",
    "DELETE": "DELETE FROM {}",
}

_NO_ANSWER: Final = frozenset({Fault.ENDED, Fault.LOST})


def missing_rights(session: MysqlSession, tables: Iterable[CreateTable]) -> list[str]:
    """The GRANTs that the session's user needs, one for each database. Raises MysqlError."""
    lacking: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for table in tables:
        lacking[table.schema] |= dict.fromkeys(_refused(session, quoted(*parse_identifier(table.name))))
    return [grant_on(session, database, rights) for database, rights in lacking.items() if rights]


def all_rights(session: MysqlSession, tables: Iterable[CreateTable]) -> list[str]:
    """GRANTs of every right that creating and writing these tables needs."""
    return [grant_on(session, database, _STATEMENTS) for database in dict.fromkeys(table.schema for table in tables)]


_GRANT: Final = re.compile(
    r"GRANT (?P<rights>[A-Z ,]+) ON (?:TABLE )?(?P<database>\*|`(?:[^`]|``)*`)\.(?P<table>\*|`(?:[^`]|``)*`) TO .*",
    re.DOTALL,
)
_ALL: Final = "ALL PRIVILEGES"


def missing_alter(session: MysqlSession, places: Iterable[tuple[str, str]]) -> list[str]:
    """GRANTs of ALTER, one for each database with a table, (database, table), that the user may not alter.

    Raises MysqlError.
    """
    return missing_listed(session, places, "ALTER")


def missing_listed(session: MysqlSession, places: Iterable[tuple[str, str]], right: str) -> list[str]:
    """GRANTs of a right, one for each database with a table, (database, table), for which the user does not have it.

    The server checks ALTER and DROP only when it executes a statement, so they are judged by the list of grants. Where
    that has a line of another form, such as a role, the server judges when it executes it. Raises MysqlError.
    """
    lines = _grants(session)
    found = [line for line in lines if line is not None]
    if len(found) < len(lines):
        return []
    lacking = dict.fromkeys(
        database for database, table in places if not any(each.gives(right, database, table) for each in found)
    )
    return [grant_on(session, database, [right]) for database in lacking]


class _Grant(NamedTuple):
    """A line of the list, as the server writes it."""

    rights: str
    database: str
    table: str

    def gives(self, right: str, database: str, table: str) -> bool:
        """Whether it gives the right to that table."""
        is_of_it = _like(self.database).fullmatch(database) is not None and self.table in ("*", quoted(table))
        return is_of_it and bool({right, _ALL} & {*self.rights.split(", ")})


def _grants(session: MysqlSession) -> list[_Grant | None]:
    """What the user was granted; None for a line of another form. Raises MysqlError."""
    lines = (_GRANT.fullmatch(str(line)) for (line,) in session.execute("SHOW GRANTS"))
    return [None if line is None else _Grant(*line.group("rights", "database", "table")) for line in lines]


def _named_before(grants: Iterable[_Grant | None], database: str) -> str:
    """All tables of the database, in the words of a grant that the user has.

    Of several names that fit a database the server takes the most exact one only, so a grant with another name would
    take the rights away that the user has.
    """
    names = (each.database for each in grants if each and each.table == "*" and each.database != "*")
    known = next((name for name in names if _like(name).fullmatch(database)), None)
    return every_table(database) if known is None else f"{known}.*"


def _like(shown: str) -> re.Pattern[str]:
    """The databases that a GRANT is for: it takes the name for a pattern."""
    if shown == "*":
        return re.compile(".*", re.DOTALL)
    wild = {"_": ".", "%": ".*"}
    parts = re.findall(r"\\?.", shown[1:-1].replace("``", "`"), re.DOTALL)
    return re.compile("".join(wild.get(part) or re.escape(part[-1]) for part in parts), re.DOTALL)


def _refused(session: MysqlSession, target: str) -> Iterator[str]:
    for right, statement in _STATEMENTS.items():
        try:
            session.execute(f"PREPARE headgate_try FROM {literal(statement.format(target))}")
        except MysqlError as error:
            fault = fault_of(error)
            if fault in _NO_ANSWER:
                raise
            # Any other error is of a statement that the user may execute: the table does not exist.
            if fault is Fault.PERMISSION:
                yield right


def grant_on(session: MysqlSession, database: str, rights: Iterable[str]) -> str:
    """The statement that gives the session's user rights on all tables of a database. Raises MysqlError."""
    return f"GRANT {', '.join(rights)} ON {_named_before(_grants(session), database)} TO {account(session)}"


def every_table(database: str) -> str:
    """All tables of a database, as GRANT names them: it takes the name for a pattern."""
    exact = database.replace("_", r"\_").replace("%", r"\%")
    return f"{quoted(exact)}.*"
